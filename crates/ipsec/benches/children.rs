//! Times what negotiated policies cost the SPD: 1 to 64,000 children that come, stay and go. Each has the network of a
//! peer, in front of one wide policy that is configured.
//!
//! The benchmark prints one line of JSON per case. `coming_us` and `going_us` are the time for a child when it comes or
//! goes alone and the SPD is published for it; `longest_us` is the longest of these. `batch_us` is the time for a child
//! when 64 come at once. `lookup_ns` is a lookup while all are there. Large merges are timed apart, in
//! `merge_us` for a child, because another thread makes them.

use std::hint::black_box;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use esplanade_ipsec::selector::{AddressRange, Flow, Selector, SelectorSet};
use esplanade_ipsec::spd::{
    Action, EntryPlace, Policy, PolicyId, ReplacedLevels, Spd, SpdBook, SpdEntry,
};

const COUNTS: [u32; 6] = [1, 10, 100, 1000, 10_000, 64_000];
const BATCH: u32 = 64;
const LOOKUPS: u32 = 1 << 16;
/// The place of the configured policy, behind all others.
const LAST: EntryPlace = EntryPlace(u128::MAX);

/// The network of a child: 10.0.0.0/8 in networks of 16 addresses, in no order.
fn network(child: u32) -> u32 {
    0x0a00_0000 | (child.wrapping_mul(0x9e37_79b1) >> 12) << 4
}

fn entry(remote: AddressRange, id: u32) -> SpdEntry {
    let local = AddressRange::from_prefix(IpAddr::from([192, 0, 2, 0]), 24);
    let selector = Selector::between(local.expect("a prefix"), remote);
    let set = SelectorSet::new(vec![selector]).expect("one");
    let policy = Arc::new(Policy::new(PolicyId(id), "bench"));
    SpdEntry::new(set, Action::Protect(policy))
}

fn prefix(bits: u32, len: u8) -> AddressRange {
    AddressRange::from_prefix(IpAddr::V4(bits.into()), len).expect("a prefix")
}

/// The book, and the time that was spent on it.
struct Timed {
    book: SpdBook,
    spd: Spd,
    merging: Duration,
    longest: Duration,
    /// Another thread frees them.
    replaced: Vec<ReplacedLevels>,
}

impl Timed {
    fn new() -> Self {
        let mut book = SpdBook::default();
        book.add(LAST, entry(prefix(0x0a00_0000, 8), 0));
        Self {
            spd: book.take_snapshot().expect("an SPD"),
            book,
            merging: Duration::ZERO,
            longest: Duration::ZERO,
            replaced: Vec::new(),
        }
    }

    /// Times a change and its publication.
    fn change(&mut self, change: impl FnOnce(&mut SpdBook)) -> Duration {
        let start = Instant::now();
        change(&mut self.book);
        if let Some(spd) = self.book.take_snapshot() {
            self.spd = spd;
        }
        let time = start.elapsed();
        self.longest = self.longest.max(time);
        if let Some(merge) = self.book.take_merge() {
            let start = Instant::now();
            let level = merge.run();
            self.merging += start.elapsed();
            self.replaced.push(self.book.merged(level));
        }
        self.replaced.retain(|levels| !levels.are_unused());
        time
    }

    fn come(&mut self, children: std::ops::Range<u32>) -> Duration {
        let entries: Vec<_> = children
            .map(|n| (EntryPlace(n.into()), entry(prefix(network(n), 28), n + 1)))
            .collect();
        self.change(|book| {
            for (place, entry) in entries {
                book.add(place, entry);
            }
        })
    }
}

fn lookup_ns(spd: &Spd, count: u32) -> f64 {
    let flows: Vec<Flow> = (0..LOOKUPS)
        .map(|n| {
            let child = n.wrapping_mul(0x85eb_ca6b) % count;
            let remote = IpAddr::V4((network(child) | n & 15).into());
            Flow::new(IpAddr::from([192, 0, 2, 1]), remote, 17, Some((1, 2)))
        })
        .collect();
    let mut rounds: Vec<f64> = (0..11)
        .map(|_| {
            let start = Instant::now();
            for flow in &flows {
                black_box(spd.inbound_bypass(black_box(flow)).is_ok());
            }
            start.elapsed().as_nanos() as f64 / f64::from(LOOKUPS)
        })
        .collect();
    rounds.sort_by(f64::total_cmp);
    rounds[rounds.len() / 2]
}

fn main() {
    for count in COUNTS {
        let us = |time: Duration| time.as_secs_f64() * 1e6 / f64::from(count);
        let mut timed = Timed::new();
        let coming: Duration = (0..count).map(|n| timed.come(n..n + 1)).sum();
        let (levels, lookup) = (timed.spd.levels(), lookup_ns(&timed.spd, count));
        let going: Duration = (0..count)
            .map(|n| {
                // 7919 is a prime, so that each child goes once.
                let place = EntryPlace((u64::from(n) * 7919 % u64::from(count)).into());
                timed.change(|book| assert!(book.remove(place)))
            })
            .sum();
        let mut batches = Timed::new();
        let steps = (0..count).step_by(BATCH as usize);
        let batch: Duration = steps.map(|n| batches.come(n..(n + BATCH).min(count))).sum();
        println!(
            "{{\"children\": {count}, \"coming_us\": {:.2}, \"going_us\": {:.2}, \"batch_us\": {:.2}, \
             \"longest_us\": {:.0}, \"merge_us\": {:.2}, \"levels\": {levels}, \"lookup_ns\": {lookup:.1}, \
             \"compiled\": {}}}",
            us(coming),
            us(going),
            us(batch),
            timed.longest.as_secs_f64() * 1e6,
            us(timed.merging),
            timed.book.compiled_rules()
        );
    }
}
