//! Key material and library structs that are overwritten when they are dropped.

use std::mem::MaybeUninit;
use std::ops::{Deref, DerefMut};

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
// SAFETY: zero is a valid integer.
unsafe impl Plain for u32 {}
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

/// A value on the heap whose block is overwritten as a whole when it is dropped. The compiler moves all bytes of a struct or
/// an enum, also those between fields and behind a small variant. A part of a key that lay on the stack may so come along.
pub(crate) struct CleansedBlock<T>(Box<MaybeUninit<T>>);

impl<T> CleansedBlock<T> {
    pub(crate) fn new(value: T) -> Self {
        Self(Box::new(MaybeUninit::new(value)))
    }
}

impl<T> Deref for CleansedBlock<T> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: the value is there until the box is dropped.
        unsafe { self.0.assume_init_ref() }
    }
}

impl<T> DerefMut for CleansedBlock<T> {
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: the value is there until the box is dropped.
        unsafe { self.0.assume_init_mut() }
    }
}

impl<T> Drop for CleansedBlock<T> {
    fn drop(&mut self) {
        // SAFETY: the value is there, and nobody uses it after this. Then the block is plain memory of its size.
        unsafe {
            self.0.assume_init_drop();
            lc::OPENSSL_cleanse(self.0.as_mut_ptr().cast(), size_of::<T>());
        }
    }
}
