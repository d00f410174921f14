//! Tests of proposals.

use super::*;

#[test]
fn combined_mode_needs_a_prf_and_drops_integrity() {
    let one = ike("aes128gcm16-prfsha256-x25519", false).ok().unwrap();
    assert_eq!(one[0].encryption, [(AesGcm16, 128)]);
    assert!(one[0].integrity.is_empty());
    assert_eq!(one[0].prf, [Prf::HmacSha2_256]);
    let two = ike("aes256gcm16-sha384-ecp384", false).ok().unwrap();
    assert!(two[0].integrity.is_empty());
    assert_eq!(two[0].prf, [Prf::HmacSha2_384]);
    assert!(said("aes256gcm16-x25519").what.contains("no PRF"));
}

#[test]
fn plain_ciphers_take_the_prf_from_the_integrity() {
    let one = ike("aes128-aes256-sha256-modp2048-x25519", false)
        .ok()
        .unwrap();
    assert_eq!(one[0].encryption, [(AesCbc, 128), (AesCbc, 256)]);
    assert_eq!(one[0].prf, [Prf::HmacSha2_256]);
    assert_eq!(one[0].groups, [Group::Modp2048, Group::Curve25519]);
    assert!(esp("aes128").is_err_and(|bad| bad.what.contains("integrity")));
    assert!(said("aes128-sha256").what.contains("key exchange"));
    assert!(
        said("aes128gcm16-aes128-sha256-x25519")
            .what
            .contains("mixes")
    );
}

#[test]
fn esn_is_on_only_where_asked_for() {
    assert_eq!(
        esp("aes128gcm16").unwrap()[0].sequence_numbers,
        [SequenceNumbers::Bits32]
    );
    assert_eq!(
        esp("aes128gcm16-esn").unwrap()[0].sequence_numbers,
        [SequenceNumbers::Bits64]
    );
    assert_eq!(
        esp("aes128gcm16-esn-noesn").unwrap()[0]
            .sequence_numbers
            .len(),
        2
    );
}

#[test]
fn refusals_say_why() {
    for (text, part) in [
        ("3des-sha256-x25519", "ENCR_3DES is not for IKE"),
        (
            "aes128-md5-prfsha256-x25519",
            "AUTH_HMAC_MD5_96 is not for IKE",
        ),
        ("aes128gmac-prfsha256-x25519", "GMAC is not for IKE"),
        ("null-sha256-x25519", "ENCR_NULL is not for IKE"),
        ("blowfish-sha256-x25519", "Sweet32"),
        (
            "aes256-sha1-modp2048",
            "names no PRF, which makes it PRF_HMAC_SHA1",
        ),
        ("aes256-sha256-prfsha1-modp2048", "PRF_HMAC_SHA1 is weak"),
        ("aes128-sha256-modp1024", "1024-bit"),
        ("aes128-sha256-modp2048s256", "small subgroups"),
        ("camellia128-sha256-x25519", "no library"),
        (
            "serpent256-sha256-x25519",
            "ENCR_SERPENT_CBC is not for IKE SAs: ciphers for private use",
        ),
        (
            "aes256-mars128ctr-sha256-x25519",
            "ENCR_MARS_CTR is not for IKE SAs",
        ),
        ("aes256-sha256-ecp256bp", "no library"),
        ("aes256-sha256-x25519-ke1_mlkem768", "RFC 9370"),
        ("aes128-sha265-x25519", "not a known algorithm"),
    ] {
        assert!(said(text).what.contains(part), "{text}");
    }
    let of = |text, legacy| ike(text, legacy).ok().unwrap()[0].prf.clone();
    assert_eq!(of("aes128-aesxcbc-x25519", false), [Prf::Aes128Xcbc]);
    assert_eq!(of("aes128-aescmac-x25519", false), [Prf::Aes128Cmac]);
    assert_eq!(of("aes256-sha1-modp2048", true), [Prf::HmacSha1]);
    assert_eq!(
        of("aes256-sha1-sha256-modp2048", false),
        [Prf::HmacSha2_256]
    );
    assert_eq!(
        of("aes256-sha1-prfsha256-modp2048", false),
        [Prf::HmacSha2_256]
    );
    assert!(said("aes128-sha265-x25519").help.contains("`sha256`"));
}

/// Returns the refusal of a proposal for an IKE SA.
fn said(text: &str) -> ValueError {
    match ike(text, false) {
        Err(Refusal::Wrong(bad)) => bad,
        Err(Refusal::Weak(mut bad)) => bad.remove(0),
        Ok(_) => panic!("{text} is taken"),
    }
}

/// Reads one child section. Returns the transforms of each proposal, and the findings.
fn read_child(lines: &str, legacy: bool) -> (Vec<String>, Vec<String>) {
    read_child_with(if legacy { "legacy = yes\n" } else { "" }, lines)
}

/// The same with switches of the connection.
fn read_child_with(switches: &str, lines: &str) -> (Vec<String>, Vec<String>) {
    let text = format!(
        "connections {{ net {{ {switches} local_addrs = 10.0.0.1\n remote_addrs = 10.0.0.2\n \
         local {{ auth = psk }}\n remote {{ auth = psk }}\n children {{ c {{ {lines}\n }} }} }} }}\n\
         secrets {{ ike {{ secret = 0123456789abcdef }} }}\n",
    );
    let loaded = crate::load_text(std::path::Path::new("/proposal.conf"), &text);
    let found = |list: &Diagnostics| list.iter().map(|d| d.what.clone()).collect();
    match loaded {
        Ok(loaded) => {
            let child = &loaded.ike.connections[0].children[0];
            let of_proposal = |proposal: &EspProposal| {
                let ciphers = proposal
                    .encryption
                    .iter()
                    .map(|(c, bits)| format!("{c} {bits}"));
                let integrity = proposal.integrity.iter().map(|i| i.name().to_owned());
                ciphers.chain(integrity).collect::<Vec<_>>().join(" ")
            };
            let proposals = child.esp_proposals.iter().map(of_proposal).collect();
            (proposals, found(&loaded.warnings))
        }
        Err(diagnostics) => (Vec::new(), found(&diagnostics)),
    }
}

#[test]
fn keywords_of_strongswan_name_the_algorithms() {
    for (text, expected) in [
        ("aes128gcm8", "ENCR_AES_GCM_8 128"),
        ("aes256gcm96", "ENCR_AES_GCM_12 256"),
        ("aes192ccm16", "ENCR_AES_CCM_16 192"),
        ("aes128ccm64", "ENCR_AES_CCM_8 128"),
        ("chacha20poly1305", "ENCR_CHACHA20_POLY1305 0"),
        ("aes256ctr-aesxcbc", "ENCR_AES_CTR 256 AUTH_AES_XCBC_96"),
        ("aes128-sha1-esn", "ENCR_AES_CBC 128 AUTH_HMAC_SHA1_96"),
        ("aes192-aescmac", "ENCR_AES_CBC 192 AUTH_AES_CMAC_96"),
        ("aes256gcm16iiv-esn", "ENCR_AES_GCM_16_IIV 256"),
    ] {
        let (proposals, findings) = read_child(&format!("esp_proposals = {text}"), false);
        assert_eq!(proposals, [expected]);
        assert_eq!(findings, [""; 0]);
    }
}

#[test]
fn gmac_is_a_cipher_of_esp_and_an_integrity_algorithm_of_ah() {
    let (esp, findings) = read_child("esp_proposals = aes128gmac", false);
    assert_eq!(esp, ["ENCR_NULL_AUTH_AES_GMAC 128"]);
    assert!(findings[0].contains("does not encrypt"), "{findings:?}");
    let (ah, findings) = read_child("ah_proposals = aes128gmac-sha256, sha512", false);
    assert_eq!(
        ah,
        [
            "AUTH_HMAC_SHA2_256_128 AUTH_AES_128_GMAC",
            "AUTH_HMAC_SHA2_512_256"
        ]
    );
    assert_eq!(findings, [""; 0]);
    let (_, findings) = read_child("ah_proposals = aes128-sha256", false);
    assert!(findings[0].contains("AH does not encrypt"), "{findings:?}");
    let both = "ah_proposals = sha256\n esp_proposals = aes128gcm16";
    let (_, findings) = read_child(both, false);
    assert!(findings[0].contains("not both"), "{findings:?}");
}

#[test]
fn ciphers_for_private_use_need_consent() {
    for (text, name) in [
        ("serpent-sha256", "ENCR_SERPENT_CBC 128"),
        ("serpent192-sha256", "ENCR_SERPENT_CBC 192"),
        ("twofish256-sha256", "ENCR_TWOFISH_CBC 256"),
        ("mars128ctr-sha256", "ENCR_MARS_CTR 128"),
        ("rc6_192ctr-sha256", "ENCR_RC6_CTR 192"),
        ("serpent256ctr-sha256", "ENCR_SERPENT_CTR 256"),
        ("twofish256ctr-sha256", "ENCR_TWOFISH_CTR 256"),
    ] {
        let line = format!("esp_proposals = {text}");
        for switches in ["", "private_use = no\n", "legacy = yes\n"] {
            let (refused, findings) = read_child_with(switches, &line);
            let named = name.split_once(' ').unwrap().0;
            assert!(refused.is_empty() && findings.len() == 1, "{findings:?}");
            let expected = [named, "private use"];
            assert!(
                expected.iter().all(|part| findings[0].contains(part)),
                "{findings:?}"
            );
        }
        let (taken, findings) = read_child_with("private_use = yes\n", &line);
        assert_eq!(taken, [format!("{name} AUTH_HMAC_SHA2_256_128")]);
        assert_eq!(findings, [""; 0]);
    }
    let (refused, findings) = read_child_with("private_use = yes\n", "esp_proposals = 3des-sha256");
    assert!(
        refused.is_empty() && findings[0].contains("ENCR_3DES"),
        "{findings:?}"
    );
}

#[test]
fn ciphers_for_private_use_have_one_partner() {
    for text in [
        "aes256-mars256ctr-sha256-sha512",
        "serpent256-sha1",
        "aes128-sha256, rc6_128ctr-sha384",
    ] {
        let line = format!("esp_proposals = {text}");
        let (refused, findings) = read_child_with("private_use = yes\n", &line);
        assert!(refused.is_empty(), "{refused:?}");
        assert!(
            findings[0].contains("does not go with ENCR_"),
            "{findings:?}"
        );
    }
    let line = "esp_proposals = aes256-twofish256-sha256, aes256-sha512";
    let (taken, findings) = read_child_with("private_use = yes\n", line);
    assert_eq!((taken.len(), findings.len()), (2, 0), "{findings:?}");
}

#[test]
fn weak_algorithms_need_consent_and_are_warned_about() {
    for (key, text, name) in [
        ("esp_proposals", "3des-sha256", "ENCR_3DES SHOULD NOT"),
        ("esp_proposals", "des-sha256", "ENCR_DES MUST NOT"),
        ("esp_proposals", "aes128-md5", "AUTH_HMAC_MD5_96 MUST NOT"),
        ("ah_proposals", "md5", "AUTH_HMAC_MD5_96 MUST NOT"),
        ("esp_proposals", "aes128-sha256-modp1536", "MODP_1536"),
    ] {
        let line = format!("{key} = {text}");
        let (refused, findings) = read_child(&line, false);
        assert!(
            refused.is_empty() && findings[0].contains(name),
            "{findings:?}"
        );
        let (taken, findings) = read_child(&line, true);
        assert_eq!(taken.len(), 1, "{findings:?}");
        assert!(findings[0].contains(name), "{findings:?}");
    }
}

#[test]
fn weak_proposals_beside_good_ones_are_left_out() {
    let (taken, findings) = read_child(
        "esp_proposals = aes128-sha1-modp1024, 3des-md5-modp1024, aes256-sha256-modp2048",
        false,
    );
    assert_eq!(taken, ["ENCR_AES_CBC 256 AUTH_HMAC_SHA2_256_128"]);
    let [first, cipher, hash, group] = &findings[..] else {
        panic!("{findings:?}");
    };
    assert!(
        first.contains("`aes128-sha1-modp1024` is left out: MODP_1024"),
        "{first}"
    );
    for (finding, name) in [(cipher, "3DES"), (hash, "MD5"), (group, "MODP_1024")] {
        let named = finding.contains("`3des-md5-modp1024` is left out: ") && finding.contains(name);
        assert!(named, "{finding}");
    }
    // Each weakness is told once where nothing is left.
    let (taken, findings) = read_child("esp_proposals = 3des-sha1, 3des-sha256", false);
    assert_eq!((taken.len(), findings.len()), (0, 1), "{findings:?}");
}

#[test]
fn weak_proposals_of_the_ike_sa_are_left_out_too() {
    let text = |proposals: &str| {
        format!(
            "connections {{ net {{ remote_addrs = 10.0.0.2\n proposals = {proposals}\n \
             local {{ auth = psk }}\n remote {{ auth = psk }}\n children {{ c {{ }} }} }} }}\n\
             secrets {{ ike {{ secret = 0123456789abcdef }} }}\n",
        )
    };
    let load = |proposals: &str| {
        crate::load_text(std::path::Path::new("/proposal.conf"), &text(proposals))
    };
    let weak = [
        "aes128-sha1-modp1024",
        "3des-sha256-modp2048",
        "aes256-sha256-modp1536",
    ];
    for weak in weak {
        let loaded = load(&format!("{weak}, aes256-sha256-modp2048")).unwrap();
        let proposals = &loaded.ike.connections[0].proposals;
        assert_eq!(proposals.len(), 1);
        assert_eq!(proposals[0].groups, [Group::Modp2048]);
        let shown = loaded.warnings.render(false);
        assert!(
            shown.contains(&format!("`{weak}` is left out: ")),
            "{shown}"
        );
        assert!(load(weak).is_err(), "{weak}");
    }
    // A proposal that is wrong, and not only weak, is an error as ever.
    assert!(load("null-sha256-modp2048, aes256-sha256-modp2048").is_err());
}

/// Each list is what a peer offers for ESP by default: ciphers with key lengths, and integrity algorithms.
#[test]
fn the_default_for_esp_meets_those_of_others() {
    use Integrity::*;
    type Offered<'a> = (&'a [(Encryption, u16)], &'a [Integrity]);
    let cbc = [(AesCbc, 256), (AesCbc, 192), (AesCbc, 128)];
    let peers: [Offered<'_>; 4] = [
        // OpenIKED, with PF_KEY of Linux and on OpenBSD: without an AEAD, and with one.
        (&cbc, &[HmacSha2_384_192, HmacSha2_512_256, HmacSha1_96]),
        (
            &cbc,
            &[
                HmacSha2_256_128,
                HmacSha2_384_192,
                HmacSha2_512_256,
                HmacSha1_96,
            ],
        ),
        (&[(AesGcm16, 128), (AesGcm16, 256)], &[]),
        // strongSwan 5.9.
        (
            &cbc,
            &[
                HmacSha2_256_128,
                HmacSha2_384_192,
                HmacSha2_512_256,
                HmacSha1_96,
                AesXcbc96,
            ],
        ),
    ];
    let ours = esp_default();
    for (ciphers, integrities) in peers {
        let meets = |one: &EspProposal| {
            let cipher = one.encryption.iter().any(|own| ciphers.contains(own));
            let integrity = match one.integrity.as_slice() {
                [] => integrities.is_empty(),
                own => own.iter().any(|own| integrities.contains(own)),
            };
            cipher && integrity
        };
        assert!(ours.iter().any(meets), "{ciphers:?} {integrities:?}");
    }
    let weak = |one: &EspProposal| one.integrity.contains(&HmacSha1_96);
    assert!(!ours.iter().any(weak));
}
