//! Published test vectors of the primitives.

use esplanade_testkit::vectors::primitives;

use crate::aes::{DecryptKey, EncryptKey};
use crate::cpu;
use crate::hmac::Hmac;
use crate::iana::Integrity;
use crate::job::JobStatus;
use crate::key::KeyContext;
use crate::transform::Transform;

#[test]
fn gcm_in_esp() {
    for case in primitives("esp-gcm-mcgrew.json").cases {
        let by_key = |t: &Transform| t.iv_len() == 8 && t.key_material_len() == case.key.len();
        let transform = Transform::ESP
            .into_iter()
            .find(by_key)
            .expect("a key length of GCM");
        let key = KeyContext::new(transform, case.esn, &case.key).expect("good keys");
        let mut header = case.spi.clone();
        header.extend((case.sequence as u32).to_be_bytes());
        header.extend(&case.iv);
        let mut packet = [&header[..], &case.input, &[0; 16]].concat();
        assert_eq!(cpu::seal(&key, case.sequence, &mut packet), JobStatus::Done);
        assert_eq!(packet[16..], case.output, "{}", case.name);
        assert_eq!(cpu::open(&key, case.sequence, &mut packet), JobStatus::Done);
        assert_eq!(
            packet[16..16 + case.input.len()],
            case.input,
            "{}",
            case.name
        );
    }
}

#[test]
fn aes_cbc() {
    for case in primitives("esp-aes-cbc-rfc3602.json").cases {
        let iv = case.iv.as_slice().try_into().expect("16 bytes");
        let mut body = case.input.clone();
        EncryptKey::new(&case.key)
            .expect("good key")
            .cbc(iv, &mut body);
        assert_eq!(body, case.output, "{}", case.name);
        DecryptKey::new(&case.key)
            .expect("good key")
            .cbc(iv, &mut body);
        assert_eq!(body, case.input, "{}", case.name);
    }
}

#[test]
fn hmac_sha2() {
    for case in primitives("esp-hmac-sha2-rfc4231.json").cases {
        let by_name = |i: &&Integrity| i.name() == case.integrity;
        let integrity = *Integrity::ALL.iter().find(by_name).expect("a known name");
        let hmac = Hmac::new(integrity, &case.key).expect("the key fits a block");
        for split in [0, 1, case.input.len()] {
            let (message, suffix) = case.input.split_at(split);
            let digest = hmac.compute(message, suffix);
            assert_eq!(digest[..case.output.len()], case.output, "{}", case.name);
        }
    }
}
