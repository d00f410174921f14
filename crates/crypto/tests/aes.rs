//! The kernels' key expansion of AES.

use esplanade_crypto::testing::aes_round_keys;

fn unhex<const N: usize>(text: &str) -> [u8; N] {
    std::array::from_fn(|at| u8::from_str_radix(&text[2 * at..2 * at + 2], 16).expect("hex"))
}

/// The last round keys of FIPS 197's appendices A.1, A.2 and A.3.
#[test]
fn the_examples_of_the_standard() {
    if !is_x86_feature_detected!("aes") {
        println!("SKIP tier_aesni: this machine has no AES-NI");
        return;
    }
    for (key, last) in [
        (
            "2b7e151628aed2a6abf7158809cf4f3c",
            "d014f9a8c9ee2589e13f0cc8b6630ca6",
        ),
        (
            "8e73b0f7da0e6452c810f32b809079e562f8ead2522c6b7b",
            "e98ba06f448c773c8ecc720401002202",
        ),
        (
            "603deb1015ca71be2b73aef0857d77811f352c073b6108d72d9810a30914dff4",
            "fe4890d1e6188d0b046df344706c631e",
        ),
    ] {
        let key: Vec<u8> = (0..key.len() / 2)
            .map(|at| unhex::<1>(&key[2 * at..])[0])
            .collect();
        let (rounds, round_keys) = aes_round_keys(&key).expect("a length of AES");
        assert_eq!(rounds, key.len() / 4 + 6);
        assert_eq!(round_keys.as_flattened()[..key.len()], key);
        assert_eq!(round_keys[rounds], unhex(last));
        assert_eq!(aes_round_keys(&key[1..]), None);
    }
}
