//! Sends many flows through one pair of SAs, with two workers at each end. Checks which worker
//! carries what, and the order of arrival.
//!
//! The tests need /dev/net/tun and the right to create network namespaces. Without them, each test
//! prints SKIP and passes.

use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use esplanade::io::netns::NetworkNamespace;
use esplanade_crypto::Transform;
use esplanade_ipsec::DropReason;

use pair::{Error, INNER_V4, INNER_V6, Pair, PairOptions, inside};

mod pair;

const FLOWS: u16 = 8;
/// Datagrams of a flow that are in flight at a time, and the number of rounds.
const IN_FLIGHT: u32 = 20;
const ROUNDS: u32 = 40;
/// Rounds before each flow got an answer. Until then the kernel may move a flow to another worker.
const WARM_UP: u32 = 1;

fn permitted(test: &str) -> bool {
    let missing = if !std::path::Path::new("/dev/net/tun").exists() {
        Some("there is no /dev/net/tun".to_owned())
    } else {
        NetworkNamespace::create()
            .err()
            .map(|error| format!("no network namespace can be made: {error}"))
    };
    if let Some(reason) = &missing {
        eprintln!("SKIP {test}: {reason}");
    }
    missing.is_none()
}

/// Sends numbered datagrams of every flow in turn. Both ends expect them in order.
fn echo(pair: &Pair, [near, far]: [IpAddr; 2], in_flight: u32) -> Result<(), Error> {
    let server = inside(&pair.namespaces[1], || Ok(UdpSocket::bind((far, 7000))?))?;
    server.set_read_timeout(Some(Duration::from_millis(50)))?;
    let flows = inside(&pair.namespaces[0], || {
        let bind = |flow| -> Result<UdpSocket, Error> {
            let socket = UdpSocket::bind((near, 6000 + flow))?;
            socket.connect((far, 7000))?;
            socket.set_read_timeout(Some(Duration::from_secs(10)))?;
            Ok(socket)
        };
        (0..FLOWS).map(bind).collect::<Result<Vec<_>, Error>>()
    })?;
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let far_end = scope.spawn(|| -> Result<(), Error> {
            let mut next = [0u32; FLOWS as usize];
            let mut number = [0; 4];
            while !stop.load(Ordering::Relaxed) {
                let Ok((4, from)) = server.recv_from(&mut number) else {
                    continue;
                };
                let flow: SocketAddr = from;
                let next = &mut next[usize::from(flow.port() - 6000)];
                assert_eq!(
                    u32::from_be_bytes(number),
                    *next,
                    "{flow}, on the way there"
                );
                *next += 1;
                server.send_to(&number, from)?;
            }
            Ok(())
        });
        let result = (|| -> Result<(), Error> {
            for first in (0..ROUNDS * in_flight).step_by(in_flight as usize) {
                for number in first..first + in_flight {
                    for flow in &flows {
                        flow.send(&number.to_be_bytes())?;
                    }
                }
                for flow in &flows {
                    for number in first..first + in_flight {
                        let mut back = [0; 4];
                        flow.recv(&mut back)?;
                        assert_eq!(u32::from_be_bytes(back), number, "on the way back");
                    }
                }
            }
            Ok(())
        })();
        stop.store(true, Ordering::Relaxed);
        far_end.join().map_err(|_| "the far end panicked")??;
        result
    })
}

/// Sends flows without answers, which the kernel spreads by its own hash.
fn one_way(pair: &Pair, far: IpAddr) -> Result<(), Error> {
    let server = inside(&pair.namespaces[1], || Ok(UdpSocket::bind((far, 7001))?))?;
    inside(&pair.namespaces[0], || {
        let bind = |_| Ok(UdpSocket::bind("0.0.0.0:0")?);
        let flows = (0..4 * FLOWS)
            .map(bind)
            .collect::<Result<Vec<_>, Error>>()?;
        for _ in 0..ROUNDS * IN_FLIGHT {
            for flow in &flows {
                flow.send_to(b"one way", (far, 7001))?;
            }
        }
        Ok(())
    })?;
    drop(server);
    Ok(())
}

/// Returns the number of outbound packets of each worker at each end.
fn carried(pair: &Pair) -> [Vec<u64>; 2] {
    let of = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
    [0, 1].map(|end: usize| {
        let workers = pair.sites[end].workers.iter();
        workers
            .map(|worker| of(&worker.outbound.packets_out))
            .collect()
    })
}

fn run(test: &str, transform: Transform, udp_encap: bool, outer_v6: bool, window: u32) {
    if !permitted(test) {
        return;
    }
    let options = PairOptions {
        transform,
        udp_encap,
        outer_v6,
        workers: 2,
        peer_replay_window: window,
    };
    let pair = Pair::new(&options).unwrap();
    for (v4, ends) in [
        (true, INNER_V4.map(IpAddr::V4)),
        (false, INNER_V6.map(IpAddr::V6)),
    ] {
        echo(&pair, ends, WARM_UP).unwrap();
        let before = carried(&pair);
        echo(&pair, ends, IN_FLIGHT).unwrap();
        for (end, (before, after)) in before.iter().zip(carried(&pair)).enumerate() {
            let packets: Vec<u64> = after.iter().zip(before).map(|(a, b)| a - b).collect();
            let all: u64 = packets.iter().sum();
            assert!(all >= u64::from(ROUNDS * IN_FLIGHT * u32::from(FLOWS)));
            let least = *packets.iter().min().unwrap();
            eprintln!("{test}, v4 {v4}, end {end}: {packets:?}");
            if window >= 8192 {
                assert!(least * 4 >= all, "v4 {v4}, end {end}: {packets:?}");
            }
        }
    }
    let before = carried(&pair);
    one_way(&pair, INNER_V4[1].into()).unwrap();
    let after = carried(&pair);
    let is_more = |(after, before): (&u64, &u64)| after > before;
    assert!(after[0].iter().zip(&before[0]).all(is_more));
    for worker in pair.sites.iter().flat_map(|site| &site.workers) {
        assert_eq!(worker.inbound.drops.get(DropReason::BeforeWindow), 0);
        assert_eq!(worker.inbound.drops.get(DropReason::Replayed), 0);
        assert_eq!(worker.outbound.drops.get(DropReason::EngineFailed), 0);
    }
}

/// AES-GCM-16 with a 128-bit key.
const GCM: Transform = Transform::ESP[0];

#[test]
fn flows_of_one_sa_spread_in_udp() {
    run("flows_of_one_sa_spread_in_udp", GCM, true, false, 8192);
    run("flows_of_one_sa_spread_in_udp", GCM, true, true, 8192);
}

#[test]
fn flows_of_one_sa_spread_without_udp() {
    run(
        "flows_of_one_sa_spread_without_udp",
        GCM,
        false,
        false,
        8192,
    );
    run("flows_of_one_sa_spread_without_udp", GCM, false, true, 8192);
}

#[test]
fn a_small_window_loses_nothing() {
    run("a_small_window_loses_nothing", GCM, true, false, 32);
    run("a_small_window_loses_nothing", GCM, false, true, 32);
}
