//! Parts that several of the structures are made of.

use serde::Serializer;

/// Writes a number of 32 bits as eight hexadecimal digits.
pub(crate) fn hex_32<S: Serializer>(number: &u32, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(&format_args!("{number:08x}"))
}

/// Writes a number of 64 bits as sixteen hexadecimal digits.
pub(crate) fn hex_64<S: Serializer>(number: &u64, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(&format_args!("{number:016x}"))
}

/// Tells whether an entry is left out because it is `no`.
pub(crate) fn is_no(value: &bool) -> bool {
    !*value
}
