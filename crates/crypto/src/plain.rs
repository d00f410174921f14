//! Key material and library structs that are overwritten when they are dropped.

use aws_lc_sys as lc;

/// Plain data that may hold key material.
///
/// # Safety
/// All zeros must be a valid value.
pub(crate) unsafe trait Plain: Copy {}

// SAFETY: the type is a C struct of integers, for which zero is valid.
unsafe impl Plain for lc::AES_KEY {}
// SAFETY: same as above.
unsafe impl Plain for lc::DES_key_schedule {}
// SAFETY: same as above.
unsafe impl Plain for lc::DES_cblock {}
// SAFETY: the type consists of integers, for which zero is valid.
unsafe impl<const N: usize> Plain for [u8; N] {}
// SAFETY: same as above.
unsafe impl<const N: usize> Plain for [u32; N] {}
// SAFETY: same as above.
unsafe impl<const N: usize> Plain for [u64; N] {}

// SAFETY: same as above.
#[cfg(target_arch = "x86_64")]
unsafe impl Plain for std::arch::x86_64::__m128i {}

/// Overwrites `value` with zeros. The compiler cannot remove the write.
pub(crate) fn cleanse<T: Plain>(value: &mut T) {
    // SAFETY: the pointer is valid for the size of `T`, and zeros are a valid `T`.
    unsafe { lc::OPENSSL_cleanse(std::ptr::from_mut(value).cast(), size_of::<T>()) }
}

/// Overwrites all of `values` with zeros. The compiler cannot remove the writes.
pub(crate) fn cleanse_all<T: Plain>(values: &mut [T]) {
    // SAFETY: the pointer is valid for the size of the slice, and zeros are a valid `T`.
    unsafe { lc::OPENSSL_cleanse(values.as_mut_ptr().cast(), size_of_val(values)) }
}

/// A value that is overwritten when it is dropped.
pub(crate) struct Cleansed<T: Plain>(pub(crate) T);

impl<T: Plain> Drop for Cleansed<T> {
    fn drop(&mut self) {
        cleanse(&mut self.0);
    }
}
