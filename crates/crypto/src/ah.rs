//! Computes the ICV of single AH packets (RFC 4302) with the library. The caller has set all mutable fields to zero.

use subtle::ConstantTimeEq;

use crate::aead::{Aead, IV_LEN};
use crate::joined;
use crate::key::{KeyContext, KeyForm};
use crate::spec::JobStatus;
use crate::transform::Protocol;

/// Length in bytes of AH's longest ICV.
const ICV_LEN_MAX: usize = 32;

/// Length of AH from the next header field to the sequence number.
const HEADER_LEN: usize = 12;

/// Returns true if the key is for AH, and IV and ICV lie inside the packet.
fn well_formed(key: &KeyContext, len: usize, icv_at: usize) -> bool {
    let transform = key.transform();
    transform.protocol() == Protocol::Ah
        && icv_at >= HEADER_LEN + transform.iv_len()
        && icv_at
            .checked_add(transform.icv_len())
            .is_some_and(|end| end <= len)
}

/// Writes the ICV at `icv_at` of an IP packet.
pub(crate) fn seal(key: &KeyContext, sequence: u64, packet: &mut [u8], icv_at: usize) -> JobStatus {
    if !well_formed(key, packet.len(), icv_at) {
        return JobStatus::Malformed;
    }
    let len = key.transform().icv_len();
    packet[icv_at..icv_at + len].fill(0);
    match compute(key, sequence, packet, icv_at) {
        Some(icv) => {
            packet[icv_at..icv_at + len].copy_from_slice(&icv[..len]);
            JobStatus::Done
        }
        None => JobStatus::Malformed,
    }
}

/// Checks the ICV at `icv_at` of an IP packet, and leaves zeros there. If the ICV is wrong, all bytes behind it are
/// zeroed too.
pub(crate) fn open(key: &KeyContext, sequence: u64, packet: &mut [u8], icv_at: usize) -> JobStatus {
    if !well_formed(key, packet.len(), icv_at) {
        return JobStatus::Malformed;
    }
    let len = key.transform().icv_len();
    let mut received = [0; ICV_LEN_MAX];
    received[..len].copy_from_slice(&packet[icv_at..icv_at + len]);
    packet[icv_at..icv_at + len].fill(0);
    let expected = compute(key, sequence, packet, icv_at);
    if expected.is_some_and(|expected| same(&expected[..len], &received[..len])) {
        JobStatus::Done
    } else {
        packet[icv_at + len..].fill(0);
        JobStatus::AuthFailed
    }
}

/// Computes the ICV over the packet, whose ICV bytes are zero, and the high half of an extended sequence number.
fn compute(
    key: &KeyContext,
    sequence: u64,
    packet: &[u8],
    icv_at: usize,
) -> Option<[u8; ICV_LEN_MAX]> {
    let mut high = [0; 4];
    let suffix = icv_suffix(key.esn(), sequence, &mut high);
    let mut icv = [0; ICV_LEN_MAX];
    match &key.keys {
        KeyForm::Mac(mac) => mac.write(packet, suffix, icv.get_mut(..mac.icv_len())?),
        KeyForm::Gmac(gmac) => {
            // RFC 4543 §4: the IV begins the ICV field, and is covered (§7).
            let iv = packet.get(icv_at - IV_LEN..icv_at)?.try_into().ok()?;
            let icv = icv.get_mut(..key.transform().icv_len())?;
            gmac_over(gmac, iv, packet, suffix, icv)?;
        }
        _ => return None,
    }
    Some(icv)
}

fn gmac_over(
    gmac: &Aead,
    iv: [u8; IV_LEN],
    packet: &[u8],
    suffix: &[u8],
    icv: &mut [u8],
) -> Option<()> {
    if suffix.is_empty() {
        return gmac.seal(iv, packet, &mut [], icv);
    }
    joined::with(&[packet, suffix], |aad| gmac.seal(iv, aad, &mut [], icv))
}

/// Returns the high half of an extended sequence number. It ends the ICV's input but is not sent (RFC 4302 §2.5.1,
/// RFC 4303 §2.2.1).
pub(crate) fn icv_suffix(esn: bool, sequence: u64, high: &mut [u8; 4]) -> &[u8] {
    *high = ((sequence >> 32) as u32).to_be_bytes();
    if esn { &high[..] } else { &[] }
}

/// Compares in constant time.
pub(crate) fn same(expected: &[u8], received: &[u8]) -> bool {
    expected.ct_eq(received).into()
}
