//! Keeps links, rules, routes and the table of nf_tables as they should be, whoever else changes them.

use std::time::{Duration, Instant};

use super::join::ConfiguredPolicy;
use super::shield;
use crate::config::GatewayConfig;
use crate::net::nft::{Nft, Table};
use crate::net::{Net, NetWatch, OwnLink, Routing, Watched};

/// Others may change things again and again: one line in that time.
const TOLD_EVERY: Duration = Duration::from_secs(10);
/// Things that one line names.
const NAMED: usize = 4;

#[derive(Debug)]
pub(super) struct Keeper {
    /// The common one is the last.
    links: Vec<OwnLink>,
    config: GatewayConfig,
    /// None: the kernel has no nf_tables.
    nft: Option<Nft>,
    policies: Vec<ConfiguredPolicy>,
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
        let mut watch = NetWatch::start(net, watched)?;
        let connected = Nft::connect().and_then(|nft| {
            watch.watch_table(&nft, shield::name(config))?;
            Ok(nft)
        });
        let nft = connected.inspect_err(without_shield).ok();
        let keeper = Self {
            links,
            config: config.clone(),
            nft,
            policies: Vec::new(),
            tell_at: None,
            untold: 0,
        };
        Ok((keeper, watch))
    }

    /// Whether this is the common TUN device.
    pub fn is_common(&self, link: u32) -> bool {
        self.links.last().is_some_and(|common| common.index == link)
    }

    /// Makes the table anew, for these policies.
    pub fn shield(&mut self, policies: &[ConfiguredPolicy]) {
        self.policies = policies.to_vec();
        if let Err(error) = self.raise() {
            without_shield(&error);
        }
    }

    fn raise(&self) -> std::io::Result<()> {
        let Some(nft) = &self.nft else {
            return Ok(());
        };
        let devices: Vec<_> = self.links.iter().map(|link| link.name.clone()).collect();
        let table = shield::table(&self.config, &devices, &self.policies);
        nft.commit(table.map_err(std::io::Error::other)?)
    }

    /// Takes the table away.
    pub fn lift(&self) {
        if let Some(nft) = &self.nft
            && let Err(error) = nft.commit(Table::absent(&shield::name(&self.config)))
        {
            tracing::warn!("the table of nf_tables is left behind: {error}");
        }
    }

    /// Whether all is as it should be now.
    pub async fn repair(
        &mut self,
        net: &Net,
        routing: &mut Routing,
        watch: &NetWatch,
        now: Instant,
    ) -> bool {
        let mut repaired = Vec::new();
        let mut errors = Vec::new();
        // The shield first: it holds what the routes would let out meanwhile.
        if watch.table_has_changed() {
            match self.raise() {
                Ok(()) => {
                    repaired.push(format!("the nftables table {}", shield::name(&self.config)))
                }
                Err(error) => errors.push(error.to_string()),
            }
        }
        for link in &self.links {
            match net.repair_link(link).await {
                Ok(done) => repaired.extend(done),
                Err(error) => errors.push(error.to_string()),
            }
        }
        let (done, result) = routing.repair(net).await;
        repaired.extend(done);
        errors.extend(result.err().map(|error| error.to_string()));
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

fn without_shield(error: &std::io::Error) {
    tracing::warn!(
        "nf_tables cannot be used ({error}): only routes keep protected traffic off the wire, and packets that come in \
         without protection are not refused"
    );
}

fn named(all: &[String]) -> String {
    let some = all.get(..NAMED).unwrap_or(all).join(", ");
    match all.len().saturating_sub(NAMED) {
        0 => some,
        more => format!("{some} and {more} more"),
    }
}
