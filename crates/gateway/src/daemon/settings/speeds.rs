//! Orders proposals of child SAs by what they cost this machine's CPU (`esp_proposals = adaptive`).
//!
//! Each transform is measured once in the life of the gateway. So a reload finds the same order, and connections whose
//! configuration is the same stay.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use esplanade_crypto::iana::{Encryption, Integrity};
use esplanade_crypto::{Transform, cost};
use esplanade_ike::config::EspProposal;

/// The cost of each transform, in nanoseconds for a thousand bytes.
static COSTS: Mutex<BTreeMap<Transform, u64>> = Mutex::new(BTreeMap::new());

/// Returns what was measured so far, in nanoseconds for a thousand bytes.
pub(in crate::daemon) fn measured() -> BTreeMap<Transform, u64> {
    COSTS.lock().unwrap_or_else(PoisonError::into_inner).clone()
}

fn cost_of(transform: Transform) -> u64 {
    let mut costs = COSTS.lock().unwrap_or_else(PoisonError::into_inner);
    let begun = Instant::now();
    let measured = || cost::measure(transform, || begun.elapsed()).unwrap_or(u64::MAX);
    *costs.entry(transform).or_insert_with(measured)
}

/// Puts proposals, and the algorithms in each, into the order of their costs, the cheapest first. Where costs are about
/// equal the order stays.
pub(in crate::daemon) fn order(proposals: &mut [EspProposal]) {
    order_by(proposals, &mut cost_of);
}

fn order_by(proposals: &mut [EspProposal], cost: &mut impl FnMut(Transform) -> u64) {
    for proposal in proposals.iter_mut() {
        let (ciphers, macs) = (proposal.encryption.clone(), proposal.integrity.clone());
        let mut of = |ciphers: &[_], macs: &[Integrity]| step(cheapest(ciphers, macs, cost));
        proposal
            .encryption
            .sort_by_cached_key(|cipher| of(&[*cipher], &macs));
        proposal
            .integrity
            .sort_by_cached_key(|mac| of(&ciphers, &[*mac]));
    }
    proposals.sort_by_cached_key(|one| step(cheapest(&one.encryption, &one.integrity, cost)));
}

/// Returns the cost of the cheapest pair.
fn cheapest(
    ciphers: &[(Encryption, u16)],
    macs: &[Integrity],
    cost: &mut impl FnMut(Transform) -> u64,
) -> u64 {
    transforms(ciphers, macs)
        .map(cost)
        .min()
        .unwrap_or(u64::MAX)
}

/// Returns what a proposal's algorithms make together.
pub(in crate::daemon) fn transforms(
    ciphers: &[(Encryption, u16)],
    macs: &[Integrity],
) -> impl Iterator<Item = Transform> {
    let with = ciphers.iter().flat_map(move |(cipher, bits)| {
        let alone = macs
            .is_empty()
            .then(|| Transform::esp(*cipher, *bits, None));
        let pairs = macs
            .iter()
            .map(|mac| Transform::esp(*cipher, *bits, Some(*mac)));
        alone.into_iter().chain(pairs)
    });
    with.flatten()
}

/// Returns the step of a scale of eighths of an octave: costs within 9 % are about equal.
fn step(cost: u64) -> u32 {
    const STEPS: f64 = 8.0;
    ((cost.max(1) as f64).log2() * STEPS).round() as u32
}

#[cfg(test)]
mod tests {
    use esplanade_crypto::iana::SequenceNumbers;

    use super::*;

    fn proposal(encryption: &[(Encryption, u16)], integrity: &[Integrity]) -> EspProposal {
        EspProposal {
            encryption: encryption.to_vec(),
            integrity: integrity.to_vec(),
            groups: Vec::new(),
            sequence_numbers: vec![SequenceNumbers::Bits32],
        }
    }

    /// The cost in the name's place of a list.
    fn priced(prices: &[(&str, u64)]) -> impl FnMut(Transform) -> u64 {
        let prices: BTreeMap<_, _> = prices
            .iter()
            .map(|(name, price)| ((*name).to_owned(), *price))
            .collect();
        move |transform| prices.get(&transform.name()).copied().unwrap_or(u64::MAX)
    }

    #[test]
    fn the_cheapest_comes_first_at_every_level() {
        use Encryption::{AesCbc, AesGcm16, ChaCha20Poly1305};
        let (sha1, sha2) = (Integrity::HmacSha1_96, Integrity::HmacSha2_256_128);
        let mut proposals = [
            proposal(&[(ChaCha20Poly1305, 0)], &[]),
            proposal(&[(AesCbc, 256), (AesCbc, 128)], &[sha2, sha1]),
            proposal(&[(AesGcm16, 256), (AesGcm16, 128)], &[]),
        ];
        let mut cost = priced(&[
            ("CHACHA20_POLY1305", 900),
            ("AES_CBC_256/HMAC_SHA2_256_128", 1500),
            ("AES_CBC_256/HMAC_SHA1_96", 1000),
            ("AES_CBC_128/HMAC_SHA2_256_128", 1200),
            ("AES_CBC_128/HMAC_SHA1_96", 700),
            ("AES_GCM_16_256", 150),
            ("AES_GCM_16_128", 120),
        ]);
        order_by(&mut proposals, &mut cost);
        assert_eq!(
            proposals,
            [
                proposal(&[(AesGcm16, 128), (AesGcm16, 256)], &[]),
                proposal(&[(AesCbc, 128), (AesCbc, 256)], &[sha1, sha2]),
                proposal(&[(ChaCha20Poly1305, 0)], &[]),
            ]
        );
    }

    #[test]
    fn about_equal_costs_leave_the_order() {
        use Encryption::{AesGcm16, ChaCha20Poly1305};
        let both = [
            proposal(&[(ChaCha20Poly1305, 0)], &[]),
            proposal(&[(AesGcm16, 128)], &[]),
        ];
        let mut proposals = both.clone();
        order_by(
            &mut proposals,
            &mut priced(&[("CHACHA20_POLY1305", 1000), ("AES_GCM_16_128", 990)]),
        );
        assert_eq!(proposals, both);
    }

    #[test]
    fn what_was_measured_is_not_measured_again() {
        let gcm = Transform::from_name("AES_GCM_16_128").unwrap();
        let first = cost_of(gcm);
        assert!(first > 0 && first < u64::MAX);
        assert_eq!(cost_of(gcm), first);
        assert_eq!(measured().get(&gcm), Some(&first));
    }
}
