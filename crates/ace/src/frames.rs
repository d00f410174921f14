//! Bitstreams of Lattice ECP5 parts: configuration frames, and everything around them.
//!
//! The commands are those of Lattice's sysCONFIG, as Project Trellis writes and reads them. A bitstream is its frames and
//! its *envelope*: the other bytes, but for checksums and fillers, which follow from the rest.

#[cfg(feature = "std")]
mod bitstream;
mod merge;
mod part;
#[cfg(feature = "std")]
mod partial;
#[cfg(feature = "std")]
mod read;
#[cfg(feature = "std")]
mod skeleton;
mod walker;

#[cfg(feature = "std")]
pub use bitstream::{BITSTREAM_LEN_MAX, Bitstream, Block, Configuration};
pub use merge::{Merge, MergeError, MergeStream};
pub use part::Part;
#[cfg(feature = "std")]
pub use partial::{Partial, PartialError};
#[cfg(feature = "std")]
pub use read::Reader;
#[cfg(feature = "std")]
pub use skeleton::{Common, Grain, Skeleton, SkeletonError, Tile};
pub use walker::{BitstreamError, Expected, Walker};
