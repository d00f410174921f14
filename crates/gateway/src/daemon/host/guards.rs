//! The guards, which keep protected traffic in while there is no data plane: rules, unreachable routes, the table of
//! nf_tables. A start makes the guards first, before anything that can fail.

use std::time::Instant;

use crate::config::GatewayConfig;
use crate::daemon::host::device_routes::DeviceRoutes;
use crate::daemon::host::keeper::Keeper;
use crate::join::{Change, Join};
use crate::net::{Net, NetWatch, Result};

#[derive(Debug)]
pub(in crate::daemon) struct Guards {
    pub net: Net,
    pub routes: DeviceRoutes,
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
        // Without the addresses the table only holds more.
        if let Ok(addresses) = net.addresses().await {
            keeper.follow_networks(&addresses);
        }
        keeper.shield(join.configured(), Vec::new(), now);
        let routes = DeviceRoutes::install(&net, config).await?;
        keeper.watch_tables(routes.tables());
        let mut guards = Self {
            routes,
            net,
            keeper,
            watch,
            routes_lag: false,
        };
        for change in join.take_changes() {
            // There is no data plane yet that could follow the other changes.
            if let Change::Route(route) = change {
                guards.routes_lag |= !guards.routes.follow(&guards.net, &route).await;
            }
        }
        Ok(guards)
    }
}
