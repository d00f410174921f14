//! The calls of CUDA's driver, out of its library.
//!
//! No bindings of others are used: their error codes are a Rust enum, which a newer driver's code is not a value of,
//! and they panic where the library or a function is missing.

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::ptr;
use std::sync::OnceLock;

use libloading::Library;

use crate::device::DeviceError;

/// The library's names. The second one comes with NVIDIA's development packages.
const LIBRARIES: [&str; 2] = ["libcuda.so.1", "libcuda.so"];

/// A `CUresult`: 0 for success.
type Code = c_int;
/// CUDA_ERROR_NO_DEVICE
const NO_DEVICE: Code = 100;
/// CUDA_ERROR_NOT_READY
const NOT_READY: Code = 600;

/// CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR and _MINOR
const CAPABILITY: [c_int; 2] = [75, 76];
/// CU_DEVICE_ATTRIBUTE_INTEGRATED
const INTEGRATED: c_int = 18;
/// CU_DEVICE_ATTRIBUTE_MPS_ENABLED, since CUDA 12.4
const MPS_ENABLED: c_int = 133;
/// CU_CTX_SCHED_BLOCKING_SYNC: a thread that waits sleeps.
const WAIT_ASLEEP: c_uint = 4;
/// CU_STREAM_NON_BLOCKING: no stream waits for the default one.
const OWN_ORDER: c_uint = 1;
/// CU_EVENT_BLOCKING_SYNC | CU_EVENT_DISABLE_TIMING
const FOR_WAITING: c_uint = 1 | 2;
/// CU_EVENT_DEFAULT, which has the time.
const FOR_TIMING: c_uint = 0;
/// CU_JIT_ERROR_LOG_BUFFER and CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES
const ERROR_LOG: [c_uint; 2] = [5, 6];

/// A context, a module, a function, a stream or an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(transparent)]
pub(super) struct Handle(*mut c_void);

// SAFETY: the driver takes its handles from any thread.
unsafe impl Send for Handle {}

impl Handle {
    const NONE: Self = Self(ptr::null_mut());
}

/// A `CUdevice`.
#[derive(Clone, Copy, Debug)]
pub(super) struct CudaDevice(c_int);

/// An address in the device's memory.
pub(super) type Address = u64;

/// Called by a thread of the driver. It must make no call of the driver.
type HostFunction = unsafe extern "C" fn(*mut c_void);

macro_rules! calls {
    ($($name:ident: $symbol:literal ($($argument:ident: $kind:ty),*);)*) => {
        /// CUDA's driver. Its library stays loaded.
        #[derive(Debug)]
        pub(super) struct Driver {
            $($name: unsafe extern "C" fn($($kind),*) -> Code,)*
        }

        impl Driver {
            fn of_library(library: &Library) -> Result<Self, DeviceError> {
                Ok(Self {
                    // SAFETY: the function has this type since the version of CUDA that has its name.
                    $($name: *unsafe { library.get(concat!($symbol, "\0").as_bytes()) }
                        .map_err(|_| DeviceError::OldDriver($symbol))?,)*
                })
            }

            $(
                #[allow(
                    dead_code,
                    clippy::too_many_arguments,
                    reason = "the driver's own signatures; some calls look at the code themselves"
                )]
                /// # Safety
                ///
                /// Handles, addresses and lengths are valid, until the device has done what is asked for.
                unsafe fn $name(&self, $($argument: $kind),*) -> Result<(), DeviceError> {
                    // SAFETY: the caller ensures it.
                    let code = unsafe { (self.$name)($($argument),*) };
                    self.check($symbol, code)
                }
            )*
        }
    };
}

// The names with a number are those of CUDA 4 and later.
calls! {
    error_name: "cuGetErrorName" (error: Code, text: *mut *const c_char);
    error_string: "cuGetErrorString" (error: Code, text: *mut *const c_char);
    init: "cuInit" (flags: c_uint);
    device_count: "cuDeviceGetCount" (count: *mut c_int);
    device_get: "cuDeviceGet" (device: *mut c_int, ordinal: c_int);
    device_name: "cuDeviceGetName" (name: *mut c_char, len: c_int, device: c_int);
    device_attribute: "cuDeviceGetAttribute" (value: *mut c_int, attribute: c_int, device: c_int);
    context_create: "cuCtxCreate_v2" (context: *mut Handle, flags: c_uint, device: c_int);
    context_set_current: "cuCtxSetCurrent" (context: Handle);
    context_destroy: "cuCtxDestroy_v2" (context: Handle);
    module_load: "cuModuleLoadDataEx" (
        module: *mut Handle,
        image: *const c_void,
        options_count: c_uint,
        options: *const c_uint,
        values: *mut *mut c_void
    );
    module_function: "cuModuleGetFunction" (function: *mut Handle, module: Handle, name: *const c_char);
    memory_allocate: "cuMemAlloc_v2" (address: *mut Address, bytes: usize);
    host_allocate: "cuMemHostAlloc" (memory: *mut *mut c_void, bytes: usize, flags: c_uint);
    host_register: "cuMemHostRegister_v2" (memory: *mut c_void, bytes: usize, flags: c_uint);
    copy_to_device: "cuMemcpyHtoDAsync_v2" (
        to: Address,
        from: *const c_void,
        bytes: usize,
        stream: Handle
    );
    copy_to_host: "cuMemcpyDtoHAsync_v2" (
        to: *mut c_void,
        from: Address,
        bytes: usize,
        stream: Handle
    );
    copy_on_device: "cuMemcpyDtoDAsync_v2" (
        to: Address,
        from: Address,
        bytes: usize,
        stream: Handle
    );
    set_words: "cuMemsetD32Async" (to: Address, word: c_uint, words: usize, stream: Handle);
    stream_create: "cuStreamCreate" (stream: *mut Handle, flags: c_uint);
    stream_wait: "cuStreamSynchronize" (stream: Handle);
    event_create: "cuEventCreate" (event: *mut Handle, flags: c_uint);
    event_record: "cuEventRecord" (event: Handle, stream: Handle);
    event_query: "cuEventQuery" (event: Handle);
    event_wait: "cuEventSynchronize" (event: Handle);
    event_elapsed: "cuEventElapsedTime" (milliseconds: *mut f32, from: Handle, to: Handle);
    launch_kernel: "cuLaunchKernel" (
        function: Handle,
        groups: c_uint,
        groups_y: c_uint,
        groups_z: c_uint,
        lanes: c_uint,
        lanes_y: c_uint,
        lanes_z: c_uint,
        shared_bytes: c_uint,
        stream: Handle,
        arguments: *mut *mut c_void,
        extra: *mut *mut c_void
    );
    launch_host_function: "cuLaunchHostFunc" (
        stream: Handle,
        function: HostFunction,
        data: *mut c_void
    );
}

/// A kernel's argument.
#[derive(Clone, Copy, Debug)]
pub(super) enum Argument {
    Memory(Address),
    Word(u32),
}

impl Driver {
    /// Loads the library, once in a process.
    pub(super) fn get() -> Result<&'static Self, DeviceError> {
        static DRIVER: OnceLock<Driver> = OnceLock::new();
        if let Some(driver) = DRIVER.get() {
            return Ok(driver);
        }
        // SAFETY: the library is NVIDIA's driver, whose start and end do nothing but what a driver needs.
        let mut loaded = LIBRARIES
            .into_iter()
            .filter_map(|name| unsafe { Library::new(name) }.ok());
        let library = loaded.next().ok_or(DeviceError::NoLibrary(LIBRARIES[0]))?;
        let driver = Self::of_library(&library)?;
        // The driver's threads run as long as the process.
        std::mem::forget(library);
        Ok(DRIVER.get_or_init(|| driver))
    }

    fn check(&self, call: &'static str, code: Code) -> Result<(), DeviceError> {
        match code {
            0 => Ok(()),
            code => Err(DeviceError::Call {
                call,
                why: self.error(code),
            }),
        }
    }

    fn error(&self, code: Code) -> String {
        let text = |of: unsafe extern "C" fn(Code, *mut *const c_char) -> Code| {
            let mut text = ptr::null();
            // SAFETY: the call writes a pointer to a text that is never freed, or none.
            match unsafe { of(code, &mut text) } {
                0 if !text.is_null() => {
                    // SAFETY: the text is one of the driver's constants.
                    let text = unsafe { CStr::from_ptr(text) };
                    text.to_string_lossy().into_owned()
                }
                _ => format!("error {code}"),
            }
        };
        format!("{} ({})", text(self.error_name), text(self.error_string))
    }

    /// The devices. A driver without any is no error.
    pub(super) fn devices(&self) -> Result<Vec<CudaDevice>, DeviceError> {
        // SAFETY: the call may come several times.
        match unsafe { (self.init)(0) } {
            NO_DEVICE => return Ok(Vec::new()),
            code => self.check("cuInit", code)?,
        }
        let mut count = 0;
        // SAFETY: the place is a variable.
        unsafe { self.device_count(&mut count) }?;
        let get = |ordinal| {
            let mut device = 0;
            // SAFETY: the place is a variable.
            unsafe { self.device_get(&mut device, ordinal) }?;
            Ok(CudaDevice(device))
        };
        (0..count).map(get).collect()
    }

    pub(super) fn name(&self, device: CudaDevice) -> Result<String, DeviceError> {
        let mut name = [0_u8; 256];
        let len = name.len() as c_int - 1;
        // SAFETY: the buffer has the length, and one zero more.
        unsafe { self.device_name(name.as_mut_ptr().cast(), len, device.0) }?;
        let name = CStr::from_bytes_until_nul(&name).unwrap_or_default();
        Ok(name.to_string_lossy().trim().to_owned())
    }

    /// The compute capability: major and minor number.
    pub(super) fn capability(&self, device: CudaDevice) -> Result<(i32, i32), DeviceError> {
        let [major, minor] = CAPABILITY;
        Ok((
            self.attribute(device, major)?,
            self.attribute(device, minor)?,
        ))
    }

    fn attribute(&self, device: CudaDevice, attribute: c_int) -> Result<i32, DeviceError> {
        let mut value = 0;
        // SAFETY: the place is a variable.
        unsafe { self.device_attribute(&mut value, attribute, device.0) }?;
        Ok(value)
    }

    /// Tells whether the device's memory is the host's. No answer counts against the device.
    pub(super) fn is_integrated(&self, device: CudaDevice) -> bool {
        self.attribute(device, INTEGRATED) != Ok(0)
    }

    /// Tells whether MPS runs several programs on the device side by side. Older drivers do not know.
    pub(super) fn is_by_mps(&self, device: CudaDevice) -> bool {
        self.attribute(device, MPS_ENABLED)
            .is_ok_and(|value| value != 0)
    }

    /// Makes a context, and makes it the thread's.
    pub(super) fn context(&self, device: CudaDevice) -> Result<Handle, DeviceError> {
        let mut context = Handle::NONE;
        // SAFETY: the place is a variable.
        unsafe { self.context_create(&mut context, WAIT_ASLEEP, device.0) }?;
        Ok(context)
    }

    /// Makes the context the thread's: other calls mean the thread's context.
    pub(super) fn enter(&self, context: Handle) -> Result<(), DeviceError> {
        // SAFETY: a context lives until `destroy`, which its only owner calls.
        unsafe { self.context_set_current(context) }
    }

    /// Frees the context with all that was made in it.
    ///
    /// # Safety
    ///
    /// Nobody uses a part of it afterwards, memory of the host included.
    pub(super) unsafe fn destroy(&self, context: Handle) -> Result<(), DeviceError> {
        // SAFETY: the caller ensures it.
        unsafe { self.context_destroy(context) }
    }

    /// Has the driver translate a text in PTX for the device.
    pub(super) fn module(&self, ptx: &CStr) -> Result<Handle, DeviceError> {
        let mut module = Handle::NONE;
        let mut log = vec![0_u8; 4096];
        // The second value is a number in the place of a pointer.
        let mut values = [
            log.as_mut_ptr().cast(),
            ptr::without_provenance_mut(log.len() - 1),
        ];
        let (options, values) = (ERROR_LOG.as_ptr(), values.as_mut_ptr());
        // SAFETY: the text ends with a zero. The options are two, and the log has the length that they give.
        let loaded =
            unsafe { self.module_load(&mut module, ptx.as_ptr().cast(), 2, options, values) };
        loaded.map_err(|error| {
            let log = CStr::from_bytes_until_nul(&log).unwrap_or_default();
            DeviceError::Compiler(format!("{error} {}", log.to_string_lossy().trim()))
        })?;
        Ok(module)
    }

    pub(super) fn function(&self, module: Handle, name: &CStr) -> Result<Handle, DeviceError> {
        let mut function = Handle::NONE;
        // SAFETY: the module lives as long as its context, and the name ends with a zero.
        unsafe { self.module_function(&mut function, module, name.as_ptr()) }?;
        Ok(function)
    }

    /// Takes words of the device's memory.
    pub(super) fn memory(&self, words: usize) -> Result<Address, DeviceError> {
        let mut address = 0;
        // SAFETY: the place is a variable.
        unsafe { self.memory_allocate(&mut address, words * 4) }?;
        Ok(address)
    }

    /// Takes words of the host's memory that the device can reach by itself.
    pub(super) fn pinned(&self, words: usize) -> Result<Pinned, DeviceError> {
        let mut memory = ptr::null_mut();
        // SAFETY: the place is a variable.
        unsafe { self.host_allocate(&mut memory, words * 4, 0) }?;
        let words = ptr::slice_from_raw_parts_mut(memory.cast::<u32>(), words);
        // SAFETY: the driver has given so many bytes, at the start of a page.
        unsafe { words.cast::<u32>().write_bytes(0, words.len()) };
        Ok(Pinned(words))
    }

    /// Pins memory of the host, until the context is destroyed.
    ///
    /// # Safety
    ///
    /// The memory is valid until then. It begins at a page, and whole pages are the caller's.
    pub(super) unsafe fn pin(&self, memory: *mut [u8]) -> Result<(), DeviceError> {
        // SAFETY: the caller ensures it.
        unsafe { self.host_register(memory.cast(), memory.len(), 0) }
    }

    pub(super) fn stream(&self) -> Result<Handle, DeviceError> {
        let mut stream = Handle::NONE;
        // SAFETY: the place is a variable.
        unsafe { self.stream_create(&mut stream, OWN_ORDER) }?;
        Ok(stream)
    }

    /// Makes an event that can be waited for.
    pub(super) fn event(&self) -> Result<Handle, DeviceError> {
        self.event_with(FOR_WAITING)
    }

    /// Makes an event that has its time.
    pub(super) fn timer(&self) -> Result<Handle, DeviceError> {
        self.event_with(FOR_TIMING)
    }

    fn event_with(&self, flags: c_uint) -> Result<Handle, DeviceError> {
        let mut event = Handle::NONE;
        // SAFETY: the place is a variable.
        unsafe { self.event_create(&mut event, flags) }?;
        Ok(event)
    }

    /// Waits until a stream has done all.
    pub(super) fn finish(&self, stream: Handle) -> Result<(), DeviceError> {
        // SAFETY: the stream lives as long as its context.
        unsafe { self.stream_wait(stream) }
    }

    /// Tells whether the stream has come to the event.
    pub(super) fn is_complete(&self, event: Handle) -> Result<bool, DeviceError> {
        // SAFETY: the event lives as long as its context.
        match unsafe { (self.event_query)(event) } {
            NOT_READY => Ok(false),
            code => self.check("cuEventQuery", code).map(|()| true),
        }
    }

    /// Returns the nanoseconds between two events that have their times, which the stream has come to.
    pub(super) fn elapsed_ns(&self, from: Handle, to: Handle) -> Result<u64, DeviceError> {
        let mut milliseconds = 0_f32;
        // SAFETY: the place is a variable, and the events live as long as their context.
        unsafe { self.event_elapsed(&mut milliseconds, from, to) }?;
        Ok((f64::from(milliseconds) * 1e6) as u64)
    }

    /// Waits for the event.
    pub(super) fn wait(&self, event: Handle) -> Result<(), DeviceError> {
        // SAFETY: the event lives as long as its context.
        unsafe { self.event_wait(event) }
    }
}

/// The work that a stream is given. Calls return before the device has done it.
///
/// # Safety
///
/// All memory is valid and untouched until the stream has done what it was given.
impl Driver {
    /// Copies bytes of pinned memory to the device.
    pub(super) unsafe fn upload(
        &self,
        to: Address,
        from: *const [u8],
        stream: Handle,
    ) -> Result<(), DeviceError> {
        // SAFETY: the caller ensures it.
        unsafe { self.copy_to_device(to, from.cast(), from.len(), stream) }
    }

    /// Fills bytes of pinned memory from the device.
    pub(super) unsafe fn download(
        &self,
        to: *mut [u8],
        from: Address,
        stream: Handle,
    ) -> Result<(), DeviceError> {
        // SAFETY: the caller ensures it.
        unsafe { self.copy_to_host(to.cast(), from, to.len(), stream) }
    }

    /// Copies words from one place of the device to another.
    pub(super) unsafe fn copy(
        &self,
        to: Address,
        from: Address,
        words: usize,
        stream: Handle,
    ) -> Result<(), DeviceError> {
        // SAFETY: the caller ensures it.
        unsafe { self.copy_on_device(to, from, words * 4, stream) }
    }

    pub(super) unsafe fn zero(
        &self,
        to: Address,
        words: usize,
        stream: Handle,
    ) -> Result<(), DeviceError> {
        // SAFETY: the caller ensures it.
        unsafe { self.set_words(to, 0, words, stream) }
    }

    /// Runs a kernel that takes these arguments, in work-groups of `lanes` lanes.
    pub(super) unsafe fn launch<const N: usize>(
        &self,
        kernel: Handle,
        groups: usize,
        lanes: usize,
        mut arguments: [Argument; N],
        stream: Handle,
    ) -> Result<(), DeviceError> {
        let mut places: Vec<*mut c_void> = arguments
            .iter_mut()
            .map(|argument| match argument {
                Argument::Memory(address) => ptr::from_mut(address).cast(),
                Argument::Word(word) => ptr::from_mut(word).cast(),
            })
            .collect();
        // The driver reads as many as the kernel takes.
        places.push(ptr::null_mut());
        let (groups, lanes) = (groups as c_uint, lanes as c_uint);
        // SAFETY: the caller ensures it. Arguments are read during the call.
        unsafe {
            self.launch_kernel(
                kernel,
                groups,
                1,
                1,
                lanes,
                1,
                1,
                0,
                stream,
                places.as_mut_ptr(),
                ptr::null_mut(),
            )
        }
    }

    pub(super) unsafe fn record(&self, event: Handle, stream: Handle) -> Result<(), DeviceError> {
        // SAFETY: the caller ensures it.
        unsafe { self.event_record(event, stream) }
    }

    /// Has a function called after what the stream was given before, unless that fails.
    pub(super) unsafe fn call(
        &self,
        function: HostFunction,
        data: *mut c_void,
        stream: Handle,
    ) -> Result<(), DeviceError> {
        // SAFETY: the caller ensures it.
        unsafe { self.launch_host_function(stream, function, data) }
    }
}

/// Memory of the host that the device can reach. It is freed with its context.
#[derive(Debug)]
pub(super) struct Pinned(*mut [u32]);

// SAFETY: this is memory that the value owns.
unsafe impl Send for Pinned {}

impl Pinned {
    /// # Safety
    ///
    /// The context is there, and the device does not use the memory at the moment.
    pub(super) unsafe fn words(&mut self) -> &mut [u32] {
        // SAFETY: the memory was filled when it was taken, and the caller ensures the rest.
        unsafe { &mut *self.0 }
    }

    /// The place of bytes of it, for the driver.
    pub(super) fn place(&self, start: usize, len: usize) -> *mut [u8] {
        assert!(start + len <= self.0.len() * 4);
        ptr::slice_from_raw_parts_mut(self.0.cast::<u8>().wrapping_add(start), len)
    }

    /// The same memory as bytes.
    ///
    /// # Safety
    ///
    /// As for [`Pinned::words`].
    pub(super) unsafe fn bytes(&mut self) -> &mut [u8] {
        // SAFETY: each word is four bytes, and the caller ensures the rest.
        unsafe { std::slice::from_raw_parts_mut(self.0.cast(), self.0.len() * 4) }
    }
}
