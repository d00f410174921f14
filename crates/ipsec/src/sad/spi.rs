//! Encodes an SA's slot in its SPI, readable only by this gateway.
//!
//! Blind forgers, of ICMP errors for example, must guess an SPI. Therefore the 32 bits are a keyed bijection of the
//! slot and a random tag. Without the key nobody can tell slots from tags, or predict one SPI from another.
//!
//! The low 10 bits are a permutation of the slot's low 10 bits. An engine that places SAs by these bits finds up to
//! 1,024 SAs of neighbouring slots at different places.

use esplanade_crypto::random::{self, RandomError};

pub(super) const SLOT_BITS: u32 = 20;
const LOW_BITS: u32 = 10;
const LOW: usize = 1 << LOW_BITS;
const LOW_MASK: u32 = LOW as u32 - 1;
/// Half the number of bits above the low bits.
const HALF_BITS: u32 = 11;
const HALF_MASK: u32 = (1 << HALF_BITS) - 1;
const ROUNDS: usize = 3;

/// The slot of an SA, and a tag of 12 bits that tells the SA from others that were in the slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SpiPlace {
    pub slot: u32,
    pub tag: u32,
}

pub(super) struct SpiCode {
    /// The keys of a Feistel network over the upper bits. Its round functions are multiplicative hashes.
    factors: [u64; ROUNDS],
    /// Indexed by the low bits of an SPI: the low bits of its slot, and above them a mask for the upper bits.
    decoded: Box<[u32; LOW]>,
    /// Indexed by the low bits of a slot: the low bits of its SPI.
    encoded: Box<[u16; LOW]>,
}

impl SpiCode {
    pub fn new() -> Result<Self, RandomError> {
        let mut key = [0; (ROUNDS + 2 * LOW) * size_of::<u64>()];
        random::fill(&mut key)?;
        let (words, _) = key.as_chunks();
        let words: Vec<u64> = words.iter().copied().map(u64::from_ne_bytes).collect();
        let (of_rounds, rest) = words.split_at(ROUNDS);
        let (of_shuffle, of_masks) = rest.split_at(LOW);
        let mut encoded: Box<[u16; LOW]> = Box::new(std::array::from_fn(|at| at as u16));
        for (at, word) in of_shuffle.iter().enumerate() {
            encoded.swap(at, (word % (at as u64 + 1)) as usize);
        }
        let mut decoded = Box::new([0; LOW]);
        for ((slot, spi), mask) in encoded.iter().enumerate().zip(of_masks) {
            decoded[usize::from(*spi)] = (*mask as u32) << LOW_BITS | slot as u32;
        }
        Ok(Self {
            factors: std::array::from_fn(|round| of_rounds[round] | 1),
            decoded,
            encoded,
        })
    }

    /// A code without a key: the low 20 bits are the slot, and the other bits the tag.
    pub fn plain() -> Self {
        Self {
            factors: [0; ROUNDS],
            decoded: Box::new(std::array::from_fn(|at| at as u32)),
            encoded: Box::new(std::array::from_fn(|at| at as u16)),
        }
    }

    pub fn encode(&self, place: SpiPlace) -> u32 {
        let low = u32::from(self.encoded[(place.slot & LOW_MASK) as usize]);
        let high = place.tag << (SLOT_BITS - LOW_BITS) | place.slot >> LOW_BITS;
        let (mut left, mut right) = (high >> HALF_BITS, high & HALF_MASK);
        for factor in self.factors {
            left ^= hash(factor, right);
            (left, right) = (right, left);
        }
        // The halves go back to their places, so that a code without keys changes nothing.
        (right << HALF_BITS | left) << LOW_BITS ^ (self.decoded[low as usize] & !LOW_MASK) ^ low
    }

    #[inline]
    pub fn decode(&self, spi: u32) -> SpiPlace {
        let decoded = self.decoded[(spi & LOW_MASK) as usize];
        let high = (spi ^ decoded) >> LOW_BITS;
        let (mut right, mut left) = (high >> HALF_BITS, high & HALF_MASK);
        for factor in self.factors.iter().rev() {
            (left, right) = (right, left);
            left ^= hash(*factor, right);
        }
        let high = left << HALF_BITS | right;
        let slot_high = high & ((1 << (SLOT_BITS - LOW_BITS)) - 1);
        SpiPlace {
            slot: slot_high << LOW_BITS | decoded & LOW_MASK,
            tag: high >> (SLOT_BITS - LOW_BITS),
        }
    }
}

#[inline(always)]
fn hash(factor: u64, half: u32) -> u32 {
    (u64::from(half).wrapping_mul(factor) >> (64 - HALF_BITS)) as u32
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn every_spi_is_one_place_and_every_place_one_spi(spi in any::<u32>()) {
            let code = SpiCode::new().unwrap();
            let place = code.decode(spi);
            prop_assert!(place.slot < 1 << SLOT_BITS && place.tag < 1 << (32 - SLOT_BITS));
            prop_assert_eq!(code.encode(place), spi);
        }
    }

    #[test]
    fn plain_is_plain() {
        let place = SpiPlace {
            slot: 0x6_7890,
            tag: 0x345,
        };
        assert_eq!(SpiCode::plain().encode(place), 0x3456_7890);
    }

    #[test]
    fn neighbouring_slots_differ_in_the_low_bits() {
        let code = SpiCode::new().unwrap();
        let low = |slot| {
            code.encode(SpiPlace {
                slot,
                tag: slot * 3 % 4095 + 1,
            }) & LOW_MASK
        };
        let seen: HashSet<u32> = (3000..3000 + LOW as u32).map(low).collect();
        assert_eq!(seen.len(), LOW);
    }

    /// The tags of one slot, and the slots of one tag, spread over all bits: no bit is constant. The first slots have
    /// different SPIs under two keys.
    #[test]
    fn no_bit_of_an_spi_is_known() {
        let codes: Vec<SpiCode> = (0..64).map(|_| SpiCode::new().unwrap()).collect();
        for place in [
            SpiPlace { slot: 0, tag: 1 },
            SpiPlace { slot: 1, tag: 4095 },
        ] {
            let spis: HashSet<u32> = codes.iter().map(|code| code.encode(place)).collect();
            assert!(spis.len() > 60, "{}", spis.len());
            let (ones, zeros) = spis
                .iter()
                .fold((0, 0), |(ones, zeros), spi| (ones | spi, zeros | !spi));
            assert_eq!((ones, zeros), (u32::MAX, u32::MAX));
        }
        // Under one key a bit may lean to a side. Who does not know the key does not know to which.
        let tags = 1..4096;
        let all = codes.len() * tags.len();
        for bit in LOW_BITS..32 {
            let is_set =
                |code: &SpiCode, tag| code.encode(SpiPlace { slot: 0, tag }) >> bit & 1 == 1;
            let of_code = |code| tags.clone().filter(|tag| is_set(code, *tag)).count();
            let ones: usize = codes.iter().map(of_code).sum();
            assert!(
                (all / 5 * 2..all / 5 * 3).contains(&ones),
                "bit {bit}: {ones} of {all}"
            );
        }
    }
}
