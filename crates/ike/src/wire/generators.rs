//! Strategies for messages that can be encoded, and for their parts. What the fields mean is random.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use proptest::collection::vec;
use proptest::prelude::*;

use super::payload::ONCE;
use super::*;

fn bytes() -> impl Strategy<Value = Vec<u8>> {
    vec(any::<u8>(), 0..300)
}

fn transform() -> impl Strategy<Value = Transform> {
    (any::<u8>(), any::<u16>(), any::<Option<u16>>()).prop_map(|(kind, id, key_bits)| Transform {
        kind: TransformType(kind),
        id,
        key_bits,
        unknown_attribute: false,
    })
}

fn proposals() -> impl Strategy<Value = Vec<Proposal>> {
    let spi = vec(any::<u8>(), 0..=8);
    let proposal = (any::<u8>(), any::<u8>(), spi, vec(transform(), 0..20)).prop_map(
        |(number, protocol, spi, transforms)| Proposal {
            number,
            protocol: ProtocolId(protocol),
            spi,
            transforms,
        },
    );
    vec(proposal, 1..5)
}

fn address_range() -> impl Strategy<Value = (IpAddr, IpAddr)> {
    prop_oneof![
        any::<(u32, u32)>().prop_map(|(a, b)| (
            IpAddr::from(Ipv4Addr::from(a.min(b))),
            IpAddr::from(Ipv4Addr::from(a.max(b)))
        )),
        any::<(u128, u128)>().prop_map(|(a, b)| (
            IpAddr::from(Ipv6Addr::from(a.min(b))),
            IpAddr::from(Ipv6Addr::from(a.max(b)))
        )),
    ]
}

pub fn traffic_selectors() -> impl Strategy<Value = Vec<TrafficSelector>> {
    let selector = (address_range(), any::<u8>(), any::<(u16, u16)>()).prop_map(
        |((start, end), protocol, (a, b))| TrafficSelector {
            protocol,
            start_port: a.min(b),
            end_port: a.max(b),
            start,
            end,
        },
    );
    vec(selector, 1..9)
}

fn id() -> impl Strategy<Value = Id> {
    (any::<u8>(), any::<[u8; 3]>(), bytes()).prop_map(|(kind, reserved, data)| Id {
        kind: IdType(kind),
        reserved,
        data,
    })
}

fn notify() -> impl Strategy<Value = Notify> {
    let spi = vec(any::<u8>(), 0..=255);
    (any::<u8>(), spi, any::<u16>(), bytes()).prop_map(|(protocol, spi, kind, data)| Notify {
        protocol: ProtocolId(protocol),
        spi,
        kind: NotifyType(kind),
        data,
    })
}

fn payload() -> impl Strategy<Value = Payload> {
    let attributes = vec((0u16..0x8000, bytes()), 0..6);
    prop_oneof![
        proposals().prop_map(Payload::Sa),
        (any::<u16>(), bytes()).prop_map(|(method, data)| Payload::Ke(KePayload { method, data })),
        id().prop_map(Payload::IdI),
        id().prop_map(Payload::IdR),
        (any::<u8>(), bytes()).prop_map(|(encoding, data)| Payload::Cert(Cert {
            encoding: CertEncoding(encoding),
            data
        })),
        (any::<u8>(), bytes()).prop_map(|(method, data)| Payload::Auth(Auth {
            method: AuthMethod(method),
            data
        })),
        vec(any::<u8>(), NONCE_LEN_MIN..=NONCE_LEN_MAX).prop_map(Payload::Nonce),
        notify().prop_map(Payload::Notify),
        vec(any::<u32>(), 0..20).prop_map(|spis| Payload::Delete(Delete {
            protocol: ProtocolId::ESP,
            spis
        })),
        traffic_selectors().prop_map(Payload::TsI),
        traffic_selectors().prop_map(Payload::TsR),
        (any::<u8>(), attributes).prop_map(|(kind, attributes)| Payload::Configuration(
            Configuration {
                kind: ConfigurationType(kind),
                attributes
            }
        )),
        bytes().prop_map(Payload::Eap),
        (100u8.., bytes()).prop_map(|(kind, body)| Payload::Unknown {
            kind: PayloadType(kind),
            body
        }),
    ]
}

/// Gives the payloads of a message. None that may come once comes twice, and none is encrypted.
pub fn payloads() -> impl Strategy<Value = Vec<Payload>> {
    vec(payload(), 0..10).prop_map(|mut payloads| {
        let mut there = Vec::new();
        payloads.retain(|payload| {
            let kind = payload.kind();
            let is_new = !there.contains(&kind);
            there.push(kind);
            is_new || !ONCE.contains(&kind)
        });
        payloads
    })
}

/// Gives messages. An Encrypted payload or a fragment of one, if there is one, is the last payload.
pub fn message() -> impl Strategy<Value = Message> {
    let places = proptest::option::of(any::<[u16; 2]>());
    let encrypted = (0u8..60, places, vec(any::<u8>(), 0..200)).prop_map(|(first, place, body)| {
        let first = PayloadType(first);
        match place {
            None => Payload::Encrypted(Encrypted { first, body }),
            Some([number, total]) => Payload::EncryptedFragment(EncryptedFragment {
                first,
                place: FragmentPlace { number, total },
                body,
            }),
        }
    });
    let header = (
        any::<[u64; 2]>(),
        any::<u8>(),
        any::<[bool; 2]>(),
        any::<u32>(),
    );
    (header, payloads(), proptest::option::of(encrypted)).prop_map(
        |((spis, exchange, flags, message_id), mut payloads, encrypted)| {
            payloads.extend(encrypted);
            Message {
                header: Header {
                    initiator_spi: spis[0],
                    responder_spi: spis[1],
                    exchange: ExchangeType(exchange),
                    from_initiator: flags[0],
                    response: flags[1],
                    message_id,
                },
                payloads,
            }
        },
    )
}
