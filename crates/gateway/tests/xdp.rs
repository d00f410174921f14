//! Tests AF_XDP sockets between two network namespaces. The tests need the right to load programs
//! into the kernel. Without it, they print SKIP and pass.

use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use esplanade::dataplane::slots::ReceiveSlots;
use esplanade::io::netns::NetworkNamespace;
use esplanade::io::raw::EspSocket;
use esplanade::io::udp::{DatagramReceiver, Outgoing, ReceivedDatagram, SocketOptions};
use esplanade::io::xdp::{LinkEnds, XdpMode, XdpProgram, XdpQueue};
use esplanade::net::{Net, XdpAttachment, detach_leftover, link_facts, neighbour, next_hop};

const V4: [&str; 2] = ["192.0.2.1", "192.0.2.2"];
const V6: [&str; 2] = ["2001:db8::1", "2001:db8::2"];
const MTU: usize = 1500;

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn block<T>(work: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(work)
}

/// An end of the link, in its own namespace.
struct End {
    namespace: NetworkNamespace,
    link: u32,
}

impl End {
    fn enter(&self) {
        self.namespace.enter().unwrap();
    }
}

/// Makes two hosts on one link, if that is permitted.
fn ends(test: &str) -> Option<[End; 2]> {
    let skip = |error: std::io::Error| {
        eprintln!("SKIP {test}: {error}");
        None::<NetworkNamespace>
    };
    let a = NetworkNamespace::create().map_or_else(skip, Some)?;
    let b = NetworkNamespace::create().map_or_else(skip, Some)?;
    a.enter().unwrap();
    block(async {
        let net = Net::connect().unwrap();
        net.link_add_veth("wan", "other").await.unwrap();
        let other = net.link_index("other").await.unwrap();
        net.link_move_to_netns(other, b.as_fd()).await.unwrap();
    });
    let mut links = [0; 2];
    for (end, namespace) in [&a, &b].into_iter().enumerate() {
        namespace.enter().unwrap();
        links[end] = block(async {
            let net = Net::connect().unwrap();
            let name = ["wan", "other"][end];
            let link = net.link_index(name).await.unwrap();
            net.address_add(link, ip(V4[end]), 24).await.unwrap();
            net.address_add(link, ip(V6[end]), 64).await.unwrap();
            net.link_set_up(link).await.unwrap();
            link
        });
    }
    let ends = [a, b].into_iter().zip(links);
    let ends: Vec<End> = ends
        .map(|(namespace, link)| End { namespace, link })
        .collect();
    ends.try_into().ok()
}

/// Attaches the program and opens its only socket. Returns `None` without the right to do so.
fn open(test: &str, end: &End) -> Option<(XdpProgram, XdpQueue)> {
    end.enter();
    let program = match XdpProgram::attach(end.link, 1) {
        Ok(program) => program,
        Err(error) if error.raw_os_error() == Some(libc::EPERM) => {
            eprintln!("SKIP {test}: {error}");
            return None;
        }
        Err(error) => panic!("{error}"),
    };
    let queue = XdpQueue::open(end.link, 0, MTU).unwrap();
    program.lead(0, queue.as_fd()).unwrap();
    Some((program, queue))
}

fn macs(ends: &[End; 2]) -> LinkEnds {
    let [from, to] = ends.each_ref().map(|end| {
        end.enter();
        link_facts(end.link).unwrap().mac
    });
    LinkEnds { from, to }
}

/// Waits until the kernel has checked the new IPv6 addresses for duplicates.
fn settle(end: &End) {
    end.enter();
    let begun = Instant::now();
    while UdpSocket::bind((ip(V6[0]), 0)).is_err() && UdpSocket::bind((ip(V6[1]), 0)).is_err() {
        assert!(begun.elapsed() < Duration::from_secs(10));
        std::thread::sleep(Duration::from_millis(50));
    }
}

fn esp(number: u32, len: usize) -> Vec<u8> {
    let mut packet = vec![number as u8; len];
    packet[..4].copy_from_slice(&0x1000_u32.to_be_bytes());
    packet[4..8].copy_from_slice(&number.to_be_bytes());
    packet
}

/// Receives until `count` packets arrived or two seconds passed.
fn receive(queue: &mut XdpQueue, count: usize) -> Vec<(Vec<u8>, ReceivedDatagram)> {
    let mut buffer = vec![0; 1 << 18];
    let (mut packets, mut all) = (Vec::new(), Vec::new());
    let begun = Instant::now();
    while all.len() < count && begun.elapsed() < Duration::from_secs(2) {
        let others = queue.receive(&mut buffer, &mut packets);
        assert_eq!(others, 0);
        let bytes = |meta: &ReceivedDatagram| buffer[meta.at..][..meta.len].to_vec();
        all.extend(packets.iter().map(|meta| (bytes(meta), *meta)));
    }
    all
}

/// Sends the frames for which the driver had no room.
fn finish(queue: &mut XdpQueue) {
    while queue.is_stuck() {
        assert_eq!(queue.flush().unwrap(), 0);
    }
}

fn send(queue: &mut XdpQueue, ends: &LinkEnds, local: &str, remote: &str, packets: &[Vec<u8>]) {
    for (packet, number) in packets.iter().zip(0..) {
        let item = Outgoing {
            remote: SocketAddr::new(ip(remote), 0),
            tos: 0x28,
            df: true,
            payload: packet,
            ..Outgoing::NONE
        };
        assert!(queue.takes(ip(local), &item));
        assert!(queue.push(ends, ip(local), &item, number));
    }
    assert_eq!(queue.flush().unwrap(), 0);
    finish(queue);
}

#[test]
fn esp_goes_from_one_to_the_other_and_all_else_the_kernels_way() {
    let test = "esp_goes_from_one_to_the_other_and_all_else_the_kernels_way";
    let Some(ends) = ends(test) else { return };
    let Some((a_program, mut a)) = open(test, &ends[0]) else {
        return;
    };
    let Some((_b_program, mut b)) = open(test, &ends[1]) else {
        return;
    };
    assert_eq!(a_program.mode, XdpMode::Driver, "veth can");
    settle(&ends[0]);
    settle(&ends[1]);
    let macs = macs(&ends);
    // There are more packets than the ring has places, from the shortest to the longest.
    let packets: Vec<_> = (0..5000)
        .map(|number| esp(number, 16 + (number as usize * 7) % 1400))
        .collect();
    for [local, remote] in [V4, V6] {
        for burst in packets.chunks(500) {
            send(&mut a, &macs, local, remote, burst);
            let got = receive(&mut b, burst.len());
            assert!(got.iter().map(|(packet, _)| packet).eq(burst));
            for (_, meta) in got {
                assert_eq!(meta.remote, SocketAddr::new(ip(local), 0));
                assert_eq!((meta.tos, meta.truncated), (0x28, false));
            }
        }
    }
    // UDP takes the kernel's stack.
    ends[1].enter();
    let to = UdpSocket::bind((ip(V4[1]), 0)).unwrap();
    to.set_read_timeout(Some(Duration::from_secs(2))).unwrap();
    ends[0].enter();
    let from = UdpSocket::bind((ip(V4[0]), 0)).unwrap();
    from.send_to(b"hello", to.local_addr().unwrap()).unwrap();
    let mut buffer = [0; 16];
    assert_eq!(to.recv(&mut buffer).unwrap(), 5);
    // Fragments of ESP take the kernel's stack too.
    ends[1].enter();
    let options = SocketOptions::default();
    let raw = EspSocket::open(ip(V4[1]), &options).unwrap();
    ends[0].enter();
    let kernel = EspSocket::open(ip(V4[0]), &options).unwrap();
    let long = esp(1, 3000);
    let item = Outgoing {
        remote: SocketAddr::new(ip(V4[1]), 0),
        payload: &long,
        ..Outgoing::NONE
    };
    assert!(!a.takes(ip(V4[0]), &item));
    assert_eq!(kernel.send(&[item]).sent, 1);
    let slots = ReceiveSlots {
        count: 1,
        len: 4096,
        more: 0,
    };
    let mut arena = vec![0; slots.total()];
    let mut receiver = DatagramReceiver::new(1);
    let begun = Instant::now();
    let len = loop {
        let got = receiver.receive(raw.as_fd(), &mut arena, slots).unwrap();
        if let Some(meta) = got.first() {
            break meta.len;
        }
        assert!(begun.elapsed() < Duration::from_secs(2));
    };
    assert_eq!(len, 3020);
    assert!(receive(&mut b, 0).is_empty());
}

#[test]
fn what_comes_too_fast_is_counted() {
    let test = "what_comes_too_fast_is_counted";
    let Some(ends) = ends(test) else { return };
    let Some((_a_program, mut a)) = open(test, &ends[0]) else {
        return;
    };
    let Some((_b_program, mut b)) = open(test, &ends[1]) else {
        return;
    };
    settle(&ends[0]);
    let macs = macs(&ends);
    let packets: Vec<_> = (0..3000).map(|number| esp(number, 100)).collect();
    for burst in packets.chunks(100) {
        send(&mut a, &macs, V4[0], V4[1], burst);
    }
    let got = receive(&mut b, packets.len());
    assert!(
        got.iter()
            .map(|(packet, _)| packet)
            .eq(&packets[..got.len()])
    );
    assert_eq!(got.len() as u64 + b.dropped(), packets.len() as u64);
    // The ring has room again.
    send(&mut a, &macs, V4[0], V4[1], &packets[..100]);
    assert_eq!(receive(&mut b, 100).len(), 100);
}

#[test]
fn who_leaves_gives_the_link_back() {
    let test = "who_leaves_gives_the_link_back";
    let Some(ends) = ends(test) else { return };
    let Some(first) = open(test, &ends[0]) else {
        return;
    };
    let again = XdpProgram::attach(ends[0].link, 1).unwrap_err();
    assert_eq!(again.raw_os_error(), Some(libc::EBUSY));
    drop(first);
    let program = XdpProgram::attach(ends[0].link, 1).unwrap();
    // The kernel needs a moment to free the queue.
    let begun = Instant::now();
    let queue = loop {
        match XdpQueue::open(ends[0].link, 0, MTU) {
            Ok(queue) => break queue,
            Err(error) if begun.elapsed() > Duration::from_secs(5) => panic!("{error}"),
            Err(_) => std::thread::sleep(Duration::from_millis(20)),
        }
    };
    program.lead(0, queue.as_fd()).unwrap();
}

#[test]
fn what_a_killed_gateway_left_is_known_by_its_owner() {
    let test = "what_a_killed_gateway_left_is_known_by_its_owner";
    let Some(ends) = ends(test) else { return };
    let Some((mut program, _queue)) = open(test, &ends[0]) else {
        return;
    };
    let link = ends[0].link;
    let attach = |program: &XdpProgram, mode| XdpAttachment::new(link, program, mode, "esp0");
    let busy = attach(&program, XdpMode::Driver).unwrap_err();
    assert_eq!(busy.raw_os_error(), Some(libc::EBUSY));
    program.detach();
    for mode in [XdpMode::Driver, XdpMode::Generic] {
        // Dropping it detaches the program, and takes the further name away.
        drop(attach(&program, mode).unwrap());
        assert!(!detach_leftover(link, "esp0").unwrap());
        std::mem::forget(attach(&program, mode).unwrap());
        assert!(!detach_leftover(link, "esp1").unwrap(), "another's");
        let busy = XdpProgram::attach(link, 1).unwrap_err();
        let expected = match mode {
            XdpMode::Driver => libc::EBUSY,
            XdpMode::Generic => libc::EEXIST,
        };
        assert_eq!(busy.raw_os_error(), Some(expected));
        assert!(detach_leftover(link, "esp0").unwrap());
        assert!(!detach_leftover(link, "esp0").unwrap());
        drop(XdpProgram::attach(link, 1).unwrap());
    }
}

#[test]
fn a_link_that_goes_is_noticed() {
    let test = "a_link_that_goes_is_noticed";
    let Some(ends) = ends(test) else { return };
    let Some((_program, mut queue)) = open(test, &ends[0]) else {
        return;
    };
    assert!(!queue.is_dead());
    let macs = macs(&ends);
    let [first, other] = ends;
    first.enter();
    drop(other);
    let begun = Instant::now();
    while !queue.is_dead() {
        assert!(begun.elapsed() < Duration::from_secs(10));
        std::thread::sleep(Duration::from_millis(20));
    }
    let packet = esp(1, 100);
    let item = Outgoing {
        remote: SocketAddr::new(ip(V4[1]), 0),
        payload: &packet,
        ..Outgoing::NONE
    };
    assert!(queue.push(&macs, ip(V4[0]), &item, 1));
    assert!(queue.flush().is_err());
}

#[test]
fn a_link_that_was_down_goes_on() {
    let test = "a_link_that_was_down_goes_on";
    let Some(ends) = ends(test) else { return };
    let Some((_a_program, mut a)) = open(test, &ends[0]) else {
        return;
    };
    let Some((_b_program, mut b)) = open(test, &ends[1]) else {
        return;
    };
    let macs = macs(&ends);
    let packets: Vec<_> = (0..4000).map(|number| esp(number, 100)).collect();
    let set = |up: bool| {
        ends[0].enter();
        block(async {
            let net = Net::connect().unwrap();
            match up {
                true => net.link_set_up(ends[0].link).await.unwrap(),
                false => net.link_set_down(ends[0].link).await.unwrap(),
            }
        });
    };
    settle(&ends[0]);
    send(&mut a, &macs, V4[0], V4[1], &packets[..100]);
    assert_eq!(receive(&mut b, 100).len(), 100);
    set(false);
    let mut refused = 0;
    for packet in &packets {
        let item = Outgoing {
            remote: SocketAddr::new(ip(V4[1]), 0),
            payload: packet,
            ..Outgoing::NONE
        };
        refused += usize::from(!a.push(&macs, ip(V4[0]), &item, 1));
        a.flush().unwrap();
    }
    assert!(refused >= packets.len() - 2048 && !a.is_dead(), "{refused}");
    set(true);
    // The packets that waited for the link leave first.
    assert_eq!(a.flush().unwrap(), 0);
    finish(&mut a);
    let late = receive(&mut b, packets.len() - refused);
    assert!(
        late.iter()
            .map(|(packet, _)| packet)
            .eq(&packets[..late.len()])
    );
    send(&mut a, &macs, V4[0], V4[1], &packets[..500]);
    assert_eq!(receive(&mut b, 500).len(), 500);
}

#[test]
fn the_kernel_says_who_is_next() {
    let Some(ends) = ends("the_kernel_says_who_is_next") else {
        return;
    };
    let macs = macs(&ends);
    ends[0].enter();
    let hop = next_hop(ip(V4[1]), None, 0).unwrap();
    assert_eq!((hop.link, hop.address), (ends[0].link, ip(V4[1])));
    assert_eq!(hop.source, Some(ip(V4[0])));
    assert!(next_hop(ip("203.0.113.1"), None, 0).is_err(), "no route");
    assert!(next_hop(ip(V4[0]), None, 0).is_err(), "the host itself");
    assert_eq!(neighbour(hop.link, hop.address).unwrap(), None);
    let from = UdpSocket::bind((ip(V4[0]), 0)).unwrap();
    from.send_to(b"hello", (ip(V4[1]), 9)).unwrap();
    let begun = Instant::now();
    let known = loop {
        if let Some(known) = neighbour(hop.link, hop.address).unwrap() {
            break known;
        }
        assert!(begun.elapsed() < Duration::from_secs(5));
    };
    assert_eq!((known.mac, known.is_sure), (macs.to, true));
}

/// Prints the cost of a packet for both ends on one CPU: `cargo test --release --test xdp --
/// --ignored --nocapture`.
#[test]
#[ignore = "a measurement"]
fn speed() {
    let Some(ends) = ends("speed") else { return };
    let Some((_a, mut a)) = open("speed", &ends[0]) else {
        return;
    };
    let Some((_b, mut b)) = open("speed", &ends[1]) else {
        return;
    };
    settle(&ends[0]);
    let macs = macs(&ends);
    let burst: Vec<_> = (0..64).map(|number| esp(number, 1440)).collect();
    let mut buffer = vec![0; 1 << 18];
    let mut packets = Vec::new();
    let begun = Instant::now();
    let mut count = 0;
    while begun.elapsed() < Duration::from_secs(3) {
        send(&mut a, &macs, V4[0], V4[1], &burst);
        b.receive(&mut buffer, &mut packets);
        count += packets.len();
    }
    println!("{} ns a packet", begun.elapsed().as_nanos() / count as u128);
}
