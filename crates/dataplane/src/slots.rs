//! The layout of the datagrams of one receive in an arena.

use std::ops::Range;

use super::datagram::ReceivedDatagram;

/// Bytes of free space after every datagram. AH puts an IPv6 header before its datagram, which
/// moves the datagram back.
pub const SPARE: usize = 64;

/// Slots that lie side by side, one for each datagram. The part of a datagram that exceeds its slot
/// goes to an overflow area after all slots. So long datagrams take memory only when they occur.
/// `join` then moves the part from the slot in front of the rest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReceiveSlots {
    /// Number of datagrams of one receive.
    pub count: usize,
    /// Bytes of a datagram that fit into its slot.
    pub len: usize,
    /// Further bytes that a datagram may have, in the overflow area.
    pub more: usize,
}

/// The memory of one datagram: its slot and its overflow.
pub type SlotMemory<'a> = (&'a mut [u8], &'a mut [u8]);

impl ReceiveSlots {
    const fn stride(&self) -> usize {
        self.len + SPARE
    }

    const fn long_stride(&self) -> usize {
        match self.more {
            0 => 0,
            more => self.len + more + SPARE,
        }
    }

    /// Returns the number of bytes that the layout needs.
    pub const fn total(&self) -> usize {
        self.count * (self.stride() + self.long_stride())
    }

    /// Returns the layout with as many slots as fit into a buffer of this length.
    pub fn within(self, buffer: usize) -> Self {
        let each = self.stride() + self.long_stride();
        Self {
            count: self.count.min(buffer / each.max(1)),
            ..self
        }
    }

    /// Returns the memory of each datagram. The caller guarantees that the buffer has at least
    /// [`ReceiveSlots::total`] bytes.
    pub fn places<'a>(&self, buffer: &'a mut [u8]) -> impl Iterator<Item = SlotMemory<'a>> {
        let Self { count, len, more } = *self;
        let at = (count * self.stride()).min(buffer.len());
        let (slots, rests) = buffer.split_at_mut(at);
        let slots = slots.chunks_exact_mut(self.stride()).take(count);
        let mut rests = rests.chunks_exact_mut(self.long_stride().max(1));
        slots.map(move |slot| {
            let rest = match more {
                0 => None,
                _ => rests.next().and_then(|long| long.get_mut(len..len + more)),
            };
            (&mut slot[..len], rest.unwrap_or_default())
        })
    }

    /// Joins the two parts of a datagram. Returns the offset at which the datagram begins.
    pub fn join(&self, buffer: &mut [u8], index: usize, datagram: usize) -> usize {
        let slot = index * self.stride();
        if datagram <= self.len {
            return slot;
        }
        let long = self.count * self.stride() + index * self.long_stride();
        buffer.copy_within(slot..slot + self.len, long);
        long
    }
}

/// Returns the range of a datagram with the free space after it.
pub fn with_spare(meta: &ReceivedDatagram) -> Range<usize> {
    meta.at..meta.at + meta.len + SPARE
}

/// Returns the number of bytes that a receive used.
pub fn used(received: &[ReceivedDatagram]) -> usize {
    let ends = received.iter().map(|meta| with_spare(meta).end);
    // The next receive then begins at a cache line, as this one did.
    ends.max().unwrap_or(0).next_multiple_of(64)
}
