//! The tunnels of a gateway, one entry each, from the answers to `list-sas` and `list-conns`.
//!
//! A tunnel is a configured child with one peer. A child that is not up is one tunnel too. A child SA whose connection
//! is no longer configured is one as well.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

use esplanade_vici::Section;
use serde::Serialize;

use super::printable::printable;
use super::rates::{Change, Rates, rates_line};
use super::text::{drops, drops_line, human_duration, plural, waits};

/// A tunnel.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct Tunnel {
    pub connection: String,
    pub child: String,
    /// `UP`, `CONNECTING`, `WAITING`, `CLOSED` or `DOWN`.
    pub state: String,
    /// The gateway is to have the child up by itself.
    pub wanted: bool,
    /// The address of the peer, or the configured ones while the child is not up.
    pub peer: String,
    /// Seconds since the tunnel came up, or since its last attempt failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub since: Option<u64>,
    pub packets_in: u64,
    pub packets_out: u64,
    /// The packets that were dropped, by reason.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub drops: BTreeMap<String, u64>,
    /// The bits and packets in a second, if they were measured.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rates: Option<Rates>,
    /// Seconds until the next attempt.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next_attempt: Option<u64>,
    /// The event that a tunnel waits for while it is not up, in words.
    #[serde(skip)]
    pub waits: String,
    /// The numbers of the child SAs that count for the tunnel. There are none if the child itself counts.
    #[serde(skip)]
    pub sas: Vec<String>,
    /// The reason why the tunnel is down, or what the peer has refused while it is up.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_error: Option<String>,
}

impl Tunnel {
    pub fn is_up(&self) -> bool {
        self.state == "UP"
    }

    /// The gateway is to have the tunnel up, and it is not.
    pub fn is_missing(&self) -> bool {
        self.wanted && !self.is_up()
    }

    /// The tunnel is missing, or something about it has failed. A command that closes a child is no failure.
    pub fn is_amiss(&self) -> bool {
        self.is_missing() || self.last_error.is_some() && self.state != "CLOSED"
    }

    pub fn name(&self) -> String {
        format!("{}/{}", self.connection, self.child)
    }

    /// Takes the rates of the tunnel.
    pub fn measure(&mut self, change: &Change) {
        self.rates = Some(match self.sas.as_slice() {
            [] => change.of_child(&self.connection, &self.child),
            sas => change.of_sas(sas),
        });
    }

    /// Says what the tunnel waits for and why it is not up.
    pub fn why(&self) -> String {
        match &self.last_error {
            Some(why) => format!("{}; {}", printable(why), self.waits),
            None => self.waits.clone(),
        }
    }

    /// Puts the worst first, and then goes by names.
    fn order(&self) -> (u8, String, String) {
        let rank = match self.is_up() {
            _ if self.is_missing() => 0,
            true if self.is_amiss() => 1,
            false if self.is_amiss() => 2,
            false => 3,
            true => 4,
        };
        (rank, self.name(), self.peer.clone())
    }
}

/// Returns the tunnels, the worst first, from the entries of `list-sa` and `list-conn` events.
pub fn tunnels<'a>(
    sas: impl Iterator<Item = (&'a str, &'a Section)>,
    connections: impl Iterator<Item = (&'a str, &'a Section)>,
) -> Vec<Tunnel> {
    let mut found = up(sas);
    let mut places = BTreeMap::<_, Vec<usize>>::new();
    for (place, one) in found.iter().enumerate() {
        let name = (one.connection.clone(), one.child.clone());
        places.entry(name).or_default().push(place);
    }
    for (connection, content) in connections {
        let children = content.sub("children").into_iter();
        for (child, section) in children.flat_map(Section::sections) {
            let Some(places) = places.get(&(connection.to_owned(), child.to_owned())) else {
                found.push(down(connection, child, content, section));
                continue;
            };
            for place in places {
                if let Some(one) = found.get_mut(*place) {
                    configure(one, section);
                }
            }
            // The child's own counts go on through rekeys. They are the tunnel's if it is the only one.
            if let [place] = places.as_slice()
                && let Some(only) = found.get_mut(*place)
            {
                count(only, section);
            }
        }
    }
    found.sort_by_key(Tunnel::order);
    found
}

/// Returns the tunnels that have child SAs. While a child SA is rekeyed, there are two of them for one tunnel.
fn up<'a>(sas: impl Iterator<Item = (&'a str, &'a Section)>) -> Vec<Tunnel> {
    let mut found = BTreeMap::<_, Tunnel>::new();
    for (connection, sa) in sas {
        let peer = sa.text("remote-host").unwrap_or("-");
        for (unique, child) in sa.sub("child-sas").into_iter().flat_map(Section::sections) {
            let name = child.text("name").unwrap_or(unique);
            let number = |key| number(child, key);
            // Many peers can be behind one NAT.
            let key = (connection, name, peer, sa.text("remote-id"));
            let tunnel = found.entry(key).or_insert_with(|| Tunnel {
                connection: connection.to_owned(),
                child: name.to_owned(),
                state: "UP".to_owned(),
                wanted: false,
                peer: peer.to_owned(),
                since: None,
                packets_in: 0,
                packets_out: 0,
                drops: BTreeMap::new(),
                rates: None,
                next_attempt: None,
                waits: String::new(),
                sas: Vec::new(),
                last_error: None,
            });
            tunnel.since = tunnel.since.max(number("install-time"));
            if let Some(one_way) = child.sub("one-way")
                && one_way.text("verdict") == Some("suspected")
            {
                let cause = one_way.items("causes").next().unwrap_or("not known");
                tunnel.last_error = Some(format!("one-way traffic, likely {cause}"));
            }
            tunnel.packets_in += number("packets-in").unwrap_or(0);
            tunnel.packets_out += number("packets-out").unwrap_or(0);
            for (reason, count) in drops(child) {
                *tunnel.drops.entry(reason).or_default() += count;
            }
            tunnel.sas.extend(child.text("uniqueid").map(str::to_owned));
        }
    }
    found.into_values().collect()
}

/// Adds what the configuration says of a tunnel that is up.
fn configure(tunnel: &mut Tunnel, child: &Section) {
    tunnel.wanted = child.text("wanted") == Some("yes");
    let error = child.text("last-error").map(str::to_owned);
    tunnel.last_error = error.or(tunnel.last_error.take());
}

/// Takes the counts of a child in the place of those of its present SAs.
fn count(tunnel: &mut Tunnel, child: &Section) {
    let since = number(child, "up-for");
    let (inbound, outbound) = (number(child, "packets-in"), number(child, "packets-out"));
    tunnel.since = since.or(tunnel.since);
    tunnel.packets_in = inbound.unwrap_or(tunnel.packets_in);
    tunnel.packets_out = outbound.unwrap_or(tunnel.packets_out);
    if inbound.is_some() {
        tunnel.drops = drops(child);
        tunnel.sas.clear();
    }
}

fn down(connection: &str, child: &str, content: &Section, section: &Section) -> Tunnel {
    let peers: Vec<_> = ["remote_addrs", "remote-addrs"]
        .into_iter()
        .flat_map(|key| content.items(key))
        .collect();
    // Right after a reload IKE does not have the child yet.
    let state = section.text("state").unwrap_or("DOWN");
    let next_attempt = number(section, "next-attempt");
    let mut tunnel = Tunnel {
        connection: connection.to_owned(),
        child: child.to_owned(),
        state: state.to_owned(),
        wanted: false,
        peer: peers.join(","),
        since: number(section, "last-error-age"),
        packets_in: 0,
        packets_out: 0,
        drops: drops(section),
        rates: None,
        next_attempt,
        sas: Vec::new(),
        waits: waits(
            Some(state),
            next_attempt.map(human_duration),
            section.sub("attempt"),
        ),
        last_error: None,
    };
    configure(&mut tunnel, section);
    // An end that only answers has no error of its own: it has refused its peer.
    if let Some(refusal) = content.sub("last-refusal")
        && tunnel.last_error.is_none()
    {
        let text = |key: &str| refusal.text(key).unwrap_or("-");
        let id = refusal.text("remote-id").unwrap_or("%any");
        let told = format!("refused {} '{id}': {}", text("remote-host"), text("why"));
        tunnel.last_error = Some(told);
        tunnel.since = number(refusal, "age");
    }
    tunnel
}

fn number(section: &Section, key: &str) -> Option<u64> {
    section.text(key)?.parse().ok()
}

/// Writes one line for each tunnel, in columns: name, state, peer, since when, and the packets or the reason.
pub fn render_brief(tunnels: &[Tunnel], colour: bool) -> String {
    let rows = tunnels.iter().map(|one| {
        let since = one
            .since
            .map(human_duration)
            .unwrap_or_else(|| "-".to_owned());
        let cells = [
            printable(&one.name()),
            one.state.to_ascii_lowercase(),
            printable(&one.peer),
            since,
        ];
        (one, cells, told(one))
    });
    let rows: Vec<_> = rows.collect();
    let widths: [usize; 4] = std::array::from_fn(|column| {
        let widths = rows
            .iter()
            .map(|(_, cells, _)| cells[column].chars().count());
        widths.max().unwrap_or(0)
    });
    let mut out = String::new();
    for (tunnel, cells, told) in &rows {
        let (tint, reset) = match colour {
            false => ("", ""),
            true => (tint(tunnel), "\x1b[0m"),
        };
        let [name, state, peer, since] = cells;
        let [w0, w1, w2, w3] = widths;
        // Writing to a String does not fail.
        let _ = writeln!(
            out,
            "{name:<w0$}  {tint}{state:<w1$}{reset}  {peer:<w2$}  {since:>w3$}  {told}"
        );
    }
    out
}

/// The keys of the children of an IKE SA and of a connection.
pub(crate) const CHILDREN: [&str; 2] = ["child-sas", "children"];

/// Tells whether two events are about the same IKE SA, or the same connection.
pub fn same_entry(one: &Section, other: &Section) -> bool {
    fn entry(event: &Section) -> Option<(&str, Option<&str>)> {
        let (name, content) = event.sections().next()?;
        Some((name, content.text("uniqueid")))
    }
    entry(one).is_some() && entry(one) == entry(other)
}

/// Adds the children of an event about the same entry.
pub fn append_children(to: &mut Section, from: &Section) {
    for (name, content) in from.sections() {
        for key in CHILDREN {
            let (Some(all), Some(more)) = (
                to.sub_mut(name).and_then(|entry| entry.sub_mut(key)),
                content.sub(key),
            ) else {
                continue;
            };
            for (child, content) in more.sections() {
                all.section(child, content.clone());
            }
        }
    }
}

/// Puts the events about one entry together.
pub fn united(mut events: Vec<Section>) -> Vec<Section> {
    events.dedup_by(|next, kept| {
        let same = same_entry(kept, next);
        if same {
            append_children(kept, next);
        }
        same
    });
    events
}

/// Says what a tunnel carries, and what is wrong with it.
fn told(tunnel: &Tunnel) -> String {
    let dropped = drops_line(&tunnel.drops);
    if !tunnel.is_up() {
        let dropped = dropped.map(|dropped| format!("; {dropped}"));
        return tunnel.why() + &dropped.unwrap_or_default();
    }
    let mut told = format!(
        "{} in, {} out",
        plural(tunnel.packets_in, "packet"),
        tunnel.packets_out
    );
    if let Some(dropped) = dropped {
        told += &format!(", {dropped}");
    }
    let rates = tunnel.rates.as_ref().map(rates_line);
    let why = tunnel.last_error.as_deref().map(printable);
    for part in [rates, why].into_iter().flatten() {
        told += &format!("; {part}");
    }
    told
}

fn tint(tunnel: &Tunnel) -> &'static str {
    match tunnel.is_up() {
        _ if tunnel.is_missing() => "\x1b[31m",
        _ if tunnel.is_amiss() => "\x1b[33m",
        true => "\x1b[32m",
        false => "",
    }
}

/// The connections and children that `status` is to show: those that are named, and of them perhaps only those with
/// troubles.
#[derive(Debug)]
pub struct Chosen {
    /// The peers of each child.
    children: BTreeMap<(String, String), BTreeSet<String>>,
    /// The connections that are shown although they have no children, or none that is up.
    connections: BTreeSet<String>,
}

impl Chosen {
    pub fn of(tunnels: &[Tunnel], connections: BTreeSet<String>) -> Self {
        let mut children = BTreeMap::<_, BTreeSet<_>>::new();
        for one in tunnels {
            let name = (one.connection.clone(), one.child.clone());
            children.entry(name).or_default().insert(one.peer.clone());
        }
        Self {
            children,
            connections,
        }
    }

    fn peers(&self, connection: &str, child: &str) -> Option<&BTreeSet<String>> {
        // A map with pairs of texts cannot be asked with borrowed texts.
        self.children
            .get(&(connection.to_owned(), child.to_owned()))
    }

    /// Leaves out everything else from a `list-sa` event. An IKE SA stays for its children's sake, or its connection's.
    pub fn filter_sa(&self, event: &mut Section) {
        event.retain_sections(|connection, sa| {
            let is_named = self.connections.contains(connection);
            let peer = sa.text("remote-host").unwrap_or("-").to_owned();
            let Some(children) = sa.sub_mut("child-sas") else {
                return is_named;
            };
            children.retain_sections(|unique, child| {
                let name = child.text("name").unwrap_or(unique);
                let peers = self.peers(connection, name);
                peers.is_some_and(|peers| peers.contains(&peer))
            });
            is_named || !children.is_empty()
        });
    }

    /// Leaves out everything else from a `list-conn` event.
    pub fn filter_connection(&self, event: &mut Section) {
        event.retain_sections(|connection, content| {
            let is_named = self.connections.contains(connection);
            let Some(children) = content.sub_mut("children") else {
                return is_named;
            };
            children.retain_sections(|child, _| self.peers(connection, child).is_some());
            is_named || !children.is_empty()
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn section(entries: &[(&str, &str)]) -> Section {
        let mut section = Section::new();
        for (key, value) in entries {
            section.set(key, value);
        }
        section
    }

    fn named(name: &str, content: Section) -> Section {
        let mut outer = Section::new();
        outer.section(name, content);
        outer
    }

    /// Makes a `list-conn` event of a connection with one child.
    fn configured(connection: &str, child: &[(&str, &str)]) -> Section {
        let mut content = Section::new();
        content.list("remote_addrs", ["192.0.2.1"]);
        content.section("children", named("net", section(child)));
        named(connection, content)
    }

    /// Makes a `list-sa` event of an IKE SA with child SAs of the child `net`.
    fn carrying(connection: &str, peer: &str, children: &[[(&str, &str); 3]]) -> Section {
        let mut list = Section::new();
        for (index, child) in children.iter().enumerate() {
            let mut child = section(child);
            child.set("name", "net");
            list.section(&format!("net-{index}"), child);
        }
        let mut sa = section(&[("remote-host", peer)]);
        sa.section("child-sas", list);
        named(connection, sa)
    }

    fn sa(
        age: &'static str,
        inbound: &'static str,
        outbound: &'static str,
    ) -> [(&'static str, &'static str); 3] {
        [
            ("install-time", age),
            ("packets-in", inbound),
            ("packets-out", outbound),
        ]
    }

    fn lab() -> (Vec<Section>, Vec<Section>) {
        let sas = vec![
            carrying("s02", "198.51.100.2", &[sa("65", "1", "2")]),
            carrying(
                "s01",
                "198.51.100.1",
                &[sa("3600", "10", "20"), sa("5", "1", "0")],
            ),
            carrying("many", "203.0.113.9", &[sa("1", "1", "0")]),
            carrying("many", "203.0.113.8", &[sa("2", "0", "0")]),
            carrying("narrow", "198.51.100.7", &[sa("9", "0", "0")]),
        ];
        let up = [("state", "UP"), ("wanted", "yes")];
        let refuses = [("last-error", "it\u{1b} refuses"), ("last-error-age", "4")];
        let connections = vec![
            configured("s01", &up),
            configured(
                "s02",
                &[
                    &up[..],
                    &[
                        ("packets-in", "500"),
                        ("packets-out", "600"),
                        ("up-for", "9000"),
                    ],
                ]
                .concat(),
            ),
            configured("many", &[("state", "UP")]),
            configured("narrow", &[&up[..], &refuses].concat()),
            configured("quiet", &[("state", "DOWN")]),
            configured("shut", &[&[("state", "CLOSED")][..], &refuses].concat()),
            configured(
                "answers",
                &[&[("state", "DOWN"), ("wanted", "no")][..], &refuses].concat(),
            ),
            configured(
                "s20",
                &[
                    &[
                        ("state", "WAITING"),
                        ("wanted", "yes"),
                        ("next-attempt", "6"),
                    ][..],
                    &refuses,
                ]
                .concat(),
            ),
            configured("s10", &[("state", "CONNECTING"), ("wanted", "yes")]),
        ];
        (sas, connections)
    }

    #[test]
    fn events_of_one_entry_are_put_together() {
        let first = carrying("s01", "198.51.100.1", &[sa("1", "1", "0")]);
        let second = carrying("s01", "198.51.100.1", &[sa("1", "2", "0")]);
        let mut other = second.clone();
        other.sub_mut("s01").unwrap().set("uniqueid", 7);
        let all = united(vec![first, second, other]);
        assert_eq!(all.len(), 2);
        let packets: Vec<_> = of(&all[..1], &[])
            .iter()
            .map(|one| one.packets_in)
            .collect();
        assert_eq!(packets, [3]);
    }

    #[test]
    fn of_a_child_with_many_peers_the_chosen_one_is_left() {
        let peers = ["203.0.113.8", "203.0.113.9"];
        let mut sas = peers.map(|peer| carrying("many", peer, &[sa("1", "1", "0")]));
        let mut tunnels = of(&sas, &[]);
        tunnels.retain(|one| one.peer == peers[1]);
        let chosen = Chosen::of(&tunnels, BTreeSet::new());
        sas.iter_mut().for_each(|event| chosen.filter_sa(event));
        assert_eq!(sas.map(|event| event.is_empty()), [true, false]);
    }

    #[test]
    fn peers_behind_one_nat_are_several_tunnels() {
        let one_peer = |id: &str| {
            let mut event = carrying("many", "203.0.113.9", &[sa("1", "1", "0"); 2]);
            event.sub_mut("many").unwrap().set("remote-id", id);
            event
        };
        let sas = ["a.example", "b.example", "b.example"].map(one_peer);
        let tunnels = of(&sas, &[configured("many", &[("packets-in", "9")])]);
        let packets: Vec<_> = tunnels.iter().map(|one| one.packets_in).collect();
        assert_eq!(packets, [2, 4]);
    }

    fn of(sas: &[Section], connections: &[Section]) -> Vec<Tunnel> {
        let (sas, connections) = (sas.iter(), connections.iter());
        tunnels(
            sas.flat_map(Section::sections),
            connections.flat_map(Section::sections),
        )
    }

    #[test]
    fn tunnels_are_in_columns_and_the_worst_is_first() {
        let (sas, connections) = lab();
        let expected = "\
s10/net      connecting  192.0.2.1          -  connecting
s20/net      waiting     192.0.2.1         4s  it\u{fffd} refuses; next attempt in 6s
narrow/net   up          198.51.100.7      9s  0 packets in, 0 out; it\u{fffd} refuses
answers/net  down        192.0.2.1         4s  it\u{fffd} refuses; waits for traffic, the peer or a command
quiet/net    down        192.0.2.1          -  waits for traffic, the peer or a command
shut/net     closed      192.0.2.1         4s  it\u{fffd} refuses; closed by command
many/net     up          203.0.113.8       2s  0 packets in, 0 out
many/net     up          203.0.113.9       1s  1 packet in, 0 out
s01/net      up          198.51.100.1  1h 00m  11 packets in, 20 out
s02/net      up          198.51.100.2  2h 30m  500 packets in, 600 out
";
        let tunnels = of(&sas, &connections);
        assert_eq!(render_brief(&tunnels, false), expected);
        let coloured = render_brief(&tunnels, true);
        assert!(
            coloured.contains("s10/net      \x1b[31mconnecting\x1b[0m  192"),
            "{coloured}"
        );
        assert!(
            coloured.contains("narrow/net   \x1b[33mup        \x1b[0m  198"),
            "{coloured}"
        );
    }

    #[test]
    fn an_end_that_answers_says_whom_it_refused() {
        let mut refusal = section(&[("why", "the pre-shared keys differ"), ("age", "4")]);
        refusal
            .set("remote-host", "192.0.2.1")
            .set("remote-id", "a.example.org");
        let mut connections = [configured("hub", &[("state", "DOWN"), ("wanted", "no")])];
        connections[0].retain_sections(|_, content| {
            content.section("last-refusal", refusal.clone());
            true
        });
        let expected = "hub/net  down  192.0.2.1  4s  refused 192.0.2.1 'a.example.org': \
            the pre-shared keys differ; waits for traffic, the peer or a command\n";
        let found = of(&[], &connections);
        assert_eq!(render_brief(&found, false), expected);
        assert!(found[0].is_amiss());
    }

    #[test]
    fn one_way_traffic_is_amiss() {
        let (mut sas, connections) = lab();
        let mut one_way = section(&[("verdict", "suspected")]);
        one_way.list("causes", ["a filter", "no route"]);
        sas[0].retain_sections(|_, sa| {
            sa.sub_mut("child-sas")
                .unwrap()
                .retain_sections(|_, child| {
                    child.section("one-way", one_way.clone());
                    true
                });
            true
        });
        let found = of(&sas, &connections);
        let told = found.iter().find(|one| one.connection == "s02").unwrap();
        assert!(told.is_amiss());
        let expected = Some("one-way traffic, likely a filter".to_owned());
        assert_eq!(told.last_error, expected);
    }

    #[test]
    fn only_what_is_not_as_wanted_is_amiss() {
        let (sas, connections) = lab();
        let all = of(&sas, &connections);
        let names = |keep: fn(&Tunnel) -> bool| -> Vec<String> {
            all.iter()
                .filter(|one| keep(one))
                .map(|one| one.connection.clone())
                .collect()
        };
        assert_eq!(names(Tunnel::is_missing), ["s10", "s20"]);
        assert_eq!(names(Tunnel::is_amiss), ["s10", "s20", "narrow", "answers"]);
    }

    #[test]
    fn what_is_not_shown_is_left_out() {
        let (mut sas, connections) = lab();
        sas.push(named("s30", section(&[("state", "CONNECTING")])));
        let mut shown = of(&sas, &connections);
        shown.retain(|one| ["narrow", "s10"].contains(&one.connection.as_str()));
        let filtered = |named: &[&str]| {
            let (mut sas, mut connections) = (sas.clone(), connections.clone());
            let named = named.iter().map(|name| (*name).to_owned());
            let chosen = Chosen::of(&shown, named.collect());
            sas.iter_mut().for_each(|event| chosen.filter_sa(event));
            let events = connections.iter_mut();
            events.for_each(|event| chosen.filter_connection(event));
            [sas, connections].map(|events| {
                let entries = events.iter().flat_map(Section::sections);
                entries.map(|(name, _)| name.to_owned()).collect::<Vec<_>>()
            })
        };
        assert_eq!(filtered(&[]), [vec!["narrow"], vec!["narrow", "s10"]]);
        // An IKE SA without children is shown if its connection is named.
        let named = [vec!["narrow", "s30"], vec!["narrow", "s10"]];
        assert_eq!(filtered(&["s30"]), named);
    }
}
