//! A peer that has the keys of an IKE SA and says what it likes: it opens a message of the other target's end, changes
//! its payloads, and seals it again.

use esplanade_crypto::sk::SkKey;
use esplanade_ike::wire::{
    Auth, AuthMethod, Cert, CertEncoding, CertReq, Configuration, ConfigurationType, Delete,
    ExchangeType, HEADER_LEN, Header, Id, IdType, KePayload, Message, Notify, NotifyType, Payload,
    PayloadType, Proposal, ProtocolId, TrafficSelector, Transform, TransformType, decode_chain,
    encode_chain,
};
use esplanade_ike::{Event, KeyLog};

use crate::endpoint::Script;

/// Bytes of a payload before its content.
const PAYLOAD_HEADER_LEN: usize = 4;
const MARKER: [u8; 4] = [0; 4];

const NOTIFIES: &[NotifyType] = &[
    NotifyType::INVALID_SYNTAX,
    NotifyType::NO_PROPOSAL_CHOSEN,
    NotifyType::INVALID_KE_PAYLOAD,
    NotifyType::AUTHENTICATION_FAILED,
    NotifyType::SINGLE_PAIR_REQUIRED,
    NotifyType::NO_ADDITIONAL_SAS,
    NotifyType::INTERNAL_ADDRESS_FAILURE,
    NotifyType::FAILED_CP_REQUIRED,
    NotifyType::TS_UNACCEPTABLE,
    NotifyType::TEMPORARY_FAILURE,
    NotifyType::CHILD_SA_NOT_FOUND,
    NotifyType::INITIAL_CONTACT,
    NotifyType::SET_WINDOW_SIZE,
    NotifyType::ADDITIONAL_TS_POSSIBLE,
    NotifyType::NAT_DETECTION_SOURCE_IP,
    NotifyType::NAT_DETECTION_DESTINATION_IP,
    NotifyType::COOKIE,
    NotifyType::USE_TRANSPORT_MODE,
    NotifyType::HTTP_CERT_LOOKUP_SUPPORTED,
    NotifyType::REKEY_SA,
    NotifyType::ESP_TFC_PADDING_NOT_SUPPORTED,
    NotifyType::NON_FIRST_FRAGMENTS_ALSO,
    NotifyType::MOBIKE_SUPPORTED,
    NotifyType::CHILDLESS_IKEV2_SUPPORTED,
    NotifyType::QUICK_CRASH_DETECTION,
    NotifyType::IKEV2_FRAGMENTATION_SUPPORTED,
    NotifyType::SIGNATURE_HASH_ALGORITHMS,
    NotifyType::USE_PPK,
    NotifyType::INTERMEDIATE_EXCHANGE_SUPPORTED,
    NotifyType::IKE_SA_INIT_FULL_TRANSCRIPT_AUTH,
    NotifyType::INVALID_IKE_SPI,
    NotifyType::INVALID_MAJOR_VERSION,
    NotifyType::INVALID_MESSAGE_ID,
    NotifyType::INVALID_SPI,
    NotifyType::UNSUPPORTED_CRITICAL_PAYLOAD,
    NotifyType::REDIRECT_SUPPORTED,
    NotifyType(8190),
    NotifyType(41000),
];

/// What an opened datagram is made of.
struct Opened {
    header: Header,
    first: PayloadType,
    chain: Vec<u8>,
    /// The key that seals it again. Messages of IKE_SA_INIT have none.
    key: Option<SkKey>,
}

/// Changes a datagram as the script says. Fragments, and messages of unknown SAs, stay as they are.
pub fn change(events: [&[Event]; 2], datagram: &mut Vec<u8>, script: &mut Script<'_>) {
    let marker = if datagram.starts_with(&MARKER) { 4 } else { 0 };
    let opened = open(events, &datagram[marker..]);
    let edits = script.next() % 8;
    let Some(mut opened) = opened else {
        return;
    };
    let mut payloads = decode_chain(opened.first, &opened.chain).unwrap_or_default();
    for _ in 0..=edits {
        edit(&mut payloads, &mut opened.header, script);
    }
    let mut chain = Vec::new();
    let Ok(first) = encode_chain(&payloads, &mut chain) else {
        return;
    };
    let changed = match &opened.key {
        None => {
            let header = opened.header;
            Message { header, payloads }.encode().ok()
        }
        Some(key) => seal(key, opened.header, first, chain),
    };
    if let Some(changed) = changed {
        datagram.truncate(marker);
        datagram.extend(changed);
    }
}

fn open(events: [&[Event]; 2], datagram: &[u8]) -> Option<Opened> {
    let header = Header::decode(datagram).ok()?;
    let rest = datagram.get(HEADER_LEN..)?;
    match PayloadType(*datagram.get(16)?) {
        PayloadType::SK => {
            let spis = (header.initiator_spi, header.responder_spi);
            let mut logs = events
                .into_iter()
                .flatten()
                .filter_map(|event| match event {
                    Event::KeyLog(log) => Some(log),
                    _ => None,
                });
            let log = logs.find(|log| (log.spi_i, log.spi_r) == spis)?;
            let key = key_of(log, header.from_initiator)?;
            let mut message = datagram.to_vec();
            let range = key.open(&mut message, HEADER_LEN + PAYLOAD_HEADER_LEN);
            let (padding, content) = message[range.ok()?].split_last()?;
            let chain = content.get(..content.len() - usize::from(*padding))?;
            Some(Opened {
                header,
                first: PayloadType(*rest.first()?),
                chain: chain.to_vec(),
                key: Some(key),
            })
        }
        PayloadType::SKF => None,
        first => Some(Opened {
            header,
            first,
            chain: rest.to_vec(),
            key: None,
        }),
    }
}

fn key_of(log: &KeyLog, from_initiator: bool) -> Option<SkKey> {
    let (encryption, integrity) = match from_initiator {
        true => (&log.sk_ei, &log.sk_ai),
        false => (&log.sk_er, &log.sk_ar),
    };
    let suite = log.suite;
    SkKey::new(
        suite.encryption,
        suite.integrity,
        encryption.expose(),
        integrity.expose(),
    )
}

fn seal(key: &SkKey, header: Header, first: PayloadType, mut content: Vec<u8>) -> Option<Vec<u8>> {
    let padded = (content.len() + 1).next_multiple_of(key.block_len());
    let padding = padded - content.len() - 1;
    content.resize(padded, 0);
    *content.last_mut()? = u8::try_from(padding).ok()?;
    let payload_len = PAYLOAD_HEADER_LEN + key.iv_len() + padded + key.icv_len();
    let payloads = Vec::new();
    let mut datagram = Message { header, payloads }.encode().ok()?;
    let total = u32::try_from(HEADER_LEN + payload_len).ok()?;
    datagram[16] = PayloadType::SK.0;
    datagram[24..28].copy_from_slice(&total.to_be_bytes());
    datagram.extend_from_slice(&[first.0, 0]);
    datagram.extend_from_slice(&u16::try_from(payload_len).ok()?.to_be_bytes());
    let iv_at = datagram.len();
    datagram.resize(iv_at + key.iv_len(), 9);
    datagram.extend(content);
    key.seal(&mut datagram, iv_at)?;
    Some(datagram)
}

/// Makes one change of the payloads or of the header.
fn edit(payloads: &mut Vec<Payload>, header: &mut Header, script: &mut Script<'_>) {
    let (kind, value) = (script.next(), script.next());
    let at = usize::from(value) % payloads.len().max(1);
    match kind % 16 {
        0 if !payloads.is_empty() => drop(payloads.remove(at)),
        1 if !payloads.is_empty() => payloads.push(payloads[at].clone()),
        2 if !payloads.is_empty() => payloads.rotate_left(at),
        3 => payloads.insert(at, Payload::Notify(notify(script))),
        4 => {
            let len = usize::from(script.next() % 64);
            let body = script.bytes(len).to_vec();
            let kind = PayloadType(33 + value % 24);
            payloads.push(Payload::Unknown { kind, body });
        }
        5 => {
            let protocol = ProtocolId(value & 3);
            let spis = (0..value >> 4).map(|at| 0x1000 + u32::from(at));
            let spis = spis.map(|spi| spi | u32::from(value & 12) << 14).collect();
            payloads.push(Payload::Delete(Delete { protocol, spis }));
        }
        6 => edit_header(header, value),
        7 => payloads.clear(),
        8 => {
            payloads.push(Payload::Configuration(Configuration {
                kind: ConfigurationType::CFG_REQUEST,
                attributes: vec![(u16::from(value), vec![])],
            }));
        }
        _ => {
            if let Some(payload) = payloads.get_mut(at) {
                edit_payload(payload, script);
            }
        }
    }
}

fn notify(script: &mut Script<'_>) -> Notify {
    let kind = NOTIFIES[usize::from(script.next()) % NOTIFIES.len()];
    let shape = script.next();
    let data: Vec<u8> = match shape & 7 {
        0 => vec![],
        1 => vec![0, 31],
        2 => vec![7; 20],
        3 => vec![0, 19],
        4 => vec![0, 2, 0, 3, 0, 5],
        5 => vec![1; 64],
        _ => script.bytes(usize::from(shape >> 4)).to_vec(),
    };
    match shape & 8 {
        0 => Notify::new(kind, data),
        _ => {
            let spi = 0x2_1000 + u32::from(script.next());
            let about = Notify::about_child(kind, ProtocolId(shape >> 6), spi);
            Notify { data, ..about }
        }
    }
}

fn edit_header(header: &mut Header, value: u8) {
    match value & 7 {
        0 => header.exchange = ExchangeType(34 + (value >> 3) % 5),
        1 => header.message_id = header.message_id.wrapping_add(u32::from(value >> 3)),
        2 => header.response = !header.response,
        3 => header.from_initiator = !header.from_initiator,
        4 => header.initiator_spi ^= u64::from(value >> 3),
        5 => header.responder_spi ^= u64::from(value >> 3),
        6 => header.message_id = u32::MAX,
        _ => header.responder_spi = 0,
    }
}

fn edit_payload(payload: &mut Payload, script: &mut Script<'_>) {
    let value = script.next();
    match payload {
        Payload::Sa(proposals) => edit_proposals(proposals, value, script),
        Payload::Ke(ke) => edit_ke(ke, value),
        Payload::IdI(id) | Payload::IdR(id) => {
            let kinds = [
                IdType::IPV4_ADDR,
                IdType::FQDN,
                IdType::RFC822_ADDR,
                IdType::IPV6_ADDR,
                IdType::DER_ASN1_DN,
                IdType::DER_ASN1_GN,
                IdType::KEY_ID,
                IdType::NULL,
            ];
            let len = usize::from(value >> 3);
            *id = Id::new(kinds[usize::from(value & 7)], script.bytes(len).to_vec());
        }
        Payload::Cert(Cert { encoding, data }) | Payload::CertReq(CertReq { encoding, data }) => {
            let encodings = [4, 7, 10, 12, 13, 14, 15, 99];
            match value & 8 {
                0 => *encoding = CertEncoding(encodings[usize::from(value & 7)]),
                _ => data.truncate(usize::from(value)),
            }
        }
        Payload::Auth(Auth { method, data }) => match value & 1 {
            0 => *method = AuthMethod(value >> 1 & 15),
            _ => {
                if let Some(byte) = data.get_mut(usize::from(value >> 1)) {
                    *byte ^= 1;
                }
            }
        },
        Payload::Nonce(nonce) => nonce.resize(16 + usize::from(value), 3),
        Payload::Notify(one) => {
            let data = std::mem::take(&mut one.data);
            *one = notify(script);
            if value & 1 != 0 {
                one.data = data;
            }
        }
        Payload::Delete(delete) => {
            delete.spis.push(u32::from(value));
            if value & 1 != 0 {
                delete.protocol = ProtocolId(value >> 1 & 3);
            }
        }
        Payload::TsI(selectors) | Payload::TsR(selectors) => {
            edit_selectors(selectors, value, script);
        }
        Payload::Vendor(body) | Payload::Eap(body) | Payload::Unknown { body, .. } => {
            body.push(value);
        }
        Payload::Encrypted(_) | Payload::EncryptedFragment(_) | Payload::Configuration(_) => {}
    }
}

fn edit_ke(ke: &mut KePayload, value: u8) {
    match value & 3 {
        0 => ke.method = u16::from(value >> 2),
        1 => ke.data.truncate(usize::from(value >> 2)),
        2 => ke.data.fill(0),
        _ => ke.data.push(value),
    }
}

fn edit_proposals(proposals: &mut Vec<Proposal>, value: u8, script: &mut Script<'_>) {
    let at = usize::from(script.next());
    let Some(proposal) = proposals.first_mut() else {
        return;
    };
    let place = at % proposal.transforms.len().max(1);
    match value % 10 {
        0 if !proposal.transforms.is_empty() => drop(proposal.transforms.remove(place)),
        1 => {
            if let Some(transform) = proposal.transforms.get_mut(place) {
                transform.id = u16::from(value >> 4);
            }
        }
        2 => {
            if let Some(transform) = proposal.transforms.get_mut(place) {
                transform.key_bits = Some(u16::from(value) * 2);
            }
        }
        3 => {
            if let Some(transform) = proposal.transforms.get_mut(place) {
                transform.unknown_attribute = true;
            }
        }
        4 => proposal.protocol = ProtocolId(value >> 4),
        5 => proposal.spi.resize(usize::from(value >> 4), 1),
        6 => proposal.number = value >> 4,
        7 => {
            let kind = TransformType(value >> 4);
            let id = script.next().into();
            proposal.transforms.push(Transform::new(kind, id));
        }
        8 => {
            let mut second = proposal.clone();
            second.number += 1;
            proposals.push(second);
        }
        _ => proposals.clear(),
    }
}

fn edit_selectors(selectors: &mut Vec<TrafficSelector>, value: u8, script: &mut Script<'_>) {
    let host = |a: u8, b: u8| -> std::net::IpAddr { [10, a, 0, b].into() };
    let (a, b) = (script.next() % 3, script.next());
    match value % 8 {
        0 => selectors.clear(),
        1 => selectors.push(TrafficSelector::addresses(host(a, b), host(a, b))),
        2 => {
            for one in &mut *selectors {
                one.protocol = b;
            }
        }
        3 => {
            for one in &mut *selectors {
                (one.start_port, one.end_port) = (b.into(), u16::from(a) << 8 | u16::from(b));
            }
        }
        4 => selectors.push(TrafficSelector::addresses(
            [0, 0, 0, 0].into(),
            [255; 4].into(),
        )),
        5 => {
            let low = std::net::Ipv6Addr::UNSPECIFIED.into();
            let high = std::net::Ipv6Addr::from([255; 16]).into();
            selectors.push(TrafficSelector::addresses(low, high));
        }
        6 => {
            let hosts = (0..b).map(|at| TrafficSelector::addresses(host(a, at), host(a, at)));
            selectors.extend(hosts.step_by(2).take(100));
        }
        _ => {
            for one in &mut *selectors {
                (one.start_port, one.end_port) = (u16::MAX, 0);
                one.protocol = 6;
            }
        }
    }
}
