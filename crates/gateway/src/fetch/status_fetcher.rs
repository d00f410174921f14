//! The gateway's side of the fetcher: what is asked, and what was fetched.

use std::collections::{HashMap, HashSet};
use std::io::{self, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::SystemTime;

use esplanade_ike::auth::{Crl, OcspAnswer, RevocationStore, StatusSource};
use tokio::sync::mpsc;

use super::fetcher::{self, CONTENT_MAX, LINE_MAX, Report, Request};
use crate::confine;
use crate::helper_process::{self, line, next_line};

/// Requests that the fetcher has at a time. They fit into the buffer of the socket, so that writing them never waits.
const REQUESTS_MAX: usize = 64;
/// Answers of responders that are kept.
const ANSWERS_MAX: usize = 4096;
/// Bytes of CRLs that are kept.
const CRL_BYTES_MAX: usize = 128 << 20;
/// Places that are known to have been asked.
const TRIED_MAX: usize = 8192;
/// The time after which a place can be asked again, in seconds.
const AGAIN_AFTER: u64 = 60;

/// Information about revocation.
#[derive(Debug)]
enum Content {
    /// CRLs, and the bytes that they were made from.
    Crls(Vec<Arc<Crl>>, usize),
    Answer(Arc<OcspAnswer>),
}

/// The outcome of a request. The text of an error is for the log.
#[derive(Debug)]
pub struct FetchReport {
    id: u64,
    content: Result<Content, String>,
}

/// Asks the fetcher, and keeps what it brings.
#[derive(Debug, Default)]
pub struct StatusFetcher {
    connection: Option<FetcherSocket>,
    last_id: u64,
    asked: HashMap<u64, StatusSource>,
    under_way: HashSet<StatusSource>,
    /// The oldest come first.
    kept: Vec<(StatusSource, Content)>,
    tried: HashMap<StatusSource, u64>,
}

#[derive(Debug)]
struct FetcherSocket {
    writer: UnixStream,
    reports: mpsc::Receiver<FetchReport>,
}

impl StatusFetcher {
    /// Starts the fetcher. Call it while the process can still run programs.
    pub fn start() -> io::Result<Self> {
        let writer = helper_process::spawn(fetcher::COMMAND)?;
        Self::connect(writer)
    }

    fn connect(writer: UnixStream) -> io::Result<Self> {
        let reader = writer.try_clone()?;
        let (to_daemon, reports) = mpsc::channel(REQUESTS_MAX);
        std::thread::Builder::new()
            .name("revocation".to_owned())
            .spawn(move || read_reports(reader, &to_daemon))?;
        Ok(Self {
            connection: Some(FetcherSocket { writer, reports }),
            ..Self::default()
        })
    }

    pub fn is_running(&self) -> bool {
        self.connection.is_some()
    }

    /// Asks places that are not asked already. Returns whether a place cannot be asked: then the endpoint must be told.
    pub fn ask(&mut self, sources: &[StatusSource]) -> bool {
        let mut is_refused = false;
        for source in sources {
            if self.under_way.contains(source) {
                continue;
            }
            if let Err(error) = self.request(source) {
                tracing::warn!(
                    uri = plain(source.uri()),
                    "the status of a certificate cannot be asked for: {error}"
                );
                self.note_tried(source.clone());
                is_refused = true;
            }
        }
        is_refused
    }

    fn request(&mut self, source: &StatusSource) -> io::Result<()> {
        if self.asked.len() >= REQUESTS_MAX {
            return Err(io::Error::other("too many requests are under way"));
        }
        let Some(connection) = &mut self.connection else {
            return Err(io::Error::other("the fetcher does not run"));
        };
        self.last_id += 1;
        let (uri, post) = match source {
            StatusSource::Crl { uri } => (uri, None),
            StatusSource::Ocsp { uri, request } => (uri, Some(request.clone())),
        };
        let request = line(&Request {
            id: self.last_id,
            uri: uri.clone(),
            post,
        })?;
        if request.len() > LINE_MAX {
            return Err(io::Error::other("the URI is too long"));
        }
        connection.writer.write_all(&request)?;
        self.asked.insert(self.last_id, source.clone());
        self.under_way.insert(source.clone());
        Ok(())
    }

    /// Waits for the outcome of a request. It is safe to cancel. Without a fetcher it waits for ever.
    pub async fn report(&mut self) -> FetchReport {
        loop {
            let Some(connection) = &mut self.connection else {
                return std::future::pending().await;
            };
            if let Some(report) = connection.reports.recv().await {
                return report;
            }
            tracing::error!(
                "the fetcher has ended: CRLs and OCSP responders are not asked any more"
            );
            self.connection = None;
            if let Some(id) = self.asked.keys().next() {
                let content = Err("the fetcher has ended".to_owned());
                return FetchReport { id: *id, content };
            }
        }
    }

    /// Keeps what a request has brought.
    pub fn take(&mut self, report: FetchReport) {
        let Some(source) = self.asked.remove(&report.id) else {
            return;
        };
        self.under_way.remove(&source);
        let uri = plain(source.uri());
        match report.content {
            Ok(content) => {
                tracing::info!(uri, "{}", describe(&content));
                self.kept.retain(|(other, _)| *other != source);
                self.kept.push((source.clone(), content));
                self.drop_oldest();
            }
            Err(error) => {
                tracing::warn!(
                    uri,
                    "the status of a certificate was not to be had: {}",
                    plain(&error)
                );
            }
        }
        self.note_tried(source);
        if self.connection.is_none() {
            // The other requests have come to nothing too.
            for (_, source) in std::mem::take(&mut self.asked) {
                self.note_tried(source);
            }
            self.under_way.clear();
        }
    }

    fn note_tried(&mut self, source: StatusSource) {
        let now = now();
        if self.tried.len() >= TRIED_MAX {
            self.tried.retain(|_, until| *until > now);
        }
        if self.tried.len() < TRIED_MAX {
            self.tried.insert(source, now + AGAIN_AFTER);
        }
    }

    fn drop_oldest(&mut self) {
        loop {
            let mut bytes = 0;
            let mut answers = 0;
            for (_, content) in &self.kept {
                match content {
                    Content::Crls(_, len) => bytes += len,
                    Content::Answer(_) => answers += 1,
                }
            }
            let too_much = |content: &Content| match content {
                Content::Crls(..) => bytes > CRL_BYTES_MAX,
                Content::Answer(_) => answers > ANSWERS_MAX,
            };
            match (self.kept.iter()).position(|(_, content)| too_much(content)) {
                Some(oldest) => drop(self.kept.remove(oldest)),
                None => return,
            }
        }
    }

    /// Adds what was fetched to what the configuration has.
    pub fn added_to(&self, configured: &RevocationStore) -> Arc<RevocationStore> {
        let mut store = configured.clone();
        for (_, content) in &self.kept {
            match content {
                Content::Crls(crls, _) => store.add_crls(crls.iter().cloned()),
                Content::Answer(answer) => store.add_answer(answer.clone()),
            }
        }
        for (source, until) in &self.tried {
            store.note_tried(source.clone(), *until);
        }
        Arc::new(store)
    }
}

fn now() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    since.unwrap_or_default().as_secs()
}

impl Content {
    fn read(ocsp: bool, bytes: &[u8]) -> Result<Self, String> {
        if ocsp {
            let answer = OcspAnswer::from_der(bytes).map_err(|error| error.to_string())?;
            return Ok(Self::Answer(Arc::new(answer)));
        }
        let crls = Crl::from_file_content(bytes).map_err(|error| error.to_string())?;
        let crls = crls.into_iter().map(Arc::new).collect();
        Ok(Self::Crls(crls, bytes.len()))
    }
}

fn describe(content: &Content) -> String {
    match content {
        Content::Crls(crls, _) => {
            let entries: usize = crls.iter().map(|crl| crl.entries()).sum();
            format!("fetched a CRL with {entries} entries")
        }
        Content::Answer(_) => "an OCSP responder has answered".to_owned(),
    }
}

/// Makes a text safe for the log: certificates of peers name URIs, and servers send errors.
fn plain(text: &str) -> String {
    esplanade_ike::text::clean(text)
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
        None => Content::read(report.ocsp, &bytes),
        Some(error) => Err(error),
    };
    let id = report.id;
    Ok(Some(FetchReport { id, content }))
}
