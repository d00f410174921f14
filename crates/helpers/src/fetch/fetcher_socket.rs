//! The gateway's end of the socket to the fetcher: requests go out, reports come in.

use std::collections::HashMap;
use std::io;
use std::net::IpAddr;
use std::os::unix::net::UnixStream;
use std::sync::Arc;

use esplanade_host::confine;
use esplanade_host::helper_process;
use esplanade_pki::{Crl, OcspAnswer};
use socket2::SockRef;
use tokio::sync::mpsc;

use super::keeper;
use super::message::{FetchFailure, FetchTask, LINE_MAX, Packet, Report, ReportKind, Request};

/// Reports that wait for the control thread. The fetcher waits while there are more.
const REPORTS_MAX: usize = 64;
/// Bytes of reports that have not come as a whole.
const PARTS_LEN_MAX: usize = 256 << 20;

/// The content that a report brings.
#[derive(Debug)]
pub enum FetchContent {
    Crls(Vec<Arc<Crl>>),
    Answer(Arc<OcspAnswer>),
    Addresses(Vec<IpAddr>),
}

/// A message of the fetcher.
#[derive(Debug)]
pub enum FetchReport {
    Outcome(FetchOutcome),
    /// The fetcher has started again, so that all requests have come to nothing.
    Restarted,
}

/// The outcome of a request.
#[derive(Debug)]
pub struct FetchOutcome {
    pub(super) id: u64,
    pub(super) content: Result<FetchContent, FetchFailure>,
}

/// The connection to the fetcher, if there is one.
#[derive(Debug, Default)]
pub struct FetcherSocket {
    ends: Option<Ends>,
    last_id: u64,
}

#[derive(Debug)]
struct Ends {
    writer: UnixStream,
    reports: mpsc::Receiver<FetchReport>,
}

impl FetcherSocket {
    /// Starts the fetcher. Call it while the process can still run programs.
    pub fn start() -> io::Result<Self> {
        Self::connect(helper_process::spawn_for_packets(keeper::COMMAND)?)
    }

    pub(super) fn connect(writer: UnixStream) -> io::Result<Self> {
        let reader = writer.try_clone()?;
        let (to_daemon, reports) = mpsc::channel(REPORTS_MAX);
        // Content that takes long to parse holds up none of another kind.
        let crls = start_parser("fetched-crls", to_daemon.clone())?;
        let answers = start_parser("fetched-ocsp", to_daemon.clone())?;
        let readers = Readers {
            started: false,
            parts: HashMap::new(),
            crls,
            answers,
            to_daemon,
        };
        confine::start_writing("fetched".to_owned(), move || readers.read(&reader))?;
        Ok(Self {
            ends: Some(Ends { writer, reports }),
            last_id: 0,
        })
    }

    pub fn is_running(&self) -> bool {
        self.ends.is_some()
    }

    /// Sends a request. Returns the number that its report will have. It never waits: there is an error if the fetcher does
    /// not take requests.
    pub(super) fn request(&mut self, task: FetchTask) -> io::Result<u64> {
        let Some(ends) = &mut self.ends else {
            return Err(io::Error::other("the fetcher does not run"));
        };
        self.last_id += 1;
        let id = self.last_id;
        let request = serde_json::to_vec(&Request { id, task })?;
        if request.len() > LINE_MAX {
            return Err(io::Error::other("the URI is too long"));
        }
        let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
        SockRef::from(&ends.writer).send_with_flags(&request, flags)?;
        Ok(id)
    }

    /// Waits for a report. Returns `None`, once, when the fetcher has ended for good. It is safe to cancel. Without a fetcher
    /// it waits for ever.
    pub async fn report(&mut self) -> Option<FetchReport> {
        let Some(ends) = &mut self.ends else {
            return std::future::pending().await;
        };
        let report = ends.reports.recv().await;
        if report.is_none() {
            tracing::error!(
                "the fetcher has ended: no CRLs are fetched, no OCSP responders are asked and no names are looked up any more"
            );
            self.ends = None;
        }
        report
    }

    /// Returns a report that has come already.
    pub fn next_report(&mut self) -> Option<FetchReport> {
        self.ends.as_mut()?.reports.try_recv().ok()
    }
}

type Whole = (Report, Vec<u8>);

/// Starts a thread that parses the content of reports.
fn start_parser(
    name: &str,
    to_daemon: mpsc::Sender<FetchReport>,
) -> io::Result<std::sync::mpsc::Sender<Whole>> {
    // The fetcher has a bounded number of requests.
    let (queue, waiting) = std::sync::mpsc::channel::<Whole>();
    confine::start_writing(name.to_owned(), move || {
        while let Ok((report, content)) = waiting.recv() {
            if to_daemon.blocking_send(parsed(report, &content)).is_err() {
                return;
            }
        }
    })?;
    Ok(queue)
}

fn parsed(report: Report, content: &[u8]) -> FetchReport {
    let content = match report.failure {
        None => FetchContent::read(report.kind, content).map_err(FetchFailure::new),
        Some(failure) => Err(failure),
    };
    let id = report.id;
    FetchReport::Outcome(FetchOutcome { id, content })
}

impl FetchContent {
    fn read(kind: ReportKind, bytes: &[u8]) -> Result<Self, String> {
        Ok(match kind {
            ReportKind::Crl => {
                let crls = Crl::from_reduced(bytes).map_err(|error| error.to_string())?;
                Self::Crls(crls.into_iter().map(Arc::new).collect())
            }
            ReportKind::Ocsp => {
                let answer = OcspAnswer::from_der(bytes).map_err(|error| error.to_string())?;
                Self::Answer(Arc::new(answer))
            }
            ReportKind::Addresses => {
                let addresses = serde_json::from_slice(bytes).map_err(|error| error.to_string())?;
                Self::Addresses(addresses)
            }
        })
    }
}

/// Puts reports together, and has others parse them.
struct Readers {
    started: bool,
    parts: HashMap<u64, Whole>,
    crls: std::sync::mpsc::Sender<Whole>,
    answers: std::sync::mpsc::Sender<Whole>,
    to_daemon: mpsc::Sender<FetchReport>,
}

impl Readers {
    /// Takes packets off the socket until the fetcher ends for good.
    fn read(mut self, socket: &UnixStream) {
        loop {
            let taken = match Packet::receive(socket) {
                Ok(Some(packet)) => self.take(packet),
                Ok(None) => return,
                Err(error) => Err(error),
            };
            if let Err(error) = taken {
                tracing::error!("what the fetcher says is not understood: {error}");
                return;
            }
        }
    }

    fn take(&mut self, packet: Packet) -> io::Result<()> {
        match packet {
            Packet::Started if !self.started => self.started = true,
            Packet::Started => {
                self.parts.clear();
                self.deliver(FetchReport::Restarted)?;
            }
            Packet::Report(report) => {
                self.parts.remove(&report.id);
                let others: usize = self.parts.values().map(|(other, _)| other.len).sum();
                if report.len > report.kind.len_max() || others + report.len > PARTS_LEN_MAX {
                    return Err(io::ErrorKind::InvalidData.into());
                }
                let content = Vec::with_capacity(report.len);
                match report.len {
                    0 => self.dispatch(report, content)?,
                    _ => drop(self.parts.insert(report.id, (report, content))),
                }
            }
            Packet::Content { id, piece } => {
                let Some((report, content)) = self.parts.get_mut(&id) else {
                    return Ok(());
                };
                content.extend_from_slice(&piece);
                if content.len() > report.len {
                    return Err(io::ErrorKind::InvalidData.into());
                }
                if content.len() == report.len
                    && let Some((report, content)) = self.parts.remove(&id)
                {
                    self.dispatch(report, content)?;
                }
            }
        }
        Ok(())
    }

    fn dispatch(&self, report: Report, content: Vec<u8>) -> io::Result<()> {
        let queue = match report.kind {
            ReportKind::Crl => &self.crls,
            ReportKind::Ocsp => &self.answers,
            ReportKind::Addresses => return self.deliver(parsed(report, &content)),
        };
        let sent = queue.send((report, content));
        sent.map_err(|_| io::ErrorKind::BrokenPipe.into())
    }

    fn deliver(&self, report: FetchReport) -> io::Result<()> {
        let sent = self.to_daemon.blocking_send(report);
        sent.map_err(|_| io::ErrorKind::BrokenPipe.into())
    }
}
