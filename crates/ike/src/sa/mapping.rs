//! Where a peer behind a NAT is (RFC 7296 §2.23). A NAT can map the peer's IKE and its ESP to different ports.

use std::net::SocketAddr;

/// Our address and the peer's.
type HostPair = (SocketAddr, SocketAddr);

/// The ends of one protocol.
#[derive(Clone, Copy, Debug)]
struct Mapped {
    /// The ends of the newest message of the peer.
    seen: HostPair,
    /// The ends of what we send.
    at: HostPair,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct PeerMapping {
    ike: Mapped,
    esp: Mapped,
}

impl PeerMapping {
    pub(crate) fn new(ends: HostPair) -> Self {
        let mapped = Mapped {
            seen: ends,
            at: ends,
        };
        Self {
            ike: mapped,
            esp: mapped,
        }
    }

    pub(crate) fn ike(&self) -> HostPair {
        self.ike.at
    }

    pub(crate) fn esp(&self) -> HostPair {
        self.esp.at
    }

    /// An authenticated IKE message, newer than all before, has come between these ends.
    pub(crate) fn saw_ike(&mut self, ends: HostPair) {
        saw(&mut self.ike, &mut self.esp, ends);
    }

    /// An authenticated ESP packet, newer than all before, has come between these ends.
    pub(crate) fn saw_esp(&mut self, ends: HostPair) {
        saw(&mut self.esp, &mut self.ike, ends);
    }

    /// Our own address is another one now.
    pub(crate) fn set_own(&mut self, address: std::net::IpAddr) {
        for mapped in [&mut self.ike, &mut self.esp] {
            mapped.seen.0.set_ip(address);
            mapped.at.0.set_ip(address);
        }
    }
}

/// The peer's `own` protocol is seen there. The other protocol follows where it had the same mapping, and where the peer
/// has another address. A message from where the same protocol was seen last is no news: the other protocol has a mapping
/// of its own, or the message is late.
fn saw(own: &mut Mapped, other: &mut Mapped, ends: HostPair) {
    let before = *own;
    (own.seen, own.at) = (ends, ends);
    let together = [before.at, before.seen].contains(&other.at);
    let elsewhere = other.at.1.ip() != ends.1.ip();
    if before.seen != ends && (together || elsewhere) {
        other.at = ends;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ends(last: u8, port: u16) -> HostPair {
        let own = SocketAddr::from(([192, 0, 2, 1], 4500));
        (own, SocketAddr::from(([203, 0, 113, last], port)))
    }

    #[derive(Clone, Copy)]
    enum Sign {
        Ike,
        Esp,
    }

    /// The signs of a peer at 203.0.113.5, each with the ports of IKE and ESP after it.
    fn follow(signs: &[(Sign, u16, [u16; 2])]) {
        let mut mapping = PeerMapping::new(ends(5, 4500));
        for (index, (sign, port, after)) in signs.iter().enumerate() {
            match sign {
                Sign::Ike => mapping.saw_ike(ends(5, *port)),
                Sign::Esp => mapping.saw_esp(ends(5, *port)),
            }
            let at = [mapping.ike(), mapping.esp()].map(|(_, remote)| remote.port());
            assert_eq!(at, *after, "sign {index}");
        }
    }

    #[test]
    fn both_protocols_follow_a_new_mapping_whichever_shows_it() {
        follow(&[
            (Sign::Esp, 5000, [5000, 5000]),
            (Sign::Ike, 5000, [5000, 5000]),
            (Sign::Ike, 6000, [6000, 6000]),
            (Sign::Esp, 7000, [7000, 7000]),
            (Sign::Ike, 8000, [8000, 8000]),
        ]);
    }

    #[test]
    fn each_protocol_keeps_a_port_of_its_own() {
        follow(&[
            (Sign::Esp, 4600, [4600, 4600]),
            (Sign::Ike, 4500, [4500, 4600]),
            (Sign::Esp, 4600, [4500, 4600]),
            (Sign::Ike, 4500, [4500, 4600]),
            (Sign::Esp, 4700, [4500, 4700]),
            (Sign::Ike, 5000, [5000, 4700]),
        ]);
    }

    #[test]
    fn a_late_message_does_not_bring_esp_back() {
        follow(&[
            (Sign::Esp, 5000, [5000, 5000]),
            (Sign::Ike, 4500, [4500, 5000]),
            (Sign::Ike, 5000, [5000, 5000]),
            (Sign::Ike, 6000, [6000, 6000]),
        ]);
    }

    #[test]
    fn a_peer_with_another_address_has_nothing_at_the_old_one() {
        let mut mapping = PeerMapping::new(ends(5, 4500));
        mapping.saw_esp(ends(5, 4600));
        mapping.saw_ike(ends(5, 4500));
        mapping.saw_ike(ends(9, 1024));
        assert_eq!([mapping.ike(), mapping.esp()], [ends(9, 1024); 2]);
        mapping.set_own([192, 0, 2, 77].into());
        assert_eq!(mapping.esp().0, SocketAddr::from(([192, 0, 2, 77], 4500)));
    }
}
