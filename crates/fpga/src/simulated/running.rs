//! The simulated core with its clock, its register bus, and a DMA engine in front of its streams.

use super::NotBuilt;
use super::pins::{Beat, Inputs, Outputs, Pins};
use crate::device::{BusError, Device};
use crate::dma::Dma;
use crate::memory::Memory;
use crate::regs::{self, lane_counters};
use crate::ring::{self, MEMORY_LEN, Port};

const RESET_CYCLES: u32 = 8;
/// The most clock cycles of a register access. Most take a few; one takes longer while a table is busy or all are
/// wiped.
const ACCESS_CYCLES_MAX: u32 = 100_000;
/// After this many cycles without a beat the core has nothing left to do, or drops what it has. Hashing a long packet
/// takes less.
const QUIET_CYCLES: u32 = 1_500;
/// How many such pauses may pass while packets are inside. Hashing all that its buffers hold takes less.
const QUIET_MAX: u32 = 12;
/// The most clock cycles of one call.
const WORK_CYCLES_MAX: u32 = 200_000;
const BEAT_LEN: usize = 16;
const OKAY: u8 = 0;

/// The ring towards the core and the ring from it, for each lane.
const PORTS: [[Port; 2]; 2] = [
    [Port::OutboundIn, Port::OutboundOut],
    [Port::InboundIn, Port::InboundOut],
];

/// The streams of a lane.
#[derive(Debug, Default)]
struct Streams {
    /// The packet that is going in.
    sending: Vec<u8>,
    /// Number of its bytes that have gone in.
    sent: usize,
    /// The packet that is coming out.
    coming: Vec<u8>,
    /// Number of packets that have gone in since the start.
    entered: u32,
    /// Number of packets that the core had counted when both numbers were last compared.
    counted: u32,
}

/// The simulated core as a device.
#[derive(Debug)]
pub struct Simulated {
    pins: Pins,
    inputs: Inputs,
    dma: Dma,
    streams: [Streams; 2],
    cycles: u64,
    quiet: u32,
}

impl Simulated {
    pub fn new() -> Result<Self, NotBuilt> {
        let mut simulated = Self {
            pins: Pins::new().ok_or(NotBuilt)?,
            inputs: Inputs::default(),
            dma: Dma::new(Memory::new(MEMORY_LEN)),
            streams: Default::default(),
            cycles: 0,
            quiet: 0,
        };
        simulated.inputs.reset = 1;
        for _ in 0..RESET_CYCLES {
            simulated.cycle();
        }
        simulated.inputs.reset = 0;
        Ok(simulated)
    }

    /// Number of clock cycles since the start.
    pub fn cycles(&self) -> u64 {
        self.cycles
    }

    /// Runs one clock cycle with all streams.
    fn cycle(&mut self) -> Outputs {
        for (lane, [to, from]) in PORTS.into_iter().enumerate() {
            let streams = &mut self.streams[lane];
            if streams.sent == streams.sending.len()
                && let Some(packet) = self.dma.take(to)
            {
                (streams.sending, streams.sent) = (packet, 0);
            }
            self.inputs.streams[lane] = beat(streams.sending.get(streams.sent..).unwrap_or(&[]));
            // A packet whose first beats have come has its buffer already.
            self.inputs.stream_ready[lane] = u8::from(self.dma.is_ready(from));
        }
        let outputs = self.pins.cycle(&self.inputs);
        self.cycles += 1;
        self.quiet += 1;
        for (lane, [_, from]) in PORTS.into_iter().enumerate() {
            let streams = &mut self.streams[lane];
            let input = &self.inputs.streams[lane];
            if input.valid & outputs.stream_ready[lane] == 1 {
                streams.sent += input.keep.count_ones() as usize;
                streams.entered = streams.entered.wrapping_add(input.last.into());
                self.quiet = 0;
            }
            let output = &outputs.streams[lane];
            if output.valid & self.inputs.stream_ready[lane] == 1 {
                let bytes = output.data.iter().flat_map(|word| word.to_le_bytes());
                streams
                    .coming
                    .extend(bytes.take(output.keep.count_ones() as usize));
                self.quiet = 0;
                if output.last == 1 {
                    self.dma.put(from, &streams.coming, output.user);
                    streams.coming.clear();
                }
            }
        }
        outputs
    }

    fn has_work(&self) -> bool {
        let inwards = |(streams, [to, _]): (&Streams, [Port; 2])| {
            streams.sent < streams.sending.len() || self.dma.is_ready(to)
        };
        self.quiet < QUIET_CYCLES || self.streams.iter().zip(PORTS).any(inwards)
    }

    /// Whether a lane has packets that have neither left nor been dropped. The core counts each packet once.
    fn holds_packets(&mut self) -> bool {
        let mut holds = false;
        for (lane, counters) in [regs::OUT_COUNTERS, regs::IN_COUNTERS]
            .into_iter()
            .enumerate()
        {
            if self.streams[lane].entered == self.streams[lane].counted {
                continue;
            }
            let words = (lane_counters::PACKETS..=lane_counters::DROP_NOT_PROTECTED).step_by(4);
            let counts = words.map(|word| self.read(counters + word).unwrap_or(0));
            let counted = counts.fold(0, u32::wrapping_add);
            self.streams[lane].counted = counted;
            holds |= self.streams[lane].entered != counted;
        }
        holds
    }
}

/// Returns the next beat of the rest of a packet.
fn beat(rest: &[u8]) -> Beat {
    let now = rest.get(..BEAT_LEN).unwrap_or(rest);
    let mut bytes = [0; BEAT_LEN];
    bytes[..now.len()].copy_from_slice(now);
    let mut data = [0; 4];
    for (word, bytes) in data.iter_mut().zip(bytes.chunks_exact(4)) {
        *word = u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
    }
    Beat {
        data,
        user: 0,
        keep: u16::MAX.checked_shr(16 - now.len() as u32).unwrap_or(0),
        valid: u8::from(!now.is_empty()),
        last: u8::from(now.len() == rest.len()),
    }
}

impl Device for Simulated {
    fn read(&mut self, address: u32) -> Result<u32, BusError> {
        if address >= ring::BASE {
            return self.dma.read(address).ok_or(BusError::Refused(address));
        }
        self.inputs.read_address = address;
        self.inputs.read_address_valid = 1;
        self.inputs.read_data_ready = 1;
        for _ in 0..ACCESS_CYCLES_MAX {
            let outputs = self.cycle();
            if outputs.read_address_ready == 1 {
                self.inputs.read_address_valid = 0;
            }
            if outputs.read_data_valid == 1 {
                self.inputs.read_data_ready = 0;
                let known = outputs.read_answer == OKAY;
                return known
                    .then_some(outputs.read_data)
                    .ok_or(BusError::Refused(address));
            }
        }
        self.inputs.read_address_valid = 0;
        Err(BusError::Silent(address))
    }

    fn write(&mut self, address: u32, value: u32) -> Result<(), BusError> {
        if address >= ring::BASE {
            return self
                .dma
                .write(address, value)
                .ok_or(BusError::Refused(address));
        }
        self.inputs.write_address = address;
        self.inputs.write_data = value;
        self.inputs.write_strobe = 15;
        self.inputs.write_address_valid = 1;
        self.inputs.write_data_valid = 1;
        self.inputs.write_answer_ready = 1;
        let mut result = Err(BusError::Silent(address));
        for _ in 0..ACCESS_CYCLES_MAX {
            let outputs = self.cycle();
            if outputs.write_address_ready == 1 {
                self.inputs.write_address_valid = 0;
            }
            if outputs.write_data_ready == 1 {
                self.inputs.write_data_valid = 0;
            }
            if outputs.write_answer_valid == 1 {
                let known = outputs.write_answer == OKAY;
                result = known.then_some(()).ok_or(BusError::Refused(address));
                break;
            }
        }
        self.inputs.write_address_valid = 0;
        self.inputs.write_data_valid = 0;
        self.inputs.write_answer_ready = 0;
        // The data may have been a part of a key, so it is erased.
        self.inputs.write_data = 0;
        result
    }

    fn memory(&self) -> Memory {
        self.dma.memory()
    }

    /// Runs until nothing is left inside.
    fn work(&mut self) {
        self.quiet = 0;
        let mut left = QUIET_MAX;
        for _ in 0..WORK_CYCLES_MAX {
            self.cycle();
            if self.has_work() {
                continue;
            }
            if left == 0 || !self.holds_packets() {
                return;
            }
            (left, self.quiet) = (left - 1, 0);
        }
    }
}
