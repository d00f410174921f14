//! Reads tunnel interfaces for route-based use: the section `gateway.interfaces`, and the keys
//! `if_id_in` and `if_id_out`, which bind policies to an interface. It does not create the devices.

use std::net::IpAddr;

use super::diagnostics::{Diagnostic, Diagnostics, quoted};
use super::mark::InterfaceMarks;
use super::schema;
use super::tree::SectionNode;
use super::value::{ValueError, ValueResult, given, number, read, read_list, report};

/// A TUN device besides the common one.
#[derive(Clone, Debug, PartialEq)]
pub struct InterfaceConfig {
    pub name: String,
    /// The number that binds policies to this device. It is never 0.
    pub if_id: u32,
    pub mtu: u16,
    /// The addresses of the device with their prefix lengths.
    pub addresses: Vec<(IpAddr, u8)>,
    /// The marks that the device was made for.
    pub marks: InterfaceMarks,
}

/// The devices to which a policy and its SAs are bound. Zero is the common device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct IfIds {
    /// The device that receives the packets of the policy's inbound SAs.
    pub inbound: u32,
    /// The device from which a packet must come to match the policy.
    pub outbound: u32,
}

/// Reads the name of a device that the gateway makes.
pub(crate) fn device_name(text: &str) -> ValueResult<String> {
    if text == "lo" {
        let help = "write a name that no link has, such as esp0";
        return Err(ValueError::new("`lo` is the loopback link", help));
    }
    interface_name(text)
}

/// Parses the name of an interface by the rules of the kernel.
pub(crate) fn interface_name(text: &str) -> ValueResult<String> {
    // The kernel's IFNAMSIZ is 16 bytes with the final zero.
    let fits = (1..=15).contains(&text.len())
        && text
            .chars()
            .all(|c| c.is_ascii_graphic() && !"/:%,".contains(c));
    match fits && text != "." && text != ".." {
        true => Ok(text.to_owned()),
        false => {
            let help = "write at most 15 letters, digits, dots, dashes or underscores";
            Err(ValueError::new(
                format!("{} is not an interface name", quoted(text)),
                help,
            ))
        }
    }
}

/// Reads `gateway.interfaces`. `tun` and `mtu` belong to the common device.
pub(crate) fn interfaces(
    node: &SectionNode,
    tun: &str,
    mtu: u16,
    d: &mut Diagnostics,
) -> Vec<InterfaceConfig> {
    schema::check(node, &schema::INTERFACES, false, d);
    let mut list: Vec<InterfaceConfig> = Vec::new();
    for section in node.sections() {
        schema::check(section, &schema::INTERFACE, false, d);
        let (name, at) = (section.name.value.as_str(), section.name.at);
        let refuse = |what: String, help: String| Diagnostic::error(what).at(at).help(help);
        if let Err(bad) = device_name(name) {
            d.push(refuse(bad.what, bad.help));
        } else if name == tun {
            let what = format!("{} is the common TUN device already", quoted(name));
            d.push(refuse(what, "choose another name, or change `tun`".into()));
        }
        let if_id = read(section, "if_id", d, |text| match id(text)? {
            0 => Err(ValueError::new(
                "0 stands for the common TUN device",
                "write another number",
            )),
            id => Ok(id),
        });
        let entry = given(section, "if_id");
        let known = list.iter().find(|other| Some(other.if_id) == if_id);
        if let (Some(entry), Some(other)) = (entry, known) {
            let bad = ValueError::new(
                format!("{} has it already", quoted(&other.name)),
                "give each interface its own",
            );
            report("if_id", bad, entry.value.at, d);
        } else if entry.is_none() {
            let what = format!("the interface {} has no `if_id`", quoted(name));
            let help = "add the number that if_id_in and if_id_out of connections refer to it by";
            d.push(refuse(what, help.into()));
        }
        let own_mtu = read(section, "mtu", d, |text| number(text, 1280..=65_535));
        let addresses = read_list(section, "addresses", d, address).unwrap_or_default();
        list.push(InterfaceConfig {
            name: name.to_owned(),
            if_id: if_id.unwrap_or_default(),
            mtu: own_mtu.map_or(mtu, |mtu| mtu as u16),
            addresses,
            marks: InterfaceMarks::default(),
        });
    }
    list
}

/// Reads `if_id_in` and `if_id_out` of a connection or a child. A key that is 0 or absent inherits
/// its value.
pub(crate) fn if_ids(node: &SectionNode, inherited: IfIds, d: &mut Diagnostics) -> IfIds {
    let mut one = |key: &str, inherited: u32| {
        let given = read(node, key, d, id);
        given.filter(|id| *id != 0).unwrap_or(inherited)
    };
    IfIds {
        inbound: one("if_id_in", inherited.inbound),
        outbound: one("if_id_out", inherited.outbound),
    }
}

pub(crate) fn id(text: &str) -> ValueResult<u32> {
    let parsed = match text.strip_prefix("0x") {
        Some(hex) => u32::from_str_radix(hex, 16).ok(),
        None => text.parse().ok(),
    };
    let bad = || {
        ValueError::new(
            format!("{} is not an interface id", quoted(text)),
            "write a 32-bit number, `%unique` or `%unique-dir`",
        )
    };
    parsed.filter(|_| !text.contains('+')).ok_or_else(bad)
}

fn address(text: &str) -> ValueResult<(IpAddr, u8)> {
    let (address, len) = match text.split_once('/') {
        Some((address, len)) => (address, Some(len)),
        None => (text, None),
    };
    let parsed = address.parse().ok().and_then(|address: IpAddr| {
        let most = if address.is_ipv4() { 32 } else { 128 };
        let len = len.map_or(Some(most), |len| len.parse().ok());
        Some((address, len.filter(|len| *len <= most)?))
    });
    parsed.ok_or_else(|| {
        ValueError::new(
            format!("{} is not an address", quoted(text)),
            "write own addresses with their prefix lengths, such as 10.255.0.1/30",
        )
    })
}
