//! A hint to the processor, for callers that know what they will read next.

/// Has the processor fetch the line in which `value` begins.
#[inline(always)]
pub fn prefetch_line<T>(value: &T) {
    fetch_line(std::ptr::from_ref(value).cast());
}

/// Has the processor fetch the lines that `value` takes.
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
    // SAFETY: part of the baseline of x86_64, and no access: any address will do.
    unsafe { _mm_prefetch::<_MM_HINT_T0>(address) }
}

#[cfg(not(target_arch = "x86_64"))]
#[inline(always)]
fn fetch_line(_: *const i8) {}
