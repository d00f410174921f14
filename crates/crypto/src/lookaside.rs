//! Look-aside use: batches of packets and records in the caller's own buffers.
//!
//! A [`Batch`](crate::Batch) has one arena for all of its packets. A program whose bytes lie elsewhere hands over
//! slices instead: [`EspPacket`]s for IPsec, and [`Record`]s for any other protocol with an AEAD. The functions work
//! in the caller's thread and have finished when they return. Any number of threads may share a key. Batches are
//! faster than single calls: 64 to 128 packets or records fill the widest kernels.
//!
//! This module chooses no nonces. **A key must never seal two records with one nonce.** Otherwise both AEADs reveal
//! the exclusive or of the texts and let anybody forge records. Use a counter, and let no two holders of a key use
//! the same numbers. With random nonces a key is good for 2^32 records (SP 800-38D §8.3).
//!
//! ```
//! use esplanade_crypto::JobStatus;
//! use esplanade_crypto::lookaside::{AeadAlgorithm, AeadKey, Record, open_records, seal_records};
//!
//! let key = AeadKey::new(AeadAlgorithm::Aes256Gcm, &[7; 32])?;
//! let mut texts = [*b"first record ", *b"second record"];
//! let mut records = Vec::new();
//! for (number, text) in (0u8..).zip(&mut texts) {
//!     let mut nonce = [0; 12];
//!     nonce[11] = number;
//!     records.push(Record::in_place(&key, nonce, b"header", text)?);
//! }
//! seal_records(&mut records);
//! let tags: Vec<_> = records.iter().map(|record| (record.nonce(), *record.tag())).collect();
//!
//! let mut records = Vec::new();
//! for ((nonce, tag), text) in tags.into_iter().zip(&mut texts) {
//!     records.push(Record::in_place(&key, nonce, b"header", text)?.with_tag(tag));
//! }
//! open_records(&mut records);
//! assert!(records.iter().all(|record| record.status() == JobStatus::Done));
//! assert_eq!(texts[1], *b"second record");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

#[cfg(target_arch = "x86_64")]
use arrayvec::ArrayVec;

use crate::aead::EvpKey;
use crate::cpu::process::process_packets;
#[cfg(target_arch = "x86_64")]
use crate::cpu::records::{RECORDS, RecordKernel, RecordWork, Waiting};
#[cfg(target_arch = "x86_64")]
use crate::cpu::{chacha, gcm};
#[cfg(target_arch = "x86_64")]
use crate::plain::CleansedBlock;
use crate::spec::{Direction, JobStatus};
use crate::tier::{MissingFeature, SelfTestError, Tier};

pub use crate::job::EspPacket;
pub use crate::spec::{AeadAlgorithm, NONCE_LEN, TAG_LEN};

/// Seals each packet in place and sets its status. A packet is [`JobStatus::Malformed`] and left unchanged if its
/// length does not fit its transform, or if its key is for AH.
pub fn seal_esp(packets: &mut [EspPacket<'_>]) {
    process_packets(Direction::Seal, packets);
}

/// Opens each packet in place and sets its status. The body of a packet that is not authentic is zeroed.
pub fn open_esp(packets: &mut [EspPacket<'_>]) {
    process_packets(Direction::Open, packets);
}

/// The reason why a key or a record was not made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AeadError {
    #[error("the key has {actual} bytes, {algorithm} needs {}", algorithm.key_len())]
    KeyLength {
        algorithm: AeadAlgorithm,
        actual: usize,
    },
    #[error("the key is all zeros")]
    ZeroKey,
    #[error("the cryptographic library refused the key")]
    Refused,
    #[error(transparent)]
    Missing(#[from] MissingFeature),
    #[error(transparent)]
    SelfTest(#[from] SelfTestError),
    #[error("{from} bytes do not fit a buffer of {to}")]
    Lengths { from: usize, to: usize },
    #[error("{algorithm} takes no {len} bytes")]
    TooLong {
        algorithm: AeadAlgorithm,
        len: usize,
    },
}

/// An expanded AEAD key. It is immutable, so that any number of threads may use it at once, and it is zeroised on
/// drop.
pub struct AeadKey {
    algorithm: AeadAlgorithm,
    tier: Tier,
    keys: AeadKeys,
}

enum AeadKeys {
    Library(EvpKey),
    #[cfg(target_arch = "x86_64")]
    Gcm(Box<gcm::GcmKey>),
    #[cfg(target_arch = "x86_64")]
    ChaCha(CleansedBlock<chacha::ChaChaKey>),
}

impl AeadKeys {
    fn new(tier: Tier, algorithm: AeadAlgorithm, key: &[u8]) -> Option<Self> {
        #[cfg(target_arch = "x86_64")]
        {
            let kernel = match algorithm {
                AeadAlgorithm::ChaCha20Poly1305 => {
                    chacha::ChaChaKey::general(tier, key).map(Self::ChaCha)
                }
                _ => gcm::GcmKey::general(tier, key).map(Self::Gcm),
            };
            if kernel.is_some() {
                return kernel;
            }
        }
        #[cfg(not(target_arch = "x86_64"))]
        let _ = tier;
        EvpKey::general(algorithm, key).map(Self::Library)
    }
}

impl AeadKey {
    /// Makes a key for the kernels of this tier. If the tier has no kernel for the algorithm, the library does the
    /// work.
    pub fn for_tier(tier: Tier, algorithm: AeadAlgorithm, key: &[u8]) -> Result<Self, AeadError> {
        tier.require()?;
        if key.len() != algorithm.key_len() {
            let actual = key.len();
            return Err(AeadError::KeyLength { algorithm, actual });
        }
        if key.iter().fold(0, |all, byte| all | byte) == 0 {
            return Err(AeadError::ZeroKey);
        }
        Ok(Self {
            algorithm,
            tier,
            keys: AeadKeys::new(tier, algorithm, key).ok_or(AeadError::Refused)?,
        })
    }

    pub fn algorithm(&self) -> AeadAlgorithm {
        self.algorithm
    }

    /// The tier that the key was made for.
    pub fn tier(&self) -> Tier {
        self.tier
    }

    /// Returns true if one of our kernels does the work, and not the library.
    pub fn has_kernel(&self) -> bool {
        !matches!(self.keys, AeadKeys::Library(_))
    }
}

impl std::fmt::Debug for AeadKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("AeadKey")
            .field("algorithm", &self.algorithm)
            .field("tier", &self.tier)
            .finish_non_exhaustive()
    }
}

/// A text that is sealed or opened, with its nonce, associated data and tag.
#[derive(Debug)]
pub struct Record<'a> {
    key: &'a AeadKey,
    nonce: [u8; NONCE_LEN],
    aad: &'a [u8],
    text: Text<'a>,
    tag: [u8; TAG_LEN],
    status: JobStatus,
}

#[derive(Debug)]
enum Text<'a> {
    InPlace(&'a mut [u8]),
    Apart { from: &'a [u8], to: &'a mut [u8] },
}

impl Text<'_> {
    /// Returns the pointer to read from, the pointer to write to, and the length.
    #[cfg(target_arch = "x86_64")]
    fn pointers(&mut self) -> (*const u8, *mut u8, usize) {
        match self {
            Self::InPlace(text) => {
                let place = text.as_mut_ptr();
                (place.cast_const(), place, text.len())
            }
            Self::Apart { from, to } => (from.as_ptr(), to.as_mut_ptr(), from.len()),
        }
    }

    fn output(&mut self) -> &mut [u8] {
        match self {
            Self::InPlace(text) | Self::Apart { to: text, .. } => text,
        }
    }
}

impl<'a> Record<'a> {
    /// Makes a record whose output replaces its input.
    pub fn in_place(
        key: &'a AeadKey,
        nonce: [u8; NONCE_LEN],
        aad: &'a [u8],
        text: &'a mut [u8],
    ) -> Result<Self, AeadError> {
        Self::new(key, nonce, aad, text.len(), Text::InPlace(text))
    }

    /// Makes a record that is read from one buffer and written to another of the same length.
    pub fn apart(
        key: &'a AeadKey,
        nonce: [u8; NONCE_LEN],
        aad: &'a [u8],
        from: &'a [u8],
        to: &'a mut [u8],
    ) -> Result<Self, AeadError> {
        if from.len() != to.len() {
            return Err(AeadError::Lengths {
                from: from.len(),
                to: to.len(),
            });
        }
        Self::new(key, nonce, aad, from.len(), Text::Apart { from, to })
    }

    fn new(
        key: &'a AeadKey,
        nonce: [u8; NONCE_LEN],
        aad: &'a [u8],
        len: usize,
        text: Text<'a>,
    ) -> Result<Self, AeadError> {
        let algorithm = key.algorithm;
        if len as u64 > algorithm.text_len_max() {
            return Err(AeadError::TooLong { algorithm, len });
        }
        Ok(Self {
            key,
            nonce,
            aad,
            text,
            tag: [0; TAG_LEN],
            status: JobStatus::Pending,
        })
    }

    /// Asks for a record with a text of `len` bytes, which is not there.
    #[cfg(feature = "generators")]
    pub(crate) fn without_text(key: &'a AeadKey, len: usize) -> Result<Self, AeadError> {
        let text = Text::Apart {
            from: &[],
            to: &mut [],
        };
        Self::new(key, [0; NONCE_LEN], b"", len, text)
    }

    /// Sets the tag that opening checks.
    pub fn with_tag(mut self, tag: [u8; TAG_LEN]) -> Self {
        self.tag = tag;
        self
    }

    pub fn nonce(&self) -> [u8; NONCE_LEN] {
        self.nonce
    }

    /// The tag that sealing computed, or that opening compares with.
    pub fn tag(&self) -> &[u8; TAG_LEN] {
        &self.tag
    }

    /// [`JobStatus::Pending`] until the record is sealed or opened.
    pub fn status(&self) -> JobStatus {
        self.status
    }
}

/// Encrypts each record and computes its tag.
pub fn seal_records(records: &mut [Record<'_>]) {
    run(Direction::Seal, records);
}

/// Checks each record's tag and decrypts the record. If a record is not authentic, its output is zeroed and its
/// status is [`JobStatus::AuthFailed`]. Other records are not affected.
pub fn open_records(records: &mut [Record<'_>]) {
    run(Direction::Open, records);
}

fn run(direction: Direction, records: &mut [Record<'_>]) {
    for record in records.iter_mut() {
        if let AeadKeys::Library(key) = &record.key.keys {
            record.run_by_library(direction, key);
        }
    }
    #[cfg(target_arch = "x86_64")]
    for tier in Tier::ALL {
        run_kernel(direction, tier, records, |keys| match keys {
            AeadKeys::Gcm(key) => Some(&**key),
            _ => None,
        });
        run_kernel(direction, tier, records, |keys| match keys {
            AeadKeys::ChaCha(key) => Some(&**key),
            _ => None,
        });
    }
}

/// Does the records whose keys belong to this kernel and tier.
#[cfg(target_arch = "x86_64")]
fn run_kernel<'a, K: RecordKernel + 'a>(
    direction: Direction,
    tier: Tier,
    records: &mut [Record<'a>],
    of: impl Fn(&'a AeadKeys) -> Option<&'a K>,
) {
    let mut waiting = Waiting::new(tier);
    for number in 0..records.len() {
        let record = &mut records[number];
        let key = record.key;
        if key.tier != tier {
            continue;
        }
        let Some(key) = of(&key.keys) else { continue };
        let (from, to, len) = record.text.pointers();
        waiting.push(
            number,
            RecordWork {
                key,
                nonce: record.nonce,
                aad: record.aad,
                from,
                to,
                len,
                tag: record.tag,
                unsealed: false,
            },
        );
        if waiting.is_full() {
            flush(direction, &mut waiting, records);
        }
    }
    flush(direction, &mut waiting, records);
}

#[cfg(target_arch = "x86_64")]
fn flush<K: RecordKernel>(
    direction: Direction,
    waiting: &mut Waiting<'_, K>,
    records: &mut [Record<'_>],
) {
    if waiting.is_empty() {
        return;
    }
    let mut results = ArrayVec::<_, RECORDS>::new();
    match direction {
        // SAFETY: a key of the tier was made, so the machine has it; the records borrow their buffers for longer than
        // the call.
        Direction::Seal => unsafe {
            waiting.seal(|number, status, tag| results.push((number, status, tag)));
        },
        // SAFETY: same as above.
        Direction::Open => unsafe {
            waiting.open(|number, authentic| {
                let status = match authentic {
                    true => JobStatus::Done,
                    false => JobStatus::AuthFailed,
                };
                results.push((number, status, records[number].tag));
            });
        },
    }
    for (number, status, tag) in results {
        records[number].status = status;
        records[number].tag = tag;
    }
}

impl Record<'_> {
    fn run_by_library(&mut self, direction: Direction, key: &EvpKey) {
        if let Text::Apart { from, to } = &mut self.text {
            to.copy_from_slice(from);
        }
        let text = self.text.output();
        self.status = match direction {
            Direction::Seal => match key.seal(&self.nonce, self.aad, text, &mut self.tag) {
                Some(()) => JobStatus::Done,
                None => JobStatus::Malformed,
            },
            Direction::Open => match key.open(&self.nonce, self.aad, text, &self.tag) {
                Some(()) => JobStatus::Done,
                None => JobStatus::AuthFailed,
            },
        };
    }
}
