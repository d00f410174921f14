//! Carries batches by a device, with the CPU for what the kernels do not have.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use esplanade_crypto::job::EspPacket;
use esplanade_crypto::{
    Arena, Batch, Direction, JobStatus, KeyContext, SlotTable, Transform, cpu, lookaside,
};
use zeroize::Zeroizing;

use crate::abi::{DONE, NOT_AUTHENTIC};
use crate::device::{Device, DeviceError, FinishedLaunch};
use crate::host_memory::HostMemory;
use crate::keys::KeyRows;
use crate::launch::{CpuJobs, Launch, LaunchChoice, LaunchLimits, STAGES};
use crate::schedule::Arrangement;

/// The CPU seals one of so many packets again, to notice a device that fails while it runs.
const CHECKED_ONE_IN: u64 = 65_536;
/// [`Gpu::carry`] waits so long for a launch. PoCL translates a kernel when it first runs, for minutes on a busy machine.
const PATIENCE: Duration = Duration::from_secs(600);

/// Jobs since the self-test, by who did them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GpuCounters {
    pub launches: u64,
    /// Launches for which no packet was copied.
    pub in_place: u64,
    pub device_jobs: u64,
    pub cpu_jobs: u64,
    /// Sealed packets that the CPU has compared.
    pub checked: u64,
    /// The time of each stage's kernels in nanoseconds, where the device measures it.
    pub stage_ns: [u64; STAGES],
}

/// A device, its keys, and the batches that it has. After an error it is not used any more: the batches that it had
/// do not come back, because it may still write to them. [`Gpu::abandon`] ends it then.
pub struct Gpu {
    device: Box<dyn Device>,
    keys: KeyRows,
    choice: LaunchChoice,
    /// Launches in the order of their start.
    under_way: VecDeque<Held>,
    counters: GpuCounters,
    /// Packets that the device was given to seal.
    sealed: u64,
    patience: Duration,
}

/// The host's part of a launch under way. A device that hangs keeps its batches for ever, so they have no keys.
struct Held {
    /// The keys of each batch.
    keys: Vec<SlotTable<KeyContext>>,
    checked: Option<Checked>,
}

/// A packet of a launch as it was before, with its number in the launch.
struct Checked {
    job: usize,
    plain: Zeroizing<Vec<u8>>,
}

impl Gpu {
    /// Makes an engine of a device, whose kernels say whether they have tables.
    pub fn new(device: Box<dyn Device>, choice: LaunchChoice) -> Self {
        let keys = KeyRows::new(device.rows());
        let choice = LaunchChoice {
            tables: device.tables(),
            ..choice
        };
        Self {
            device,
            keys,
            choice,
            under_way: VecDeque::new(),
            counters: GpuCounters::default(),
            sealed: 0,
            patience: PATIENCE,
        }
    }

    /// Sets how long [`Gpu::carry`] waits for a launch.
    #[must_use]
    pub fn with_patience(self, patience: Duration) -> Self {
        Self { patience, ..self }
    }

    pub fn name(&self) -> &str {
        self.device.name()
    }

    pub fn limits(&self) -> LaunchLimits {
        self.device.limits()
    }

    /// The memory in which arenas are the least work for the device. Other arenas do as well.
    pub fn memory(&self) -> Option<&Arc<HostMemory>> {
        self.device.memory()
    }

    /// Returns an arena there, or on the heap if there is no room.
    pub fn arena(&self, len: usize) -> Arena {
        let shared = self.memory().and_then(|memory| memory.arena(len));
        shared.unwrap_or_else(|| Arena::heap(len))
    }

    /// Tells whether the kernels look AES and 3DES up in tables.
    pub fn tables(&self) -> bool {
        self.choice.tables
    }

    pub fn counters(&self) -> GpuCounters {
        self.counters
    }

    /// Lets the CPU do this transform from now on.
    pub fn disable(&mut self, transform: Transform) {
        self.choice.disabled.push(transform);
    }

    /// Transforms that the CPU does because the device does them wrong.
    pub fn disabled(&self) -> &[Transform] {
        &self.choice.disabled
    }

    /// Sends jobs that fill no warp to the device too, or to the CPU. Returns the former setting.
    pub fn set_residue(&mut self, residue: bool) -> bool {
        std::mem::replace(&mut self.choice.residue, residue)
    }

    /// Puts packets into work-groups in this way from now on.
    pub fn set_arrangement(&mut self, arrangement: Arrangement) {
        self.choice.arrangement = arrangement;
    }

    /// Counts from zero, and compares the next sealed packet.
    pub(crate) fn begin_counting(&mut self) {
        self.counters = GpuCounters::default();
        self.sealed = 0;
    }

    /// The number of keys on the device.
    pub fn keys(&self) -> usize {
        self.keys.loaded()
    }

    /// Tells whether another launch can begin.
    pub fn can_start(&self) -> bool {
        self.device.under_way() < self.device.depth()
    }

    pub fn under_way(&self) -> usize {
        self.device.under_way()
    }

    /// Carries batches of one direction and waits for them, but not for ever.
    pub fn carry(&mut self, batches: Vec<Batch>) -> Result<Vec<Batch>, DeviceError> {
        match self.start(batches)? {
            Some(done) => Ok(done),
            None => self.wait_patiently(),
        }
    }

    /// The device's own wait would not end if the device hangs.
    fn wait_patiently(&mut self) -> Result<Vec<Batch>, DeviceError> {
        let begun = Instant::now();
        loop {
            if let Some(done) = self.poll()? {
                return Ok(done);
            }
            let waited = begun.elapsed();
            if waited > self.patience {
                return Err(DeviceError::Call {
                    call: "a launch",
                    why: format!("it is under way for {} ms", self.patience.as_millis()),
                });
            }
            let pause = waited / 8;
            std::thread::sleep(pause.clamp(Duration::from_micros(10), Duration::from_millis(1)));
        }
    }

    /// Begins a launch of batches of one direction. The CPU does jobs that the device does not get, at once: all of them if
    /// the batches exceed [`Gpu::limits`]. Returns the batches if nothing is left for the device.
    pub fn start(&mut self, mut batches: Vec<Batch>) -> Result<Option<Vec<Batch>>, DeviceError> {
        if !self.device.limits().hold(&batches) {
            let jobs = batches.iter().map(|batch| batch.jobs.len());
            self.counters.cpu_jobs += jobs.sum::<usize>() as u64;
            batches.iter_mut().for_each(cpu::process);
            return Ok(Some(batches));
        }
        let memory = self.device.memory();
        let (mut launch, left) = Launch::new(&batches, &mut self.keys, &self.choice, memory);
        self.counters.device_jobs += launch.jobs.len() as u64;
        self.counters.cpu_jobs += left.iter().map(Vec::len).sum::<usize>() as u64;
        self.device.load_keys(&self.keys.take_missing())?;
        process_left(&mut batches, &left);
        if launch.is_empty() {
            return Ok(Some(batches));
        }
        launch.copy_between(&batches);
        let checked = self.checked(&launch, &batches);
        self.counters.launches += 1;
        self.counters.in_place += u64::from(!launch.outputs.is_empty());
        let keys = batches
            .iter_mut()
            .map(|batch| std::mem::take(&mut batch.keys));
        let held = Held {
            keys: keys.collect(),
            checked,
        };
        self.device.start(launch, batches)?;
        self.under_way.push_back(held);
        Ok(None)
    }

    /// Returns the batches of the oldest launch if it has finished.
    pub fn poll(&mut self) -> Result<Option<Vec<Batch>>, DeviceError> {
        match self.device.poll()? {
            Some(finished) => self.finish(finished).map(Some),
            None => Ok(None),
        }
    }

    /// Waits for the oldest launch and returns its batches; `None` if none is under way.
    pub fn wait(&mut self) -> Result<Option<Vec<Batch>>, DeviceError> {
        match self.device.wait()? {
            Some(finished) => self.finish(finished).map(Some),
            None => Ok(None),
        }
    }

    /// Wipes keys whose SAs are gone, from a part of the key table. Returns how many.
    pub fn sweep(&mut self) -> Result<usize, DeviceError> {
        let gone = self.keys.gone();
        if !gone.is_empty() {
            self.device.wipe_keys(&gone)?;
        }
        Ok(gone.len())
    }

    /// Ends a device that has failed. It may still use the memory of its launches, and its driver may stand still, so
    /// neither is freed. Keys and copies of packets are.
    pub fn abandon(self) {
        let Self { device, .. } = self;
        std::mem::forget(device);
    }

    /// Rows of the device's key table. Keys whose slots are beyond stay with the CPU.
    pub fn rows(&self) -> usize {
        self.device.rows()
    }

    /// Keeps a copy of a packet, once in a while.
    fn checked(&mut self, launch: &Launch, batches: &[Batch]) -> Option<Checked> {
        if launch.direction != Direction::Seal {
            return None;
        }
        let job = self.sealed.next_multiple_of(CHECKED_ONE_IN) - self.sealed;
        let job = usize::try_from(job).ok()?;
        self.sealed += launch.jobs.len() as u64;
        let (_, _, plain) = launch.packet(batches, job)?;
        Some(Checked {
            job,
            plain: plain.to_vec().into(),
        })
    }

    fn finish(&mut self, finished: FinishedLaunch) -> Result<Vec<Batch>, DeviceError> {
        let FinishedLaunch {
            mut batches,
            mut launch,
            verdicts,
            stage_ns,
        } = finished;
        for (sum, ns) in self.counters.stage_ns.iter_mut().zip(stage_ns) {
            *sum += ns;
        }
        launch.take_outputs(&mut batches);
        let held = self.under_way.pop_front();
        let (keys, checked) = held.map_or_else(Default::default, |held| (held.keys, held.checked));
        for (batch, keys) in batches.iter_mut().zip(keys) {
            batch.keys = keys;
        }
        for ((batch, job), verdict) in launch.places.iter().zip(verdicts) {
            let status = match verdict {
                DONE => JobStatus::Done,
                NOT_AUTHENTIC => JobStatus::AuthFailed,
                other => return Err(DeviceError::Wrong(format!("a job: verdict {other}"))),
            };
            if let Some(job) = batches[*batch as usize].jobs.get_mut(*job as usize) {
                job.status = status;
            }
        }
        if let Some(checked) = checked {
            self.counters.checked += 1;
            compare(&launch, &batches, checked)?;
        }
        Ok(batches)
    }
}

/// Seals a packet of the launch again by the CPU. The nonce is the same, and so is the plaintext, so nothing is revealed.
fn compare(launch: &Launch, batches: &[Batch], mut checked: Checked) -> Result<(), DeviceError> {
    let Some((key, job, sealed)) = launch.packet(batches, checked.job) else {
        return Err(DeviceError::Wrong("a packet's place".to_owned()));
    };
    let mut packets = [EspPacket::new(key, job.sequence, &mut checked.plain)];
    lookaside::seal_esp(&mut packets);
    match packets[0].bytes == sealed {
        true => Ok(()),
        false => Err(DeviceError::Wrong(key.transform().name())),
    }
}

/// Does the jobs that the device does not get.
fn process_left(batches: &mut [Batch], left: &CpuJobs) {
    for (batch, left) in batches.iter_mut().zip(left) {
        if !left.is_empty() {
            cpu::process_some(batch, left);
        }
    }
}

impl std::fmt::Debug for Gpu {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Gpu")
            .field("device", &self.device.name())
            .field("choice", &self.choice)
            .field("counters", &self.counters)
            .finish_non_exhaustive()
    }
}
