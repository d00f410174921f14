//! The way of one packet through the policies, for people (`Display`), programs (`Serialize`) and the control socket.

use std::fmt;
use std::str::FromStr;

use esplanade_ipsec::spd::SpdEntry;
use serde::Serialize;

use super::explanation::{Comparison, DifferingField, Explanation};
use super::packet::PacketSpec;
use super::words::{why, word};
use esplanade_vici::Section;

/// Most policies shown before the one that matches: the policies that came closest.
const BEFORE_SHOWN: usize = 5;
/// Most later policies shown that would match as well.
const AFTER_SHOWN: usize = 2;

#[derive(Debug, Default, PartialEq, Eq, Serialize)]
pub struct Report {
    packet: String,
    direction: String,
    dscp: u8,
    policies: usize,
    /// The policies that are near the decision, in the order of the SPD.
    compared: Vec<Compared>,
    /// `protect`, `bypass` or `discard`; `held` where a fragment waits for the others.
    pub decision: String,
    /// The reasons for the decision, and what follows from it: one sentence a step.
    steps: Vec<Step>,
    /// The SAs that the running gateway takes the packet through.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub hops: Vec<Hop>,
}

#[derive(Debug, Default, PartialEq, Eq, Serialize)]
struct Compared {
    /// The place in the SPD, counted from 1.
    number: usize,
    policy: String,
    place: String,
    action: String,
    matches: bool,
    /// This policy decides.
    decides: bool,
    why: String,
}

#[derive(Debug, Default, PartialEq, Eq, Serialize)]
struct Step {
    step: String,
    text: String,
}

/// An SA on the way of a packet.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Hop {
    /// The connection and the child.
    pub policy: String,
    /// The SPI in hexadecimal digits.
    pub spi: String,
    /// The state as `status` shows it; `UNKNOWN` if IKE does not know the SA.
    pub state: String,
    pub protocol: String,
    pub algorithms: String,
    pub mode: String,
    pub local: String,
    pub remote: String,
    pub udp_encap: bool,
    /// The DSCP of the outer header.
    pub dscp: u8,
    /// The outer header has Don't Fragment set. In IPv6 this is always so.
    pub dont_fragment: bool,
    /// The MTU of the path to the peer. `None` means that it is not known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path_mtu: Option<u32>,
    /// The longest packet that fits in whole.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub inner_mtu: Option<u32>,
    /// The length of the outer packet. `None` means that the length of the packet was not given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub outer_len: Option<u32>,
    /// `sent`, `fragmented-before`, `fragmented-after`, `too-big`, or the drop reason.
    pub outcome: String,
}

impl Report {
    /// Reports the entries that are near the decision. `name` gives an entry's name and its place in the configuration.
    pub fn new<'a>(
        packet: &PacketSpec,
        inbound: bool,
        explanation: &Explanation,
        entry: impl Fn(usize) -> Option<&'a SpdEntry>,
        name: impl Fn(usize) -> (String, String),
    ) -> Self {
        let flow = packet.flow(inbound);
        let matched = explanation.matched;
        let mut report = Self {
            packet: packet.to_string(),
            direction: if inbound { "inbound" } else { "outbound" }.to_owned(),
            dscp: packet.dscp,
            policies: explanation.comparisons.len(),
            decision: "discard".to_owned(),
            ..Self::default()
        };
        for index in near(&explanation.comparisons, matched) {
            let (Some(one), Some(comparison)) = (entry(index), explanation.comparisons.get(index))
            else {
                continue;
            };
            let (policy, place) = name(index);
            let later = matched.is_some_and(|first| index > first);
            report.compared.push(Compared {
                number: index + 1,
                policy,
                place,
                action: word(&one.action).to_owned(),
                matches: matches!(comparison, Comparison::Matches(_)),
                decides: matched == Some(index),
                why: why(one, comparison, &flow, later),
            });
        }
        report
    }

    pub fn step(&mut self, step: &str, text: impl Into<String>) {
        self.steps.push(Step {
            step: step.to_owned(),
            text: text.into(),
        });
    }

    pub fn no_policy(&mut self) {
        self.step(
            "decision",
            "discard: no policy matches, and what no policy names is discarded (drop reason no-policy)",
        );
    }

    pub fn discard(&mut self, decider: &str) {
        self.step(
            "decision",
            format!("discard: {decider} says so (drop reason policy-discard)"),
        );
    }

    /// `doubt` is the name and place of an entry that the whole datagram may belong to.
    pub fn bypass(&mut self, decider: &str, inbound: bool, doubt: Option<(String, String)>) {
        if let Some((other, place)) = doubt {
            let reason = if inbound {
                "not-protected"
            } else {
                "policy-discard"
            };
            self.step(
                "decision",
                format!(
                    "discard: {decider} would let it pass in the clear, but its datagram may belong to {other} \
                     ({place}), and a fragment does not show that (RFC 4301 §7.4; drop reason {reason})"
                ),
            );
            return;
        }
        self.decision = "bypass".to_owned();
        let way = if inbound {
            "goes on to the protected side"
        } else {
            "leaves as it is, unprotected"
        };
        self.step(
            "decision",
            format!("bypass: {decider} lets it pass; it {way}"),
        );
    }

    pub fn unprotected(&mut self, decider: &str) {
        self.step(
            "decision",
            format!(
                "discard: {decider} wants such packets to come through an SA, and this one is unprotected \
                 (RFC 4301 §5.2; drop reason not-protected)"
            ),
        );
    }

    /// Returns the report as the control socket carries it.
    pub fn message(&self) -> Section {
        let mut message = Section::new();
        message
            .set("packet", &self.packet)
            .set("direction", &self.direction)
            .set("dscp", self.dscp)
            .set("policies", self.policies)
            .set("decision", &self.decision);
        let numbered = |list: Vec<Section>| {
            let mut all = Section::new();
            for (number, one) in (1..).zip(list) {
                all.section(&format!("{number}"), one);
            }
            all
        };
        let compared = self.compared.iter().map(Compared::message).collect();
        let steps = self.steps.iter().map(Step::message).collect();
        let hops = self.hops.iter().map(Hop::message).collect();
        message
            .section("compared", numbered(compared))
            .section("steps", numbered(steps))
            .section("hops", numbered(hops));
        message
    }

    /// Reads a report. Returns `None` if the message is no report.
    pub fn read(message: &Section) -> Option<Self> {
        fn all<T>(message: &Section, key: &str, one: fn(&Section) -> Option<T>) -> Option<Vec<T>> {
            message.sub(key)?.sections().map(|(_, m)| one(m)).collect()
        }
        Some(Self {
            packet: text(message, "packet")?,
            direction: text(message, "direction")?,
            dscp: number(message, "dscp")?,
            policies: number(message, "policies")?,
            decision: text(message, "decision")?,
            compared: all(message, "compared", Compared::read)?,
            steps: all(message, "steps", Step::read)?,
            hops: all(message, "hops", Hop::read)?,
        })
    }
}

fn text(message: &Section, key: &str) -> Option<String> {
    message.text(key).map(str::to_owned)
}

fn number<T: FromStr>(message: &Section, key: &str) -> Option<T> {
    message.text(key)?.parse().ok()
}

/// Reads a switch. An absent key means no, as in the other answers.
fn switch(message: &Section, key: &str) -> bool {
    message.text(key) == Some("yes")
}

fn set_switch(message: &mut Section, key: &str, on: bool) {
    if on {
        message.set(key, "yes");
    }
}

impl Compared {
    fn message(&self) -> Section {
        let mut message = Section::new();
        message
            .set("number", self.number)
            .set("policy", &self.policy)
            .set("place", &self.place)
            .set("action", &self.action)
            .set("why", &self.why);
        set_switch(&mut message, "matches", self.matches);
        set_switch(&mut message, "decides", self.decides);
        message
    }

    fn read(message: &Section) -> Option<Self> {
        Some(Self {
            number: number(message, "number")?,
            policy: text(message, "policy")?,
            place: text(message, "place")?,
            action: text(message, "action")?,
            why: text(message, "why")?,
            matches: switch(message, "matches"),
            decides: switch(message, "decides"),
        })
    }
}

impl Step {
    fn message(&self) -> Section {
        let mut message = Section::new();
        message.set("step", &self.step).set("text", &self.text);
        message
    }

    fn read(message: &Section) -> Option<Self> {
        Some(Self {
            step: text(message, "step")?,
            text: text(message, "text")?,
        })
    }
}

impl Hop {
    fn message(&self) -> Section {
        let mut message = Section::new();
        message
            .set("policy", &self.policy)
            .set("spi", &self.spi)
            .set("state", &self.state)
            .set("protocol", &self.protocol)
            .set("algorithms", &self.algorithms)
            .set("mode", &self.mode)
            .set("local", &self.local)
            .set("remote", &self.remote)
            .set("dscp", self.dscp)
            .set("outcome", &self.outcome);
        set_switch(&mut message, "udp-encap", self.udp_encap);
        set_switch(&mut message, "dont-fragment", self.dont_fragment);
        for (key, value) in [
            ("path-mtu", self.path_mtu),
            ("inner-mtu", self.inner_mtu),
            ("outer-len", self.outer_len),
        ] {
            if let Some(value) = value {
                message.set(key, value);
            }
        }
        message
    }

    fn read(message: &Section) -> Option<Self> {
        Some(Self {
            policy: text(message, "policy")?,
            spi: text(message, "spi")?,
            state: text(message, "state")?,
            protocol: text(message, "protocol")?,
            algorithms: text(message, "algorithms")?,
            mode: text(message, "mode")?,
            local: text(message, "local")?,
            remote: text(message, "remote")?,
            dscp: number(message, "dscp")?,
            outcome: text(message, "outcome")?,
            udp_encap: switch(message, "udp-encap"),
            dont_fragment: switch(message, "dont-fragment"),
            path_mtu: number(message, "path-mtu"),
            inner_mtu: number(message, "inner-mtu"),
            outer_len: number(message, "outer-len"),
        })
    }
}

/// Returns the policies worth showing: the one that decides, earlier policies that came closest, and later ones that
/// match too.
fn near(comparisons: &[Comparison], matched: Option<usize>) -> Vec<usize> {
    let end = matched.unwrap_or(comparisons.len());
    let mut before: Vec<(DifferingField, usize)> = comparisons
        .iter()
        .take(end)
        .enumerate()
        .filter_map(|(index, comparison)| match comparison {
            Comparison::Differs(field, _) => Some((*field, index)),
            Comparison::Matches(_) => None,
        })
        .collect();
    before.sort_unstable_by(|a, b| b.cmp(a));
    before.truncate(BEFORE_SHOWN);
    let later = comparisons.iter().enumerate().skip(end.saturating_add(1));
    let later = later.filter(|(_, comparison)| matches!(comparison, Comparison::Matches(_)));
    let mut shown: Vec<usize> = before.into_iter().map(|(_, index)| index).collect();
    shown.extend(matched);
    shown.extend(later.map(|(index, _)| index).take(AFTER_SHOWN));
    shown.sort_unstable();
    shown
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const LABEL: usize = 15;
        writeln!(
            f,
            "{:LABEL$}{}, {}, DSCP {}",
            "packet", self.packet, self.direction, self.dscp
        )?;
        let hidden = self.policies - self.compared.len().min(self.policies);
        let more = match hidden {
            0 => String::new(),
            hidden => format!(", {hidden} not shown"),
        };
        writeln!(
            f,
            "{:LABEL$}{} in order, first match wins{more}",
            "policies", self.policies
        )?;
        for one in &self.compared {
            let mark = if one.decides { ">" } else { " " };
            let place = match one.place.as_str() {
                "" => String::new(),
                place => format!(" ({place})"),
            };
            writeln!(
                f,
                "{:>13} {mark} {:<3} {} {}{place}",
                "", one.number, one.action, one.policy
            )?;
            writeln!(f, "{:LABEL$}      {}", "", one.why)?;
        }
        for step in &self.steps {
            writeln!(f, "{:LABEL$}{}", step.step, step.text)?;
        }
        Ok(())
    }
}
