//! The keys on the device: which row has which key, and what the device makes a row from.

use std::sync::{Arc, Weak};

use esplanade_crypto::{KeyContext, KeySlot};
use zeroize::Zeroizing;

use crate::abi::RAW_WORDS;
use crate::suite::{CipherKey, Suite};

/// A key as `expand_keys` takes it. It is zeroised on drop, and stays in one place until then.
pub type RawKey = Box<Zeroizing<[u32; RAW_WORDS]>>;

/// Rows of the device's key table. A key's row is its slot in this process.
#[derive(Debug)]
pub struct KeyRows {
    rows: Vec<Option<KeyRow>>,
    /// Keys that are to be loaded before the next launch.
    missing: Vec<RawKey>,
    /// Where the next search for keys without an SA begins.
    searched: usize,
}

#[derive(Debug)]
struct KeyRow {
    generation: u32,
    /// Dead when the SA is gone, and no batch has the key.
    key: Weak<KeyContext>,
}

/// Rows that one call of [`KeyRows::gone`] looks at.
const SEARCHED_AT_ONCE: usize = 1024;

impl KeyRows {
    pub fn new(rows: usize) -> Self {
        Self {
            rows: std::iter::repeat_with(|| None).take(rows).collect(),
            missing: Vec::new(),
            searched: 0,
        }
    }

    /// Says whether the table has a row for the key.
    pub fn has_row(&self, key: &KeyContext) -> bool {
        (key.slot().index as usize) < self.rows.len()
    }

    /// Has the key loaded if it is not there, and the table has its row.
    pub fn require(&mut self, key: &Arc<KeyContext>, suite: &Suite) {
        let KeySlot { index, generation } = key.slot();
        let Some(row) = self.rows.get_mut(index as usize) else {
            return;
        };
        let is_there = row
            .as_ref()
            .is_some_and(|row| row.generation == generation && row.key.strong_count() > 0);
        if !is_there {
            self.missing.push(raw_key(key, suite));
            *row = Some(KeyRow {
                generation,
                key: Arc::downgrade(key),
            });
        }
    }

    /// Takes the keys that the device has to load.
    pub fn take_missing(&mut self) -> Vec<RawKey> {
        std::mem::take(&mut self.missing)
    }

    /// Takes rows whose keys nobody has any more, from a part of the table. They are to be wiped.
    pub fn gone(&mut self) -> Vec<u32> {
        let mut gone = Vec::new();
        for _ in 0..SEARCHED_AT_ONCE.min(self.rows.len()) {
            let place = self.rows.get_mut(self.searched);
            if let Some(place) = place
                && place
                    .as_ref()
                    .is_some_and(|row| row.key.strong_count() == 0)
            {
                *place = None;
                gone.push(self.searched as u32);
            }
            self.searched = (self.searched + 1) % self.rows.len();
        }
        gone
    }

    /// Forgets all rows, after the device has lost them.
    pub fn forget(&mut self) {
        self.rows.fill_with(|| None);
        self.missing.clear();
    }

    /// The number of keys on the device.
    pub fn loaded(&self) -> usize {
        self.rows.iter().flatten().count()
    }
}

fn raw_key(key: &KeyContext, suite: &Suite) -> RawKey {
    let (material, slot) = (key.material(), key.slot());
    let mut raw = Box::new(Zeroizing::new([0; RAW_WORDS]));
    raw[0] = slot.index;
    raw[1] = slot.generation;
    raw[2] = match suite.cipher_key {
        CipherKey::None => 0,
        CipherKey::Aes => 1,
        CipherKey::ChaCha20 => 2,
        CipherKey::TripleDes => 3,
    };
    raw[3] = material.cipher_key().len() as u32 / 4;
    put_bytes(&mut raw[4..12], material.cipher_key());
    put_bytes(&mut raw[12..13], material.salt());
    if let Some([inner, outer]) = material.hmac_states() {
        raw[13..21].copy_from_slice(&*inner);
        raw[21..29].copy_from_slice(&*outer);
    }
    raw[29] = u32::from(suite.ghash);
    raw
}

fn put_bytes(words: &mut [u32], bytes: &[u8]) {
    let (chunks, _) = bytes.as_chunks();
    for (word, bytes) in words.iter_mut().zip(chunks) {
        *word = u32::from_le_bytes(*bytes);
    }
}

#[cfg(test)]
mod tests {
    use esplanade_crypto::Transform;

    use super::*;

    fn key(name: &str) -> (Arc<KeyContext>, Suite) {
        let transform = Transform::from_name(name).unwrap();
        let bytes: Vec<u8> = (1..=transform.key_material_len() as u8).collect();
        let key = KeyContext::new(transform, false, &bytes).unwrap();
        (Arc::new(key), Suite::of(transform, false).unwrap())
    }

    #[test]
    fn a_key_is_loaded_once_and_goes_with_its_sa() {
        let mut rows = KeyRows::new(1 << 16);
        let (first, suite) = key("AES_GCM_16_128");
        let slot = first.slot();
        assert!(rows.has_row(&first));
        rows.require(&first, &suite);
        rows.require(&first, &suite);
        assert_eq!((rows.take_missing().len(), rows.loaded()), (1, 1));
        assert!((0..64).all(|_| rows.gone().is_empty()));
        drop(first);
        let gone: Vec<u32> = (0..64).flat_map(|_| rows.gone()).collect();
        assert_eq!(gone, [slot.index]);
        assert_eq!(rows.loaded(), 0);
    }

    #[test]
    fn the_next_key_of_a_slot_takes_the_row() {
        let mut rows = KeyRows::new(1 << 16);
        // Other tests hold and give back slots too, so several tries may be needed for the same one.
        for _ in 0..1000 {
            let (first, suite) = key("AES_CBC_128/HMAC_SHA1_96");
            let old = first.slot();
            rows.require(&first, &suite);
            drop(first);
            let (second, suite) = key("CHACHA20_POLY1305");
            let new = second.slot();
            rows.require(&second, &suite);
            let loaded = rows.take_missing();
            if new.index == old.index {
                assert_ne!(new.generation, old.generation);
                assert_eq!(loaded.len(), 2);
                assert_eq!(loaded[1][..4], [new.index, new.generation, 2, 8]);
                assert_eq!(rows.loaded(), 1);
                return;
            }
            rows.forget();
        }
        panic!("no slot was given again");
    }

    #[test]
    fn a_table_without_the_row_refuses() {
        let (key, suite) = key("AES_GCM_16_256");
        let mut rows = KeyRows::new(key.slot().index as usize);
        assert!(!rows.has_row(&key));
        rows.require(&key, &suite);
        assert!(rows.gone().is_empty() && rows.take_missing().is_empty());
    }

    #[test]
    fn the_parts_of_a_key_have_their_places() {
        let (key, suite) = key("AES_GCM_16_128");
        let raw = raw_key(&key, &suite);
        assert_eq!(raw[2..5], [1, 4, 0x0403_0201]);
        // The salt follows the key (RFC 4106 §8.1).
        assert_eq!(raw[12], u32::from_le_bytes([17, 18, 19, 20]));
        assert_eq!((raw[8], raw[29]), (0, 1));
    }
}
