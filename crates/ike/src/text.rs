//! Texts for the administrator about what peers say and what is configured. The texts are bounded, and cannot steer a
//! terminal.

use std::net::IpAddr;

use esplanade_crypto::iana::{Encryption, Group, Integrity, Prf};
use esplanade_pki::text::steers;

use crate::config::{AddressMatch, Connection, Selector, SelectorAddresses};
use crate::wire::{Proposal, ProtocolId, TrafficSelector, Transform, TransformType};

/// Bytes of one text. Peers choose how much they send.
const LEN_MAX: usize = 600;
/// Members of one list. The rest is left out.
pub(crate) const MEMBERS_MAX: usize = 16;

/// Makes a text fit for logs and terminals, whatever a peer or a file has put into it.
pub fn clean(text: &str) -> String {
    let mut out = String::new();
    for c in text.chars() {
        if out.len() > LEN_MAX {
            out.push('…');
            break;
        }
        match steers(c) {
            true => out.extend(c.escape_default()),
            false => out.push(c),
        }
    }
    out
}

fn list<T>(items: impl IntoIterator<Item = T>, name: impl Fn(T) -> String) -> String {
    let mut items = items.into_iter();
    let mut names: Vec<String> = items.by_ref().take(MEMBERS_MAX).map(name).collect();
    if items.next().is_some() {
        names.push("…".to_owned());
    }
    names.join(", ")
}

/// Proposals as text: `AES_GCM_16-128|AES_GCM_16-256/PRF_HMAC_SHA2_256/CURVE25519, …`
pub(crate) fn proposals(proposals: &[Proposal]) -> String {
    const KINDS: [TransformType; 5] = [
        TransformType::ENCRYPTION,
        TransformType::INTEGRITY,
        TransformType::PRF,
        TransformType::KEY_EXCHANGE,
        TransformType::SEQUENCE_NUMBERS,
    ];
    let one = |proposal: &Proposal| {
        let kinds = KINDS.into_iter().filter_map(|kind| {
            let names: Vec<_> = proposal.of_kind(kind).map(transform).collect();
            (!names.is_empty()).then(|| names.join("|"))
        });
        let names = kinds.collect::<Vec<_>>().join("/");
        match proposal.protocol {
            ProtocolId::AH => format!("AH {names}"),
            _ => names,
        }
    };
    clean(&list(proposals, one))
}

fn transform(transform: &Transform) -> String {
    let name = match transform.kind {
        TransformType::ENCRYPTION => Encryption::from_number(transform.id).map(Encryption::name),
        TransformType::INTEGRITY => Integrity::from_number(transform.id).map(Integrity::name),
        TransformType::PRF => Prf::from_number(transform.id).map(Prf::name),
        TransformType::KEY_EXCHANGE => Group::from_number(transform.id).map(Group::name),
        TransformType::SEQUENCE_NUMBERS => match transform.id {
            0 => Some("NO_ESN"),
            1 => Some("ESN"),
            _ => None,
        },
        _ => None,
    };
    let name = name.map_or_else(
        || format!("{}-{}", transform.kind, transform.id),
        |name| name.trim_start_matches("ENCR_").to_owned(),
    );
    match transform.key_bits {
        Some(bits) => format!("{name}-{bits}"),
        None => name,
    }
}

/// Traffic selectors of both ends, ours first.
pub(crate) fn ends(local: &[TrafficSelector], remote: &[TrafficSelector]) -> String {
    let side = |side: &[TrafficSelector]| match side {
        [] => "nothing".to_owned(),
        some => list(some, selector),
    };
    clean(&format!("{} === {}", side(local), side(remote)))
}

fn selector(ts: &TrafficSelector) -> String {
    range(ts.start, ts.end) + &ports(ts.protocol, (ts.start_port, ts.end_port))
}

fn range(first: IpAddr, last: IpAddr) -> String {
    match first == last {
        true => first.to_string(),
        false => format!("{first}-{last}"),
    }
}

fn ports(protocol: u8, ports: (u16, u16)) -> String {
    match (protocol, ports) {
        (0, (0, u16::MAX)) => String::new(),
        (protocol, (0, u16::MAX)) => format!("[{protocol}]"),
        (protocol, (first, last)) if first == last => format!("[{protocol}/{first}]"),
        (protocol, (first, last)) => format!("[{protocol}/{first}-{last}]"),
    }
}

/// The children of a connection, with their selectors.
pub(crate) fn children(connection: &Connection) -> String {
    let one = |ts: &Selector| {
        let addresses = match ts.addresses {
            SelectorAddresses::Dynamic => "dynamic".to_owned(),
            SelectorAddresses::Range(first, last) => range(first, last),
        };
        addresses + &ports(ts.protocol, ts.ports)
    };
    let text = list(&connection.children, |child| {
        let (local, remote) = (list(&child.local_ts, one), list(&child.remote_ts, one));
        format!("{}: {local} === {remote}", child.name)
    });
    clean(&text)
}

/// Connections with the addresses that they are for.
pub(crate) fn addresses<'a>(connections: impl IntoIterator<Item = &'a Connection>) -> String {
    let one = |address: &AddressMatch| match address {
        AddressMatch::Any => "%any".to_owned(),
        AddressMatch::Host(host) => host.to_string(),
        AddressMatch::Range(first, last) => range(*first, *last),
        AddressMatch::Name(name) => {
            let addresses = list(address.hosts(), IpAddr::to_string);
            format!("{} ({addresses})", name.name)
        }
    };
    let side = |side: &[AddressMatch]| match side {
        [] => "%any".to_owned(),
        some => list(some, one),
    };
    let text = list(connections, |connection: &Connection| {
        let (local, remote) = (
            side(&connection.local_addrs),
            side(&connection.remote_addrs),
        );
        format!("{}: {local} === {remote}", connection.name)
    });
    clean(&text)
}

/// Connections with the identities that they are for.
pub(crate) fn identities<'a>(connections: impl IntoIterator<Item = &'a Connection>) -> String {
    let text = list(connections, |connection: &Connection| {
        let (local, remote) = (&connection.local.id, &connection.remote.id);
        format!("{}: {local} === {remote}", connection.name)
    });
    clean(&text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_that_a_peer_says_steers_a_terminal_or_fills_a_log() {
        let hostile = "a\u{1b}[2Jb\nc\u{202e}d\u{0}";
        let clean_text = clean(hostile);
        assert_eq!(clean_text, "a\\u{1b}[2Jb\\nc\\u{202e}d\\u{0}");
        assert!(clean(&"x".repeat(100_000)).chars().count() <= LEN_MAX + 2);
        assert!(clean(&"\u{1b}".repeat(100_000)).len() <= LEN_MAX + 20);
        assert_eq!(clean("gw.exämple"), "gw.exämple");
    }

    #[test]
    fn proposals_are_named_as_far_as_they_are_known() {
        let known = Proposal {
            number: 1,
            protocol: ProtocolId::IKE,
            spi: Vec::new(),
            transforms: vec![
                Transform::with_key_bits(TransformType::ENCRYPTION, 20, 128),
                Transform::with_key_bits(TransformType::ENCRYPTION, 20, 256),
                Transform::new(TransformType::PRF, 5),
                Transform::new(TransformType::KEY_EXCHANGE, 31),
                Transform::new(TransformType::KEY_EXCHANGE, 999),
            ],
        };
        let text = proposals(std::slice::from_ref(&known));
        let expected = "AES_GCM_16-128|AES_GCM_16-256/PRF_HMAC_SHA2_256/CURVE25519|";
        assert!(text.starts_with(expected) && text.contains("999"), "{text}");
        assert!(proposals(&vec![known; 200]).chars().count() <= LEN_MAX + 2);
    }
}
