//! Information about revocation: what the fetcher is asked for, and what was fetched.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use esplanade_pki::{RevocationCache, RevocationStore, StatusKind, StatusSource};
use esplanade_prefix::Prefix;

use super::asked_places::AskedPlaces;
use super::fetcher_socket::{FetchContent, FetchOutcome, FetcherSocket};
use super::host_queue::HostQueue;
use super::message::{FetchFailure, FetchTask};
use super::reach::Reach;
use esplanade_host::rate::LineLimit;

/// The time after which a request counts as lost. A worker has less.
const ANSWER_MAX: Duration = Duration::from_secs(25);
/// The interval at which places are asked again whose word is a revocation that is over.
const RENEWAL: Duration = Duration::from_secs(600);

/// Asks the fetcher, and keeps what it brings.
#[derive(Debug, Default)]
pub struct StatusFetcher {
    cache: RevocationCache,
    queue: HostQueue<(StatusSource, Reach)>,
    /// Places that nobody waits for. One is asked at a time, when the queue is empty.
    renewals: VecDeque<(StatusSource, Reach)>,
    renew_at: Option<Instant>,
    running: HashMap<u64, Running>,
    /// The places that wait, and those that are asked.
    under_way: HashSet<StatusSource>,
    tried: AskedPlaces,
    /// Peers can name as many places as they like.
    failures: FailureLines,
}

/// Limits lines about places that cannot be asked.
#[derive(Debug)]
struct FailureLines(LineLimit);

impl Default for FailureLines {
    fn default() -> Self {
        Self(LineLimit::new(20, 1))
    }
}

#[derive(Debug)]
struct Running {
    source: StatusSource,
    /// A renewal has none.
    host: Option<String>,
    until: Instant,
}

/// The words of the configuration about places to ask.
#[derive(Clone, Copy, Debug)]
pub struct StatusPlaces<'a> {
    /// The places that the administrator has chosen.
    pub configured: &'a RevocationStore,
    /// Special addresses that certificates may lead to.
    pub allowed: &'a [Prefix],
}

impl StatusPlaces<'_> {
    fn reach(&self, source: &StatusSource) -> Reach {
        Reach::new(self.configured.names(source), self.allowed)
    }
}

impl StatusFetcher {
    /// Asks places that are not asked already. Returns whether a place cannot be asked: then the endpoint must be told.
    pub fn ask(
        &mut self,
        fetcher: &mut FetcherSocket,
        sources: &[StatusSource],
        places: StatusPlaces<'_>,
        now: Instant,
    ) -> bool {
        let mut is_refused = false;
        for source in sources {
            if self.under_way.contains(source) || self.tried.places().contains(source) {
                continue;
            }
            let request = (source.clone(), places.reach(source));
            match self.queue.push(&host(source.uri()), request, now) {
                Ok(()) => drop(self.under_way.insert(source.clone())),
                Err((source, _)) => {
                    let failure = FetchFailure::new("too many requests wait");
                    self.fail(source, &failure, now);
                    is_refused = true;
                }
            }
        }
        self.proceed(fetcher, now) || is_refused
    }

    /// Begins the requests whose turn it is. Returns whether one has failed.
    fn proceed(&mut self, fetcher: &mut FetcherSocket, now: Instant) -> bool {
        let mut has_failed = false;
        while let Some((host, (source, reach))) = self.queue.next(now) {
            if let Err(failure) = self.request(fetcher, &source, reach, Some(host.clone()), now) {
                self.queue.end(&host, false, now);
                self.fail(source, &failure, now);
                has_failed = true;
            }
        }
        if self.running.is_empty()
            && let Some((source, reach)) = self.renewals.pop_front()
            && self.under_way.insert(source.clone())
            && let Err(failure) = self.request(fetcher, &source, reach, None, now)
        {
            self.fail(source, &failure, now);
        }
        has_failed
    }

    fn request(
        &mut self,
        fetcher: &mut FetcherSocket,
        source: &StatusSource,
        reach: Reach,
        host: Option<String>,
        now: Instant,
    ) -> Result<(), FetchFailure> {
        let task = match source.clone() {
            StatusSource::Crl { uri } => FetchTask::Crl { uri, reach },
            StatusSource::Ocsp { uri, request } => FetchTask::Ocsp {
                uri,
                request,
                reach,
            },
        };
        let id = fetcher.request(task).map_err(FetchFailure::new)?;
        let running = Running {
            source: source.clone(),
            host,
            until: now + ANSWER_MAX,
        };
        self.running.insert(id, running);
        Ok(())
    }

    /// The fetcher has ended, so that all requests have come to nothing.
    pub fn give_up(&mut self, now: Instant) {
        let waiting = self.queue.take_all().into_iter().map(|(source, _)| source);
        let running = self.running.drain().map(|(_, running)| running.source);
        let lost: Vec<_> = waiting.chain(running).collect();
        for source in lost {
            self.fail(source, &FetchFailure::new("the fetcher has ended"), now);
        }
    }

    /// Keeps what a request has brought.
    pub fn take(&mut self, fetcher: &mut FetcherSocket, outcome: FetchOutcome, now: Instant) {
        let Some(Running { source, host, .. }) = self.running.remove(&outcome.id) else {
            return;
        };
        let timed_out = matches!(&outcome.content, Err(failure) if failure.timed_out);
        if let Some(host) = host {
            self.queue.end(&host, timed_out, now);
        }
        let uri = plain(source.uri());
        let wall_clock = seconds();
        match (outcome.content, &source) {
            (Ok(FetchContent::Crls(crls)), StatusSource::Crl { .. }) => {
                let entries: usize = crls.iter().map(|crl| crl.entries()).sum();
                tracing::info!(uri, "fetched a CRL with {entries} entries");
                self.cache.add_crls(&source, crls, wall_clock);
                self.done(source, now);
            }
            (Ok(FetchContent::Answer(answer)), StatusSource::Ocsp { request, .. })
                if answer.is_about(request) =>
            {
                tracing::info!(uri, "an OCSP responder has answered");
                self.cache.add_answer(&source, answer, wall_clock);
                self.done(source, now);
            }
            (Ok(_), _) => {
                let failure = FetchFailure::new("the fetcher has brought something else");
                self.fail(source, &failure, now);
            }
            (Err(failure), _) => self.fail(source, &failure, now),
        }
        self.proceed(fetcher, now);
    }

    /// Ends what has taken too long, and lets places be asked again. Returns whether the endpoint must be told.
    pub fn tick(
        &mut self,
        fetcher: &mut FetcherSocket,
        places: StatusPlaces<'_>,
        now: Instant,
    ) -> bool {
        if let Some(suppressed) = self.failures.0.take_suppressed(now) {
            tracing::warn!(
                suppressed,
                "places to ask about certificates have failed, not logged one by one"
            );
        }
        let mut is_changed = self.tried.expire(now);
        for (source, _) in self.queue.take_late(now) {
            let failure = FetchFailure::new("its host has not answered others");
            self.fail(source, &failure, now);
            is_changed = true;
        }
        let lost = self.running.extract_if(|_, running| running.until <= now);
        let lost: Vec<_> = lost.map(|(_, running)| running).collect();
        for Running { source, host, .. } in lost {
            if let Some(host) = host {
                self.queue.end(&host, true, now);
            }
            self.fail(
                source,
                &FetchFailure::new("the fetcher has not answered"),
                now,
            );
            is_changed = true;
        }
        if now >= *self.renew_at.get_or_insert(now + RENEWAL) {
            self.renew_at = Some(now + RENEWAL);
            let overdue = self.cache.overdue(seconds());
            self.renew(overdue, places);
        }
        self.proceed(fetcher, now) || is_changed
    }

    /// Forgets what was fetched, but for revocations. What is needed is asked for again.
    pub fn flush(
        &mut self,
        fetcher: &mut FetcherSocket,
        kinds: &[StatusKind],
        places: StatusPlaces<'_>,
        now: Instant,
    ) {
        for kind in kinds {
            let sources = self.cache.flush(*kind);
            self.renew(sources, places);
        }
        self.tried.clear();
        self.proceed(fetcher, now);
    }

    /// Has these places asked when there is nothing else to do.
    fn renew(&mut self, sources: Vec<StatusSource>, places: StatusPlaces<'_>) {
        for source in sources {
            if !self.renewals.iter().any(|(other, _)| *other == source) {
                let reach = places.reach(&source);
                self.renewals.push_back((source, reach));
            }
        }
    }

    fn fail(&mut self, source: StatusSource, failure: &FetchFailure, now: Instant) {
        if self.failures.0.admits(now) {
            tracing::warn!(
                uri = plain(source.uri()),
                "the status of a certificate was not to be had: {}",
                plain(&failure.text)
            );
        }
        self.done(source, now);
    }

    fn done(&mut self, source: StatusSource, now: Instant) {
        self.under_way.remove(&source);
        self.tried.note(source, now);
    }

    /// Keeps the CRLs of files that a new configuration has no more, until their issuer has a newer word.
    pub fn keep(&mut self, old: &RevocationStore, new: &mut Arc<RevocationStore>) {
        self.cache.keep(old, Arc::make_mut(new), seconds());
    }

    /// Adds what was fetched to what the configuration has.
    pub fn added_to(&self, configured: &RevocationStore) -> Arc<RevocationStore> {
        let mut store = configured.clone();
        self.cache.add_to(&mut store);
        store.set_tried(self.tried.places().clone());
        Arc::new(store)
    }
}

/// The host of a URI, by which requests take turns.
fn host(uri: &str) -> String {
    let rest = uri.split_once("//").map_or(uri, |(_, rest)| rest);
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    let host = authority
        .rsplit_once('@')
        .map_or(authority, |(_, host)| host);
    let host = match host.rsplit_once(':') {
        Some((host, port)) if port.bytes().all(|octet| octet.is_ascii_digit()) => host,
        _ => host,
    };
    // A name may end with a dot, which is the root's.
    host.trim_end_matches('.').to_ascii_lowercase()
}

/// Seconds since 1970, for the times in CRLs and answers.
fn seconds() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    since.unwrap_or_default().as_secs()
}

/// Makes a text safe for the log: certificates of peers name URIs, and servers send errors.
fn plain(text: &str) -> String {
    esplanade_ike::text::clean(text)
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;

    use super::super::fetcher_socket::FetchReport;
    use super::super::message::{Packet, Report, ReportKind, Request};
    use super::*;
    use esplanade_host::helper_process::packet_pair;

    /// A status fetcher, and the end of the fetcher, which the test plays.
    struct Played {
        statuses: StatusFetcher,
        socket: FetcherSocket,
        fetcher: UnixStream,
        configured: RevocationStore,
        now: Instant,
    }

    fn crl(host: &str, number: usize) -> StatusSource {
        let uri = format!("http://{host}/{number}.crl");
        StatusSource::Crl { uri }
    }

    impl Played {
        fn new() -> Self {
            let (ours, theirs) = packet_pair::<std::os::unix::net::UnixStream>().unwrap();
            theirs.set_nonblocking(true).unwrap();
            Packet::Started.send(&theirs).unwrap();
            Self {
                statuses: StatusFetcher::default(),
                socket: FetcherSocket::connect(ours).unwrap(),
                fetcher: theirs,
                configured: RevocationStore::default(),
                now: Instant::now(),
            }
        }

        fn ask(&mut self, sources: &[StatusSource]) -> bool {
            let places = StatusPlaces {
                configured: &self.configured,
                allowed: &[],
            };
            (self.statuses).ask(&mut self.socket, sources, places, self.now)
        }

        fn tick(&mut self, seconds: u64) -> bool {
            self.now += Duration::from_secs(seconds);
            let places = StatusPlaces {
                configured: &self.configured,
                allowed: &[],
            };
            self.statuses.tick(&mut self.socket, places, self.now)
        }

        /// The numbers and the URIs of the requests that have come.
        fn requests(&mut self) -> Vec<(u64, String)> {
            let mut requests = Vec::new();
            while let Ok(Some(request)) = Request::receive(&self.fetcher) {
                match request.task {
                    FetchTask::Crl { uri, .. } => requests.push((request.id, uri)),
                    other => panic!("{other:?}"),
                }
            }
            requests
        }

        fn fail(&mut self, id: u64, timed_out: bool) {
            let failure = FetchFailure {
                text: "no".to_owned(),
                timed_out,
            };
            let report = Report {
                id,
                kind: ReportKind::Crl,
                len: 0,
                failure: Some(failure),
            };
            Packet::Report(report).send(&self.fetcher).unwrap();
            match self.report() {
                FetchReport::Outcome(outcome) => {
                    (self.statuses).take(&mut self.socket, outcome, self.now);
                }
                other => panic!("{other:?}"),
            }
        }

        fn report(&mut self) -> FetchReport {
            loop {
                if let Some(report) = self.socket.next_report() {
                    return report;
                }
                std::thread::yield_now();
            }
        }

        fn is_tried(&self, source: &StatusSource) -> bool {
            self.statuses.tried.places().contains(source)
        }
    }

    #[test]
    fn a_silent_host_holds_up_no_other() {
        let mut played = Played::new();
        let slow: Vec<_> = (0..59).map(|number| crl("slow.example", number)).collect();
        assert!(!played.ask(&slow));
        let first = played.requests();
        assert_eq!(first.len(), 4);
        assert!(!played.ask(&[crl("quick.example", 0)]));
        let quick = played.requests();
        assert_eq!(quick.len(), 1);
        assert!(quick[0].1.contains("quick"));
        // All others are decided when the first have waited in vain.
        played.now += Duration::from_secs(10);
        first.iter().for_each(|(id, _)| played.fail(*id, true));
        assert_eq!(
            played.requests().len(),
            1,
            "one goes on to see whether it answers"
        );
        assert!(played.tick(0));
        let tried = slow.iter().filter(|source| played.is_tried(source));
        assert_eq!(tried.count(), 58);
    }

    #[test]
    fn a_place_is_asked_again_after_a_minute_by_any_clock() {
        let mut played = Played::new();
        let source = crl("ca.example", 1);
        played.ask(std::slice::from_ref(&source));
        let (id, _) = played.requests()[0];
        played.fail(id, false);
        played.ask(std::slice::from_ref(&source));
        assert!(played.requests().is_empty() && played.is_tried(&source));
        assert!(!played.tick(59));
        assert!(played.tick(1), "the endpoint is told");
        played.ask(std::slice::from_ref(&source));
        assert_eq!(played.requests().len(), 1);
    }

    #[test]
    fn every_place_has_an_outcome() {
        let mut played = Played::new();
        let many: Vec<_> = (0..6000)
            .map(|number| crl(&format!("host{}.example", number % 700), number))
            .collect();
        assert!(played.ask(&many), "some are refused at once");
        let waiting = played.statuses.under_way.len();
        assert!(waiting < 1100, "{waiting}");
        assert!(
            played.is_tried(&many[5999]),
            "the last one is known to be refused"
        );
        // The others have one when they have waited, and when the fetcher is silent.
        assert!(played.tick(10));
        assert!(played.tick(25));
        assert!(played.statuses.under_way.is_empty());
    }

    #[test]
    fn a_fetcher_that_starts_again_has_no_requests() {
        let mut played = Played::new();
        let sources = [crl("one.example", 1), crl("two.example", 2)];
        played.ask(&sources);
        let before = played.requests();
        assert_eq!(before.len(), 2);
        Packet::Started.send(&played.fetcher).unwrap();
        assert!(matches!(played.report(), FetchReport::Restarted));
        played.statuses.give_up(played.now);
        assert!(sources.iter().all(|source| played.is_tried(source)));
        // A late report is nobody's.
        played.fail(before[0].0, false);
        played.tick(60);
        played.ask(&sources);
        assert_eq!(played.requests().len(), 2);
    }

    #[test]
    fn places_take_turns_by_host() {
        for (uri, expected) in [
            ("http://CA.example.org/x", "ca.example.org"),
            ("http://ca.example.org:8080/x:9", "ca.example.org"),
            ("http://user@ca.example.org?x", "ca.example.org"),
            ("http://[2001:db8::1]:80/", "[2001:db8::1]"),
            ("http://[2001:db8::1]/", "[2001:db8::1]"),
            ("http://ca.example.org./", "ca.example.org"),
            ("nothing", "nothing"),
        ] {
            assert_eq!(host(uri), expected, "{uri}");
        }
    }

    #[test]
    fn content_comes_in_pieces_and_out_of_order() {
        let mut played = Played::new();
        let names = [(1, "one"), (2, "two")];
        for (id, _) in names {
            let report = Report {
                id,
                kind: ReportKind::Addresses,
                len: 2,
                failure: None,
            };
            Packet::Report(report).send(&played.fetcher).unwrap();
        }
        for (id, piece) in [(1, b"["), (2, b"["), (3, b"x"), (2, b"]"), (1, b"]")] {
            let piece = piece.to_vec();
            Packet::Content { id, piece }.send(&played.fetcher).unwrap();
        }
        for expected in [2, 1] {
            match played.report() {
                FetchReport::Outcome(outcome) => {
                    assert_eq!(outcome.id, expected);
                    assert!(matches!(outcome.content, Ok(FetchContent::Addresses(_))));
                }
                other => panic!("{other:?}"),
            }
        }
    }
}
