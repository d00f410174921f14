//! Turns the configuration into policies, tiers and proposals, and loads it anew.

pub(super) mod load_queue;
pub mod policies;
pub mod preview;
pub(super) mod speeds;
pub(super) mod tier;
pub(super) mod token_secret;
