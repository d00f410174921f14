//! The GPU engine: ESP on a device where every packet has another SA, another transform and another length.
//!
//! A [`Launch`](launch::Launch) takes the jobs of several batches. Its [`schedule`] puts packets into work-groups whose
//! lanes all do the same. The kernels (`kernels/`) are C. OpenCL compiles them at run time, and CUDA translates PTX that
//! was made of them.
//! [`Gpu`] owns a device and gives batches back. It has no thread: its user waits and polls.

pub mod abi;
pub mod device;
mod engine;
pub mod host_memory;
pub mod kernels;
pub mod keys;
pub mod launch;
pub mod model;
pub mod schedule;
pub mod self_test;
pub mod suite;

pub use device::opencl::OpenCl;
pub use device::{Device, DeviceError, DeviceOptions, Tables, Wake, names, open, open_with};
pub use engine::{Gpu, GpuCounters};
pub use launch::LaunchChoice;
pub use schedule::Arrangement;
