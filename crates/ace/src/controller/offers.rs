//! The lanes that a library has.

use crate::algorithm::{Lane, Need};
use crate::library::Library;

/// A bitstream with the lane that it makes.
#[derive(Debug, Clone)]
pub(super) struct Offer {
    pub domain: String,
    pub variant: String,
    pub lane: Lane,
    /// The bitstream did not make its lane. It is not used any more.
    pub is_refused: bool,
}

/// Returns the bitstreams for a part whose domains and variants have the names of lanes.
pub(super) fn of(library: &Library, part: &str) -> Vec<Offer> {
    let domains = library.manifest().domains.iter();
    let domains = domains.filter(|domain| domain.part == part);
    let offers = domains.flat_map(|domain| {
        domain.variants.iter().filter_map(|variant| {
            Some(Offer {
                domain: domain.name.clone(),
                variant: variant.name.clone(),
                lane: Lane::named(&domain.name, &variant.name)?,
                is_refused: false,
            })
        })
    });
    offers.collect()
}

/// Returns the lanes that a library has for a part.
pub fn lanes_of(library: &Library, part: &str) -> Vec<Lane> {
    of(library, part)
        .into_iter()
        .map(|offer| offer.lane)
        .collect()
}

/// Chooses the lane for a need: the one that takes no longer keys than are needed, where there are two.
pub(super) fn lane_for(offers: &[Offer], need: Need) -> Option<Lane> {
    let fitting = offers
        .iter()
        .filter(|offer| !offer.is_refused && offer.lane.meets(need));
    fitting
        .map(|offer| offer.lane)
        .min_by_key(|lane| lane.long_keys)
}
