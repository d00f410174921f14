//! Tests the workers against the kernel's stack: TCP and UDP through two gateways, with every kind
//! of outer packet.
//!
//! The tests need /dev/net/tun and the right to create network namespaces. Without them, each test
//! prints SKIP and passes.

use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use esplanade::io::netns::NetworkNamespace;
use esplanade::worker::{BindError, ListenConfig, Sockets};
use esplanade_crypto::Transform;
use esplanade_ipsec::DropReason;

use pair::{Error, INNER_V4, INNER_V6, OUTER_V4, Pair, PairOptions, inside};

mod pair;

/// AES-GCM-16 with a 128-bit key.
const GCM: Transform = Transform::ESP[0];
/// AES-CBC with a 256-bit key and HMAC-SHA2-256-128.
const CBC: Transform = Transform::ESP[5];
const BULK: usize = 8 << 20;

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

/// Returns bytes that show their own position.
fn pattern(len: usize) -> Vec<u8> {
    (0..len as u32)
        .map(|at| (at.wrapping_mul(2_654_435_761) >> 24) as u8)
        .collect()
}

fn tcp_transfer(pair: &Pair, server: IpAddr) -> Result<(), Error> {
    let listener = inside(&pair.namespaces[1], || {
        Ok(TcpListener::bind((server, 5001))?)
    })?;
    std::thread::scope(|scope| {
        let receiver = scope.spawn(move || -> Result<Vec<u8>, Error> {
            let mut received = Vec::new();
            listener.accept()?.0.read_to_end(&mut received)?;
            Ok(received)
        });
        inside(&pair.namespaces[0], || {
            let mut stream = TcpStream::connect_timeout(
                &SocketAddr::new(server, 5001),
                Duration::from_secs(10),
            )?;
            Ok(stream.write_all(&pattern(BULK))?)
        })?;
        let received = receiver.join().map_err(|_| "the receiver panicked")??;
        assert!(
            received == pattern(BULK),
            "{} bytes arrived, not those that were sent",
            received.len()
        );
        Ok(())
    })
}

fn udp_transfer(pair: &Pair, server: IpAddr) -> Result<(), Error> {
    let receiver = inside(&pair.namespaces[1], || Ok(UdpSocket::bind((server, 5002))?))?;
    receiver.set_read_timeout(Some(Duration::from_secs(10)))?;
    let unspecified = if server.is_ipv4() {
        "0.0.0.0:0"
    } else {
        "[::]:0"
    };
    let sender = inside(&pair.namespaces[0], || Ok(UdpSocket::bind(unspecified)?))?;
    // The last datagram exceeds the MTU, so the kernel fragments it.
    let sizes = [1, 9, 1200, 1200, 1200, 1200, 700, 1200, 3000];
    for (index, size) in sizes.into_iter().enumerate() {
        let mut datagram = pattern(size);
        datagram[0] = index as u8;
        sender.send_to(&datagram, (server, 5002))?;
    }
    let mut received = Vec::new();
    for _ in sizes {
        let mut buffer = [0; 4000];
        let len = receiver.recv(&mut buffer)?;
        assert_eq!(buffer[1..len], pattern(len)[1..]);
        received.push((usize::from(buffer[0]), len));
    }
    // Fragments have no ports. So the kernel may give them to another worker, where they overtake.
    received.sort_by_key(|(index, _)| *index == sizes.len() - 1);
    assert!(
        received.iter().copied().eq(sizes.into_iter().enumerate()),
        "{received:?}"
    );
    Ok(())
}

fn run(test: &str, options: PairOptions) {
    if !permitted(test) {
        return;
    }
    let pair = Pair::new(&options).unwrap();
    for server in [IpAddr::V4(INNER_V4[1]), IpAddr::V6(INNER_V6[1])] {
        udp_transfer(&pair, server).unwrap();
        tcp_transfer(&pair, server).unwrap();
    }
    let (mut sent, mut received) = (0, 0);
    for worker in &pair.sites[0].workers {
        sent += worker.io.sent.load(Ordering::Relaxed);
        assert_eq!(worker.io.send_errors.load(Ordering::Relaxed), 0);
        assert_eq!(worker.io.send_too_big.load(Ordering::Relaxed), 0);
    }
    for worker in &pair.sites[1].workers {
        received += worker.inbound.packets_out.load(Ordering::Relaxed);
        assert_eq!(worker.inbound.drops.total(), 0);
        assert_eq!(worker.io.tun_write_errors.load(Ordering::Relaxed), 0);
        assert_eq!(worker.outbound.drops.get(DropReason::MalformedInner), 0);
    }
    assert!(
        received > 2 * BULK as u64 / 1500 && received <= sent,
        "sent {sent}, received {received}"
    );
    let writes: u64 = pair.sites[1]
        .workers
        .iter()
        .map(|w| w.io.tun_writes.load(Ordering::Relaxed))
        .sum();
    eprintln!("{test}: {received} packets in {writes} writes");
}

#[test]
fn udp_encapsulated_over_ipv4() {
    let options = PairOptions {
        transform: GCM,
        udp_encap: true,
        outer_v6: false,
        workers: 1,
        peer_replay_window: 32,
    };
    run("udp_encapsulated_over_ipv4", options);
}

#[test]
fn udp_encapsulated_over_ipv6() {
    let options = PairOptions {
        transform: CBC,
        udp_encap: true,
        outer_v6: true,
        workers: 1,
        peer_replay_window: 32,
    };
    run("udp_encapsulated_over_ipv6", options);
}

#[test]
fn raw_over_ipv4() {
    let options = PairOptions {
        transform: CBC,
        udp_encap: false,
        outer_v6: false,
        workers: 1,
        peer_replay_window: 32,
    };
    run("raw_over_ipv4", options);
}

#[test]
fn raw_over_ipv6() {
    let options = PairOptions {
        transform: GCM,
        udp_encap: false,
        outer_v6: true,
        workers: 1,
        peer_replay_window: 32,
    };
    run("raw_over_ipv6", options);
}

#[test]
fn two_workers_share_the_port() {
    let options = PairOptions {
        transform: GCM,
        udp_encap: true,
        outer_v6: false,
        workers: 2,
        peer_replay_window: 32,
    };
    run("two_workers_share_the_port", options);
}

#[test]
fn a_port_in_use_is_named_with_its_user() {
    if !permitted("a_port_in_use_is_named_with_its_user") {
        return;
    }
    let namespace = NetworkNamespace::create().unwrap();
    for workers in [1, 2] {
        let error = inside(&namespace, || {
            let _other = UdpSocket::bind("0.0.0.0:4500")?;
            Ok(Sockets::bind(&ListenConfig {
                workers,
                ..ListenConfig::default()
            })
            .map(drop)
            .unwrap_err())
        });
        let error = error.unwrap();
        assert!(
            matches!(error, BindError::InUse { port: 4500, .. }),
            "{error}"
        );
        assert!(
            error
                .to_string()
                .contains(&format!("process {}", std::process::id())),
            "{error}"
        );
    }
}

#[test]
fn datagrams_that_are_no_esp_are_sorted() {
    if !permitted("datagrams_that_are_no_esp_are_sorted") {
        return;
    }
    let options = PairOptions {
        transform: GCM,
        udp_encap: true,
        outer_v6: false,
        workers: 1,
        peer_replay_window: 32,
    };
    let mut pair = Pair::new(&options).unwrap();
    let sender = inside(&pair.namespaces[0], || {
        Ok(UdpSocket::bind((OUTER_V4[0], 0))?)
    })
    .unwrap();
    let remote = sender.local_addr().unwrap();
    let marked = [&[0; 4][..], b"over NAT traversal"].concat();
    let unknown_spi = [0x12, 0x34, 0x56, 0x78, 0, 0, 0, 1, 0, 0];
    for (port, payload) in [
        (4500, &[0xff][..]),
        (4500, &[1, 2]),
        (4500, &unknown_spi),
        (4500, &marked),
        (500, b"plain"),
    ] {
        sender.send_to(payload, (OUTER_V4[1], port)).unwrap();
    }
    let site = &mut pair.sites[1];
    let mut received: Vec<_> = (0..2).map(|_| site.ike.blocking_recv().unwrap()).collect();
    received.sort_by_key(|datagram| datagram.local.port());
    assert_eq!(received[0].payload, b"plain");
    assert_eq!(
        received[1].payload, marked,
        "the marker is left for IKE to take off"
    );
    for datagram in &received {
        assert_eq!(
            (datagram.local.ip(), datagram.remote),
            (IpAddr::V4(OUTER_V4[1]), remote)
        );
    }
    // A worker reports a packet before it counts it. Stopping the worker makes the counts final.
    let worker = &site.workers[0];
    worker.stop();
    let deadline = Instant::now() + Duration::from_secs(10);
    while worker.is_running() {
        assert!(Instant::now() < deadline, "the worker does not stop");
        std::thread::sleep(Duration::from_millis(1));
    }
    let io = &worker.io;
    assert_eq!(io.ike_messages.load(Ordering::Relaxed), 2);
    assert_eq!(io.keepalives.load(Ordering::Relaxed), 1);
    assert_eq!(io.runts.load(Ordering::Relaxed), 1);
    assert_eq!(worker.inbound.drops.get(DropReason::UnknownSpi), 1);
}
