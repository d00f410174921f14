//! Fragments from the protected side where a policy wants to see ports (RFC 4301 §7): put together for an SA, let through
//! after their first one where the policy is Bypass.

use esplanade_ipsec::fragment::{Fragment, FragmentKey, Limits, Pushed, Reassembler, Tracker};
use esplanade_ipsec::selector::Flow;
use esplanade_ipsec::spd::{Decision, Spd};
use esplanade_ipsec::wire::IpView;

use super::counters::{IoCounters, add};

/// Bypassed datagrams whose later fragments are known at a time, and for how long.
const BYPASSED_MAX: usize = 4096;
const BYPASSED_MS: u64 = 30_000;

/// What a packet is for the outbound walk.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Admitted {
    /// It goes on as it is.
    AsItIs,
    /// A later fragment of a datagram whose first one was bypassed.
    Bypass,
    /// It waits for the rest of its datagram.
    Held,
    Whole(Vec<u8>),
    Refused,
}

#[derive(Debug)]
pub(super) struct Fragments {
    /// Where all of them come from.
    interface: u32,
    reassembler: Reassembler,
    /// By which snapshot of the SPD.
    bypassed: Tracker<FragmentKey, u64>,
}

impl Fragments {
    pub fn new(interface: u32) -> Self {
        Self {
            interface,
            reassembler: Reassembler::new(Limits::default()),
            bypassed: Tracker::new(BYPASSED_MAX, BYPASSED_MS),
        }
    }

    /// Whether datagrams wait for more fragments, so that time has to be kept.
    pub fn is_waiting(&self) -> bool {
        self.reassembler.bytes() > 0
    }

    /// Forgets what took too long; gives the number of datagrams.
    pub fn expire(&mut self, now_ms: u64) -> usize {
        self.reassembler.expire(now_ms)
    }

    /// `view` was parsed from `packet`.
    pub fn admit(
        &mut self,
        io: &IoCounters,
        spd: &Spd,
        (packet, view): (&[u8], &IpView),
        now_ms: u64,
    ) -> Admitted {
        let fragment = match Fragment::parse(packet, view) {
            Ok(Some(fragment)) => fragment,
            Ok(None) => return Admitted::AsItIs,
            Err(_) => return Admitted::Refused,
        };
        let flow = Flow {
            interface: self.interface,
            ..view.outbound_flow()
        };
        if !spd.ports_decide(&flow) {
            return Admitted::AsItIs;
        }
        // RFC 4301 §7.4 demands state for Bypass: the packet leaves as it came, in fragments.
        if fragment.offset > 0 && self.bypassed.later(&fragment.key, now_ms) == Some(spd.id()) {
            return Admitted::Bypass;
        }
        if fragment.offset == 0 {
            if matches!(spd.outbound(&flow), Decision::Bypass) {
                self.bypassed.first(fragment.key, spd.id(), now_ms);
                return Admitted::AsItIs;
            }
            self.bypassed.forget(&fragment.key);
        }
        match self.reassembler.push(packet, &fragment, now_ms) {
            Pushed::Held => {
                add(&io.fragments_held, 1);
                Admitted::Held
            }
            Pushed::Whole(whole) => {
                add(&io.reassembled, 1);
                Admitted::Whole(whole)
            }
            Pushed::Refused(refusal) => {
                tracing::trace!(?refusal, "a fragment is refused");
                Admitted::Refused
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use esplanade_ipsec::selector::{AddressRange, NextLayer, PortRange, Selector, SelectorSet};
    use esplanade_ipsec::spd::{Action, Entry};
    use esplanade_ipsec::wire::checksum;

    use super::*;

    /// Bypasses UDP to port 53; everything else to other ports is discarded.
    fn spd() -> Spd {
        let any = AddressRange::from_prefix([0, 0, 0, 0].into(), 0).unwrap();
        let dns = Selector {
            protocol: NextLayer::Is(17),
            remote_ports: PortRange::Range(53, 53),
            ..Selector::between(any, any)
        };
        let entry =
            |selector, action| Entry::new(SelectorSet::new(vec![selector]).unwrap(), action);
        Spd::new(vec![
            entry(dns, Action::Bypass),
            entry(Selector::between(any, any), Action::Discard),
        ])
    }

    fn fragment(id: u8, offset: u8, more: bool, port: u8) -> Vec<u8> {
        let field = if more { 0x20 } else { 0 };
        let mut packet = vec![0x45, 0, 0, 36, 0, id, field, offset, 64, 17, 0, 0];
        packet.extend([10, 0, 0, 1, 10, 0, 0, 2]);
        let sum = checksum::fold(checksum::sum(0, &packet));
        packet[10..12].copy_from_slice(&sum.to_be_bytes());
        packet.extend([0, 7, 0, port, 0, 32, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8]);
        packet
    }

    fn admit(fragments: &mut Fragments, spd: &Spd, packet: &[u8], now_ms: u64) -> Admitted {
        let view = IpView::parse(packet).unwrap();
        fragments.admit(&IoCounters::default(), spd, (packet, &view), now_ms)
    }

    // RFC 4301 R56, R129
    #[test]
    fn later_fragments_are_bypassed_after_their_first() {
        let (mut fragments, spd) = (Fragments::new(0), spd());
        let (first, later) = (fragment(1, 0, true, 53), fragment(1, 2, false, 53));
        assert_eq!(admit(&mut fragments, &spd, &first, 0), Admitted::AsItIs);
        assert_eq!(admit(&mut fragments, &spd, &later, 1), Admitted::Bypass);
        assert_eq!(
            admit(&mut fragments, &spd, &later, BYPASSED_MS),
            Admitted::Held
        );
        let other = fragment(2, 2, false, 53);
        assert_eq!(admit(&mut fragments, &spd, &other, 1), Admitted::Held);
    }

    /// Senders use identifications again, soon if they are busy.
    #[test]
    fn a_protected_datagram_ends_what_was_bypassed() {
        let (mut fragments, spd) = (Fragments::new(0), spd());
        let (first, later) = (fragment(1, 0, true, 53), fragment(1, 2, false, 53));
        assert_eq!(admit(&mut fragments, &spd, &first, 0), Admitted::AsItIs);
        let other = fragment(1, 0, true, 9);
        assert_eq!(admit(&mut fragments, &spd, &other, 1), Admitted::Held);
        let whole = admit(&mut fragments, &spd, &later, 2);
        assert!(matches!(whole, Admitted::Whole(_)), "{whole:?}");
    }

    #[test]
    fn another_spd_ends_what_was_bypassed() {
        let (mut fragments, before) = (Fragments::new(0), spd());
        let (first, later) = (fragment(1, 0, true, 53), fragment(1, 2, false, 53));
        assert_eq!(admit(&mut fragments, &before, &first, 0), Admitted::AsItIs);
        assert_eq!(admit(&mut fragments, &spd(), &later, 1), Admitted::Held);
    }

    #[test]
    fn other_datagrams_come_together() {
        let (mut fragments, spd) = (Fragments::new(0), spd());
        assert_eq!(
            admit(&mut fragments, &spd, &fragment(1, 2, false, 9), 0),
            Admitted::Held
        );
        assert!(fragments.is_waiting());
        let whole = admit(&mut fragments, &spd, &fragment(1, 0, true, 9), 0);
        assert!(matches!(whole, Admitted::Whole(packet) if packet.len() == 52));
        assert!(!fragments.is_waiting());
        assert_eq!(
            admit(&mut fragments, &spd, &fragment(3, 2, true, 9), 0),
            Admitted::Held
        );
        assert_eq!(
            admit(&mut fragments, &spd, &fragment(3, 3, true, 9), 0),
            Admitted::Refused
        );
        assert_eq!(fragments.expire(60_000), 0, "refused, and so answered for");
    }
}
