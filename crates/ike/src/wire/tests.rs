//! Codec properties, and the rules of RFC 7296 §3 one by one.

use std::net::{Ipv4Addr, Ipv6Addr};

use proptest::collection::vec;
use proptest::prelude::*;

use super::*;

fn header() -> Header {
    Header {
        initiator_spi: 0x0102_0304_0506_0708,
        responder_spi: 0,
        exchange: ExchangeType::IKE_SA_INIT,
        from_initiator: true,
        response: false,
        message_id: 0,
    }
}

fn encode(payloads: Vec<Payload>) -> Vec<u8> {
    let header = header();
    Message { header, payloads }.encode().unwrap()
}

fn proposal() -> Proposal {
    Proposal {
        number: 1,
        protocol: ProtocolId::IKE,
        spi: Vec::new(),
        transforms: vec![
            Transform::with_key_bits(TransformType::ENCRYPTION, 20, 256),
            Transform::new(TransformType::PRF, 5),
            Transform::new(TransformType::KEY_EXCHANGE, 31),
        ],
    }
}

fn selector() -> TrafficSelector {
    TrafficSelector::addresses(
        Ipv4Addr::new(10, 0, 0, 0).into(),
        Ipv4Addr::new(10, 0, 0, 255).into(),
    )
}

/// Returns one payload of every type but the Encrypted one.
fn every_payload() -> Vec<Payload> {
    let id = Id::new(IdType::FQDN, b"moon.example.org".to_vec());
    vec![
        Payload::Sa(vec![proposal(), proposal()]),
        Payload::Ke(KePayload {
            method: 31,
            data: vec![7; 32],
        }),
        Payload::IdI(id.clone()),
        Payload::IdR(id),
        Payload::Cert(Cert {
            encoding: CertEncoding::X509_SIGNATURE,
            data: vec![0x30, 0],
        }),
        Payload::CertReq(CertReq::x509(&[[1; 20], [2; 20]])),
        Payload::Auth(Auth {
            method: AuthMethod::SHARED_KEY,
            data: vec![3; 32],
        }),
        Payload::Nonce(vec![4; 32]),
        Payload::Notify(Notify::signature_hashes(&[
            HashAlgorithm::SHA2_256,
            HashAlgorithm::IDENTITY,
        ])),
        Payload::Notify(Notify::about_child(
            NotifyType::REKEY_SA,
            ProtocolId::ESP,
            0xc000_0001,
        )),
        Payload::Delete(Delete {
            protocol: ProtocolId::ESP,
            spis: vec![1, 2, 3],
        }),
        Payload::Vendor(b"vendor".to_vec()),
        Payload::TsI(vec![selector()]),
        Payload::TsR(vec![
            selector(),
            TrafficSelector::addresses(Ipv6Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into()),
        ]),
        Payload::Configuration(Configuration {
            kind: ConfigurationType::CFG_REQUEST,
            attributes: vec![(1, Vec::new()), (3, vec![8, 8, 8, 8])],
        }),
        Payload::Eap(vec![1, 1, 0, 4]),
        Payload::Unknown {
            kind: PayloadType(200),
            body: vec![1],
        },
    ]
}

/// Checks that a message that decodes also encodes, unless it holds what we never send. The result decodes to the same
/// message.
fn check_stable(bytes: &[u8]) {
    let Ok(message) = Message::decode(bytes) else {
        return;
    };
    if let Ok(encoded) = message.encode() {
        assert_eq!(Message::decode(&encoded), Ok(message));
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    // RFC 7296 R217, R240
    #[test]
    fn messages_round_trip(message in generators::message()) {
        let encoded = message.encode().unwrap();
        prop_assert_eq!(Message::decode(&encoded), Ok(message));
    }

    #[test]
    fn arbitrary_bytes_never_panic(bytes in vec(any::<u8>(), 0..600)) {
        check_stable(&bytes);
        for kind in 33..=60 {
            let _ = decode_chain(PayloadType(kind), &bytes);
        }
    }

    #[test]
    fn changed_messages_never_panic(
        message in generators::message(),
        changes in vec((any::<proptest::sample::Index>(), any::<u8>()), 1..8),
    ) {
        let mut bytes = message.encode().unwrap();
        for (position, value) in changes {
            let position = position.index(bytes.len());
            bytes[position] = value;
        }
        check_stable(&bytes);
    }
}

#[test]
fn every_truncation_is_refused() {
    let whole = encode(every_payload());
    assert_eq!(Message::decode(&whole).unwrap().payloads, every_payload());
    for len in 0..whole.len() {
        let mut short = whole[..len].to_vec();
        assert!(Message::decode(&short).is_err(), "{len} bytes");
        if let Some(field) = short.get_mut(24..28) {
            field.copy_from_slice(&u32::try_from(len).unwrap().to_be_bytes());
            assert!(Message::decode(&short).is_err(), "{len} bytes, length fits");
        }
    }
    let mut long = whole.clone();
    long.push(0);
    assert!(Message::decode(&long).is_err());
    let problem = |bytes: &[u8]| Message::decode(bytes).unwrap_err().problem;
    let (needed, left) = (8, 3);
    assert_eq!(problem(&whole[..11]), Problem::Truncated { needed, left });
    let limit = MESSAGE_LEN_MAX;
    assert_eq!(problem(&vec![0; limit + 1]), Problem::TooMany { limit });
}

// RFC 7296 R208
#[test]
fn every_payload_refuses_every_cut_inside() {
    for payload in every_payload() {
        let whole = encode(vec![payload.clone()]);
        for len in HEADER_LEN + 4..whole.len() {
            let mut short = whole[..len].to_vec();
            short[24..28].copy_from_slice(&u32::try_from(len).unwrap().to_be_bytes());
            short[30..32].copy_from_slice(&u16::try_from(len - HEADER_LEN).unwrap().to_be_bytes());
            // Payloads that end in free bytes decode to shorter ones; never to the same.
            if let Ok(message) = Message::decode(&short) {
                assert_ne!(message.payloads, std::slice::from_ref(&payload));
            }
        }
    }
}

// RFC 7296 R74, R77, R200, R201, R202, R205
#[test]
fn header_layout_is_that_of_section_3_1() {
    let bytes = encode(vec![Payload::Nonce(vec![9; 16])]);
    let expected = "0102030405060708" // initiator's SPI
        .to_owned()
        + "0000000000000000" // responder's SPI
        + "28" + "20" + "22" + "08" // Ni, version 2.0, IKE_SA_INIT, flag I
        + "00000000" + "00000030" // message ID, length
        + "00000014" // last payload, 20 bytes
        + &"09".repeat(16);
    assert_eq!(hex::encode(bytes), expected);
}

// RFC 7296 R71, R72, R200
#[test]
fn other_versions() {
    let mut bytes = encode(Vec::new());
    bytes[17] = 0x2f;
    assert!(
        Message::decode(&bytes).is_ok(),
        "the minor version is ignored"
    );
    bytes[17] = 0x30;
    let error = Message::decode(&bytes).unwrap_err();
    assert_eq!(error.problem, Problem::MajorVersion(3));
    assert_eq!(
        error.notification(),
        (NotifyType::INVALID_MAJOR_VERSION, vec![2])
    );
}

// RFC 7296 R74, R201, R206
#[test]
fn reserved_flags_and_the_critical_bit_of_known_payloads_are_ignored() {
    let mut bytes = encode(vec![Payload::Nonce(vec![9; 16])]);
    bytes[19] |= 0xd7;
    bytes[29] = 0xff;
    assert_eq!(
        Message::decode(&bytes).unwrap().payloads,
        [Payload::Nonce(vec![9; 16])]
    );
}

// RFC 7296 R75, R76
#[test]
fn unknown_critical_payloads_are_refused_by_type() {
    let mut bytes = encode(vec![Payload::Unknown {
        kind: PayloadType(99),
        body: vec![1, 2],
    }]);
    assert!(Message::decode(&bytes).is_ok());
    bytes[29] = 0x80;
    let error = Message::decode(&bytes).unwrap_err();
    assert_eq!(error.problem, Problem::UnsupportedCritical(99));
    assert_eq!(
        error.notification(),
        (NotifyType::UNSUPPORTED_CRITICAL_PAYLOAD, vec![99])
    );
}

#[test]
fn what_may_come_once_is_refused_when_it_comes_twice() {
    let nonce = |byte| Payload::Nonce(vec![byte; 16]);
    let vendor = |byte| Payload::Vendor(vec![byte; 16]);
    let bytes = encode(vec![nonce(1), vendor(1), vendor(2), nonce(2)]);
    let error = Message::decode(&bytes).unwrap_err();
    assert_eq!(error.problem, Problem::Twice);
    assert_eq!(error.notification().0, NotifyType::INVALID_SYNTAX);
    assert!(error.to_string().contains("the payload comes twice"));
    let bytes = encode(vec![nonce(1), vendor(1), vendor(2)]);
    assert!(Message::decode(&bytes).is_ok());
    // In an Encrypted payload too.
    let id = Payload::IdI(Id {
        kind: IdType::FQDN,
        reserved: [0; 3],
        data: b"a".to_vec(),
    });
    let mut chain = Vec::new();
    let first = encode_chain(&[id.clone(), vendor(1), id], &mut chain).unwrap();
    let error = decode_chain(first, &chain).unwrap_err();
    assert_eq!(error.problem, Problem::Twice);
}

/// An SA payload with one proposal that holds `transforms` as raw bytes.
fn sa_with_transforms(count: u8, transforms: &[u8]) -> Vec<u8> {
    let proposal_len = u8::try_from(8 + transforms.len()).unwrap();
    [
        &[0, 0, 0, 4 + proposal_len][..],
        &[0, 0, 0, proposal_len, 1, 1, 0, count],
        transforms,
    ]
    .concat()
}

// RFC 7296 R217
#[test]
fn unknown_attributes_mark_the_transform() {
    for (attribute, unknown) in [
        (&[0x80, 14, 1, 0][..], false),
        (&[0x80, 15, 1, 0], true),
        (&[0, 14, 0, 2, 1, 0], true),
    ] {
        let len = u8::try_from(8 + attribute.len()).unwrap();
        let transform = [&[0, 0, 0, len, 1, 0, 0, 12], attribute].concat();
        let chain = decode_chain(PayloadType::SA, &sa_with_transforms(1, &transform)).unwrap();
        let [Payload::Sa(proposals)] = chain.as_slice() else {
            panic!("{chain:?}");
        };
        assert_eq!(proposals[0].transforms[0].unknown_attribute, unknown);
        assert_eq!(
            proposals[0].transforms[0].key_bits,
            (!unknown).then_some(256)
        );
    }
}

// RFC 7296 R208
#[test]
fn transform_counts_and_markers_must_agree() {
    let last = [0, 0, 0, 8, 2, 0, 0, 5];
    let more = [3, 0, 0, 8, 2, 0, 0, 5];
    let refuse = |count, transforms: &[u8]| {
        decode_chain(PayloadType::SA, &sa_with_transforms(count, transforms)).unwrap_err()
    };
    assert!(decode_chain(PayloadType::SA, &sa_with_transforms(1, &last)).is_ok());
    refuse(1, &more);
    refuse(2, &[last, last].concat());
    refuse(0, &last);
    refuse(3, &[more, last].concat());
}

fn many_transforms(count: usize) -> Vec<Transform> {
    let ids = (0..count).map(|id| u16::try_from(id).unwrap());
    ids.map(|id| Transform::new(TransformType::ENCRYPTION, id))
        .collect()
}

fn many_proposals(count: usize, transforms: &[Transform]) -> Vec<Proposal> {
    let numbers = (1..=count).map(|number| u8::try_from(number).unwrap());
    numbers
        .map(|number| Proposal {
            number,
            protocol: ProtocolId::IKE,
            spi: Vec::new(),
            transforms: transforms.to_vec(),
        })
        .collect()
}

// RFC 7296 R37, R38
#[test]
fn what_the_fields_can_count_is_decoded() {
    let spis = (1..=16_000).collect();
    let attribute = |kind| (kind, Vec::new());
    for payload in [
        Payload::Sa(many_proposals(1, &many_transforms(255))),
        Payload::Sa(many_proposals(PROPOSALS_MAX, &many_transforms(20))),
        Payload::TsI(vec![selector(); TRAFFIC_SELECTORS_MAX]),
        Payload::Delete(Delete {
            protocol: ProtocolId::ESP,
            spis,
        }),
        Payload::Configuration(Configuration {
            kind: ConfigurationType(1),
            attributes: (0..16_000).map(attribute).collect(),
        }),
    ] {
        let message = Message::decode(&encode(vec![payload.clone()])).unwrap();
        assert_eq!(message.payloads, [payload]);
    }
    let vendor = vec![Payload::Vendor(Vec::new()); 16_000];
    assert_eq!(
        Message::decode(&encode(vendor.clone())).unwrap().payloads,
        vendor
    );
    let error = Message::decode(&vec![0; MESSAGE_LEN_MAX + 1]).unwrap_err();
    assert_eq!(
        error.to_string(),
        "header: more than 65507 (at byte 0)",
        "an error says what and where"
    );
}

#[test]
fn proposals_after_the_last_number_are_ignored() {
    let last = [0, 0, 0, 8, 1, 1, 0, 0];
    let more = [2, 0, 0, 8, 1, 1, 0, 0];
    let bodies = [more.repeat(PROPOSALS_MAX + 40), last.to_vec()].concat();
    let len = u16::try_from(4 + bodies.len()).unwrap().to_be_bytes();
    let bytes = [&[0, 0, len[0], len[1]], bodies.as_slice()].concat();
    let chain = decode_chain(PayloadType::SA, &bytes).unwrap();
    let [Payload::Sa(proposals)] = chain.as_slice() else {
        panic!("{chain:?}");
    };
    assert_eq!(proposals.len(), PROPOSALS_MAX);
    let cut = bytes.len() - 1;
    assert!(
        decode_chain(PayloadType::SA, &bytes[..cut]).is_err(),
        "they must be well-formed"
    );
}

#[test]
fn an_spi_of_any_length_is_read() {
    let mut proposal = many_proposals(1, &many_transforms(1));
    proposal[0].spi = vec![7; 255];
    let payload = Payload::Sa(proposal);
    let message = Message::decode(&encode(vec![payload.clone()])).unwrap();
    assert_eq!(message.payloads, [payload]);
}

// RFC 7296 R112, R251
#[test]
fn traffic_selectors_must_be_ranges() {
    let chain = |selector: &[u8]| {
        let len = u8::try_from(8 + selector.len()).unwrap();
        decode_chain(
            PayloadType::TSI,
            &[&[0, 0, 0, len, 1, 0, 0, 0], selector].concat(),
        )
    };
    let v4 = |ports: [u8; 4], end: u8| {
        [&[7, 0, 0, 16][..], &ports, &[10, 0, 0, 5], &[10, 0, 0, end]].concat()
    };
    let any_port = [0, 0, 255, 255];
    assert!(chain(&v4(any_port, 5)).is_ok());
    assert!(chain(&v4(any_port, 4)).is_err(), "backwards");
    assert!(chain(&v4([0, 2, 0, 1], 5)).is_err(), "ports backwards");
    let opaque = chain(&v4([255, 255, 0, 0], 5)).unwrap();
    let [Payload::TsI(selectors)] = opaque.as_slice() else {
        panic!("{opaque:?}");
    };
    assert!(selectors[0].is_opaque_port());
    assert_eq!(
        chain(&[99, 0, 0, 8, 1, 2, 3, 4]),
        Ok(vec![Payload::TsI(Vec::new())]),
        "a selector of an unknown type is left out"
    );
    assert!(
        chain(&[7, 0, 0, 8, 1, 2, 3, 4]).is_err(),
        "too short for IPv4"
    );
    assert!(decode_chain(PayloadType::TSI, &[0, 0, 0, 8, 0, 0, 0, 0]).is_err());
    let mixed = TrafficSelector::addresses(selector().start, Ipv6Addr::LOCALHOST.into());
    assert!(encode_chain(&[Payload::TsI(vec![mixed])], &mut Vec::new()).is_err());
}

// RFC 7296 R247
#[test]
fn deletes_are_consistent() {
    let decode = |body: &[u8]| {
        let len = u8::try_from(4 + body.len()).unwrap();
        decode_chain(PayloadType::DELETE, &[&[0, 0, 0, len], body].concat())
    };
    assert!(decode(&[1, 0, 0, 0]).is_ok(), "IKE SA");
    assert!(decode(&[1, 0, 0, 1]).is_err(), "IKE SA with an SPI count");
    assert!(decode(&[1, 8, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0]).is_err());
    assert!(decode(&[3, 4, 0, 1, 0, 0, 0, 1]).is_ok());
    assert!(decode(&[3, 4, 0, 2, 0, 0, 0, 1]).is_err());
    assert!(decode(&[3, 4, 0xff, 0xff]).is_err());
    assert!(decode(&[3, 8, 0, 0]).is_err());
}

// RFC 7296 R197
#[test]
fn nothing_follows_or_nests_in_an_encrypted_payload() {
    let sk = Payload::Encrypted(Encrypted {
        first: PayloadType::NONE,
        body: vec![0; 40],
    });
    let after = [sk.clone(), Payload::Vendor(Vec::new())];
    assert!(encode_chain(&after, &mut Vec::new()).is_err());
    let mut chain = Vec::new();
    encode_chain(&[sk], &mut chain).unwrap();
    let nested = decode_chain(PayloadType::SK, &chain).unwrap_err();
    let why = "an Encrypted payload inside another";
    assert_eq!(nested.problem, Problem::Invalid(why));
    let mut trailing = encode(Vec::new());
    trailing.extend_from_slice(&chain);
    trailing.extend_from_slice(&[0, 0, 0, 4]);
    trailing[16] = PayloadType::SK.0;
    let len = u32::try_from(trailing.len()).unwrap();
    trailing[24..28].copy_from_slice(&len.to_be_bytes());
    assert!(matches!(
        Message::decode(&trailing).unwrap_err().problem,
        Problem::Trailing { extra: 4 }
    ));
}

// RFC 7383 R10
#[test]
fn nothing_follows_or_nests_in_an_encrypted_fragment() {
    let place = FragmentPlace {
        number: 2,
        total: 7,
    };
    let skf = Payload::EncryptedFragment(EncryptedFragment {
        first: PayloadType::NONE,
        place,
        body: vec![0; 40],
    });
    let after = [skf.clone(), Payload::Vendor(Vec::new())];
    assert!(encode_chain(&after, &mut Vec::new()).is_err());
    let mut chain = Vec::new();
    encode_chain(std::slice::from_ref(&skf), &mut chain).unwrap();
    assert!(decode_chain(PayloadType::SKF, &chain).is_err());

    let alone = encode(vec![skf.clone()]);
    assert_eq!(fragment_place(&alone), Some(place));
    // Payloads in clear come before it (RFC 7383 §2.5.3).
    let behind = encode(vec![Payload::Vendor(vec![1; 9]), skf]);
    assert_eq!(fragment_place(&behind), Some(place));
    assert_eq!(
        fragment_place(&encode(vec![Payload::Nonce(vec![0; 16])])),
        None
    );
    for len in 0..alone.len() {
        let mut short = alone[..len].to_vec();
        if let Some(stated) = short.get_mut(24..28) {
            stated.copy_from_slice(&u32::try_from(len).unwrap().to_be_bytes());
        }
        assert_eq!(fragment_place(&short), None);
        assert!(Message::decode(&short).is_err());
    }
}

#[test]
fn auth_debug_hides_the_value() {
    let auth = Auth {
        method: AuthMethod::SHARED_KEY,
        data: vec![0xab; 32],
    };
    assert_eq!(format!("{auth:?}"), "Auth(SHARED_KEY, 32 bytes)");
}
