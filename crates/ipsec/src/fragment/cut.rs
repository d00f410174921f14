//! Fragmentation of IPv4 packets without DF (RFC 791 §3.2).

use super::PACKET_LEN_MAX;
use crate::wire::ip::{IPV4_HEADER_LEN, IpView};
use crate::wire::{IpVersion, be16, checksum};

/// The reason why a packet cannot be fragmented.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CutError {
    /// The packet is IPv6, or DF is set.
    NotAllowed,
    /// The packet cannot be cut: not even 8 bytes of data fit, or the headers are damaged.
    Impossible,
}

/// The fragments of one packet, in order. Their number is known before the first one is made.
#[derive(Clone, Debug)]
pub struct Pieces<'a> {
    /// The header of later fragments, with the options that they repeat.
    later_header: Vec<u8>,
    first_header: &'a [u8],
    data: &'a [u8],
    /// Flags and offset of the packet that is cut. They are not zero if that packet is a fragment itself.
    field: u16,
    /// Bytes of data in the first piece.
    first_len: usize,
    /// Bytes of data in each piece between the first and the last.
    next_len: usize,
}

impl<'a> Pieces<'a> {
    /// Cuts `packet` into fragments of at most `mtu` bytes. `view` must have been parsed from `packet`.
    pub fn new(packet: &'a [u8], view: &IpView, mtu: usize) -> Result<Self, CutError> {
        if view.version != IpVersion::V4 || view.dont_fragment {
            return Err(CutError::NotAllowed);
        }
        Self::prepare(packet, view, mtu).ok_or(CutError::Impossible)
    }

    fn prepare(packet: &'a [u8], view: &IpView, mtu: usize) -> Option<Self> {
        let (first_header, data) = packet
            .get(..view.total_len)?
            .split_at_checked(view.header_len)?;
        let later_header = later_header(first_header)?;
        let room = |header: &[u8]| mtu.checked_sub(header.len()).filter(|room| *room >= 8);
        let first_len = room(first_header)? & !7;
        let next_len = room(&later_header)? & !7;
        let field = be16(packet, 6)?;
        // The offset field must be able to hold the offset of the last fragment.
        let start = usize::from(field & 0x1fff) * 8;
        (start + data.len() <= PACKET_LEN_MAX - first_header.len()).then_some(())?;
        Some(Self {
            later_header,
            first_header,
            data,
            field,
            first_len,
            next_len,
        })
    }

    pub fn count(&self) -> usize {
        match self.data.len().saturating_sub(self.first_len) {
            0 => 1,
            // Every piece has eight bytes of data at least.
            rest => 1 + rest.div_ceil(self.next_len.max(8)),
        }
    }

    /// Length of the piece `index`; zero behind the last piece.
    pub fn len(&self, index: usize) -> usize {
        let (header, start, end) = self.range(index);
        if start >= end && index > 0 {
            return 0;
        }
        header.len() + end - start
    }

    fn range(&self, index: usize) -> (&[u8], usize, usize) {
        if index == 0 {
            return (self.first_header, 0, self.first_len.min(self.data.len()));
        }
        let start = self.first_len + (index - 1) * self.next_len;
        let end = (start + self.next_len).min(self.data.len());
        (&self.later_header, start.min(end), end)
    }

    /// Writes the piece `index` into `slot`. Returns `None` if `slot` does not have the piece's length.
    pub fn write(&self, index: usize, slot: &mut [u8]) -> Option<()> {
        const MORE: u16 = 0x2000;
        let (header, start, end) = self.range(index);
        let total = u16::try_from(slot.len()).ok()?;
        let (head, data) = slot.split_at_mut_checked(header.len())?;
        let source = self.data.get(start..end)?;
        if data.len() != source.len() {
            return None;
        }
        data.copy_from_slice(source);
        head.copy_from_slice(header);
        let more = if end < self.data.len() {
            MORE
        } else {
            self.field & MORE
        };
        let offset = u16::try_from(usize::from(self.field & 0x1fff) + start / 8).ok()?;
        head.get_mut(2..4)?.copy_from_slice(&total.to_be_bytes());
        head.get_mut(6..8)?
            .copy_from_slice(&(more | offset).to_be_bytes());
        head.get_mut(10..12)?.fill(0);
        let sum = checksum::fold(checksum::sum(0, head));
        head.get_mut(10..12)?.copy_from_slice(&sum.to_be_bytes());
        Some(())
    }
}

/// Makes the header of later fragments: it repeats only the options whose copy bit is set (RFC 791 §3.1).
fn later_header(header: &[u8]) -> Option<Vec<u8>> {
    const COPY: u8 = 0x80;
    let (fixed, mut options) = header.split_first_chunk::<IPV4_HEADER_LEN>()?;
    let mut later = fixed.to_vec();
    while let Some(&kind) = options.first() {
        let len = match kind {
            0 => break,
            1 => 1,
            _ => usize::from(*options.get(1)?).max(2),
        };
        let (option, rest) = options.split_at_checked(len)?;
        if kind & COPY != 0 {
            later.extend_from_slice(option);
        }
        options = rest;
    }
    later.resize(later.len().next_multiple_of(4), 0);
    later[0] = 0x40 | (later.len() / 4) as u8;
    Some(later)
}
