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

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 4434 §4 and RFC 4615 §4.
    #[test]
    fn keys_of_every_length_give_the_rfcs_answers() {
        let key: Vec<u8> = (0..16).chain([0xed, 0xcb]).collect();
        let message = Secret::from((0..20).collect::<Vec<u8>>());
        for (with_cmac, key_len, answer) in [
            (false, 16, 0x47f5_1b45_6496_6215_b898_5c63_055e_d308_u128),
            (false, 10, 0x0fa0_87af_7d86_6e76_5343_4e60_2fdd_e835),
            (false, 18, 0x8cd3_c93a_e598_a980_3006_ffb6_7c40_e9e4),
            (true, 18, 0x84a3_48a4_a45d_235b_abff_fc0d_2b4d_a09a),
            (true, 16, 0x980a_e87b_5f4c_9c52_14f5_b6a8_455e_4c2d),
            (true, 10, 0x290d_9e11_2edb_09ee_141f_cf64_c0b7_2f3d),
        ] {
            let prf = match with_cmac {
                false => AesPrf::xcbc(&key[..key_len]),
                true => AesPrf::cmac(&key[..key_len]),
            };
            let output = prf.compute(&message);
            assert_eq!(
                output,
                Secret::from(answer.to_be_bytes().as_slice()),
                "{key_len}"
            );
        }
    }
}
