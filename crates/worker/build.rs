//! Leaves the engine `fpga` out where there is no core.

fn main() {
    println!("cargo::rustc-check-cfg=cfg(esp_core_simulated)");
    println!("cargo::rerun-if-changed=build.rs");
    if std::env::var_os("DEP_ESPLANADE_ESP_CORE_SIMULATED").is_some() {
        println!("cargo::rustc-cfg=esp_core_simulated");
    }
}
