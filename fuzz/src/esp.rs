//! Fuzzes the inbound packet path with hostile ESP packets.

use esplanade_crypto::Transform;

// The module has two gateways with one tunnel, and the checks after each packet.
#[path = "../../crates/ipsec/tests/common/mod.rs"]
pub mod common;
use common::{Tunnel, drive_inbound};

/// The most packets of an input. They are enough for the replay window to see some history.
const PACKETS_MAX: usize = 16;

/// Byte 0 chooses the transform and the sequence numbers. Packets follow, each behind two bytes of length. The body
/// of an authentic packet ends in padding, pad length and next header.
pub fn esp_inbound(data: &[u8]) {
    run(data);
}

fn run(data: &[u8]) -> Option<Tunnel> {
    let (&options, mut rest) = data.split_first()?;
    let transform = Transform::ESP[usize::from(options >> 1) % Transform::ESP.len()];
    let mut tunnel = Tunnel::new(transform, options & 1 != 0);
    for _ in 0..PACKETS_MAX {
        let Some((&len, packets)) = rest.split_first_chunk::<2>() else {
            break;
        };
        let len = usize::from(u16::from_be_bytes(len)).min(packets.len());
        let (packet, after) = packets.split_at(len);
        drive_inbound(&mut tunnel, packet);
        rest = after;
    }
    Some(tunnel)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering::Relaxed;

    use super::*;

    #[test]
    fn seeds_are_delivered_or_not() {
        for (seed, delivered) in [
            (&include_bytes!("../corpus/esp_inbound/ipv4")[..], 1),
            (include_bytes!("../corpus/esp_inbound/ipv4-esn"), 2),
            (include_bytes!("../corpus/esp_inbound/another-transform"), 2),
            (include_bytes!("../corpus/esp_inbound/ipv6"), 1),
            (include_bytes!("../corpus/esp_inbound/cbc"), 1),
            (include_bytes!("../corpus/esp_inbound/padded-inner"), 1),
            (include_bytes!("../corpus/esp_inbound/wrong-selector"), 0),
            (include_bytes!("../corpus/esp_inbound/wrong-next-header"), 0),
            (include_bytes!("../corpus/esp_inbound/bad-padding"), 0),
        ] {
            let tunnel = run(seed).expect("not empty");
            let counters = tunnel.inbound.counters();
            assert_eq!(
                counters.packets_out.load(Relaxed),
                delivered,
                "{counters:?}"
            );
        }
    }
}
