//! The adaptive cryptographic engine (ACE): an FPGA whose configuration follows the SA.
//!
//! A configuration is a bitstream. Bitstreams of a domain, an algorithm on one part, are stored as what they have in
//! common and what each has by itself, [compressed](compress) with a dictionary. The [decompressor](decompress) needs
//! memory reads alone, no allocation and no operating system. docs/ace.md has the formats and the decisions.
#![cfg_attr(not(feature = "std"), no_std)]

#[cfg(feature = "engine")]
pub mod algorithm;
#[cfg(feature = "std")]
pub mod compress;
#[cfg(feature = "engine")]
pub mod controller;
pub mod decompress;
#[cfg(feature = "engine")]
pub mod fabric;
pub mod frames;
#[cfg(feature = "engine")]
pub mod lane;
#[cfg(feature = "std")]
pub mod library;
#[cfg(feature = "engine")]
pub mod residency;
#[cfg(feature = "engine")]
pub mod simulated;
