//! Checks whether this machine has the addresses and links that the configuration names. The start fails without most of
//! them; that the machine lacks them now does not say that it lacks them then.

use std::fs;
use std::net::{IpAddr, UdpSocket};

use esplanade_ike::config::AddressMatch;

use crate::config::Loaded;
use crate::net::{LinkKind, link_kind};

/// The addresses and links of a machine.
struct Machine<'a> {
    has_address: &'a dyn Fn(IpAddr) -> bool,
    /// The kind of a link, or `None` if there is none of this name.
    link: &'a dyn Fn(&str) -> Option<LinkKind>,
}

/// Returns what the machine lacks, and the remedy.
pub fn missing(loaded: &Loaded) -> Vec<(String, String)> {
    let machine = Machine {
        has_address: &can_bind,
        // A link that cannot be asked for is not told of.
        link: &|name| link_kind(name).unwrap_or(Some(LinkKind::Tun)),
    };
    missing_on(loaded, &machine)
}

fn missing_on(loaded: &Loaded, machine: &Machine<'_>) -> Vec<(String, String)> {
    let gateway = &loaded.gateway;
    let mut list = Vec::new();
    for address in &gateway.listen {
        if !address.is_unspecified() && !(machine.has_address)(*address) {
            let what = format!("`listen`: this machine does not have {address} now");
            let help = "correct it, or give the machine the address: the gateway does not start without it";
            list.push((what, help.to_owned()));
        }
    }
    let devices = gateway.interfaces.iter().map(|one| one.name.as_str());
    for (key, name) in [("tun", gateway.tun.as_str())]
        .into_iter()
        .chain(devices.map(|name| ("interfaces", name)))
    {
        if (machine.link)(name).is_some_and(|kind| kind != LinkKind::Tun) {
            let what = format!("`{key}`: the machine has a link `{name}`, which is no TUN device");
            let help = "write a name that no link has: the gateway makes the device itself";
            list.push((what, help.to_owned()));
        }
    }
    for name in &gateway.xdp {
        if (machine.link)(name).is_none() {
            let what = format!("`xdp`: this machine has no link `{name}` now");
            let help = "correct it, or leave it out: the gateway does not start without the link; `ip link` lists them";
            list.push((what, help.to_owned()));
        }
    }
    list.extend(without_address(loaded, machine));
    list
}

/// Tells of connections none of whose own addresses the machine has. They wait for one of them.
fn without_address(loaded: &Loaded, machine: &Machine<'_>) -> Option<(String, String)> {
    let lacks = |locals: &[AddressMatch]| {
        let hosts = locals.iter().map(|local| match local {
            AddressMatch::Host(host) => Some(*host),
            _ => None,
        });
        let hosts: Option<Vec<IpAddr>> = hosts.collect();
        let hosts = hosts.filter(|hosts| !hosts.is_empty())?;
        let none = !hosts.iter().any(|host| (machine.has_address)(*host));
        none.then(|| {
            hosts
                .iter()
                .map(ToString::to_string)
                .collect::<Vec<_>>()
                .join(", ")
        })
    };
    let connections = loaded.ike.connections.iter();
    let mut without = connections.filter_map(|one| Some((&one.name, lacks(&one.local_addrs)?)));
    let (first, addresses) = without.next()?;
    let others = match without.count() {
        0 => String::new(),
        more => format!(" (so do {more} more connections)"),
    };
    let what = format!(
        "`{first}` waits for {addresses} in `local_addrs`, which this machine does not have now{others}"
    );
    let help = "correct it, or leave `local_addrs` out: the way to the peer decides then";
    Some((what, help.to_owned()))
}

/// Tells whether the machine has the address now. Only own addresses can be bound, unless the administrator lets
/// programs bind any.
pub fn is_own(address: IpAddr) -> bool {
    let special = address.is_unspecified() || address.is_multicast();
    let version = if address.is_ipv4() { "ipv4" } else { "ipv6" };
    let any = fs::read_to_string(format!("/proc/sys/net/{version}/ip_nonlocal_bind"));
    let lets_any = any.is_ok_and(|text| text.trim() != "0");
    !special && !lets_any && can_bind(address)
}

fn can_bind(address: IpAddr) -> bool {
    UdpSocket::bind((address, 0)).is_ok()
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::config::load_text;

    fn told(text: &str) -> Vec<String> {
        let loaded = load_text(Path::new("esplanade.conf"), text).unwrap();
        let own: IpAddr = "192.0.2.1".parse().unwrap();
        let machine = Machine {
            has_address: &|address| address == own,
            link: &|name| match name {
                "esp0" | "esp1" => Some(LinkKind::Tun),
                "eth0" | "wan" => Some(LinkKind::Other),
                _ => None,
            },
        };
        let missing = missing_on(&loaded, &machine);
        missing.into_iter().map(|(what, _)| what).collect()
    }

    fn connection(name: &str, local_addrs: &str) -> String {
        format!(
            "{name} {{\n local_addrs = {local_addrs}\n remote_addrs = 198.51.100.1\n local {{\n auth = psk\n id = a\n }}\n \
             remote {{\n auth = psk\n id = b\n }}\n }}\n"
        )
    }

    #[test]
    fn what_the_machine_has_is_no_finding() {
        let site = connection("site", "192.0.2.1, 192.0.2.7");
        let text = format!(
            "gateway {{\n listen = 192.0.2.1, 0.0.0.0\n xdp = eth0\n interfaces {{\n esp1 {{\n if_id = 1\n }}\n new {{\n \
             if_id = 2\n }}\n }}\n }}\n connections {{\n {site} }}\n"
        );
        assert_eq!(told(&text), [""; 0]);
        let any = connection("site", "%any");
        assert_eq!(told(&format!("connections {{\n {any} }}\n")), [""; 0]);
    }

    #[test]
    fn each_thing_that_is_not_there_is_named() {
        let sites = [
            connection("one", "192.0.2.8, 192.0.2.9"),
            connection("two", "192.0.2.9"),
        ];
        let text = format!(
            "gateway {{\n listen = 192.0.2.1, 192.0.2.8, 192.0.2.9\n tun = eth0\n xdp = lan\n interfaces {{\n wan {{\n \
             if_id = 1\n }}\n }}\n }}\n connections {{\n {} }}\n",
            sites.concat()
        );
        assert_eq!(
            told(&text),
            [
                "`listen`: this machine does not have 192.0.2.8 now",
                "`listen`: this machine does not have 192.0.2.9 now",
                "`tun`: the machine has a link `eth0`, which is no TUN device",
                "`interfaces`: the machine has a link `wan`, which is no TUN device",
                "`xdp`: this machine has no link `lan` now",
                "`one` waits for 192.0.2.8, 192.0.2.9 in `local_addrs`, which this machine does not have now (so do 1 \
                 more connections)",
            ]
        );
    }
}
