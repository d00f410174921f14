//! Shows the IKE messages on the wire as a readable sequence.
//!
//! Everything comes from captured packets. The keys that the gateways exported decrypt the
//! Encrypted payloads. Without the right key, a payload is shown as "encrypted".

use std::net::IpAddr;
use std::path::Path;
use std::time::SystemTime;

use esplanade_crypto::iana::{Encryption, Group, Integrity, Prf, SequenceNumbers};
use esplanade_crypto::sk::SkKey;
use esplanade_ike::wire::{
    ExchangeType, Header, IdType, Message, Payload, Proposal, ProtocolId, TrafficSelector,
    Transform, TransformType, decode_chain,
};

use super::capture::IkeMessage;
use super::ui::{Ui, wrap};

const ARROW_LEN: usize = 36;
const DETAIL_WIDTH: usize = 62;

/// The keys of IKE SAs, from the key files of the gateways.
#[derive(Default)]
pub struct IkeKeys {
    sas: Vec<SaKeys>,
}

struct SaKeys {
    initiator_spi: u64,
    responder_spi: u64,
    from_initiator: SkKey,
    from_responder: SkKey,
}

impl std::fmt::Debug for IkeKeys {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Keys({} IKE SAs, keys withheld)", self.sas.len())
    }
}

impl IkeKeys {
    /// Reads the `ikev2_decryption_table` lines of a key file. Malformed lines are skipped.
    pub fn read(path: &Path) -> std::io::Result<Self> {
        let text = std::fs::read_to_string(path)?;
        let lines = text
            .lines()
            .filter_map(|line| line.strip_prefix("ikev2_decryption_table:"));
        Ok(Self {
            sas: lines.filter_map(SaKeys::parse).collect(),
        })
    }

    fn open(&self, header: &Header, datagram: &[u8]) -> Option<Vec<Payload>> {
        let sa = self.sas.iter().find(|sa| {
            sa.initiator_spi == header.initiator_spi && sa.responder_spi == header.responder_spi
        })?;
        let key = if header.from_initiator {
            &sa.from_initiator
        } else {
            &sa.from_responder
        };
        let outer = Message::decode(datagram).ok()?;
        let Payload::Encrypted(encrypted) = outer.payloads.last()? else {
            return None;
        };
        let iv_at = datagram.len().checked_sub(encrypted.body.len())?;
        let mut message = datagram.to_vec();
        let range = key.open(&mut message, iv_at).ok()?;
        let (&padding, content) = message.get(range)?.split_last()?;
        let len = content.len().checked_sub(padding.into())?;
        decode_chain(encrypted.first, content.get(..len)?).ok()
    }
}

impl SaKeys {
    fn parse(line: &str) -> Option<Self> {
        let fields: Vec<&str> = line
            .split(',')
            .map(|field| field.trim_matches('"'))
            .collect();
        let [spi_i, spi_r, sk_ei, sk_er, cipher, sk_ai, sk_ar, ..] = fields.as_slice() else {
            return None;
        };
        let (sk_ai, sk_ar) = (unhex(sk_ai)?, unhex(sk_ar)?);
        let encryption = if cipher.contains("GCM") {
            Encryption::AesGcm16
        } else {
            Encryption::AesCbc
        };
        let integrity = match sk_ai.len() {
            0 => None,
            32 => Some(Integrity::HmacSha2_256_128),
            48 => Some(Integrity::HmacSha2_384_192),
            _ => Some(Integrity::HmacSha2_512_256),
        };
        Some(Self {
            initiator_spi: u64::from_str_radix(spi_i, 16).ok()?,
            responder_spi: u64::from_str_radix(spi_r, 16).ok()?,
            from_initiator: SkKey::new(encryption, integrity, &unhex(sk_ei)?, &sk_ai)?,
            from_responder: SkKey::new(encryption, integrity, &unhex(sk_er)?, &sk_ar)?,
        })
    }
}

fn unhex(text: &str) -> Option<Vec<u8>> {
    let digits: Option<Vec<u32>> = text.chars().map(|digit| digit.to_digit(16)).collect();
    digits?
        .chunks(2)
        .map(|pair| match pair {
            [high, low] => u8::try_from(high << 4 | low).ok(),
            _ => None,
        })
        .collect()
}

/// The readable content of one message.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Reading {
    pub title: String,
    pub exchange: Option<ExchangeType>,
    pub response: bool,
    pub payloads: Vec<String>,
    /// The algorithms that the responder chose.
    pub chosen: Option<String>,
    /// The message had an Encrypted payload, and it was decrypted.
    pub opened: bool,
}

pub fn read(datagram: &[u8], keys: &IkeKeys) -> Reading {
    let message = match Message::decode(datagram) {
        Ok(message) => message,
        Err(error) => {
            return Reading {
                title: "unreadable".into(),
                payloads: vec![error.to_string()],
                ..Reading::default()
            };
        }
    };
    let header = message.header;
    let kind = if header.response {
        "response"
    } else {
        "request"
    };
    let mut reading = Reading {
        title: format!("{} {kind} {}", header.exchange, header.message_id),
        exchange: Some(header.exchange),
        response: header.response,
        ..Reading::default()
    };
    let mut payloads = message.payloads;
    if let Some(Payload::Encrypted(encrypted)) = payloads.last() {
        match keys.open(&header, datagram) {
            Some(inner) => {
                reading.opened = true;
                payloads = inner;
            }
            None => reading
                .payloads
                .push(format!("SK {{ {} bytes encrypted }}", encrypted.body.len())),
        }
    }
    reading
        .payloads
        .extend(payloads.iter().filter_map(|payload| name(payload, &header)));
    if reading.opened {
        if reading.payloads.is_empty() {
            reading.payloads.push("SK { }".into());
        } else if let [first, .., last] = reading.payloads.as_mut_slice() {
            first.insert_str(0, "SK { ");
            last.push_str(" }");
        } else if let [only] = reading.payloads.as_mut_slice() {
            *only = format!("SK {{ {only} }}");
        }
    }
    if header.response {
        reading.chosen = payloads.iter().find_map(|payload| match payload {
            Payload::Sa(proposals) => proposals.first().map(suite),
            _ => None,
        });
    }
    reading
}

/// Names a payload in the notation of RFC 7296 §1.2.
fn name(payload: &Payload, header: &Header) -> Option<String> {
    let role = if header.response { 'r' } else { 'i' };
    let stage = match header.exchange {
        ExchangeType::IKE_SA_INIT => "1",
        ExchangeType::IKE_AUTH => "2",
        _ => "",
    };
    Some(match payload {
        Payload::Sa(_) if stage.is_empty() => "SA".into(),
        Payload::Sa(_) => format!("SA{role}{stage}"),
        Payload::Ke(ke) => format!("KE{role}({})", group(ke.method)),
        Payload::Nonce(_) => format!("N{role}"),
        Payload::IdI(id) => format!("IDi({})", identity(id.kind, &id.data)),
        Payload::IdR(id) => format!("IDr({})", identity(id.kind, &id.data)),
        Payload::Auth(auth) => format!("AUTH({})", auth.method),
        Payload::Notify(notify) => format!("N({})", notify.kind),
        Payload::Delete(delete) if delete.protocol == ProtocolId::IKE => "D(IKE)".into(),
        Payload::Delete(delete) => format!("D({} x{})", delete.protocol, delete.spis.len()),
        Payload::TsI(selectors) => format!("TSi({})", ranges(selectors)),
        Payload::TsR(selectors) => format!("TSr({})", ranges(selectors)),
        Payload::Encrypted(_) => return None,
        other => other.kind().to_string(),
    })
}

fn group(number: u16) -> String {
    Group::from_number(number).map_or_else(|| number.to_string(), |group| group.to_string())
}

fn identity(kind: IdType, data: &[u8]) -> String {
    match (kind, data.first_chunk::<4>()) {
        (IdType::IPV4_ADDR, Some(address)) => std::net::Ipv4Addr::from(*address).to_string(),
        _ => String::from_utf8_lossy(data)
            .chars()
            .filter(|letter| !letter.is_control())
            .collect(),
    }
}

fn ranges(selectors: &[TrafficSelector]) -> String {
    let range = |selector: &TrafficSelector| {
        if selector.start == selector.end {
            selector.start.to_string()
        } else {
            format!("{}-{}", selector.start, selector.end)
        }
    };
    selectors.iter().map(range).collect::<Vec<_>>().join(" ")
}

fn suite(proposal: &Proposal) -> String {
    proposal
        .transforms
        .iter()
        .map(transform)
        .collect::<Vec<_>>()
        .join(" ")
}

fn transform(transform: &Transform) -> String {
    let id = transform.id;
    let name = match transform.kind {
        TransformType::ENCRYPTION => Encryption::from_number(id).map(Encryption::name),
        TransformType::PRF => Prf::from_number(id).map(Prf::name),
        TransformType::INTEGRITY => Integrity::from_number(id).map(Integrity::name),
        TransformType::KEY_EXCHANGE => Group::from_number(id).map(Group::name),
        TransformType::SEQUENCE_NUMBERS => {
            SequenceNumbers::from_number(id).map(SequenceNumbers::name)
        }
        _ => None,
    };
    let name = name.map_or_else(|| format!("{}({id})", transform.kind), str::to_owned);
    match transform.key_bits {
        Some(bits) => format!("{name}-{bits}"),
        None => name,
    }
}

/// Draws the messages between the two gateways. `left` is the address of the first gateway.
pub fn draw(ui: &mut Ui, messages: &[IkeMessage], keys: &IkeKeys, left: IpAddr) {
    let Some(first) = messages.first() else {
        return;
    };
    ui.text(format_args!(
        "      time  gw-a {:>width$}",
        "gw-b",
        width = ARROW_LEN - 4
    ));
    for message in messages {
        let reading = read(&message.bytes, keys);
        let arrow = arrow(&reading.title, message.source == left);
        let arrow = ui.paint(if message.source == left { "36" } else { "35" }, &arrow);
        ui.text(format_args!(
            "{:>10}  |{arrow}|  {} bytes, port {}",
            milliseconds(first.at, message.at),
            message.bytes.len(),
            message.port
        ));
        for line in wrap(&reading.payloads.join(", "), DETAIL_WIDTH) {
            ui.text(format_args!("{:10}  |  {line}", ""));
        }
        if let Some(chosen) = &reading.chosen {
            let mut prefix = "chosen:";
            for line in wrap(chosen, DETAIL_WIDTH - 8) {
                ui.text(format_args!("{:10}  |  {prefix:7} {line}", ""));
                prefix = "";
            }
        }
    }
}

fn arrow(title: &str, rightwards: bool) -> String {
    let middle = format!("{:-^width$}", format!(" {title} "), width = ARROW_LEN - 1);
    if rightwards {
        format!("{middle}>")
    } else {
        format!("<{middle}")
    }
}

fn milliseconds(from: SystemTime, to: SystemTime) -> String {
    let elapsed = to.duration_since(from).unwrap_or_default();
    format!("{:.1} ms", elapsed.as_secs_f64() * 1e3)
}

#[cfg(test)]
mod tests {
    use esplanade_ike::wire::{
        AuthMethod, Encrypted, Id, KePayload, Notify, NotifyType, encode_chain,
    };

    use super::*;

    fn header(exchange: ExchangeType, from_initiator: bool, message_id: u32) -> Header {
        Header {
            initiator_spi: 0x0102_0304_0506_0708,
            responder_spi: 0x1112_1314_1516_1718,
            exchange,
            from_initiator,
            response: !from_initiator,
            message_id,
        }
    }

    fn gcm_proposal() -> Proposal {
        Proposal {
            number: 1,
            protocol: ProtocolId::IKE,
            spi: Vec::new(),
            transforms: vec![
                Transform::with_key_bits(
                    TransformType::ENCRYPTION,
                    Encryption::AesGcm16.number(),
                    128,
                ),
                Transform::new(TransformType::PRF, Prf::HmacSha2_256.number()),
                Transform::new(TransformType::KEY_EXCHANGE, Group::Curve25519.number()),
            ],
        }
    }

    #[test]
    fn clear_messages_are_read_without_keys() {
        let message = Message {
            header: header(ExchangeType::IKE_SA_INIT, false, 0),
            payloads: vec![
                Payload::Sa(vec![gcm_proposal()]),
                Payload::Ke(KePayload {
                    method: 31,
                    data: vec![9; 32],
                }),
                Payload::Nonce(vec![7; 32]),
                Payload::Notify(Notify::new(
                    NotifyType::NAT_DETECTION_SOURCE_IP,
                    vec![0; 20],
                )),
            ],
        };
        let reading = read(&message.encode().unwrap(), &IkeKeys::default());
        assert_eq!(reading.title, "IKE_SA_INIT response 0");
        assert_eq!(
            reading.payloads.join(" "),
            "SAr1 KEr(CURVE25519) Nr N(NAT_DETECTION_SOURCE_IP)"
        );
        assert_eq!(
            reading.chosen.as_deref(),
            Some("ENCR_AES_GCM_16-128 PRF_HMAC_SHA2_256 CURVE25519")
        );
    }

    #[test]
    fn an_encrypted_message_is_opened_only_with_its_key() {
        let datagram = sealed_auth(&[0x42; 20]);
        let closed = read(&datagram, &IkeKeys::default());
        assert!(!closed.opened);
        assert!(
            closed.payloads[0].starts_with("SK { "),
            "{:?}",
            closed.payloads
        );

        let line = |key: &str| {
            let zero = "00".repeat(20);
            format!(
                "ikev2_decryption_table:0102030405060708,1112131415161718,{key},{zero},\
                 \"AES-GCM-128 with 16 octet ICV [RFC5282]\",,,\"NONE [RFC4306]\"\n"
            )
        };
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("keys");
        std::fs::write(&path, format!("nonsense\n{}", line(&"42".repeat(20)))).unwrap();
        let opened = read(&datagram, &IkeKeys::read(&path).unwrap());
        assert!(opened.opened);
        assert_eq!(
            opened.payloads.join(", "),
            "SK { IDi(gw-a), AUTH(SHARED_KEY) }"
        );

        std::fs::write(&path, line(&"43".repeat(20))).unwrap();
        assert!(!read(&datagram, &IkeKeys::read(&path).unwrap()).opened);
    }

    fn sealed_auth(sk_ei: &[u8]) -> Vec<u8> {
        const IV_LEN: usize = 8;
        const ICV_LEN: usize = 16;
        let payloads = [
            Payload::IdI(Id::new(IdType::FQDN, b"gw-a".to_vec())),
            Payload::Auth(esplanade_ike::wire::Auth {
                method: AuthMethod::SHARED_KEY,
                data: vec![1; 32],
            }),
        ];
        let mut content = Vec::new();
        let first = encode_chain(&payloads, &mut content).unwrap();
        content.push(0);
        let body = [vec![0; IV_LEN], content.clone(), vec![0; ICV_LEN]].concat();
        let message = Message {
            header: header(ExchangeType::IKE_AUTH, true, 1),
            payloads: vec![Payload::Encrypted(Encrypted { first, body })],
        };
        let mut datagram = message.encode().unwrap();
        datagram.truncate(datagram.len() - ICV_LEN);
        let iv_at = datagram.len() - content.len() - IV_LEN;
        let key = SkKey::new(Encryption::AesGcm16, None, sk_ei, &[]).unwrap();
        key.seal(&mut datagram, iv_at).unwrap();
        datagram
    }

    #[test]
    fn garbage_is_unreadable_and_no_panic() {
        for len in 0..64 {
            let reading = read(&vec![0xa5; len], &IkeKeys::default());
            assert_eq!(reading.title, "unreadable");
        }
    }
}
