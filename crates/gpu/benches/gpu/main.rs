//! Measures an OpenCL device beside one core of the CPU engine: rows of the PIPSEA paper's kind, in three arrangements,
//! as launches back to back and at set loads, and through both walks. Prints a line of JSON for each.
//!
//! Packets are sealed again and again with one number, which only a measurement may do.

mod closed_loop;
mod lanes;
mod open_loop;
mod rows;
mod walk;

use std::sync::Arc;
use std::time::Duration;

use esplanade_gpu::device::host_memory::HostMemoryUse;
use esplanade_gpu::device::opencl::OpenClOptions;
use esplanade_gpu::{Arrangement, Gpu, LaunchChoice, OpenCl};

use rows::{ROWS, Row};

const ARRANGEMENTS: [(&str, Arrangement); 3] = [
    ("arrival", Arrangement::Arrival),
    ("by kind", Arrangement::ByKind),
    ("full", Arrangement::Full),
];

struct Options {
    device: String,
    packets: usize,
    time: Duration,
    /// Lanes that run the same instructions. OpenCL on a CPU runs whole work-groups.
    warp: usize,
}

impl Options {
    fn read() -> Self {
        let mut options = Self {
            device: "Portable".to_owned(),
            packets: 4096,
            time: Duration::from_secs(2),
            warp: 64,
        };
        let mut arguments = std::env::args().skip(1);
        while let Some(argument) = arguments.next() {
            let mut value = || arguments.next().expect("the option has a value");
            match argument.as_str() {
                "--device" => options.device = value(),
                "--warp" => options.warp = value().parse().expect("a number"),
                "--packets" => options.packets = value().parse().expect("a number"),
                "--seconds" => {
                    options.time = Duration::from_secs_f64(value().parse().expect("a number"));
                }
                // Cargo says so.
                "--bench" => {}
                other => panic!("unknown option {other}: --device, --packets, --seconds, --warp"),
            }
        }
        options
    }

    /// Opens the device. It gets all jobs that its kernels have.
    fn gpu(&self, arrangement: Arrangement, options: OpenClOptions) -> Gpu {
        let wake = Arc::new(|| {});
        let device = OpenCl::open_with(Some(&self.device), wake, options).expect("a device");
        let choice = LaunchChoice {
            arrangement,
            residue: true,
            ..LaunchChoice::default()
        };
        Gpu::new(Box::new(device), choice)
    }
}

fn main() {
    let options = Options::read();
    let usual = OpenClOptions::default();
    let copied = OpenClOptions {
        memory_use: Some(HostMemoryUse::Copied),
        ..usual
    };
    for row in &ROWS {
        closed_loop::cpu(&options, row);
        let mut full = 0.0;
        for (name, arrangement) in ARRANGEMENTS {
            lanes::measure(&options, row, name, arrangement);
            let gpu = options.gpu(arrangement, usual);
            full = closed_loop::gpu(&options, gpu, row, name);
        }
        let gpu = options.gpu(Arrangement::Full, copied);
        closed_loop::gpu(&options, gpu, row, "full, copied");
        open_loop::measure(&options, row, full);
        for alone in row
            .transforms
            .chunks(1)
            .filter(|_| row.transforms.len() > 1)
        {
            let row = Row {
                transforms: alone,
                ..*row
            };
            let gpu = options.gpu(Arrangement::Full, usual);
            closed_loop::gpu(&options, gpu, &row, &format!("full, {} alone", alone[0]));
        }
    }
    walk::measure(&options);
}
