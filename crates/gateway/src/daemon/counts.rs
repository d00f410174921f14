//! Sums the counters of the workers, and names all counters of the gateway.

use esplanade_counters::{Counter, Family};
use esplanade_ike::status::{IkeCounters, Refusal};
use esplanade_ipsec::{DropReason, WalkCounters};

use crate::status::{NamedCounters, OutputCounters, TrafficCounters};
use crate::worker::IoCounters;

/// All counters of the answer to `get-counters`, by section. `docs/counters.md` is made of them.
pub const FAMILIES: [Family; 7] = [
    Family {
        sections: &["outbound", "inbound"],
        label: None,
        help: "The packet path, from the protected side and from peers: sums over all workers.",
        counters: WalkCounters::COUNTERS,
    },
    Family {
        sections: &["drops"],
        label: Some("reason"),
        help: "Packets that were dropped, in both directions.",
        counters: DropReason::COUNTERS,
    },
    Family {
        sections: &["io"],
        label: None,
        help: "What the workers read and write.",
        counters: IoCounters::COUNTERS,
    },
    Family {
        sections: &["ike"],
        label: None,
        help: "What IKE has done.",
        counters: IkeCounters::COUNTERS,
    },
    Family {
        sections: &["ike.refused"],
        label: Some("reason"),
        help: "IKE messages that were refused, wholly or in part.",
        counters: Refusal::COUNTERS,
    },
    Family {
        sections: &["core.outbound", "core.inbound"],
        label: None,
        help: "The lanes of an FPGA core. They also have drops by reason, under the names of `drops`.",
        counters: esplanade_fpga::core::COUNTERS,
    },
    Family {
        sections: &["log", "key-export"],
        label: None,
        help: "Lines on their way out. `key-export` is there with `--export-keys`.",
        counters: OutputCounters::COUNTERS,
    },
];

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
    let (walk, io) = (WalkCounters::default(), IoCounters::default());
    add_worker(
        &mut sums,
        WorkerCounts {
            outbound: &walk,
            inbound: &walk,
            io: &io,
        },
    );
    workers.for_each(|worker| add_worker(&mut sums, worker));
    sums
}

fn add_worker(sums: &mut TrafficCounters, worker: WorkerCounts<'_>) {
    add(&mut sums.io, named(IoCounters::COUNTERS, worker.io.iter()));
    for (sum, walk) in [
        (&mut sums.outbound, worker.outbound),
        (&mut sums.inbound, worker.inbound),
    ] {
        add(sum, named(WalkCounters::COUNTERS, walk.iter()));
        let drops = walk.drops.iter().map(|(_, count)| count);
        add(&mut sums.drops, named(DropReason::COUNTERS, drops));
    }
}

/// Gives counts the names of their counters, which are in the same order.
pub(super) fn named(counters: &[Counter], counts: impl Iterator<Item = u64>) -> NamedCounters {
    counters.iter().map(Counter::name).zip(counts).collect()
}

fn add(sums: &mut NamedCounters, counts: NamedCounters) {
    for (name, count) in counts {
        *sums.entry(name).or_default() += count;
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::sync::atomic::Ordering;

    use serde_json::Value;

    use super::*;
    use crate::daemon::answers::report;
    use crate::output::OutputReport;
    use crate::status::GatewayCounters;
    use crate::worker::core_counters;

    /// Returns the section and name of every counter in the answer to `get-counters`.
    fn shown() -> BTreeSet<(String, String)> {
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
        collect("", &serde_json::to_value(counters).unwrap(), &mut names);
        names
    }

    fn collect(section: &str, value: &Value, names: &mut BTreeSet<(String, String)>) {
        for (key, value) in value.as_object().into_iter().flatten() {
            match value {
                Value::Object(_) => {
                    let inner = format!("{section}.{key}");
                    collect(inner.trim_start_matches('.'), value, names);
                }
                _ => drop(names.insert((section.to_owned(), key.clone()))),
            }
        }
    }

    /// Returns the section and name of every declared counter.
    fn declared() -> BTreeSet<(String, String)> {
        let mut names = BTreeSet::new();
        for family in FAMILIES {
            for (section, counter) in family.sections.iter().flat_map(|section| {
                family
                    .counters
                    .iter()
                    .map(move |counter| (section, counter))
            }) {
                let new = names.insert(((*section).to_owned(), counter.name()));
                assert!(new, "{section} has {} twice", counter.name());
            }
        }
        names
    }

    #[test]
    fn every_counter_is_declared_and_every_declared_one_is_shown() {
        let (shown, declared) = (shown(), declared());
        let hidden: Vec<_> = declared.difference(&shown).collect();
        // Both lanes of a core have the same table.
        assert_eq!(
            hidden,
            [&("core.outbound".to_owned(), "malformed-outer".to_owned())]
        );
        let reasons: Vec<_> = DropReason::ALL.iter().map(|reason| reason.name()).collect();
        for (section, name) in shown.difference(&declared) {
            let in_software = reasons.contains(&name.as_str());
            assert!(
                section.starts_with("core.") && in_software,
                "{section}: {name}"
            );
        }
    }

    /// Returns `docs/counters.md` as it is to be.
    fn page() -> String {
        let mut page = "# Counters\n\n\
            `esplanade status --json` has every counter under `counters`, even those that are zero; the text\n\
            leaves zeros out. Counters only rise, and start at zero with the gateway. Vici clients ask with\n\
            `get-counters`. [What happens when something goes wrong](outcomes.md) says which input counts as\n\
            what. The sources declare each counter once; a test writes this page from there.\n"
            .to_owned();
        for family in FAMILIES {
            let sections: Vec<_> = family
                .sections
                .iter()
                .map(|name| format!("`{name}`"))
                .collect();
            page += &format!("\n## {}\n\n{}\n\n", sections.join(", "), family.help);
            page += &format!(
                "| {} | unit | meaning |\n|---|---|---|\n",
                family.label.unwrap_or("counter")
            );
            for counter in family.counters {
                let (name, unit, help) = (counter.name(), counter.unit.name(), counter.help());
                assert!(help.ends_with('.'), "{name}: {help}");
                page += &format!("| `{name}` | {unit} | {help} |\n");
            }
        }
        page
    }

    /// `ESPLANADE_WRITE=1 cargo test --lib the_page_of_counters` writes the page.
    #[test]
    fn the_page_of_counters_is_that_of_the_declarations() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/counters.md");
        if std::env::var_os("ESPLANADE_WRITE").is_some() {
            std::fs::write(path, page()).unwrap();
        }
        let written = std::fs::read_to_string(path).unwrap_or_default();
        assert!(
            written == page(),
            "docs/counters.md: ESPLANADE_WRITE=1 writes it"
        );
    }

    #[test]
    fn the_outcomes_name_counters_that_exist() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/outcomes.md");
        let page = std::fs::read_to_string(path).unwrap();
        let known: BTreeSet<_> = declared().into_iter().map(|(_, name)| name).collect();
        let mut column = None;
        let mut named = 0;
        for line in page.lines() {
            let mut cells = line.split('|').map(str::trim);
            if !line.starts_with('|') {
                column = None;
            } else if let Some(at) = column {
                let cell = cells.nth(at).unwrap_or_default();
                for name in cell.split('`').skip(1).step_by(2) {
                    assert!(known.contains(name), "nothing is counted as {name}");
                    named += 1;
                }
            } else {
                column = cells.position(|cell| cell == "counted as");
                column = column.or(Some(usize::MAX));
            }
        }
        assert!(named > 40, "{named}");
    }

    #[test]
    fn counters_have_one_spelling() {
        for (_, name) in shown() {
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
        assert_eq!(sums.outbound["packets-out"], 6);
        assert_eq!((sums.drops["no-sa"], sums.drops["replayed"]), (6, 0));
        assert_eq!(sums.io["tun-reads"], 8);
    }
}
