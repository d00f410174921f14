//! What is measured, and how long.

use std::time::Duration;

use esplanade_gpu::Tables;

use super::rows::{ROWS, Row};

const USAGE: &str = "--device NAME, --packets N, --seconds S (of a case), --budget S (of all), --warp N, --rows R1,R2, \
                     --forms constant-time,tables";

/// A launch of a test that takes longer means a device that hangs, where time is short.
const PATIENCE_LEAST: Duration = Duration::from_secs(30);

#[derive(Debug)]
pub struct Options {
    /// A part of the device's name.
    pub device: String,
    pub packets: usize,
    /// The time of a case.
    pub time: Duration,
    /// The time of all cases.
    pub budget: Option<Duration>,
    /// Lanes that run the same instructions. OpenCL on a CPU runs whole work-groups.
    pub warp: usize,
    pub rows: Vec<Row>,
    pub forms: Vec<Tables>,
    /// The longest wait for a launch of a test. PoCL translates a kernel when it first runs.
    pub patience: Duration,
}

impl Options {
    /// Reads the command's arguments.
    pub fn read(mut arguments: impl Iterator<Item = String>) -> Result<Self, String> {
        let mut options = Self {
            device: "Portable".to_owned(),
            packets: 4096,
            time: Duration::from_secs(2),
            budget: None,
            warp: 64,
            rows: ROWS.to_vec(),
            forms: vec![Tables::No, Tables::Force],
            patience: Duration::from_secs(600),
        };
        while let Some(name) = arguments.next() {
            // Cargo says so.
            if name == "--bench" {
                continue;
            }
            let value = arguments.next();
            options
                .set(&name, &value.unwrap_or_default())
                .ok_or_else(|| format!("{name}: unknown, or no good value: {USAGE}"))?;
        }
        if let Some(budget) = options.budget {
            let short = (budget / 4).max(PATIENCE_LEAST);
            options.patience = options.patience.min(short);
        }
        Ok(options)
    }

    fn set(&mut self, name: &str, value: &str) -> Option<()> {
        let seconds = || Duration::try_from_secs_f64(value.parse().ok()?).ok();
        match name {
            "--device" => self.device = value.to_owned(),
            "--packets" => self.packets = value.parse().ok().filter(|count| *count > 0)?,
            "--warp" => self.warp = value.parse().ok().filter(|lanes| *lanes > 0)?,
            "--seconds" => self.time = seconds()?,
            "--budget" => self.budget = Some(seconds()?),
            "--rows" => self.rows = value.split(',').map(row).collect::<Option<_>>()?,
            "--forms" => self.forms = value.split(',').map(form).collect::<Option<_>>()?,
            _ => return None,
        }
        Some(())
    }
}

fn row(name: &str) -> Option<Row> {
    ROWS.iter().find(|row| row.name == name).copied()
}

/// No key of a measurement is secret, so tables need no whole device.
fn form(name: &str) -> Option<Tables> {
    match name {
        "constant-time" => Some(Tables::No),
        "tables" => Some(Tables::Force),
        _ => None,
    }
}
