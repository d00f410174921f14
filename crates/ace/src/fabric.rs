//! An FPGA that is configured anew while the host runs.

use crate::algorithm::Lane;
use crate::lane::Frames;

/// The reason why a fabric does not do what it should.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FabricError {
    /// There is no fabric.
    #[error("there is no fabric: {0}")]
    Absent(String),
    /// The fabric refuses the bitstream.
    #[error("the fabric refuses the bitstream at byte {at}: {why}")]
    Refused {
        /// The offset of the byte.
        at: usize,
        /// The fabric's reason.
        why: String,
    },
    /// The bitstream is whole, but makes nothing that is known.
    #[error("the bitstream makes no lane that is known (frames {0})")]
    Unknown(String),
    /// The lane does not answer.
    #[error("the lane does not answer")]
    Hung,
    /// The lane gives what it should not.
    #[error("the lane is wrong: {0}")]
    Wrong(String),
    /// The lane was used where none is.
    #[error("the fabric has no lane")]
    NoLane,
}

/// A fabric with place for one lane. No call blocks for longer than the lane works.
pub trait Fabric: Send {
    /// The part that bitstreams must be for.
    fn part(&self) -> &str;

    /// Begins a configuration. Whatever the lane had, keys and packets, is forgotten first.
    fn begin(&mut self) -> Result<(), FabricError>;

    /// True if the fabric takes partial streams too: only what differs from the configuration before.
    fn takes_partial(&self) -> bool {
        false
    }

    /// Begins a partial stream onto the configuration before. Otherwise as [`Fabric::begin`].
    fn begin_partial(&mut self) -> Result<(), FabricError> {
        Err(FabricError::Refused {
            at: 0,
            why: "it takes no partial streams".to_owned(),
        })
    }

    /// Takes the next bytes of the stream, as many as the interface has taken in the time since the last call. Returns
    /// their number.
    fn configure(&mut self, bytes: &[u8]) -> Result<usize, FabricError>;

    /// Ends a configuration. Returns what the stream has made.
    fn end(&mut self) -> Result<Lane, FabricError>;

    /// Gives the lane frames and takes its answers: one for each packet, in order.
    fn exchange(
        &mut self,
        frames: &Frames,
        packets: usize,
        answers: &mut Frames,
    ) -> Result<(), FabricError>;

    /// Has the lane forget its key and its packets.
    fn wipe(&mut self) -> Result<(), FabricError>;
}
