//! PRFs of IKE that are AES MACs: PRF_AES128_XCBC (RFC 4434) and PRF_AES128_CMAC (RFC 4615).

use crate::aes::BLOCK;
use crate::aes_mac::AesMac;
use crate::plain::{Cleansed, cleanse};
use crate::secret::Secret;

/// A PRF with its key. The key has any length.
pub struct AesPrf(AesMac);

impl AesPrf {
    /// RFC 4434 §2: zeros are appended to a shorter key. Of a longer key, the PRF itself makes one of the right length.
    pub fn xcbc(key: &[u8]) -> Self {
        let mut block = Cleansed([0; BLOCK]);
        match block.0.get_mut(..key.len()) {
            Some(start) => start.copy_from_slice(key),
            None => block = Cleansed(mac(AesMac::xcbc, &[0; BLOCK]).compute(key, &[])),
        }
        Self(mac(AesMac::xcbc, &block.0))
    }

    /// RFC 4615 §3: of a key of any other length than 16 bytes, the PRF itself makes one of that length.
    pub fn cmac(key: &[u8]) -> Self {
        let block = match key.try_into() {
            Ok(key) => Cleansed(key),
            Err(_) => Cleansed(mac(AesMac::cmac, &[0; BLOCK]).compute(key, &[])),
        };
        Self(mac(AesMac::cmac, &block.0))
    }

    pub fn compute(&self, data: &Secret) -> Secret {
        let mut output = self.0.compute(data.expose(), &[]);
        let secret = Secret::from(output.as_slice());
        cleanse(&mut output);
        secret
    }
}

fn mac(make: fn(&[u8]) -> Option<AesMac>, key: &[u8; BLOCK]) -> AesMac {
    make(key).expect("a key of 16 bytes is an AES key")
}

impl std::fmt::Debug for AesPrf {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("AesPrf").finish_non_exhaustive()
    }
}
