//! A device in front of a worker's data plane, as the worker opens it.

use std::fmt;
use std::sync::Arc;

use esplanade_dataplane::accelerator::Accelerator;
use esplanade_dataplane::{DataPlane, Doors, FrontPlane};
use esplanade_engines::EngineHost;
use esplanade_ipsec::pmtu::PathMtus;
use esplanade_ipsec::{Database, WalkCounters};

use super::control::WorkerControl;
use super::host_io::HostIo;

/// The parts of a worker that the device in front of it gets.
#[derive(Debug)]
pub struct DeviceParts {
    pub database: Arc<Database>,
    pub paths: Arc<PathMtus>,
    /// The counters of the packet walks, outbound and inbound. A device counts what it carries.
    pub walks: [Arc<WalkCounters>; 2],
    pub waker: DeviceWaker,
}

/// Has the worker call [`Accelerator::serve`].
#[derive(Clone, Debug)]
pub struct DeviceWaker(pub(super) Arc<WorkerControl>);

impl DeviceWaker {
    pub fn wake(&self) {
        self.0.wake();
    }
}

type Opened = (Box<dyn Doors<HostIo> + Send>, Arc<dyn EngineHost>);
type Open = dyn FnOnce(DataPlane<HostIo>, Arc<WorkerControl>, Arc<PathMtus>) -> Opened + Send;

/// A device that is to stand in front of a worker's data plane.
pub struct Front(Box<Open>);

impl Front {
    /// Takes what makes the two ends of the device: that of the worker, and that of the control thread.
    pub fn new<A: Accelerator + Send + 'static>(
        open: impl FnOnce(DeviceParts) -> (A, Arc<dyn EngineHost>) + Send + 'static,
    ) -> Self {
        Self(Box::new(move |plane, control, paths| {
            let (device, host) = open(DeviceParts {
                database: Arc::clone(plane.database()),
                paths,
                walks: plane.walk_counters(),
                waker: DeviceWaker(control),
            });
            (Box::new(FrontPlane::new(plane, device)), host)
        }))
    }

    /// Returns the doors of the worker, and the engine that the control thread knows.
    pub(super) fn open(
        self,
        plane: DataPlane<HostIo>,
        control: Arc<WorkerControl>,
        paths: Arc<PathMtus>,
    ) -> Opened {
        (self.0)(plane, control, paths)
    }
}

impl fmt::Debug for Front {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Front").finish_non_exhaustive()
    }
}
