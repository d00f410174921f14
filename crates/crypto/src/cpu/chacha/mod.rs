//! ChaCha20-Poly1305 in ESP (RFC 7634; implicit IVs by RFC 8750) and as a general AEAD (RFC 8439 §2.8).
//!
//! [`message`] defines the messages that kernels see, and [`flow`] the order of work. Each tier has its own ChaCha20
//! and its own Poly1305.

use arrayvec::ArrayVec;

use super::kernel::{Kernel, Unsealed, Work};
use crate::aead::EvpKey;
use crate::plain::{Cleansed, CleansedBlock};
use crate::spec::AeadAlgorithm;
use crate::spec::ESP_HEADER_LEN as HEADER_LEN;
use crate::tier::Tier;
use crate::transform::{IvKind, Transform};

mod avx2;
mod avx512;
mod flow;
mod message;
mod poly;
mod poly256;
mod poly512;
mod records;
#[cfg(feature = "generators")]
pub mod testing;

use message::AeadMessage;

const TAG_LEN: usize = 16;

/// A key with its salt. All parts but the library's context fit one cache line.
#[repr(C, align(64))]
pub(crate) struct ChaChaKey {
    key: Cleansed<[u8; 32]>,
    salt: Cleansed<[u8; 4]>,
    implicit_iv: bool,
    esn: bool,
    library: EvpKey,
}

impl ChaChaKey {
    /// Makes a key for ESP from key and salt. Returns `None` if the tier has no kernel.
    pub(crate) fn new(
        tier: Tier,
        transform: Transform,
        esn: bool,
        material: &[u8],
    ) -> Option<CleansedBlock<Self>> {
        let (key, salt) = material.split_last_chunk()?;
        let mut this = Self::general(tier, key)?;
        this.salt.0 = *salt;
        this.implicit_iv = transform.iv_kind() == IvKind::Implicit;
        this.esn = esn;
        Some(this)
    }

    /// Makes a key for messages that bring their nonces. Returns `None` if the tier has no kernel.
    pub(crate) fn general(tier: Tier, key: &[u8]) -> Option<CleansedBlock<Self>> {
        if tier == Tier::Portable {
            return None;
        }
        let mut this = CleansedBlock::new(Self {
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

    /// Length of the explicit IV in bytes.
    fn iv_len(&self) -> usize {
        if self.implicit_iv { 0 } else { 8 }
    }
}

impl Work<'_, ChaChaKey> {
    /// Describes the packet as an AEAD message. With ESN the high half of the sequence number stands between SPI and
    /// sequence number (RFC 7634 §2.1).
    ///
    /// # Safety
    /// - The packet's bytes may be read and written, and nobody else accesses them while the message exists.
    /// - The packet's length fits the transform.
    #[inline]
    unsafe fn message(&self) -> AeadMessage<'_> {
        let key = self.key;
        // SAFETY: every packet has an ESP header, and an IV follows it unless the IV is implicit.
        let (spi, low, iv) = unsafe {
            let spi = self.packet.cast::<[u8; 4]>().read_unaligned();
            let low = self.packet.add(4).cast::<[u8; 4]>().read_unaligned();
            let iv = if key.implicit_iv {
                // RFC 8750 §4: the IV is the 64-bit sequence number with ESN; otherwise four zero bytes and the
                // 32-bit one.
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
        // SAFETY: the packet's length fits, so the body lies in the packet.
        let mut message = unsafe {
            let body = self.packet.add(head);
            let len = self.len as usize - head - TAG_LEN;
            AeadMessage::new(key, &nonce, body, body, len)
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

    /// Pointer to the packet's ICV.
    fn icv(&self) -> *mut [u8; TAG_LEN] {
        self.packet.wrapping_add(self.len as usize - TAG_LEN).cast()
    }
}

impl Kernel for ChaChaKey {
    const PACKETS: usize = flow::MESSAGES;

    unsafe fn seal(tier: Tier, work: &[Work<'_, Self>]) -> Unsealed {
        let mut messages = ArrayVec::<_, { flow::MESSAGES }>::new();
        // SAFETY: the caller guarantees the packets; the ICV lies in the packet.
        unsafe {
            for work in work {
                messages.push(work.message());
            }
            seal(tier, &mut messages);
            let mut unsealed = Unsealed::NONE;
            for (at, (work, message)) in work.iter().zip(&messages).enumerate() {
                work.icv().write_unaligned(message.tag);
                if message.unsealed {
                    unsealed.insert(at);
                }
            }
            unsealed
        }
    }

    unsafe fn open(tier: Tier, work: &[Work<'_, Self>], authentic: &mut [bool]) {
        let mut messages = ArrayVec::<_, { flow::MESSAGES }>::new();
        // SAFETY: the caller guarantees the packets; the ICV lies in the packet.
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

/// Returns the length of the longest message that the kernel does, or `None` if the library does all. The library is
/// faster where lanes stay empty. In the AVX2 tier it is also faster for long messages, because its Poly1305 runs in
/// the scalar units beside its ChaCha20. The limits were measured on Zen 5.
fn longest(tier: Tier, messages: &[AeadMessage<'_>]) -> Option<usize> {
    let bytes = || messages.iter().map(|message| message.len).sum::<usize>();
    match (tier, messages.len()) {
        (Tier::Avx512, ..4) if bytes() < 3000 => None,
        (Tier::Avx512, _) => Some(usize::MAX),
        (_, ..8) => None,
        _ => Some(800),
    }
}

/// Seals at most [`flow::MESSAGES`] messages.
///
/// # Safety
/// - Each message's key was made for the tier, on this machine.
/// - Each message meets the obligations of [`AeadMessage::new`].
unsafe fn seal(tier: Tier, messages: &mut [AeadMessage<'_>]) {
    let longest = longest(tier, messages);
    for message in &mut *messages {
        if longest.is_none_or(|longest| message.len > longest) {
            message.seal_by_library();
        }
    }
    #[cfg(feature = "generators")]
    if let Some(message) = super::fault::unsealed(tier).and_then(|lane| messages.get_mut(lane)) {
        message.unsealed = message.by_library;
    }
    // SAFETY: the caller guarantees the tier and the messages.
    unsafe { seal_by_kernel(tier, messages) }
}

/// Opens at most [`flow::MESSAGES`] messages and sets `authentic` in each.
///
/// # Safety
/// The obligations are those of [`seal`].
unsafe fn open(tier: Tier, messages: &mut [AeadMessage<'_>]) {
    let longest = longest(tier, messages);
    for message in &mut *messages {
        if longest.is_none_or(|longest| message.len > longest) {
            message.open_by_library();
        }
    }
    // SAFETY: the caller guarantees the tier and the messages.
    unsafe { open_by_kernel(tier, messages) }
    for message in messages.iter_mut().filter(|message| !message.by_library) {
        message.authentic = same(&message.received, &message.tag);
    }
}

/// Seals the messages that the library has not sealed.
///
/// # Safety
/// The obligations are those of [`seal`].
unsafe fn seal_by_kernel(tier: Tier, messages: &mut [AeadMessage<'_>]) {
    match tier {
        // SAFETY: the caller guarantees the tier and the messages.
        Tier::Avx512 => unsafe { flow::seal::<avx512::Avx512>(messages) },
        // SAFETY: same as above.
        Tier::AesNi => unsafe { flow::seal::<avx2::Avx2>(messages) },
        Tier::Portable => debug_assert!(messages.is_empty(), "no key is made for this tier"),
    }
}

/// Decrypts the messages that the library has not opened, and sets their right tags.
///
/// # Safety
/// The obligations are those of [`seal`].
unsafe fn open_by_kernel(tier: Tier, messages: &mut [AeadMessage<'_>]) {
    match tier {
        // SAFETY: the caller guarantees the tier and the messages.
        Tier::Avx512 => unsafe { flow::open::<avx512::Avx512>(messages) },
        // SAFETY: same as above.
        Tier::AesNi => unsafe { flow::open::<avx2::Avx2>(messages) },
        Tier::Portable => debug_assert!(messages.is_empty(), "no key is made for this tier"),
    }
}

/// Computes Poly1305 tags alone, for tests of the arithmetic.
///
/// # Safety
/// The obligations are those of [`flow::Machine::tags`].
#[cfg(feature = "generators")]
unsafe fn tags(
    tier: Tier,
    messages: &mut [&mut AeadMessage<'_>],
    once: &[flow::OnceBlock],
    text: flow::CiphertextSide,
) {
    use flow::Machine;
    match tier {
        // SAFETY: the caller guarantees what `tags` needs.
        Tier::Avx512 => unsafe { avx512::Avx512::tags(messages, once, text) },
        // SAFETY: same as above.
        Tier::AesNi => unsafe { avx2::Avx2::tags(messages, once, text) },
        Tier::Portable => debug_assert!(messages.is_empty(), "no key is made for this tier"),
    }
}

/// Compares tags in constant time.
fn same(a: &[u8; TAG_LEN], b: &[u8; TAG_LEN]) -> bool {
    subtle::ConstantTimeEq::ct_eq(&a[..], &b[..]).into()
}
