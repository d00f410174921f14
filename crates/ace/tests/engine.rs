//! The controller with simulated lanes: packets are the CPU's byte for byte, whatever is loaded meanwhile.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::sleep;

use esplanade_ace::algorithm::{Algorithm, Lane};
use esplanade_ace::compress::Phase;
use esplanade_ace::controller::{Controller, Event, Progress, lanes_of};
use esplanade_ace::fabric::{Fabric, FabricError};
use esplanade_ace::frames::{Bitstream, Grain};
use esplanade_ace::lane::Frames;
use esplanade_ace::library::{Library, Trust, pack, publish};
use esplanade_ace::simulated::{
    BUILT, INTERFACE_RATE, KnownLanes, Simulated, frames_hash, shipped_lanes,
};
use esplanade_crypto::iana::{Encryption, Integrity};
use esplanade_crypto::{Batch, Direction, Job, JobStatus, KeyContext, Transform, cpu};

mod made;

const PART: &str = "LFE5U-25F";

/// The library that is shipped.
fn shipped() -> Library {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("library");
    Library::open(&folder, &Trust::Directory, 0).expect("a good library")
}

fn transform(algorithm: Algorithm, key_bits: u16) -> Transform {
    let cipher = match algorithm {
        Algorithm::Rijndael => Encryption::AesCtr,
        Algorithm::Serpent => Encryption::SerpentCtr,
        Algorithm::Twofish => Encryption::TwofishCtr,
        Algorithm::Rc6 => Encryption::Rc6Ctr,
        Algorithm::Mars => Encryption::MarsCtr,
    };
    Transform::esp(cipher, key_bits, Some(Integrity::HmacSha2_256_128)).expect("a transform")
}

fn has_lane(library: &Library, transform: Transform) -> bool {
    let lanes = lanes_of(library, PART);
    lanes.iter().any(|lane| lane.carries(transform))
}

fn key(transform: Transform, esn: bool, seed: usize) -> Arc<KeyContext> {
    let bytes: Vec<u8> = (0..transform.key_material_len())
        .map(|at| (at * 11 + seed * 7 + 1) as u8)
        .collect();
    Arc::new(KeyContext::new(transform, esn, &bytes).expect("a good key"))
}

/// A batch with packets of several lengths, the keys in turn.
fn batch(keys: &[Arc<KeyContext>], packets: usize) -> Batch {
    let mut batch = Batch::new(Direction::Seal, packets * 2200, packets);
    for (number, key) in (0..).zip(keys) {
        batch.keys.insert(number, key.clone());
    }
    for number in 0..packets {
        let which = number % keys.len();
        let payload = [2, 14, 60, 577, 1398, 1966, 38][number % 7];
        let len = keys[which].transform().sealed_len(payload);
        let esp = batch.reserve(len).expect("room");
        let sequence = 1 + number as u64 + ((number as u64 % 3) << 32);
        let place = &mut batch.buffer[esp..esp + len];
        for (at, byte) in place.iter_mut().enumerate() {
            *byte = (at * 7 + number * 31) as u8;
        }
        place[4..8].copy_from_slice(&(sequence as u32).to_be_bytes());
        place[8..16].copy_from_slice(&sequence.to_be_bytes());
        batch.jobs.push(Job {
            key: which as u32,
            esp: esp as u32,
            len: len as u32,
            icv: 0,
            sequence,
            class: 0,
            status: JobStatus::Pending,
        });
    }
    batch
}

/// Compares all but what is unspecified: the ICV of a packet that was opened.
fn assert_same(done: &Batch, wanted: &Batch) {
    for (number, (one, other)) in done.jobs.iter().zip(&wanted.jobs).enumerate() {
        assert_eq!(one.status, other.status, "packet {number}");
        let end = match done.direction {
            Direction::Seal => one.len,
            Direction::Open => one.len - 16,
        };
        let range = one.esp as usize..(one.esp + end) as usize;
        assert!(
            done.buffer[range.clone()] == wanted.buffer[range],
            "packet {number}"
        );
    }
}

/// Seals and opens a batch, with forged packets, as the CPU does.
fn round<F: Fabric>(controller: &mut Controller<'_, F>, keys: &[Arc<KeyContext>], packets: usize) {
    let mut plain = batch(keys, packets);
    let mut sealed = plain.copied();
    cpu::process(&mut sealed);
    controller.carry(&mut plain, false);
    assert_same(&plain, &sealed);
    sealed.direction = Direction::Open;
    for (number, job) in sealed.jobs.iter_mut().enumerate() {
        job.status = JobStatus::Pending;
        if number % 5 == 2 {
            let at = job.esp as usize + number * 3 % job.len as usize;
            sealed.buffer[at] ^= 1 << (number % 8);
        }
    }
    let mut opened = sealed.copied();
    cpu::process(&mut opened);
    controller.carry(&mut sealed, false);
    assert_same(&sealed, &opened);
}

/// Goes on until nothing is loading.
fn settle<F: Fabric>(controller: &mut Controller<'_, F>) {
    for _ in 0..100_000 {
        match controller.step() {
            Progress::Idle => return,
            Progress::After(time) => sleep(time),
        }
    }
    panic!("a load does not end");
}

fn simulated(known: KnownLanes) -> Option<Simulated> {
    simulated_as(PART, known)
}

fn simulated_as(part: &str, known: KnownLanes) -> Option<Simulated> {
    if !BUILT {
        println!("SKIP ace-lanes: no simulated lanes (Verilator)");
        return None;
    }
    Some(Simulated::new(part, known, 20 * INTERFACE_RATE).expect("simulated lanes"))
}

#[test]
fn the_shipped_library_has_a_lane_for_long_keys() {
    let Some(fabric) = simulated(shipped_lanes().expect("a list")) else {
        return;
    };
    let library = shipped();
    let mut controller = Controller::new(&library, vec![fabric]);
    let long = [192, 256].map(|bits| transform(Algorithm::Rc6, bits));
    for transform in long {
        assert!(has_lane(&library, transform));
        controller.request(transform);
    }
    settle(&mut controller);
    let keys = long.map(|transform| key(transform, true, 1));
    round(&mut controller, &keys, 14);
    // The lane serves short keys too, so nothing else is loaded for them.
    let short = transform(Algorithm::Rc6, 128);
    controller.request(short);
    settle(&mut controller);
    round(&mut controller, &[key(short, false, 2)], 7);
    let counters = controller.counters();
    assert_eq!((counters.loads, counters.cpu_packets), (1, 0));
    assert!(!has_lane(&library, transform(Algorithm::Mars, 256)));
}

#[test]
fn the_shipped_library_has_every_lane() {
    let Some(fabric) = simulated(shipped_lanes().expect("a list")) else {
        return;
    };
    check_every_lane(&shipped(), fabric);
}

#[test]
fn every_lane_gives_the_bytes_of_the_cpu() {
    let folder = tempfile::tempdir().expect("a folder");
    let (library, known) = made_library(folder.path());
    let Some(fabric) = simulated(known) else {
        return;
    };
    check_every_lane(&library, fabric);
}

fn check_every_lane(library: &Library, fabric: Simulated) {
    let mut controller = Controller::new(library, vec![fabric]);
    for algorithm in Algorithm::ALL {
        let transform = transform(algorithm, 128);
        assert!(has_lane(library, transform), "{transform}");
        controller.request(transform);
        settle(&mut controller);
        let keys: Vec<_> = (0..3)
            .map(|seed| key(transform, seed % 2 == 1, seed))
            .collect();
        let before = controller.counters();
        round(&mut controller, &keys, 21);
        let after = controller.counters();
        assert_eq!(
            after.fabric_packets - before.fabric_packets,
            42,
            "{algorithm}"
        );
        assert_eq!(after.cpu_packets, before.cpu_packets);
        controller.release(transform);
    }
    let counters = controller.counters();
    assert_eq!(
        (counters.loads, counters.hidden_loads, counters.evictions),
        (5, 5, 4)
    );
    assert_eq!(counters.failed_loads, 0);
    assert!(counters.checked > 0);
}

#[test]
fn the_cpu_carries_packets_until_their_lane_is_there() {
    let folder = tempfile::tempdir().expect("a folder");
    let (library, known) = made_library(folder.path());
    let Some(fabric) = simulated(known) else {
        return;
    };
    let mut controller = Controller::new(&library, vec![fabric]);
    let serpent = transform(Algorithm::Serpent, 128);
    let keys = [key(serpent, false, 1)];
    controller.request(serpent);
    controller.step();
    round(&mut controller, &keys, 7);
    let counters = controller.counters();
    assert_eq!((counters.fabric_packets, counters.while_loading), (0, 14));
    settle(&mut controller);
    round(&mut controller, &keys, 7);
    assert_eq!(controller.counters().fabric_packets, 14);
    assert_eq!(controller.counters().hidden_loads, 0);
    let events = controller.take_events();
    assert!(
        matches!(events[..], [Event::Loaded { hidden: false, .. }]),
        "{events:?}"
    );
}

#[test]
fn what_the_library_lacks_is_carried_by_the_cpu() {
    let folder = tempfile::tempdir().expect("a folder");
    let (library, known) = made_library(folder.path());
    let Some(fabric) = simulated(known) else {
        return;
    };
    let mut controller = Controller::new(&library, vec![fabric]);
    let sha2 = Some(Integrity::HmacSha2_256_128);
    let others = [
        Transform::esp(Encryption::AesGcm16, 128, None),
        Transform::esp(Encryption::AesCtr, 128, Some(Integrity::HmacSha1_96)),
        Transform::esp(Encryption::AesCbc, 256, sha2),
    ];
    for transform in others.into_iter().flatten() {
        assert!(!has_lane(&library, transform));
        controller.request(transform);
        assert_eq!(controller.step(), Progress::Idle);
        round(&mut controller, &[key(transform, true, 3)], 14);
    }
    assert_eq!(controller.counters().fabric_packets, 0);
}

#[test]
fn a_lane_forgets_the_key_of_an_sa_that_is_gone() {
    let folder = tempfile::tempdir().expect("a folder");
    let (library, known) = made_library(folder.path());
    let Some(fabric) = simulated(known) else {
        return;
    };
    let fabric = Faulty::new(fabric, Fault::None);
    let wipes = Arc::clone(&fabric.wipes);
    let mut controller = Controller::new(&library, vec![fabric]);
    let rc6 = transform(Algorithm::Rc6, 128);
    controller.request(rc6);
    settle(&mut controller);
    let tested = controller.counters().wipes;
    let before = wipes.load(Ordering::Relaxed);
    let keys = [key(rc6, false, 1)];
    round(&mut controller, &keys, 3);
    controller.sweep();
    assert_eq!(controller.counters().wipes, tested);
    drop(keys);
    controller.sweep();
    controller.sweep();
    assert_eq!(controller.counters().wipes, tested + 1);
    assert_eq!(wipes.load(Ordering::Relaxed), before + 1);
    // The lane is there for the next.
    let keys = [key(rc6, false, 2)];
    round(&mut controller, &keys, 3);
    assert_eq!(controller.counters().cpu_packets, 0);
    controller.wipe();
    assert_eq!(controller.counters().wipes, tested + 2);
    assert_eq!(wipes.load(Ordering::Relaxed), before + 2);
}

/// A library of bitstreams that are made for this test: the frames say the number of the algorithm.
fn made_library(folder: &Path) -> (Library, KnownLanes) {
    library_of(folder, || made::Made::new("test"))
}

fn library_of(folder: &Path, empty: impl Fn() -> made::Made) -> (Library, KnownLanes) {
    let bitstreams = Algorithm::ALL.map(|algorithm| {
        let mut made = empty();
        made.frames[1000] = 1 + algorithm as u8;
        (algorithm, made.bytes())
    });
    let mut known = BTreeMap::new();
    let mut domains = Vec::new();
    for (algorithm, bytes) in &bitstreams {
        let parsed = Bitstream::parse(bytes).expect("a bitstream");
        let lane = Lane {
            algorithm: *algorithm,
            long_keys: false,
        };
        known.insert(frames_hash(parsed.frames()), lane);
        let variants = [("ctr-128", &bytes[..])];
        domains.push(
            pack(algorithm.name(), &variants, Grain::Frame, &[], Phase::One).expect("packed"),
        );
    }
    publish(folder, 1, &domains, None).expect("published");
    (
        Library::open(folder, &Trust::Directory, 0).expect("open"),
        known,
    )
}

#[test]
fn a_bitstream_that_makes_another_lane_is_not_used() {
    let folder = tempfile::tempdir().expect("a folder");
    let (library, mut known) = made_library(folder.path());
    for lane in known.values_mut() {
        // Whatever the library calls MARS makes RC6.
        if lane.algorithm == Algorithm::Mars {
            lane.algorithm = Algorithm::Rc6;
        }
    }
    let Some(fabric) = simulated(known) else {
        return;
    };
    let mut controller = Controller::new(&library, vec![fabric]);
    let mars = transform(Algorithm::Mars, 128);
    controller.request(mars);
    settle(&mut controller);
    assert_eq!(controller.report()[0].lane, None);
    let events = controller.take_events();
    assert!(
        matches!(&events[..], [Event::Refused { why, .. }] if why.contains("rc6")),
        "{events:?}"
    );
    round(&mut controller, &[key(mars, false, 1)], 7);
    let counters = controller.counters();
    assert_eq!((counters.fabric_packets, counters.failed_loads), (0, 1));
    // Another lane still goes there.
    let twofish = transform(Algorithm::Twofish, 128);
    controller.request(twofish);
    settle(&mut controller);
    round(&mut controller, &[key(twofish, false, 1)], 7);
    assert_eq!(controller.counters().fabric_packets, 14);
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Fault {
    /// It does not answer after so many exchanges.
    Exchanges(usize),
    /// It does not begin a partial stream.
    Begin,
    /// A byte of a partial stream comes otherwise.
    Byte,
    /// A partial stream makes another lane.
    Lane,
    /// The lane that a partial stream makes does not answer.
    Silent,
    /// A bit of each answer is wrong after so many exchanges.
    Answers(usize),
    None,
}

/// A fabric that goes wrong. It counts how often its lane is to forget its key.
struct Faulty {
    inner: Simulated,
    fault: Fault,
    is_partial: bool,
    wipes: Arc<AtomicU64>,
}

impl Faulty {
    fn new(inner: Simulated, fault: Fault) -> Self {
        Self {
            inner,
            fault,
            is_partial: false,
            wipes: Arc::default(),
        }
    }

    /// Tells whether a partial stream is to go wrong in this way.
    fn spoils(&self, fault: Fault) -> bool {
        self.is_partial && self.fault == fault
    }
}

impl Fabric for Faulty {
    fn part(&self) -> &str {
        self.inner.part()
    }

    fn begin(&mut self) -> Result<(), FabricError> {
        self.is_partial = false;
        self.inner.begin()
    }

    fn takes_partial(&self) -> bool {
        self.inner.takes_partial()
    }

    fn begin_partial(&mut self) -> Result<(), FabricError> {
        if self.fault == Fault::Begin {
            return Err(FabricError::Hung);
        }
        self.is_partial = true;
        self.inner.begin_partial()
    }

    fn configure(&mut self, bytes: &[u8]) -> Result<usize, FabricError> {
        let mut bytes = bytes.to_vec();
        if self.spoils(Fault::Byte)
            && let Some(byte) = bytes.get_mut(70)
        {
            *byte ^= 1;
        }
        self.inner.configure(&bytes)
    }

    fn end(&mut self) -> Result<Lane, FabricError> {
        let mut lane = self.inner.end()?;
        lane.long_keys |= self.spoils(Fault::Lane);
        Ok(lane)
    }

    fn exchange(
        &mut self,
        frames: &Frames,
        packets: usize,
        answers: &mut Frames,
    ) -> Result<(), FabricError> {
        if self.spoils(Fault::Silent) || self.fault == Fault::Exchanges(0) {
            return Err(FabricError::Hung);
        }
        if let Fault::Exchanges(left) = &mut self.fault {
            *left -= 1;
        }
        self.inner.exchange(frames, packets, answers)?;
        match &mut self.fault {
            Fault::Answers(0) => spoil(answers),
            Fault::Answers(left) => *left -= 1,
            _ => {}
        }
        Ok(())
    }

    fn wipe(&mut self) -> Result<(), FabricError> {
        self.wipes.fetch_add(1, Ordering::Relaxed);
        self.inner.wipe()
    }
}

fn spoil(answers: &mut Frames) {
    let all: Vec<Vec<u32>> = answers.iter().map(<[u32]>::to_vec).collect();
    answers.clear();
    for mut answer in all {
        *answer.last_mut().expect("a word") ^= 1;
        assert!(answers.push(&answer));
    }
}

#[test]
fn a_packet_that_a_lane_seals_otherwise_is_noticed() {
    let folder = tempfile::tempdir().expect("a folder");
    let (library, known) = made_library(folder.path());
    let Some(inner) = simulated(known) else {
        return;
    };
    // Two exchanges are the known answers.
    let fabric = Faulty::new(inner, Fault::Answers(2));
    let mut controller = Controller::new(&library, vec![fabric]);
    let rijndael = transform(Algorithm::Rijndael, 128);
    controller.request(rijndael);
    settle(&mut controller);
    round(&mut controller, &[key(rijndael, true, 1)], 7);
    let counters = controller.counters();
    assert_eq!((counters.fabric_packets, counters.checked), (0, 1));
    assert!(controller.report()[0].failed.is_some());
}

#[test]
fn packets_of_a_fabric_that_fails_are_carried_by_the_cpu() {
    let folder = tempfile::tempdir().expect("a folder");
    let (library, known) = made_library(folder.path());
    let Some(inner) = simulated(known) else {
        return;
    };
    // Two exchanges are the known answers, two the first round.
    let fabric = Faulty::new(inner, Fault::Exchanges(4));
    let mut controller = Controller::new(&library, vec![fabric]);
    let rijndael = transform(Algorithm::Rijndael, 128);
    controller.request(rijndael);
    settle(&mut controller);
    let keys = [key(rijndael, true, 1), key(rijndael, false, 2)];
    round(&mut controller, &keys, 7);
    assert_eq!(controller.counters().fabric_packets, 14);
    round(&mut controller, &keys, 7);
    let counters = controller.counters();
    assert_eq!((counters.fabric_packets, counters.cpu_packets), (14, 14));
    assert!(controller.report()[0].failed.is_some());
    assert_eq!(controller.step(), Progress::Idle);
}

/// A part whose frames have known addresses.
const PARTIAL_PART: &str = "LFE5U-45F";

/// Loads every lane in turn, and has each carry packets.
fn load_in_turn<F: Fabric>(controller: &mut Controller<'_, F>) -> Vec<Event> {
    for algorithm in Algorithm::ALL {
        let transform = transform(algorithm, 128);
        controller.request(transform);
        settle(controller);
        let before = controller.counters();
        round(controller, &[key(transform, false, 1)], 7);
        let by_lane = controller.counters().fabric_packets - before.fabric_packets;
        assert_eq!(by_lane, 14, "{algorithm}");
        controller.release(transform);
    }
    controller.take_events()
}

#[test]
fn only_what_differs_from_the_lane_before_is_loaded() {
    let folder = tempfile::tempdir().expect("a folder");
    let (library, known) = library_of(folder.path(), || made::Made::background("test"));
    let Some(fabric) = simulated_as(PARTIAL_PART, known) else {
        return;
    };
    let mut controller = Controller::new(&library, vec![fabric]);
    let events = load_in_turn(&mut controller);
    let counters = controller.counters();
    assert_eq!((counters.loads, counters.partial_loads), (5, 4));
    assert_eq!((counters.failed_loads, counters.evictions), (0, 4));
    let mut total = 0;
    for (number, event) in events.iter().enumerate() {
        let Event::Loaded { bytes, partial, .. } = event else {
            panic!("{event:?}");
        };
        assert_eq!(*partial, number > 0);
        // A frame, and what is around it; or all of them.
        assert!(
            if *partial {
                *bytes < 200
            } else {
                *bytes > 1_000_000
            },
            "{bytes}"
        );
        total += *bytes as u64;
    }
    assert_eq!(counters.load_bytes, total);
}

#[test]
fn a_part_that_is_not_configured_for_it_gets_whole_bitstreams() {
    let folder = tempfile::tempdir().expect("a folder");
    let (library, known) = library_of(folder.path(), || {
        let mut made = made::Made::background("test");
        made.control = 0x4000_0000;
        made
    });
    let Some(fabric) = simulated_as(PARTIAL_PART, known) else {
        return;
    };
    let mut controller = Controller::new(&library, vec![fabric]);
    load_in_turn(&mut controller);
    let counters = controller.counters();
    assert_eq!((counters.loads, counters.partial_loads), (5, 0));
    assert_eq!(counters.failed_loads, 0);
}

#[test]
fn the_whole_bitstream_follows_a_partial_stream_that_goes_wrong() {
    let folder = tempfile::tempdir().expect("a folder");
    let (library, known) = library_of(folder.path(), || made::Made::background("test"));
    for fault in [Fault::Begin, Fault::Byte, Fault::Lane, Fault::Silent] {
        let Some(inner) = simulated_as(PARTIAL_PART, known.clone()) else {
            return;
        };
        let mut controller = Controller::new(&library, vec![Faulty::new(inner, fault)]);
        let events = load_in_turn(&mut controller);
        let counters = controller.counters();
        assert_eq!(
            (counters.loads, counters.partial_loads),
            (5, 0),
            "{fault:?}"
        );
        // Once is enough, and no lane is given up.
        let refused = events
            .iter()
            .filter(|event| matches!(event, Event::PartialRefused { .. }));
        let wanted = usize::from(fault != Fault::Begin);
        assert_eq!(refused.count(), wanted, "{fault:?}");
        assert_eq!(counters.failed_loads, wanted as u64, "{fault:?}");
        assert!(
            !events
                .iter()
                .any(|event| matches!(event, Event::Refused { .. }))
        );
    }
}
