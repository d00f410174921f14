//! The order in which the packets of a call go through the lanes.

use super::Work;

/// Packet numbers, in the order of the work.
pub(crate) type Order = [u16];

/// The most packets in one call; the DES kernels take the most.
pub(crate) const PACKETS_MAX: usize = 512;
/// Number of length classes. Each class spans 64 bytes; the last one holds all lengths from 4 kB on.
const CLASSES: usize = 64;

/// Packet numbers, sorted by length.
pub(crate) struct Sorted {
    order: [u16; PACKETS_MAX],
    len: usize,
}

impl Sorted {
    /// Sorts the numbers of at most [`PACKETS_MAX`] packets, the longest first.
    pub(crate) fn new<K>(work: &[Work<'_, K>]) -> Self {
        let mut order = [0; PACKETS_MAX];
        let len = work.len().min(PACKETS_MAX);
        let mut place = [0u16; CLASSES];
        for work in &work[..len] {
            place[class(work.len)] += 1;
        }
        let mut before = 0;
        for place in &mut place {
            before += std::mem::replace(place, before);
        }
        for (packet, work) in work[..len].iter().enumerate() {
            let place = &mut place[class(work.len)];
            order[*place as usize] = packet as u16;
            *place += 1;
        }
        Self { order, len }
    }

    pub(crate) fn all(&self) -> &Order {
        &self.order[..self.len]
    }
}

/// Calls `call` with the packet numbers, the longest first.
pub(crate) fn in_order<K>(work: &[Work<'_, K>], call: impl FnOnce(&Order)) {
    match work {
        // A single packet needs no sorting.
        [_] => call(&[0]),
        _ => call(Sorted::new(work).all()),
    }
}

/// Returns the packets that fulfil a condition, in the same order.
pub(crate) fn filter(order: &Order, mut condition: impl FnMut(usize) -> bool) -> Sorted {
    let mut kept = Sorted {
        order: [0; PACKETS_MAX],
        len: 0,
    };
    for &packet in order.iter().take(PACKETS_MAX) {
        kept.order[kept.len] = packet;
        kept.len += usize::from(condition(packet as usize));
    }
    kept
}

/// Calls `each` once for each class that occurs, with the packets of that class. Every class is less than 32.
pub(crate) fn by_class(
    order: &Order,
    class: impl Fn(usize) -> u32,
    mut each: impl FnMut(u32, &Order),
) {
    let set = |set, &packet: &u16| set | 1u32 << class(packet as usize);
    let mut classes = order.iter().fold(0, set);
    if classes.is_power_of_two() {
        return each(classes.trailing_zeros(), order);
    }
    while classes != 0 {
        let next = classes.trailing_zeros();
        each(next, filter(order, |packet| class(packet) == next).all());
        classes &= classes - 1;
    }
}

/// Whether more than `worth` lanes have work until the longest packet, which is the first, is done.
pub(crate) fn fill_lanes<K>(work: &[Work<'_, K>], order: &Order, worth: usize) -> bool {
    let blocks = |&packet: &u16| work[packet as usize].len as usize / 64 + 2;
    match order {
        [] => false,
        [longest, ..] if order.len() < 4 * worth => {
            order.iter().map(blocks).sum::<usize>() > worth * blocks(longest)
        }
        _ => true,
    }
}

/// The class of a length. Long packets have low classes.
fn class(len: u32) -> usize {
    CLASSES - 1 - (len as usize / 64).min(CLASSES - 1)
}
