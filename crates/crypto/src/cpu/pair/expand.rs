//! The AES key schedule (FIPS 197 §5.2), with the processor's own S-box: no table that a cache could betray.

use std::arch::x86_64::*;

use super::RoundKeys;

/// The round keys, 16 bytes each, and the number of rounds. None unless the key has 16, 24 or 32 bytes.
#[target_feature(enable = "aes")]
pub(super) fn expand(key: &[u8], round_keys: &mut RoundKeys) -> Option<u8> {
    let words = key.len() / 4;
    if !matches!(key.len(), 16 | 24 | 32) {
        return None;
    }
    let rounds = words + 6;
    round_keys
        .as_flattened_mut()
        .get_mut(..key.len())?
        .copy_from_slice(key);
    let mut constant = 1u32;
    for at in words..4 * (rounds + 1) {
        let mut word = get(round_keys, at - 1);
        if at % words == 0 {
            // RotWord, in little-endian words.
            word = substitute(word).rotate_right(8) ^ constant;
            constant = (constant << 1) ^ ((constant >> 7) * 0x11b);
        } else if words > 6 && at % words == 4 {
            word = substitute(word);
        }
        let word = word ^ get(round_keys, at - words);
        round_keys.as_flattened_mut()[4 * at..4 * at + 4].copy_from_slice(&word.to_le_bytes());
    }
    Some(rounds as u8)
}

fn get(round_keys: &RoundKeys, word: usize) -> u32 {
    let key = &round_keys[word / 4];
    let at = word % 4 * 4;
    u32::from_le_bytes([key[at], key[at + 1], key[at + 2], key[at + 3]])
}

/// SubWord.
#[target_feature(enable = "aes")]
fn substitute(word: u32) -> u32 {
    let words = _mm_set1_epi32(word as i32);
    _mm_cvtsi128_si32(_mm_aeskeygenassist_si128::<0>(words)) as u32
}
