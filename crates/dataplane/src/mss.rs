//! Lowers the maximum segment size (MSS) in TCP SYN packets, so that TCP segments fit the tunnel.

use esplanade_ipsec::wire::ip::{IpView, PROTOCOL_TCP};
use esplanade_ipsec::wire::{IpVersion, be16, checksum};

const SYN: u8 = 0x02;
const TCP_HEADER_LEN: usize = 20;
const END: u8 = 0;
const NO_OPERATION: u8 = 1;
const MSS: u8 = 2;

/// The largest MSS whose segments fit packets of `mtu` bytes. TCP and IP options do not count (RFC 6691 §2).
pub fn mss_for(version: IpVersion, mtu: usize) -> u16 {
    let headers = match version {
        IpVersion::V4 => 20,
        IpVersion::V6 => 40,
    } + TCP_HEADER_LEN;
    u16::try_from(mtu.saturating_sub(headers)).unwrap_or(u16::MAX)
}

/// Returns true if the packet is a SYN, so that [`clamp`] may change it.
pub fn is_syn(packet: &[u8], view: &IpView) -> bool {
    view.protocol == PROTOCOL_TCP
        && !view.later_fragment
        && packet
            .get(view.upper + 13)
            .is_some_and(|flags| flags & SYN != 0)
}

/// Lowers the MSS option of a SYN to `mss_max`. Returns true if the option was larger. A SYN without the option stays
/// as it is: its receiver will send 536 or 1220 bytes (RFC 9293 §3.7.1).
///
/// `partial` says that the checksum field holds only the sum over the pseudo header, because the kernel leaves the
/// rest to the hardware. The option is not part of that sum.
pub fn clamp(packet: &mut [u8], view: &IpView, mss_max: u16, partial: bool) -> bool {
    is_syn(packet, view) && lower(packet, view, mss_max, partial).is_some()
}

fn lower(packet: &mut [u8], view: &IpView, mss_max: u16, partial: bool) -> Option<()> {
    let segment = packet.get_mut(view.upper..view.total_len)?;
    let header_len = usize::from(*segment.get(12)? >> 4) * 4;
    let at = mss_option(segment.get(TCP_HEADER_LEN..header_len)?)? + TCP_HEADER_LEN;
    let old = be16(segment, at)?;
    if old <= mss_max {
        return None;
    }
    segment
        .get_mut(at..at + 2)?
        .copy_from_slice(&mss_max.to_be_bytes());
    if partial {
        return Some(());
    }
    let mut sum = be16(segment, 16)?;
    if at.is_multiple_of(2) {
        sum = checksum::update(sum, old, mss_max);
    } else {
        // The value straddles two words of the checksum.
        sum = checksum::update(sum, old.swap_bytes(), mss_max.swap_bytes());
    }
    segment.get_mut(16..18)?.copy_from_slice(&sum.to_be_bytes());
    Some(())
}

/// Returns the offset of the MSS value in the options.
fn mss_option(options: &[u8]) -> Option<usize> {
    let mut at = 0;
    loop {
        match *options.get(at)? {
            END => return None,
            NO_OPERATION => at += 1,
            kind => {
                let len = usize::from(*options.get(at + 1)?);
                if kind == MSS && len == 4 && at + 4 <= options.len() {
                    return Some(at + 2);
                }
                at += len.max(2);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use esplanade_testkit::vectors;
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn mss_is_lowered_as_scapy_would_have_written_it() {
        let cases = vectors::primitives("mss.json").cases;
        assert!(cases.len() > 300);
        let mut clamped = 0;
        for case in cases {
            let mut packet = case.input.clone();
            let view = IpView::parse(&packet).unwrap();
            let changed = clamp(&mut packet, &view, 1200, false);
            assert_eq!(packet, case.output, "{}", case.name);
            assert_eq!(changed, case.input != case.output, "{}", case.name);
            clamped += usize::from(changed);
        }
        assert!(clamped > 50);
        assert_eq!(mss_for(IpVersion::V4, 1400), 1360);
        assert_eq!(mss_for(IpVersion::V6, 1400), 1340);
    }

    /// A checksum that the hardware completes covers only the pseudo header so far.
    #[test]
    fn a_partial_checksum_is_left_alone() {
        let cases = vectors::primitives("mss.json").cases;
        let case = cases.iter().find(|case| case.input != case.output).unwrap();
        let mut packet = case.input.clone();
        let view = IpView::parse(&packet).unwrap();
        assert!(clamp(&mut packet, &view, 1200, true));
        let checksum = view.upper + 16..view.upper + 18;
        assert_eq!(packet[checksum.clone()], case.input[checksum.clone()]);
        assert_ne!(packet[checksum.clone()], case.output[checksum]);
    }

    proptest! {
        #[test]
        fn hostile_segments_never_panic(mut packet in prop::collection::vec(any::<u8>(), 40..200)) {
            // An IPv4 packet with TCP inside, and rubbish behind the ports.
            let len = packet.len();
            packet[0] = 0x45;
            packet[2..4].copy_from_slice(&(len as u16).to_be_bytes());
            packet[6..8].fill(0);
            packet[9] = PROTOCOL_TCP;
            packet[10..12].fill(0);
            let sum = checksum::fold(checksum::sum(0, &packet[..20]));
            packet[10..12].copy_from_slice(&sum.to_be_bytes());
            let view = IpView::parse(&packet).unwrap();
            clamp(&mut packet, &view, 500, false);
            prop_assert_eq!(packet.len(), len);
        }
    }
}
