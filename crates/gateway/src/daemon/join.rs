//! Joins IKE and the data plane: "child SA installed" becomes entries of SAD and SPD, and what the data plane meets
//! becomes questions to IKE. Neither crate knows the other; this file knows both.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;

use esplanade_ike::config::Action as Then;
use esplanade_ike::event::{ChildSaDeleted, ChildSaId, ChildSaInstalled};
use esplanade_ike::wire;
use esplanade_ipsec::database::Database;
use esplanade_ipsec::lifetime::LifetimeLimits;
use esplanade_ipsec::sa::{InboundSa, OutboundSa, Path, SaParameters, TunnelOptions};
use esplanade_ipsec::selector::{AddressRange, PortRange, SelectorSet, TrafficSelector};
use esplanade_ipsec::spd::{Action, Entry, Policy, PolicyId, Spd};

use crate::net;

/// One child of the configuration, as the SPD needs it. The order of the list is the order of the SPD.
#[derive(Clone, Debug, PartialEq)]
pub struct ConfiguredPolicy {
    pub connection: String,
    pub child: String,
    pub kind: PolicyKind,
    pub local: Vec<TrafficSelector>,
    pub remote: Vec<TrafficSelector>,
    pub tunnel: TunnelOptions,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PolicyKind {
    Bypass,
    Discard,
    /// With `trap`, traffic is held to the policy, and asks for an SA, also while there is none.
    Protect {
        trap: bool,
    },
}

/// Why a child SA could not be installed.
#[derive(Debug, thiserror::Error)]
pub enum InstallError {
    #[error("the configuration has no child {child:?} in connection {connection:?} any more")]
    NotConfigured { connection: String, child: String },
    #[error("the negotiated traffic selectors are too many or contradict each other")]
    Selectors,
    #[error(transparent)]
    Key(#[from] esplanade_crypto::KeyError),
    #[error(transparent)]
    Spi(#[from] esplanade_ipsec::sad::NotAllocated),
}

/// Traffic that must be led into the TUN, or no longer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RouteChange {
    pub add: bool,
    pub bypass: bool,
    pub local: Vec<net::AddressRange>,
    pub remote: Vec<net::AddressRange>,
}

/// What the data plane knows of one child SA.
#[derive(Debug)]
pub struct Installed {
    pub inbound: Arc<InboundSa>,
    pub outbound: Arc<OutboundSa>,
    group: PolicyId,
    sending: bool,
    /// `last_used_ms` of both halves when IKE was last told.
    seen: (u64, u64),
}

/// SAs that carry the same traffic: a child SA, and those that replace it.
#[derive(Debug)]
struct Group {
    policy: Arc<Policy>,
    configured: ConfiguredPolicy,
    selectors: SelectorSet,
    routes: RouteChange,
    children: Vec<ChildSaId>,
    trap: bool,
}

/// Which halves of a child SA carried traffic since the last look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Activity {
    pub child: ChildSaId,
    pub inbound: bool,
    pub outbound: bool,
}

#[derive(Debug)]
pub struct Join {
    database: Arc<Database>,
    configured: Vec<ConfiguredPolicy>,
    groups: Vec<Group>,
    children: HashMap<ChildSaId, Installed>,
    /// Inbound SAs that wait for packets in flight.
    lingering: Vec<(Instant, u32)>,
    routes: Vec<RouteChange>,
    next_policy: u32,
}

impl Join {
    pub fn new(database: Arc<Database>) -> Self {
        Self {
            database,
            configured: Vec::new(),
            groups: Vec::new(),
            children: HashMap::new(),
            lingering: Vec::new(),
            routes: Vec::new(),
            next_policy: 1,
        }
    }

    /// Route changes since the last call, in order.
    pub fn take_route_changes(&mut self) -> Vec<RouteChange> {
        std::mem::take(&mut self.routes)
    }

    /// Follows a new configuration. SAs that are up stay with the selectors that they were negotiated for.
    pub fn configure(&mut self, configured: Vec<ConfiguredPolicy>) {
        for old in self
            .configured
            .iter()
            .filter(|old| !configured.contains(old))
        {
            if old.kind == PolicyKind::Bypass {
                self.routes.push(bypass_routes(old, false));
            }
        }
        for new in configured
            .iter()
            .filter(|new| !self.configured.contains(new))
        {
            if new.kind == PolicyKind::Bypass {
                self.routes.push(bypass_routes(new, true));
            }
        }
        for group in &mut self.groups {
            group.trap = configured.iter().any(|policy| {
                policy.kind == (PolicyKind::Protect { trap: true }) && *policy == group.configured
            });
        }
        self.configured = configured;
        self.drop_empty_groups();
        for index in 0..self.configured.len() {
            let policy = &self.configured[index];
            if policy.kind != (PolicyKind::Protect { trap: true }) {
                continue;
            }
            let Some(selectors) = SelectorSet::from_ends(&policy.local, &policy.remote) else {
                continue;
            };
            let policy = policy.clone();
            let group = self.group_for(&policy, selectors, &policy.local, &policy.remote);
            if let Some(group) = self
                .groups
                .iter_mut()
                .find(|known| known.policy.id == group)
            {
                group.trap = true;
            }
        }
        self.publish();
    }

    pub fn install(&mut self, event: &ChildSaInstalled) -> Result<(), InstallError> {
        let local: Vec<_> = event.local_ts.iter().filter_map(selector).collect();
        let remote: Vec<_> = event.remote_ts.iter().filter_map(selector).collect();
        let selectors = SelectorSet::from_ends(&local, &remote).ok_or(InstallError::Selectors)?;
        if selectors.is_empty() {
            return Err(InstallError::Selectors);
        }
        let former = event
            .rekeyed_from
            .and_then(|old| self.children.get(&old))
            .map(|old| old.group);
        let configured = self
            .configured
            .iter()
            .find(|policy| policy.connection == event.connection && policy.child == event.name)
            .or_else(|| self.group(former?).map(|group| &group.configured))
            .ok_or_else(|| InstallError::NotConfigured {
                connection: event.connection.clone(),
                child: event.name.clone(),
            })?
            .clone();
        let parameters = |spi, key_material, group| SaParameters {
            spi,
            policy: group,
            transform: event.esp.transform,
            esn: event.esp.sequence_numbers == esplanade_crypto::iana::SequenceNumbers::Bits64,
            key_material,
            selectors: selectors.clone(),
            path: Path {
                local: event.local,
                remote: event.remote,
                udp_encap: event.udp_encap,
            },
            tunnel: configured.tunnel,
            lifetime: limits(event),
            replay_window: event.replay_window,
        };
        let group = self.group_for(&configured, selectors.clone(), &local, &remote);
        let inbound =
            InboundSa::new(parameters(event.spi_in, event.key_in.expose(), group)).map(Arc::new);
        let outbound =
            OutboundSa::new(parameters(event.spi_out, event.key_out.expose(), group)).map(Arc::new);
        let result = inbound
            .and_then(|inbound| Ok((inbound, outbound?)))
            .map_err(InstallError::from);
        let result = result.and_then(|(inbound, outbound)| {
            self.database.sad().insert(inbound.clone())?;
            Ok((inbound, outbound))
        });
        let (inbound, outbound) = match result {
            Ok(pair) => pair,
            Err(error) => {
                self.drop_empty_groups();
                return Err(error);
            }
        };
        if let Some(group) = self
            .groups
            .iter_mut()
            .find(|known| known.policy.id == group)
        {
            group.children.push(event.child);
        }
        self.children.insert(
            event.child,
            Installed {
                inbound,
                outbound,
                group,
                sending: false,
                seen: (0, 0),
            },
        );
        self.publish();
        Ok(())
    }

    /// Sends with this SA from now on.
    pub fn use_outbound(&mut self, child: ChildSaId) {
        let Some(installed) = self.children.get_mut(&child) else {
            return;
        };
        installed.sending = true;
        let (group, sa) = (installed.group, installed.outbound.clone());
        if let Some(group) = self.group(group) {
            group.policy.install(sa);
        }
    }

    pub fn delete(&mut self, event: &ChildSaDeleted, now: Instant) {
        let Some(installed) = self.children.remove(&event.child) else {
            // Installing it failed; the SPI was allocated all the same.
            self.database.sad().remove(event.spi_in);
            return;
        };
        self.lingering.push((now + event.linger, event.spi_in));
        if let Some(group) = self
            .groups
            .iter_mut()
            .find(|group| group.policy.id == installed.group)
        {
            group.children.retain(|child| *child != event.child);
            group.policy.remove(event.spi_out);
            // Redundant SAs of simultaneous exchanges: the newest that is left carries on.
            if group.policy.outbound_sa().is_none() {
                let left = group
                    .children
                    .iter()
                    .rev()
                    .filter_map(|child| self.children.get(child));
                if let Some(next) = left.into_iter().find(|child| child.sending) {
                    group.policy.install(next.outbound.clone());
                }
            }
            // `dpd_action = trap` and the like: traffic may ask for a new SA.
            group.trap |= !event.replaced && event.then != Then::Clear;
            group.policy.acquire_done();
        }
        self.drop_empty_groups();
        self.publish();
    }

    /// Frees what has lingered long enough; when to come back.
    pub fn expire(&mut self, now: Instant) -> Option<Instant> {
        let sad = self.database.sad();
        self.lingering.retain(|(until, spi)| {
            let keep = *until > now;
            if !keep {
                sad.remove(*spi);
            }
            keep
        });
        self.lingering.iter().map(|(until, _)| *until).min()
    }

    pub fn peer_moved(&mut self, children: &[ChildSaId], local: SocketAddr, remote: SocketAddr) {
        for installed in children.iter().filter_map(|child| self.children.get(child)) {
            for common in [&installed.inbound.common, &installed.outbound.common] {
                let udp_encap = common.path().udp_encap;
                common.set_path(Path {
                    local,
                    remote,
                    udp_encap,
                });
            }
        }
    }

    /// The SA that has this SPI in either direction.
    pub fn child_by_spi(&self, spi: u32) -> Option<(ChildSaId, &Installed)> {
        let owns = |sa: &Installed| sa.inbound.common.spi == spi || sa.outbound.common.spi == spi;
        self.children
            .iter()
            .find(|(_, sa)| owns(sa))
            .map(|(child, sa)| (*child, sa))
    }

    pub fn child(&self, child: ChildSaId) -> Option<&Installed> {
        self.children.get(&child)
    }

    /// The connection and child of a policy that asks for an SA.
    pub fn policy_names(&self, policy: PolicyId) -> Option<(&str, &str)> {
        let configured = &self.group(policy)?.configured;
        Some((&configured.connection, &configured.child))
    }

    /// Lets policies without an SA ask again: an acquire can get lost, or lead to nothing.
    pub fn renew_acquires(&self) {
        for group in self
            .groups
            .iter()
            .filter(|group| group.policy.outbound_sa().is_none())
        {
            group.policy.acquire_done();
        }
    }

    /// Which SAs were used since the last call.
    pub fn take_activity(&mut self) -> Vec<Activity> {
        let mut active = Vec::new();
        for (&child, sa) in &mut self.children {
            let now = (
                sa.inbound.common.last_used_ms(),
                sa.outbound.common.last_used_ms(),
            );
            if now != sa.seen {
                active.push(Activity {
                    child,
                    inbound: now.0 != sa.seen.0,
                    outbound: now.1 != sa.seen.1,
                });
                sa.seen = now;
            }
        }
        active
    }

    fn group(&self, id: PolicyId) -> Option<&Group> {
        self.groups.iter().find(|group| group.policy.id == id)
    }

    /// The group of these selectors, made if there is none.
    fn group_for(
        &mut self,
        configured: &ConfiguredPolicy,
        selectors: SelectorSet,
        local: &[TrafficSelector],
        remote: &[TrafficSelector],
    ) -> PolicyId {
        let same = |group: &&Group| {
            group.configured.connection == configured.connection
                && group.configured.child == configured.child
                && group.selectors == selectors
        };
        if let Some(group) = self.groups.iter().find(same) {
            return group.policy.id;
        }
        let id = PolicyId(self.next_policy);
        self.next_policy = self.next_policy.wrapping_add(1);
        let name = format!("{}/{}", configured.connection, configured.child);
        let routes = RouteChange {
            add: true,
            bypass: false,
            local: ranges(local),
            remote: ranges(remote),
        };
        self.routes.push(routes.clone());
        self.groups.push(Group {
            policy: Arc::new(Policy::new(id, name)),
            configured: configured.clone(),
            selectors,
            routes,
            children: Vec::new(),
            trap: false,
        });
        id
    }

    fn drop_empty_groups(&mut self) {
        let routes = &mut self.routes;
        self.groups.retain(|group| {
            let keep = group.trap || !group.children.is_empty();
            if !keep {
                routes.push(RouteChange {
                    add: false,
                    ..group.routes.clone()
                });
            }
            keep
        });
    }

    /// Publishes the SPD: in the order of the configuration, negotiated selectors before the wider ones that trap;
    /// SAs whose configuration is gone come last.
    fn publish(&self) {
        let mut entries = Vec::new();
        let groups_of = |configured: &ConfiguredPolicy, trap: bool| {
            self.groups
                .iter()
                .filter(move |group| group.trap == trap)
                .filter(|group| same_child(&group.configured, configured))
                .map(protect)
                .collect::<Vec<_>>()
        };
        for configured in &self.configured {
            let plain = |action| {
                SelectorSet::from_ends(&configured.local, &configured.remote)
                    .map(|selectors| Entry { selectors, action })
            };
            match configured.kind {
                PolicyKind::Bypass => entries.extend(plain(Action::Bypass)),
                PolicyKind::Discard => entries.extend(plain(Action::Discard)),
                PolicyKind::Protect { .. } => {
                    entries.extend(groups_of(configured, false));
                    entries.extend(groups_of(configured, true));
                }
            }
        }
        let orphan = |group: &&Group| {
            !self
                .configured
                .iter()
                .any(|configured| same_child(&group.configured, configured))
        };
        entries.extend(self.groups.iter().filter(orphan).map(protect));
        self.database.publish_spd(Spd::new(entries));
    }
}

fn protect(group: &Group) -> Entry {
    Entry {
        selectors: group.selectors.clone(),
        action: Action::Protect(group.policy.clone()),
    }
}

fn same_child(a: &ConfiguredPolicy, b: &ConfiguredPolicy) -> bool {
    a.connection == b.connection && a.child == b.child
}

fn bypass_routes(policy: &ConfiguredPolicy, add: bool) -> RouteChange {
    RouteChange {
        add,
        bypass: true,
        local: ranges(&policy.local),
        remote: ranges(&policy.remote),
    }
}

fn ranges(selectors: &[TrafficSelector]) -> Vec<net::AddressRange> {
    selectors
        .iter()
        .map(|ts| net::AddressRange {
            first: ts.addresses.first(),
            last: ts.addresses.last(),
        })
        .collect()
}

fn limits(event: &ChildSaInstalled) -> LifetimeLimits {
    let limit = |value: u64| (value != 0).then_some(value);
    LifetimeLimits {
        bytes_soft: limit(event.soft_bytes),
        bytes_hard: limit(event.hard_bytes),
        packets_soft: limit(event.soft_packets),
        packets_hard: limit(event.hard_packets),
    }
}

/// A selector from the wire; None if it selects nothing.
fn selector(ts: &wire::TrafficSelector) -> Option<TrafficSelector> {
    Some(TrafficSelector {
        addresses: AddressRange::new(ts.start, ts.end)?,
        protocol: ts.protocol,
        ports: PortRange::from_wire(ts.start_port, ts.end_port)?,
    })
}

#[cfg(test)]
mod tests;
