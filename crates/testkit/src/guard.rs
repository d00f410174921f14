//! Buffers between pages that may not be touched: who reads or writes one byte too far is killed.

use std::io;
use std::ptr::NonNull;

/// Where a buffer lies in its pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flush {
    /// The byte in front of it is forbidden.
    Begin,
    /// The byte behind it is forbidden.
    End,
}

/// Buffers of one greatest length, each with a forbidden page in front and one behind.
#[derive(Debug)]
pub struct Guarded {
    memory: NonNull<u8>,
    len: usize,
    /// Bytes of a buffer's pages.
    room: usize,
    page: usize,
}

impl Guarded {
    pub fn new(buffers: usize, len_max: usize) -> io::Result<Self> {
        // SAFETY: no pointers.
        let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
        let page = usize::try_from(page).map_err(io::Error::other)?;
        let room = len_max.max(1).next_multiple_of(page);
        let len = page + buffers * (room + page);
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        // SAFETY: a new mapping, which overlaps nothing.
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
            // SAFETY: pages of the mapping that was just made.
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

    /// The buffers, with these lengths; as many as both allow.
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
            // SAFETY: inside pages that may be read and written; borrowed once, with `self`.
            unsafe { std::slice::from_raw_parts_mut(memory.add(at + skip), len) }
        })
    }
}

impl Drop for Guarded {
    fn drop(&mut self) {
        // SAFETY: the whole mapping, which nothing borrows any more.
        unsafe { libc::munmap(self.memory.as_ptr().cast(), self.len) };
    }
}
