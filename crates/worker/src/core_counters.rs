//! The counters of the FPGA core, by their names in the status.

use esplanade_engines::stats::{CoreCounters, LaneCounters};
use esplanade_fpga::{Lane, core};

/// Returns the counters of the core: outbound, inbound.
pub fn core_counters([outbound, inbound]: &[core::LaneCounters; 2]) -> CoreCounters {
    let lane = |counters: &core::LaneCounters, lane| LaneCounters {
        packets: counters.packets.into(),
        bytes: counters.bytes,
        drops: counters
            .reasons(lane)
            .map(|(reason, n)| (reason.into(), n.into()))
            .collect(),
    };
    CoreCounters {
        outbound: lane(outbound, Lane::Outbound),
        inbound: lane(inbound, Lane::Inbound),
    }
}
