//! Where kernels with tables may be used.
//!
//! Which entry of a table is read depends on the key. A program that shares the device's caches can find that out, so
//! tables need a device that this host sees whole, and a user who says that nobody else uses it.

/// The user's choice of kernels.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Tables {
    /// Constant-time kernels.
    #[default]
    No,
    /// Kernels with tables, on a device that is not visibly shared.
    Yes,
    /// Kernels with tables on any device.
    Force,
}

/// A device as its driver describes it.
#[derive(Clone, Debug)]
pub(super) struct DeviceKind<'a> {
    pub(super) name: &'a str,
    pub(super) is_gpu: bool,
    /// It is a part of another device.
    pub(super) is_part: bool,
    /// Its memory is the host's.
    pub(super) is_in_host_memory: bool,
    /// The driver says that it runs several programs side by side.
    pub(super) is_by_mps: bool,
}

/// Words of the names of NVIDIA's parts of GPUs: instances of a MIG, and virtual GPUs.
const PARTS: [&str; 4] = ["mig", "vgpu", "grid", "virtual"];

impl Tables {
    /// Tells whether a device gets kernels with tables. The error is the reason why it must not have them.
    pub(super) fn allowed(self, device: &DeviceKind<'_>) -> Result<bool, &'static str> {
        match self {
            Self::No => Ok(false),
            Self::Force => Ok(true),
            Self::Yes => device.sharing().map_or(Ok(true), Err),
        }
    }
}

impl DeviceKind<'_> {
    /// Returns how the device visibly shares what tells of lookups.
    fn sharing(&self) -> Option<&'static str> {
        if !self.is_gpu {
            Some("it is no GPU, and other programs share its caches")
        } else if self.is_part || is_part(self.name) {
            Some("it is a part of a GPU, and others may have the other parts")
        } else if self.is_in_host_memory {
            Some("it is built into the host's processor, and programs there share its caches")
        } else if self.is_by_mps {
            Some("MPS shares it among programs")
        } else {
            None
        }
    }
}

/// Tells whether the name is that of a part. NVIDIA names a virtual GPU after its GPU, its memory in GB, its
/// licence and the kind of its part, as in "A40-48Q" and "A100-1-5CME".
fn is_part(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    name.split(|character: char| !character.is_ascii_alphanumeric())
        .any(|word| PARTS.contains(&word))
        || name.split_whitespace().any(is_profile)
}

fn is_profile(word: &str) -> bool {
    let Some((_, profile)) = word.rsplit_once('-') else {
        return false;
    };
    let series = profile.trim_start_matches(|character: char| character.is_ascii_digit());
    let Some(kind) = series.strip_prefix(['a', 'b', 'c', 'q']) else {
        return false;
    };
    series.len() < profile.len() && ["", "me", "nome", "meall", "gfx"].contains(&kind)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gpu(name: &str) -> DeviceKind<'_> {
        DeviceKind {
            name,
            is_gpu: true,
            is_part: false,
            is_in_host_memory: false,
            is_by_mps: false,
        }
    }

    #[test]
    fn a_whole_gpu_may_have_tables_and_only_if_told_to() {
        for name in [
            "CUDA: NVIDIA H100 80GB HBM3",
            "CUDA: NVIDIA GeForce RTX 4090",
            "NVIDIA CUDA: NVIDIA H100 80GB HBM3",
            "NVIDIA CUDA: Tesla V100-SXM2-16GB",
            "NVIDIA CUDA: NVIDIA A100-PCIE-40GB",
            "AMD Accelerated Parallel Processing: gfx1100",
        ] {
            assert_eq!(Tables::Yes.allowed(&gpu(name)), Ok(true), "{name}");
            assert_eq!(Tables::No.allowed(&gpu(name)), Ok(false));
        }
        assert_eq!(Tables::default(), Tables::No);
    }

    #[test]
    fn what_is_shared_is_refused_unless_forced() {
        let parts = [
            "CUDA: NVIDIA A100-SXM4-40GB MIG 1g.5gb",
            "CUDA: GRID A100D-80C",
            "NVIDIA CUDA: NVIDIA H100 80GB HBM3 MIG 1g.10gb",
            "NVIDIA CUDA: GRID T4-8Q",
            "NVIDIA CUDA: NVIDIA A40-48Q",
            "NVIDIA CUDA: NVIDIA A100-4C",
            "NVIDIA CUDA: NVIDIA A100-1-5CME",
            "NVIDIA CUDA: NVIDIA RTX Pro 6000 Blackwell DC-1-24CGFX",
            "Somebody: Virtual GPU",
        ];
        let mut shared: Vec<_> = parts.into_iter().map(|name| (gpu(name), "part")).collect();
        let whole = gpu("GPU");
        shared.push((
            DeviceKind {
                is_part: true,
                ..whole.clone()
            },
            "part",
        ));
        shared.push((
            DeviceKind {
                is_in_host_memory: true,
                ..whole.clone()
            },
            "built into",
        ));
        shared.push((
            DeviceKind {
                is_by_mps: true,
                ..whole.clone()
            },
            "MPS",
        ));
        shared.push((
            DeviceKind {
                is_gpu: false,
                ..whole
            },
            "no GPU",
        ));
        for (device, why) in shared {
            let refused = Tables::Yes.allowed(&device).unwrap_err();
            assert!(refused.contains(why), "{}: {refused}", device.name);
            assert_eq!(Tables::Force.allowed(&device), Ok(true));
            assert_eq!(Tables::No.allowed(&device), Ok(false));
        }
    }
}
