//! Runs the program as a user does.

use std::process::{Command, Output};

pub fn esplanade(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_esplanade"))
        .args(arguments)
        .env_remove("NO_COLOR")
        .output()
        .unwrap()
}

pub fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}
