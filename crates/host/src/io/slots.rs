//! The layout of the datagrams of one receive in an arena.

use std::ops::Range;

use super::received::ReceivedDatagram;

/// Bytes of free space after every datagram. AH puts an IPv6 header before its datagram, which
/// moves the datagram back.
const SPARE: usize = 64;

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
pub(super) type SlotMemory<'a> = (&'a mut [u8], &'a mut [u8]);

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
    pub(super) fn within(self, buffer: usize) -> Self {
        let each = self.stride() + self.long_stride();
        Self {
            count: self.count.min(buffer / each.max(1)),
            ..self
        }
    }

    /// Returns the memory of each datagram. The caller guarantees that the buffer has at least
    /// [`ReceiveSlots::total`] bytes.
    pub(super) fn places<'a>(&self, buffer: &'a mut [u8]) -> impl Iterator<Item = SlotMemory<'a>> {
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
    pub(super) fn join(&self, buffer: &mut [u8], index: usize, datagram: usize) -> usize {
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

#[cfg(test)]
mod tests {
    use std::net::UdpSocket;
    use std::os::fd::AsFd;

    use super::super::message::DatagramReceiver;
    use super::*;

    fn datagram(number: u8, len: usize) -> Vec<u8> {
        (0..len).map(|at| number.wrapping_add(at as u8)).collect()
    }

    /// Sends datagrams of these lengths and receives them in one call. Returns each with whether it
    /// is whole.
    fn receive(
        slots: ReceiveSlots,
        buffer: &mut [u8],
        lens: &[usize],
    ) -> (Vec<(Vec<u8>, bool)>, usize) {
        let receiving = UdpSocket::bind("127.0.0.1:0").unwrap();
        let sending = UdpSocket::bind("127.0.0.1:0").unwrap();
        for (number, len) in lens.iter().enumerate() {
            let to = receiving.local_addr().unwrap();
            sending.send_to(&datagram(number as u8, *len), to).unwrap();
        }
        let mut receiver = DatagramReceiver::new(slots.count);
        let got = receiver.receive(receiving.as_fd(), buffer, slots).unwrap();
        let mut ranges: Vec<_> = got.iter().map(with_spare).collect();
        ranges.sort_by_key(|range| range.start);
        assert!(ranges.windows(2).all(|two| two[0].end <= two[1].start));
        assert!(ranges.iter().all(|range| range.end <= used(got)));
        let bytes = |meta: &ReceivedDatagram| buffer[meta.at..][..meta.len].to_vec();
        let got = got.iter().map(|meta| (bytes(meta), !meta.truncated));
        let got: Vec<_> = got.collect();
        let ends = ranges.iter().map(|range| range.end).max().unwrap_or(0);
        (got, ends)
    }

    const SLOTS: ReceiveSlots = ReceiveSlots {
        count: 6,
        len: 100,
        more: 900,
    };

    #[test]
    fn long_datagrams_beside_short_ones_are_whole_and_in_order() {
        let mut buffer = vec![0; SLOTS.total()];
        let lens = [10, 100, 101, 0, 1000, 99];
        let (got, _) = receive(SLOTS, &mut buffer, &lens);
        let sent = lens.iter().enumerate();
        let sent: Vec<_> = sent
            .map(|(number, len)| (datagram(number as u8, *len), true))
            .collect();
        assert_eq!(got, sent);
    }

    #[test]
    fn what_no_slot_takes_is_truncated() {
        let mut buffer = vec![0; SLOTS.total()];
        let (got, _) = receive(SLOTS, &mut buffer, &[1001, 7]);
        assert_eq!(got[0], (datagram(0, 1000), false));
        assert_eq!(got[1], (datagram(1, 7), true));
        let short = ReceiveSlots { more: 0, ..SLOTS };
        let (got, _) = receive(short, &mut buffer, &[101, 100]);
        assert_eq!(got[0], (datagram(0, 100), false));
        assert_eq!(got[1], (datagram(1, 100), true));
    }

    #[test]
    fn short_datagrams_leave_the_rest_alone() {
        let mut buffer = vec![0; SLOTS.total()];
        let (_, end) = receive(SLOTS, &mut buffer, &[100; 6]);
        assert_eq!(end, 6 * (100 + SPARE));
        assert!(buffer[end..].iter().all(|byte| *byte == 0));
    }

    #[test]
    fn a_small_buffer_has_fewer_slots() {
        let mut buffer = vec![0; SLOTS.total() - 1];
        let (got, _) = receive(SLOTS, &mut buffer, &[500; 6]);
        assert_eq!(got.len(), 5);
        assert_eq!(got[4], (datagram(4, 500), true));
        let (got, _) = receive(SLOTS, &mut [], &[5]);
        assert!(got.is_empty());
    }
}
