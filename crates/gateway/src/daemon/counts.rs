//! Sums the counters of the workers.

use std::sync::atomic::Ordering;

use esplanade_ipsec::{DropReason, WalkCounters};

use crate::status::{NamedCounters, TrafficCounters, WalkTotals};
use crate::worker::IoCounters;

/// The counters of one worker.
#[derive(Clone, Copy, Debug)]
pub(super) struct WorkerCounts<'a> {
    pub outbound: &'a WalkCounters,
    pub inbound: &'a WalkCounters,
    pub io: &'a IoCounters,
}

/// Sums the counters of the workers, without an FPGA core. Every counter is there, also without a worker.
pub(super) fn traffic_counters<'a>(
    workers: impl Iterator<Item = WorkerCounts<'a>>,
) -> TrafficCounters {
    let mut sums = TrafficCounters::default();
    let none = IoCounters::default();
    let reasons = DropReason::ALL.iter().map(|reason| (reason.name(), 0));
    count(&mut sums.drops, reasons);
    count(&mut sums.io, none.iter());
    for worker in workers {
        add_walk(&mut sums.outbound, worker.outbound);
        add_walk(&mut sums.inbound, worker.inbound);
        for walk in [worker.outbound, worker.inbound] {
            let drops = walk.drops.iter();
            count(&mut sums.drops, drops.map(|(reason, n)| (reason.name(), n)));
        }
        count(&mut sums.io, worker.io.iter());
    }
    sums
}

fn count(sums: &mut NamedCounters, counts: impl Iterator<Item = (impl Into<String>, u64)>) {
    for (name, count) in counts {
        *sums.entry(name.into()).or_default() += count;
    }
}

fn add_walk(sums: &mut WalkTotals, walk: &WalkCounters) {
    for (sum, counter) in [
        (&mut sums.packets_in, &walk.packets_in),
        (&mut sums.bytes_in, &walk.bytes_in),
        (&mut sums.packets_out, &walk.packets_out),
        (&mut sums.bytes_out, &walk.bytes_out),
        (&mut sums.packets_bypassed, &walk.packets_bypassed),
        (&mut sums.dummies, &walk.dummies),
    ] {
        *sum += counter.load(Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use esplanade_ike::status::IkeCounters;
    use serde_json::Value;

    use super::*;
    use crate::daemon::report;
    use crate::output::OutputReport;
    use crate::status::GatewayCounters;
    use crate::worker::core_counters::core_counters;

    /// Returns the name of every counter in the answer to `get-counters`.
    fn counters() -> BTreeSet<String> {
        let counters = GatewayCounters {
            ike: report::ike_counters(&IkeCounters::default()),
            traffic: TrafficCounters {
                core: Some(core_counters(&Default::default())),
                ..traffic_counters(std::iter::empty())
            },
            log: report::output(OutputReport::default()),
            key_export: Some(report::output(OutputReport::default())),
        };
        let mut names = BTreeSet::new();
        collect(&serde_json::to_value(counters).unwrap(), &mut names);
        names
    }

    fn collect(value: &Value, names: &mut BTreeSet<String>) {
        for (key, value) in value.as_object().into_iter().flatten() {
            match value {
                Value::Object(_) => collect(value, names),
                _ => drop(names.insert(key.clone())),
            }
        }
    }

    #[test]
    fn every_declared_counter_is_shown() {
        let shown = counters();
        for (name, meaning) in IkeCounters::TABLE.iter().chain(IoCounters::TABLE) {
            assert!(shown.contains(&name.replace('_', "-")), "{name}");
            assert!(meaning.trim().ends_with('.'), "{name}: {meaning}");
        }
    }

    /// Returns the names in the columns for counters in the tables of `docs/outcomes.md`.
    fn documented() -> BTreeSet<String> {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/outcomes.md");
        let page = std::fs::read_to_string(path).unwrap();
        let mut names = BTreeSet::new();
        let mut column = None;
        for line in page.lines() {
            let mut cells = line.split('|').map(str::trim);
            if !line.starts_with('|') {
                column = None;
            } else if let Some(at) = column {
                let cell = cells.nth(at).unwrap_or_default();
                names.extend(cell.split('`').skip(1).step_by(2).map(str::to_owned));
            } else {
                column = cells.position(|cell| ["counted as", "counter"].contains(&cell));
                column = column.or(Some(usize::MAX));
            }
        }
        names
    }

    #[test]
    fn every_counter_is_documented_and_every_documented_one_exists() {
        let (counters, documented) = (counters(), documented());
        assert!(counters.len() > 80, "{counters:?}");
        let missing: Vec<_> = counters.difference(&documented).collect();
        assert!(missing.is_empty(), "docs/outcomes.md lacks {missing:?}");
        let unknown: Vec<_> = documented.difference(&counters).collect();
        assert!(unknown.is_empty(), "nothing is counted as {unknown:?}");
    }

    #[test]
    fn counters_have_one_spelling() {
        for name in counters() {
            let fits = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
            assert!(name.chars().all(fits), "{name}");
        }
    }

    #[test]
    fn counters_are_sums_over_workers() {
        let (outbound, inbound) = (WalkCounters::default(), WalkCounters::default());
        outbound.packets_out.store(3, Ordering::Relaxed);
        outbound.drops.add(DropReason::NoSa, 1);
        inbound.drops.add(DropReason::NoSa, 2);
        let io = IoCounters::default();
        io.tun_reads.store(4, Ordering::Relaxed);
        let worker = WorkerCounts {
            outbound: &outbound,
            inbound: &inbound,
            io: &io,
        };
        let sums = traffic_counters([worker, worker].into_iter());
        assert_eq!(sums.outbound.packets_out, 6);
        assert_eq!((sums.drops["no-sa"], sums.drops["replayed"]), (6, 0));
        assert_eq!(sums.io["tun-reads"], 8);
    }
}
