//! Counts how often a key file has a passphrase hashed.

use esplanade_crypto::testing::iterations;

const INTEGER: u8 = 0x02;
const OCTET_STRING: u8 = 0x04;

fn value(tag: u8, content: &[u8]) -> Vec<u8> {
    let len = content.len();
    [&[tag, 0x82, (len >> 8) as u8, len as u8], content].concat()
}

fn open(tag: u8, content: &[u8]) -> Vec<u8> {
    [&[tag, 0x80], content, &[0, 0]].concat()
}

#[test]
fn counts_are_found_wherever_they_are() {
    let salt = value(OCTET_STRING, &[0x30; 8]);
    let parameters = |count: &[u8]| value(0x30, &[&salt[..], &value(INTEGER, count)].concat());
    let thousand = parameters(&[0x03, 0xe8]);
    assert_eq!(iterations(&thousand), 1000);
    assert_eq!(iterations(&parameters(&[0, 0x98, 0x96, 0x80])), 10_000_000);
    assert_eq!(iterations(&parameters(&[0x7f; 20])), u64::MAX);
    // Inside of other values, in an OCTET STRING, with lengths that are not written, twice, cut off.
    let inner = value(0xa0, &value(OCTET_STRING, &value(0x30, &thousand)));
    assert_eq!(iterations(&inner), 1000);
    let pieces = open(0x24, &value(OCTET_STRING, &open(0x30, &thousand)));
    assert_eq!(iterations(&open(0x30, &[pieces, inner].concat())), 2000);
    let twice = [&thousand[..], &thousand].concat();
    assert_eq!(iterations(&value(0x30, &twice)), 2000);
    let mut longer = value(0x30, &thousand);
    longer[3] += 100;
    assert_eq!(iterations(&longer), 1000);
    // Other numbers are none.
    assert_eq!(iterations(&value(0x30, &value(INTEGER, &[5]))), 0);
    let reversed = [&value(INTEGER, &[5])[..], &salt].concat();
    assert_eq!(iterations(&value(0x30, &reversed)), 0);
}

#[test]
fn hostile_values_end() {
    let deep = |tag: u8| [tag, 0x80].repeat(100_000);
    for hostile in [
        deep(0x30),
        deep(0x24),
        vec![0x30; 100_000],
        vec![0; 100_000],
    ] {
        assert_eq!(iterations(&hostile), 0);
    }
    for hostile in [
        &[0x30, 0xff][..],
        &[0x30, 0x89, 1, 1, 1, 1, 1, 1, 1, 1, 1],
        b"\x02",
    ] {
        assert_eq!(iterations(hostile), 0);
    }
}
