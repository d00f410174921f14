//! Pseudorandom functions of AES.

use esplanade_crypto::aes_prf::AesPrf;
use esplanade_crypto::secret::Secret;

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
