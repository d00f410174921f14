//! Leads the traffic of installed policies into the TUN: routes in a table of our own, reached by a rule that
//! skips packets carrying our mark, so that what the gateway itself sends outside never loops back in.

use std::collections::HashMap;
use std::net::IpAddr;

use super::{
    Family, LinkAddress, Net, NetError, Prefix, Result, Route, RouteTarget, prefixes_of_range,
};

/// An inclusive address range, as a traffic selector has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AddressRange {
    pub first: IpAddr,
    pub last: IpAddr,
}

impl AddressRange {
    fn contains(&self, address: IpAddr) -> bool {
        self.first.is_ipv4() == address.is_ipv4() && self.first <= address && address <= self.last
    }
}

#[derive(Debug, Clone)]
pub struct RoutingConfig {
    pub table: u32,
    pub priority: u32,
    /// The mark on our own sockets.
    pub mark: u32,
}

/// The routes that the installed policies need. Several policies can need the same one.
#[derive(Debug)]
pub struct Routing {
    pub(super) config: RoutingConfig,
    /// The TUN's interface index. While there is none, guards alone stand.
    tun: Option<u32>,
    routes: HashMap<Prefix, Entry>,
    pub(super) rules: Vec<Family>,
}

/// One prefix and how many policies want it in the TUN, or kept out. The TUN wins: what it should not have got, the
/// SPD judges; what is kept out leaves in the clear.
#[derive(Debug, Default)]
struct Entry {
    into_tun: usize,
    thrown: usize,
    /// Where our own packets should come from, and which address of ours is there.
    local: Vec<AddressRange>,
    source: Option<IpAddr>,
}

impl Entry {
    /// The route that comes first.
    fn target(&self, tun: Option<u32>) -> Option<RouteTarget> {
        let source = self.source;
        match (self.into_tun, self.thrown) {
            (0, 0) => None,
            (0, _) => Some(RouteTarget::Throw),
            (_, _) => tun.map(|index| RouteTarget::Link {
                index,
                gateway: None,
                source,
            }),
        }
    }

    /// What stands behind it: routes into the TUN go with the interface, and nothing may leave in the clear then.
    fn guard(&self) -> Option<RouteTarget> {
        (self.into_tun > 0).then_some(RouteTarget::Unreachable)
    }

    fn targets(&self, tun: Option<u32>) -> impl Iterator<Item = RouteTarget> {
        [self.guard(), self.target(tun)].into_iter().flatten()
    }

    fn is_wanted(&self) -> bool {
        (self.into_tun, self.thrown) != (0, 0)
    }
}

impl Routing {
    /// Adds the rules. A kernel without IPv6 leaves that family out. Routes that an earlier gateway left behind stay until
    /// [`Routing::settle`]: they keep protected traffic from leaving in the clear. So do its rules after an error: which
    /// are its own and which are new is not known, and a rule without routes does nothing.
    pub async fn install(net: &Net, config: RoutingConfig) -> Result<Self> {
        let mut routing = Self {
            config,
            tun: None,
            routes: HashMap::new(),
            rules: Vec::new(),
        };
        routing.add_rules(net).await?;
        Ok(routing)
    }

    async fn add_rules(&mut self, net: &Net) -> Result<()> {
        let (mark, table, priority) = (self.config.mark, self.config.table, self.config.priority);
        for family in [Family::V4, Family::V6] {
            let added = net.rule_add_unmarked(family, mark, table, priority);
            match added.await {
                Ok(()) => self.rules.push(family),
                Err(error) if family == Family::V6 && is_no_ipv6(&error) => {
                    tracing::info!("the kernel has no IPv6 routing rules: {error}");
                    continue;
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// From now on what is protected goes into this TUN. Goes on after an error and returns the first.
    pub async fn lead_into(&mut self, net: &Net, tun: u32) -> Result<()> {
        self.tun = Some(tun);
        let mut result = Ok(());
        for route in self.tun_routes() {
            result = result.and(net.route_add(&route).await);
        }
        result
    }

    /// The TUN is gone, and the routes into it with it.
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
            table: self.config.table,
        }
    }

    /// Deletes what an earlier gateway left behind and no policy asks for. Call it when the routes of all policies are there.
    pub async fn settle(&self, net: &Net) -> Result<()> {
        let mut result = Ok(());
        for family in &self.rules {
            for route in net.routes_without_link(*family, self.config.table).await? {
                let wanted = self.routes.get(&route.destination);
                let mut targets = wanted.into_iter().flat_map(|entry| entry.targets(self.tun));
                if !targets.any(|target| target == route.target) {
                    result = result.and(net.route_delete(&route).await);
                }
            }
        }
        result
    }

    /// Leaves the rules, and behind each route into the TUN what keeps its traffic from leaving in the clear. The routes
    /// themselves go: a TUN that stays has nobody who reads it.
    pub async fn leave_closed(self, net: &Net) -> Result<()> {
        let mut result = Ok(());
        for route in self.tun_routes() {
            result = result.and(net.route_delete(&route).await);
        }
        result
    }

    /// Routes `remote` into the TUN. The source hint is one of our addresses inside `local`, so that the gateway's
    /// own packets match the policy. Goes on after an error and returns the first. Call [`Routing::withdraw`] with the
    /// same arguments when the policy goes, also after an error.
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
                if entry.into_tun == 0 {
                    entry.local = local.to_vec();
                    entry.source = source(known, prefix, local);
                }
                entry.into_tun += 1;
            });
            result = result.and(led.await);
        }
        for prefix in shadowed(local, remote) {
            let thrown = self.change(net, prefix, |entry| entry.thrown += 1);
            result = result.and(thrown.await);
        }
        result.and(addresses.map(drop))
    }

    /// Takes back what [`Routing::protect`] added.
    pub async fn withdraw(
        &mut self,
        net: &Net,
        local: &[AddressRange],
        remote: &[AddressRange],
    ) -> Result<()> {
        let mut result = Ok(());
        for prefix in wanted(remote) {
            let led = self.change(net, prefix, |entry| {
                entry.into_tun = entry.into_tun.saturating_sub(1);
            });
            result = result.and(led.await);
        }
        result.and(self.no_longer_throw(net, &shadowed(local, remote)).await)
    }

    /// Our addresses may be others than when the routes were made.
    pub(super) fn look_for_sources(&mut self, addresses: &[LinkAddress]) {
        for (prefix, entry) in &mut self.routes {
            let stays = |source| addresses.iter().any(|entry| entry.address == source);
            if !entry.source.is_some_and(stays) {
                entry.source = source(addresses, *prefix, &entry.local);
            }
        }
    }

    /// Every route of ours, guards first.
    pub(super) fn wanted_routes(&self) -> impl Iterator<Item = Route> {
        self.routes.iter().flat_map(|(prefix, entry)| {
            let targets = entry.targets(self.tun);
            targets.map(|target| self.route(*prefix, target))
        })
    }

    /// Whether the prefix has routes of ours, and this is none of them.
    pub(super) fn has_other_target(&self, prefix: Prefix, found: Option<RouteTarget>) -> bool {
        let entry = self.routes.get(&prefix);
        entry.is_some_and(|entry| !entry.targets(self.tun).any(|own| found == Some(own)))
    }

    /// Keeps the traffic of a Bypass policy on the ordinary routes.
    pub async fn bypass(&mut self, net: &Net, remote: &[AddressRange]) -> Result<()> {
        let mut result = Ok(());
        for prefix in wanted(remote) {
            let thrown = self.change(net, prefix, |entry| entry.thrown += 1);
            result = result.and(thrown.await);
        }
        result
    }

    pub async fn withdraw_bypass(&mut self, net: &Net, remote: &[AddressRange]) -> Result<()> {
        self.no_longer_throw(net, &wanted(remote)).await
    }

    async fn no_longer_throw(&mut self, net: &Net, prefixes: &[Prefix]) -> Result<()> {
        let mut result = Ok(());
        for prefix in prefixes {
            let thrown = self.change(net, *prefix, |entry| {
                entry.thrown = entry.thrown.saturating_sub(1);
            });
            result = result.and(thrown.await);
        }
        result
    }

    /// Removes every route and rule; goes on after an error and returns the first.
    pub async fn close(self, net: &Net) -> Result<()> {
        let mut result = Ok(());
        for route in self.wanted_routes() {
            result = result.and(net.route_delete(&route).await);
        }
        for family in self.rules {
            let removed = net.rule_delete_unmarked(
                family,
                self.config.mark,
                self.config.table,
                self.config.priority,
            );
            result = result.and(removed.await);
        }
        result
    }

    /// Removes what is left of a gateway with this table: routes that lead to no link, then the rules, so that on the way
    /// traffic is held and not half of it.
    pub async fn clear(net: &Net, table: u32, mark: u32, priority: u32) -> Result<()> {
        let mut result = Ok(());
        for family in [Family::V4, Family::V6] {
            match net.routes_without_link(family, table).await {
                Ok(routes) => {
                    for route in routes {
                        result = result.and(net.route_delete(&route).await);
                    }
                }
                Err(error) if family == Family::V6 && is_no_ipv6(&error) => continue,
                Err(error) => result = result.and(Err(error)),
            }
            match net
                .rule_delete_unmarked(family, mark, table, priority)
                .await
            {
                Err(error) if family == Family::V6 && is_no_ipv6(&error) => {}
                removed => result = result.and(removed),
            }
        }
        result
    }

    /// Changes who wants the prefix, and the route if that asks for another. A route that the kernel refuses is counted
    /// all the same, so that withdrawing it never takes another policy's.
    async fn change(
        &mut self,
        net: &Net,
        destination: Prefix,
        change: impl FnOnce(&mut Entry),
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

/// An address of ours in `local`, for the route to the prefix.
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

/// Local prefixes inside a wider remote one (remote 0.0.0.0/0, say): what the tunnel delivers to them must find the
/// ordinary routes and not the tunnel again.
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
