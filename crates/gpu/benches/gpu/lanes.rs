//! Lane efficiency: the model's, and the device's.
//!
//! The device's is the time that the packets would take in full warps of equals, divided by the time that they take.
//! The first is computed from launches of equal packets: two lengths give the cost of a packet and of a turn of the
//! loop, for each kind.

use std::collections::HashMap;

use esplanade_crypto::{Batch, Direction};
use esplanade_gpu::model::{divergent_efficiency, lane_efficiency};
use esplanade_gpu::schedule::Schedule;
use esplanade_gpu::suite::{StageWork, Suite};
use esplanade_gpu::{Arrangement, DeviceError, Gpu};

use super::clock::Clock;
use super::rows::{Lengths, Row, batch, keys, room};
use super::{ARRANGEMENTS, Options};

/// The stages that are measured: cipher and MAC.
const MEASURED: usize = 2;
/// Launches of which the fastest counts.
const LAUNCHES: usize = 5;
const SHORT: usize = 128;
const LONG: usize = 1408;

/// The nanoseconds of a packet and of each of its turns, by stage, kind and argument.
type Costs = HashMap<(usize, u32, u32), (f64, f64)>;
type Stages = [Vec<(u32, StageWork)>; MEASURED];

fn stages(batch: &Batch, tables: bool) -> Stages {
    let mut stages = Stages::default();
    for (number, job) in (0..).zip(&batch.jobs) {
        let key = batch.keys.get(job.key).expect("a key");
        let suite = Suite::of(key.transform(), tables).expect("a suite");
        let words = suite.payload_words(job.len).expect("a packet");
        let cipher = suite.cipher(Direction::Seal, words).expect("a kernel");
        stages[0].push((number, cipher));
        stages[1].push((number, suite.mac(false, words)));
    }
    stages
}

/// Returns the time of each stage, of the fastest of several launches.
fn times(gpu: &mut Gpu, mut batch: Batch) -> Result<[f64; MEASURED], DeviceError> {
    let mut fastest = [f64::MAX; MEASURED];
    for _ in 0..LAUNCHES {
        let before = gpu.counters().stage_ns;
        batch = gpu.carry(vec![batch])?.remove(0);
        let after = gpu.counters().stage_ns;
        for (stage, fastest) in fastest.iter_mut().enumerate() {
            *fastest = fastest.min((after[stage] - before[stage]) as f64);
        }
    }
    Ok(fastest)
}

fn costs(gpu: &mut Gpu, row: &Row, packets: usize) -> Result<Costs, DeviceError> {
    let mut costs = Costs::new();
    for transforms in row.transforms.chunks(1) {
        let mut of_len = |len| {
            let row = Row {
                name: "",
                transforms,
                lengths: Lengths::Fixed(len),
            };
            let (batch, _) = batch(&row, &keys(&row), packets, gpu.arena(room(packets)));
            let work = stages(&batch, gpu.tables()).map(|stage| stage[0].1);
            Ok::<_, DeviceError>((work, times(gpu, batch)?))
        };
        let (short, long) = (of_len(SHORT)?, of_len(LONG)?);
        for stage in 0..MEASURED {
            let (work, more) = (short.0[stage], long.0[stage]);
            let each = |times: [f64; MEASURED]| times[stage] / packets as f64;
            let turns = f64::from(more.trip - work.trip);
            let turn = ((each(long.1) - each(short.1)) / turns).max(0.0);
            let packet = (each(short.1) - turn * f64::from(work.trip)).max(0.0);
            costs.insert((stage, work.kind as u32, work.argument), (packet, turn));
        }
    }
    Ok(costs)
}

/// Prints the lane efficiency of a row in each arrangement. The costs are measured once.
pub fn measure(
    options: &Options,
    clock: &mut Clock,
    gpu: &mut Gpu,
    row: &Row,
) -> Result<(), DeviceError> {
    let mut known = None;
    for (name, arrangement) in ARRANGEMENTS {
        clock.measure(&format!("lanes {} {name}", row.name), |_| {
            gpu.set_arrangement(Arrangement::Full);
            let costs = match known.take() {
                Some(costs) => costs,
                None => costs(gpu, row, options.packets)?,
            };
            gpu.set_arrangement(arrangement);
            in_arrangement(options, gpu, row, &costs, (name, arrangement))?;
            known = Some(costs);
            Ok(())
        })?;
    }
    Ok(())
}

/// Prints the lane efficiency of a row, for the cipher stage and for the MAC stage.
fn in_arrangement(
    options: &Options,
    gpu: &mut Gpu,
    row: &Row,
    costs: &Costs,
    (name, arrangement): (&str, Arrangement),
) -> Result<(), DeviceError> {
    let packets = options.packets;
    let (batch, _) = batch(row, &keys(row), packets, gpu.arena(room(packets)));
    let stages = stages(&batch, gpu.tables());
    let taken = times(gpu, batch)?;
    let model = stages
        .each_ref()
        .map(|work| lane_efficiency(&Schedule::new(arrangement, work), work, options.warp));
    let one_lane = stages
        .each_ref()
        .map(|work| divergent_efficiency(work, options.warp));
    let measured: Vec<f64> = (0..MEASURED)
        .map(|stage| {
            let needed = stages[stage].iter().map(|(_, work)| {
                let (packet, turn) = costs[&(stage, work.kind as u32, work.argument)];
                packet + turn * f64::from(work.trip)
            });
            needed.sum::<f64>() / taken[stage].max(1.0)
        })
        .collect();
    println!(
        "{{\"part\":\"lanes\",\"row\":\"{}\",\"tables\":{},\"arrangement\":\"{name}\",\"cipher\":{:.3},\"cipher_model\":{:.3},\
         \"mac\":{:.3},\"mac_model\":{:.3},\"cipher_one_lane_model\":{:.3},\"mac_one_lane_model\":{:.3}}}",
        row.name,
        gpu.tables(),
        measured[0],
        model[0],
        measured[1],
        model[1],
        one_lane[0],
        one_lane[1],
    );
    Ok(())
}
