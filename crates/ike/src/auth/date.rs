//! The time of the wall clock, as certificates have it.

use std::time::{Duration, SystemTime};

use esplanade_pki::UnixTime;

pub(crate) fn unix_time(time: SystemTime) -> UnixTime {
    let since = time.duration_since(SystemTime::UNIX_EPOCH);
    UnixTime::since_unix_epoch(since.unwrap_or(Duration::ZERO))
}
