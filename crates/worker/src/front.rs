//! The device in front of a worker's data plane, as the worker opens it.

use std::fmt;
use std::sync::Arc;

use esplanade_dataplane::{DataPlane, Doors};
use esplanade_engines::EngineHost;
use esplanade_ipsec::pmtu::PathMtus;

use super::control::WorkerControl;
use super::host_io::HostIo;

/// The parts that the side of a device gets from its worker.
#[cfg_attr(
    not(esp_core_simulated),
    expect(dead_code, reason = "the FPGA core is the only device so far")
)]
pub(super) struct FrontParts {
    /// Wakes the worker.
    pub control: Arc<WorkerControl>,
    pub paths: Arc<PathMtus>,
}

type Opened = (Box<dyn Doors<HostIo> + Send>, Arc<dyn EngineHost>);
type Open = dyn FnOnce(DataPlane<HostIo>, FrontParts) -> Opened + Send;

/// A device that is to stand in front of a worker's data plane.
pub struct Front(Box<Open>);

impl Front {
    #[cfg_attr(
        not(esp_core_simulated),
        expect(dead_code, reason = "the FPGA core is the only device so far")
    )]
    pub(super) fn new(
        open: impl FnOnce(DataPlane<HostIo>, FrontParts) -> Opened + Send + 'static,
    ) -> Self {
        Self(Box::new(open))
    }

    /// Returns the doors of the worker, and the engine that the control thread knows.
    pub(super) fn open(self, plane: DataPlane<HostIo>, parts: FrontParts) -> Opened {
        (self.0)(plane, parts)
    }
}

impl fmt::Debug for Front {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Front").finish_non_exhaustive()
    }
}
