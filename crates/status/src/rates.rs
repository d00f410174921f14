//! The rates of children, from two answers of the gateway with some time between them. The gateway itself only counts.

use std::collections::{BTreeMap, HashMap};
use std::fmt::Write;
use std::time::Duration;

use esplanade_vici::Section;
use serde::Serialize;

use super::printable::printable;
use super::text::scaled;

/// The bits and packets that a child carries in a second. The bits are those of the packets inside of the tunnel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct Rates {
    pub bits_per_second_in: u64,
    pub packets_per_second_in: u64,
    pub bits_per_second_out: u64,
    pub packets_per_second_out: u64,
}

/// The counts of `bytes-in`, `packets-in`, `bytes-out` and `packets-out`.
type Counts = [u64; 4];

/// The counts of all children and child SAs at one time.
#[derive(Debug, Default)]
pub struct Sample {
    children: HashMap<(String, String), Counts>,
    /// By the numbers of the child SAs.
    sas: HashMap<String, Counts>,
}

/// Two samples, and the time between them.
#[derive(Debug)]
pub struct Change {
    pub before: Sample,
    pub after: Sample,
    pub window: Duration,
}

impl Sample {
    /// Takes the counts from the entries of `list-sa` and `list-conn` events.
    pub fn of<'a>(
        sas: impl Iterator<Item = (&'a str, &'a Section)>,
        connections: impl Iterator<Item = (&'a str, &'a Section)>,
    ) -> Self {
        let mut sample = Self::default();
        let children = sas.filter_map(|(_, sa)| sa.sub("child-sas"));
        for (_, child) in children.flat_map(Section::sections) {
            if let (Some(id), Some(counts)) = (child.text("uniqueid"), counts(child)) {
                sample.sas.insert(id.to_owned(), counts);
            }
        }
        for (connection, content) in connections {
            let children = content.sub("children").into_iter();
            for (name, child) in children.flat_map(Section::sections) {
                if let Some(counts) = counts(child) {
                    let key = (connection.to_owned(), name.to_owned());
                    sample.children.insert(key, counts);
                }
            }
        }
        sample
    }
}

/// Returns `None` for what has no counts yet.
fn counts(section: &Section) -> Option<Counts> {
    let number = |key| section.text(key)?.parse().ok();
    Some([
        number("bytes-in")?,
        number("packets-in")?,
        number("bytes-out")?,
        number("packets-out")?,
    ])
}

impl Change {
    /// Returns the rates of a configured child, over all its SAs and peers.
    pub fn of_child(&self, connection: &str, child: &str) -> Rates {
        let key = (connection.to_owned(), child.to_owned());
        self.rates([(
            self.before.children.get(&key),
            self.after.children.get(&key),
        )])
    }

    /// Returns the rates of child SAs. What an SA has carried after the first sample is not known once it is gone.
    pub fn of_sas(&self, numbers: &[String]) -> Rates {
        let pair = |id: &String| (self.before.sas.get(id), self.after.sas.get(id));
        self.rates(numbers.iter().map(pair))
    }

    /// Returns the rates of a child of every connection, by the names.
    pub fn by_child<'a>(
        &self,
        connections: impl Iterator<Item = (&'a str, &'a Section)>,
    ) -> BTreeMap<(String, String), Rates> {
        let of = |(connection, content): (&'a str, &'a Section)| {
            let children = content.sub("children").into_iter();
            let names = children.flat_map(Section::sections).map(|(name, _)| name);
            names.map(move |name| (connection.to_owned(), name.to_owned()))
        };
        let keys = connections.flat_map(of);
        let rates = keys.map(|key| {
            let rates = self.of_child(&key.0, &key.1);
            (key, rates)
        });
        rates.collect()
    }

    /// Sums the differences. A child without counts before began at zero, and one that counts less now began anew.
    fn rates<'a>(
        &self,
        pairs: impl IntoIterator<Item = (Option<&'a Counts>, Option<&'a Counts>)>,
    ) -> Rates {
        let mut sums = [0u64; 4];
        for (before, after) in pairs {
            let before = before.copied().unwrap_or_default();
            let after = after.copied().unwrap_or_default();
            for ((sum, before), after) in sums.iter_mut().zip(before).zip(after) {
                *sum = sum.saturating_add(after.saturating_sub(before));
            }
        }
        let [bytes_in, packets_in, bytes_out, packets_out] = sums;
        let each_second = |count: u64| {
            let window = self.window.as_millis().max(1);
            let rate = (u128::from(count) * 1000 + window / 2) / window;
            u64::try_from(rate).unwrap_or(u64::MAX)
        };
        Rates {
            bits_per_second_in: each_second(bytes_in.saturating_mul(8)),
            packets_per_second_in: each_second(packets_in),
            bits_per_second_out: each_second(bytes_out.saturating_mul(8)),
            packets_per_second_out: each_second(packets_out),
        }
    }
}

/// Writes one line for each child that has carried something in the window.
pub fn render_rates(rates: &BTreeMap<(String, String), Rates>, window: Duration) -> String {
    let mut out = String::new();
    let busy = rates.iter();
    for ((connection, child), rates) in busy.filter(|(_, rates)| **rates != Rates::default()) {
        let name = printable(&format!("{connection}/{child}"));
        let (line, seconds) = (rates_line(rates), window.as_secs_f64());
        // Writing to a String does not fail.
        let _ = writeln!(out, "{:<10}{name}: {line}, over {seconds:.1} s", "rate");
    }
    out
}

pub(crate) fn rates_line(rates: &Rates) -> String {
    format!(
        "{} in, {} packets/s; {} out, {} packets/s",
        human_bits(rates.bits_per_second_in),
        rates.packets_per_second_in,
        human_bits(rates.bits_per_second_out),
        rates.packets_per_second_out
    )
}

/// Writes bits per second in units of 1000 with one decimal: `1.5 Mbit/s`.
fn human_bits(rate: u64) -> String {
    const UNITS: [&str; 5] = ["kbit/s", "Mbit/s", "Gbit/s", "Tbit/s", "Pbit/s"];
    scaled(rate, "bit/s", 1000.0, &UNITS)
}

#[cfg(test)]
mod tests {
    use super::super::tunnels::tunnels;
    use super::*;

    fn carrying(counts: Counts) -> Section {
        let mut section = Section::new();
        let keys = ["bytes-in", "packets-in", "bytes-out", "packets-out"];
        for (key, count) in keys.into_iter().zip(counts) {
            section.set(key, count);
        }
        section
    }

    fn inside(names: &[&str], content: Section) -> Section {
        names.iter().rev().fold(content, |content, name| {
            let mut outer = Section::new();
            outer.section(name, content);
            outer
        })
    }

    fn child(connection: &str, counts: Counts) -> Section {
        inside(&[connection, "children", "net"], carrying(counts))
    }

    fn sa(connection: &str, peer: &str, id: &str, counts: Counts) -> Section {
        let mut child = carrying(counts);
        child.set("uniqueid", id).set("name", "net");
        let mut event = inside(&[connection, "child-sas", &format!("net-{id}")], child);
        event.sub_mut(connection).unwrap().set("remote-host", peer);
        event
    }

    fn sample(sas: &[Section], connections: &[Section]) -> Sample {
        let sections = |events: &'_ [Section]| -> Vec<(String, Section)> {
            let all = events.iter().flat_map(Section::sections);
            all.map(|(name, one)| (name.to_owned(), one.clone()))
                .collect()
        };
        let (sas, connections) = (sections(sas), sections(connections));
        fn entries(all: &[(String, Section)]) -> impl Iterator<Item = (&str, &Section)> {
            all.iter().map(|(name, one)| (name.as_str(), one))
        }
        Sample::of(entries(&sas), entries(&connections))
    }

    #[test]
    fn a_child_has_rates_through_a_rekey() {
        let first = child("hq", [1000, 10, 0, 0]);
        let second = child("hq", [251_000, 1010, 12_500, 5]);
        let change = Change {
            before: sample(&[], &[first]),
            after: sample(&[sa("hq", "192.0.2.1", "9", [0; 4])], &[second]),
            window: Duration::from_secs(2),
        };
        let rates = change.of_child("hq", "net");
        assert_eq!(rates.bits_per_second_in, 1_000_000);
        assert_eq!(rates.packets_per_second_in, 500);
        assert_eq!(
            (rates.bits_per_second_out, rates.packets_per_second_out),
            (50_000, 3)
        );
        let line = "rate      hq/net: 1.0 Mbit/s in, 500 packets/s; 50.0 kbit/s out, 3 packets/s, over 2.0 s\n";
        let named = BTreeMap::from([(("hq".to_owned(), "net".to_owned()), rates)]);
        assert_eq!(render_rates(&named, change.window), line);
        assert_eq!(change.of_child("hq", "other"), Rates::default());
    }

    #[test]
    fn each_peer_of_a_child_has_its_own_rates() {
        let peers = ["192.0.2.1", "192.0.2.2"];
        let at = |ids: [&str; 2], counts: [Counts; 2]| {
            let sas = [0, 1].map(|peer| sa("many", peers[peer], ids[peer], counts[peer]));
            (sas, [child("many", [9; 4])])
        };
        let (first, connections) = at(["1", "2"], [[100, 1, 0, 0], [100, 1, 0, 0]]);
        let before = sample(&first, &connections);
        // The second peer has rekeyed, and the number of its new SA was not there before.
        let (second, connections) = at(["1", "3"], [[300, 3, 0, 0], [50, 1, 0, 0]]);
        let change = Change {
            before,
            after: sample(&second, &connections),
            window: Duration::from_millis(100),
        };
        let mut found = tunnels(
            second.iter().flat_map(Section::sections),
            connections.iter().flat_map(Section::sections),
        );
        found.iter_mut().for_each(|one| one.measure(&change));
        let rates: Vec<_> = found.iter().filter_map(|one| one.rates).collect();
        let packets: Vec<_> = rates.iter().map(|one| one.packets_per_second_in).collect();
        assert_eq!(packets, [20, 10]);
        assert_eq!(rates[0].bits_per_second_in, 16_000);
    }

    #[test]
    fn a_gateway_that_began_anew_has_no_rates_below_zero() {
        let change = Change {
            before: sample(&[], &[child("hq", [1000; 4])]),
            after: sample(&[], &[child("hq", [10; 4])]),
            window: Duration::ZERO,
        };
        assert_eq!(change.of_child("hq", "net"), Rates::default());
        assert_eq!(
            [0, 999, 1500].map(human_bits),
            ["0 bit/s", "999 bit/s", "1.5 kbit/s"]
        );
    }
}
