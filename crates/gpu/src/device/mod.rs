//! Devices that run the kernels.

pub mod cuda;
pub mod opencl;
mod plan;
mod tables;

use std::sync::Arc;

use esplanade_crypto::Batch;

use self::cuda::{Cuda, CudaFound};
use self::opencl::OpenCl;
pub use self::tables::Tables;
use crate::host_memory::{HostMemory, HostMemoryUse};
use crate::keys::RawKey;
use crate::launch::{Launch, LaunchLimits, STAGES};

/// A failure of the device or of its driver.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DeviceError {
    #[error("{0} is not there")]
    NoLibrary(&'static str),
    #[error("the driver of CUDA is too old: it has no {0}")]
    OldDriver(&'static str),
    #[error("{}", no_device(wanted.as_deref(), there))]
    NoDevice {
        wanted: Option<String>,
        there: Vec<String>,
    },
    #[error(
        "{name} has compute capability {}.{}, and the kernels need {}.{}",
        capability.0, capability.1, needed.0, needed.1
    )]
    OldDevice {
        name: String,
        capability: (i32, i32),
        needed: (i32, i32),
    },
    #[error("the device's compiler refuses the kernels: {0}")]
    Compiler(String),
    #[error("{call} fails: {why}")]
    Call { call: &'static str, why: String },
    #[error("kernels with tables are refused on {device}: {why}")]
    NotWhole { device: String, why: &'static str },
    #[error("the device gives wrong results for {0}")]
    Wrong(String),
}

fn no_device(wanted: Option<&str>, there: &[String]) -> String {
    let there = match there {
        [] => "there is no device".to_owned(),
        there => format!("there are: {}", there.join(", ")),
    };
    match wanted {
        Some(wanted) => format!("no device has {wanted:?} in its name; {there}"),
        None => format!("there is no GPU; {there}"),
    }
}

/// Returns the names of all devices, CUDA's first. Returns also why a library names none. One that is not there is no
/// failure, unless both are not.
pub fn names() -> (Vec<String>, Vec<DeviceError>) {
    match (Cuda::names(), OpenCl::names()) {
        (Ok(by_cuda), Ok(by_opencl)) => ([by_cuda, by_opencl].concat(), Vec::new()),
        (Ok(names), Err(DeviceError::NoLibrary(_)))
        | (Err(DeviceError::NoLibrary(_)), Ok(names)) => (names, Vec::new()),
        (Ok(names), Err(error)) | (Err(error), Ok(names)) => (names, vec![error]),
        (Err(by_cuda), Err(by_opencl)) => (Vec::new(), vec![neither(by_cuda, by_opencl)]),
    }
}

/// The kernels' form, and choices for measurements.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DeviceOptions {
    pub tables: Tables,
    /// The use of the memory for arenas, with OpenCL: CUDA always copies. Without a choice the kernels work in place on
    /// devices that have no memory of their own.
    pub memory_use: Option<HostMemoryUse>,
    /// The device measures the kernels' times.
    pub is_timed: bool,
}

/// Opens a device and makes the kernels for it, which can take seconds. `wanted` is a part of the name that [`names`]
/// has; without it the first GPU is taken. A device of both libraries is CUDA's.
pub fn open(
    wanted: Option<&str>,
    tables: Tables,
    wake: Wake,
) -> Result<Box<dyn Device>, DeviceError> {
    let options = DeviceOptions {
        tables,
        ..DeviceOptions::default()
    };
    open_with(wanted, wake, options)
}

/// The same, for measurements.
pub fn open_with(
    wanted: Option<&str>,
    wake: Wake,
    options: DeviceOptions,
) -> Result<Box<dyn Device>, DeviceError> {
    let by_cuda = match CudaFound::new(wanted) {
        // A device that is refused is not asked for by OpenCL: the reason would be the same.
        Ok(found) => return Ok(Box::new(Cuda::open(found, wake, options)?)),
        Err(error) => error,
    };
    match OpenCl::open_with(wanted, wake, options) {
        Ok(device) => Ok(Box::new(device)),
        Err(by_opencl) => Err(neither(by_cuda, by_opencl)),
    }
}

/// Tells why neither library has a device: what a user has to know first.
fn neither(by_cuda: DeviceError, by_opencl: DeviceError) -> DeviceError {
    use DeviceError::{NoDevice, NoLibrary};
    match (by_cuda, by_opencl) {
        (NoLibrary(_), NoLibrary(_)) => {
            NoLibrary("neither libcuda.so.1 (CUDA) nor libOpenCL.so.1 (OpenCL)")
        }
        (NoDevice { wanted, mut there }, NoDevice { there: more, .. }) => {
            there.extend(more);
            NoDevice { wanted, there }
        }
        (error @ NoDevice { .. }, NoLibrary(_)) => error,
        (NoLibrary(_) | NoDevice { .. }, error) | (error, _) => error,
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
    /// Tells whether the kernels were made with [`Tables`].
    fn tables(&self) -> bool {
        false
    }

    fn limits(&self) -> LaunchLimits {
        plan::LIMITS
    }

    /// Launches that may be under way at once.
    fn depth(&self) -> usize {
        plan::DEPTH
    }

    /// Rows of the key table.
    fn rows(&self) -> usize {
        plan::ROWS
    }

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
