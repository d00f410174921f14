//! Reads the keys of a child about the outer header of tunnel mode (RFC 4301 §5.1.2). The data
//! plane builds the header.

use std::collections::BTreeMap;
use std::num::NonZeroU8;
use std::sync::Arc;

use esplanade_ike::config::Mode;
use esplanade_ipsec::sa::TunnelOptions;
use esplanade_ipsec::tunnel::{DfPolicy, DscpMap, DscpPolicy, EcnPolicy};

use super::diagnostics::{Diagnostic, Diagnostics, quoted};
use super::tree::SectionNode;
use super::value::{
    ValueError, ValueResult, number, place, read, read_list, report, switch, unused, word,
};

const KEYS: [&str; 5] = ["copy_df", "copy_dscp", "copy_ecn", "dscp_map", "ttl"];

/// The directions in which `copy_dscp` copies the DSCP.
#[derive(Clone, Copy, PartialEq, Eq)]
struct CopyDscp {
    out: bool,
    inward: bool,
}

pub(crate) fn tunnel(node: &SectionNode, d: &mut Diagnostics) -> TunnelOptions {
    let standard = CopyDscp {
        out: true,
        inward: false,
    };
    let copy = read(node, "copy_dscp", d, copy_dscp).unwrap_or(standard);
    let map = dscp_map(node, d);
    if map.is_some() && !copy.out {
        let bad = ValueError::new(
            "`copy_dscp` says that no DSCP goes out",
            "leave copy_dscp out, or the map; `dscp_map = *:N` sends one DSCP for all packets",
        );
        refuse(node, "dscp_map", bad, d);
    }
    if map.is_some() && copy.inward {
        let what =
            "`dscp_map`: with `copy_dscp = yes` the peer's packets come out with mapped DSCPs";
        let help = "set `copy_dscp = out` at both ends to keep the DSCPs of the packets";
        warn(node, "dscp_map", what, help, d);
    }
    TunnelOptions {
        df: read(node, "copy_df", d, copy_df).unwrap_or_default(),
        dscp: match (copy.out, map) {
            (true, Some(map)) => DscpPolicy::Map(Arc::new(map)),
            (true, None) => DscpPolicy::Copy,
            (false, _) => DscpPolicy::fixed(0),
        },
        ecn: read(node, "copy_ecn", d, copy_ecn).unwrap_or_default(),
        ttl: read(node, "ttl", d, |text| number(text, 1..=255))
            .and_then(|ttl| NonZeroU8::new(ttl as u8)),
        dscp_from_outer: copy.inward,
        ..TunnelOptions::default()
    }
}

/// Warns of keys that the mode makes useless.
pub(crate) fn check(node: &SectionNode, protects: bool, mode: Mode, d: &mut Diagnostics) {
    let why = match (protects, mode) {
        (true, Mode::Tunnel) => return,
        (true, Mode::Transport) => "transport mode keeps the packet's own IP header",
        (false, _) => "pass and drop put no header in front",
    };
    unused(node, &KEYS, why, d);
}

fn refuse(node: &SectionNode, key: &str, bad: ValueError, d: &mut Diagnostics) {
    report(key, bad, place(node, key), d);
}

fn warn(node: &SectionNode, key: &str, what: &str, help: &str, d: &mut Diagnostics) {
    d.push(Diagnostic::warning(what).at(place(node, key)).help(help));
}

fn copy_df(text: &str) -> ValueResult<DfPolicy> {
    match text {
        "set" => Ok(DfPolicy::Set),
        _ => switch(text).map(|copy| match copy {
            true => DfPolicy::Copy,
            false => DfPolicy::Clear,
        }),
    }
}

fn copy_ecn(text: &str) -> ValueResult<EcnPolicy> {
    switch(text).map(|copy| match copy {
        true => EcnPolicy::Copy,
        false => EcnPolicy::Clear,
    })
}

fn copy_dscp(text: &str) -> ValueResult<CopyDscp> {
    let ways = |out, inward| CopyDscp { out, inward };
    word(
        text,
        &[
            ("out", ways(true, false)),
            ("in", ways(false, true)),
            ("yes", ways(true, true)),
            ("no", ways(false, false)),
        ],
    )
}

/// An entry of `dscp_map`: a range of inner DSCPs and the outer DSCP. A range of `None` stands for all DSCPs that no
/// other entry names.
type Mapped = (Option<(u8, u8)>, u8);

/// Reads `dscp_map`. A DSCP that the map does not name is copied.
fn dscp_map(node: &SectionNode, d: &mut Diagnostics) -> Option<DscpMap> {
    let entries = read_list(node, "dscp_map", d, mapped).filter(|list| !list.is_empty())?;
    let mut rest = None;
    let mut named = BTreeMap::new();
    for (range, outer) in entries {
        let twice = match range {
            None => rest.replace(outer).map(|_| "`*`".to_owned()),
            Some((first, last)) => {
                let twice = (first..=last).find(|inner| named.contains_key(inner));
                named.extend((first..=last).map(|inner| (inner, outer)));
                twice.map(|inner| format!("the DSCP {inner}"))
            }
        };
        if let Some(twice) = twice {
            let bad = ValueError::new(
                format!("{twice} is in the map twice"),
                "name each DSCP once",
            );
            refuse(node, "dscp_map", bad, d);
            // Stop at the first repetition: a longer list would only report the same again.
            break;
        }
    }
    let map = rest.map_or_else(DscpMap::identity, DscpMap::fixed);
    let into = |map: DscpMap, (inner, outer)| map.with(inner, outer);
    Some(named.into_iter().fold(map, into))
}

fn mapped(text: &str) -> ValueResult<Mapped> {
    let shape = || {
        let what = format!("{} is not an entry of a DSCP map", quoted(text));
        let help =
            "write INNER:OUTER, where INNER is a DSCP, a range such as 10-14, or * for all others";
        ValueError::new(what, help)
    };
    let (inner, outer) = text.split_once(':').ok_or_else(shape)?;
    let (inner, outer) = (inner.trim(), dscp(outer.trim())?);
    let range = match inner.split_once('-') {
        _ if inner == "*" => None,
        None => dscp(inner).map(|inner| Some((inner, inner)))?,
        Some((first, last)) => {
            let (first, last) = (dscp(first.trim())?, dscp(last.trim())?);
            if first > last {
                return Err(shape());
            }
            Some((first, last))
        }
    };
    Ok((range, outer))
}

/// Parses a DSCP, by its name in RFC 2474, 2597, 3246, 5865 or 8622, or by its number.
pub(crate) fn dscp(text: &str) -> ValueResult<u8> {
    let digit = |text: &str, range: std::ops::RangeInclusive<u8>| {
        let digit = text.parse().ok().filter(|digit| range.contains(digit));
        digit.filter(|_| text.len() == 1)
    };
    let named = match text {
        "df" | "be" => Some(0),
        "le" => Some(1),
        "va" => Some(44),
        "ef" => Some(46),
        _ => None,
    };
    let selector = || Some(digit(text.strip_prefix("cs")?, 0..=7)? * 8);
    let forwarding = || {
        let (class, drop) = text.strip_prefix("af")?.split_at_checked(1)?;
        Some(digit(class, 1..=4)? * 8 + digit(drop, 1..=3)? * 2)
    };
    if let Some(code_point) = named.or_else(selector).or_else(forwarding) {
        return Ok(code_point);
    }
    let help = "write df, le, cs0 to cs7, af11 to af43, va, ef, or a number from 0 to 63";
    number(text, 0..=63)
        .map(|code_point| code_point as u8)
        .map_err(|_| ValueError::new(format!("{} is not a DSCP", quoted(text)), help))
}

/// Parses the DSCP of IKE messages: six binary digits, as strongSwan has it, or a name. A number would be read as binary
/// by some and as decimal by others.
pub(crate) fn dscp_of_ike(text: &str) -> ValueResult<u8> {
    let is_binary = text.len() == 6 && text.bytes().all(|digit| matches!(digit, b'0' | b'1'));
    let bad = || {
        let help =
            "write six binary digits, such as 110000, or df, le, cs0 to cs7, af11 to af43, va, ef";
        ValueError::new(format!("{} is not a DSCP", quoted(text)), help)
    };
    if is_binary {
        return u8::from_str_radix(text, 2).map_err(|_| bad());
    }
    match text.starts_with(|c: char| c.is_ascii_alphabetic()) {
        true => dscp(text).map_err(|_| bad()),
        false => Err(bad()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_dscp_of_ike_is_binary_or_a_name() {
        for (text, expected) in [
            ("000000", Some(0)),
            ("101110", Some(46)),
            ("111111", Some(63)),
            ("cs6", Some(48)),
            ("46", None),
            ("11", None),
            ("0", None),
            ("101112", None),
            ("1011100", None),
            ("+01110", None),
            ("cs8", None),
            ("", None),
        ] {
            assert_eq!(dscp_of_ike(text).ok(), expected, "{text}");
        }
    }

    #[test]
    fn code_points_have_names() {
        let known = [
            ("df", 0),
            ("le", 1),
            ("cs1", 8),
            ("cs7", 56),
            ("af11", 10),
            ("af43", 38),
            ("va", 44),
            ("ef", 46),
            ("63", 63),
        ];
        for (text, code_point) in known {
            assert_eq!(dscp(text).ok(), Some(code_point), "{text}");
        }
        for bad in [
            "", "cs8", "cs", "cs+1", "af", "af14", "af51", "64", "-1", "EF",
        ] {
            assert!(dscp(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn entries_of_a_map() {
        for (text, expected) in [
            ("46:46", (Some((46, 46)), 46)),
            ("ef:cs5", (Some((46, 46)), 40)),
            ("10-14:af11", (Some((10, 14)), 10)),
            ("af11 - af13 : 0", (Some((10, 14)), 0)),
            ("*:8", (None, 8)),
        ] {
            assert_eq!(mapped(text).ok(), Some(expected), "{text}");
        }
        for bad in [
            "46", "46:", ":46", "46:64", "14-10:0", "1-2-3:0", "*-3:0", "-:1",
        ] {
            assert!(mapped(bad).is_err(), "{bad}");
        }
    }
}
