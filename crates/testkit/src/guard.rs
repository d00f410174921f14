//! Buffers between inaccessible pages: a read or write one byte out of bounds kills the process.

use std::io;
use std::ptr::NonNull;

/// The end of the pages at which a buffer lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flush {
    /// The byte before the buffer is inaccessible.
    Begin,
    /// The byte after the buffer is inaccessible.
    End,
}

/// Buffers of up to one length, each with an inaccessible page before and after it.
#[derive(Debug)]
pub struct Guarded {
    memory: NonNull<u8>,
    len: usize,
    /// Bytes of the accessible pages of one buffer.
    room: usize,
    page: usize,
}

impl Guarded {
    pub fn new(buffers: usize, len_max: usize) -> io::Result<Self> {
        // SAFETY: the call takes no pointers.
        let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
        let page = usize::try_from(page).map_err(io::Error::other)?;
        let room = len_max.max(1).next_multiple_of(page);
        let len = page + buffers * (room + page);
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        // SAFETY: the null address makes the kernel choose a free range, so the new mapping
        // overlaps nothing.
        let memory =
            unsafe { libc::mmap(std::ptr::null_mut(), len, libc::PROT_NONE, flags, -1, 0) };
        if memory == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let memory = NonNull::new(memory.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        let this = Self {
            memory,
            len,
            room,
            page,
        };
        for at in (page..len).step_by(room + page) {
            // SAFETY: the pages are part of the mapping above, and nothing refers to them yet.
            let failed = unsafe {
                let pages = memory.as_ptr().add(at).cast();
                libc::mprotect(pages, room, libc::PROT_READ | libc::PROT_WRITE)
            };
            if failed != 0 {
                return Err(io::Error::last_os_error());
            }
        }
        Ok(this)
    }

    /// Returns the buffers with these lengths. There are as many as both buffers and lengths.
    pub fn slices<'a>(
        &'a mut self,
        flush: Flush,
        lens: impl IntoIterator<Item = usize, IntoIter: 'a>,
    ) -> impl Iterator<Item = &'a mut [u8]> {
        let (memory, len) = (self.memory.as_ptr(), self.len);
        let (room, page) = (self.room, self.page);
        let pages = (page..len).step_by(room + page);
        pages.zip(lens).map(move |(at, len)| {
            assert!(len <= room);
            let skip = match flush {
                Flush::Begin => 0,
                Flush::End => room - len,
            };
            // SAFETY: the range lies in pages that may be read and written, and it starts zeroed.
            // The iterator borrows `self` and yields each buffer once, so the slices do not
            // overlap.
            unsafe { std::slice::from_raw_parts_mut(memory.add(at + skip), len) }
        })
    }
}

impl Drop for Guarded {
    fn drop(&mut self) {
        // SAFETY: the range is exactly the mapping, and no slice of it is borrowed any more.
        unsafe { libc::munmap(self.memory.as_ptr().cast(), self.len) };
    }
}
