//! Defines a contender: something that seals or opens the packets of a batch in place.

use std::sync::Arc;

use esplanade_crypto::{Batch, Direction, Job, JobStatus, KeyContext, SlotTable, Tier, cpu};

/// A packet of the plan.
#[derive(Clone, Copy)]
pub struct Planned {
    pub key: u32,
    /// Offset of the ESP header in the arena.
    pub at: u32,
    /// Bytes from the ESP header to the end of the ICV.
    pub len: u32,
}

pub type Packets = [Planned];

pub trait Contender {
    /// The name of the library, and of the interface if it has several.
    fn name(&self) -> (String, String);
    /// Makes the jobs. This is not timed, because a program writes jobs while it looks at the packets.
    fn set_up(&mut self, packets: &Packets, batch: &mut Batch);
    /// Does the work. Returns the number of packets that were good.
    fn run(&mut self, batch: &mut Batch) -> usize;
}

pub fn own_name(tier: Tier) -> String {
    match tier {
        Tier::Portable => format!("Esplanade {tier} (aws-lc)"),
        _ => format!("Esplanade {tier}"),
    }
}

/// The CPU engine with keys of one tier.
pub struct Esplanade {
    tier: Tier,
    direction: Direction,
    keys: SlotTable<KeyContext>,
}

impl Esplanade {
    pub fn new(tier: Tier, direction: Direction, keys: &[Arc<KeyContext>]) -> Self {
        let mut table = SlotTable::new();
        for (number, key) in keys.iter().enumerate() {
            table.insert(number as u32, Arc::clone(key));
        }
        Self {
            tier,
            direction,
            keys: table,
        }
    }
}

impl Contender for Esplanade {
    fn name(&self) -> (String, String) {
        (own_name(self.tier), String::new())
    }

    fn set_up(&mut self, packets: &Packets, batch: &mut Batch) {
        batch.direction = self.direction;
        batch.keys = self.keys.clone();
        batch.jobs.clear();
        batch.jobs.extend(packets.iter().map(|packet| Job {
            key: packet.key,
            esp: packet.at,
            len: packet.len,
            icv: 0,
            sequence: 0,
            class: 0,
            status: JobStatus::Pending,
        }));
    }

    fn run(&mut self, batch: &mut Batch) -> usize {
        cpu::process(batch);
        let jobs = batch.jobs.iter();
        jobs.filter(|job| job.status == JobStatus::Done).count()
    }
}
