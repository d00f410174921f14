//! Devices that run the kernels.

pub mod host_memory;
pub mod opencl;

use std::sync::Arc;

use esplanade_crypto::Batch;

use self::host_memory::HostMemory;
use crate::keys::RawKey;
use crate::launch::{Launch, LaunchLimits, STAGES};

/// A failure of the device or of its driver.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DeviceError {
    #[error("the OpenCL library libOpenCL.so.1 is not there")]
    NoLibrary,
    #[error("{}", no_device(wanted.as_deref(), there))]
    NoDevice {
        wanted: Option<String>,
        there: Vec<String>,
    },
    #[error("the device's compiler refuses the kernels: {0}")]
    Compiler(String),
    #[error("{call} fails: {why}")]
    Call { call: &'static str, why: String },
    #[error("the device gives wrong results for {0}")]
    Wrong(String),
}

fn no_device(wanted: Option<&str>, there: &[String]) -> String {
    let there = match there {
        [] => "there is no OpenCL device".to_owned(),
        there => format!("there are: {}", there.join(", ")),
    };
    match wanted {
        Some(wanted) => format!("no device has {wanted:?} in its name; {there}"),
        None => format!("there is no GPU; {there}"),
    }
}

/// Called when a launch has finished, from any thread.
pub type Wake = Arc<dyn Fn() + Send + Sync>;

/// A launch that has ended, with its batches as the device left them.
#[derive(Debug)]
pub struct FinishedLaunch {
    pub batches: Vec<Batch>,
    pub launch: Launch,
    /// A word for each job of the launch.
    pub verdicts: Vec<u32>,
    /// The time of each stage's kernel in nanoseconds, where the device measures it.
    pub stage_ns: [u64; STAGES],
}

/// A device with the kernels, a key table and room for several launches.
///
/// A device owns the batches of its launches: it reads and writes their arenas by itself. If the launch has outputs, the
/// kernels work on [`Device::memory`], and otherwise on copies.
pub trait Device: Send {
    /// The device's name, for people.
    fn name(&self) -> &str;
    fn limits(&self) -> LaunchLimits;
    /// Launches that may be under way at once.
    fn depth(&self) -> usize;
    /// Rows of the key table.
    fn rows(&self) -> usize;

    /// The memory in which arenas are the least work for the device.
    fn memory(&self) -> Option<&Arc<HostMemory>> {
        None
    }

    /// Puts keys into their rows before the next launch.
    fn load_keys(&mut self, keys: &[RawKey]) -> Result<(), DeviceError>;
    /// Overwrites rows with zeros.
    fn wipe_keys(&mut self, rows: &[u32]) -> Result<(), DeviceError>;

    /// Begins a launch. There must be fewer than [`Device::depth`] under way. After an error the device is not used
    /// any more.
    fn start(&mut self, launch: Launch, batches: Vec<Batch>) -> Result<(), DeviceError>;
    /// Returns the oldest launch if it has finished.
    fn poll(&mut self) -> Result<Option<FinishedLaunch>, DeviceError>;
    /// Waits for the oldest launch and returns it; `None` if none is under way.
    fn wait(&mut self) -> Result<Option<FinishedLaunch>, DeviceError>;
    /// Launches under way.
    fn under_way(&self) -> usize;
}
