//! Restores links, rules and routes of the gateway that other programs changed or removed.

use std::collections::HashSet;

use rtnetlink::LinkUnspec;
use rtnetlink::packet_route::link::LinkFlags;

use super::rules::TABLE_LOCAL;
use super::{Family, LinkAddress, Net, Result, Route, RouteTarget, Routing, mtu, name};

const TABLE_DEFAULT: u32 = 253;

/// An interface of the gateway, as the gateway set it up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OwnLink {
    /// The `if_id` by which policies name the interface. Zero is the common interface.
    pub interface: u32,
    /// Index of the link. It never changes while the link exists.
    pub index: u32,
    pub name: String,
    pub mtu: u32,
    pub addresses: Vec<(std::net::IpAddr, u8)>,
    /// The link outlives the gateway.
    pub kept: bool,
}

impl Net {
    pub async fn is_gone(&self, link: &OwnLink) -> Result<bool> {
        match self.link_at(link.index).await {
            Ok(_) => Ok(false),
            Err(error) if error.raw_os_error() == Some(libc::ENODEV) => Ok(true),
            Err(error) => Err(error),
        }
    }

    /// Restores the link's state, name, MTU and addresses. `addresses` lists the addresses of this
    /// namespace, and the function updates it. Returns what it restored.
    pub async fn repair_link(
        &self,
        link: &OwnLink,
        addresses: &mut Vec<LinkAddress>,
    ) -> Result<Vec<String>> {
        let mut repaired = Vec::new();
        let own = &link.name;
        let found = self.link_at(link.index).await?;
        let mut up = found.header.flags.contains(LinkFlags::Up);
        if name(&found) != Some(own) {
            // Older kernels rename a link only while it is down.
            let message = || LinkUnspec::new_with_index(link.index);
            self.link_set("set down", message().down()).await?;
            self.link_set("rename", message().name(own.clone())).await?;
            repaired.push(format!("the name of {own}"));
            up = false;
        }
        if mtu(&found) != Some(link.mtu) {
            self.link_set_mtu(link.index, link.mtu).await?;
            repaired.push(format!("the MTU of {own}"));
        }
        if !up {
            self.link_set_up(link.index).await?;
            repaired.push(format!("{own}, which was down"));
        }
        for (address, prefix_len) in &link.addresses {
            let wanted = LinkAddress {
                link: link.index,
                address: *address,
                prefix_len: *prefix_len,
                is_source: true,
                is_permanent: true,
            };
            let is_there = |one: &LinkAddress| {
                (one.link, one.address, one.prefix_len)
                    == (wanted.link, wanted.address, wanted.prefix_len)
            };
            if !addresses.iter().any(is_there) {
                self.address_add(link.index, *address, *prefix_len).await?;
                repaired.push(format!("the address {address}/{prefix_len} of {own}"));
                addresses.push(wanted);
            }
        }
        Ok(repaired)
    }
}

impl Routing {
    /// Restores rules and routes, and removes foreign routes that stand in the place of ours.
    /// `addresses` lists the addresses of this namespace. Continues after an error; returns what it
    /// restored, and the first error.
    pub async fn repair(
        &mut self,
        net: &Net,
        addresses: &[LinkAddress],
    ) -> (Vec<String>, Result<()>) {
        let mut repaired = Vec::new();
        let mut result = Ok(());
        let former: Vec<_> = self.wanted_routes().collect();
        self.look_for_sources(addresses);
        let mut foreign = Vec::new();
        for family in self.families.clone() {
            let stand: Vec<_> = self.rules.iter().filter(|(of, _)| *of == family).collect();
            for (_, rule) in stand {
                match net.has_rule(family, rule).await {
                    Ok(true) => {}
                    Ok(false) => {
                        let added = net.rule_add(family, rule).await;
                        if added.is_ok() {
                            let table = self.config.table;
                            repaired.push(format!("an {family} rule for table {table}"));
                        }
                        result = result.and(added);
                    }
                    Err(error) => result = result.and(Err(error)),
                }
            }
            if self.holds_all_own() {
                result = result.and(self.follow_rules_of(net, family).await);
            }
            for table in self.config.tables() {
                let routes = self.repair_routes(net, family, table, &mut repaired).await;
                match routes {
                    Ok(narrower) => foreign.extend(narrower),
                    Err(error) => result = result.and(Err(error)),
                }
            }
            result = result.and(self.follow_rules_of(net, family).await);
            match net.rules_ahead(family, &self.config).await {
                Ok(ahead) => foreign.extend(ahead),
                Err(error) => result = result.and(Err(error)),
            }
        }
        self.foreign = foreign;
        let wanted: HashSet<_> = self.wanted_routes().collect();
        for route in former.iter().filter(|route| !wanted.contains(route)) {
            // A route that has another source, or another target, stands in the place of the former one.
            let in_its_place = |other: &Route| {
                let place = |one: &Route| (one.destination, one.table, one.target.metric());
                place(other) == place(route)
            };
            if !wanted.iter().any(in_its_place) {
                result = result.and(net.route_delete(route).await);
            }
        }
        (repaired, result)
    }

    /// Also returns the routes of others within ours, which take packets from them.
    async fn repair_routes(
        &self,
        net: &Net,
        family: Family,
        table: u32,
        repaired: &mut Vec<String>,
    ) -> Result<Vec<String>> {
        let v4 = family == Family::V4;
        let of_table =
            |route: &Route| route.table == table && route.destination.address().is_ipv4() == v4;
        let wanted: Vec<_> = self.wanted_routes().filter(of_table).collect();
        let targets: HashSet<_> = (wanted.iter())
            .map(|route| (route.destination, route.target))
            .collect();
        let destinations: HashSet<_> = wanted.iter().map(|route| route.destination).collect();
        let found = net.routes(family, table).await?;
        let there: HashSet<_> = (found.iter())
            .filter_map(|route| Some((route.destination, route.target?)))
            .collect();
        let into_tun = |route: &&Route| route.target.has_link();
        let led: Vec<_> = wanted.iter().filter(into_tun).collect();
        // The system's own tables are for everybody.
        let is_system = (TABLE_DEFAULT..=TABLE_LOCAL).contains(&table);
        let others = found.iter().map(|route| route.destination);
        let others = others.filter(|other| !is_system && !destinations.contains(other));
        let narrower = others.filter(|other| led.iter().any(|own| own.destination.covers(other)));
        let narrower = narrower.map(|other| format!("the route to {other} in table {table}"));
        let narrower: Vec<_> = narrower.collect();
        let mut result = Ok(());
        // A foreign route with the same destination could precede ours. The loop below adds again
        // what this deletion takes with it.
        let mut replaced = HashSet::new();
        for route in found {
            let is_ours = |target| targets.contains(&(route.destination, target));
            if destinations.contains(&route.destination) && !route.target.is_some_and(is_ours) {
                replaced.insert(route.destination);
                // Delete the route exactly as it was found, including its metric.
                result = result.and(net.delete(route.destination, route.message).await);
            }
        }
        for route in wanted {
            let Route {
                destination,
                target,
                ..
            } = route;
            if there.contains(&(destination, target)) && !replaced.contains(&destination) {
                continue;
            }
            let added = net.route_add(&route).await;
            if added.is_ok() {
                let what = match target {
                    RouteTarget::Held { .. } | RouteTarget::Unreachable => "the guard of",
                    _ => "the route to",
                };
                repaired.push(format!("{what} {destination}"));
            }
            result = result.and(added);
        }
        result.map(|()| narrower)
    }
}
