//! With the feature `simulated` and with Verilator, compiles the simulated core from the Verilog. Without it the
//! crate is the driver alone.

use std::env;
use std::path::Path;

use esplanade_verilate::{Model, Simulation};

fn main() {
    println!("cargo::rustc-check-cfg=cfg(esp_core_simulated)");
    println!("cargo::rerun-if-changed=build.rs");
    if env::var_os("CARGO_FEATURE_SIMULATED").is_none() {
        return;
    }
    let rtl = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../rtl");
    let core = Model {
        class: "Vesp_core".to_owned(),
        top: "esp_core",
        // Enough HMAC units for all suites.
        parameters: vec!["HmacUnits=2".to_owned()],
    };
    let simulation = Simulation {
        name: "esp_core_simulated",
        models: vec![core],
        wrapper: "sim/esp_core.cpp",
    };
    if simulation.build(&rtl) {
        println!("cargo::rustc-cfg=esp_core_simulated");
        println!("cargo::metadata=simulated=1");
    }
}
