//! Tests the driver against a board that records the accesses.

use std::collections::BTreeMap;

use esplanade_crypto::KeyMaterial;
use esplanade_fpga::core::{Facts, LaneCounters, Snapshot};
use esplanade_fpga::device::{BusError, Device};
use esplanade_fpga::device_key::{DeviceKey, Suite};
use esplanade_fpga::dma::Dma;
use esplanade_fpga::memory::Memory;
use esplanade_fpga::policy::{CoreAction, TernaryEntry};
use esplanade_fpga::ring::{self, MEMORY_LEN, Port};
use esplanade_fpga::sa::{InboundSaRow, OutboundSaRow, Udp};
use esplanade_fpga::{Core, CoreError, Lane, regs};

const POLICIES: u32 = 16;
const SAS: u32 = 1024;

/// A board that gives back what it is sent, separately for each lane.
struct Board {
    dma: Dma,
    words: BTreeMap<u32, u32>,
    /// Writes to the tables and to CONTROL, in order.
    log: Vec<(u32, u32)>,
    user: u32,
}

impl Board {
    fn new() -> Self {
        Self::with_memory(MEMORY_LEN)
    }

    fn with_memory(len: usize) -> Self {
        let words = [
            (regs::ID, regs::ID_VALUE),
            (regs::VERSION, regs::VERSION_VALUE),
            (regs::CAPABILITIES, SAS << 16 | POLICIES),
            (regs::UNITS, regs::UNITS_GCM | 2),
        ];
        Self {
            dma: Dma::new(Memory::new(len)),
            words: words.into(),
            log: Vec::new(),
            user: 0,
        }
    }

    fn wrote(&self, from: u32, to: u32) -> Vec<(u32, u32)> {
        let log = self.log.iter().copied();
        log.filter(|(address, _)| (from..to).contains(address))
            .collect()
    }
}

impl Device for Board {
    fn read(&mut self, address: u32) -> Result<u32, BusError> {
        assert!(
            !(1 << 22..ring::BASE).contains(&address),
            "tables cannot be read"
        );
        if address >= ring::BASE {
            return self.dma.read(address).ok_or(BusError::Refused(address));
        }
        Ok(self.words.get(&address).copied().unwrap_or(0))
    }

    fn write(&mut self, address: u32, value: u32) -> Result<(), BusError> {
        if address >= ring::BASE {
            return self
                .dma
                .write(address, value)
                .ok_or(BusError::Refused(address));
        }
        self.log.push((address, value));
        Ok(())
    }

    fn memory(&self) -> Memory {
        self.dma.memory()
    }

    fn work(&mut self) {
        for (to, from) in [
            (Port::OutboundIn, Port::OutboundOut),
            (Port::InboundIn, Port::InboundOut),
        ] {
            while self.dma.is_ready(from)
                && let Some(packet) = self.dma.take(to)
            {
                assert!(self.dma.put(from, &packet, self.user));
            }
        }
    }
}

fn core() -> Core<Board> {
    let mut core = Core::open(Board::new()).expect("a core");
    core.device().log.clear();
    core
}

fn key(suite: Suite) -> DeviceKey {
    let transform = suite.transform().expect("known");
    let material: Vec<u8> = (0..transform.key_material_len()).map(|i| i as u8).collect();
    let material = KeyMaterial::new(transform, true, &material).expect("a good key");
    DeviceKey::new(&material).expect("a key")
}

#[test]
fn only_a_known_core_is_opened() {
    let major = 1 << regs::VERSION_MAJOR_SHIFT;
    let others = [
        (regs::ID, 0),
        (regs::VERSION, regs::VERSION_VALUE + major),
        (regs::VERSION, regs::VERSION_VALUE - major),
    ];
    for (register, value) in others {
        let mut board = Board::new();
        board.words.insert(register, value);
        assert!(matches!(Core::open(board), Err(CoreError::Unknown { .. })));
    }
    let mut board = Board::new();
    board.words.insert(regs::VERSION, regs::VERSION_VALUE + 7);
    assert!(Core::open(board).is_ok(), "another minor version will do");
    let short = Core::open(Board::with_memory(MEMORY_LEN - 4));
    assert!(matches!(short, Err(CoreError::Memory)));
    // Opening removes another program's policies and leaves both lanes off.
    let mut core = Core::open(Board::new()).expect("a core");
    let cleared = core.device().wrote(regs::OUT_POLICIES, regs::OUT_SAS);
    assert_eq!(cleared.len() as u32, 2 * POLICIES);
    assert!(cleared.iter().all(|(_, valid)| *valid == 0));
    assert_eq!(
        core.device().wrote(regs::CONTROL, regs::CONTROL + 4),
        [(regs::CONTROL, 0)]
    );
}

#[test]
fn an_sa_is_valid_only_when_all_of_it_is_there() {
    let mut core = core();
    let key = key(Suite::Gcm256);
    let sa = OutboundSaRow {
        udp: Some(Udp {
            local: 4500,
            remote: 40_000,
        }),
        path_mtu: Some(1400),
        iv_base: 0x0102_0304_0506_0708,
        sequence_soft: 1 << 33,
        ..OutboundSaRow::new(
            0xc0ff_ee01,
            true,
            [192, 0, 2, 1].into(),
            [198, 51, 100, 2].into(),
        )
    };
    core.install_outbound(5, &sa, &key).expect("a row");
    let log = core.device().log.clone();
    let row = regs::OUT_SAS + 5 * regs::ROW_STRIDE;
    let flags = row + regs::outbound_sa::FLAGS;
    assert_eq!(log.first(), Some(&(flags, 0)));
    let valid = regs::outbound_sa::FLAGS_VALID | 1 << 3 | 1 << 5 | 64 << 16 | 1 << 25;
    assert_eq!(log.last(), Some(&(flags, valid)));
    let keys = regs::OUT_KEYS + 5 * regs::ROW_STRIDE;
    let at = |address| {
        let found = log.iter().filter(|(a, _)| *a == address);
        found.map(|(_, value)| *value).collect::<Vec<_>>()
    };
    assert_eq!(at(keys), [0x0001_0203]);
    assert_eq!(at(keys + 28), [0x1c1d_1e1f]);
    assert_eq!(at(keys + regs::key_row::SALT), [0x2021_2223]);
    assert_eq!(at(keys + regs::key_row::GENERATION), [0, 1]);
    let words = (8..24).map(|word| at(keys + 4 * word)[0]);
    assert!(words.eq(key.authentication().iter().copied()));
    assert_eq!(at(row), [0xc0ff_ee01]);
    assert_eq!(at(row + 0x08), [1400]);
    assert_eq!(at(row + 0x0c), [4500 << 16 | 40_000]);
    assert_eq!(at(row + 0x10), [0xc000_0201]);
    assert_eq!(at(row + 0x20), [0xc633_6402]);
    assert_eq!(
        (at(row + 0x30), at(row + 0x34)),
        (vec![0x0506_0708], vec![0x0102_0304])
    );
    assert_eq!((at(row + 0x40), at(row + 0x44)), (vec![0], vec![2]));
    // The high half of the state is written after the low half, because it commits.
    let place = |address| {
        log.iter()
            .position(|(a, _)| *a == address)
            .expect("written")
    };
    assert!(place(row + 0x50) < place(row + 0x54));

    core.device().log.clear();
    core.remove(Lane::Outbound, 5).expect("a row");
    let wiped = (keys + regs::key_row::WIPE, 1);
    assert_eq!(core.device().log, [(flags, 0), wiped]);
    assert_eq!(core.remove(Lane::Inbound, SAS), Err(CoreError::NoRow(SAS)));
}

#[test]
fn an_inbound_sa_lies_where_its_packets_look() {
    let mut core = core();
    let sa = InboundSaRow::new(0x1234_5ffe, false, 77);
    core.install_inbound(&sa, &key(Suite::Ctr128Sha2))
        .expect("a row");
    let row = regs::IN_SAS + 0x3fe * regs::ROW_STRIDE;
    let log = core.device().log.clone();
    assert_eq!(log.last(), Some(&(row + 4, 1 | 3 << 1 | 1 << 9 | 77 << 16)));
    assert!(log.contains(&(row, 0x1234_5ffe)));
    // No SA's key is where another SA's key could be.
    let keys = regs::IN_KEYS + 0x3fe * regs::ROW_STRIDE;
    let is_of_row = |(address, _): &&(u32, u32)| {
        (row..row + 256).contains(address) || (keys..keys + 256).contains(address)
    };
    assert_eq!(log.iter().filter(is_of_row).count(), log.len());
}

#[test]
fn each_sa_of_a_row_is_another_generation() {
    let mut core = core();
    let key = key(Suite::Gcm256);
    let sa = OutboundSaRow::new(256, false, [192, 0, 2, 1].into(), [192, 0, 2, 2].into());
    let keys = regs::OUT_KEYS + 3 * regs::ROW_STRIDE + regs::key_row::GENERATION;
    let flags = regs::OUT_SAS + 3 * regs::ROW_STRIDE + regs::outbound_sa::FLAGS;
    let mut former = 0;
    for _ in 0..300 {
        core.device().log.clear();
        core.install_outbound(3, &sa, &key).expect("a row");
        let log = core.device().log.clone();
        let written = log.iter().filter(|(address, _)| *address == keys);
        let written: Vec<_> = written.map(|(_, value)| *value).collect();
        let [0, generation @ 1..=127] = written[..] else {
            panic!("{written:?}")
        };
        assert_ne!(generation, former);
        assert_eq!(log.last().map(|(_, value)| value >> 25), Some(generation));
        // The key was invalid while it changed.
        let first = log.iter().position(|(address, _)| *address == keys);
        let part = log
            .iter()
            .position(|(address, _)| *address > regs::OUT_KEYS);
        assert_eq!(first, part);
        former = generation;
    }
    core.install_outbound(4, &sa, &key).expect("a row");
    core.device().log.clear();
    core.change_outbound(3, &sa, Suite::Gcm256).expect("a row");
    let log = &core.device().log;
    assert_eq!(log.last(), Some(&(flags, 1 | 64 << 16 | former << 25)));
}

#[test]
fn a_policy_means_the_sa_that_was_there_when_it_was_set() {
    let mut core = core();
    let key = key(Suite::Gcm256);
    let sa = OutboundSaRow::new(256, false, [192, 0, 2, 1].into(), [192, 0, 2, 2].into());
    let entries = [
        TernaryEntry::any(CoreAction::Protect(3)),
        TernaryEntry::any(CoreAction::Discard),
    ];
    let result = regs::OUT_POLICIES + regs::policy_entry::RESULT;
    for generation in [1, 2] {
        core.install_outbound(3, &sa, &key).expect("a row");
        core.device().log.clear();
        core.set_policies(Lane::Outbound, &entries).expect("room");
        let meant = (result, 2 | 3 << 2 | generation << 12);
        assert!(core.device().log.contains(&meant));
        core.device().log.clear();
        core.set_policies(Lane::Outbound, &entries).expect("room");
        assert_eq!(core.device().log, []);
    }
}

#[test]
fn a_smaller_core_gets_only_what_it_can_do() {
    let mut board = Board::new();
    board.words.insert(regs::CAPABILITIES, 256 << 16 | POLICIES);
    board.words.insert(regs::UNITS, regs::UNITS_GCM);
    let mut core = Core::open(board).expect("a core");
    core.device().log.clear();
    let sa = InboundSaRow::new(0x1234_5ffe, false, 77);
    let refused = core.install_inbound(&sa, &key(Suite::Ctr256Sha2));
    assert_eq!(refused, Err(CoreError::NoUnits(Suite::Ctr256Sha2)));
    assert_eq!(core.device().log, []);
    core.install_inbound(&sa, &key(Suite::Gcm256))
        .expect("a row");
    let row = regs::IN_SAS + 0xfe * regs::ROW_STRIDE;
    assert!(core.device().log.contains(&(row, 0x1234_5ffe)));
}

#[test]
fn a_core_without_gcm_gets_only_the_other_suites() {
    let mut board = Board::new();
    board.words.insert(regs::UNITS, 1);
    let mut core = Core::open(board).expect("a core");
    core.device().log.clear();
    let sa = InboundSaRow::new(0x1234_5ffe, false, 77);
    for suite in [Suite::Gcm256, Suite::Gcm128] {
        let refused = core.install_inbound(&sa, &key(suite));
        assert_eq!(refused, Err(CoreError::NoUnits(suite)));
    }
    assert_eq!(core.device().log, []);
    core.install_inbound(&sa, &key(Suite::Ctr256Sha2))
        .expect("a row");
    assert!(!core.device().log.is_empty());
}

#[test]
fn nothing_of_a_driver_before_is_left() {
    let mut core = Core::open(Board::new()).expect("a core");
    let log = core.device().log.clone();
    assert_eq!(log.first(), Some(&(regs::CONTROL, 0)));
    for (sas, keys) in [
        (regs::OUT_SAS, regs::OUT_KEYS),
        (regs::IN_SAS, regs::IN_KEYS),
    ] {
        for row in 0..SAS {
            let flags = (sas + row * regs::ROW_STRIDE + regs::outbound_sa::FLAGS, 0);
            let wipe = keys + row * regs::ROW_STRIDE + regs::key_row::WIPE;
            let at = log.iter().position(|write| *write == flags);
            assert_eq!(
                at.and_then(|at| log.get(at + 1)).map(|(a, _)| *a),
                Some(wipe)
            );
        }
    }
    for policies in [regs::OUT_POLICIES, regs::IN_POLICIES] {
        for row in 0..POLICIES {
            let commit = policies + row * regs::ROW_STRIDE + regs::policy_entry::COMMIT;
            assert!(log.contains(&(commit, 0)));
        }
    }
}

#[test]
fn a_core_of_impossible_size_is_refused() {
    for (policies, sas) in [(65, 1024), (0xffff, 1024), (16, 0), (16, 1000), (16, 2048)] {
        let mut board = Board::new();
        board.words.insert(regs::CAPABILITIES, sas << 16 | policies);
        let refused = Core::open(board).err();
        assert_eq!(refused, Some(CoreError::Capabilities { policies, sas }));
    }
}

#[test]
fn policies_change_row_by_row_and_meet_no_packet_half() {
    let mut core = core();
    core.enable(Lane::Inbound, true).expect("enabled");
    core.enable(Lane::Outbound, true).expect("enabled");
    let entries = [
        TernaryEntry::any(CoreAction::Bypass),
        TernaryEntry::any(CoreAction::Protect(3)),
    ];
    core.set_policies(Lane::Outbound, &entries).expect("room");
    core.device().log.clear();
    let changed = [
        entries[0],
        TernaryEntry::any(CoreAction::Discard),
        TernaryEntry::any(CoreAction::ToHost),
    ];
    core.set_policies(Lane::Outbound, &changed).expect("room");
    let log = core.device().log.clone();
    assert_eq!(
        log.first(),
        Some(&(regs::CONTROL, 2)),
        "the other lane goes on"
    );
    assert_eq!(log.last(), Some(&(regs::CONTROL, 3)));
    let first = (regs::OUT_POLICIES, regs::OUT_POLICIES + regs::ROW_STRIDE);
    assert!(
        core.device().wrote(first.0, first.1).is_empty(),
        "it is as it was"
    );
    let commits = |core: &mut Core<Board>| {
        let log = core.device().log.clone();
        let commit = regs::policy_entry::COMMIT;
        let all = log
            .iter()
            .filter(|(address, _)| address & 0xff == commit && address & 1 << 22 != 0);
        all.map(|(address, valid)| ((address - regs::OUT_POLICIES) / 256, *valid))
            .collect::<Vec<_>>()
    };
    assert_eq!(commits(&mut core), [(1, 1), (2, 1)]);
    core.device().log.clear();
    core.set_policies(Lane::Outbound, &changed[..1])
        .expect("room");
    // Where the tables differ, an entry for all packets is written first and replaced last.
    assert_eq!(commits(&mut core), [(1, 1), (2, 0), (1, 0)]);
    core.device().log.clear();
    let in_front = [
        TernaryEntry::any(CoreAction::Discard).tunnelled(true),
        changed[0],
    ];
    core.set_policies(Lane::Outbound, &in_front).expect("room");
    assert_eq!(commits(&mut core), [(0, 1), (1, 1), (0, 1)]);
    let result = regs::OUT_POLICIES + regs::policy_entry::RESULT;
    let written = core.device().wrote(result, result + 4);
    assert_eq!(
        written,
        [(result, 3), (result, 0)],
        "to the host, then the new one"
    );
    core.device().log.clear();
    let many = vec![TernaryEntry::any(CoreAction::Discard); POLICIES as usize + 1];
    let refused = core.set_policies(Lane::Outbound, &many);
    assert_eq!(
        refused,
        Err(CoreError::Policies {
            wanted: 17,
            room: 16
        })
    );
    assert!(core.device().log.is_empty());
}

#[test]
fn packets_go_through_bounded_rings() {
    let mut core = core();
    core.device().user = 1 | 6 << 1 | 1 << 6 | 900 << 7;
    let mut packet = Vec::new();
    for round in 0..5u32 {
        for lane in [Lane::Outbound, Lane::Inbound] {
            let mut sent = 0;
            let content = |n: usize| vec![(n as u32 + round) as u8; 1 + n * 61 % ring::BUFFER_LEN];
            while core.send(lane, &content(sent)).expect("the device answers") {
                sent += 1;
                assert!(sent <= 64, "bounded");
            }
            assert_eq!(sent, 64);
            assert_eq!(core.receive(lane, &mut packet), Ok(None));
            core.work();
            for n in 0..sent {
                let facts = core.receive(lane, &mut packet).expect("it answers");
                let expected = Facts {
                    to_host: true,
                    reason: 6,
                    sa: Some(900),
                };
                assert_eq!(facts, Some(expected));
                assert_eq!(packet, content(n));
            }
            assert_eq!(core.receive(lane, &mut packet), Ok(None));
        }
    }
    // A packet that no ring can take is refused at once.
    assert_eq!(core.send(Lane::Outbound, &[]), Ok(false));
    assert_eq!(
        core.send(Lane::Outbound, &[0; ring::BUFFER_LEN + 1]),
        Ok(false)
    );
}

#[test]
fn a_core_that_gets_no_buffers_waits() {
    let mut core = core();
    let mut packet = Vec::new();
    for n in 0..64u8 {
        assert_eq!(core.send(Lane::Outbound, &[n]), Ok(true));
    }
    core.work();
    for n in 64..128u8 {
        assert_eq!(core.send(Lane::Outbound, &[n]), Ok(true));
    }
    // All buffers are full and no packet was taken: nothing moves, and nothing is lost.
    core.work();
    assert_eq!(core.send(Lane::Outbound, &[128]), Ok(false));
    for n in 0..128u8 {
        assert!(
            core.receive(Lane::Outbound, &mut packet)
                .expect("it answers")
                .is_some()
        );
        assert_eq!(packet, [n]);
        core.work();
    }
    assert_eq!(core.receive(Lane::Outbound, &mut packet), Ok(None));
}

#[test]
fn what_is_longer_than_a_buffer_is_dropped() {
    let mut core = core();
    let port = Port::InboundOut;
    assert!(core.device().dma.put(port, &[7; ring::BUFFER_LEN + 1], 0));
    assert!(core.device().dma.put(port, &[8; 20], 0));
    let mut packet = Vec::new();
    assert!(
        core.receive(Lane::Inbound, &mut packet)
            .expect("it answers")
            .is_some()
    );
    assert_eq!((packet, core.cut(Lane::Inbound)), (vec![8; 20], 1));
}

/// Whatever the device says.
#[test]
fn a_packet_is_no_longer_than_its_buffer() {
    let mut core = core();
    let port = Port::InboundOut;
    assert!(core.device().dma.put(port, &[7; 20], 0));
    let first_descriptor = ring::MEMORY_LEN / Port::ALL.len() * port as usize;
    let memory = core.device().memory();
    assert!(memory.store(
        first_descriptor + ring::LENGTH,
        ring::DONE | ring::LENGTH_MASK
    ));
    let mut packet = Vec::new();
    let arrived = core.receive(Lane::Inbound, &mut packet);
    assert!(arrived.expect("it answers").is_some());
    assert_eq!(packet.len(), ring::BUFFER_LEN);
}

#[test]
fn counters_snapshots_and_events_are_read() {
    let mut core = core();
    let words = [
        (regs::IN_COUNTERS, 100),
        (regs::IN_COUNTERS + regs::lane_counters::DROP_REPLAY, 5),
        (
            regs::IN_COUNTERS + regs::lane_counters::DROP_NOT_PROTECTED,
            6,
        ),
        (regs::IN_COUNTERS + regs::lane_counters::BYTES_LOW, 3),
        (regs::IN_COUNTERS + regs::lane_counters::BYTES_HIGH, 1),
        (regs::IN_SNAPSHOT, 9),
        (regs::IN_SNAPSHOT + 4, 8),
        (regs::IN_SNAPSHOT + 8, 7),
        (regs::IN_SNAPSHOT + 16, 5),
        (regs::IN_SNAPSHOT + 20, 4),
        (regs::NEXT_EVENT, 3 << 28 | 1 << 27 | 513),
        (regs::IRQ_STATUS, 2),
    ];
    core.device().words.extend(words);
    let counters = core.counters(Lane::Inbound).expect("it answers");
    let mut expected = LaneCounters {
        packets: 100,
        bytes: 1 << 32 | 3,
        ..LaneCounters::default()
    };
    (expected.drops[12], expected.drops[21]) = (5, 6);
    assert_eq!(counters, expected);
    assert_eq!(core.counters(Lane::Outbound), Ok(LaneCounters::default()));
    let snapshot = core.snapshot(Lane::Inbound, 1000).expect("it answers");
    let (sequence, bytes, window) = (8 << 32 | 9, 7, 4 << 32 | 5);
    assert_eq!(
        snapshot,
        Snapshot {
            sequence,
            bytes,
            window
        }
    );
    assert_eq!(core.device().log, [(regs::IN_SNAPSHOT_REQUEST, 1000)]);
    let event = core.next_event().expect("it answers").expect("an event");
    assert_eq!((event.kind, event.lane, event.row), (3, Lane::Inbound, 513));
    assert_eq!(core.events_lost(), Ok(true));
    assert_eq!(core.device().log.last(), Some(&(regs::IRQ_STATUS, 2)));
}
