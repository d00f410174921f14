//! Memory of the host for arenas, which OpenCL gives.

use std::ptr::{self, NonNull};
use std::sync::Arc;

use opencl3::command_queue::CommandQueue;
use opencl3::context::Context;
use opencl3::device::{CL_DEVICE_SVM_FINE_GRAIN_BUFFER, Device as ClDevice};
use opencl3::memory::{
    Buffer, CL_MAP_READ, CL_MAP_WRITE, CL_MEM_ALLOC_HOST_PTR, CL_MEM_READ_WRITE,
    CL_MEM_SVM_FINE_GRAIN_BUFFER, ClMem, svm_alloc, svm_free,
};
use opencl3::types::CL_TRUE;

use super::queue;
use crate::device::host_memory::{HostBlock, HostMemory, HostMemoryUse, PAGE};
use crate::device::plan::{HOST_BYTES, HOST_BYTES_MIN};

/// Memory that host and device see alike at every time (shared virtual memory of the fine-grained kind, OpenCL 2.0 §5.6).
struct SharedBlock {
    allocated: NonNull<u8>,
    /// The first page of it.
    start: NonNull<u8>,
    len: usize,
    context: Arc<Context>,
}

// SAFETY: OpenCL's objects may be used by any thread.
unsafe impl Send for SharedBlock {}
// SAFETY: a shared block gives nothing but its place.
unsafe impl Sync for SharedBlock {}

// SAFETY: clSVMAlloc gives this value alone the bytes, from a page on, until clSVMFree.
unsafe impl HostBlock for SharedBlock {
    fn start(&self) -> NonNull<u8> {
        self.start
    }

    fn size(&self) -> usize {
        self.len
    }
}

impl Drop for SharedBlock {
    fn drop(&mut self) {
        // SAFETY: no arena is left, so neither host nor device uses the memory.
        let freed = unsafe { svm_free(self.context.get(), self.allocated.as_ptr().cast()) };
        // Nobody is left to be told of an error.
        let _ = freed;
    }
}

/// Memory that the driver copies from and to without an intermediate copy: a buffer that stays mapped.
struct MappedBlock {
    mapped: NonNull<u8>,
    /// The first page of it.
    start: NonNull<u8>,
    len: usize,
    queue: CommandQueue,
    buffer: Buffer<u8>,
}

// SAFETY: OpenCL's objects may be used by any thread.
unsafe impl Send for MappedBlock {}
// SAFETY: a shared block gives nothing but its place.
unsafe impl Sync for MappedBlock {}

// SAFETY: the buffer is mapped from a page on until the value is dropped, and no kernel has it as an argument.
unsafe impl HostBlock for MappedBlock {
    fn start(&self) -> NonNull<u8> {
        self.start
    }

    fn size(&self) -> usize {
        self.len
    }
}

impl Drop for MappedBlock {
    fn drop(&mut self) {
        let (buffer, mapped) = (ClMem::get(&self.buffer), self.mapped.as_ptr());
        // SAFETY: no arena is left, so nobody uses the memory.
        let unmapped = unsafe {
            self.queue
                .enqueue_unmap_mem_object(buffer, mapped.cast(), &[])
        };
        // Nobody is left to be told of an error.
        let _ = unmapped.and_then(|event| event.wait());
    }
}

/// Allocates memory for arenas. A device without memory of its own works there in place, since a copy would only cost
/// time. Other devices copy from there.
pub(super) fn host_memory(
    device: &ClDevice,
    context: &Arc<Context>,
    memory_use: Option<HostMemoryUse>,
) -> Option<Arc<HostMemory>> {
    let is_unified = device.host_unified_memory().unwrap_or(false);
    let fine = device.svm_mem_capability() & CL_DEVICE_SVM_FINE_GRAIN_BUFFER != 0;
    let memory_use = memory_use.unwrap_or(match is_unified {
        true => HostMemoryUse::InPlace,
        false => HostMemoryUse::Copied,
    });
    let most = device.max_mem_alloc_size().unwrap_or(0);
    let mut len = HOST_BYTES.min(usize::try_from(most).unwrap_or(usize::MAX));
    while len >= HOST_BYTES_MIN {
        let block: Option<Box<dyn HostBlock>> = match memory_use {
            HostMemoryUse::InPlace if !fine => return None,
            HostMemoryUse::InPlace => shared_block(context, len),
            HostMemoryUse::Copied => mapped_block(context, len),
        };
        if let Some(block) = block {
            return Some(HostMemory::new(block, memory_use));
        }
        len /= 2;
    }
    None
}

fn shared_block(context: &Arc<Context>, len: usize) -> Option<Box<dyn HostBlock>> {
    let flags = CL_MEM_READ_WRITE | CL_MEM_SVM_FINE_GRAIN_BUFFER;
    // SAFETY: the flags are those of fine-grained memory, which the device has. The alignment is the driver's own.
    let allocated = unsafe { svm_alloc(context.get(), flags, len, 0) };
    let allocated = NonNull::new(allocated.ok()?)?.cast::<u8>();
    let before = allocated.align_offset(PAGE);
    Some(Box::new(SharedBlock {
        allocated,
        // SAFETY: a page is less than the block.
        start: unsafe { allocated.add(before) },
        len: len - before,
        context: Arc::clone(context),
    }))
}

fn mapped_block(context: &Context, len: usize) -> Option<Box<dyn HostBlock>> {
    let queue = queue(context, false).ok()?;
    let flags = CL_MEM_READ_WRITE | CL_MEM_ALLOC_HOST_PTR;
    // SAFETY: there is no host pointer.
    let buffer = unsafe { Buffer::<u8>::create(context, flags, len, ptr::null_mut()) }.ok()?;
    let mut mapped = ptr::null_mut();
    // SAFETY: the call waits until the buffer is mapped.
    let event = unsafe {
        let (flags, mapped) = (CL_MAP_READ | CL_MAP_WRITE, &mut mapped);
        queue.enqueue_map_buffer(&buffer, CL_TRUE, flags, 0, len, mapped, &[])
    };
    event.ok()?;
    let mapped = NonNull::new(mapped)?.cast::<u8>();
    // A driver may map buffers anywhere.
    let before = mapped.align_offset(PAGE);
    Some(Box::new(MappedBlock {
        mapped,
        // SAFETY: a page is less than the buffer.
        start: unsafe { mapped.add(before) },
        len: len - before,
        queue,
        buffer,
    }))
}
