//! The configuration of an endpoint: connections, children, proposals and credentials.
//!
//! The types are plain data that the configuration loader fills. Each has a `Default`, or a constructor, with the
//! values that apply where the administrator says nothing.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use esplanade_crypto::iana::{Encryption, Group, Integrity, Prf, SequenceNumbers};
use esplanade_crypto::secret::Secret as SecretBytes;
use esplanade_crypto::transform::Protocol;
use esplanade_pki::attributes::AttributeStore;
use esplanade_pki::{Authorities, Certificate, PublicKey, RevocationPolicy, RevocationStore};

use crate::ts;
use crate::wire::{MESSAGE_LEN_MAX, TrafficSelector};

#[cfg(feature = "generators")]
pub mod generators;
mod peer_entries;

pub use crate::auth::{CertificateRules, CertificateUriBase, Credential, Identity, SchemeRules};
pub use crate::ts::{Selector, SelectorAddresses};
pub use peer_entries::{PeerEntries, PeerEntry};

/// Everything that an [`crate::Endpoint`] is configured with.
#[derive(Clone, Debug)]
pub struct Config {
    /// Connections in the order of the configuration file. If several connections name a peer equally well, the first
    /// one is used.
    pub connections: Vec<Arc<Connection>>,
    /// Pre-shared keys.
    pub secrets: Vec<Secret>,
    /// The information by which the status of peers' certificates is judged.
    pub revocation: Arc<RevocationStore>,
    /// The information by which the memberships of peers in groups are judged.
    pub attributes: Arc<AttributeStore>,
    /// Where peers that look certificates up find ours.
    pub uri_bases: Vec<CertificateUriBase>,
    pub ports: Ports,
    pub limits: Limits,
    /// The length of the IP datagram that an IKE message is cut to fit in. Zero stands for 576 bytes over IPv4 and 1280
    /// over IPv6 (RFC 7383 §2.5.1).
    pub fragment_size: u16,
    /// AUTH covers both messages of IKE_SA_INIT where the peer announces that too
    /// (draft-ietf-ipsecme-ikev2-downgrade-prevention).
    pub full_transcript_auth: bool,
    /// A peer's token shows that the peer has lost an IKE SA (RFC 6290).
    pub quick_crash_detection: bool,
    /// The secret of our own tokens. It must be the same after a restart. Without it, peers get no token.
    pub token_secret: Option<Arc<SecretBytes>>,
    /// The IKE SA ends with its only child SA, if that one is closed for want of traffic.
    pub inactivity_close_ike: bool,
    /// A keepalive holds a NAT mapping open after this idle time (RFC 3948 §4). With zero there are no keepalives.
    pub nat_keepalive: Duration,
    /// Gives [`crate::Event::KeyLog`]. It is off unless the administrator asks for it.
    pub key_log: bool,
    /// Gives [`crate::Event::Message`] for every message of an IKE SA.
    pub trace_messages: bool,
}

impl Config {
    /// The secret that our tokens are made with, if we make any.
    pub(crate) fn tokens_from(&self) -> Option<&SecretBytes> {
        let secret = self.token_secret.as_deref();
        secret.filter(|_| self.quick_crash_detection)
    }

    /// Where a peer finds our certificates. There is no such place for a peer that looks none up.
    pub(crate) fn uri_bases_for(&self, looks_up: bool) -> &[CertificateUriBase] {
        match looks_up {
            true => &self.uri_bases,
            false => &[],
        }
    }

    /// Gives host names the addresses, or the reason for none, that `known` has. Returns true if that changes
    /// anything.
    pub fn set_names<'a>(&mut self, known: impl Fn(&str) -> Option<&'a HostName>) -> bool {
        let differs = |name: &HostName| known(&name.name).is_some_and(|known| known != name);
        let mut changed = false;
        for connection in &mut self.connections {
            if !connection.names().any(differs) {
                continue;
            }
            changed = true;
            let connection = Arc::make_mut(connection);
            let lists = [&mut connection.local_addrs, &mut connection.remote_addrs];
            for address in lists.into_iter().flatten() {
                if let AddressMatch::Name(name) = address
                    && let Some(known) = known(&name.name)
                {
                    name.clone_from(known);
                }
            }
        }
        changed
    }
}

impl Default for Config {
    fn default() -> Self {
        Self {
            connections: Vec::new(),
            secrets: Vec::new(),
            revocation: Arc::default(),
            attributes: Arc::default(),
            uri_bases: Vec::new(),
            ports: Ports::default(),
            limits: Limits::default(),
            fragment_size: 1280,
            full_transcript_auth: true,
            quick_crash_detection: true,
            inactivity_close_ike: false,
            token_secret: None,
            nat_keepalive: Duration::from_secs(20),
            key_log: false,
            trace_messages: false,
        }
    }
}

/// The local UDP ports of IKE.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ports {
    /// The port for messages without the non-ESP marker.
    pub ike: u16,
    /// The port for messages with the four-byte non-ESP marker (RFC 3948 §2.2).
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
    /// The number of half-open responder SAs from which on cookies are required (RFC 7296 §2.6).
    pub cookie_threshold: usize,
    /// Half-open responder SAs of all peers that no connection names by address. Peers that one names have as many
    /// again.
    pub half_open_max: usize,
    /// Half-open responder SAs of one IPv4 address or one IPv6 /64.
    pub half_open_per_source_max: usize,
    /// Half-open responder SAs of one IPv4 /24, one IPv6 /48, or one address that a connection names. An IPv6 /56 may
    /// have half as many.
    pub half_open_per_network_max: usize,
    /// Time within which the peer of a responder SA must be authenticated.
    pub half_open_timeout: Duration,
    /// Bytes of all half-open SAs' IKE_SA_INIT messages from which on no long request is taken.
    pub half_open_bytes_max: usize,
    pub ike_sas_max: usize,
    /// IKE SAs that all peers with one identity may initiate.
    pub ike_sas_per_peer_max: usize,
    /// Child SAs of one IKE SA that the peer may ask for.
    pub children_per_sa_max: usize,
    /// Child SAs of one identity from which on it may ask for no further one.
    pub children_per_peer_max: usize,
    /// Pairs of a local and a remote selector that the child SAs of one identity may have.
    pub selectors_per_peer_max: usize,
    /// Requests for child SAs and rekeys that one identity may send per second, in the long run. Many selectors count as
    /// several requests.
    pub child_requests_per_second: u32,
    /// Queued tasks of one IKE SA from which on no further child is queued.
    pub queued_tasks_max: usize,
    /// Fragments of one received message (RFC 7383 §5).
    pub fragments_max: u16,
    /// Bytes of one received message in fragments, without headers.
    pub fragmented_len_max: usize,
    /// The same, while nobody has authenticated the sender.
    pub half_open_fragmented_len_max: usize,
    /// Unprotected error notifies that are sent per second to senders that have not proved their address
    /// (RFC 7296 §2.21.4). A single source gets a quarter of them at most.
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
            half_open_bytes_max: 8 << 20,
            ike_sas_max: 100_000,
            ike_sas_per_peer_max: 256,
            children_per_sa_max: 256,
            children_per_peer_max: 1024,
            selectors_per_peer_max: 8192,
            child_requests_per_second: 100,
            queued_tasks_max: 64,
            // Windows was seen to send 29 fragments. A message in fragments of 576 bytes has 150 at most.
            fragments_max: 255,
            fragmented_len_max: MESSAGE_LEN_MAX,
            // Three certificates and a signature of ML-DSA-87 take 27 KiB.
            half_open_fragmented_len_max: 32_768,
            error_notifies_per_second: 20,
        }
    }
}

/// The configuration of one peer, or of one kind of peer.
#[derive(Clone, Debug)]
pub struct Connection {
    pub name: String,
    /// Our own addresses. When we initiate, the source is the first single address that is an address of this host. An
    /// empty list stands for any address.
    pub local_addrs: Vec<AddressMatch>,
    /// Addresses of the peer. When we initiate, the destination is the first single address to which there is a route.
    /// An empty list stands for any address.
    pub remote_addrs: Vec<AddressMatch>,
    /// Our UDP port when we initiate: [`Ports::ike`] or [`Ports::nat_t`]. `None` stands for [`Ports::ike`].
    pub local_port: Option<u16>,
    /// The peer's UDP port when we initiate.
    pub remote_port: u16,
    /// The DSCP of all IKE messages (RFC 2474).
    pub dscp: u8,
    pub proposals: Vec<IkeProposal>,
    /// Permits RSA signatures with SHA-1 (RFC 7296 §3.8), for peers without RFC 7427.
    pub legacy: bool,
    /// Encapsulates ESP in UDP even without a NAT, by sending a false NAT detection hash.
    pub encap: bool,
    pub fragmentation: Fragmentation,
    /// Probes the path MTU (RFC 8899).
    pub path_mtu_probe: bool,
    pub childless: Childless,
    /// The peer must announce that AUTH covers both messages of IKE_SA_INIT.
    pub full_transcript_required: bool,
    /// Sends CERTREQ payloads.
    pub send_certreq: bool,
    /// The sending of our own CERT payloads.
    pub send_cert: SendCert,
    /// Answers of OCSP responders in CERT payloads.
    pub ocsp: OcspInIke,
    /// Soft lifetime of the IKE SA, after which it is rekeyed. With zero it is never rekeyed.
    pub rekey_time: Duration,
    /// Time after which both ends authenticate again, over a new IKE SA. With zero they never do.
    pub reauth_time: Duration,
    /// The hard lifetime of the IKE SA is `rekey_time` plus this time, or `reauth_time` plus this time if that is
    /// earlier. Zero stands for a tenth of the longer of the two.
    pub over_time: Duration,
    /// A random part of this is subtracted from `rekey_time` and from `reauth_time`.
    pub rand_time: Duration,
    /// Silence of the peer after which we check whether it is alive. With zero we never check.
    pub dpd_delay: Duration,
    /// Silence counts only while ESP that we have sent is unanswered (RFC 7296 §2.4).
    pub dpd_by_traffic: bool,
    /// The peer is dead this long after a check began. With zero, retransmission alone decides.
    pub dpd_timeout: Duration,
    pub unique: Unique,
    /// Attempts to establish the IKE SA. With zero the attempts have no end.
    pub keyingtries: u32,
    pub retransmission: Retransmission,
    pub local: LocalAuth,
    pub remote: RemoteAuth,
    /// Selectors of single peers, for a connection with many peers.
    pub peers: PeerEntries,
    pub children: Vec<Arc<Child>>,
}

impl Connection {
    /// The host names among the addresses of both ends.
    pub fn names(&self) -> impl Iterator<Item = &HostName> {
        let lists = [&self.local_addrs, &self.remote_addrs];
        lists.into_iter().flatten().filter_map(AddressMatch::name)
    }

    /// The connection is for one identity only.
    pub fn names_one_peer(&self) -> bool {
        !self.remote.id.is_pattern()
    }

    /// The identity that we claim from an address.
    pub(crate) fn local_id(&self, local: IpAddr) -> Identity {
        let proved = match &self.local.method {
            LocalMethod::Signature(credentials) => credentials.first().map(|own| own.identity()),
            LocalMethod::Psk => None,
        };
        match &self.local.id {
            Identity::Any => proved.unwrap_or(Identity::Ip(local)),
            id => id.clone(),
        }
    }

    /// The child's remote selectors that a peer with this identity, at the address `outer`, may have.
    pub(crate) fn remote_ts(
        &self,
        child: &Child,
        peer: &Identity,
        outer: IpAddr,
    ) -> Vec<TrafficSelector> {
        let remote = ts::resolve(&child.remote_ts, outer);
        match self.peers.of(peer) {
            Some(entry) => ts::narrow(&ts::resolve(&entry.remote_ts, outer), &remote),
            None => remote,
        }
    }
}

/// The treatment of a second IKE SA that a peer establishes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Unique {
    /// Both stay. INITIAL_CONTACT is ignored too.
    Never,
    /// Both stay, but INITIAL_CONTACT is obeyed.
    #[default]
    No,
    /// The new IKE SA is refused.
    Keep,
    /// The old IKE SA is deleted.
    Replace,
}

/// The use of IKE fragmentation (RFC 7383).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Fragmentation {
    No,
    /// Fragments are taken, and none is sent.
    Accept,
    #[default]
    Yes,
}

/// The use of IKE_AUTH without a child SA (RFC 6023). CREATE_CHILD_SA then makes all children.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Childless {
    /// We accept it, and do not ask for it.
    #[default]
    Allow,
    /// We accept it, and ask for it where the peer announces it.
    Prefer,
    /// An IKE SA comes up in no other way, whoever initiates.
    Force,
    Never,
}

/// Answers of OCSP responders in CERT payloads (RFC 4806).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OcspInIke {
    /// Asks the peer for answers about its certificates.
    pub request: bool,
    /// Sends answers about our certificates to a peer that asks.
    pub reply: bool,
}

impl Default for OcspInIke {
    fn default() -> Self {
        Self {
            request: false,
            reply: true,
        }
    }
}

/// The sending of CERT payloads (RFC 7296 §3.6).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum SendCert {
    /// If the peer has sent a CERTREQ.
    #[default]
    IfAsked,
    Always,
    /// The peer must have our certificate.
    Never,
}

/// Retransmission timing (RFC 7296 §2.4). The n-th time-out is `timeout * base^n`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Retransmission {
    /// Retransmissions before the peer is given up.
    pub tries: u32,
    pub timeout: Duration,
    pub base: f64,
}

impl Retransmission {
    /// Retransmissions of a check whose verdict falls within `limit`.
    const TRIES_WITHIN: u32 = 4;

    /// The timing of a liveness check, whose verdict falls within `limit`. A timing that ends sooner stays.
    pub(crate) fn within(&self, limit: Duration) -> Self {
        if limit.is_zero() || self.ends_within(limit) {
            return *self;
        }
        // The pauses are 1, 2, 4, 8 and 16 parts of the limit.
        let parts = 2_u32.pow(Self::TRIES_WITHIN + 1) - 1;
        Self {
            tries: Self::TRIES_WITHIN,
            timeout: limit / parts,
            base: 2.0,
        }
    }

    /// The time for which a peer may repeat a request: ours, or the default, which charon has too, if that is longer.
    pub(crate) fn patience(&self) -> Duration {
        const PATIENCE_MAX: Duration = Duration::from_secs(900);
        let whole = self.whole().max(Self::default().whole());
        Duration::try_from_secs_f64(whole).map_or(PATIENCE_MAX, |whole| whole.min(PATIENCE_MAX))
    }

    fn ends_within(&self, limit: Duration) -> bool {
        self.whole() <= limit.as_secs_f64()
    }

    /// The seconds until the peer is given up, without chance.
    fn whole(&self) -> f64 {
        const TRIES_COUNTED: u32 = 100;
        if self.tries > TRIES_COUNTED {
            return f64::INFINITY;
        }
        let (mut pause, mut sum) = (self.timeout.as_secs_f64(), 0.0);
        for _ in 0..=self.tries {
            sum += pause;
            pause *= self.base.max(1.0);
        }
        sum
    }
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

/// The means by which we prove our identity.
#[derive(Clone, Debug)]
pub struct LocalAuth {
    /// [`Identity::Any`] stands for the identity of the first credential, or for our address.
    pub id: Identity,
    pub method: LocalMethod,
}

#[derive(Clone, Debug)]
pub enum LocalMethod {
    /// The key comes from [`Config::secrets`].
    Psk,
    /// The first of these that the peer asks for signs (RFC 7296 §3.7). If it asks for none, the first one does.
    Signature(Vec<Arc<Credential>>),
}

/// The proof that the peer must give.
#[derive(Clone, Debug)]
pub struct RemoteAuth {
    /// An identity or a pattern; see [`Identity::accepts`].
    pub id: Identity,
    pub method: RemoteMethod,
}

#[derive(Clone, Debug)]
pub enum RemoteMethod {
    Psk,
    /// The peer needs a certificate path to one of the authorities. [`crate::Endpoint::set_wall_clock`] gives the
    /// time of the check.
    Certificate {
        authorities: Arc<Authorities>,
        /// Unless this is empty, the peer's own certificate must be one of these.
        pinned: Vec<Certificate>,
        rules: Arc<CertificateRules>,
        revocation: RevocationPolicy,
    },
    /// The peer needs one of these keys, and no certificate. Where [`RemoteAuth::id`] is [`Identity::Any`], it must be
    /// called by the identifier of its key.
    PublicKey {
        keys: Vec<PublicKey>,
        signatures: SchemeRules,
    },
}

/// A pre-shared key, and the identities that it belongs to.
#[derive(Clone, Debug)]
pub struct Secret {
    /// The identities that share the key. An empty list stands for everybody.
    pub owners: Vec<Identity>,
    /// All copies of the configuration share the key, so that memory holds it once.
    pub key: Arc<SecretBytes>,
}

/// An address, or a set of addresses, of a gateway.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum AddressMatch {
    /// `%any`.
    Any,
    Host(IpAddr),
    /// The first and the last address, of one IP version. A subnet is a range.
    Range(IpAddr, IpAddr),
    /// The addresses that a host name has now.
    Name(HostName),
}

impl AddressMatch {
    /// The single addresses.
    pub fn hosts(&self) -> &[IpAddr] {
        match self {
            Self::Host(host) => std::slice::from_ref(host),
            Self::Name(name) => name.addresses.as_deref().unwrap_or_default(),
            Self::Any | Self::Range(..) => &[],
        }
    }

    /// The single addresses of a list, in its order.
    pub fn hosts_of(list: &[Self]) -> impl Iterator<Item = IpAddr> {
        list.iter().flat_map(Self::hosts).copied()
    }

    pub fn name(&self) -> Option<&HostName> {
        match self {
            Self::Name(name) => Some(name),
            Self::Any | Self::Host(_) | Self::Range(..) => None,
        }
    }

    pub fn matches(&self, address: IpAddr) -> bool {
        match self {
            Self::Any => true,
            Self::Host(_) | Self::Name(_) => self.hosts().contains(&address),
            Self::Range(from, to) => {
                *from <= address && address <= *to && from.is_ipv4() == address.is_ipv4()
            }
        }
    }
}

/// A host name, and the addresses that it has. The endpoint looks up no name: its embedder does.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct HostName {
    pub name: String,
    /// The addresses in the order in which they are tried, or the reason why there is none.
    pub addresses: Result<Vec<IpAddr>, String>,
}

impl HostName {
    /// A name that nobody has looked up yet. It stands for no address.
    pub fn new(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            addresses: Err("it is not looked up yet".to_owned()),
        }
    }
}

/// An IKE proposal. The peer chooses one algorithm of each list. The PRF list is never empty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IkeProposal {
    /// Algorithms with their key lengths in bits.
    pub encryption: Vec<(Encryption, u16)>,
    /// The list is empty if, and only if, the encryption algorithms are AEADs.
    pub integrity: Vec<Integrity>,
    pub prf: Vec<Prf>,
    pub groups: Vec<Group>,
}

/// A proposal of a child SA. It is for AH if it has no encryption algorithm, and for ESP otherwise.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EspProposal {
    /// Algorithms with their key lengths in bits. 0 stands for an algorithm without a Key Length attribute.
    pub encryption: Vec<(Encryption, u16)>,
    /// For ESP, the list is empty if, and only if, the encryption algorithms are AEADs.
    pub integrity: Vec<Integrity>,
    /// Methods for a key exchange of the child's own in CREATE_CHILD_SA. If the list is empty, the child has no key
    /// exchange of its own.
    pub groups: Vec<Group>,
    /// The first one is preferred.
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

/// A pair of protected networks.
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
    /// The size of the anti-replay window in packets. With zero, anti-replay is off.
    pub replay_window: u32,
    /// The size of the peer's anti-replay window in packets. It is not negotiated.
    pub peer_replay_window: u32,
    /// Silence in both directions after which the child SA is closed. With zero it is never closed.
    pub inactivity: Duration,
    /// Every flow has an SA of its own, with selectors of the packet that asks for it (PFP, RFC 4301 §4.4.1.2).
    pub from_packet: bool,
    /// Non-first fragments are sent and accepted on an SA for certain ports, if the peer agrees (RFC 4301 §7.3).
    pub non_first_fragments: bool,
    /// The SPD that the child's policies are in (RFC 4301 §4.4.1). Policies of different SPDs never compete.
    pub spd: u32,
    /// Several peers may have the same traffic, if the child of each one says so. The newest SA carries the traffic.
    pub overlap: bool,
    /// The data plane sends dummy packets on the SAs (RFC 4303 §2.6), which no peer answers.
    pub sends_dummies: bool,
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
            sends_dummies: false,
        }
    }
}

impl Child {
    /// AH covers the outer addresses, so that it passes no NAT (RFC 4302 §1).
    pub(crate) fn uses_ah(&self) -> bool {
        let mut proposals = self.esp_proposals.iter();
        proposals.any(|proposal| proposal.protocol() == Protocol::Ah)
    }

    /// This child with one pair of selectors only.
    pub(crate) fn populated(&self, (local, remote): (TrafficSelector, TrafficSelector)) -> Self {
        Self {
            local_ts: vec![local.into()],
            remote_ts: vec![remote.into()],
            ..self.clone()
        }
    }
}

/// The child SA that a packet without an SA asks for. Each pair is a local and a remote selector.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Demand {
    /// The selectors of the packet. Each names one address.
    pub packet: (TrafficSelector, TrafficSelector),
    /// The selectors of the policy, with the parts that [`Child::from_packet`] takes from the packet.
    pub selectors: (TrafficSelector, TrafficSelector),
}

/// Lifetimes of a child SA; zero is without limit. `rekey_*` are soft: the SA is rekeyed. `life_*` are hard: the SA
/// is deleted. A random part of `rand_*` is subtracted from the soft ones.
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
    /// The defaults of swanctl: the SA is rekeyed after an hour, and expires a tenth later.
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
    /// Host to host. Selectors are narrowed to the addresses of the two gateways.
    Transport,
}

/// The action on a child when the configuration is loaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum StartAction {
    #[default]
    None,
    /// The data plane asks for the SA with the first packet.
    Trap,
    Start,
}

/// The action on a child whose peer is dead (`dpd_action`) or has closed the child (`close_action`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum EndAction {
    #[default]
    Clear,
    /// The data plane asks for the SA with the next packet.
    Trap,
    /// The endpoint establishes the SA again at once.
    Start,
}
