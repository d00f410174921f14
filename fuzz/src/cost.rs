//! Fuzzes the work that a message of a peer costs, or an answer of a server. It must grow with the length alone.

mod shapes;

use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant, SystemTime};

use esplanade_ike::auth::{CertificateRules, Credential, Identity};
use esplanade_ike::config::{RemoteAuth, RemoteMethod};
use esplanade_ike::wire::{
    Cert, CertEncoding, ExchangeType, Message, Notify, NotifyType, Payload, PayloadType,
    decode_chain, encode_chain,
};
use esplanade_pki::{Authorities, Crl, OcspAnswer, RevocationPolicy, RevocationStore};

use crate::auth::{AUTHORITY, NOW, World, issue, issuer};
use crate::endpoint::common::script::Script;
use crate::endpoint::common::{Side, b_with};
use crate::{attributes, revocation, steps};

pub use shapes::{SHAPES, Shape};

/// The steps that any input may take, and further ones for each of its bytes. The first are for what a message does
/// besides: keys, a response, the certificates of this module.
const STEPS_FIXED: u64 = 400_000;
const STEPS_PER_BYTE: u64 = 1_000;

/// The content of one message that is sealed, which has to fit one UDP datagram.
const CONTENT_LEN_MAX: usize = 62_000;
/// The content of a fragment.
const FRAGMENT_LEN: usize = 100;

/// Where an input comes in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Door {
    /// The payloads of IKE_SA_INIT. All payloads are behind the type of the first one.
    Init,
    /// The payloads of IKE_AUTH, from a stranger.
    Auth,
    /// The same in fragments.
    Fragments,
    /// The payloads of CREATE_CHILD_SA, from a peer.
    CreateChild,
    /// The payloads of INFORMATIONAL, from a peer.
    Informational,
    /// A CRL in DER or PEM.
    Crl,
    /// An OCSPResponse.
    Ocsp,
    /// An attribute certificate.
    Attributes,
    /// The extensions of a peer's certificate, which an authority has signed.
    Issued,
    /// The extensions of an authority's certificate above a peer's.
    Authority,
}

const DOORS: [Door; 10] = [
    Door::Init,
    Door::Auth,
    Door::Fragments,
    Door::CreateChild,
    Door::Informational,
    Door::Crl,
    Door::Ocsp,
    Door::Attributes,
    Door::Issued,
    Door::Authority,
];

/// Byte 0 chooses where the rest comes in. Without steps to count the input must only be survived.
pub fn cost(data: &[u8]) {
    let Some((&door, input)) = data.split_first() else {
        return;
    };
    let door = DOORS[usize::from(door) % DOORS.len()];
    let (steps, allowed) = (steps_of(door, input), steps_allowed(input.len()));
    assert!(steps <= allowed, "{steps} steps for {} bytes", input.len());
}

/// The steps that an input of this length may take.
pub fn steps_allowed(len: usize) -> u64 {
    STEPS_FIXED + STEPS_PER_BYTE * len as u64
}

/// An input of [`cost`] that comes in there.
pub fn input(door: Door, content: &[u8]) -> Vec<u8> {
    let place = DOORS.iter().position(|one| *one == door);
    let place = place.and_then(|place| u8::try_from(place).ok());
    [&[place.expect("one of few")], content].concat()
}

/// Returns the steps that an input takes.
pub fn steps_of(door: Door, input: &[u8]) -> u64 {
    match door {
        Door::Init | Door::Auth | Door::Fragments | Door::CreateChild | Door::Informational => {
            steps_of_message(door, input)
        }
        Door::Crl => {
            let world = revocation::World::get();
            steps::count(|| {
                let crls = Crl::from_file_content(input).unwrap_or_default();
                let crls = crls.into_iter().map(Arc::new).collect();
                world.verify(&RevocationStore::new(crls), &[])
            })
        }
        Door::Ocsp => {
            let world = revocation::World::get();
            let sent = Cert {
                encoding: CertEncoding::OCSP,
                data: input.to_vec(),
            };
            steps::count(|| {
                let mut store = RevocationStore::default();
                if let Ok(answer) = OcspAnswer::from_der(input) {
                    store.add_answer(Arc::new(answer));
                }
                world.verify(&store, &[sent])
            })
        }
        Door::Attributes => {
            let world = attributes::World::get();
            let sent = [input.to_vec()];
            steps::count(|| world.prove(&sent, RevocationPolicy::Relaxed))
        }
        Door::Issued => steps_of_path(&[issued(AUTHORITY, "CN=peer", input)]),
        Door::Authority => {
            let extensions = [shapes::authority(), input.to_vec()].concat();
            let above = issued(AUTHORITY, "CN=above", &extensions);
            steps_of_path(&[issued("CN=above", "CN=peer", &shapes::names(2000)), above])
        }
    }
}

fn issued(by: &str, subject: &str, extensions: &[u8]) -> Cert {
    static ISSUER: LazyLock<Credential> = LazyLock::new(issuer);
    Cert {
        encoding: CertEncoding::X509_SIGNATURE,
        data: issue(&ISSUER, by, subject, extensions),
    }
}

fn steps_of_path(certificates: &[Cert]) -> u64 {
    static PEER: LazyLock<Identity> = LazyLock::new(|| "CN=peer".parse().expect("an identity"));
    let world = World::get();
    steps::count(|| world.verify(certificates, &PEER))
}

/// An endpoint that takes pre-shared keys of one peer, and certificates of all.
fn side() -> (Side, Instant) {
    let authorities: Arc<Authorities> = Arc::new(World::get().authorities.clone());
    let (mut side, now) = b_with(|config| {
        let mut second = (*config.connections[0]).clone();
        second.name = "certificates".to_owned();
        second.remote = RemoteAuth {
            id: Identity::Any,
            method: RemoteMethod::Certificate {
                authorities,
                pinned: Vec::new(),
                rules: Arc::new(CertificateRules::default()),
                revocation: RevocationPolicy::Relaxed,
            },
        };
        config.connections.push(Arc::new(second));
        // As many fragments as the content can have.
        config.limits.fragments_max = u16::MAX;
        config.limits.half_open_fragmented_len_max = CONTENT_LEN_MAX;
    });
    let wall_clock = SystemTime::UNIX_EPOCH + Duration::from_secs(NOW.as_secs());
    side.endpoint.set_wall_clock(now, wall_clock);
    (side, now)
}

fn steps_of_message(door: Door, input: &[u8]) -> u64 {
    let Some((&first, chain)) = input.split_first() else {
        return 0;
    };
    if chain.len() > CONTENT_LEN_MAX {
        return 0;
    }
    let (mut side, now) = side();
    if door == Door::Init {
        let script = Script::new();
        let datagram = init_request(&script, first, chain);
        return steps::count(|| script.send(&mut side, now, &datagram));
    }
    let Some(payloads) = sealable(first, chain) else {
        return steps::count(|| decode_chain(PayloadType(first), chain).is_ok());
    };
    let (mut script, exchange) = match door {
        Door::CreateChild => (
            Script::established(&mut side, now),
            ExchangeType::CREATE_CHILD_SA,
        ),
        Door::Informational => (
            Script::established(&mut side, now),
            ExchangeType::INFORMATIONAL,
        ),
        _ => {
            let mut script = Script::new();
            let mut init = script.init_payloads();
            let announced = NotifyType::IKEV2_FRAGMENTATION_SUPPORTED;
            init.push(Payload::Notify(Notify::new(announced, Vec::new())));
            script.init(&mut side, now, init).expect("an answer");
            (script, ExchangeType::IKE_AUTH)
        }
    };
    let header = script.header(exchange, script.next_id);
    let datagrams = match door {
        Door::Fragments => script.seal_fragments(&header, &payloads, FRAGMENT_LEN),
        _ => vec![script.seal(&header, &payloads)],
    };
    steps::count(|| {
        for datagram in &datagrams {
            script.send(&mut side, now, datagram);
        }
    })
}

/// The payloads, if a message can have them.
fn sealable(first: u8, chain: &[u8]) -> Option<Vec<Payload>> {
    let payloads = decode_chain(PayloadType(first), chain).ok()?;
    let mut content = Vec::new();
    encode_chain(&payloads, &mut content).ok()?;
    (!payloads.is_empty() && content.len() <= CONTENT_LEN_MAX).then_some(payloads)
}

fn init_request(script: &Script, first: u8, chain: &[u8]) -> Vec<u8> {
    let empty = Message {
        header: script.header(ExchangeType::IKE_SA_INIT, 0),
        payloads: Vec::new(),
    };
    let mut datagram = empty.encode().expect("an empty message encodes");
    datagram[16] = first;
    datagram.extend_from_slice(chain);
    let len = u32::try_from(datagram.len()).expect("a datagram");
    datagram[24..28].copy_from_slice(&len.to_be_bytes());
    datagram
}
