//! DES and 3DES in CBC (RFC 2405, RFC 2451), for peers that support nothing better.

use std::ffi::c_int;
use std::mem::MaybeUninit;

use aws_lc_sys as lc;

use crate::plain::Cleansed;

pub(crate) const BLOCK: usize = 8;

/// The key schedules: one for DES, three for 3DES.
pub(crate) enum DesKey {
    Single(Cleansed<lc::DES_key_schedule>),
    Triple(Box<[Cleansed<lc::DES_key_schedule>; 3]>),
}

fn schedule(key: &[u8; BLOCK]) -> Cleansed<lc::DES_key_schedule> {
    let key = Cleansed(lc::DES_cblock { bytes: *key });
    let mut schedule = MaybeUninit::<lc::DES_key_schedule>::zeroed();
    // SAFETY: key and schedule are valid for their types. The call writes the whole schedule and cannot fail, and
    // zeros are a valid schedule anyway.
    unsafe {
        lc::DES_set_key_unchecked(&key.0, schedule.as_mut_ptr());
        Cleansed(schedule.assume_init())
    }
}

impl DesKey {
    /// Returns `None` unless the key has 8 or 24 bytes. Weak keys are refused elsewhere.
    pub(crate) fn new(key: &[u8]) -> Option<Self> {
        match key.as_chunks::<BLOCK>() {
            ([key], []) => Some(Self::single(key)),
            ([a, b, c], []) => Some(Self::triple([a, b, c])),
            _ => None,
        }
    }

    pub(crate) fn single(key: &[u8; BLOCK]) -> Self {
        Self::Single(schedule(key))
    }

    pub(crate) fn triple(keys: [&[u8; BLOCK]; 3]) -> Self {
        Self::Triple(Box::new(keys.map(schedule)))
    }

    /// Encrypts with CBC in place. `body` must consist of whole blocks.
    pub(crate) fn encrypt(&self, iv: [u8; BLOCK], body: &mut [u8]) {
        self.cbc(iv, body, lc::DES_ENCRYPT);
    }

    /// Decrypts with CBC in place. `body` must consist of whole blocks.
    pub(crate) fn decrypt(&self, iv: [u8; BLOCK], body: &mut [u8]) {
        self.cbc(iv, body, lc::DES_DECRYPT);
    }

    fn cbc(&self, iv: [u8; BLOCK], body: &mut [u8], direction: c_int) {
        assert!(body.len().is_multiple_of(BLOCK));
        let (len, input, output) = (body.len(), body.as_ptr(), body.as_mut_ptr());
        let mut iv = lc::DES_cblock { bytes: iv };
        // SAFETY: input and output are the same `len` bytes of whole blocks, and each block is read before it is
        // written. The schedules are initialised.
        unsafe {
            match self {
                Self::Single(key) => {
                    lc::DES_ncbc_encrypt(input, output, len, &key.0, &mut iv, direction);
                }
                Self::Triple(keys) => {
                    let [a, b, c] = keys.each_ref().map(|key| &raw const key.0);
                    lc::DES_ede3_cbc_encrypt(input, output, len, a, b, c, &mut iv, direction);
                }
            }
        }
    }
}
