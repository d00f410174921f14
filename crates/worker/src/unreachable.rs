//! Peers that ICMP errors call unreachable.
//!
//! Anybody can forge such an error, so that nothing follows from it (RFC 7296 §2.4). It is a hint for people while a
//! peer does not answer.

use std::net::IpAddr;
use std::sync::{Mutex, PoisonError};

use esplanade_ipsec::wire::icmp::Reported;

/// Most addresses that are remembered. The newest ones stay.
const ADDRESSES_MAX: usize = 64;
/// The age up to which an error is a hint. A request is sent again within this time.
const AGE_MAX_MS: u64 = 120_000;

const PROTOCOL_UDP: u8 = 17;
const V4_UNREACHABLE: u8 = 3;
const V6_UNREACHABLE: u8 = 1;

#[derive(Clone, Copy, Debug)]
struct Hint {
    remote: IpAddr,
    what: &'static str,
    at_ms: u64,
}

/// The newest error about each address. All workers and the control thread share it.
#[derive(Debug, Default)]
pub struct UnreachablePeers(Mutex<Vec<Hint>>);

impl UnreachablePeers {
    /// Remembers an error if it is about a datagram from one of our ports.
    pub(super) fn note(&self, reported: &Reported<'_>, ports: &[u16], now_ms: u64) {
        if let Some((remote, what)) = read(reported, ports) {
            let mut hints = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            hints.retain(|hint| hint.remote != remote);
            if hints.len() >= ADDRESSES_MAX {
                hints.remove(0);
            }
            let at_ms = now_ms;
            hints.push(Hint {
                remote,
                what,
                at_ms,
            });
        }
    }

    /// Returns what the newest error says of an address, and the seconds since then.
    pub fn hint(&self, remote: IpAddr, now_ms: u64) -> Option<(&'static str, u64)> {
        let hints = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let hint = hints.iter().find(|hint| hint.remote == remote)?;
        let age = now_ms.saturating_sub(hint.at_ms);
        (age <= AGE_MAX_MS).then_some((hint.what, age / 1000))
    }
}

/// Returns the peer that an error is about, and what the error says (RFC 792, RFC 1812 §5.2.7.1, RFC 4443 §3.1).
fn read(reported: &Reported<'_>, ports: &[u16]) -> Option<(IpAddr, &'static str)> {
    let about = reported.about;
    let version = about.first()? >> 4;
    let what = match (version, reported.kind, reported.code) {
        (4, V4_UNREACHABLE, 0 | 5 | 6 | 11) | (6, V6_UNREACHABLE, 0) => "no route to the network",
        (4, V4_UNREACHABLE, 1 | 7 | 12) | (6, V6_UNREACHABLE, 3) => "the host is unreachable",
        (4, V4_UNREACHABLE, 2 | 3) | (6, V6_UNREACHABLE, 4) => "nothing listens on the UDP port",
        (4, V4_UNREACHABLE, 9 | 10 | 13) | (6, V6_UNREACHABLE, 1 | 5 | 6) => "a filter refuses it",
        _ => return None,
    };
    let (remote, protocol, header_len): (IpAddr, u8, usize) = match version {
        4 => {
            let remote: [u8; 4] = *about.get(16..)?.first_chunk()?;
            let header_len = usize::from(about.first()? & 0x0f) * 4;
            (remote.into(), *about.get(9)?, header_len)
        }
        _ => {
            let remote: [u8; 16] = *about.get(24..)?.first_chunk()?;
            (remote.into(), *about.get(6)?, 40)
        }
    };
    let source = u16::from_be_bytes(*about.get(header_len..)?.first_chunk()?);
    (protocol == PROTOCOL_UDP && ports.contains(&source)).then_some((remote, what))
}

#[cfg(test)]
mod tests {
    use super::*;

    const PEER: [u8; 4] = [198, 51, 100, 1];

    /// The header of a UDP datagram from this port to the peer.
    fn quote(protocol: u8, source: u16) -> Vec<u8> {
        let mut about = vec![0; 28];
        (about[0], about[9]) = (0x45, protocol);
        about[16..20].copy_from_slice(&PEER);
        about[20..22].copy_from_slice(&source.to_be_bytes());
        about
    }

    fn note(peers: &UnreachablePeers, about: &[u8], code: u8, now_ms: u64) {
        let reported = Reported {
            kind: V4_UNREACHABLE,
            code,
            mtu: None,
            about,
        };
        peers.note(&reported, &[500, 4500], now_ms);
    }

    #[test]
    fn an_error_about_a_datagram_of_ours_is_a_hint_for_a_while() {
        let peers = UnreachablePeers::default();
        let remote = IpAddr::from(PEER);
        for (protocol, source, code) in [(17, 501, 3), (6, 500, 3), (17, 500, 4)] {
            note(&peers, &quote(protocol, source), code, 0);
            assert_eq!(peers.hint(remote, 0), None);
        }
        note(&peers, &quote(17, 500), 1, 1000);
        note(&peers, &quote(17, 4500), 3, 5000);
        let hint = |now_ms| peers.hint(remote, now_ms);
        assert_eq!(hint(9000), Some(("nothing listens on the UDP port", 4)));
        assert_eq!(hint(5001 + AGE_MAX_MS), None);
        assert_eq!(peers.hint(IpAddr::from([198, 51, 100, 2]), 9000), None);
    }

    #[test]
    fn forged_errors_take_no_more_room() {
        let peers = UnreachablePeers::default();
        for last in 0..=255 {
            let mut about = quote(17, 500);
            about[19] = last;
            note(&peers, &about, 3, 0);
        }
        assert_eq!(peers.0.lock().unwrap().len(), ADDRESSES_MAX);
    }

    #[test]
    fn a_quote_that_is_cut_off_says_nothing() {
        let whole = quote(17, 500);
        for len in 0..22 {
            let reported = Reported {
                kind: V4_UNREACHABLE,
                code: 3,
                mtu: None,
                about: &whole[..len],
            };
            assert_eq!(read(&reported, &[500]), None);
        }
    }
}
