//! Keeps links, rules, routes and the table of nf_tables as they should be, whoever else changes them.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use esplanade_ipsec::spd::PolicyId;
use esplanade_prefix::Prefix;

use crate::config::GatewayConfig;
use crate::daemon::host::shield::{
    self, NoRoom, Outcome, OwnedPolicy, Raised, SharedPolicies, Shield, ShieldFull, ShieldPolicies,
};
use crate::join::ConfiguredPolicy;
use crate::log::first_names;
use crate::net::nft::Nft;
use crate::net::{
    LinkAddress, Net, NetWatch, OwnLink, Routing, TableWatch, Watched, WatchedNumbers,
    of_own_networks,
};
use crate::status::ShieldStats;

/// The interval between two log lines about repairs, because others may change things again and again.
const TOLD_EVERY: Duration = Duration::from_secs(10);
/// The number of things that one line names.
const NAMED: usize = 4;

#[derive(Debug)]
pub(in crate::daemon) struct Keeper {
    /// The TUN devices. The list is empty before they are made.
    links: Vec<OwnLink>,
    watched: WatchedNumbers,
    tables: WatchedNumbers,
    config: GatewayConfig,
    shield: Shield,
    /// The networks on the host's links, which stay reachable in the clear.
    networks: Vec<Prefix>,
    /// The networks have changed since the table was made from them.
    networks_changed: bool,
    raised: Raised<Nft>,
    shield_watch: TableWatch,
    tell_at: Option<Instant>,
    untold: usize,
    /// Settings of others that keep packets from the tunnels.
    foreign: Vec<String>,
}

/// The things that were put back, and the things that could not be.
#[derive(Debug, Default)]
pub(in crate::daemon) struct Repairs {
    pub done: Vec<String>,
    pub failed: Vec<String>,
}

impl Keeper {
    pub fn start(net: &Net, config: &GatewayConfig) -> crate::net::Result<(Self, NetWatch)> {
        let (watched, tables) = <(WatchedNumbers, WatchedNumbers)>::default();
        let watch = NetWatch::start(
            net,
            Watched {
                tables: tables.clone(),
                links: watched.clone(),
                names: config.xdp.clone(),
            },
        )?;
        let keeper = Self {
            links: Vec::new(),
            watched,
            tables,
            config: config.clone(),
            shield: Shield {
                config: config.clone(),
                devices: Vec::new(),
                policies: SharedPolicies::default(),
            },
            networks: Vec::new(),
            networks_changed: false,
            raised: Raised::new(),
            shield_watch: watch.of_table(),
            tell_at: None,
            untold: 0,
            foreign: Vec::new(),
        };
        Ok((keeper, watch))
    }

    /// Watches these routing tables from now on.
    pub fn watch_tables(&self, tables: Vec<u32>) {
        self.tables.set(tables);
    }

    /// Takes over the interfaces of a new configuration.
    pub fn set_config(&mut self, config: &GatewayConfig) {
        self.config = config.clone();
    }

    /// Returns the interfaces whose links are there, but which the configuration does not have.
    pub fn unnamed(&self) -> Vec<u32> {
        let named = |interface: u32| {
            let mut interfaces = self.config.interfaces.iter();
            interface == 0 || interfaces.any(|one| one.if_id == interface)
        };
        let links = self.links.iter().map(|link| link.interface);
        links.filter(|interface| !named(*interface)).collect()
    }

    /// Forgets the link of an interface that the gateway gives up.
    pub fn release(&mut self, interface: u32) {
        self.links.retain(|link| link.interface != interface);
        self.watch_links();
    }

    fn watch_links(&self) {
        let indices = self.links.iter().map(|link| link.index).collect();
        self.watched.set(indices);
    }

    /// Adds a link, in the place of another link for the same interface.
    pub fn adopt(&mut self, link: OwnLink) {
        self.links.retain(|old| old.interface != link.interface);
        self.links.push(link);
        self.watch_links();
    }

    /// Tells whether `link` is the common TUN device.
    pub fn is_common(&self, link: u32) -> bool {
        (self.links.iter()).any(|own| own.interface == 0 && own.index == link)
    }

    /// Returns the links that somebody has deleted.
    pub async fn gone(&self, net: &Net) -> Vec<OwnLink> {
        let mut gone = Vec::new();
        for link in &self.links {
            // The next repair looks again at a link whose state cannot be read now.
            if net.is_gone(link).await.is_ok_and(|is_gone| is_gone) {
                gone.push(link.clone());
            }
        }
        gone
    }

    /// Follows the networks on the host's links.
    pub fn follow_networks(&mut self, addresses: &[LinkAddress]) {
        let own = |link| self.links.iter().any(|own| own.index == link);
        let of_links = of_own_networks(addresses, self.config.mark).filter(|one| !own(one.link));
        let networks: BTreeSet<_> = of_links.filter_map(LinkAddress::network).collect();
        let networks: Vec<_> = networks.into_iter().collect();
        self.networks_changed |= networks != self.networks;
        self.networks = networks;
    }

    /// Tells whether the table is to be made anew for other networks.
    pub fn networks_have_changed(&mut self) -> bool {
        std::mem::take(&mut self.networks_changed)
    }

    /// Makes the table of nf_tables for these policies from now on. Returns the policies of peers that it has no room
    /// for.
    pub fn shield(
        &mut self,
        configured: &[ConfiguredPolicy],
        peers: Vec<OwnedPolicy>,
        now: Instant,
    ) -> Vec<(PolicyId, ShieldFull)> {
        self.networks_changed = false;
        let interfaces = self.config.interfaces.iter();
        let names = interfaces.map(|interface| &interface.name);
        // The kernel completes names.
        let made = self.links.iter().map(|link| &link.name);
        self.shield.devices = match self.links.is_empty() {
            true => names.chain([&self.config.tun]).cloned().collect(),
            false => made.cloned().collect(),
        };
        self.shield.config.clone_from(&self.config);
        let policies = &self.shield.policies;
        let followed =
            policies.with(|own| own.configure(&self.config, configured, &self.networks, peers));
        let misfit = followed.as_ref().err().map(ToString::to_string);
        if let Some(why) = &misfit {
            tracing::error!(
                "the nftables table stays as it was, and children that it lacks get no SAs: {why}"
            );
        }
        self.raised.set_misfit(misfit);
        self.raised.renew(&mut self.shield);
        self.keep_shield(now);
        followed.unwrap_or_default()
    }

    /// Tells whether the table has room for these policies.
    pub fn check_shield(
        config: &GatewayConfig,
        configured: &[ConfiguredPolicy],
    ) -> Result<(), NoRoom> {
        ShieldPolicies::of(config, configured, &[]).map(drop)
    }

    /// The policies that the table is made from.
    pub fn shield_policies(&self) -> SharedPolicies {
        self.shield.policies.clone()
    }

    pub fn shield_stats(&self) -> ShieldStats {
        let failure = self.raised.failure();
        ShieldStats {
            stands: failure.is_none(),
            elements: self.shield.policies.with(|own| own.element_count()),
            failure: failure.map(str::to_owned),
        }
    }

    /// Tells whether the kernel refuses the table, though it took one before.
    pub fn shield_has_fallen(&self) -> bool {
        self.raised.has_fallen()
    }

    /// Lets the table follow the policies, or makes it if it does not stand, where that is due. Returns true if that
    /// was necessary and has worked.
    pub fn keep_shield(&mut self, now: Instant) -> bool {
        let name = shield::name(&self.config);
        let watch = &mut self.shield_watch;
        let connect = || {
            let nft = Nft::connect()?;
            watch.start(&nft, name.clone())?;
            Ok(nft)
        };
        let outcome = self.raised.settle(now, &mut self.shield, connect);
        let fallen = self.raised.has_fallen();
        self.shield.policies.with(|own| own.fallen = fallen);
        match outcome {
            Outcome::Nothing => false,
            Outcome::Followed | Outcome::Stands => true,
            Outcome::StandsAgain => {
                tracing::info!("the nftables table {name} stands now");
                true
            }
            Outcome::StandsInPart(error) => {
                tracing::warn!(
                    "nf_tables cannot tell by routes where packets should have come from ({error}): those in the clear that \
                     claim to be of a tunnel interface's policies are not refused"
                );
                true
            }
            Outcome::Fails(error) => {
                tracing::warn!(
                    "the nftables table {name} cannot be made ({error}) and is tried again: only routes keep protected \
                     traffic off the wire meanwhile, and packets that come in without protection are not refused"
                );
                let mut interfaces = self.config.marked_interfaces();
                if interfaces.any(|interface| interface.marks.inbound.is_some()) {
                    tracing::warn!("decrypted packets get no marks meanwhile");
                }
                false
            }
        }
    }

    /// Takes the table away.
    pub fn lift(&mut self) {
        if let Err(error) = self.raised.lift(&self.shield) {
            tracing::warn!("the table of nf_tables is left behind: {error}");
        }
    }

    /// Makes the table again if others have changed it.
    pub fn repair_shield(&mut self, now: Instant, repairs: &mut Repairs) {
        if self.shield_watch.has_changed() {
            self.raised.spoil();
            if self.keep_shield(now) {
                let name = shield::name(&self.config);
                repairs.done.push(format!("the nftables table {name}"));
            }
        }
    }

    /// Repairs links that are there, rules and routes.
    pub async fn repair(
        &mut self,
        net: &Net,
        routings: impl Iterator<Item = &mut Routing>,
        repairs: &mut Repairs,
    ) {
        let mut addresses = match net.addresses().await {
            Ok(addresses) => addresses,
            Err(error) => return repairs.failed.push(error.to_string()),
        };
        self.follow_networks(&addresses);
        for link in &self.links {
            match net.repair_link(link, &mut addresses).await {
                Ok(done) => repairs.done.extend(done),
                // The link is gone and could not be made again. The earlier failure already tells that.
                Err(error)
                    if error.raw_os_error() == Some(libc::ENODEV) && !repairs.failed.is_empty() => {
                }
                Err(error) => repairs.failed.push(error.to_string()),
            }
        }
        let mut foreign = Vec::new();
        for routing in routings {
            let (done, result) = routing.repair(net, &addresses).await;
            foreign.extend_from_slice(routing.foreign());
            repairs.done.extend(done);
            let failed = result.err().map(|error| error.to_string());
            repairs.failed.extend(failed);
        }
        foreign.dedup();
        self.follow_foreign(foreign);
    }

    /// Tells of what others have that keeps packets from the tunnels, when that changes.
    fn follow_foreign(&mut self, foreign: Vec<String>) {
        let new = foreign.iter().filter(|one| !self.foreign.contains(one));
        let new: Vec<_> = new.cloned().collect();
        if !new.is_empty() {
            let what = first_names(&new, NAMED);
            tracing::warn!(
                "settings of others come before the gateway's, and packets of policies go that way or nowhere: {what}"
            );
        } else if foreign.is_empty() && !self.foreign.is_empty() {
            tracing::info!("settings of others no longer come before the gateway's");
        }
        self.foreign = foreign;
    }

    pub fn tell(&mut self, repairs: &Repairs, now: Instant) {
        let (repaired, errors) = (&repairs.done, &repairs.failed);
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
            let what = first_names(repaired, NAMED);
            tracing::warn!(
                untold,
                "somebody has changed the gateway's network settings, which are put back: {what}"
            );
        }
        if !errors.is_empty() {
            let what = first_names(errors, NAMED);
            tracing::warn!(
                untold,
                "the gateway's network settings are not as they should be: {what}"
            );
        }
    }
}
