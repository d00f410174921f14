//! The fetcher: a process that asks web servers, and looks host names up, for the gateway.
//!
//! The gateway writes a `Request` a line in JSON. The fetcher answers each, in any order, with a `Report` a line. The
//! content that was fetched follows its report as bytes.

use std::io::{self, BufReader, Write};
use std::net::{IpAddr, ToSocketAddrs};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::confine;
use crate::helper_process::{line, next_line};

/// The hidden command of `esplanade` that is the fetcher.
pub const COMMAND: &str = "fetcher";
/// Bytes of a line. A request has one URI, or one name.
pub(super) const LINE_MAX: usize = 1 << 14;
/// Bytes of what is fetched. The CRLs of large public authorities have a few MiB.
pub(super) const CONTENT_MAX: u64 = 16 << 20;
/// Addresses of a name that are told.
pub(super) const ADDRESSES_MAX: usize = 16;
/// Requests to web servers that are carried out at a time.
const WEB_WORKERS: usize = 8;
/// Names that are looked up at a time. A server that does not answer keeps a thread for as long as resolv.conf(5) says.
const NAME_WORKERS: usize = 16;
/// The time for one request, with the look-up of the name and all redirections.
const TIME_MAX: Duration = Duration::from_secs(10);
const REDIRECTIONS_MAX: u32 = 3;
/// Characters of an error that are told.
const ERROR_MAX: usize = 300;

/// A line to the fetcher.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Request {
    pub id: u64,
    pub task: FetchTask,
}

#[derive(Debug, Serialize, Deserialize)]
pub(super) enum FetchTask {
    Crl {
        uri: String,
    },
    /// `request` is posted.
    Ocsp {
        uri: String,
        request: Vec<u8>,
    },
    LookUp {
        name: String,
    },
}

/// The kind of content that a report brings.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum ReportKind {
    Crl,
    Ocsp,
    /// A list of addresses in JSON.
    Addresses,
}

/// The outcome of a request.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Report {
    pub id: u64,
    pub kind: ReportKind,
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
    let agent = agent();
    let web = start_workers(WEB_WORKERS, &writer, &agent);
    // Web servers that do not answer hold up no names.
    let names = start_workers(NAME_WORKERS, &writer, &agent);
    // The gateway bounds the number of requests that wait.
    while let Some(line) = next_line(&mut reader, LINE_MAX)? {
        let request: Request = serde_json::from_slice(&line)?;
        let queue = match request.task {
            FetchTask::Crl { .. } | FetchTask::Ocsp { .. } => &web,
            FetchTask::LookUp { .. } => &names,
        };
        if queue.send(request).is_err() {
            break;
        }
    }
    Ok(())
}

fn start_workers(
    count: usize,
    writer: &Arc<Mutex<UnixStream>>,
    agent: &ureq::Agent,
) -> Sender<Request> {
    let (queue, waiting) = mpsc::channel();
    let waiting = Arc::new(Mutex::new(waiting));
    for _ in 0..count {
        let (agent, waiting, writer) = (agent.clone(), waiting.clone(), writer.clone());
        std::thread::spawn(move || {
            while let Some(request) = next(&waiting) {
                let fetched = fetch(&agent, &request.task);
                let mut writer = writer.lock().unwrap_or_else(PoisonError::into_inner);
                if report(&mut *writer, &request, fetched).is_err() {
                    return;
                }
            }
        });
    }
    queue
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

fn fetch(agent: &ureq::Agent, task: &FetchTask) -> Result<Vec<u8>, String> {
    let response = match task {
        FetchTask::LookUp { name } => return look_up(name),
        FetchTask::Crl { uri } => agent.get(uri).call(),
        FetchTask::Ocsp { uri, request } => {
            let post = agent.post(uri);
            // RFC 6960 appendix A.1.
            post.content_type("application/ocsp-request").send(request)
        }
    };
    let body = response.and_then(|mut response| {
        let body = response.body_mut().with_config().limit(CONTENT_MAX);
        body.read_to_vec()
    });
    body.map_err(|error| error.to_string())
}

/// Looks a host name up as this system does (getaddrinfo): by its files, and by DNS.
fn look_up(name: &str) -> Result<Vec<u8>, String> {
    let found = (name, 0).to_socket_addrs().map_err(|error| {
        let text = error.to_string();
        // The standard library says what it was about to do in front of what the resolver says.
        let prefix = "failed to lookup address information: ";
        text.strip_prefix(prefix).unwrap_or(&text).to_owned()
    })?;
    let mut addresses: Vec<IpAddr> = Vec::new();
    for address in found.map(|address| address.ip()) {
        if addresses.len() < ADDRESSES_MAX && is_host(address) && !addresses.contains(&address) {
            addresses.push(address);
        }
    }
    serde_json::to_vec(&addresses).map_err(|error| error.to_string())
}

/// Says whether a gateway can have the address. An IPv6 address of one link is of no use without the link.
fn is_host(address: IpAddr) -> bool {
    let one_link = matches!(address, IpAddr::V6(v6) if v6.is_unicast_link_local());
    !one_link && !address.is_unspecified() && !address.is_multicast()
}

fn report(
    writer: &mut impl Write,
    request: &Request,
    fetched: Result<Vec<u8>, String>,
) -> io::Result<()> {
    let (content, error) = match fetched {
        Ok(content) => (content, None),
        Err(error) => (Vec::new(), Some(error.chars().take(ERROR_MAX).collect())),
    };
    let report = Report {
        id: request.id,
        kind: match request.task {
            FetchTask::Crl { .. } => ReportKind::Crl,
            FetchTask::Ocsp { .. } => ReportKind::Ocsp,
            FetchTask::LookUp { .. } => ReportKind::Addresses,
        },
        len: content.len(),
        error,
    };
    writer.write_all(&line(&report)?)?;
    writer.write_all(&content)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_looked_up_as_the_system_does() {
        let found = look_up("localhost").unwrap();
        let found: Vec<IpAddr> = serde_json::from_slice(&found).unwrap();
        assert!(!found.is_empty() && found.iter().all(IpAddr::is_loopback));
        let why = look_up(&"x".repeat(64)).unwrap_err();
        assert!(!why.is_empty() && !why.contains("lookup address"), "{why}");
    }

    #[test]
    fn addresses_that_no_gateway_can_have_are_left_out() {
        for (address, expected) in [
            ("192.0.2.1", true),
            ("127.0.0.1", true),
            ("2001:db8::1", true),
            ("0.0.0.0", false),
            ("::", false),
            ("224.0.0.1", false),
            ("ff02::1", false),
            ("fe80::1", false),
        ] {
            assert_eq!(is_host(address.parse().unwrap()), expected, "{address}");
        }
    }
}
