//! Gives tests the kernels of ChaCha20-Poly1305: messages of any form, and parts of their arithmetic.

use super::message::AeadMessage;
use super::{ChaChaKey, TAG_LEN, flow};
use crate::iana::Encryption;
use crate::plain::CleansedBlock;
use crate::tier::Tier;
use crate::transform::Transform;

/// The most messages of one call.
pub const MESSAGES: usize = flow::MESSAGES;

/// A message of the general form. It is worked on in `to`, where it is read too if `from` is none.
#[derive(Debug)]
pub struct Message<'a> {
    /// The key and the salt.
    pub material: [u8; 36],
    pub nonce: [u8; 12],
    pub aad: &'a [u8],
    pub from: Option<&'a [u8]>,
    pub to: &'a mut [u8],
}

/// Seals messages, none of them by the library. Returns their tags.
pub fn seal_by_kernel(tier: Tier, messages: &mut [Message<'_>]) -> Vec<[u8; TAG_LEN]> {
    // SAFETY: `with_all` passes what the call needs.
    with_all(tier, messages, |all| unsafe {
        super::seal_by_kernel(tier, all)
    })
}

/// Decrypts messages, none of them by the library. Returns their right tags.
pub fn open_by_kernel(tier: Tier, messages: &mut [Message<'_>]) -> Vec<[u8; TAG_LEN]> {
    // SAFETY: `with_all` passes what the call needs.
    with_all(tier, messages, |all| unsafe {
        super::open_by_kernel(tier, all)
    })
}

fn with_all(
    tier: Tier,
    messages: &mut [Message<'_>],
    work: impl FnOnce(&mut [AeadMessage<'_>]),
) -> Vec<[u8; TAG_LEN]> {
    assert!(messages.len() <= MESSAGES);
    let keys: Vec<_> = messages
        .iter()
        .map(|one| key(tier, &one.material))
        .collect();
    let all = messages.iter_mut().zip(&keys).map(|(one, key)| {
        let (len, to) = (one.to.len(), one.to.as_mut_ptr());
        let from = one.from.map_or(to.cast_const(), |from| {
            assert_eq!(from.len(), len);
            from.as_ptr()
        });
        // SAFETY: both texts have this length, and are one or do not overlap.
        let message = unsafe { AeadMessage::new(key, &one.nonce, from, to, len) };
        message.with_aad(one.aad)
    });
    let mut all: Vec<AeadMessage<'_>> = all.collect();
    work(&mut all);
    all.iter().map(|message| message.tag).collect()
}

fn key(tier: Tier, material: &[u8; 36]) -> CleansedBlock<ChaChaKey> {
    assert!(tier.available());
    let transform = Transform::esp(Encryption::ChaCha20Poly1305, 0, None).expect("a transform");
    ChaChaKey::new(tier, transform, false, material).expect("a tier with a kernel")
}

/// Computes Poly1305 tags of texts with one-time keys. All texts have the same AAD.
pub fn tags(
    tier: Tier,
    aad: &[u8],
    texts: &[Vec<[u8; 16]>],
    once: &[[u8; 64]],
) -> Vec<[u8; TAG_LEN]> {
    assert!(texts.len() == once.len() && texts.len() <= MESSAGES);
    let key = key(tier, &[7; 36]);
    let all = texts.iter().map(|text| {
        let text = text.as_flattened();
        let to = std::ptr::null_mut();
        // SAFETY: the text has this length, and nothing is written.
        let message = unsafe { AeadMessage::new(&key, &[0; 12], text.as_ptr(), to, text.len()) };
        message.with_aad(aad)
    });
    let mut all: Vec<AeadMessage<'_>> = all.collect();
    let mut refs: Vec<&mut AeadMessage<'_>> = all.iter_mut().collect();
    // SAFETY: the machine has the tier, and the texts have their messages' lengths.
    unsafe { super::tags(tier, &mut refs, once, flow::CiphertextSide::Source) };
    all.iter().map(|message| message.tag).collect()
}

pub fn same(a: &[u8; TAG_LEN], b: &[u8; TAG_LEN]) -> bool {
    super::same(a, b)
}
