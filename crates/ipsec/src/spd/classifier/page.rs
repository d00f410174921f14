//! A page of the classifier: up to 65,536 rules of one IP version and one interface.

use std::ops::ControlFlow;

use super::super::entry_set::EntrySet;
use super::ranks::DimensionValue;
use super::sets::{Bitmap, Dimension, Few, LINE, WORDS, bits};

/// The value of a protocol or a port that cannot be seen (OPAQUE): one above the highest visible value.
pub(super) const PROTOCOL_HIDDEN: u32 = 256;
pub(super) const PORT_HIDDEN: u32 = 65_536;

/// The fields of a packet as numbers.
#[derive(Clone, Copy, Debug)]
pub(super) struct Query<V> {
    pub(super) local: V,
    pub(super) remote: V,
    pub(super) protocol: u32,
    pub(super) local_port: u32,
    pub(super) remote_port: u32,
    /// The direction: 0 is outbound, 1 is inbound.
    pub(super) direction: u32,
}

/// A selector of an entry, as inclusive ranges. It fills one cache line for IPv4 and two for IPv6.
#[derive(Clone, Copy, Debug)]
#[repr(align(64))]
pub(super) struct Rule<V> {
    pub(super) local: (V, V),
    pub(super) remote: (V, V),
    pub(super) protocol: (u32, u32),
    pub(super) local_ports: (u32, u32),
    pub(super) remote_ports: (u32, u32),
    pub(super) direction: (u32, u32),
    pub(super) bypass: bool,
    pub(super) entry: u32,
    pub(super) selector: u16,
}

fn within<V: DimensionValue>(range: (V, V), value: V) -> bool {
    (range.0 <= value) & (value <= range.1)
}

impl<V: DimensionValue> Rule<V> {
    fn matches(&self, q: &Query<V>) -> bool {
        // There are no branches between the comparisons: all of them cost less than one wrong prediction.
        within(self.local, q.local)
            & within(self.remote, q.remote)
            & within(self.protocol, q.protocol)
            & within(self.local_ports, q.local_port)
            & within(self.remote_ports, q.remote_port)
            & within(self.direction, q.direction)
    }

    /// Returns true if the rule matches, and its entry is not removed.
    #[inline]
    fn decides(&self, q: &Query<V>, removed: &EntrySet) -> bool {
        self.matches(q) && !removed.has(self.entry)
    }

    /// Returns true if the rule does not depend on the ports, nor on the protocol if `q` has none.
    pub(super) fn ignores_hidden(&self, q: &Query<V>) -> bool {
        self.local_ports == (0, PORT_HIDDEN)
            && self.remote_ports == (0, PORT_HIDDEN)
            && (q.protocol != PROTOCOL_HIDDEN || self.protocol == (0, PROTOCOL_HIDDEN))
    }

    /// Returns true if the rule would match with some ports, and with some protocol if `q` has none.
    fn may_match(&self, q: &Query<V>) -> bool {
        within(self.local, q.local)
            && within(self.remote, q.remote)
            && (q.protocol == PROTOCOL_HIDDEN || within(self.protocol, q.protocol))
            && within(self.direction, q.direction)
    }
}

#[derive(Debug)]
pub(super) struct Page<V: DimensionValue> {
    rules: Vec<Rule<V>>,
    /// The rules whose action is not Bypass, one bit per rule.
    not_bypass: Vec<u64>,
    /// The dimensions. A dimension is none if every rule covers all of its values.
    remote: Option<Dimension<V>>,
    local: Option<Dimension<V>>,
    remote_port: Option<Dimension<u32>>,
    local_port: Option<Dimension<u32>>,
    protocol: Option<Dimension<u32>>,
    direction: Option<Dimension<u32>>,
}

/// The set of one dimension for a value.
#[inline(always)]
fn set<V: DimensionValue>(
    dimension: Option<&Dimension<V>>,
    value: V,
) -> ControlFlow<Few<'_>, Bitmap<'_>> {
    match dimension {
        Some(dimension) => dimension.find(value),
        None => ControlFlow::Continue(Bitmap::ALL),
    }
}

/// Calls `visit` with the rules that are in all sets, in their order, until it returns a result. `mask` may clear
/// bits of a word; its first argument is the first rule of the word.
#[inline]
fn search<T, const N: usize>(
    sets: &[Bitmap<'_>; N],
    rules: usize,
    mask: impl Fn(usize, u64) -> u64,
    mut visit: impl FnMut(usize) -> Option<T>,
) -> Option<T> {
    let first = sets.iter().map(|set| usize::from(set.first)).max();
    for line in first.unwrap_or(0) / LINE..rules.div_ceil(LINE) {
        if sets.iter().fold(u32::MAX, |m, set| m & set.words(line)) == 0 {
            continue;
        }
        let mut all = [u64::MAX; WORDS];
        for set in sets {
            for (all, word) in all.iter_mut().zip(set.line(line)) {
                *all &= word;
            }
        }
        if all.iter().fold(0, |any, word| any | word) == 0 {
            continue;
        }
        for (word, all) in all.into_iter().enumerate() {
            let at = line * LINE + word * 64;
            for bit in bits(mask(at, all)) {
                if let Some(result) = visit(at + bit as usize) {
                    return Some(result);
                }
            }
        }
    }
    None
}

/// The number of rules that are compared with a packet because its addresses match, before the other dimensions are
/// asked.
const CANDIDATES_MAX: u32 = 16;

impl<V: DimensionValue> Page<V> {
    /// Makes a page of at most [`super::sets::PAGE_RULES`] rules.
    pub(super) fn new(rules: Vec<Rule<V>>) -> Self {
        let mut not_bypass = vec![0u64; rules.len().div_ceil(64)];
        for (index, _) in rules.iter().enumerate().filter(|(_, rule)| !rule.bypass) {
            not_bypass[index / 64] |= 1 << (index % 64);
        }
        let small = |range: (u32, u32), top: u32| match range {
            // The range is widened to the whole range of the type, so that the dimension can be left out.
            (0, last) if last == top => (0, u32::MAX),
            range => range,
        };
        Self {
            remote: Dimension::new(rules.iter().map(|r| r.remote)),
            local: Dimension::new(rules.iter().map(|r| r.local)),
            remote_port: Dimension::new(rules.iter().map(|r| small(r.remote_ports, PORT_HIDDEN))),
            local_port: Dimension::new(rules.iter().map(|r| small(r.local_ports, PORT_HIDDEN))),
            protocol: Dimension::new(rules.iter().map(|r| small(r.protocol, PROTOCOL_HIDDEN))),
            direction: Dimension::new(rules.iter().map(|r| small(r.direction, 1))),
            not_bypass,
            rules,
        }
    }

    /// Finds the first rule that matches and whose entry is not `removed`.
    pub(super) fn find(&self, q: &Query<V>, removed: &EntrySet) -> Option<&Rule<V>> {
        match self.by_addresses(q) {
            ControlFlow::Continue(sets) => self.first_of_many(sets, q, removed),
            ControlFlow::Break(few) => self.first_of(few, |rule| rule.decides(q, removed)),
        }
    }

    fn first_of(&self, few: Few<'_>, matches: impl Fn(&Rule<V>) -> bool) -> Option<&Rule<V>> {
        let mut rules = few.iter().filter_map(|rule| self.rules.get(rule));
        rules.find(|rule| matches(rule))
    }

    /// Finds the sets of the addresses. Site-to-site policies differ most in the remote addresses, so often no other
    /// dimension is looked at.
    #[inline(always)]
    fn by_addresses(&self, q: &Query<V>) -> ControlFlow<Few<'_>, [Bitmap<'_>; 2]> {
        let remote = set(self.remote.as_ref(), q.remote)?;
        ControlFlow::Continue([remote, set(self.local.as_ref(), q.local)?])
    }

    /// This function is not inlined, so that the code for short lists stays short.
    #[inline(never)]
    fn first_of_many<'a>(
        &'a self,
        sets: [Bitmap<'a>; 2],
        q: &Query<V>,
        removed: &EntrySet,
    ) -> Option<&'a Rule<V>> {
        // No rule before `first` matches. The test of this rule pays only if it saves reading bitmaps.
        let [remote, local] = &sets;
        let first = usize::from(remote.first.max(local.first));
        if first >= LINE
            && let Some(rule) = self.rules.get(first)
            && rule.decides(q, removed)
        {
            return Some(rule);
        }
        let mut left = CANDIDATES_MAX;
        let found = search(
            &sets,
            self.rules.len(),
            |_, word| word,
            |rule| {
                let rule = self.rules.get(rule)?;
                let matches = rule.decides(q, removed);
                left -= u32::from(!matches);
                (matches || left == 0).then_some(matches.then_some(rule))
            },
        );
        match found {
            None => None,
            Some(Some(rule)) => Some(rule),
            Some(None) => self.first_of_all(sets, q, removed),
        }
    }

    /// Finds the first match with the sets of all dimensions. `sets` holds the sets of the addresses.
    #[cold]
    fn first_of_all<'a>(
        &'a self,
        sets: [Bitmap<'a>; 2],
        q: &Query<V>,
        removed: &EntrySet,
    ) -> Option<&'a Rule<V>> {
        match self.by_all(sets, q) {
            ControlFlow::Continue(sets) => search(
                &sets,
                self.rules.len(),
                |_, word| word,
                |rule| self.standing(rule, removed),
            ),
            ControlFlow::Break(few) => self.first_of(few, |rule| rule.decides(q, removed)),
        }
    }

    fn by_all<'a>(
        &'a self,
        [remote, local]: [Bitmap<'a>; 2],
        q: &Query<V>,
    ) -> ControlFlow<Few<'a>, [Bitmap<'a>; 6]> {
        ControlFlow::Continue([
            remote,
            local,
            set(self.remote_port.as_ref(), q.remote_port)?,
            set(self.local_port.as_ref(), q.local_port)?,
            set(self.protocol.as_ref(), q.protocol)?,
            set(self.direction.as_ref(), q.direction)?,
        ])
    }

    /// Returns a rule, unless its entry is removed.
    fn standing(&self, rule: usize, removed: &EntrySet) -> Option<&Rule<V>> {
        let rule = self.rules.get(rule)?;
        (!removed.has(rule.entry)).then_some(rule)
    }

    /// Finds the first rule that would match with some protocol and ports where `q` has none. Rules whose entry is
    /// `removed` are skipped, and without `bypass` those whose action is Bypass.
    pub(super) fn first_possible(
        &self,
        q: &Query<V>,
        bypass: bool,
        removed: &EntrySet,
    ) -> Option<&Rule<V>> {
        match self.by_visible(q) {
            ControlFlow::Continue(sets) => {
                let mask = |at: usize, word: u64| match bypass {
                    true => word,
                    false => word & self.not_bypass.get(at / 64).copied().unwrap_or(0),
                };
                search(&sets, self.rules.len(), mask, |rule| {
                    self.standing(rule, removed)
                })
            }
            ControlFlow::Break(few) => self.first_of(few, |rule| {
                (bypass || !rule.bypass) && rule.may_match(q) && !removed.has(rule.entry)
            }),
        }
    }

    fn by_visible(&self, q: &Query<V>) -> ControlFlow<Few<'_>, [Bitmap<'_>; 4]> {
        ControlFlow::Continue([
            set(self.remote.as_ref(), q.remote)?,
            set(self.local.as_ref(), q.local)?,
            match q.protocol {
                PROTOCOL_HIDDEN => Bitmap::ALL,
                protocol => set(self.protocol.as_ref(), protocol)?,
            },
            set(self.direction.as_ref(), q.direction)?,
        ])
    }

    /// The number of bytes on the heap.
    pub(super) fn memory(&self) -> usize {
        let addresses = [&self.remote, &self.local];
        let others = [
            &self.remote_port,
            &self.local_port,
            &self.protocol,
            &self.direction,
        ];
        let addresses = addresses.into_iter().flatten().map(Dimension::memory);
        let others = others.into_iter().flatten().map(Dimension::memory);
        addresses.chain(others).sum::<usize>()
            + self.rules.len() * size_of::<Rule<V>>()
            + self.not_bypass.len() * 8
    }
}
