//! Prefetch hints for callers that know what they will read next.

/// Prefetches the cache line in which `value` begins.
#[inline(always)]
pub fn prefetch_line<T>(value: &T) {
    fetch_line(std::ptr::from_ref(value).cast());
}

/// Prefetches all cache lines of `value`.
#[inline(always)]
pub(crate) fn prefetch_all<T>(value: &T) {
    const LINE: usize = 64;
    let begin = std::ptr::from_ref(value).cast::<i8>();
    for line in (0..size_of::<T>()).step_by(LINE) {
        fetch_line(begin.wrapping_add(line));
    }
}

#[cfg(target_arch = "x86_64")]
#[inline(always)]
fn fetch_line(address: *const i8) {
    use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
    // SAFETY: the instruction is part of the x86-64 baseline and accesses no memory, so any address is allowed.
    unsafe { _mm_prefetch::<_MM_HINT_T0>(address) }
}

#[cfg(not(target_arch = "x86_64"))]
#[inline(always)]
fn fetch_line(_: *const i8) {}
