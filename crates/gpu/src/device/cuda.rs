//! NVIDIA's devices by CUDA. The driver's library is loaded at run time.
//!
//! Packets are copied from pinned memory and to it, because the driver would wait for copies from and to other memory.
//! Batches in [`HostMemory`] are there. What lies elsewhere goes through pinned memory of the launch's stream, as the
//! tables do.

mod arenas;
mod driver;

use std::collections::VecDeque;
use std::ffi::{CStr, CString, c_void};
use std::mem::ManuallyDrop;
use std::ptr;
use std::sync::Arc;

use esplanade_crypto::Batch;
use zeroize::Zeroize;

use self::driver::{Address, Argument, CudaDevice, Driver, Handle, Pinned};
use super::plan::{DEPTH, KEYS_AT_ONCE, LIMITS, ORDER_WORDS, ROWS};
use super::tables::DeviceKind;
use super::{Device, DeviceError, DeviceOptions, FinishedLaunch, Wake, plan};
use crate::abi::{GROUP_LANES, GROUP_WORDS, JOB_WORDS, RAW_WORDS, ROW_WORDS, SCRATCH_WORDS};
use crate::host_memory::HostMemory;
use crate::kernels;
use crate::keys::RawKey;
use crate::launch::{Launch, LaunchPart, STAGE_ENTRIES, STAGES};

/// The lowest compute capability for which the kernels are translated.
const CAPABILITY_MIN: (i32, i32) = (7, 5);
/// Packets, and tables behind them.
const INPUT_WORDS: usize =
    LIMITS.words + LIMITS.jobs * JOB_WORDS + ORDER_WORDS + STAGES * LIMITS.jobs * GROUP_WORDS;
/// Packets, and verdicts behind them.
const OUTPUT_WORDS: usize = LIMITS.words + LIMITS.jobs;
// A launch comes back into the memory that it went from.
const _: () = assert!(OUTPUT_WORDS <= INPUT_WORDS);

/// A device of CUDA's driver.
pub struct Cuda {
    name: String,
    tables: bool,
    driver: &'static Driver,
    context: Handle,
    stages: [Handle; STAGES],
    keys: KeyTable,
    /// Launches in the order of their start. Their memory is `ManuallyDrop`, because a device that hangs may still write
    /// to it.
    launches: VecDeque<ManuallyDrop<UnderWay>>,
    free: Vec<Stream>,
    memory: Option<Arc<HostMemory>>,
    wake: Wake,
    /// An error of the driver holds for the whole context, and the device may still use any memory of it. So nothing is
    /// used or freed any more.
    failed: bool,
}

/// A stream with the memory of one launch.
struct Stream {
    stream: Handle,
    /// The last command of a launch.
    done: Handle,
    /// Before the first stage that has work, and after each one. Without a wish for times there are none.
    timers: Option<[Handle; STAGES + 1]>,
    /// A launch on its way to `input`, and the packets that come back from `output`.
    host: Pinned,
    input: Address,
    output: Address,
    scratch: Address,
}

struct UnderWay {
    stream: Stream,
    launch: Launch,
    batches: Vec<Batch>,
}

struct KeyTable {
    stream: Handle,
    expand: Handle,
    wipe: Handle,
    rows: Address,
    host: Pinned,
    staging: Address,
}

/// A device that has been found, with its name.
#[derive(Debug)]
pub struct CudaFound {
    driver: &'static Driver,
    device: CudaDevice,
    name: String,
}

fn devices() -> Result<Vec<CudaFound>, DeviceError> {
    let driver = Driver::get()?;
    let named = |device| {
        Ok(CudaFound {
            driver,
            device,
            name: format!("CUDA: {}", driver.name(device)?),
        })
    };
    driver.devices()?.into_iter().map(named).collect()
}

impl CudaFound {
    /// Finds a device whose name has `wanted` in it. Without a wish it is the first one.
    pub fn new(wanted: Option<&str>) -> Result<Self, DeviceError> {
        let mut devices = devices()?;
        let has = |found: &Self| plan::is_wanted(&found.name, wanted);
        let Some(index) = devices.iter().position(has) else {
            return Err(DeviceError::NoDevice {
                wanted: wanted.map(str::to_owned),
                there: devices.into_iter().map(|found| found.name).collect(),
            });
        };
        let found = devices.swap_remove(index);
        let capability = found.driver.capability(found.device)?;
        match capability < CAPABILITY_MIN {
            true => Err(DeviceError::OldDevice {
                name: found.name,
                capability,
                needed: CAPABILITY_MIN,
            }),
            false => Ok(found),
        }
    }

    fn kind(&self) -> DeviceKind<'_> {
        DeviceKind {
            name: &self.name,
            is_gpu: true,
            // The name says it.
            is_part: false,
            is_in_host_memory: self.driver.is_integrated(self.device),
            is_by_mps: self.driver.is_by_mps(self.device),
        }
    }
}

impl Cuda {
    /// Returns the names of all devices.
    pub fn names() -> Result<Vec<String>, DeviceError> {
        Ok(devices()?.into_iter().map(|found| found.name).collect())
    }

    /// Opens a device. The driver translates the kernels for it, which can take seconds.
    pub fn open(found: CudaFound, wake: Wake, options: DeviceOptions) -> Result<Self, DeviceError> {
        let tables = options.tables.allowed(&found.kind());
        let tables = tables.map_err(|why| DeviceError::NotWhole {
            device: found.name.clone(),
            why,
        })?;
        let CudaFound {
            driver,
            device,
            name,
        } = found;
        let context = driver.context(device)?;
        let made = (|| {
            let ptx = CStr::from_bytes_with_nul(kernels::ptx(tables).as_bytes());
            let module = driver.module(ptx.unwrap_or_default())?;
            let entry = |name: &str| {
                let name = CString::new(name).unwrap_or_default();
                driver.function(module, &name)
            };
            let keys = KeyTable::new(driver, entry)?;
            let stage = |at: usize| entry(STAGE_ENTRIES[at]);
            let stages = [stage(0)?, stage(1)?, stage(2)?, stage(3)?];
            let free: Result<_, _> = (0..DEPTH)
                .map(|_| Stream::new(driver, options.is_timed))
                .collect();
            Ok((keys, stages, free?, arenas::memory(driver)))
        })();
        let (keys, stages, free, memory) = made.inspect_err(|_| {
            // SAFETY: no launch was begun, and nothing that was made is there any more.
            let _ = unsafe { driver.destroy(context) };
        })?;
        Ok(Self {
            name,
            tables,
            driver,
            context,
            stages,
            keys,
            launches: VecDeque::new(),
            free,
            memory,
            wake,
            failed: false,
        })
    }

    /// Makes calls of the driver for the device. After one that fails there are no others.
    fn with<T>(
        &mut self,
        calls: impl FnOnce(&mut Self) -> Result<T, DeviceError>,
    ) -> Result<T, DeviceError> {
        if self.failed {
            return Err(DeviceError::Call {
                call: "the device",
                why: "it has failed before".to_owned(),
            });
        }
        let done = self.driver.enter(self.context).and_then(|()| calls(self));
        self.failed = done.is_err();
        done
    }

    /// Overwrites what the device and the host's pinned memory have. No launch is under way.
    fn wipe(&mut self) -> Result<(), DeviceError> {
        let driver = self.driver;
        // The call of `on_complete` is the last in a stream.
        let mut streams = self.free.iter();
        streams.try_for_each(|stream| driver.finish(stream.stream))?;
        let keys = &mut self.keys;
        let streams = self.free.iter_mut();
        let hosts = streams.map(|stream| &mut stream.host);
        for host in hosts.chain([&mut keys.host]) {
            // SAFETY: the device uses no pinned memory while no launch is under way.
            unsafe { host.words() }.zeroize();
        }
        let buffers = self.free.iter().flat_map(Stream::buffers);
        for (memory, words) in buffers.chain(keys.buffers()) {
            // SAFETY: the memory is there until the context is not.
            unsafe { driver.zero(memory, words, keys.stream) }?;
        }
        driver.finish(keys.stream)
    }
}

/// Takes words of the device's memory, and fills them with zeros: memory may have been another program's.
fn memory(driver: &Driver, words: usize, stream: Handle) -> Result<Address, DeviceError> {
    let memory = driver.memory(words)?;
    // SAFETY: the memory is there until the context is not.
    unsafe { driver.zero(memory, words, stream) }?;
    Ok(memory)
}

impl KeyTable {
    fn new(
        driver: &Driver,
        entry: impl Fn(&str) -> Result<Handle, DeviceError>,
    ) -> Result<Self, DeviceError> {
        let stream = driver.stream()?;
        let table = Self {
            stream,
            expand: entry(plan::EXPAND_ENTRY)?,
            wipe: entry(plan::WIPE_ENTRY)?,
            rows: memory(driver, ROWS * ROW_WORDS, stream)?,
            host: driver.pinned(KEYS_AT_ONCE * RAW_WORDS)?,
            staging: memory(driver, KEYS_AT_ONCE * RAW_WORDS, stream)?,
        };
        driver.finish(stream)?;
        Ok(table)
    }

    fn buffers(&self) -> [(Address, usize); 2] {
        [
            (self.rows, ROWS * ROW_WORDS),
            (self.staging, KEYS_AT_ONCE * RAW_WORDS),
        ]
    }

    /// Runs a kernel over records, and waits.
    fn run(
        &mut self,
        driver: &Driver,
        kernel: Handle,
        words: &[u32],
        count: usize,
    ) -> Result<(), DeviceError> {
        // SAFETY: the run before has ended.
        let host = unsafe { self.host.words() };
        host[..words.len()].copy_from_slice(words);
        let arguments = [
            Argument::Memory(self.staging),
            Argument::Memory(self.rows),
            Argument::Word(count as u32),
        ];
        let groups = count.div_ceil(GROUP_LANES);
        // SAFETY: the memory is there until the context is not. The kernel takes these arguments, and its records name
        // rows of the table.
        let begun = (|| unsafe {
            let words = self.host.place(0, words.len() * 4);
            driver.upload(self.staging, words, self.stream)?;
            driver.launch(kernel, groups, GROUP_LANES, arguments, self.stream)
        })();
        // Raw keys do not stay, even if the device is given up: nothing wipes it later.
        // SAFETY: the memory is there until the context is not.
        let wiped = unsafe { driver.zero(self.staging, KEYS_AT_ONCE * RAW_WORDS, self.stream) };
        let ended = driver.finish(self.stream);
        // SAFETY: the stream has ended, or the device has failed. It only reads the memory.
        unsafe { self.host.words() }.zeroize();
        begun.and(wiped).and(ended)
    }
}

impl Stream {
    fn new(driver: &Driver, is_timed: bool) -> Result<Self, DeviceError> {
        let stream = driver.stream()?;
        let mut timers = None;
        if is_timed {
            let mut made = [driver.timer()?; STAGES + 1];
            for timer in &mut made[1..] {
                *timer = driver.timer()?;
            }
            timers = Some(made);
        }
        let stream = Self {
            stream,
            done: driver.event()?,
            timers,
            host: driver.pinned(INPUT_WORDS)?,
            input: memory(driver, INPUT_WORDS, stream)?,
            output: memory(driver, OUTPUT_WORDS, stream)?,
            scratch: memory(driver, LIMITS.jobs * SCRATCH_WORDS, stream)?,
        };
        driver.finish(stream.stream)?;
        Ok(stream)
    }

    fn buffers(&self) -> [(Address, usize); 3] {
        [
            (self.input, INPUT_WORDS),
            (self.output, OUTPUT_WORDS),
            (self.scratch, LIMITS.jobs * SCRATCH_WORDS),
        ]
    }

    /// Lays tables out in pinned memory, and packets that are not in `memory`. Returns the words of all, and the
    /// addresses of jobs, order and groups on the device.
    ///
    /// # Safety
    ///
    /// The stream has no launch under way.
    unsafe fn lay_out(
        &mut self,
        launch: &Launch,
        batches: &[Batch],
        memory: Option<&HostMemory>,
    ) -> (usize, Vec<Address>) {
        // SAFETY: the caller ensures it.
        let bytes = unsafe { self.host.bytes() };
        for (part, batch) in launch.parts.iter().zip(batches) {
            if !is_in(memory, batch) {
                let from = &batch.buffer[part.bytes.clone()];
                bytes[part.word * 4..][..from.len()].copy_from_slice(from);
            }
        }
        // SAFETY: the caller ensures it.
        let words = unsafe { self.host.words() };
        let groups = launch.groups.iter().map(|groups| groups.as_flattened());
        let tables = [launch.jobs.as_flattened(), &launch.order]
            .into_iter()
            .chain(groups);
        let mut at = launch.words;
        let lay = |table: &[u32]| {
            let address = self.input + at as Address * 4;
            words[at..][..table.len()].copy_from_slice(table);
            at += table.len();
            address
        };
        let addresses = tables.map(lay).collect();
        (at, addresses)
    }

    /// Gives the stream the work of a launch.
    ///
    /// # Safety
    ///
    /// The stream has no launch under way. It and the batches stay as they are, and nobody uses them, until `done` is
    /// complete.
    unsafe fn enqueue(
        &mut self,
        driver: &Driver,
        kernels: &[Handle; STAGES],
        rows: Address,
        (launch, batches): (&Launch, &mut [Batch]),
        memory: Option<&HostMemory>,
    ) -> Result<(), DeviceError> {
        // SAFETY: the caller ensures it.
        let (words, tables) = unsafe { self.lay_out(launch, batches, memory) };
        let [jobs, order, groups @ ..] = tables.as_slice() else {
            return Ok(());
        };
        let (stream, packets) = (self.stream, launch.words);
        let verdicts = self.output + packets as Address * 4;
        let places = self.places(launch, batches, memory);
        // SAFETY: the caller keeps the stream's memory, in which everything lies by the launch's limits. The kernels
        // take these arguments.
        unsafe {
            for (word, place) in &places {
                driver.upload(self.input + *word as Address * 4, *place, stream)?;
            }
            let tables = self.host.place(packets * 4, (words - packets) * 4);
            driver.upload(self.input + packets as Address * 4, tables, stream)?;
            // The bytes between the packets come back as they were.
            driver.copy(self.output, self.input, packets, stream)?;
            // A stage that does not run must not find an earlier launch's verdicts.
            driver.zero(verdicts, launch.jobs.len(), stream)?;
            self.time(driver, 0)?;
            for (number, (stage, count)) in plan::stages(launch).enumerate() {
                let memory = [
                    self.input,
                    self.output,
                    rows,
                    *jobs,
                    *order,
                    groups[stage],
                    self.scratch,
                    verdicts,
                ];
                let [a, b, c, d, e, f, g, h] = memory.map(Argument::Memory);
                let direction = Argument::Word(plan::direction_word(launch.direction));
                let arguments = [a, b, c, d, e, f, g, h, direction];
                driver.launch(kernels[stage], count, GROUP_LANES, arguments, stream)?;
                self.time(driver, number + 1)?;
            }
            for (word, place) in places {
                driver.download(place, self.output + word as Address * 4, stream)?;
            }
            let back = self.host.place(packets * 4, launch.jobs.len() * 4);
            driver.download(back, verdicts, stream)?;
            driver.record(self.done, stream)
        }
    }

    /// Takes the time when the stream comes here.
    ///
    /// # Safety
    ///
    /// The stream has no launch under way but the one that is given to it.
    unsafe fn time(&self, driver: &Driver, number: usize) -> Result<(), DeviceError> {
        match self.timers.as_ref().and_then(|timers| timers.get(number)) {
            // SAFETY: the caller ensures it.
            Some(timer) => unsafe { driver.record(*timer, self.stream) },
            None => Ok(()),
        }
    }

    /// Returns the time of each stage of a launch that is complete.
    fn times(&self, driver: &Driver, launch: &Launch) -> Result<[u64; STAGES], DeviceError> {
        let mut stage_ns = [0; STAGES];
        if let Some(timers) = self.timers {
            let parts = timers.iter().zip(timers.iter().skip(1));
            for ((stage, _), (from, to)) in plan::stages(launch).zip(parts) {
                stage_ns[stage] = driver.elapsed_ns(*from, *to)?;
            }
        }
        Ok(stage_ns)
    }

    /// Returns where the device copies each part from and to, with the part's word there.
    fn places(
        &self,
        launch: &Launch,
        batches: &mut [Batch],
        memory: Option<&HostMemory>,
    ) -> Vec<(usize, *mut [u8])> {
        let parts = launch.parts.iter().zip(batches);
        let place = |(part, batch): (&LaunchPart, &mut Batch)| {
            let place = match is_in(memory, batch) {
                true => ptr::from_mut(&mut batch.buffer[part.bytes.clone()]),
                false => self.host.place(part.word * 4, part.bytes.len()),
            };
            (part.word, place)
        };
        parts
            .map(place)
            .filter(|(_, place)| !place.is_empty())
            .collect()
    }

    /// Copies packets to where they came from, if the device has not done that, and returns the verdicts.
    ///
    /// # Safety
    ///
    /// The stream's launch is complete.
    unsafe fn take(
        &mut self,
        launch: &Launch,
        batches: &mut [Batch],
        memory: Option<&HostMemory>,
    ) -> Vec<u32> {
        // SAFETY: the caller ensures it.
        let bytes = unsafe { self.host.bytes() };
        for (part, batch) in launch.parts.iter().zip(batches) {
            if !is_in(memory, batch) {
                let to = &mut batch.buffer[part.bytes.clone()];
                to.copy_from_slice(&bytes[part.word * 4..][..to.len()]);
            }
        }
        // SAFETY: the caller ensures it.
        let words = unsafe { self.host.words() };
        words[launch.words..][..launch.jobs.len()].to_vec()
    }
}

/// Tells whether the device copies from the batch and to it.
fn is_in(memory: Option<&HostMemory>, batch: &Batch) -> bool {
    memory.is_some_and(|memory| memory.offset(&batch.buffer).is_some())
}

/// Wakes the engine. `data` is an `Arc` of a [`Wake`].
unsafe extern "C" fn on_complete(data: *mut c_void) {
    // SAFETY: the pointer comes from `Arc::into_raw`, and the driver calls this once.
    let wake = unsafe { Arc::from_raw(data.cast::<Wake>().cast_const()) };
    wake();
}

impl Device for Cuda {
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
        self.with(|it| {
            let (driver, table) = (it.driver, &mut it.keys);
            let expand = table.expand;
            plan::load_keys(keys, |words, count| table.run(driver, expand, words, count))
        })
    }

    fn wipe_keys(&mut self, rows: &[u32]) -> Result<(), DeviceError> {
        self.with(|it| {
            let (driver, table) = (it.driver, &mut it.keys);
            let wipe = table.wipe;
            plan::wipe_keys(rows, |rows, count| table.run(driver, wipe, rows, count))
        })
    }

    fn start(&mut self, launch: Launch, batches: Vec<Batch>) -> Result<(), DeviceError> {
        self.with(|it| {
            let stream = plan::check_start(&launch, it.free.pop())?;
            // An error leaves the launch here: the device may be at work.
            it.launches.push_back(ManuallyDrop::new(UnderWay {
                stream,
                launch,
                batches,
            }));
            let Some(newest) = it.launches.back_mut() else {
                return Ok(());
            };
            let UnderWay {
                stream,
                launch,
                batches,
            } = &mut **newest;
            let (memory, rows) = (it.memory.as_deref(), it.keys.rows);
            // SAFETY: the stream was free. It and the batches are not touched until its event is complete. The function
            // is called once at most, with what it takes.
            unsafe {
                let launch = (&*launch, batches.as_mut_slice());
                stream.enqueue(it.driver, &it.stages, rows, launch, memory)?;
                let wake = Arc::into_raw(Arc::new(Arc::clone(&it.wake)));
                it.driver
                    .call(on_complete, wake.cast_mut().cast(), stream.stream)
            }
        })
    }

    fn poll(&mut self) -> Result<Option<FinishedLaunch>, DeviceError> {
        self.with(|it| {
            let Some(oldest) = it.launches.front() else {
                return Ok(None);
            };
            if !it.driver.is_complete(oldest.stream.done)? {
                return Ok(None);
            }
            let Some(oldest) = it.launches.pop_front() else {
                return Ok(None);
            };
            let UnderWay {
                mut stream,
                launch,
                mut batches,
            } = ManuallyDrop::into_inner(oldest);
            // SAFETY: the event is complete.
            let verdicts = unsafe { stream.take(&launch, &mut batches, it.memory.as_deref()) };
            let stage_ns = stream.times(it.driver, &launch)?;
            it.free.push(stream);
            Ok(Some(FinishedLaunch {
                batches,
                launch,
                verdicts,
                stage_ns,
            }))
        })
    }

    fn wait(&mut self) -> Result<Option<FinishedLaunch>, DeviceError> {
        self.with(|it| match it.launches.front() {
            Some(oldest) => it.driver.wait(oldest.stream.done),
            None => Ok(()),
        })?;
        self.poll()
    }

    fn under_way(&self) -> usize {
        self.launches.len()
    }
}

impl Drop for Cuda {
    /// Overwrites keys and packets and frees all, unless the device has failed or may still be at work.
    fn drop(&mut self) {
        let is_idle = self.launches.is_empty();
        let freed = is_idle.then(|| {
            self.with(|it| {
                it.wipe()?;
                // SAFETY: the device is idle, and nothing is used after this.
                unsafe { it.driver.destroy(it.context) }
            })
        });
        // Nobody is left to be told of an error.
        if !matches!(freed, Some(Ok(()))) {
            // The memory is pinned as long as the context is there, and the device may write to it.
            std::mem::forget(self.memory.take());
        }
    }
}

impl std::fmt::Debug for Cuda {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Cuda")
            .field("name", &self.name)
            .field("under_way", &self.launches.len())
            .finish_non_exhaustive()
    }
}
