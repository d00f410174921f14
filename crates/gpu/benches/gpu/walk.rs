//! Both walks around the engine: packets from the clear to ESP and back, each of another SA.

use std::collections::VecDeque;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use esplanade_crypto::{Arena, Batch, CpuEngine, Engine, Rejected, Transform};
use esplanade_gpu::{DeviceError, Gpu};
use esplanade_ipsec::Database;
use esplanade_ipsec::inbound::{Inbound, ReceivedPacket};
use esplanade_ipsec::outbound::{
    ArenaPacket, HEADROOM, Outbound, TAILROOM, TrainLimits, WalkLimits,
};
use esplanade_ipsec::sa::{InboundSa, OutboundSa, Path, SaParameters};
use esplanade_ipsec::selector::{AddressRange, Selector, SelectorSet};
use esplanade_ipsec::spd::{Action, Policy, PolicyId, Spd, SpdEntry};
use esplanade_ipsec::tunnel::OuterFacts;
use esplanade_ipsec::wire::checksum;

use super::{Options, locked};

const TRANSFORM: &str = "AES_CBC_128/HMAC_SHA1_96";
const SAS: u32 = 64;
const LEN: usize = 1024;
const LOCAL: u32 = 0x0a00_0001;
const REMOTE: u32 = 0x6400_0000;
/// Bytes of a packet's slot, in the clear and sealed.
const SLOT: usize = (HEADROOM + LEN + TAILROOM).next_multiple_of(64);
const EACH: TrainLimits = TrainLimits {
    segments: 1,
    bytes: 65_000,
};

/// A device as an engine of one thread. After an error it gives nothing back.
struct Port {
    gpu: Arc<Mutex<Gpu>>,
    done: VecDeque<Batch>,
    error: Option<DeviceError>,
}

impl Port {
    fn take(&mut self, done: Result<Option<Vec<Batch>>, DeviceError>) {
        match done {
            Ok(done) => self.done.extend(done.into_iter().flatten()),
            Err(error) => self.error = Some(error),
        }
    }
}

impl Engine for Port {
    fn submit(&mut self, batch: Batch) -> Result<(), Rejected> {
        let started = locked(&self.gpu).start(vec![batch]);
        self.take(started);
        Ok(())
    }

    fn poll(&mut self) -> Option<Batch> {
        if self.done.is_empty() && self.error.is_none() {
            let done = locked(&self.gpu).wait();
            self.take(done);
        }
        self.done.pop_front()
    }

    fn arena(&self, len: usize) -> Arena {
        locked(&self.gpu).arena(len)
    }
}

fn host(bits: u32) -> IpAddr {
    IpAddr::V4(Ipv4Addr::from_bits(bits))
}

fn path() -> Path {
    Path {
        local: SocketAddr::new(host(0xc000_0201), 4500),
        remote: SocketAddr::new(host(0xc633_6402), 4500),
        udp_encap: true,
    }
}

/// Makes both halves of each SA, with the same key.
fn tables() -> (Spd, Database) {
    let transform = Transform::from_name(TRANSFORM).expect("a transform");
    let database = Database::new();
    let policy = Policy::new(PolicyId(0), "bench");
    for number in 0..SAS {
        let spi = database.sad().allocate_spi().expect("room");
        let key = vec![number as u8 + 1; transform.key_material_len()];
        let here = AddressRange::host(host(LOCAL));
        let there = AddressRange::host(host(REMOTE + number));
        let parameters = |local, remote| {
            let set = SelectorSet::new(vec![Selector::between(local, remote)]).expect("one");
            SaParameters {
                esn: true,
                replay_window: 8192,
                ..SaParameters::new(spi, PolicyId(0), transform, &key, set, path())
            }
        };
        let outbound = OutboundSa::new(parameters(here, there)).expect("a good key");
        policy.install(Arc::new(outbound));
        let inbound = InboundSa::new(parameters(there, here)).expect("a good key");
        database.sad().insert(Arc::new(inbound)).expect("allocated");
    }
    let all = AddressRange::new(host(REMOTE), host(REMOTE + SAS - 1)).expect("in order");
    let here = AddressRange::host(host(LOCAL));
    let set = SelectorSet::new(vec![Selector::between(here, all)]).expect("one");
    let entry = SpdEntry::new(set, Action::Protect(Arc::new(policy)));
    (Spd::new(vec![entry]), database)
}

fn write_inner(packet: &mut [u8], to: u32) {
    let [high, low] = (packet.len() as u16).to_be_bytes();
    packet[..12].copy_from_slice(&[0x45, 0, high, low, 0, 0, 0x40, 0, 64, 17, 0, 0]);
    packet[12..16].copy_from_slice(&LOCAL.to_be_bytes());
    packet[16..20].copy_from_slice(&to.to_be_bytes());
    packet[20..24].copy_from_slice(&[0x12, 0x34, 0, 53]);
    let sum = checksum::fold(checksum::sum(0, &packet[..20]));
    packet[10..12].copy_from_slice(&sum.to_be_bytes());
}

/// Measures one core with the CPU engine.
pub fn cpu(time: Duration) {
    let [mut seal, mut open] = [(); 2].map(|()| CpuEngine::new(4).expect("a tier"));
    let gbits = through(time, 128, &mut seal, &mut open).expect("the CPU has no error");
    println!(
        "{{\"part\":\"walk\",\"row\":\"R1\",\"engine\":\"cpu\",\"packets\":128,\"gbits\":{gbits:.3}}}"
    );
}

/// Measures one core with the device.
pub fn gpu(options: &Options, time: Duration, gpu: &Arc<Mutex<Gpu>>) -> Result<(), DeviceError> {
    let [mut seal, mut open] = [(); 2].map(|()| Port {
        gpu: Arc::clone(gpu),
        done: VecDeque::new(),
        error: None,
    });
    let packets = options.packets;
    let Some(gbits) = through(time, packets, &mut seal, &mut open) else {
        let error = seal.error.or(open.error);
        return Err(error.expect("a device without an error gives batches back"));
    };
    let tables = locked(gpu).tables();
    println!(
        "{{\"part\":\"walk\",\"row\":\"R1\",\"engine\":\"gpu\",\"tables\":{tables},\"packets\":{packets},\
         \"gbits\":{gbits:.3}}}"
    );
    Ok(())
}

/// Returns the throughput in Gbit/s, or nothing if an engine has an error.
fn through(
    time: Duration,
    packets: usize,
    sealing: &mut dyn Engine,
    opening: &mut dyn Engine,
) -> Option<f64> {
    let limits = WalkLimits {
        buffer_len: packets * SLOT + 4096,
        jobs_max: packets,
        batches_max: 2,
    };
    let (spd, database) = tables();
    let mut outbound = Outbound::new(limits)
        .with_arenas_of(sealing)
        .with_flows(2 * SAS as usize);
    let mut inbound = Inbound::new(limits).with_arenas_of(opening);
    let slots: Vec<ArenaPacket> = (0..packets)
        .map(|number| ArenaPacket {
            slot_start: (number * SLOT) as u32,
            slot_end: ((number + 1) * SLOT) as u32,
            offset: (number * SLOT + HEADROOM) as u32,
            len: LEN as u32,
        })
        .collect();
    let facts = [OuterFacts::new(path().remote, true, 0)];
    let (mut delivered, mut sent) = (0, 0);
    let begun = Instant::now();
    while delivered == 0 || begun.elapsed() < time {
        let buffer = outbound.receive_buffer().expect("a batch").bytes;
        for (number, slot) in slots.iter().enumerate() {
            let to = REMOTE + number as u32 % SAS;
            write_inner(&mut buffer[slot.offset as usize..][..LEN], to);
        }
        assert!(outbound.commit_received(packets * SLOT));
        outbound.push_burst(&spd, &slots);
        outbound.submit(sealing).expect("room");
        sent += packets;
        let sealed = outbound.poll(sealing, &spd)?;
        let buffer = inbound.receive_buffer().expect("a batch").bytes;
        let (mut at, mut received) = (0, Vec::with_capacity(packets));
        for train in sealed.trains(EACH) {
            buffer[at..][..train.esp.len()].copy_from_slice(train.esp);
            received.push(ReceivedPacket {
                offset: at as u32,
                len: train.esp.len() as u32,
                facts: 0,
            });
            at += SLOT;
        }
        outbound.recycle(sealed);
        assert!(inbound.commit_received(at));
        inbound.push_burst(database.sad(), &facts, &received);
        inbound.submit(opening).expect("room");
        let opened = inbound.poll(opening)?;
        delivered += opened.delivered().len();
        inbound.recycle(opened);
    }
    let seconds = begun.elapsed().as_secs_f64();
    assert_eq!(sent, delivered);
    Some((delivered * LEN * 8) as f64 / seconds / 1e9)
}
