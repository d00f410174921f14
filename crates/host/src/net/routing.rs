//! Leads the traffic of installed policies into a TUN device. The routes stand in a table of our own.
//! For the common device, a rule sends every packet to that table, except packets with our mark: the
//! gateway's own packets must not loop back. For a device of a mark, the rule sends the packets with
//! that mark.

use std::collections::HashMap;
use std::net::IpAddr;

use esplanade_ipsec::prefix::{Prefix, prefixes_of_range};

use super::{Family, LinkAddress, Net, NetError, Result, Route, RouteTarget};

/// An inclusive range of addresses, as in a traffic selector.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AddressRange {
    pub first: IpAddr,
    pub last: IpAddr,
}

impl AddressRange {
    fn contains(&self, address: IpAddr) -> bool {
        self.first.is_ipv4() == address.is_ipv4() && self.first <= address && address <= self.last
    }
}

/// A routing rule: the packets that it leads to a table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RuleConfig {
    pub table: u32,
    pub priority: u32,
    pub packets: RulePackets,
}

/// The packets that a rule takes, by their firewall marks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RulePackets {
    /// All packets but those with this mark, which is on the gateway's own sockets.
    Unmarked(u32),
    /// Packets whose mark has this value under the mask.
    Marked { value: u32, mask: u32 },
}

/// The routes that the installed policies need. Several policies can share one route.
#[derive(Debug)]
pub struct Routing {
    pub(super) rule: RuleConfig,
    /// Index of the TUN device. `None` while there is no device; then only the guards stand.
    tun: Option<u32>,
    routes: HashMap<Prefix, RouteUse>,
    pub(super) rules: Vec<Family>,
}

/// The numbers of policies that use a prefix, by the kind of use. If policies disagree, the route leads into the TUN
/// device. There the SPD decides each packet, while a packet that is kept out leaves in the clear.
#[derive(Debug, Default)]
struct RouteUse {
    protect_count: usize,
    bypass_count: usize,
    /// The local ends of the policy. The gateway's own packets to the prefix should come from
    /// there.
    local: Vec<AddressRange>,
    source: Option<IpAddr>,
}

impl RouteUse {
    /// Returns the route that the kernel tries first.
    fn target(&self, tun: Option<u32>) -> Option<RouteTarget> {
        let source = self.source;
        match (self.protect_count, self.bypass_count) {
            (0, 0) => None,
            (0, _) => Some(RouteTarget::Throw),
            (_, _) => tun.map(|index| RouteTarget::Link {
                index,
                gateway: None,
                source,
            }),
        }
    }

    /// Returns the route behind the first one. Routes into the TUN device disappear with the
    /// device, and traffic must not leave in the clear then.
    fn guard(&self) -> Option<RouteTarget> {
        (self.protect_count > 0).then_some(RouteTarget::Unreachable)
    }

    fn targets(&self, tun: Option<u32>) -> impl Iterator<Item = RouteTarget> {
        [self.guard(), self.target(tun)].into_iter().flatten()
    }

    fn is_wanted(&self) -> bool {
        (self.protect_count, self.bypass_count) != (0, 0)
    }
}

impl Routing {
    /// Adds the rules. Leaves out IPv6 if the kernel lacks it. Routes of an earlier gateway stay
    /// until [`Routing::settle`]: they keep protected traffic from leaving in the clear. After an
    /// error the rules stay too: old rules cannot be told from new ones, and a rule without routes
    /// has no effect.
    pub async fn install(net: &Net, rule: RuleConfig) -> Result<Self> {
        let mut routing = Self {
            rule,
            tun: None,
            routes: HashMap::new(),
            rules: Vec::new(),
        };
        for family in Family::ALL {
            match net.rule_add(family, &routing.rule).await {
                Ok(()) => routing.rules.push(family),
                Err(error) if family == Family::V6 && is_no_ipv6(&error) => {
                    tracing::info!("the kernel has no IPv6 routing rules: {error}");
                }
                Err(error) => return Err(error),
            }
        }
        Ok(routing)
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
    pub async fn move_to(&mut self, net: &Net, rule: RuleConfig) -> Result<()> {
        let former: Vec<_> = self.wanted_routes().collect();
        let former_rule = std::mem::replace(&mut self.rule, rule);
        let mut result = Ok(());
        for route in self.wanted_routes() {
            result = result.and(net.route_add(&route).await);
        }
        for family in &self.rules {
            result = result.and(net.rule_add(*family, &self.rule).await);
            result = result.and(net.rule_delete(*family, &former_rule).await);
        }
        for route in former {
            result = result.and(net.route_delete(&route).await);
        }
        result
    }

    /// Returns the rule that leads packets to the routes.
    pub fn rule(&self) -> &RuleConfig {
        &self.rule
    }

    /// Records that the TUN device disappeared. The kernel removed the routes into it.
    pub fn lose_tun(&mut self) {
        self.tun = None;
    }

    fn tun_routes(&self) -> impl Iterator<Item = Route> {
        self.wanted_routes()
            .filter(|route| matches!(route.target, RouteTarget::Link { .. }))
    }

    fn route(&self, destination: Prefix, target: RouteTarget) -> Route {
        Route {
            destination,
            target,
            table: self.rule.table,
        }
    }

    /// Deletes routes of an earlier gateway that no policy needs. The caller has installed the
    /// routes of all policies before.
    pub async fn settle(&self, net: &Net) -> Result<()> {
        let mut result = Ok(());
        for family in &self.rules {
            for route in net.routes_without_link(*family, self.rule.table).await? {
                let wanted = self.routes.get(&route.destination);
                let mut targets = wanted.into_iter().flat_map(|entry| entry.targets(self.tun));
                if !targets.any(|target| target == route.target) {
                    result = result.and(net.route_delete(&route).await);
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
        let mut result = Ok(());
        for prefix in wanted(remote) {
            let led = self.change(net, prefix, |entry| {
                if entry.protect_count == 0 {
                    entry.local = local.to_vec();
                    entry.source = source(known, prefix, local);
                }
                entry.protect_count += 1;
            });
            result = result.and(led.await);
        }
        for prefix in shadowed(local, remote) {
            let bypass_count = self.change(net, prefix, |entry| entry.bypass_count += 1);
            result = result.and(bypass_count.await);
        }
        result.and(addresses.map(drop))
    }

    /// Undoes [`Routing::protect`].
    pub async fn withdraw(
        &mut self,
        net: &Net,
        local: &[AddressRange],
        remote: &[AddressRange],
    ) -> Result<()> {
        let mut result = Ok(());
        for prefix in wanted(remote) {
            let led = self.change(net, prefix, |entry| {
                entry.protect_count = entry.protect_count.saturating_sub(1);
            });
            result = result.and(led.await);
        }
        result.and(self.withdraw_throws(net, &shadowed(local, remote)).await)
    }

    /// Chooses new source addresses where the old one is no longer ours.
    pub(super) fn look_for_sources(&mut self, addresses: &[LinkAddress]) {
        for (prefix, entry) in &mut self.routes {
            let stays = |source| addresses.iter().any(|entry| entry.address == source);
            if !entry.source.is_some_and(stays) {
                entry.source = source(addresses, *prefix, &entry.local);
            }
        }
    }

    /// Lists all our routes. The guard of a prefix precedes its other route.
    pub(super) fn wanted_routes(&self) -> impl Iterator<Item = Route> {
        self.routes.iter().flat_map(|(prefix, entry)| {
            let targets = entry.targets(self.tun);
            targets.map(|target| self.route(*prefix, target))
        })
    }

    /// Tells whether we have routes for the prefix, and `found` is not one of them.
    pub(super) fn has_other_target(&self, prefix: Prefix, found: Option<RouteTarget>) -> bool {
        let entry = self.routes.get(&prefix);
        entry.is_some_and(|entry| !entry.targets(self.tun).any(|own| found == Some(own)))
    }

    /// Keeps the traffic of a bypass policy on the ordinary routes.
    pub async fn bypass(&mut self, net: &Net, remote: &[AddressRange]) -> Result<()> {
        let mut result = Ok(());
        for prefix in wanted(remote) {
            let bypass_count = self.change(net, prefix, |entry| entry.bypass_count += 1);
            result = result.and(bypass_count.await);
        }
        result
    }

    pub async fn withdraw_bypass(&mut self, net: &Net, remote: &[AddressRange]) -> Result<()> {
        self.withdraw_throws(net, &wanted(remote)).await
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
        for family in self.rules {
            result = result.and(net.rule_delete(family, &self.rule).await);
        }
        result
    }

    /// Removes what an earlier gateway left of this rule and in its table. The guards go before the rules, so that
    /// until then traffic is held completely.
    pub async fn clear(net: &Net, rule: &RuleConfig) -> Result<()> {
        let mut result = Ok(());
        for family in Family::ALL {
            match net.routes_without_link(family, rule.table).await {
                Ok(routes) => {
                    for route in routes {
                        result = result.and(net.route_delete(&route).await);
                    }
                }
                Err(error) if family == Family::V6 && is_no_ipv6(&error) => continue,
                Err(error) => result = result.and(Err(error)),
            }
            match net.rule_delete(family, rule).await {
                Err(error) if family == Family::V6 && is_no_ipv6(&error) => {}
                removed => result = result.and(removed),
            }
        }
        result
    }

    /// Changes how policies use a prefix, and updates the route if necessary. The use is counted
    /// even if the kernel refuses the route: otherwise a later withdrawal would take the route of
    /// another policy.
    async fn change(
        &mut self,
        net: &Net,
        destination: Prefix,
        change: impl FnOnce(&mut RouteUse),
    ) -> Result<()> {
        let entry = self.routes.entry(destination).or_default();
        let (before, guard_before) = (entry.target(self.tun), entry.guard());
        change(entry);
        let (after, guard_after) = (entry.target(self.tun), entry.guard());
        if !entry.is_wanted() {
            self.routes.remove(&destination);
        }
        let route = |target| self.route(destination, target);
        if let (None, Some(guard)) = (guard_before, guard_after) {
            net.route_add(&route(guard)).await?;
        }
        match (before, after) {
            (before, Some(target)) if before != after => net.route_add(&route(target)).await?,
            (Some(target), None) => net.route_delete(&route(target)).await?,
            _ => {}
        }
        match (guard_before, guard_after) {
            (Some(guard), None) => net.route_delete(&route(guard)).await,
            _ => Ok(()),
        }
    }
}

/// Returns one of our addresses inside `local`, as the source address for the route to the prefix.
fn source(addresses: &[LinkAddress], prefix: Prefix, local: &[AddressRange]) -> Option<IpAddr> {
    let mut addresses = addresses.iter().map(|entry| entry.address);
    addresses.find(|address| {
        address.is_ipv4() == prefix.address().is_ipv4()
            && local.iter().any(|range| range.contains(*address))
    })
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
pub(super) fn shadowed(local: &[AddressRange], remote: &[AddressRange]) -> Vec<Prefix> {
    let remote = wanted(remote);
    let mut prefixes = wanted(local);
    prefixes.retain(|prefix| {
        remote
            .iter()
            .any(|wide| wide.covers(prefix) && wide != prefix)
    });
    prefixes
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
