//! Past phase II: inputs are read again with the fewest codewords, and phrases go until codewords can be narrower.

use super::split::{Terms, split};
use super::trie::{NONE, Trie};
use super::{Compressed, Index};

/// The rounds of removal. Each is worth more to it than the one before.
const ROUNDS: u32 = 24;
/// The bits that the worth of a node grows by in each round.
const BONUS_STEP: i64 = 3;

/// Removes phrases from the dictionary of phase I round by round. No round goes below the number of phrases for which
/// codewords become a bit narrower. The smallest result counts.
pub(super) fn phase_three(inputs: &[&[u8]], one: &Compressed, two: Compressed) -> Compressed {
    let mut best = two;
    let mut current = reparse(inputs, &one.trie);
    for round in 0..ROUNDS {
        let accounting = current.accounting();
        if accounting.bits() < best.accounting().bits() {
            best = current.clone();
        }
        let width = accounting.width();
        let terms = Terms {
            width,
            bonus: i64::from(round) * BONUS_STEP,
            phrases_min: 1 << (width - 1),
        };
        current = reparse(inputs, &split(&current, terms).trie);
    }
    best
}

/// Reads all inputs with the fewest codewords, and drops phrases that none names.
///
/// Phrases go on from phrases, so a beginning of a text never needs more codewords than the text. The longest phrase
/// that a text ends with therefore begins at the best place.
fn reparse(inputs: &[&[u8]], trie: &Trie) -> Compressed {
    let suffixes = trie.suffixes(&trie.depths());
    let depths = trie.depths();
    let indices: Vec<_> = inputs
        .iter()
        .map(|input| Index {
            codewords: fewest(input, trie, &suffixes, &depths),
            symbols: input.len() as u32,
        })
        .collect();
    let parsed = Compressed {
        trie: trie.clone(),
        indices,
    };
    parsed.needed()
}

fn fewest(input: &[u8], trie: &Trie, suffixes: &[u32], depths: &[u32]) -> Vec<u32> {
    // The longest phrase that ends with each symbol, from the end of the input to its beginning.
    let mut phrase = NONE;
    let mut longest = Vec::with_capacity(input.len());
    for &symbol in input.iter().rev() {
        phrase = loop {
            match trie.child(phrase, symbol) {
                Some(longer) => break longer,
                None if phrase == NONE => break NONE,
                None => phrase = suffixes[phrase as usize],
            }
        };
        longest.push(phrase);
    }
    let mut codewords = Vec::new();
    let mut end = longest.len();
    while end > 0 {
        let phrase = longest[end - 1];
        codewords.push(phrase);
        end -= depths[phrase as usize] as usize;
    }
    codewords.reverse();
    codewords
}

impl Compressed {
    /// Drops phrases that neither a codeword nor a phrase that stays needs.
    fn needed(&self) -> Self {
        let mut needed: Vec<bool> = self.counts().iter().map(|&count| count > 0).collect();
        for phrase in (0..self.trie.len()).rev() {
            let parent = self.trie.parents[phrase];
            if needed[phrase] && parent != NONE {
                needed[parent as usize] = true;
            }
        }
        self.keep(|phrase| needed[phrase])
    }
}

#[cfg(test)]
mod tests {
    use super::super::lzw;
    use super::*;
    use proptest::prelude::*;

    /// The fewest phrases for each beginning of a text, by trying all.
    fn fewest_by_trial(text: &[u8], trie: &Trie) -> usize {
        let mut counts = vec![usize::MAX; text.len() + 1];
        counts[0] = 0;
        for from in 0..text.len() {
            let mut phrase = NONE;
            for to in from..text.len() {
                let Some(longer) = trie.child(phrase, text[to]) else {
                    break;
                };
                phrase = longer;
                counts[to + 1] = counts[to + 1].min(counts[from].saturating_add(1));
            }
        }
        counts[text.len()]
    }

    proptest! {
        #[test]
        fn no_reading_has_fewer_codewords(
            text in proptest::collection::vec(0..3u8, 1..300),
            learned in proptest::collection::vec(0..3u8, 1..300),
        ) {
            let trie = lzw(&[&learned]).trie;
            let parsed = reparse(&[&text], &trie);
            let reversed: Vec<u8> = text.iter().rev().copied().collect();
            let fewest = fewest_by_trial(&reversed, &trie);
            prop_assert_eq!(parsed.accounting().codewords as usize, fewest);
        }
    }
}
