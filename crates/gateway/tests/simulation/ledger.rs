//! The inner packets of a simulation, and the rules about where they may appear.

use std::collections::{BTreeMap, HashSet};

use esplanade_ipsec::wire::checksum;
use esplanade_testkit::net::Datagram;

use crate::gateway::{ESP_PORT, NAT_T_PORT};

/// A broken rule. An error ends the simulation.
pub type Checked = Result<(), String>;

/// The filler of all inner packets. It never appears on the outer link.
const MARK: [u8; 8] = *b"CLEAR*IN";
const IP_LEN: usize = 20;
const HEADERS_LEN: usize = IP_LEN + 8;
const NUMBER_LEN: usize = 4;
/// Shortest inner packet: its filler has the mark at a whole eight bytes, wherever it begins.
pub const PACKET_MIN: usize = HEADERS_LEN + NUMBER_LEN + 3 * MARK.len();

/// An inner packet, from one gateway's network to another's.
#[derive(Debug)]
pub struct Inner {
    pub from: usize,
    pub to: usize,
    pub bytes: Vec<u8>,
    /// The bytes of it that were delivered.
    pub delivered: usize,
    /// No gateway may deliver it.
    pub is_forged: bool,
}

/// All inner packets, and all ESP packets on the outer link.
#[derive(Debug, Default)]
pub struct Ledger {
    packets: Vec<Inner>,
    /// The parts of packets that were delivered: the number of the packet and the offset of the part.
    parts: HashSet<(usize, usize)>,
    /// The ESP packets by their sender with its life, SPI and sequence number.
    sealed: BTreeMap<(usize, u64, u32, u32), Vec<u8>>,
    /// Counts what simulations have seen, so that a test that carries nothing cannot pass.
    pub delivered: u64,
    /// The number of fragments among them.
    pub parts_delivered: u64,
}

impl Ledger {
    /// Makes the next packet, from an address behind one gateway to one behind another.
    pub fn packet(
        &mut self,
        (from, source): (usize, [u8; 4]),
        (to, destination): (usize, [u8; 4]),
        port: u16,
        len: usize,
    ) -> (usize, Vec<u8>) {
        let number = self.packets.len();
        let len = len.max(PACKET_MIN);
        let mut packet = vec![0x45, 0];
        packet.extend((len as u16).to_be_bytes());
        packet.extend((number as u16).to_be_bytes());
        packet.extend([0, 0, 64, 17, 0, 0]);
        packet.extend(source);
        packet.extend(destination);
        let sum = checksum::fold(checksum::sum(0, &packet[..IP_LEN]));
        packet[10..12].copy_from_slice(&sum.to_be_bytes());
        packet.extend(40_000u16.to_be_bytes());
        packet.extend(port.to_be_bytes());
        packet.extend(((len - IP_LEN) as u16).to_be_bytes());
        packet.extend([0, 0]);
        packet.extend((number as u32).to_be_bytes());
        packet.extend(MARK.iter().cycle().take(len - HEADERS_LEN - NUMBER_LEN));
        self.packets.push(Inner {
            from,
            to,
            bytes: packet.clone(),
            delivered: 0,
            is_forged: false,
        });
        (number, packet)
    }

    pub fn forbid(&mut self, number: usize) {
        self.packets[number].is_forged = true;
    }

    /// Tells whether all of a packet was delivered.
    pub fn is_delivered(&self, number: usize) -> bool {
        let packet = &self.packets[number];
        packet.delivered == packet.bytes.len() - IP_LEN
    }

    pub fn describe(&self, number: usize) -> String {
        let packet = &self.packets[number];
        format!(
            "packet {number} of {} bytes from {} ({:?}) to {} ({:?})",
            packet.bytes.len(),
            packet.from,
            &packet.bytes[12..16],
            packet.to,
            &packet.bytes[16..20]
        )
    }

    /// Checks a packet that a gateway delivered: somebody sent it to there, nobody changed it, and it is the first time.
    pub fn deliver(&mut self, at: usize, packet: &[u8]) -> Checked {
        let wrong = |why: &str| {
            Err(format!(
                "gateway {at} delivered a packet that {why}: {packet:02x?}"
            ))
        };
        if packet.get(9) == Some(&1) {
            return Ok(());
        }
        if packet.len() < HEADERS_LEN || packet[0] != 0x45 {
            return wrong("nobody sent");
        }
        let number = usize::from(u16::from_be_bytes([packet[4], packet[5]]));
        let place = u16::from_be_bytes([packet[6], packet[7]]);
        let offset = usize::from(place & 0x1fff) * 8;
        let Some(sent) = self.packets.get_mut(number) else {
            return wrong("nobody sent");
        };
        if sent.is_forged || sent.to != at {
            return wrong("does not belong there");
        }
        let data = &packet[IP_LEN..];
        let original = sent
            .bytes
            .get(IP_LEN + offset..IP_LEN + offset + data.len());
        let is_whole = place & 0x3fff == 0;
        if original != Some(data)
            || packet[12..20] != sent.bytes[12..20]
            || (is_whole && packet != sent.bytes)
        {
            return wrong("was changed");
        }
        if !self.parts.insert((number, offset)) {
            return wrong("was delivered before");
        }
        sent.delivered += data.len();
        self.parts_delivered += u64::from(!is_whole);
        self.delivered += 1;
        Ok(())
    }

    /// Checks a datagram that a gateway sends: nothing of an inner packet shows, and no nonce is used twice. A gateway
    /// that begins anew has another life.
    pub fn send(&mut self, (from, life): (usize, u64), datagram: &Datagram) -> Checked {
        let payload = &datagram.payload;
        if shows_mark(payload) {
            return Err(format!(
                "gateway {from} sent a clear packet: {payload:02x?}"
            ));
        }
        let Some(esp) = esp_of(datagram) else {
            return Ok(());
        };
        let word = |at: usize| u32::from_be_bytes(esp[at..at + 4].try_into().unwrap_or_default());
        if esp.len() < 16 {
            return Err(format!(
                "gateway {from} sent a short ESP packet: {esp:02x?}"
            ));
        }
        let key = (from, life, word(0), word(4));
        if let Some(former) = self.sealed.insert(key, esp[8..16].to_vec()) {
            return Err(format!(
                "gateway {from} used sequence number {} of SPI {:08x} twice, with IVs {former:02x?} and {:02x?}",
                word(4),
                word(0),
                &esp[8..16]
            ));
        }
        Ok(())
    }
}

/// Returns the ESP packet in a datagram, or `None` if there is none.
pub fn esp_of(datagram: &Datagram) -> Option<&[u8]> {
    let payload = &datagram.payload[..];
    let is_esp = match datagram.from.port() {
        ESP_PORT => true,
        NAT_T_PORT => payload.len() > 1 && !payload.starts_with(&[0; 4]),
        _ => false,
    };
    is_esp.then_some(payload)
}

/// Tells whether at least two marks in a row are in the bytes. It looks at every eighth byte, and at all turns of the
/// mark.
fn shows_mark(bytes: &[u8]) -> bool {
    let (chunks, _) = bytes.as_chunks::<8>();
    let mut doubled = [0; 16];
    doubled[..8].copy_from_slice(&MARK);
    doubled[8..].copy_from_slice(&MARK);
    chunks
        .iter()
        .any(|chunk| MARK.contains(&chunk[0]) && doubled.windows(8).any(|turn| turn == chunk))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mark_of_a_clear_packet_is_found_anywhere() {
        let mut ledger = Ledger::default();
        let (_, packet) = ledger.packet((0, [10, 1, 0, 1]), (1, [10, 2, 0, 1]), 7, 0);
        for shift in 0..16 {
            let around = [&vec![3; shift][..], &packet, &[7; 5]].concat();
            assert!(shows_mark(&around), "{shift}");
        }
        assert!(!shows_mark(&[0x43; 200]));
    }

    #[test]
    fn what_is_delivered_is_compared_with_what_was_sent() {
        let mut ledger = Ledger::default();
        let send =
            |ledger: &mut Ledger| ledger.packet((0, [10, 1, 0, 1]), (1, [10, 2, 0, 1]), 7, 90);
        let (number, packet) = send(&mut ledger);
        assert!(ledger.deliver(0, &packet).is_err());
        let mut changed = packet.clone();
        changed[70] ^= 1;
        assert!(ledger.deliver(1, &changed).is_err());
        assert!(!ledger.is_delivered(number));
        ledger.deliver(1, &packet).unwrap();
        assert!(ledger.is_delivered(number));
        assert!(ledger.deliver(1, &packet).is_err());
        let (forged, packet) = send(&mut ledger);
        ledger.forbid(forged);
        assert!(ledger.deliver(1, &packet).is_err());
    }
}
