//! A dimension of a page: the rules that cover each interval of values.

use std::ops::ControlFlow;

use super::ranks::{DimensionValue, Ranks};

/// The most rules in a page. A rule's number in its page has 16 bits.
pub(super) const PAGE_RULES: usize = 1 << 16;
/// Sets of at most this many rules are lists: comparing so few rules with the packet is cheaper than any bitmap.
const LIST_MAX: u32 = 8;
/// The `len` of a set that is a bitmap.
const MANY: u16 = u16::MAX;
/// The number of words in a line.
pub(super) const WORDS: usize = 8;
/// The number of rules in a line.
pub(super) const LINE: usize = 64 * WORDS;

/// The set of rules that cover one interval.
#[derive(Clone, Copy, Debug)]
pub(super) struct Set {
    /// The length of a list, or [`MANY`].
    len: u16,
    /// The first rule of the set, if the set has one.
    first: u16,
    /// The index of the set in `lists` or `tables`.
    at: u32,
}

/// A cache line of a bitmap.
#[derive(Clone, Copy, Debug)]
#[repr(align(64))]
struct Line([u64; WORDS]);

/// The index of a line. The low bits say which words of the line are not zero, one bit per word.
#[derive(Clone, Copy, Debug)]
struct LineAt(u32);

impl LineAt {
    fn new(line: usize, words: u8) -> Self {
        Self((line as u32) << WORDS | u32::from(words))
    }

    fn index(self) -> usize {
        (self.0 >> WORDS) as usize
    }
}

/// The intervals between the boundaries of all rules in this dimension, and their sets. Neighbouring intervals share
/// equal lines, so n rules need at most 2n lines of 64 bytes besides the tables.
#[derive(Debug)]
pub(super) struct Dimension<V: DimensionValue> {
    ranks: V::Ranks,
    sets: Vec<Set>,
    /// The first line of every bitmap, by interval. Most lookups need no other line.
    heads: Vec<LineAt>,
    /// The other lines of the bitmaps, `table_len` for each bitmap.
    tables: Vec<LineAt>,
    table_len: usize,
    lines: Vec<Line>,
    lists: Vec<u16>,
}

/// A short list of rules, in their order.
#[derive(Clone, Copy)]
pub(super) enum Few<'a> {
    /// A single rule. It needs no load of the list, which may not be in the cache.
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
    /// The first rule of the set. No rule before it is in the set.
    pub(super) first: u16,
    head: LineAt,
    table: &'a [LineAt],
    lines: &'a [Line],
}

impl Bitmap<'static> {
    /// The set of all rules of a page.
    pub(super) const ALL: Self = Self {
        first: 0,
        head: LineAt(0xff),
        table: &[LineAt(0xff); PAGE_RULES / LINE - 1],
        lines: &[Line([u64::MAX; WORDS])],
    };
}

impl Bitmap<'_> {
    #[inline]
    fn line_at(&self, line: usize) -> LineAt {
        match line.checked_sub(1) {
            None => self.head,
            Some(at) => self.table.get(at).copied().unwrap_or(LineAt(0)),
        }
    }

    /// The words of a line that are not zero, one bit per word.
    #[inline]
    pub(super) fn words(&self, line: usize) -> u32 {
        self.line_at(line).0 & 0xff
    }

    #[inline]
    pub(super) fn line(&self, line: usize) -> &[u64; WORDS] {
        let line = self.lines.get(self.line_at(line).index());
        line.map_or(&[0; WORDS], |line| &line.0)
    }
}

impl<V: DimensionValue> Dimension<V> {
    /// Makes the dimension from the range of every rule of the page, in their order. Returns `None` if every rule
    /// covers all values.
    pub(super) fn new(ranges: impl ExactSizeIterator<Item = (V, V)> + Clone) -> Option<Self> {
        if ranges.clone().all(|range| range == (V::MIN, V::MAX)) {
            return None;
        }
        let mut builder = Builder::new(ranges.len());
        // The events of the sweep: the start of each rule, and the value behind its end.
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
            heads: builder.heads,
            tables: builder.tables,
            table_len: builder.state.len().saturating_sub(1),
            lines: builder.lines,
            lists: builder.lists,
        })
    }

    /// Finds the rules of the interval that contains `value`: a list to compare with the packet if they are few, or a
    /// bitmap.
    #[inline(always)]
    pub(super) fn find(&self, value: V) -> ControlFlow<Few<'_>, Bitmap<'_>> {
        let interval = self.ranks.find(value);
        let Some(set) = self.sets.get(interval) else {
            return ControlFlow::Break(Few::List(&[]));
        };
        let at = set.at as usize;
        match set.len {
            MANY => ControlFlow::Continue(Bitmap {
                first: set.first,
                head: self.heads.get(interval).copied().unwrap_or(LineAt(0)),
                table: self.tables.get(at..at + self.table_len).unwrap_or(&[]),
                lines: &self.lines,
            }),
            1 => ControlFlow::Break(Few::One(set.first)),
            len => {
                let list = self.lists.get(at..at + usize::from(len));
                ControlFlow::Break(Few::List(list.unwrap_or(&[])))
            }
        }
    }

    /// The number of bytes on the heap.
    pub(super) fn memory(&self) -> usize {
        self.ranks.memory()
            + size_of_val(self.sets.as_slice())
            + size_of_val(self.heads.as_slice())
            + size_of_val(self.lists.as_slice())
            + size_of_val(self.tables.as_slice())
            + size_of_val(self.lines.as_slice())
    }
}

/// The sweep over the boundaries. It holds the set of the rules that cover the present interval.
struct Builder {
    state: Vec<LineState>,
    rules: u32,
    sets: Vec<Set>,
    heads: Vec<LineAt>,
    tables: Vec<LineAt>,
    lines: Vec<Line>,
    lists: Vec<u16>,
}

struct LineState {
    line: Line,
    /// Bit `i` is set if word `i` is not zero.
    words: u8,
    /// The place at which the line was last written, unless the line has changed since.
    written: Option<LineAt>,
}

impl Builder {
    fn new(rules: usize) -> Self {
        let state = || LineState {
            line: Line([0; WORDS]),
            words: 0,
            written: None,
        };
        Self {
            state: std::iter::repeat_with(state)
                .take(rules.div_ceil(LINE))
                .collect(),
            rules: 0,
            sets: Vec::new(),
            heads: Vec::new(),
            tables: Vec::new(),
            lines: Vec::new(),
            lists: Vec::new(),
        }
    }

    /// Begins the rule, or ends it if it has begun.
    fn flip(&mut self, rule: u16) {
        let rule = usize::from(rule);
        let Some(state) = self.state.get_mut(rule / LINE) else {
            return;
        };
        let (word, bit) = (rule / 64 % WORDS, 1 << (rule % 64));
        state.line.0[word] ^= bit;
        state.written = None;
        match state.line.0[word] & bit {
            0 => self.rules -= 1,
            _ => self.rules += 1,
        }
        match state.line.0[word] {
            0 => state.words &= !(1 << word),
            _ => state.words |= 1 << word,
        }
    }

    /// The rules of the present set, in their order.
    fn rules(state: &[LineState]) -> impl Iterator<Item = u16> {
        state.iter().enumerate().flat_map(|(line, state)| {
            let words = bits(state.words.into());
            words.flat_map(move |word| {
                let base = line * LINE + word as usize * 64;
                bits(state.line.0[word as usize]).map(move |bit| (base + bit as usize) as u16)
            })
        })
    }

    /// Writes the set of the interval that begins here.
    fn emit(&mut self) {
        let first = Self::rules(&self.state).next().unwrap_or(0);
        if self.rules <= LIST_MAX {
            self.sets.push(Set {
                len: self.rules as u16,
                first,
                at: self.lists.len() as u32,
            });
            self.heads.push(LineAt(0));
            if self.rules > 1 {
                self.lists.extend(Self::rules(&self.state));
            }
            return;
        }
        self.sets.push(Set {
            len: MANY,
            first,
            at: self.tables.len() as u32,
        });
        for (index, state) in self.state.iter_mut().enumerate() {
            let at = *state.written.get_or_insert_with(|| {
                self.lines.push(state.line);
                LineAt::new(self.lines.len() - 1, state.words)
            });
            match index {
                0 => self.heads.push(at),
                _ => self.tables.push(at),
            }
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
