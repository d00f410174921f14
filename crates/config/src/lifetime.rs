//! Reads the lifetimes of a child's SAs, by time, bytes and packets.

use std::time::Duration;

use esplanade_ike::config::Lifetime;

use super::diagnostics::Diagnostics;
use super::source::Location;
use super::tree::SectionNode;
use super::value::{ValueError, ValueResult, bytes, count, read, report, time};

pub(crate) fn lifetime(node: &SectionNode, d: &mut Diagnostics) -> Lifetime {
    const HOUR: u64 = 3600;
    let seconds =
        |key: &str, d: &mut Diagnostics| read(node, key, d, time).map(|time| time.as_secs());
    let (rekey_time, life_time, rand_time) = (
        seconds("rekey_time", d),
        seconds("life_time", d),
        seconds("rand_time", d),
    );
    let mut amounts = |keys: [&str; 3], parse: fn(&str) -> ValueResult<u64>| {
        let [rekey, life, rand] = keys.map(|key| read(node, key, d, parse));
        (rekey, life, rand)
    };
    let in_bytes = amounts(["rekey_bytes", "life_bytes", "rand_bytes"], bytes);
    let in_packets = amounts(["rekey_packets", "life_packets", "rand_packets"], count);
    let mut limits = |unit: &str, given: GivenLimits, standard: u64| {
        let limits = limits(given, standard);
        let place = |key: &str| {
            node.value(&format!("{key}_{unit}"))
                .map(|entry| entry.value.at)
        };
        check_limits(unit, limits, place, d);
        limits
    };
    let (rekey_time, life_time, rand_time) =
        limits("time", (rekey_time, life_time, rand_time), HOUR);
    let (rekey_bytes, life_bytes, rand_bytes) = limits("bytes", in_bytes, 0);
    let (rekey_packets, life_packets, rand_packets) = limits("packets", in_packets, 0);
    Lifetime {
        rekey_time: Duration::from_secs(rekey_time),
        life_time: Duration::from_secs(life_time),
        rand_time: Duration::from_secs(rand_time),
        rekey_bytes,
        life_bytes,
        rand_bytes,
        rekey_packets,
        life_packets,
        rand_packets,
    }
}

/// The soft limit, the hard limit, and the upper bound of what is subtracted at random from the
/// soft limit.
type GivenLimits = (Option<u64>, Option<u64>, Option<u64>);

/// Fills in swanctl's defaults: the hard limit lies a tenth above the soft limit, and never at it.
fn limits((rekey, life, rand): GivenLimits, standard: u64) -> (u64, u64, u64) {
    let rekey = rekey.unwrap_or(match life {
        Some(life) if life > 0 => life - (life / 11).max(1),
        _ => standard,
    });
    let life = life.unwrap_or(rekey + (rekey / 10).max(rekey.min(1)));
    let rand = rand.unwrap_or(life.saturating_sub(rekey).min(rekey / 2));
    (rekey, life, rand)
}

fn check_limits(
    unit: &str,
    (rekey, life, rand): (u64, u64, u64),
    place: impl Fn(&str) -> Option<Location>,
    d: &mut Diagnostics,
) {
    if life != 0
        && rekey >= life
        && let Some(at) = place("life").or(place("rekey"))
    {
        let key = format!("life_{unit}");
        let bad = ValueError::new(
            format!(
                "it is not larger than `rekey_{unit}`, so the tunnel would end before it is rekeyed"
            ),
            format!("make it larger, or leave it out (a tenth more than rekey_{unit})"),
        );
        report(&key, bad, at, d);
    }
    if rekey != 0
        && rand >= rekey
        && let Some(at) = place("rand")
    {
        let help = format!("make it smaller: it is subtracted from rekey_{unit}");
        report(
            &format!("rand_{unit}"),
            ValueError::new(format!("it is not smaller than `rekey_{unit}`"), help),
            at,
            d,
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_fill_in() {
        assert_eq!(limits((None, None, None), 3600), (3600, 3960, 360));
        assert_eq!(limits((None, None, None), 0), (0, 0, 0));
        assert_eq!(limits((Some(1000), None, None), 0), (1000, 1100, 100));
        assert_eq!(limits((None, Some(1100), None), 3600), (1000, 1100, 100));
        assert_eq!(limits((None, Some(6), None), 3600), (5, 6, 1));
        assert_eq!(limits((Some(5), None, None), 3600), (5, 6, 1));
        assert_eq!(
            limits((Some(3600), Some(86_400), None), 3600),
            (3600, 86_400, 1800)
        );
        assert_eq!(limits((Some(0), Some(0), None), 3600), (0, 0, 0));
    }
}
