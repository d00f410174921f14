//! Defines what a kernel is and the packets that it is given.

use arrayvec::ArrayVec;

use super::Tier;
use super::group::GROUP;
use crate::job::{Direction, JobStatus};
use crate::key::{KeyContext, Keys, Layout};
use crate::prefetch::prefetch_all;

/// The family of kernels that works on a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Family {
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
pub(crate) struct Kind {
    pub(crate) family: Family,
    pub(crate) tier: Tier,
}

impl Kind {
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
    /// All 64 bits, as ESN and implicit IVs need them.
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

    /// Packets with equal forms differ only in their keys, sequence numbers and bytes.
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
    unsafe fn wipe(&self) {
        // SAFETY: the caller guarantees that the body lies in the packet and may be written.
        unsafe { self.body().write_bytes(0, self.body_len()) }
    }
}

/// A family of kernels: one or more transforms, with a kernel for each tier and direction.
pub(crate) trait Kernel: Sized {
    /// The most packets in one call.
    const PACKETS: usize = 128;

    /// The keys of the first `FETCHED` packets are prefetched while packets are gathered. The kernel prefetches the
    /// others.
    const FETCHED: usize = usize::MAX;

    /// Returns the key if it belongs to this family.
    fn of(keys: &Keys) -> Option<&Self>;

    /// Encrypts each packet in place and writes its ICV.
    ///
    /// # Safety
    /// - The machine has the tier.
    /// - Each packet's bytes may be read and written, and nobody else accesses them during the call.
    /// - Each packet's length fits its layout.
    unsafe fn seal(tier: Tier, work: &[Work<'_, Self>]);

    /// Checks each packet's ICV and decrypts in place. The body of a packet that is not authentic is unspecified
    /// afterwards and must not be used.
    ///
    /// # Safety
    /// The obligations are those of [`Kernel::seal`]. `authentic` has one place for each packet.
    unsafe fn open(tier: Tier, work: &[Work<'_, Self>], authentic: &mut [bool]);
}

/// Packets of one kind, gathered for a call of the kernel.
pub(super) struct Gathered<'a, K> {
    work: ArrayVec<Work<'a, K>, GROUP>,
    /// The last packet's key context and the family's key in it.
    last: Option<(&'a KeyContext, &'a K)>,
}

impl<'a, K: Kernel> Gathered<'a, K> {
    pub(super) fn new() -> Self {
        const { assert!(K::PACKETS <= GROUP) };
        Self {
            work: ArrayVec::new(),
            last: None,
        }
    }

    pub(super) fn len(&self) -> usize {
        self.work.len()
    }

    pub(super) fn is_full(&self) -> bool {
        self.len() == K::PACKETS
    }

    /// Adds a packet and returns true. Returns false if the key belongs to another family or the length does not fit.
    /// Panics if the list is full.
    #[inline(always)]
    pub(super) fn push(
        &mut self,
        context: &'a KeyContext,
        packet: *mut u8,
        len: u32,
        sequence: u64,
    ) -> bool {
        let key = match self.last {
            Some((last, key)) if std::ptr::eq(last, context) => key,
            _ => {
                let Some(key) = K::of(&context.keys) else {
                    return false;
                };
                self.last = Some((context, key));
                if self.len() < K::FETCHED {
                    prefetch_all(key);
                }
                key
            }
        };
        let layout = context.layout();
        let fits = layout.fits(len);
        if fits {
            self.work.push(Work {
                key,
                packet,
                len,
                layout,
                sequence,
            });
        }
        fits
    }

    /// Runs the kernel on the gathered packets and clears the list. `done` gets each packet's status and its number
    /// in the order of [`Gathered::push`].
    ///
    /// # Safety
    /// The obligations are those of [`Kernel::seal`], for all packets that were pushed.
    #[inline(always)]
    pub(super) unsafe fn run(
        &mut self,
        tier: Tier,
        direction: Direction,
        mut done: impl FnMut(usize, JobStatus),
    ) {
        let work = &self.work;
        match direction {
            Direction::Seal => {
                // SAFETY: the caller guarantees the tier and the packets; `push` checked the lengths.
                unsafe {
                    K::seal(tier, work);
                    #[cfg(test)]
                    super::fault::sealed(tier, work);
                }
                (0..work.len()).for_each(|at| done(at, JobStatus::Done));
            }
            Direction::Open => {
                let mut authentic = [false; GROUP];
                let authentic = &mut authentic[..work.len()];
                // SAFETY: as for sealing; `authentic` has as many places as there are packets.
                unsafe {
                    K::open(tier, work, authentic);
                    #[cfg(test)]
                    super::fault::opened(tier, work, authentic);
                }
                for (at, (work, authentic)) in work.iter().zip(authentic).enumerate() {
                    if *authentic {
                        done(at, JobStatus::Done);
                    } else {
                        // SAFETY: the caller guarantees the packet's bytes; `push` checked its length.
                        unsafe { work.wipe() };
                        done(at, JobStatus::AuthFailed);
                    }
                }
            }
        }
        self.work.clear();
    }
}
