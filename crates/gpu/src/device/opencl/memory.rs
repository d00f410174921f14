//! Memory of the host for arenas, which OpenCL gives.

use std::ptr::{self, NonNull};
use std::sync::Arc;

use opencl3::context::Context;
use opencl3::device::{CL_DEVICE_SVM_FINE_GRAIN_BUFFER, Device as ClDevice};
use opencl3::memory::{
    Buffer, CL_MAP_READ, CL_MAP_WRITE, CL_MEM_ALLOC_HOST_PTR, CL_MEM_READ_WRITE,
    CL_MEM_SVM_FINE_GRAIN_BUFFER, ClMem, svm_alloc, svm_free,
};
use opencl3::types::CL_TRUE;

use super::held_handle::HeldHandle;
use super::queue;
use crate::host_memory::{HostBlock, HostMemory, HostMemoryUse};

/// Allocates memory for arenas. A device without memory of its own works there in place, since a copy would only cost
/// time. Other devices copy from there.
pub(super) fn host_memory(
    device: &ClDevice,
    context: &Arc<HeldHandle<Context>>,
    memory_use: Option<HostMemoryUse>,
) -> Option<Arc<HostMemory>> {
    let is_unified = device.host_unified_memory().unwrap_or(false);
    let fine = device.svm_mem_capability() & CL_DEVICE_SVM_FINE_GRAIN_BUFFER != 0;
    let memory_use = memory_use.unwrap_or(match is_unified {
        true => HostMemoryUse::InPlace,
        false => HostMemoryUse::Copied,
    });
    let most = device.max_mem_alloc_size().unwrap_or(0);
    let most = usize::try_from(most).unwrap_or(usize::MAX);
    let block = match memory_use {
        HostMemoryUse::InPlace if !fine => None,
        HostMemoryUse::InPlace => HostBlock::largest(most, |len| shared_block(context, len)),
        HostMemoryUse::Copied => HostBlock::largest(most, |len| mapped_block(context, len)),
    };
    Some(HostMemory::new(block?, memory_use))
}

/// Takes memory that host and device see alike at every time: shared virtual memory of the fine-grained kind (OpenCL
/// 2.0 §5.6).
fn shared_block(context: &Arc<HeldHandle<Context>>, len: usize) -> Option<HostBlock> {
    let flags = CL_MEM_READ_WRITE | CL_MEM_SVM_FINE_GRAIN_BUFFER;
    // SAFETY: the flags are those of fine-grained memory, which the device has. The alignment is the driver's own.
    let memory = unsafe { svm_alloc(context.get(), flags, len, 0) };
    let memory = NonNull::new(memory.ok()?)?.cast();
    let context = Arc::clone(context);
    let free = move |memory: NonNull<u8>| {
        // SAFETY: no arena is left, so neither host nor device uses the memory.
        let freed = unsafe { svm_free(context.get(), memory.as_ptr().cast()) };
        // Nobody is left to be told of an error.
        let _ = freed;
    };
    // SAFETY: the driver has given the bytes to this block alone.
    Some(unsafe { HostBlock::new(memory, len, free) })
}

/// Takes memory that the driver copies from and to without an intermediate copy: a buffer that stays mapped.
fn mapped_block(context: &Context, len: usize) -> Option<HostBlock> {
    let queue = queue(context, false).ok()?;
    let flags = CL_MEM_READ_WRITE | CL_MEM_ALLOC_HOST_PTR;
    // SAFETY: there is no host pointer.
    let buffer = unsafe { Buffer::<u8>::create(context, flags, len, ptr::null_mut()) };
    let buffer = HeldHandle::new(buffer.ok()?);
    let mut memory = ptr::null_mut();
    // SAFETY: the call waits until the buffer is mapped.
    let mapped = unsafe {
        let (flags, memory) = (CL_MAP_READ | CL_MAP_WRITE, &mut memory);
        queue.enqueue_map_buffer(&buffer, CL_TRUE, flags, 0, len, memory, &[])
    };
    drop(HeldHandle::new(mapped.ok()?));
    let memory = NonNull::new(memory)?.cast();
    let free = move |memory: NonNull<u8>| {
        let (buffer, memory) = (ClMem::get(&*buffer), memory.as_ptr().cast());
        // SAFETY: no arena is left, so nobody uses the memory.
        let unmapped = unsafe { queue.enqueue_unmap_mem_object(buffer, memory, &[]) };
        // Nobody is left to be told of an error.
        let _ = unmapped.and_then(|event| HeldHandle::new(event).wait());
    };
    // SAFETY: the buffer is mapped until then, and no kernel has it as an argument.
    Some(unsafe { HostBlock::new(memory, len, free) })
}
