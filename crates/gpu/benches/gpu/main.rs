//! Measures a device beside one core of the CPU engine: rows of the PIPSEA paper's kind, in three arrangements and by
//! both forms of the kernels, as launches back to back and at set loads, and through both walks. Prints a line of JSON
//! for each case when it has ended.
//!
//! The device is the one that a gateway opens: CUDA's first. Packets are sealed again and again with one number, which
//! only a measurement may do.

mod clock;
mod closed_loop;
mod lanes;
mod latencies;
mod open_loop;
mod options;
mod rows;
mod walk;

use std::process::ExitCode;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use esplanade_gpu::host_memory::HostMemoryUse;
use esplanade_gpu::{Arrangement, DeviceError, DeviceOptions, Gpu, LaunchChoice, Tables};

pub use self::options::Options;

use self::clock::Clock;
use self::rows::Row;

const ARRANGEMENTS: [(&str, Arrangement); 3] = [
    ("arrival", Arrangement::Arrival),
    ("by kind", Arrangement::ByKind),
    ("full", Arrangement::Full),
];

fn main() -> ExitCode {
    let options = match Options::read(std::env::args().skip(1)) {
        Ok(options) => options,
        Err(why) => {
            eprintln!("{why}");
            return ExitCode::from(2);
        }
    };
    match run(&options) {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    }
}

/// Measures all that the options want. Returns false if the device has failed, which a line says.
pub fn run(options: &Options) -> bool {
    let mut clock = Clock::new(options);
    let mut worked = true;
    for (number, tables) in options.forms.iter().enumerate() {
        // A form that has failed leaves its time to the next.
        let left = options.forms.len() - number;
        let of_cpu = if number == 0 {
            options.rows.len() + 1
        } else {
            0
        };
        clock.expect(of_cpu + left * cases(options), 2 * left);
        if let Err(error) = form(options, &mut clock, *tables, number == 0) {
            let (tables, why) = (*tables != Tables::No, quoted(&error.to_string()));
            println!("{{\"part\":\"failed\",\"tables\":{tables},\"why\":{why}}}");
            worked = false;
        }
    }
    worked
}

/// The number of cases of a form, without those of the CPU.
fn cases(options: &Options) -> usize {
    let of_row = |row: &Row| {
        let alone = alone(row).count();
        2 * ARRANGEMENTS.len() + open_loop::LOADS + alone
    };
    options.rows.iter().map(of_row).sum::<usize>() + 1
}

/// A row's transforms, each alone, if there are several.
fn alone(row: &Row) -> impl Iterator<Item = (&'static str, Row)> + use<> {
    let row = *row;
    let several = row.transforms.len() > 1;
    let each = row.transforms.chunks(1).filter(move |_| several);
    each.map(move |transforms| (transforms[0], Row { transforms, ..row }))
}

/// Measures a form of the kernels, and the CPU beside the first one.
fn form(
    options: &Options,
    clock: &mut Clock,
    tables: Tables,
    is_first: bool,
) -> Result<(), DeviceError> {
    let usual = DeviceOptions {
        tables,
        ..DeviceOptions::default()
    };
    let mut gpu = open(options, clock, usual)?;
    let mut is_in_place = false;
    for row in &options.rows {
        if is_first {
            clock.measure(&format!("closed {} cpu", row.name), |time| {
                closed_loop::cpu(time, row);
                Ok(())
            })?;
        }
        let mut full = None;
        for (name, arrangement) in ARRANGEMENTS {
            gpu.set_arrangement(arrangement);
            full = clock.measure(&format!("closed {} {name}", row.name), |time| {
                closed_loop::gpu(options, time, &mut gpu, row, name)
            })?;
        }
        is_in_place |= gpu.counters().in_place > 0;
        let highest = full.unwrap_or_default();
        open_loop::measure(options, clock, &mut gpu, row, highest)?;
    }
    for row in &options.rows {
        for (transform, row) in alone(row) {
            let name = format!("full, {transform} alone");
            clock.measure(&format!("closed {} {name}", row.name), |time| {
                closed_loop::gpu(options, time, &mut gpu, &row, &name)
            })?;
        }
    }
    let gpu = Arc::new(Mutex::new(gpu));
    if is_first {
        clock.measure("walk cpu", |time| {
            walk::cpu(time);
            Ok(())
        })?;
    }
    clock.measure("walk gpu", |time| walk::gpu(options, time, &gpu))?;
    drop(gpu);
    timed(options, clock, usual)?;
    match is_in_place {
        true => copied(options, clock, usual),
        false => Ok(()),
    }
}

/// Measures lanes by the device's own timers, which the other parts do without.
fn timed(options: &Options, clock: &mut Clock, usual: DeviceOptions) -> Result<(), DeviceError> {
    if !clock.has_time() {
        clock.opened(Duration::ZERO);
        return clock.leave_out("lanes");
    }
    let mut gpu = open(
        options,
        clock,
        DeviceOptions {
            is_timed: true,
            ..usual
        },
    )?;
    for row in &options.rows {
        lanes::measure(options, clock, &mut gpu, row)?;
    }
    Ok(())
}

/// Measures what copies cost a device that does without.
fn copied(options: &Options, clock: &mut Clock, usual: DeviceOptions) -> Result<(), DeviceError> {
    if !clock.has_time() {
        return clock.leave_out("closed full, copied");
    }
    let memory_use = Some(HostMemoryUse::Copied);
    let mut gpu = open(
        options,
        clock,
        DeviceOptions {
            memory_use,
            ..usual
        },
    )?;
    for row in &options.rows {
        clock.measure(&format!("closed {} full, copied", row.name), |time| {
            closed_loop::gpu(options, time, &mut gpu, row, "full, copied")
        })?;
    }
    Ok(())
}

/// Opens the device and tests it, and says so. It gets all jobs that its kernels have.
fn open(options: &Options, clock: &mut Clock, wanted: DeviceOptions) -> Result<Gpu, DeviceError> {
    let begun = Instant::now();
    let device = esplanade_gpu::open_with(Some(&options.device), Arc::new(|| {}), wanted)?;
    let choice = LaunchChoice {
        residue: true,
        ..LaunchChoice::default()
    };
    let mut gpu = Gpu::new(device, choice).with_patience(options.patience);
    let opened = begun.elapsed().as_secs_f64();
    esplanade_gpu::self_test::run(&mut gpu)?;
    let tested = begun.elapsed().as_secs_f64() - opened;
    clock.opened(begun.elapsed());
    let wrong: Vec<String> = gpu
        .disabled()
        .iter()
        .map(|transform| quoted(&transform.name()))
        .collect();
    println!(
        "{{\"part\":\"device\",\"device\":{},\"tables\":{},\"timed\":{},\"opened_s\":{opened:.1},\"tested_s\":{tested:.1},\
         \"wrong\":[{}]}}",
        quoted(gpu.name()),
        gpu.tables(),
        wanted.is_timed,
        wrong.join(","),
    );
    Ok(gpu)
}

/// Takes a device that one thread uses.
fn locked(gpu: &Mutex<Gpu>) -> std::sync::MutexGuard<'_, Gpu> {
    gpu.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A text of a driver as JSON.
fn quoted(text: &str) -> String {
    let text = text.replace(char::is_control, " ");
    format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""))
}
