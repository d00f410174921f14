//! A launch's sizes and order, which are the same for the hosts of all libraries.

use esplanade_crypto::Direction;
use zeroize::Zeroizing;

use super::DeviceError;
use crate::abi::RAW_WORDS;
use crate::keys::RawKey;
use crate::launch::{Launch, LaunchLimits, STAGES, stages_of};

/// Launches under way at once.
pub(super) const DEPTH: usize = 4;
/// The words of the packets of a launch: 8 MiB.
const WORDS: usize = 2 << 20;
/// Jobs of a launch.
const JOBS: usize = 16_384;
pub(super) const LIMITS: LaunchLimits = LaunchLimits {
    words: WORDS,
    jobs: JOBS,
};
/// Rows of the key table.
pub(super) const ROWS: usize = 32_768;
/// Keys loaded, or rows wiped, by one call of a kernel.
pub(super) const KEYS_AT_ONCE: usize = 256;
/// Entries of a launch's order: a lane that has two jobs may name its last one twice.
pub(super) const ORDER_WORDS: usize = 2 * STAGES * JOBS;

/// The kernels that write rows of the key table.
pub(super) const EXPAND_ENTRY: &str = "expand_keys";
pub(super) const WIPE_ENTRY: &str = "wipe_keys";

/// Tells whether a device's name has a text in it, in any case. Every name has none.
pub(super) fn is_wanted(name: &str, wanted: Option<&str>) -> bool {
    wanted.is_none_or(|wanted| name.to_lowercase().contains(&wanted.to_lowercase()))
}

/// The direction as the kernels take it.
pub(super) fn direction_word(direction: Direction) -> u32 {
    match direction {
        Direction::Seal => 0,
        Direction::Open => 1,
    }
}

/// The stages of a launch that have work, in their order, with their numbers of work-groups.
pub(super) fn stages(launch: &Launch) -> impl Iterator<Item = (usize, usize)> {
    stages_of(launch.direction)
        .iter()
        .map(|&stage| (stage, launch.groups[stage].len()))
        .filter(|(_, groups)| *groups > 0)
}

/// Fails if a launch exceeds [`LIMITS`], or if no other launch can begin.
pub(super) fn check_start<T>(launch: &Launch, free: Option<T>) -> Result<T, DeviceError> {
    let refused = |why| DeviceError::Call {
        call: "a launch",
        why,
    };
    if launch.words > WORDS || launch.jobs.len() > JOBS {
        let why = format!("it has more than {WORDS} words or {JOBS} jobs");
        return Err(refused(why));
    }
    free.ok_or_else(|| refused(format!("{DEPTH} are under way")))
}

/// Hands keys over in the parts that [`EXPAND_ENTRY`] takes, each with its number of keys.
pub(super) fn load_keys(
    keys: &[RawKey],
    mut load: impl FnMut(&[u32], usize) -> Result<(), DeviceError>,
) -> Result<(), DeviceError> {
    keys.chunks(KEYS_AT_ONCE).try_for_each(|keys| {
        let mut words = Zeroizing::new(Vec::with_capacity(keys.len() * RAW_WORDS));
        keys.iter()
            .for_each(|key| words.extend_from_slice(&key[..]));
        load(&words, keys.len())
    })
}

/// Hands rows over in the parts that [`WIPE_ENTRY`] takes.
pub(super) fn wipe_keys(
    rows: &[u32],
    mut wipe: impl FnMut(&[u32], usize) -> Result<(), DeviceError>,
) -> Result<(), DeviceError> {
    let mut parts = rows.chunks(KEYS_AT_ONCE);
    parts.try_for_each(|rows| wipe(rows, rows.len()))
}
