//! Fragments that arrive through a tunnel for certain ports, which later ones do not have (RFC 4301 §7).
//!
//! Where the peers agreed on it, they pass behind a first fragment that passed on the same SA (§7.3). Those that come
//! before it are dropped, not held: the peer sent them in order, and what it loses is one datagram.

use super::{Fragment, FragmentKey, Tracker, check};
use crate::drop_reason::DropReason;
use crate::icmp_errors::check_selectors;
use crate::sa::SaCommon;
use crate::selector::{Flow, PortRange, Selector};
use crate::wire::IpView;

/// First fragments known at a time, of all SAs, and for how long.
const FIRST_MAX: usize = 4096;
const FIRST_MS: u64 = 30_000;

/// What one worker knows about fragments that have passed.
#[derive(Debug)]
pub(crate) struct Arrivals {
    /// By SA and datagram, where the data of the first fragment ends.
    first: Tracker<(u32, FragmentKey), usize>,
    pub now_ms: u64,
}

impl Default for Arrivals {
    fn default() -> Self {
        Self {
            first: Tracker::new(FIRST_MAX, FIRST_MS),
            now_ms: 0,
        }
    }
}

impl Arrivals {
    /// Whether the SA is for this fragment, from which `view` was parsed.
    #[cold]
    pub fn check(&mut self, sa: &SaCommon, packet: &[u8], view: &IpView) -> Result<(), DropReason> {
        let Ok(Some(fragment)) = Fragment::parse(packet, view) else {
            return Err(DropReason::MalformedInner);
        };
        if fragment.offset > 0 {
            return self.check_later(sa, packet, view, &fragment);
        }
        check_selectors(sa, packet, view)?;
        let flow = Flow {
            ports: None,
            ..view.inbound_flow()
        };
        let ports_decide = !matching(sa, &flow).any(|selector| !is_opaque(selector));
        if ports_decide && sa.non_first_fragments && !fragment.is_atomic() {
            refuse_tiny(packet, &fragment)?;
            let end = fragment.data.len();
            self.first.first((sa.spi, fragment.key), end, self.now_ms);
        }
        Ok(())
    }

    fn check_later(
        &self,
        sa: &SaCommon,
        packet: &[u8],
        view: &IpView,
        fragment: &Fragment,
    ) -> Result<(), DropReason> {
        let flow = view.inbound_flow();
        if matching(sa, &flow).any(|selector| !is_opaque(selector)) {
            return Ok(());
        }
        // §7.2: not onto the ports of the first fragment, which took another way.
        if matching(sa, &flow).next().is_some() {
            return refuse_tiny(packet, fragment);
        }
        if !sa.non_first_fragments {
            return Err(DropReason::SelectorMismatch);
        }
        match self.first.later(&(sa.spi, fragment.key), self.now_ms) {
            None => Err(DropReason::UnknownFragment),
            Some(end) if fragment.offset < end => Err(DropReason::FragmentRefused),
            Some(_) => refuse_tiny(packet, fragment),
        }
    }
}

fn refuse_tiny(packet: &[u8], fragment: &Fragment) -> Result<(), DropReason> {
    let data = packet.get(fragment.data.clone()).unwrap_or_default();
    check(packet, fragment, data).map_err(|_| DropReason::FragmentRefused)
}

fn matching<'a>(sa: &'a SaCommon, flow: &'a Flow) -> impl Iterator<Item = &'a Selector> {
    let selectors = sa.selectors.as_slice().iter();
    selectors.filter(move |selector| selector.matches(flow))
}

fn is_opaque(selector: &Selector) -> bool {
    [selector.local_ports, selector.remote_ports].contains(&PortRange::Opaque)
}
