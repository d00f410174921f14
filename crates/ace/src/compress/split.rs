//! Removal of phrases: a codeword that names one becomes two codewords.
//!
//! A phrase is *A·S*, where the string *S* is a phrase too: one of the phrases that it ends with. The nodes of *S* below
//! *A* are removed where the dictionary loses more bits by it than the index gains.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::trie::{NONE, Trie};
use super::{Compressed, Index};

/// How many strings are tried at the end of a phrase. Each is at most three quarters as long as the one before.
const STRINGS_MAX: usize = 8;

/// The worth of a removal, and where removals end.
#[derive(Debug, Clone, Copy)]
pub(super) struct Terms {
    /// The bits of a codeword.
    pub width: u32,
    /// The bits that a node is worth beyond its own.
    pub bonus: i64,
    /// No phrase is removed when so few are left.
    pub phrases_min: usize,
}

/// Phase II at the width of the dictionary.
pub(super) fn phase_two(one: &Compressed) -> Compressed {
    let width = one.accounting().width();
    split(
        one,
        Terms {
            width,
            bonus: 0,
            phrases_min: 1,
        },
    )
}

/// Removes phrases. First none is removed for which another one would have to stay: a phrase that a codeword names for
/// the second time is seldom worth its own removal.
pub(super) fn split(from: &Compressed, terms: Terms) -> Compressed {
    let mut splitter = Splitter::new(from, terms);
    for spare_single in [true, false] {
        splitter.run(spare_single);
    }
    splitter.finish(from)
}

struct Splitter<'a> {
    trie: &'a Trie,
    terms: Terms,
    depths: Vec<u32>,
    suffixes: Vec<u32>,
    /// The codewords that name a phrase.
    counts: Vec<u32>,
    /// The kept phrases that go on from a phrase.
    children: Vec<u32>,
    /// The two phrases that a removed phrase has become.
    rules: Vec<Option<(u32, u32)>>,
    left: usize,
}

/// The removal of the last nodes of a phrase.
struct Removal {
    gain: i64,
    nodes: usize,
    /// The phrase that stays in front of the string, and the string.
    head: u32,
    string: u32,
}

impl<'a> Splitter<'a> {
    fn new(from: &'a Compressed, terms: Terms) -> Self {
        let trie = &from.trie;
        let depths = trie.depths();
        let mut children = vec![0; trie.len()];
        for &parent in &trie.parents {
            if parent != NONE {
                children[parent as usize] += 1;
            }
        }
        Self {
            trie,
            terms,
            suffixes: trie.suffixes(&depths),
            depths,
            counts: from.counts(),
            children,
            rules: vec![None; trie.len()],
            left: trie.len(),
        }
    }

    fn run(&mut self, spare_single: bool) {
        let leaves = (0u32..)
            .take(self.trie.len())
            .filter(|&phrase| self.is_leaf(phrase));
        let mut heap: BinaryHeap<_> = leaves
            .map(|leaf| Reverse((self.counts[leaf as usize], leaf)))
            .collect();
        while let Some(Reverse((count, leaf))) = heap.pop() {
            let now = self.counts[leaf as usize];
            if now != count {
                heap.push(Reverse((now, leaf)));
                continue;
            }
            if self.left <= self.terms.phrases_min {
                return;
            }
            let Some(removal) = self.best(leaf, spare_single) else {
                continue;
            };
            let parent = self.remove(leaf, &removal);
            if parent != NONE && self.is_leaf(parent) {
                heap.push(Reverse((self.counts[parent as usize], parent)));
            }
        }
    }

    fn is_leaf(&self, phrase: u32) -> bool {
        let at = phrase as usize;
        self.children[at] == 0 && self.rules[at].is_none()
    }

    /// The best removal at the end of a phrase, if any saves memory.
    fn best(&self, leaf: u32, spare_single: bool) -> Option<Removal> {
        let mut best: Option<Removal> = None;
        let (mut string, mut tried, mut longest) = (self.suffixes[leaf as usize], 0, u32::MAX);
        while string != NONE && tried < STRINGS_MAX {
            let length = self.depths[string as usize];
            if self.rules[string as usize].is_none() && length <= longest {
                tried += 1;
                longest = (length * 3 / 4).max(1);
                let removal = self.removal(leaf, string, spare_single);
                if removal.gain > best.as_ref().map_or(0, |best| best.gain) {
                    best = Some(removal);
                }
            }
            string = self.suffixes[string as usize];
        }
        best
    }

    /// Removes as many nodes of a string at the end of a phrase as saves most.
    fn removal(&self, leaf: u32, string: u32, spare_single: bool) -> Removal {
        let length = self.depths[string as usize] as usize;
        let mut head = leaf;
        for _ in 0..length {
            head = self.trie.parents[head as usize];
        }
        let width = i64::from(self.terms.width);
        let spared = |phrase: u32| i64::from(spare_single && self.counts[phrase as usize] == 1) * 8;
        let (mut gain, mut best) = (
            -spared(head),
            Removal {
                gain: 0,
                nodes: 0,
                head,
                string,
            },
        );
        let (mut node, mut target) = (leaf, string);
        for at in 0..length {
            // A node with other phrases behind it stays, and so does the string.
            if at > 0 && (self.children[node as usize] != 1 || node == string) {
                break;
            }
            let count = i64::from(self.counts[node as usize]);
            gain += 8 + width + self.terms.bonus - count * width - spared(target);
            if gain > best.gain {
                (best.gain, best.nodes) = (gain, at + 1);
            }
            node = self.trie.parents[node as usize];
            target = self.trie.parents[target as usize];
        }
        best
    }

    /// Returns the last node that stays.
    fn remove(&mut self, leaf: u32, removal: &Removal) -> u32 {
        let (mut node, mut target) = (leaf, removal.string);
        for _ in 0..removal.nodes {
            let count = std::mem::take(&mut self.counts[node as usize]);
            self.rules[node as usize] = Some((removal.head, target));
            self.counts[removal.head as usize] += count;
            self.counts[target as usize] += count;
            node = self.trie.parents[node as usize];
            target = self.trie.parents[target as usize];
        }
        self.left -= removal.nodes;
        if node != NONE {
            self.children[node as usize] -= 1;
        }
        node
    }

    fn finish(&self, from: &Compressed) -> Compressed {
        let (trie, numbers) = self.trie.only(|phrase| self.rules[phrase].is_none());
        let indices = from.indices.iter().map(|index| {
            let mut codewords = Vec::with_capacity(index.codewords.len());
            let mut stack = Vec::new();
            for &codeword in &index.codewords {
                stack.push(codeword);
                while let Some(word) = stack.pop() {
                    match self.rules[word as usize] {
                        Some((head, string)) => stack.extend([string, head]),
                        None => codewords.push(numbers[word as usize]),
                    }
                }
            }
            Index {
                codewords,
                symbols: index.symbols,
            }
        });
        let indices = indices.collect();
        Compressed { trie, indices }
    }
}
