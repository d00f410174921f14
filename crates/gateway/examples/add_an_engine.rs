//! A gateway with an engine of its own, `tally`. It seals and opens with the CPU, and counts packets by direction.
//! `docs/add-an-engine.md` walks through it.

use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use esplanade::config::{EngineEntry, EnginePlace, Lack};
use esplanade::engines::{self, EngineHost, HostReport};
use esplanade_crypto::{Batch, Direction, Engine, RejectReason, Rejected, cpu};
use esplanade_dataplane::EngineSource;

static ENTRY: EngineEntry = EngineEntry {
    name: "tally",
    place: EnginePlace::Workers,
    keys: &["note"],
    lacks: |given| {
        Lack::unless(
            given.has_section("tally"),
            "the gateway has no engine tally",
            "add a section `tally` to the gateway section",
        )
    },
};

#[derive(Debug)]
struct Tally {
    note: String,
    packets: Arc<[AtomicU64; 2]>,
}

impl EngineHost for Tally {
    fn name(&self) -> &'static str {
        ENTRY.name
    }

    fn source(&self) -> Option<EngineSource> {
        let packets = Arc::clone(&self.packets);
        Some(EngineSource::new(self.name(), move || {
            let (done, packets) = (None, Arc::clone(&packets));
            Ok(Box::new(Port { done, packets }))
        }))
    }

    fn has_tiers(&self) -> bool {
        true
    }

    fn report(&self) -> HostReport {
        let packets = self.packets.each_ref().map(|of| of.load(Ordering::Relaxed));
        let detail = Some(self.note.clone());
        let figures = serde_json::json!({"sealed": packets[0], "opened": packets[1]});
        HostReport {
            detail,
            ..HostReport::default()
        }
        .with(self.name(), &figures)
    }
}

/// The engine of one worker, for one direction.
struct Port {
    done: Option<Batch>,
    packets: Arc<[AtomicU64; 2]>,
}

impl Engine for Port {
    fn submit(&mut self, mut batch: Batch) -> Result<(), Rejected> {
        if self.done.is_some() {
            let reason = RejectReason::Full;
            return Err(Rejected { batch, reason });
        }
        let opens = usize::from(batch.direction == Direction::Open);
        self.packets[opens].fetch_add(batch.jobs.len() as u64, Ordering::Relaxed);
        cpu::process(&mut batch);
        self.done = Some(batch);
        Ok(())
    }

    fn poll(&mut self) -> Option<Batch> {
        self.done.take()
    }
}

fn main() -> ExitCode {
    let added = engines::add(&ENTRY, |config, _| {
        let section = config.engine_settings(ENTRY.name);
        Ok(section.map(|section| {
            let note = section.get("note").unwrap_or("counts packets").to_owned();
            let packets = Arc::default();
            Arc::new(Tally { note, packets }) as _
        }))
    });
    added.expect("no other engine has the name");
    esplanade::cli::main()
}
