//! Tests packets that are too long for the path, the ICMP errors about them, and fragments, between
//! two data planes.

use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use esplanade::io::icmp::route_mtu;
use esplanade::io::netns::NetworkNamespace;
use esplanade::net::Net;
use esplanade::worker::Processing;
use esplanade_crypto::Transform;
use esplanade_ipsec::DropReason;
use esplanade_ipsec::selector::{AddressRange, NextLayer, PortRange, Selector, SelectorSet};
use esplanade_ipsec::spd::{Action, Entry, Spd};
use esplanade_ipsec::wire::checksum;
use pair::{Extras, INNER_V4, INNER_V6, OUTER_V4, Pair, PairOptions, inside};
use socket2::{Domain, Protocol, SockRef, Socket, Type};

mod pair;

fn options(udp_encap: bool, outer_v6: bool) -> PairOptions {
    PairOptions {
        transform: Transform::ESP[0],
        udp_encap,
        outer_v6,
        workers: 1,
        peer_replay_window: 32,
    }
}

fn pair(test: &str, options: &PairOptions, extras: &Extras) -> Option<Pair> {
    let missing = if !std::path::Path::new("/dev/net/tun").exists() {
        Some("there is no /dev/net/tun".to_owned())
    } else {
        let namespace = NetworkNamespace::create();
        namespace
            .err()
            .map(|error| format!("no network namespace can be made: {error}"))
    };
    match missing {
        Some(reason) => {
            eprintln!("SKIP {test}: {reason}");
            None
        }
        None => Some(Pair::with(options, extras).unwrap()),
    }
}

fn set_mtu(pair: &Pair, mtu: u32) {
    for (index, namespace) in pair.namespaces.iter().enumerate() {
        inside(namespace, || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()?;
            runtime.block_on(async {
                let net = Net::connect()?;
                let link = net.link_index(&format!("outer{index}")).await?;
                Ok(net.link_set_mtu(link, mtu).await?)
            })
        })
        .unwrap();
    }
}

fn udp(pair: &Pair, side: usize, v6: bool) -> UdpSocket {
    let address: IpAddr = if v6 {
        INNER_V6[side].into()
    } else {
        INNER_V4[side].into()
    };
    inside(&pair.namespaces[side], || {
        let socket = UdpSocket::bind((address, 7000))?;
        socket.set_read_timeout(Some(Duration::from_secs(5)))?;
        Ok(socket)
    })
    .unwrap()
}

/// Sends packets of `len` bytes until the kernel knows that they are too long. Returns how many it
/// accepted.
fn sends_until_told(pair: &Pair, socket: &UdpSocket, to: SocketAddr, len: usize) -> usize {
    let headers = if to.is_ipv6() { 48 } else { 28 };
    for sent in 1..=100 {
        socket.send_to(&vec![7; len - headers], to).unwrap();
        let known = inside(&pair.namespaces[0], || {
            let deadline = Instant::now() + Duration::from_millis(100);
            while route_mtu(to.ip(), None)? as usize >= len {
                if Instant::now() >= deadline {
                    return Ok(false);
                }
                std::thread::sleep(Duration::from_millis(1));
            }
            Ok(true)
        });
        if known.unwrap() {
            return sent;
        }
    }
    panic!("nobody told the sender");
}

fn arrives(from: &UdpSocket, to: &UdpSocket, len: usize) {
    let payload: Vec<u8> = (0..len).map(|at| at as u8).collect();
    from.send_to(&payload, to.local_addr().unwrap()).unwrap();
    let mut buffer = vec![0; 65_536];
    loop {
        let received = to.recv(&mut buffer).expect("it arrives");
        // An earlier datagram may still arrive.
        if buffer[..received] == payload {
            return;
        }
    }
}

fn narrow_interface(test: &str, udp_encap: bool, outer_v6: bool) {
    let Some(pair) = pair(test, &options(udp_encap, outer_v6), &Extras::default()) else {
        return;
    };
    set_mtu(&pair, 1380);
    for v6 in [false, true] {
        let (near, far) = (udp(&pair, 0, v6), udp(&pair, 1, v6));
        let headers = if v6 { 48 } else { 28 };
        // The first packet makes the worker look up the route.
        let told = sends_until_told(&pair, &near, far.local_addr().unwrap(), 1350);
        assert!(
            (1..=3).contains(&told),
            "{told} packets until the sender was told"
        );
        arrives(&near, &far, 1280 - headers);
    }
    let worker = &pair.sites[0].workers[0];
    assert!(worker.outbound.drops.get(DropReason::TooBig) >= 1);
    assert!(worker.io.icmp_sent.load(Ordering::Relaxed) >= 1);
    assert_eq!(worker.io.path_mtus_learned.load(Ordering::Relaxed), 1);
}

// RFC 4301 R59, R113, R127; RFC 4302 R19; RFC 4303 R27
#[test]
fn a_narrow_interface_is_reported_through_udp_and_ipv4() {
    narrow_interface(
        "a_narrow_interface_is_reported_through_udp_and_ipv4",
        true,
        false,
    );
}

// RFC 4301 R62, R113, R127; RFC 4303 R27
#[test]
fn a_narrow_interface_is_reported_through_esp_and_ipv6() {
    narrow_interface(
        "a_narrow_interface_is_reported_through_esp_and_ipv6",
        false,
        true,
    );
}

/// Makes "fragmentation needed" about the packet that begins with `quoted`.
fn fragmentation_needed(mtu: u16, quoted: &[u8]) -> Vec<u8> {
    let mut message = vec![3, 4, 0, 0, 0, 0];
    message.extend(mtu.to_be_bytes());
    message.extend(quoted);
    let sum = checksum::fold(checksum::sum(0, &message));
    message[2..4].copy_from_slice(&sum.to_be_bytes());
    message
}

// RFC 4301 R46
#[test]
fn errors_from_the_network_are_believed_if_they_quote_our_packets() {
    let test = "errors_from_the_network_are_believed_if_they_quote_our_packets";
    let Some(pair) = pair(test, &options(false, false), &Extras::default()) else {
        return;
    };
    let (near, far) = (udp(&pair, 0, false), udp(&pair, 1, false));
    let (wire, icmp) = inside(&pair.namespaces[1], || {
        let wire = Socket::new(Domain::IPV4, Type::RAW, Some(Protocol::from(50)))?;
        wire.set_read_timeout(Some(Duration::from_secs(5)))?;
        let icmp = Socket::new(Domain::IPV4, Type::RAW, Some(Protocol::ICMPV4))?;
        Ok((wire, icmp))
    })
    .unwrap();
    arrives(&near, &far, 1300);
    let mut esp = [0; 28];
    std::io::Read::read(&mut &wire, &mut esp).unwrap();
    assert_eq!((esp[6] & 0x40, esp[9]), (0x40, 50), "ESP with DF");
    let to = SocketAddr::new(IpAddr::from(OUTER_V4[0]), 0).into();
    let mut forged = esp;
    forged[20] ^= 1;
    icmp.send_to(&fragmentation_needed(1200, &forged), &to)
        .unwrap();
    let io = &pair.sites[0].workers[0].io;
    let begin = Instant::now();
    while io.icmp_disbelieved.load(Ordering::Relaxed) == 0 {
        assert!(begin.elapsed() < Duration::from_secs(5));
        std::thread::sleep(Duration::from_millis(1));
    }
    arrives(&near, &far, 1300);
    icmp.send_to(&fragmentation_needed(1200, &esp), &to)
        .unwrap();
    while io.path_mtus_learned.load(Ordering::Relaxed) == 0 {
        assert!(begin.elapsed() < Duration::from_secs(5));
        std::thread::sleep(Duration::from_millis(1));
    }
    let told = sends_until_told(&pair, &near, far.local_addr().unwrap(), 1328);
    assert!(
        (1..=2).contains(&told),
        "{told} packets until the sender was told"
    );
    arrives(&near, &far, 1100);
}

// RFC 4301 R52, R56
#[test]
fn fragments_come_together_where_a_policy_asks_for_ports() {
    let extras = Extras {
        remote_ports: PortRange::Range(7000, 7000),
        ..Extras::default()
    };
    for v6 in [false, true] {
        let test = "fragments_come_together_where_a_policy_asks_for_ports";
        let Some(pair) = pair(test, &options(true, false), &extras) else {
            return;
        };
        let (near, far) = (udp(&pair, 0, v6), udp(&pair, 1, v6));
        for len in [3000, 20_000] {
            arrives(&near, &far, len);
        }
        let worker = &pair.sites[0].workers[0];
        assert_eq!(worker.io.reassembled.load(Ordering::Relaxed), 2);
        assert_eq!(worker.outbound.drops.get(DropReason::FragmentRefused), 0);
    }
}

#[test]
fn the_segment_size_of_tcp_is_lowered() {
    let clamping = Processing {
        mss_clamp: Some(1000),
        ..Processing::default()
    };
    let extras = Extras {
        processing: [clamping, Processing::default()],
        ..Extras::default()
    };
    let test = "the_segment_size_of_tcp_is_lowered";
    let Some(pair) = pair(test, &options(true, false), &extras) else {
        return;
    };
    let server: Ipv4Addr = INNER_V4[1];
    let listener = inside(&pair.namespaces[1], || {
        Ok(TcpListener::bind((server, 5001))?)
    })
    .unwrap();
    let near = inside(&pair.namespaces[0], || {
        let to = SocketAddr::new(server.into(), 5001);
        Ok(TcpStream::connect_timeout(&to, Duration::from_secs(10))?)
    })
    .unwrap();
    let far = listener.accept().unwrap().0;
    for stream in [&near, &far] {
        // The MSS is reduced by the timestamp option.
        let mss = SockRef::from(stream).tcp_mss().unwrap();
        assert!((940..=960).contains(&mss), "{mss}");
    }
    // The MSS was lowered in the SYN and in its answer, and again in each retransmission.
    let clamped = pair.sites.each_ref().map(|site| {
        let io = &site.workers[0].io;
        io.mss_clamped.load(Ordering::Relaxed)
    });
    assert!(clamped[0] >= 2, "{clamped:?}");
    assert_eq!(clamped[1], 0);
}

// RFC 4301 R30
#[test]
fn senders_of_discarded_packets_can_be_told() {
    let telling = Processing {
        report_discards: true,
        ..Processing::default()
    };
    let extras = Extras {
        processing: [telling, Processing::default()],
        remote_ports: PortRange::Range(7000, 7000),
        ..Extras::default()
    };
    let test = "senders_of_discarded_packets_can_be_told";
    let Some(pair) = pair(test, &options(true, false), &extras) else {
        return;
    };
    for v6 in [false, true] {
        let (near, far) = (udp(&pair, 0, v6), udp(&pair, 1, v6));
        let mut elsewhere = far.local_addr().unwrap();
        elsewhere.set_port(9);
        near.connect(elsewhere).unwrap();
        near.send(b"no policy is for this port").unwrap();
        let error = near.recv(&mut [0; 10]).unwrap_err().raw_os_error();
        let prohibited = if v6 { libc::EACCES } else { libc::EHOSTUNREACH };
        assert_eq!(error, Some(prohibited));
    }
    let worker = &pair.sites[0].workers[0];
    assert!(worker.outbound.drops.get(DropReason::NoPolicy) >= 2);
    // The sender may get its answer before the worker counts it.
    let sent = || worker.io.icmp_sent.load(Ordering::Relaxed);
    let deadline = Instant::now() + Duration::from_secs(10);
    while sent() < 2 && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(10));
    }
    // No error was sent about multicast, which the kernel sends by itself.
    assert_eq!(sent(), 2);
}

// RFC 4301 R90
#[test]
fn an_entry_in_front_discards_what_an_sa_would_take() {
    let test = "an_entry_in_front_discards_what_an_sa_would_take";
    let Some(pair) = pair(test, &options(true, false), &Extras::default()) else {
        return;
    };
    let database = &pair.sites[1].database;
    let refused = Selector {
        protocol: NextLayer::Is(17),
        local_ports: PortRange::Range(7000, 7000),
        ..Selector::between(
            AddressRange::from_prefix([0, 0, 0, 0].into(), 0).unwrap(),
            AddressRange::from_prefix([0, 0, 0, 0].into(), 0).unwrap(),
        )
    };
    let refused = Entry::new(SelectorSet::new(vec![refused]).unwrap(), Action::Discard);
    let mut entries = database.spd().entries().to_vec();
    entries.insert(0, refused);
    let (near, far) = (udp(&pair, 0, false), udp(&pair, 1, false));
    arrives(&near, &far, 100);
    database.publish_spd(Spd::new(entries));
    near.send_to(b"refused", far.local_addr().unwrap()).unwrap();
    let drops = &pair.sites[1].workers[0].inbound.drops;
    let deadline = Instant::now() + Duration::from_secs(10);
    while drops.get(DropReason::PolicyDiscard) == 0 && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(10));
    }
    assert_eq!(drops.get(DropReason::PolicyDiscard), 1);
    far.set_nonblocking(true).unwrap();
    assert!(far.recv(&mut [0; 100]).is_err());
    // The SPD permits IPv6.
    arrives(&udp(&pair, 0, true), &udp(&pair, 1, true), 100);
}
