//! IKE SAs: the phases as types, the child SAs, and what every exchange needs of them.
//!
//! ```text
//! initiator  InitSent ──> AuthDue ──> AuthSent ──> Established ──> Closing ──> Closed
//! responder  InitReceived ──> InitResponded ──────> Established ──> Rekeyed ──> Gone ──> Closed
//! ```
//! [`IkeSa::advance`] is the one place where an SA changes its phase. `crate::exchange` has the exchanges that lead from one
//! phase to the next.

mod attempt;
mod child_lifecycle;
mod child_sa;
mod context;
mod due_end;
mod ending;
mod established;
mod held_message;
mod ike_sa;
mod lifetimes;
mod liveness;
mod mapping;
mod one_way;
mod path_probing;
mod path_search;
mod phase;
mod queue;
mod sending;
mod task;
mod traffic;
mod waiting;

use std::time::{Duration, Instant};

pub(crate) use child_lifecycle::AgreedChild;
pub(crate) use child_sa::{ChildRequest, ChildSa, ChildState};
pub(crate) use context::{Context, Effect, Retirement};
pub(crate) use due_end::DueEnd;
pub(crate) use ending::Ending;
pub(crate) use established::Established;
pub(crate) use held_message::{HeldMessage, KnownProofs};
pub(crate) use ike_sa::{ConnectProgress, IkeSa, IkeSaCommon};
pub(crate) use mapping::PeerMapping;
pub(crate) use one_way::TrafficPast;
pub(crate) use phase::{
    AuthDue, AuthSent, Closing, InitChoice, InitReceived, InitResponded, InitSent, InitTranscript,
    Phase, Rekeyed,
};
pub(crate) use sending::send_again;
pub(crate) use task::{
    PendingChild, PendingExchange, PendingIkeRekey, QueuedTask, SimultaneousChildRekey,
    SimultaneousIkeRekey, Task,
};

/// A time that the clock cannot count to never comes: configured times have no upper bound.
fn deadline(from: Instant, after: Duration) -> Option<Instant> {
    from.checked_add(after)
}
