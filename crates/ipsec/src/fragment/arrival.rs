//! Checks fragments that arrive through a tunnel whose SA is for certain ports. Later fragments have no ports
//! (RFC 4301 §7).
//!
//! If the peers agreed on it, later fragments pass after a first fragment that passed on the same SA (§7.3).
//! Fragments that come before their first one are dropped, not held. The peer sent them in order, so the loss is one
//! datagram.

use std::sync::{Mutex, PoisonError};

use super::{Fragment, FragmentKey, Tracker};
use crate::drop_reason::DropReason;
use crate::icmp_errors::check_selectors;
use crate::sa::{InboundSa, SaCommon};
use crate::selector::{Flow, Selector};
use crate::wire::IpView;

/// The most first fragments that an SA remembers at a time.
const FIRST_MAX: usize = 256;
/// The time in milliseconds for which an SA remembers a first fragment.
const FIRST_MS: u64 = 30_000;

/// The first fragments that passed on one SA. Every SA has its own table, so that no peer can make the gateway forget
/// another peer's fragments. All workers share it.
#[derive(Debug)]
pub(crate) struct Arrivals {
    /// The end of the first fragment's data in the datagram.
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

/// Checks whether the SA may carry this fragment. `view` must have been parsed from it.
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
    // RFC 4301 §7.2: the fragment must not overlap the ports of the first fragment, which took another SA.
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
