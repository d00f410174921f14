//! Encrypts a file in records, a batch of them at a time, and decrypts it.
//!
//! ```text
//! encrypt_file encrypt KEY-FILE IN OUT
//! encrypt_file decrypt KEY-FILE IN OUT
//! ```
//!
//! The key file holds 32 random bytes (`head -c 32 /dev/urandom > key`). The encrypted file is a salt of 32 bytes,
//! then records of 64 KiB, of which the last may be shorter. Each record is followed by its tag. The file's own key
//! is HMAC-SHA2-256(key, salt), so that records can be counted from zero in every file. The record's number is its
//! nonce. The associated data is the number and a byte that is 1 in the last record. Records that are missing, moved
//! or taken from another file are therefore refused, and so is a file whose end is missing. (This is the STREAM
//! construction, Hoang et al., CRYPTO 2015.)
//!
//! A batch is written only if all of its records are authentic. If a file turns out to be damaged later, what was
//! written of it is removed.

use std::error::Error;
use std::fs::{self, File};
use std::io::{self, Read, Write};

use aws_lc_rs::{hmac, rand};
use esplanade_crypto::JobStatus;
use esplanade_crypto::lookaside::{
    AeadAlgorithm, AeadKey, Record, TAG_LEN, open_records, seal_records,
};

const TEXT: usize = 64 << 10;
/// Number of records that are worked on together.
const BATCH: usize = 16;
const SALT: usize = 32;

/// The associated data: record number and last-record marker.
struct Place {
    nonce: [u8; 12],
    aad: [u8; 9],
}

fn place(number: u64, last: bool) -> Place {
    let mut nonce = [0; 12];
    nonce[4..].copy_from_slice(&number.to_be_bytes());
    let mut aad = [0; 9];
    aad[..8].copy_from_slice(&number.to_be_bytes());
    aad[8] = u8::from(last);
    Place { nonce, aad }
}

fn file_key(key: &[u8], salt: &[u8]) -> Result<AeadKey, Box<dyn Error>> {
    if key.len() != 32 {
        return Err("the key file must have 32 bytes".into());
    }
    let derived = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, key), salt);
    Ok(AeadKey::new(AeadAlgorithm::Aes256Gcm, derived.as_ref())?)
}

/// Reads until `buffer` is full or the input ends.
fn read_full(input: &mut impl Read, buffer: &mut [u8]) -> io::Result<usize> {
    let mut at = 0;
    while at < buffer.len() {
        match input.read(&mut buffer[at..])? {
            0 => break,
            count => at += count,
        }
    }
    Ok(at)
}

/// Calls `each` with batches of whole records of `len` bytes, and with whether the batch is the last. The last record
/// may be shorter. It is empty only if the input is empty.
fn batches(
    input: &mut impl Read,
    len: usize,
    mut each: impl FnMut(&mut [u8], bool) -> Result<(), Box<dyn Error>>,
) -> Result<(), Box<dyn Error>> {
    let mut now = vec![0; len * BATCH];
    let mut next = vec![0; len * BATCH];
    let mut filled = read_full(input, &mut now)?;
    loop {
        // Reading ahead shows whether this batch is the last one.
        let ahead = match filled == now.len() {
            true => read_full(input, &mut next)?,
            false => 0,
        };
        each(&mut now[..filled], ahead == 0)?;
        if ahead == 0 {
            return Ok(());
        }
        std::mem::swap(&mut now, &mut next);
        filled = ahead;
    }
}

fn encrypt(
    key: &[u8],
    input: &mut impl Read,
    output: &mut impl Write,
) -> Result<(), Box<dyn Error>> {
    let mut salt = [0; SALT];
    rand::fill(&mut salt)?;
    let key = file_key(key, &salt)?;
    output.write_all(&salt)?;
    let mut number = 0;
    batches(input, TEXT, |bytes, end| {
        // An empty file has one empty record.
        let mut texts: Vec<&mut [u8]> = match bytes {
            [] => vec![&mut []],
            bytes => bytes.chunks_mut(TEXT).collect(),
        };
        let count = texts.len();
        let places: Vec<Place> = (0..count)
            .map(|at| place(number + at as u64, end && at + 1 == count))
            .collect();
        let mut records = Vec::new();
        for (text, place) in texts.iter_mut().zip(&places) {
            records.push(Record::in_place(&key, place.nonce, &place.aad, text)?);
        }
        seal_records(&mut records);
        if records.iter().any(|r| r.status() != JobStatus::Done) {
            return Err("a record could not be sealed".into());
        }
        let tags: Vec<[u8; TAG_LEN]> = records.iter().map(|record| *record.tag()).collect();
        for (text, tag) in texts.iter().zip(&tags) {
            output.write_all(text)?;
            output.write_all(tag)?;
        }
        number += count as u64;
        Ok(())
    })
}

fn decrypt(
    key: &[u8],
    input: &mut impl Read,
    output: &mut impl Write,
) -> Result<(), Box<dyn Error>> {
    let mut salt = [0; SALT];
    input.read_exact(&mut salt)?;
    let key = file_key(key, &salt)?;
    let mut number = 0;
    batches(input, TEXT + TAG_LEN, |bytes, end| {
        let count = bytes.len().div_ceil(TEXT + TAG_LEN);
        let places: Vec<Place> = (0..count)
            .map(|at| place(number + at as u64, end && at + 1 == count))
            .collect();
        let mut records = Vec::new();
        let mut texts = Vec::new();
        for (bytes, place) in bytes.chunks_mut(TEXT + TAG_LEN).zip(&places) {
            let len = bytes
                .len()
                .checked_sub(TAG_LEN)
                .ok_or("the file is cut off")?;
            let (text, tag) = bytes.split_at_mut(len);
            texts.push(len);
            let record = Record::in_place(&key, place.nonce, &place.aad, text)?;
            records.push(record.with_tag((&*tag).try_into()?));
        }
        open_records(&mut records);
        let good = |record: &Record| record.status() == JobStatus::Done;
        if records.is_empty() || !records.iter().all(good) {
            return Err("the file is damaged or cut off, or the key is another one".into());
        }
        drop(records);
        for (bytes, len) in bytes.chunks(TEXT + TAG_LEN).zip(texts) {
            output.write_all(&bytes[..len])?;
        }
        number += count as u64;
        Ok(())
    })
}

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [command, key, from, to] = arguments.as_slice() else {
        return Err("usage: encrypt_file encrypt|decrypt KEY-FILE IN OUT".into());
    };
    let key = fs::read(key)?;
    let mut input = File::open(from)?;
    let mut output = File::create_new(to)?;
    let done = match command.as_str() {
        "encrypt" => encrypt(&key, &mut input, &mut output),
        "decrypt" => decrypt(&key, &mut input, &mut output),
        _ => Err("encrypt or decrypt?".into()),
    };
    if done.is_err() {
        fs::remove_file(to)?;
    }
    done
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: [u8; 32] = [9; 32];

    fn encrypted(plain: &[u8]) -> Vec<u8> {
        let mut sealed = Vec::new();
        encrypt(&KEY, &mut &plain[..], &mut sealed).expect("it is sealed");
        sealed
    }

    fn decrypted(sealed: &[u8]) -> Result<Vec<u8>, String> {
        let mut plain = Vec::new();
        let done = decrypt(&KEY, &mut &sealed[..], &mut plain);
        done.map(|()| plain).map_err(|error| error.to_string())
    }

    fn text(len: usize) -> Vec<u8> {
        (0..len).map(|at| (at / 3) as u8).collect()
    }

    #[test]
    fn files_of_all_sizes_come_back() {
        for len in [
            0,
            1,
            TEXT - 1,
            TEXT,
            TEXT + 1,
            TEXT * BATCH,
            TEXT * BATCH + 1,
            TEXT * 33,
        ] {
            let sealed = encrypted(&text(len));
            assert_eq!(
                sealed.len(),
                SALT + len + len.div_ceil(TEXT).max(1) * TAG_LEN
            );
            assert!(decrypted(&sealed) == Ok(text(len)), "{len} bytes");
        }
    }

    #[test]
    fn what_is_missing_moved_or_changed_is_noticed() {
        const WHOLE: usize = TEXT + TAG_LEN;
        let sealed = encrypted(&text(TEXT * 20));
        for cut in [
            1,
            TAG_LEN,
            WHOLE,
            WHOLE * 4,
            WHOLE * 19,
            WHOLE * 20,
            WHOLE * 20 + 1,
        ] {
            assert!(
                decrypted(&sealed[..sealed.len() - cut]).is_err(),
                "{cut} bytes less"
            );
        }
        let mut moved = sealed.clone();
        moved[SALT..SALT + 2 * WHOLE].rotate_left(WHOLE);
        assert!(decrypted(&moved).is_err());
        for at in [0, SALT, SALT + WHOLE - 1, sealed.len() - 1] {
            let mut changed = sealed.clone();
            changed[at] ^= 1;
            assert!(decrypted(&changed).is_err(), "byte {at}");
        }
        let mut longer = sealed.clone();
        longer.extend_from_slice(&sealed[SALT..SALT + WHOLE]);
        assert!(decrypted(&longer).is_err());
        let mut other = Vec::new();
        assert!(decrypt(&[8; 32], &mut &sealed[..], &mut other).is_err());
        assert!(other.is_empty());
    }
}
