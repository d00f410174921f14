//! The runner: a process that runs updown scripts for the gateway.
//!
//! Gateway and runner share a socket. The gateway writes a `Registration` and then a `Request` at a time, the runner
//! answers each with a `Report`. All are JSON, a line each.

use std::collections::BTreeMap;
use std::io::{self, BufReader, PipeReader, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process_group};
use serde::{Deserialize, Serialize};

use crate::helper_process::{self, line, next_line};

/// The hidden command of `esplanade` that is the runner. Its socket is its standard input.
pub const COMMAND: &str = "updown-runner";
/// Bytes of a line. A request has the variables of one script.
pub(super) const LINE_MAX: usize = 1 << 20;
/// The time that a script has.
const TIME_MAX: Duration = Duration::from_secs(30);
/// Bytes of a script's output that are kept for the log.
const OUTPUT_MAX: usize = 1000;
/// The time that the output of a script that has ended may take to arrive.
const OUTPUT_LATE: Duration = Duration::from_millis(200);
const POLL: Duration = Duration::from_millis(5);

/// The scripts that may be run. The runner takes it once.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Registration {
    pub scripts: Vec<String>,
}

/// A script to run now.
#[derive(Debug, Serialize)]
pub(super) struct Request<'a> {
    pub script: &'a str,
    pub environment: &'a BTreeMap<&'static str, String>,
}

#[derive(Debug, Deserialize)]
struct ReceivedRequest {
    script: String,
    environment: BTreeMap<String, String>,
}

/// The end of a script.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Outcome {
    Exited(i32),
    Killed,
    TimedOut,
    NotStarted(String),
}

#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Report {
    pub outcome: Outcome,
    /// The beginning of standard output and standard error.
    pub output: String,
}

/// The gateway's end of the socket.
#[derive(Debug)]
pub struct Runner(UnixStream);

impl Runner {
    /// Starts the runner. It ends when this end of the socket is closed.
    pub fn spawn() -> io::Result<Self> {
        helper_process::spawn(COMMAND).map(Self)
    }

    pub(super) fn into_stream(self) -> io::Result<UnixStream> {
        self.0.set_nonblocking(true)?;
        Ok(self.0)
    }
}

/// Runs scripts until the gateway closes the socket. `socket` is the standard input.
pub fn serve(socket: OwnedFd) -> io::Result<()> {
    let mut writer = UnixStream::from(socket);
    let mut reader = BufReader::new(writer.try_clone()?);
    let Some(registration) = next_line(&mut reader, LINE_MAX)? else {
        return Ok(());
    };
    let Registration { scripts } = serde_json::from_slice(&registration)?;
    while let Some(text) = next_line(&mut reader, LINE_MAX)? {
        let request: ReceivedRequest = serde_json::from_slice(&text)?;
        let report = match scripts.contains(&request.script) {
            true => run(&request, TIME_MAX),
            false => Report {
                outcome: Outcome::NotStarted("it was not there when the gateway started".into()),
                output: String::new(),
            },
        };
        writer.write_all(&line(&report)?)?;
    }
    Ok(())
}

/// Runs one script. A shell reads it, as in strongSwan, so that it can have arguments. The values are in variables only:
/// the shell does not read what peers send.
fn run(request: &ReceivedRequest, time_max: Duration) -> Report {
    let started = start(request);
    let (mut child, output) = match started {
        Ok(started) => started,
        Err(error) => {
            return Report {
                outcome: Outcome::NotStarted(error.to_string()),
                output: String::new(),
            };
        }
    };
    let outcome = match wait(&mut child, time_max) {
        Ok(Some(status)) => ended(status),
        Ok(None) => {
            let group = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
            if let Some(group) = group {
                let _ = kill_process_group(group, Signal::KILL);
            }
            let _ = child.wait();
            Outcome::TimedOut
        }
        Err(error) => Outcome::NotStarted(error.to_string()),
    };
    Report {
        outcome,
        output: output.take(),
    }
}

fn start(request: &ReceivedRequest) -> io::Result<(Child, Output)> {
    let (reader, writer) = io::pipe()?;
    let child = Command::new("/bin/sh")
        .arg("-c")
        .arg(&request.script)
        .envs(&request.environment)
        .stdin(Stdio::null())
        .stdout(writer.try_clone()?)
        .stderr(writer)
        .process_group(0)
        .spawn()?;
    Ok((child, Output::collect(reader)))
}

/// Returns `None` if the script takes longer than `time_max`.
fn wait(child: &mut Child, time_max: Duration) -> io::Result<Option<ExitStatus>> {
    let end = Instant::now() + time_max;
    loop {
        match child.try_wait()? {
            None if Instant::now() < end => std::thread::sleep(POLL),
            status => return Ok(status),
        }
    }
}

fn ended(status: ExitStatus) -> Outcome {
    match (status.code(), status.signal()) {
        (Some(code), _) => Outcome::Exited(code),
        _ => Outcome::Killed,
    }
}

/// The output of a script. A thread collects it, because a process that the script leaves behind can keep the pipe open.
struct Output(Arc<Mutex<Collected>>);

#[derive(Default)]
struct Collected {
    bytes: Vec<u8>,
    ended: bool,
}

impl Output {
    fn collect(mut pipe: PipeReader) -> Self {
        let shared = Arc::new(Mutex::new(Collected::default()));
        let collected = Arc::clone(&shared);
        std::thread::spawn(move || {
            let mut part = [0; 1024];
            // The rest is read too, so that the script does not stand still.
            loop {
                let read = pipe.read(&mut part).unwrap_or(0);
                let mut collected = collected.lock().unwrap_or_else(PoisonError::into_inner);
                let room = OUTPUT_MAX - collected.bytes.len();
                collected.bytes.extend_from_slice(&part[..read.min(room)]);
                if read == 0 {
                    collected.ended = true;
                    return;
                }
            }
        });
        Self(shared)
    }

    fn take(self) -> String {
        let end = Instant::now() + OUTPUT_LATE;
        loop {
            let collected = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            if collected.ended || Instant::now() >= end {
                return String::from_utf8_lossy(&collected.bytes).into_owned();
            }
            drop(collected);
            std::thread::sleep(POLL);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(script: &str) -> ReceivedRequest {
        ReceivedRequest {
            script: script.to_owned(),
            environment: BTreeMap::from([(
                "PLUTO_VERB".to_owned(),
                "up-client; exit 9".to_owned(),
            )]),
        }
    }

    #[test]
    fn scripts_end_in_every_way() {
        let report = |script: &str| run(&request(script), Duration::from_millis(500));
        let is = |report: Report, outcome, output: &str| {
            assert_eq!((report.outcome, report.output.as_str()), (outcome, output));
        };
        is(
            report("echo $PLUTO_VERB"),
            Outcome::Exited(0),
            "up-client; exit 9\n",
        );
        is(report("echo no >&2; exit 3"), Outcome::Exited(3), "no\n");
        is(report("kill -9 $$"), Outcome::Killed, "");
        is(report("echo a; sleep 100"), Outcome::TimedOut, "a\n");
        is(report("sleep 100 & echo b"), Outcome::Exited(0), "b\n");
        let Outcome::Exited(127) = report("/no/such/script").outcome else {
            panic!("the shell says that there is none");
        };
        let long = report("yes | head -c 100000");
        assert_eq!(
            (long.outcome, long.output.len()),
            (Outcome::Exited(0), OUTPUT_MAX)
        );
    }

    #[test]
    fn only_registered_scripts_run() {
        let (mut gateway, runner) = UnixStream::pair().unwrap();
        let thread = std::thread::spawn(|| serve(runner.into()));
        let mut reader = BufReader::new(gateway.try_clone().unwrap());
        let mut ask = |line: &str| {
            gateway.write_all(line.as_bytes()).unwrap();
            let report = next_line(&mut reader, LINE_MAX).unwrap().unwrap();
            serde_json::from_slice::<Report>(&report).unwrap().outcome
        };
        let registration = "{\"scripts\": [\"true\"]}\n";
        let known = "{\"script\": \"true\", \"environment\": {}}\n";
        assert_eq!(ask(&format!("{registration}{known}")), Outcome::Exited(0));
        let other = ask("{\"script\": \"id\", \"environment\": {}}\n");
        assert!(matches!(other, Outcome::NotStarted(_)), "{other:?}");
        drop(gateway);
        drop(reader);
        thread.join().unwrap().unwrap();
    }
}
