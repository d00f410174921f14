//! A simulated fabric: it decodes bitstreams, and runs the Verilated lane that a bitstream makes.
//!
//! Which lane that is follows from the frames alone. So a bitstream that was merged wrong makes no lane.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use aws_lc_rs::digest::{Context, SHA256};
use serde::Deserialize;

use crate::algorithm::Lane;
use crate::fabric::{Fabric, FabricError};
use crate::frames::{Configuration, Part, Reader};
use crate::lane::Frames;

#[cfg(ace_lanes_simulated)]
mod pins;
#[cfg(ace_lanes_simulated)]
mod running;
#[cfg(ace_lanes_simulated)]
use running::RunningLane;

/// True if the simulated lanes are part of this build.
pub const BUILT: bool = cfg!(ace_lanes_simulated);

/// Bytes in a second of the configuration interface: ECP5's slave parallel port, eight bits at 50 MHz.
pub const INTERFACE_RATE: u64 = 50_000_000;

/// Which lane the frames of a bitstream make: SHA-256 in hexadecimal digits, and the lane.
pub type KnownLanes = BTreeMap<String, Lane>;

/// A bitstream in the list that the example `pack` writes beside a library.
#[derive(Debug, Deserialize)]
struct ListedBitstream {
    domain: String,
    variant: String,
    frames_sha256: String,
}

/// The lanes of the library that is shipped (`crates/ace/library`).
pub fn shipped_lanes() -> Result<KnownLanes, String> {
    known_lanes(include_str!("../library/bitstreams.json"))
}

/// Reads a list of known lanes.
pub fn known_lanes(json: &str) -> Result<KnownLanes, String> {
    let listed: Vec<ListedBitstream> =
        serde_json::from_str(json).map_err(|error| error.to_string())?;
    let lanes = listed.into_iter().map(|one| {
        let lane = Lane::named(&one.domain, &one.variant);
        let unknown = || format!("{} {} is the name of no lane", one.domain, one.variant);
        Ok((one.frames_sha256, lane.ok_or_else(unknown)?))
    });
    lanes.collect()
}

/// Returns the hash of a bitstream's frames, by which a simulated fabric knows it.
pub fn frames_hash(frames: &[u8]) -> String {
    let mut context = Context::new(&SHA256);
    context.update(frames);
    hex::encode(context.finish())
}

/// A fabric on which lanes are simulated.
#[derive(Debug)]
pub struct Simulated {
    part: String,
    known: KnownLanes,
    rate: u64,
    loading: Option<Decoder>,
    /// The configuration after the last load.
    configuration: Option<Configuration>,
    #[cfg(ace_lanes_simulated)]
    lane: Option<RunningLane>,
}

/// Goes through a stream as it comes.
#[derive(Debug)]
struct Decoder {
    reader: Reader,
    taken: usize,
    begun: Instant,
}

impl Simulated {
    /// An empty fabric. `rate` is that of its configuration interface, in bytes a second.
    pub fn new(part: &str, known: KnownLanes, rate: u64) -> Result<Self, FabricError> {
        if !BUILT {
            let why = "the simulated lanes are not part of this build: they take the feature `simulated`, Verilator \
                       (tools/deps.sh) and a C++ compiler";
            return Err(FabricError::Absent(why.to_owned()));
        }
        Ok(Self {
            part: part.to_owned(),
            known,
            rate,
            loading: None,
            configuration: None,
            #[cfg(ace_lanes_simulated)]
            lane: None,
        })
    }

    /// Has the lane forget its key and packets, and then takes it away.
    fn forget(&mut self) -> Result<(), FabricError> {
        self.wipe()?;
        #[cfg(ace_lanes_simulated)]
        {
            self.lane = None;
        }
        Ok(())
    }
}

impl Decoder {
    fn new(reader: Reader) -> Self {
        Self {
            reader,
            taken: 0,
            begun: Instant::now(),
        }
    }
}

impl Fabric for Simulated {
    fn part(&self) -> &str {
        &self.part
    }

    fn begin(&mut self) -> Result<(), FabricError> {
        self.forget()?;
        self.configuration = None;
        self.loading = Some(Decoder::new(Reader::whole()));
        Ok(())
    }

    fn takes_partial(&self) -> bool {
        Part::named(&self.part).is_some_and(Part::has_addresses)
    }

    fn begin_partial(&mut self) -> Result<(), FabricError> {
        self.forget()?;
        let refused = |why: &str| FabricError::Refused {
            at: 0,
            why: why.to_owned(),
        };
        let former = self.configuration.take();
        let former = former.ok_or_else(|| refused("it has no configuration"))?;
        if !self.takes_partial() || !former.is_background() {
            return Err(refused("it takes no partial stream as it is configured"));
        }
        self.loading = Some(Decoder::new(Reader::partial(former)));
        Ok(())
    }

    fn configure(&mut self, bytes: &[u8]) -> Result<usize, FabricError> {
        let Some(decoder) = &mut self.loading else {
            return Err(FabricError::NoLane);
        };
        let elapsed = decoder.begun.elapsed().min(Duration::from_secs(3600));
        let reached = elapsed.as_micros() as u64 * self.rate / 1_000_000;
        let room = (reached as usize).saturating_sub(decoder.taken);
        let bytes = &bytes[..bytes.len().min(room)];
        let taken = decoder.reader.take(bytes);
        taken.map_err(|(at, error)| FabricError::Refused {
            at,
            why: error.to_string(),
        })?;
        decoder.taken += bytes.len();
        Ok(bytes.len())
    }

    fn end(&mut self) -> Result<Lane, FabricError> {
        let decoder = self.loading.take().ok_or(FabricError::NoLane)?;
        let refused = |at, why: String| FabricError::Refused { at, why };
        let taken = decoder.taken;
        let configuration = decoder.reader.into_configuration();
        let configuration = configuration.map_err(|(at, error)| refused(at, error.to_string()))?;
        let part = configuration.part().name;
        if part != self.part {
            let why = format!("it is for {part}, and the fabric is {}", self.part);
            return Err(refused(taken, why));
        }
        let hash = frames_hash(configuration.frames());
        let lane = self.known.get(&hash).copied();
        let lane = lane.ok_or(FabricError::Unknown(hash))?;
        self.configuration = Some(configuration);
        #[cfg(ace_lanes_simulated)]
        {
            self.lane = Some(RunningLane::new(lane.algorithm)?);
        }
        Ok(lane)
    }

    #[cfg(ace_lanes_simulated)]
    fn exchange(
        &mut self,
        frames: &Frames,
        packets: usize,
        answers: &mut Frames,
    ) -> Result<(), FabricError> {
        let lane = self.lane.as_mut().ok_or(FabricError::NoLane)?;
        lane.exchange(frames, packets, answers)
    }

    #[cfg(not(ace_lanes_simulated))]
    fn exchange(&mut self, _: &Frames, _: usize, _: &mut Frames) -> Result<(), FabricError> {
        Err(FabricError::NoLane)
    }

    fn wipe(&mut self) -> Result<(), FabricError> {
        #[cfg(ace_lanes_simulated)]
        if let Some(lane) = &mut self.lane {
            lane.wipe()?;
        }
        Ok(())
    }
}
