//! IPsec transforms by IANA name, key contexts and the engine seam.
//!
//! A [`Batch`] of [`Job`]s of one direction goes to an [`Engine`] and comes back with a status for each job.
//! [`KeyContext`] holds what can be computed once per key. [`CpuEngine`] uses vector kernels of the machine's
//! [`Tier`], and aws-lc where there is no kernel. [`lookaside`] does the same for packets and records in the caller's
//! own buffers.

mod aead;
mod aes;
mod aes_mac;
pub mod aes_prf;
mod ah;
pub mod arena;
mod ccm;
mod cipher;
pub mod cost;
pub mod cpu;
mod des;
pub mod dh;
pub mod engine;
mod esp;
mod finalists;
#[cfg(feature = "generators")]
pub mod generators;
mod hmac;
pub mod iana;
pub mod job;
mod joined;
pub mod key;
pub mod key_file;
mod key_slot;
pub mod lookaside;
mod mac;
pub mod material;
mod plain;
pub mod prefetch;
pub mod random;
pub mod rsa_pkcs1;
pub mod secret;
pub mod selection;
pub mod self_test;
pub mod sk;
mod slots;
mod spec;
#[doc(hidden)]
#[cfg(feature = "generators")]
pub mod testing;
pub mod tier;
pub mod transform;
pub mod weak;

pub use arena::Arena;
pub use cpu::CpuEngine;
pub use engine::{Engine, EngineInfo, RejectReason, Rejected};
pub use job::{Batch, Direction, Job, JobStatus};
pub use key::{KeyContext, KeyError};
pub use key_slot::KeySlot;
pub use material::KeyMaterial;
pub use prefetch::prefetch_line;
pub use selection::{Selection, TierError, selection};
pub use slots::SlotTable;
pub use tier::{MissingFeature, Tier};
pub use transform::{IvKind, Protocol, Transform};
pub use weak::WeakKey;
