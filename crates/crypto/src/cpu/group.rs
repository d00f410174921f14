//! Sorts packets by the kernels of their keys and runs each kernel on its own packets.

use arrayvec::ArrayVec;

use super::gathered::Gathered;
use super::kernel::{Family, GROUP, Kernel, KernelKind};
use super::registers;
#[cfg(target_arch = "x86_64")]
use super::{chacha, des, gcm, pair};
use crate::key::{FormOf, KeyContext};
use crate::spec::{Direction, JobStatus};
use crate::tier::Tier;
use crate::transform::Protocol;
use crate::{ah, esp};

/// A packet of a batch or of a caller.
pub(super) struct GroupedPacket<'a> {
    pub(super) key: &'a KeyContext,
    /// Start of the ESP header, or of the IP header in front of AH; `len` bytes from here may be read and written.
    pub(super) bytes: *mut u8,
    pub(super) len: u32,
    /// Offset of the ICV for AH; unused for ESP.
    pub(super) icv_at: u32,
    pub(super) sequence: u64,
    /// The caller's number for the packet.
    pub(super) index: u32,
}

/// Packets that wait to be sealed or opened.
pub(super) struct PacketGroup<'a> {
    direction: Direction,
    packets: ArrayVec<GroupedPacket<'a>, GROUP>,
    /// A mask with one bit for each [`KernelKind`] among the keys.
    kinds: u32,
}

impl<'a> PacketGroup<'a> {
    pub(super) fn new(direction: Direction) -> Self {
        Self {
            direction,
            packets: ArrayVec::new(),
            kinds: 0,
        }
    }

    /// Adds a packet. Panics if there are [`GROUP`] packets already.
    #[inline(always)]
    pub(super) fn push(&mut self, packet: GroupedPacket<'a>) {
        self.kinds |= packet.key.kind().bit();
        self.packets.push(packet);
    }

    /// Processes each packet and passes its index and status to `done`.
    ///
    /// # Safety
    /// Each packet's bytes may be read and written, and nobody else accesses them during the call.
    pub(super) unsafe fn run(&self, mut done: impl FnMut(u32, JobStatus)) {
        let mut used = Tier::Portable;
        for kind in KernelKind::all().filter(|kind| self.kinds & kind.bit() != 0) {
            let done = &mut done;
            // SAFETY: the caller guarantees the bytes; a key of a kind is made only on a machine that has its tier.
            unsafe {
                match kind.family {
                    Family::Library => {
                        for packet in self.of_kind(kind) {
                            done(packet.index, self.library(packet));
                        }
                    }
                    #[cfg(target_arch = "x86_64")]
                    Family::Pair => self.kernel::<pair::CipherHmacKey>(kind, done),
                    #[cfg(target_arch = "x86_64")]
                    Family::ChaCha => self.kernel::<chacha::ChaChaKey>(kind, done),
                    #[cfg(target_arch = "x86_64")]
                    Family::Des => self.kernel::<des::EspKey>(kind, done),
                    #[cfg(target_arch = "x86_64")]
                    Family::Gcm => self.kernel::<gcm::GcmKey>(kind, done),
                    #[cfg(target_arch = "x86_64")]
                    Family::Gmac => self.kernel::<gcm::gmac::GmacKey>(kind, done),
                    #[cfg(not(target_arch = "x86_64"))]
                    Family::Pair | Family::ChaCha | Family::Des | Family::Gcm | Family::Gmac => {}
                }
            }
            used = used.max(kind.tier);
        }
        // SAFETY: a key of this tier was made, so the machine has the tier.
        unsafe { registers::zero(used) }
    }

    fn of_kind(&self, kind: KernelKind) -> impl Iterator<Item = &GroupedPacket<'a>> {
        self.packets.iter().filter(move |p| p.key.kind() == kind)
    }

    /// Processes a packet with aws-lc.
    ///
    /// # Safety
    /// The packet's bytes may be read and written, and nobody else accesses them during the call.
    unsafe fn library(&self, packet: &GroupedPacket) -> JobStatus {
        // SAFETY: the caller guarantees `len` bytes from `bytes` on.
        let bytes = unsafe { std::slice::from_raw_parts_mut(packet.bytes, packet.len as usize) };
        let (key, sequence, icv_at) = (packet.key, packet.sequence, packet.icv_at as usize);
        match (key.transform().protocol(), self.direction) {
            (Protocol::Esp, Direction::Seal) => esp::seal(key, sequence, bytes),
            (Protocol::Esp, Direction::Open) => esp::open(key, sequence, bytes),
            (Protocol::Ah, Direction::Seal) => ah::seal(key, sequence, bytes, icv_at),
            (Protocol::Ah, Direction::Open) => ah::open(key, sequence, bytes, icv_at),
        }
    }

    /// Processes the packets of one kind with its kernel.
    ///
    /// # Safety
    /// - The obligations are those of [`PacketGroup::run`].
    /// - The machine has the tier of `kind`.
    unsafe fn kernel<K: Kernel + FormOf>(
        &self,
        kind: KernelKind,
        done: &mut impl FnMut(u32, JobStatus),
    ) {
        let mut gathered = Gathered::<K>::new();
        let mut indices = ArrayVec::<u32, GROUP>::new();
        for packet in self.of_kind(kind) {
            if gathered.push(packet.key, packet.bytes, packet.len, packet.sequence) {
                indices.push(packet.index);
            } else {
                done(packet.index, JobStatus::Malformed);
            }
            if gathered.is_full() {
                // SAFETY: the caller guarantees the tier and the packets' bytes.
                unsafe { self.call(kind, &mut gathered, &mut indices, done) };
            }
        }
        if gathered.len() > 0 {
            // SAFETY: same as above.
            unsafe { self.call(kind, &mut gathered, &mut indices, done) };
        }
    }

    /// Runs the kernel on the gathered packets and reports each status by the packet's index.
    ///
    /// # Safety
    /// The obligations are those of [`Gathered::run`].
    unsafe fn call<K: Kernel + FormOf>(
        &self,
        kind: KernelKind,
        gathered: &mut Gathered<'_, K>,
        indices: &mut ArrayVec<u32, GROUP>,
        done: &mut impl FnMut(u32, JobStatus),
    ) {
        let done = |at: usize, status| done(indices[at], status);
        // SAFETY: the caller guarantees what `Gathered::run` needs.
        unsafe { gathered.run(kind.tier, self.direction, done) };
        indices.clear();
    }
}
