//! UDP payloads and the non-ESP marker (RFC 3948 §2.2): on the NAT-T port four zero bytes precede each IKE message.

use std::net::{IpAddr, SocketAddr};

use crate::refusal::Refusal;
use crate::wire::Header;

const NON_ESP_MARKER: [u8; 4] = [0; 4];
const IPV4_HEADER_LEN: usize = 20;
const IPV6_HEADER_LEN: usize = 40;
const UDP_HEADER_LEN: usize = 8;
/// RFC 3948 §2.3.
const NAT_KEEPALIVE: [u8; 1] = [0xff];

/// A received IKE message: its header in clear, its bytes, and the addresses of its datagram.
#[derive(Clone, Copy)]
pub(crate) struct ReceivedMessage<'a> {
    pub(crate) header: Header,
    /// The message without the non-ESP marker.
    pub(crate) datagram: &'a [u8],
    /// The bytes of the message. One in fragments has more than its datagram, which is the first of them.
    pub(crate) len: usize,
    pub(crate) local: SocketAddr,
    pub(crate) remote: SocketAddr,
}

impl ReceivedMessage<'_> {
    /// Our address and the peer's.
    pub(crate) fn hosts(&self) -> (IpAddr, IpAddr) {
        (self.local.ip(), self.remote.ip())
    }
}

/// Returns the IKE message in a UDP payload, or `None` if the payload is a NAT keepalive.
pub(crate) fn ike_message(payload: &[u8], nat_t: bool) -> Result<Option<&[u8]>, Refusal> {
    if !nat_t {
        return Ok(Some(payload));
    }
    if payload == NAT_KEEPALIVE {
        return Ok(None);
    }
    match payload.strip_prefix(&NON_ESP_MARKER) {
        Some(message) => Ok(Some(message)),
        None => Err(Refusal::NoMarker),
    }
}

/// The UDP payload that carries an IKE message.
pub(crate) fn udp_payload(message: &[u8], nat_t: bool) -> Vec<u8> {
    let marker: &[u8] = if nat_t { &NON_ESP_MARKER } else { &[] };
    [marker, message].concat()
}

/// The length of the IKE message in an IP datagram of `len` bytes.
pub(crate) fn message_len(len: u16, remote: IpAddr, nat_t: bool) -> usize {
    let ip = match remote {
        IpAddr::V4(_) => IPV4_HEADER_LEN,
        IpAddr::V6(_) => IPV6_HEADER_LEN,
    };
    let marker = if nat_t { NON_ESP_MARKER.len() } else { 0 };
    usize::from(len).saturating_sub(ip + UDP_HEADER_LEN + marker)
}
