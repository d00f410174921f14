//! The bodies of the fuzz targets as plain functions, so that the corpus also replays on a stable toolchain
//! (`tests/replay.rs`). A body panics if a property does not hold.

mod ace;
mod attributes;
pub mod auth;
pub mod corpus;
pub mod cost;
mod der_edits;
mod endpoint;
mod esp;
mod gateway;
pub mod limit;
mod packets;
pub mod peers;
mod policies;
mod revocation;
mod steps;
mod tunnels;
mod walks;

use std::sync::OnceLock;

use esplanade_crypto::iana::{Encryption, Group, Integrity, Prf};
use esplanade_crypto::sk::SkKey;
use esplanade_ike::suite::{
    IkeSaKeys, KeyExchangeMethods, Nonces, OpenError, Opener, Role, Secret, Suite,
};
use esplanade_ike::wire::{
    ExchangeType, HEADER_LEN, Header, Message, Payload, PayloadType, decode_chain,
};

pub use ace::{ace_bitstream, ace_packed};
pub use attributes::attributes;
pub use auth::{auth_signature, certificates, identity};
pub use cost::cost;
pub use der_edits::der_edits;
pub use endpoint::ike_endpoint;
pub use esp::esp_inbound;
pub use gateway::{config_parse, tun_gso, vici_packet};
pub use packets::{fragments, inbound_frames, ip_packet, transforms};
pub use peers::ike_peers;
pub use policies::policies;
pub use revocation::{ocsp, revocation};
pub use tunnels::tunnels;
pub use walks::walks;

/// A fuzz target. Only its input decides what it does.
pub type Target = fn(&[u8]);

/// Every target, with the name of its corpus folder and of its binary.
pub const TARGETS: &[(&str, Target)] = &[
    ("ace_bitstream", ace_bitstream),
    ("ace_packed", ace_packed),
    ("attributes", attributes),
    ("auth_signature", auth_signature),
    ("certificates", certificates),
    ("config_parse", config_parse),
    ("cost", cost),
    ("der_edits", der_edits),
    ("esp_inbound", esp_inbound),
    ("fragments", fragments),
    ("identity", identity),
    ("ike_endpoint", ike_endpoint),
    ("ike_message", ike_message),
    ("ike_peers", ike_peers),
    ("ike_sk_open", ike_sk_open),
    ("inbound_frames", inbound_frames),
    ("ip_packet", ip_packet),
    ("ocsp", ocsp),
    ("policies", policies),
    ("revocation", revocation),
    ("tun_gso", tun_gso),
    ("tunnels", tunnels),
    ("vici_packet", vici_packet),
    ("walks", walks),
];

/// A datagram. A message that can be decoded and sent must decode again to the same message.
pub fn ike_message(data: &[u8]) {
    let Ok(message) = Message::decode(data) else {
        return;
    };
    if let Ok(encoded) = message.encode() {
        assert_eq!(Message::decode(&encoded), Ok(message));
    }
}

/// Byte 0 chooses a suite, and byte 1 is the type of the first payload. The rest is tried as a datagram. It is also
/// sealed with the right key and tried as the padded content of an Encrypted payload.
pub fn ike_sk_open(data: &[u8]) {
    let Some((&[pick, first], rest)) = data.split_first_chunk::<2>() else {
        return;
    };
    let sessions = sessions();
    let session = &sessions[usize::from(pick) % sessions.len()];

    let opened = session.opener.open(rest);
    assert!(
        !matches!(opened, Ok(_) | Err(OpenError::Inner { .. })),
        "opened a message that nobody sealed"
    );

    let opened = session.opener.open_fragment(rest);
    assert!(
        !matches!(opened, Ok(_) | Err(OpenError::Inner { .. })),
        "opened a fragment that nobody sealed"
    );

    let datagram = session.seal(PayloadType(first), rest);
    match session.opener.open(&datagram) {
        Ok(message) => session.check_round_trip(message, PayloadType(first), rest),
        Err(OpenError::Inner { header, .. }) => assert_eq!(header, HEADER),
        Err(error) => assert!(
            datagram.len() > esplanade_ike::wire::MESSAGE_LEN_MAX,
            "refused a sealed message: {error}"
        ),
    }
}

const HEADER: Header = Header {
    initiator_spi: 1,
    responder_spi: 2,
    exchange: ExchangeType::INFORMATIONAL,
    from_initiator: true,
    response: false,
    message_id: 7,
};

struct Session {
    keys: IkeSaKeys,
    key: SkKey,
    opener: Opener,
}

impl Session {
    fn new(encryption: Encryption, key_bits: u16, integrity: Option<Integrity>) -> Self {
        let suite = Suite {
            encryption,
            key_bits,
            integrity,
            prf: Prf::HmacSha2_256,
            key_exchanges: KeyExchangeMethods::one(Group::Curve25519),
        };
        let nonces = Nonces {
            initiator: &[3; 32],
            responder: &[4; 32],
        };
        let keys = IkeSaKeys::derive(suite, &Secret::from(vec![5; 32]), nonces, 1, 2);
        let key = SkKey::new(
            encryption,
            integrity,
            keys.export_encryption(Role::Initiator),
            keys.export_integrity(Role::Initiator),
        )
        .expect("derived keys have the suite's lengths");
        let opener = keys.opener(Role::Responder);
        Self { keys, key, opener }
    }

    /// Seals bytes that hold content, padding and pad length.
    fn seal(&self, first: PayloadType, padded: &[u8]) -> Vec<u8> {
        let usable = padded.len() - padded.len() % self.key.block_len();
        let payload_len = 4 + self.key.iv_len() + usable + self.key.icv_len();
        let mut datagram = Message {
            header: HEADER,
            payloads: Vec::new(),
        }
        .encode()
        .expect("an empty message encodes");
        let total = HEADER_LEN + payload_len;
        datagram[16] = PayloadType::SK.0;
        datagram[24..28].copy_from_slice(&u32::try_from(total).unwrap_or(0).to_be_bytes());
        datagram.extend_from_slice(&[first.0, 0]);
        datagram.extend_from_slice(&u16::try_from(payload_len).unwrap_or(0).to_be_bytes());
        let iv_at = datagram.len();
        datagram.resize(iv_at + self.key.iv_len(), 9);
        datagram.extend_from_slice(&padded[..usable]);
        self.key
            .seal(&mut datagram, iv_at)
            .expect("whole blocks seal");
        datagram
    }

    fn check_round_trip(&self, message: Message, first: PayloadType, padded: &[u8]) {
        assert_eq!(message.header, HEADER);
        let usable = padded.len() - padded.len() % self.key.block_len();
        let (&padding, content) = padded[..usable].split_last().expect("has a pad length");
        let content = &content[..content.len() - usize::from(padding)];
        assert_eq!(decode_chain(first, content), Ok(message.payloads.clone()));
        assert!(!matches!(
            message.payloads.last(),
            Some(Payload::Encrypted(_))
        ));
        let mut sealer = self.keys.sealer(Role::Initiator);
        if let Ok(again) = sealer.seal(&HEADER, &message.payloads) {
            assert_eq!(self.opener.open(&again), Ok(message));
        }
    }
}

fn sessions() -> &'static [Session] {
    static SESSIONS: OnceLock<Vec<Session>> = OnceLock::new();
    SESSIONS.get_or_init(|| {
        vec![
            Session::new(Encryption::AesGcm16, 128, None),
            Session::new(Encryption::AesGcm16, 256, None),
            Session::new(Encryption::AesCbc, 128, Some(Integrity::HmacSha2_256_128)),
            Session::new(Encryption::AesCbc, 256, Some(Integrity::HmacSha2_512_256)),
        ]
    })
}
