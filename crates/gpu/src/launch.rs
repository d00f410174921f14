//! Makes one launch of the jobs of several batches.

use std::ops::Range;
use std::sync::Arc;

use esplanade_crypto::{Arena, Batch, Direction, Job, KeyContext, KeySlot, Transform};

use crate::abi::{GROUP_WORDS, JOB_WORDS, StageKind};
use crate::host_memory::HostMemory;
use crate::keys::KeyRows;
use crate::schedule::{Arrangement, Schedule, WARP};
use crate::suite::{StageWork, Suite};

/// Number of stages, each of which is an entry point of the kernels.
pub const STAGES: usize = 4;

/// The entry points of the stages.
pub const STAGE_ENTRIES: [&str; STAGES] = ["esp_cipher", "esp_mac", "esp_finish", "esp_tdes"];

/// Returns the stages of a direction in their order. A packet that is opened is authentic before it is decrypted.
pub const fn stages_of(direction: Direction) -> &'static [usize] {
    match direction {
        Direction::Seal => &[0, 1, 2],
        Direction::Open => &[1, 2, 0, 3],
    }
}

/// Packets of one direction for one run of the kernels.
#[derive(Debug)]
pub struct Launch {
    pub direction: Direction,
    /// The part of each batch's arena that goes to the device, and its word offset there.
    pub parts: Vec<LaunchPart>,
    pub jobs: Vec<[u32; JOB_WORDS]>,
    pub order: Vec<u32>,
    /// The work-groups of each stage.
    pub groups: [Vec<[u32; GROUP_WORDS]>; STAGES],
    /// The words of all parts.
    pub words: usize,
    /// Where the jobs are: number of the batch, number of the job in it.
    pub places: Vec<(u32, u32)>,
    /// The arenas for the results, one for each batch, if the device works in its [`HostMemory`]. Then no part is copied,
    /// and jobs have their words in that memory.
    pub outputs: Vec<Arena>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LaunchPart {
    pub bytes: Range<usize>,
    pub word: usize,
}

/// Upper bounds of a launch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LaunchLimits {
    pub words: usize,
    pub jobs: usize,
}

impl LaunchLimits {
    /// Says whether one launch can have these batches.
    pub fn hold(&self, batches: &[Batch]) -> bool {
        let words: usize = batches.iter().map(words_of).sum();
        let jobs: usize = batches.iter().map(|batch| batch.jobs.len()).sum();
        words <= self.words && jobs <= self.jobs
    }
}

/// Which jobs go to the device, and how.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LaunchChoice {
    pub arrangement: Arrangement,
    /// The device gets all jobs that its kernels have, also those that leave lanes of a warp idle.
    pub residue: bool,
    /// The device's kernels have tables.
    pub tables: bool,
    /// Transforms that the device does wrong.
    pub disabled: Vec<Transform>,
}

/// A job that the kernels can do.
struct Fitting<'a> {
    place: (u32, u32),
    key: &'a Arc<KeyContext>,
    suite: Suite,
    job: [u32; JOB_WORDS],
    /// The stages' work.
    cipher: StageWork,
    mac: StageWork,
    finish: Option<StageWork>,
}

/// The jobs that are left to the CPU, by batch.
pub type CpuJobs = Vec<Vec<u32>>;

/// Returns the words that a batch takes on the device: whole words, and whole blocks of AES.
pub fn words_of(batch: &Batch) -> usize {
    batch.used().div_ceil(4).next_multiple_of(4)
}

impl Launch {
    /// Makes a launch of all jobs that the kernels can do. The batches are of one direction. Returns the numbers of the
    /// other jobs too. The device works in `memory` if all batches are there.
    pub fn new(
        batches: &[Batch],
        keys: &mut KeyRows,
        choice: &LaunchChoice,
        memory: Option<&Arc<HostMemory>>,
    ) -> (Self, CpuJobs) {
        let direction = batches
            .first()
            .map_or(Direction::Seal, |batch| batch.direction);
        let mut launch = Self {
            direction,
            parts: Vec::with_capacity(batches.len()),
            jobs: Vec::new(),
            order: Vec::new(),
            groups: Default::default(),
            words: 0,
            places: Vec::new(),
            outputs: Vec::new(),
        };
        let in_block = memory.and_then(|memory| memory.places(batches));
        let mut left: CpuJobs = vec![Vec::new(); batches.len()];
        let mut fitting = Vec::new();
        for (number, batch) in (0..).zip(batches) {
            let word = launch.words;
            let used = batch.used();
            launch.words += words_of(batch);
            launch.parts.push(LaunchPart {
                bytes: 0..used,
                word,
            });
            let in_block = in_block.as_ref().and_then(|all| all.get(number as usize));
            let words = in_block.map_or((word, word), |at| (at.input / 4, at.output / 4));
            for job in 0..batch.jobs.len() as u32 {
                match Fitting::of(batch, (number, job), words, keys, choice) {
                    Some(fits) => fitting.push(fits),
                    None => left[number as usize].push(job),
                }
            }
        }
        if !choice.residue {
            fitting = without_residue(fitting, &mut left);
        }
        // Jobs that the CPU does need no key on the device.
        for fits in &fitting {
            keys.require(fits.key, &fits.suite);
        }
        launch.arrange(choice.arrangement, fitting);
        launch.outputs =
            in_block.map_or_else(Vec::new, |all| all.into_iter().map(|at| at.arena).collect());
        (launch, left)
    }

    fn arrange(&mut self, arrangement: Arrangement, fitting: Vec<Fitting<'_>>) {
        let mut work: [Vec<(u32, StageWork)>; STAGES] = Default::default();
        for (number, fits) in (0..).zip(fitting) {
            self.jobs.push(fits.job);
            self.places.push(fits.place);
            let [cipher, mac, finish, tdes] = &mut work;
            let cipher = match fits.cipher.kind {
                StageKind::TripleDesOpen => tdes,
                _ => cipher,
            };
            cipher.push((number, fits.cipher));
            mac.push((number, fits.mac));
            finish.extend(fits.finish.map(|work| (number, work)));
        }
        for (groups, work) in self.groups.iter_mut().zip(&work) {
            let schedule = Schedule::new(arrangement, work);
            let offset = self.order.len() as u32;
            groups.extend(schedule.groups.iter().map(|group| group.words(offset)));
            self.order.extend(schedule.order);
        }
    }

    /// Returns key, job and bytes of a packet, by its number in the launch.
    pub fn packet<'a>(
        &self,
        batches: &'a [Batch],
        number: usize,
    ) -> Option<(&'a KeyContext, &'a Job, &'a [u8])> {
        let (batch, job) = *self.places.get(number)?;
        let (key, job, bytes) = batches.get(batch as usize)?.packet(job)?;
        Some((key, job, bytes))
    }

    pub fn is_empty(&self) -> bool {
        self.jobs.is_empty()
    }

    /// Copies the bytes that no kernel writes to the outputs: what is between the packets, and the packets of the CPU.
    pub fn copy_between(&mut self, batches: &[Batch]) {
        let mut written: Vec<Vec<Range<usize>>> = vec![Vec::new(); self.outputs.len()];
        for (batch, job) in &self.places {
            let batch = *batch as usize;
            let job = batches.get(batch).and_then(|b| b.jobs.get(*job as usize));
            if let (Some(written), Some(job)) = (written.get_mut(batch), job) {
                let start = job.esp as usize;
                written.push(start..start + job.len as usize);
            }
        }
        for ((output, batch), mut written) in self.outputs.iter_mut().zip(batches).zip(written) {
            written.sort_unstable_by_key(|range| range.start);
            let mut from = 0;
            // Whatever the CPU has done comes back, wherever it is.
            let of_jobs = batch
                .jobs
                .iter()
                .map(|job| job.esp as usize + job.len as usize);
            let in_arena = of_jobs.filter(|end| *end <= batch.buffer.len());
            let end = in_arena.max().unwrap_or(0).max(batch.used());
            let end = end..end;
            for range in written.into_iter().chain(std::iter::once(end)) {
                if let Some(between) = batch.buffer.get(from..range.start) {
                    output[from..range.start].copy_from_slice(between);
                }
                from = from.max(range.end);
            }
        }
    }

    /// Gives the batches their results, if the device has not copied them.
    pub fn take_outputs(&mut self, batches: &mut [Batch]) {
        for (batch, output) in batches.iter_mut().zip(self.outputs.drain(..)) {
            batch.buffer = output;
        }
    }
}

impl<'a> Fitting<'a> {
    fn of(
        batch: &'a Batch,
        place: (u32, u32),
        (input, output): (usize, usize),
        keys: &KeyRows,
        choice: &LaunchChoice,
    ) -> Option<Self> {
        let job = batch.jobs.get(place.1 as usize)?;
        let key = batch.keys.get(job.key)?;
        let transform = key.transform();
        let suite = Suite::of(transform, choice.tables)
            .filter(|_| !choice.disabled.contains(&transform))?;
        let payload_words = suite.payload_words(job.len)?;
        let end = (job.esp as usize).checked_add(job.len as usize)?;
        if !job.esp.is_multiple_of(4) || end > batch.used() {
            return None;
        }
        if !keys.has_row(key) {
            return None;
        }
        let KeySlot { index, generation } = key.slot();
        let esn = key.esn();
        let offset = |words: usize| u32::try_from(words).ok()?.checked_add(job.esp / 4);
        Some(Self {
            place,
            key,
            suite,
            job: [
                offset(input)?,
                offset(output)?,
                job.len / 4,
                index,
                generation,
                (job.sequence >> 32) as u32,
                suite.fields(esn),
                0,
            ],
            cipher: suite.cipher(batch.direction, payload_words)?,
            mac: suite.mac(esn, payload_words),
            finish: suite.finish(),
        })
    }

    /// Jobs that are alike by this can share their warps in every stage.
    fn class(&self) -> impl Ord + use<> {
        let of = |work: &StageWork| (work.kind, work.argument);
        (of(&self.cipher), of(&self.mac))
    }
}

/// Leaves the shortest jobs of each class that would not fill a warp.
fn without_residue<'a>(mut fitting: Vec<Fitting<'a>>, left: &mut CpuJobs) -> Vec<Fitting<'a>> {
    fitting.sort_by_key(|fits| (fits.class(), std::cmp::Reverse(fits.mac.trip)));
    let mut kept = Vec::with_capacity(fitting.len());
    let mut rest = fitting.into_iter().peekable();
    while let Some(first) = rest.peek() {
        let class = first.class();
        let start = kept.len();
        while let Some(fits) = rest.next_if(|fits| fits.class() == class) {
            kept.push(fits);
        }
        let whole = (kept.len() - start) / WARP * WARP;
        for fits in kept.drain(start + whole..) {
            left[fits.place.0 as usize].push(fits.place.1);
        }
    }
    kept
}
