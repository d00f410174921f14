//! Wiping of values.

use esplanade_crypto::testing::{cleanse, cleanse_all};

// `tests/wiped.rs` sees what is on the heap.
#[test]
fn all_bytes_are_overwritten() {
    let mut one = [7u64; 5];
    cleanse(&mut one);
    assert_eq!(one, [0; 5]);
    let mut several = [[9u8; 3]; 7];
    cleanse_all(&mut several[1..]);
    assert_eq!(several[0], [9; 3]);
    assert_eq!(several[1..], [[0; 3]; 6]);
}
