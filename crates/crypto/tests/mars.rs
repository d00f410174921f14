//! Parts of MARS.

use esplanade_crypto::testing::finalists::{
    BOX, REPLACEMENTS, look_up_all, look_up_half, mend, walk,
};

/// The rule of the specification, bit by bit.
fn mended(key: u32, before: u32) -> u32 {
    let w = key | 3;
    let bit = |at: usize| w >> at & 1;
    let run = |low: usize| (low..low + 10).all(|at| bit(at) == bit(low));
    let inside = |at: usize| (at.saturating_sub(9)..=at.min(22)).any(run);
    let inner = |at: usize| bit(at - 1) == bit(at) && bit(at) == bit(at + 1);
    let mask: u32 = (2..31)
        .filter(|at| inside(*at) && inner(*at))
        .map(|at| 1 << at)
        .sum();
    w ^ REPLACEMENTS[key as usize & 3].rotate_left(before & 31) & mask
}

#[test]
fn keys_are_mended_as_specified() {
    let mut word = 1u32;
    for number in 0..100_000u32 {
        word = word.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        // Runs of every length at every place, some of ones and some of zeros.
        let run = u32::MAX >> (number / 32 % 32) << (number % 32);
        for key in [word, word | run, word & !run, run, !run] {
            assert_eq!(mend(key, word), mended(key, word), "{key:08x}");
        }
    }
}

#[test]
fn every_word_is_found() {
    for index in 0..512u32 {
        let others = [index | 0xabcd_e000, 511 - index, index ^ 0x100, 0];
        let expected = others.map(|index| BOX[index as usize & 511]);
        assert_eq!(walk(BOX, [others])[0], expected);
        let all = look_up_all([others, others.map(|index| index >> 4)]);
        assert_eq!(all[0], expected);
        assert_eq!(all[1], others.map(|index| BOX[index as usize >> 4 & 511]));
    }
}

#[test]
fn every_word_of_a_half_is_found() {
    for (half, first) in [(0, 0), (1, 256)] {
        for index in 0..256u32 {
            let others = [index | 0xabcd_ef00, 255 - index, index ^ 0x80, 0];
            let indices = [0, 4, 8, 12].map(|by| others.map(|index| index >> by));
            let found = look_up_half(half, indices);
            // Processors without byte shuffles walk.
            let (halves, _) = BOX.as_chunks::<256>();
            let walked = walk(&halves[half], indices);
            for (at, by) in [0, 4, 8, 12].into_iter().enumerate() {
                let expected = others.map(|index| BOX[first + (index >> by & 255) as usize]);
                assert_eq!((found[at], walked[at]), (expected, expected));
            }
        }
    }
}
