//! Transport of IKE messages: UDP payloads, message IDs and the window of one, retransmission (RFC 7296 §2.1 to §2.4),
//! and fragments that come in (RFC 7383 §2.6).

mod datagram;
mod reassembly;
mod retransmission;
mod window;

pub(crate) use datagram::{ReceivedMessage, ike_message, message_len, udp_payload};
pub(crate) use reassembly::{FragmentEffect, ReassemblyFull, ReassemblyLimits};
pub(crate) use window::{Expiry, ProbeOutcome, RequestStatus, Urgency, Window};
