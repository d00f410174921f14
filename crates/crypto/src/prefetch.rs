//! A hint to the processor, for callers that know what they will read next.

use std::sync::Arc;

const LINE: usize = 64;
/// An [`Arc`]'s two counts, which are in front of what it holds.
const COUNTS: usize = 16;

/// Has the processor fetch the counts and the first `len` bytes of what `arc` holds. Reads nothing: it does not wait,
/// as a load would, when many of these are under way.
#[inline(always)]
pub fn prefetch<T>(arc: &Arc<T>, len: usize) {
    let start = Arc::as_ptr(arc).cast::<i8>().wrapping_sub(COUNTS);
    let mut at = 0;
    while at < len + COUNTS {
        fetch_line(start.wrapping_add(at));
        at += LINE;
    }
    fetch_line(start.wrapping_add(len + COUNTS - 1));
}

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
