//! Gives tests the simulated core, if this build has it.

use esplanade_fpga::simulated::Simulated;

/// Returns the simulated core. If this build has none, prints a SKIP line and returns None.
pub fn simulated(test: &str) -> Option<Simulated> {
    let device = Simulated::new();
    if let Err(why) = &device {
        println!("SKIP fpga_{test}: {why}");
    }
    device.ok()
}
