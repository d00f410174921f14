//! The lane scheduler: keeps the lanes of a kernel filled with streams of different lengths.
//!
//! ```text
//! lane 0  AAAAAAAAAAAAAA|DDDDDD|GGG......      A..H  streams, in blocks
//! lane 1  BBBBBBBBB|EEEEEEEEEEE|HHHHHH...      |     a segment ends: the lane is loaded anew
//! lane 2  CCCCCCCCC|FFFFFFFFFFFFFFFFFFFFF      .     idle: shadows a busy lane
//!         ^        ^    ^      ^  ^  ^
//!         each run goes to the next end of a segment, all lanes in step
//! ```
//!
//! ```text
//! load a stream into every lane
//! while a lane is busy:
//!     run all lanes up to the earliest end of a segment
//!     for each lane that is there: begin its next segment, or complete it and load the next stream
//! ```

/// Number of lanes of the widest kernel.
pub(super) const LANES_MAX: usize = 32;

/// A set of lanes; lane 0 is the lowest bit.
pub(super) type Lanes = u32;

/// A kernel that advances several streams in step. A stream consists of segments, each contiguous in memory.
pub(super) trait Streams {
    const LANES: usize;

    /// Puts a stream into a lane and returns the number of blocks of its first segment, which is at least one.
    ///
    /// # Safety
    /// The stream's memory is valid until the stream is complete.
    unsafe fn load(&mut self, lane: usize, stream: usize) -> usize;

    /// Makes an idle lane do the same as a busy one: the same memory, with the same bytes in it.
    ///
    /// # Safety
    /// Lane `busy` is loaded.
    unsafe fn shadow(&mut self, lane: usize, busy: usize);

    /// Advances every lane by `blocks` blocks.
    ///
    /// # Safety
    /// - Every lane is loaded or is a shadow.
    /// - Every lane has at least `blocks` blocks left in its segment.
    unsafe fn run(&mut self, blocks: usize);

    /// Begins the lane's next segment and returns its number of blocks, or 0 if the stream has no further segment.
    ///
    /// # Safety
    /// The lane is at the end of its segment.
    unsafe fn next_segment(&mut self, lane: usize) -> usize;

    /// Takes the results out of these lanes.
    ///
    /// # Safety
    /// Each of these lanes is at the end of its stream.
    unsafe fn complete(&mut self, lanes: Lanes);
}

const IDLE: u64 = u64::MAX;

/// Sends the streams through the lanes in the given order. The longest should come first, so that all lanes end
/// together.
///
/// # Safety
/// - The memory of all streams is valid.
/// - The caller is compiled for the kernel's instructions.
#[inline(always)]
pub(super) unsafe fn schedule<K: Streams>(kernel: &mut K, streams: &[u16]) {
    let mut waiting = streams.iter();
    // The block number, counted from the start, at which each lane's segment ends.
    let mut end = [IDLE; LANES_MAX];
    let mut busy: Lanes = 0;
    let mut now = 0;
    for (lane, &stream) in (0..K::LANES).zip(&mut waiting) {
        // SAFETY: the caller guarantees the stream's memory.
        end[lane] = unsafe { kernel.load(lane, stream as usize) } as u64;
        busy |= 1 << lane;
    }
    while busy != 0 {
        let idle = !busy & lanes(K::LANES);
        for lane in each(idle) {
            // SAFETY: the lowest busy lane is loaded.
            unsafe { kernel.shadow(lane, busy.trailing_zeros() as usize) };
        }
        let next = end
            .iter()
            .take(K::LANES)
            .fold(IDLE, |least, &end| least.min(end));
        // SAFETY: no segment ends before `next`, and a shadow is as long as a busy lane.
        unsafe { kernel.run((next - now) as usize) };
        now = next;
        let mut ended = 0;
        for (lane, &end) in end.iter().enumerate().take(K::LANES) {
            ended |= Lanes::from(end == now) << lane;
        }
        let mut complete = 0;
        for lane in each(ended) {
            // SAFETY: the lane is at the end of a segment.
            match unsafe { kernel.next_segment(lane) } {
                0 => complete |= 1 << lane,
                blocks => end[lane] = now + blocks as u64,
            }
        }
        if complete == 0 {
            continue;
        }
        // SAFETY: these lanes have no further segment.
        unsafe { kernel.complete(complete) };
        for lane in each(complete) {
            end[lane] = match waiting.next() {
                // SAFETY: the caller guarantees the stream's memory.
                Some(&stream) => now + unsafe { kernel.load(lane, stream as usize) } as u64,
                None => {
                    busy &= !(1 << lane);
                    IDLE
                }
            };
        }
    }
}

/// The set of the first `count` lanes.
pub(super) const fn lanes(count: usize) -> Lanes {
    Lanes::MAX >> (LANES_MAX - count)
}

/// The members of a set, the lowest first.
#[inline(always)]
pub(super) fn each(mut set: Lanes) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        let lane = set.trailing_zeros() as usize;
        (set != 0).then(|| {
            set &= set - 1;
            lane
        })
    })
}
