//! Tests SAs that are moved between engines, which are late, full and lost, and SAs that take flows over from others.
//! Every packet of a flow arrives once and in order, and no nonce seals two texts.

use std::collections::VecDeque;
use std::fs::File;
use std::hash::{BuildHasher, RandomState};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Arc, Mutex};

use crate::common::{
    LEFT, ONE, RIGHT, assert_reconciled, facts, inner, key_material, parameters, selectors,
};
use esplanade_crypto::{
    Batch, Direction, Engine, EngineInfo, RejectReason, Rejected, Transform, cpu,
};
use esplanade_ipsec::Database;
use esplanade_ipsec::inbound::Inbound;
use esplanade_ipsec::outbound::{Outbound, ReserveRefused, Segments, WalkLimits};
use esplanade_ipsec::placement::Settled;
use esplanade_ipsec::sa::{InboundSa, OutboundSa};
use esplanade_ipsec::sad::Sad;
use esplanade_ipsec::spd::Spd;
use esplanade_ipsec::wire::IpView;

const GCM: Transform = Transform::ESP[0];
const PACKETS: u64 = 1_000_000;
const FLOWS: usize = 4;
const WAYS: usize = 2;
/// The number of batches that an engine can hold.
const DEPTH: usize = 5;
/// The number of packets between two looks at the engines.
const BURST: u64 = 24;
const LIMITS: WalkLimits = WalkLimits {
    buffer_len: 16 * 1024,
    jobs_max: 64,
    batches_max: DEPTH + 1,
};

/// The xorshift64* generator. It makes the same run every time.
struct Dice(u64);

impl Dice {
    fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }

    fn below(&mut self, n: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 32) % n
    }
}

/// The texts that were to be sealed, by key and sequence number.
#[derive(Default)]
struct Texts {
    hasher: RandomState,
    seen: Vec<Vec<u64>>,
}

impl Texts {
    fn enter(&mut self, batch: &Batch) {
        for job in &batch.jobs {
            let packet = &batch.buffer[job.esp as usize..(job.esp + job.len) as usize];
            // The bytes behind the text are the place of the ICV and may have any value.
            let text = &packet[..packet.len() - GCM.icv_len()];
            // A hash of zero stands for an empty entry.
            let hash = self.hasher.hash_one(text) | 1;
            let (sa, number) = (job.key as usize, job.sequence as usize);
            let sas = self.seen.len().max(sa + 1);
            self.seen.resize_with(sas, Vec::new);
            let of_sa = &mut self.seen[sa];
            of_sa.resize(of_sa.len().max(number + 1), 0);
            assert!(
                [0, hash].contains(&of_sa[number]),
                "number {number} for two texts"
            );
            of_sa[number] = hash;
        }
    }
}

/// An engine that answers when it likes, and at times never.
struct Moody {
    ready: File,
    inside: VecDeque<Batch>,
    dice: Dice,
    texts: Arc<Mutex<Texts>>,
}

impl Moody {
    fn new(seed: u64, texts: &Arc<Mutex<Texts>>) -> Self {
        Self {
            ready: File::open("/dev/null").unwrap(),
            inside: VecDeque::new(),
            dice: Dice(seed * 2 + 1),
            texts: Arc::clone(texts),
        }
    }
}

impl Engine for Moody {
    fn submit(&mut self, batch: Batch) -> Result<(), Rejected> {
        if self.inside.len() == DEPTH || self.dice.one_in(20) {
            let reason = RejectReason::Full;
            return Err(Rejected { batch, reason });
        }
        if batch.direction == Direction::Seal {
            self.texts.lock().unwrap().enter(&batch);
        }
        self.inside.push_back(batch);
        Ok(())
    }

    fn poll(&mut self) -> Option<Batch> {
        if !self.dice.one_in(3) {
            return None;
        }
        let mut batch = self.inside.pop_front()?;
        cpu::process(&mut batch);
        Some(batch)
    }

    fn ready_fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.ready.as_fd())
    }

    fn info(&self) -> EngineInfo {
        EngineInfo {
            depth: DEPTH,
            ..EngineInfo::AT_ONCE
        }
    }
}

/// Walks of one direction, each with its engine.
struct Ways<W> {
    ways: Vec<(W, Moody)>,
    settled: Settled,
    dice: Dice,
    texts: Arc<Mutex<Texts>>,
    lost: u64,
    drains: u64,
}

impl<W> Ways<W> {
    fn new(seed: u64, walk: impl Fn() -> W) -> Self {
        let texts = Arc::default();
        let way = |way| (walk(), Moody::new(seed + way, &texts));
        Self {
            ways: (0..WAYS as u64).map(way).collect(),
            settled: Settled::default(),
            dice: Dice(seed + 99),
            texts,
            lost: 0,
            drains: 0,
        }
    }

    /// At times loses an engine with all its batches.
    fn lose(&mut self, way: usize, lost: impl Fn(&mut W)) {
        if self.dice.one_in(200) {
            self.lost += 1;
            let (walk, engine) = &mut self.ways[way];
            lost(walk);
            *engine = Moody::new(self.dice.below(1 << 30), &self.texts);
        }
    }
}

/// Per SA: the sequence numbers that were sent last. Per flow: the number of sent and of delivered packets.
#[derive(Default)]
struct Order {
    of_sas: Vec<u64>,
    sent: [u64; FLOWS],
    delivered: [u64; FLOWS],
}

struct World {
    database: Database,
    pairs: Vec<Pair>,
    /// The SA of each flow.
    flows: [usize; FLOWS],
    seal: Ways<Outbound>,
    open: Ways<Inbound>,
    order: Order,
    wire: VecDeque<(usize, Vec<u8>)>,
}

fn sa_of(pairs: &[Pair], spi: u32) -> usize {
    let is_it = |pair: &Pair| pair.outbound.common.spi == spi;
    pairs.iter().position(is_it).unwrap()
}

impl World {
    fn seal_and_send(&mut self, way: usize) {
        self.seal.lose(way, Outbound::engine_lost);
        let (walk, engine) = &mut self.seal.ways[way];
        let _ = walk.submit(engine);
        while let Some(batch) = walk.poll(engine, &Spd::default()) {
            for train in batch.trains(ONE) {
                let word = |at: usize| u32::from_be_bytes(*train.esp[at..].first_chunk().unwrap());
                let (sa, number) = (sa_of(&self.pairs, word(0)), u64::from(word(4)));
                assert_eq!(number, self.order.of_sas[sa] + 1, "SA {sa}");
                self.order.of_sas[sa] = number;
                self.wire.push_back((sa, train.esp.to_vec()));
            }
            walk.recycle(batch);
        }
    }

    fn settle_outbound(&mut self, sa: &OutboundSa) {
        self.seal.drains += 1;
        let meeting = self.database.placements().meet(&sa.common.placement);
        let own = usize::from(meeting.engine());
        let busy = |walk: &Outbound| walk.waiting() + walk.in_engine() > 0;
        while let Some(way) = (0..WAYS).find(|way| *way != own && busy(&self.seal.ways[*way].0)) {
            self.seal_and_send(way);
        }
        self.seal.settled.settle(meeting);
    }

    fn send(&mut self, sa: usize, packet: &[u8]) {
        let outbound_sa = Arc::clone(&self.pairs[sa].outbound);
        let placed = outbound_sa.common.placement.get();
        if !self.seal.settled.knows(placed) {
            self.settle_outbound(&outbound_sa);
        }
        let (way, view) = (usize::from(placed.engine), IpView::parse(packet).unwrap());
        let segments = Segments::one(packet.len());
        loop {
            match self.seal.ways[way]
                .0
                .reserve(&outbound_sa, &view, &segments)
            {
                Ok(mut slots) => {
                    slots.next_slot().unwrap().copy_from_slice(packet);
                    slots.finish().unwrap();
                    return;
                }
                Err(ReserveRefused::BatchFull) => {}
                Err(refused) => panic!("{refused:?}"),
            }
            self.seal_and_send(way);
        }
    }

    fn open_and_deliver(&mut self, way: usize) {
        self.open.lose(way, Inbound::engine_lost);
        let (walk, engine) = &mut self.open.ways[way];
        let _ = walk.submit(engine);
        while let Some(batch) = walk.poll(engine) {
            for packet in batch.delivered() {
                let payload = &batch.packet(packet)[28..];
                let (flow, number) = (payload[0] as usize, payload[1..9].try_into().unwrap());
                let number = u64::from_be_bytes(number);
                assert_eq!(number, self.order.delivered[flow], "flow {flow}");
                self.order.delivered[flow] += 1;
            }
            walk.recycle(batch);
        }
    }

    fn settle_inbound(&mut self, sa: usize) {
        self.open.drains += 1;
        let placement = &self.pairs[sa].inbound.common.placement;
        let meeting = self.database.placements().meet(placement);
        let own = usize::from(meeting.engine());
        let busy = |walk: &Inbound| walk.waiting() + walk.in_engine() > 0;
        while let Some(way) = (0..WAYS).find(|way| *way != own && busy(&self.open.ways[*way].0)) {
            self.open_and_deliver(way);
        }
        self.open.settled.settle(meeting);
    }

    fn receive(&mut self) {
        while let Some((sa, esp)) = self.wire.pop_front() {
            let placed = self.pairs[sa].inbound.common.placement.get();
            if !self.open.settled.knows(placed) {
                self.settle_inbound(sa);
            }
            let way = usize::from(placed.engine);
            while !self.open.ways[way].0.has_room() {
                self.open_and_deliver(way);
            }
            let sad = self.database.sad();
            let pushed = self.open.ways[way].0.push_copy(sad, &esp, &facts());
            assert_eq!(pushed, Ok(()));
        }
    }

    /// Makes an SA that takes a flow over. The flow changes at a packet of its own, later.
    fn succeed(&mut self, engines: [u8; 2]) -> usize {
        let pair = Pair::new(self.database.sad());
        for (half, engine) in [&pair.outbound.common, &pair.inbound.common]
            .into_iter()
            .zip(engines)
        {
            half.placement.begin(engine);
            self.database.placements().expect(&half.placement);
        }
        self.pairs.push(pair);
        self.order.of_sas.push(0);
        self.pairs.len() - 1
    }

    fn is_done(&self) -> bool {
        self.order.delivered.iter().sum::<u64>() == PACKETS
    }
}

/// The two ends of an SA.
struct Pair {
    outbound: Arc<OutboundSa>,
    inbound: Arc<InboundSa>,
}

impl Pair {
    fn new(sad: &Sad) -> Self {
        let spi = sad.allocate_spi().unwrap();
        let key = key_material(GCM);
        let left = parameters(GCM, false, spi, &key);
        let mut right = parameters(GCM, false, spi, &key);
        right.selectors = selectors(RIGHT, LEFT);
        (right.path.local, right.path.remote) = (left.path.remote, left.path.local);
        let outbound = Arc::new(OutboundSa::new(left).unwrap());
        let inbound = Arc::new(InboundSa::new(right).unwrap());
        sad.insert(Arc::clone(&inbound)).unwrap();
        Self { outbound, inbound }
    }
}

#[test]
fn a_million_packets_come_once_and_in_order() {
    let database = Database::new();
    let mut world = World {
        pairs: (0..FLOWS).map(|_| Pair::new(database.sad())).collect(),
        flows: std::array::from_fn(|flow| flow),
        database,
        seal: Ways::new(1, || Outbound::new(LIMITS)),
        open: Ways::new(7, || Inbound::new(LIMITS)),
        order: Order {
            of_sas: vec![0; FLOWS],
            ..Order::default()
        },
        wire: VecDeque::new(),
    };
    let mut dice = Dice(2026);
    // The successor of each flow's SA, if there is one.
    let mut next = [None; FLOWS];
    let mut sent = 0;
    while !world.is_done() {
        for _ in 0..BURST.min(PACKETS - sent) {
            let flow = dice.below(FLOWS as u64) as usize;
            let mut payload = vec![flow as u8];
            payload.extend(world.order.sent[flow].to_be_bytes());
            payload.resize(9 + dice.below(24) as usize, 0x5a);
            if dice.one_in(1000) {
                world.flows[flow] = next[flow].take().unwrap_or(world.flows[flow]);
            }
            world.send(world.flows[flow], &inner(4, &payload));
            world.order.sent[flow] += 1;
            sent += 1;
        }
        world.receive();
        for way in 0..WAYS {
            world.seal_and_send(way);
            world.open_and_deliver(way);
        }
        if dice.one_in(40) {
            // Successors move too before their flow comes.
            let pair = &world.pairs[world.pairs.len() - 1 - dice.below(FLOWS as u64) as usize];
            let engine = dice.below(WAYS as u64) as u8;
            let both = [&pair.outbound.common, &pair.inbound.common];
            let placement = &both[dice.below(2) as usize].placement;
            world.database.placements().place(placement, engine);
        }
        let flow = dice.below(FLOWS as u64) as usize;
        if next[flow].is_none() && dice.one_in(60) {
            let engines = [0, 1].map(|_| dice.below(WAYS as u64) as u8);
            next[flow] = Some(world.succeed(engines));
        }
    }
    assert_eq!(world.order.delivered, world.order.sent);
    assert_eq!(world.order.of_sas.iter().sum::<u64>(), PACKETS);
    assert!(world.pairs.len() > 300, "{} SAs", world.pairs.len());
    for (drains, lost) in [
        (world.seal.drains, world.seal.lost),
        (world.open.drains, world.open.lost),
    ] {
        assert!(drains > 300 && lost > 300, "{drains} drains, {lost} lost");
    }
    for way in 0..WAYS {
        assert_eq!(world.seal.ways[way].0.counters().drops.total(), 0);
        let inbound = world.open.ways[way].0.counters();
        assert_eq!(inbound.drops.total(), 0);
        assert_reconciled(inbound);
    }
}
