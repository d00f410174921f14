//! Key contexts.

use esplanade_crypto::{KeyContext, Transform, testing};

#[test]
fn the_shortest_packet_has_one_block() {
    for transform in Transform::ESP {
        let material: Vec<u8> = (0..transform.key_material_len() as u8).collect();
        let key = KeyContext::new(transform, false, &material).expect("a good key");
        let fitting = (0..200).filter(|&len| testing::fits(&key, len));
        let shortest = transform.sealed_len_min() as u32;
        let expected = (shortest..200).step_by(transform.block_align());
        assert!(fitting.eq(expected), "{transform}");
    }
}

#[test]
fn contexts_are_shared_by_threads() {
    fn shared<T: Send + Sync>() {}
    shared::<KeyContext>();
}
