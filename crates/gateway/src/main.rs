//! `esplanade`, the gateway's one program.

use std::process::ExitCode;

fn main() -> ExitCode {
    esplanade::cli::main()
}
