//! The commands of the control socket, and what they answer.

pub(super) mod answer_lists;
pub(super) mod control;
pub(super) mod explain;
pub(super) mod refusals;
pub(super) mod renewals;
pub(super) mod report;
pub(super) mod strongswan_names;
