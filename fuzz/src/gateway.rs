//! Fuzzes what the gateway reads from files, from its control socket and from the kernel.

use std::path::Path;

use esplanade::config::load_text;
use esplanade::dataplane::gso::GsoSegments;
use esplanade::dataplane::virtio::{GsoKind, HEADER_LEN, VnetHeader};
use esplanade::vici::{ControlPacket, PACKET_BYTES_MAX};
use esplanade_ipsec::wire::checksum::{fold, sum};

/// The path of the configuration. Its folder does not exist, so that relative paths lead nowhere.
const CONFIGURATION: &str = "/nonexistent/esplanade-fuzz/esplanade.conf";
const SECRET: &str = "5ecre75ecre75ecre7";

/// Byte 0 chooses the form of a planted secret. The text of a configuration follows. The text is parsed, and no
/// output about it may show the secret.
pub fn config_parse(data: &[u8]) {
    let Some((&form, text)) = data.split_first() else {
        return;
    };
    let Ok(text) = std::str::from_utf8(text) else {
        return;
    };
    let text = without_absolute_paths(text);
    let planted = match form % 4 {
        0 => format!("secrets {{ ike {{ secret = {SECRET}\n id = a\n }} }}\n{text}"),
        1 => format!("secrets {{ ike {{ secret = \"0x{SECRET}z\" # {SECRET}\n }}\n }}\n{text}"),
        2 => format!(
            "secrets {{ ike {{ secret = 0s{SECRET}!\n secret = \"{SECRET}\n\"\n}} }}\n{text}"
        ),
        _ => format!("{text}\nsecrets {{ ike {{ secret = {SECRET}\n }} }}\n"),
    };
    let shown = match load_text(Path::new(CONFIGURATION), &planted) {
        Ok(loaded) => format!("{loaded:?}{}", loaded.warnings.render(true)),
        Err(errors) => format!("{errors:?}{}", errors.render(true)),
    };
    assert!(
        text.contains(SECRET) || !shown.contains(SECRET),
        "the secret is shown:\n{shown}"
    );
}

/// Replaces every slash that could begin an absolute path, because includes and certificates may have absolute paths.
fn without_absolute_paths(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    // In quotes, a backslash turns a letter into a blank.
    let (mut escape, mut word) = (false, false);
    for c in text.chars() {
        safe.push(if c == '/' && !word { '_' } else { c });
        let slash = c == '/' && word;
        word = !escape && (slash || c.is_ascii_alphanumeric() || matches!(c, '.' | '*' | ']'));
        escape = c == '\\';
    }
    safe
}

/// A packet behind its length field. A packet that can be decoded must encode to the same bytes, except for bytes
/// behind its end.
pub fn vici_packet(data: &[u8]) {
    if data.len() > PACKET_BYTES_MAX {
        return;
    }
    let Ok(packet) = ControlPacket::decode(data) else {
        return;
    };
    let encoded = packet.encode().expect("what fitted in a packet fits again");
    let (len, encoded) = encoded.split_at(4);
    assert_eq!(
        len,
        u32::try_from(encoded.len()).expect("bounded").to_be_bytes()
    );
    assert!(
        data.starts_with(encoded),
        "{packet:?} encodes to other bytes"
    );
    assert_eq!(ControlPacket::decode(encoded), Ok(packet));
}

/// The result of a TUN read: a virtio header and a packet. The packets that the gateway makes of it must be complete,
/// and must hold the payload and nothing else.
pub fn tun_gso(data: &[u8]) {
    let Some((header, packet)) = data.split_first_chunk::<HEADER_LEN>() else {
        return;
    };
    let Ok(header) = VnetHeader::decode(header) else {
        return;
    };
    assert_eq!(VnetHeader::decode(&header.encode()), Ok(header));
    let Ok(segments) = GsoSegments::new(&header, packet) else {
        return;
    };
    let (count, longest) = (segments.count(), segments.len(0));
    assert!(longest <= packet.len());
    let mut out = vec![0; longest];
    let mut payload = Vec::new();
    for index in 0..count {
        let len = segments.len(index);
        assert!(len == longest || (index + 1 == count && len < longest));
        segments.write(index, &mut out[..len]);
        if let (Some((kind, size)), Some((transport, _))) = (header.gso, header.checksum) {
            check_segment(&out[..len], packet, transport.into(), kind);
            if count > 1 {
                payload.extend_from_slice(&out[longest - usize::from(size)..len]);
            }
        }
    }
    match count {
        0 => panic!("no packet at all"),
        1 => assert_eq!(longest, packet.len()),
        _ => assert!(packet.ends_with(&payload)),
    }
}

/// Checks the lengths and the checksums of a TCP or UDP packet that was made of `whole`.
fn check_segment(packet: &[u8], whole: &[u8], transport: usize, kind: GsoKind) {
    let word = |packet: &[u8], at: usize| u16::from_be_bytes([packet[at], packet[at + 1]]);
    if packet[0] >> 4 == 4 {
        assert_eq!(usize::from(word(packet, 2)), packet.len());
        assert_eq!(fold(sum(0, &packet[..transport])), 0, "header checksum");
    } else {
        assert_eq!(40 + usize::from(word(packet, 4)), packet.len());
    }
    let len = packet.len() - transport;
    let (field, whole_len) = match kind {
        GsoKind::UdpL4 => {
            assert_eq!(usize::from(word(packet, transport + 4)), len);
            (6, word(whole, transport + 4))
        }
        GsoKind::TcpV4 | GsoKind::TcpV6 => (16, (whole.len() - transport) as u16),
    };
    // The kernel leaves the sum of the pseudo header in the field, with the length of the whole packet.
    let pseudo = u64::from(word(whole, transport + field)) + u64::from(!whole_len) + len as u64;
    let total = sum(pseudo, &packet[transport..]);
    assert_eq!(fold(total), 0, "transport checksum");
}
