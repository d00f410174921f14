//! Leads the traffic of installed policies into a TUN device. The routes stand in tables of our own.
//!
//! A policy takes a packet by its source and its destination. A table knows destinations alone, so
//! rules know the sources ([`super::rules`]). The host's own packets have no source while they are
//! routed. For them there is a second table, with the destinations to which they get a source
//! inside a policy.
//!
//! For a device of a mark, one rule sends all packets with that mark to the table.

use std::collections::{HashMap, HashSet};
use std::net::IpAddr;

use esplanade_few::FewMap;
use esplanade_prefix::{Prefix, prefixes_of_range};

use super::rules::{LocalEnds, Rule};
use super::source::{OuterLinks, source};
use super::{Family, LinkAddress, METRIC_FIRST, Net, NetError, Result, Route, RouteTarget};

/// An inclusive range of addresses, as in a traffic selector.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AddressRange {
    pub first: IpAddr,
    pub last: IpAddr,
}

impl AddressRange {
    pub(super) fn contains(&self, address: IpAddr) -> bool {
        self.first.is_ipv4() == address.is_ipv4() && self.first <= address && address <= self.last
    }

    /// Tells whether all addresses of the prefix are in the range.
    pub fn covers(&self, prefix: &Prefix) -> bool {
        self.contains(prefix.address()) && self.contains(prefix.last())
    }
}

/// Which packets are led to a table, and where the rules for that stand.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RuleConfig {
    pub table: u32,
    /// The rules for sources take this priority and the seven after it.
    pub priority: u32,
    pub packets: RulePackets,
}

/// The packets that rules take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RulePackets {
    /// The packets that policies take, by source and destination.
    OfPolicies {
        /// The mark of the gateway's own sockets. Their packets must not loop back.
        own_mark: u32,
        /// The mark of ICMP errors about packets of policies. They come from any source.
        error_mark: u32,
        /// The table for packets of the host that have no source yet.
        own_table: u32,
        /// Interfaces have policies. Administrators' routes in the table are for every source then.
        by_routes: bool,
    },
    /// Packets whose mark has this value under the mask.
    Marked { value: u32, mask: u32 },
}

impl RuleConfig {
    pub fn tables(&self) -> impl Iterator<Item = u32> + use<> {
        let own = match self.packets {
            RulePackets::OfPolicies { own_table, .. } => Some(own_table),
            RulePackets::Marked { .. } => None,
        };
        std::iter::once(self.table).chain(own)
    }
}

/// The routes that the installed policies need. Several policies can share one route.
#[derive(Debug)]
pub struct Routing {
    pub(super) config: RuleConfig,
    /// Index of the TUN device. `None` while there is no device; then only the guards stand.
    tun: Option<u32>,
    routes: HashMap<Prefix, RouteUse>,
    networks: Vec<Network>,
    /// Routes that keep networks on the host's links out of the TUN device.
    exempt: Vec<Route>,
    locals: LocalEnds,
    /// The number of IPv6 destinations that the host has no source for.
    without_source: usize,
    /// The rules that stand.
    pub(super) rules: Vec<(Family, Rule)>,
    pub(super) families: Vec<Family>,
    /// Rules and routes of others that keep packets from the TUN device, as of the last repair.
    pub(super) foreign: Vec<String>,
}

/// A network on one of the host's links.
#[derive(Debug)]
struct Network {
    prefix: Prefix,
    /// The host's address in the network.
    address: IpAddr,
    /// The host reaches the outside by the link. Whoever is there can name a network that policies protect.
    is_outside: bool,
}

/// The numbers of policies that use a prefix, by the kind of use. If policies disagree, the route leads into the TUN
/// device. There the SPD decides each packet, while a packet that is kept out leaves in the clear.
#[derive(Debug, Default)]
struct RouteUse {
    protect_count: usize,
    bypass_count: usize,
    /// The local ends of the policies, with the number of policies that have each. The host's own packets to the prefix
    /// should come from there.
    local: FewMap<AddressRange, usize>,
    source: Option<IpAddr>,
}

/// The places for routes to one destination, in the order in which they are filled. A guard precedes its other route:
/// routes into the TUN device disappear with the device, and traffic must not leave in the clear then.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Slot {
    Guard,
    Route,
    OwnGuard,
    OwnHeld,
    OwnRoute,
}

const SLOTS: [Slot; 5] = [
    Slot::Guard,
    Slot::Route,
    Slot::OwnGuard,
    Slot::OwnHeld,
    Slot::OwnRoute,
];

impl RouteUse {
    /// Returns the route of a place.
    fn target(&self, prefix: Prefix, slot: Slot, tun: Option<u32>) -> Option<RouteTarget> {
        let protects = match slot {
            Slot::Guard | Slot::Route => self.protect_count > 0,
            // A source may come later. Until then the host's own packets are held.
            Slot::OwnGuard => self.holds_own(prefix),
            Slot::OwnHeld => self.takes_own(prefix) && prefix.address().is_ipv6(),
            Slot::OwnRoute => self.takes_own(prefix),
        };
        let link = |index| RouteTarget::Link {
            index,
            gateway: None,
            source: self.source,
        };
        match slot {
            Slot::Guard | Slot::OwnGuard => protects.then_some(RouteTarget::Unreachable),
            Slot::OwnHeld => {
                let held = |index| RouteTarget::Held { index };
                tun.filter(|_| protects).map(held)
            }
            Slot::Route | Slot::OwnRoute if protects => tun.map(link),
            Slot::Route | Slot::OwnRoute => {
                let throws = self.bypass_count > 0 && self.protect_count == 0;
                throws.then_some(RouteTarget::Throw)
            }
        }
    }

    fn choose_source(&mut self, addresses: &[LinkAddress], outside: OuterLinks, prefix: Prefix) {
        let ranges: Vec<_> = self.local.keys().copied().collect();
        let v4 = prefix.address().is_ipv4();
        self.source = source(addresses, outside, v4, &ranges);
    }

    /// A policy with this local end has gone.
    fn forget_local(&mut self, range: &AddressRange) {
        if let Some(count) = self.local.get_mut(range) {
            *count = count.saturating_sub(1);
            if *count == 0 {
                self.local.remove(range);
            }
        }
    }

    /// Tells whether packets of the host that have no source yet get one inside the policies. A policy for a network
    /// and for every destination is not about the host itself: the host keeps its own default route.
    fn takes_own(&self, prefix: Prefix) -> bool {
        self.source.is_some() && self.holds_own(prefix)
    }

    /// Tells whether such packets must not leave in the clear.
    fn holds_own(&self, prefix: Prefix) -> bool {
        let of_hosts = || self.local.keys().all(|range| range.first == range.last);
        self.protect_count > 0 && (prefix.length() > 0 || of_hosts())
    }

    /// Tells whether the kernel would give the host's own IPv6 packets a source outside the policies.
    fn lacks_source(&self, prefix: Prefix) -> bool {
        self.source.is_none() && prefix.address().is_ipv6() && self.holds_own(prefix)
    }

    fn is_wanted(&self) -> bool {
        (self.protect_count, self.bypass_count) != (0, 0)
    }
}

impl Routing {
    /// Adds the rules. Leaves out IPv6 if the kernel lacks it. Rules and routes of an earlier gateway stay
    /// until [`Routing::settle`]: they keep protected traffic from leaving in the clear. After an
    /// error the rules stay too: old rules cannot be told from new ones, and a rule without routes
    /// has no effect.
    pub async fn install(net: &Net, config: RuleConfig) -> Result<Self> {
        let mut routing = Self {
            config,
            tun: None,
            routes: HashMap::new(),
            networks: Vec::new(),
            exempt: Vec::new(),
            locals: LocalEnds::default(),
            without_source: 0,
            rules: Vec::new(),
            families: Vec::new(),
            foreign: Vec::new(),
        };
        for family in Family::ALL {
            match routing.follow_rules_of(net, family).await {
                Ok(()) => routing.families.push(family),
                Err(error) if family == Family::V6 && is_no_ipv6(&error) => {
                    tracing::info!("the kernel has no IPv6 routing rules: {error}");
                }
                Err(error) => return Err(error),
            }
        }
        Ok(routing)
    }

    /// Tells whether the rules let no own packet of the host past the routes for those without a source. Where IPv6 finds
    /// no way without a source, it takes any source and looks again. So rules begin to hold before routes do, and end
    /// after them.
    pub(super) fn holds_all_own(&self) -> bool {
        self.without_source > 0
    }

    /// Adds the rules that the policies need, then deletes those that they no longer need.
    pub(super) async fn follow_rules_of(&mut self, net: &Net, family: Family) -> Result<()> {
        let wanted = (self.locals).rules(&self.config, family, self.holds_all_own());
        let stand = |rule: &Rule| self.rules.contains(&(family, *rule));
        let new: Vec<_> = wanted.iter().filter(|rule| !stand(rule)).copied().collect();
        let mut result = Ok(());
        for rule in new {
            let added = net.rule_add(family, &rule).await;
            if added.is_ok() {
                self.rules.push((family, rule));
            }
            result = result.and(added);
        }
        let gone = |(of, rule): &mut (Family, Rule)| *of == family && !wanted.contains(rule);
        let gone: Vec<_> = self.rules.extract_if(.., gone).collect();
        for (family, rule) in gone {
            result = result.and(net.rule_delete(family, &rule).await);
        }
        result
    }

    async fn follow_rules(&mut self, net: &Net) -> Result<()> {
        let mut result = Ok(());
        for family in self.families.clone() {
            result = result.and(self.follow_rules_of(net, family).await);
        }
        result
    }

    /// Leads protected traffic into this TUN device from now on. Continues after an error and
    /// returns the first.
    pub async fn lead_into(&mut self, net: &Net, tun: u32) -> Result<()> {
        self.tun = Some(tun);
        let mut result = Ok(());
        for route in self.tun_routes() {
            result = result.and(net.route_add(&route).await);
        }
        result
    }

    /// Takes another rule, with its table, for the same routes. Packets that both rules take find routes all the while.
    /// Continues after an error and returns the first.
    pub async fn move_to(&mut self, net: &Net, config: RuleConfig) -> Result<()> {
        let former: Vec<_> = self.wanted_routes().collect();
        self.config = config;
        let mut result = Ok(());
        for route in self.wanted_routes() {
            result = result.and(net.route_add(&route).await);
        }
        result = result.and(self.follow_rules(net).await);
        let stay: HashSet<_> = self.wanted_routes().collect();
        for route in former.iter().filter(|route| !stay.contains(route)) {
            result = result.and(net.route_delete(route).await);
        }
        result
    }

    /// Rules and routes of others that keep packets from the TUN device, as of the last repair. They may be meant so:
    /// nobody removes them.
    pub fn foreign(&self) -> &[String] {
        &self.foreign
    }

    /// Returns which packets are led to the routes.
    pub fn config(&self) -> &RuleConfig {
        &self.config
    }

    /// Records that the TUN device disappeared. The kernel removed the routes into it.
    pub fn lose_tun(&mut self) {
        self.tun = None;
    }

    fn tun_routes(&self) -> impl Iterator<Item = Route> {
        self.wanted_routes().filter(|route| route.target.has_link())
    }

    /// Returns the table of a place. Packets with a mark are all led to one table.
    fn table(&self, slot: Slot) -> Option<u32> {
        match (slot, self.config.packets) {
            (Slot::Guard | Slot::Route, _) => Some(self.config.table),
            (_, RulePackets::OfPolicies { own_table, .. }) => Some(own_table),
            (_, RulePackets::Marked { .. }) => None,
        }
    }

    /// Returns the wanted routes to a destination, by their places.
    fn routes_to(&self, destination: Prefix) -> [Option<Route>; SLOTS.len()] {
        let entry = self.routes.get(&destination);
        SLOTS.map(|slot| {
            Some(Route {
                destination,
                target: entry?.target(destination, slot, self.tun)?,
                table: self.table(slot)?,
            })
        })
    }

    /// Deletes routes and rules of an earlier gateway that no policy needs. The caller has installed the
    /// routes of all policies before.
    pub async fn settle(&self, net: &Net) -> Result<()> {
        let mut result = Ok(());
        let wanted: HashSet<_> = self.wanted_routes().collect();
        for family in &self.families {
            let stands = |rule: &Rule| self.rules.contains(&(*family, *rule));
            result = result.and(net.rules_clear(*family, &self.config, stands).await);
            for table in self.config.tables() {
                for route in net.routes_without_link(*family, table).await? {
                    if !wanted.contains(&route) {
                        result = result.and(net.route_delete(&route).await);
                    }
                }
            }
        }
        result
    }

    /// Deletes the routes into the TUN device, and keeps the rules and the guards. So traffic
    /// cannot leave in the clear, and does not enter a TUN device that nobody reads.
    pub async fn leave_closed(self, net: &Net) -> Result<()> {
        let mut result = Ok(());
        for route in self.tun_routes() {
            result = result.and(net.route_delete(&route).await);
        }
        result
    }

    /// Routes `remote` into the TUN device. The route names a source address inside `local`, if we
    /// have one, so that the gateway's own packets match the policy. Continues after an error and
    /// returns the first. The caller must call [`Routing::withdraw`] with the same arguments when
    /// the policy goes, even after an error.
    pub async fn protect(
        &mut self,
        net: &Net,
        local: &[AddressRange],
        remote: &[AddressRange],
    ) -> Result<()> {
        let addresses = net.addresses().await;
        let known = addresses.as_deref().unwrap_or_default();
        let outside = OuterLinks::find(self.config.packets);
        self.networks = networks(known, outside, self.tun);
        let remote = wanted(remote);
        let mut result = Ok(());
        for prefix in &remote {
            let led = self.change(net, *prefix, |entry| {
                let before = entry.local.len();
                for range in local {
                    entry.local.update(*range, |count| *count += 1);
                }
                if entry.local.len() > before || entry.protect_count == 0 {
                    entry.choose_source(known, outside, *prefix);
                }
                entry.protect_count += 1;
            });
            result = result.and(led.await);
        }
        for prefix in inside(&wanted(local), &remote) {
            let bypass_count = self.change(net, prefix, |entry| entry.bypass_count += 1);
            result = result.and(bypass_count.await);
        }
        self.locals.count(true, &wanted(local), &remote);
        result = result.and(self.follow_exempt(net).await);
        // Until the rules stand, the table of nf_tables holds the packets.
        result = result.and(self.follow_rules(net).await);
        result.and(addresses.map(drop))
    }

    /// Undoes [`Routing::protect`].
    pub async fn withdraw(
        &mut self,
        net: &Net,
        local: &[AddressRange],
        remote: &[AddressRange],
    ) -> Result<()> {
        let remote = wanted(remote);
        let mut result = Ok(());
        let mut without = Vec::new();
        self.locals.count(false, &wanted(local), &remote);
        result = result.and(self.follow_rules(net).await);
        for prefix in &remote {
            let led = self.change(net, *prefix, |entry| {
                entry.protect_count = entry.protect_count.saturating_sub(1);
                for range in local {
                    entry.forget_local(range);
                }
                let remains = |source: &IpAddr| entry.local.keys().any(|one| one.contains(*source));
                if entry.source.take_if(|source| !remains(source)).is_some() {
                    without.push(*prefix);
                }
            });
            result = result.and(led.await);
        }
        without.retain(|prefix| {
            self.routes
                .get(prefix)
                .is_some_and(|entry| entry.protect_count > 0)
        });
        if !without.is_empty() {
            // Until there is another source, the host's own packets are held.
            let known = net.addresses().await.unwrap_or_default();
            let outside = OuterLinks::find(self.config.packets);
            for prefix in without {
                let led = self.change(net, prefix, |entry| {
                    entry.choose_source(&known, outside, prefix)
                });
                result = result.and(led.await);
            }
        }
        let thrown = inside(&wanted(local), &remote);
        result = result.and(self.withdraw_throws(net, &thrown).await);
        result.and(self.follow_exempt(net).await)
    }

    /// Chooses the source addresses anew, and follows the networks on the host's links.
    pub(super) fn look_for_sources(&mut self, addresses: &[LinkAddress]) {
        let outside = OuterLinks::find(self.config.packets);
        self.networks = networks(addresses, outside, self.tun);
        // Most policies have the same local ends.
        let mut known: HashMap<(bool, Vec<AddressRange>), Option<IpAddr>> = HashMap::new();
        for (prefix, entry) in &mut self.routes {
            let v4 = prefix.address().is_ipv4();
            let ranges: Vec<_> = entry.local.keys().copied().collect();
            let chosen = known.entry((v4, ranges.clone()));
            let find = || source(addresses, outside, v4, &ranges);
            entry.source = *chosen.or_insert_with(find);
        }
        self.exempt = self.exempt_routes();
        let lacking = (self.routes.iter()).filter(|(prefix, entry)| entry.lacks_source(**prefix));
        self.without_source = lacking.count();
    }

    /// Lets the routes follow that keep networks on the host's links out of the TUN device.
    async fn follow_exempt(&mut self, net: &Net) -> Result<()> {
        let wanted = self.exempt_routes();
        let former = std::mem::replace(&mut self.exempt, wanted);
        let mut result = Ok(());
        for route in &self.exempt {
            if !former.contains(route) {
                result = result.and(net.route_add(route).await);
            }
        }
        for route in &former {
            let replaced = self.routes_to(route.destination).into_iter().flatten();
            let mut others = replaced.chain(self.exempt.iter().copied());
            let is_there = others.any(|other| {
                (other.destination, other.table) == (route.destination, route.table)
                    && other.target.metric() == METRIC_FIRST
            });
            if !is_there {
                result = result.and(net.route_delete(route).await);
            }
        }
        result
    }

    /// Returns routes that keep networks on the host's links out of the TUN device, where a policy covers one without
    /// naming it.
    fn exempt_routes(&self) -> Vec<Route> {
        let mut routes = Vec::new();
        for one in &self.networks {
            let (network, address) = (one.prefix, one.address);
            let own = self.routes.get(&network);
            let around = |takes: &dyn Fn(Prefix, &RouteUse) -> bool| {
                let lengths = (0..network.length()).rev();
                let mut prefixes = lengths.filter_map(|len| Prefix::new(network.address(), len));
                prefixes.find_map(|prefix| {
                    let entry = self.routes.get(&prefix)?;
                    takes(prefix, entry).then_some((prefix, entry))
                })
            };
            let throw = |slot| {
                Some(Route {
                    destination: network,
                    target: RouteTarget::Throw,
                    table: self.table(slot)?,
                })
            };
            if own.is_none() && !one.is_outside {
                let led = around(&|_, entry| entry.protect_count > 0);
                let within = |entry: &RouteUse| entry.local.keys().any(|one| one.covers(&network));
                routes.extend(
                    led.filter(|(_, entry)| within(entry))
                        .and_then(|_| throw(Slot::Route)),
                );
            }
            if own.is_none_or(|own| own.target(network, Slot::OwnRoute, self.tun).is_none()) {
                let led = around(&|prefix, entry| entry.holds_own(prefix));
                let is_left = |(prefix, entry): &(Prefix, &RouteUse)| {
                    let mut local = entry.local.keys();
                    (!one.is_outside || (prefix.length() == 0 && is_private(network)))
                        && !local.any(|one| one.contains(address) && !one.covers(&network))
                };
                routes.extend(led.filter(is_left).and_then(|_| throw(Slot::OwnRoute)));
            }
        }
        routes.sort_unstable_by_key(|route| (route.table, route.destination));
        routes.dedup();
        routes
    }

    /// Lists all our routes. The guard of a prefix precedes its other route.
    pub(super) fn wanted_routes(&self) -> impl Iterator<Item = Route> {
        let of_policies = self.routes.keys();
        let of_policies = of_policies.flat_map(|prefix| self.routes_to(*prefix));
        let exempt = self.exempt.iter().copied();
        of_policies.flatten().chain(exempt)
    }

    /// Keeps the traffic of a bypass policy on the ordinary routes.
    pub async fn bypass(&mut self, net: &Net, remote: &[AddressRange]) -> Result<()> {
        let mut result = Ok(());
        for prefix in wanted(remote) {
            let bypass_count = self.change(net, prefix, |entry| entry.bypass_count += 1);
            result = result.and(bypass_count.await);
        }
        result.and(self.follow_exempt(net).await)
    }

    pub async fn withdraw_bypass(&mut self, net: &Net, remote: &[AddressRange]) -> Result<()> {
        let withdrawn = self.withdraw_throws(net, &wanted(remote)).await;
        withdrawn.and(self.follow_exempt(net).await)
    }

    async fn withdraw_throws(&mut self, net: &Net, prefixes: &[Prefix]) -> Result<()> {
        let mut result = Ok(());
        for prefix in prefixes {
            let bypass_count = self.change(net, *prefix, |entry| {
                entry.bypass_count = entry.bypass_count.saturating_sub(1);
            });
            result = result.and(bypass_count.await);
        }
        result
    }

    /// Removes every route and rule. Continues after an error and returns the first.
    pub async fn close(self, net: &Net) -> Result<()> {
        let mut result = Ok(());
        for route in self.wanted_routes() {
            result = result.and(net.route_delete(&route).await);
        }
        for (family, rule) in self.rules {
            result = result.and(net.rule_delete(family, &rule).await);
        }
        result
    }

    /// Removes what an earlier gateway left of these rules and in their tables. The guards go before the rules, so that
    /// until then traffic is held completely.
    pub async fn clear(net: &Net, config: &RuleConfig) -> Result<()> {
        let mut result = Ok(());
        for family in Family::ALL {
            let lacks = |error: &NetError| family == Family::V6 && is_no_ipv6(error);
            for table in config.tables() {
                match net.routes_without_link(family, table).await {
                    Ok(routes) => {
                        for route in routes {
                            result = result.and(net.route_delete(&route).await);
                        }
                    }
                    Err(error) if lacks(&error) => {}
                    Err(error) => result = result.and(Err(error)),
                }
            }
            match net.rules_clear(family, config, |_| false).await {
                Err(error) if lacks(&error) => {}
                removed => result = result.and(removed),
            }
        }
        result
    }

    /// Changes how policies use a prefix, and updates the routes if necessary. The use is counted
    /// even if the kernel refuses a route: otherwise a later withdrawal would take the route of
    /// another policy.
    async fn change(
        &mut self,
        net: &Net,
        destination: Prefix,
        change: impl FnOnce(&mut RouteUse),
    ) -> Result<()> {
        let (before, held) = (self.routes_to(destination), self.holds_all_own());
        let entry = self.routes.entry(destination).or_default();
        let lacked = entry.lacks_source(destination);
        change(entry);
        let lacks = entry.lacks_source(destination);
        if !entry.is_wanted() {
            self.routes.remove(&destination);
        }
        self.without_source = self.without_source.saturating_sub(usize::from(lacked));
        self.without_source += usize::from(lacks);
        let mut result = Ok(());
        if self.holds_all_own() && !held {
            result = self.follow_rules(net).await;
        }
        let after = self.routes_to(destination);
        let places = || before.iter().zip(after.iter());
        for (before, after) in places() {
            if let Some(route) = after.filter(|_| before != after) {
                net.route_add(&route).await?;
            }
        }
        // A guard goes last.
        for (before, after) in places().rev() {
            if let (Some(route), None) = (before, after) {
                result = result.and(net.route_delete(route).await);
            }
        }
        if held && !self.holds_all_own() {
            result = result.and(self.follow_rules(net).await);
        }
        result
    }
}

pub(super) fn wanted(remote: &[AddressRange]) -> Vec<Prefix> {
    let mut prefixes: Vec<Prefix> = remote
        .iter()
        .flat_map(|range| prefixes_of_range(range.first, range.last))
        .collect();
    prefixes.sort_unstable();
    prefixes.dedup();
    prefixes
}

/// Returns the local prefixes that lie inside a wider remote prefix, such as 0.0.0.0/0. Packets
/// from the tunnel to them must take the ordinary routes, and not the tunnel again.
pub fn shadowed(local: &[AddressRange], remote: &[AddressRange]) -> Vec<Prefix> {
    inside(&wanted(local), &wanted(remote))
}

/// Returns the prefixes that lie inside a wider one.
fn inside(prefixes: &[Prefix], wide: &[Prefix]) -> Vec<Prefix> {
    let is_inside = |prefix: &&Prefix| {
        let mut wide = wide.iter();
        wide.any(|wide| wide.covers(prefix) && wide != *prefix)
    };
    prefixes.iter().filter(is_inside).copied().collect()
}

/// Returns the networks that the host has for good on its links. The TUN device has none.
fn networks(addresses: &[LinkAddress], outside: OuterLinks, tun: Option<u32>) -> Vec<Network> {
    let of_links = addresses.iter().filter(|one| Some(one.link) != tun);
    let network = |one: &LinkAddress| {
        Some(Network {
            prefix: one.network()?,
            address: one.address,
            is_outside: outside.has(one),
        })
    };
    let lasting = of_links.filter(|one| one.is_permanent);
    lasting.filter_map(network).collect()
}

/// Tells whether a network's addresses are for private use (RFC 1918, RFC 4193).
fn is_private(network: Prefix) -> bool {
    match network.address() {
        IpAddr::V4(address) => address.is_private(),
        IpAddr::V6(address) => address.is_unique_local(),
    }
}

fn is_no_ipv6(error: &NetError) -> bool {
    matches!(
        error.raw_os_error(),
        Some(libc::EAFNOSUPPORT | libc::EOPNOTSUPP)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(first: &str, last: &str) -> AddressRange {
        AddressRange {
            first: first.parse().unwrap(),
            last: last.parse().unwrap(),
        }
    }

    #[test]
    fn only_local_prefixes_inside_a_wider_remote_are_thrown() {
        let local = [range("10.1.0.0", "10.1.255.255")];
        let everything = [range("0.0.0.0", "255.255.255.255")];
        assert_eq!(shadowed(&local, &everything), wanted(&local));
        assert!(shadowed(&local, &[range("10.2.0.0", "10.2.255.255")]).is_empty());
        assert!(shadowed(&local, &local).is_empty());
    }
}
