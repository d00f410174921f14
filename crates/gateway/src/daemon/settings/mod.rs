//! What the configuration says, as the daemon needs it.

pub(super) mod load_queue;
pub mod policies;
pub mod preview;
pub(super) mod speeds;
pub(super) mod tier;
pub(super) mod token_secret;
