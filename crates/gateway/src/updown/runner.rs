//! The runner: a process that runs updown scripts for the gateway.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixDatagram;
use std::sync::Arc;
use std::thread::{Builder, JoinHandle};

use super::message::{RunnerReport, RunnerRequest, ScriptOutcome, ScriptRequest, receive, send};
use super::script;

/// The hidden command of `esplanade` that is the runner.
pub const COMMAND: &str = "updown-runner";
/// Most scripts that run at a time. The gateway asks for fewer.
const SCRIPTS_MAX: usize = 16;

/// Runs scripts until the gateway closes the socket, which is the standard output. The standard input lists the scripts
/// that may be run.
pub fn serve(scripts: OwnedFd) -> io::Result<()> {
    let scripts: Vec<String> = serde_json::from_reader(File::from(scripts))?;
    let socket = io::stdout().as_fd().try_clone_to_owned()?;
    serve_on(&scripts, &Arc::new(socket.into()))
}

fn serve_on(scripts: &[String], socket: &Arc<UnixDatagram>) -> io::Result<()> {
    send(socket, &RunnerReport::Started)?;
    let mut has_begun = false;
    let mut running: Vec<JoinHandle<()>> = Vec::new();
    while let Some(request) = receive(socket)? {
        let request = match request {
            RunnerRequest::Begin => {
                has_begun = true;
                continue;
            }
            RunnerRequest::Call(_) if !has_begun => continue,
            RunnerRequest::Call(request) => request,
        };
        running.retain(|script| !script.is_finished());
        let id = request.id;
        let why = if !scripts.contains(&request.script) {
            "it was not there when the gateway started".to_owned()
        } else if running.len() >= SCRIPTS_MAX {
            "too many scripts run".to_owned()
        } else {
            match start(request, socket) {
                Ok(script) => {
                    running.push(script);
                    continue;
                }
                Err(error) => error.to_string(),
            }
        };
        let outcome = ScriptOutcome::NotStarted(why);
        let output = String::new();
        send(
            socket,
            &RunnerReport::Ended {
                id,
                outcome,
                output,
            },
        )?;
    }
    // The scripts that run have their time.
    for script in running {
        let _ = script.join();
    }
    Ok(())
}

fn start(request: ScriptRequest, socket: &Arc<UnixDatagram>) -> io::Result<JoinHandle<()>> {
    let socket = Arc::clone(socket);
    Builder::new().name("script".to_owned()).spawn(move || {
        let (outcome, output) = script::run(&request.script, &request.environment);
        let id = request.id;
        // The gateway may have ended.
        let _ = send(
            &socket,
            &RunnerReport::Ended {
                id,
                outcome,
                output,
            },
        );
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::helper_process::packet_pair;

    struct TestRunner {
        gateway: UnixDatagram,
        thread: JoinHandle<io::Result<()>>,
    }

    fn runner(scripts: &[&str]) -> TestRunner {
        let (gateway, socket) = packet_pair::<UnixDatagram>().unwrap();
        let scripts: Vec<_> = scripts.iter().map(|&script| script.to_owned()).collect();
        let thread = std::thread::spawn(move || serve_on(&scripts, &Arc::new(socket)));
        let runner = TestRunner { gateway, thread };
        assert_eq!(runner.report(), RunnerReport::Started);
        runner
    }

    impl TestRunner {
        fn ask(&self, id: u64, script: &str) {
            let (script, environment) = (script.to_owned(), BTreeMap::new());
            let request = ScriptRequest {
                id,
                script,
                environment,
            };
            send(&self.gateway, &RunnerRequest::Call(request)).unwrap();
        }

        fn report(&self) -> RunnerReport {
            receive(&self.gateway).unwrap().unwrap()
        }

        fn ended(&self) -> (u64, ScriptOutcome) {
            match self.report() {
                RunnerReport::Ended { id, outcome, .. } => (id, outcome),
                other => panic!("{other:?}"),
            }
        }
    }

    #[test]
    fn only_registered_scripts_run() {
        let runner = runner(&["true"]);
        // A request to an earlier runner is left out.
        runner.ask(1, "true");
        send(&runner.gateway, &RunnerRequest::Begin).unwrap();
        runner.ask(2, "true");
        assert_eq!(runner.ended(), (2, ScriptOutcome::Exited(0)));
        runner.ask(3, "id");
        let (id, outcome) = runner.ended();
        assert!(
            matches!(outcome, ScriptOutcome::NotStarted(_)),
            "{outcome:?}"
        );
        assert_eq!(id, 3);
        drop(runner.gateway);
        runner.thread.join().unwrap().unwrap();
    }

    /// The first script waits for the second.
    #[test]
    fn scripts_run_beside_each_other() {
        let folder = tempfile::tempdir().unwrap();
        let fifo = folder.path().join("fifo").display().to_string();
        let waits = format!("mkfifo {fifo}; read line < {fifo}");
        let goes_on = format!("until test -p {fifo}; do sleep 0.01; done; echo > {fifo}");
        let runner = runner(&[&waits, &goes_on]);
        send(&runner.gateway, &RunnerRequest::Begin).unwrap();
        runner.ask(1, &waits);
        runner.ask(2, &goes_on);
        let mut ended = [runner.ended(), runner.ended()];
        ended.sort_by_key(|(id, _)| *id);
        let well = ScriptOutcome::Exited(0);
        assert!(
            ended.iter().all(|(_, outcome)| *outcome == well),
            "{ended:?}"
        );
    }
}
