//! The gateway's end of the socket to the fetcher: requests go out, reports come in.

use std::io::{self, BufReader, Read, Write};
use std::net::IpAddr;
use std::os::unix::net::UnixStream;
use std::sync::Arc;

use esplanade_ike::auth::{Crl, OcspAnswer};
use tokio::sync::mpsc;

use super::fetcher::{self, CONTENT_MAX, FetchTask, LINE_MAX, Report, ReportKind, Request};
use crate::confine;
use crate::helper_process::{self, line, next_line};

/// Reports that wait for the control thread. The fetcher waits while there are more.
const REPORTS_MAX: usize = 64;

/// The content that a report brings.
#[derive(Debug)]
pub enum FetchContent {
    Status(StatusContent),
    Addresses(Vec<IpAddr>),
}

/// Information about revocation.
#[derive(Debug)]
pub enum StatusContent {
    /// CRLs, and the bytes that they were made from.
    Crls(Vec<Arc<Crl>>, usize),
    Answer(Arc<OcspAnswer>),
}

/// The outcome of a request. The text of an error is for the log.
#[derive(Debug)]
pub struct FetchReport {
    pub(super) id: u64,
    pub(super) content: Result<FetchContent, String>,
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
        let writer = helper_process::spawn(fetcher::COMMAND)?;
        Self::connect(writer)
    }

    pub(super) fn connect(writer: UnixStream) -> io::Result<Self> {
        let reader = writer.try_clone()?;
        let (to_daemon, reports) = mpsc::channel(REPORTS_MAX);
        std::thread::Builder::new()
            .name("fetched".to_owned())
            .spawn(move || read_reports(reader, &to_daemon))?;
        Ok(Self {
            ends: Some(Ends { writer, reports }),
            last_id: 0,
        })
    }

    pub fn is_running(&self) -> bool {
        self.ends.is_some()
    }

    /// Sends a request. Returns the number that its report will have. Callers bound the number of requests under way, so
    /// that they fit into the buffer of the socket.
    pub(super) fn request(&mut self, task: FetchTask) -> io::Result<u64> {
        let Some(ends) = &mut self.ends else {
            return Err(io::Error::other("the fetcher does not run"));
        };
        self.last_id += 1;
        let id = self.last_id;
        let request = line(&Request { id, task })?;
        if request.len() > LINE_MAX {
            return Err(io::Error::other("the URI is too long"));
        }
        ends.writer.write_all(&request)?;
        Ok(id)
    }

    /// Waits for the outcome of a request. Returns `None`, once, when the fetcher has ended. It is safe to cancel.
    /// Without a fetcher it waits for ever.
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

impl FetchContent {
    fn read(kind: ReportKind, bytes: &[u8]) -> Result<Self, String> {
        Ok(match kind {
            ReportKind::Crl => {
                let crls = Crl::from_file_content(bytes).map_err(|error| error.to_string())?;
                let crls = crls.into_iter().map(Arc::new).collect();
                Self::Status(StatusContent::Crls(crls, bytes.len()))
            }
            ReportKind::Ocsp => {
                let answer = OcspAnswer::from_der(bytes).map_err(|error| error.to_string())?;
                Self::Status(StatusContent::Answer(Arc::new(answer)))
            }
            ReportKind::Addresses => {
                let addresses = serde_json::from_slice(bytes).map_err(|error| error.to_string())?;
                Self::Addresses(addresses)
            }
        })
    }
}

/// Takes reports off the socket until the fetcher ends.
fn read_reports(socket: UnixStream, to_daemon: &mpsc::Sender<FetchReport>) {
    if let Err(error) = confine::writing() {
        tracing::error!("the thread that reads from the fetcher keeps its rights: {error}");
    }
    let mut reader = BufReader::new(socket);
    while let Ok(Some(report)) = next_report(&mut reader) {
        if to_daemon.blocking_send(report).is_err() {
            return;
        }
    }
}

fn next_report(reader: &mut BufReader<UnixStream>) -> io::Result<Option<FetchReport>> {
    let Some(line) = next_line(reader, LINE_MAX)? else {
        return Ok(None);
    };
    let report: Report = serde_json::from_slice(&line)?;
    if report.len as u64 > CONTENT_MAX {
        return Err(io::ErrorKind::InvalidData.into());
    }
    let mut bytes = vec![0; report.len];
    reader.read_exact(&mut bytes)?;
    // A large CRL takes a while to read, so that this thread does it.
    let content = match report.error {
        None => FetchContent::read(report.kind, &bytes),
        Some(error) => Err(error),
    };
    let id = report.id;
    Ok(Some(FetchReport { id, content }))
}
