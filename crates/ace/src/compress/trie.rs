//! A dictionary under construction: a tree of phrases, and a table from a phrase and a symbol to the longer phrase.

/// No phrase: the empty one.
pub(super) const NONE: u32 = u32::MAX;

/// A tree of phrases. Each phrase comes after the one that it goes on from.
#[derive(Debug, Clone, Default)]
pub(super) struct Trie {
    /// The phrase without its last symbol, [`NONE`] for a single symbol.
    pub parents: Vec<u32>,
    pub symbols: Vec<u8>,
    children: Children,
}

impl Trie {
    pub fn len(&self) -> usize {
        self.parents.len()
    }

    pub fn child(&self, phrase: u32, symbol: u8) -> Option<u32> {
        self.children.get(key(phrase, symbol))
    }

    /// Adds a phrase that is not there yet.
    pub fn add(&mut self, parent: u32, symbol: u8) -> u32 {
        let number = u32::try_from(self.parents.len()).expect("inputs are shorter than 2^32");
        self.parents.push(parent);
        self.symbols.push(symbol);
        self.children.insert(key(parent, symbol), number);
        number
    }

    /// The length of each phrase.
    pub fn depths(&self) -> Vec<u32> {
        let mut depths: Vec<u32> = Vec::with_capacity(self.len());
        for &parent in &self.parents {
            let before = depths.get(parent as usize).copied();
            depths.push(before.unwrap_or(0) + 1);
        }
        depths
    }

    /// For each phrase the longest other phrase that it ends with, [`NONE`] where there is none.
    pub fn suffixes(&self, depths: &[u32]) -> Vec<u32> {
        let mut order: Vec<u32> = (0u32..).take(self.len()).collect();
        order.sort_by_key(|&phrase| depths[phrase as usize]);
        let mut suffixes = vec![NONE; self.len()];
        for phrase in order {
            let (parent, symbol) = self.node(phrase);
            if parent == NONE {
                continue;
            }
            let mut at = parent;
            while at != NONE {
                at = suffixes[at as usize];
                if let Some(found) = self.child(at, symbol) {
                    suffixes[phrase as usize] = found;
                    break;
                }
            }
        }
        suffixes
    }

    pub fn node(&self, phrase: u32) -> (u32, u8) {
        let at = phrase as usize;
        (self.parents[at], self.symbols[at])
    }

    /// The tree of the phrases that are kept, in their order. Prefixes of kept phrases are kept. The list has the new
    /// number of each phrase, or [`NONE`].
    pub fn only(&self, kept: impl Fn(usize) -> bool) -> (Self, Vec<u32>) {
        let mut trie = Self::default();
        let mut numbers = vec![NONE; self.len()];
        for at in 0..self.len() {
            if kept(at) {
                let parent = match self.parents[at] {
                    NONE => NONE,
                    parent => numbers[parent as usize],
                };
                numbers[at] = trie.add(parent, self.symbols[at]);
            }
        }
        (trie, numbers)
    }
}

fn key(phrase: u32, symbol: u8) -> u64 {
    u64::from(phrase) << 8 | u64::from(symbol)
}

/// A hash table for keys of 40 bits. The standard table costs several times as much for each of millions of look-ups.
#[derive(Debug, Clone, Default)]
struct Children {
    /// Key and value; the key of a free place is [`FREE`]. The length is a power of two.
    places: Vec<(u64, u32)>,
    used: usize,
}

const FREE: u64 = u64::MAX;

impl Children {
    fn place(&self, key: u64) -> usize {
        let hash = key.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 20;
        hash as usize & (self.places.len() - 1)
    }

    fn get(&self, key: u64) -> Option<u32> {
        if self.places.is_empty() {
            return None;
        }
        let mut at = self.place(key);
        loop {
            match self.places[at] {
                (found, value) if found == key => return Some(value),
                (FREE, _) => return None,
                _ => at = (at + 1) & (self.places.len() - 1),
            }
        }
    }

    fn insert(&mut self, key: u64, value: u32) {
        if self.used * 2 >= self.places.len() {
            let longer = vec![(FREE, 0); (self.places.len() * 2).max(1024)];
            for (key, value) in std::mem::replace(&mut self.places, longer) {
                if key != FREE {
                    self.put(key, value);
                }
            }
        }
        self.put(key, value);
        self.used += 1;
    }

    fn put(&mut self, key: u64, value: u32) {
        let mut at = self.place(key);
        while self.places[at].0 != FREE {
            at = (at + 1) & (self.places.len() - 1);
        }
        self.places[at] = (key, value);
    }
}
