//! Connections, children, proposals and credentials as the state machines need them.
//!
//! Plain data, filled by the configuration loader. Every type has a `Default` or a
//! constructor with the values that apply where the administrator says nothing.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use esplanade_crypto::iana::{Encryption, Group, Integrity, Prf, SequenceNumbers};
use esplanade_crypto::secret::Secret as SecretBytes;
use esplanade_crypto::transform::Protocol;

use crate::ts;
use crate::wire::TrafficSelector;

pub use crate::auth::{Authorities, Certificate, Credential, Identity};
pub use crate::ts::{Selector, SelectorAddresses};

/// Everything that an [`crate::Endpoint`] is configured with.
#[derive(Clone, Debug)]
pub struct Config {
    /// In the order of the configuration file, which decides where several name a peer equally well.
    pub connections: Vec<Arc<Connection>>,
    /// Pre-shared keys.
    pub secrets: Vec<Secret>,
    pub ports: Ports,
    pub limits: Limits,
    /// Idle time after which a keepalive holds a NAT mapping open (RFC 3948 section 4). Zero: none.
    pub nat_keepalive: Duration,
    /// Emit [`crate::Event::KeyLog`]. Off unless the administrator asks for it.
    pub key_log: bool,
    /// Emit [`crate::Event::Message`] for every message of an IKE SA.
    pub trace_messages: bool,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            connections: Vec::new(),
            secrets: Vec::new(),
            ports: Ports::default(),
            limits: Limits::default(),
            nat_keepalive: Duration::from_secs(20),
            key_log: false,
            trace_messages: false,
        }
    }
}

/// The local UDP ports of IKE.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ports {
    /// Messages here have no non-ESP marker.
    pub ike: u16,
    /// Messages here have the four-byte non-ESP marker (RFC 3948 section 2.2).
    pub nat_t: u16,
}

impl Default for Ports {
    fn default() -> Self {
        Self {
            ike: 500,
            nat_t: 4500,
        }
    }
}

/// Bounds on what peers can make the endpoint hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Half-open responder SAs from which on a cookie is asked for (RFC 7296 section 2.6).
    pub cookie_threshold: usize,
    /// Half-open responder SAs of all peers that no connection names by address, and once more of those that one does.
    pub half_open_max: usize,
    /// Of one IPv4 address or one IPv6 /64.
    pub half_open_per_source_max: usize,
    /// Of one IPv4 /24 or one IPv6 /48; a /56 may have half as many. Also of each address that a connection names.
    pub half_open_per_network_max: usize,
    /// Time within which a responder SA must be authenticated.
    pub half_open_timeout: Duration,
    pub ike_sas_max: usize,
    /// IKE SAs that peers of one identity may initiate.
    pub ike_sas_per_peer_max: usize,
    pub children_per_sa_max: usize,
    /// Tasks that wait for the exchange in progress beyond which no child is queued, per IKE SA.
    pub queued_tasks_max: usize,
    /// Unprotected error notifies sent per second to senders that have not proved their address (RFC 7296 section
    /// 2.21.4); a quarter of it to one source.
    pub error_notifies_per_second: u32,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            cookie_threshold: 30,
            half_open_max: 1000,
            half_open_per_source_max: 20,
            half_open_per_network_max: 80,
            half_open_timeout: Duration::from_secs(30),
            ike_sas_max: 100_000,
            ike_sas_per_peer_max: 1000,
            children_per_sa_max: 64,
            queued_tasks_max: 64,
            error_notifies_per_second: 20,
        }
    }
}

/// One peer, or one kind of peer.
#[derive(Clone, Debug)]
pub struct Connection {
    pub name: String,
    /// Own addresses; the first [`AddressMatch::Host`] that there is, is the source when initiating. Empty: any.
    pub local_addrs: Vec<AddressMatch>,
    /// Addresses of the peer; the first [`AddressMatch::Host`] to which there is a way is the destination when
    /// initiating. Empty: any.
    pub remote_addrs: Vec<AddressMatch>,
    /// Own UDP port when initiating: [`Ports::ike`] or [`Ports::nat_t`]. None: [`Ports::ike`].
    pub local_port: Option<u16>,
    /// The port of the peer when initiating.
    pub remote_port: u16,
    pub proposals: Vec<IkeProposal>,
    /// Permits RSA signatures with SHA-1 (RFC 7296 section 3.8), for peers without RFC 7427.
    pub legacy: bool,
    /// UDP-encapsulate ESP even without a NAT, by faking NAT detection.
    pub encap: bool,
    /// Soft lifetime of the IKE SA. Zero: never rekeyed.
    pub rekey_time: Duration,
    /// Hard lifetime of the IKE SA is the soft lifetime and this. Zero: a tenth of `rekey_time`.
    pub over_time: Duration,
    /// Up to this is subtracted at random from `rekey_time`.
    pub rand_time: Duration,
    /// Silence of the peer after which its liveness is checked. Zero: never.
    pub dpd_delay: Duration,
    pub unique: Unique,
    /// Attempts to establish the IKE SA; zero: without end.
    pub keyingtries: u32,
    pub retransmission: Retransmission,
    pub local: LocalAuth,
    pub remote: RemoteAuth,
    /// Selectors of single peers, where the connection is for many. The most exact entry counts, of equals the first.
    pub peers: Vec<PeerEntry>,
    pub children: Vec<Arc<Child>>,
}

impl Connection {
    /// Whether it is for one identity only.
    pub(crate) fn names_one_peer(&self) -> bool {
        self.remote.id.precision() == 2
    }

    /// What is configured for this peer in particular.
    pub(crate) fn entry_of(&self, peer: &Identity) -> Option<&PeerEntry> {
        let entries = self.peers.iter().filter(|entry| entry.id.accepts(peer));
        entries.rev().max_by_key(|entry| entry.id.precision())
    }

    /// What a peer with this identity, at `outer`, may have of the child's remote selectors.
    pub(crate) fn remote_ts(
        &self,
        child: &Child,
        peer: &Identity,
        outer: IpAddr,
    ) -> Vec<TrafficSelector> {
        let remote = ts::resolve(&child.remote_ts, outer);
        match self.entry_of(peer) {
            Some(entry) => ts::narrow(&ts::resolve(&entry.remote_ts, outer), &remote),
            None => remote,
        }
    }
}

/// What peers with a certain identity may have (RFC 4301 section 4.4.3.3).
#[derive(Clone, Debug)]
pub struct PeerEntry {
    /// May be a pattern.
    pub id: Identity,
    /// Every child's remote selectors are narrowed to these. What an identity has here is for no other peer.
    pub remote_ts: Vec<Selector>,
}

/// What happens when the same peer identity establishes a second IKE SA.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Unique {
    /// Keep both, and ignore INITIAL_CONTACT as well.
    Never,
    /// Keep both, but obey INITIAL_CONTACT.
    #[default]
    No,
    /// Refuse the new one.
    Keep,
    /// Delete the old one.
    Replace,
}

/// Retransmission timing (RFC 7296 section 2.4): the n-th time-out is `timeout * base^n`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Retransmission {
    /// Retransmissions before the peer is given up.
    pub tries: u32,
    pub timeout: Duration,
    pub base: f64,
}

impl Default for Retransmission {
    fn default() -> Self {
        Self {
            tries: 5,
            timeout: Duration::from_secs(4),
            base: 1.8,
        }
    }
}

/// How we prove who we are.
#[derive(Clone, Debug)]
pub struct LocalAuth {
    /// [`Identity::Any`]: the subject of the certificate, or the local address.
    pub id: Identity,
    pub method: LocalMethod,
}

#[derive(Clone, Debug)]
pub enum LocalMethod {
    /// The key comes from [`Config::secrets`].
    Psk,
    Certificate(Arc<Credential>),
}

/// What the peer must prove.
#[derive(Clone, Debug)]
pub struct RemoteAuth {
    /// May be a pattern; see [`Identity::accepts`].
    pub id: Identity,
    pub method: RemoteMethod,
}

#[derive(Clone, Debug)]
pub enum RemoteMethod {
    Psk,
    /// A certificate path to one of the authorities. The time of the check is the wall clock's; see
    /// [`crate::Endpoint::set_wall_clock`].
    Certificate {
        authorities: Arc<Authorities>,
        /// If not empty, the end entity's certificate must be one of these.
        pinned: Vec<Certificate>,
    },
}

/// One pre-shared key and whom it belongs to.
#[derive(Clone, Debug)]
pub struct Secret {
    /// Identities that share the key. Empty: everybody.
    pub owners: Vec<Identity>,
    /// Shared by all copies of the configuration: it is in memory once.
    pub key: Arc<SecretBytes>,
}

/// An address, or a set of addresses, of a gateway.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AddressMatch {
    /// `%any`.
    Any,
    Host(IpAddr),
    /// From and to, both included, of one IP version. A subnet is a range.
    Range(IpAddr, IpAddr),
}

impl AddressMatch {
    /// The address, where it is a single one.
    pub fn host(&self) -> Option<IpAddr> {
        match *self {
            Self::Host(host) => Some(host),
            Self::Any | Self::Range(..) => None,
        }
    }

    pub fn matches(&self, address: IpAddr) -> bool {
        match *self {
            Self::Any => true,
            Self::Host(host) => host == address,
            Self::Range(from, to) => {
                from <= address && address <= to && from.is_ipv4() == address.is_ipv4()
            }
        }
    }
}

/// One IKE proposal: an algorithm of each list. The PRF list is never empty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IkeProposal {
    /// Algorithm and key length in bits.
    pub encryption: Vec<(Encryption, u16)>,
    /// Empty exactly if the encryption algorithms are AEADs.
    pub integrity: Vec<Integrity>,
    pub prf: Vec<Prf>,
    pub groups: Vec<Group>,
}

/// One proposal of a child SA: ESP, or AH if it has no encryption algorithm.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EspProposal {
    /// Algorithm and its Key Length attribute; 0 where there is none.
    pub encryption: Vec<(Encryption, u16)>,
    /// With ESP, empty exactly if the encryption algorithms are AEADs.
    pub integrity: Vec<Integrity>,
    /// Groups for a fresh key exchange in CREATE_CHILD_SA. Empty: none.
    pub groups: Vec<Group>,
    /// In order of preference.
    pub sequence_numbers: Vec<SequenceNumbers>,
}

impl EspProposal {
    pub fn protocol(&self) -> Protocol {
        match self.encryption.is_empty() {
            true => Protocol::Ah,
            false => Protocol::Esp,
        }
    }
}

/// One pair of protected networks.
#[derive(Clone, Debug)]
pub struct Child {
    pub name: String,
    pub local_ts: Vec<Selector>,
    pub remote_ts: Vec<Selector>,
    pub esp_proposals: Vec<EspProposal>,
    pub mode: Mode,
    pub start_action: StartAction,
    pub dpd_action: EndAction,
    pub close_action: EndAction,
    pub lifetime: Lifetime,
    /// In packets; zero switches the anti-replay service off.
    pub replay_window: u32,
    /// The peer's, which is not negotiated.
    pub peer_replay_window: u32,
    /// Silence in both directions after which the child SA is closed. Zero: never.
    pub inactivity: Duration,
    /// Every flow has an SA of its own: selectors come from the packet that asks for it (RFC 4301 section 4.4.1.2, PFP).
    pub from_packet: bool,
    /// Later fragments are sent and taken on an SA for certain ports, if the peer agrees (RFC 4301 section 7.3).
    pub non_first_fragments: bool,
    /// Which SPD its packets meet (RFC 4301 section 4.4.1): those of different ones never compete.
    pub spd: u32,
    /// Several peers may have the same traffic, if the child of each says so. The newest SA carries it.
    pub overlap: bool,
}

impl Default for Child {
    fn default() -> Self {
        Self {
            name: String::new(),
            local_ts: vec![Selector::DYNAMIC],
            remote_ts: vec![Selector::DYNAMIC],
            esp_proposals: Vec::new(),
            mode: Mode::Tunnel,
            start_action: StartAction::None,
            dpd_action: EndAction::Clear,
            close_action: EndAction::Clear,
            lifetime: Lifetime::default(),
            replay_window: 8192,
            peer_replay_window: 32,
            inactivity: Duration::ZERO,
            from_packet: false,
            non_first_fragments: false,
            spd: 0,
            overlap: false,
        }
    }
}

impl Child {
    /// AH covers the outer addresses, so that it passes no NAT (RFC 4302 section 1).
    pub(crate) fn uses_ah(&self) -> bool {
        let mut proposals = self.esp_proposals.iter();
        proposals.any(|proposal| proposal.protocol() == Protocol::Ah)
    }

    /// This child with the selectors of one demand alone.
    pub(crate) fn populated(&self, demand: &Demand) -> Self {
        let (local, remote) = demand.selectors;
        Self {
            local_ts: vec![local.into()],
            remote_ts: vec![remote.into()],
            ..self.clone()
        }
    }
}

/// What a packet without an SA asks for. Local and remote ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Demand {
    /// Of the packet; each names one address.
    pub packet: (TrafficSelector, TrafficSelector),
    /// Of the policy, with what [`Child::from_packet`] has it take from the packet.
    pub selectors: (TrafficSelector, TrafficSelector),
}

/// Lifetimes of a child SA; zero is without limit. `rekey_*` are soft (a rekey is started),
/// `life_*` are hard (the SA is deleted), up to `rand_*` is subtracted at random from the soft ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lifetime {
    pub rekey_time: Duration,
    pub life_time: Duration,
    pub rand_time: Duration,
    pub rekey_bytes: u64,
    pub life_bytes: u64,
    pub rand_bytes: u64,
    pub rekey_packets: u64,
    pub life_packets: u64,
    pub rand_packets: u64,
}

impl Default for Lifetime {
    /// swanctl's defaults: rekey after one hour, expire a tenth later.
    fn default() -> Self {
        Self {
            rekey_time: Duration::from_secs(3600),
            life_time: Duration::from_secs(3960),
            rand_time: Duration::from_secs(360),
            rekey_bytes: 0,
            life_bytes: 0,
            rand_bytes: 0,
            rekey_packets: 0,
            life_packets: 0,
            rand_packets: 0,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Mode {
    #[default]
    Tunnel,
    /// Host to host: the selectors are narrowed to the two gateways' own addresses.
    Transport,
}

/// What happens to a child when the configuration is loaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum StartAction {
    #[default]
    None,
    /// The data plane asks for the SA with the first packet.
    Trap,
    Start,
}

/// What happens to a child whose peer is dead (`dpd_action`) or has closed it (`close_action`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum EndAction {
    #[default]
    Clear,
    /// The data plane asks for the SA with the next packet.
    Trap,
    /// Establish it again at once.
    Start,
}
