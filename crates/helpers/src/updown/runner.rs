//! The runner: a process that runs updown scripts for the gateway.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixDatagram;
use std::sync::Arc;
use std::thread::{Builder, JoinHandle};

use super::message::{RunnerReport, RunnerRequest, ScriptOutcome, ScriptRequest, receive, send};
use super::{environment, script};

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
        } else if let Err(why) = environment::check(&request.environment) {
            why
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
    use super::*;
    use esplanade_host::helper_process::packet_pair;

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
            self.ask_with(id, script, &[]);
        }

        fn ask_with(&self, id: u64, script: &str, variables: &[(&str, &str)]) {
            let owned = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
            let environment = variables.iter().map(owned).collect();
            let script = script.to_owned();
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

    /// A gateway that was taken over tries to run a program of its own with the runner's rights.
    #[test]
    fn the_gateway_does_not_choose_what_a_script_runs() {
        let folder = tempfile::tempdir().unwrap();
        let [program, ran] = ["inform-the-site", "ran"].map(|name| folder.path().join(name));
        let text = format!("#!/bin/sh\ntouch {}\n", ran.display());
        esplanade_testkit::program::write(&program, &text);
        let folder = folder.path().display().to_string();
        let function = format!("() {{ {}; }}", program.display());
        let script = "inform-the-site || test $PLUTO_VERB = up-host";
        let runner = runner(&[script]);
        send(&runner.gateway, &RunnerRequest::Begin).unwrap();
        let verb = ("PLUTO_VERB", "up-host");
        for hostile in [
            ("PATH", &*folder),
            ("BASH_FUNC_inform-the-site%%", &function),
            ("LD_PRELOAD", &folder),
            ("ENV", &folder),
            ("PLUTO_ME", "a\nb"),
        ] {
            runner.ask_with(1, script, &[verb, hostile]);
            let (_, outcome) = runner.ended();
            let ScriptOutcome::NotStarted(why) = outcome else {
                panic!("{hostile:?}: {outcome:?}");
            };
            assert!(why.contains(hostile.0), "{why}");
        }
        assert!(!ran.exists());
        runner.ask_with(2, script, &[verb]);
        assert_eq!(runner.ended(), (2, ScriptOutcome::Exited(0)));
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
