//! Seals and opens single ESP packets (RFC 4303) in place, with the library.

use crate::aead::Aead;
use crate::ah;
use crate::joined;
use crate::key::{KeyContext, KeyForm, Pair};
use crate::spec::{ESP_HEADER_LEN as HEADER_LEN, JobStatus};
use crate::transform::{IvKind, Protocol};

/// Returns true if an ESP packet of the key's transform can have this length.
fn well_formed(key: &KeyContext, len: usize) -> bool {
    key.transform().protocol() == Protocol::Esp
        && u32::try_from(len).is_ok_and(|len| key.layout().fits(len))
}

/// Seals one ESP packet: header, IV, payload with trailer, room for the ICV.
pub(crate) fn seal(key: &KeyContext, sequence: u64, packet: &mut [u8]) -> JobStatus {
    if !well_formed(key, packet.len()) {
        return JobStatus::Malformed;
    }
    let sealed = match &key.keys {
        KeyForm::Aead(aead) => {
            let Parts { aad, iv, body, icv } = Parts::of(key, sequence, packet);
            aead.seal(iv, aad.bytes(), body, icv)
        }
        KeyForm::Pair(pair) => seal_pair(key, pair, sequence, packet),
        KeyForm::Gmac(gmac) => gmac_icv(key, gmac, sequence, packet).map(|icv| {
            let at = packet.len() - icv.len();
            packet[at..].copy_from_slice(&icv);
        }),
        _ => None,
    };
    match sealed {
        Some(()) => JobStatus::Done,
        None => JobStatus::Malformed,
    }
}

/// Opens one ESP packet. The payload is zeroed if the ICV is wrong.
pub(crate) fn open(key: &KeyContext, sequence: u64, packet: &mut [u8]) -> JobStatus {
    if !well_formed(key, packet.len()) {
        return JobStatus::Malformed;
    }
    let opened = match &key.keys {
        KeyForm::Aead(aead) => {
            let Parts { aad, iv, body, icv } = Parts::of(key, sequence, packet);
            aead.open(iv, aad.bytes(), body, icv)
        }
        KeyForm::Pair(pair) => open_pair(key, pair, sequence, packet),
        KeyForm::Gmac(gmac) => open_gmac(key, gmac, sequence, packet),
        _ => None,
    };
    match opened {
        Some(()) => JobStatus::Done,
        None => JobStatus::AuthFailed,
    }
}

/// The AAD: SPI || sequence number, with the high half between them under ESN (RFC 4106 §5, RFC 4309 §5,
/// RFC 7634 §2.1).
struct Aad {
    bytes: [u8; 12],
    len: usize,
}

impl Aad {
    fn new(header: &[u8], esn: bool, sequence: u64) -> Self {
        let mut bytes = [0; 12];
        if esn {
            bytes[..4].copy_from_slice(&header[..4]);
            bytes[4..8].copy_from_slice(&((sequence >> 32) as u32).to_be_bytes());
            bytes[8..].copy_from_slice(&header[4..8]);
            Self { bytes, len: 12 }
        } else {
            bytes[..8].copy_from_slice(&header[..8]);
            Self { bytes, len: 8 }
        }
    }

    fn bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

/// The parts of a packet for an AEAD.
struct Parts<'a> {
    aad: Aad,
    iv: [u8; 8],
    body: &'a mut [u8],
    icv: &'a mut [u8],
}

impl<'a> Parts<'a> {
    /// Splits a packet, which must be well formed.
    fn of(key: &KeyContext, sequence: u64, packet: &'a mut [u8]) -> Self {
        let transform = key.transform();
        let (header, rest) = packet.split_at_mut(HEADER_LEN);
        let (explicit, sealed) = rest.split_at_mut(transform.iv_len());
        let (body, icv) = sealed.split_at_mut(sealed.len() - transform.icv_len());
        let mut iv = [0; 8];
        match transform.iv_kind() {
            // RFC 8750 §4: the IV is the 64-bit sequence number with ESN; otherwise four zero bytes and the 32-bit
            // one.
            IvKind::Implicit if key.esn() => iv = sequence.to_be_bytes(),
            IvKind::Implicit => iv[4..].copy_from_slice(&(sequence as u32).to_be_bytes()),
            _ => iv.copy_from_slice(explicit),
        }
        Self {
            aad: Aad::new(header, key.esn(), sequence),
            iv,
            body,
            icv,
        }
    }
}

fn seal_pair(key: &KeyContext, pair: &Pair, sequence: u64, packet: &mut [u8]) -> Option<()> {
    let (covered, icv) = packet.split_at_mut(packet.len() - pair.mac.icv_len());
    let (head, body) = covered.split_at_mut(HEADER_LEN + key.transform().iv_len());
    pair.cipher.encrypt(&head[HEADER_LEN..], body).ok()?;
    let mut high = [0; 4];
    let suffix = ah::icv_suffix(key.esn(), sequence, &mut high);
    pair.mac.write(covered, suffix, icv);
    Some(())
}

fn open_pair(key: &KeyContext, pair: &Pair, sequence: u64, packet: &mut [u8]) -> Option<()> {
    let (covered, icv) = packet.split_at_mut(packet.len() - pair.mac.icv_len());
    let mut high = [0; 4];
    let suffix = ah::icv_suffix(key.esn(), sequence, &mut high);
    let authentic = pair.mac.verify(covered, suffix, icv);
    let (head, body) = covered.split_at_mut(HEADER_LEN + key.transform().iv_len());
    if !authentic {
        body.fill(0);
        return None;
    }
    pair.cipher.decrypt(&head[HEADER_LEN..], body).ok()
}

/// Computes the ICV over SPI || sequence number || IV || payload (RFC 4543 §3.3, Figure 4). RFC 4543 §7 leaves the IV
/// out, which is an error of the text: draft-mcgrew-gcm-test-01 and Linux cover the IV.
fn gmac_icv(key: &KeyContext, gmac: &Aead, sequence: u64, packet: &[u8]) -> Option<[u8; 16]> {
    let iv = packet.get(HEADER_LEN..HEADER_LEN + 8)?.try_into().ok()?;
    let covered = packet.get(..packet.len() - key.transform().icv_len())?;
    let mut icv = [0; 16];
    if key.esn() {
        let aad = Aad::new(covered, true, sequence);
        joined::with(&[aad.bytes(), &covered[HEADER_LEN..]], |aad| {
            gmac.seal(iv, aad, &mut [], &mut icv)
        })?;
    } else {
        gmac.seal(iv, covered, &mut [], &mut icv)?;
    }
    Some(icv)
}

fn open_gmac(key: &KeyContext, gmac: &Aead, sequence: u64, packet: &mut [u8]) -> Option<()> {
    let expected = gmac_icv(key, gmac, sequence, packet)?;
    let (covered, icv) = packet.split_at_mut(packet.len() - expected.len());
    if !ah::same(&expected, icv) {
        covered[HEADER_LEN + key.transform().iv_len()..].fill(0);
        return None;
    }
    Some(())
}
