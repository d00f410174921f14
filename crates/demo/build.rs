//! Tells the program how far it is optimised: the demo says so beside its figures.

fn main() {
    let level = std::env::var("OPT_LEVEL").expect("cargo sets OPT_LEVEL");
    println!("cargo::rustc-env=ESPLANADE_OPT_LEVEL={level}");
    println!("cargo::rerun-if-changed=build.rs");
}
