//! The Verilated core behind C functions (`sim/esp_core.cpp`).

use std::ptr::NonNull;

/// The signals of a stream into the core, or of a stream out of it without its `ready`.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub(super) struct Beat {
    pub data: [u32; 4],
    pub user: u32,
    pub keep: u16,
    pub valid: u8,
    pub last: u8,
}

/// The core's inputs. Index 0 of the streams is outbound, index 1 inbound.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub(super) struct Inputs {
    pub streams: [Beat; 2],
    pub write_address: u32,
    pub write_data: u32,
    pub read_address: u32,
    pub stream_ready: [u8; 2],
    pub reset: u8,
    pub write_address_valid: u8,
    pub write_data_valid: u8,
    pub write_strobe: u8,
    pub write_answer_ready: u8,
    pub read_address_valid: u8,
    pub read_data_ready: u8,
}

/// The core's outputs in the same cycle.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub(super) struct Outputs {
    pub streams: [Beat; 2],
    pub read_data: u32,
    pub stream_ready: [u8; 2],
    pub write_address_ready: u8,
    pub write_data_ready: u8,
    pub write_answer_valid: u8,
    pub write_answer: u8,
    pub read_address_ready: u8,
    pub read_data_valid: u8,
    pub read_answer: u8,
    pub interrupt: u8,
}

/// The C++ object.
#[repr(C)]
struct Opaque {
    _private: [u8; 0],
}

unsafe extern "C" {
    fn esplanade_core_new() -> *mut Opaque;
    fn esplanade_core_delete(core: *mut Opaque);
    fn esplanade_core_cycle(core: *mut Opaque, inputs: *const Inputs, outputs: *mut Outputs);
}

/// A simulated core.
#[derive(Debug)]
pub(super) struct Pins(NonNull<Opaque>);

// SAFETY: the object has its own simulation context and no thread-local state, and only its owner uses it.
unsafe impl Send for Pins {}

impl Pins {
    pub fn new() -> Option<Self> {
        // SAFETY: the function takes no argument and returns a new object or null.
        NonNull::new(unsafe { esplanade_core_new() }).map(Self)
    }

    /// Sets the inputs, reads the outputs, and then raises the clock.
    pub fn cycle(&mut self, inputs: &Inputs) -> Outputs {
        let mut outputs = Outputs::default();
        // SAFETY: the object lives as long as `self`, and nothing else uses it during the call. Both structs have the
        // layout of the C++ structs, which the call reads and writes only while it runs.
        unsafe { esplanade_core_cycle(self.0.as_ptr(), inputs, &mut outputs) };
        outputs
    }
}

impl Drop for Pins {
    fn drop(&mut self) {
        // SAFETY: esplanade_core_new made the object, and it is deleted only here.
        unsafe { esplanade_core_delete(self.0.as_ptr()) }
    }
}
