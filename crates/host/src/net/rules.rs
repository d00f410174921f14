//! The routing rules that lead packets to the tables of [`super::Routing`]: by the sources that policies name.
//!
//! A rule costs every packet of the host a little. So there are few, and where policies have many local ends, rules are
//! wider than the policies.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, Ipv6Addr};

use esplanade_few::FewMap;
use esplanade_prefix::Prefix;
use futures_util::TryStreamExt;
use rtnetlink::IpVersion;
use rtnetlink::packet_route::AddressFamily;
use rtnetlink::packet_route::rule::{RuleAction, RuleAttribute, RuleFlags, RuleMessage};

use super::{Family, Net, NetError, Result, RuleConfig, RulePackets, ignore};

/// The table of the host's own addresses, which precedes all others.
pub(super) const TABLE_LOCAL: u32 = 255;
/// The number of priorities that the rules for policies take.
pub const PRIORITIES: u32 = 8;
/// Most local prefixes that have rules of their own.
const LOCALS_MAX: usize = 16;
/// Most remote prefixes that a local prefix has rules for. With more, it has one rule for all destinations.
const REMOTES_MAX: usize = 4;
/// The interface that the host's own packets come from, as rules see them.
const LOOPBACK: &str = "lo";
/// Lengths that local prefixes are cut to where they are too many.
const SHORTER: [u8; 16] = [
    120, 112, 104, 96, 88, 80, 72, 64, 56, 48, 40, 32, 24, 16, 8, 0,
];

/// A routing rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rule {
    pub priority: u32,
    /// The packet's mark has this value under this mask.
    pub mark: Option<(u32, u32)>,
    pub from: Option<Prefix>,
    pub to: Option<Prefix>,
    /// The packet is the host's own.
    pub own: bool,
    pub action: RuleTarget,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RuleTarget {
    Lookup(u32),
    /// Goes on with the rules of this priority, which is higher.
    Goto(u32),
    Nothing,
}

impl Rule {
    fn new(priority: u32, action: RuleTarget) -> Self {
        Self {
            priority,
            mark: None,
            from: None,
            to: None,
            own: false,
            action,
        }
    }
}

/// The local ends of the policies, by their families.
#[derive(Debug, Default)]
pub(super) struct LocalEnds {
    v4: FamilyEnds,
    v6: FamilyEnds,
}

/// How many policies have each pair of a local and a remote prefix.
#[derive(Debug, Default)]
struct FamilyEnds {
    pairs: BTreeMap<Prefix, FewMap<Prefix, usize>>,
    /// How many local prefixes each remote prefix has.
    remotes: BTreeMap<Prefix, usize>,
    /// There where the local prefixes are too many.
    cut: Option<CutPrefixes>,
}

/// Prefixes that are cut so short that they are few. A peer can choose many, so they follow each without a look at all.
#[derive(Debug)]
struct CutPrefixes {
    length: u8,
    /// How many prefixes each stands for.
    counts: BTreeMap<Prefix, usize>,
}

impl CutPrefixes {
    fn of<'a>(prefixes: impl Iterator<Item = &'a Prefix>) -> Self {
        let mut cut = Self {
            length: u8::MAX,
            counts: BTreeMap::new(),
        };
        prefixes.for_each(|prefix| cut.add(*prefix, 1));
        cut
    }

    fn cut(&self, prefix: Prefix) -> Option<Prefix> {
        Prefix::new(prefix.address(), prefix.length().min(self.length))
    }

    fn add(&mut self, prefix: Prefix, count: usize) {
        if let Some(cut) = self.cut(prefix) {
            *self.counts.entry(cut).or_default() += count;
        }
        while self.counts.len() > LOCALS_MAX
            && let Some(length) = SHORTER.into_iter().find(|length| *length < self.length)
        {
            self.length = length;
            for (prefix, count) in std::mem::take(&mut self.counts) {
                if let Some(cut) = self.cut(prefix) {
                    *self.counts.entry(cut).or_default() += count;
                }
            }
        }
    }

    fn remove(&mut self, prefix: Prefix) {
        if let Some(cut) = self.cut(prefix)
            && let Some(count) = self.counts.get_mut(&cut)
        {
            *count -= 1;
            if *count == 0 {
                self.counts.remove(&cut);
            }
        }
    }
}

impl FamilyEnds {
    /// Follows a policy for this pair that has come or gone.
    fn count(&mut self, come: bool, from: Prefix, to: Prefix) {
        let locals = self.pairs.len();
        let of_local = self.pairs.entry(from).or_default();
        let before = of_local.get(&to).copied().unwrap_or_default();
        let after = match come {
            true => before + 1,
            false => before.saturating_sub(1),
        };
        match after {
            0 => of_local.remove(&to),
            after => of_local.insert(to, after),
        };
        if of_local.is_empty() {
            self.pairs.remove(&from);
        }
        let of_remote = self.remotes.entry(to).or_default();
        match (before, after) {
            (0, 1) => *of_remote += 1,
            (1, 0) => *of_remote = of_remote.saturating_sub(1),
            _ => {}
        }
        if *of_remote == 0 {
            self.remotes.remove(&to);
        }
        match (&mut self.cut, self.pairs.len()) {
            (Some(_), few) if few <= LOCALS_MAX => self.cut = None,
            (Some(cut), now) if now > locals => cut.add(from, 1),
            (Some(cut), now) if now < locals => cut.remove(from),
            (None, many) if many > LOCALS_MAX => {
                self.cut = Some(CutPrefixes::of(self.pairs.keys()))
            }
            _ => {}
        }
    }

    /// Returns local prefixes, each with a remote one or for all destinations.
    fn pairs(&self) -> Vec<(Prefix, Option<Prefix>)> {
        if let Some(cut) = &self.cut {
            return cut.counts.keys().map(|from| (*from, None)).collect();
        }
        let pairs = |(from, of_local): (&Prefix, &FewMap<Prefix, usize>)| {
            let from = *from;
            match of_local.len() {
                len if len == self.remotes.len() || len > REMOTES_MAX => vec![(from, None)],
                _ => of_local.keys().map(|to| (from, Some(*to))).collect(),
            }
        };
        self.pairs.iter().flat_map(pairs).collect()
    }
}

impl LocalEnds {
    /// Follows a policy that has come or gone.
    pub fn count(&mut self, come: bool, local: &[Prefix], remote: &[Prefix]) {
        for from in local {
            let v4 = from.address().is_ipv4();
            let family = if v4 { &mut self.v4 } else { &mut self.v6 };
            for to in remote.iter().filter(|to| to.address().is_ipv4() == v4) {
                family.count(come, *from, *to);
            }
        }
    }

    fn pairs_of(&self, family: Family) -> Vec<(Prefix, Option<Prefix>)> {
        match family {
            Family::V4 => self.v4.pairs(),
            Family::V6 => self.v6.pairs(),
        }
    }

    /// Returns the rules of a family. A later priority is for packets that no earlier one has led anywhere. `whole`: the
    /// host's own packets find the table for those without a source also if they have one.
    pub fn rules(&self, config: &RuleConfig, family: Family, whole: bool) -> Vec<Rule> {
        let (first, table) = (config.priority, config.table);
        let (own_mark, error_mark, own_table, by_routes) = match config.packets {
            RulePackets::OfPolicies {
                own_mark,
                error_mark,
                own_table,
                by_routes,
            } => (own_mark, error_mark, own_table, by_routes),
            RulePackets::Marked { value, mask } => {
                let mark = Some((value, mask));
                let rule = Rule::new(first, RuleTarget::Lookup(table));
                return vec![Rule { mark, ..rule }];
            }
        };
        let last = first + PRIORITIES - 1;
        let past = RuleTarget::Goto(last);
        // The rules at the end have to be there before a rule goes on to them.
        let mut rules = vec![
            Rule::new(last, RuleTarget::Nothing),
            Rule {
                mark: Some((own_mark, u32::MAX)),
                ..Rule::new(first, past)
            },
        ];
        let led = Rule::new(first, RuleTarget::Lookup(table));
        rules.push(Rule {
            mark: Some((error_mark, u32::MAX)),
            ..led
        });
        rules.extend(self.pairs_of(family).into_iter().map(|(from, to)| {
            // The kernel lists no prefix that every address has.
            let listed = |prefix: &Prefix| prefix.length() > 0;
            let (from, to) = (Some(from).filter(listed), to.filter(listed));
            // The kernel takes a rule for the same as one that names more, unless their priorities differ.
            let priority = first
                + match (from, to) {
                    (Some(_), Some(_)) => 1,
                    (Some(_), None) => 2,
                    (None, Some(_)) => 3,
                    (None, None) => 4,
                };
            Rule {
                priority,
                from,
                to,
                ..led
            }
        }));
        let own = Rule {
            own: true,
            ..Rule::new(first + 6, RuleTarget::Lookup(own_table))
        };
        match family {
            // While a packet has no source yet, its source is 0.0.0.0.
            Family::V4 => rules.push(Rule {
                from: Some(Prefix::host(Ipv4Addr::UNSPECIFIED.into())),
                ..own
            }),
            // No rule with a source takes such a packet. So packets that have one leave the rules before.
            Family::V6 => {
                let halves = [Ipv6Addr::UNSPECIFIED, Ipv6Addr::from_bits(1 << 127)];
                let halves = halves.map(|half| Prefix::new(half.into(), 1));
                let halves = halves.into_iter().filter(|_| !whole);
                rules.extend(halves.map(|from| Rule {
                    from,
                    own: true,
                    ..Rule::new(first + 5, past)
                }));
                rules.push(own);
            }
        }
        if by_routes {
            rules.push(Rule::new(first + 6, RuleTarget::Lookup(table)));
        }
        rules
    }
}

impl Net {
    pub(super) async fn has_rule(&self, family: Family, rule: &Rule) -> Result<bool> {
        let wanted = rule_message(family, rule);
        let same = |found: &RuleMessage| {
            let header = |message: &RuleMessage| {
                let header = &message.header;
                let inverts = header.flags.contains(RuleFlags::Invert);
                (header.action, inverts, header.src_len, header.dst_len)
            };
            let mut attributes = wanted.attributes.iter();
            header(found) == header(&wanted)
                && attributes.all(|attribute| found.attributes.contains(attribute))
        };
        Ok(self.rules(family).await?.iter().any(same))
    }

    /// Adds the rule. A rule that exists is no error.
    pub(super) async fn rule_add(&self, family: Family, rule: &Rule) -> Result<()> {
        let mut request = self.handle.rule().add();
        *request.message_mut() = rule_message(family, rule);
        let result = request.execute().await;
        let what = || format!("cannot add a rule of priority {}", rule.priority);
        ignore(
            result.map_err(|e| NetError::new(what(), e)),
            &[libc::EEXIST],
        )
    }

    /// Deletes the rule. A rule that does not exist is no error.
    pub(super) async fn rule_delete(&self, family: Family, rule: &Rule) -> Result<()> {
        self.delete_rule(rule_message(family, rule)).await
    }

    async fn delete_rule(&self, message: RuleMessage) -> Result<()> {
        let result = self.handle.rule().del(message).execute().await;
        ignore(
            result.map_err(|e| NetError::new("cannot delete a rule", e)),
            &[libc::ENOENT],
        )
    }

    /// Deletes the rules of these priorities that lead to one of these tables or past them, but for those that stay.
    pub(super) async fn rules_clear(
        &self,
        family: Family,
        config: &RuleConfig,
        stays: impl Fn(&Rule) -> bool,
    ) -> Result<()> {
        let always = LocalEnds::default().rules(config, family, false);
        let mut result = Ok(());
        for found in self.rules(family).await? {
            let Some(rule) = rule_of(&found) else {
                continue;
            };
            let ours = match rule.action {
                RuleTarget::Lookup(table) => config.tables().any(|own| own == table),
                RuleTarget::Goto(_) | RuleTarget::Nothing => always.contains(&rule),
            };
            let in_place = match config.packets {
                RulePackets::OfPolicies { .. } => {
                    (config.priority..config.priority + PRIORITIES).contains(&rule.priority)
                }
                RulePackets::Marked { .. } => rule.priority == config.priority,
            };
            let inverts = found.header.flags.contains(RuleFlags::Invert);
            if in_place && ours && (inverts || !stays(&rule)) {
                result = result.and(self.delete_rule(found).await);
            }
        }
        result
    }

    async fn rules(&self, family: Family) -> Result<Vec<RuleMessage>> {
        let version = match family {
            Family::V4 => IpVersion::V4,
            Family::V6 => IpVersion::V6,
        };
        Box::pin(self.handle.rule().get(version).execute())
            .try_collect()
            .await
            .map_err(|e| NetError::new("cannot list the rules", e))
    }

    /// Names the rules of others that lead all packets elsewhere, before the rules of this configuration see them.
    pub(super) async fn rules_ahead(
        &self,
        family: Family,
        config: &RuleConfig,
    ) -> Result<Vec<String>> {
        let is_for_all = |message: &RuleMessage| {
            let header = &message.header;
            let mut attributes = message.attributes.iter();
            (header.src_len, header.dst_len, header.tos) == (0, 0, 0)
                && !header.flags.contains(RuleFlags::Invert)
                && attributes.all(|attribute| match attribute {
                    RuleAttribute::SuppressPrefixLen(bits) => *bits == u32::MAX,
                    RuleAttribute::Table(_)
                    | RuleAttribute::Priority(_)
                    | RuleAttribute::Protocol(_) => true,
                    _ => false,
                })
        };
        let rules = self.rules(family).await?;
        let ahead = rules
            .iter()
            .filter(|one| is_for_all(one))
            .filter_map(|one| {
                let rule = rule_of(one).filter(|rule| rule.priority < config.priority)?;
                match rule.action {
                    RuleTarget::Lookup(table) if table != TABLE_LOCAL => Some(format!(
                        "the {family} rule {} for table {table}",
                        rule.priority
                    )),
                    _ => None,
                }
            });
        Ok(ahead.collect())
    }

    /// Lists the rules of this priority that lead a mark to a table.
    pub async fn rules_for_marks(&self, family: Family, priority: u32) -> Result<Vec<RuleConfig>> {
        let config = |found: &RuleMessage| {
            let rule = rule_of(found).filter(|rule| rule.priority == priority)?;
            let ((value, mask), RuleTarget::Lookup(table)) = (rule.mark?, rule.action) else {
                return None;
            };
            let packets = RulePackets::Marked { value, mask };
            Some(RuleConfig {
                table,
                priority,
                packets,
            })
        };
        Ok(self
            .rules(family)
            .await?
            .iter()
            .filter_map(config)
            .collect())
    }
}

/// Returns the rule as far as this module makes such rules.
fn rule_of(message: &RuleMessage) -> Option<Rule> {
    let header = &message.header;
    let (mut table, mut goto) = (u32::from(header.table), None);
    let (mut value, mut mask, mut own) = (None, None, false);
    // The kernel does not say the priority 0.
    let (mut priority, mut from, mut to) = (0, None, None);
    for attribute in &message.attributes {
        match attribute {
            RuleAttribute::Table(number) => table = *number,
            RuleAttribute::FwMark(number) => value = Some(*number),
            RuleAttribute::FwMask(number) => mask = Some(*number),
            RuleAttribute::Priority(number) => priority = *number,
            RuleAttribute::Goto(number) => goto = Some(*number),
            RuleAttribute::Source(address) => from = Prefix::new(*address, header.src_len),
            RuleAttribute::Destination(address) => to = Prefix::new(*address, header.dst_len),
            RuleAttribute::Iifname(name) => own = name == LOOPBACK,
            _ => {}
        }
    }
    let action = match header.action {
        RuleAction::ToTable => RuleTarget::Lookup(table),
        RuleAction::Goto => RuleTarget::Goto(goto?),
        RuleAction::Nop => RuleTarget::Nothing,
        _ => return None,
    };
    Some(Rule {
        priority,
        mark: value.zip(mask),
        from,
        to,
        own,
        action,
    })
}

fn rule_message(family: Family, rule: &Rule) -> RuleMessage {
    let mut message = RuleMessage::default();
    message.header.family = match family {
        Family::V4 => AddressFamily::Inet,
        Family::V6 => AddressFamily::Inet6,
    };
    let mut attributes = vec![RuleAttribute::Priority(rule.priority)];
    message.header.action = match rule.action {
        RuleTarget::Lookup(table) => {
            attributes.push(RuleAttribute::Table(table));
            RuleAction::ToTable
        }
        RuleTarget::Goto(priority) => {
            attributes.push(RuleAttribute::Goto(priority));
            RuleAction::Goto
        }
        RuleTarget::Nothing => RuleAction::Nop,
    };
    if let Some((value, mask)) = rule.mark {
        attributes.extend([RuleAttribute::FwMark(value), RuleAttribute::FwMask(mask)]);
    }
    if let Some(from) = rule.from {
        message.header.src_len = from.length();
        attributes.push(RuleAttribute::Source(from.address()));
    }
    if let Some(to) = rule.to {
        message.header.dst_len = to.length();
        attributes.push(RuleAttribute::Destination(to.address()));
    }
    if rule.own {
        attributes.push(RuleAttribute::Iifname(LOOPBACK.to_owned()));
    }
    message.attributes = attributes;
    message
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use super::*;

    fn prefix(text: &str) -> Prefix {
        let (address, length) = text.split_once('/').unwrap();
        Prefix::new(address.parse().unwrap(), length.parse().unwrap()).unwrap()
    }

    fn pairs(ends: &LocalEnds) -> Vec<String> {
        let name = |prefix: Prefix| format!("{}/{}", prefix.address(), prefix.length());
        let one = |(from, to): (Prefix, Option<Prefix>)| match to {
            Some(to) => format!("{} to {}", name(from), name(to)),
            None => name(from),
        };
        ends.pairs_of(Family::V4).into_iter().map(one).collect()
    }

    #[test]
    fn a_rule_is_no_wider_than_the_policies() {
        let mut ends = LocalEnds::default();
        let (lan, guests) = (prefix("10.1.0.0/16"), prefix("10.11.0.0/16"));
        let (all, site) = (prefix("0.0.0.0/0"), prefix("10.2.0.0/16"));
        ends.count(true, &[lan], &[all]);
        assert_eq!(pairs(&ends), ["10.1.0.0/16"]);
        ends.count(true, &[guests], &[site, prefix("fd02::/16")]);
        let both = ["10.1.0.0/16 to 0.0.0.0/0", "10.11.0.0/16 to 10.2.0.0/16"];
        assert_eq!(pairs(&ends), both);
        // Another policy with the same pair goes.
        ends.count(true, &[guests], &[site]);
        ends.count(false, &[guests], &[site]);
        assert_eq!(pairs(&ends), both);
        ends.count(false, &[lan], &[all]);
        assert_eq!(pairs(&ends), ["10.11.0.0/16"]);
        ends.count(false, &[guests], &[site, prefix("fd02::/16")]);
        assert!(pairs(&ends).is_empty() && ends.v4.remotes.is_empty());
    }

    #[test]
    fn many_local_ends_share_few_rules() {
        let mut ends = LocalEnds::default();
        for n in 0..=u8::MAX {
            let from = Prefix::new(IpAddr::from([10, n % 3, n, 0]), 24).unwrap();
            ends.count(true, &[from], &[prefix(&format!("10.100.{n}.0/24"))]);
        }
        assert_eq!(pairs(&ends), ["10.0.0.0/16", "10.1.0.0/16", "10.2.0.0/16"]);
        for n in 16..=u8::MAX {
            let from = Prefix::new(IpAddr::from([10, n % 3, n, 0]), 24).unwrap();
            ends.count(false, &[from], &[prefix(&format!("10.100.{n}.0/24"))]);
        }
        assert_eq!(pairs(&ends).len(), 16);
        assert_eq!(pairs(&ends)[0], "10.0.0.0/24 to 10.100.0.0/24");
        // Remote prefixes that have gone leave nothing, if there are more again.
        for n in 16..32 {
            let from = Prefix::new(IpAddr::from([10, 64 + n, 0, 0]), 24).unwrap();
            ends.count(true, &[from], &[prefix("10.100.99.0/24")]);
        }
        let wide = pairs(&ends);
        assert!(wide.len() <= 16, "{wide:?}");
        for n in 16..32 {
            let from = Prefix::new(IpAddr::from([10, 64 + n, 0, 0]), 24).unwrap();
            ends.count(false, &[from], &[prefix("10.100.99.0/24")]);
        }
        assert_eq!(pairs(&ends).len(), 16);
        assert!(ends.v4.cut.is_none());
    }
}
