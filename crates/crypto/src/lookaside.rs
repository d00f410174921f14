//! Look-aside use: batches of packets and records in the caller's own buffers.
//!
//! A [`Batch`](crate::Batch) has one arena for all of its packets. A program that already has its bytes somewhere
//! hands over slices instead: [`EspPacket`]s for IPsec, [`Record`]s for any other protocol with an AEAD. The functions
//! work in the caller's thread and are finished when they return; keys may be shared by any number of threads.
//! Batches are faster than single calls: 64 to 128 packets or records fill the widest kernels.
//!
//! Nothing here chooses a nonce. **A key must never seal two records with one nonce**: of both AEADs that gives away
//! the exclusive or of the texts and lets anybody forge records. Count, and let no two holders of a key count in the
//! same numbers. With nonces drawn at random a key is good for 2^32 records (SP 800-38D §8.3).
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
use crate::spec::{Direction, JobStatus};
use crate::tier::{MissingFeature, SelfTestError, Tier};

pub use crate::job::EspPacket;
pub use crate::spec::{AeadAlgorithm, NONCE_LEN, TAG_LEN};

/// Seals each packet in place and sets its status. A packet whose length does not fit its transform, or whose key is
/// for AH, is [`JobStatus::Malformed`] and left as it is.
pub fn seal_esp(packets: &mut [EspPacket<'_>]) {
    process_packets(Direction::Seal, packets);
}

/// Opens each packet in place and sets its status. What is between IV and ICV of a packet that is not authentic is
/// zeroed.
pub fn open_esp(packets: &mut [EspPacket<'_>]) {
    process_packets(Direction::Open, packets);
}

/// Why a key or a record was not made.
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

/// An AEAD key, expanded. Immutable, so that any number of threads may use it at once; zeroised on drop.
pub struct AeadKey {
    algorithm: AeadAlgorithm,
    tier: Tier,
    keys: Keys,
}

enum Keys {
    Library(EvpKey),
    #[cfg(target_arch = "x86_64")]
    Gcm(Box<gcm::Key>),
    #[cfg(target_arch = "x86_64")]
    ChaCha(Box<chacha::Key>),
}

impl Keys {
    fn new(tier: Tier, algorithm: AeadAlgorithm, key: &[u8]) -> Option<Self> {
        #[cfg(target_arch = "x86_64")]
        {
            let kernel = match algorithm {
                AeadAlgorithm::ChaCha20Poly1305 => {
                    chacha::Key::general(tier, key).map(Self::ChaCha)
                }
                _ => gcm::Key::general(tier, key).map(Self::Gcm),
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
    /// For the kernels of this tier. What a tier has no kernel for is left to the library.
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
            keys: Keys::new(tier, algorithm, key).ok_or(AeadError::Refused)?,
        })
    }

    pub fn algorithm(&self) -> AeadAlgorithm {
        self.algorithm
    }

    /// The tier that it was made for.
    pub fn tier(&self) -> Tier {
        self.tier
    }

    /// Whether a kernel of ours does the work, and not the library.
    pub fn has_kernel(&self) -> bool {
        !matches!(self.keys, Keys::Library(_))
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

/// A text to be sealed or opened, with its nonce, associated data and tag.
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
    /// Where it is read, where it is written, and its length.
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
    /// The output takes the place of the input.
    pub fn in_place(
        key: &'a AeadKey,
        nonce: [u8; NONCE_LEN],
        aad: &'a [u8],
        text: &'a mut [u8],
    ) -> Result<Self, AeadError> {
        Self::new(key, nonce, aad, text.len(), Text::InPlace(text))
    }

    /// From one buffer to another of the same length.
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

    /// With the tag that opening checks.
    pub fn with_tag(mut self, tag: [u8; TAG_LEN]) -> Self {
        self.tag = tag;
        self
    }

    pub fn nonce(&self) -> [u8; NONCE_LEN] {
        self.nonce
    }

    /// What sealing has computed, or what opening compares with.
    pub fn tag(&self) -> &[u8; TAG_LEN] {
        &self.tag
    }

    /// [`JobStatus::Pending`] until it is sealed or opened.
    pub fn status(&self) -> JobStatus {
        self.status
    }
}

/// Encrypts each record and computes its tag.
pub fn seal_records(records: &mut [Record<'_>]) {
    run(Direction::Seal, records);
}

/// Checks each record's tag and decrypts it. The output of a record that is not authentic is zeros, and its status
/// [`JobStatus::AuthFailed`]; the others are not affected.
pub fn open_records(records: &mut [Record<'_>]) {
    run(Direction::Open, records);
}

fn run(direction: Direction, records: &mut [Record<'_>]) {
    for record in records.iter_mut() {
        if let Keys::Library(key) = &record.key.keys {
            record.run_by_library(direction, key);
        }
    }
    #[cfg(target_arch = "x86_64")]
    for tier in Tier::ALL {
        run_kernel(direction, tier, records, |keys| match keys {
            Keys::Gcm(key) => Some(&**key),
            _ => None,
        });
        run_kernel(direction, tier, records, |keys| match keys {
            Keys::ChaCha(key) => Some(&**key),
            _ => None,
        });
    }
}

/// Does the records whose keys are of the kernel and the tier.
#[cfg(target_arch = "x86_64")]
fn run_kernel<'a, K: RecordKernel + 'a>(
    direction: Direction,
    tier: Tier,
    records: &mut [Record<'a>],
    of: impl Fn(&'a Keys) -> Option<&'a K>,
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
        // SAFETY: a key of the tier has been made; the records borrow their buffers for longer than the call.
        Direction::Seal => unsafe {
            waiting.seal(|number, tag| results.push((number, JobStatus::Done, tag)));
        },
        // SAFETY: as above.
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
