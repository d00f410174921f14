//! S-boxes as sums of products.

use esplanade_crypto::testing::finalists::TABLES;

#[test]
fn sums_are_the_tables() {
    // Bit n of these planes is the bit of the input n.
    let inputs = [0xaaaa, 0xcccc, 0xf0f0, 0xff00];
    for (table, sums) in TABLES {
        let outputs = sums(inputs);
        for (input, expected) in table.chars().enumerate() {
            let bit = |plane: &u16| u32::from(plane >> input & 1);
            let value = outputs
                .iter()
                .rev()
                .fold(0, |value, plane| value << 1 | bit(plane));
            assert_eq!(Some(value), expected.to_digit(16), "{table}");
        }
    }
}
