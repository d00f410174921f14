//! The tests of this crate, in one binary that links the library: the crate is compiled once.

mod common;

#[cfg(target_arch = "x86_64")]
mod aes;
mod aes_prf;
mod ah;
mod boxes;
#[cfg(target_arch = "x86_64")]
mod chacha;
mod cost;
mod cpu;
#[cfg(target_arch = "x86_64")]
mod des;
mod dh;
mod edges;
mod finalists;
#[cfg(target_arch = "x86_64")]
mod gcm;
mod iana;
mod iterations;
mod key;
mod key_file;
mod known_answers;
mod lookaside;
mod mars;
mod mars_box;
mod material;
#[cfg(target_arch = "x86_64")]
mod pair;
mod plain;
mod primitives;
mod records;
mod rsa_pkcs1;
mod secret;
mod selection;
mod self_test;
mod slots;
mod tiers;
mod transform;
mod trial;
mod weak;
