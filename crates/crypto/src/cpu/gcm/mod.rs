//! AES-GCM in ESP (RFC 4106, RFC 8750) and as a general AEAD (RFC 5116); [`gmac`] is AES-GMAC in ESP (RFC 4543).
//!
//! [`order`] sorts a batch so that packets of one shape are neighbours. The tier's kernel then takes them in that
//! order; the kernel's module head describes its algorithm. A kernel sees each packet as a [`Frame`](frame::Frame),
//! which says where the packet's parts are.

mod aesni;
mod avx512;
mod frame;
pub(crate) mod gmac;
mod hashed_row;
mod key;
mod order;
mod records;
#[cfg(feature = "generators")]
pub mod testing;

use super::kernel::{Kernel, Unsealed, Work};
use crate::iana::Encryption;
use crate::tier::Tier;
use crate::transform::{IvKind, Transform};
use avx512::Front;
use frame::Esp;
pub(crate) use key::GcmKey;
use key::{SORTS, Use};
use order::{FrameQueue, Order, PACKETS};

/// Makes the key context of an ESP transform with AES-GCM. Returns `None` for other transforms, and if the tier has no
/// AES-GCM kernel.
pub(crate) fn key(
    tier: Tier,
    transform: Transform,
    esn: bool,
    key_material: &[u8],
) -> Option<Box<GcmKey>> {
    use Encryption::*;
    match transform.encryption()? {
        AesGcm8 | AesGcm12 | AesGcm16 | AesGcm16Iiv => context(tier, transform, esn, key_material),
        _ => None,
    }
}

/// Makes the key context of ESP with AES-GMAC. Returns `None` as [`key()`] does.
pub(crate) fn gmac_key(
    tier: Tier,
    transform: Transform,
    esn: bool,
    key_material: &[u8],
) -> Option<Box<gmac::GmacKey>> {
    match transform.encryption()? {
        Encryption::NullAuthAesGmac => {
            context(tier, transform, esn, key_material).map(gmac::GmacKey::of_gcm)
        }
        _ => None,
    }
}

fn context(
    tier: Tier,
    transform: Transform,
    esn: bool,
    key_material: &[u8],
) -> Option<Box<GcmKey>> {
    if tier == Tier::Portable || transform.integrity().is_some() {
        return None;
    }
    let (key, salt) = key_material.split_last_chunk()?;
    let purpose = Use {
        icv_len: transform.icv_len(),
        esn,
        implicit_iv: transform.iv_kind() == IvKind::Implicit,
    };
    // SAFETY: the caller checked that the machine has the tier, and every tier with a kernel includes AES-NI and
    // PCLMULQDQ.
    unsafe { GcmKey::new(tier, key, *salt, purpose) }
}

impl Kernel for GcmKey {
    const PACKETS: usize = PACKETS;
    const FETCHED: usize = order::AHEAD;

    unsafe fn seal(tier: Tier, work: &[Work<'_, Self>]) -> Unsealed {
        // SAFETY: the caller guarantees the tier and the messages.
        unsafe { run::<true>(tier, work, &mut []) }
        Unsealed::NONE
    }

    unsafe fn open(tier: Tier, work: &[Work<'_, Self>], authentic: &mut [bool]) {
        // SAFETY: the caller guarantees the tier and the messages.
        unsafe { run::<false>(tier, work, authentic) }
    }
}

const _: () = assert!(SORTS * avx512::SHAPES <= order::SHAPES);
const _: () = assert!(SORTS * aesni::SHAPES <= order::SHAPES);

/// Seals or opens the packets with the kernel of the tier.
///
/// # Safety
/// The obligations are those of [`Kernel::seal`].
unsafe fn run<const SEAL: bool>(tier: Tier, work: &[Work<'_, GcmKey>], authentic: &mut [bool]) {
    // SAFETY: the caller guarantees the tier and the messages.
    unsafe {
        match tier {
            Tier::Avx512 => run_on::<Avx512, SEAL>(work, authentic),
            _ => run_on::<AesNi, SEAL>(work, authentic),
        }
    }
}

/// The kernels of one tier.
trait Kernels {
    /// Every shape is less than this number.
    const SHAPES: usize;

    /// Returns the shape of a message: messages of one shape go through the same code.
    fn shape(text_len: usize) -> usize;

    /// Seals or opens the next `count` messages of the queue.
    ///
    /// # Safety
    /// - The CPU has the tier's features.
    /// - The queue has at least `count` messages, and the next `count` of them are valid (see
    ///   [`Frame`](frame::Frame)).
    /// - Those messages have this shape, and each of their keys has `rounds` rounds.
    unsafe fn run<F: Front, const SEAL: bool>(
        shape: usize,
        rounds: usize,
        queue: &mut FrameQueue<F>,
        count: usize,
        authentic: &mut [bool],
    );
}

macro_rules! kernels {
    ($name:ident, $module:ident) => {
        struct $name;

        impl Kernels for $name {
            const SHAPES: usize = $module::SHAPES;

            #[inline(always)]
            fn shape(text_len: usize) -> usize {
                $module::shape(text_len)
            }

            #[inline(always)]
            unsafe fn run<F: Front, const SEAL: bool>(
                shape: usize,
                rounds: usize,
                queue: &mut FrameQueue<F>,
                count: usize,
                authentic: &mut [bool],
            ) {
                // SAFETY: the caller guarantees the tier and the messages.
                unsafe { $module::run::<F, SEAL>(shape, rounds, queue, count, authentic) }
            }
        }
    };
}

kernels!(Avx512, avx512);
kernels!(AesNi, aesni);

/// Orders the packets by key sort and shape, then runs the kernel on each run of equal packets.
///
/// # Safety
/// The obligations are those of [`Kernel::seal`].
unsafe fn run_on<K: Kernels, const SEAL: bool>(work: &[Work<'_, GcmKey>], authentic: &mut [bool]) {
    let shape = |work: &Work<GcmKey>| {
        let sort = usize::from(work.layout.class);
        (sort * K::SHAPES + K::shape(work.body_len())) as u8
    };
    // Most batches have packets of a single form. One pass over the forms detects that, and sorting is skipped.
    let Some(first) = work.first() else {
        return;
    };
    let form = first.form();
    let order = match work.iter().fold(0, |any, work| any | work.form() ^ form) {
        0 => Order::in_a_row(shape(first), work.len()),
        _ => Order::new(work.iter().map(shape)),
    };
    let mut start = 0;
    for (shape, count) in order.runs() {
        let (sort, shape) = (shape / K::SHAPES, shape % K::SHAPES);
        let rounds = key::rounds_of(sort);
        // SAFETY: the caller guarantees the tier and the packets; the order is by sort (so by rounds) and by shape.
        unsafe {
            if sort < SORTS / 2 {
                let mut queue = order.queue(Esp::<false>::of(work), start);
                K::run::<_, SEAL>(shape, rounds, &mut queue, count, authentic);
            } else {
                let mut queue = order.queue(Esp::<true>::of(work), start);
                K::run::<_, SEAL>(shape, rounds, &mut queue, count, authentic);
            }
        }
        start += count;
    }
}
