//! Times: of the wall clock, and of certificates and CRLs as text.

use std::time::{Duration, SystemTime};

use rustls_pki_types::UnixTime;
use x509_cert::der::DateTime;

/// Writes a time, in seconds since 1970, as RFC 3339 has it.
pub(super) fn rfc3339(seconds: u64) -> String {
    match DateTime::from_unix_duration(Duration::from_secs(seconds)) {
        Ok(time) => time.to_string(),
        Err(_) => format!("{seconds} s after 1970"),
    }
}

pub(crate) fn unix_time(time: SystemTime) -> UnixTime {
    let since = time.duration_since(SystemTime::UNIX_EPOCH);
    UnixTime::since_unix_epoch(since.unwrap_or(Duration::ZERO))
}
