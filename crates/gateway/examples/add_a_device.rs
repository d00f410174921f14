//! A gateway with a device of its own, `observer`, in front of the data plane. It counts the clear packets that it takes,
//! and leaves them to software. It has no SAs: the CPU carries them. `docs/add-an-engine.md` says what a device does.

use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use esplanade::config::{EngineEntry, EnginePlace, Lack, SaOptions};
use esplanade::engines::stats::CoreCounters;
use esplanade::engines::{ChildSaDevice, EngineHost, HostReport};
use esplanade::worker::{self, Front};
use esplanade_dataplane::EngineSource;
use esplanade_dataplane::accelerator::{Accelerator, SealedByDevice};
use esplanade_ipsec::sa::{InboundSa, OutboundSa};
use esplanade_ipsec::tunnel::OuterFacts;
use esplanade_ipsec::{Event, WalkCounters};

static ENTRY: EngineEntry = EngineEntry {
    name: "observer",
    place: EnginePlace::Front,
    keys: &[],
    lacks: |given| {
        Lack::unless(
            given.engine.name() == "observer",
            "the gateway has no observer",
            "set `engine = observer` in the gateway section",
        )
    },
};

/// The control thread's end of the device.
#[derive(Debug)]
struct Observer(Arc<AtomicU64>);

impl EngineHost for Observer {
    fn name(&self) -> &'static str {
        ENTRY.name
    }

    fn source(&self) -> Option<EngineSource> {
        None
    }

    fn device(&self) -> Option<&dyn ChildSaDevice> {
        Some(self)
    }

    fn report(&self) -> HostReport {
        let seen = self.0.load(Ordering::Relaxed);
        HostReport::default().with(self.name(), &serde_json::json!({"seen": seen}))
    }
}

impl ChildSaDevice for Observer {
    fn install(&self, _: Arc<OutboundSa>, _: Arc<InboundSa>, _: &SaOptions) -> Result<(), String> {
        Err("it only looks on".into())
    }

    fn follow(&self) {}

    fn counters(&self) -> CoreCounters {
        CoreCounters::default()
    }
}

/// The worker's end of the device.
struct Eyes {
    seen: Arc<AtomicU64>,
    walk: Arc<WalkCounters>,
    returned: Vec<Vec<u8>>,
}

impl Accelerator for Eyes {
    const FRAME_MAX: usize = 9000;

    fn seal(&mut self, packet: &[u8], counted: bool) -> bool {
        self.seen.fetch_add(1, Ordering::Relaxed);
        if !counted {
            let bytes = packet.len() as u64;
            self.walk.packets_in.fetch_add(1, Ordering::Relaxed);
            self.walk.bytes_in.fetch_add(bytes, Ordering::Relaxed);
        }
        self.returned.push(packet.to_vec());
        true
    }

    fn open(&mut self, _: &[u8], _: &OuterFacts) -> bool {
        false
    }

    fn opens(&self, _: u32) -> bool {
        false
    }

    fn works(&self) -> bool {
        true
    }

    fn is_busy(&self) -> bool {
        !self.returned.is_empty()
    }

    fn keep_time(&mut self, _: u64) -> bool {
        false
    }

    fn serve(&mut self) {}
    fn do_due(&mut self) {}
    fn update_tables(&mut self) {}
    fn work(&mut self) {}

    fn take_sealed(&mut self) -> Vec<SealedByDevice> {
        Vec::new()
    }

    fn take_returned(&mut self) -> Vec<Vec<u8>> {
        std::mem::take(&mut self.returned)
    }

    fn take_opened(&mut self) -> Vec<Vec<u8>> {
        Vec::new()
    }

    fn take_events(&mut self) -> Vec<Event> {
        Vec::new()
    }
}

fn main() -> ExitCode {
    let added = worker::add_device(&ENTRY, |config| {
        let is_named = config.engine.name() == ENTRY.name;
        Ok(is_named.then(|| {
            Front::new(|parts| {
                let (seen, [walk, _]) = (Arc::default(), parts.walks);
                let host = Arc::new(Observer(Arc::clone(&seen)));
                let returned = Vec::new();
                (
                    Eyes {
                        seen,
                        walk,
                        returned,
                    },
                    host as _,
                )
            })
        }))
    });
    added.expect("no other engine has the name");
    esplanade::cli::main()
}
