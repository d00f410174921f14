//! The interfaces that the gateway makes because a connection or child names only their number.

use zeroize::Zeroizing;

use super::diagnostics::{Diagnostic, Diagnostics, quoted};
use super::gateway::GatewayConfig;
use super::interface::{InterfaceConfig, id};
use super::mark::{InterfaceMarks, unique_id};
use super::source::Spanned;
use super::tree::{GivenValue, KeyValue, SectionNode};
use super::value::{ValueError, given, report};

/// The keys that bind policies to an interface.
const IF_IDS: [&str; 2] = ["if_id_in", "if_id_out"];

/// Adds the interfaces that connections and children name by a number alone, and gives those with `%unique` or
/// `%unique-dir` a number. The number follows from the names of connection and child, so that it stays at a reload.
pub(crate) fn add_interfaces(
    connections: &mut SectionNode,
    gateway: &mut GatewayConfig,
    d: &mut Diagnostics,
) {
    for name in names(connections) {
        let connection = connections.open(name.clone());
        add_interfaces_of(connection, &name.value, gateway, d);
    }
    children(connections, |node, connection| {
        let subject = format!("{connection}/{}", node.name.value);
        add_interfaces_of(node, &subject, gateway, d);
    });
}

/// Visits every child with the name of its connection.
pub(crate) fn children(
    connections: &mut SectionNode,
    mut visit: impl FnMut(&mut SectionNode, &str),
) {
    for name in names(connections) {
        let connection = connections.open(name.clone());
        if connection.section("children").is_none() {
            continue;
        }
        let children = connection.open(Spanned {
            value: "children".to_owned(),
            at: name.at,
        });
        for child in names(children) {
            visit(children.open(child), &name.value);
        }
    }
}

fn names(node: &SectionNode) -> Vec<Spanned<String>> {
    let sections = node.sections().iter();
    sections.map(|section| section.name.clone()).collect()
}

fn add_interfaces_of(
    node: &mut SectionNode,
    subject: &str,
    gateway: &mut GatewayConfig,
    d: &mut Diagnostics,
) {
    // `%unique` stands for one interface in both directions.
    let mut shared = None;
    for key in IF_IDS {
        let Some(entry) = given(node, key).cloned() else {
            continue;
        };
        let taken = |id: u32| gateway.interfaces.iter().any(|one| one.if_id == id);
        let if_id = match entry.value.value.peek() {
            "%unique" => *shared.get_or_insert_with(|| unique_id(subject.as_bytes(), taken)),
            "%unique-dir" => unique_id(format!("{subject} {key}").as_bytes(), taken),
            number => match id(number) {
                Ok(number) => number,
                Err(_) => continue,
            },
        };
        let text = GivenValue::new(Zeroizing::new(if_id.to_string()));
        let at = entry.value.at;
        node.set(KeyValue {
            key: entry.key,
            value: Spanned { value: text, at },
            inherited: false,
        });
        if if_id == 0 || gateway.interfaces.iter().any(|one| one.if_id == if_id) {
            continue;
        }
        let name = format!("esp{if_id}");
        if gateway.interface_id(&name).is_some() {
            let what = format!("{} is the name of another interface", quoted(&name));
            let help =
                format!("add `interfaces {{ NAME {{ if_id = {if_id} }} }}` to the gateway section");
            report(key, ValueError::new(what, help), at, d);
            continue;
        }
        let what = format!(
            "`{key}`: the gateway makes the interface {} for it",
            quoted(&name)
        );
        let help = format!(
            "lead traffic into it, such as by `ip route add 10.2.0.0/16 dev {name}`: interfaces of the type xfrm get none"
        );
        d.push(Diagnostic::warning(what).at(at).help(help));
        gateway.interfaces.push(InterfaceConfig {
            name,
            if_id,
            mtu: gateway.mtu,
            addresses: Vec::new(),
            marks: InterfaceMarks::default(),
        });
    }
}
