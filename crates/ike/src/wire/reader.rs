//! Bounded reading and writing of fields, and the errors of both.

use super::NotifyType;

/// An error in a received message. `offset` counts from the start of the slice that the decoder got: the datagram, or
/// the decrypted content of an Encrypted payload.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{place}: {problem} (at byte {offset})")]
pub struct DecodeError {
    pub place: &'static str,
    pub offset: usize,
    pub problem: Problem,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Problem {
    #[error("{needed} bytes needed, {left} left")]
    Truncated { needed: usize, left: usize },
    #[error("length field says {stated}, which does not fit {available} bytes")]
    Length { stated: usize, available: usize },
    #[error("{extra} bytes after the end")]
    Trailing { extra: usize },
    #[error("more than {limit}")]
    TooMany { limit: usize },
    #[error("{0}")]
    Invalid(&'static str),
    #[error("major version {0}")]
    MajorVersion(u8),
    #[error("the payload comes twice")]
    Twice,
    #[error("unknown payload type {0} is marked critical")]
    UnsupportedCritical(u8),
}

impl DecodeError {
    /// The notification that answers this error, with its data (RFC 7296 §2.5, §2.21 and §3.10.1). The caller decides
    /// whether it may be sent.
    pub fn notification(&self) -> (NotifyType, Vec<u8>) {
        match self.problem {
            Problem::UnsupportedCritical(payload) => {
                (NotifyType::UNSUPPORTED_CRITICAL_PAYLOAD, vec![payload])
            }
            Problem::MajorVersion(_) => (
                NotifyType::INVALID_MAJOR_VERSION,
                vec![super::codes::MAJOR_VERSION],
            ),
            _ => (NotifyType::INVALID_SYNTAX, Vec::new()),
        }
    }
}

/// A value of ours does not fit its field on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{place}: {problem}")]
pub struct EncodeError {
    pub place: &'static str,
    pub problem: &'static str,
}

/// A cursor that knows its position, so that errors can name it.
#[derive(Clone, Debug)]
pub(crate) struct WireReader<'a> {
    bytes: &'a [u8],
    position: usize,
    base: usize,
    place: &'static str,
}

impl<'a> WireReader<'a> {
    pub(crate) fn new(bytes: &'a [u8], place: &'static str) -> Self {
        Self {
            bytes,
            position: 0,
            base: 0,
            place,
        }
    }

    pub(crate) fn left(&self) -> usize {
        self.bytes.len() - self.position
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.left() == 0
    }

    pub(crate) fn offset(&self) -> usize {
        self.base + self.position
    }

    pub(crate) fn error(&self, problem: Problem) -> DecodeError {
        DecodeError {
            place: self.place,
            offset: self.offset(),
            problem,
        }
    }

    pub(crate) fn invalid(&self, what: &'static str) -> DecodeError {
        self.error(Problem::Invalid(what))
    }

    pub(crate) fn take(&mut self, needed: usize) -> Result<&'a [u8], DecodeError> {
        let taken = self
            .position
            .checked_add(needed)
            .and_then(|end| self.bytes.get(self.position..end))
            .ok_or_else(|| {
                self.error(Problem::Truncated {
                    needed,
                    left: self.left(),
                })
            })?;
        self.position += needed;
        Ok(taken)
    }

    pub(crate) fn array<const N: usize>(&mut self) -> Result<[u8; N], DecodeError> {
        let mut array = [0; N];
        array.copy_from_slice(self.take(N)?);
        Ok(array)
    }

    pub(crate) fn u8(&mut self) -> Result<u8, DecodeError> {
        Ok(self.array::<1>()?[0])
    }

    pub(crate) fn u16(&mut self) -> Result<u16, DecodeError> {
        Ok(u16::from_be_bytes(self.array()?))
    }

    pub(crate) fn u32(&mut self) -> Result<u32, DecodeError> {
        Ok(u32::from_be_bytes(self.array()?))
    }

    pub(crate) fn u64(&mut self) -> Result<u64, DecodeError> {
        Ok(u64::from_be_bytes(self.array()?))
    }

    pub(crate) fn rest(&mut self) -> &'a [u8] {
        let rest = self.bytes.get(self.position..).unwrap_or_default();
        self.position = self.bytes.len();
        rest
    }

    /// A sub-structure whose first `header` bytes have been read. Its length field counts those bytes too, and says
    /// `stated`.
    pub(crate) fn sub(
        &mut self,
        stated: usize,
        header: usize,
        place: &'static str,
    ) -> Result<WireReader<'a>, DecodeError> {
        let length_error = |reader: &Self| {
            reader.error(Problem::Length {
                stated,
                available: header + reader.left(),
            })
        };
        let body = stated
            .checked_sub(header)
            .ok_or_else(|| length_error(self))?;
        if body > self.left() {
            return Err(length_error(self));
        }
        let base = self.offset();
        Ok(WireReader {
            bytes: self.take(body)?,
            position: 0,
            base,
            place,
        })
    }

    pub(crate) fn finish(&self) -> Result<(), DecodeError> {
        if self.is_empty() {
            return Ok(());
        }
        Err(self.error(Problem::Trailing { extra: self.left() }))
    }
}

/// Runs `write`, and puts the number of bytes that it wrote into the 16-bit field at `field`. `before` further bytes
/// count too.
pub(crate) fn with_length(
    out: &mut Vec<u8>,
    place: &'static str,
    start: usize,
    field: usize,
    write: impl FnOnce(&mut Vec<u8>) -> Result<(), EncodeError>,
) -> Result<(), EncodeError> {
    write(out)?;
    let length = u16::try_from(out.len() - start).map_err(|_| EncodeError {
        place,
        problem: "longer than 65535 bytes",
    })?;
    out[field..field + 2].copy_from_slice(&length.to_be_bytes());
    Ok(())
}

/// A count or a length that must fit one byte.
pub(crate) fn byte(
    value: usize,
    place: &'static str,
    problem: &'static str,
) -> Result<u8, EncodeError> {
    u8::try_from(value).map_err(|_| EncodeError { place, problem })
}
