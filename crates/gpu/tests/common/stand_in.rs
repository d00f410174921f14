//! Runs tests in a process of their own, whose `libcuda.so.1` is a stand-in: `tests/stand_in/cuda.c` or its variants.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// Set in the process that the tests run in.
const INSIDE: &str = "CUDA_TRIAL";

/// Runs tests of this program over the stand-in with a fault that it knows. Fails unless they pass and `is_right` likes
/// what they and the stand-in print.
pub fn run(tests: &[&str], fault: &str, is_right: impl Fn(&str) -> bool) {
    let Some(folder) = library(fault) else { return };
    let mut folders = vec![folder];
    if let Some(others) = env::var_os("LD_LIBRARY_PATH") {
        folders.extend(env::split_paths(&others));
    }
    let output = Command::new(env::current_exe().unwrap())
        .args(tests)
        .args(["--exact", "--nocapture", "--test-threads=1"])
        .env("LD_LIBRARY_PATH", env::join_paths(folders).unwrap())
        .env("ESPLANADE_GPU", "CUDA: Stand-in 1")
        .env(INSIDE, fault)
        .output()
        .unwrap();
    let text = [&*output.stdout, &*output.stderr].map(String::from_utf8_lossy);
    let text = text.concat();
    let passed = output.status.success() && is_right(&text);
    assert!(passed, "{fault}: {}\n{text}", output.status);
}

/// Tells whether this is the process of a run with this fault.
pub fn is_inside(fault: &str) -> bool {
    env::var(INSIDE).is_ok_and(|inside| inside == fault)
}

/// Runs the body of a test in the stand-in's process. `left` says how many contexts are not freed.
pub fn inside(test: &str, fault: &str, left: u32, body: impl FnOnce()) {
    match is_inside(fault) {
        true => body(),
        false => run(&[test], fault, |text| {
            // Without a driver nobody counts.
            let counted = format!("stand-in: {left} contexts are left");
            text.contains("1 passed") && (text.contains(&counted) || fault == "no-library")
        }),
    }
}

/// Returns the folder of the library, or `None`, saying so, where there is no gcc.
fn library(fault: &str) -> Option<PathBuf> {
    static WHOLE: OnceLock<Option<PathBuf>> = OnceLock::new();
    match fault {
        "no-library" => {
            let folder = folder(fault);
            for name in ["libcuda.so.1", "libcuda.so"] {
                fs::write(folder.join(name), "this is no library").unwrap();
            }
            Some(folder)
        }
        // It has no kernels to run, so that they need not be fast.
        "old-driver" => compiled(fault, &["-O0", "-DOLD_DRIVER"]),
        _ => WHOLE.get_or_init(|| compiled("whole", &["-O2"])).clone(),
    }
}

fn folder(name: &str) -> PathBuf {
    let name = format!("stand-in-{}-{name}", std::process::id());
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    fs::create_dir_all(&folder).unwrap();
    folder
}

fn compiled(name: &str, options: &[&str]) -> Option<PathBuf> {
    let folder = folder(name);
    let crate_folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    let ptx = |macro_name: &str, file: &str| {
        let path = crate_folder.join("kernels").join(file);
        format!("-D{macro_name}=\"{}\"", path.display())
    };
    let sources = ["cuda.c", "kernels.c", "kernels_tables.c"];
    let compiler = Command::new("gcc")
        .args(["-std=gnu11", "-Wall", "-Wextra", "-Werror"])
        .args(["-shared", "-fPIC", "-pthread"])
        .args(options)
        .arg(ptx("PTX", "esp.ptx"))
        .arg(ptx("PTX_TABLES", "esp_tables.ptx"))
        .arg("-o")
        .arg(folder.join("libcuda.so.1"))
        .args(sources.map(|source| crate_folder.join("tests/stand_in").join(source)))
        .output();
    match compiler {
        Ok(output) => {
            let why = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success(), "{why}");
            Some(folder)
        }
        Err(error) => {
            println!("SKIP cuda: gcc: {error}");
            None
        }
    }
}
