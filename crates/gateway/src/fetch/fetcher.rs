//! The fetcher: a process that asks web servers for the gateway.
//!
//! The gateway writes a `Request` a line in JSON. The fetcher answers each, in any order, with a `Report` a line. The
//! content that was fetched follows its report as bytes.

use std::io::{self, BufReader, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::mpsc::{self, Receiver};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::confine;
use crate::helper_process::{line, next_line};

/// The hidden command of `esplanade` that is the fetcher.
pub const COMMAND: &str = "revocation-fetcher";
/// Bytes of a line. A request has one URI.
pub(super) const LINE_MAX: usize = 1 << 14;
/// Bytes of what is fetched. The CRLs of large public authorities have a few MiB.
pub(super) const CONTENT_MAX: u64 = 16 << 20;
/// Requests that are carried out at a time.
const WORKERS: usize = 8;
/// The time for one request, with the look-up of the name and all redirections.
const TIME_MAX: Duration = Duration::from_secs(10);
const REDIRECTIONS_MAX: u32 = 3;
/// Characters of an error that are told.
const ERROR_MAX: usize = 300;

/// Something to fetch.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Request {
    pub id: u64,
    pub uri: String,
    /// The request of OCSP that is posted.
    pub post: Option<Vec<u8>>,
}

/// The outcome of a request.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Report {
    pub id: u64,
    /// The request was one of OCSP.
    pub ocsp: bool,
    /// The length of the content that follows.
    pub len: usize,
    pub error: Option<String>,
}

/// Carries out requests until the gateway closes the socket. `socket` is the standard input.
pub fn serve(socket: OwnedFd) -> io::Result<()> {
    confine::fetching()?;
    let writer = UnixStream::from(socket);
    let mut reader = BufReader::new(writer.try_clone()?);
    let writer = Arc::new(Mutex::new(writer));
    let (queue, waiting) = mpsc::channel();
    let waiting = Arc::new(Mutex::new(waiting));
    let agent = agent();
    for _ in 0..WORKERS {
        let (agent, waiting, writer) = (agent.clone(), waiting.clone(), writer.clone());
        std::thread::spawn(move || {
            while let Some(request) = next(&waiting) {
                let fetched = fetch(&agent, &request);
                let mut writer = writer.lock().unwrap_or_else(PoisonError::into_inner);
                if report(&mut *writer, &request, fetched).is_err() {
                    return;
                }
            }
        });
    }
    // The gateway bounds the number of requests that wait.
    while let Some(line) = next_line(&mut reader, LINE_MAX)? {
        let request: Request = serde_json::from_slice(&line)?;
        if queue.send(request).is_err() {
            break;
        }
    }
    Ok(())
}

fn next(waiting: &Mutex<Receiver<Request>>) -> Option<Request> {
    let waiting = waiting.lock().unwrap_or_else(PoisonError::into_inner);
    waiting.recv().ok()
}

fn agent() -> ureq::Agent {
    let config = ureq::Agent::config_builder()
        .timeout_global(Some(TIME_MAX))
        .max_redirects(REDIRECTIONS_MAX)
        .user_agent("esplanade")
        .build();
    config.into()
}

fn fetch(agent: &ureq::Agent, request: &Request) -> Result<Vec<u8>, ureq::Error> {
    let mut response = match &request.post {
        None => agent.get(&request.uri).call()?,
        Some(body) => {
            let post = agent.post(&request.uri);
            // RFC 6960 appendix A.1.
            post.content_type("application/ocsp-request").send(body)?
        }
    };
    let body = response.body_mut().with_config().limit(CONTENT_MAX);
    body.read_to_vec()
}

fn report(
    writer: &mut impl Write,
    request: &Request,
    fetched: Result<Vec<u8>, ureq::Error>,
) -> io::Result<()> {
    let (content, error) = match fetched {
        Ok(content) => (content, None),
        Err(error) => {
            let text = error.to_string().chars().take(ERROR_MAX).collect();
            (Vec::new(), Some(text))
        }
    };
    let report = Report {
        id: request.id,
        ocsp: request.post.is_some(),
        len: content.len(),
        error,
    };
    writer.write_all(&line(&report)?)?;
    writer.write_all(&content)
}
