//! Puts the bitstreams of a domain into one file.

use super::manifest::{Domain, Variant};
use super::{LibraryError, hash};
use crate::compress::{Accounting, Phase, compress};
use crate::frames::{Bitstream, Common, Grain, Skeleton, SkeletonError, Tile};

/// A domain with its file, to be published.
#[derive(Debug, Clone)]
pub struct PackedDomain {
    pub(super) domain: Domain,
    pub(super) file: Vec<u8>,
    accounting: Accounting,
    common: Common,
}

impl PackedDomain {
    /// The domain's entry in the manifest.
    pub fn domain(&self) -> &Domain {
        &self.domain
    }

    /// The memory that the dictionary and the indices take.
    pub fn accounting(&self) -> Accounting {
        self.accounting
    }

    /// How much the bitstreams have in common.
    pub fn common(&self) -> Common {
        self.common
    }
}

/// Packs a domain: names of its variants with their bitstreams, which are `.bit` files. Skeleton, mask, differences and
/// envelopes share a dictionary.
pub fn pack(
    name: &str,
    variants: &[(&str, &[u8])],
    grain: Grain,
    tiles: &[Tile],
    phase: Phase,
) -> Result<PackedDomain, LibraryError> {
    let mut bitstreams = Vec::new();
    for (variant, bytes) in variants {
        let parsed = Bitstream::parse(bytes).map_err(|(at, error)| LibraryError::Bitstream {
            variant: (*variant).to_owned(),
            at,
            error,
        })?;
        bitstreams.push(parsed);
    }
    let refuse = |error| LibraryError::Skeleton {
        domain: name.to_owned(),
        error,
    };
    let all: Vec<&Bitstream> = bitstreams.iter().collect();
    let skeleton = Skeleton::new(&all, grain, tiles).map_err(refuse)?;
    let differences: Vec<_> = all.iter().map(|each| skeleton.difference(each)).collect();
    let mut parts = vec![skeleton.common(), skeleton.mask()];
    for (difference, bitstream) in differences.iter().zip(&all) {
        parts.extend([
            difference.as_deref().unwrap_or_default(),
            bitstream.envelope(),
        ]);
    }
    let compressed = compress(&parts, phase).map_err(|error| LibraryError::Compress {
        domain: name.to_owned(),
        error,
    })?;
    let file = compressed.pack();
    let first = all.first().ok_or(refuse(SkeletonError::Empty))?;
    let variants = variants.iter().map(|(name, bytes)| Variant {
        name: (*name).to_owned(),
        bytes: bytes.len() as u64,
        sha256: hash(bytes),
    });
    let domain = Domain {
        name: name.to_owned(),
        part: first.part().name.to_owned(),
        bytes: file.len() as u64,
        sha256: hash(&file),
        variants: variants.collect(),
    };
    Ok(PackedDomain {
        domain,
        accounting: compressed.accounting(),
        common: skeleton.extent(),
        file,
    })
}
