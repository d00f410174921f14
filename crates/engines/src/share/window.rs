//! Measures of the load.

use std::time::Duration;

use crate::latency::LatencyCounts;

/// A packet is as much work as so many bytes, besides its own.
const PACKET_BYTES: u64 = 128;
/// Looks of a window. A decision follows each.
const LOOKS: u32 = 3;

/// The traffic between two looks, and how it was carried.
#[derive(Clone, Debug, Default)]
pub struct LoadSample {
    pub time: Duration,
    /// Packets and bytes that came out of the walks of all workers.
    pub packets: u64,
    pub bytes: u64,
    /// The part of the time for which the busiest worker was busy.
    pub busy: f64,
    /// How long the GPU had its batches.
    pub latency: LatencyCounts,
    /// The GPU takes batches and gives them back.
    pub in_service: bool,
}

impl LoadSample {
    /// Returns the work that has passed in a second.
    pub(super) fn passed(&self) -> f64 {
        let seconds = self.time.as_secs_f64().max(1e-9);
        work(self.packets, self.bytes) as f64 / seconds
    }
}

/// Returns the work that traffic is, in bytes.
pub(super) fn work(packets: u64, bytes: u64) -> u64 {
    bytes.saturating_add(packets.saturating_mul(PACKET_BYTES))
}

/// Several looks together.
#[derive(Debug, Default)]
pub(super) struct Window {
    looks: u32,
    work: f64,
    busy: f64,
    pub latency: LatencyCounts,
}

impl Window {
    pub fn add(&mut self, sample: &LoadSample) {
        self.looks += 1;
        self.work += sample.passed();
        self.busy += sample.busy;
        self.latency.add(&sample.latency);
    }

    pub fn is_whole(&self) -> bool {
        self.looks >= LOOKS
    }

    /// Returns the work that has passed in a second.
    pub fn passed(&self) -> f64 {
        self.work / f64::from(self.looks.max(1))
    }

    pub fn busy(&self) -> f64 {
        self.busy / f64::from(self.looks.max(1))
    }
}
