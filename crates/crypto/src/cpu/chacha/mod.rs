//! ChaCha20-Poly1305 in ESP (RFC 7634, implicit IVs by RFC 8750), and as a general AEAD (RFC 8439 §2.8).
//!
//! [`message`] is what the kernels see, [`flow`] the order of work; each tier has its ChaCha20 and its Poly1305.

use arrayvec::ArrayVec;

use super::{Kernel, Tier, Work};
use crate::aead::EvpKey;
use crate::esp::HEADER_LEN;
use crate::key::Keys;
use crate::lookaside::AeadAlgorithm;
use crate::plain::Cleansed;
use crate::transform::{IvKind, Transform};

mod avx2;
mod avx512;
mod flow;
mod message;
mod poly;
mod poly256;
mod poly512;
mod records;
#[cfg(test)]
mod tests;

use message::Message;

const TAG_LEN: usize = 16;

/// A key with its salt: one cache line, but for what the library wants.
#[repr(C, align(64))]
pub(crate) struct Key {
    key: Cleansed<[u8; 32]>,
    salt: Cleansed<[u8; 4]>,
    implicit_iv: bool,
    esn: bool,
    library: EvpKey,
}

impl Key {
    /// For ESP, of key and salt. None if the tier has no kernel.
    pub(crate) fn new(
        tier: Tier,
        transform: Transform,
        esn: bool,
        material: &[u8],
    ) -> Option<Box<Self>> {
        let (key, salt) = material.split_last_chunk()?;
        let mut this = Self::general(tier, key)?;
        this.salt.0 = *salt;
        this.implicit_iv = transform.iv_kind() == IvKind::Implicit;
        this.esn = esn;
        Some(this)
    }

    /// For messages with nonces of their own. None if the tier has no kernel.
    pub(crate) fn general(tier: Tier, key: &[u8]) -> Option<Box<Self>> {
        if tier == Tier::Portable {
            return None;
        }
        let mut this = Box::new(Self {
            key: Cleansed([0; 32]),
            salt: Cleansed([0; 4]),
            implicit_iv: false,
            esn: false,
            library: EvpKey::general(AeadAlgorithm::ChaCha20Poly1305, key)?,
        });
        this.key.0 = key.try_into().ok()?;
        Some(this)
    }

    fn bytes(&self) -> *const u8 {
        self.key.0.as_ptr()
    }

    /// Bytes of the IV in the packet.
    fn iv_len(&self) -> usize {
        if self.implicit_iv { 0 } else { 8 }
    }
}

impl Work<'_, Key> {
    /// The packet as an AEAD sees it. With ESN the high half stands between SPI and sequence number (RFC 7634 §2.1).
    ///
    /// # Safety
    /// The packet's bytes may be read and written; the length fits the transform.
    #[inline]
    unsafe fn message(&self) -> Message<'_> {
        let key = self.key;
        // SAFETY: a packet has a header, and an IV if it is not implicit.
        let (spi, low, iv) = unsafe {
            let spi = self.packet.cast::<[u8; 4]>().read_unaligned();
            let low = self.packet.add(4).cast::<[u8; 4]>().read_unaligned();
            let iv = if key.implicit_iv {
                // RFC 8750 §4: the extended sequence number, or four zero bytes and the short one.
                let mask = if key.esn { u64::MAX } else { u64::MAX >> 32 };
                (self.sequence & mask).to_be_bytes()
            } else {
                let iv = self.packet.add(HEADER_LEN);
                iv.cast::<[u8; 8]>().read_unaligned()
            };
            (spi, low, iv)
        };
        let mut nonce = [0; 12];
        nonce[..4].copy_from_slice(&key.salt.0);
        nonce[4..].copy_from_slice(&iv);
        let head = HEADER_LEN + key.iv_len();
        // SAFETY: the body lies in the packet.
        let mut message = unsafe {
            let body = self.packet.add(head);
            let len = self.len as usize - head - TAG_LEN;
            Message::new(key, &nonce, body, body, len)
        };
        message.last_aad[..4].copy_from_slice(&spi);
        if key.esn {
            let high = (self.sequence >> 32) as u32;
            message.last_aad[4..8].copy_from_slice(&high.to_be_bytes());
            message.last_aad[8..12].copy_from_slice(&low);
            message.aad_len = 12;
        } else {
            message.last_aad[4..8].copy_from_slice(&low);
            message.aad_len = 8;
        }
        message
    }

    /// Where the ICV is.
    fn icv(&self) -> *mut [u8; TAG_LEN] {
        self.packet.wrapping_add(self.len as usize - TAG_LEN).cast()
    }
}

impl Kernel for Key {
    const PACKETS: usize = flow::MESSAGES;

    fn of(keys: &Keys) -> Option<&Self> {
        match keys {
            Keys::ChaCha(key) => Some(key),
            _ => None,
        }
    }

    unsafe fn seal(tier: Tier, work: &[Work<'_, Self>]) {
        let mut messages = ArrayVec::<_, { flow::MESSAGES }>::new();
        // SAFETY: the caller's promise; the ICV lies in the packet.
        unsafe {
            for work in work {
                messages.push(work.message());
            }
            seal(tier, &mut messages);
            for (work, message) in work.iter().zip(&messages) {
                work.icv().write_unaligned(message.tag);
            }
        }
    }

    unsafe fn open(tier: Tier, work: &[Work<'_, Self>], authentic: &mut [bool]) {
        let mut messages = ArrayVec::<_, { flow::MESSAGES }>::new();
        // SAFETY: the caller's promise; the ICV lies in the packet.
        unsafe {
            for work in work {
                let icv = work.icv().read_unaligned();
                messages.push(work.message().with_received(icv));
            }
            open(tier, &mut messages);
        }
        for (message, authentic) in messages.iter().zip(authentic) {
            *authentic = message.authentic;
        }
    }
}

/// The longest message that is not the library's, which is faster where lanes stay empty, and in the narrow tier for
/// long messages: its Poly1305 runs in the scalar units beside its ChaCha20. As measured on Zen 5.
fn longest(tier: Tier, messages: &[Message<'_>]) -> Option<usize> {
    let bytes = || messages.iter().map(|message| message.len).sum::<usize>();
    match (tier, messages.len()) {
        (Tier::Avx512, ..4) if bytes() < 3000 => None,
        (Tier::Avx512, _) => Some(usize::MAX),
        (_, ..8) => None,
        _ => Some(800),
    }
}

/// At most [`flow::MESSAGES`].
///
/// # Safety
/// Their keys were made for the tier; the messages keep what they promise.
unsafe fn seal(tier: Tier, messages: &mut [Message<'_>]) {
    let longest = longest(tier, messages);
    for message in &mut *messages {
        if longest.is_none_or(|longest| message.len > longest) {
            message.seal_by_library();
        }
    }
    // SAFETY: the caller's promise.
    unsafe { seal_by_kernel(tier, messages) }
}

/// # Safety
/// As [`seal`].
unsafe fn open(tier: Tier, messages: &mut [Message<'_>]) {
    let longest = longest(tier, messages);
    for message in &mut *messages {
        if longest.is_none_or(|longest| message.len > longest) {
            message.open_by_library();
        }
    }
    // SAFETY: the caller's promise.
    unsafe { open_by_kernel(tier, messages) }
    for message in messages.iter_mut().filter(|message| !message.by_library) {
        message.authentic = same(&message.received, &message.tag);
    }
}

/// Does what the library has not.
///
/// # Safety
/// As [`seal`].
unsafe fn seal_by_kernel(tier: Tier, messages: &mut [Message<'_>]) {
    match tier {
        // SAFETY: the caller's promise.
        Tier::Avx512 => unsafe { flow::seal::<avx512::Avx512>(messages) },
        // SAFETY: as above.
        Tier::AesNi => unsafe { flow::seal::<avx2::Avx2>(messages) },
        Tier::Portable => debug_assert!(messages.is_empty(), "no key is made for this tier"),
    }
}

/// # Safety
/// As [`seal`].
unsafe fn open_by_kernel(tier: Tier, messages: &mut [Message<'_>]) {
    match tier {
        // SAFETY: the caller's promise.
        Tier::Avx512 => unsafe { flow::open::<avx512::Avx512>(messages) },
        // SAFETY: as above.
        Tier::AesNi => unsafe { flow::open::<avx2::Avx2>(messages) },
        Tier::Portable => debug_assert!(messages.is_empty(), "no key is made for this tier"),
    }
}

/// Poly1305 alone, for tests of its arithmetic.
///
/// # Safety
/// As [`flow::Machine::tags`].
#[cfg(test)]
unsafe fn tags(
    tier: Tier,
    messages: &mut [&mut Message<'_>],
    once: &[flow::OnceBlock],
    text: flow::Side,
) {
    use flow::Machine;
    match tier {
        // SAFETY: the caller's promise.
        Tier::Avx512 => unsafe { avx512::Avx512::tags(messages, once, text) },
        // SAFETY: as above.
        Tier::AesNi => unsafe { avx2::Avx2::tags(messages, once, text) },
        Tier::Portable => debug_assert!(messages.is_empty(), "no key is made for this tier"),
    }
}

/// Compares tags; the time does not tell where they differ.
fn same(a: &[u8; TAG_LEN], b: &[u8; TAG_LEN]) -> bool {
    subtle::ConstantTimeEq::ct_eq(&a[..], &b[..]).into()
}
