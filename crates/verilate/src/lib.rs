//! For build scripts: compiles modules of `rtl/` by Verilator into simulations that a crate links.

use std::env;
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A module with its parameters, as one C++ class.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Model {
    /// The name of the class and of its header.
    pub class: String,
    /// The module.
    pub top: &'static str,
    /// Parameters of the module, such as `HmacUnits=2`.
    pub parameters: Vec<String>,
}

/// A library of models, with C functions in front of them.
#[derive(Debug)]
pub struct Simulation {
    /// The name of the library.
    pub name: &'static str,
    /// The models.
    pub models: Vec<Model>,
    /// The file with the C functions.
    pub wrapper: &'static str,
}

impl Simulation {
    /// Compiles the models and has Cargo link them. Returns false, with a warning of Cargo where something fails, if there is
    /// no Verilator in `rtl/.venv`. `rtl` is the folder whose file `folders` names those of the modules.
    pub fn build(&self, rtl: &Path) -> bool {
        println!("cargo::rerun-if-changed={}", self.wrapper);
        println!("cargo::rerun-if-changed={}", rtl.join(".venv").display());
        let Some(root) = verilator_root(rtl) else {
            return false;
        };
        println!("cargo::rerun-if-changed={}", rtl.join("folders").display());
        let modules = match Modules::find(rtl) {
            Ok(modules) => modules,
            Err(why) => {
                println!("cargo::error={why}");
                return false;
            }
        };
        for module in &modules.files {
            println!("cargo::rerun-if-changed={}", module.display());
        }
        let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets it"));
        let mut folders = Vec::new();
        for model in &self.models {
            let folder = out.join(&model.class);
            if let Err(why) = model.verilate(rtl, &root, &folder, &modules) {
                println!("cargo::warning=no simulation {}: {why}", model.class);
                return false;
            }
            folders.push(folder);
        }
        // Clippy does not link and has a separate build.
        if !wrapped_by_clippy() {
            self.compile(&root, &folders);
        }
        true
    }

    fn compile(&self, root: &Path, folders: &[PathBuf]) {
        let include = root.join("include");
        let build = |optimised| {
            let mut build = cc::Build::new();
            build
                .cpp(true)
                .std("gnu++17")
                .opt_level(optimised)
                .debug(false)
                .warnings(false)
                .includes(folders)
                .include(&include)
                .include(include.join("vltstd"));
            for name in ["VM_COVERAGE", "VM_SC", "VM_TRACE", "VM_TIMING"] {
                build.define(name, "0");
            }
            build
        };
        // Code that runs once is not worth the time to optimise it.
        let is_slow = |file: &PathBuf| file.to_string_lossy().ends_with("__Slow.cpp");
        let made = folders
            .iter()
            .flat_map(|folder| with_extension(folder, "cpp"));
        let (slow, fast): (Vec<_>, Vec<_>) = made.partition(is_slow);
        let slow = build(0).files(slow).compile_intermediates();
        build(1)
            .files(fast)
            .file(include.join("verilated.cpp"))
            .file(include.join("verilated_threads.cpp"))
            .file(self.wrapper)
            .objects(slow)
            .compile(self.name);
    }
}

/// The modules and packages, and the folders in which Verilator looks for a module by its name.
#[derive(Debug)]
pub struct Modules {
    folders: Vec<PathBuf>,
    files: Vec<PathBuf>,
}

impl Modules {
    /// Finds the modules in the folders that the file `folders` in `rtl` names. Refuses two files of one name: Verilator would
    /// take the first.
    pub fn find(rtl: &Path) -> Result<Self, String> {
        let list = rtl.join("folders");
        let names = fs::read_to_string(&list);
        let names = names.map_err(|why| format!("{}: {why}", list.display()))?;
        let folders: Vec<_> = names.lines().map(|name| rtl.join(name)).collect();
        let mut files: Vec<PathBuf> = Vec::new();
        for file in folders.iter().flat_map(|path| with_extension(path, "sv")) {
            let is_same = |other: &&PathBuf| other.file_name() == file.file_name();
            if let Some(other) = files.iter().find(is_same) {
                let (file, other) = (file.display(), other.display());
                return Err(format!("{file} has the name of {other}"));
            }
            files.push(file);
        }
        Ok(Self { folders, files })
    }

    /// Returns the file of a module or package.
    pub fn file(&self, module: &str) -> Result<&Path, String> {
        let is_it = |file: &&PathBuf| file.file_stem() == Some(OsStr::new(module));
        let found = self.files.iter().find(is_it);
        let found = found.ok_or_else(|| format!("there is no module {module}"))?;
        Ok(found)
    }
}

impl Model {
    fn verilate(
        &self,
        rtl: &Path,
        root: &Path,
        out: &Path,
        modules: &Modules,
    ) -> Result<(), String> {
        let top = modules.file(self.top)?;
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
            .args(["--top-module", self.top, "--prefix", &self.class])
            .args(
                self.parameters
                    .iter()
                    .map(|parameter| format!("-G{parameter}")),
            )
            .args(["-Wno-fatal", "+libext+.sv"])
            .args(
                modules
                    .folders
                    .iter()
                    .flat_map(|folder| [OsStr::new("-y"), folder.as_os_str()]),
            )
            .arg("--Mdir")
            .arg(out)
            .arg(rtl.join("lint/waivers.vlt"))
            .args(modules.files.iter().filter(is_package))
            .arg(top)
            .output();
        let run = run.map_err(|error| error.to_string())?;
        if run.status.success() {
            return Ok(());
        }
        let errors = String::from_utf8_lossy(&run.stderr);
        let first = errors.lines().find(|line| line.starts_with("%Error"));
        Err(first.unwrap_or("Verilator failed").to_owned())
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
