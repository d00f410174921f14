//! Modules are found by name in the folders of `rtl/`.

use std::path::{Path, PathBuf};
use std::{env, fs, process};

use esplanade_verilate::Modules;

#[test]
fn a_module_is_found_by_its_name() {
    let rtl = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../rtl");
    let modules = Modules::find(&rtl).expect("every module has a name of its own");
    for (name, file) in [
        ("esp_core", "esp/esp_core.sv"),
        ("ace_lane", "ace/ace_lane.sv"),
        ("esp_pkg", "common/esp_pkg.sv"),
    ] {
        assert_eq!(modules.file(name), Ok(rtl.join(file).as_path()));
    }
    assert!(modules.file("esp_nothing").is_err());
}

/// A folder of the test alone, removed when it ends.
struct Folder(PathBuf);

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[test]
fn two_files_of_one_name_are_refused() {
    let rtl = Folder(env::temp_dir().join(format!("modules-{}", process::id())));
    for file in ["one/a.sv", "two/b.sv", "two/a.sv", "two/a.py"] {
        let file = rtl.0.join(file);
        fs::create_dir_all(file.parent().expect("it is in a folder")).expect("a folder");
        fs::write(file, "").expect("a file");
    }
    let find = |folders: &str| {
        fs::write(rtl.0.join("folders"), folders).expect("a file");
        Modules::find(&rtl.0)
    };
    let two = find("two\n").expect("each name once");
    assert_eq!(two.file("a"), Ok(rtl.0.join("two/a.sv").as_path()));
    let why = find("one\ntwo\n").expect_err("a is in both");
    assert!(why.ends_with(&format!(
        "has the name of {}",
        rtl.0.join("one/a.sv").display()
    )));
}
