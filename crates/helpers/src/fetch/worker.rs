//! The process that carries out one request and ends. What servers send is parsed here first, with bounds on time and
//! memory, so that what takes long or fails harms no other request.

use std::io::{self, BufReader, Write};
use std::net::{IpAddr, ToSocketAddrs};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use esplanade_host::confine;
use esplanade_host::helper_process::{line, next_line};
use esplanade_pki::{Crl, OcspAnswer};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use super::message::{ADDRESSES_MAX, FetchFailure, FetchTask, LINE_MAX, Report, Request};
use super::web::{self, FetchRequest};

/// The hidden command of `esplanade` that is this process.
pub const COMMAND: &str = "fetch-worker";
/// The processor time that a request may take, in seconds.
const CPU_MAX: u64 = 5;
/// The time that a request may take, with a web server's.
pub(super) const TIME_MAX: Duration = Duration::from_secs(web::TIME_MAX.as_secs() + CPU_MAX);
/// Bytes of memory that can be written. A CRL of 16 MiB takes some 100 MiB while it is parsed.
const MEMORY_MAX: u64 = 512 << 20;

/// Reads a request from the socket, which is the standard input, and answers it.
pub fn serve(socket: OwnedFd) -> io::Result<()> {
    for (resource, most) in [(Resource::Cpu, CPU_MAX), (Resource::Data, MEMORY_MAX)] {
        // The limit may be lower already.
        let most = getrlimit(resource)
            .maximum
            .map_or(most, |max| max.min(most));
        let limit = Rlimit {
            current: Some(most),
            maximum: Some(most),
        };
        setrlimit(resource, limit)?;
    }
    confine::fetching()?;
    let mut socket = UnixStream::from(socket);
    let Some(request) = next_line(&mut BufReader::new(socket.try_clone()?), LINE_MAX)? else {
        return Ok(());
    };
    let Request { id, task } = serde_json::from_slice(&request)?;
    let (content, failure) = match carry_out(&task) {
        Ok(content) => (content, None),
        Err(failure) => (Vec::new(), Some(failure)),
    };
    let report = Report {
        id,
        kind: task.kind(),
        len: content.len(),
        failure,
    };
    socket.write_all(&line(&report)?)?;
    socket.write_all(&content)
}

/// Returns what the gateway has to know of the answer. Its form has been checked.
fn carry_out(task: &FetchTask) -> Result<Vec<u8>, FetchFailure> {
    let len_max = task.kind().len_max();
    let reduced = match task {
        FetchTask::LookUp { name } => look_up(name)?,
        FetchTask::Crl { uri, reach } => {
            let content = web::fetch(FetchRequest {
                uri,
                post: None,
                reach: reach.clone(),
                len_max,
            })?;
            Crl::reduce(&content).map_err(FetchFailure::new)?
        }
        FetchTask::Ocsp {
            uri,
            request,
            reach,
        } => {
            let content = web::fetch(FetchRequest {
                uri,
                post: Some(request),
                reach: reach.clone(),
                len_max,
            })?;
            let answer = OcspAnswer::from_der(&content).map_err(FetchFailure::new)?;
            if !answer.is_about(request) {
                let what = "the OCSP responder answers about another certificate";
                return Err(FetchFailure::new(what));
            }
            content
        }
    };
    Ok(reduced)
}

/// Looks a host name up as this system does (getaddrinfo): by its files, and by DNS.
fn look_up(name: &str) -> Result<Vec<u8>, FetchFailure> {
    let found = (name, 0).to_socket_addrs().map_err(|error| {
        let text = error.to_string();
        // The standard library says what it was about to do in front of what the resolver says.
        let prefix = "failed to lookup address information: ";
        FetchFailure::new(text.strip_prefix(prefix).unwrap_or(&text))
    })?;
    let mut addresses: Vec<IpAddr> = Vec::new();
    for address in found.map(|address| address.ip()) {
        if addresses.len() < ADDRESSES_MAX && is_host(address) && !addresses.contains(&address) {
            addresses.push(address);
        }
    }
    serde_json::to_vec(&addresses).map_err(FetchFailure::new)
}

/// Says whether a gateway can have the address. An IPv6 address of one link is of no use without the link.
fn is_host(address: IpAddr) -> bool {
    let one_link = matches!(address, IpAddr::V6(v6) if v6.is_unicast_link_local());
    !one_link && !address.is_unspecified() && !address.is_multicast()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_looked_up_as_the_system_does() {
        let found = look_up("localhost").unwrap();
        let found: Vec<IpAddr> = serde_json::from_slice(&found).unwrap();
        assert!(!found.is_empty() && found.iter().all(IpAddr::is_loopback));
        let why = look_up(&"x".repeat(64)).unwrap_err().text;
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
