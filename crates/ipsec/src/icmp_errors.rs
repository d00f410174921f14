//! ICMP errors that are an SA's traffic by the packet that they quote (RFC 4301 §6.2): routers on the way are in no
//! selector, nor is ICMP in one for a port.

use std::sync::Arc;

use crate::drop_reason::DropReason;
use crate::sa::{OutboundSa, SaCommon};
use crate::selector::Flow;
use crate::spd::{Decision, Spd};
use crate::wire::{IpView, icmp};

pub use crate::options::IcmpErrors;

/// Inbound: whether the SA is for this packet (RFC 4301 §5.2, step 4).
#[inline]
pub(crate) fn check_selectors(
    sa: &SaCommon,
    packet: &[u8],
    view: &IpView,
) -> Result<(), DropReason> {
    let matches = sa.selectors.matches(&view.inbound_flow());
    if matches && sa.icmp_errors != IcmpErrors::Strict {
        return Ok(());
    }
    check_quoted(sa, packet, view, matches)
}

#[cold]
fn check_quoted(
    sa: &SaCommon,
    packet: &[u8],
    view: &IpView,
    matches: bool,
) -> Result<(), DropReason> {
    if sa.icmp_errors == IcmpErrors::Header || !icmp::is_transit_error(packet, view) {
        return matches.then_some(()).ok_or(DropReason::SelectorMismatch);
    }
    let quoted = icmp::quoted(packet, view).ok_or(DropReason::MalformedIcmpError)?;
    // It went out, as the answers to it come in.
    let of_sa = sa.selectors.matches(&quoted.outbound_flow());
    of_sa.then_some(()).ok_or(DropReason::IcmpErrorMismatch)
}

/// Outbound: the SA that carries the answers to the packet that an ICMP error quotes, for an error that is dropped for
/// `reason` otherwise. None is asked for. An explicit Discard is no lack of a policy, and stands.
#[cold]
pub(crate) fn return_sa(
    spd: &Spd,
    reason: DropReason,
    packet: &[u8],
    view: &IpView,
    interface: u32,
) -> Option<Arc<OutboundSa>> {
    if !matches!(
        reason,
        DropReason::NoPolicy | DropReason::OutsideSaSelectors
    ) {
        return None;
    }
    let flow = Flow {
        interface,
        dscp: view.tos >> 2,
        ..icmp::quoted(packet, view)?.inbound_flow()
    };
    match spd.outbound(&flow) {
        Decision::Protect(sa) => (sa.common.icmp_errors != IcmpErrors::Header).then_some(sa),
        _ => None,
    }
}
