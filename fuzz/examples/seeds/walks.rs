//! Seeds for the packet path: frames of the packet vectors, and choices for scenarios.

use std::io::Result;
use std::path::Path;

use esplanade_fuzz::transforms;
use esplanade_testkit::model;
use esplanade_testkit::net::Rng;
use esplanade_testkit::vectors::{PacketCase, packet_files};

pub fn write(corpus: &Path) -> Result<()> {
    let put = |target: &str, name: &str, bytes: Vec<u8>| {
        std::fs::create_dir_all(corpus.join(target))?;
        std::fs::write(corpus.join(target).join(name), bytes)
    };
    for (name, packet) in packets() {
        put("ip_packet", name, packet)?;
    }
    for (name, seed) in fragments() {
        put("fragments", name, seed)?;
    }
    for (name, pick, options) in [
        ("gcm-tunnel", "AES_GCM_16_128", 0u8),
        ("gcm-transport-esn", "AES_GCM_16_128", 3 | 20 << 2),
        ("cbc-transport", "AES_CBC_128/HMAC_SHA1_96", 2 | 20 << 2),
        ("null-tunnel", "NULL/HMAC_SHA2_256_128", 1),
        ("ah-tunnel", "AH/HMAC_SHA2_256_128", 20 << 2),
        ("ah-transport-esn", "AH/AES_128_GMAC", 3 | 20 << 2),
    ] {
        let place = transforms()
            .iter()
            .position(|transform| transform.name() == pick);
        let mut seed = vec![place.expect("a transform") as u8, options];
        let inner = &case("esp", "tunnel v4", |_| true).1;
        let mut tunnelled = inner.clone();
        tunnelled.extend([1, 2, 2, 4]);
        let mut behind_ah = vec![4];
        behind_ah.extend(inner);
        let upper = [&inner[20..], &[1, 2, 2, 17]].concat();
        for packet in [tunnelled, behind_ah, upper, vec![0, 59]] {
            seed.extend(behind_len(&packet));
        }
        put("inbound_frames", name, seed)?;
    }
    for number in 0..8u64 {
        let mut seed = vec![0; 1500];
        Rng::new(number).fill(&mut seed);
        put("walks", &format!("random-{number}"), seed)?;
    }
    Ok(())
}

fn behind_len(packet: &[u8]) -> Vec<u8> {
    [&(packet.len() as u16).to_be_bytes(), packet].concat()
}

/// The frame and the inner packet of the first valid case that fits.
fn case(protocol: &str, start: &str, fits: impl Fn(&PacketCase) -> bool) -> (Vec<u8>, Vec<u8>) {
    let files = packet_files().into_iter();
    let of_protocol =
        files.filter(|file| format!("{:?}", file.protocol).eq_ignore_ascii_case(protocol));
    let mut cases = of_protocol.flat_map(|file| file.cases);
    let found =
        cases.find(|case| case.delivered.is_some() && case.name.starts_with(start) && fits(case));
    let found = found.expect("a case like this");
    (found.frame, found.delivered.expect("it is valid"))
}

fn packets() -> Vec<(&'static str, Vec<u8>)> {
    let tcp = |case: &PacketCase| case.name.contains(" tcp ");
    let error = {
        // An ICMP error "fragmentation needed" about a packet.
        let about = case("esp", "tunnel v4", |_| true).1;
        let mut error = vec![
            0x45, 0, 0, 0, 0, 1, 0, 0, 64, 1, 0, 0, 203, 0, 113, 1, 192, 0, 2, 1,
        ];
        let mut message = vec![3, 4, 0, 0, 0, 0, 5, 0];
        message.extend(&about[..28]);
        let sum = model::checksum(&message);
        message[2..4].copy_from_slice(&sum.to_be_bytes());
        error.extend(message);
        model::complete(&mut error);
        error
    };
    vec![
        ("ah-v4-options", case("ah", "v4 with options", |_| true).0),
        ("ah-v6-options", case("ah", "v6 with options", |_| true).0),
        ("ah-v6-tunnel", case("ah", "tunnel v6 in v6", |_| true).0),
        ("esp-v6", case("esp", "transport v6 raw", |_| true).0),
        ("esp-udp", case("esp", "tunnel v4 in v4 udp", |_| true).0),
        ("tcp-v4", case("esp", "tunnel v4", tcp).1),
        ("tcp-v6", case("esp", "tunnel v6", tcp).1),
        (
            "later-fragment",
            case("esp", "a later fragment", |_| true).1,
        ),
        ("fragmentation-needed", error),
    ]
}

fn fragments() -> Vec<(&'static str, Vec<u8>)> {
    let piece = |field: u16, len: usize| {
        let mut packet = vec![0x45, 0, 0, 0, 0, 7];
        packet.extend(field.to_be_bytes());
        packet.extend([64, 17, 0, 0, 10, 1, 0, 1, 10, 2, 0, 1]);
        packet.extend((0..len).map(|i| i as u8));
        model::complete(&mut packet);
        behind_len(&packet)
    };
    let all = |mtu: u8, pieces: &[(u16, usize)]| {
        let pieces = pieces.iter().flat_map(|&(field, len)| piece(field, len));
        std::iter::once(mtu).chain(pieces).collect()
    };
    vec![
        (
            "in-order",
            all(9, &[(0x2000, 48), (0x2006, 48), (0x000c, 9)]),
        ),
        (
            "backwards",
            all(9, &[(0x000c, 9), (0x2006, 48), (0x2000, 48)]),
        ),
        (
            "overlap",
            all(9, &[(0x2000, 48), (0x2003, 48), (0x000c, 9)]),
        ),
        (
            "beyond-the-end",
            all(9, &[(0x2000, 48), (0x0006, 8), (0x2007, 48)]),
        ),
        ("longest", all(9, &[(0x1fff, 100), (0x2000, 1400)])),
        ("cut", all(9, &[(0, 300), (0, 20), (0x4000, 300)])),
    ]
}
