//! The configurations of both ends. Each knob of the input changes one thing of one end or of both.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use esplanade_crypto::iana::{Encryption, Group, Integrity, Prf, SequenceNumbers};
use esplanade_crypto::secret::Secret as SecretBytes;
use esplanade_ike::Config;
use esplanade_ike::config::{
    AddressMatch, CertificateRules, Child, Childless, Connection, EndAction, EspProposal,
    Fragmentation, HostName, Identity, IkeProposal, Lifetime, Limits, LocalMethod, Mode, OcspInIke,
    PeerEntry, RemoteMethod, Retransmission, Secret, Selector, SendCert, StartAction, Unique,
};
use esplanade_pki::{KeyPurposes, RevocationPolicy};
use esplanade_testkit::net::Conditions;

use super::material::{Material, Proof, SlowKey};
use crate::endpoint::common::{A, B, NET_A, NET_B, child, config, default_configs, subnet};

/// The knobs of an input, by their number.
pub mod knob {
    pub const END: u8 = 0;
    pub const PROOF: u8 = 1;
    pub const REVOCATION: u8 = 2;
    pub const RULES: u8 = 3;
    pub const CERTS: u8 = 4;
    pub const IKE_SUITE: u8 = 5;
    pub const ESP_SUITE: u8 = 6;
    pub const CHILD: u8 = 7;
    pub const SELECTORS: u8 = 8;
    pub const CHILD_LIFE: u8 = 9;
    pub const IKE_LIFE: u8 = 10;
    pub const LIVENESS: u8 = 11;
    pub const CHOICES: u8 = 12;
    pub const ACTIONS: u8 = 13;
    pub const LIMIT: u8 = 14;
    pub const TRANSPORT: u8 = 15;
    pub const ADDRESSES: u8 = 16;
    pub const PEERS: u8 = 17;
    pub const CONNECTION: u8 = 18;
    pub const SECRETS: u8 = 19;
    pub const FLAGS: u8 = 20;
    pub const HOST: u8 = 21;
    pub const IDENTITY: u8 = 22;
    pub const TRIES: u8 = 23;
    pub const NETWORK: u8 = 24;
    pub const CLOCK: u8 = 25;
    pub const CHILDREN: u8 = 26;
    pub const KNOBS: u8 = 27;
    /// Added to a knob: it is for A alone, or for B alone.
    pub const OF_A: u8 = 64;
    pub const OF_B: u8 = 128;
}

/// Most connections of an end, and children of a connection.
const CONNECTIONS_MAX: usize = 4;
const CHILDREN_MAX: usize = 40;

#[derive(Clone)]
pub struct Setup {
    /// The configurations of A and of B.
    pub ends: [Config; 2],
    pub conditions: Conditions,
    /// Seconds before or after the time at which the certificates are valid.
    pub clock: i64,
    /// The key exchanges are real ones.
    pub real_exchanges: bool,
    /// The jobs of each end run later.
    pub late_jobs: [bool; 2],
    /// The number of policies for which an end has room.
    pub room: [u8; 2],
    pub key: Arc<SlowKey>,
}

impl Default for Setup {
    fn default() -> Self {
        let (a, b) = default_configs();
        let logging = |connection| Config {
            key_log: true,
            trace_messages: true,
            limits: Limits {
                ike_sas_max: 24,
                half_open_max: 12,
                children_per_sa_max: 48,
                queued_tasks_max: 16,
                ..Limits::default()
            },
            ..config(connection)
        };
        Self {
            ends: [logging(a), logging(b)],
            conditions: Conditions::PERFECT,
            clock: 0,
            real_exchanges: false,
            late_jobs: [false; 2],
            room: [u8::MAX; 2],
            key: SlowKey::new(),
        }
    }
}

impl Setup {
    /// Turns a knob. The high bits say which end it is for.
    pub fn turn(&mut self, knob: u8, value: u8) {
        for (end, bit) in [(0, knob::OF_A), (1, knob::OF_B)] {
            if knob & (knob::OF_A | knob::OF_B) == 0 || knob & bit != 0 {
                self.turn_of(end, knob & 63, value);
            }
        }
    }

    fn turn_of(&mut self, end: usize, knob: u8, value: u8) {
        match knob % knob::KNOBS {
            knob::PROOF => self.prove(end, value),
            knob::REVOCATION => self.judge(end, value),
            knob::LIMIT => limit(&mut self.ends[end].limits, value),
            knob::CONNECTION => self.add_connection(end, value),
            knob::SECRETS => self.secrets(end, value),
            knob::FLAGS => flags(&mut self.ends[end], value),
            knob::HOST => {
                self.late_jobs[end] = value & 1 != 0;
                self.real_exchanges |= value & 2 != 0;
                self.room[end] = if value & 4 == 0 {
                    u8::MAX
                } else {
                    value >> 3 & 7
                };
                let attributes = &Material::get().attributes;
                self.ends[end].attributes =
                    attributes[usize::from(value >> 6) % attributes.len()].clone();
            }
            knob::NETWORK => self.conditions = conditions_of(value),
            knob::CLOCK => self.clock = (i64::from(value) - 128) * 86_400 * 8,
            knob => {
                let Some(connection) = self.ends[end].connections.last_mut() else {
                    return;
                };
                change(Arc::make_mut(connection), end == 0, knob, value);
                if knob == knob::TRANSPORT {
                    self.ends[end].fragment_size = [1280, 576, 200, 0][usize::from(value & 3)];
                }
            }
        }
    }

    /// This end proves itself so, and the other demands that.
    fn prove(&mut self, end: usize, value: u8) {
        let proofs = &Material::get().proofs;
        let proof = match usize::from(value) % (proofs.len() + 2) {
            0 => Proof {
                local: LocalMethod::Psk,
                remote: RemoteMethod::Psk,
                id: ["a.example", "b.example"][end],
            },
            1 => self.key.proof(),
            at => proofs[at - 2].clone(),
        };
        let id: Identity = proof.id.parse().expect("an identity");
        if let Some(own) = self.ends[end].connections.last_mut() {
            let own = Arc::make_mut(own);
            (own.local.id, own.local.method) = (id.clone(), proof.local);
        }
        if let Some(other) = self.ends[1 - end].connections.last_mut() {
            let other = Arc::make_mut(other);
            other.remote.method = proof.remote;
            other.remote.id = match value & 0x80 == 0 {
                true => id,
                false => "*.example.org".parse().expect("a pattern"),
            };
        }
    }

    /// What this end has to judge the other's certificates by.
    fn judge(&mut self, end: usize, value: u8) {
        let stores = &Material::get().stores;
        let config = &mut self.ends[end];
        config.revocation = stores[usize::from(value >> 2) % stores.len()].clone();
        for connection in &mut config.connections {
            if let RemoteMethod::Certificate { revocation, .. } =
                &mut Arc::make_mut(connection).remote.method
            {
                *revocation = [
                    RevocationPolicy::Relaxed,
                    RevocationPolicy::IfUri,
                    RevocationPolicy::Strict,
                    RevocationPolicy::Strict,
                ][usize::from(value & 3)];
            }
        }
    }

    fn add_connection(&mut self, end: usize, value: u8) {
        let connections = &mut self.ends[end].connections;
        if connections.len() >= CONNECTIONS_MAX {
            return;
        }
        let Some(last) = connections.last() else {
            return;
        };
        let mut other = (**last).clone();
        other.name = format!("other-{}", connections.len());
        other.remote.id = identity(value);
        match value >> 4 {
            0 => {}
            1 => other.remote.method = RemoteMethod::Psk,
            2 => other.remote_addrs = vec![AddressMatch::Any],
            3 => other.proposals = vec![ike_proposal(value)],
            4 => other.children.clear(),
            5 => (other.local.id, other.local.method) = (identity(value), LocalMethod::Psk),
            _ => {
                if let RemoteMethod::Certificate { rules, .. } = &mut other.remote.method {
                    let groups = ["Sales", "Board", "2.5.4.3"].map(|group| group.parse().ok());
                    Arc::make_mut(rules).groups = groups.into_iter().flatten().collect();
                }
            }
        }
        // The last one is the one that later knobs change, and the first that names a peer is taken.
        match value & 8 {
            0 => connections.insert(0, Arc::new(other)),
            _ => connections.push(Arc::new(other)),
        }
    }

    fn secrets(&mut self, end: usize, value: u8) {
        let key = |text: &[u8]| Arc::new(SecretBytes::from(text));
        let secrets = &mut self.ends[end].secrets;
        let owners = match value & 3 {
            0 => vec![],
            1 => vec![identity(value >> 4)],
            2 => vec![identity(1), identity(2)],
            _ => vec![Identity::Any],
        };
        let text: &[u8] = match value & 4 {
            0 => b"a shared secret",
            _ => b"another secret",
        };
        match value & 8 {
            0 => secrets.clear(),
            _ => secrets.truncate(8),
        }
        secrets.push(Secret {
            owners,
            key: key(text),
        });
    }
}

pub fn conditions_of(value: u8) -> Conditions {
    let part = |shift: u8| f64::from(value >> shift & 3) / 12.0;
    let latest = [10, 30, 400, 3000][usize::from(value >> 6)];
    Conditions {
        loss: part(0),
        duplication: part(2),
        corruption: part(4),
        delay: Duration::from_millis(10)..Duration::from_millis(latest),
    }
}

fn limit(limits: &mut Limits, value: u8) {
    let most = usize::from(value >> 4);
    match value & 15 {
        0 => limits.cookie_threshold = most,
        1 => limits.half_open_max = most,
        2 => limits.half_open_per_source_max = most,
        3 => limits.half_open_per_network_max = most,
        4 => limits.half_open_timeout = Duration::from_secs(most as u64),
        5 => limits.half_open_bytes_max = most << 8,
        6 => limits.ike_sas_max = most,
        7 => limits.ike_sas_per_peer_max = most,
        8 => limits.children_per_sa_max = most,
        9 => limits.children_per_peer_max = most,
        10 => limits.selectors_per_peer_max = most,
        11 => limits.child_requests_per_second = u32::from(value >> 4),
        12 => limits.queued_tasks_max = most,
        13 => limits.fragments_max = u16::from(value >> 4),
        14 => limits.fragmented_len_max = most << 8,
        _ => limits.half_open_fragmented_len_max = most << 8,
    }
}

fn flags(config: &mut Config, value: u8) {
    let has = |bit: u8| value & (1 << bit) != 0;
    config.full_transcript_auth = !has(0);
    config.quick_crash_detection = !has(1);
    config.token_secret = has(2).then(|| Arc::new(SecretBytes::from(&[7_u8; 32][..])));
    config.inactivity_close_ike = has(3);
    config.nat_keepalive = Duration::from_secs(if has(4) { 0 } else { 20 });
    config.trace_messages = !has(5);
    if has(6) {
        config.uri_bases.clone_from(&Material::get().uri_bases);
    }
    if has(7) {
        config.ports.ike = 600;
    }
}

pub fn identity(value: u8) -> Identity {
    let text = [
        "*.example.org",
        "a.example",
        "b.example",
        "moon.example.org",
        "192.0.2.1",
        "198.51.100.1",
        "moon@example.org",
        "C=CH, O=Example, CN=moon",
        "2001:db8::1",
        "keyid:0102",
        "*@example.org",
        "sun.example.org",
        "%any",
        "192.0.2.0/24",
        "O=Example, CN=*",
        "leaf",
    ][usize::from(value & 15)];
    text.parse().unwrap_or(Identity::Any)
}

fn ike_proposal(value: u8) -> IkeProposal {
    let aeads: [(Encryption, u16); 4] = [
        (Encryption::AesGcm16, 128),
        (Encryption::AesGcm12, 256),
        (Encryption::ChaCha20Poly1305, 0),
        (Encryption::AesCcm8, 128),
    ];
    let (encryption, integrity) = match value & 7 {
        at @ 0..=3 => (vec![aeads[usize::from(at)]], vec![]),
        4 => (
            vec![(Encryption::AesCbc, 128), (Encryption::AesCbc, 256)],
            vec![Integrity::HmacSha2_256_128, Integrity::HmacSha1_96],
        ),
        5 => (
            vec![(Encryption::TripleDes, 0)],
            vec![Integrity::HmacSha2_512_256],
        ),
        6 => (
            vec![(Encryption::AesCtr, 192)],
            vec![Integrity::AesCmac96, Integrity::AesXcbc96],
        ),
        _ => (aeads.into(), vec![]),
    };
    let prf = match value >> 3 & 3 {
        0 => vec![Prf::HmacSha2_256],
        1 => vec![Prf::HmacSha1, Prf::Aes128Xcbc],
        2 => vec![Prf::Aes128Cmac],
        _ => Prf::ALL.to_vec(),
    };
    let groups = match value >> 5 {
        0 => vec![Group::Curve25519],
        1 => vec![Group::Ecp256, Group::Curve25519],
        2 => vec![Group::Modp2048],
        3 => vec![Group::Ecp521],
        4 => vec![Group::Modp1024],
        5 => vec![Group::Ecp384, Group::Modp3072],
        6 => vec![Group::Curve25519, Group::Ecp256],
        _ => Group::ALL.to_vec(),
    };
    IkeProposal {
        encryption,
        integrity,
        prf,
        groups,
    }
}

fn esp_proposal(value: u8) -> EspProposal {
    let (encryption, integrity) = match value & 15 {
        0 => (vec![(Encryption::AesGcm16, 128)], vec![]),
        1 => (vec![(Encryption::AesGcm16, 256)], vec![]),
        2 => (vec![(Encryption::ChaCha20Poly1305, 0)], vec![]),
        3 => (
            vec![(Encryption::AesCbc, 128)],
            vec![Integrity::HmacSha2_256_128],
        ),
        4 => (vec![(Encryption::Null, 0)], vec![Integrity::HmacSha1_96]),
        5 => (vec![], vec![Integrity::HmacSha2_256_128]),
        6 => (vec![], vec![Integrity::Aes128Gmac]),
        7 => (vec![(Encryption::NullAuthAesGmac, 128)], vec![]),
        8 => (vec![(Encryption::AesCtr, 256)], vec![Integrity::AesCmac96]),
        9 => (vec![(Encryption::AesCcm12, 192)], vec![]),
        10 => (
            vec![(Encryption::TripleDes, 0)],
            vec![Integrity::HmacMd5_96],
        ),
        11 => (vec![(Encryption::AesGcm16Iiv, 128)], vec![]),
        _ => (
            vec![
                (Encryption::AesGcm16, 256),
                (Encryption::AesGcm16, 128),
                (Encryption::ChaCha20Poly1305, 0),
            ],
            vec![],
        ),
    };
    EspProposal {
        encryption,
        integrity,
        groups: match value >> 4 & 3 {
            0 => vec![],
            1 => vec![Group::Curve25519],
            2 => vec![Group::Ecp256, Group::Curve25519],
            _ => vec![Group::Modp2048],
        },
        sequence_numbers: match value >> 6 {
            0 => vec![SequenceNumbers::Bits32],
            1 => vec![SequenceNumbers::Bits64],
            2 => vec![SequenceNumbers::Bits64, SequenceNumbers::Bits32],
            _ => vec![SequenceNumbers::Bits32, SequenceNumbers::Bits64],
        },
    }
}

/// Changes one thing of a connection. `is_a` says whose it is.
fn change(connection: &mut Connection, is_a: bool, knob: u8, value: u8) {
    let has = |bit: u8| value & (1 << bit) != 0;
    match knob {
        knob::RULES => rules(connection, value),
        knob::CERTS => {
            connection.send_certreq = !has(0);
            connection.send_cert =
                [SendCert::IfAsked, SendCert::Always, SendCert::Never][usize::from(value >> 1) % 3];
            connection.ocsp = OcspInIke {
                request: has(3),
                reply: !has(4),
            };
            connection.legacy = has(5);
        }
        knob::IKE_SUITE => {
            let first = ike_proposal(value);
            connection.proposals = vec![first, ike_proposal(0)];
            connection.proposals.dedup();
        }
        knob::IKE_LIFE => {
            let time = Duration::from_secs(u64::from(value >> 4) * 20);
            match value & 3 {
                0 => connection.rekey_time = time,
                1 => connection.reauth_time = time,
                2 => connection.over_time = time,
                _ => connection.rand_time = time,
            }
        }
        knob::LIVENESS => {
            connection.dpd_delay = Duration::from_secs(u64::from(value & 7) * 5);
            connection.dpd_by_traffic = has(3);
            connection.dpd_timeout = Duration::from_secs(u64::from(value >> 4) * 10);
        }
        knob::CHOICES => choices(connection, value),
        knob::TRANSPORT => {
            connection.encap = has(2);
            connection.dscp = if has(3) { 46 } else { 0 };
            connection.local_port =
                [None, Some(500), Some(4500), None][usize::from(value >> 4 & 3)];
            connection.remote_port = if has(6) { 4500 } else { 500 };
        }
        knob::ADDRESSES => addresses(connection, is_a, value),
        knob::PEERS => connection.peers.push(PeerEntry {
            id: identity(value),
            remote_ts: selectors(!is_a, value >> 4),
        }),
        knob::IDENTITY => match value & 16 {
            0 => connection.local.id = identity(value),
            _ => connection.remote.id = identity(value),
        },
        knob::TRIES => {
            connection.keyingtries = u32::from(value & 3);
            connection.retransmission = Retransmission {
                tries: u32::from(value >> 2 & 3) + 1,
                timeout: Duration::from_secs(u64::from(value >> 4 & 3) + 1),
                base: [1.0, 1.8, 2.0, 0.5][usize::from(value >> 6)],
            };
        }
        knob::CHILDREN => {
            let many = connection.children.len() + usize::from(value & 15);
            for at in connection.children.len()..many.min(CHILDREN_MAX) {
                let mut another = match connection.children.last() {
                    Some(last) if has(4) => (**last).clone(),
                    _ => child("", NET_A, NET_B),
                };
                another.name = format!("net-{at}");
                let net = |side| subnet(&format!("10.{side}.{at}.0-10.{side}.{at}.255"));
                let (own, peers) = if is_a { (1, 2) } else { (2, 1) };
                if !has(5) {
                    (another.local_ts, another.remote_ts) = (vec![net(own)], vec![net(peers)]);
                }
                connection.children.push(Arc::new(another));
            }
        }
        knob => {
            for child in &mut connection.children {
                change_child(Arc::make_mut(child), is_a, knob, value);
            }
        }
    }
}

fn rules(connection: &mut Connection, value: u8) {
    let schemes = [
        "pubkey",
        "rsa-2048-sha256",
        "ecdsa-256-sha256-sha384",
        "ike:pubkey-sha512",
        "ed25519-identity",
        "rsa/pss-sha384",
        "mldsa65",
        "rsa-4096",
    ][usize::from(value >> 5)];
    let schemes = schemes.parse().unwrap_or_default();
    match &mut connection.remote.method {
        RemoteMethod::Certificate { rules, pinned, .. } => {
            let certificates = &Material::get().certificates;
            if value & 1 != 0 {
                pinned.push(certificates[usize::from(value >> 4) % certificates.len()].clone());
            }
            let groups = std::mem::take(&mut Arc::make_mut(rules).groups);
            *rules = Arc::new(CertificateRules {
                purposes: match value & 2 {
                    0 => KeyPurposes::IkeOrTls,
                    _ => KeyPurposes::Ike,
                },
                signatures: schemes,
                policies: match value & 4 {
                    0 => vec![],
                    _ => vec!["2.23.140.1.2.1".parse().expect("a policy")],
                },
                authority: (value & 8 != 0).then(|| identity(14)),
                groups,
                known_need_no_path: value & 16 != 0,
            });
        }
        RemoteMethod::PublicKey { signatures, keys } => {
            *signatures = schemes;
            if value & 1 != 0 {
                let certificates = Material::get().certificates.iter();
                keys.extend(certificates.map(|one| one.public_key().clone()));
            }
        }
        RemoteMethod::Psk => {}
    }
}

fn choices(connection: &mut Connection, value: u8) {
    let at = |shift: u8| usize::from(value >> shift & 3);
    connection.unique = [Unique::No, Unique::Never, Unique::Keep, Unique::Replace][at(0)];
    connection.childless = [
        Childless::Allow,
        Childless::Prefer,
        Childless::Force,
        Childless::Never,
    ][at(2)];
    connection.fragmentation = [
        Fragmentation::Yes,
        Fragmentation::Accept,
        Fragmentation::No,
        Fragmentation::Yes,
    ][at(4)];
    connection.full_transcript_required = value & 64 != 0;
}

fn addresses(connection: &mut Connection, is_a: bool, value: u8) {
    let (own, peers) = if is_a { (A, B) } else { (B, A) };
    let parse = |text: &str| -> IpAddr { text.parse().expect("an address") };
    let choose = |value: u8, address: &str| match value & 7 {
        0 => vec![AddressMatch::Host(parse(address))],
        1 => vec![AddressMatch::Any],
        2 => vec![AddressMatch::Name(HostName::new("sun.example"))],
        3 => vec![AddressMatch::Range(
            parse("192.0.2.0"),
            parse("198.51.100.255"),
        )],
        4 => vec![
            AddressMatch::Name(HostName::new("sun.example")),
            AddressMatch::Host(parse(address)),
        ],
        5 => vec![],
        6 => vec![AddressMatch::Host(parse("203.0.113.9"))],
        _ => vec![
            AddressMatch::Host(parse("2001:db8::7")),
            AddressMatch::Host(parse("203.0.113.9")),
            AddressMatch::Host(parse(address)),
        ],
    };
    connection.remote_addrs = choose(value, peers);
    connection.local_addrs = choose(value >> 4, own);
}

/// Selectors of A, or of B.
fn selectors(is_a: bool, value: u8) -> Vec<Selector> {
    let side = if is_a { 1 } else { 2 };
    let net = |part: u8| subnet(&format!("10.{side}.{part}.0-10.{side}.{part}.255"));
    let flow = |protocol, ports| Selector {
        protocol,
        ports,
        ..net(0)
    };
    match value & 15 {
        0 => vec![subnet(if is_a { NET_A } else { NET_B })],
        1 => vec![Selector::DYNAMIC],
        2 => vec![net(0), net(2), net(4)],
        3 => vec![flow(6, (80, 80)), flow(17, (0, u16::MAX))],
        4 => vec![subnet("0.0.0.0-255.255.255.255")],
        5 => vec![subnet("2001:db8::-2001:db8::ffff"), net(1)],
        6 => vec![flow(1, (0x0800, 0x08ff))],
        7 => vec![flow(6, (u16::MAX, 0))],
        8 => (0..60).map(net).collect(),
        9 => (0..200).map(|at| flow(6, (at * 2, at * 2))).collect(),
        10 => vec![net(0), net(0), subnet("10.0.0.0-10.255.255.255")],
        11 => vec![],
        12 => vec![subnet("203.0.113.0-203.0.113.255")],
        _ => vec![net(1), flow(6, (443, 500))],
    }
}

fn change_child(child: &mut Child, is_a: bool, knob: u8, value: u8) {
    let has = |bit: u8| value & (1 << bit) != 0;
    match knob {
        knob::ESP_SUITE => {
            child.esp_proposals = vec![esp_proposal(value)];
        }
        knob::CHILD => {
            child.mode = if has(0) {
                Mode::Transport
            } else {
                Mode::Tunnel
            };
            child.from_packet = has(1);
            child.non_first_fragments = has(2);
            child.overlap = has(3);
            child.replay_window = if has(4) { 0 } else { 64 };
            child.spd = u32::from(has(5));
            child.inactivity = Duration::from_secs(u64::from(value >> 6) * 30);
        }
        knob::SELECTORS => {
            child.local_ts = selectors(is_a, value);
            child.remote_ts = selectors(!is_a, value >> 4);
        }
        knob::CHILD_LIFE => {
            let time = Duration::from_secs(u64::from(value >> 4) * 20);
            let life = &mut child.lifetime;
            match value & 3 {
                0 => (life.rekey_time, life.life_time) = (time, time * 2),
                1 => life.life_time = time,
                2 => (life.rekey_bytes, life.life_bytes) = (1000, 2000),
                _ => {
                    *life = Lifetime {
                        rekey_time: time,
                        rand_packets: 5,
                        rekey_packets: 10,
                        life_packets: 20,
                        rand_bytes: 10,
                        ..Lifetime::default()
                    };
                }
            }
        }
        knob::ACTIONS => {
            let end = |shift: u8| {
                [
                    EndAction::Clear,
                    EndAction::Trap,
                    EndAction::Start,
                    EndAction::Start,
                ][usize::from(value >> shift & 3)]
            };
            child.start_action = [
                StartAction::None,
                StartAction::Trap,
                StartAction::Start,
                StartAction::Start,
            ][usize::from(value & 3)];
            (child.dpd_action, child.close_action) = (end(2), end(4));
        }
        _ => {}
    }
}
