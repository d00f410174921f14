//! ChaCha20-Poly1305 in ESP (RFC 7634, implicit IVs by RFC 8750), and as a general AEAD (RFC 8439 §2.8).
//!
//! [`message`] is what the kernels see, [`flow`] the order of work; each tier has its ChaCha20 and its Poly1305.

use arrayvec::ArrayVec;

use super::{Kernel, Tier, Work};
use crate::key::Keys;
use crate::plain::Cleansed;
use crate::transform::{IvKind, Transform};

mod avx512;
mod flow;
mod message;
mod poly;
mod poly512;
#[cfg(test)]
mod tests;

use message::Message;

/// SPI and sequence number.
const HEADER_LEN: usize = 8;
const TAG_LEN: usize = 16;

/// A key with its salt: one cache line.
#[repr(C, align(64))]
pub(crate) struct Key {
    key: Cleansed<[u8; 32]>,
    salt: Cleansed<[u8; 4]>,
    implicit_iv: bool,
    esn: bool,
}

impl Key {
    /// Of key and salt; None if the tier has no kernel.
    pub(crate) fn new(
        tier: Tier,
        transform: Transform,
        esn: bool,
        material: &[u8],
    ) -> Option<Box<Self>> {
        if tier != Tier::Avx512 {
            return None;
        }
        let (key, salt) = material.split_last_chunk()?;
        let mut this = Box::new(Self {
            key: Cleansed([0; 32]),
            salt: Cleansed(*salt),
            implicit_iv: transform.iv_kind() == IvKind::Implicit,
            esn,
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
        message.aad[..4].copy_from_slice(&spi);
        if key.esn {
            let high = (self.sequence >> 32) as u32;
            message.aad[4..8].copy_from_slice(&high.to_be_bytes());
            message.aad[8..12].copy_from_slice(&low);
            message.aad_len = 12;
        } else {
            message.aad[4..8].copy_from_slice(&low);
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
        // SAFETY: the caller's promise; the ICV lies in the packet.
        unsafe {
            let mut messages = messages(work);
            seal(tier, &mut messages);
            for (work, message) in work.iter().zip(&messages) {
                work.icv().write_unaligned(message.tag);
            }
        }
    }

    unsafe fn open(tier: Tier, work: &[Work<'_, Self>], authentic: &mut [bool]) {
        // SAFETY: the caller's promise; the ICV lies in the packet.
        unsafe {
            let mut messages = messages(work);
            open(tier, &mut messages);
            for ((work, message), authentic) in work.iter().zip(&messages).zip(authentic) {
                *authentic = same(&work.icv().read_unaligned(), &message.tag);
            }
        }
    }
}

/// # Safety
/// As [`Kernel::seal`].
unsafe fn messages<'a>(work: &'a [Work<'a, Key>]) -> ArrayVec<Message<'a>, { flow::MESSAGES }> {
    // SAFETY: the caller's promise.
    work.iter().map(|work| unsafe { work.message() }).collect()
}

/// # Safety
/// The machine has the tier; the messages keep what they promise.
unsafe fn seal(tier: Tier, messages: &mut [Message<'_>]) {
    match tier {
        // SAFETY: the caller's promise.
        Tier::Avx512 => unsafe { flow::seal::<avx512::Avx512>(messages) },
        _ => debug_assert!(messages.is_empty(), "no key is made for other tiers"),
    }
}

/// # Safety
/// As [`seal`].
unsafe fn open(tier: Tier, messages: &mut [Message<'_>]) {
    match tier {
        // SAFETY: the caller's promise.
        Tier::Avx512 => unsafe { flow::open::<avx512::Avx512>(messages) },
        _ => debug_assert!(messages.is_empty(), "no key is made for other tiers"),
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
        _ => debug_assert!(messages.is_empty(), "no key is made for other tiers"),
    }
}

/// Compares tags; the time does not tell where they differ.
fn same(a: &[u8; TAG_LEN], b: &[u8; TAG_LEN]) -> bool {
    subtle::ConstantTimeEq::ct_eq(&a[..], &b[..]).into()
}
