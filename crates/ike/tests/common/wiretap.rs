//! Reads what the two ends of a pair send, with the keys that they log, and learns shared secrets.

use std::sync::{Arc, Mutex};

use esplanade_crypto::iana::Group;
use esplanade_crypto::sk::SkKey;
use esplanade_ike::suite::{
    ActiveKeyExchange, DhError, DiffieHellman, KeyExchange, KeyExchangeAnswer, Secret,
};
use esplanade_ike::wire::{HEADER_LEN, Header, Message, PayloadType, decode_chain};
use esplanade_ike::{Config, Event, KeyLog};
use esplanade_testkit::net::Conditions;

use super::{Connection, Pair, Side, config, default_configs};

/// Bytes of a payload before its content.
const PAYLOAD_HEADER_LEN: usize = 4;

/// A key exchange that an attacker has broken: the shared secrets of the responder leak.
pub struct Broken(pub Arc<Mutex<Option<Secret>>>);

impl KeyExchange for Broken {
    fn start(&self, method: Group) -> Result<Arc<dyn ActiveKeyExchange>, DhError> {
        DiffieHellman.start(method)
    }

    fn check(&self, method: Group, initiator: &[u8]) -> Result<(), DhError> {
        DiffieHellman.check(method, initiator)
    }

    fn answer(&self, method: Group, initiator: &[u8]) -> Result<KeyExchangeAnswer, DhError> {
        let answer = DiffieHellman.answer(method, initiator)?;
        *self.0.lock().unwrap() = Some(answer.shared.clone());
        Ok(answer)
    }
}

/// A message that somebody has sent. Inside an Encrypted payload are the payloads that count.
pub struct Overheard {
    pub message: Message,
    pub first: PayloadType,
    /// The payloads as they are encoded.
    pub chain: Vec<u8>,
}

/// The default pair, as the caller changes it. Both ends log their keys.
pub fn tapped(change: impl FnOnce(&mut Connection, &mut Connection)) -> Pair {
    let (mut a, mut b) = default_configs();
    change(&mut a, &mut b);
    let logging = |connection| Config {
        key_log: true,
        ..config(connection)
    };
    Pair::new(logging(a), logging(b), Conditions::PERFECT, 1)
}

/// The messages of one end in their order. None of them may be in fragments.
pub fn sent_by(pair: &Pair, side: &Side) -> Vec<Overheard> {
    let events = pair.a.events.iter().chain(&pair.b.events);
    let logged = events.filter_map(|event| match event {
        Event::KeyLog(log) => Some(log),
        _ => None,
    });
    let logs: Vec<_> = logged.collect();
    let read = |sent: &esplanade_ike::Transmit| match sent.local.port() {
        4500 => open(&logs, &sent.payload[4..]),
        _ => open(&logs, &sent.payload),
    };
    side.sent.iter().map(read).collect()
}

fn open(logs: &[&KeyLog], datagram: &[u8]) -> Overheard {
    let header = Header::decode(datagram).unwrap();
    let (outer, rest) = (PayloadType(datagram[16]), &datagram[HEADER_LEN..]);
    let (first, chain) = match outer {
        PayloadType::SK => (PayloadType(rest[0]), decrypted(logs, &header, datagram)),
        PayloadType::SKF => panic!("a fragment"),
        _ => (outer, rest.to_vec()),
    };
    let payloads = decode_chain(first, &chain).unwrap();
    Overheard {
        message: Message { header, payloads },
        first,
        chain,
    }
}

fn decrypted(logs: &[&KeyLog], header: &Header, datagram: &[u8]) -> Vec<u8> {
    let spis = (header.initiator_spi, header.responder_spi);
    let log = logs.iter().find(|log| (log.spi_i, log.spi_r) == spis);
    let log = log.expect("the keys of every IKE SA");
    let (e, a) = match header.from_initiator {
        true => (&log.sk_ei, &log.sk_ai),
        false => (&log.sk_er, &log.sk_ar),
    };
    let (suite, mut message) = (log.suite, datagram.to_vec());
    let key = SkKey::new(suite.encryption, suite.integrity, e.expose(), a.expose()).unwrap();
    let range = key.open(&mut message, HEADER_LEN + PAYLOAD_HEADER_LEN);
    let padded = &message[range.unwrap()];
    let (padding, content) = padded.split_last().unwrap();
    content[..content.len() - usize::from(*padding)].to_vec()
}
