//! What comes out of an [`crate::Endpoint`]: datagrams to send and events for the data plane.

use std::fmt;
use std::net::SocketAddr;
use std::time::Duration;

use esplanade_crypto::iana::{Encryption, Integrity, SequenceNumbers};
use esplanade_crypto::secret::Secret;
use esplanade_crypto::transform::Transform;

use crate::config::{EndAction, Identity, Mode};
use crate::refusal::Refusal;
use crate::suite::Suite;
use crate::wire::TrafficSelector;

pub use crate::failure::{ChildFailure, DownReason};
pub use crate::id::{ChildSaId, IkeSaId};

/// One UDP payload to send.
#[derive(Clone, PartialEq, Eq)]
pub struct Transmit {
    pub local: SocketAddr,
    pub remote: SocketAddr,
    /// With the non-ESP marker where the port asks for it.
    pub payload: Vec<u8>,
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

/// What has happened. Events are complete and in order: acting on each one in turn keeps the data plane right.
///
/// The life of one child SA is `ChildSaInstalled`, `ChildSaUseOutbound`, `ChildSaDeleted`, each exactly once, but
/// that an SA can be deleted before its outbound half was used.
///
/// A rekey loses no packet when the data plane follows this order (RFC 7296 section 2.8):
/// - The responder of the rekey gets `ChildSaInstalled` before its answer leaves: it can receive on the new SA,
///   and still sends on the old one.
/// - The initiator gets `ChildSaInstalled` and `ChildSaUseOutbound` with the answer.
/// - The responder gets `ChildSaUseOutbound` when the initiator deletes the old SA, or when the data plane reports
///   traffic on the new one by [`crate::Endpoint::note_inbound_traffic`].
/// - `ChildSaDeleted` of the old SA stops its outbound half at once; its inbound half stays for `linger`, for the
///   packets in flight.
#[derive(Clone, Debug)]
pub enum Event {
    IkeSaUp(IkeSaUp),
    /// `new` takes over the children and the name of `old`; `old` has no `IkeSaDown`.
    IkeSaRekeyed {
        old: IkeSaId,
        new: IkeSaId,
        connection: String,
    },
    /// An IKE SA that was up has ended. Its children were deleted before.
    IkeSaDown {
        ike_sa: IkeSaId,
        connection: String,
        reason: DownReason,
    },
    /// The SA can receive. It must not send before `ChildSaUseOutbound`.
    ChildSaInstalled(Box<ChildSaInstalled>),
    /// The SA is the one to send with from now on.
    ChildSaUseOutbound {
        child: ChildSaId,
    },
    ChildSaDeleted(ChildSaDeleted),
    /// No traffic was noted for as long as `inactivity` says. If the data plane has seen none either, it answers with
    /// [`crate::Endpoint::close_idle_child_sa`]; otherwise it notes what it has seen, and is asked again later.
    ChildSaIdle {
        child: ChildSaId,
    },
    /// The peer's address or port behind its NAT has changed (RFC 7296 section 2.23). All children of the IKE SA
    /// send to the new place.
    PeerMoved {
        ike_sa: IkeSaId,
        children: Vec<ChildSaId>,
        local: SocketAddr,
        remote: SocketAddr,
    },
    /// Nothing was sent to the peer for a while: send the one-octet keepalive (RFC 3948 section 4) from the IKE
    /// socket unless ESP went that way within the interval.
    NatKeepalive {
        local: SocketAddr,
        remote: SocketAddr,
    },
    /// An attempt to establish an IKE SA as initiator has failed.
    ConnectFailed {
        connection: String,
        reason: DownReason,
        retry_in: Option<Duration>,
    },
    /// A child SA could not be established or rekeyed; the IKE SA stays.
    ChildFailed {
        ike_sa: IkeSaId,
        connection: String,
        child: String,
        reason: ChildFailure,
    },
    /// The IKE SA could not be rekeyed; it stays, and is tried again.
    RekeyFailed {
        ike_sa: IkeSaId,
        connection: String,
        reason: ChildFailure,
    },
    /// A peer was refused. Not every refusal is told: strangers can cause them.
    Refused(Box<RefusedPeer>),
    /// One message was sent or accepted: for a readable trace of the negotiation.
    Message(MessageTrace),
    KeyLog(KeyLog),
}

/// Why a peer was refused. The texts are bounded and escaped, whatever the peer has sent.
#[derive(Clone, Debug)]
pub struct RefusedPeer {
    pub local: SocketAddr,
    pub remote: SocketAddr,
    /// None before one is chosen.
    pub connection: Option<String>,
    /// Whom the peer wants to talk to, if it says so, or who we are.
    pub local_id: Option<String>,
    /// Who the peer says it is, proved or not.
    pub remote_id: Option<String>,
    pub refusal: Refusal,
    pub why: String,
    pub offered: String,
    pub configured: String,
    /// Refusals that the limits have kept from being reported, since the last report.
    pub unreported: u64,
}

#[derive(Clone, Debug)]
pub struct IkeSaUp {
    pub ike_sa: IkeSaId,
    pub connection: String,
    /// Whether this end has initiated.
    pub initiator: bool,
    pub local: SocketAddr,
    pub remote: SocketAddr,
    pub local_id: Identity,
    pub remote_id: Identity,
    pub nat_local: bool,
    pub nat_remote: bool,
    /// Readable, for example `AES_GCM_16-256/PRF_HMAC_SHA2_256/CURVE25519`.
    pub suite: String,
}

/// What ESP is done with.
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

/// All that the data plane needs for one pair of ESP SAs.
#[derive(Clone)]
pub struct ChildSaInstalled {
    pub ike_sa: IkeSaId,
    pub child: ChildSaId,
    pub connection: String,
    /// The name of the child in the configuration, and of its policy.
    pub name: String,
    /// Whether this end has initiated the exchange that made it.
    pub initiator: bool,
    pub mode: Mode,
    /// The peer takes TFC padding (RFC 7296 section 1.3.1).
    pub tfc: bool,
    /// Both ends take later fragments on an SA for certain ports (RFC 4301 section 7.3).
    pub non_first_fragments: bool,
    pub local_ts: Vec<TrafficSelector>,
    pub remote_ts: Vec<TrafficSelector>,
    pub spi_in: u32,
    pub spi_out: u32,
    pub esp: EspSuite,
    /// Keys of the SA that receives, in the order of RFC 7296 section 2.17: cipher key (and salt), integrity key.
    pub key_in: Secret,
    pub key_out: Secret,
    /// The port counts only with `udp_encap`.
    pub local: SocketAddr,
    pub remote: SocketAddr,
    pub udp_encap: bool,
    /// Randomised soft and fixed hard limits; zero: none. The data plane counts bytes and packets and calls
    /// [`crate::Endpoint::rekey_child_sa`] or [`crate::Endpoint::expire_child_sa`].
    pub soft_bytes: u64,
    pub hard_bytes: u64,
    pub soft_packets: u64,
    pub hard_packets: u64,
    /// The endpoint watches it; the data plane may let nothing pass after it.
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

#[derive(Clone, Debug)]
pub struct ChildSaDeleted {
    pub ike_sa: IkeSaId,
    pub child: ChildSaId,
    pub connection: String,
    pub name: String,
    pub spi_in: u32,
    pub spi_out: u32,
    /// How long the inbound half stays for packets in flight. The data plane frees `spi_in` after it.
    pub linger: Duration,
    /// Another SA has its place.
    pub replaced: bool,
    pub reason: DownReason,
    /// `Trap`: keep the policy so that traffic can ask for a new SA. `Start`: the endpoint is about to.
    pub then: EndAction,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    Sent,
    Received,
}

/// One message of a negotiation; says what it carried, never a value that must stay secret.
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
    /// Names of payloads and notifies, for example `SA KE No N(NAT_DETECTION_SOURCE_IP)`.
    pub payloads: String,
    pub len: usize,
}

/// One line for Wireshark's `ikev2_decryption_table`. Exists only with [`crate::config::Config::key_log`].
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
    /// One line of the file `ikev2_decryption_table` in Wireshark's profile. None if it lacks an algorithm.
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
