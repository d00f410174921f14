//! Tests, in a separate network namespace, which worker's socket the kernel chooses.

use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsFd;

use esplanade::dataplane::slots::ReceiveSlots;
use esplanade::io::ah::AhSocket;
use esplanade::io::netns::NetworkNamespace;
use esplanade::io::raw::EspSocket;
use esplanade::io::steer::SpiShare;
use esplanade::io::udp::{DatagramReceiver, SocketOptions, UdpSocket};
use esplanade::net::Net;
use socket2::{Domain, Protocol, Socket, Type};

const SLOTS: ReceiveSlots = ReceiveSlots {
    count: 64,
    len: 2048,
    more: 0,
};
/// The numbers of workers: 3 is no power of two, while 2 and 8 are powers of two.
const WORKERS: [u32; 3] = [3, 2, 8];
const SPIS: std::ops::Range<u32> = 0x8000_00f0..0x8000_0110;

/// Runs `work` in a namespace that has only the loopback interface, if that is permitted.
fn alone(test: &str, work: impl FnOnce() + Send) {
    let namespace = match NetworkNamespace::create() {
        Ok(namespace) => namespace,
        Err(error) => {
            eprintln!("SKIP {test}: no network namespace can be made: {error}");
            return;
        }
    };
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            namespace.enter().unwrap();
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .unwrap();
            runtime.block_on(async {
                let net = Net::connect().unwrap();
                let loopback = net.link_index("lo").await.unwrap();
                net.link_set_up(loopback).await.unwrap();
            });
            work();
        });
        thread.join().unwrap();
    });
}

fn loopback(v4: bool) -> IpAddr {
    let address = if v4 { "127.0.0.1" } else { "::1" };
    address.parse().unwrap()
}

/// Returns what a socket received, without the first `behind` bytes. Those are the IPv4 header of a
/// raw socket.
fn received(socket: impl AsFd, behind: usize) -> Vec<Vec<u8>> {
    let mut receiver = DatagramReceiver::new(SLOTS.count);
    let mut arena = vec![0; SLOTS.total()];
    let mut all = Vec::new();
    loop {
        let Ok(got) = receiver.receive(socket.as_fd(), &mut arena, SLOTS) else {
            return all;
        };
        if got.is_empty() {
            return all;
        }
        for meta in got {
            let bytes = &arena[meta.at..][..meta.len][behind..];
            let segment = if meta.segment == 0 {
                SLOTS.len
            } else {
                meta.segment
            };
            all.extend(bytes.chunks(segment).map(<[u8]>::to_vec));
        }
    }
}

/// Makes a packet with the SPI at offset `spi_at`, and then the sequence number.
fn packet(spi_at: usize, spi: u32, sequence: u32) -> Vec<u8> {
    let mut packet = vec![0; spi_at];
    packet.extend(spi.to_be_bytes());
    packet.extend(sequence.to_be_bytes());
    packet.extend([0; 24]);
    packet
}

/// Sends two packets of each SPI, and one packet that is too short for an SPI.
fn raw_packets_to(v4: bool, protocol: i32, spi_at: usize) {
    let domain = if v4 { Domain::IPV4 } else { Domain::IPV6 };
    let sender = Socket::new(domain, Type::RAW, Some(Protocol::from(protocol))).unwrap();
    let here = SocketAddr::new(loopback(v4), 0).into();
    for sequence in 1..=2 {
        for spi in SPIS {
            sender
                .send_to(&packet(spi_at, spi, sequence), &here)
                .unwrap();
        }
    }
    sender.send_to(&vec![0xff; spi_at + 3], &here).unwrap();
}

fn assert_shares(all: &[Vec<Vec<u8>>], spi_at: usize, case: &str) {
    let workers = all.len() as u32;
    for (index, packets) in (0..).zip(all) {
        let of_worker = SPIS.filter(|spi| SpiShare::worker(*spi, workers) == index);
        let of_worker: Vec<u32> = of_worker.collect();
        let mut expected: Vec<Vec<u8>> = Vec::new();
        for sequence in 1..=2 {
            expected.extend(of_worker.iter().map(|spi| packet(spi_at, *spi, sequence)));
        }
        if index == 0 {
            expected.push(vec![0xff; spi_at + 3]);
        }
        assert_eq!(*packets, expected, "{case}, worker {index} of {workers}");
    }
}

#[test]
fn raw_packets_go_to_one_worker_by_their_spi() {
    alone("raw_packets_go_to_one_worker_by_their_spi", || {
        let options = SocketOptions::default();
        for (v4, of) in WORKERS.into_iter().flat_map(|of| [(true, of), (false, of)]) {
            let header = if v4 { 20 } else { 0 };
            let shares = || (0..of).map(|index| SpiShare { index, of });

            let esp: Vec<EspSocket> = shares()
                .map(|share| {
                    let socket = EspSocket::open(loopback(v4), &options).unwrap();
                    socket.take_share(share).unwrap();
                    socket
                })
                .collect();
            raw_packets_to(v4, 50, 0);
            let got: Vec<_> = esp.iter().map(|socket| received(socket, header)).collect();
            assert_shares(&got, 0, "ESP");

            let ah: Vec<AhSocket> = shares()
                .map(|share| {
                    let socket = AhSocket::open(loopback(v4), &options).unwrap();
                    socket.take_share(share).unwrap();
                    socket
                })
                .collect();
            raw_packets_to(v4, 51, 4);
            let got: Vec<_> = ah.iter().map(|socket| received(socket, header)).collect();
            assert_shares(&got, 4, "AH");
        }
    });
}

#[test]
fn datagrams_of_one_peer_go_to_workers_by_their_spi() {
    alone("datagrams_of_one_peer_go_to_workers_by_their_spi", || {
        for (v4, of) in WORKERS.into_iter().flat_map(|of| [(true, of), (false, of)]) {
            let options = SocketOptions {
                reuse_port: true,
                ..SocketOptions::default()
            };
            let address = SocketAddr::new(loopback(v4), 4500);
            let group: Vec<UdpSocket> = (0..of)
                .map(|_| UdpSocket::bind(address, &options).unwrap())
                .collect();
            group[0].spread(of).unwrap();
            let sender = std::net::UdpSocket::bind(SocketAddr::new(loopback(v4), 0)).unwrap();
            for sequence in 1..=2 {
                for spi in SPIS {
                    let packet = packet(0, spi, sequence);
                    sender.send_to(&packet, address).unwrap();
                }
            }
            sender.send_to(&[0xff; 3], address).unwrap();
            // Send an IKE message with its non-ESP marker, and a NAT keepalive.
            sender.send_to(&packet(0, 0, 7), address).unwrap();
            sender.send_to(&[0xff], address).unwrap();
            let mut got: Vec<_> = group.iter().map(|socket| received(socket, 0)).collect();
            assert_eq!(got[0].pop().unwrap(), [0xff]);
            assert_eq!(got[0].pop().unwrap(), packet(0, 0, 7));
            assert_shares(&got, 0, "UDP");
        }
    });
}
