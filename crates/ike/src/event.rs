//! The output of an [`crate::Endpoint`]: datagrams to send, and events for the data plane and the administrator.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use esplanade_crypto::Protocol;
use esplanade_crypto::iana::{Encryption, Integrity, SequenceNumbers};
use esplanade_crypto::secret::Secret;
use esplanade_crypto::transform::Transform;

use crate::config::{EndAction, Identity, Mode};
use crate::refusal::Refusal;
use crate::suite::Suite;
use crate::wire::TrafficSelector;
use esplanade_pki::StatusSource;
use esplanade_pki::attributes::GroupName;

pub use crate::failure::{ChildFailure, DownReason};
pub use crate::id::{ChildSaId, IkeSaId};
pub use crate::nat::UdpTrial;
pub use crate::silence::{Attempt, OneWay, Silence};

/// A UDP payload to send.
#[derive(Clone, PartialEq, Eq)]
pub struct Transmit {
    pub local: SocketAddr,
    pub remote: SocketAddr,
    /// The DSCP of the datagram's IP header.
    pub dscp: u8,
    /// The payload, with the non-ESP marker on the NAT-T port.
    pub payload: Vec<u8>,
    /// The datagram shows whether packets of its size arrive. It has DF, and this host does not fragment it. If it is too
    /// long for the link, it is dropped.
    pub path_probe: bool,
}

impl fmt::Debug for Transmit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} -> {}: {} bytes",
            self.local,
            self.remote,
            self.payload.len()
        )
    }
}

/// An event at the endpoint. Events are complete and in order: a data plane that acts on each one in turn is right.
///
/// A child SA gives `ChildSaInstalled`, `ChildSaUseOutbound` and `ChildSaDeleted` in this order, each once. An SA that
/// is deleted before its outbound half was used gives no `ChildSaUseOutbound`.
///
/// A rekey loses no packet when the data plane follows this order (RFC 7296 §2.8):
/// - The responder of the rekey gets `ChildSaInstalled` before its response leaves. It can receive on the new SA, and
///   still sends on the old one.
/// - The initiator gets `ChildSaInstalled` and `ChildSaUseOutbound` with the response.
/// - The responder gets `ChildSaUseOutbound` when the initiator deletes the old SA, or when the data plane reports
///   traffic on the new SA by [`crate::Endpoint::note_inbound_traffic`].
/// - `ChildSaDeleted` of the old SA stops its outbound half at once. The inbound half stays for `linger`, for packets
///   in flight.
#[derive(Clone, Debug)]
pub enum Event {
    IkeSaUp(IkeSaUp),
    /// `new` takes over the children and the name of `old`. There is no `IkeSaDown` for `old`.
    IkeSaRekeyed {
        old: IkeSaId,
        new: IkeSaId,
        connection: String,
    },
    /// Both ends have authenticated again: `new` has the children. An `IkeSaDown` for `old` follows.
    IkeSaReauthenticated {
        old: IkeSaId,
        new: IkeSaId,
        connection: String,
    },
    /// An established IKE SA has ended. Its children were deleted before.
    IkeSaDown {
        ike_sa: IkeSaId,
        connection: String,
        reason: DownReason,
    },
    /// The SA can receive. It must not send before `ChildSaUseOutbound`.
    ChildSaInstalled(Box<ChildSaInstalled>),
    /// From now on this SA sends.
    ChildSaUseOutbound {
        child: ChildSaId,
    },
    ChildSaDeleted(ChildSaDeleted),
    /// No traffic was noted for as long as `inactivity` says. A data plane that has seen no traffic either answers with
    /// [`crate::Endpoint::close_idle_child_sa`]. Otherwise it notes the traffic, and gets this event again later.
    ChildSaIdle {
        child: ChildSaId,
    },
    /// The peer's address or port behind its NAT has changed (RFC 7296 §2.23). These children send to the new one: all
    /// of the IKE SA, or none if IKE alone has moved.
    PeerMoved {
        ike_sa: IkeSaId,
        children: Vec<ChildSaId>,
        local: SocketAddr,
        remote: SocketAddr,
    },
    /// The IKE SA's own address is gone. It goes on from `local`, by a new IKE SA, or ends.
    AddressGone {
        ike_sa: IkeSaId,
        connection: String,
        gone: IpAddr,
        local: IpAddr,
    },
    /// Nothing was sent to the peer for a while. The embedder sends the one-octet keepalive (RFC 3948 §4) from the
    /// IKE socket, unless ESP went the same way within the interval.
    NatKeepalive {
        local: SocketAddr,
        remote: SocketAddr,
    },
    /// An attempt towards one address of a peer has failed, and the next address is tried.
    AddressFailed {
        connection: String,
        remote: IpAddr,
        reason: DownReason,
    },
    /// Our attempt to establish an IKE SA has failed.
    ConnectFailed {
        connection: String,
        reason: DownReason,
        retry_in: Option<Duration>,
    },
    /// A child SA could not be established or rekeyed. The IKE SA stays.
    ChildFailed {
        ike_sa: IkeSaId,
        connection: String,
        child: String,
        reason: ChildFailure,
    },
    /// The IKE SA could not be rekeyed. It stays, and is rekeyed later.
    RekeyFailed {
        ike_sa: IkeSaId,
        connection: String,
        reason: ChildFailure,
    },
    /// The peers could not authenticate again. The IKE SA stays until its hard end, unless the peer's certificate is revoked.
    ReauthenticationFailed {
        ike_sa: IkeSaId,
        connection: String,
        reason: DownReason,
        retry_in: Option<Duration>,
    },
    /// The status of a peer's certificates is not known. The embedder asks these places and calls
    /// [`crate::Endpoint::set_revocation`], with the outcome of each in the store. Until then the peer is neither accepted nor
    /// refused. A place can be named again while it is asked.
    StatusNeeded(Vec<StatusSource>),
    /// These host names are to be looked up: for an attempt that waits for them, or for a peer at an address that no
    /// connection has. The embedder puts the addresses into the configuration ([`crate::config::Config::set_names`],
    /// [`crate::Endpoint::set_config`]) and calls [`crate::Endpoint::names_looked_up`] in any case.
    NamesNeeded(Vec<String>),
    /// A peer has taken four fifths of what one identity may have. There is one event for each approach.
    LimitNear {
        peer: Identity,
        limit: PeerLimit,
        used: usize,
        most: usize,
    },
    /// The traffic of a child SA has begun or ceased to go one way.
    OneWay(Box<OneWayTold>),
    /// Traffic goes out, and the path to the peer is to be probed (RFC 8899). The embedder answers with
    /// [`crate::Endpoint::probe_path`].
    PathProbeDue {
        ike_sa: IkeSaId,
        local: SocketAddr,
        remote: SocketAddr,
    },
    /// Probes have found something about the path to the peer.
    PathProbed {
        ike_sa: IkeSaId,
        connection: String,
        remote: IpAddr,
        found: PathFound,
    },
    /// The peer has not answered the request of our attempt to establish an IKE SA, nor the first retransmissions. There
    /// is one event for each attempt.
    Unanswered(Box<Attempt>),
    /// A peer was refused. Limits apply to this event, because anybody can cause it.
    Refused(Box<RefusedPeer>),
    /// A message was sent or accepted. These events make a readable trace of the negotiation.
    Message(MessageTrace),
    KeyLog(KeyLog),
}

/// A child SA whose traffic has begun or ceased to go one way: it sends, nothing comes in, and its peer answers IKE.
#[derive(Clone, Debug)]
pub struct OneWayTold {
    pub ike_sa: IkeSaId,
    pub connection: String,
    pub child: ChildSaId,
    /// The name of the child.
    pub name: String,
    pub udp_encap: bool,
    pub protocol: Protocol,
    pub change: OneWayChange,
}

/// The result of probes of a path. Sizes are bytes of an IP packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PathFound {
    /// Packets of all sizes arrive that the embedder has named.
    Whole,
    /// Packets of up to `mtu` bytes arrive. Those of `lost` bytes do not.
    Narrow { mtu: u16, lost: u16 },
    /// No probe of any size is answered in time, so that nothing is known. What was found before still counts.
    Nothing,
    /// The peer has answered a probe with an error, or the IKE SA has ended over a probe. The peer gets no more for a
    /// day.
    Refused,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OneWayChange {
    /// If the trial of UDP encapsulation is [`UdpTrial::Wanted`], it begins now.
    Began(OneWay),
    /// Nothing has come in UDP either: a new IKE SA goes on without it.
    UdpInVain,
    /// A packet has come in. `by_udp`: it is the first since ESP goes in UDP.
    Ended { lasted: Duration, by_udp: bool },
    /// Nothing was sent for long, so that nothing can be said any more.
    Paused,
}

/// The peer that was refused, and the reason. The texts are bounded and escaped, whatever the peer has sent.
#[derive(Clone, Debug)]
pub struct RefusedPeer {
    pub local: SocketAddr,
    pub remote: SocketAddr,
    /// The name of the connection. It is `None` if no connection was chosen yet and the peer can mean several, or none.
    pub connection: Option<String>,
    /// The identity that the peer wants to talk to. If the peer names none, this is our own identity.
    pub local_id: Option<String>,
    /// The identity that the peer claims. The peer may not have proved it.
    pub remote_id: Option<String>,
    pub refusal: Refusal,
    pub why: String,
    pub offered: String,
    pub configured: String,
    /// Refusals since the last report that the limits have kept from being reported.
    pub unreported: u64,
}

#[derive(Clone, Debug)]
pub struct IkeSaUp {
    pub ike_sa: IkeSaId,
    pub connection: String,
    /// This end has initiated.
    pub initiator: bool,
    pub local: SocketAddr,
    pub remote: SocketAddr,
    pub local_id: Identity,
    pub remote_id: Identity,
    /// The groups of the connection that the peer has proved to be in.
    pub groups: Vec<GroupName>,
    pub nat_local: bool,
    pub nat_remote: bool,
    /// The ends have proved who they are over both messages of IKE_SA_INIT.
    pub full_transcript: bool,
    /// The algorithms as text, for example `AES_GCM_16-256/PRF_HMAC_SHA2_256/CURVE25519`.
    pub suite: String,
}

/// The algorithms of one pair of ESP or AH SAs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EspSuite {
    pub transform: Transform,
    pub sequence_numbers: SequenceNumbers,
}

impl fmt::Display for EspSuite {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.transform.encryption(), self.transform.key_bits()) {
            (None, _) => f.write_str("AH")?,
            (Some(cipher), 0) => write!(f, "{cipher}")?,
            (Some(cipher), bits) => write!(f, "{cipher}-{bits}")?,
        }
        if let Some(integrity) = self.transform.integrity() {
            write!(f, "/{integrity}")?;
        }
        write!(f, "/{}", self.sequence_numbers)
    }
}

/// All that the data plane needs for one pair of ESP or AH SAs.
#[derive(Clone)]
pub struct ChildSaInstalled {
    pub ike_sa: IkeSaId,
    pub child: ChildSaId,
    pub connection: String,
    /// The name of the child in the configuration, and of its policy.
    pub name: String,
    /// This end has initiated the exchange that made the SA.
    pub initiator: bool,
    pub mode: Mode,
    /// The peer accepts TFC padding (RFC 7296 §1.3.1).
    pub tfc: bool,
    /// Both ends accept non-first fragments on an SA for certain ports (RFC 4301 §7.3).
    pub non_first_fragments: bool,
    pub local_ts: Vec<TrafficSelector>,
    pub remote_ts: Vec<TrafficSelector>,
    pub spi_in: u32,
    pub spi_out: u32,
    pub esp: EspSuite,
    /// The keys of the inbound SA in the order of RFC 7296 §2.17: encryption key with salt, then integrity key.
    pub key_in: Secret,
    pub key_out: Secret,
    /// The ports matter only with `udp_encap`.
    pub local: SocketAddr,
    pub remote: SocketAddr,
    pub udp_encap: bool,
    /// Soft limits have jitter, hard ones have none; zero is without limit. The data plane counts, and calls
    /// [`crate::Endpoint::rekey_child_sa`] or [`crate::Endpoint::expire_child_sa`].
    pub soft_bytes: u64,
    pub hard_bytes: u64,
    pub soft_packets: u64,
    pub hard_packets: u64,
    /// The endpoint deletes the SA after this time. The data plane must not pass packets after it either.
    pub life_time: Duration,
    pub replay_window: u32,
    pub peer_replay_window: u32,
    /// The SA that this one replaces.
    pub rekeyed_from: Option<ChildSaId>,
}

impl fmt::Debug for ChildSaInstalled {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ChildSaInstalled")
            .field("ike_sa", &self.ike_sa)
            .field("child", &self.child)
            .field("connection", &self.connection)
            .field("name", &self.name)
            .field("spi_in", &format_args!("{:08x}", self.spi_in))
            .field("spi_out", &format_args!("{:08x}", self.spi_out))
            .field("esp", &format_args!("{}", self.esp))
            .field("local_ts", &self.local_ts)
            .field("remote_ts", &self.remote_ts)
            .field("rekeyed_from", &self.rekeyed_from)
            .finish_non_exhaustive()
    }
}

/// A limit on what one identity may have ([`crate::config::Limits`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PeerLimit {
    IkeSas,
    ChildSas,
    /// Pairs of a local and a remote selector, of all child SAs.
    Selectors,
}

#[derive(Clone, Debug)]
pub struct ChildSaDeleted {
    pub ike_sa: IkeSaId,
    pub child: ChildSaId,
    pub connection: String,
    pub name: String,
    pub spi_in: u32,
    pub spi_out: u32,
    /// The time for which the inbound half stays, for packets in flight. The data plane frees `spi_in` afterwards.
    pub linger: Duration,
    /// Another SA has replaced this one, or carries the same traffic of the peer when the peer deletes this one.
    pub replaced: bool,
    pub reason: DownReason,
    /// `Trap`: the policy stays, so that traffic can ask for a new SA. `Start`: the endpoint establishes a new SA.
    pub then: EndAction,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    Sent,
    Received,
}

/// The trace of one message of a negotiation. It says what the message carried, and never a value that must stay
/// secret.
#[derive(Clone, Debug)]
pub struct MessageTrace {
    pub ike_sa: IkeSaId,
    pub connection: String,
    pub direction: Direction,
    pub local: SocketAddr,
    pub remote: SocketAddr,
    pub exchange: &'static str,
    pub response: bool,
    pub message_id: u32,
    /// The names of payloads and notifies, for example `SA KE No N(NAT_DETECTION_SOURCE_IP)`.
    pub payloads: String,
    pub len: usize,
}

/// The keys of one IKE SA. They are given only with [`crate::config::Config::key_log`].
#[derive(Clone)]
pub struct KeyLog {
    pub ike_sa: IkeSaId,
    pub spi_i: u64,
    pub spi_r: u64,
    pub sk_ei: Secret,
    pub sk_er: Secret,
    pub sk_ai: Secret,
    pub sk_ar: Secret,
    pub suite: Suite,
}

impl KeyLog {
    /// Returns a line of the file `ikev2_decryption_table` in Wireshark's profile. Returns `None` if Wireshark lacks an
    /// algorithm of the SA.
    pub fn wireshark_line(&self) -> Option<Secret> {
        let hex = |secret: &Secret| {
            let mut text = zeroize::Zeroizing::new(String::with_capacity(2 * secret.len()));
            for byte in secret.expose() {
                for digit in [byte >> 4, byte & 15] {
                    text.push(char::from_digit(u32::from(digit), 16).unwrap_or('?'));
                }
            }
            text
        };
        let cipher = match self.suite.encryption {
            Encryption::AesCbc => ("AES-CBC", "[RFC3602]"),
            Encryption::AesGcm8 => ("AES-GCM", "with 8 octet ICV [RFC5282]"),
            Encryption::AesGcm12 => ("AES-GCM", "with 12 octet ICV [RFC5282]"),
            Encryption::AesGcm16 => ("AES-GCM", "with 16 octet ICV [RFC5282]"),
            Encryption::AesCcm8 => ("AES-CCM", "with 8 octet ICV [RFC5282]"),
            Encryption::AesCcm12 => ("AES-CCM", "with 12 octet ICV [RFC5282]"),
            Encryption::AesCcm16 => ("AES-CCM", "with 16 octet ICV [RFC5282]"),
            _ => return None,
        };
        let encryption = format!("{}-{} {}", cipher.0, self.suite.key_bits, cipher.1);
        let integrity = match self.suite.integrity {
            None => "NONE [RFC4306]",
            Some(Integrity::HmacSha1_96) => "HMAC_SHA1_96 [RFC2404]",
            Some(Integrity::HmacSha2_256_128) => "HMAC_SHA2_256_128 [RFC4868]",
            Some(Integrity::HmacSha2_384_192) => "HMAC_SHA2_384_192 [RFC4868]",
            Some(Integrity::HmacSha2_512_256) => "HMAC_SHA2_512_256 [RFC4868]",
            Some(_) => return None,
        };
        let keys = [&self.sk_ei, &self.sk_er, &self.sk_ai, &self.sk_ar].map(hex);
        let line = format!(
            "{:016x},{:016x},{},{},\"{encryption}\",{},{},\"{integrity}\"",
            self.spi_i, self.spi_r, *keys[0], *keys[1], *keys[2], *keys[3]
        );
        Some(Secret::from(line.into_bytes()))
    }
}

impl fmt::Debug for KeyLog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "KeyLog({}, keys withheld)", self.ike_sa)
    }
}
