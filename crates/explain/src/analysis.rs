//! The analysis of an SPD for its administrator: entries that no packet reaches, and entries whose order matters.
//!
//! Every selector is a box of six dimensions. Subtracting the boxes of all earlier entries from those of an entry
//! leaves the packets that reach the entry. They are its part of the decorrelated SPD (RFC 4301 appendix B). The
//! number of boxes can explode with hostile rules. So the work is bounded, and the result says whether it is
//! complete.

use std::sync::Arc;

use esplanade_ipsec::selector::{AddressRange, NextLayer, PortRange, Selector};
use esplanade_ipsec::spd::{Action, PolicyDirection, SpdEntry};
use esplanade_ipsec::wire::ip;
use esplanade_prefix::to_bits;

/// A finding about one entry. Numbers of entries are places in the list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    pub entry: usize,
    pub kind: FindingKind,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FindingKind {
    /// The selectors of the entry contradict themselves: the entry matches no packet.
    Empty,
    /// One earlier entry matches all packets of this entry.
    Shadowed { by: usize },
    /// Earlier entries together match all packets of this entry.
    Unreachable { by: Vec<usize> },
    /// An earlier entry with another action matches some packets of this entry, and packets that this entry does not
    /// match. So neither entry is an exception from the other.
    Overlaps { with: usize },
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Analysis {
    pub findings: Vec<Finding>,
    /// The entries that were too complex to decide. There are no findings about them.
    pub undecided: Vec<usize>,
}

/// The most comparisons of boxes for all entries: about one second of work.
const WORK_MAX: usize = 100_000_000;
/// The most comparisons of boxes that [`earlier_overlaps`] makes.
const OVERLAPS_WORK_MAX: usize = 20_000_000;
/// The most boxes that may be left of one entry.
const PIECES_MAX: usize = 4096;
/// The most overlaps that are named for one entry.
const OVERLAPS_MAX: usize = 3;

const DIMENSIONS: usize = 6;
const PROTOCOL_HIDDEN: u128 = 256;
const PORT_HIDDEN: u128 = 65_536;
/// The indices of the dimensions in [`Region::ranges`].
const REMOTE: usize = 0;
const LOCAL: usize = 1;
const PROTOCOL: usize = 2;
const REMOTE_PORT: usize = 3;
const LOCAL_PORT: usize = 4;
/// The protocols whose ports, or type and code, can be seen.
const WITH_PORTS: [u8; 7] = [
    ip::PROTOCOL_ICMP,
    ip::PROTOCOL_TCP,
    ip::PROTOCOL_UDP,
    ip::PROTOCOL_DCCP,
    ip::PROTOCOL_ICMPV6,
    ip::PROTOCOL_SCTP,
    ip::PROTOCOL_UDP_LITE,
];

/// The packets of one IP version and one interface: a box of inclusive ranges. Type and code of ICMP, which stand in
/// both ports, are kept in the local port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Region {
    v6: bool,
    interface: u32,
    ranges: [(u128, u128); DIMENSIONS],
}

impl Region {
    /// Makes the region of a selector. Returns `None` if no packet matches.
    fn new(entry: &SpdEntry, selector: &Selector) -> Option<Self> {
        let v6 = selector.local.first().is_ipv6();
        if v6 != selector.remote.first().is_ipv6() {
            return None;
        }
        let ends = |range: &AddressRange| (to_bits(range.first()), to_bits(range.last()));
        let (local, remote) = (ends(&selector.local), ends(&selector.remote));
        let ports = |range| match range {
            PortRange::Any => Some((0, PORT_HIDDEN)),
            PortRange::Opaque => Some((PORT_HIDDEN, PORT_HIDDEN)),
            PortRange::Range(first, last) => (first <= last).then_some((first.into(), last.into())),
        };
        let protocol = match selector.protocol {
            NextLayer::Any => (0, PROTOCOL_HIDDEN),
            NextLayer::Opaque => (PROTOCOL_HIDDEN, PROTOCOL_HIDDEN),
            NextLayer::Is(number) => (number.into(), number.into()),
        };
        let direction = match entry.direction {
            PolicyDirection::Both => (0, 1),
            PolicyDirection::Outbound => (0, 0),
            PolicyDirection::Inbound => (1, 1),
        };
        let (mut local_ports, mut remote_ports) =
            (ports(selector.local_ports)?, ports(selector.remote_ports)?);
        if let NextLayer::Is(ip::PROTOCOL_ICMP | ip::PROTOCOL_ICMPV6) = selector.protocol {
            let (first, last) = remote_ports;
            local_ports = (local_ports.0.max(first), local_ports.1.min(last));
            remote_ports = (0, PORT_HIDDEN);
        }
        if local_ports.0 > local_ports.1 {
            return None;
        }
        let region = Self {
            v6,
            interface: entry.interface,
            ranges: [
                remote,
                local,
                protocol,
                remote_ports,
                local_ports,
                direction,
            ],
        };
        region.is_real().then_some(region)
    }

    /// Returns true if such a packet can exist. Either both ports can be seen and the protocol has ports, or both are
    /// hidden.
    fn is_real(&self) -> bool {
        let [protocol, remote, local] =
            [PROTOCOL, REMOTE_PORT, LOCAL_PORT].map(|dimension| self.ranges[dimension]);
        let hidden = remote.1 == PORT_HIDDEN && local.1 == PORT_HIDDEN;
        let has_ports = |number: &u8| (protocol.0..=protocol.1).contains(&u128::from(*number));
        hidden
            || remote.0 < PORT_HIDDEN && local.0 < PORT_HIDDEN && WITH_PORTS.iter().any(has_ports)
    }

    fn meets(&self, other: &Self) -> bool {
        let mut pairs = self.ranges.iter().zip(&other.ranges);
        self.v6 == other.v6
            && self.interface == other.interface
            && pairs.all(|(a, b)| a.0 <= b.1 && b.0 <= a.1)
            && self.common(other).is_real()
    }

    /// The intersection of two regions whose ranges overlap.
    fn common(&self, other: &Self) -> Self {
        let ranges = std::array::from_fn(|dimension| {
            let (a, b) = (self.ranges[dimension], other.ranges[dimension]);
            (a.0.max(b.0), a.1.min(b.1))
        });
        Self { ranges, ..*self }
    }

    fn contains(&self, other: &Self) -> bool {
        let mut pairs = self.ranges.iter().zip(&other.ranges);
        self.v6 == other.v6
            && self.interface == other.interface
            && pairs.all(|(a, b)| a.0 <= b.0 && b.1 <= a.1)
    }

    /// Subtracts `other`, which must meet this region. Adds the remainder to `left`: at most two boxes per dimension,
    /// which do not meet each other.
    fn without(mut self, other: &Self, left: &mut Vec<Self>) {
        for (dimension, (first, last)) in other.ranges.iter().enumerate() {
            let (own_first, own_last) = self.ranges[dimension];
            let mut keep = |range: (u128, u128)| {
                let mut piece = self;
                piece.ranges[dimension] = range;
                if piece.is_real() {
                    left.push(piece);
                }
            };
            if own_first < *first {
                keep((own_first, first - 1));
            }
            if *last < own_last {
                keep((last + 1, own_last));
            }
            self.ranges[dimension] = (own_first.max(*first), own_last.min(*last));
        }
    }
}

/// The error of an entry that takes too much work.
struct TooComplex;

/// All regions, sorted by the start of their range in one dimension: an interval tree without nodes.
struct Intervals {
    /// The regions, each with the number of its entry.
    regions: Vec<(usize, Region)>,
    dimension: usize,
    /// The ends of all ranges, sorted.
    lasts: Vec<u128>,
    /// A tree over `regions`: the greatest end in each half, quarter and so on. The root has index 1.
    greatest: Vec<u128>,
    /// The number of leaves of that tree: a power of two.
    leaves: usize,
}

impl Intervals {
    fn new(regions: &[Vec<Region>], dimension: usize) -> Self {
        let mut list: Vec<(usize, Region)> = (regions.iter().enumerate())
            .flat_map(|(entry, of)| of.iter().map(move |region| (entry, *region)))
            .collect();
        list.sort_by_key(|(_, region)| region.ranges[dimension].0);
        let ends = list.iter().map(|(_, region)| region.ranges[dimension].1);
        let mut lasts: Vec<u128> = ends.clone().collect();
        lasts.sort_unstable();
        let leaves = list.len().next_power_of_two();
        let mut greatest = vec![0; 2 * leaves];
        greatest
            .iter_mut()
            .skip(leaves)
            .zip(ends)
            .for_each(|(leaf, end)| *leaf = end);
        for node in (1..leaves).rev() {
            greatest[node] = greatest[2 * node].max(greatest[2 * node + 1]);
        }
        Self {
            regions: list,
            dimension,
            lasts,
            greatest,
            leaves,
        }
    }

    /// The number of regions that begin at or before `last`. They come first.
    fn begun(&self, last: u128) -> usize {
        let begins = |(_, region): &(usize, Region)| region.ranges[self.dimension].0 <= last;
        self.regions.partition_point(begins)
    }

    /// The number of regions that overlap with this range.
    fn count(&self, (first, last): (u128, u128)) -> usize {
        let ended = self.lasts.partition_point(|end| *end < first);
        self.begun(last) - ended
    }

    /// Visits the regions that [`Intervals::count`] counts.
    fn overlapping(&self, (first, last): (u128, u128), visit: &mut impl FnMut(usize, &Region)) {
        let begun = self.begun(last);
        // The nodes to visit, each with its first leaf and the number of its leaves.
        let mut open = vec![(1, 0, self.leaves)];
        while let Some((node, from, len)) = open.pop() {
            if from >= begun || self.greatest[node] < first {
                continue;
            }
            if len == 1 {
                let (entry, region) = &self.regions[from];
                visit(*entry, region);
            } else {
                let half = len / 2;
                open.push((2 * node, from, half));
                open.push((2 * node + 1, from + half, half));
            }
        }
    }
}

struct Analyser {
    /// The regions of every entry.
    regions: Vec<Vec<Region>>,
    /// The same regions, sorted by the addresses of either end.
    ends: [Intervals; 2],
    work: usize,
}

impl Analyser {
    fn spend(&mut self, work: usize) -> Result<(), TooComplex> {
        self.work = self.work.checked_sub(work).ok_or(TooComplex)?;
        Ok(())
    }

    /// Returns true if every box of entry `inner` lies in a single box of entry `outer`.
    fn covers(&self, outer: usize, inner: usize) -> bool {
        let (outer, inner) = (&self.regions[outer], &self.regions[inner]);
        inner.iter().all(|a| outer.iter().any(|b| b.contains(a)))
    }

    /// The earlier entries that meet this entry, in their order.
    fn meeting(&mut self, entry: usize) -> Result<Vec<usize>, TooComplex> {
        let mut found = Vec::new();
        for at in 0..self.regions[entry].len() {
            let own = self.regions[entry][at];
            // The search goes by that end whose addresses leave fewer regions to look at.
            let [remote, local] = [REMOTE, LOCAL].map(|end| self.ends[end].count(own.ranges[end]));
            let end = if remote <= local { REMOTE } else { LOCAL };
            self.spend(remote.min(local))?;
            self.ends[end].overlapping(own.ranges[end], &mut |other, region| {
                if other < entry && region.meets(&own) {
                    found.push(other);
                }
            });
        }
        found.sort_unstable();
        found.dedup();
        Ok(found)
    }

    /// Returns the earlier entries that match packets of this entry if they leave no packet for it. Returns `None` if
    /// packets are left.
    fn taken_by(
        &mut self,
        entry: usize,
        earlier: &[usize],
    ) -> Result<Option<Vec<usize>>, TooComplex> {
        let mut pieces = self.regions[entry].clone();
        let mut by = Vec::new();
        for &other in earlier {
            let regions = self.regions[other].clone();
            for region in &regions {
                self.spend(pieces.len())?;
                let (met, mut left): (Vec<Region>, Vec<Region>) =
                    pieces.iter().partition(|piece| piece.meets(region));
                if !met.is_empty() && by.last() != Some(&other) {
                    by.push(other);
                }
                met.into_iter()
                    .for_each(|piece| piece.without(region, &mut left));
                if left.len() > PIECES_MAX {
                    return Err(TooComplex);
                }
                pieces = left;
            }
            if pieces.is_empty() {
                return Ok(Some(by));
            }
        }
        Ok(None)
    }

    fn examine(
        &mut self,
        entries: &[SpdEntry],
        entry: usize,
    ) -> Result<Vec<FindingKind>, TooComplex> {
        if self.regions[entry].is_empty() {
            return Ok(vec![FindingKind::Empty]);
        }
        let earlier = self.meeting(entry)?;
        if let Some(&by) = earlier.iter().find(|other| self.covers(**other, entry)) {
            return Ok(vec![FindingKind::Shadowed { by }]);
        }
        if let Some(by) = self.taken_by(entry, &earlier)? {
            return Ok(vec![match by.as_slice() {
                [by] => FindingKind::Shadowed { by: *by },
                _ => FindingKind::Unreachable { by },
            }]);
        }
        let crossing = earlier.into_iter().filter(|other| {
            !same_action(&entries[*other].action, &entries[entry].action)
                && !self.covers(entry, *other)
        });
        let overlaps = crossing.map(|with| FindingKind::Overlaps { with });
        Ok(overlaps.take(OVERLAPS_MAX).collect())
    }
}

/// Returns true if a packet fares the same with either action.
fn same_action(a: &Action, b: &Action) -> bool {
    match (a, b) {
        (Action::Protect(a), Action::Protect(b)) => Arc::ptr_eq(a, b),
        (Action::Bypass, Action::Bypass) | (Action::Discard, Action::Discard) => true,
        _ => false,
    }
}

fn regions_of(entry: &SpdEntry) -> Vec<Region> {
    let selectors = entry.selectors.as_slice().iter();
    selectors.filter_map(|s| Region::new(entry, s)).collect()
}

/// The way in which an entry overlaps a later one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EntryOverlaps {
    /// Its place in the list.
    pub entry: usize,
    /// It matches all packets of the later one.
    pub covers: bool,
    /// The later one matches all packets of it.
    pub is_covered: bool,
}

/// Returns for each entry the earlier ones that match some of its packets. Entries that `counts` refuses are left out.
/// Returns `None` if that takes too much work.
pub fn earlier_overlaps(
    entries: &[SpdEntry],
    counts: impl Fn(usize) -> bool,
) -> Option<Vec<Vec<EntryOverlaps>>> {
    let regions: Vec<Vec<Region>> = entries.iter().map(regions_of).collect();
    let counted = |(index, regions): (usize, &Vec<Region>)| match counts(index) {
        true => regions.clone(),
        false => Vec::new(),
    };
    let counted: Vec<Vec<Region>> = regions.iter().enumerate().map(counted).collect();
    let mut analyser = Analyser {
        ends: [REMOTE, LOCAL].map(|end| Intervals::new(&counted, end)),
        regions,
        work: OVERLAPS_WORK_MAX,
    };
    let overlaps = (0..entries.len()).map(|entry| {
        let earlier = analyser.meeting(entry).ok()?;
        let own = analyser.regions[entry].len();
        let mut found = Vec::with_capacity(earlier.len());
        for other in earlier {
            analyser
                .spend(2 * own * analyser.regions[other].len())
                .ok()?;
            found.push(EntryOverlaps {
                entry: other,
                covers: analyser.covers(other, entry),
                is_covered: analyser.covers(entry, other),
            });
        }
        Some(found)
    });
    overlaps.collect()
}

/// Examines the entries in the order of the SPD.
pub fn analyse(entries: &[SpdEntry]) -> Analysis {
    let regions: Vec<Vec<Region>> = entries.iter().map(regions_of).collect();
    let mut analyser = Analyser {
        ends: [REMOTE, LOCAL].map(|end| Intervals::new(&regions, end)),
        regions,
        work: WORK_MAX,
    };
    let mut analysis = Analysis::default();
    for entry in 0..entries.len() {
        match analyser.examine(entries, entry) {
            Ok(kinds) => {
                let findings = kinds.into_iter().map(|kind| Finding { entry, kind });
                analysis.findings.extend(findings);
            }
            Err(TooComplex) => analysis.undecided.push(entry),
        }
    }
    analysis
}
