//! A lane with its clock and its two streams.

use super::pins::{Inputs, Pins};
use crate::algorithm::Algorithm;
use crate::fabric::FabricError;
use crate::lane::Frames;
use zeroize::Zeroizing;

const RESET_CYCLES: u32 = 8;
/// The most cycles that a lane takes to forget what it has.
const WIPE_CYCLES_MAX: u32 = 10_000;
/// A lane that gives and takes nothing for so long does not answer. The longest packet is hashed in fewer.
const QUIET_CYCLES: u32 = 20_000;

#[derive(Debug)]
pub(super) struct RunningLane {
    pins: Pins,
    inputs: Inputs,
}

impl RunningLane {
    pub fn new(algorithm: Algorithm) -> Result<Self, FabricError> {
        let absent = || FabricError::Absent("the simulation has no such lane".to_owned());
        let mut lane = Self {
            pins: Pins::new(algorithm).ok_or_else(absent)?,
            inputs: Inputs::default(),
        };
        lane.inputs.reset = 1;
        lane.run(RESET_CYCLES);
        lane.inputs.reset = 0;
        lane.rest()?;
        Ok(lane)
    }

    fn run(&mut self, cycles: u32) {
        for _ in 0..cycles {
            self.pins.cycle(&self.inputs);
        }
    }

    /// Waits until the lane has forgotten what it had.
    fn rest(&mut self) -> Result<(), FabricError> {
        let mut cycles = 0..WIPE_CYCLES_MAX;
        let rests = cycles.any(|_| self.pins.cycle(&self.inputs).busy == 0);
        if rests {
            Ok(())
        } else {
            Err(FabricError::Hung)
        }
    }

    pub fn wipe(&mut self) -> Result<(), FabricError> {
        self.inputs = Inputs {
            wipe: 1,
            ..Inputs::default()
        };
        self.run(1);
        self.inputs.wipe = 0;
        self.rest()
    }

    pub fn exchange(
        &mut self,
        frames: &Frames,
        packets: usize,
        answers: &mut Frames,
    ) -> Result<(), FabricError> {
        let words = frames.iter().flat_map(|frame| {
            let last = frame.len() - 1;
            frame
                .iter()
                .enumerate()
                .map(move |(at, word)| (*word, at == last))
        });
        let mut words = words.peekable();
        let mut answer = Zeroizing::new(Vec::with_capacity(1024));
        let (mut quiet, mut answered) = (0, 0);
        self.inputs.ready = 1;
        while answered < packets || words.peek().is_some() {
            let offered = words.peek().copied();
            self.inputs.valid = offered.is_some().into();
            (self.inputs.data, self.inputs.last) =
                offered.map_or((0, 0), |(word, last)| (word, last.into()));
            let outputs = self.pins.cycle(&self.inputs);
            quiet += 1;
            if outputs.ready == 1 && words.next_if(|_| true).is_some() {
                quiet = 0;
            }
            if outputs.valid == 1 {
                quiet = 0;
                // A longer answer is none: the lane has lost itself.
                if answer.len() == answer.capacity() {
                    return Err(FabricError::Hung);
                }
                answer.push(outputs.data);
                if outputs.last == 1 {
                    answered += 1;
                    if !answers.push(&answer) {
                        return Err(FabricError::Hung);
                    }
                    answer.clear();
                }
            }
            if quiet > QUIET_CYCLES {
                return Err(FabricError::Hung);
            }
        }
        self.inputs = Inputs::default();
        Ok(())
    }
}
