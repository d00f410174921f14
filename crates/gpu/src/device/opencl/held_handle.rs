//! Objects of OpenCL, released without a panic.
//!
//! The bindings' objects panic on drop when the driver refuses to release them. A driver may do that after its device
//! has failed, and the thread that drives the device must go on then.

use std::mem::ManuallyDrop;
use std::ops::{Deref, DerefMut};

use opencl3::command_queue::{CommandQueue, release_command_queue};
use opencl3::context::Context;
use opencl3::context::context::release_context;
use opencl3::event::{Event, release_event};
use opencl3::kernel::{Kernel, release_kernel};
use opencl3::memory::{Buffer, ClMem, release_mem_object};
use opencl3::program::{Program, release_program};
use opencl3::types::cl_int;

/// An object of the bindings that counts one reference of the driver.
pub(super) trait DriverHandle {
    /// Gives the reference back.
    ///
    /// # Safety
    ///
    /// The object is not used any more, and not dropped.
    unsafe fn release(&self) -> Result<(), cl_int>;
}

macro_rules! release {
    ($object:ty, $release:ident $(, $of:ident)?) => {
        impl$(<$of>)? DriverHandle for $object {
            unsafe fn release(&self) -> Result<(), cl_int> {
                // SAFETY: the caller gives the reference up.
                unsafe { $release(self.get()) }
            }
        }
    };
}

release!(CommandQueue, release_command_queue);
release!(Context, release_context);
release!(Event, release_event);
release!(Kernel, release_kernel);
release!(Program, release_program);
release!(Buffer<T>, release_mem_object, T);

/// An object whose release may fail.
#[derive(Debug)]
pub(super) struct HeldHandle<T: DriverHandle>(ManuallyDrop<T>);

impl<T: DriverHandle> HeldHandle<T> {
    pub fn new(object: T) -> Self {
        Self(ManuallyDrop::new(object))
    }
}

impl<T: DriverHandle> Deref for HeldHandle<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T: DriverHandle> DerefMut for HeldHandle<T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.0
    }
}

impl<T: DriverHandle> Drop for HeldHandle<T> {
    fn drop(&mut self) {
        // SAFETY: nobody has the object after this, and its own drop does not run.
        let released = unsafe { self.0.release() };
        // Nobody is left to be told of an error.
        let _ = released;
    }
}

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::ptr::null_mut;

    use super::*;

    /// Drops an object that no driver knows. Tells whether that panics.
    fn panics<T>(object: T) -> bool {
        catch_unwind(AssertUnwindSafe(|| drop(object))).is_err()
    }

    #[test]
    fn a_refused_release_is_no_panic() {
        assert!(panics(Event::new(null_mut())), "the bindings' own drop");
        assert!(!panics(HeldHandle::new(Event::new(null_mut()))));
        assert!(!panics(HeldHandle::new(CommandQueue::new(null_mut(), 0))));
        assert!(!panics(HeldHandle::new(Context::new(null_mut(), &[]))));
        assert!(!panics(HeldHandle::new(Buffer::<u8>::new(null_mut()))));
    }
}
