//! The interfaces that the gateway makes because a connection or child names only their number.

use zeroize::Zeroizing;

use super::diagnostics::{Diagnostic, Diagnostics, quoted};
use super::gateway::GatewayConfig;
use super::interface::{InterfaceConfig, id};
use super::source::Spanned;
use super::tree::{KeyValue, SectionNode};
use super::value::{ValueError, given, report};

/// The keys that bind policies to an interface.
const IF_IDS: [&str; 2] = ["if_id_in", "if_id_out"];
/// Numbers for `%unique` have this bit, which is seldom written by hand.
const UNIQUE: u32 = 1 << 31;

/// Adds the interfaces that connections and children name by a number alone, and gives those with `%unique` or
/// `%unique-dir` a number. The number follows from the names of connection and child, so that it stays at a reload.
pub(super) fn add_interfaces(
    connections: &mut SectionNode,
    gateway: &mut GatewayConfig,
    d: &mut Diagnostics,
) {
    let names = |node: &SectionNode| -> Vec<_> {
        let sections = node.sections().iter();
        sections.map(|section| section.name.clone()).collect()
    };
    for name in names(connections) {
        let connection = connections.open(name.clone());
        add_interfaces_of(connection, &name.value, gateway, d);
        if connection.section("children").is_none() {
            continue;
        }
        let children = connection.open(Spanned {
            value: "children".to_owned(),
            at: name.at,
        });
        for child in names(children) {
            let subject = format!("{}/{}", name.value, child.value);
            add_interfaces_of(children.open(child), &subject, gateway, d);
        }
    }
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
        let if_id = match entry.value.value.as_str() {
            "%unique" => *shared.get_or_insert_with(|| unique_id(subject, &gateway.interfaces)),
            "%unique-dir" => unique_id(&format!("{subject} {key}"), &gateway.interfaces),
            number => match id(number) {
                Ok(number) => number,
                Err(_) => continue,
            },
        };
        let text = Zeroizing::new(if_id.to_string());
        let at = entry.value.at;
        node.set(KeyValue {
            key: entry.key,
            value: Spanned { value: text, at },
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
        });
    }
}

/// Makes a number out of a name, by FNV-1a. No interface has it yet.
fn unique_id(name: &str, interfaces: &[InterfaceConfig]) -> u32 {
    let hash = name.bytes().fold(0x811c_9dc5_u32, |hash, byte| {
        (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193)
    });
    let taken = |id: u32| interfaces.iter().any(|one| one.if_id == id);
    let mut id = hash | UNIQUE;
    while taken(id) {
        id = id.wrapping_add(1) | UNIQUE;
    }
    id
}
