//! Both walks around the engine: packets from the clear to ESP and back, each of another SA.

use std::collections::VecDeque;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Instant;

use esplanade_crypto::{Arena, Batch, CpuEngine, Engine, Rejected, Transform};
use esplanade_gpu::device::opencl::OpenClOptions;
use esplanade_gpu::{Arrangement, Gpu};
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

use crate::Options;

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

/// A device as an engine of one thread.
struct Port {
    gpu: Gpu,
    done: VecDeque<Batch>,
}

impl Engine for Port {
    fn submit(&mut self, batch: Batch) -> Result<(), Rejected> {
        self.done.extend(
            self.gpu
                .start(vec![batch])
                .expect("a launch")
                .into_iter()
                .flatten(),
        );
        Ok(())
    }

    fn poll(&mut self) -> Option<Batch> {
        if self.done.is_empty() {
            self.done
                .extend(self.gpu.wait().expect("a launch").into_iter().flatten());
        }
        self.done.pop_front()
    }

    fn arena(&self, len: usize) -> Arena {
        self.gpu.arena(len)
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

/// Measures one core with the CPU engine, and the device.
pub fn measure(options: &Options) {
    let mut cpu = [(); 2].map(|()| CpuEngine::new(4).expect("a tier"));
    let [seal, open] = &mut cpu;
    through(options, "cpu", 128, seal, open);
    let mut ports = [(); 2].map(|()| Port {
        gpu: options.gpu(Arrangement::Full, OpenClOptions::default()),
        done: VecDeque::new(),
    });
    let [seal, open] = &mut ports;
    through(options, "gpu", options.packets, seal, open);
}

fn through(
    options: &Options,
    name: &str,
    packets: usize,
    sealing: &mut dyn Engine,
    opening: &mut dyn Engine,
) {
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
    while begun.elapsed() < options.time {
        let buffer = outbound.receive_buffer().expect("a batch").bytes;
        for (number, slot) in slots.iter().enumerate() {
            let to = REMOTE + number as u32 % SAS;
            write_inner(&mut buffer[slot.offset as usize..][..LEN], to);
        }
        assert!(outbound.commit_received(packets * SLOT));
        outbound.push_burst(&spd, &slots);
        outbound.submit(sealing).expect("room");
        sent += packets;
        let sealed = outbound.poll(sealing, &spd).expect("a batch");
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
        let opened = inbound.poll(opening).expect("a batch");
        delivered += opened.delivered().len();
        inbound.recycle(opened);
    }
    let seconds = begun.elapsed().as_secs_f64();
    assert_eq!(sent, delivered);
    let gbits = (delivered * LEN * 8) as f64 / seconds / 1e9;
    println!(
        "{{\"part\":\"walk\",\"row\":\"R1\",\"engine\":\"{name}\",\"packets\":{packets},\"gbits\":{gbits:.3}}}"
    );
}
