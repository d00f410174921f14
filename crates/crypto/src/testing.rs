//! Gives the tests of this crate its inside. They are integration tests, so that the crate is compiled once.
//! Kernels get packets as ranges of one arena, so the tests themselves need no pointers.

use std::ops::Range;
use std::time::Duration;

use crate::aead::Aead;
use crate::aes::{DecryptKey, EncryptKey};
use crate::aes_mac::AesMac;
use crate::cipher::Cipher;
use crate::cpu::kernel::{Kernel, Work};
use crate::hmac::Hmac;
use crate::iana::{Encryption, Group, Integrity};
use crate::key::{FormOf, KeyContext};
use crate::lookaside::{AeadError, AeadKey, Record};
use crate::mac::Mac;
use crate::selection::{CheaperTier, Selection};
use crate::slots::SlotTable;
use crate::spec::{AeadAlgorithm, Direction};
use crate::tier::{SelfTestError, Tier};
use crate::transform::Transform;
use crate::weak::WeakKey;
use crate::{cost, dh, key_file, plain, selection, self_test, weak};

pub use crate::cpu::fault;
pub use crate::cpu::kernel::Family;
#[cfg(target_arch = "x86_64")]
pub use crate::cpu::{chacha::testing as chacha, des::testing as des, gcm::testing as gcm};
pub use crate::finalists::testing as finalists;
pub use crate::key_slot::HeldSlot;

/// A packet in an arena: its key, its bytes and its sequence number.
pub type ArenaPacket<'a> = (&'a KeyContext, Range<usize>, u64);

/// Seals packets in one call of the kernel of the first one's key. Tells which are sealed.
#[cfg(target_arch = "x86_64")]
pub fn seal(tier: Tier, arena: &mut [u8], packets: &[ArenaPacket<'_>]) -> Vec<bool> {
    kernel_call(Direction::Seal, tier, arena, packets)
}

/// Opens packets in one call of the kernel of the first one's key. Tells which are authentic.
#[cfg(target_arch = "x86_64")]
pub fn open(tier: Tier, arena: &mut [u8], packets: &[ArenaPacket<'_>]) -> Vec<bool> {
    kernel_call(Direction::Open, tier, arena, packets)
}

#[cfg(target_arch = "x86_64")]
fn kernel_call(
    direction: Direction,
    tier: Tier,
    arena: &mut [u8],
    packets: &[ArenaPacket<'_>],
) -> Vec<bool> {
    use crate::cpu::{chacha::ChaChaKey, gcm::GcmKey, gcm::gmac::GmacKey};
    match packets.first().map(|(key, ..)| family(key)) {
        Some(Family::Gcm) => call::<GcmKey>(direction, tier, arena, packets),
        Some(Family::Gmac) => call::<GmacKey>(direction, tier, arena, packets),
        Some(Family::ChaCha) => call::<ChaChaKey>(direction, tier, arena, packets),
        other => panic!("{other:?} is not called by itself"),
    }
}

#[cfg(target_arch = "x86_64")]
fn call<K: Kernel + FormOf>(
    direction: Direction,
    tier: Tier,
    arena: &mut [u8],
    packets: &[ArenaPacket<'_>],
) -> Vec<bool> {
    assert!(tier.available() && packets.len() <= K::PACKETS);
    let (room, start) = (arena.len(), arena.as_mut_ptr());
    let work = packets.iter().map(|(key, range, sequence)| {
        let len = u32::try_from(range.len()).expect("a packet's length");
        assert!(range.end <= room && key.layout().fits(len));
        Work {
            key: K::of(&key.keys).expect("a key of this kernel"),
            packet: start.wrapping_add(range.start),
            len,
            layout: key.layout(),
            sequence: *sequence,
        }
    });
    let work: Vec<Work<'_, K>> = work.collect();
    match direction {
        Direction::Seal => {
            // SAFETY: the machine has the tier, and the packets lie in the arena.
            let unsealed = unsafe { K::seal(tier, &work) };
            (0..work.len()).map(|at| !unsealed.contains(at)).collect()
        }
        Direction::Open => {
            let mut authentic = vec![false; work.len()];
            // SAFETY: same as above.
            unsafe { K::open(tier, &work, &mut authentic) };
            authentic
        }
    }
}

pub fn hold_slot() -> HeldSlot {
    HeldSlot::new()
}

pub fn family(key: &KeyContext) -> Family {
    key.kind().family
}

/// Tells whether a kernel takes packets of this length.
pub fn fits(key: &KeyContext, len: u32) -> bool {
    key.layout().fits(len)
}

/// Seals with the library. Returns `None` if the lengths do not fit.
pub fn aead_seal(
    (encryption, icv_len, key): (Encryption, usize, &[u8]),
    iv: [u8; 8],
    aad: &[u8],
    body: &mut [u8],
    icv: &mut [u8],
) -> Option<()> {
    let aead = Aead::new(encryption, icv_len, key).expect("a good key");
    aead.seal(iv, aad, body, icv)
}

/// Opens with the library. Returns `None` if the ICV is wrong.
pub fn aead_open(
    (encryption, icv_len, key): (Encryption, usize, &[u8]),
    iv: [u8; 8],
    aad: &[u8],
    body: &mut [u8],
    icv: &[u8],
) -> Option<()> {
    let aead = Aead::new(encryption, icv_len, key).expect("a good key");
    aead.open(iv, aad, body, icv)
}

/// Encrypts with the library.
pub fn encrypt(encryption: Encryption, key: &[u8], iv: &[u8], body: &mut [u8]) {
    let cipher = Cipher::new(encryption, key).expect("a good key");
    assert!(cipher.encrypt(iv, body).is_ok(), "the IV's length");
}

/// Decrypts with the library.
pub fn decrypt(encryption: Encryption, key: &[u8], iv: &[u8], body: &mut [u8]) {
    let cipher = Cipher::new(encryption, key).expect("a good key");
    assert!(cipher.decrypt(iv, body).is_ok(), "the IV's length");
}

pub fn aes_cbc_encrypt(key: &[u8], iv: [u8; 16], body: &mut [u8]) {
    EncryptKey::new(key).expect("a good key").cbc(iv, body);
}

pub fn aes_cbc_decrypt(key: &[u8], iv: [u8; 16], body: &mut [u8]) {
    DecryptKey::new(key).expect("a good key").cbc(iv, body);
}

/// The whole MAC of `message` and `suffix` with a key of any length.
pub fn digest(integrity: Integrity, key: &[u8], message: &[u8], suffix: &[u8]) -> Vec<u8> {
    let aes = match integrity {
        Integrity::AesXcbc96 => AesMac::xcbc(key),
        Integrity::AesCmac96 => AesMac::cmac(key),
        _ => {
            let hmac = Hmac::new(integrity, key).expect("the key fits a block");
            return hmac.compute(message, suffix).to_vec();
        }
    };
    aes.expect("a good key").compute(message, suffix).to_vec()
}

/// Compares a truncated MAC.
pub fn verify(integrity: Integrity, key: &[u8], message: &[u8], suffix: &[u8], icv: &[u8]) -> bool {
    let mac = Mac::new(integrity, key).expect("a good key");
    mac.verify(message, suffix, icv)
}

/// The round keys of AES and their number, by the kernels' expansion. `None` if the key's length is wrong. The machine must
/// have AES-NI.
#[cfg(target_arch = "x86_64")]
pub fn aes_round_keys(key: &[u8]) -> Option<(usize, [[u8; 16]; 15])> {
    assert!(is_x86_feature_detected!("aes") && is_x86_feature_detected!("ssse3"));
    let mut round_keys = [[0; 16]; 15];
    // SAFETY: the machine has the instructions.
    let rounds = unsafe { crate::cpu::aes::expand(key, &mut round_keys) }?;
    Some((rounds, round_keys))
}

/// The prime of a MODP group.
pub fn modulus(group: Group) -> Option<Vec<u8>> {
    dh::modp::modulus(group)
}

/// Number of chunks that a table keeps room for.
pub fn chunks<T>(table: &SlotTable<T>) -> Option<usize> {
    table.0.as_ref().map(|chunks| chunks.len())
}

pub fn iterations(ber: &[u8]) -> u64 {
    key_file::iterations::iterations(ber)
}

/// Asks for a record with a text of `len` bytes, which is not there.
pub fn record_of_len(key: &AeadKey, len: usize) -> Result<(), AeadError> {
    Record::without_text(key, len).map(|_| ())
}

pub fn check_weak(transform: Transform, key_material: &[u8]) -> Result<(), WeakKey> {
    weak::check(transform, key_material)
}

pub fn cleanse<const N: usize>(value: &mut [u64; N]) {
    plain::cleanse(value);
}

pub fn cleanse_all<const N: usize>(values: &mut [[u8; N]]) {
    plain::cleanse_all(values);
}

/// Payloads that [`costs_by_tier`] measures with.
pub const MIX: &[usize] = &cost::MIX;

pub fn costs_by_tier(
    tiers: &[Tier],
    transform: Transform,
    now: impl Fn() -> Duration,
) -> Vec<(Tier, u64)> {
    cost::by_tier(tiers, transform, now)
}

/// The known answers of the self-test.
pub const ANSWERS: &str = self_test::ANSWERS;

pub fn check_answer(tier: Tier, transform: Transform, answer: &str) -> Result<(), &'static str> {
    self_test::check(tier, transform, answer)
}

pub fn check_batch(tier: Tier, transform: Transform, known: &[&str]) -> Result<(), &'static str> {
    self_test::check_batch(tier, transform, known)
}

pub fn check_records(tier: Tier, algorithm: AeadAlgorithm) -> Result<(), &'static str> {
    self_test::check_records(tier, algorithm)
}

/// Selects a tier, and does not make it the process's.
pub fn best_tier() -> Result<Selection, SelfTestError> {
    selection::best()
}

pub fn ways(current: Tier, transform: Transform) -> Vec<Tier> {
    selection::ways(current, transform)
}

pub fn choose(current: Tier, costs: &[(Tier, u64)]) -> Option<CheaperTier> {
    selection::choose(current, costs)
}

pub fn cheaper(
    current: Tier,
    transform: Transform,
    now: impl Fn() -> Duration,
) -> Option<CheaperTier> {
    selection::cheaper(current, transform, now)
}
