//! Replays the corpora and says how many regions of the instrumented crates no input reaches. `coverage.sh` builds it;
//! without its flags there is nothing to count.
//!
//! The argument is a file with the number that was measured. A change that adds code without inputs for it raises the
//! number, and fails where it is more than one percent of the regions. With `--places` a line for each region follows:
//! its address in the program, and 0 or 1 for whether an input reaches it.

use std::fs;
use std::io::Write as _;
use std::panic::AssertUnwindSafe;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Mutex;

use esplanade_fuzz::limit::{self, Verdict};
use esplanade_fuzz::{TARGETS, Target, corpus};

/// Start and end of each array of counters. Object files of one program share an array, and each reports it.
static COUNTERS: Mutex<Vec<(usize, usize)>> = Mutex::new(Vec::new());

/// The compiler calls it at the start of the program, with a counter for each region.
// SAFETY: the name and the arguments are those of LLVM's SanitizerCoverage, and no other function has the name.
#[unsafe(no_mangle)]
extern "C" fn __sanitizer_cov_8bit_counters_init(start: *mut u8, end: *mut u8) {
    let array = (start as usize, end as usize);
    let mut counters = COUNTERS.lock().expect("no thread has panicked");
    if !counters.contains(&array) {
        counters.push(array);
    }
}

/// A region of the code, as LLVM's table has it.
#[repr(C)]
#[derive(Clone, Copy)]
struct Place {
    address: usize,
    flags: usize,
}

/// The places of the counters, in the order of the counters.
static PLACES: Mutex<Vec<Place>> = Mutex::new(Vec::new());

/// The compiler calls it after the function above, with the place of each region.
// SAFETY: as above.
#[unsafe(no_mangle)]
extern "C" fn __sanitizer_cov_pcs_init(start: *const Place, end: *const Place) {
    // SAFETY: LLVM gives the ends of an array of such pairs, which nothing changes.
    let table = unsafe { std::slice::from_raw_parts(start, end.offset_from_unsigned(start)) };
    let mut places = PLACES.lock().expect("no thread has panicked");
    if places.last().map(|last| last.address) != table.last().map(|last| last.address) {
        places.extend(table);
    }
}

/// Counters that are looked at together. Most are zero after an input.
const BLOCK: usize = 64;

/// For each region, whether an input has reached it.
#[derive(Default)]
struct Reached(Vec<bool>);

impl Reached {
    /// Runs the target, and returns the number of regions that no input before has reached. The counters begin anew
    /// each time: they have eight bits, so that 256 passages would count as none.
    fn run(&mut self, target: Target, input: &[u8]) -> usize {
        target(input);
        let counters = COUNTERS.lock().expect("no thread has panicked");
        let (mut new, mut base) = (0, 0);
        for &(start, end) in counters.iter() {
            // SAFETY: LLVM gave this array of bytes, which lives as long as the program. No other thread runs
            // instrumented code.
            let array = unsafe { std::slice::from_raw_parts_mut(start as *mut u8, end - start) };
            self.0.resize(self.0.len().max(base + array.len()), false);
            for (at, block) in array.chunks_mut(BLOCK).enumerate() {
                if *block == [0; BLOCK][..block.len()] {
                    continue;
                }
                for (within, counter) in block.iter_mut().enumerate() {
                    let reached = &mut self.0[base + at * BLOCK + within];
                    new += usize::from(*counter != 0 && !*reached);
                    *reached |= *counter != 0;
                    *counter = 0;
                }
            }
            base += array.len();
        }
        new
    }

    fn unreached(&self) -> usize {
        self.0.iter().filter(|reached| !**reached).count()
    }
}

/// The address at which the system has loaded this program.
fn load_address() -> std::io::Result<usize> {
    let maps = fs::read_to_string("/proc/self/maps")?;
    let program = std::env::current_exe()?;
    let mut lines = maps.lines();
    let first = lines.find(|line| line.ends_with(&*program.to_string_lossy()));
    let address = first.and_then(|line| usize::from_str_radix(line.split('-').next()?, 16).ok());
    address.ok_or_else(|| std::io::Error::other("the program is not in its own memory map"))
}

fn print_places(reached: &[bool]) -> std::io::Result<()> {
    let base = load_address()?;
    let places = PLACES.lock().expect("no thread has panicked");
    assert_eq!(places.len(), reached.len(), "a place for each counter");
    let mut out = std::io::stdout().lock();
    for (place, reached) in places.iter().zip(reached) {
        let address = place.address.wrapping_sub(base);
        writeln!(out, "{address:#x} {}", u8::from(*reached))?;
    }
    Ok(())
}

/// Runs every input of the target.
fn replay(name: &str, target: Target, reached: &mut Reached) -> std::io::Result<()> {
    for file in corpus::files(&corpus::folder(name))? {
        for input in corpus::inputs(&file)? {
            reached.run(target, &input);
        }
    }
    Ok(())
}

/// Runs the inputs of another folder, the short ones first. Packs those that reach more into the corpus.
fn add(name: &str, target: Target, from: &Path, reached: &mut Reached) -> std::io::Result<()> {
    let mut candidates = Vec::new();
    for file in corpus::files(&from.join(name))? {
        candidates.extend(corpus::inputs(&file)?);
    }
    candidates.retain(|input| input.len() <= usize::from(u16::MAX));
    candidates.sort_by_key(Vec::len);
    let path = corpus::folder(name).join("found.pack");
    let mut out = fs::OpenOptions::new()
        .create(true)
        .append(true)
        .open(path)?;
    let mut added = 0;
    for candidate in candidates {
        match std::panic::catch_unwind(AssertUnwindSafe(|| reached.run(target, &candidate))) {
            Ok(new) if new > 0 => {
                out.write_all(&corpus::pack(&[candidate]))?;
                added += 1;
            }
            Ok(_) => {}
            Err(_) => println!("{name}: a finding: {}", candidate.escape_ascii()),
        }
    }
    println!("{name}: {added} inputs added");
    Ok(())
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let (path, places, more) = match &arguments[..] {
        [path] => (path, false, None),
        [path, option] if option == "--places" => (path, true, None),
        [path, option, folder] if option == "--add" => (path, false, Some(Path::new(folder))),
        _ => {
            eprintln!("usage: coverage FILE [--places | --add FOLDER]");
            return ExitCode::from(2);
        }
    };
    let mut reached = Reached::default();
    for (name, target) in TARGETS {
        replay(name, *target, &mut reached).expect("a corpus");
    }
    for (name, target) in TARGETS {
        if let Some(folder) = more.filter(|folder| folder.join(name).exists()) {
            add(name, *target, folder, &mut reached).expect("a folder of inputs");
        }
    }
    let (uncovered, regions) = (reached.unreached(), reached.0.len());
    println!(
        "{uncovered} of {regions} regions of ike, pki and ipsec are not reached by any corpus"
    );
    if places && let Err(error) = print_places(&reached.0) {
        eprintln!("{error}");
        return ExitCode::from(2);
    }
    let text = fs::read_to_string(path).unwrap_or_default();
    let Some(measured) = limit::measured(&text).filter(|_| regions > 0) else {
        eprintln!(
            "{path} has no line `uncovered = NUMBER`, or nothing is instrumented: use fuzz/coverage.sh"
        );
        return ExitCode::from(2);
    };
    match limit::compare(uncovered, measured, regions) {
        Verdict::AsMeasured => {}
        Verdict::Worse(most) => {
            eprintln!(
                "FAILED: {most} are allowed, one percent more than {path} says; add inputs that reach the new code to \
                 fuzz/corpus, or raise the number and say why"
            );
            return ExitCode::FAILURE;
        }
        Verdict::Better => println!("{path} says {measured}: lower the number"),
    }
    ExitCode::SUCCESS
}
