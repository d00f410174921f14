//! Programs that a test writes or runs.

use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};

/// Writes `text` into `file` and lets everybody run it.
///
/// A process of its own writes the file. If this process had it open, another test that starts a program at that moment
/// would pass the descriptor on to its child, and the kernel refuses to run a file that somebody can write.
///
/// # Panics
/// Panics if the file cannot be written.
pub fn write(file: &Path, text: &str) {
    let mut install = Command::new("install");
    run_with(
        install.args(["-D", "-m", "755", "/dev/stdin"]).arg(file),
        text,
    );
}

/// Runs a command to its end with `input` as its standard input.
///
/// # Panics
/// Panics if the command does not start, does not read its input, or fails.
pub fn run_with(command: &mut Command, input: &str) {
    let mut child = command.stdin(Stdio::piped()).spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    stdin.write_all(input.as_bytes()).unwrap();
    drop(stdin);
    assert!(child.wait().unwrap().success(), "{command:?}");
}

#[cfg(test)]
mod tests {
    use std::process::Command;
    use std::thread;

    use super::write;

    #[test]
    fn a_program_runs_while_others_are_written_and_started() {
        let folder = tempfile::tempdir().unwrap();
        let run_some = |thread: usize| {
            for at in 0..100 {
                let file = folder.path().join(format!("{thread}-{at}"));
                write(&file, "#!/bin/sh\nexit 7\n");
                assert_eq!(Command::new(&file).status().unwrap().code(), Some(7));
            }
        };
        thread::scope(|threads| {
            for thread in 0..4 {
                threads.spawn(move || run_some(thread));
            }
        });
    }
}
