//! With the feature `simulated` and with Verilator, compiles the lanes that a simulated fabric can have.

use std::env;
use std::path::Path;

use esplanade_verilate::{Model, Simulation};

/// The algorithms in the order of the module's parameter.
const ALGORITHMS: [&str; 5] = ["rijndael", "serpent", "twofish", "rc6", "mars"];

fn main() {
    println!("cargo::rustc-check-cfg=cfg(ace_lanes_simulated)");
    println!("cargo::rerun-if-changed=build.rs");
    if env::var_os("CARGO_FEATURE_SIMULATED").is_none() {
        return;
    }
    let rtl = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../rtl");
    let lane = |(number, algorithm): (usize, &&str)| Model {
        class: format!("Vace_lane_{algorithm}"),
        top: "ace_lane",
        parameters: vec![format!("Algorithm={number}")],
    };
    let simulation = Simulation {
        name: "ace_lanes_simulated",
        models: ALGORITHMS.iter().enumerate().map(lane).collect(),
        wrapper: "sim/ace_lane.cpp",
    };
    if simulation.build(&rtl) {
        println!("cargo::rustc-cfg=ace_lanes_simulated");
        println!("cargo::metadata=simulated=1");
    }
}
