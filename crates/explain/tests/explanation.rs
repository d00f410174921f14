//! Compares the explanation of a decision with the decision.

use std::sync::Arc;

use esplanade_explain::explanation::{Comparison, DifferingField, Explanation};
use esplanade_ipsec::DropReason;
use esplanade_ipsec::selector::generators::{flow, selector};
use esplanade_ipsec::selector::{AddressRange, Flow, Selector, SelectorSet};
use esplanade_ipsec::spd::{
    Action, Decision, EntryPlace, Policy, PolicyDirection, PolicyId, Spd, SpdBook, SpdEntry,
};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;

const COMMON: u32 = 0;
const OTHER: u32 = 7;

fn entry(
    selectors: Vec<Selector>,
    action: u8,
    direction: PolicyDirection,
    interface: u32,
) -> SpdEntry {
    let set = SelectorSet::new(selectors).expect("few");
    let action = match action {
        0 => Action::Protect(Arc::new(Policy::new(PolicyId(1), "p"))),
        1 => Action::Discard,
        _ => Action::Bypass,
    };
    SpdEntry {
        direction,
        interface,
        ..SpdEntry::new(set, action)
    }
}

fn entries() -> impl Strategy<Value = Vec<SpdEntry>> {
    let direction = prop_oneof![
        4 => Just(PolicyDirection::Both),
        1 => Just(PolicyDirection::Outbound),
        1 => Just(PolicyDirection::Inbound),
    ];
    let interface = select(&[COMMON, COMMON, COMMON, OTHER][..]);
    let one = (vec(selector(), 1..4), 0..4u8, direction, interface);
    vec(one.prop_map(|(s, a, d, i)| entry(s, a, d, i)), 8..20)
}

/// The SPD of these entries, of which the one in the middle came later: it is in a level of its own.
fn spd_of(entries: &[SpdEntry]) -> Spd {
    let (mut book, mut spd) = (SpdBook::default(), Spd::default());
    let middle = entries.len() as u128 / 2;
    for later in [false, true] {
        for (place, entry) in (0..)
            .zip(entries)
            .filter(|(at, _)| (*at == middle) == later)
        {
            book.add(EntryPlace(place), entry.clone());
        }
        spd = book.take_snapshot().unwrap_or(spd);
    }
    spd
}

fn decided(spd: &Spd, flow: &Flow) -> &'static str {
    match spd.outbound(flow) {
        Decision::Acquire(_) | Decision::Protect(_) => "protect",
        Decision::Bypass => "bypass",
        Decision::Discard(DropReason::NoPolicy) => "none",
        Decision::Discard(_) => "discard",
    }
}

fn explained(spd: &Spd, flow: &Flow, inbound: bool) -> &'static str {
    let explanation = Explanation::of(spd, flow, inbound);
    assert_eq!(explanation.comparisons.len(), spd.entries().len());
    let matched = explanation.matched.and_then(|at| spd.entries().get(at));
    match matched.map(|entry| &entry.action) {
        None => "none",
        Some(Action::Protect(_)) => "protect",
        Some(Action::Bypass) if explanation.doubt.is_none() => "bypass",
        Some(_) => "discard",
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn the_explanation_is_that_of_the_decision(
        entries in entries(),
        flows in vec((flow(), select(&[COMMON, OTHER][..])), 32),
    ) {
        let spd = spd_of(&entries);
        prop_assert_eq!(spd.levels(), 2);
        for (flow, interface) in flows {
            let flow = Flow { interface, ..flow };
            prop_assert_eq!(explained(&spd, &flow, false), decided(&spd, &flow), "{:?}", flow);
            let passes = explained(&spd, &flow, true) == "bypass";
            prop_assert_eq!(spd.inbound_bypass(&flow).is_ok(), passes, "{:?}", flow);
        }
    }

    /// The selector that came closest agrees in all fields before the one that is named.
    #[test]
    fn the_difference_is_that_of_the_closest_selector(
        selectors in vec(selector(), 1..4),
        flow in flow(),
    ) {
        let agrees = |selector: &Selector| {
            let fields = [
                selector.remote.contains(flow.remote),
                selector.local.contains(flow.local),
                selector.protocol.contains(flow.protocol),
            ];
            fields.into_iter().take_while(|agrees| *agrees).count()
        };
        let best = selectors.iter().map(agrees).max().unwrap_or(0);
        let spd = Spd::new(vec![entry(selectors.clone(), 1, PolicyDirection::Both, COMMON)]);
        let explanation = Explanation::of(&spd, &flow, false);
        let (field, closest) = match explanation.comparisons[0] {
            Comparison::Differs(field, at) => (field, at.map(|at| agrees(&selectors[at]))),
            Comparison::Matches(at) => {
                let first = selectors.iter().position(|selector| selector.matches(&flow));
                prop_assert_eq!(Some(at), first);
                return Ok(());
            }
        };
        prop_assert_eq!(closest, Some(best));
        match best {
            0 => prop_assert_eq!(field, DifferingField::Remote),
            1 => prop_assert_eq!(field, DifferingField::Local),
            2 => prop_assert_eq!(field, DifferingField::Protocol),
            _ => prop_assert!(field >= DifferingField::RemotePort),
        }
    }
}

#[test]
fn an_entry_that_is_not_asked_has_no_selector_to_name() {
    let (local, remote) = ([10, 0, 0, 1].into(), [10, 0, 0, 2].into());
    let all = Selector::between(AddressRange::host(local), AddressRange::host(remote));
    let spd = Spd::new(vec![
        entry(vec![all], 1, PolicyDirection::Both, OTHER),
        entry(vec![all], 1, PolicyDirection::Inbound, COMMON),
    ]);
    let flow = Flow::new(local, remote, 6, None);
    let explanation = Explanation::of(&spd, &flow, false);
    let differs = [DifferingField::Interface, DifferingField::Direction];
    assert_eq!(
        explanation.comparisons,
        differs.map(|field| Comparison::Differs(field, None))
    );
    assert_eq!(explanation.matched, None);
}
