//! Parses values that many sections share: times, amounts, switches, words and addresses. It also
//! reads a value from a section and reports its errors.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::PathBuf;
use std::time::Duration;

use esplanade_ike::config::{AddressMatch, HostName};
use zeroize::Zeroizing;

use super::diagnostics::{Diagnostic, Diagnostics, nearest, quoted};
use super::source::Location;
use super::tree::{KeyValue, SectionNode};

/// The reason why a value is refused, and what to write instead.
#[derive(Debug)]
pub(crate) struct ValueError {
    pub what: String,
    pub help: String,
}

impl ValueError {
    pub fn new(what: impl Into<String>, help: impl Into<String>) -> Self {
        Self {
            what: what.into(),
            help: help.into(),
        }
    }
}

pub(crate) type ValueResult<T> = Result<T, ValueError>;

/// Returns the entry of `key` if the key has a value that is not empty.
pub(crate) fn given<'a>(node: &'a SectionNode, key: &str) -> Option<&'a KeyValue> {
    node.value(key)
        .filter(|entry| !entry.value.value.is_empty())
}

/// Returns the place of `key`, or the place of the section if the key is absent.
pub(crate) fn place(node: &SectionNode, key: &str) -> Location {
    given(node, key).map_or_else(|| node.place(), |entry| entry.value.at)
}

/// Warns of keys that have no effect here.
pub(crate) fn unused(node: &SectionNode, keys: &[&str], why: &str, diagnostics: &mut Diagnostics) {
    for key in keys {
        if let Some(entry) = given(node, key) {
            entry.value.value.obey();
            let warning = Diagnostic::warning(format!("`{key}`: {why}")).at(entry.value.at);
            diagnostics.push(warning.help("leave it out: it changes nothing"));
        }
    }
}

/// Refuses keys that cannot act here, and without which the section would mean something else than it says.
pub(crate) fn refuse(
    node: &SectionNode,
    keys: &[&str],
    why: &str,
    help: &str,
    diagnostics: &mut Diagnostics,
) {
    for key in keys {
        if let Some(entry) = given(node, key) {
            entry.value.value.obey();
            report(key, ValueError::new(why, help), entry.value.at, diagnostics);
        }
    }
}

/// Refuses `""`, which a template with an empty variable makes. Without the quotes, an empty value clears what is
/// inherited.
pub(crate) fn empty_text(entry: &KeyValue) -> Option<ValueError> {
    (entry.value.value.is_empty() && entry.value.at.len > 0).then(|| {
        let key = &entry.key.value;
        let help = format!("write the value; `{key} =` without quotes clears an inherited one");
        ValueError::new("an empty text says nothing", help)
    })
}

/// Refuses each value of the section that is an empty text.
pub(crate) fn refuse_empty_texts(node: &SectionNode, diagnostics: &mut Diagnostics) {
    for entry in node.values() {
        if let Some(bad) = empty_text(entry) {
            report(&entry.key.value, bad, entry.value.at, diagnostics);
        }
    }
}

/// Parses the value of `key`. Returns `None` if the key is absent, or if `parse` refuses it, which
/// is reported.
pub(crate) fn read<T>(
    node: &SectionNode,
    key: &str,
    diagnostics: &mut Diagnostics,
    parse: impl FnOnce(&str) -> ValueResult<T>,
) -> Option<T> {
    let entry = given(node, key)?;
    match parse(entry.value.value.obey()) {
        Ok(value) => Some(value),
        Err(bad) => {
            report(key, bad, entry.value.at, diagnostics);
            None
        }
    }
}

/// Parses each of the comma-separated parts of `key`. Returns `None` if the key is absent.
pub(crate) fn read_list<T>(
    node: &SectionNode,
    key: &str,
    diagnostics: &mut Diagnostics,
    mut parse: impl FnMut(&str) -> ValueResult<T>,
) -> Option<Vec<T>> {
    let entry = given(node, key)?;
    let mut list = Vec::new();
    for part in parts(key, entry, diagnostics) {
        match parse(part) {
            Ok(value) => list.push(value),
            Err(bad) => report(key, bad, entry.value.at, diagnostics),
        }
    }
    list.shrink_to_fit();
    Some(list)
}

/// Splits a value at its commas. Refuses a list of nothing: it would demand nothing, or offer nothing. Refuses a value of
/// several lines: behind a quote that was never closed, the next lines may hold a secret, and findings show the parts.
pub(crate) fn parts<'a>(
    key: &str,
    entry: &'a KeyValue,
    diagnostics: &mut Diagnostics,
) -> Vec<&'a str> {
    let text = entry.value.value.obey().trim();
    if text.contains(['\n', '\r']) {
        let bad = ValueError::new(
            "a list goes on one line",
            "perhaps a quote in front of it is never closed",
        );
        report(key, bad, entry.value.at, diagnostics);
        return Vec::new();
    }
    let parts = text.split(',').map(str::trim);
    let parts: Vec<_> = parts.filter(|part| !part.is_empty()).collect();
    if parts.is_empty() {
        let bad = ValueError::new(
            "the list names nothing",
            format!("write what belongs there, or leave `{key}` out"),
        );
        report(key, bad, entry.value.at, diagnostics);
    }
    parts
}

pub(crate) fn report(key: &str, bad: ValueError, at: Location, diagnostics: &mut Diagnostics) {
    diagnostics.push(finding(key, bad, at));
}

pub(crate) fn finding(key: &str, bad: ValueError, at: Location) -> Diagnostic {
    let what = match at.joins_lines {
        true => "what these lines say together is not right",
        false => &bad.what,
    };
    Diagnostic::error(format!("`{key}`: {what}"))
        .at(at)
        .help(bad.help)
}

pub(crate) fn switch(text: &str) -> ValueResult<bool> {
    match text.to_ascii_lowercase().as_str() {
        "yes" | "true" | "enabled" | "1" => Ok(true),
        "no" | "false" | "disabled" | "0" => Ok(false),
        _ => Err(ValueError::new(
            format!("{} is neither yes nor no", quoted(text)),
            "write `yes` or `no`",
        )),
    }
}

/// A longer time is a mistake. The sum of two times of this bound does not overflow.
const SECONDS_MAX: u64 = 10 * 365 * 86_400;

pub(crate) fn time(text: &str) -> ValueResult<Duration> {
    let (digits, unit) = amount(text);
    let scale = match unit {
        "" | "s" => 1,
        "m" => 60,
        "h" => 3600,
        "d" => 86_400,
        _ => {
            let help =
                "write a number with s, m, h or d, such as `90s` or `4h`; a bare number is seconds";
            return Err(ValueError::new(
                format!("{} is not a time", quoted(text)),
                help,
            ));
        }
    };
    let seconds = digits
        .and_then(|number| number.checked_mul(scale))
        .filter(|&seconds| seconds <= SECONDS_MAX);
    seconds.map(Duration::from_secs).ok_or_else(|| {
        ValueError::new(
            format!("{} is not a time of at most ten years", quoted(text)),
            "write a number with s, m, h or d",
        )
    })
}

pub(crate) fn bytes(text: &str) -> ValueResult<u64> {
    let (digits, unit) = amount(text);
    let shift = match unit {
        "" => 0,
        "k" | "K" => 10,
        "m" | "M" => 20,
        "g" | "G" => 30,
        _ => {
            let help = "write a number, with k, m or g for units of 1024, 1024² or 1024³ bytes";
            return Err(ValueError::new(
                format!("{} is not a number of bytes", quoted(text)),
                help,
            ));
        }
    };
    let bytes = digits
        .and_then(|number| number.checked_mul(1 << shift))
        .filter(|&bytes| bytes <= AMOUNT_MAX);
    bytes.ok_or_else(|| {
        ValueError::new(
            format!("{} is not a number of bytes", quoted(text)),
            "write a smaller number",
        )
    })
}

/// The default hard limit is a tenth above the soft limit and must fit into a `u64` as well.
const AMOUNT_MAX: u64 = u64::MAX / 2;

pub(crate) fn count(text: &str) -> ValueResult<u64> {
    match amount(text) {
        (Some(number), "") if number <= AMOUNT_MAX => Ok(number),
        _ => Err(ValueError::new(
            format!("{} is not a number", quoted(text)),
            "write a whole number",
        )),
    }
}

/// Parses a number within `range`.
pub(crate) fn number(text: &str, range: std::ops::RangeInclusive<u64>) -> ValueResult<u64> {
    let (from, to) = (range.start(), range.end());
    match amount(text) {
        (Some(number), "") if range.contains(&number) => Ok(number),
        _ => {
            let help = format!("write a whole number from {from} to {to}");
            Err(ValueError::new(
                format!("{} is not a number from {from} to {to}", quoted(text)),
                help,
            ))
        }
    }
}

fn amount(text: &str) -> (Option<u64>, &str) {
    let split = text
        .find(|c: char| !c.is_ascii_digit())
        .unwrap_or(text.len());
    let (digits, unit) = text.split_at(split);
    (digits.parse().ok(), unit.trim_start())
}

/// Parses one of a few words.
pub(crate) fn word<T: Copy>(text: &str, words: &[(&str, T)]) -> ValueResult<T> {
    match words.iter().find(|(word, _)| *word == text) {
        Some(&(_, value)) => Ok(value),
        None => {
            let list = words
                .iter()
                .map(|(word, _)| format!("`{word}`"))
                .collect::<Vec<_>>()
                .join(", ");
            let help = match nearest(text, words.iter().map(|&(word, _)| word)) {
                Some(near) => format!("did you mean `{near}`? It takes {list}"),
                None => format!("it takes {list}"),
            };
            Err(ValueError::new(
                format!("{} is not known here", quoted(text)),
                help,
            ))
        }
    }
}

/// Parses `%any`, an address, a subnet, a range or a host name.
pub(crate) fn address_match(text: &str) -> ValueResult<AddressMatch> {
    if matches!(text, "%any" | "%any4" | "%any6" | "0.0.0.0" | "::") {
        return Ok(match text {
            "%any4" => {
                AddressMatch::Range(Ipv4Addr::UNSPECIFIED.into(), Ipv4Addr::BROADCAST.into())
            }
            "%any6" => AddressMatch::Range(
                Ipv6Addr::UNSPECIFIED.into(),
                Ipv6Addr::from(u128::MAX).into(),
            ),
            _ => AddressMatch::Any,
        });
    }
    if let Ok(host) = text.parse() {
        return Ok(AddressMatch::Host(host));
    }
    match address_range(text) {
        Some(Ok((from, to))) => Ok(AddressMatch::Range(from, to)),
        Some(Err(bad)) => Err(bad),
        None if matches!(text, "any" | "any4" | "any6") => {
            let what = format!("{} is neither an address nor a host name", quoted(text));
            Err(ValueError::new(what, format!("write %{text}")))
        }
        None if is_host_name(text) => Ok(AddressMatch::Name(HostName::new(text))),
        None => {
            let help = "write an address, a subnet (10.0.0.0/8), a range (10.0.0.1-10.0.0.9), %any, or a host name in \
                        ASCII (xn--… for other letters)";
            Err(ValueError::new(
                format!("{} is neither an address nor a host name", quoted(text)),
                help,
            ))
        }
    }
}

/// Says whether this can be the name of a host (RFC 1123 §2.1). The last label begins with a letter, so that an address
/// with a typing error is no name.
fn is_host_name(text: &str) -> bool {
    const NAME_LEN_MAX: usize = 253;
    const LABEL_LEN_MAX: usize = 63;
    let text = text.strip_suffix('.').unwrap_or(text);
    let is_label = |label: &str| {
        let inner = |c: u8| c.is_ascii_alphanumeric() || matches!(c, b'-' | b'_');
        (1..=LABEL_LEN_MAX).contains(&label.len())
            && label.bytes().all(inner)
            && !label.starts_with('-')
            && !label.ends_with('-')
    };
    let last = text.rsplit('.').next().unwrap_or_default();
    text.len() <= NAME_LEN_MAX
        && text.split('.').all(is_label)
        && last.starts_with(|c: char| c.is_ascii_alphabetic())
}

/// Parses `from-to` or `address/bits`. Returns `None` if the text has neither form.
pub(crate) fn address_range(text: &str) -> Option<ValueResult<(IpAddr, IpAddr)>> {
    if let Some((base, bits)) = text.split_once('/') {
        let base: IpAddr = base.parse().ok()?;
        let bits: Option<u8> = bits.parse().ok();
        return Some(match bits {
            Some(bits) if bits <= if base.is_ipv4() { 32 } else { 128 } => Ok(subnet(base, bits)),
            _ => Err(ValueError::new(
                format!("{} has a bad prefix length", quoted(text)),
                "the prefix length goes up to 32 for IPv4 and 128 for IPv6",
            )),
        });
    }
    let (from, to) = text.split_once('-')?;
    let (from, to): (IpAddr, IpAddr) = (from.trim().parse().ok()?, to.trim().parse().ok()?);
    Some(if from.is_ipv4() == to.is_ipv4() && from <= to {
        Ok((from, to))
    } else {
        let help = "write the lower address first, both of the same IP version";
        Err(ValueError::new(
            format!("{} is not a range", quoted(text)),
            help,
        ))
    })
}

/// Warns of a subnet whose address has host bits set.
pub(crate) fn warn_of_host_bits(node: &SectionNode, key: &str, diagnostics: &mut Diagnostics) {
    let Some(entry) = given(node, key) else {
        return;
    };
    for part in entry.value.value.peek().split(',').map(str::trim) {
        let written = part.split('[').next().unwrap_or_default().trim_end();
        let Some((base, bits)) = written.split_once('/') else {
            continue;
        };
        let (Ok(base), Some(Ok((from, to)))) = (base.parse::<IpAddr>(), address_range(written))
        else {
            continue;
        };
        if base != from {
            let what = format!(
                "`{key}`: {} stands for all of {from} to {to}",
                quoted(written)
            );
            let help = format!("write `{from}/{bits}`, or `{base}` for that one address");
            diagnostics.push(Diagnostic::warning(what).at(entry.value.at).help(help));
        }
    }
}

/// Returns the first and the last address of a subnet.
pub(crate) fn subnet(base: IpAddr, bits: u8) -> (IpAddr, IpAddr) {
    match base {
        IpAddr::V4(base) => {
            let hosts = u32::MAX.checked_shr(bits.into()).unwrap_or(0);
            let base = u32::from(base) & !hosts;
            (
                Ipv4Addr::from(base).into(),
                Ipv4Addr::from(base | hosts).into(),
            )
        }
        IpAddr::V6(base) => {
            let hosts = u128::MAX.checked_shr(bits.into()).unwrap_or(0);
            let base = u128::from(base) & !hosts;
            (
                Ipv6Addr::from(base).into(),
                Ipv6Addr::from(base | hosts).into(),
            )
        }
    }
}

pub(crate) fn absolute(text: &str) -> ValueResult<PathBuf> {
    match text.starts_with('/') {
        true => Ok(PathBuf::from(text)),
        false => Err(ValueError::new(
            format!("{} is no absolute path", quoted(text)),
            "write the whole path of a file or a folder, such as /etc/ssl/esplanade",
        )),
    }
}

/// Reads bytes from pairs of hexadecimal digits. Returns `None` for anything else.
pub(crate) fn hex(digits: &str) -> Option<Zeroizing<Vec<u8>>> {
    let digits = digits.as_bytes();
    if !digits.len().is_multiple_of(2) {
        return None;
    }
    let mut bytes = Zeroizing::new(Vec::with_capacity(digits.len() / 2));
    for pair in digits.chunks_exact(2) {
        let nibble = |digit: u8| char::from(digit).to_digit(16);
        bytes.push((nibble(pair[0])? << 4 | nibble(pair[1])?) as u8);
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units() {
        assert_eq!(time("90").ok(), Some(Duration::from_secs(90)));
        assert_eq!(time("4h").ok(), Some(Duration::from_secs(14_400)));
        assert_eq!(time("1 d").ok(), Some(Duration::from_secs(86_400)));
        assert!(
            time("4w").is_err() && time("h").is_err() && time("99999999999999999999s").is_err()
        );
        assert_eq!(bytes("2k").ok(), Some(2048));
        assert!(bytes("2kb").is_err() && bytes("18446744073709551615g").is_err());
        assert_eq!(switch("Enabled").ok(), Some(true));
    }

    #[test]
    fn addresses() {
        let net = AddressMatch::Range("10.1.0.0".parse().unwrap(), "10.1.255.255".parse().unwrap());
        assert_eq!(address_match("10.1.2.3/16").ok(), Some(net));
        assert_eq!(
            address_match("0.0.0.0/0")
                .ok()
                .map(|any| any.matches("1.2.3.4".parse().unwrap())),
            Some(true)
        );
        assert!(address_match("10.0.0.0/33").is_err());
        assert!(address_match("10.0.0.9-10.0.0.1").is_err());
        for name in ["vpn.example.org", "moon", "1and1.example.", "a_b.xn--p1ai"] {
            let expected = AddressMatch::Name(HostName::new(name));
            assert_eq!(address_match(name).ok(), Some(expected));
        }
        let long = format!("{}.example", "x".repeat(64));
        let longest = format!("{}example", "x.".repeat(124));
        for bad in [
            "10.0.0.256",
            "10.0.0.1-10.0.0.9x",
            "-a.example",
            "a-.example",
            "a..example",
            ".",
            "",
            "exämple.org",
            "a b",
            "%anything",
            "any",
            &long,
            &longest,
        ] {
            assert!(address_match(bad).is_err(), "{bad}");
        }
        assert!(address_match("any6").is_err_and(|bad| bad.help.contains("%any6")));
    }
}
