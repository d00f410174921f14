//! With the feature `simulated` and with Verilator, compiles the simulated core from the Verilog. Without it the
//! crate is the driver alone.

use std::env;
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

const TOP: &str = "esp_core";
/// Builds the core with enough HMAC units for all suites.
const HMAC_UNITS: &str = "-GHmacUnits=2";

fn main() {
    println!("cargo::rustc-check-cfg=cfg(esp_core_simulated)");
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed=sim/esp_core.cpp");
    if env::var_os("CARGO_FEATURE_SIMULATED").is_none() {
        return;
    }
    let rtl = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../rtl");
    println!("cargo::rerun-if-changed={}", rtl.join(".venv").display());
    let modules = with_extension(&rtl, "sv");
    for module in &modules {
        println!("cargo::rerun-if-changed={}", module.display());
    }
    let has_top = modules
        .iter()
        .any(|file| file.file_stem() == Some(OsStr::new(TOP)));
    let Some(root) = verilator_root(&rtl).filter(|_| has_top) else {
        return;
    };
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets it")).join("verilated");
    match verilate(&rtl, &root, &out, &modules) {
        Ok(()) => {
            // Clippy does not link and has a separate build.
            if !wrapped_by_clippy() {
                compile(&root, &out);
            }
            println!("cargo::rustc-cfg=esp_core_simulated");
        }
        Err(why) => println!("cargo::warning=no simulated core: {why}"),
    }
}

fn wrapped_by_clippy() -> bool {
    let wrapper = env::var_os("RUSTC_WORKSPACE_WRAPPER").unwrap_or_default();
    wrapper.to_string_lossy().contains("clippy")
}

/// The Verilator directory of the Python environment.
fn verilator_root(rtl: &Path) -> Option<PathBuf> {
    let mut versions = fs::read_dir(rtl.join(".venv/lib")).ok()?.flatten();
    versions.find_map(|version| {
        let root = version.path().join("site-packages/verilator");
        root.join("bin/verilator_bin").exists().then_some(root)
    })
}

/// Lists files in sorted order, so that the same files make the same program.
fn with_extension(directory: &Path, extension: &str) -> Vec<PathBuf> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let mut files: Vec<_> = entries
        .map(|entry| entry.path())
        .filter(|path| path.extension() == Some(OsStr::new(extension)))
        .collect();
    files.sort();
    files
}

fn verilate(rtl: &Path, root: &Path, out: &Path, modules: &[PathBuf]) -> Result<(), String> {
    let is_package = |file: &&PathBuf| file.to_string_lossy().ends_with("_pkg.sv");
    let run = Command::new(root.join("bin/verilator_bin"))
        .env("VERILATOR_ROOT", root)
        .args([
            "--cc",
            "-O3",
            "--x-assign",
            "unique",
            "--x-initial",
            "unique",
        ])
        .args(["--top-module", TOP, HMAC_UNITS, "-Wno-fatal", "-y"])
        .arg(rtl)
        .arg("+libext+.sv")
        .arg("--Mdir")
        .arg(out)
        .arg(rtl.join("lint/waivers.vlt"))
        .args(modules.iter().filter(is_package))
        .arg(rtl.join(format!("{TOP}.sv")))
        .output();
    let run = run.map_err(|error| error.to_string())?;
    if run.status.success() {
        return Ok(());
    }
    let errors = String::from_utf8_lossy(&run.stderr);
    let first = errors.lines().find(|line| line.starts_with("%Error"));
    Err(first.unwrap_or("Verilator failed").to_owned())
}

fn compile(root: &Path, out: &Path) {
    let include = root.join("include");
    let build = |optimised| {
        let mut build = cc::Build::new();
        build
            .cpp(true)
            .std("gnu++17")
            .opt_level(optimised)
            .debug(false)
            .warnings(false)
            .include(out)
            .include(&include)
            .include(include.join("vltstd"));
        for name in ["VM_COVERAGE", "VM_SC", "VM_TRACE", "VM_TIMING"] {
            build.define(name, "0");
        }
        build
    };
    // Code that runs once is not worth the time to optimise it.
    let is_slow = |file: &PathBuf| file.to_string_lossy().ends_with("__Slow.cpp");
    let (slow, fast): (Vec<_>, Vec<_>) = with_extension(out, "cpp").into_iter().partition(is_slow);
    let slow = build(0).files(slow).compile_intermediates();
    build(1)
        .files(fast)
        .file(include.join("verilated.cpp"))
        .file(include.join("verilated_threads.cpp"))
        .file("sim/esp_core.cpp")
        .objects(slow)
        .compile("esp_core_simulated");
}
