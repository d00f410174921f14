//! Writes the seed corpora. For IKE a seed is one message of each kind that gateways exchange.

#[path = "seeds/ace.rs"]
mod ace;
#[path = "seeds/attributes.rs"]
mod attributes;
#[path = "seeds/auth.rs"]
mod auth;
#[path = "seeds/cost.rs"]
mod cost;
#[path = "seeds/others.rs"]
mod others;
#[path = "seeds/revocation.rs"]
mod revocation;
#[path = "seeds/structured.rs"]
mod structured;
#[path = "seeds/walks.rs"]
mod walks;

use std::net::{Ipv4Addr, Ipv6Addr};
use std::path::Path;

use esplanade_ike::wire::*;

fn main() -> std::io::Result<()> {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus");
    for name in ["ike_message", "ike_sk_open"] {
        std::fs::create_dir_all(corpus.join(name))?;
    }
    for (name, payloads) in plain() {
        let message = Message {
            header: header(ExchangeType::IKE_SA_INIT),
            payloads,
        };
        let bytes = message.encode().expect("a seed encodes");
        std::fs::write(corpus.join("ike_message").join(name), bytes)?;
    }
    for (index, (name, payloads)) in (0u8..).zip(protected()) {
        let message = Message {
            header: header(ExchangeType::IKE_AUTH),
            payloads: payloads.clone(),
        };
        let bytes = message.encode().expect("a seed encodes");
        std::fs::write(corpus.join("ike_message").join(name), bytes)?;

        // There are four suites. The content is padded for the CBC ones.
        let mut content = Vec::new();
        let first = encode_chain(&payloads, &mut content).expect("a seed encodes");
        let padding = 15 - content.len() % 16;
        content.resize(content.len() + padding, 0);
        content.push(u8::try_from(padding).expect("below 16"));
        content.splice(0..0, [index % 4, first.0]);
        std::fs::write(corpus.join("ike_sk_open").join(name), content)?;
    }
    ace::write(&corpus)?;
    attributes::write(&corpus)?;
    auth::write(&corpus)?;
    cost::write(&corpus)?;
    others::write(&corpus)?;
    revocation::write(&corpus)?;
    revocation::write_ocsp(&corpus)?;
    structured::write(&corpus)?;
    walks::write(&corpus)
}

fn header(exchange: ExchangeType) -> Header {
    Header {
        initiator_spi: 0x1122_3344_5566_7788,
        responder_spi: 0,
        exchange,
        from_initiator: true,
        response: false,
        message_id: 0,
    }
}

fn sa(protocol: ProtocolId, spi: &[u8], transforms: &[Transform]) -> Payload {
    let proposal = |number| Proposal {
        number,
        protocol,
        spi: spi.to_vec(),
        transforms: transforms.to_vec(),
    };
    Payload::Sa(vec![proposal(1), proposal(2)])
}

fn ike_transforms() -> Vec<Transform> {
    vec![
        Transform::with_key_bits(TransformType::ENCRYPTION, 20, 256),
        Transform::with_key_bits(TransformType::ENCRYPTION, 12, 128),
        Transform::new(TransformType::INTEGRITY, 12),
        Transform::new(TransformType::PRF, 5),
        Transform::new(TransformType::KEY_EXCHANGE, 31),
        Transform::new(TransformType::KEY_EXCHANGE, 14),
    ]
}

fn esp_transforms() -> Vec<Transform> {
    vec![
        Transform::with_key_bits(TransformType::ENCRYPTION, 20, 128),
        Transform::new(TransformType::SEQUENCE_NUMBERS, 1),
        Transform::new(TransformType::SEQUENCE_NUMBERS, 0),
    ]
}

fn notify(kind: NotifyType, data: &[u8]) -> Payload {
    Payload::Notify(Notify::new(kind, data.to_vec()))
}

fn key_exchange() -> Payload {
    Payload::Ke(KePayload {
        method: 31,
        data: vec![9; 32],
    })
}

fn nonce() -> Payload {
    Payload::Nonce(vec![5; 32])
}

fn selectors() -> Vec<TrafficSelector> {
    let v4 = Ipv4Addr::new(10, 1, 0, 0).into();
    let mut tcp =
        TrafficSelector::addresses(Ipv6Addr::UNSPECIFIED.into(), Ipv6Addr::LOCALHOST.into());
    tcp.protocol = 6;
    tcp.end_port = 80;
    vec![
        TrafficSelector::addresses(v4, Ipv4Addr::new(10, 1, 255, 255).into()),
        tcp,
    ]
}

fn plain() -> Vec<(&'static str, Vec<Payload>)> {
    let init = vec![
        sa(ProtocolId::IKE, &[], &ike_transforms()),
        key_exchange(),
        nonce(),
        notify(NotifyType::NAT_DETECTION_SOURCE_IP, &[1; 20]),
        notify(NotifyType::NAT_DETECTION_DESTINATION_IP, &[2; 20]),
        Payload::Notify(Notify::signature_hashes(&[HashAlgorithm::SHA2_256])),
        Payload::Vendor(b"a vendor".to_vec()),
    ];
    let mut with_cookie = init.clone();
    with_cookie.insert(0, notify(NotifyType::COOKIE, &[7; 32]));
    vec![
        ("init", init),
        ("init-with-cookie", with_cookie),
        ("cookie", vec![notify(NotifyType::COOKIE, &[7; 32])]),
        (
            "invalid-ke",
            vec![notify(NotifyType::INVALID_KE_PAYLOAD, &[0, 19])],
        ),
        (
            "no-proposal",
            vec![notify(NotifyType::NO_PROPOSAL_CHOSEN, &[])],
        ),
        ("empty", Vec::new()),
        (
            "encrypted",
            vec![Payload::Encrypted(Encrypted {
                first: PayloadType::IDI,
                body: vec![0xee; 80],
            })],
        ),
        (
            "unknown-payload",
            vec![
                Payload::Unknown {
                    kind: PayloadType(53),
                    body: vec![0; 8],
                },
                nonce(),
            ],
        ),
    ]
}

fn protected() -> Vec<(&'static str, Vec<Payload>)> {
    let id = |name: &[u8]| Id::new(IdType::FQDN, name.to_vec());
    let auth = Payload::Auth(Auth {
        method: AuthMethod::SHARED_KEY,
        data: vec![6; 32],
    });
    let child = [
        sa(ProtocolId::ESP, &[0xc0, 0, 0, 1], &esp_transforms()),
        Payload::TsI(selectors()),
        Payload::TsR(selectors()),
    ];
    let about = |kind| Payload::Notify(Notify::about_child(kind, ProtocolId::ESP, 0xc000_0001));
    vec![
        (
            "auth-psk",
            [
                &[
                    Payload::IdI(id(b"moon.example.org")),
                    Payload::IdR(id(b"sun")),
                    auth.clone(),
                ][..],
                &child,
                &[notify(NotifyType::INITIAL_CONTACT, &[])],
            ]
            .concat(),
        ),
        (
            "auth-certificate",
            [
                &[
                    Payload::IdI(Id::new(IdType::DER_ASN1_DN, vec![0x30, 0])),
                    Payload::Cert(Cert {
                        encoding: CertEncoding::X509_SIGNATURE,
                        data: vec![0x30; 60],
                    }),
                    Payload::CertReq(CertReq::x509(&[[8; 20]])),
                    auth,
                ][..],
                &child,
            ]
            .concat(),
        ),
        (
            "rekey-child",
            [
                &[about(NotifyType::REKEY_SA)],
                &child[..],
                &[nonce(), key_exchange()],
            ]
            .concat(),
        ),
        (
            "rekey-ike",
            vec![
                sa(ProtocolId::IKE, &[1; 8], &ike_transforms()),
                nonce(),
                key_exchange(),
            ],
        ),
        (
            "delete-child",
            vec![Payload::Delete(Delete {
                protocol: ProtocolId::ESP,
                spis: vec![0xc000_0001, 0xc000_0002],
            })],
        ),
        (
            "delete-ike",
            vec![Payload::Delete(Delete {
                protocol: ProtocolId::IKE,
                spis: Vec::new(),
            })],
        ),
        ("liveness", Vec::new()),
        (
            "child-not-found",
            vec![about(NotifyType::CHILD_SA_NOT_FOUND)],
        ),
        (
            "failed",
            vec![notify(NotifyType::AUTHENTICATION_FAILED, &[])],
        ),
        (
            "configuration",
            vec![
                Payload::Configuration(Configuration {
                    kind: ConfigurationType::CFG_REQUEST,
                    attributes: vec![(1, Vec::new()), (3, vec![10, 0, 0, 1])],
                }),
                Payload::Eap(vec![1, 1, 0, 5, 1]),
            ],
        ),
    ]
}
