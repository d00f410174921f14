//! Loom's atomics in two forms, and its mutex.
//!
//! Loom abandons an interleaving when a thread reads a value again before it writes. With [`Loads::Latest`] every
//! access therefore conflicts with every other. Then no interleaving is left out, but a load always returns the
//! newest value. With [`Loads::Weak`] a load returns any value that the memory model allows.

use std::cell::Cell;

pub use ::loom::sync::Mutex;
use ::loom::sync::atomic as loom;
pub use loom::{Ordering, fence};

#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Loads {
    Latest,
    Weak,
}

thread_local! {
    /// A thread-local variable: all of loom's threads run on the test's thread.
    static LOADS: Cell<Loads> = const { Cell::new(Loads::Weak) };
}

pub fn set_loads(loads: Loads) {
    LOADS.set(loads);
}

macro_rules! atomics {
    ($($name:ident, $int:ty;)*) => {$(
        #[derive(Debug)]
        pub struct $name(loom::$name);

        impl Default for $name {
            fn default() -> Self {
                Self::new(0)
            }
        }

        impl $name {
            pub fn new(value: $int) -> Self {
                Self(loom::$name::new(value))
            }

            pub fn load(&self, ordering: Ordering) -> $int {
                match LOADS.get() {
                    Loads::Latest => self.0.fetch_or(0, Ordering::AcqRel),
                    Loads::Weak => self.0.load(ordering),
                }
            }

            pub fn store(&self, value: $int, ordering: Ordering) {
                match LOADS.get() {
                    Loads::Latest => drop(self.0.swap(value, Ordering::AcqRel)),
                    Loads::Weak => self.0.store(value, ordering),
                }
            }

            pub fn swap(&self, value: $int, ordering: Ordering) -> $int {
                self.0.swap(value, ordering)
            }

            pub fn fetch_add(&self, value: $int, ordering: Ordering) -> $int {
                self.0.fetch_add(value, ordering)
            }

            pub fn fetch_sub(&self, value: $int, ordering: Ordering) -> $int {
                self.0.fetch_sub(value, ordering)
            }

            pub fn fetch_or(&self, value: $int, ordering: Ordering) -> $int {
                self.0.fetch_or(value, ordering)
            }

            pub fn fetch_max(&self, value: $int, ordering: Ordering) -> $int {
                self.0.fetch_max(value, ordering)
            }

            pub fn compare_exchange(
                &self,
                current: $int,
                new: $int,
                success: Ordering,
                failure: Ordering,
            ) -> Result<$int, $int> {
                self.0.compare_exchange(current, new, success, failure)
            }

            pub fn fetch_update(
                &self,
                set: Ordering,
                fetch: Ordering,
                mut update: impl FnMut($int) -> Option<$int>,
            ) -> Result<$int, $int> {
                let mut value = self.load(fetch);
                while let Some(new) = update(value) {
                    match self.compare_exchange(value, new, set, fetch) {
                        Ok(former) => return Ok(former),
                        Err(changed) => value = changed,
                    }
                }
                Err(value)
            }
        }
    )*};
}

atomics! {
    AtomicU8, u8;
    AtomicU32, u32;
    AtomicU64, u64;
}
