//! Memory of the host for arenas, which CUDA's driver pins.

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::ptr::{self, NonNull};
use std::sync::Arc;

use super::driver::Driver;
use crate::host_memory::{HostBlock, HostMemory, HostMemoryUse, PAGE};

/// Takes memory for arenas and has the driver pin it: less of it, or none, if the driver refuses.
pub(super) fn memory(driver: &Driver) -> Option<Arc<HostMemory>> {
    let block = HostBlock::largest(usize::MAX, |len| pinned_block(driver, len));
    Some(HostMemory::new(block?, HostMemoryUse::Copied))
}

/// The driver forgets the memory when the context is destroyed, which comes first: the device has a share of it.
fn pinned_block(driver: &Driver, len: usize) -> Option<HostBlock> {
    let layout = Layout::from_size_align(len, PAGE).ok()?;
    if len == 0 {
        return None;
    }
    // SAFETY: the layout is not empty.
    let memory = NonNull::new(unsafe { alloc_zeroed(layout) })?;
    // SAFETY: the bytes come from `alloc_zeroed` with this layout, and nobody uses them any more.
    let free = move |memory: NonNull<u8>| unsafe { dealloc(memory.as_ptr(), layout) };
    // SAFETY: the bytes are valid until they are freed, and nobody else has them.
    let block = unsafe { HostBlock::new(memory, len, free) };
    let bytes = ptr::slice_from_raw_parts_mut(memory.as_ptr(), len);
    // SAFETY: the bytes are whole pages. The device keeps the memory until its context is destroyed.
    unsafe { driver.pin(bytes) }.ok()?;
    Some(block)
}
