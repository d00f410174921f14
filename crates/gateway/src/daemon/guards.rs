//! The guards, which keep protected traffic in while there is no data plane: rules, unreachable routes, the table of
//! nf_tables. A start makes the guards first, before anything that can fail.

use std::time::Instant;

use super::keeper::Keeper;
use crate::config::GatewayConfig;
use crate::join::{Change, Join, RouteChange};
use crate::net::{Net, NetWatch, Result, Routing, RoutingConfig};

/// The priority of the routing rule. strongSwan uses the same number, so that administrators recognise it.
pub(super) const PRIORITY: u32 = 220;

#[derive(Debug)]
pub(super) struct Guards {
    pub net: Net,
    pub routing: Routing,
    pub keeper: Keeper,
    pub watch: NetWatch,
    /// Some routes were refused.
    pub routes_lag: bool,
}

impl Guards {
    /// Raises the guards for the policies that `join` has. After an error, the guards that could be raised stand.
    pub async fn raise(config: &GatewayConfig, join: &mut Join, now: Instant) -> Result<Self> {
        let net = Net::connect()?;
        let (mut keeper, watch) = Keeper::start(&net, config)?;
        keeper.shield(&join.shielded(), now);
        let routes = RoutingConfig {
            table: config.table,
            priority: PRIORITY,
            mark: config.mark,
        };
        let mut guards = Self {
            routing: Routing::install(&net, routes).await?,
            net,
            keeper,
            watch,
            routes_lag: false,
        };
        for change in join.take_changes() {
            // There is no data plane yet that could follow the other changes.
            if let Change::Route(route) = change {
                guards.routes_lag |= !follow(&mut guards.routing, &guards.net, &route).await;
            }
        }
        Ok(guards)
    }
}

/// Makes the routes follow a change. Returns false if that failed. Then only a repair puts the routes right.
pub(super) async fn follow(routing: &mut Routing, net: &Net, change: &RouteChange) -> bool {
    let (local, remote) = (&change.local, &change.remote);
    let result = match (change.bypass, change.add) {
        (true, true) => routing.bypass(net, remote).await,
        (true, false) => routing.withdraw_bypass(net, remote).await,
        (false, true) => routing.protect(net, local, remote).await,
        (false, false) => routing.withdraw(net, local, remote).await,
    };
    if let Err(error) = &result {
        tracing::error!("routes do not follow the policies and are tried again: {error}");
    }
    result.is_ok()
}
