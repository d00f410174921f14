//! The cipher of the IKE Encrypted payload (RFC 7296 §3.14, RFC 5282). It works in place on the message.

use crate::aead::{Aead, IV_LEN};
use crate::cipher::Cipher;
use crate::iana::{Encryption, Integrity};
use crate::key::Pair;
use crate::mac::Mac;
use crate::plain::CleansedBlock;
use crate::secret::Secret;
use crate::transform::{IvKind, Transform};

/// The message was not made by a holder of the key, or it was changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the message does not authenticate")]
pub struct Forged;

/// Key lengths in bytes for one direction of an IKE SA: SK_e (with an AEAD's salt) and SK_a.
pub const fn key_lens(
    encryption: Encryption,
    key_bits: u16,
    integrity: Option<Integrity>,
) -> (usize, usize) {
    let cipher = encryption.key_len(key_bits) + encryption.salt_len();
    match integrity {
        Some(integrity) if !encryption.is_aead() => (cipher, integrity.key_len()),
        _ => (cipher, 0),
    }
}

/// The keys of one direction of an IKE SA. A gateway has many IKE SAs, and most are silent most of the time, so the forms of
/// the keys that algorithms work with live for one message only: they take up to twenty times as much memory.
pub struct SkKey {
    /// The ESP transform with the same algorithms. IKE has the same IV, ICV and block lengths.
    layout: Transform,
    encryption: Encryption,
    integrity: Option<Integrity>,
    /// SK_e, and SK_a behind it.
    secret: Secret,
    sk_e_len: usize,
}

enum SkKeys {
    Aead(CleansedBlock<Aead>),
    Pair(CleansedBlock<Pair>),
}

impl SkKey {
    /// Makes the keys. Returns `None` if a key length does not suit the algorithms, or if the algorithms do not suit
    /// each other. Also returns `None` if IKE may not use an algorithm.
    pub fn new(
        encryption: Encryption,
        integrity: Option<Integrity>,
        sk_e: &[u8],
        sk_a: &[u8],
    ) -> Option<Self> {
        if !encryption.for_ike() || !integrity.is_none_or(Integrity::for_ike) {
            return None;
        }
        let fits = |bits: &&u16| key_lens(encryption, **bits, integrity).0 == sk_e.len();
        let key_bits = *encryption.key_bits().iter().find(fits)?;
        let mut secret = Secret::with_capacity(sk_e.len() + sk_a.len());
        secret.extend(sk_e);
        secret.extend(sk_a);
        let made = Self {
            layout: Transform::esp(encryption, key_bits, integrity)?,
            encryption,
            integrity,
            secret,
            sk_e_len: sk_e.len(),
        };
        made.keys().map(|_| made)
    }

    /// The keys as the algorithms work with them.
    fn keys(&self) -> Option<SkKeys> {
        let (sk_e, sk_a) = self.secret.expose().split_at_checked(self.sk_e_len)?;
        let (encryption, icv_len) = (self.encryption, self.layout.icv_len());
        Some(match self.integrity {
            None => SkKeys::Aead(Aead::new(encryption, icv_len, sk_e)?),
            Some(integrity) => SkKeys::Pair(CleansedBlock::new(Pair {
                cipher: Cipher::new(encryption, sk_e)?,
                mac: Mac::new(integrity, sk_a)?,
            })),
        })
    }

    pub fn iv_len(&self) -> usize {
        self.layout.iv_len()
    }

    pub fn icv_len(&self) -> usize {
        self.layout.icv_len()
    }

    /// Padding and its length byte fill the content to a multiple of this many bytes. Unlike ESP, IKE has no other
    /// alignment.
    pub fn block_len(&self) -> usize {
        match self.layout.iv_kind() {
            IvKind::Random => self.layout.block_align(),
            _ => 1,
        }
    }

    /// Returns true if the IV is a counter, which must never repeat under one key. CBC's IV must be unpredictable
    /// instead.
    pub fn iv_is_counter(&self) -> bool {
        self.layout.iv_kind() == IvKind::Sequence
    }

    /// Seals a message in place and appends the ICV. The Encrypted payload's IV begins at `iv_at`, and the padded
    /// content follows it. Returns `None` if the lengths do not fit; the message is then unusable.
    pub fn seal(&self, message: &mut Vec<u8>, iv_at: usize) -> Option<()> {
        let content_at = iv_at.checked_add(self.iv_len())?;
        let content_len = message.len().checked_sub(content_at)?;
        if !content_len.is_multiple_of(self.block_len()) {
            return None;
        }
        let icv_at = message.len();
        message.resize(icv_at + self.icv_len(), 0);
        let (covered, icv) = message.split_at_mut(icv_at);
        let (head, content) = covered.split_at_mut(content_at);
        let (aad, iv) = head.split_at(iv_at);
        match self.keys()? {
            SkKeys::Aead(aead) => aead.seal(counter_iv(iv)?, aad, content, icv)?,
            SkKeys::Pair(pair) => {
                pair.cipher.encrypt(iv, content).ok()?;
                pair.mac.write(covered, &[], icv);
            }
        }
        Some(())
    }

    /// Checks the whole message and decrypts it in place. The Encrypted payload's IV begins at `iv_at`, and the ICV
    /// is the last bytes. Returns the range of the padded content.
    pub fn open(&self, message: &mut [u8], iv_at: usize) -> Result<std::ops::Range<usize>, Forged> {
        let content_at = iv_at.checked_add(self.iv_len()).ok_or(Forged)?;
        let icv_at = message.len().checked_sub(self.icv_len()).ok_or(Forged)?;
        let range = content_at..icv_at;
        if icv_at < content_at || !range.len().is_multiple_of(self.block_len()) {
            return Err(Forged);
        }
        let (covered, icv) = message.split_at_mut(icv_at);
        let keys = self.keys().ok_or(Forged)?;
        if let SkKeys::Pair(pair) = &keys
            && !pair.mac.verify(covered, &[], icv)
        {
            return Err(Forged);
        }
        let (head, content) = covered.split_at_mut(content_at);
        let (aad, iv) = head.split_at(iv_at);
        match &keys {
            SkKeys::Aead(aead) => counter_iv(iv)
                .and_then(|iv| aead.open(iv, aad, content, icv))
                .ok_or(Forged)?,
            SkKeys::Pair(pair) => pair.cipher.decrypt(iv, content).map_err(|_| Forged)?,
        }
        Ok(range)
    }
}

fn counter_iv(iv: &[u8]) -> Option<[u8; IV_LEN]> {
    iv.try_into().ok()
}

impl std::fmt::Debug for SkKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "SkKey({})", self.layout)
    }
}
