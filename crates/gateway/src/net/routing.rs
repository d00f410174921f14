//! Leads the traffic of installed policies into the TUN: routes in a table of our own, reached by a rule that
//! skips packets carrying our mark, so that what the gateway itself sends outside never loops back in.

use std::collections::HashMap;
use std::net::IpAddr;

use super::{Family, Net, NetError, Prefix, Result, Route, RouteTarget, prefixes_of_range};

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
    /// The TUN's interface index.
    pub tun: u32,
    pub table: u32,
    pub priority: u32,
    /// The mark on our own sockets.
    pub mark: u32,
}

/// The routes that the installed policies need. Several policies can need the same one.
#[derive(Debug)]
pub struct Routing {
    config: RoutingConfig,
    routes: HashMap<Prefix, Entry>,
    rules: Vec<Family>,
}

#[derive(Debug)]
struct Entry {
    target: RouteTarget,
    users: usize,
}

impl Routing {
    /// Adds the rules. A kernel without IPv6 leaves that family out.
    pub async fn install(net: &Net, config: RoutingConfig) -> Result<Self> {
        let mut rules = Vec::new();
        for family in [Family::V4, Family::V6] {
            match net
                .rule_add_unmarked(family, config.mark, config.table, config.priority)
                .await
            {
                Ok(()) => rules.push(family),
                Err(error) if family == Family::V6 && is_no_ipv6(&error) => {
                    tracing::info!("the kernel has no IPv6 routing rules: {error}");
                }
                Err(error) => return Err(error),
            }
        }
        Ok(Self {
            config,
            routes: HashMap::new(),
            rules,
        })
    }

    /// Routes `remote` into the TUN. The source hint is one of our addresses inside `local`, so that the gateway's
    /// own packets match the policy. Call [`Routing::withdraw`] with the same arguments when the policy goes.
    pub async fn protect(
        &mut self,
        net: &Net,
        local: &[AddressRange],
        remote: &[AddressRange],
    ) -> Result<()> {
        let addresses = net.addresses().await?;
        let own = |v4: bool| {
            addresses.iter().map(|entry| entry.address).find(|address| {
                address.is_ipv4() == v4 && local.iter().any(|range| range.contains(*address))
            })
        };
        for prefix in wanted(remote) {
            let source = own(prefix.address().is_ipv4());
            self.add(
                net,
                prefix,
                RouteTarget::Link {
                    index: self.config.tun,
                    gateway: None,
                    source,
                },
            )
            .await?;
        }
        for prefix in shadowed(local, remote) {
            self.add(net, prefix, RouteTarget::Throw).await?;
        }
        Ok(())
    }

    /// Takes back what [`Routing::protect`] added.
    pub async fn withdraw(
        &mut self,
        net: &Net,
        local: &[AddressRange],
        remote: &[AddressRange],
    ) -> Result<()> {
        for prefix in wanted(remote).into_iter().chain(shadowed(local, remote)) {
            self.remove(net, prefix).await?;
        }
        Ok(())
    }

    /// Keeps the traffic of a Bypass policy on the ordinary routes.
    pub async fn bypass(&mut self, net: &Net, remote: &[AddressRange]) -> Result<()> {
        for prefix in wanted(remote) {
            self.add(net, prefix, RouteTarget::Throw).await?;
        }
        Ok(())
    }

    pub async fn withdraw_bypass(&mut self, net: &Net, remote: &[AddressRange]) -> Result<()> {
        for prefix in wanted(remote) {
            self.remove(net, prefix).await?;
        }
        Ok(())
    }

    /// Removes every route and rule; goes on after an error and returns the first.
    pub async fn close(self, net: &Net) -> Result<()> {
        let mut result = Ok(());
        for (destination, entry) in self.routes {
            let route = Route {
                destination,
                target: entry.target,
                table: self.config.table,
            };
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

    async fn add(&mut self, net: &Net, destination: Prefix, target: RouteTarget) -> Result<()> {
        if let Some(entry) = self.routes.get_mut(&destination) {
            entry.users += 1;
            return Ok(());
        }
        net.route_add(&Route {
            destination,
            target,
            table: self.config.table,
        })
        .await?;
        self.routes.insert(destination, Entry { target, users: 1 });
        Ok(())
    }

    async fn remove(&mut self, net: &Net, destination: Prefix) -> Result<()> {
        let Some(entry) = self.routes.get_mut(&destination) else {
            return Ok(());
        };
        entry.users -= 1;
        if entry.users > 0 {
            return Ok(());
        }
        let target = entry.target;
        self.routes.remove(&destination);
        net.route_delete(&Route {
            destination,
            target,
            table: self.config.table,
        })
        .await
    }
}

fn wanted(remote: &[AddressRange]) -> Vec<Prefix> {
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
fn shadowed(local: &[AddressRange], remote: &[AddressRange]) -> Vec<Prefix> {
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
