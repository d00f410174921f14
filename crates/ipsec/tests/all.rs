//! The integration tests of this crate, in one binary: to link one for each file takes longer than the tests.

mod common;

mod ah;
mod bursts;
mod changing_sas;
mod classifier;
mod drops;
mod dummies;
mod early;
mod events;
mod flow_cache;
mod fragments;
mod icmp_errors;
mod interfaces;
mod lifetime;
mod modes;
mod nested;
mod nonces;
mod pace;
mod placement;
mod processing;
mod reconcile;
mod replay;
mod sa_numbers;
mod sad;
mod sequence;
mod tables;
mod tunnel_header;
mod tunnelled_fragments;
mod vectors;
mod walks;
mod ways;
mod wire;
