//! A worker with the simulated core in front. Its peer has no core.

use std::net::{IpAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use esplanade::worker::{Front, Worker, core_front};
use esplanade_crypto::Transform;
use esplanade_fpga::device::BusError;
use esplanade_fpga::memory::Memory;
use esplanade_fpga::simulated::Simulated;
use esplanade_fpga::{Device, ring};
use esplanade_ipsec::lifetime::LifetimeEvent;
use esplanade_ipsec::{DropReason, Event};

use crate::pair::{Extras, INNER_V4, INNER_V6, Pair, PairOptions, inside};
use crate::permitted;

/// AES-GCM-16 with a 128-bit key.
const GCM: Transform = Transform::ESP[0];

fn device() -> Simulated {
    Simulated::new().expect("it is part of this build")
}

fn front(device: impl Device + 'static) -> Front {
    core_front(Box::new(device)).expect("the core answers")
}

fn simulated_core() -> Front {
    front(device())
}

/// Returns an entry of what the core says of itself.
fn said(worker: &Worker, entry: &str) -> Option<serde_json::Value> {
    let host = worker.device.as_ref().expect("a core");
    host.report().figures.get(entry).cloned()
}

/// A core that stops answering.
#[derive(Debug)]
struct Breaking(Simulated);

static BROKEN: AtomicBool = AtomicBool::new(false);

impl Device for Breaking {
    fn read(&mut self, address: u32) -> Result<u32, BusError> {
        match BROKEN.load(Ordering::Relaxed) {
            true => Err(BusError::Silent(address)),
            false => self.0.read(address),
        }
    }

    fn write(&mut self, address: u32, value: u32) -> Result<(), BusError> {
        match BROKEN.load(Ordering::Relaxed) {
            true => Err(BusError::Silent(address)),
            false => self.0.write(address, value),
        }
    }

    fn memory(&self) -> Memory {
        self.0.memory()
    }

    fn work(&mut self) {
        self.0.work();
    }
}

/// A core that answers, but takes no more frames.
#[derive(Debug)]
struct Stalling(Simulated);

static STALLED: AtomicBool = AtomicBool::new(false);

impl Device for Stalling {
    fn read(&mut self, address: u32) -> Result<u32, BusError> {
        self.0.read(address)
    }

    fn write(&mut self, address: u32, value: u32) -> Result<(), BusError> {
        let given = ring::Port::ALL.map(|port| port.register(ring::TAIL));
        match given.contains(&address) && STALLED.load(Ordering::Relaxed) {
            true => Ok(()),
            false => self.0.write(address, value),
        }
    }

    fn memory(&self) -> Memory {
        self.0.memory()
    }

    fn work(&mut self) {
        self.0.work();
    }
}

fn pair(udp_encap: bool, outer_v6: bool, front: fn() -> Front) -> Pair {
    let options = PairOptions {
        transform: GCM,
        udp_encap,
        outer_v6,
        workers: 1,
        peer_replay_window: 32,
    };
    let extras = Extras {
        front: Some(front),
        ..Extras::default()
    };
    Pair::with(&options, &extras).expect("both ends")
}

/// Makes a socket at each end and connects them.
fn sockets(pair: &Pair, addresses: [IpAddr; 2]) -> [UdpSocket; 2] {
    let socket = |end: usize| {
        inside(&pair.namespaces[end], || {
            let socket = UdpSocket::bind((addresses[end], 5002))?;
            socket.set_read_timeout(Some(Duration::from_secs(20)))?;
            Ok(socket)
        })
        .expect("a socket")
    };
    let [left, right] = [socket(0), socket(1)];
    left.connect((addresses[1], 5002)).expect("an address");
    right.connect((addresses[0], 5002)).expect("an address");
    [left, right]
}

fn datagram(len: usize) -> Vec<u8> {
    (0..len).map(|at| (at * 7 + len) as u8).collect()
}

fn carried(pair: &Pair) -> [u64; 2] {
    let worker = &pair.sites[0].workers[0];
    assert_eq!(said(worker, "failed"), None);
    for entry in ["installed-out", "installed-in"] {
        assert_eq!(said(worker, entry), Some(1.into()));
    }
    let host = worker.device.as_ref().expect("a core");
    let counters = host.device().expect("a device").counters();
    [counters.outbound, counters.inbound].map(|lane| lane.packets)
}

#[test]
fn packets_go_through_the_core_both_ways() {
    if !permitted("fpga_both_ways") {
        return;
    }
    for (udp_encap, outer_v6) in [(true, false), (false, false), (true, true)] {
        let pair = pair(udp_encap, outer_v6, simulated_core);
        let [mut there, mut back] = carried(&pair);
        for addresses in [INNER_V4.map(IpAddr::V4), INNER_V6.map(IpAddr::V6)] {
            let [left, right] = sockets(&pair, addresses);
            // The last datagram is fragmented.
            for len in [1, 300, 1200, 3000] {
                for (from, to) in [(&left, &right), (&right, &left)] {
                    from.send(&datagram(len)).expect("it leaves");
                    let mut buffer = [0; 4000];
                    let received = to.recv(&mut buffer).expect("it arrives");
                    assert!(buffer[..received] == datagram(len)[..]);
                }
            }
            let [outbound, inbound] = carried(&pair);
            // The kernels send some packets of their own.
            assert!(outbound >= there + 6 && inbound >= back + 6);
            (there, back) = (outbound, inbound);
        }
        let worker = &pair.sites[0].workers[0];
        // Every inbound packet was opened by the core. The count of outbound packets includes those
        // that the core returned.
        let opened = worker.inbound.packets_out.load(Ordering::Relaxed);
        assert_eq!(opened, back);
        let sealed = worker.outbound.packets_out.load(Ordering::Relaxed);
        assert!(sealed <= there);
        assert_eq!(worker.inbound.drops.total(), 0);
        assert_eq!(pair.sites[1].workers[0].inbound.drops.total(), 0);
    }
}

#[test]
fn a_core_that_fails_lets_nothing_out() {
    if !permitted("fpga_fails") {
        return;
    }
    let mut pair = pair(true, false, || front(Breaking(device())));
    let [left, right] = sockets(&pair, INNER_V4.map(IpAddr::V4));
    left.send(b"before").expect("it leaves");
    let mut buffer = [0; 100];
    assert_eq!(right.recv(&mut buffer).expect("it arrives"), 6);

    // The worker counts a packet after it sends it.
    let end = Instant::now() + Duration::from_secs(20);
    while pair.sites[0].workers[0].io.sent.load(Ordering::Relaxed) == 0 {
        assert!(Instant::now() < end, "the packet was not counted");
        std::thread::sleep(Duration::from_millis(1));
    }
    BROKEN.store(true, Ordering::Relaxed);
    let sent_before = pair.sites[0].workers[0].io.sent.load(Ordering::Relaxed);
    let site = &mut pair.sites[0];
    let end = Instant::now() + Duration::from_secs(20);
    while site.workers[0].outbound.drops.get(DropReason::EngineFailed) < 3 {
        left.send(b"after").expect("it leaves");
        assert!(Instant::now() < end, "it is not noticed");
        std::thread::sleep(Duration::from_millis(20));
    }
    right.set_nonblocking(true).expect("a socket");
    assert!(right.recv(&mut buffer).is_err());
    let worker = &site.workers[0];
    let sent = worker.io.sent.load(Ordering::Relaxed);
    assert_eq!(sent, sent_before, "nothing left by another way");
    assert_eq!(worker.outbound.packets_bypassed.load(Ordering::Relaxed), 0);
    // Software does not open packets of the core's SAs either.
    right.send(b"answer").expect("it leaves");
    let end = Instant::now() + Duration::from_secs(20);
    while worker.inbound.drops.get(DropReason::EngineFailed) == 0 {
        assert!(Instant::now() < end, "it was opened, or lost");
        std::thread::sleep(Duration::from_millis(20));
    }
    let failed = said(worker, "failed").expect("a reason");
    assert!(failed.to_string().contains("answer"), "{failed}");
    let event = site.events.blocking_recv().expect("the SA ends");
    let hard = LifetimeEvent::Hard;
    assert!(matches!(event, Event::Lifetime { event, .. } if event == hard));
}

#[test]
fn a_core_that_stalls_is_given_up() {
    if !permitted("fpga_stalls") {
        return;
    }
    let mut pair = pair(true, false, || front(Stalling(device())));
    let [left, right] = sockets(&pair, INNER_V4.map(IpAddr::V4));
    left.send(b"before").expect("it leaves");
    let mut buffer = [0; 100];
    assert_eq!(right.recv(&mut buffer).expect("it arrives"), 6);
    STALLED.store(true, Ordering::Relaxed);
    left.send(b"after").expect("it leaves");
    let site = &mut pair.sites[0];
    let end = Instant::now() + Duration::from_secs(60);
    let failed = loop {
        if let Some(why) = said(&site.workers[0], "failed") {
            break why.to_string();
        }
        assert!(Instant::now() < end, "it is not noticed");
        std::thread::sleep(Duration::from_millis(100));
    };
    assert!(failed.contains("takes no packets"), "{failed}");
    let event = site.events.blocking_recv().expect("the SA ends");
    let hard = LifetimeEvent::Hard;
    assert!(matches!(event, Event::Lifetime { event, .. } if event == hard));
}
