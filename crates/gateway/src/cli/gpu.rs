//! `esplanade gpu`: lists the devices of CUDA and of OpenCL and tests one, without a gateway.

use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Instant;

use esplanade_crypto::{Direction, Transform};
use esplanade_gpu::{Gpu, LaunchChoice, Tables, self_test};

use super::print;
use crate::failure::Failure;
use crate::gpu;
use esplanade_engines::StartError;

pub fn gpu(device: Option<&str>, tables: bool) -> Result<(), Failure> {
    let mut out = String::new();
    match device {
        None => {
            let (names, mut failures) = esplanade_gpu::names();
            if names.is_empty() {
                if let Some(error) = failures.pop() {
                    return Err(StartError::from(error).into());
                }
                out.push_str("there is no device of CUDA or OpenCL\n");
            }
            for name in names {
                let _ = writeln!(out, "{}", one_line(&name));
            }
            for failure in failures {
                let _ = writeln!(out, "warning   {}", one_line(&failure.to_string()));
            }
        }
        Some(wanted) => {
            let begun = Instant::now();
            // The test has no secret key, so the device may be one that others share.
            let tables = if tables { Tables::Force } else { Tables::No };
            let device = esplanade_gpu::open(Some(wanted), tables, Arc::new(|| {}));
            let device = device.map_err(StartError::from)?;
            let mut engine = Gpu::new(device, LaunchChoice::default());
            let made = begun.elapsed().as_secs_f64();
            if let Err(error) = self_test::run(&mut engine) {
                // A device that has failed may stand still when it is freed.
                engine.abandon();
                return Err(StartError::from(error).into());
            }
            let tested = begun.elapsed().as_secs_f64() - made;
            let _ = writeln!(out, "device    {}", one_line(engine.name()));
            let _ = writeln!(
                out,
                "kernels   made in {made:.1} s, tested in {tested:.1} s"
            );
            for (direction, title) in [(Direction::Seal, "seals"), (Direction::Open, "opens")] {
                let carried = Transform::ESP
                    .into_iter()
                    .filter(|transform| gpu::carries(*transform, direction, engine.tables()))
                    .filter(|transform| !engine.disabled().contains(transform));
                let _ = writeln!(out, "{title:<10}{} transforms of ESP", carried.count());
            }
            for transform in engine.disabled() {
                let _ = writeln!(
                    out,
                    "warning   wrong results for {transform}: the CPU does it"
                );
            }
        }
    }
    print(out.as_bytes())
}

/// A driver's text on one line.
fn one_line(text: &str) -> String {
    text.replace(char::is_control, " ")
}
