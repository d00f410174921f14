//! Orders a batch for a kernel: packets of one shape stand together.

use std::arch::x86_64::*;

use super::frame::Frame;
use super::key::GcmKey;

/// The most packets that one order covers.
pub(super) const PACKETS: usize = 128;

/// Key contexts are prefetched this many packets ahead. The contexts of the first packets are prefetched while the
/// packets are gathered.
pub(super) const AHEAD: usize = 16;

/// Every shape is less than this number.
pub(super) const SHAPES: usize = 128;

/// The packet numbers in ascending order, used when all packets have one shape.
const IN_A_ROW: [u8; PACKETS] = {
    let mut numbers = [0; PACKETS];
    let mut at = 0;
    while at < PACKETS {
        numbers[at] = at as u8;
        at += 1;
    }
    numbers
};

/// Packet numbers, sorted by shape.
pub(super) struct Order {
    numbers: [u8; PACKETS],
    count: usize,
    /// Each shape that occurs, lowest first, with its number of packets.
    runs: [(u8, u8); SHAPES],
    run_count: usize,
}

impl Order {
    /// An order for `count` packets that all have this shape.
    #[inline(always)]
    pub(super) fn in_a_row(shape: u8, count: usize) -> Self {
        assert!(count <= PACKETS);
        let mut runs = [(0, 0); SHAPES];
        runs[0] = (shape, count as u8);
        Self {
            numbers: IN_A_ROW,
            count,
            runs,
            run_count: 1,
        }
    }

    /// An order for packets with these shapes, each less than [`SHAPES`].
    #[inline(always)]
    pub(super) fn new(shape_of: impl ExactSizeIterator<Item = u8>) -> Self {
        let mut shapes = [u8::MAX; PACKETS];
        let mut count = 0;
        for (slot, shape) in shapes.iter_mut().zip(shape_of) {
            *slot = shape;
            count += 1;
        }
        let alike = shapes[..count]
            .iter()
            .fold((!0, 0), |(all, any), shape| (all & shape, any | shape));
        if alike.0 == alike.1 {
            return Self::in_a_row(shapes[0], count);
        }
        let mut order = Self {
            numbers: IN_A_ROW,
            count: 0,
            runs: [(0, 0); SHAPES],
            run_count: 0,
        };
        order.sort(&shapes, count);
        order
    }

    fn sort(&mut self, shapes: &[u8; PACKETS], count: usize) {
        let mut present = 0u128;
        for shape in &shapes[..count] {
            present |= 1 << shape;
        }
        while present != 0 {
            self.push_run(shapes, present.trailing_zeros() as u8);
            present &= present - 1;
        }
    }

    #[inline(always)]
    fn push_run(&mut self, shapes: &[u8; PACKETS], shape: u8) {
        let before = self.count;
        for (half, shapes) in shapes.as_chunks::<64>().0.iter().enumerate() {
            let mut set = equal(shapes, shape);
            while set != 0 {
                self.numbers[self.count % PACKETS] = (64 * half) as u8 + set.trailing_zeros() as u8;
                self.count += 1;
                set &= set - 1;
            }
        }
        self.runs[self.run_count % SHAPES] = (shape, (self.count - before) as u8);
        self.run_count += 1;
    }

    /// The shapes in order, each with its number of packets.
    #[inline(always)]
    pub(super) fn runs(&self) -> impl Iterator<Item = (usize, usize)> {
        let runs = self.runs[..self.run_count].iter();
        runs.map(|&(shape, count)| (usize::from(shape), usize::from(count)))
    }

    /// A queue of the packets from position `next` on.
    #[inline(always)]
    pub(super) fn queue<'a, F: Frame>(&'a self, frames: &'a [F], next: usize) -> FrameQueue<'a, F> {
        assert!(self.count <= frames.len());
        let mut queue = FrameQueue {
            frames,
            numbers: &self.numbers[next..self.count],
            fetched: std::ptr::null(),
        };
        // Gathering prefetched the keys of the packets that came first. After sorting, other packets are first.
        if next == 0 && self.run_count > 1 {
            let first = queue.numbers.len().min(AHEAD);
            queue.fetch(&queue.numbers[..first]);
        }
        queue
    }
}

/// Returns a set with one bit for each byte that equals `value`.
#[inline(always)]
fn equal(bytes: &[u8; 64], value: u8) -> u64 {
    let mut set = 0;
    for (quarter, bytes) in bytes.as_chunks::<16>().0.iter().enumerate() {
        // SAFETY: SSE2 is part of the x86-64 baseline, and the chunk has 16 bytes.
        let bits = unsafe {
            let bytes = _mm_loadu_si128(bytes.as_ptr().cast());
            _mm_movemask_epi8(_mm_cmpeq_epi8(bytes, _mm_set1_epi8(value as i8)))
        };
        set |= u64::from(bits as u16) << (16 * quarter);
    }
    set
}

/// Hands out the packets of a batch in order.
pub(super) struct FrameQueue<'a, F> {
    frames: &'a [F],
    /// Numbers of the packets that are left.
    numbers: &'a [u8],
    /// The key context that was prefetched last.
    fetched: *const GcmKey,
}

impl<'a, F: Frame> FrameQueue<'a, F> {
    /// Removes the next packet and returns its number and frame. Panics if the queue is empty.
    #[inline(always)]
    pub(super) fn take(&mut self) -> (usize, &'a F) {
        let ([number], [frame]) = self.take_some();
        (number, frame)
    }

    /// Removes the next `P` packets and returns their numbers and frames. Panics if fewer are left.
    #[inline(always)]
    pub(super) fn take_some<const P: usize>(&mut self) -> ([usize; P], [&'a F; P]) {
        if let Some(ahead) = self.numbers.get(AHEAD..AHEAD + P) {
            self.fetch(ahead);
        }
        let (next, left) = self.numbers.split_at(P);
        self.numbers = left;
        let mut numbers = [0; P];
        let mut frames = [&self.frames[0]; P];
        for p in 0..P {
            numbers[p] = usize::from(next[p]);
            // SAFETY: every number is less than the order's packet count, and `Order::queue` checked that there are
            // as many frames.
            frames[p] = unsafe { self.frames.get_unchecked(numbers[p]) };
        }
        (numbers, frames)
    }

    /// Returns the next packet without removing it.
    #[inline(always)]
    pub(super) fn peek(&self) -> Option<&'a F> {
        self.frames.get(usize::from(*self.numbers.first()?))
    }

    /// Counts how many of the next `most` packets are [alike](Frame::alike) the next one.
    #[inline(always)]
    pub(super) fn alike(&self, most: usize) -> usize {
        let Some(first) = self.peek() else {
            return 0;
        };
        let next = self.numbers.iter().take(most);
        let like = |&&number: &&u8| first.alike(&self.frames[usize::from(number)]);
        next.take_while(like).count()
    }

    /// Prefetches the key contexts of these packets. A context that was prefetched just before is skipped: neighbours
    /// often share a key.
    #[inline(always)]
    fn fetch(&mut self, numbers: &[u8]) {
        for &number in numbers {
            // SAFETY: as in `take_some`.
            let frame = unsafe { self.frames.get_unchecked(usize::from(number)) };
            let key: *const GcmKey = frame.key();
            if key != self.fetched {
                self.fetched = key;
                for line in 0..size_of::<GcmKey>() / 64 {
                    let address = key.cast::<i8>().wrapping_add(64 * line);
                    // SAFETY: prefetching is part of the x86-64 baseline and does not access memory.
                    unsafe { _mm_prefetch::<_MM_HINT_T0>(address) }
                }
            }
        }
    }
}
