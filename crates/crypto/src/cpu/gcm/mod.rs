//! AES-GCM in ESP (RFC 4106, RFC 8750), and as a general AEAD (RFC 5116).
//!
//! A batch is put in [`order`], so that packets of one shape are neighbours, and goes to the tier's kernel, whose head
//! tells what it does. To a kernel a packet is a [`Frame`](frame::Frame), which says where its parts are.

mod avx512;
mod frame;
mod key;
mod order;
mod records;
#[cfg(test)]
mod tests;

use super::{Kernel, Tier, Work};
use crate::iana::Encryption;
use crate::key::Keys;
use crate::transform::{IvKind, Transform};
use frame::Esp;
pub(crate) use key::Key;
use key::{SORTS, Use};
use order::{Order, PACKETS};

/// The key context of an AES-GCM transform of ESP. None if it is another one, or the tier has no kernel for it.
pub(super) fn key(
    tier: Tier,
    transform: Transform,
    esn: bool,
    key_material: &[u8],
) -> Option<Box<Key>> {
    use Encryption::*;
    if tier != Tier::Avx512 || transform.integrity().is_some() {
        return None;
    }
    let (AesGcm8 | AesGcm12 | AesGcm16 | AesGcm16Iiv) = transform.encryption()? else {
        return None;
    };
    let (key, salt) = key_material.split_last_chunk()?;
    let purpose = Use {
        icv_len: transform.icv_len(),
        esn,
        implicit_iv: transform.iv_kind() == IvKind::Implicit,
    };
    // SAFETY: the machine has the tier, and each has what it takes.
    unsafe { Key::new(key, *salt, purpose) }
}

impl Kernel for Key {
    const PACKETS: usize = PACKETS;

    fn of(keys: &Keys) -> Option<&Self> {
        match keys {
            Keys::Gcm(key) => Some(key),
            _ => None,
        }
    }

    unsafe fn seal(tier: Tier, work: &[Work<'_, Self>]) {
        // SAFETY: the caller's promise.
        unsafe { run::<true>(tier, work, &mut []) }
    }

    unsafe fn open(tier: Tier, work: &[Work<'_, Self>], authentic: &mut [bool]) {
        // SAFETY: the caller's promise.
        unsafe { run::<false>(tier, work, authentic) }
    }
}

const _: () = assert!(SORTS * avx512::SHAPES <= order::SHAPES);

/// # Safety
/// As [`Kernel::seal`].
unsafe fn run<const SEAL: bool>(_: Tier, work: &[Work<'_, Key>], authentic: &mut [bool]) {
    let order = Order::new(work.iter().map(|work| {
        let text_len = work.key.text_len(work.len as usize);
        (work.key.sort() * avx512::SHAPES + avx512::shape(text_len)) as u8
    }));
    let mut start = 0;
    for (shape, count) in order.runs() {
        let (sort, shape) = (shape / avx512::SHAPES, shape % avx512::SHAPES);
        let rounds = key::rounds_of(sort);
        // SAFETY: the caller's promise; the order is by sort and shape.
        unsafe {
            if sort < SORTS / 2 {
                let mut queue = order.queue(Esp::<false>::of(work), start);
                avx512::run::<_, SEAL>(shape, rounds, &mut queue, count, authentic);
            } else {
                let mut queue = order.queue(Esp::<true>::of(work), start);
                avx512::run::<_, SEAL>(shape, rounds, &mut queue, count, authentic);
            }
        }
        start += count;
    }
}
