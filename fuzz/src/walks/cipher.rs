//! A replacement for the cryptography on both sides, because the kernels would cost more than all the rest. Its
//! cipher keeps nothing secret, and its ICV is a checksum. Lengths, IVs and places are those of the transform.
//!
//! The kernels are compared with other implementations in `crates/crypto/tests`, and run in the differential test.

use esplanade_crypto::random::RandomError;
use esplanade_crypto::{Batch, Direction, IvKind, JobStatus, KeyContext, Protocol, Transform};
use esplanade_testkit::model::Cipher;

/// The length in bytes of SPI and sequence number.
const ESP_HEADER_LEN: usize = 8;
/// The byte of all random IVs, so that the model and the packet path use the same IVs.
const RANDOM: u8 = 0xa5;

pub fn not_random(bytes: &mut [u8]) -> Result<(), RandomError> {
    bytes.fill(RANDOM);
    Ok(())
}

/// The parameters that both sides agreed on, without the key.
#[derive(Clone, Debug)]
pub struct Keyed {
    transform: Transform,
    esn: bool,
}

impl Keyed {
    /// Makes a cipher. Returns none if the engine lacks the transform or refuses the key.
    pub fn new(transform: Transform, esn: bool, key: &[u8]) -> Option<Self> {
        let known = KeyContext::new(transform, esn, key).is_ok();
        known.then_some(Self { transform, esn })
    }

    fn of(key: &KeyContext) -> Self {
        Self {
            transform: key.transform(),
            esn: key.esn(),
        }
    }

    /// The offsets of the body and the ICV of an ESP packet. None if a packet of this length cannot be one.
    fn parts(&self, len: usize) -> Option<(usize, usize)> {
        let head = ESP_HEADER_LEN + self.transform.iv_len();
        let icv = len.checked_sub(self.transform.icv_len())?;
        let body = icv.checked_sub(head).filter(|len| *len > 0)?;
        (body % self.transform.block_align() == 0).then_some((head, icv))
    }

    fn icv(&self, sequence: u64, bytes: &[u8]) -> [u8; 32] {
        let high = if self.esn { sequence >> 32 } else { 0 };
        let mut sum = 0xcbf2_9ce4_8422_2325 ^ high;
        let (words, rest) = bytes.as_chunks::<8>();
        for word in words {
            sum = mixed(sum ^ u64::from_le_bytes(*word));
        }
        for byte in rest {
            sum = mixed(sum ^ u64::from(*byte));
        }
        sum = mixed(sum ^ bytes.len() as u64);
        let mut icv = [0; 32];
        for (place, part) in icv.as_chunks_mut::<8>().0.iter_mut().zip(1..) {
            *place = (sum ^ part).to_le_bytes();
        }
        icv
    }

    /// Processes a packet. Returns true if its ICV is right, which it is after sealing.
    fn process(
        &self,
        direction: Direction,
        sequence: u64,
        packet: &mut [u8],
        icv_at: usize,
    ) -> JobStatus {
        let icv_len = self.transform.icv_len();
        if self.transform.protocol() == Protocol::Ah {
            let Some(place) = packet.get_mut(icv_at..icv_at + icv_len) else {
                return JobStatus::Malformed;
            };
            let mut found = [0; 32];
            found[..icv_len].copy_from_slice(place);
            place.fill(0);
            let icv = self.icv(sequence, packet);
            if direction == Direction::Seal {
                packet[icv_at..icv_at + icv_len].copy_from_slice(&icv[..icv_len]);
            } else if found[..icv_len] != icv[..icv_len] {
                packet[icv_at..].fill(0);
                return JobStatus::AuthFailed;
            }
            return JobStatus::Done;
        }
        let Some((head, end)) = self.parts(packet.len()) else {
            return JobStatus::Malformed;
        };
        if direction == Direction::Seal {
            flip(&mut packet[head..end]);
        }
        let icv = self.icv(sequence, &packet[..end]);
        if direction == Direction::Seal {
            packet[end..].copy_from_slice(&icv[..icv_len]);
        } else if packet[end..] != icv[..icv_len] {
            packet[head..end].fill(0);
            return JobStatus::AuthFailed;
        } else {
            flip(&mut packet[head..end]);
        }
        JobStatus::Done
    }
}

/// A bijection, in which every bit counts.
fn mixed(word: u64) -> u64 {
    let word = word.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    word ^ word >> 29
}

/// Changes the body, so that plaintext cannot be taken for ciphertext.
fn flip(body: &mut [u8]) {
    for byte in body {
        *byte ^= 0x5a;
    }
}

/// Does every job of a batch, as an engine does.
pub fn process(batch: &mut Batch) {
    for job in &mut batch.jobs {
        let (start, len) = (job.esp as usize, job.len as usize);
        job.status = match (
            batch.keys.get(job.key),
            batch.buffer.get_mut(start..start + len),
        ) {
            (Some(key), Some(packet)) => {
                let icv = job.icv as usize;
                Keyed::of(key).process(batch.direction, job.sequence, packet, icv)
            }
            _ => JobStatus::Malformed,
        };
    }
}

impl Cipher for Keyed {
    fn protocol(&self) -> u8 {
        self.transform.protocol().number()
    }

    fn iv_len(&self) -> usize {
        self.transform.iv_len()
    }

    fn icv_len(&self) -> usize {
        self.transform.icv_len()
    }

    fn align(&self) -> usize {
        self.transform.block_align()
    }

    fn iv(&self, sequence: u64) -> Vec<u8> {
        match self.transform.iv_kind() {
            IvKind::Sequence => sequence.to_be_bytes().to_vec(),
            IvKind::Random => vec![RANDOM; self.iv_len()],
            IvKind::None | IvKind::Implicit => Vec::new(),
        }
    }

    fn seal(&self, sequence: u64, esp: &mut [u8]) {
        let status = self.process(Direction::Seal, sequence, esp, 0);
        assert_eq!(status, JobStatus::Done);
    }

    fn open(&self, sequence: u64, esp: &mut [u8]) -> bool {
        self.process(Direction::Open, sequence, esp, 0) == JobStatus::Done
    }

    fn authenticate(&self, sequence: u64, packet: &[u8], ah: usize) -> Vec<u8> {
        let (mut packet, icv) = (packet.to_vec(), ah + 12 + self.iv_len());
        let status = self.process(Direction::Seal, sequence, &mut packet, icv);
        assert_eq!(status, JobStatus::Done);
        packet[icv..icv + self.icv_len()].to_vec()
    }
}
