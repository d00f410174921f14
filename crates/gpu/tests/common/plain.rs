//! The kernels as a program in plain C, which runs launches under the sanitizers of gcc. `kernels/abi.h` has the format.

use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

use esplanade_crypto::{Batch, Direction};
use esplanade_gpu::abi::{DONE, ROW_WORDS, SCRATCH_WORDS};
use esplanade_gpu::device::FinishedLaunch;
use esplanade_gpu::kernels::TABLES;
use esplanade_gpu::keys::RawKey;
use esplanade_gpu::launch::{Launch, LaunchLimits};
use esplanade_gpu::{Device, DeviceError};

const MAGIC: u32 = 0x4553_5031;
const EXPAND: u32 = 1;
const WIPE: u32 = 2;
const STAGES: u32 = 4 | 8 | 16 | 32;
const ROWS: usize = 2048;

/// A device that is a program.
pub struct Plain {
    program: PathBuf,
    tables: bool,
    rows: Vec<u32>,
    finished: Option<FinishedLaunch>,
}

impl Plain {
    /// Compiles the program once for each form. Returns `None`, saying so, where gcc or its sanitizers are missing.
    pub fn compile(tables: bool) -> Option<Self> {
        static PROGRAMS: [OnceLock<Option<PathBuf>>; 2] = [const { OnceLock::new() }; 2];
        let program = PROGRAMS[usize::from(tables)].get_or_init(|| program(tables));
        Some(Self {
            program: program.clone()?,
            tables,
            rows: vec![0; ROWS * ROW_WORDS],
            finished: None,
        })
    }

    /// Runs the program over buffers in the order of `abi.h`, and returns its answer.
    fn run(&mut self, direction: u32, stages: u32, buffers: [&[u32]; 13]) -> Vec<u32> {
        let mut input: Vec<u8> = Vec::new();
        let mut put = |word: u32| input.extend_from_slice(&word.to_le_bytes());
        [MAGIC, direction, stages].into_iter().for_each(&mut put);
        for buffer in buffers {
            put(buffer.len() as u32);
            buffer.iter().copied().for_each(&mut put);
        }
        let mut child = Command::new(&self.program)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut stdin = child.stdin.take().unwrap();
        let writer = std::thread::spawn(move || stdin.write_all(&input));
        let mut output = Vec::new();
        let mut stdout = child.stdout.take().unwrap();
        stdout.read_to_end(&mut output).unwrap();
        writer.join().unwrap().unwrap();
        assert!(
            child.wait().unwrap().success(),
            "a sanitizer has found something"
        );
        let (words, _) = output.as_chunks();
        words.iter().map(|word| u32::from_le_bytes(*word)).collect()
    }

    /// Runs a stage that changes rows alone.
    fn change_rows(&mut self, stage: u32, raw: &[u32], slots: &[u32]) {
        let rows = self.rows.clone();
        let none: &[u32] = &[];
        self.rows = self.run(
            0,
            stage,
            [
                raw, slots, none, none, &rows, none, none, none, none, none, none, none, none,
            ],
        );
    }
}

fn program(tables: bool) -> Option<PathBuf> {
    let name = format!("plain-{tables}-{}", std::process::id());
    let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("kernels/plain.c");
    let compiled = Command::new("gcc")
        .args(["-std=c11", "-O1", "-Wall", "-Wextra", "-Werror"])
        .args(["-fsanitize=address,undefined", "-fno-sanitize-recover"])
        .args(tables.then_some(TABLES))
        .arg("-o")
        .args([&program, &source])
        .output();
    let why = match compiled {
        Ok(output) if output.status.success() => return Some(program),
        Ok(output) => String::from_utf8_lossy(&output.stderr).into_owned(),
        Err(error) => error.to_string(),
    };
    assert!(why.contains("asan") || why.contains("os error"), "{why}");
    println!("SKIP sanitizers: {why}");
    None
}

impl Device for Plain {
    fn name(&self) -> &str {
        "plain C"
    }

    fn tables(&self) -> bool {
        self.tables
    }

    fn limits(&self) -> LaunchLimits {
        LaunchLimits {
            words: 1 << 20,
            jobs: 4096,
        }
    }

    fn depth(&self) -> usize {
        1
    }

    fn rows(&self) -> usize {
        ROWS
    }

    fn load_keys(&mut self, keys: &[RawKey]) -> Result<(), DeviceError> {
        if !keys.is_empty() {
            let raw: Vec<u32> = keys.iter().flat_map(|key| key.iter().copied()).collect();
            self.change_rows(EXPAND, &raw, &[]);
        }
        Ok(())
    }

    fn wipe_keys(&mut self, rows: &[u32]) -> Result<(), DeviceError> {
        self.change_rows(WIPE, &[], rows);
        for row in rows {
            let row = &self.rows[*row as usize * ROW_WORDS..][..ROW_WORDS];
            assert!(row.iter().all(|word| *word == 0));
        }
        Ok(())
    }

    fn start(&mut self, launch: Launch, mut batches: Vec<Batch>) -> Result<(), DeviceError> {
        let mut input = vec![0_u32; launch.words];
        for (part, batch) in launch.parts.iter().zip(&batches) {
            for (at, byte) in batch.buffer[part.bytes.clone()].iter().enumerate() {
                input[part.word + at / 4] |= u32::from(*byte) << (at % 4 * 8);
            }
        }
        let (rows, jobs) = (self.rows.clone(), launch.jobs.len());
        let direction = u32::from(launch.direction == Direction::Open);
        let answer = self.run(
            direction,
            STAGES,
            [
                &[],
                &[],
                &input,
                &input,
                &rows,
                launch.jobs.as_flattened(),
                &launch.order,
                launch.groups[0].as_flattened(),
                launch.groups[1].as_flattened(),
                launch.groups[2].as_flattened(),
                launch.groups[3].as_flattened(),
                &vec![0; jobs * SCRATCH_WORDS],
                &vec![0; jobs],
            ],
        );
        let (output, behind) = answer.split_at(launch.words);
        let (rows_after, verdicts) = behind.split_at(rows.len());
        assert!(rows == rows_after, "a launch has changed a key");
        for (part, batch) in launch.parts.iter().zip(&mut batches) {
            for (at, byte) in batch.buffer[part.bytes.clone()].iter_mut().enumerate() {
                *byte = output[part.word + at / 4].to_le_bytes()[at % 4];
            }
        }
        assert!(verdicts.iter().all(|verdict| (DONE..=3).contains(verdict)));
        let verdicts = verdicts.to_vec();
        self.finished = Some(FinishedLaunch {
            batches,
            launch,
            verdicts,
            stage_ns: [0; esplanade_gpu::launch::STAGES],
        });
        Ok(())
    }

    fn poll(&mut self) -> Result<Option<FinishedLaunch>, DeviceError> {
        Ok(self.finished.take())
    }

    fn wait(&mut self) -> Result<Option<FinishedLaunch>, DeviceError> {
        self.poll()
    }

    fn under_way(&self) -> usize {
        usize::from(self.finished.is_some())
    }
}
