//! The AES key schedule (FIPS 197 §5.2) with the processor's own S-box. There is no table, so cache timing reveals
//! nothing about the key.
//!
//! `aesenclast` puts each byte through the S-box and adds a round key. ShiftRows does not change a vector whose four
//! words are equal. For such a vector the instruction yields SubWord(word) ⊕ constant in all four words. That is the
//! start of a new round key. Shifts then add up the words of the round key before: w0, w0 ⊕ w1, w0 ⊕ w1 ⊕ w2, …

use std::arch::x86_64::*;

/// Room for the round keys of up to 14 rounds.
pub(crate) type RoundKeys = [[u8; 16]; 15];

/// Sets the round keys and returns the number of rounds. Returns `None` unless the key has 16, 24 or 32 bytes.
#[target_feature(enable = "aes,ssse3")]
pub(crate) fn expand(key: &[u8], round_keys: &mut RoundKeys) -> Option<usize> {
    if let Ok(key) = key.try_into() {
        expand_128(key, round_keys);
    } else if let Ok(key) = key.try_into() {
        expand_192(key, round_keys);
    } else {
        expand_256(key.try_into().ok()?, round_keys);
    }
    Some(key.len() / 4 + 6)
}

/// The round constants (FIPS 197 §5.2).
const CONSTANTS: [u8; 10] = [0x01, 0x02, 0x04, 0x08, 0x10, 0x20, 0x40, 0x80, 0x1b, 0x36];

#[target_feature(enable = "aes,ssse3")]
fn expand_128(key: &[u8; 16], round_keys: &mut RoundKeys) {
    let mut last = load(key);
    store(&mut round_keys[0], last);
    for (constant, round_key) in CONSTANTS.iter().zip(&mut round_keys[1..]) {
        last = _mm_xor_si128(sums(last), rotated::<3>(last, *constant));
        store(round_key, last);
    }
}

/// Works on six words at a time. The sixth word is the one that goes through the S-box.
#[target_feature(enable = "aes,ssse3")]
fn expand_192(key: &[u8; 24], round_keys: &mut RoundKeys) {
    const STEP: usize = 24;
    let bytes = round_keys.as_flattened_mut();
    bytes[..STEP].copy_from_slice(key);
    let (mut four, mut two) = (load_at(key, 0), load_at(key, 8));
    // Moves words 4 and 5 to the front of the vector.
    two = _mm_srli_si128::<8>(two);
    for (number, &constant) in CONSTANTS[..8].iter().enumerate() {
        four = _mm_xor_si128(sums(four), rotated::<1>(two, constant));
        let at = STEP * (number + 1);
        store_at(bytes, at, four);
        // The schedule has 52 words, so the last step needs only four.
        if number < 7 {
            let before = _mm_shuffle_epi32::<0xff>(four);
            two = _mm_xor_si128(_mm_xor_si128(two, _mm_slli_si128::<4>(two)), before);
            let words = _mm_cvtsi128_si64(two).to_le_bytes();
            bytes[at + 16..at + STEP].copy_from_slice(&words);
        }
    }
}

#[target_feature(enable = "aes,ssse3")]
fn expand_256(key: &[u8; 32], round_keys: &mut RoundKeys) {
    let (mut even, mut odd) = (load_at(key, 0), load_at(key, 16));
    store(&mut round_keys[0], even);
    store(&mut round_keys[1], odd);
    let pairs = round_keys[2..].chunks_mut(2);
    for (constant, pair) in CONSTANTS.iter().zip(pairs) {
        even = _mm_xor_si128(sums(even), rotated::<3>(odd, *constant));
        store(&mut pair[0], even);
        if let Some(round_key) = pair.get_mut(1) {
            let same = _mm_shuffle_epi32::<0xff>(even);
            let substituted = _mm_aesenclast_si128(same, _mm_setzero_si128());
            odd = _mm_xor_si128(sums(odd), substituted);
            store(round_key, odd);
        }
    }
}

/// Returns each word XOR all words before it.
#[inline]
#[target_feature(enable = "aes,ssse3")]
fn sums(words: __m128i) -> __m128i {
    let pairs = _mm_xor_si128(words, _mm_slli_si128::<4>(words));
    _mm_xor_si128(pairs, _mm_slli_si128::<8>(pairs))
}

/// Returns SubWord(RotWord(word number `WORD`)) ⊕ constant in all four words.
#[inline]
#[target_feature(enable = "aes,ssse3")]
fn rotated<const WORD: i32>(words: __m128i, constant: u8) -> __m128i {
    let rotation = _mm_set1_epi32(0x0003_0201 + 0x0404_0404 * WORD);
    let same = _mm_shuffle_epi8(words, rotation);
    _mm_aesenclast_si128(same, _mm_set1_epi32(constant.into()))
}

#[inline]
#[target_feature(enable = "aes,ssse3")]
fn load(bytes: &[u8; 16]) -> __m128i {
    // SAFETY: the reference covers 16 readable bytes.
    unsafe { _mm_loadu_si128(bytes.as_ptr().cast()) }
}

/// Loads the 16 bytes from `at` on. The caller ensures that they exist; otherwise the result is zero.
#[inline]
#[target_feature(enable = "aes,ssse3")]
fn load_at(bytes: &[u8], at: usize) -> __m128i {
    match bytes[at..].first_chunk() {
        Some(bytes) => load(bytes),
        None => _mm_setzero_si128(),
    }
}

#[inline]
#[target_feature(enable = "aes,ssse3")]
fn store(bytes: &mut [u8; 16], value: __m128i) {
    // SAFETY: the reference covers 16 writable bytes.
    unsafe { _mm_storeu_si128(bytes.as_mut_ptr().cast(), value) }
}

/// Stores to the 16 bytes from `at` on. The caller ensures that they exist; otherwise nothing is stored.
#[inline]
#[target_feature(enable = "aes,ssse3")]
fn store_at(bytes: &mut [u8], at: usize, value: __m128i) {
    if let Some(bytes) = bytes[at..].first_chunk_mut() {
        store(bytes, value);
    }
}
