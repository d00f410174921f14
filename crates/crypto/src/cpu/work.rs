//! What a kernel is, and what it is given.

use arrayvec::ArrayVec;

use super::Tier;
use super::group::GROUP;
use crate::job::{Direction, JobStatus};
use crate::key::{KeyContext, Keys, Layout};
use crate::prefetch::prefetch_all;

/// Whose work a packet is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Family {
    /// No kernel: aws-lc.
    Library,
    /// A cipher and an HMAC.
    Pair,
    /// ChaCha20-Poly1305.
    ChaCha,
    /// DES or 3DES and an HMAC.
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

/// The family of kernels that a key is for, and its tier: packets of one kind are worked on together.
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

    /// Its bit in a set of kinds.
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
    /// The ESP header, with `len` bytes that may be read and written. Packets overlap if the caller made them so;
    /// what is in them is then nobody's business.
    pub(crate) packet: *mut u8,
    /// From the header to the end of the ICV; it fits the transform.
    pub(crate) len: u32,
    pub(crate) layout: Layout,
    /// The full 64 bits, for ESN and for implicit IVs.
    pub(crate) sequence: u64,
}

impl<K> Clone for Work<'_, K> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<K> Copy for Work<'_, K> {}

impl<K> Work<'_, K> {
    /// What is encrypted, in place.
    #[inline(always)]
    pub(crate) fn body(&self) -> *mut u8 {
        self.packet.wrapping_add(self.layout.head.into())
    }

    #[inline(always)]
    pub(crate) fn body_len(&self) -> usize {
        (self.len - u32::from(self.layout.around)) as usize
    }

    /// Packets of which this is the same differ in nothing but keys, sequence numbers and bytes.
    #[inline(always)]
    pub(crate) fn form(&self) -> u64 {
        u64::from(self.len) << 32 | u64::from(self.layout.bits())
    }

    /// Zeroes the body.
    ///
    /// # Safety
    /// The packet's bytes may be written; its length fits its layout.
    #[cold]
    unsafe fn wipe(&self) {
        // SAFETY: the caller's promise.
        unsafe { self.body().write_bytes(0, self.body_len()) }
    }
}

/// A family of kernels: one transform or several, a kernel for each tier and direction.
pub(crate) trait Kernel: Sized {
    /// The most packets of one call.
    const PACKETS: usize = 128;

    /// Of so many packets the keys are fetched while packets are gathered. The kernel fetches the others.
    const FETCHED: usize = usize::MAX;

    /// The key, if it is one of this family.
    fn of(keys: &Keys) -> Option<&Self>;

    /// Encrypts each packet in place and writes its ICV.
    ///
    /// # Safety
    /// The machine has the tier, and each packet's bytes may be read and written, by nobody else, during the call.
    unsafe fn seal(tier: Tier, work: &[Work<'_, Self>]);

    /// Checks each packet's ICV and decrypts in place. What it leaves of one that is not authentic must not be used.
    ///
    /// # Safety
    /// As [`Kernel::seal`].
    unsafe fn open(tier: Tier, work: &[Work<'_, Self>], authentic: &mut [bool]);
}

/// Packets of one kind on their way to the kernel.
pub(super) struct Gathered<'a, K> {
    work: ArrayVec<Work<'a, K>, GROUP>,
    /// What the last packet's key is of.
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

    /// Adds a packet, unless its key is for another family or its length does not fit. There must be room.
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

    /// Has the kernel do the packets, tells each one's status by its number in the order of [`Gathered::push`], and
    /// lets them go.
    ///
    /// # Safety
    /// As [`Kernel::seal`].
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
                // SAFETY: the caller's promise.
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
                // SAFETY: the caller's promise.
                unsafe {
                    K::open(tier, work, authentic);
                    #[cfg(test)]
                    super::fault::opened(tier, work, authentic);
                }
                for (at, (work, authentic)) in work.iter().zip(authentic).enumerate() {
                    if *authentic {
                        done(at, JobStatus::Done);
                    } else {
                        // SAFETY: the caller's promise; its length fits.
                        unsafe { work.wipe() };
                        done(at, JobStatus::AuthFailed);
                    }
                }
            }
        }
        self.work.clear();
    }
}
