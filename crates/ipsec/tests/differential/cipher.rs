//! The model's cryptography: it passes one packet at a time through a key context.

use std::sync::Arc;

use esplanade_crypto::random::RandomError;
use esplanade_crypto::{
    Batch, Direction, IvKind, Job, JobStatus, KeyContext, Protocol, Transform, cpu,
};
use esplanade_testkit::model::Cipher;

/// The byte of all random IVs, so that the model and the packet path use the same IVs.
const RANDOM: u8 = 0xa5;

pub fn not_random(bytes: &mut [u8]) -> Result<(), RandomError> {
    bytes.fill(RANDOM);
    Ok(())
}

/// Processes a batch as the engine does.
pub fn process(batch: &mut Batch) {
    cpu::process(batch);
}

#[derive(Clone, Debug)]
pub struct Keyed(Arc<KeyContext>);

impl Keyed {
    /// Makes a cipher. Returns none if the engine lacks the transform.
    pub fn new(transform: Transform, esn: bool, key: &[u8]) -> Option<Self> {
        KeyContext::new(transform, esn, key)
            .ok()
            .map(|key| Self(Arc::new(key)))
    }
}

impl Cipher for Keyed {
    fn protocol(&self) -> u8 {
        match self.0.transform().protocol() {
            Protocol::Esp => 50,
            Protocol::Ah => 51,
        }
    }

    fn iv_len(&self) -> usize {
        self.0.transform().iv_len()
    }

    fn icv_len(&self) -> usize {
        self.0.transform().icv_len()
    }

    fn align(&self) -> usize {
        self.0.transform().block_align()
    }

    fn iv(&self, sequence: u64) -> Vec<u8> {
        match self.0.transform().iv_kind() {
            IvKind::Sequence => sequence.to_be_bytes().to_vec(),
            IvKind::Random => vec![RANDOM; self.iv_len()],
            IvKind::None | IvKind::Implicit => Vec::new(),
        }
    }

    fn seal(&self, sequence: u64, esp: &mut [u8]) {
        assert_eq!(cpu::seal(&self.0, sequence, esp), JobStatus::Done);
    }

    fn open(&self, sequence: u64, esp: &mut [u8]) -> bool {
        cpu::open(&self.0, sequence, esp) == JobStatus::Done
    }

    fn authenticate(&self, sequence: u64, packet: &[u8], ah: usize) -> Vec<u8> {
        let mut batch = Batch::new(Direction::Seal, packet.len(), 1);
        batch.buffer.copy_from_slice(packet);
        batch.keys.insert(0, Arc::clone(&self.0));
        let icv = ah + 12 + self.iv_len();
        batch.jobs.push(Job {
            key: 0,
            esp: 0,
            len: packet.len() as u32,
            icv: icv as u32,
            sequence,
            class: 0,
            status: JobStatus::Pending,
        });
        cpu::process(&mut batch);
        assert_eq!(batch.jobs[0].status, JobStatus::Done);
        batch.buffer[icv..icv + self.icv_len()].to_vec()
    }
}
