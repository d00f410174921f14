//! Times of certificates and CRLs as text.

use std::time::Duration;

use x509_cert::der::DateTime;

/// Writes a time, in seconds since 1970, as RFC 3339 has it.
pub(crate) fn rfc3339(seconds: u64) -> String {
    match DateTime::from_unix_duration(Duration::from_secs(seconds)) {
        Ok(time) => time.to_string(),
        Err(_) => format!("{seconds} s after 1970"),
    }
}
