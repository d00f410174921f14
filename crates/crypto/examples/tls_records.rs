//! A TLS 1.3 record layer (RFC 8446 §5.2, §5.3) that seals and opens many records at once.
//!
//! A TLS library calls its AEAD once per record. A server that sends a file knows many records in advance, and
//! [`Writer::seal`] seals them in one batch. [`Reader::open`] opens all records that one read from a socket brought.
//! The nonce of a record is the traffic IV ⊕ its sequence number, which both sides count. The associated data is the
//! record's header. The plaintext ends with its content type; zeros after that are padding.
//!
//! Run alone, the program sends a message through both halves. It has aws-lc open what it sealed, and opens what
//! aws-lc sealed. Then it prints how fast it was. The caller does the handshake, which gives key and IV, and key
//! updates.

use std::error::Error;
use std::time::Instant;

use aws_lc_rs::aead::{AES_128_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
use esplanade_crypto::JobStatus;
use esplanade_crypto::lookaside::{
    AeadAlgorithm, AeadKey, Record, TAG_LEN, open_records, seal_records,
};

/// The longest plaintext of a record (RFC 8446 §5.1).
const PLAINTEXT_MAX: usize = 1 << 14;
const HEADER: usize = 5;
const APPLICATION_DATA: u8 = 23;
const ALERT: u8 = 21;

/// One direction of a connection.
struct Half {
    key: AeadKey,
    iv: [u8; 12],
    /// Sequence number of the next record.
    sequence: u64,
}

impl Half {
    fn new(algorithm: AeadAlgorithm, key: &[u8], iv: [u8; 12]) -> Result<Self, Box<dyn Error>> {
        let key = AeadKey::new(algorithm, key)?;
        Ok(Self {
            key,
            iv,
            sequence: 0,
        })
    }

    /// Returns the nonce of the record `ahead` places after the next one (RFC 8446 §5.3). A sequence number must not
    /// wrap.
    fn nonce(&self, ahead: usize) -> Result<[u8; 12], Box<dyn Error>> {
        let sequence = self.sequence.checked_add(ahead as u64);
        let sequence = sequence.ok_or("time for a key update")?;
        let mut nonce = self.iv;
        for (byte, number) in nonce[4..].iter_mut().zip(sequence.to_be_bytes()) {
            *byte ^= number;
        }
        Ok(nonce)
    }
}

fn header(sealed_len: usize) -> [u8; HEADER] {
    let [high, low] = (sealed_len as u16).to_be_bytes();
    [APPLICATION_DATA, 3, 3, high, low]
}

struct Writer(Half);

impl Writer {
    /// Appends `data` to `out` as records, sealed in a batch.
    fn seal(
        &mut self,
        content_type: u8,
        data: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<(), Box<dyn Error>> {
        let start = out.len();
        let mut lens = Vec::new();
        for piece in data.chunks(PLAINTEXT_MAX) {
            let inner = piece.len() + 1;
            out.extend(header(inner + TAG_LEN));
            out.extend(piece);
            out.push(content_type);
            out.extend([0; TAG_LEN]);
            lens.push(inner);
        }
        let mut rest = &mut out[start..];
        let mut records = Vec::with_capacity(lens.len());
        let mut tags = Vec::with_capacity(lens.len());
        for (ahead, inner) in lens.into_iter().enumerate() {
            let (record, next) = rest.split_at_mut(HEADER + inner + TAG_LEN);
            let (header, record) = record.split_at_mut(HEADER);
            let (text, tag) = record.split_at_mut(inner);
            let nonce = self.0.nonce(ahead)?;
            records.push(Record::in_place(&self.0.key, nonce, header, text)?);
            tags.push(tag);
            rest = next;
        }
        seal_records(&mut records);
        for (record, tag) in records.iter().zip(tags) {
            if record.status() != JobStatus::Done {
                return Err("a record could not be sealed".into());
            }
            tag.copy_from_slice(record.tag());
        }
        self.0.sequence += records.len() as u64;
        Ok(())
    }
}

struct Reader(Half);

impl Reader {
    /// Opens the whole records at the beginning of `input`. `each` gets their content types and data. Returns the
    /// number of bytes used; an incomplete record is left for the next call.
    fn open(
        &mut self,
        input: &mut [u8],
        mut each: impl FnMut(u8, &[u8]),
    ) -> Result<usize, Box<dyn Error>> {
        let mut used = 0;
        let mut parts = Vec::new();
        let mut rest = input;
        while let Some(&[content_type, 3, 3, high, low]) = rest.first_chunk::<HEADER>() {
            let len = usize::from(u16::from_be_bytes([high, low]));
            // RFC 8446 §5.2: the expansion is at most one byte of type and 255 more bytes.
            if content_type != APPLICATION_DATA
                || !(TAG_LEN + 1..=PLAINTEXT_MAX + 256).contains(&len)
            {
                return Err("not a protected record".into());
            }
            if rest.len() < HEADER + len {
                break;
            }
            let (record, next) = rest.split_at_mut(HEADER + len);
            let (header, record) = record.split_at_mut(HEADER);
            parts.push((header, record.split_at_mut(len - TAG_LEN)));
            used += HEADER + len;
            rest = next;
        }
        let mut records = Vec::with_capacity(parts.len());
        for (ahead, (header, (text, tag))) in parts.iter_mut().enumerate() {
            let record = Record::in_place(&self.0.key, self.0.nonce(ahead)?, header, text)?;
            records.push(record.with_tag((&**tag).try_into()?));
        }
        open_records(&mut records);
        if records.iter().any(|r| r.status() != JobStatus::Done) {
            return Err("bad_record_mac".into());
        }
        self.0.sequence += records.len() as u64;
        drop(records);
        for (_, (text, _)) in parts {
            let end = text.iter().rposition(|&byte| byte != 0);
            let (content_type, data) = text[..end.map_or(0, |end| end + 1)]
                .split_last()
                .ok_or("unexpected_message: a record of zeros")?;
            each(*content_type, data);
        }
        Ok(used)
    }
}

/// Has aws-lc open the records, one after the other.
fn opened_by_aws_lc(
    key: &[u8],
    iv: [u8; 12],
    mut records: &[u8],
) -> Result<Vec<u8>, Box<dyn Error>> {
    let key = LessSafeKey::new(UnboundKey::new(&AES_128_GCM, key)?);
    let mut data = Vec::new();
    let mut sequence = 0u64;
    while let Some((header, rest)) = records.split_first_chunk::<HEADER>() {
        let len = usize::from(u16::from_be_bytes([header[3], header[4]]));
        let (record, rest) = rest.split_at_checked(len).ok_or("cut off")?;
        let mut nonce = iv;
        nonce
            .iter_mut()
            .skip(4)
            .zip(sequence.to_be_bytes())
            .for_each(|(byte, s)| *byte ^= s);
        let mut text = record.to_vec();
        let nonce = Nonce::assume_unique_for_key(nonce);
        let plain = key.open_in_place(nonce, Aad::from(header), &mut text)?;
        data.extend(plain.split_last().ok_or("no content type")?.1);
        (records, sequence) = (rest, sequence + 1);
    }
    Ok(data)
}

fn main() -> Result<(), Box<dyn Error>> {
    let (key, iv) = ([0x42; 16], [0x17; 12]);
    let half = || Half::new(AeadAlgorithm::Aes128Gcm, &key, iv);
    let (mut writer, mut reader) = (Writer(half()?), Reader(half()?));
    let message: Vec<u8> = (0..1 << 22).map(|at: u32| (at % 251) as u8).collect();

    let start = Instant::now();
    let mut wire = Vec::with_capacity(message.len() * 65 / 64);
    writer.seal(APPLICATION_DATA, &message, &mut wire)?;
    let sealing = start.elapsed();
    if opened_by_aws_lc(&key, iv, &wire)? != message {
        return Err("aws-lc reads something else".into());
    }
    writer.seal(ALERT, &[1, 0], &mut wire)?;

    // A socket delivers pieces that are no records.
    let (mut pending, mut received, mut closed) = (Vec::new(), Vec::new(), false);
    let start = Instant::now();
    for piece in wire.chunks(100_000) {
        pending.extend_from_slice(piece);
        let used = reader.open(&mut pending, |content_type, data| match content_type {
            APPLICATION_DATA => received.extend_from_slice(data),
            _ => closed = data == [1, 0],
        })?;
        pending.drain(..used);
    }
    let opening = start.elapsed();
    if received != message || !closed {
        return Err("the message did not come back".into());
    }
    let gbit = |time: std::time::Duration| message.len() as f64 * 8e-9 / time.as_secs_f64();
    println!(
        "{} bytes in {} records, with copies: sealed at {:.1} Gbit/s, opened at {:.1} Gbit/s",
        message.len(),
        reader.0.sequence,
        gbit(sealing),
        gbit(opening)
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_of_all_algorithms_come_back() {
        for algorithm in AeadAlgorithm::ALL {
            let half = || Half::new(algorithm, &vec![3; algorithm.key_len()], [5; 12]).unwrap();
            let (mut writer, mut reader) = (Writer(half()), Reader(half()));
            for len in [1, 100, PLAINTEXT_MAX, PLAINTEXT_MAX + 1, 100_000] {
                let message = vec![0xa5; len];
                let (mut wire, mut received) = (Vec::new(), Vec::new());
                writer.seal(APPLICATION_DATA, &message, &mut wire).unwrap();
                let whole = wire.len();
                wire.extend([APPLICATION_DATA, 3]);
                let used = reader.open(&mut wire, |_, data| received.extend_from_slice(data));
                assert_eq!(used.unwrap(), whole);
                assert!(received == message, "{algorithm}, {len} bytes");
            }
        }
    }

    #[test]
    fn the_library_reads_what_we_write() {
        let (key, iv) = ([7; 16], [9; 12]);
        let mut writer = Writer(Half::new(AeadAlgorithm::Aes128Gcm, &key, iv).unwrap());
        let mut wire = Vec::new();
        let message: Vec<u8> = (0..70_000u32).map(|at| at as u8).collect();
        writer.seal(APPLICATION_DATA, &message, &mut wire).unwrap();
        assert!(opened_by_aws_lc(&key, iv, &wire).unwrap() == message);
    }

    #[test]
    fn forged_and_reordered_records_are_refused() {
        let half = || Half::new(AeadAlgorithm::Aes256Gcm, &[3; 32], [5; 12]).unwrap();
        let mut wire = Vec::new();
        Writer(half())
            .seal(APPLICATION_DATA, &[1; 2 * PLAINTEXT_MAX], &mut wire)
            .unwrap();
        for at in [0, 3, 4, HEADER, wire.len() / 2 + 10, wire.len() - 1] {
            let mut forged = wire.clone();
            forged[at] ^= 1;
            let used = Reader(half()).open(&mut forged, |_, _| panic!("nothing is delivered"));
            // A longer length means that the record is incomplete.
            assert!(
                used.is_err() || used.is_ok_and(|used| used == 0),
                "byte {at}"
            );
        }
        let half_len = wire.len() / 2;
        wire.rotate_left(half_len);
        assert!(Reader(half()).open(&mut wire, |_, _| ()).is_err());
    }
}
