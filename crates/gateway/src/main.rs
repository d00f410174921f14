//! The program `esplanade`. The command line is in the library.

use std::process::ExitCode;

fn main() -> ExitCode {
    esplanade::cli::main()
}
