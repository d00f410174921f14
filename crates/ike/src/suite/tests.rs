//! Known answers from `vectors/ike`, and what a forger may try.

use aws_lc_rs::hmac;
use esplanade_crypto::iana::{Encryption, Group, Integrity, Prf};
use esplanade_crypto::sk::SkKey;
use serde_json::Value;

use super::*;
use crate::wire::{
    Encrypted, ExchangeType, Header, Id, IdType, Message, Notify, NotifyType, Payload, PayloadType,
    Problem,
};

fn cases(json: &str) -> Vec<Value> {
    let file: Value = serde_json::from_str(json).unwrap();
    let cases = file["cases"].as_array().unwrap().clone();
    assert!(!cases.is_empty());
    cases
}

fn sa_cases() -> Vec<Value> {
    cases(include_str!("../../../../vectors/ike/sa.json"))
}

fn bytes(value: &Value) -> Vec<u8> {
    hex::decode(value.as_str().unwrap()).unwrap()
}

fn number(value: &Value) -> u16 {
    value.as_u64().unwrap().try_into().unwrap()
}

fn spi(value: &Value) -> u64 {
    u64::from_be_bytes(bytes(value).try_into().unwrap())
}

fn suite(case: &Value) -> Suite {
    Suite {
        encryption: Encryption::from_number(number(&case["encryption"])).unwrap(),
        key_bits: number(&case["key_bits"]),
        integrity: case["integrity"]
            .as_u64()
            .map(|n| Integrity::from_number(n.try_into().unwrap()).unwrap()),
        prf: Prf::from_number(number(&case["prf"])).unwrap(),
        key_exchanges: KeyExchangeMethods::one(Group::Curve25519),
    }
}

fn keys(case: &Value) -> IkeSaKeys {
    let (n_i, n_r) = (bytes(&case["n_i"]), bytes(&case["n_r"]));
    IkeSaKeys::derive(
        suite(case),
        &Secret::from(bytes(&case["shared"])),
        Nonces {
            initiator: &n_i,
            responder: &n_r,
        },
        spi(&case["spi_i"]),
        spi(&case["spi_r"]),
    )
}

fn header(case: &Value, message_id: u32) -> Header {
    Header {
        initiator_spi: spi(&case["spi_i"]),
        responder_spi: spi(&case["spi_r"]),
        exchange: ExchangeType::INFORMATIONAL,
        from_initiator: true,
        response: false,
        message_id,
    }
}

// RFC 7296 R227
#[test]
fn key_exchange_known_answers() {
    for case in cases(include_str!("../../../../vectors/ike/exchange.json")) {
        let group = Group::from_number(number(&case["group"])).unwrap();
        let ours = KeyPair::from_private(group, &bytes(&case["private_i"])).unwrap();
        let theirs = KeyPair::from_private(group, &bytes(&case["private_r"])).unwrap();
        assert_eq!(ours.public(), bytes(&case["public_i"]), "{group}");
        assert_eq!(theirs.public(), bytes(&case["public_r"]), "{group}");
        let shared = Secret::from(bytes(&case["shared"]));
        assert_eq!(ours.agree(theirs.public()).unwrap(), shared, "{group}");
        assert_eq!(theirs.agree(ours.public()).unwrap(), shared, "{group}");
    }
}

// RFC 7296 R124, R125, R141
#[test]
fn key_derivation_known_answers() {
    for case in sa_cases() {
        let keys = keys(&case);
        check_keys(&keys, &case["keys"]);

        let again = &case["again"];
        let (n_i, n_r) = (bytes(&again["n_i"]), bytes(&again["n_r"]));
        let nonces = Nonces {
            initiator: &n_i,
            responder: &n_r,
        };
        let shared = Secret::from(bytes(&again["shared"]));
        let (spi_i, spi_r) = (spi(&again["spi_i"]), spi(&again["spi_r"]));
        let rekeyed = keys.rekey(suite(&case), &shared, nonces, spi_i, spi_r);
        check_keys(&rekeyed, &case["rekeyed"]);
    }
}

/// The expected values come from HMAC alone, not from our derivation.
// RFC 7296 R141
#[test]
fn the_prf_of_the_old_sa_makes_the_seed_of_the_new_one() {
    let hmac = |algorithm, key: &[u8], data: &[&[u8]]| {
        let key = hmac::Key::new(algorithm, key);
        hmac::sign(&key, &data.concat()).as_ref().to_vec()
    };
    let mut of_sha256 = sa_cases();
    of_sha256.retain(|case| suite(case).prf == Prf::HmacSha2_256);
    assert!(!of_sha256.is_empty());
    for case in of_sha256 {
        let again = &case["again"];
        let (n_i, n_r) = (bytes(&again["n_i"]), bytes(&again["n_r"]));
        let (spi_i, spi_r) = (spi(&again["spi_i"]), spi(&again["spi_r"]));
        let shared = bytes(&again["shared"]);
        let nonces = Nonces {
            initiator: &n_i,
            responder: &n_r,
        };
        let old = keys(&case);
        let other_prf = Suite {
            prf: Prf::HmacSha2_512,
            ..suite(&case)
        };
        let secret = Secret::from(shared.as_slice());
        let new = old.rekey(other_prf, &secret, nonces, spi_i, spi_r);
        let data = [&shared[..], &n_i, &n_r];
        let skeyseed = hmac(hmac::HMAC_SHA256, old.d(), &data);
        let (spi_i, spi_r) = (spi_i.to_be_bytes(), spi_r.to_be_bytes());
        let seed = [&n_i[..], &n_r, &spi_i, &spi_r, &[1]];
        // SK_d is the first block of prf+.
        let expected = hmac(hmac::HMAC_SHA512, &skeyseed, &seed);
        assert_eq!(new.d(), expected);
    }
}

fn check_keys(keys: &IkeSaKeys, expected: &Value) {
    let (initiator, responder) = (Role::Initiator, Role::Responder);
    for (name, actual) in [
        ("d", keys.d()),
        ("ai", keys.export_integrity(initiator)),
        ("ar", keys.export_integrity(responder)),
        ("ei", keys.export_encryption(initiator)),
        ("er", keys.export_encryption(responder)),
        ("pi", keys.p(initiator)),
        ("pr", keys.p(responder)),
    ] {
        assert_eq!(
            actual,
            bytes(&expected[name]),
            "SK_{name} of {}",
            keys.suite()
        );
    }
}

// RFC 7296 R138
#[test]
fn child_keymat_known_answers() {
    for case in sa_cases() {
        let (n_i, n_r) = (bytes(&case["n_i"]), bytes(&case["n_r"]));
        let nonces = Nonces {
            initiator: &n_i,
            responder: &n_r,
        };
        let keys = keys(&case);
        let child = Secret::from(bytes(&case["child"]));
        assert_eq!(keys.child_keymat(None, nonces, child.len()), Some(child));
        let child = Secret::from(bytes(&case["child_pfs"]));
        let shared = Secret::from(bytes(&case["shared"]));
        assert_eq!(
            keys.child_keymat(Some(&shared), nonces, child.len()),
            Some(child)
        );
        assert_eq!(keys.child_keymat(None, nonces, 255 * 64 + 1), None);
    }
}

// RFC 7296 R128
#[test]
fn psk_auth_known_answers() {
    for case in sa_cases() {
        let keys = keys(&case);
        let body = bytes(&case["id_body"]);
        let id = Id::new(IdType(body[0]), body[4..].to_vec());
        let octets = keys.signed_octets(
            Role::Initiator,
            &bytes(&case["message"]),
            &bytes(&case["n_r"]),
            &id,
        );
        assert_eq!(octets, bytes(&case["signed_octets"]));
        let auth = keys.psk_auth(&Secret::from(bytes(&case["psk"])), &octets);
        assert_eq!(auth, Secret::from(bytes(&case["auth"])));
    }
}

#[test]
fn psk_auth_known_answers_of_full_transcripts() {
    for case in sa_cases() {
        let keys = keys(&case);
        let body = bytes(&case["id_body"]);
        let id = Id::new(IdType(body[0]), body[4..].to_vec());
        let psk = Secret::from(bytes(&case["psk"]));
        let [request, response] = ["message", "response"].map(|name| bytes(&case[name]));
        for (signer, message, nonce, octets, auth) in [
            (
                Role::Initiator,
                full_transcript(&response, &request),
                "n_r",
                "full_i",
                "full_auth_i",
            ),
            (
                Role::Responder,
                full_transcript(&request, &response),
                "n_i",
                "full_r",
                "full_auth_r",
            ),
        ] {
            let signed = keys.signed_octets(signer, &message, &bytes(&case[nonce]), &id);
            assert_eq!(signed, bytes(&case[octets]));
            let expected = Secret::from(bytes(&case[auth]));
            assert_eq!(keys.psk_auth(&psk, &signed), expected);
        }
    }
}

// RFC 7296 R243, R254
#[test]
fn opens_and_seals_known_messages() {
    for case in sa_cases() {
        let keys = keys(&case);
        let sealed = bytes(&case["sealed"]);
        let opened = keys.opener(Role::Responder).open(&sealed).unwrap();
        let expected = Message {
            header: header(&case, 2),
            payloads: vec![Payload::Notify(Notify::new(
                NotifyType::INITIAL_CONTACT,
                bytes(&case["notify_data"]),
            ))],
        };
        assert_eq!(opened, expected);

        let mut sealer = keys.sealer(Role::Initiator);
        let again = sealer.seal(&expected.header, &expected.payloads).unwrap();
        if keys.suite().encryption.is_aead() {
            assert_eq!(again, sealed);
        } else {
            assert_eq!(again.len(), sealed.len());
            assert_ne!(again, sealed, "the IV is random");
        }
        assert_eq!(keys.opener(Role::Responder).open(&again), Ok(expected));
    }
}

/// Returns one case for each cipher.
fn cipher_cases() -> impl Iterator<Item = Value> {
    sa_cases().into_iter().filter(|case| case["prf"] == 5)
}

// RFC 7296 R257
#[test]
fn every_changed_byte_is_noticed() {
    for case in cipher_cases() {
        let opener = keys(&case).opener(Role::Responder);
        let sealed = bytes(&case["sealed"]);
        for position in 0..sealed.len() {
            let mut changed = sealed.clone();
            changed[position] ^= 1;
            let error = opener.open(&changed).unwrap_err();
            assert!(
                !matches!(error, OpenError::Inner { .. }),
                "byte {position} went unnoticed: {error}"
            );
        }
    }
}

#[test]
fn every_truncation_is_refused() {
    for case in cipher_cases() {
        let opener = keys(&case).opener(Role::Responder);
        let sealed = bytes(&case["sealed"]);
        for len in 0..sealed.len() {
            let mut short = sealed[..len].to_vec();
            assert!(matches!(opener.open(&short), Err(OpenError::Outer(_))));
            // The same with both length fields made to fit.
            if len >= 32 {
                short[24..28].copy_from_slice(&u32::try_from(len).unwrap().to_be_bytes());
                short[30..32].copy_from_slice(&u16::try_from(len - 28).unwrap().to_be_bytes());
                assert_eq!(opener.open(&short), Err(OpenError::Forged), "{len} bytes");
            }
        }
    }
}

// RFC 7296 R126
#[test]
fn a_reflected_message_is_forged() {
    for case in cipher_cases() {
        let keys = keys(&case);
        let sealed = bytes(&case["sealed"]);
        let opened = keys.opener(Role::Initiator).open(&sealed);
        assert_eq!(opened, Err(OpenError::Forged));
    }
}

// RFC 7296 R23
#[test]
fn an_unprotected_message_is_told_apart() {
    let case = &sa_cases()[0];
    let message = Message {
        header: header(case, 0),
        payloads: vec![Payload::Vendor(vec![1])],
    };
    assert_eq!(
        keys(case)
            .opener(Role::Responder)
            .open(&message.encode().unwrap()),
        Err(OpenError::NotEncrypted)
    );
}

// RFC 7296 R255
#[test]
fn content_of_every_length_round_trips() {
    for case in cipher_cases() {
        let keys = keys(&case);
        let mut sealer = keys.sealer(Role::Responder);
        let opener = keys.opener(Role::Initiator);
        for (message_id, len) in (0..70).enumerate() {
            let header = header(&case, message_id.try_into().unwrap());
            let payloads = match len {
                0 => Vec::new(),
                len => vec![Payload::Vendor(vec![0x5a; len])],
            };
            let sealed = sealer.seal(&header, &payloads).unwrap();
            assert_eq!(opener.open(&sealed), Ok(Message { header, payloads }));
        }
    }
}

/// Protects a message with so many bytes of padding, which has a content of its own.
fn seal_padded(keys: &IkeSaKeys, header: &Header, content: &[u8], padding: u8) -> Vec<u8> {
    let (encryption, integrity) = (keys.suite().encryption, keys.suite().integrity);
    let role = Role::Initiator;
    let (sk_e, sk_a) = (keys.export_encryption(role), keys.export_integrity(role));
    let key = SkKey::new(encryption, integrity, sk_e, sk_a).unwrap();
    let mut padded = content.to_vec();
    padded.extend((1..=padding).chain([padding]));
    let mut body = vec![1; key.iv_len()];
    body.extend(padded);
    body.resize(body.len() + key.icv_len(), 0);
    let body_len = body.len();
    let first = PayloadType::VENDOR;
    let message = Message {
        header: *header,
        payloads: vec![Payload::Encrypted(Encrypted { first, body })],
    };
    let mut datagram = message.encode().unwrap();
    let iv_at = datagram.len() - body_len;
    datagram.truncate(datagram.len() - key.icv_len());
    key.seal(&mut datagram, iv_at).unwrap();
    datagram
}

// RFC 7296 R256
#[test]
fn any_amount_of_padding_is_taken() {
    for case in cipher_cases() {
        let keys = keys(&case);
        let opener = keys.opener(Role::Responder);
        let header = header(&case, 0);
        let payloads = vec![Payload::Vendor(vec![0x5a; 11])];
        let mut content = Vec::new();
        crate::wire::encode_chain(&payloads, &mut content).unwrap();
        // 15 bytes of content and the length of the padding fill one block.
        for padding in (0..=u8::MAX).step_by(16) {
            let sealed = seal_padded(&keys, &header, &content, padding);
            let payloads = payloads.clone();
            let opened = opener.open(&sealed);
            assert_eq!(opened, Ok(Message { header, payloads }), "{padding}");
        }
    }
}

// RFC 7296 R254
#[test]
fn aead_ivs_never_repeat() {
    let case = &sa_cases()[0];
    let mut sealer = keys(case).sealer(Role::Initiator);
    let ivs: Vec<_> = (0..100)
        .map(|id| sealer.seal(&header(case, id), &[]).unwrap()[32..40].to_vec())
        .collect();
    for (index, iv) in ivs.iter().enumerate() {
        assert_eq!(*iv, (index as u64 + 1).to_be_bytes());
    }
}

// RFC 7296 R76
#[test]
fn authentic_but_malformed_content_is_the_peers_fault() {
    let case = &sa_cases()[0];
    let keys = keys(case);
    let mut sealer = keys.sealer(Role::Initiator);
    let critical = PlainContent {
        first: PayloadType(200),
        bytes: vec![0, 0x80, 0, 12, 1, 2, 3, 4, 5, 6, 7, 8].into(),
    };
    let sealed = sealer.seal_content(&header(case, 1), &critical);
    let Err(OpenError::Inner { header, error }) =
        keys.opener(Role::Responder).open(&sealed.unwrap())
    else {
        panic!("accepted");
    };
    assert_eq!(header.message_id, 1);
    assert_eq!(error.problem, Problem::UnsupportedCritical(200));
    assert_eq!(
        error.notification(),
        (NotifyType::UNSUPPORTED_CRITICAL_PAYLOAD, vec![200])
    );
}

#[test]
fn suite_and_proposal_round_trip() {
    for case in sa_cases() {
        let suite = suite(&case);
        let proposal = Proposal {
            number: 1,
            protocol: ProtocolId::IKE,
            spi: Vec::new(),
            transforms: suite.transforms(),
        };
        assert_eq!(Suite::from_proposal(&proposal), Ok(suite));
    }
}

// RFC 7296 R93, R140, R209, R223, R224
#[test]
fn incomplete_and_ambiguous_proposals_are_refused() {
    let suite = suite(&sa_cases()[0]);
    let proposal = |transforms| Proposal {
        number: 1,
        protocol: ProtocolId::IKE,
        spi: Vec::new(),
        transforms,
    };
    let all = suite.transforms();
    for index in 0..all.len() {
        let mut without = all.clone();
        let removed = without.remove(index);
        let expected = Err(SuiteError::NotOne(removed.kind));
        assert_eq!(Suite::from_proposal(&proposal(without)), expected);
        let mut doubled = all.clone();
        doubled.push(removed);
        assert_eq!(Suite::from_proposal(&proposal(doubled)), expected);
        let mut unknown = all.clone();
        unknown[index].unknown_attribute = true;
        assert_eq!(Suite::from_proposal(&proposal(unknown)), expected);
    }
    let mut with_integrity = all.clone();
    with_integrity.push(Transform::new(TransformType::INTEGRITY, 12));
    assert_eq!(
        Suite::from_proposal(&proposal(with_integrity.clone())),
        Err(SuiteError::Integrity)
    );
    with_integrity.last_mut().unwrap().id = 0;
    assert_eq!(Suite::from_proposal(&proposal(with_integrity)), Ok(suite));
    let mut short = all.clone();
    short[0].key_bits = Some(64);
    assert_eq!(
        Suite::from_proposal(&proposal(short)),
        Err(SuiteError::KeyLength(64))
    );
    let mut foreign = all.clone();
    foreign[0].id = 9999;
    assert_eq!(
        Suite::from_proposal(&proposal(foreign)),
        Err(SuiteError::Unsupported(TransformType::ENCRYPTION, 9999))
    );
    let of_esp = Proposal {
        protocol: ProtocolId::ESP,
        ..proposal(all)
    };
    assert_eq!(
        Suite::from_proposal(&of_esp),
        Err(SuiteError::Protocol(ProtocolId::ESP))
    );
}

#[test]
fn what_does_not_fit_a_message_is_not_sealed() {
    let case = &sa_cases()[0];
    let mut sealer = keys(case).sealer(Role::Initiator);
    let long = [Payload::Vendor(vec![0; 1 << 16])];
    let sealed = sealer.seal(&header(case, 0), &long);
    assert!(matches!(sealed, Err(SealError::Encode(_))), "{sealed:?}");
}

#[test]
fn debug_shows_no_key() {
    let case = &sa_cases()[0];
    let keys = keys(case);
    let shown = format!("{keys:?} {:?}", keys.sealer(Role::Initiator));
    for secret in ["d", "ei", "er", "pi", "pr"] {
        let first = bytes(&case["keys"][secret])[..4].to_vec();
        assert!(!shown.contains(&hex::encode(&first)));
        assert!(!shown.contains(&format!("{}, {}", first[0], first[1])));
    }
}
