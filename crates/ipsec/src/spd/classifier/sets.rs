//! One dimension of a page: the rules that cover each interval of values.

use super::ranks::{Ranks, Value};

/// Sets of at most this many rules are lists: comparing so few packets' fields with rules is cheaper than any bitmap.
const LIST_MAX: u32 = 8;
/// Words of a chunk, and bits of a word.
const FANOUT: usize = 64;
/// Rules that a chunk stands for.
pub(super) const CHUNK: usize = FANOUT * FANOUT;

/// The rules of one interval.
#[derive(Clone, Copy, Debug)]
pub(super) struct Set {
    rules: u32,
    /// The rule if it is one; else into `lists` if there are few, else into `chunks`.
    at: u32,
}

/// 64 words of a bitmap of rules, of which those that are not zero are there.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Chunk {
    pub(super) present: u64,
    words: u32,
}

/// The intervals between the boundaries of all rules in this dimension, and their sets. Neighbours share the chunks
/// that are the same, so n rules need at most 2n chunks of 512 bytes beside the roots.
#[derive(Debug)]
pub(super) struct Dimension<V: Value> {
    ranks: V::Ranks,
    sets: Vec<Set>,
    lists: Vec<u16>,
    chunks: Vec<Chunk>,
    words: Vec<u64>,
    chunks_per_set: usize,
}

pub(super) enum Found<'a> {
    Few(Few<'a>),
    Bitmap(Bitmap<'a>),
}

/// Few rules, in their order.
#[derive(Clone, Copy)]
pub(super) enum Few<'a> {
    /// Told apart because it saves a look at the list, which may not be in the cache.
    One(u16),
    List(&'a [u16]),
}

impl<'a> Few<'a> {
    pub(super) fn iter(self) -> impl Iterator<Item = usize> + 'a {
        let (one, list) = match self {
            Self::One(rule) => (Some(rule), &[][..]),
            Self::List(list) => (None, list),
        };
        one.into_iter().chain(list.iter().copied()).map(usize::from)
    }
}

#[derive(Clone, Copy)]
pub(super) struct Bitmap<'a> {
    pub(super) chunks: &'a [Chunk],
    words: &'a [u64],
}

impl Bitmap<'_> {
    pub(super) const EMPTY: Self = Self {
        chunks: &[],
        words: &[],
    };

    pub(super) fn present(&self, chunk: usize) -> u64 {
        self.chunks.get(chunk).map_or(0, |c| c.present)
    }

    /// Word `index` of a chunk, which is present there.
    pub(super) fn word(&self, chunk: usize, index: u32) -> u64 {
        let Some(chunk) = self.chunks.get(chunk) else {
            return 0;
        };
        let before = match chunk.present {
            u64::MAX => index,
            present => (present & ((1 << index) - 1)).count_ones(),
        };
        let at = chunk.words as usize + before as usize;
        self.words.get(at).copied().unwrap_or(0)
    }
}

impl<V: Value> Dimension<V> {
    /// From the range of every rule of the page, in their order. None if every rule has all values.
    pub(super) fn new(ranges: impl ExactSizeIterator<Item = (V, V)> + Clone) -> Option<Self> {
        if ranges.clone().all(|range| range == (V::MIN, V::MAX)) {
            return None;
        }
        let mut builder = Builder::new(ranges.len());
        // Where a rule begins, and behind where it ends.
        let mut events = Vec::with_capacity(2 * ranges.len());
        for (rule, (first, last)) in ranges.enumerate() {
            events.push((first, rule as u16));
            events.extend(last.next().map(|behind| (behind, rule as u16)));
        }
        events.sort_unstable();
        let mut boundaries = Vec::new();
        if events.first().is_none_or(|(at, _)| *at != V::MIN) {
            boundaries.push(V::MIN);
            builder.emit();
        }
        for same in events.chunk_by(|a, b| a.0 == b.0) {
            for (at, rule) in same {
                builder.flip(*rule);
                if boundaries.last() != Some(at) {
                    boundaries.push(*at);
                }
            }
            builder.emit();
        }
        Some(Self {
            ranks: V::Ranks::new(&boundaries),
            sets: builder.sets,
            lists: builder.lists,
            chunks_per_set: builder.state.len(),
            chunks: builder.chunks,
            words: builder.words,
        })
    }

    pub(super) fn find(&self, value: V) -> Found<'_> {
        let Some(set) = self.sets.get(self.ranks.find(value)) else {
            return Found::Few(Few::List(&[]));
        };
        let at = set.at as usize;
        match set.rules {
            1 => return Found::Few(Few::One(set.at as u16)),
            0..=LIST_MAX => {
                let list = self.lists.get(at..at + set.rules as usize).unwrap_or(&[]);
                return Found::Few(Few::List(list));
            }
            _ => {}
        }
        Found::Bitmap(Bitmap {
            chunks: self.chunks.get(at..at + self.chunks_per_set).unwrap_or(&[]),
            words: &self.words,
        })
    }

    /// Bytes on the heap.
    pub(super) fn memory(&self) -> usize {
        let sets = self.sets.len() * (size_of::<Set>() + size_of::<V>());
        sets + self.lists.len() * 2 + self.chunks.len() * size_of::<Chunk>() + self.words.len() * 8
    }
}

/// Sweeps over the boundaries with the set of the rules that cover the present interval.
struct Builder {
    state: Vec<State>,
    rules: u32,
    sets: Vec<Set>,
    lists: Vec<u16>,
    chunks: Vec<Chunk>,
    words: Vec<u64>,
}

struct State {
    words: [u64; FANOUT],
    /// Bit `i` is set if word `i` is not zero.
    present: u64,
    /// What was written last, if that is still so.
    written: Option<Chunk>,
}

impl Builder {
    fn new(rules: usize) -> Self {
        let state = || State {
            words: [0; FANOUT],
            present: 0,
            written: None,
        };
        Self {
            state: std::iter::repeat_with(state)
                .take(rules.div_ceil(CHUNK))
                .collect(),
            rules: 0,
            sets: Vec::new(),
            lists: Vec::new(),
            chunks: Vec::new(),
            words: Vec::new(),
        }
    }

    /// The rule begins, or ends if it has begun.
    fn flip(&mut self, rule: u16) {
        let rule = usize::from(rule);
        let Some(state) = self.state.get_mut(rule / CHUNK) else {
            return;
        };
        let (word, bit) = (rule / FANOUT % FANOUT, 1 << (rule % FANOUT));
        state.words[word] ^= bit;
        state.written = None;
        match state.words[word] & bit {
            0 => self.rules -= 1,
            _ => self.rules += 1,
        }
        match state.words[word] {
            0 => state.present &= !(1 << word),
            _ => state.present |= 1 << word,
        }
    }

    /// Writes the set of the interval that begins here.
    fn emit(&mut self) {
        let few = self.rules <= LIST_MAX;
        let at = if few {
            self.lists.len()
        } else {
            self.chunks.len()
        } as u32;
        self.sets.push(Set {
            rules: self.rules,
            at,
        });
        let first_list = self.lists.len();
        for (index, state) in self.state.iter_mut().enumerate() {
            if few {
                let base = (index * CHUNK) as u32;
                let rules = bits(state.present).flat_map(|at| {
                    let word = state.words[at as usize];
                    bits(word).map(move |bit| (base + at * FANOUT as u32 + bit) as u16)
                });
                self.lists.extend(rules);
            } else {
                let chunk = *state.written.get_or_insert_with(|| {
                    let words = self.words.len() as u32;
                    let present = state.present;
                    self.words
                        .extend(bits(present).map(|at| state.words[at as usize]));
                    Chunk { present, words }
                });
                self.chunks.push(chunk);
            }
        }
        if self.rules == 1
            && let (Some(rule), Some(set)) = (self.lists.get(first_list), self.sets.last_mut())
        {
            set.at = u32::from(*rule);
            self.lists.truncate(first_list);
        }
    }
}

/// The numbers of the bits that are set, lowest first.
pub(super) fn bits(mut word: u64) -> impl Iterator<Item = u32> {
    std::iter::from_fn(move || {
        let bit = (word != 0).then(|| word.trailing_zeros())?;
        word &= word - 1;
        Some(bit)
    })
}
