//! OpenCL devices. The library is loaded at run time.

mod held_handle;
mod memory;

use std::collections::VecDeque;
use std::ffi::c_void;
use std::mem::ManuallyDrop;
use std::ptr;
use std::sync::Arc;

use esplanade_crypto::Batch;
use opencl3::command_queue::{CL_QUEUE_PROFILING_ENABLE, CommandQueue};
use opencl3::context::Context;
use opencl3::device::{CL_DEVICE_TYPE_ALL, CL_DEVICE_TYPE_GPU, Device as ClDevice};
use opencl3::error_codes::{ClError, DLOPEN_RUNTIME_LOAD_FAILED};
use opencl3::event::{CL_COMPLETE, Event};
use opencl3::kernel::Kernel;
use opencl3::memory::{Buffer, CL_MEM_READ_WRITE, ClMem};
use opencl3::platform::get_platforms;
use opencl3::program::Program;
use opencl3::types::{CL_FALSE, CL_TRUE, cl_event, cl_int, cl_uint};

use self::held_handle::HeldHandle;
use super::plan::{DEPTH, KEYS_AT_ONCE, LIMITS, ORDER_WORDS, ROWS};
use super::tables::DeviceKind;
use super::{Device, DeviceError, DeviceOptions, FinishedLaunch, Wake, plan};
use crate::abi::{GROUP_LANES, GROUP_WORDS, JOB_WORDS, RAW_WORDS, ROW_WORDS, SCRATCH_WORDS};
use crate::host_memory::HostMemory;
use crate::kernels;
use crate::keys::RawKey;
use crate::launch::{Launch, LaunchLimits, STAGE_ENTRIES, STAGES};

/// The library of the loader.
const LIBRARY: &str = "libOpenCL.so.1";
/// The loader's error where no driver is installed (CL_PLATFORM_NOT_FOUND_KHR).
const NO_PLATFORM: cl_int = -1001;

/// An OpenCL device.
pub struct OpenCl {
    name: String,
    tables: bool,
    /// Launches in the order of their start. Their memory is `ManuallyDrop`, because a device that hangs may still
    /// write to it.
    launches: VecDeque<ManuallyDrop<UnderWay>>,
    free: Vec<Stream>,
    keys: KeyTable,
    memory: Option<Arc<HostMemory>>,
    wake: Wake,
}

/// A queue with the memory of one launch.
struct Stream {
    queue: HeldHandle<CommandQueue>,
    /// The entry point of each stage.
    stages: [HeldHandle<Kernel>; STAGES],
    input: HeldHandle<Buffer<u8>>,
    output: HeldHandle<Buffer<u8>>,
    jobs: HeldHandle<Buffer<u32>>,
    order: HeldHandle<Buffer<u32>>,
    groups: [HeldHandle<Buffer<u32>>; STAGES],
    scratch: HeldHandle<Buffer<u32>>,
    verdicts: HeldHandle<Buffer<u32>>,
}

/// A launch, with everything that the device reads and writes until it has finished.
struct UnderWay {
    stream: Stream,
    launch: Launch,
    batches: Vec<Batch>,
    verdicts: Vec<u32>,
    /// The kernels' runs, with their stages. A later command may complete although a kernel has not run.
    runs: Runs,
    /// Complete when the last read is.
    last: HeldHandle<Event>,
}

/// The kernels' runs, with their stages.
type Runs = Vec<(usize, HeldHandle<Event>)>;

struct KeyTable {
    queue: HeldHandle<CommandQueue>,
    expand: HeldHandle<Kernel>,
    wipe: HeldHandle<Kernel>,
    rows: HeldHandle<Buffer<u32>>,
    staging: HeldHandle<Buffer<u32>>,
}

fn failed(call: &'static str) -> impl Fn(ClError) -> DeviceError {
    move |error| DeviceError::Call {
        call,
        why: error.to_string(),
    }
}

/// Takes the event of a command.
fn event(
    call: &'static str,
    made: Result<Event, ClError>,
) -> Result<HeldHandle<Event>, DeviceError> {
    made.map(HeldHandle::new).map_err(failed(call))
}

/// A device, its name with its platform's, and whether it is a GPU.
struct Found {
    device: ClDevice,
    name: String,
    is_gpu: bool,
}

fn devices() -> Result<Vec<Found>, DeviceError> {
    let platforms = match get_platforms() {
        Ok(platforms) => platforms,
        Err(ClError(DLOPEN_RUNTIME_LOAD_FAILED)) => return Err(DeviceError::NoLibrary(LIBRARY)),
        Err(ClError(NO_PLATFORM)) => Vec::new(),
        Err(error) => return Err(failed("clGetPlatformIDs")(error)),
    };
    let mut found = Vec::new();
    for platform in platforms {
        let platform_name = platform.name().unwrap_or_default();
        for id in platform.get_devices(CL_DEVICE_TYPE_ALL).unwrap_or_default() {
            let device = ClDevice::new(id);
            let name = device.name().unwrap_or_default();
            found.push(Found {
                name: format!("OpenCL: {}: {}", platform_name.trim(), name.trim()),
                is_gpu: device
                    .dev_type()
                    .is_ok_and(|kind| kind & CL_DEVICE_TYPE_GPU != 0),
                device,
            });
        }
    }
    Ok(found)
}

/// Finds a device whose name has `wanted` in it, and a GPU first. Without a wish it is the first GPU.
fn find(wanted: Option<&str>) -> Result<Found, DeviceError> {
    let mut devices = devices()?;
    let is_it = |found: &Found| plan::is_wanted(&found.name, wanted);
    let gpu = devices
        .iter()
        .position(|found| found.is_gpu && is_it(found));
    let other = || wanted.and_then(|_| devices.iter().position(is_it));
    match gpu.or_else(other) {
        Some(index) => Ok(devices.swap_remove(index)),
        None => Err(DeviceError::NoDevice {
            wanted: wanted.map(str::to_owned),
            there: devices.into_iter().map(|found| found.name).collect(),
        }),
    }
}

/// A question that the driver does not answer counts against the device.
fn kind_of(found: &Found) -> DeviceKind<'_> {
    let Found {
        device,
        name,
        is_gpu,
    } = found;
    DeviceKind {
        name,
        is_gpu: *is_gpu,
        is_part: !device.parent_device().is_ok_and(|parent| parent.is_null()),
        is_in_host_memory: device.host_unified_memory().unwrap_or(true),
        is_by_mps: false,
    }
}

impl OpenCl {
    /// Returns the names of all devices, each with its platform's.
    pub fn names() -> Result<Vec<String>, DeviceError> {
        Ok(devices()?.into_iter().map(|found| found.name).collect())
    }

    /// Opens a device and compiles the kernels for it, which can take seconds. `wanted` is a part of the device's name
    /// or of its platform's; without it the first GPU is taken.
    pub fn open_with(
        wanted: Option<&str>,
        wake: Wake,
        options: DeviceOptions,
    ) -> Result<Self, DeviceError> {
        let found = find(wanted)?;
        let tables = options.tables.allowed(&kind_of(&found));
        let tables = tables.map_err(|why| DeviceError::NotWhole {
            device: found.name.clone(),
            why,
        })?;
        let Found { device, name, .. } = found;
        let context = Context::from_device(&device).map_err(failed("clCreateContext"))?;
        let context = Arc::new(HeldHandle::new(context));
        let build = match tables {
            true => format!("-cl-std=CL1.2 {}", kernels::TABLES),
            false => "-cl-std=CL1.2".to_owned(),
        };
        let program = Program::create_and_build_from_source(&context, kernels::SOURCE, &build)
            .map_err(|log| DeviceError::Compiler(log.to_string()))?;
        let program = HeldHandle::new(program);
        let keys = KeyTable::new(&context, &program)?;
        let free = (0..DEPTH)
            .map(|_| Stream::new(&context, &program, &keys.rows, options))
            .collect::<Result<_, _>>()?;
        Ok(Self {
            name,
            tables,
            launches: VecDeque::new(),
            free,
            keys,
            memory: memory::host_memory(&device, &context, options.memory_use),
            wake,
        })
    }
}

fn kernel(program: &Program, name: &str) -> Result<HeldHandle<Kernel>, DeviceError> {
    let kernel = Kernel::create(program, name);
    kernel
        .map(HeldHandle::new)
        .map_err(failed("clCreateKernel"))
}

fn queue(context: &Context, is_timed: bool) -> Result<HeldHandle<CommandQueue>, DeviceError> {
    let properties = if is_timed {
        CL_QUEUE_PROFILING_ENABLE
    } else {
        0
    };
    // OpenCL 1.2 has no other call than the one that later versions deprecate.
    #[allow(deprecated)]
    let queue = CommandQueue::create_default(context, properties);
    queue
        .map(HeldHandle::new)
        .map_err(failed("clCreateCommandQueue"))
}

/// Makes a buffer of `count` values and fills it with zeros: memory may have been another program's.
fn buffer<T: Default>(
    context: &Context,
    queue: &CommandQueue,
    count: usize,
) -> Result<HeldHandle<Buffer<T>>, DeviceError> {
    // SAFETY: there is no host pointer.
    let buffer = unsafe { Buffer::create(context, CL_MEM_READ_WRITE, count, ptr::null_mut()) };
    let mut buffer = HeldHandle::new(buffer.map_err(failed("clCreateBuffer"))?);
    zero(queue, &mut buffer, count)?;
    Ok(buffer)
}

fn zero<T: Default>(
    queue: &CommandQueue,
    buffer: &mut Buffer<T>,
    count: usize,
) -> Result<(), DeviceError> {
    // SAFETY: the buffer has `count` values, and the pattern is copied by the call.
    let filled = unsafe {
        queue.enqueue_fill_buffer(buffer, &[T::default()], 0, count * size_of::<T>(), &[])
    };
    event("clEnqueueFillBuffer", filled).map(drop)
}

/// Runs a kernel whose arguments are set.
fn run(
    queue: &CommandQueue,
    kernel: &Kernel,
    lanes: usize,
) -> Result<HeldHandle<Event>, DeviceError> {
    let group = GROUP_LANES;
    // SAFETY: the caller has set all arguments, and the buffers are large enough for what the lanes use. The sizes are
    // of one dimension, and are read during the call.
    let begun =
        unsafe { queue.enqueue_nd_range_kernel(kernel.get(), 1, ptr::null(), &lanes, &group, &[]) };
    event("clEnqueueNDRangeKernel", begun)
}

impl KeyTable {
    fn new(context: &Context, program: &Program) -> Result<Self, DeviceError> {
        let queue = queue(context, false)?;
        let table = Self {
            expand: kernel(program, plan::EXPAND_ENTRY)?,
            wipe: kernel(program, plan::WIPE_ENTRY)?,
            rows: buffer(context, &queue, ROWS * ROW_WORDS)?,
            staging: buffer(context, &queue, KEYS_AT_ONCE * RAW_WORDS)?,
            queue,
        };
        for kernel in [&table.expand, &table.wipe] {
            set(kernel, 0, &table.staging)?;
            set(kernel, 1, &table.rows)?;
        }
        table.queue.finish().map_err(failed("clFinish"))?;
        Ok(table)
    }

    /// Runs a kernel over records in the staging buffer, and waits.
    fn run(&mut self, wipe: bool, words: &[u32], count: usize) -> Result<(), DeviceError> {
        let begun = self.begin(wipe, words, count);
        // Raw keys do not stay, even if the device is given up: nothing wipes it later.
        let wiped = zero(&self.queue, &mut self.staging, KEYS_AT_ONCE * RAW_WORDS);
        let ended = self.queue.finish().map_err(failed("clFinish"));
        let begun = begun?;
        wiped.and(ended)?;
        check_complete(&begun)
    }

    fn begin(
        &mut self,
        wipe: bool,
        words: &[u32],
        count: usize,
    ) -> Result<HeldHandle<Event>, DeviceError> {
        // SAFETY: the call waits until the words are copied, and the staging buffer has room for them.
        let written = unsafe {
            self.queue
                .enqueue_write_buffer(&mut self.staging, CL_TRUE, 0, words, &[])
        };
        event("clEnqueueWriteBuffer", written)?;
        let kernel = if wipe { &self.wipe } else { &self.expand };
        // SAFETY: the third argument is a uint.
        unsafe { kernel.set_arg(2, &(count as cl_uint)) }.map_err(failed("clSetKernelArg"))?;
        run(&self.queue, kernel, count.next_multiple_of(GROUP_LANES))
    }
}

/// Fails unless the command has run to its end.
fn check_complete(event: &Event) -> Result<(), DeviceError> {
    let status = event.command_execution_status();
    match status.map_err(failed("clGetEventInfo"))?.0 {
        CL_COMPLETE => Ok(()),
        status => Err(failed("a kernel")(ClError(status))),
    }
}

/// Returns the time that a command took, or 0 if its queue does not measure it.
fn duration_ns(event: &Event) -> u64 {
    let begun = event.profiling_command_start();
    let ended = event.profiling_command_end();
    begun
        .and_then(|begun| Ok(ended?.saturating_sub(begun)))
        .unwrap_or(0)
}

fn set<T>(kernel: &Kernel, at: cl_uint, buffer: &Buffer<T>) -> Result<(), DeviceError> {
    // SAFETY: the argument is a buffer, given by its handle.
    let set = unsafe { kernel.set_arg(at, &ClMem::get(buffer)) };
    set.map_err(failed("clSetKernelArg"))
}

impl Stream {
    fn new(
        context: &Context,
        program: &Program,
        rows: &Buffer<u32>,
        options: DeviceOptions,
    ) -> Result<Self, DeviceError> {
        let queue = queue(context, options.is_timed)?;
        let LaunchLimits { words, jobs } = LIMITS;
        // Every work-group has a job, and a stage's last work-groups of each kind may be small.
        let groups = || buffer(context, &queue, jobs * GROUP_WORDS);
        let stage = |at: usize| kernel(program, STAGE_ENTRIES[at]);
        let stream = Self {
            stages: [stage(0)?, stage(1)?, stage(2)?, stage(3)?],
            input: buffer(context, &queue, words * 4)?,
            output: buffer(context, &queue, words * 4)?,
            jobs: buffer(context, &queue, jobs * JOB_WORDS)?,
            order: buffer(context, &queue, ORDER_WORDS)?,
            groups: [groups()?, groups()?, groups()?, groups()?],
            scratch: buffer(context, &queue, jobs * SCRATCH_WORDS)?,
            verdicts: buffer(context, &queue, jobs)?,
            queue,
        };
        for (kernel, groups) in stream.stages.iter().zip(&stream.groups) {
            set(kernel, 2, rows)?;
            set(kernel, 3, &stream.jobs)?;
            set(kernel, 4, &stream.order)?;
            set(kernel, 5, groups)?;
            set(kernel, 6, &stream.scratch)?;
            set(kernel, 7, &stream.verdicts)?;
        }
        stream.queue.finish().map_err(failed("clFinish"))?;
        Ok(stream)
    }

    /// Puts the work of a launch into the queue.
    /// If the launch has outputs, the kernels use `memory`.
    ///
    /// # Safety
    ///
    /// `launch`, `batches` and `verdicts` stay where they are, and nobody uses them, until the event is complete.
    unsafe fn enqueue(
        &mut self,
        launch: &Launch,
        batches: &mut [Batch],
        verdicts: &mut [u32],
        memory: Option<&HostMemory>,
    ) -> Result<(Runs, HeldHandle<Event>), DeviceError> {
        let in_place = memory.filter(|_| !launch.outputs.is_empty());
        match in_place {
            Some(memory) => self.use_memory(memory)?,
            // SAFETY: the caller keeps the batches.
            None => unsafe { self.write_parts(launch, batches) }?,
        }
        let queue = &self.queue;
        let tables = [
            (&mut self.jobs, launch.jobs.as_flattened()),
            (&mut self.order, &launch.order),
        ];
        let groups = launch.groups.iter().map(|groups| groups.as_flattened());
        for (buffer, words) in tables.into_iter().chain(self.groups.iter_mut().zip(groups)) {
            if !words.is_empty() {
                // SAFETY: the caller keeps the launch. Its tables fit by the launch's limits.
                let written =
                    unsafe { queue.enqueue_write_buffer(buffer, CL_FALSE, 0, words, &[]) };
                event("clEnqueueWriteBuffer", written)?;
            }
        }
        // A stage that does not run must not find an earlier launch's verdicts.
        zero(queue, &mut self.verdicts, verdicts.len())?;
        let direction: cl_uint = plan::direction_word(launch.direction);
        let mut runs = Vec::with_capacity(STAGES);
        for (stage, groups) in plan::stages(launch) {
            let kernel = &self.stages[stage];
            // SAFETY: the ninth argument is a uint.
            unsafe { kernel.set_arg(8, &direction) }.map_err(failed("clSetKernelArg"))?;
            runs.push((stage, run(queue, kernel, groups * GROUP_LANES)?));
        }
        if in_place.is_none() {
            // SAFETY: the caller keeps the batches, and does not touch them.
            unsafe { self.read_parts(launch, batches) }?;
        }
        // SAFETY: the caller keeps the verdicts, one for each job.
        let last = unsafe {
            let queue = &self.queue;
            queue.enqueue_read_buffer(&self.verdicts, CL_FALSE, 0, verdicts, &[])
        };
        Ok((runs, event("clEnqueueReadBuffer", last)?))
    }

    /// Lets the kernels read and write where the arenas are. Jobs have their places there.
    fn use_memory(&self, memory: &HostMemory) -> Result<(), DeviceError> {
        for kernel in &self.stages {
            for argument in [0, 1] {
                // SAFETY: the memory is shared, and lives as long as the launch's arenas.
                unsafe { kernel.set_arg_svm_pointer(argument, memory.start().cast()) }
                    .map_err(failed("clSetKernelArgSVMPointer"))?;
            }
        }
        Ok(())
    }

    /// Copies the batches to the device.
    ///
    /// # Safety
    ///
    /// The batches stay where they are, and nobody writes to them, until the launch is complete.
    unsafe fn write_parts(
        &mut self,
        launch: &Launch,
        batches: &[Batch],
    ) -> Result<(), DeviceError> {
        for kernel in &self.stages {
            set(kernel, 0, &self.input)?;
            set(kernel, 1, &self.output)?;
        }
        let queue = &self.queue;
        for (part, batch) in launch.parts.iter().zip(batches) {
            let bytes = &batch.buffer[part.bytes.clone()];
            if !bytes.is_empty() {
                // SAFETY: the caller keeps the batch. The parts fit the buffer by the launch's limits.
                let written = unsafe {
                    queue.enqueue_write_buffer(&mut self.input, CL_FALSE, part.word * 4, bytes, &[])
                };
                event("clEnqueueWriteBuffer", written)?;
            }
        }
        // The bytes between the packets come back as they were.
        // SAFETY: both buffers have as many bytes.
        let copied = unsafe {
            queue.enqueue_copy_buffer(&self.input, &mut self.output, 0, 0, launch.words * 4, &[])
        };
        event("clEnqueueCopyBuffer", copied).map(drop)
    }

    /// Copies the batches back.
    ///
    /// # Safety
    ///
    /// The batches stay where they are, and nobody uses them, until the launch is complete.
    unsafe fn read_parts(&self, launch: &Launch, batches: &mut [Batch]) -> Result<(), DeviceError> {
        for (part, batch) in launch.parts.iter().zip(batches) {
            let bytes = &mut batch.buffer[part.bytes.clone()];
            if !bytes.is_empty() {
                // SAFETY: the caller keeps the batch, and does not touch it.
                let read = unsafe {
                    let (queue, from) = (&self.queue, part.word * 4);
                    queue.enqueue_read_buffer(&self.output, CL_FALSE, from, bytes, &[])
                };
                event("clEnqueueReadBuffer", read)?;
            }
        }
        Ok(())
    }
}

/// Wakes the engine. `data` is an `Arc` of a [`Wake`].
extern "C" fn on_complete(_: cl_event, _: cl_int, data: *mut c_void) {
    // SAFETY: the pointer comes from `Arc::into_raw`, and OpenCL calls this once.
    let wake = unsafe { Arc::from_raw(data.cast::<Wake>().cast_const()) };
    wake();
}

impl Device for OpenCl {
    fn name(&self) -> &str {
        &self.name
    }

    fn tables(&self) -> bool {
        self.tables
    }

    fn memory(&self) -> Option<&Arc<HostMemory>> {
        self.memory.as_ref()
    }

    fn load_keys(&mut self, keys: &[RawKey]) -> Result<(), DeviceError> {
        plan::load_keys(keys, |words, count| self.keys.run(false, words, count))
    }

    fn wipe_keys(&mut self, rows: &[u32]) -> Result<(), DeviceError> {
        plan::wipe_keys(rows, |rows, count| self.keys.run(true, rows, count))
    }

    fn start(&mut self, launch: Launch, batches: Vec<Batch>) -> Result<(), DeviceError> {
        let stream = plan::check_start(&launch, self.free.pop())?;
        let verdicts = vec![0; launch.jobs.len()];
        // After an error the device may still read and write all of this, so it is never freed.
        let mut held = ManuallyDrop::new((stream, launch, batches, verdicts));
        let (stream, launch, batches, verdicts) = &mut *held;
        let memory = self.memory.as_deref();
        // SAFETY: all of it is kept until the event is complete. Vectors and arenas keep their memory when they are
        // moved.
        let (runs, last) = unsafe { stream.enqueue(launch, batches, verdicts, memory) }?;
        let wake = Arc::into_raw(Arc::new(Arc::clone(&self.wake)));
        last.set_callback(CL_COMPLETE, on_complete, wake.cast_mut().cast())
            .map_err(failed("clSetEventCallback"))?;
        stream.queue.flush().map_err(failed("clFlush"))?;
        let (stream, launch, batches, verdicts) = ManuallyDrop::into_inner(held);
        let under_way = ManuallyDrop::new(UnderWay {
            stream,
            launch,
            batches,
            verdicts,
            runs,
            last,
        });
        self.launches.push_back(under_way);
        Ok(())
    }

    fn poll(&mut self) -> Result<Option<FinishedLaunch>, DeviceError> {
        let Some(oldest) = self.launches.front() else {
            return Ok(None);
        };
        let status = oldest.last.command_execution_status();
        match status.map_err(failed("clGetEventInfo"))?.0 {
            CL_COMPLETE => {}
            status if status < 0 => return Err(failed("a launch")(ClError(status))),
            _ => return Ok(None),
        }
        let mut stage_ns = [0; STAGES];
        for (stage, event) in &oldest.runs {
            check_complete(event)?;
            stage_ns[*stage] = duration_ns(event);
        }
        let Some(oldest) = self.launches.pop_front() else {
            return Ok(None);
        };
        let UnderWay {
            stream,
            launch,
            batches,
            verdicts,
            ..
        } = ManuallyDrop::into_inner(oldest);
        self.free.push(stream);
        Ok(Some(FinishedLaunch {
            batches,
            launch,
            verdicts,
            stage_ns,
        }))
    }

    fn wait(&mut self) -> Result<Option<FinishedLaunch>, DeviceError> {
        if let Some(oldest) = self.launches.front() {
            oldest.last.wait().map_err(failed("clWaitForEvents"))?;
        }
        self.poll()
    }

    fn under_way(&self) -> usize {
        self.launches.len()
    }
}

impl Drop for OpenCl {
    /// Overwrites the keys, unless launches are under way that may still use them.
    fn drop(&mut self) {
        if self.free.len() == DEPTH {
            let keys = &mut self.keys;
            let wiped = zero(&keys.queue, &mut keys.rows, ROWS * ROW_WORDS);
            // Nobody is left to be told of an error.
            let _ = wiped.and_then(|()| keys.queue.finish().map_err(failed("clFinish")));
        }
    }
}

impl std::fmt::Debug for OpenCl {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("OpenCl")
            .field("name", &self.name)
            .field("under_way", &self.launches.len())
            .finish_non_exhaustive()
    }
}
