//! DES-CBC or 3DES-CBC with an HMAC: the ciphers of this module in the frame of `pair`.

use arrayvec::ArrayVec;

use super::{BLOCK, Chain, DesCbcKey, LANES, decrypt, encrypt};
use crate::cpu::kernel::{Kernel, Unsealed, Work};
use crate::cpu::pair::{HasMacKey, Icvs, MacKey, Order, Sorted, filter, hash};
use crate::iana::Encryption;
use crate::plain::CleansedBlock;
use crate::spec::ESP_HEADER_LEN as HEADER_LEN;
use crate::tier::Tier;
use crate::transform::Transform;

/// The keys of one SA direction.
#[repr(C, align(64))]
pub(crate) struct EspKey {
    mac: MacKey,
    cipher: DesCbcKey,
}

impl EspKey {
    /// Makes a key. The key material must have the transform's length. Returns `None` if there is no kernel for the
    /// transform.
    pub(crate) fn new(
        tier: Tier,
        transform: Transform,
        esn: bool,
        key_material: &[u8],
    ) -> Option<CleansedBlock<Self>> {
        if tier == Tier::Portable {
            return None;
        }
        let (key, integrity_key) = key_material.split_at_checked(transform.encryption_key_len())?;
        match transform.encryption()? {
            Encryption::Des | Encryption::TripleDes => Some(CleansedBlock::new(Self {
                mac: MacKey::new(transform.integrity()?, esn, integrity_key)?,
                cipher: DesCbcKey::new(key)?,
            })),
            _ => None,
        }
    }
}

impl HasMacKey for EspKey {
    fn mac(&self) -> &MacKey {
        &self.mac
    }
}

impl Kernel for EspKey {
    /// This kernel takes more packets at once than others, because encryption has only one lane per packet.
    const PACKETS: usize = LANES;

    unsafe fn seal(tier: Tier, work: &[Work<'_, Self>]) -> Unsealed {
        let order = Sorted::new(work);
        // SAFETY: the caller guarantees the tier and the packets.
        unsafe {
            encrypt(tier, &chains(work, order.all()));
            hash(tier, work, order.all(), Icvs::Write);
        }
        Unsealed::NONE
    }

    unsafe fn open(tier: Tier, work: &[Work<'_, Self>], authentic: &mut [bool]) {
        let order = Sorted::new(work);
        // SAFETY: the caller guarantees the tier and the packets.
        unsafe {
            hash(tier, work, order.all(), Icvs::Check(authentic));
            let opened = filter(order.all(), |packet| authentic[packet]);
            decrypt(tier, &chains(work, opened.all()));
        }
    }
}

/// Describes the bodies of the packets in `order`.
///
/// # Safety
/// - The packets' bytes may be read.
/// - Their lengths fit the transform.
unsafe fn chains<'a>(work: &[Work<'a, EspKey>], order: &Order) -> ArrayVec<Chain<'a>, LANES> {
    let chain = |&packet: &u16| {
        let work = &work[usize::from(packet)];
        // SAFETY: the caller guarantees the packet; the IV follows the ESP header.
        unsafe {
            Chain {
                key: &work.key.cipher,
                iv: work.packet.add(HEADER_LEN).cast::<[u8; BLOCK]>().read(),
                body: work.body(),
                len: work.body_len() as u32,
            }
        }
    };
    order.iter().take(LANES).map(chain).collect()
}
