//! Handles fragments from the protected side where a policy selects by port (RFC 4301 §7).
//! Fragments for an SA are reassembled. Fragments for a bypass policy, or for a peer that agreed to
//! take them, pass after their first fragment.

use esplanade_ipsec::fragment::{
    Fragment, FragmentKey, Pushed, Reassembler, ReassemblyLimits, Tracker,
};
use esplanade_ipsec::sa::Mode;
use esplanade_ipsec::selector::Flow;
use esplanade_ipsec::spd::{Decision, Spd};
use esplanade_ipsec::wire::IpView;

use crate::counters::{IoCounters, add};

/// The number of datagrams that may pass in fragments at a time, and the milliseconds for which their first fragment is
/// remembered.
const FIRST_MAX: usize = 4096;
const FIRST_MS: u64 = 30_000;

/// The treatment of a packet by the outbound walk.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Admitted {
    /// The packet continues unchanged.
    AsItIs,
    /// A later fragment. The policy judges it by the protocol and ports of its first fragment.
    Behind(IpView),
    /// The fragment waits for the rest of its datagram.
    Held,
    Whole(Vec<u8>),
    Refused,
}

/// The facts that only a first fragment shows.
#[derive(Clone, Debug)]
struct FirstFragment {
    protocol: u8,
    ports: Option<(u16, u16)>,
    /// Offset at which the first fragment's data ends. Later fragments must not begin before it.
    end: usize,
}

#[derive(Debug)]
pub(crate) struct Fragments {
    /// The interface from which all packets come.
    interface: u32,
    reassembler: Reassembler,
    passing: Tracker<FragmentKey, FirstFragment>,
}

impl Fragments {
    pub fn new(interface: u32) -> Self {
        Self {
            interface,
            reassembler: Reassembler::new(ReassemblyLimits::default()),
            passing: Tracker::new(FIRST_MAX, FIRST_MS),
        }
    }

    /// Tells whether datagrams wait for fragments. Then [`Self::expire`] must be called.
    pub fn is_waiting(&self) -> bool {
        self.reassembler.bytes() > 0
    }

    /// Drops datagrams that waited too long, and returns their number.
    pub fn expire(&mut self, now_ms: u64) -> usize {
        self.reassembler.expire(now_ms)
    }

    /// Decides about one packet. The caller parsed `view` from `packet`.
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
        if !spd.ports_decide(&self.flow(view)) {
            return Admitted::AsItIs;
        }
        let known = match fragment.offset {
            0 => self.begin(spd, (packet, view), &fragment, now_ms),
            _ => self.follow(spd, (packet, view), &fragment, now_ms),
        };
        if let Some(admitted) = known {
            return admitted;
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

    fn flow(&self, view: &IpView) -> Flow {
        Flow {
            interface: self.interface,
            ..view.outbound_flow()
        }
    }

    /// Handles a first fragment. Returns `None` if its datagram must be reassembled.
    fn begin(
        &mut self,
        spd: &Spd,
        (packet, view): (&[u8], &IpView),
        fragment: &Fragment,
        now_ms: u64,
    ) -> Option<Admitted> {
        if !passes_in_pieces(spd, &self.flow(view)) {
            self.passing.forget(&fragment.key);
            return None;
        }
        if fragment.is_atomic() {
            return Some(Admitted::AsItIs);
        }
        if !fragment.is_sound(packet) {
            return Some(Admitted::Refused);
        }
        let first = FirstFragment {
            protocol: view.protocol,
            ports: view.ports,
            end: fragment.data.len(),
        };
        self.passing.first(fragment.key, first, now_ms);
        Some(Admitted::AsItIs)
    }

    /// Handles a later fragment. RFC 4301 §7.4 demands state for bypass, and §7.3 demands it for
    /// SAs.
    fn follow(
        &mut self,
        spd: &Spd,
        (packet, view): (&[u8], &IpView),
        fragment: &Fragment,
        now_ms: u64,
    ) -> Option<Admitted> {
        let first = self.passing.later(&fragment.key, now_ms)?;
        let view = IpView {
            protocol: first.protocol,
            ports: first.ports,
            ..*view
        };
        // The SPD may have changed in the meantime.
        if !passes_in_pieces(spd, &self.flow(&view)) {
            return None;
        }
        if fragment.offset < first.end || !fragment.is_sound(packet) {
            return Some(Admitted::Refused);
        }
        if !fragment.more {
            // The sender may soon use the identification again, for a datagram that must not pass
            // in this way.
            self.passing.forget(&fragment.key);
        }
        Some(Admitted::Behind(view))
    }
}

/// Tells whether the fragments of a datagram may leave without reassembly.
fn passes_in_pieces(spd: &Spd, flow: &Flow) -> bool {
    match spd.outbound(flow) {
        Decision::Bypass => true,
        Decision::Protect(sa) => sa.common.non_first_fragments && sa.common.mode == Mode::Tunnel,
        Decision::Discard(_) | Decision::Acquire(_) => false,
    }
}

#[cfg(test)]
mod tests {
    use esplanade_ipsec::selector::{AddressRange, NextLayer, PortRange, Selector, SelectorSet};
    use esplanade_ipsec::spd::{Action, SpdEntry};
    use esplanade_ipsec::wire::checksum;

    use super::*;

    /// An SPD that bypasses UDP to port 53 and discards everything else.
    fn spd() -> Spd {
        let any = AddressRange::from_prefix([0, 0, 0, 0].into(), 0).unwrap();
        let dns = Selector {
            protocol: NextLayer::Is(17),
            remote_ports: PortRange::Range(53, 53),
            ..Selector::between(any, any)
        };
        let entry =
            |selector, action| SpdEntry::new(SelectorSet::new(vec![selector]).unwrap(), action);
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
        let behind = admit(&mut fragments, &spd, &later, 1);
        let Admitted::Behind(view) = behind else {
            panic!("{behind:?}");
        };
        let decision = spd.outbound(&view.outbound_flow());
        assert!(matches!(decision, Decision::Bypass), "{decision:?}");
        // The first fragment is forgotten after some time.
        assert_eq!(admit(&mut fragments, &spd, &first, 0), Admitted::AsItIs);
        assert_eq!(
            admit(&mut fragments, &spd, &later, FIRST_MS),
            Admitted::Held
        );
        let other = fragment(2, 2, false, 53);
        assert_eq!(admit(&mut fragments, &spd, &other, 1), Admitted::Held);
    }

    /// A later fragment that overtakes its own first fragment does not count as part of the
    /// datagram before.
    #[test]
    fn the_last_fragment_ends_what_was_bypassed() {
        let (mut fragments, spd) = (Fragments::new(0), spd());
        let (first, last) = (fragment(1, 0, true, 53), fragment(1, 4, false, 53));
        assert_eq!(admit(&mut fragments, &spd, &first, 0), Admitted::AsItIs);
        for packet in [fragment(1, 2, true, 53), last.clone()] {
            let behind = admit(&mut fragments, &spd, &packet, 1);
            assert!(matches!(behind, Admitted::Behind(_)), "{behind:?}");
        }
        assert_eq!(admit(&mut fragments, &spd, &last, 1), Admitted::Held);
    }

    /// Busy senders soon use an identification again.
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
        let mut entries = before.entries().to_vec();
        (entries[0].action, entries[1].action) = (Action::Discard, Action::Bypass);
        let after = Spd::new(entries);
        assert_eq!(admit(&mut fragments, &after, &later, 1), Admitted::Held);
    }

    /// No fragment overwrites the data of a first fragment, or TCP's flags.
    #[test]
    fn later_fragments_lie_behind_their_first() {
        let (mut fragments, spd) = (Fragments::new(0), spd());
        let first = fragment(1, 0, true, 53);
        assert_eq!(admit(&mut fragments, &spd, &first, 0), Admitted::AsItIs);
        let onto = fragment(1, 1, false, 53);
        assert_eq!(admit(&mut fragments, &spd, &onto, 0), Admitted::Refused);
        // This first fragment has seven bytes of data, which end inside the UDP header.
        let mut tiny = fragment(2, 0, true, 53);
        tiny.truncate(27);
        (tiny[3], tiny[10], tiny[11]) = (27, 0, 0);
        let sum = checksum::fold(checksum::sum(0, &tiny[..20]));
        tiny[10..12].copy_from_slice(&sum.to_be_bytes());
        assert_eq!(admit(&mut fragments, &spd, &tiny, 0), Admitted::Refused);
    }

    // RFC 4301 R52
    #[test]
    fn an_sa_takes_pieces_only_where_the_peer_agreed() {
        use esplanade_crypto::Transform;
        use esplanade_ipsec::sa::{OutboundSa, Path, SaParameters};
        use esplanade_ipsec::spd::{Policy, PolicyId};
        use std::sync::Arc;

        for agreed in [true, false] {
            let transform = Transform::ESP[0];
            let key: Vec<u8> = (1..=transform.key_material_len() as u8).collect();
            let mut entries = spd().entries().to_vec();
            let path = Path {
                local: "192.0.2.1:0".parse().unwrap(),
                remote: "192.0.2.2:0".parse().unwrap(),
                udp_encap: false,
            };
            let selectors = entries[0].selectors.clone();
            let sa = OutboundSa::new(SaParameters {
                non_first_fragments: agreed,
                ..SaParameters::new(0x100, PolicyId(1), transform, &key, selectors, path)
            });
            let policy = Arc::new(Policy::new(PolicyId(1), "dns"));
            policy.install(Arc::new(sa.unwrap()));
            entries[0].action = Action::Protect(policy);
            let spd = Spd::new(entries);
            let mut fragments = Fragments::new(0);
            let first = admit(&mut fragments, &spd, &fragment(1, 0, true, 53), 0);
            let later = admit(&mut fragments, &spd, &fragment(1, 2, false, 53), 0);
            match agreed {
                true => {
                    assert_eq!(first, Admitted::AsItIs);
                    assert!(matches!(later, Admitted::Behind(view) if view.ports == Some((7, 53))));
                }
                false => {
                    assert_eq!(first, Admitted::Held);
                    assert!(matches!(later, Admitted::Whole(_)), "{later:?}");
                }
            }
        }
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
