//! Snapshots of SAs and children for `status` and the control socket, and the counters of the endpoint.

use std::net::SocketAddr;
use std::time::Instant;

use esplanade_counters::Counter;
use esplanade_crypto::iana::Group;

use crate::config::{Identity, Mode};
use crate::event::{ChildSaId, EspSuite, IkeSaId};
pub use crate::nat::UdpTrial;
pub use crate::refusal::Refusal;
pub use crate::silence::{Attempt, OneWay, Silence};
use crate::suite::Suite;
use crate::wire::TrafficSelector;
use esplanade_pki::attributes::GroupName;

/// The status of an IKE SA at one moment.
#[derive(Clone, Debug)]
pub struct IkeSaStatus {
    pub id: IkeSaId,
    /// The name of the connection. It is `None` if the SA is half-open, because its peer has not yet said who it is.
    pub connection: Option<String>,
    pub state: IkeSaState,
    pub initiator: bool,
    pub local: SocketAddr,
    pub remote: SocketAddr,
    pub local_id: Option<Identity>,
    pub remote_id: Option<Identity>,
    /// The groups of the connection that the peer has proved to be in.
    pub groups: Vec<GroupName>,
    pub spi_i: u64,
    pub spi_r: u64,
    pub nat_local: bool,
    pub nat_remote: bool,
    /// Both ends take fragments of IKE messages (RFC 7383 §2.3).
    pub fragmentation: bool,
    /// The ends have proved who they are over both messages of IKE_SA_INIT.
    pub full_transcript: bool,
    /// The suite. It is `None` if no suite is chosen yet.
    pub suite: Option<Suite>,
    pub established: Option<Instant>,
    pub rekey_at: Option<Instant>,
    pub expires_at: Option<Instant>,
    /// The time at which the peers are to authenticate again.
    pub reauth_at: Option<Instant>,
    /// The last attempt to authenticate again has failed.
    pub reauth_failure: Option<GoalFailure>,
    /// The last attempt to rekey the SA has failed.
    pub rekey_failure: Option<GoalFailure>,
    /// The exchange of ours that waits for its response.
    pub task_active: Option<&'static str>,
    pub tasks_queued: Vec<&'static str>,
    pub children: Vec<ChildSaStatus>,
}

/// The phase of an IKE SA.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IkeSaState {
    /// IKE_SA_INIT or IKE_AUTH is under way.
    Connecting,
    Established,
    /// A rekey is under way.
    Rekeying,
    /// A rekey has replaced the SA. It is not deleted yet.
    Rekeyed,
    Deleting,
}

impl IkeSaState {
    pub const fn name(self) -> &'static str {
        match self {
            Self::Connecting => "CONNECTING",
            Self::Established => "ESTABLISHED",
            Self::Rekeying => "REKEYING",
            Self::Rekeyed => "REKEYED",
            Self::Deleting => "DELETING",
        }
    }
}

/// The status of a child SA at one moment. The data plane has its byte and packet counts.
#[derive(Clone, Debug)]
pub struct ChildSaStatus {
    pub id: ChildSaId,
    pub name: String,
    pub state: ChildSaState,
    pub mode: Mode,
    pub spi_in: u32,
    pub spi_out: u32,
    pub esp: EspSuite,
    /// The method of its own key exchange. It is `None` if the child's keys come from the IKE SA's keys alone.
    pub key_exchange: Option<Group>,
    pub local_ts: Vec<TrafficSelector>,
    pub remote_ts: Vec<TrafficSelector>,
    pub udp_encap: bool,
    /// The SA sends and receives nothing, although its peer answers IKE.
    pub one_way: Option<OneWay>,
    pub installed: Instant,
    pub rekey_at: Option<Instant>,
    pub expires_at: Option<Instant>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChildSaState {
    Installed,
    Rekeying,
    /// Another SA has replaced this one. It is not deleted yet.
    Rekeyed,
    Deleting,
}

impl ChildSaState {
    pub const fn name(self) -> &'static str {
        match self {
            Self::Installed => "INSTALLED",
            Self::Rekeying => "REKEYING",
            Self::Rekeyed => "REKEYED",
            Self::Deleting => "DELETING",
        }
    }
}

/// The status of a configured child at one moment.
#[derive(Clone, Debug)]
pub struct ConfiguredChild {
    pub connection: String,
    pub child: String,
    pub state: ConfiguredState,
    /// The endpoint is to have the child up by itself.
    pub wanted: bool,
    /// The time at which the endpoint next tries to establish the child.
    pub next_at: Option<Instant>,
    /// The reason why the child is not up, if an attempt has failed.
    pub failure: Option<GoalFailure>,
    /// The attempt under way, if a request of it waits for an answer.
    pub attempt: Option<Attempt>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConfiguredState {
    /// The child has a child SA.
    Up,
    /// An exchange is under way.
    Connecting,
    /// The child waits for its next attempt.
    Waiting,
    /// A command has closed the child.
    Closed,
    /// The endpoint is not about to establish the child. The peer, traffic or a command can have it established.
    Down,
}

impl ConfiguredState {
    pub const fn name(self) -> &'static str {
        match self {
            Self::Up => "UP",
            Self::Connecting => "CONNECTING",
            Self::Waiting => "WAITING",
            Self::Closed => "CLOSED",
            Self::Down => "DOWN",
        }
    }
}

/// The failure to bring up a child, or to authenticate again, and its time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GoalFailure {
    pub at: Instant,
    pub why: String,
}

/// Declares the counters once: their fields, and their names and meanings for those who show them.
macro_rules! counters {
    ($($(#[doc = $help:literal])+ $name:ident: $unit:ident,)*) => {
        /// The counts of the endpoint since its start.
        #[derive(Clone, Debug)]
        pub struct IkeCounters {
            refused: [u64; Refusal::ALL.len()],
            $($(#[doc = $help])+ pub $name: u64,)*
        }

        impl Default for IkeCounters {
            fn default() -> Self {
                Self {
                    refused: [0; Refusal::ALL.len()],
                    $($name: 0,)*
                }
            }
        }

        impl IkeCounters {
            /// Every counter besides the refusals.
            pub const COUNTERS: &[Counter] =
                esplanade_counters::table!($($(#[doc = $help])+ $name: $unit,)*);

            /// Returns the counts, in the order of [`Self::COUNTERS`].
            pub fn iter(&self) -> impl Iterator<Item = u64> {
                [$(self.$name,)*].into_iter()
            }
        }
    };
}

counters! {
    /// IKE messages received.
    messages_received: Messages,
    /// IKE messages sent.
    messages_sent: Messages,
    /// Fragments among the messages received. Only those are counted that authenticate.
    fragments_received: Fragments,
    /// Fragments among the messages sent.
    fragments_sent: Fragments,
    /// Messages that were put together from fragments.
    messages_reassembled: Messages,
    /// Requests sent again, because no answer came.
    retransmissions_sent: Messages,
    /// Probes of path MTUs sent.
    path_probes_sent: Messages,
    /// Probes of path MTUs that were answered only after a short request was sent in their place.
    path_probes_lost: Messages,
    /// IKE SAs that came up, those of rekeys too.
    ike_sas_established: Sas,
    /// Child SAs that came up, those of rekeys too.
    child_sas_installed: Sas,
    /// IKE SAs replaced by rekeying.
    ike_rekeys: Sas,
    /// IKE SAs replaced by a reauthentication that we began (RFC 7296 §2.8.3).
    ike_reauthentications: Sas,
    /// Child SAs replaced by rekeying.
    child_rekeys: Sas,
    /// Attempts to establish an IKE SA that failed.
    connect_failures: Attempts,
    /// IKE SAs whose peer has not answered.
    peers_timed_out: Sas,
    /// Half-open SAs that were dropped to make room for others.
    half_open_dropped: Sas,
}

impl IkeCounters {
    pub fn refused(&self, reason: Refusal) -> u64 {
        self.refused[reason as usize]
    }

    pub(crate) fn count(&mut self, reason: Refusal) {
        self.refused[reason as usize] += 1;
    }
}
