//! Reads the section `gateway.gpu`.

use std::time::Duration;

use esplanade_gpu::Tables;

use super::diagnostics::{Diagnostic, Diagnostics};
use super::schema;
use super::tree::SectionNode;
use super::value::{ValueError, ValueResult, number, place, read, switch};

/// The limits of the GPU's share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShareLimits {
    /// 99 of 100 batches are to be back within this time.
    pub latency: Duration,
    /// The percentage of its time up to which the busiest worker may work before the GPU gets a share.
    pub threshold: u64,
}

/// Settings of the GPU engine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GpuConfig {
    /// A part of the device's name, or of its driver's. `None` means the first GPU.
    pub device: Option<String>,
    /// A batch with so many packets need not wait for more.
    pub batch: usize,
    /// The time that a smaller batch waits.
    pub deadline: Duration,
    /// The kernels look AES and 3DES up in tables.
    pub tables: Tables,
    /// The limits of the GPU's share with `engine = adaptive`.
    pub share: ShareLimits,
}

impl Default for GpuConfig {
    fn default() -> Self {
        Self {
            device: None,
            batch: 4096,
            deadline: Duration::from_micros(100),
            tables: Tables::No,
            share: ShareLimits {
                latency: Duration::from_millis(1),
                threshold: 80,
            },
        }
    }
}

pub(crate) fn gpu(node: &SectionNode, d: &mut Diagnostics) -> GpuConfig {
    schema::check(node, &schema::GPU, false, d);
    let standard = GpuConfig::default();
    let tables = read(node, "tables", d, tables).unwrap_or_default();
    if tables != Tables::No {
        let what = "`tables`: whoever can measure the GPU's time or its caches may learn keys";
        let help = "leave it out where others use the GPU, or the host, too (docs/gpu.md)";
        d.push(
            Diagnostic::warning(what)
                .at(place(node, "tables"))
                .help(help),
        );
    }
    GpuConfig {
        device: read(node, "device", d, |text| Ok(text.to_owned())),
        batch: read(node, "batch", d, |text| number(text, 32..=16_384))
            .map_or(standard.batch, |jobs| jobs as usize),
        deadline: read(node, "deadline_us", d, |text| number(text, 0..=10_000))
            .map_or(standard.deadline, Duration::from_micros),
        tables,
        share: ShareLimits {
            latency: read(node, "latency_us", d, |text| number(text, 50..=1_000_000))
                .map_or(standard.share.latency, Duration::from_micros),
            threshold: read(node, "threshold", d, |text| number(text, 1..=100))
                .unwrap_or(standard.share.threshold),
        },
    }
}

fn tables(text: &str) -> ValueResult<Tables> {
    if text == "force" {
        return Ok(Tables::Force);
    }
    let help = "write `yes`, `no`, or `force` for a device that others share";
    switch(text).map_or_else(
        |bad| Err(ValueError::new(bad.what, help)),
        |on| Ok(if on { Tables::Yes } else { Tables::No }),
    )
}
