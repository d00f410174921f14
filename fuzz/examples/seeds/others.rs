//! Seeds for all targets but those of IKE messages.

use std::io::Result;
use std::path::Path;

use esplanade::dataplane::virtio::{GsoKind, VnetHeader};
use esplanade::vici::{ControlPacket, Section};

pub fn write(corpus: &Path) -> Result<()> {
    put(corpus, "config_parse", configurations())?;
    put(corpus, "esp_inbound", packets())?;
    put(corpus, "ike_endpoint", scripts())?;
    put(corpus, "ike_endpoint", proof_scripts())?;
    put(corpus, "ike_endpoint", hostile_scripts())?;
    put(corpus, "tun_gso", super_segments())?;
    put(corpus, "vici_packet", control())
}

pub type Seeds = Vec<(&'static str, Vec<u8>)>;

pub fn put(corpus: &Path, target: &str, seeds: Seeds) -> Result<()> {
    std::fs::create_dir_all(corpus.join(target))?;
    for (name, bytes) in seeds {
        std::fs::write(corpus.join(target).join(name), bytes)?;
    }
    Ok(())
}

const SITE: &str = "connections {
 site {
  version = 2
  local_addrs = 192.0.2.1
  remote_addrs = 198.51.100.1
  proposals = aes256gcm16-prfsha384-ecp384, aes128-sha256-x25519
  rekey_time = 4h
  dpd_delay = 30s
  local { auth = psk
   id = a.example
  }
  remote { auth = psk
   id = \"CN=b, O=Example\"
  }
  children {
   net {
    local_ts = 10.1.0.0/16, 2001:db8:1::/48
    remote_ts = 10.2.0.0/16[tcp/https]
    esp_proposals = aes128gcm16-esn
    start_action = trap
    dpd_action = restart
    rekey_bytes = 500000000
   }
  }
 }
}
secrets {
 ike-b {
  id = b.example
  secret = \"top\\n\\\"secret\"
 }
}
";

/// Byte 0 is the form of the planted secret.
fn configurations() -> Seeds {
    let seed = |form: u8, text: &str| [&[form], text.as_bytes()].concat();
    vec![
        ("empty", seed(0, "")),
        ("site", seed(0, SITE)),
        ("site-then-secret", seed(3, SITE)),
        (
            "inherited",
            seed(
                0,
                "base {\n version = 2\n local { auth = psk\n }\n}\nconnections {\n a : base {\n remote_addrs = %any\n }\n \
                 b : connections.a, base { version =\n }\n}\n",
            ),
        ),
        (
            "circle",
            seed(1, "a : b { }\nb : a { }\nconnections : a { x : a { } }\n"),
        ),
        (
            "secret-inherited",
            seed(0, "connections { c : secrets.ike { secret = x\n } }\n"),
        ),
        (
            "secret-misplaced",
            seed(
                2,
                "conections { secret = x\n ike : secrets, secrets.ike { }\n }\n",
            ),
        ),
        (
            "secret-again",
            seed(
                1,
                "secrets { ike { sekret = y\n secret = 0sAAAA\n } ike { } }\n",
            ),
        ),
        (
            "files",
            seed(
                1,
                "include conf.d/*.conf\ninclude ../[a-z]?/x\nconnections { c { local { certs = a.pem, b.pem\n } remote { \
                 cacerts = ca.pem\n } } }\nsecrets { private-a { file = a.key\n } }\n",
            ),
        ),
        (
            "open-section",
            seed(0, "connections { a { children { b { local_ts = 10.0.0.0/33"),
        ),
        (
            "open-quote",
            seed(0, "connections { a { version = \"2\n } }\n"),
        ),
        (
            "stray",
            seed(
                2,
                "} = { : , \"\n connections { connections { } = 1 } # end",
            ),
        ),
        (
            "gateway",
            seed(
                0,
                "gateway {\n workers = 4\n socket = run.sock\n cookie_threshold = 9999999999\n nat_keepalive = 1d\n}\n",
            ),
        ),
        (
            "proposals",
            seed(
                0,
                "connections { a { proposals = default, aes128-md5-modp768, null, aes256gcm16-sha1-ke1_none\n } }",
            ),
        ),
        (
            "selectors",
            seed(
                0,
                "connections { a { children { b { remote_ts = dynamic[udp/53-60], ::/0[58], 10.0.0.9-10.0.0.1, 1.2.3.4/\n } } } }",
            ),
        ),
        (
            "unicode",
            seed(
                0,
                "\u{feff}connections\u{a0}{ \u{1f511} { id = \u{e9}\u{0}\n } }\r\n",
            ),
        ),
    ]
}

/// The options, then packets behind their length.
fn packets() -> Seeds {
    let seed = |options: u8, packets: &[Vec<u8>]| {
        let mut bytes = vec![options];
        for packet in packets {
            bytes.extend((packet.len() as u16).to_be_bytes());
            bytes.extend(packet);
        }
        bytes
    };
    // Padding, pad length and next header end the body of an authentic packet.
    let body = |inner: &[u8], next: u8| {
        let padding = (30 - inner.len() % 16) as u8 % 16;
        let mut body = inner.to_vec();
        body.extend(1..=padding);
        body.extend([padding, next]);
        body
    };
    let v4 = ipv4(
        17,
        [10, 1, 0, 7],
        [10, 2, 0, 9],
        &[0x13, 0x88, 0, 53, 0, 8, 0, 0],
    );
    let other = ipv4(
        17,
        [10, 9, 0, 7],
        [10, 2, 0, 9],
        &[0x13, 0x88, 0, 53, 0, 8, 0, 0],
    );
    let v6 = ipv6(17, 8, &[0x13, 0x88, 0, 53, 0, 8, 0, 0]);
    let mut long = v4.clone();
    long[2] = 0x7f;
    let mut fragment = v4.clone();
    fragment[6] = 0x20;
    vec![
        ("ipv4", seed(0, &[body(&v4, 4)])),
        ("ipv4-esn", seed(1, &[body(&v4, 4), body(&v4, 4)])),
        ("ipv6", seed(4, &[body(&v6, 41)])),
        (
            "another-transform",
            seed(23, &[body(&v6, 41), body(&v4, 4)]),
        ),
        ("cbc", seed(7, &[body(&v4, 4)])),
        ("dummy", seed(0, &[body(&[], 59)])),
        (
            "padded-inner",
            seed(0, &[body(&[&v4[..], &[0; 40]].concat(), 4)]),
        ),
        ("wrong-next-header", seed(0, &[body(&v4, 41), body(&v6, 4)])),
        ("wrong-selector", seed(0, &[body(&other, 4)])),
        ("long-total-length", seed(0, &[body(&long, 4)])),
        ("fragment", seed(0, &[body(&fragment, 4)])),
        (
            "bad-padding",
            seed(0, &[vec![0xff; 16], vec![7, 4], vec![0, 4]]),
        ),
        (
            "short",
            seed(2, &[vec![], vec![0], vec![0, 0, 0, 0, 0, 0, 0, 1]]),
        ),
        ("keepalive", seed(0, &[vec![0xff]])),
    ]
}

fn ipv4(protocol: u8, source: [u8; 4], destination: [u8; 4], payload: &[u8]) -> Vec<u8> {
    let mut packet = vec![
        0x45,
        0,
        0,
        (20 + payload.len()) as u8,
        0,
        7,
        0,
        0,
        63,
        protocol,
        0,
        0,
    ];
    packet.extend(source);
    packet.extend(destination);
    let sum = esplanade_ipsec::wire::checksum::sum(0, &packet);
    packet[10..12].copy_from_slice(&esplanade_ipsec::wire::checksum::fold(sum).to_be_bytes());
    packet.extend(payload);
    packet
}

fn ipv6(next: u8, payload_len: u16, payload: &[u8]) -> Vec<u8> {
    let mut packet = vec![0x60, 0, 0, 0];
    packet.extend(payload_len.to_be_bytes());
    packet.extend([next, 63]);
    for site in [1, 2] {
        packet.extend([
            0x20, 0x01, 0x0d, 0xb8, 0, site, 0, 0, 0, 0, 0, 0, 0, 0, 0, 7,
        ]);
    }
    packet.extend(payload);
    packet
}

/// The steps of a script.
mod step {
    /// A's command. One of the choices below follows.
    pub const COMMAND_A: u8 = 0x00;
    pub const COMMAND_B: u8 = 0x10;
    pub const CHILD_A: u8 = 0x20;
    pub const CHILD_B: u8 = 0x30;
    pub const INITIATE: u8 = 0;
    pub const REKEY: u8 = 1;
    pub const TERMINATE: u8 = 2;
    pub const ACQUIRE: u8 = 5;
    pub const FIRST: u8 = 1;
    pub const ALL: u8 = 2;
    pub const SECOND: u8 = 0x13;
    pub const LOSE: u8 = 4;
    pub const COPY: u8 = 5;
    pub const FLIP: u8 = 6;
    pub const CUT: u8 = 7;
    pub const REPLAY: u8 = 8;
    pub const RAW_TO_B: u8 = 0x19;
    pub const RAW_SPI: u8 = 0x59;
    pub const WAIT_16_S: u8 = 0xca;
    pub const WAIT_131_S: u8 = 0xfa;
    pub const TIMER: u8 = 11;
    pub const NAT: u8 = 12;
    pub const SPIS_A_NONE: u8 = 0x2d;
    pub const DATA_MOVED: u8 = 0x9e;
    pub const DATA_REKEY: u8 = 0x4e;
    pub const REAUTHENTICATE_A: u8 = 0xce;
    pub const REAUTHENTICATE_B: u8 = 0xde;
    pub const LOSE_ALL: u8 = 15;
}

fn script(options: u8, before: &[u8], after: &[u8]) -> Vec<u8> {
    [&[options, 0], before, after].concat()
}

const UP: [u8; 3] = [step::COMMAND_A, step::INITIATE, step::ALL];

/// Exchanges between two honest ends, on a good network or a bad one.
fn scripts() -> Seeds {
    use step::*;
    let (up, seed) = (UP, script);
    let rekeys = [
        CHILD_A, REKEY, CHILD_B, REKEY, ALL, COMMAND_A, REKEY, COMMAND_B, REKEY, ALL,
    ];
    let timers = [TIMER, ALL].repeat(40);
    vec![
        ("up", seed(0, &up, &[])),
        ("up-and-down", seed(0, &up, &[COMMAND_B, TERMINATE, ALL])),
        (
            "both-initiate",
            seed(
                8,
                &[COMMAND_A, INITIATE, COMMAND_B, INITIATE],
                &[SECOND, ALL, WAIT_16_S, ALL],
            ),
        ),
        ("rekeys-cross", seed(0x10, &up, &rekeys)),
        ("rekey-by-timer", seed(0x16, &up, &timers)),
        (
            "rekey-answer-lost",
            seed(
                0,
                &up,
                &[
                    CHILD_A, REKEY, FIRST, LOSE, WAIT_16_S, ALL, CHILD_B, TERMINATE, ALL,
                ],
            ),
        ),
        (
            "delete-meets-rekey",
            seed(0, &up, &[CHILD_A, REKEY, CHILD_B, TERMINATE, SECOND, ALL]),
        ),
        (
            "down-meets-rekey",
            seed(
                0,
                &up,
                &[COMMAND_A, REKEY, COMMAND_B, TERMINATE, ALL, WAIT_16_S, ALL],
            ),
        ),
        ("encapsulated", seed(1, &up, &[CHILD_A, ACQUIRE, ALL])),
        (
            "nat",
            seed(
                0,
                &[NAT, COMMAND_A, INITIATE, ALL],
                &[NAT, CHILD_A, REKEY, ALL, DATA_MOVED, 0, ALL],
            ),
        ),
        ("wrong-group", seed(0x20, &up, &[])),
        // IKE_AUTH loses a fragment, gets copies and a damaged one, and comes again.
        (
            "fragments",
            [
                &[0, 1, COMMAND_A, INITIATE, FIRST, FIRST][..],
                &[LOSE, COPY, SECOND, COPY, FLIP, 60, 1, WAIT_16_S, ALL],
                &[REPLAY, 0, REPLAY, 1, ALL, CHILD_B, REKEY, ALL],
            ]
            .concat(),
        ),
        ("cookie", seed(0x60, &up, &[])),
        ("wrong-key", seed(0x80, &up, &[WAIT_131_S, ALL])),
        (
            "liveness",
            seed(
                4,
                &up,
                &[WAIT_16_S, ALL, LOSE_ALL, WAIT_131_S, LOSE_ALL, WAIT_131_S],
            ),
        ),
    ]
}

/// Proofs of identity that come again, or are over more than the own message.
fn proof_scripts() -> Seeds {
    use step::*;
    let (up, seed) = (UP, script);
    vec![
        (
            "reauthenticate",
            seed(0, &up, &[REAUTHENTICATE_A, 0, ALL, WAIT_16_S, ALL]),
        ),
        (
            "both-reauthenticate",
            seed(
                8,
                &up,
                &[
                    REAUTHENTICATE_A,
                    0,
                    REAUTHENTICATE_B,
                    0,
                    SECOND,
                    ALL,
                    WAIT_16_S,
                    ALL,
                ],
            ),
        ),
        (
            "rekey-meets-reauthentication",
            seed(
                0x10,
                &up,
                &[
                    REAUTHENTICATE_A,
                    0,
                    COMMAND_B,
                    REKEY,
                    CHILD_B,
                    REKEY,
                    ALL,
                    WAIT_16_S,
                    ALL,
                ],
            ),
        ),
        (
            "reauthentication-fails",
            seed(
                0,
                &up,
                &[
                    REAUTHENTICATE_B,
                    0,
                    LOSE_ALL,
                    WAIT_131_S,
                    LOSE_ALL,
                    WAIT_131_S,
                    ALL,
                ],
            ),
        ),
        (
            "down-meets-reauthentication",
            seed(
                0,
                &up,
                &[
                    REAUTHENTICATE_A,
                    0,
                    FIRST,
                    COMMAND_B,
                    TERMINATE,
                    ALL,
                    WAIT_16_S,
                    ALL,
                ],
            ),
        ),
        // One end does not announce the full transcript, or that to an end that requires it.
        (
            "transcript-half-announced",
            [&[0, 0x08][..], &up, &[CHILD_A, REKEY, ALL]].concat(),
        ),
        (
            "transcript-not-announced-to-a",
            [&[0, 0x30][..], &up, &[WAIT_131_S, ALL]].concat(),
        ),
        (
            "transcript-not-announced-to-b",
            [&[0, 0x48][..], &up, &[WAIT_131_S, ALL]].concat(),
        ),
    ]
}

/// A network that copies, damages and invents messages, and ends that run out of SPIs.
fn hostile_scripts() -> Seeds {
    use step::*;
    let (up, seed) = (UP, script);
    let noise = [
        RAW_TO_B, 28, 1, 2, 3, 4, 5, 6, 7, 8, 0, 0, 0, 0, 0, 0, 0, 0, 33, 0x20, 34, 8, 0, 0, 0, 0,
        0, 0, 0, 28,
    ];
    let hello = [
        RAW_SPI, 28, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x20, 37, 0, 0, 0, 0, 9, 0,
        0, 0, 28,
    ];
    vec![
        (
            "copies",
            seed(
                0,
                &[COMMAND_A, INITIATE, COPY, COPY, FIRST, COPY, ALL, ALL],
                &[REPLAY, 0, REPLAY | 0x10, 1, ALL],
            ),
        ),
        (
            "flipped",
            seed(
                0,
                &[COMMAND_A, INITIATE, COPY, FLIP, 40, 1, FLIP, 17, 3, CUT, 30],
                &[WAIT_16_S, FLIP, 60, 9, ALL],
            ),
        ),
        (
            "noise",
            seed(0, &noise, &[&up[..], &noise, &hello, &[ALL]].concat()),
        ),
        (
            "no-spis",
            seed(
                0,
                &[SPIS_A_NONE | 0x10, COMMAND_A, INITIATE, ALL],
                &[SPIS_A_NONE, CHILD_A, REKEY, ALL, TIMER, ALL],
            ),
        ),
        (
            "second-child",
            seed(0x10, &up, &[CHILD_A, ACQUIRE, ALL, DATA_REKEY, 1, ALL]),
        ),
        (
            "init-flood",
            seed(
                0x40,
                &[COMMAND_A, INITIATE, COPY, TERMINATE, COMMAND_A, TERMINATE].repeat(8),
                &[ALL],
            ),
        ),
    ]
}

fn super_segments() -> Seeds {
    let seed = |gso, checksum, packet: &[u8]| {
        let header = VnetHeader {
            gso,
            checksum,
            header_len: 0,
        };
        [&header.encode(), packet].concat()
    };
    let mut tcp = vec![
        0x9c, 0x40, 0, 80, 0, 0, 0, 1, 0, 0, 0, 0, 0x50, 0x99, 1, 0, 0, 0, 0, 0,
    ];
    tcp.extend((0..90).map(|i| i ^ 0x5a));
    let mut udp = vec![0x9c, 0x40, 0, 53, 0, 98, 0, 0];
    udp.extend(0..90);
    let (a, b) = ([10, 1, 0, 7], [10, 2, 0, 9]);
    let (tcp4, udp4) = (ipv4(6, a, b, &tcp), ipv4(17, a, b, &udp));
    let (tcp6, udp6) = (ipv6(6, 110, &tcp), ipv6(17, 98, &udp));
    let mut extended = ipv6(0, 118, &[6, 0, 1, 4, 0, 0, 0, 0]);
    extended.extend(&tcp);
    vec![
        (
            "tcp4",
            seed(Some((GsoKind::TcpV4, 40)), Some((20, 16)), &tcp4),
        ),
        (
            "tcp6",
            seed(Some((GsoKind::TcpV6, 45)), Some((40, 16)), &tcp6),
        ),
        (
            "tcp6-extended",
            seed(Some((GsoKind::TcpV6, 1)), Some((48, 16)), &extended),
        ),
        (
            "udp4",
            seed(Some((GsoKind::UdpL4, 89)), Some((20, 6)), &udp4),
        ),
        (
            "udp6",
            seed(Some((GsoKind::UdpL4, 7)), Some((40, 6)), &udp6),
        ),
        (
            "one-segment",
            seed(Some((GsoKind::TcpV4, 1400)), Some((20, 16)), &tcp4),
        ),
        ("checksum", seed(None, Some((20, 6)), &udp4)),
        ("checksum-outside", seed(None, Some((200, 6)), &udp4)),
        ("plain", seed(None, None, &udp4)),
        (
            "no-bytes",
            seed(Some((GsoKind::TcpV4, 0)), Some((20, 16)), &tcp4),
        ),
        (
            "wrong-version",
            seed(Some((GsoKind::TcpV6, 40)), Some((40, 16)), &tcp4),
        ),
        (
            "headers-only",
            seed(Some((GsoKind::TcpV4, 40)), Some((20, 16)), &tcp4[..40]),
        ),
    ]
}

fn control() -> Seeds {
    let mut child = Section::new();
    child
        .set("state", "INSTALLED")
        .list("local-ts", ["10.1.0.0/16", "::/0"]);
    let mut sa = Section::new();
    sa.set("version", 2).section("child-sas", child);
    let mut message = Section::new();
    message
        .section("site", sa)
        .set("success", "yes")
        .list("none", [""; 0]);
    let packets = [
        (
            "list-sas",
            ControlPacket::Request {
                command: "list-sas".to_owned(),
                message: Section::new(),
            },
        ),
        (
            "initiate",
            ControlPacket::Request {
                command: "initiate".to_owned(),
                message: message.clone(),
            },
        ),
        ("response", ControlPacket::Response(message.clone())),
        ("empty-response", ControlPacket::Response(Section::new())),
        ("unknown-command", ControlPacket::CommandUnknown),
        ("register", ControlPacket::Register("list-sa".to_owned())),
        (
            "unregister",
            ControlPacket::Unregister("list-sa".to_owned()),
        ),
        ("confirm", ControlPacket::EventConfirm),
        ("unknown-event", ControlPacket::EventUnknown),
        (
            "event",
            ControlPacket::Event {
                name: "list-sa".to_owned(),
                message,
            },
        ),
    ];
    let encoded = |packet: ControlPacket| packet.encode().expect("a seed encodes")[4..].to_vec();
    let mut seeds: Seeds = packets
        .into_iter()
        .map(|(name, packet)| (name, encoded(packet)))
        .collect();
    seeds.push(("deep", [&[1][..], &[1, 1, b's'].repeat(17)].concat()));
    seeds.push(("unclosed", vec![1, 4, 1, b'l', 5, 0, 1, b'x']));
    seeds
}
