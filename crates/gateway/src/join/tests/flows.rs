//! Tests flows that go from SA to SA, each half with an engine of its own. IKE's events come as the join gets them.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use esplanade_dataplane::gate::{EngineGate, behind};
use esplanade_dataplane::pair::{PairOptions, PairSite, packets, pair, seal_header, site};
use esplanade_dataplane::virtio::VnetHeader;
use esplanade_dataplane::{EngineSource, Processing, STANDING_MS};
use esplanade_ike::config::EndAction;
use esplanade_ike::event::{ChildSaId, ChildSaInstalled};
use esplanade_ipsec::sa::SaCommon;
use proptest::prelude::*;

use super::hosts::engines;
use super::{TRAP, deleted, ends, installed, join_with, policy, wire};
use crate::join::Join;

/// The networks of the SAs behind `10.` and the number of the site. The peer narrows the second, which is in front
/// then. The third is for other flows.
const NETWORKS: [&str; 3] = ["0.0/16", "0.0/24", "9.0/24"];
const OTHER: usize = 2;
/// The first engine answers at once, the others later.
const ENGINES: [&str; 3] = ["cpu", "pool", "gpu"];

/// The SAs of a child: the one in use, and the one that will replace it.
#[derive(Debug, Default)]
struct Child {
    current: Option<[ChildSaInstalled; 2]>,
    next: Option<[ChildSaInstalled; 2]>,
}

struct Gateways {
    joins: [Join; 2],
    sites: [PairSite; 2],
    gates: [Arc<EngineGate>; 2],
    children: [Child; 3],
    last_id: u64,
    now: Instant,
    /// The number of packets that were read, and of those that came out.
    numbers: [u32; 2],
}

fn prefix(site: usize, network: &str) -> String {
    format!("10.{}.{network}", site + 1)
}

impl Gateways {
    fn new() -> Self {
        let joins = [0, 1].map(|index| {
            let mut policy = policy("net", TRAP, &prefix(1 - index, NETWORKS[0]));
            Arc::make_mut(&mut policy).local = ends(&prefix(index, NETWORKS[0]));
            let mut join = join_with(vec![policy]);
            join.set_engines(engines(&ENGINES));
            join
        });
        let gates = [Arc::<EngineGate>::default(), Arc::default()];
        for gate in &gates {
            gate.is_open.store(true, Ordering::Relaxed);
            gate.is_slow.store(true, Ordering::Relaxed);
        }
        let sites = [0, 1].map(|index| {
            let (database, gate) = (joins[index].database(), &gates[index]);
            let engines = [EngineSource::cpu(), behind(gate), behind(gate)].into();
            let any = pair(PairOptions::default()).map(|site| (site.outbound, site.inbound));
            let options = (true, Processing::default(), 1);
            site(index, database, any[index].clone(), engines, options)
        });
        let mut gateways = Self {
            joins,
            sites,
            gates,
            children: Default::default(),
            last_id: 0,
            now: Instant::now(),
            numbers: [0; 2],
        };
        gateways.establish(0, None);
        gateways.establish(OTHER, None);
        gateways
    }

    /// Installs an SA at both ends. Nobody sends with it yet.
    fn negotiate(
        &mut self,
        child: usize,
        rekeyed_from: Option<ChildSaId>,
    ) -> [ChildSaInstalled; 2] {
        self.last_id += 1;
        let network = NETWORKS[child];
        let from = rekeyed_from.map(|id| id.0);
        let mut events = [0, 1].map(|index| ChildSaInstalled {
            local_ts: wire(&prefix(index, network)),
            ..installed(
                &self.joins[index],
                self.last_id,
                &prefix(1 - index, network),
                from,
            )
        });
        let [a, b] = &mut events;
        (a.spi_out, b.spi_out) = (b.spi_in, a.spi_in);
        (b.local, b.remote) = (a.remote, a.local);
        for (join, event) in self.joins.iter_mut().zip(&events) {
            join.install_now(event, 0).unwrap();
        }
        events
    }

    fn establish(&mut self, child: usize, rekeyed_from: Option<ChildSaId>) {
        let events = self.negotiate(child, rekeyed_from);
        for (join, event) in self.joins.iter_mut().zip(&events) {
            join.use_outbound(event.child, self.now);
        }
        self.children[child].current = Some(events);
    }

    fn delete(&mut self, events: &[ChildSaInstalled; 2], replaced: bool) {
        for (join, event) in self.joins.iter_mut().zip(events) {
            join.delete_now(&deleted(event, replaced, EndAction::Clear), self.now);
        }
    }

    fn rekey(&mut self, child: usize) {
        if let (Some([event, _]), None) =
            (&self.children[child].current, &self.children[child].next)
        {
            let id = event.child;
            self.children[child].next = Some(self.negotiate(child, Some(id)));
        }
    }

    fn change_over(&mut self, child: usize) {
        let Some(next) = self.children[child].next.take() else {
            return;
        };
        for (join, event) in self.joins.iter_mut().zip(&next) {
            join.use_outbound(event.child, self.now);
        }
        let former = self.children[child].current.replace(next);
        self.delete(&former.unwrap(), true);
    }

    /// Ends a child, and its successor with it.
    fn down(&mut self, child: usize) {
        let Child { current, next } = std::mem::take(&mut self.children[child]);
        for events in current.iter().chain(&next) {
            self.delete(events, false);
        }
    }

    fn half(&self, site: usize, event: &ChildSaInstalled, is_outbound: bool) -> &SaCommon {
        let child = self.joins[site].child(event.child).unwrap();
        match is_outbound {
            true => &child.outbound.common,
            false => &child.inbound.common,
        }
    }

    fn place(&self, (site, child, is_next, is_outbound): (usize, usize, bool, bool), engine: u8) {
        let Child { current, next } = &self.children[child];
        let events = if is_next { next } else { current };
        if let Some(events) = events {
            let half = self.half(site, &events[site], is_outbound);
            let placements = self.sites[site].database.placements();
            placements.place(&half.placement, engine);
        }
    }

    /// Sends packets of one flow from the first site to the second.
    fn send(&mut self, more: u32) {
        let first = self.numbers[0];
        self.numbers[0] += more;
        let there = packets(0, first..self.numbers[0]);
        self.read(&there);
    }

    /// Sends a packet of another flow. Nobody looks at the order of those.
    fn send_other(&mut self) {
        let mut packet = packets(0, 0..1).remove(0);
        (packet[14], packet[18]) = (9, 9);
        seal_header(&mut packet);
        self.read(&[packet]);
    }

    fn read(&mut self, there: &[Vec<u8>]) {
        for packet in there {
            while !self.sites[0].plane.can_seal() {}
            self.sites[0].read_as(0, &VnetHeader::default(), packet);
        }
        self.sites[0].plane.seal_and_send();
        self.carry();
    }

    fn carry(&mut self) {
        let [a, b] = &mut self.sites;
        let sent = a.take_sent();
        for datagrams in sent.chunks(64) {
            while b.plane.room().is_none() {}
            b.receive(datagrams);
        }
        let written = b.take_written().into_iter();
        for packet in written.filter(|packet| packet[18] != 9) {
            let [expected] = packets(0, self.numbers[1]..self.numbers[1] + 1)
                .try_into()
                .unwrap();
            let number = |packet: &[u8]| u32::from_be_bytes(*packet[28..].first_chunk().unwrap());
            assert_eq!(number(&packet), self.numbers[1], "a packet was overtaken");
            assert_eq!(packet, expected);
            self.numbers[1] += 1;
        }
    }

    fn finish(mut self) {
        self.sites[0].plane.drain();
        self.carry();
        self.sites[1].plane.drain_inbound();
        self.carry();
        assert_eq!(self.numbers[0], self.numbers[1]);
    }
}

/// The inbound half waits for the peer's change-over. Until then the former SA moves, and so do others.
#[test]
fn a_successor_waits_for_the_peer_whatever_moves_meanwhile() {
    for [from, to] in [[1, 0], [0, 1], [1, 2]] {
        let mut gateways = Gateways::new();
        gateways.place((1, 0, false, false), from);
        gateways.rekey(0);
        gateways.place((1, 0, true, false), to);
        gateways.send(1);
        for engine in [from, to, from, to] {
            gateways.place((1, OTHER, false, false), engine);
            gateways.send_other();
        }
        gateways.send(10);
        gateways.change_over(0);
        gateways.send(10);
        gateways.finish();
    }
}

#[test]
fn an_sa_that_comes_after_its_predecessor_is_gone_overtakes_nothing() {
    for [before, after] in [["gpu", "cpu"], ["pool", "gpu"], ["cpu", "gpu"]] {
        let mut gateways = Gateways::new();
        let order = |gateways: &mut Gateways, engine| {
            for join in &mut gateways.joins {
                join.set_engine(None, "net", engine).unwrap();
            }
        };
        order(&mut gateways, before);
        gateways.send(10);
        gateways.down(0);
        order(&mut gateways, after);
        gateways.establish(0, None);
        gateways.send(10);
        gateways.finish();
    }
}

/// A flow goes through the SA in front while that is up, and otherwise through the other.
#[test]
fn a_flow_that_changes_its_policy_overtakes_nothing() {
    for slow in [0, 1] {
        let mut gateways = Gateways::new();
        gateways.establish(1, None);
        for (site, is_outbound) in [(0, true), (1, false)] {
            gateways.place((site, slow, false, is_outbound), 1);
        }
        gateways.send(10);
        gateways.down(1);
        gateways.send(10);
        gateways.establish(1, None);
        gateways.send(10);
        gateways.finish();
    }
}

/// An engine that gives nothing back delays a successor for as long as the worker stands still for it.
#[test]
fn a_successor_does_not_wait_for_ever() {
    let mut gateways = Gateways::new();
    gateways.gates[0].is_open.store(false, Ordering::Relaxed);
    gateways.sites[0].plane.io.pause_ns = 10_000_000;
    gateways.place((0, 0, false, true), 1);
    gateways.send(1);
    gateways.rekey(0);
    gateways.place((0, 0, true, true), 0);
    gateways.change_over(0);
    let begun_ms = gateways.sites[0].plane.io.now_ns / 1_000_000;
    gateways.send(1);
    let stood_ms = gateways.sites[0].plane.io.now_ns / 1_000_000 - begun_ms;
    assert!(
        (STANDING_MS..=STANDING_MS + 20).contains(&stood_ms),
        "{stood_ms} ms"
    );
    gateways.finish();
}

/// Something that happens to two gateways.
#[derive(Clone, Copy, Debug)]
enum Step {
    Send(u32),
    SendOther,
    Rekey(usize),
    ChangeOver(usize),
    /// The child ends and comes again at once.
    Again(usize),
    /// The SA in front comes or ends.
    Part(bool),
    /// The half of an SA moves: site, child, successor, outbound.
    Place((usize, usize, bool, bool), u8),
    Order(usize, usize),
    /// Engines give back something.
    Look,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let half = (0..2usize, 0..3usize, any::<bool>(), any::<bool>());
    let engine = 0..ENGINES.len();
    let step = prop_oneof![
        6 => (1..9u32).prop_map(Step::Send),
        2 => Just(Step::SendOther),
        2 => (0..2usize).prop_map(Step::Rekey),
        2 => (0..2usize).prop_map(Step::ChangeOver),
        1 => (0..2usize).prop_map(Step::Again),
        1 => any::<bool>().prop_map(Step::Part),
        4 => (half, engine.clone()).prop_map(|(half, engine)| Step::Place(half, engine as u8)),
        1 => (0..2usize, engine).prop_map(|(site, engine)| Step::Order(site, engine)),
        1 => Just(Step::Look),
    ];
    prop::collection::vec(step, 1..40)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]
    #[test]
    fn flows_keep_their_order_whatever_happens(steps in steps()) {
        let mut gateways = Gateways::new();
        for step in steps {
            match step {
                Step::Send(count) => gateways.send(count),
                Step::SendOther => gateways.send_other(),
                Step::Rekey(child) => gateways.rekey(child),
                Step::ChangeOver(child) => gateways.change_over(child),
                Step::Again(child) => {
                    let was_up = gateways.children[child].current.is_some();
                    gateways.down(child);
                    if was_up {
                        gateways.establish(child, None);
                    }
                }
                Step::Part(true) if gateways.children[1].current.is_none() => gateways.establish(1, None),
                Step::Part(true) => {}
                Step::Part(false) => gateways.down(1),
                Step::Place(half, engine) => gateways.place(half, engine),
                Step::Order(site, engine) => {
                    gateways.joins[site].set_engine(None, "net", ENGINES[engine]).unwrap();
                }
                Step::Look => {
                    gateways.sites[0].plane.seal_and_send();
                    gateways.carry();
                    gateways.sites[1].plane.open_and_deliver();
                    gateways.carry();
                }
            }
        }
        gateways.finish();
    }
}
