//! An initiator whose every message the test can change.

use std::net::SocketAddr;

use esplanade_crypto::iana::{Encryption, Group, Prf};
use esplanade_crypto::secret::Secret;
use esplanade_ike::suite::{
    IkeSaKeys, KeyExchangeMethods, KeyPair, Nonces, Opener, Role, Sealer, Suite,
};
use esplanade_ike::wire::{
    Auth, AuthMethod, ExchangeType, FragmentPlace, Header, Id, IdType, KePayload, Message, Notify,
    NotifyType, Payload, PayloadType, Proposal, ProtocolId, TrafficSelector, Transform,
    TransformType, encode_chain,
};

use super::{A, B, Side};

pub const SPI: u64 = 0x5c71_97ed;

pub struct Script {
    pub local: SocketAddr,
    pub remote: SocketAddr,
    pub spi_i: u64,
    pub spi_r: u64,
    /// The identity that it claims.
    pub id: Id,
    key_pair: KeyPair,
    pub nonce: Vec<u8>,
    pub request: Vec<u8>,
    response: Vec<u8>,
    /// Both ends have announced that AUTH covers both messages of IKE_SA_INIT.
    pub full_transcript: bool,
    /// The request announces that.
    announces_transcript: bool,
    session: Option<Session>,
    pub next_id: u32,
}

struct Session {
    sealer: Sealer,
    opener: Opener,
    keys: IkeSaKeys,
    nonce_r: Vec<u8>,
}

const SUITE: Suite = Suite {
    encryption: Encryption::AesGcm16,
    key_bits: 128,
    integrity: None,
    prf: Prf::HmacSha2_256,
    key_exchanges: KeyExchangeMethods::one(Group::Curve25519),
};

/// A message with an Encrypted payload that nobody can open.
pub fn seemingly_sealed(header: Header) -> Vec<u8> {
    let payloads = Vec::new();
    let mut message = Message { header, payloads }.encode().unwrap();
    message[16] = PayloadType::SK.0;
    message.extend([0, 0, 0, 32]);
    message.extend([0x5a; 28]);
    message[27] = 60;
    message
}

impl Script {
    pub fn new() -> Self {
        Self {
            local: format!("{A}:500").parse().unwrap(),
            remote: format!("{B}:500").parse().unwrap(),
            spi_i: SPI,
            spi_r: 0,
            id: Id::new(IdType::FQDN, b"a.example".to_vec()),
            key_pair: KeyPair::generate(Group::Curve25519).unwrap(),
            nonce: vec![0x17; 32],
            request: Vec::new(),
            response: Vec::new(),
            full_transcript: false,
            announces_transcript: false,
            session: None,
            next_id: 1,
        }
    }

    pub fn header(&self, exchange: ExchangeType, message_id: u32) -> Header {
        Header {
            initiator_spi: self.spi_i,
            responder_spi: self.spi_r,
            exchange,
            from_initiator: true,
            response: false,
            message_id,
        }
    }

    pub fn init_payloads(&self) -> Vec<Payload> {
        let transforms = SUITE.transforms();
        vec![
            Payload::Sa(vec![Proposal {
                number: 1,
                protocol: ProtocolId::IKE,
                spi: vec![],
                transforms,
            }]),
            Payload::Ke(KePayload {
                method: 31,
                data: self.key_pair.public().to_vec(),
            }),
            Payload::Nonce(self.nonce.clone()),
        ]
    }

    /// A NAT is in between, so that IKE_AUTH may come from another address.
    pub fn init_payloads_behind_nat(&self) -> Vec<Payload> {
        let mut payloads = self.init_payloads();
        payloads.extend(
            [
                NotifyType::NAT_DETECTION_SOURCE_IP,
                NotifyType::NAT_DETECTION_DESTINATION_IP,
            ]
            .map(|kind| Payload::Notify(Notify::new(kind, vec![0; 20]))),
        );
        payloads
    }

    pub fn send(&self, side: &mut Side, now: std::time::Instant, datagram: &[u8]) -> Vec<Vec<u8>> {
        let marker: &[u8] = if self.remote.port() == 4500 {
            &[0; 4]
        } else {
            &[]
        };
        let payload = [marker, datagram].concat();
        side.endpoint
            .handle_datagram(now, self.remote, self.local, &payload);
        Self::take(side)
    }

    /// The datagrams of the endpoint, without non-ESP markers.
    pub fn take(side: &mut Side) -> Vec<Vec<u8>> {
        while let Some(event) = side.endpoint.poll_event() {
            side.events.push(event);
        }
        std::iter::from_fn(|| side.endpoint.poll_transmit())
            .map(|transmit| match transmit.local.port() {
                4500 => transmit.payload[4..].to_vec(),
                _ => transmit.payload,
            })
            .collect()
    }

    /// Answers a request of the endpoint.
    pub fn answer(
        &mut self,
        side: &mut Side,
        now: std::time::Instant,
        request: &[u8],
        payloads: &[Payload],
    ) -> Vec<Vec<u8>> {
        let request = Header::decode(request).unwrap();
        let header = Header {
            response: true,
            ..self.header(request.exchange, request.message_id)
        };
        let datagram = self.seal(&header, payloads);
        self.send(side, now, &datagram)
    }

    pub fn init(
        &mut self,
        side: &mut Side,
        now: std::time::Instant,
        payloads: Vec<Payload>,
    ) -> Option<Message> {
        let request = self.init_request(payloads);
        let answer = self.send(side, now, &request).pop()?;
        Some(self.take_init(answer))
    }

    pub fn init_request(&mut self, payloads: Vec<Payload>) -> Vec<u8> {
        let header = self.header(ExchangeType::IKE_SA_INIT, 0);
        let request = Message { header, payloads };
        let announced = NotifyType::IKE_SA_INIT_FULL_TRANSCRIPT_AUTH;
        self.announces_transcript = request.notification(announced).is_some();
        self.request = request.encode().unwrap();
        self.request.clone()
    }

    /// Takes the response to IKE_SA_INIT.
    pub fn take_init(&mut self, answer: Vec<u8>) -> Message {
        let message = Message::decode(&answer).unwrap();
        let announced = NotifyType::IKE_SA_INIT_FULL_TRANSCRIPT_AUTH;
        self.full_transcript =
            self.announces_transcript && message.notification(announced).is_some();
        self.response = answer;
        let (mut public, mut nonce_r) = (None, None);
        for payload in &message.payloads {
            match payload {
                Payload::Ke(ke) => public = Some(ke.data.clone()),
                Payload::Nonce(nonce) => nonce_r = Some(nonce.clone()),
                _ => {}
            }
        }
        if let (Some(public), Some(nonce_r)) = (public, nonce_r) {
            self.spi_r = message.header.responder_spi;
            let shared = self.key_pair.agree(&public).unwrap();
            let nonces = Nonces {
                initiator: &self.nonce,
                responder: &nonce_r,
            };
            let keys = IkeSaKeys::derive(SUITE, &shared, nonces, self.spi_i, self.spi_r);
            self.session = Some(Session {
                sealer: keys.sealer(Role::Initiator),
                opener: keys.opener(Role::Initiator),
                keys,
                nonce_r,
            });
        }
        message
    }

    pub fn child_payloads() -> Vec<Payload> {
        let transforms = vec![
            Transform::with_key_bits(TransformType::ENCRYPTION, 20, 128),
            Transform::new(TransformType::SEQUENCE_NUMBERS, 0),
        ];
        let net = |from: &str, to: &str| {
            vec![TrafficSelector::addresses(
                from.parse().unwrap(),
                to.parse().unwrap(),
            )]
        };
        vec![
            Payload::Sa(vec![Proposal {
                number: 1,
                protocol: ProtocolId::ESP,
                spi: vec![0, 0, 0x44, 0x44],
                transforms,
            }]),
            Payload::TsI(net("10.1.0.0", "10.1.255.255")),
            Payload::TsR(net("10.2.0.0", "10.2.255.255")),
        ]
    }

    /// A request for another child SA.
    pub fn create_child_payloads() -> Vec<Payload> {
        let mut payloads = Self::child_payloads();
        payloads.push(Payload::Nonce(vec![9; 32]));
        payloads
    }

    /// A request to rekey the child SA of [`Script::child_payloads`].
    pub fn rekey_child_payloads() -> Vec<Payload> {
        let old = Notify::about_child(NotifyType::REKEY_SA, ProtocolId::ESP, 0x4444);
        let mut payloads = Self::create_child_payloads();
        if let Payload::Sa(proposals) = &mut payloads[0] {
            proposals[0].spi = vec![0, 0, 0x44, 0x45];
        }
        payloads.insert(0, Payload::Notify(old));
        payloads
    }

    /// A request to rekey the IKE SA, with this SPI for the new one.
    pub fn rekey_payloads(&self, spi: u64) -> Vec<Payload> {
        let mut payloads = self.init_payloads();
        if let Payload::Sa(proposals) = &mut payloads[0] {
            proposals[0].spi = spi.to_be_bytes().to_vec();
        }
        payloads
    }

    pub fn rekey_ike_payloads(&self) -> Vec<Payload> {
        self.rekey_payloads(self.spi_i + 1)
    }

    pub fn auth_payloads(&self, psk: &[u8]) -> Vec<Payload> {
        let id = self.id.clone();
        let auth = self.psk_auth(Role::Initiator, &id, psk);
        let mut payloads = vec![Payload::IdI(id), Payload::Auth(auth)];
        payloads.extend(Self::child_payloads());
        payloads
    }

    /// The AUTH payload of the end with the role `signer`, whose identity is `id`.
    pub fn psk_auth(&self, signer: Role, id: &Id, psk: &[u8]) -> Auth {
        let octets = self.signed_octets(signer, id);
        let keys = &self.session.as_ref().unwrap().keys;
        let data = keys.psk_auth(&Secret::from(psk), &octets);
        Auth {
            method: AuthMethod::SHARED_KEY,
            data: data.expose().to_vec(),
        }
    }

    /// The octets that AUTH of that end covers.
    pub fn signed_octets(&self, signer: Role, id: &Id) -> Vec<u8> {
        let session = self.session.as_ref().unwrap();
        let (others, own, nonce) = match signer {
            Role::Initiator => (&self.response, &self.request, &session.nonce_r),
            Role::Responder => (&self.request, &self.response, &self.nonce),
        };
        let message = match self.full_transcript {
            true => [&[0; 8], &others[..], own].concat(),
            false => own.clone(),
        };
        session.keys.signed_octets(signer, &message, nonce, id)
    }

    pub fn seal(&mut self, header: &Header, payloads: &[Payload]) -> Vec<u8> {
        self.session
            .as_mut()
            .unwrap()
            .sealer
            .seal(header, payloads)
            .unwrap()
    }

    pub fn open(&self, datagram: &[u8]) -> Message {
        self.session
            .as_ref()
            .unwrap()
            .opener
            .open(datagram)
            .unwrap()
    }

    /// Seals one fragment of a message whose first payload has the type `first`.
    pub fn seal_fragment(
        &mut self,
        header: &Header,
        first: PayloadType,
        (number, total): (u16, u16),
        content: &[u8],
    ) -> Vec<u8> {
        let first = if number == 1 {
            first
        } else {
            PayloadType::NONE
        };
        let sealer = &mut self.session.as_mut().unwrap().sealer;
        let place = FragmentPlace { number, total };
        sealer.seal_fragment(header, first, place, content).unwrap()
    }

    /// Seals a message in fragments with `room` bytes of content each.
    pub fn seal_fragments(
        &mut self,
        header: &Header,
        payloads: &[Payload],
        room: usize,
    ) -> Vec<Vec<u8>> {
        let mut content = Vec::new();
        let first = encode_chain(payloads, &mut content).unwrap();
        let total = u16::try_from(content.chunks(room).len()).unwrap();
        let numbered = (1..).zip(content.chunks(room));
        numbered
            .map(|(number, part)| self.seal_fragment(header, first, (number, total), part))
            .collect()
    }

    /// Makes one protected exchange with the next message ID.
    pub fn exchange(
        &mut self,
        side: &mut Side,
        now: std::time::Instant,
        exchange: ExchangeType,
        payloads: &[Payload],
    ) -> Option<Message> {
        let header = self.header(exchange, self.next_id);
        let datagram = self.seal(&header, payloads);
        let mut sent = self.send(side, now, &datagram);
        // The endpoint can have messages for others.
        sent.retain(|datagram| Header::decode(datagram).unwrap().initiator_spi == self.spi_i);
        let answer = sent.pop()?;
        self.next_id += 1;
        Some(self.open(&answer))
    }

    /// Rekeys the IKE SA, and sends nothing more on the old one.
    pub fn rekey_ike(&mut self, side: &mut Side, now: std::time::Instant) {
        let payloads = self.rekey_ike_payloads();
        let spi = self.spi_i + 1;
        let answer = self
            .exchange(side, now, ExchangeType::CREATE_CHILD_SA, &payloads)
            .unwrap();
        let [Payload::Sa(chosen), Payload::Nonce(nonce), Payload::Ke(ke)] = &answer.payloads[..]
        else {
            panic!("{answer:?}")
        };
        let shared = self.key_pair.agree(&ke.data).unwrap();
        let nonces = Nonces {
            initiator: &self.nonce,
            responder: nonce,
        };
        let spi_r = chosen[0].spi_u64().unwrap();
        let session = self.session.as_mut().unwrap();
        let keys = session.keys.rekey(SUITE, &shared, nonces, spi, spi_r);
        session.sealer = keys.sealer(Role::Initiator);
        session.opener = keys.opener(Role::Initiator);
        session.keys = keys;
        (self.spi_i, self.spi_r, self.next_id) = (spi, spi_r, 0);
    }

    /// An established IKE SA with one child.
    pub fn established(side: &mut Side, now: std::time::Instant) -> Self {
        let mut script = Self::new();
        let payloads = script.init_payloads();
        script.init(side, now, payloads).unwrap();
        let payloads = script.auth_payloads(b"a shared secret");
        let answer = script
            .exchange(side, now, ExchangeType::IKE_AUTH, &payloads)
            .unwrap();
        assert!(answer.payloads.iter().any(|p| matches!(p, Payload::TsR(_))));
        script
    }
}

pub fn error_of(message: &Message) -> Option<NotifyType> {
    message
        .notifications()
        .map(|notify| notify.kind)
        .find(|kind| kind.is_error())
}
