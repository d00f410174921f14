//! Requests to web servers, by HTTP/1.1 without TLS: what they give is signed.

use std::net::IpAddr;
use std::time::{Duration, Instant};

use ureq::config::Config;
use ureq::http::Uri;
use ureq::http::uri::Scheme;
use ureq::unversioned::resolver::{DefaultResolver, ResolvedSocketAddrs, Resolver};
use ureq::unversioned::transport::{DefaultConnector, NextTimeout};

use super::message::FetchFailure;
use super::reach::Reach;

/// The time for one request, with the look-up of the name and all redirections.
pub(super) const TIME_MAX: Duration = Duration::from_secs(10);
const REDIRECTIONS_MAX: usize = 3;

/// A request, and what it may reach.
#[derive(Debug)]
pub(super) struct FetchRequest<'a> {
    pub uri: &'a str,
    /// An OCSP request to post.
    pub post: Option<&'a [u8]>,
    pub reach: Reach,
    /// Bytes of the longest answer that is taken.
    pub len_max: usize,
}

/// Asks a server, and those that it names instead.
pub(super) fn fetch(request: FetchRequest<'_>) -> Result<Vec<u8>, FetchFailure> {
    let ends = Instant::now() + TIME_MAX;
    let mut uri = request.uri.to_owned();
    let mut reach = request.reach;
    for _ in 0..=REDIRECTIONS_MAX {
        let malformed = |error| FetchFailure::new(format!("{uri}: {error}"));
        let parsed: Uri = uri.parse().map_err(malformed)?;
        if parsed.scheme() != Some(&Scheme::HTTP) {
            let what = "only URIs of the scheme `http` are followed";
            return Err(FetchFailure::new(format!("{uri}: {what}")));
        }
        let left = ends.saturating_duration_since(Instant::now());
        match ask(&parsed, request.post, &reach, left, request.len_max)? {
            Reply::Content(content) => return Ok(content),
            Reply::Elsewhere(location) => {
                let place = relative(&parsed, &location);
                uri = place.ok_or_else(|| FetchFailure::new("it redirects to no URI"))?;
                reach = reach.of_redirection();
            }
        }
    }
    Err(FetchFailure::new("there are too many redirections"))
}

enum Reply {
    Content(Vec<u8>),
    Elsewhere(String),
}

fn ask(
    uri: &Uri,
    post: Option<&[u8]>,
    reach: &Reach,
    left: Duration,
    len_max: usize,
) -> Result<Reply, FetchFailure> {
    let config = ureq::Agent::config_builder()
        .timeout_global(Some(left))
        // Each place is checked before it is asked, and a proxy would look its name up anew.
        .max_redirects(0)
        .proxy(None)
        .user_agent("esplanade")
        .build();
    let resolver = CheckedResolver {
        reach: reach.clone(),
        system: DefaultResolver::default(),
    };
    let agent = ureq::Agent::with_parts(config, DefaultConnector::new(), resolver);
    let response = match post {
        None => agent.get(uri).call(),
        Some(request) => {
            // RFC 6960 appendix A.1.
            let post = agent.post(uri).content_type("application/ocsp-request");
            post.send(request)
        }
    };
    let mut response = response.map_err(failure)?;
    if response.status().is_redirection() {
        let location = response.headers().get("location");
        let location = location.and_then(|location| location.to_str().ok());
        let location = location.ok_or_else(|| FetchFailure::new("it redirects to no place"))?;
        return Ok(Reply::Elsewhere(location.to_owned()));
    }
    let body = response.body_mut().with_config().limit(len_max as u64);
    body.read_to_vec().map(Reply::Content).map_err(failure)
}

fn failure(error: ureq::Error) -> FetchFailure {
    match error {
        ureq::Error::Timeout(_) => FetchFailure::late(error),
        ureq::Error::Other(why) => FetchFailure::new(why),
        other => FetchFailure::new(other),
    }
}

/// Returns the URI that a reference in an answer from `base` means (RFC 3986 §5.2), in the forms that servers use.
fn relative(base: &Uri, reference: &str) -> Option<String> {
    let scheme = base.scheme_str()?;
    let authority = base.authority()?;
    let first = reference.split(['/', '?', '#']).next()?;
    Some(match reference.strip_prefix("//") {
        Some(rest) => format!("{scheme}://{rest}"),
        None if first.contains(':') => reference.to_owned(),
        None if reference.starts_with('/') => format!("{scheme}://{authority}{reference}"),
        None => {
            let (folder, _) = base.path().rsplit_once('/')?;
            format!("{scheme}://{authority}{folder}/{reference}")
        }
    })
}

/// Looks names up, and leaves out the addresses that a request may not reach. The connection is made to what it returns.
#[derive(Debug)]
struct CheckedResolver {
    reach: Reach,
    system: DefaultResolver,
}

impl Resolver for CheckedResolver {
    fn resolve(
        &self,
        uri: &Uri,
        config: &Config,
        timeout: NextTimeout,
    ) -> Result<ResolvedSocketAddrs, ureq::Error> {
        let found = self.system.resolve(uri, config, timeout)?;
        let mut reached = self.empty();
        for address in &found {
            if self.reach.has(address.ip()) {
                reached.push(*address);
            }
        }
        match found.first() {
            Some(first) if reached.is_empty() => {
                Err(ureq::Error::Other(Box::new(OutOfReach(first.ip()))))
            }
            _ => Ok(reached),
        }
    }
}

#[derive(Debug, thiserror::Error)]
#[error(
    "it leads to {0}, which is special or an address of this gateway (`fetch_allow` allows exceptions)"
)]
struct OutOfReach(IpAddr);

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader, Write};
    use std::net::TcpListener;

    use super::*;
    use esplanade_prefix::Prefix;

    /// Answers each connection with the next of `answers`. Returns the port, and the first lines of the requests.
    fn server(answers: Vec<String>) -> (u16, std::thread::JoinHandle<Vec<String>>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let serve = move || {
            let one = |answer: String| {
                let (mut socket, _) = listener.accept().unwrap();
                let mut lines = BufReader::new(socket.try_clone().unwrap()).lines();
                let first = lines.next().unwrap().unwrap();
                while !lines.next().unwrap().unwrap().is_empty() {}
                socket.write_all(answer.as_bytes()).unwrap();
                first
            };
            answers.into_iter().map(one).collect()
        };
        (port, std::thread::spawn(serve))
    }

    fn content(text: &str) -> String {
        let len = text.len();
        format!("HTTP/1.1 200 OK\r\nContent-Length: {len}\r\nConnection: close\r\n\r\n{text}")
    }

    fn redirection(to: &str) -> String {
        format!(
            "HTTP/1.1 302 Found\r\nLocation: {to}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
        )
    }

    fn get(uri: &str, reach: Reach) -> Result<Vec<u8>, FetchFailure> {
        fetch(FetchRequest {
            uri,
            post: None,
            reach,
            len_max: 10,
        })
    }

    fn loopback() -> Reach {
        let prefix = Prefix::new("127.0.0.0".parse().unwrap(), 8).unwrap();
        Reach::new(false, &[prefix])
    }

    #[test]
    fn nothing_leads_to_the_gateway_itself() {
        for host in [
            "127.0.0.1",
            "2130706433",
            "0x7f.1",
            "localhost",
            "[::1]",
            "[::ffff:127.0.0.1]",
        ] {
            let failure = get(&format!("http://{host}:9/"), Reach::default()).unwrap_err();
            assert!(failure.text.contains("it leads to"), "{host}: {failure:?}");
        }
        // The exception of the configuration, and what the configuration itself names.
        for reach in [loopback(), Reach::new(true, &[])] {
            let (port, served) = server(vec![content("good")]);
            let uri = format!("http://127.0.0.1:{port}/ca.crl");
            assert_eq!(get(&uri, reach).unwrap(), b"good");
            assert_eq!(served.join().unwrap(), ["GET /ca.crl HTTP/1.1"]);
        }
    }

    #[test]
    fn each_redirection_is_checked() {
        let everywhere = Reach::new(true, &[]);
        for (to, says) in [
            ("http://127.0.0.1:9/admin", "it leads to 127.0.0.1"),
            ("http://[fe80::1]/", "it leads to fe80::1"),
            ("http://169.254.169.254/", "it leads to 169.254.169.254"),
            ("https://www.example.org/", "only URIs of the scheme"),
            ("file:///etc/passwd", "file:///etc/passwd: "),
        ] {
            let (port, served) = server(vec![redirection(to)]);
            let uri = format!("http://127.0.0.1:{port}/");
            let failure = get(&uri, everywhere.clone()).unwrap_err();
            assert!(failure.text.contains(says), "{to}: {failure:?}");
            assert_eq!(served.join().unwrap().len(), 1);
        }
        let (port, served) = server(vec![redirection("b"), redirection("/c"), content("good")]);
        let uri = format!("http://127.0.0.1:{port}/x/a");
        assert_eq!(get(&uri, loopback()).unwrap(), b"good");
        let seen = served.join().unwrap();
        assert_eq!(
            seen,
            ["GET /x/a HTTP/1.1", "GET /x/b HTTP/1.1", "GET /c HTTP/1.1"]
        );
        let (port, served) = server(vec![redirection("/"); 4]);
        let failure = get(&format!("http://127.0.0.1:{port}/"), loopback()).unwrap_err();
        assert!(
            failure.text.contains("too many redirections"),
            "{failure:?}"
        );
        served.join().unwrap();
    }

    #[test]
    fn a_long_answer_is_no_answer() {
        let (port, served) = server(vec![content("0123456789x")]);
        assert!(get(&format!("http://127.0.0.1:{port}/"), loopback()).is_err());
        served.join().unwrap();
    }
}
