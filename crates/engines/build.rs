//! Leaves the engine `ace` out where there are no lanes.

fn main() {
    println!("cargo::rustc-check-cfg=cfg(ace_lanes_simulated)");
    println!("cargo::rerun-if-changed=build.rs");
    if std::env::var_os("DEP_ESPLANADE_ACE_LANES_SIMULATED").is_some() {
        println!("cargo::rustc-cfg=ace_lanes_simulated");
    }
}
