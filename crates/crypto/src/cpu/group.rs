//! Sorts packets by the kernels of their keys and has each kernel do its own.

use arrayvec::ArrayVec;

use super::work::{Family, Kind, call};
use super::{Kernel, Tier, Work, registers};
#[cfg(target_arch = "x86_64")]
use super::{chacha, des, gcm, pair};
use crate::job::{Direction, JobStatus};
use crate::key::KeyContext;
use crate::prefetch::prefetch_all;
use crate::transform::Protocol;
use crate::{ah, esp};

/// The packets that are sorted together: the most that any kernel takes at once.
pub(super) const GROUP: usize = 512;

/// A packet of a batch or of a caller.
pub(super) struct Packet<'a> {
    pub(super) key: &'a KeyContext,
    /// ESP header, or the IP header in front of AH: `len` bytes that may be read and written.
    pub(super) bytes: *mut u8,
    pub(super) len: u32,
    /// AH: where the ICV is.
    pub(super) icv_at: u32,
    pub(super) sequence: u64,
    /// The caller's name for it.
    pub(super) index: u32,
}

/// Packets that wait to be sealed or opened.
pub(super) struct Group<'a> {
    direction: Direction,
    packets: ArrayVec<Packet<'a>, GROUP>,
    /// One bit for each [`Kind`] among the keys.
    kinds: u32,
}

impl<'a> Group<'a> {
    pub(super) fn new(direction: Direction) -> Self {
        Self {
            direction,
            packets: ArrayVec::new(),
            kinds: 0,
        }
    }

    /// At most [`GROUP`] packets.
    #[inline(always)]
    pub(super) fn push(&mut self, packet: Packet<'a>) {
        self.kinds |= packet.key.kind().bit();
        self.packets.push(packet);
    }

    /// Does each packet and tells its status.
    ///
    /// # Safety
    /// Each packet's bytes may be read and written, by nobody else, during the call.
    pub(super) unsafe fn run(&self, mut done: impl FnMut(u32, JobStatus)) {
        let mut used = Tier::Portable;
        for kind in Kind::all().filter(|kind| self.kinds & kind.bit() != 0) {
            let done = &mut done;
            // SAFETY: the caller's promise; a key of a kind is only made on a machine that has its tier.
            unsafe {
                match kind.family {
                    Family::Library => {
                        for packet in self.of_kind(kind) {
                            done(packet.index, self.library(packet));
                        }
                    }
                    #[cfg(target_arch = "x86_64")]
                    Family::Pair => self.kernel::<pair::Key>(kind, done),
                    #[cfg(target_arch = "x86_64")]
                    Family::ChaCha => self.kernel::<chacha::Key>(kind, done),
                    #[cfg(target_arch = "x86_64")]
                    Family::Des => self.kernel::<des::EspKey>(kind, done),
                    #[cfg(target_arch = "x86_64")]
                    Family::Gcm => self.kernel::<gcm::Key>(kind, done),
                    #[cfg(not(target_arch = "x86_64"))]
                    Family::Pair | Family::ChaCha | Family::Des | Family::Gcm => {}
                }
            }
            used = used.max(kind.tier);
        }
        // SAFETY: a key of this tier has been made.
        unsafe { registers::zero(used) }
    }

    fn of_kind(&self, kind: Kind) -> impl Iterator<Item = &Packet<'a>> {
        self.packets.iter().filter(move |p| p.key.kind() == kind)
    }

    /// # Safety
    /// The packet's bytes may be read and written.
    unsafe fn library(&self, packet: &Packet) -> JobStatus {
        // SAFETY: the caller's promise.
        let bytes = unsafe { std::slice::from_raw_parts_mut(packet.bytes, packet.len as usize) };
        let (key, sequence, icv_at) = (packet.key, packet.sequence, packet.icv_at as usize);
        match (key.transform().protocol(), self.direction) {
            (Protocol::Esp, Direction::Seal) => esp::seal(key, sequence, bytes),
            (Protocol::Esp, Direction::Open) => esp::open(key, sequence, bytes),
            (Protocol::Ah, Direction::Seal) => ah::seal(key, sequence, bytes, icv_at),
            (Protocol::Ah, Direction::Open) => ah::open(key, sequence, bytes, icv_at),
        }
    }

    /// Does the packets of one kind with its kernel.
    ///
    /// # Safety
    /// As [`Group::run`]; the machine has the tier.
    unsafe fn kernel<K: Kernel>(&self, kind: Kind, done: &mut impl FnMut(u32, JobStatus)) {
        const { assert!(K::PACKETS <= GROUP) };
        let mut work = ArrayVec::<Work<K>, GROUP>::new();
        let mut from = ArrayVec::<&Packet, GROUP>::new();
        let mut last = std::ptr::null();
        for packet in self.of_kind(kind) {
            let Some(key) = K::of(&packet.key.keys).filter(|_| packet.key.fits(packet.len)) else {
                done(packet.index, JobStatus::Malformed);
                continue;
            };
            if !std::ptr::eq(key, last) {
                prefetch_all(key);
                last = key;
            }
            work.push(Work {
                key,
                packet: packet.bytes,
                len: packet.len,
                sequence: packet.sequence,
            });
            from.push(packet);
            if work.len() == K::PACKETS {
                // SAFETY: the caller's promise; the lengths fit.
                unsafe { self.call(kind, &work, &from, done) };
                work.clear();
                from.clear();
            }
        }
        if !work.is_empty() {
            // SAFETY: as above.
            unsafe { self.call(kind, &work, &from, done) };
        }
    }

    /// # Safety
    /// As [`call`].
    unsafe fn call<K: Kernel>(
        &self,
        kind: Kind,
        work: &[Work<'_, K>],
        from: &[&Packet<'_>],
        done: &mut impl FnMut(u32, JobStatus),
    ) {
        let context = |at: usize| from[at].key;
        let done = |at: usize, status| done(from[at].index, status);
        // SAFETY: the caller's promise.
        unsafe { call(kind, self.direction, work, context, done) };
    }
}
