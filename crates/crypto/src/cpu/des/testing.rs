//! Gives tests the kernels of DES: chains without a MAC, and gates.

use std::ops::Range;

use super::word::Word;
use super::{Chain, DesCbcKey};
use crate::des::{BLOCK, DesKey};
use crate::tier::Tier;

/// A CBC chain in an arena: its key, IV and body.
pub type ArenaChain<'a> = (&'a [u8], [u8; BLOCK], Range<usize>);

pub fn encrypt(tier: Tier, arena: &mut [u8], chains: &[ArenaChain<'_>]) {
    // SAFETY: `with_chains` passes what the call needs.
    with_chains(tier, arena, chains, |list| unsafe {
        super::encrypt(tier, list)
    });
}

pub fn decrypt(tier: Tier, arena: &mut [u8], chains: &[ArenaChain<'_>]) {
    // SAFETY: `with_chains` passes what the call needs.
    with_chains(tier, arena, chains, |list| unsafe {
        super::decrypt(tier, list)
    });
}

/// Chains may overlap, as those of a hostile batch do.
fn with_chains(
    tier: Tier,
    arena: &mut [u8],
    chains: &[ArenaChain<'_>],
    work: impl FnOnce(&[Chain<'_>]),
) {
    assert!(tier.available());
    let key = |(key, ..): &ArenaChain<'_>| DesCbcKey::new(key).expect("a good length");
    let keys: Vec<DesCbcKey> = chains.iter().map(key).collect();
    let (room, start) = (arena.len(), arena.as_mut_ptr());
    let chains = chains.iter().zip(&keys).map(|((_, iv, range), key)| {
        assert!(range.end <= room);
        Chain {
            key,
            iv: *iv,
            body: start.wrapping_add(range.start),
            len: range.len() as u32,
        }
    });
    work(&chains.collect::<Vec<_>>());
}

pub fn library_encrypt(key: &[u8], iv: [u8; BLOCK], body: &mut [u8]) {
    let key = DesKey::new(key).expect("a good length");
    key.encrypt(iv, body);
}

pub fn library_decrypt(key: &[u8], iv: [u8; BLOCK], body: &mut [u8]) {
    let key = DesKey::new(key).expect("a good length");
    key.decrypt(iv, body);
}

/// A gate of the tier without vectors.
pub fn gate<const TABLE: i32>(a: u64, b: u64, c: u64) -> u64 {
    u64::gate::<TABLE>(a, b, c)
}

/// Tells whether a key is of 3DES. `None` if it has no good length.
pub fn is_triple(key: &[u8]) -> Option<bool> {
    DesCbcKey::new(key).map(|key| key.triple)
}
