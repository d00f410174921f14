//! The Verilated core behind C functions (`sim/esp_core.cpp`).

use std::ptr::NonNull;

/// A stream into the core, or the sender's half of one out of it.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub(super) struct Beat {
    pub data: [u32; 4],
    pub user: u32,
    pub keep: u16,
    pub valid: u8,
    pub last: u8,
}

/// What goes into the core. Streams: outbound, inbound.
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

/// What comes out of it in the same cycle.
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

/// One simulated core.
#[derive(Debug)]
pub(super) struct Pins(NonNull<Opaque>);

// SAFETY: the object has a simulation context of its own and no thread-local state; it is only used by who owns it.
unsafe impl Send for Pins {}

impl Pins {
    pub fn new() -> Option<Self> {
        // SAFETY: takes nothing; gives a new object or null.
        NonNull::new(unsafe { esplanade_core_new() }).map(Self)
    }

    /// Sets the inputs, tells the outputs, and then has the clock rise.
    pub fn cycle(&mut self, inputs: &Inputs) -> Outputs {
        let mut outputs = Outputs::default();
        // SAFETY: the object lives as long as self, and nothing else uses it meanwhile; both structs are laid out as the
        // C++ ones, which are only read and written during the call.
        unsafe { esplanade_core_cycle(self.0.as_ptr(), inputs, &mut outputs) };
        outputs
    }
}

impl Drop for Pins {
    fn drop(&mut self) {
        // SAFETY: made by esplanade_core_new, and deleted only here.
        unsafe { esplanade_core_delete(self.0.as_ptr()) }
    }
}
