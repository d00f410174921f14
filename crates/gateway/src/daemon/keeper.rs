//! Keeps links, rules, routes and the table of nf_tables as they should be, whoever else changes them.

use std::time::{Duration, Instant};

use super::join::ConfiguredPolicy;
use super::shield::{self, Outcome, Raised};
use crate::config::GatewayConfig;
use crate::net::nft::Nft;
use crate::net::{Net, NetWatch, OwnLink, Routing, TableWatch, Watched};

/// Others may change things again and again: one line in that time.
const TOLD_EVERY: Duration = Duration::from_secs(10);
/// Things that one line names.
const NAMED: usize = 4;

#[derive(Debug)]
pub(super) struct Keeper {
    /// The common one is the last.
    links: Vec<OwnLink>,
    config: GatewayConfig,
    shield: Raised<Nft>,
    shield_watch: TableWatch,
    tell_at: Option<Instant>,
    untold: usize,
}

impl Keeper {
    pub fn start(
        net: &Net,
        config: &GatewayConfig,
        links: Vec<OwnLink>,
    ) -> crate::net::Result<(Self, NetWatch)> {
        let watched = Watched {
            table: config.table,
            links: links.iter().map(|link| link.index).collect(),
        };
        let watch = NetWatch::start(net, watched)?;
        let keeper = Self {
            links,
            config: config.clone(),
            shield: Raised::new(),
            shield_watch: watch.of_table(),
            tell_at: None,
            untold: 0,
        };
        Ok((keeper, watch))
    }

    /// Whether this is the common TUN device.
    pub fn is_common(&self, link: u32) -> bool {
        self.links.last().is_some_and(|common| common.index == link)
    }

    /// From now on the table is for these policies.
    pub fn shield(&mut self, policies: &[ConfiguredPolicy], now: Instant) {
        let devices: Vec<_> = self.links.iter().map(|link| link.name.clone()).collect();
        let table = shield::table(&self.config, &devices, policies);
        if let Err(error) = self.shield.want(table) {
            tracing::warn!("the nftables table stays as it was: {error}");
        }
        self.keep_shield(now);
    }

    /// Makes the table if it does not stand and the time has come; whether that was necessary and has worked.
    pub fn keep_shield(&mut self, now: Instant) -> bool {
        let name = shield::name(&self.config);
        let watch = &mut self.shield_watch;
        let connect = || {
            let nft = Nft::connect()?;
            watch.start(&nft, name.clone())?;
            Ok(nft)
        };
        match self.shield.settle(now, connect) {
            Outcome::Nothing => false,
            Outcome::Stands => true,
            Outcome::StandsAgain => {
                tracing::info!("the nftables table {name} stands now");
                true
            }
            Outcome::Fails(error) => {
                tracing::warn!(
                    "the nftables table {name} cannot be made ({error}) and is tried again: only routes keep protected \
                     traffic off the wire meanwhile, and packets that come in without protection are not refused"
                );
                false
            }
        }
    }

    /// Takes the table away.
    pub fn lift(&mut self) {
        if let Err(error) = self.shield.lift(&shield::name(&self.config)) {
            tracing::warn!("the table of nf_tables is left behind: {error}");
        }
    }

    /// Whether all is as it should be now, but for the shield, which has attempts of its own.
    pub async fn repair(&mut self, net: &Net, routing: &mut Routing, now: Instant) -> bool {
        let mut repaired = Vec::new();
        let mut errors = Vec::new();
        // The shield first: it holds what the routes would let out meanwhile.
        if self.shield_watch.has_changed() {
            self.shield.spoil();
            if self.keep_shield(now) {
                repaired.push(format!("the nftables table {}", shield::name(&self.config)));
            }
        }
        match net.addresses().await {
            Ok(mut addresses) => {
                for link in &self.links {
                    match net.repair_link(link, &mut addresses).await {
                        Ok(done) => repaired.extend(done),
                        Err(error) => errors.push(error.to_string()),
                    }
                }
                let (done, result) = routing.repair(net, &addresses).await;
                repaired.extend(done);
                errors.extend(result.err().map(|error| error.to_string()));
            }
            Err(error) => errors.push(error.to_string()),
        }
        self.tell(&repaired, &errors, now);
        errors.is_empty()
    }

    fn tell(&mut self, repaired: &[String], errors: &[String], now: Instant) {
        if repaired.is_empty() && errors.is_empty() {
            return;
        }
        if self.tell_at.is_some_and(|at| now < at) {
            self.untold += repaired.len() + errors.len();
            return;
        }
        self.tell_at = Some(now + TOLD_EVERY);
        let untold = std::mem::take(&mut self.untold);
        if !repaired.is_empty() {
            let what = named(repaired);
            tracing::warn!(
                untold,
                "somebody has changed the gateway's network settings, which are put back: {what}"
            );
        }
        if !errors.is_empty() {
            let what = named(errors);
            tracing::warn!(
                untold,
                "the gateway's network settings are not as they should be: {what}"
            );
        }
    }
}

fn named(all: &[String]) -> String {
    let some = all.get(..NAMED).unwrap_or(all).join(", ");
    match all.len().saturating_sub(NAMED) {
        0 => some,
        more => format!("{some} and {more} more"),
    }
}
