//! Fragments that arrive through a tunnel for certain ports, which later ones do not have (RFC 4301 §7).
//!
//! Where the peers agreed on it, they pass behind a first fragment that passed on the same SA (§7.3). Those that come
//! before it are dropped, not held: the peer sent them in order, and what it loses is one datagram.

use std::sync::{Mutex, PoisonError};

use super::{Fragment, FragmentKey, Tracker};
use crate::drop_reason::DropReason;
use crate::icmp_errors::check_selectors;
use crate::sa::{InboundSa, SaCommon};
use crate::selector::{Flow, Selector};
use crate::wire::IpView;

/// First fragments that an SA knows at a time, and for how long.
const FIRST_MAX: usize = 256;
const FIRST_MS: u64 = 30_000;

/// What is known about the fragments that have passed on one SA. It is the SA's own, so that no peer makes the
/// gateway forget what another has sent; all workers share it.
#[derive(Debug)]
pub(crate) struct Arrivals {
    /// Where the data of the first fragment ends.
    first: Mutex<Tracker<FragmentKey, usize>>,
}

impl Arrivals {
    pub fn new() -> Self {
        Self {
            first: Mutex::new(Tracker::new(FIRST_MAX, FIRST_MS)),
        }
    }

    fn first(&self, key: FragmentKey, end: usize, now_ms: u64) {
        let mut first = self.first.lock().unwrap_or_else(PoisonError::into_inner);
        first.first(key, end, now_ms);
    }

    fn later(&self, key: &FragmentKey, now_ms: u64) -> Option<usize> {
        let first = self.first.lock().unwrap_or_else(PoisonError::into_inner);
        first.later(key, now_ms)
    }
}

/// Whether the SA is for this fragment, from which `view` was parsed.
#[cold]
pub(crate) fn check_arrival(
    sa: &InboundSa,
    packet: &[u8],
    view: &IpView,
    now_ms: u64,
) -> Result<(), DropReason> {
    let Ok(Some(fragment)) = Fragment::parse(packet, view) else {
        return Err(DropReason::MalformedInner);
    };
    if fragment.offset > 0 {
        return check_later(sa, packet, view, &fragment, now_ms);
    }
    check_selectors(&sa.common, packet, view)?;
    let flow = Flow {
        ports: None,
        ..view.inbound_flow()
    };
    let ports_decide = !matching(&sa.common, &flow).any(|selector| !selector.has_opaque_ports());
    if ports_decide
        && !fragment.is_atomic()
        && let Some(arrivals) = &sa.arrivals
    {
        refuse_tiny(packet, &fragment)?;
        arrivals.first(fragment.key, fragment.data.len(), now_ms);
    }
    Ok(())
}

fn check_later(
    sa: &InboundSa,
    packet: &[u8],
    view: &IpView,
    fragment: &Fragment,
    now_ms: u64,
) -> Result<(), DropReason> {
    let flow = view.inbound_flow();
    if matching(&sa.common, &flow).any(|selector| !selector.has_opaque_ports()) {
        return Ok(());
    }
    // §7.2: not onto the ports of the first fragment, which took another way.
    if matching(&sa.common, &flow).next().is_some() {
        return refuse_tiny(packet, fragment);
    }
    let Some(arrivals) = &sa.arrivals else {
        return Err(DropReason::SelectorMismatch);
    };
    match arrivals.later(&fragment.key, now_ms) {
        None => Err(DropReason::UnknownFragment),
        Some(end) if fragment.offset < end => Err(DropReason::FragmentRefused),
        Some(_) => refuse_tiny(packet, fragment),
    }
}

fn refuse_tiny(packet: &[u8], fragment: &Fragment) -> Result<(), DropReason> {
    let sound = fragment.is_sound(packet);
    sound.then_some(()).ok_or(DropReason::FragmentRefused)
}

fn matching<'a>(sa: &'a SaCommon, flow: &'a Flow) -> impl Iterator<Item = &'a Selector> {
    let selectors = sa.selectors.as_slice().iter();
    selectors.filter(move |selector| selector.matches(flow))
}
