//! The integrity part of a key, and the place where ICVs are written or compared.

use super::hash::Hash;
use crate::cpu::kernel::Work;
use crate::hmac::Hmac;
use crate::iana::Integrity;
use crate::plain::cleanse;

/// The hashes that have kernels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum HashName {
    Md5,
    Sha1,
    Sha256,
}

/// An HMAC key. The hash states after the two pads are computed once.
#[repr(C)]
pub(crate) struct MacKey {
    pub(super) inner: [u32; 8],
    pub(super) outer: [u32; 8],
    pub(super) hash: HashName,
    pub(super) esn: bool,
}

impl MacKey {
    /// Makes the key. Returns `None` if the algorithm has no kernel.
    pub(crate) fn new(integrity: Integrity, esn: bool, key: &[u8]) -> Option<Self> {
        let hash = match integrity {
            Integrity::HmacMd5_96 => HashName::Md5,
            Integrity::HmacSha1_96 => HashName::Sha1,
            Integrity::HmacSha2_256_128 => HashName::Sha256,
            _ => return None,
        };
        let [inner, outer] = Hmac::new(integrity, key)?.states()?;
        Some(Self {
            inner: inner.0,
            outer: outer.0,
            hash,
            esn,
        })
    }
}

impl Drop for MacKey {
    fn drop(&mut self) {
        cleanse(&mut self.inner);
        cleanse(&mut self.outer);
    }
}

/// A key that has an integrity part.
pub(crate) trait HasMacKey {
    fn mac(&self) -> &MacKey;
}

/// The use of the computed ICVs.
pub(crate) enum Icvs<'a> {
    /// The ICVs are written at the packets' ends.
    Write,
    /// The ICVs are compared with those in the packets, in constant time. Each packet's result goes to its place
    /// here.
    Check(&'a mut [bool]),
}

impl Icvs<'_> {
    pub(super) fn reborrow(&mut self) -> Icvs<'_> {
        match self {
            Self::Write => Icvs::Write,
            Self::Check(authentic) => Icvs::Check(authentic),
        }
    }

    /// Writes or compares the ICV of one packet.
    ///
    /// # Safety
    /// - The packet's bytes may be read and written.
    /// - The packet is at least as long as its ICV.
    #[inline(always)]
    pub(super) unsafe fn put<H: Hash, K>(
        &mut self,
        work: &[Work<'_, K>],
        packet: u16,
        digest: &[u32; 4],
    ) {
        let Work {
            packet: start, len, ..
        } = work[packet as usize];
        let digest = digest.map(u64::from);
        let (low, high) = (digest[0] | digest[1] << 32, digest[2] | digest[3] << 32);
        // SAFETY: the ICV is the last bytes of the packet.
        unsafe {
            let icv = start.add(len as usize - H::ICV_LEN);
            let (icv_low, icv_high) = (icv.cast::<u64>(), icv.add(8));
            match (self, H::ICV_LEN) {
                (Self::Write, 12) => {
                    icv_low.write_unaligned(low);
                    icv_high.cast::<u32>().write_unaligned(high as u32);
                }
                (Self::Write, _) => {
                    icv_low.write_unaligned(low);
                    icv_high.cast::<u64>().write_unaligned(high);
                }
                (Self::Check(authentic), icv_len) => {
                    let difference = match icv_len {
                        12 => u64::from(icv_high.cast::<u32>().read_unaligned() ^ high as u32),
                        _ => icv_high.cast::<u64>().read_unaligned() ^ high,
                    };
                    authentic[packet as usize] = difference | icv_low.read_unaligned() ^ low == 0;
                }
            }
        }
    }
}
