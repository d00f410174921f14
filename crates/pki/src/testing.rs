//! Helpers of several tests.

use crate::certificate::Certificate;

/// The first certificate of a file.
pub(crate) fn load(content: &[u8]) -> Certificate {
    Certificate::from_file_content(content).unwrap().remove(0)
}
