//! Memory of the host for arenas, which CUDA's driver pins.

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::ptr::{self, NonNull};
use std::sync::Arc;

use super::driver::Driver;
use crate::device::host_memory::{HostBlock, HostMemory, HostMemoryUse, PAGE};
use crate::device::plan::{HOST_BYTES, HOST_BYTES_MIN};

/// Pinned memory. The driver forgets it when the context is destroyed, which comes first: the device has a share of it.
struct PinnedBlock {
    start: NonNull<u8>,
    layout: Layout,
}

// SAFETY: the bytes are the value's own.
unsafe impl Send for PinnedBlock {}
// SAFETY: a shared block gives nothing but its place.
unsafe impl Sync for PinnedBlock {}

// SAFETY: the bytes begin at a page, and are freed when the value is dropped.
unsafe impl HostBlock for PinnedBlock {
    fn start(&self) -> NonNull<u8> {
        self.start
    }

    fn size(&self) -> usize {
        self.layout.size()
    }
}

impl Drop for PinnedBlock {
    fn drop(&mut self) {
        // SAFETY: the bytes come from `alloc_zeroed` with this layout, and nobody uses them any more.
        unsafe { dealloc(self.start.as_ptr(), self.layout) };
    }
}

impl PinnedBlock {
    fn new(len: usize) -> Option<Self> {
        let layout = Layout::from_size_align(len, PAGE).ok()?;
        if len == 0 {
            return None;
        }
        // SAFETY: the layout is not empty.
        let start = NonNull::new(unsafe { alloc_zeroed(layout) })?;
        Some(Self { start, layout })
    }
}

/// Takes memory for arenas and has the driver pin it: less of it, or none, if the driver refuses.
pub(super) fn memory(driver: &Driver) -> Option<Arc<HostMemory>> {
    let mut len = HOST_BYTES;
    while len >= HOST_BYTES_MIN {
        let block = PinnedBlock::new(len)?;
        let bytes = ptr::slice_from_raw_parts_mut(block.start.as_ptr(), len);
        // SAFETY: the bytes are whole pages. The device keeps the memory until its context is destroyed.
        if unsafe { driver.pin(bytes) }.is_ok() {
            return Some(HostMemory::new(Box::new(block), HostMemoryUse::Copied));
        }
        len /= 2;
    }
    None
}
