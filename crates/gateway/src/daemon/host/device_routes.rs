//! The routes into the TUN devices: a table and a rule for the common device, and for each device that a mark leads to.

use std::collections::BTreeMap;

use crate::config::{GatewayConfig, Mark};
use crate::join::RouteChange;
use crate::net::{Family, Net, Result, Routing, RuleConfig, RulePackets};

/// The priority of the common routing rule. strongSwan uses the same number, so that administrators recognise it.
const PRIORITY: u32 = 220;
/// The priority of the rules for marks: such a packet is for the children of its mark first.
const PRIORITY_MARKS: u32 = PRIORITY - 1;

/// Takes the place of a mark for the number of the table for packets of the host that have no source yet.
const OWN: Mark = Mark {
    value: u32::MAX,
    mask: 0,
};

/// The routes of each interface. Zero is the common one.
#[derive(Debug)]
pub(in crate::daemon) struct DeviceRoutes {
    by_interface: BTreeMap<u32, Routing>,
}

impl DeviceRoutes {
    pub async fn install(net: &Net, config: &GatewayConfig) -> Result<Self> {
        let mut by_interface = BTreeMap::new();
        for (interface, rule) in rules(config) {
            by_interface.insert(interface, Routing::install(net, rule).await?);
        }
        Ok(Self { by_interface })
    }

    /// Installs the rules for marks that a new configuration has and the former one had not.
    pub async fn add_marks(&mut self, net: &Net, config: &GatewayConfig) -> Result<()> {
        for (interface, rule) in rules(config) {
            match self.by_interface.get_mut(&interface) {
                Some(former) if *former.config() == rule => {}
                // The mark has another mask.
                Some(former) => former.move_to(net, rule).await?,
                None => {
                    let routing = Routing::install(net, rule).await?;
                    self.by_interface.insert(interface, routing);
                }
            }
        }
        Ok(())
    }

    /// Takes away rules and routes for marks that the configuration does not have. Continues after an error and returns
    /// the first.
    pub async fn drop_marks(&mut self, net: &Net, config: &GatewayConfig) -> Result<()> {
        let kept: Vec<_> = rules(config).map(|(interface, _)| interface).collect();
        let gone = |interface: &u32, _: &mut Routing| !kept.contains(interface);
        let gone: Vec<_> = self.by_interface.extract_if(.., gone).collect();
        let mut result = Ok(());
        for (_, routing) in gone {
            result = result.and(routing.close(net).await);
        }
        result
    }

    pub fn tables(&self) -> Vec<u32> {
        let tables = self.by_interface.values();
        tables
            .flat_map(|routing| routing.config().tables())
            .collect()
    }

    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut Routing> {
        self.by_interface.values_mut()
    }

    /// Leads the interface's traffic into this TUN device from now on.
    pub async fn lead_into(&mut self, net: &Net, interface: u32, tun: u32) -> Result<()> {
        match self.by_interface.get_mut(&interface) {
            Some(routing) => routing.lead_into(net, tun).await,
            None => Ok(()),
        }
    }

    /// Leads the traffic of each interface into the device with this index. Continues after an error and returns the
    /// first.
    pub async fn lead_into_all(&mut self, net: &Net, devices: &[(u32, u32)]) -> Result<()> {
        let mut result = Ok(());
        for (interface, index) in devices {
            result = result.and(self.lead_into(net, *interface, *index).await);
        }
        result
    }

    /// Records that the TUN device of the interface disappeared.
    pub fn lose_tun(&mut self, interface: u32) {
        if let Some(routing) = self.by_interface.get_mut(&interface) {
            routing.lose_tun();
        }
    }

    /// Makes the routes follow a change. Returns false if that failed. Then only a repair puts the routes right.
    pub async fn follow(&mut self, net: &Net, change: &RouteChange) -> bool {
        // A policy whose mark is no longer configured may go after its routes.
        let Some(routing) = self.by_interface.get_mut(&change.interface) else {
            return true;
        };
        let (local, remote) = (&change.local, &change.remote);
        let result = match (change.bypass, change.add) {
            (true, true) => routing.bypass(net, remote).await,
            (true, false) => routing.withdraw_bypass(net, remote).await,
            (false, true) => routing.protect(net, local, remote).await,
            (false, false) => routing.withdraw(net, local, remote).await,
        };
        if let Err(error) = &result {
            tracing::error!("routes do not follow the policies and are tried again: {error}");
        }
        result.is_ok()
    }

    /// Deletes what an earlier gateway has left and no policy needs.
    pub async fn settle(&self, net: &Net, config: &GatewayConfig) -> Result<()> {
        let mut result = Ok(());
        for routing in self.by_interface.values() {
            result = result.and(routing.settle(net).await);
        }
        let kept: Vec<_> = rules(config).map(|(_, rule)| rule).collect();
        result.and(clear_marks(net, config, &kept).await)
    }

    /// Deletes the routes into the TUN devices, and keeps the rules and the guards.
    pub async fn leave_closed(self, net: &Net) -> Result<()> {
        let mut result = Ok(());
        for routing in self.by_interface.into_values() {
            result = result.and(routing.leave_closed(net).await);
        }
        result
    }

    /// Removes every route and rule.
    pub async fn close(self, net: &Net) -> Result<()> {
        let mut result = Ok(());
        for routing in self.by_interface.into_values() {
            result = result.and(routing.close(net).await);
        }
        result
    }
}

/// Removes what gateways with this configuration's table have left.
pub(in crate::daemon) async fn clear(net: &Net, config: &GatewayConfig) -> Result<()> {
    let common = Routing::clear(net, &common_rule(config)).await;
    common.and(clear_marks(net, config, &[]).await)
}

/// Removes the rules for marks, and their routes, but for those in `kept`. The number of a table tells our rules from
/// those of others.
async fn clear_marks(net: &Net, config: &GatewayConfig, kept: &[RuleConfig]) -> Result<()> {
    let is_ours = |rule: &RuleConfig| match rule.packets {
        RulePackets::Marked { value, mask } => {
            Mark { value, mask }.table(config.table) == rule.table
        }
        RulePackets::OfPolicies { .. } => false,
    };
    let mut result = Ok(());
    for family in Family::ALL {
        // A kernel without IPv6 has no such rules.
        let rules = net.rules_for_marks(family, PRIORITY_MARKS).await;
        for rule in rules.unwrap_or_default() {
            if is_ours(&rule) && !kept.contains(&rule) {
                result = result.and(Routing::clear(net, &rule).await);
            }
        }
    }
    result
}

fn common_rule(config: &GatewayConfig) -> RuleConfig {
    RuleConfig {
        table: config.table,
        priority: PRIORITY,
        packets: RulePackets::OfPolicies {
            own_mark: config.mark,
            error_mark: config.error_mark(),
            own_table: OWN.table(config.table),
            by_routes: config.interfaces.iter().any(|one| !one.marks.are_given()),
        },
    }
}

/// Returns the rules that a configuration needs, each with the interface whose routes it leads to.
fn rules(config: &GatewayConfig) -> impl Iterator<Item = (u32, RuleConfig)> {
    let marked = config.marked_interfaces().filter_map(|interface| {
        let mark = interface.marks.outbound?;
        let rule = RuleConfig {
            table: mark.table(config.table),
            priority: PRIORITY_MARKS,
            packets: RulePackets::Marked {
                value: mark.value,
                mask: mark.mask,
            },
        };
        Some((interface.if_id, rule))
    });
    std::iter::once((0, common_rule(config))).chain(marked)
}
