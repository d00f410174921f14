//! Reads the firewall marks of children, and makes the TUN devices that keep the packets of different marks apart.

use std::sync::Arc;

use esplanade_ike::config::Connection;
use zeroize::Zeroizing;

use super::diagnostics::{Diagnostics, quoted};
use super::gateway::{self, GatewayConfig};
use super::interface::InterfaceConfig;
use super::made_interfaces::children;
use super::mark::{InterfaceMarks, Mark, SaMarks, unique_id};
use super::source::{Location, Spanned};
use super::tree::{GivenValue, KeyValue, SectionNode};
use super::value::{ValueError, ValueResult, given, place, read, report};

/// The keys that say which packets a child is for.
const MARKS: [&str; 2] = ["mark_in", "mark_out"];
/// The keys that give a child a device of its own.
const KEYS: [&str; 3] = ["mark_in", "mark_out", "set_mark_in"];

/// A place where `%unique` stood for a mark.
#[derive(Debug)]
pub(crate) struct UniqueMark {
    connection: String,
    key: &'static str,
    at: Location,
}

/// Gives children with `%unique` or `%unique-dir` a number, and adds the devices for marks. Returns the places of
/// these words. The numbers follow from the names of connection and child, so that they stay at a reload.
pub(crate) fn add_devices(
    connections: &mut SectionNode,
    gateway: &mut GatewayConfig,
    d: &mut Diagnostics,
) -> Vec<UniqueMark> {
    let mut unique = Vec::new();
    children(connections, |node, connection| {
        let subject = format!("{connection}/{}", node.name.value);
        for (key, at) in settle_unique(node, &subject, gateway) {
            let connection = connection.to_owned();
            unique.push(UniqueMark {
                connection,
                key,
                at,
            });
        }
        // Values that cannot be read are reported when the child is read.
        let marks = marks(node, gateway, &mut Diagnostics::default());
        let wanted = InterfaceMarks::of(marks);
        if wanted.are_given()
            && let Err(bad) = add_device(wanted, gateway)
        {
            let key = KEYS.into_iter().rfind(|key| given(node, key).is_some());
            let key = key.unwrap_or_default();
            report(key, bad, place(node, key), d);
        }
    });
    unique
}

/// Refuses `%unique` where several peers would share the number.
pub(crate) fn check_peers(
    marks: &[UniqueMark],
    connections: &[Arc<Connection>],
    d: &mut Diagnostics,
) {
    for mark in marks {
        let mut connections = connections.iter();
        let connection = connections.find(|connection| connection.name == mark.connection);
        if connection.is_some_and(|connection| !connection.names_one_peer()) {
            let bad = ValueError::new(
                "several peers can have the child, which has one number here",
                "give each peer a connection of its own, whose remote section names it by `id`",
            );
            report(mark.key, bad, mark.at, d);
        }
    }
}

/// Puts numbers in the place of `%unique` and `%unique-dir`. Returns the keys, with their places.
fn settle_unique(
    node: &mut SectionNode,
    subject: &str,
    gateway: &GatewayConfig,
) -> Vec<(&'static str, Location)> {
    let taken = |number: u32| {
        let mut all = gateway.interfaces.iter().map(|one| one.marks);
        let met = |marks: InterfaceMarks| {
            marks.inbound == Some(number) || marks.outbound.is_some_and(|one| one.matches(number))
        };
        [gateway.mark, gateway.error_mark()].contains(&number) || all.any(met)
    };
    // `%unique` stands for one number in both directions.
    let mut shared = None;
    let mut settled = Vec::new();
    for key in MARKS {
        let Some(entry) = given(node, key).cloned() else {
            continue;
        };
        let number = match entry.value.value.peek() {
            "%unique" => *shared
                .get_or_insert_with(|| unique_id(format!("{subject} mark").as_bytes(), taken)),
            "%unique-dir" => unique_id(format!("{subject} {key}").as_bytes(), taken),
            _ => continue,
        };
        let at = entry.value.at;
        node.set(KeyValue {
            key: entry.key,
            value: Spanned {
                value: GivenValue::new(Zeroizing::new(number.to_string())),
                at,
            },
            inherited: false,
        });
        settled.push((key, at));
    }
    settled
}

/// Adds the device for these marks, unless there is one.
fn add_device(marks: InterfaceMarks, gateway: &mut GatewayConfig) -> Result<(), ValueError> {
    let table = |mark: Mark| mark.table(gateway.table);
    for known in gateway.interfaces.iter().map(|one| one.marks) {
        if let (Some(mark), Some(other)) = (marks.outbound, known.outbound)
            && mark != other
            && (mark.meets(other) || table(mark) == table(other))
        {
            return Err(ValueError::new(
                format!("packets can match {mark}, and {other} of another child"),
                "give the two children marks that exclude each other",
            ));
        }
        if known.are_given() && marks.share(&known) {
            return match marks == known {
                true => Ok(()),
                false => Err(ValueError::new(
                    "another child has the same `mark_out`, and gives other marks to what it decrypts",
                    "give both the same `mark_in` and `set_mark_in`, or different `mark_out`",
                )),
            };
        }
    }
    let name = match (marks.outbound, marks.inbound) {
        (Some(mark), _) => format!("espm{}", mark.value),
        (None, inbound) => format!("espmi{}", inbound.unwrap_or_default()),
    };
    if gateway.interface_id(&name).is_some() {
        let what = format!("{} is the name of another interface", quoted(&name));
        return Err(ValueError::new(
            what,
            "give the other interface another name",
        ));
    }
    let taken = |id: u32| gateway.interfaces.iter().any(|one| one.if_id == id);
    gateway.interfaces.push(InterfaceConfig {
        if_id: unique_id(name.as_bytes(), taken),
        name,
        mtu: gateway.mtu,
        addresses: Vec::new(),
        marks,
    });
    Ok(())
}

/// Reads the marks of a child.
pub(crate) fn marks(node: &SectionNode, gateway: &GatewayConfig, d: &mut Diagnostics) -> SaMarks {
    let none = |mark: &Mark| mark.value != 0;
    let inbound = read(node, "mark_in", d, mark).filter(none);
    let outbound = read(node, "mark_out", d, mark).filter(none);
    let or_same = |same: Option<Mark>| {
        move |text: &str| match text.strip_prefix("%same") {
            None => mark(text),
            Some(rest) => {
                let value = same.map_or(0, |same| same.value);
                match rest.strip_prefix('/') {
                    Some(mask) => {
                        let mask = gateway::mark(mask)?;
                        mark(&format!("{}/{mask}", value & mask))
                    }
                    None => mark(&format!("{value}{rest}")),
                }
            }
        }
    };
    let set = read(node, "set_mark_in", d, or_same(inbound));
    let before = inbound.map_or(0, |mark| mark.value);
    let after = set.map_or(before, |set| before & !set.mask | set.value);
    if let Some(inbound) = inbound
        && !inbound.matches(after)
    {
        let what = format!("packets get the mark {after}, which `mark_in` does not take");
        let help = "write the same mark in both, or `set_mark_in = %same`";
        let bad = ValueError::new(what, help);
        report("set_mark_in", bad, place(node, "set_mark_in"), d);
    }
    let inward = match set {
        Some(_) => "set_mark_in",
        None => "mark_in",
    };
    for (taken, whose) in [
        (gateway.mark, "the gateway's own packets"),
        (gateway.error_mark(), "ICMP errors about protected packets"),
    ] {
        let mut refuse = |key: &str| {
            let bad = ValueError::new(
                format!("{whose} have the mark {taken}"),
                "choose another mark, or another `mark` in the gateway section",
            );
            report(key, bad, place(node, key), d);
        };
        if outbound.is_some_and(|mark| mark.matches(taken)) {
            refuse("mark_out");
        }
        if after == taken {
            refuse(inward);
        }
    }
    let sent = read(node, "set_mark_out", d, or_same(outbound));
    if sent.is_some_and(|sent| sent.value != 0 && sent.value != gateway.mark) {
        let bad = ValueError::new(
            format!(
                "all packets that the gateway sends have the mark {}, which leads them past its own routes",
                gateway.mark
            ),
            "remove it; `mark` in the gateway section sets that mark, and firewall rules can tell ESP by the peer's \
             address",
        );
        report("set_mark_out", bad, place(node, "set_mark_out"), d);
    }
    SaMarks {
        outbound,
        inbound,
        given: Some(after).filter(|mark| *mark != 0),
    }
}

/// Reports marks beside keys that they exclude. `bound` tells whether the child is bound to an interface.
pub(crate) fn check_bound(node: &SectionNode, bound: bool, d: &mut Diagnostics) {
    let entry = KEYS.into_iter().find_map(|key| given(node, key));
    if let Some(entry) = entry
        && bound
    {
        let bad = ValueError::new(
            "the child is bound to an interface, and marks give it one of its own",
            "keep the marks, or `if_id_in` and `if_id_out`",
        );
        report(&entry.key.value, bad, entry.value.at, d);
    }
}

/// Parses a mark, with its mask behind a slash. Zero stands for no mark.
fn mark(text: &str) -> ValueResult<Mark> {
    let (value, mask) = match text.split_once('/') {
        Some((value, mask)) => (value, gateway::mark(mask)?),
        None => (text, u32::MAX),
    };
    if value.starts_with("%unique") {
        return Err(ValueError::new(
            "a number that the gateway chooses takes all 32 bits",
            "write `%unique` without a mask",
        ));
    }
    let value = gateway::mark(value)?;
    if value & !mask != 0 {
        return Err(ValueError::new(
            format!("{} has bits that its mask does not have", quoted(text)),
            "write a mark whose bits are all in the mask",
        ));
    }
    if value == 0 && mask != 0 && mask != u32::MAX {
        return Err(ValueError::new(
            format!("{} leaves no bit of a mark", quoted(text)),
            "write a mark with a bit that the mask has, or 0 for no mark",
        ));
    }
    Ok(Mark { value, mask })
}
