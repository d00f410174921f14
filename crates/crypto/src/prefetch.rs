//! A hint to the processor, for callers that know what they will read next.

/// Has the processor fetch the line in which `value` begins.
#[inline(always)]
pub fn prefetch_line<T>(value: &T) {
    fetch_line(std::ptr::from_ref(value).cast());
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
