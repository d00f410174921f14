//! Tests which packets wait when SAs move between engines and take over from each other.

use esplanade_ipsec::placement::{Placement, Placements, Settled};
use esplanade_ipsec::selector::{NextLayer, PortRange, Selector, SelectorSet, generators};
use proptest::prelude::*;
use proptest::strategy::ValueTree;

/// Meets the SA and settles, as a worker does whose engines are empty.
fn settle(placements: &Placements, settled: &mut Settled, placement: &Placement) {
    settled.settle(placements.meet(placement));
}

#[test]
fn a_move_is_known_once_it_is_settled() {
    let placements = Placements::default();
    let (first, second) = (Placement::default(), Placement::default());
    let mut settled = Settled::default();
    assert!(!placements.any());
    assert!(settled.knows(first.get()));

    placements.place(&first, 1);
    placements.place(&second, 1);
    assert!(placements.any());
    assert_eq!((first.get().engine, second.get().engine), (1, 1));
    assert!(!settled.knows(first.get()));
    // All moves to an engine are settled together.
    settle(&placements, &mut settled, &first);
    assert!(settled.knows(first.get()) && settled.knows(second.get()));

    let new = Placement::default();
    new.begin(1);
    assert_eq!(new.get().engine, 1);
    assert!(Settled::default().knows(new.get()), "it was moved nowhere");

    placements.place(&first, 0);
    assert!(!settled.knows(first.get()));
    assert!(settled.knows(second.get()));
    settle(&placements, &mut settled, &first);
    assert!(settled.knows(first.get()));
}

/// The engine of an SA does not finish for the SA, so this tells nothing about SAs with the others.
#[test]
fn an_engine_is_settled_by_itself() {
    let placements = Placements::default();
    let (first, second) = (Placement::default(), Placement::default());
    let mut settled = Settled::default();
    placements.place(&first, 1);
    placements.place(&second, 2);
    settle(&placements, &mut settled, &first);
    assert!(settled.knows(first.get()) && !settled.knows(second.get()));
}

#[test]
fn an_sa_that_takes_over_waits_until_it_is_used() {
    let placements = Placements::default();
    let (new, other) = (Placement::default(), Placement::default());
    let mut workers = [Settled::default(), Settled::default()];
    placements.expect(&new);
    assert!(placements.any());
    for _ in 0..3 {
        placements.place(&other, 1);
        placements.place(&other, 0);
        settle(&placements, &mut workers[0], &other);
        assert!(!workers[0].knows(new.get()));
    }
    // Moving it does not use it.
    placements.place(&new, 1);
    assert!(new.get().is_unmet());
    settle(&placements, &mut workers[0], &new);
    assert!(workers[0].knows(new.get()) && !workers[1].knows(new.get()));
    settle(&placements, &mut workers[1], &new);
    assert!(workers[1].knows(new.get()));
    placements.expect(&new);
    assert!(workers.iter().all(|worker| !worker.knows(new.get())));
}

#[test]
fn an_engine_that_no_worker_has_is_waited_for_by_none() {
    let placements = Placements::default();
    let placement = Placement::default();
    placements.place(&placement, u8::MAX);
    assert!(Settled::default().knows(placement.get()));
}

const ENGINES: u8 = 3;
/// The last of them carries other flows.
const SAS: usize = 4;
const OTHER: usize = SAS - 1;

/// A step of the control thread, or a packet of the flow or of another.
#[derive(Clone, Copy, Debug)]
enum Step {
    Move(usize, u8),
    /// The flow goes through this SA from now on.
    TakeOver(usize),
    /// As [`Self::TakeOver`], where nobody tells when the flow changes over: the SA is expected, the change follows.
    Expect(usize),
    Packet,
    /// A packet of the last SA, which is no flow's successor.
    Other,
    /// An engine gives back what it has.
    Finish(u8),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        (0..SAS, 0..ENGINES).prop_map(|(sa, engine)| Step::Move(sa, engine)),
        (0..OTHER).prop_map(Step::TakeOver),
        (0..OTHER).prop_map(Step::Expect),
        Just(Step::Packet),
        Just(Step::Packet),
        Just(Step::Other),
        (0..ENGINES).prop_map(Step::Finish),
    ];
    prop::collection::vec(step, 0..60)
}

#[derive(Default)]
struct Model {
    placements: Placements,
    sas: [Placement; SAS],
    settled: Settled,
    /// For each engine: it has packets of the flow.
    pending: [bool; ENGINES as usize],
    pauses: usize,
}

impl Model {
    fn find(&mut self, sa: usize) -> usize {
        let placement = &self.sas[sa];
        loop {
            let placed = placement.get();
            let engine = usize::from(placed.engine);
            if self.settled.knows(placed) {
                return engine;
            }
            let meeting = self.placements.meet(placement);
            for (index, pending) in self.pending.iter_mut().enumerate() {
                *pending &= index == usize::from(meeting.engine());
            }
            self.settled.settle(meeting);
            self.pauses += 1;
        }
    }
}

proptest! {
    #[test]
    fn no_packet_of_a_flow_overtakes_another(steps in steps()) {
        let mut model = Model::default();
        let (mut flow, mut next) = (0, None);
        let mut changes = 0;
        for step in steps {
            match step {
                Step::Move(sa, engine) => model.placements.place(&model.sas[sa], engine),
                Step::TakeOver(sa) => {
                    model.placements.expect(&model.sas[sa]);
                    (flow, next) = (sa, None);
                }
                // The flow of this SA was another SA's. It can come back only after another take-over.
                Step::Expect(sa) if sa != flow => {
                    model.placements.expect(&model.sas[sa]);
                    next = Some(sa);
                }
                Step::Expect(_) => {}
                Step::Packet => {
                    let engine = model.find(flow);
                    for (index, pending) in model.pending.iter().enumerate() {
                        prop_assert!(!pending || index == engine, "overtaken: {index}, {engine}");
                    }
                    model.pending[engine] = true;
                    flow = next.take().unwrap_or(flow);
                }
                Step::Other => {
                    model.find(OTHER);
                }
                Step::Finish(engine) => model.pending[usize::from(engine)] = false,
            }
            changes += usize::from(matches!(step, Step::Move(..) | Step::TakeOver(_) | Step::Expect(_)));
        }
        prop_assert!(model.pauses <= changes, "{} pauses", model.pauses);
    }
}

proptest! {
    /// Who takes over from whom is found by selectors. No flow may be between two that do not overlap.
    #[test]
    fn selectors_of_one_flow_overlap(
        sets in [prop::collection::vec(generators::selector(), 1..4), prop::collection::vec(generators::selector(), 1..4)],
        flows in prop::collection::vec(generators::flow(), 40),
    ) {
        let [a, b] = sets.map(|selectors| SelectorSet::new(selectors).unwrap());
        prop_assert!(a.overlaps(&a) && b.overlaps(&b));
        prop_assert_eq!(a.overlaps(&b), b.overlaps(&a));
        if !a.overlaps(&b) {
            prop_assert!(flows.iter().all(|flow| !(a.matches(flow) && b.matches(flow))));
        }
    }

    #[test]
    fn selectors_that_differ_in_one_field_do_not_overlap(one in generators::selector()) {
        let ports = |first, last| Selector { local_ports: PortRange::Range(first, last), ..one };
        let protocol = |number| Selector { protocol: NextLayer::Is(number), ..one };
        for (other, expected) in [
            (ports(1, 3), true),
            (ports(4, 9), false),
            (Selector { local_ports: PortRange::Opaque, ..one }, false),
            (Selector { local_ports: PortRange::Any, ..one }, true),
        ] {
            prop_assert_eq!(ports(2, 3).overlaps(&other), expected);
        }
        prop_assert!(!protocol(6).overlaps(&protocol(17)));
        prop_assert!(!one.protocol.overlaps(&NextLayer::Is(200)) || one.protocol == NextLayer::Any);
        let elsewhere = generators::address_range().prop_filter("no address in common", move |range| {
            !range.contains(one.local.first()) && !range.contains(one.local.last()) && !one.local.contains(range.first())
        });
        let mut runner = proptest::test_runner::TestRunner::deterministic();
        let local = elsewhere.new_tree(&mut runner).unwrap().current();
        let other = Selector { local, ..one };
        prop_assert!(!one.overlaps(&other));
    }
}
