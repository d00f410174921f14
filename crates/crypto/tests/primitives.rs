//! Runs published test vectors of the primitives.

use esplanade_crypto::iana::{Encryption, Integrity};
use esplanade_crypto::{JobStatus, KeyContext, Transform, cpu, testing};
use esplanade_testkit::vectors::{PrimitiveCase, primitive_files, primitives};

/// The algorithm of each file of RFC, NIST or Wycheproof vectors, and the least number of cases.
const FILES: &[(&str, usize)] = &[
    ("3DES-CBC", 10),
    ("AES-CBC", 8),
    ("AES-CCM", 48),
    ("AES-CMAC", 100),
    ("AES-CTR", 9),
    ("AES-GCM", 190),
    ("AES-GMAC", 200),
    ("AES-XCBC", 7),
    ("ChaCha20-Poly1305", 300),
    ("DES-CBC", 10),
    ("HMAC-MD5", 5),
    ("HMAC-SHA1", 160),
    ("HMAC-SHA256", 160),
    ("HMAC-SHA384", 160),
    ("HMAC-SHA512", 160),
];

#[test]
fn every_published_vector() {
    let mut counts: Vec<(String, usize)> = Vec::new();
    for file in primitive_files() {
        for case in &file.cases {
            run(
                &file.algorithm,
                case,
                &format!("{}: {}", file.source, case.name),
            );
        }
        counts.push((file.algorithm, file.cases.len()));
    }
    for (algorithm, least) in FILES {
        let of_it = counts.iter().filter(|(name, _)| name == algorithm);
        let sum: usize = of_it.map(|(_, count)| count).sum();
        assert!(sum >= *least, "{algorithm} has {sum} cases");
    }
}

fn run(algorithm: &str, case: &PrimitiveCase, name: &str) {
    match algorithm {
        "AES-GCM" => aead(Encryption::AesGcm16, 4, case, name),
        "AES-GMAC" => aead(Encryption::NullAuthAesGmac, 4, case, name),
        "AES-CCM" => aead(Encryption::AesCcm16, 3, case, name),
        "ChaCha20-Poly1305" => aead(Encryption::ChaCha20Poly1305, 4, case, name),
        "AES-CTR" => ctr(case, name),
        "AES-CBC" => aes_cbc(case, name),
        "DES-CBC" => des_cbc(Encryption::Des, case, name),
        "3DES-CBC" => des_cbc(Encryption::TripleDes, case, name),
        "AES-XCBC" => mac(Integrity::AesXcbc96, case, name),
        "AES-CMAC" => mac(Integrity::AesCmac96, case, name),
        "HMAC-MD5" => mac(Integrity::HmacMd5_96, case, name),
        "HMAC-SHA1" => mac(Integrity::HmacSha1_96, case, name),
        "HMAC-SHA256" => mac(Integrity::HmacSha2_256_128, case, name),
        "HMAC-SHA384" => mac(Integrity::HmacSha2_384_192, case, name),
        "HMAC-SHA512" => mac(Integrity::HmacSha2_512_256, case, name),
        _ => panic!("{name}: {algorithm} is not known"),
    }
}

fn aead(encryption: Encryption, salt_len: usize, case: &PrimitiveCase, name: &str) {
    let (salt, iv) = case.iv.split_at(salt_len);
    let iv = iv.try_into().expect("eight bytes");
    let key = [&case.key, salt].concat();
    let aead = (encryption, case.icv.len(), &key[..]);
    let (aad, input) = match encryption {
        Encryption::NullAuthAesGmac => (&case.input, &Vec::new()),
        _ => (&case.aad, &case.input),
    };
    let mut body = input.clone();
    let mut icv = vec![0; case.icv.len()];
    testing::aead_seal(aead, iv, aad, &mut body, &mut icv).expect("it fits");
    let same = body == case.output && icv == case.icv;
    assert_eq!(same, case.valid, "{name}");
    let mut body = case.output.clone();
    let opened = testing::aead_open(aead, iv, aad, &mut body, &case.icv);
    assert_eq!(opened.is_some(), case.valid, "{name}");
    match case.valid {
        true => assert_eq!(&body, input, "{name}"),
        false => assert!(body.iter().all(|&byte| byte == 0), "{name}"),
    }
}

fn ctr(case: &PrimitiveCase, name: &str) {
    let mut body = case.input.clone();
    let (salt, rest) = case.iv.split_at(4);
    let (iv, counter) = rest.split_at(8);
    assert_eq!(counter, [0, 0, 0, 1], "{name}: RFC 3686 counts from one");
    let key = [&case.key, salt].concat();
    testing::encrypt(Encryption::AesCtr, &key, iv, &mut body);
    assert_eq!(body, case.output, "{name}");
    testing::decrypt(Encryption::AesCtr, &key, iv, &mut body);
    assert_eq!(body, case.input, "{name}");
}

fn aes_cbc(case: &PrimitiveCase, name: &str) {
    let iv = case.iv.as_slice().try_into().expect("16 bytes");
    let mut body = case.input.clone();
    testing::aes_cbc_encrypt(&case.key, iv, &mut body);
    assert_eq!(body, case.output, "{name}");
    testing::aes_cbc_decrypt(&case.key, iv, &mut body);
    assert_eq!(body, case.input, "{name}");
}

fn des_cbc(encryption: Encryption, case: &PrimitiveCase, name: &str) {
    let mut body = case.input.clone();
    testing::encrypt(encryption, &case.key, &case.iv, &mut body);
    assert_eq!(body, case.output, "{name}");
    testing::decrypt(encryption, &case.key, &case.iv, &mut body);
    assert_eq!(body, case.input, "{name}");
}

/// Checks the whole MAC, with the input cut in two at several places. If the key has IPsec's length, the truncated
/// MAC is checked too.
fn mac(integrity: Integrity, case: &PrimitiveCase, name: &str) {
    let len = case.input.len();
    for split in [0, 1, 15, 16, 17, len / 2, len.saturating_sub(4), len] {
        let (message, suffix) = case.input.split_at(split.min(len));
        let digest = testing::digest(integrity, &case.key, message, suffix);
        let same = digest[..case.icv.len()] == case.icv;
        assert_eq!(same, case.valid, "{name}");
        if case.key.len() == integrity.key_len()
            && let Some(icv) = case.icv.get(..integrity.icv_len())
        {
            let expected = digest.starts_with(icv);
            let verified = testing::verify(integrity, &case.key, message, suffix, icv);
            assert_eq!(verified, expected, "{name}");
        }
    }
}

#[test]
fn gcm_in_esp() {
    for case in primitives("esp/gcm-mcgrew.json").cases {
        let by_key = |t: &Transform| {
            t.encryption() == Some(Encryption::AesGcm16) && t.key_material_len() == case.key.len()
        };
        let transform = Transform::ESP.into_iter().find(by_key);
        let transform = transform.expect("a key length of GCM");
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
