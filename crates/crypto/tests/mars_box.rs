//! The S-box of MARS.

use aws_lc_rs::digest;
use esplanade_crypto::testing::finalists::BOX;

/// SHA-1 of a counter, digits of e and pi, and a number that was searched for. Of two words of a half that have
/// two bytes in common, the first is tripled (MARS, the fixing of the S-box).
#[test]
fn the_box_is_derived() {
    let hash = |i: u32| {
        let words = [5 * i, 0xb7e1_5162, 0x243f_6a88, 0x0291_7d59].map(u32::to_le_bytes);
        let hash = digest::digest(&digest::SHA1_FOR_LEGACY_USE_ONLY, words.as_flattened());
        let words = hash.as_ref().as_chunks().0.iter();
        words
            .map(|word| u32::from_le_bytes(*word))
            .collect::<Vec<_>>()
    };
    let mut derived: Vec<u32> = (0..103).flat_map(hash).take(512).collect();
    for half in derived.chunks_mut(256) {
        for i in 0..256 {
            for j in i + 1..256 {
                let same = (half[i] ^ half[j]).to_le_bytes();
                if same.iter().filter(|byte| **byte == 0).count() >= 2 {
                    half[i] = half[i].wrapping_mul(3);
                }
            }
        }
    }
    assert_eq!(derived[..], BOX[..]);
}
