//! The Verilated lanes behind C functions (`sim/ace_lane.cpp`).
#![allow(unsafe_code, reason = "C functions")]

use std::ptr::NonNull;

use crate::algorithm::Algorithm;

#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub(super) struct Inputs {
    pub data: u32,
    pub valid: u8,
    pub last: u8,
    pub ready: u8,
    pub reset: u8,
    pub wipe: u8,
}

/// The lane's outputs in the same cycle.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub(super) struct Outputs {
    pub data: u32,
    pub valid: u8,
    pub last: u8,
    pub ready: u8,
    pub busy: u8,
}

/// The C++ object.
#[repr(C)]
struct Opaque {
    _private: [u8; 0],
}

unsafe extern "C" {
    fn esplanade_lane_new(algorithm: u8) -> *mut Opaque;
    fn esplanade_lane_delete(lane: *mut Opaque);
    fn esplanade_lane_cycle(lane: *mut Opaque, inputs: *const Inputs, outputs: *mut Outputs);
}

/// A simulated lane.
#[derive(Debug)]
pub(super) struct Pins(NonNull<Opaque>);

// SAFETY: the object has its own simulation context and no thread-local state, and only its owner uses it.
unsafe impl Send for Pins {}

impl Pins {
    pub fn new(algorithm: Algorithm) -> Option<Self> {
        // SAFETY: the function returns a new object or null.
        NonNull::new(unsafe { esplanade_lane_new(algorithm as u8) }).map(Self)
    }

    /// Sets the inputs, reads the outputs, and then raises the clock.
    pub fn cycle(&mut self, inputs: &Inputs) -> Outputs {
        let mut outputs = Outputs::default();
        // SAFETY: the object lives as long as `self`, and nothing else uses it during the call. Both structs have the
        // layout of the C++ structs, which the call reads and writes only while it runs.
        unsafe { esplanade_lane_cycle(self.0.as_ptr(), inputs, &mut outputs) };
        outputs
    }
}

impl Drop for Pins {
    fn drop(&mut self) {
        // SAFETY: esplanade_lane_new made the object, and it is deleted only here.
        unsafe { esplanade_lane_delete(self.0.as_ptr()) }
    }
}
