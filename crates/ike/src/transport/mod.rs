//! Transport of IKE messages: UDP payloads, message IDs and the window of one, retransmission (RFC 7296 §2.1 to §2.4).

mod datagram;
mod retransmission;
mod window;

pub(crate) use datagram::{ReceivedMessage, ike_message, udp_payload};
pub(crate) use window::{Expiry, RequestStatus, Window};
