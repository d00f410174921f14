//! Sends ICMP echo requests from inside a namespace (RFC 792).

use std::io::{self, Read};
use std::net::{Ipv4Addr, SocketAddrV4};
use std::time::{Duration, Instant};

use socket2::{Domain, Protocol, Socket, Type};

use super::capture::MARKER;
use super::frame::checksum;
use super::lab::Namespace;

const PAYLOAD_LEN: usize = 56;
const ECHO_REQUEST: u8 = 8;
const ECHO_REPLY: u8 = 0;
const TIMEOUT: Duration = Duration::from_secs(1);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EchoReply {
    pub sequence: u16,
    pub len: usize,
    pub ttl: u8,
    pub rtt: Duration,
}

/// Sends echo requests one after the other. Calls `each` with the reply, or with `None` after a
/// second without one.
pub fn ping(
    from: &Namespace,
    to: Ipv4Addr,
    count: u16,
    interval: Duration,
    mut each: impl FnMut(u16, Option<EchoReply>),
) -> io::Result<()> {
    let socket = from.run(|| Socket::new(Domain::IPV4, Type::RAW, Some(Protocol::ICMPV4)))?;
    let identifier = std::process::id() as u16;
    for sequence in 1..=count {
        let request = echo_request(identifier, sequence);
        let sent = Instant::now();
        socket.send_to(&request, &SocketAddrV4::new(to, 0).into())?;
        each(sequence, await_reply(&socket, &request, sent)?);
        if sequence < count {
            std::thread::sleep(interval.saturating_sub(sent.elapsed()));
        }
    }
    Ok(())
}

fn await_reply(socket: &Socket, request: &[u8], sent: Instant) -> io::Result<Option<EchoReply>> {
    let mut buffer = [0; 2048];
    loop {
        let left = TIMEOUT.saturating_sub(sent.elapsed());
        if left.is_zero() {
            return Ok(None);
        }
        socket.set_read_timeout(Some(left))?;
        match (&*socket).read(&mut buffer) {
            Ok(len) => {
                let packet = buffer.get(..len).unwrap_or_default();
                if let Some(reply) = parse_reply(packet, request, sent.elapsed()) {
                    return Ok(Some(reply));
                }
            }
            Err(error)
                if matches!(
                    error.kind(),
                    io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted
                ) => {}
            Err(error) => return Err(error),
        }
    }
}

fn echo_request(identifier: u16, sequence: u16) -> Vec<u8> {
    let mut packet = vec![ECHO_REQUEST, 0, 0, 0];
    packet.extend(identifier.to_be_bytes());
    packet.extend(sequence.to_be_bytes());
    packet.extend(MARKER.iter().cycle().take(PAYLOAD_LEN));
    let sum = checksum(&[&packet]).to_be_bytes();
    if let Some(place) = packet.get_mut(2..4) {
        place.copy_from_slice(&sum);
    }
    packet
}

/// Parses a reply. It must return the identifier, the sequence number and the content unchanged.
fn parse_reply(packet: &[u8], request: &[u8], rtt: Duration) -> Option<EchoReply> {
    let header_len = usize::from(packet.first()? & 0x0f) * 4;
    let icmp = packet.get(header_len..)?;
    let same = icmp.first() == Some(&ECHO_REPLY) && icmp.get(4..)? == request.get(4..)?;
    let sequence = u16::from_be_bytes(request.get(6..8)?.try_into().ok()?);
    same.then_some(EchoReply {
        sequence,
        len: icmp.len(),
        ttl: *packet.get(8)?,
        rtt,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_unchanged_echo_is_a_reply() {
        let request = echo_request(77, 3);
        assert_eq!(checksum(&[&request]), 0);
        assert_eq!(request.len(), 8 + PAYLOAD_LEN);
        let mut packet = vec![
            0x45, 0, 0, 84, 0, 0, 0, 0, 62, 1, 0, 0, 10, 2, 0, 2, 10, 1, 0, 2,
        ];
        packet.extend(&request);
        packet[20] = ECHO_REPLY;
        let reply = parse_reply(&packet, &request, TIMEOUT).unwrap();
        assert_eq!((reply.sequence, reply.ttl, reply.len), (3, 62, 64));
        packet[60] ^= 1;
        assert_eq!(parse_reply(&packet, &request, TIMEOUT), None);
        assert_eq!(parse_reply(&[0x4f], &request, TIMEOUT), None);
    }
}
