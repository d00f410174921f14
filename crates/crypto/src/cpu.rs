//! The CPU engine: seals and opens with aws-lc, and finishes a batch at once.

use std::collections::VecDeque;

use aws_lc_rs::aead::{Aad, LessSafeKey, NONCE_LEN, Nonce};
use subtle::ConstantTimeEq;

use crate::cbc::CbcHmac;
use crate::engine::{Engine, RejectReason, Rejected};
use crate::job::{Batch, Direction, Job, JobStatus};
use crate::key::{KeyContext, Keys, SALT_LEN};
use crate::self_test::{self, SelfTestError};

/// SPI and sequence number.
const ESP_HEADER_LEN: usize = 8;
const GCM_IV_LEN: usize = 8;
const GCM_ICV_LEN: usize = 16;
const CBC_IV_LEN: usize = 16;

/// Works in the caller's thread.
#[derive(Debug)]
pub struct CpuEngine {
    finished: VecDeque<Batch>,
    capacity: usize,
}

impl CpuEngine {
    /// An engine that holds at most `capacity` finished batches. Refused unless every transform
    /// gives its known answer.
    pub fn new(capacity: usize) -> Result<Self, SelfTestError> {
        self_test::run()?;
        Ok(Self {
            finished: VecDeque::with_capacity(capacity),
            capacity,
        })
    }
}

impl Engine for CpuEngine {
    fn submit(&mut self, mut batch: Batch) -> Result<(), Rejected> {
        if self.finished.len() >= self.capacity {
            let reason = RejectReason::Full;
            return Err(Rejected { batch, reason });
        }
        process(&mut batch);
        self.finished.push_back(batch);
        Ok(())
    }

    fn poll(&mut self) -> Option<Batch> {
        self.finished.pop_front()
    }
}

/// Does every job of a batch and sets its status.
pub fn process(batch: &mut Batch) {
    for job in &mut batch.jobs {
        job.status = match (
            batch.keys.get(job.key as usize),
            packet(&mut batch.buffer, job),
        ) {
            (Some(key), Some(esp)) => match batch.direction {
                Direction::Seal => seal(key, job.sequence, esp),
                Direction::Open => open(key, job.sequence, esp),
            },
            _ => JobStatus::Malformed,
        };
    }
}

fn packet<'a>(buffer: &'a mut [u8], job: &Job) -> Option<&'a mut [u8]> {
    let start = job.esp as usize;
    buffer.get_mut(start..start.checked_add(job.len as usize)?)
}

/// Whether the encrypted part of a packet of `len` bytes is a whole number of blocks.
fn well_formed(key: &KeyContext, len: usize) -> bool {
    let transform = key.transform();
    len >= transform.sealed_len_min()
        && (len - ESP_HEADER_LEN - transform.iv_len() - transform.icv_len())
            .is_multiple_of(transform.block_align())
}

/// Seals one ESP packet in place: header, IV, payload with trailer, room for the ICV.
pub fn seal(key: &KeyContext, sequence: u64, esp: &mut [u8]) -> JobStatus {
    if !well_formed(key, esp.len()) {
        return JobStatus::Malformed;
    }
    match &key.keys {
        Keys::Gcm { key: aead, salt } => seal_gcm(aead, salt, key.esn(), sequence, esp),
        Keys::CbcHmac(keys) => seal_cbc(keys, key.transform().icv_len(), key.esn(), sequence, esp),
    }
}

/// Opens one ESP packet in place; a wrong ICV leaves the payload zeroed.
pub fn open(key: &KeyContext, sequence: u64, esp: &mut [u8]) -> JobStatus {
    if !well_formed(key, esp.len()) {
        return JobStatus::Malformed;
    }
    match &key.keys {
        Keys::Gcm { key: aead, salt } => open_gcm(aead, salt, key.esn(), sequence, esp),
        Keys::CbcHmac(keys) => open_cbc(keys, key.transform().icv_len(), key.esn(), sequence, esp),
    }
}

/// SPI || sequence number, with the high half between them under ESN (RFC 4106 §5).
struct GcmAad {
    bytes: [u8; 12],
    len: usize,
}

impl GcmAad {
    fn new(header: &[u8], esn: bool, sequence: u64) -> Self {
        let mut bytes = [0; 12];
        if esn {
            bytes[..4].copy_from_slice(&header[..4]);
            bytes[4..8].copy_from_slice(&((sequence >> 32) as u32).to_be_bytes());
            bytes[8..].copy_from_slice(&header[4..8]);
            Self { bytes, len: 12 }
        } else {
            bytes[..8].copy_from_slice(&header[..8]);
            Self { bytes, len: 8 }
        }
    }

    fn aad(&self) -> Aad<&[u8]> {
        Aad::from(&self.bytes[..self.len])
    }
}

/// salt || IV (RFC 4106 §4).
fn gcm_nonce(salt: &[u8; SALT_LEN], iv: &[u8]) -> Nonce {
    let mut nonce = [0; NONCE_LEN];
    nonce[..SALT_LEN].copy_from_slice(salt);
    nonce[SALT_LEN..].copy_from_slice(iv);
    Nonce::assume_unique_for_key(nonce)
}

fn seal_gcm(
    aead: &LessSafeKey,
    salt: &[u8; SALT_LEN],
    esn: bool,
    sequence: u64,
    esp: &mut [u8],
) -> JobStatus {
    let (header, sealed) = esp.split_at_mut(ESP_HEADER_LEN);
    let (iv, sealed) = sealed.split_at_mut(GCM_IV_LEN);
    let (body, icv) = sealed.split_at_mut(sealed.len() - GCM_ICV_LEN);
    let aad = GcmAad::new(header, esn, sequence);
    match aead.seal_in_place_separate_tag(gcm_nonce(salt, iv), aad.aad(), body) {
        Ok(tag) => {
            icv.copy_from_slice(tag.as_ref());
            JobStatus::Done
        }
        Err(_) => {
            body.fill(0);
            JobStatus::Malformed
        }
    }
}

fn open_gcm(
    aead: &LessSafeKey,
    salt: &[u8; SALT_LEN],
    esn: bool,
    sequence: u64,
    esp: &mut [u8],
) -> JobStatus {
    let (header, sealed) = esp.split_at_mut(ESP_HEADER_LEN);
    let (iv, sealed) = sealed.split_at_mut(GCM_IV_LEN);
    let aad = GcmAad::new(header, esn, sequence);
    let opened = aead
        .open_in_place(gcm_nonce(salt, iv), aad.aad(), sealed)
        .is_ok();
    if opened {
        JobStatus::Done
    } else {
        // aws-lc clears its output too, but does not promise it.
        sealed.fill(0);
        JobStatus::AuthFailed
    }
}

/// The high half of an extended sequence number ends the HMAC's input but is not sent (RFC 4303 §2.2.1).
fn icv_suffix(esn: bool, sequence: u64, high: &mut [u8; 4]) -> &[u8] {
    *high = ((sequence >> 32) as u32).to_be_bytes();
    if esn { &high[..] } else { &[] }
}

fn cbc_iv(esp: &[u8]) -> [u8; CBC_IV_LEN] {
    let mut iv = [0; CBC_IV_LEN];
    iv.copy_from_slice(&esp[ESP_HEADER_LEN..ESP_HEADER_LEN + CBC_IV_LEN]);
    iv
}

fn seal_cbc(keys: &CbcHmac, icv_len: usize, esn: bool, sequence: u64, esp: &mut [u8]) -> JobStatus {
    let iv = cbc_iv(esp);
    let (authenticated, icv) = esp.split_at_mut(esp.len() - icv_len);
    keys.encrypt(iv, &mut authenticated[ESP_HEADER_LEN + CBC_IV_LEN..]);
    let mut high = [0; 4];
    let digest = keys.icv(authenticated, icv_suffix(esn, sequence, &mut high));
    icv.copy_from_slice(&digest[..icv_len]);
    JobStatus::Done
}

fn open_cbc(keys: &CbcHmac, icv_len: usize, esn: bool, sequence: u64, esp: &mut [u8]) -> JobStatus {
    let iv = cbc_iv(esp);
    let (authenticated, icv) = esp.split_at_mut(esp.len() - icv_len);
    let mut high = [0; 4];
    let digest = keys.icv(authenticated, icv_suffix(esn, sequence, &mut high));
    let body = &mut authenticated[ESP_HEADER_LEN + CBC_IV_LEN..];
    if bool::from(digest[..icv_len].ct_eq(icv)) {
        keys.decrypt(iv, body);
        JobStatus::Done
    } else {
        body.fill(0);
        JobStatus::AuthFailed
    }
}
