//! Restores links, rules and routes of the gateway that other programs changed or removed.

use std::collections::HashSet;

use rtnetlink::LinkUnspec;
use rtnetlink::packet_route::link::LinkFlags;

use super::{Family, LinkAddress, Net, Result, Route, RouteTarget, Routing, mtu, name};

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
            };
            if !addresses.contains(&wanted) {
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
        self.look_for_sources(addresses);
        for family in self.rules.clone() {
            match net.has_rule(family, &self.rule).await {
                Ok(true) => {}
                Ok(false) => {
                    let added = net.rule_add(family, &self.rule).await;
                    if added.is_ok() {
                        repaired.push(format!("the {family} rule for table {}", self.rule.table));
                    }
                    result = result.and(added);
                }
                Err(error) => result = result.and(Err(error)),
            }
            let routes = self.repair_routes(net, family, &mut repaired).await;
            result = result.and(routes);
        }
        (repaired, result)
    }

    async fn repair_routes(
        &self,
        net: &Net,
        family: Family,
        repaired: &mut Vec<String>,
    ) -> Result<()> {
        let found = net.routes(family, self.rule.table).await?;
        let there: HashSet<_> = (found.iter())
            .filter_map(|route| Some((route.destination, route.target?)))
            .collect();
        let mut result = Ok(());
        // A foreign route with the same destination could precede ours. The loop below adds again
        // what this deletion takes with it.
        let mut replaced = HashSet::new();
        for route in found {
            if self.has_other_target(route.destination, route.target) {
                replaced.insert(route.destination);
                // Delete the route exactly as it was found, including its metric.
                result = result.and(net.delete(route.destination, route.message).await);
            }
        }
        let v4 = family == Family::V4;
        let wanted = self.wanted_routes();
        for route in wanted.filter(|route| route.destination.address().is_ipv4() == v4) {
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
                    RouteTarget::Unreachable => "the guard of",
                    _ => "the route to",
                };
                repaired.push(format!("{what} {destination}"));
            }
            result = result.and(added);
        }
        result
    }
}
