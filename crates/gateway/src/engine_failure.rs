//! Engines that cannot be used, and what to do about them.

use esplanade_engines::ace::AceError;
use esplanade_gpu::DeviceError;

use crate::failure::Failure;

/// Says what to do about a GPU that cannot be used.
pub fn gpu(error: DeviceError) -> Failure {
    let failure = Failure::runtime(format!("the GPU cannot be used: {error}"));
    failure.help(match error {
        DeviceError::NoLibrary(_) => {
            "install NVIDIA's driver, or the OpenCL loader (Debian: ocl-icd-libopencl1) and the GPU's driver"
        }
        DeviceError::NoDevice { .. } => {
            "install the GPU's driver, or name a part of a name that `esplanade gpu` lists"
        }
        DeviceError::OldDriver(_) => "install a newer driver: that of CUDA 10 or later",
        DeviceError::OldDevice { .. } => "install the GPU's OpenCL driver, or name another device",
        DeviceError::NotWhole { .. } => {
            "set `tables = no`, or `tables = force` if nobody else's programs run there"
        }
        _ => "a gateway with `engine = cpu` and without a gpu section does without",
    })
}

/// Says what to do about an engine `ace` that cannot be used.
pub fn ace(error: &AceError) -> Failure {
    let help = match error {
        AceError::Library(_) => {
            "name the folder of a library in `library`, and its signer's key in `signer` (docs/ace.md)"
        }
        _ => "a gateway with `engine = cpu` and without a section `ace` does without",
    };
    Failure::runtime(format!("the engine ace cannot be used: {error}")).help(help)
}
