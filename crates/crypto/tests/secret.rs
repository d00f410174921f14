//! Secrets.

use esplanade_crypto::secret::Secret;

#[test]
fn debug_shows_only_the_length() {
    assert_eq!(
        format!("{:?}", Secret::from(vec![0x41; 5])),
        "Secret(5 bytes)"
    );
}

#[test]
fn part_is_bounded() {
    let secret = Secret::from(vec![1, 2, 3, 4]);
    assert_eq!(secret.part(1, 2), Some(Secret::from(vec![2, 3])));
    assert_eq!(secret.part(2, 3), None);
    assert_eq!(secret.part(usize::MAX, 2), None);
}
