//! Strategies for the transforms that exist, and for key material that a transform takes.

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;

use crate::transform::Transform;
use crate::weak;

pub fn esp() -> impl Strategy<Value = Transform> {
    select(&Transform::ESP[..])
}

pub fn ah() -> impl Strategy<Value = Transform> {
    select(&Transform::AH[..])
}

/// Adds key material of the right length that is not weak.
pub fn keyed(
    transform: impl Strategy<Value = Transform>,
) -> impl Strategy<Value = (Transform, Vec<u8>)> {
    let with_material = |transform: Transform| {
        let material = vec(any::<u8>(), transform.key_material_len());
        (Just(transform), material)
    };
    transform
        .prop_flat_map(with_material)
        .prop_filter("a weak key", |(transform, material)| {
            weak::check(*transform, material).is_ok()
        })
}
