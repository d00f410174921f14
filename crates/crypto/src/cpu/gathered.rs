//! Packets of one kind, gathered until their kernel takes them all in one call.

use arrayvec::ArrayVec;

use super::kernel::{GROUP, Kernel, Work};
use crate::key::{FormOf, KeyContext};
use crate::prefetch::prefetch_all;
use crate::spec::{Direction, JobStatus};
use crate::tier::Tier;

/// Packets of one kind, gathered for a call of the kernel.
pub(super) struct Gathered<'a, K> {
    work: ArrayVec<Work<'a, K>, GROUP>,
    /// The last packet's key context and the family's key in it.
    last: Option<(&'a KeyContext, &'a K)>,
}

impl<'a, K: Kernel + FormOf> Gathered<'a, K> {
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
                let unsealed = unsafe {
                    let unsealed = K::seal(tier, work);
                    #[cfg(feature = "generators")]
                    super::fault::sealed(tier, work);
                    unsealed
                };
                for at in 0..work.len() {
                    done(
                        at,
                        match unsealed.contains(at) {
                            false => JobStatus::Done,
                            true => JobStatus::Malformed,
                        },
                    );
                }
            }
            Direction::Open => {
                let mut authentic = [false; GROUP];
                let authentic = &mut authentic[..work.len()];
                // SAFETY: the caller guarantees the tier and the packets; `push` checked the lengths. `authentic` has
                // as many
                // places as there are packets.
                unsafe {
                    K::open(tier, work, authentic);
                    #[cfg(feature = "generators")]
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
