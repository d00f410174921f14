//! Tests a worker with the simulated FPGA core in front of its software path.
//!
//! The tests need the simulated core, /dev/net/tun and the right to create network namespaces.
//! Without them, each test prints SKIP and passes.

#[cfg(esp_core_simulated)]
mod core;
#[cfg(esp_core_simulated)]
#[path = "../pair/mod.rs"]
mod pair;

#[cfg(esp_core_simulated)]
fn permitted(test: &str) -> bool {
    let missing = if !std::path::Path::new("/dev/net/tun").exists() {
        Some("there is no /dev/net/tun".to_owned())
    } else {
        let namespace = esplanade::io::netns::NetworkNamespace::create().err();
        namespace.map(|error| format!("no network namespace can be made: {error}"))
    };
    if let Some(reason) = &missing {
        eprintln!("SKIP {test}: {reason}");
    }
    missing.is_none()
}

#[cfg(not(esp_core_simulated))]
#[test]
fn the_core_is_not_part_of_this_build() {
    for test in ["fpga_both_ways", "fpga_fails", "fpga_stalls"] {
        eprintln!("SKIP {test}: {}", esplanade_fpga::simulated::NotBuilt);
    }
}
