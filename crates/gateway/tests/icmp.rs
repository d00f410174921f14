//! Tests the socket for ICMP errors in its own network namespace, because it receives every error
//! of its namespace.

use std::net::SocketAddr;

use esplanade::io::icmp::{IcmpBuffer, IcmpSocket, route_mtu};
use esplanade::io::netns::NetworkNamespace;
use esplanade::net::Net;
use esplanade_ipsec::pmtu::{Claim, Evidence};
use esplanade_ipsec::wire::checksum;
use socket2::{Domain, Protocol, Socket, Type};

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

/// Makes "fragmentation needed" about an ESP packet with SPI 7 and sequence number 9.
fn fragmentation_needed(mtu: u16) -> Vec<u8> {
    let mut message = vec![3, 4, 0, 0, 0, 0];
    message.extend(mtu.to_be_bytes());
    message.extend([0x45, 0, 5, 0xdc, 0, 0, 0x40, 0, 64, 50, 0, 0]);
    message.extend([127, 0, 0, 1, 192, 0, 2, 1, 0, 0, 0, 7, 0, 0, 0, 9]);
    let sum = checksum::fold(checksum::sum(0, &message));
    message[2..4].copy_from_slice(&sum.to_be_bytes());
    message
}

#[test]
fn errors_arrive_and_other_icmp_does_not() {
    alone("errors_arrive_and_other_icmp_does_not", || {
        let socket = IcmpSocket::open(true).unwrap();
        let sender = Socket::new(Domain::IPV4, Type::RAW, Some(Protocol::ICMPV4)).unwrap();
        let here = SocketAddr::new([127, 0, 0, 1].into(), 0).into();
        let echo_request = [8, 0, 0xf7, 0xff, 0, 0, 0, 0];
        sender.send_to(&echo_request, &here).unwrap();
        sender.send_to(&fragmentation_needed(1400), &here).unwrap();
        let mut message = IcmpBuffer::default();
        let reported = socket.receive(&mut message).unwrap().flatten().unwrap();
        let expected = Claim {
            remote: [192, 0, 2, 1].into(),
            mtu: 1400,
            evidence: Evidence::Quoted {
                spi: 7,
                sequence_low: 9,
            },
        };
        assert_eq!(Claim::read(&reported, &[4500]), Some(expected));
        assert_eq!(socket.receive(&mut message).unwrap(), None);
        let mut damaged = fragmentation_needed(1400);
        damaged[2] ^= 1;
        sender.send_to(&damaged, &here).unwrap();
        assert_eq!(socket.receive(&mut message).unwrap(), Some(None));
    });
}

#[test]
fn routes_have_an_mtu() {
    alone("routes_have_an_mtu", || {
        let mtu = route_mtu([127, 0, 0, 1].into(), Some(1)).unwrap();
        assert_eq!(mtu, 65_535);
        assert!(route_mtu([192, 0, 2, 1].into(), None).is_err());
        IcmpSocket::open(false).expect("IPv6");
    });
}
