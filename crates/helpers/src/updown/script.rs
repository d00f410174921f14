//! Runs one script.

use std::collections::BTreeMap;
use std::io::{self, PipeReader, Read};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::process::{Pid, Signal, kill_process_group};

use super::message::ScriptOutcome;

/// The time that a script has.
const TIME_MAX: Duration = Duration::from_secs(30);
/// Bytes of a script's output that are kept for the log.
const OUTPUT_MAX: usize = 1000;
/// The time that the output of a script that has ended may take to arrive.
const OUTPUT_LATE: Duration = Duration::from_millis(200);
/// The longest pause between two looks at a script.
const POLL: Duration = Duration::from_millis(5);
/// Bytes of output that are read at one look. A process that writes without end does not hold up the look.
const READ_MAX: usize = 1 << 20;

/// Runs one script. A shell reads it, as in strongSwan, so that it can have arguments. The values are in variables only:
/// the shell does not read what peers send.
pub(super) fn run(script: &str, environment: &BTreeMap<String, String>) -> (ScriptOutcome, String) {
    run_for(script, environment, TIME_MAX)
}

fn run_for(
    script: &str,
    environment: &BTreeMap<String, String>,
    time_max: Duration,
) -> (ScriptOutcome, String) {
    let started = start(script, environment);
    let not_started = |error: io::Error| ScriptOutcome::NotStarted(error.to_string());
    let (mut child, mut output) = match started {
        Ok(started) => started,
        Err(error) => return (not_started(error), String::new()),
    };
    let outcome = match wait(&mut child, &mut output, time_max) {
        Ok(Some(status)) => ended(status),
        Ok(None) => {
            let group = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
            if let Some(group) = group {
                let _ = kill_process_group(group, Signal::KILL);
            }
            let _ = child.wait();
            ScriptOutcome::TimedOut
        }
        Err(error) => not_started(error),
    };
    (outcome, output.take())
}

fn start(
    script: &str,
    environment: &BTreeMap<String, String>,
) -> io::Result<(Child, ScriptOutput)> {
    let (reader, writer) = io::pipe()?;
    fcntl_setfl(&reader, fcntl_getfl(&reader)? | OFlags::NONBLOCK)?;
    let child = Command::new("/bin/sh")
        .arg("-c")
        .arg(script)
        .envs(environment)
        .stdin(Stdio::null())
        .stdout(writer.try_clone()?)
        .stderr(writer)
        .process_group(0)
        .spawn()?;
    let output = ScriptOutput {
        pipe: Some(reader),
        beginning: Vec::new(),
    };
    Ok((child, output))
}

/// Returns `None` if the script takes longer than `time_max`.
fn wait(
    child: &mut Child,
    output: &mut ScriptOutput,
    time_max: Duration,
) -> io::Result<Option<ExitStatus>> {
    let end = Instant::now() + time_max;
    let mut pause = Duration::from_micros(500);
    loop {
        output.read();
        match child.try_wait()? {
            None if Instant::now() < end => std::thread::sleep(pause),
            status => return Ok(status),
        }
        pause = (pause * 2).min(POLL);
    }
}

fn ended(status: ExitStatus) -> ScriptOutcome {
    match (status.code(), status.signal()) {
        (Some(code), _) => ScriptOutcome::Exited(code),
        _ => ScriptOutcome::Killed,
    }
}

/// The output of a script. A process that the script leaves behind can keep the pipe open, so nobody waits for its end.
struct ScriptOutput {
    pipe: Option<PipeReader>,
    beginning: Vec<u8>,
}

impl ScriptOutput {
    /// Reads what is there. What is not kept is read too, so that the script does not stand still.
    fn read(&mut self) {
        let mut part = [0; 4096];
        let mut left = READ_MAX;
        while let Some(pipe) = &mut self.pipe
            && left > 0
        {
            match pipe.read(&mut part) {
                Ok(0) => self.pipe = None,
                Ok(read) => {
                    let room = OUTPUT_MAX - self.beginning.len();
                    self.beginning.extend_from_slice(&part[..read.min(room)]);
                    left = left.saturating_sub(read);
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(_) => self.pipe = None,
            }
        }
    }

    /// Waits a moment for the end of the output, and closes the pipe.
    fn take(mut self) -> String {
        let end = Instant::now() + OUTPUT_LATE;
        loop {
            self.read();
            if self.pipe.is_none() || Instant::now() >= end {
                return String::from_utf8_lossy(&self.beginning).into_owned();
            }
            std::thread::sleep(POLL);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome(script: &str) -> (ScriptOutcome, String) {
        let verb = ("PLUTO_VERB".to_owned(), "up-client; exit 9".to_owned());
        let environment = BTreeMap::from([verb]);
        run_for(script, &environment, Duration::from_millis(500))
    }

    #[test]
    fn scripts_end_in_every_way() {
        use ScriptOutcome::{Exited, Killed, TimedOut};
        let is = |script: &str, expected, output: &str| {
            assert_eq!(outcome(script), (expected, output.to_owned()), "{script}");
        };
        is("echo $PLUTO_VERB", Exited(0), "up-client; exit 9\n");
        is("echo no >&2; exit 3", Exited(3), "no\n");
        is("kill -9 $$", Killed, "");
        is("echo a; sleep 100", TimedOut, "a\n");
        is("sleep 100 & echo b", Exited(0), "b\n");
        assert_eq!(outcome("/no/such/script").0, Exited(127));
        let (ended, output) = outcome("yes | head -c 300000");
        assert_eq!((ended, output.len()), (Exited(0), OUTPUT_MAX));
        let (ended, output) = outcome("yes");
        assert_eq!((ended, output.len()), (TimedOut, OUTPUT_MAX));
    }

    /// A process that a script leaves behind keeps no descriptor here: nobody reads what it writes.
    #[test]
    fn the_output_of_a_process_that_is_left_behind_is_closed() {
        let folder = tempfile::tempdir().unwrap();
        let [go, told] = ["go", "told"].map(|name| folder.path().join(name));
        let (go_on, status) = (go.display(), told.display());
        let left = format!(
            "(trap '' PIPE; until test -e {go_on}; do sleep 0.01; done; echo late 2>/dev/null; echo $? > {status}) &"
        );
        assert_eq!(outcome(&left).0, ScriptOutcome::Exited(0));
        std::fs::write(&go, "").unwrap();
        let written = || std::fs::read_to_string(&told).unwrap_or_default();
        while !written().ends_with('\n') {
            std::thread::sleep(Duration::from_millis(1));
        }
        assert_ne!(written(), "0\n", "the pipe is open");
    }
}
