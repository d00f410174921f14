//! A string buffer for text that may be a secret. It wipes its memory whenever it grows and when it
//! is dropped.

use std::ops::Deref;

use zeroize::Zeroizing;

/// A string that wipes its old memory when it grows.
#[derive(Default)]
pub(crate) struct Wiped(Zeroizing<String>);

impl Wiped {
    pub fn push(&mut self, c: char) {
        self.make_room(c.len_utf8());
        self.0.push(c);
    }

    pub fn push_str(&mut self, text: &str) {
        self.make_room(text.len());
        self.0.push_str(text);
    }

    pub fn truncate(&mut self, len: usize) {
        self.0.truncate(len);
    }

    pub fn into_inner(self) -> Zeroizing<String> {
        self.0
    }

    fn make_room(&mut self, more: usize) {
        const ROOM_MIN: usize = 64;
        let wanted = self.0.len() + more;
        if wanted > self.0.capacity() {
            let mut wider = Zeroizing::new(String::with_capacity((2 * wanted).max(ROOM_MIN)));
            wider.push_str(&self.0);
            // Assignment drops the old buffer, which wipes it.
            self.0 = wider;
        }
    }
}

impl Deref for Wiped {
    type Target = str;

    fn deref(&self) -> &str {
        &self.0
    }
}
