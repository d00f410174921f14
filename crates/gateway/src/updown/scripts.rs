//! The gateway's side: which calls are due, and the connection to the runner.

use std::collections::{HashMap, VecDeque};
use std::io;
use std::path::Path;

use esplanade_ike::event::{ChildSaDeleted, ChildSaId};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::UnixStream;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};

use super::environment::{ChildFacts, Environment, SelectorPair, selector_pairs};
use super::runner::{LINE_MAX, Outcome, Registration, Report, Request, Runner};
use crate::helper_process::line;

/// Calls that can wait. A call that finds no place is lost, with a line in the log.
const WAITING_MAX: usize = 4096;

/// A call that waits, or that the runner has.
#[derive(Debug)]
struct ScriptCall {
    script: String,
    /// The child and the verb, for the log.
    subject: String,
    environment: Environment,
}

/// Calls updown scripts through the runner. Without a runner there are no calls.
#[derive(Debug, Default)]
pub struct UpdownScripts {
    connection: Option<Connection>,
    scripts: Vec<String>,
    /// The calls that child SAs were announced with. Their ends are announced with the same.
    up: HashMap<ChildSaId, (String, Vec<SelectorPair>)>,
    /// The number of SAs for each thing that scripts were told is up. A peer that authenticates again has two for a while.
    told: HashMap<(String, Environment), usize>,
    waiting: VecDeque<ScriptCall>,
    running: Option<ScriptCall>,
}

#[derive(Debug)]
struct Connection {
    reader: BufReader<OwnedReadHalf>,
    writer: OwnedWriteHalf,
    line: Vec<u8>,
}

impl UpdownScripts {
    /// Connects to the runner and tells it which scripts there are.
    pub async fn start(runner: Option<Runner>, scripts: Vec<String>) -> io::Result<Self> {
        let Some(runner) = runner else {
            return Ok(Self::default());
        };
        let stream = UnixStream::from_std(runner.into_stream()?)?;
        let (reader, mut writer) = stream.into_split();
        let registration = Registration { scripts };
        writer.write_all(&line(&registration)?).await?;
        Ok(Self {
            connection: Some(Connection {
                reader: BufReader::new(reader),
                writer,
                line: Vec::new(),
            }),
            scripts: registration.scripts,
            ..Self::default()
        })
    }

    /// Tells whether there is any script that could be called.
    pub fn has_scripts(&self) -> bool {
        !self.scripts.is_empty()
    }

    /// Tells whether a script was there when the gateway started. Only such scripts can be called.
    pub fn knows(&self, script: &str) -> bool {
        self.scripts.iter().any(|known| known == script)
    }

    /// Calls the child's script for an SA that has come up. Scripts do not hear of an SA that replaces another, or that
    /// stands beside one for the same traffic.
    pub fn installed(&mut self, facts: &ChildFacts<'_>) {
        let child = facts.sa.child;
        if let Some(former) = facts.sa.rekeyed_from {
            if let Some(announced) = self.up.remove(&former) {
                self.up.insert(child, announced);
            }
            return;
        }
        let Some(script) = &facts.policy.updown else {
            return;
        };
        let pairs = selector_pairs(facts);
        for pair in &pairs {
            let told = self.told.entry((script.clone(), pair.meaning()));
            let sas = told.or_default();
            *sas += 1;
            if *sas == 1 {
                self.queue(script, &facts.sa.name, pair, true);
            }
        }
        self.up.insert(child, (script.clone(), pairs));
    }

    /// Calls the child's script for an SA that has ended, if no other carries its traffic.
    pub fn deleted(&mut self, event: &ChildSaDeleted) {
        let Some((script, pairs)) = self.up.remove(&event.child) else {
            return;
        };
        for pair in &pairs {
            let told = (script.clone(), pair.meaning());
            let left = self.told.get_mut(&told).map(|sas| {
                *sas -= 1;
                *sas
            });
            if left == Some(0) {
                self.told.remove(&told);
                self.queue(&script, &event.name, pair, false);
            }
        }
    }

    fn queue(&mut self, script: &str, child: &str, pair: &SelectorPair, up: bool) {
        let environment = pair.call(up);
        let subject = format!("{child} {}", environment["PLUTO_VERB"]);
        if self.waiting.len() >= WAITING_MAX || self.connection.is_none() {
            tracing::error!(subject, "the updown script is not called");
            return;
        }
        self.waiting.push_back(ScriptCall {
            script: script.to_owned(),
            subject,
            environment,
        });
    }

    /// Tells whether calls are under way or wait.
    pub fn is_busy(&self) -> bool {
        self.running.is_some() || !self.waiting.is_empty()
    }

    /// Gives the runner the next call, and waits for the report about the one that it has. It is safe to cancel. Without a
    /// call it waits for ever.
    pub async fn proceed(&mut self) {
        let result = match &mut self.connection {
            None => std::future::pending().await,
            Some(connection) => {
                if self.running.is_none() {
                    self.running = self.waiting.pop_front();
                    if let Some(call) = &self.running {
                        connection.request(call).await
                    } else {
                        connection.closed().await
                    }
                } else {
                    connection.report().await.map(|report| {
                        if let Some(call) = self.running.take() {
                            log(&call, &report);
                        }
                    })
                }
            }
        };
        if let Err(error) = result {
            let lost = self.waiting.len() + usize::from(self.running.is_some());
            tracing::error!(lost, "updown scripts are not called any more: {error}");
            self.connection = None;
            self.waiting.clear();
            self.running = None;
        }
    }
}

impl Connection {
    async fn request(&mut self, call: &ScriptCall) -> io::Result<()> {
        let request = Request {
            script: &call.script,
            environment: &call.environment,
        };
        // The runner has read the former request, so this one fits into the socket's buffer, and is written at once.
        self.writer.write_all(&line(&request)?).await
    }

    /// Returns only if the runner has ended.
    async fn closed(&mut self) -> io::Result<()> {
        let mut byte = [0];
        match self.reader.read(&mut byte).await? {
            0 => Err(io::ErrorKind::UnexpectedEof.into()),
            _ => Err(io::ErrorKind::InvalidData.into()),
        }
    }

    async fn report(&mut self) -> io::Result<Report> {
        loop {
            let room = LINE_MAX.saturating_sub(self.line.len()) as u64;
            let read = (&mut self.reader)
                .take(room)
                .read_until(b'\n', &mut self.line)
                .await?;
            if self.line.ends_with(b"\n") {
                let report = serde_json::from_slice(&self.line);
                self.line.clear();
                return Ok(report?);
            }
            if read == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
    }
}

fn log(call: &ScriptCall, report: &Report) {
    let ScriptCall {
        subject, script, ..
    } = call;
    let output = esplanade_ike::text::clean(report.output.trim_end());
    match &report.outcome {
        Outcome::Exited(0) => tracing::info!(subject, output, "updown script called"),
        Outcome::Exited(status) => {
            tracing::warn!(
                subject,
                script,
                output,
                "the updown script failed with status {status}"
            );
        }
        Outcome::Killed => {
            tracing::warn!(subject, script, output, "a signal ended the updown script")
        }
        Outcome::TimedOut => {
            tracing::warn!(
                subject,
                script,
                output,
                "the updown script took too long and was ended"
            );
        }
        Outcome::NotStarted(error) => {
            tracing::error!(
                subject,
                script,
                "the updown script cannot be started: {error}"
            );
        }
    }
}

/// Returns the runner, if the configuration at `path` names an updown script. Call it while the process can still run
/// programs.
pub fn runner_if_needed(path: &Path) -> io::Result<Option<Runner>> {
    match crate::config::names_key(path, "updown") {
        true => Runner::spawn().map(Some),
        false => Ok(None),
    }
}
