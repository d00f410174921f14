//! The fast path for consecutive jobs whose keys are of one kind. Most jobs are like that, and they need no sorting.

use super::work::{Family, Gathered, Kind};
use super::{Kernel, registers};
#[cfg(target_arch = "x86_64")]
use super::{chacha, des, gcm, pair};
use crate::job::{Direction, Job};
use crate::key::KeyContext;
use crate::prefetch::prefetch_line;
use crate::slots::SlotTable;

/// The least number of jobs for the fast path, unless fewer are left. A shorter row may mean that jobs of several
/// kinds are mixed, which the sorter handles better.
const SHORTEST: usize = 32;

/// Key contexts are prefetched this many jobs ahead. With many keys most contexts are not in the cache.
const AHEAD: usize = 12;

/// Processes the leading jobs whose keys have the first key's kind, and returns their number. Returns 0 if the first
/// job is malformed or has no kernel, or if the row is short.
pub(super) fn run(
    direction: Direction,
    jobs: &mut [Job],
    keys: &SlotTable<KeyContext>,
    buffer: &mut [u8],
) -> usize {
    let first = jobs.first().and_then(|job| keys.get(job.key));
    let Some(kind) = first.map(|key| key.kind()) else {
        return 0;
    };
    let row = Row {
        kind,
        direction,
        jobs,
        keys,
        buffer,
    };
    match kind.family {
        Family::Library => 0,
        #[cfg(target_arch = "x86_64")]
        Family::Gcm => row.run::<gcm::Key>(),
        #[cfg(target_arch = "x86_64")]
        Family::Gmac => row.run::<gcm::gmac::Key>(),
        #[cfg(target_arch = "x86_64")]
        Family::Pair => row.run::<pair::Key>(),
        #[cfg(target_arch = "x86_64")]
        Family::ChaCha => row.run::<chacha::Key>(),
        #[cfg(target_arch = "x86_64")]
        Family::Des => row.run::<des::EspKey>(),
        #[cfg(not(target_arch = "x86_64"))]
        _ => 0,
    }
}

struct Row<'a> {
    kind: Kind,
    direction: Direction,
    jobs: &'a mut [Job],
    keys: &'a SlotTable<KeyContext>,
    buffer: &'a mut [u8],
}

impl Row<'_> {
    fn run<K: Kernel>(self) -> usize {
        let Self { kind, jobs, .. } = self;
        let (room, buffer) = (self.buffer.len(), self.buffer.as_mut_ptr());
        let mut gathered = Gathered::<K>::new();
        let mut last: Option<(u32, &KeyContext)> = None;
        for (at, job) in jobs.iter().enumerate() {
            if let Some(ahead) = jobs.get(at + AHEAD)
                && ahead.key != job.key
                && let Some(context) = self.keys.get(ahead.key)
            {
                prefetch_line(&**context);
            }
            let context = match last {
                Some((number, context)) if number == job.key => context,
                _ => {
                    let context = self.keys.get(job.key);
                    let Some(context) = context.filter(|key| key.kind() == kind) else {
                        break;
                    };
                    last = Some((job.key, context));
                    context
                }
            };
            let (start, len) = (job.esp as usize, job.len as usize);
            if start.checked_add(len).is_none_or(|end| end > room) {
                break;
            }
            // SAFETY: inside the buffer, as just checked.
            let packet = unsafe { buffer.add(start) };
            if !gathered.push(context, packet, job.len, job.sequence) || gathered.is_full() {
                break;
            }
        }
        let count = gathered.len();
        if count == 0 || count < jobs.len().min(SHORTEST) {
            return 0;
        }
        // SAFETY: the packets lie in the buffer, which is borrowed; a key of a kind is made only on a machine that
        // has its tier.
        unsafe {
            let done = |at: usize, status| jobs[at].status = status;
            gathered.run(kind.tier, self.direction, done);
            registers::zero(kind.tier);
        }
        count
    }
}
