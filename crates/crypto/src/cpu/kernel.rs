//! Defines what a kernel is and the packets that it is given.

use crate::spec::ESP_HEADER_LEN;
use crate::tier::Tier;
use crate::transform::Transform;

/// The family of kernels that works on a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Family {
    /// No kernel: aws-lc does the work.
    Library,
    /// A cipher with an HMAC.
    Pair,
    /// ChaCha20-Poly1305.
    ChaCha,
    /// DES or 3DES with an HMAC.
    Des,
    /// AES-GCM.
    Gcm,
    /// AES-GMAC.
    Gmac,
}

impl Family {
    const ALL: [Self; 6] = [
        Self::Library,
        Self::Pair,
        Self::ChaCha,
        Self::Des,
        Self::Gcm,
        Self::Gmac,
    ];
}

/// A key's family of kernels and its tier. Packets of one kind are worked on together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct KernelKind {
    pub(crate) family: Family,
    pub(crate) tier: Tier,
}

impl KernelKind {
    pub(crate) const LIBRARY: Self = Self {
        family: Family::Library,
        tier: Tier::Portable,
    };

    pub(super) fn all() -> impl Iterator<Item = Self> {
        let with_tier = |tier| Family::ALL.map(|family| Self { family, tier });
        Tier::ALL.into_iter().flat_map(with_tier)
    }

    /// This kind's bit in a set of kinds.
    #[inline(always)]
    pub(super) const fn bit(self) -> u32 {
        1 << (self.tier as usize * Family::ALL.len() + self.family as usize)
    }
}

/// Lengths of the ESP header, IV and ICV, copied from the key so that sorting a batch does not touch the key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C, align(4))]
pub(crate) struct Layout {
    /// Bytes from the SPI to the end of the IV.
    pub(crate) head: u8,
    /// Bytes that are not body: the head and the ICV.
    pub(crate) around: u8,
    /// Block size of the body in bytes, minus one.
    block_mask: u8,
    /// The number by which the key's kernel tells packets apart.
    pub(crate) class: u8,
}

impl Layout {
    pub(crate) fn new(transform: Transform, class: u8) -> Self {
        let head = ESP_HEADER_LEN + transform.iv_len();
        Self {
            head: head as u8,
            around: (head + transform.icv_len()) as u8,
            block_mask: transform.block_align() as u8 - 1,
            class,
        }
    }

    /// Returns true if an ESP packet of `len` bytes can have this layout: it needs at least one whole block between
    /// head and ICV.
    #[inline(always)]
    pub(crate) fn fits(self, len: u32) -> bool {
        let around = u32::from(self.around);
        len > around && (len - around) & u32::from(self.block_mask) == 0
    }

    /// All fields as one number, for comparisons.
    #[inline(always)]
    pub(crate) fn bits(self) -> u32 {
        u32::from_ne_bytes([self.head, self.around, self.block_mask, self.class])
    }
}

/// The most packets that are sorted together. It is the most that any kernel takes in one call.
pub(super) const GROUP: usize = 512;

/// A packet for a kernel: ESP header, IV, payload with trailer, ICV.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Work<'a, K> {
    pub(crate) key: &'a K,
    /// Start of the ESP header; `len` bytes from here may be read and written. Packets overlap only if the caller
    /// made them overlap. Their contents are then unspecified, but no other memory is touched.
    pub(crate) packet: *mut u8,
    /// Bytes from the header to the end of the ICV. The length fits the transform.
    pub(crate) len: u32,
    pub(crate) layout: Layout,
    /// All 64 bits of the sequence number, as ESN and implicit IVs need them.
    pub(crate) sequence: u64,
}

impl<K> Clone for Work<'_, K> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<K> Copy for Work<'_, K> {}

impl<K> Work<'_, K> {
    /// Start of the part that is encrypted in place.
    #[inline(always)]
    pub(crate) fn body(&self) -> *mut u8 {
        self.packet.wrapping_add(self.layout.head.into())
    }

    #[inline(always)]
    pub(crate) fn body_len(&self) -> usize {
        (self.len - u32::from(self.layout.around)) as usize
    }

    /// The packet's form. Packets with equal forms differ only in their keys, sequence numbers and bytes.
    #[inline(always)]
    pub(crate) fn form(&self) -> u64 {
        u64::from(self.len) << 32 | u64::from(self.layout.bits())
    }

    /// Zeroes the body.
    ///
    /// # Safety
    /// - The packet's bytes may be written.
    /// - The packet's length fits its layout.
    #[cold]
    pub(super) unsafe fn wipe(&self) {
        // SAFETY: the caller guarantees that the body lies in the packet and may be written.
        unsafe { self.body().write_bytes(0, self.body_len()) }
    }
}

/// The packets of one call that could not be sealed. They must not leave.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Unsealed([u64; GROUP / 64]);

impl Unsealed {
    /// Every packet is sealed.
    pub(crate) const NONE: Self = Self([0; GROUP / 64]);

    /// Adds a packet by its number in the call.
    pub(crate) fn insert(&mut self, at: usize) {
        if let Some(word) = self.0.get_mut(at / 64) {
            *word |= 1 << (at % 64);
        }
    }

    /// Returns true for a packet that could not be sealed.
    pub(crate) fn contains(&self, at: usize) -> bool {
        let word = self.0.get(at / 64);
        word.is_none_or(|word| word >> (at % 64) & 1 != 0)
    }
}

/// A family of kernels: one or more transforms, with a kernel for each tier and direction.
pub(crate) trait Kernel: Sized {
    /// The most packets in one call.
    const PACKETS: usize = 128;

    /// The keys of the first `FETCHED` packets are prefetched while packets are gathered. The kernel prefetches the
    /// others.
    const FETCHED: usize = usize::MAX;

    /// Encrypts each packet in place and writes its ICV. Returns the packets of which it could not.
    ///
    /// # Safety
    /// - The machine has the tier.
    /// - Each packet's bytes may be read and written, and nobody else accesses them during the call.
    /// - Each packet's length fits its layout.
    unsafe fn seal(tier: Tier, work: &[Work<'_, Self>]) -> Unsealed;

    /// Checks each packet's ICV and decrypts in place. The body of a packet that is not authentic is unspecified
    /// afterwards and must not be used.
    ///
    /// # Safety
    /// The obligations are those of [`Kernel::seal`]. `authentic` has one place for each packet.
    unsafe fn open(tier: Tier, work: &[Work<'_, Self>], authentic: &mut [bool]);
}
