//! The addresses of the host names in the configuration, and which of them are being looked up.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::net::IpAddr;
use std::time::{Duration, Instant};

use esplanade_ike::config::HostName;
use esplanade_ike::text::clean;

use super::fetcher_socket::{FetchContent, FetchOutcome, FetcherSocket};
use super::message::{ADDRESSES_MAX, FetchTask};

/// Look-ups that the fetcher has at a time. Their requests fit into the buffer of the socket.
const REQUESTS_MAX: usize = 32;
/// The time that a look-up may take. What comes later is taken too, but nobody waits for it.
const TIME_MAX: Duration = Duration::from_secs(10);
/// A name that was looked up this recently is not looked up again.
const RECENT: Duration = Duration::from_secs(5);
/// All names are looked up at this interval, although nobody asks.
const REFRESH: Duration = Duration::from_secs(60);

/// Looks names up by the fetcher, and keeps their addresses.
#[derive(Debug, Default)]
pub struct NameStore {
    /// The names of the configuration that were looked up, with the time of the last outcome.
    known: BTreeMap<String, (HostName, Instant)>,
    /// The requests that the fetcher has.
    asked: HashMap<u64, String>,
    /// Names that somebody waits for, with the time at which the waiting ends.
    under_way: BTreeMap<String, Instant>,
    /// Names that the fetcher is still to be asked for.
    queue: VecDeque<String>,
    /// Names with an outcome that was not taken yet.
    answered: BTreeSet<String>,
    configured: BTreeSet<String>,
    refresh_at: Option<Instant>,
}

impl NameStore {
    /// Follows a new configuration: forgets other names, and looks these up.
    pub fn configure(
        &mut self,
        fetcher: &mut FetcherSocket,
        names: BTreeSet<String>,
        now: Instant,
    ) {
        self.known.retain(|name, _| names.contains(name));
        self.configured = names;
        self.refresh(fetcher, now);
    }

    fn refresh(&mut self, fetcher: &mut FetcherSocket, now: Instant) {
        self.refresh_at = (!self.configured.is_empty()).then_some(now + REFRESH);
        self.ask(fetcher, self.configured.clone(), now);
    }

    /// Looks names up, unless that was just done or is under way.
    pub fn ask(
        &mut self,
        fetcher: &mut FetcherSocket,
        names: impl IntoIterator<Item = String>,
        now: Instant,
    ) {
        for name in names {
            let known = self.known.get(&name);
            let is_recent = |(_, at): &(HostName, Instant)| now < *at + RECENT;
            if known.is_some_and(is_recent) {
                self.answered.insert(name);
            } else if !self.under_way.contains_key(&name) {
                self.under_way.insert(name.clone(), now + TIME_MAX);
                // A look-up whose time was up can still be with the fetcher.
                if !self.asked.values().any(|asked| *asked == name) {
                    self.queue.push_back(name);
                }
            }
        }
        self.proceed(fetcher, now);
    }

    fn proceed(&mut self, fetcher: &mut FetcherSocket, now: Instant) {
        while self.asked.len() < REQUESTS_MAX
            && let Some(name) = self.queue.pop_front()
        {
            match fetcher.request(FetchTask::LookUp { name: name.clone() }) {
                Ok(id) => drop(self.asked.insert(id, name)),
                Err(error) => self.finish(name, Err(error.to_string()), now),
            }
        }
    }

    /// Takes the outcome, if it is about a name.
    pub fn take(
        &mut self,
        fetcher: &mut FetcherSocket,
        outcome: FetchOutcome,
        now: Instant,
    ) -> Result<(), FetchOutcome> {
        let Some(name) = self.asked.remove(&outcome.id) else {
            return Err(outcome);
        };
        let found = match outcome.content {
            Ok(FetchContent::Addresses(mut addresses)) => {
                addresses.truncate(ADDRESSES_MAX);
                match addresses.is_empty() {
                    true => Err("there is none".to_owned()),
                    false => Ok(addresses),
                }
            }
            Ok(_) => Err("the fetcher has brought something else".to_owned()),
            Err(failure) => Err(clean(&failure.text)),
        };
        self.finish(name, found, now);
        self.proceed(fetcher, now);
        Ok(())
    }

    /// The fetcher has ended, so that nothing comes any more.
    pub fn give_up(&mut self, now: Instant) {
        self.queue.clear();
        self.asked.clear();
        for name in std::mem::take(&mut self.under_way).into_keys() {
            self.finish(name, Err("the fetcher has ended".to_owned()), now);
        }
    }

    /// Ends look-ups whose time is up, and begins those whose time has come.
    pub fn tick(&mut self, fetcher: &mut FetcherSocket, now: Instant) {
        let late = self.under_way.extract_if(.., |_, until| *until <= now);
        let late: Vec<_> = late.map(|(name, _)| name).collect();
        for name in late {
            self.queue.retain(|queued| *queued != name);
            let why = format!("no answer within {} seconds", TIME_MAX.as_secs());
            self.finish(name, Err(why), now);
        }
        if self.refresh_at.is_some_and(|at| at <= now) {
            self.refresh(fetcher, now);
        }
    }

    /// Notes an outcome. The peer is still where it was, as far as anybody knows, when a look-up fails.
    fn finish(&mut self, name: String, found: Result<Vec<IpAddr>, String>, now: Instant) {
        self.under_way.remove(&name);
        if !self.configured.contains(&name) {
            return;
        }
        self.answered.insert(name.clone());
        let before = self.known.get(&name).map(|(known, _)| &known.addresses);
        match (&found, before) {
            (found, Some(before)) if found == before => {}
            (Ok(addresses), _) => tracing::info!(name, ?addresses, "the name is looked up"),
            (Err(why), Some(Ok(_))) => {
                tracing::warn!(
                    name,
                    "the name has no address now, and keeps those it had: {why}"
                );
            }
            (Err(why), _) => tracing::warn!(name, "the name has no address: {why}"),
        }
        let addresses = match (found, before) {
            (Err(_), Some(Ok(before))) => Ok(before.clone()),
            (found, _) => found,
        };
        let known = HostName {
            name: name.clone(),
            addresses,
        };
        self.known.insert(name, (known, now));
    }

    pub fn known(&self, name: &str) -> Option<&HostName> {
        self.known.get(name).map(|(known, _)| known)
    }

    /// Tells whether names have an outcome that was not taken.
    pub fn has_answered(&self) -> bool {
        !self.answered.is_empty()
    }

    /// Takes the names that have an outcome since the last call.
    pub fn take_answered(&mut self) -> BTreeSet<String> {
        std::mem::take(&mut self.answered)
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;

    use super::super::fetcher_socket::FetchReport;
    use super::super::message::{FetchFailure, Packet, Report, ReportKind, Request};
    use super::*;
    use esplanade_host::helper_process::packet_pair;

    /// A store, and the end of the fetcher, which the test plays.
    struct Played {
        store: NameStore,
        socket: FetcherSocket,
        fetcher: UnixStream,
        now: Instant,
    }

    fn set(names: &[&str]) -> BTreeSet<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    impl Played {
        fn new(names: &[&str]) -> Self {
            let (ours, theirs) = packet_pair::<std::os::unix::net::UnixStream>().unwrap();
            theirs.set_nonblocking(true).unwrap();
            let mut played = Self {
                store: NameStore::default(),
                socket: FetcherSocket::connect(ours).unwrap(),
                fetcher: theirs,
                now: Instant::now(),
            };
            let now = played.now;
            (played.store).configure(&mut played.socket, set(names), now);
            played
        }

        /// The requests that have come: their numbers and names.
        fn requests(&mut self) -> Vec<(u64, String)> {
            let mut requests = Vec::new();
            while let Ok(Some(request)) = Request::receive(&self.fetcher) {
                match request.task {
                    FetchTask::LookUp { name } => requests.push((request.id, name)),
                    other => panic!("{other:?}"),
                }
            }
            requests
        }

        fn answer(&mut self, id: u64, found: Result<&[&str], &str>) {
            let addresses: Vec<IpAddr> = found
                .unwrap_or_default()
                .iter()
                .map(|one| one.parse().unwrap())
                .collect();
            let content = serde_json::to_vec(&addresses).unwrap();
            let report = Report {
                id,
                kind: ReportKind::Addresses,
                len: content.len(),
                failure: found.err().map(FetchFailure::new),
            };
            Packet::Report(report).send(&self.fetcher).unwrap();
            let piece = content;
            Packet::Content { id, piece }.send(&self.fetcher).unwrap();
            let report = loop {
                if let Some(report) = self.socket.next_report() {
                    break report;
                }
                std::thread::yield_now();
            };
            let FetchReport::Outcome(outcome) = report else {
                panic!("{report:?}");
            };
            let taken = self.store.take(&mut self.socket, outcome, self.now);
            assert!(taken.is_ok());
        }

        fn ask(&mut self, name: &str) {
            let names = [name.to_owned()];
            self.store.ask(&mut self.socket, names, self.now);
        }

        fn tick(&mut self, seconds: u64) {
            self.now += Duration::from_secs(seconds);
            self.store.tick(&mut self.socket, self.now);
        }

        fn addresses(&self, name: &str) -> Result<usize, &str> {
            let known = &self.store.known(name).unwrap().addresses;
            known.as_ref().map(Vec::len).map_err(String::as_str)
        }
    }

    #[test]
    fn a_name_is_asked_for_once_and_not_again_at_once() {
        let mut played = Played::new(&["sun.example"]);
        played.ask("sun.example");
        let requests = played.requests();
        assert_eq!(requests, [(1, "sun.example".to_owned())]);
        assert!(played.store.take_answered().is_empty());
        played.answer(1, Ok(&["192.0.2.1", "2001:db8::1"]));
        assert_eq!(played.addresses("sun.example"), Ok(2));
        assert_eq!(played.store.take_answered(), set(&["sun.example"]));
        // Whoever asks again at once has the same answer.
        played.tick(4);
        played.ask("sun.example");
        assert_eq!(played.store.take_answered(), set(&["sun.example"]));
        played.tick(1);
        played.ask("sun.example");
        assert_eq!(played.requests().len(), 1);
        assert!(played.store.take_answered().is_empty());
    }

    #[test]
    fn a_name_keeps_its_addresses_until_it_has_others() {
        let mut played = Played::new(&["sun.example"]);
        let first = "it is not known here";
        played.answer(1, Err(first));
        assert_eq!(played.addresses("sun.example"), Err(first));
        let answers: [(Result<&[&str], &str>, _); 4] = [
            (Ok(&[]), Err("there is none")),
            (Ok(&["192.0.2.1"; 99]), Ok(ADDRESSES_MAX)),
            (Err("no server answers"), Ok(ADDRESSES_MAX)),
            (Ok(&["192.0.2.2"]), Ok(1)),
        ];
        for (id, (answer, expected)) in (2..).zip(answers) {
            played.tick(60);
            played.answer(id, answer);
            assert_eq!(played.addresses("sun.example"), expected);
            assert_eq!(played.store.take_answered(), set(&["sun.example"]));
        }
        // A reload without the name forgets it, and what is still to come.
        played.tick(60);
        let now = played.now;
        (played.store).configure(&mut played.socket, BTreeSet::new(), now);
        played.answer(6, Ok(&["192.0.2.1"]));
        assert_eq!(played.store.known("sun.example"), None);
        assert!(played.store.take_answered().is_empty());
    }

    #[test]
    fn nobody_waits_longer_than_ten_seconds() {
        let mut played = Played::new(&["sun.example"]);
        played.tick(9);
        assert!(played.store.take_answered().is_empty());
        played.tick(1);
        assert_eq!(played.store.take_answered(), set(&["sun.example"]));
        let why = played.addresses("sun.example").unwrap_err();
        assert!(why.contains("10 seconds"), "{why}");
        // The fetcher is not asked twice for one name. What it brings late counts.
        played.tick(5);
        played.ask("sun.example");
        assert_eq!(played.requests().len(), 1);
        played.answer(1, Ok(&["192.0.2.1"]));
        assert_eq!(played.addresses("sun.example"), Ok(1));
    }

    #[test]
    fn many_names_come_one_after_the_other() {
        let names: Vec<_> = (0..100)
            .map(|number| format!("n{number}.example"))
            .collect();
        let names: Vec<_> = names.iter().map(String::as_str).collect();
        let mut played = Played::new(&names);
        let mut asked = played.requests();
        assert_eq!(asked.len(), REQUESTS_MAX);
        let mut seen = 0;
        while let Some((id, _)) = asked.pop() {
            played.answer(id, Ok(&["192.0.2.1"]));
            seen += 1;
            asked.extend(played.requests());
            assert!(asked.len() <= REQUESTS_MAX);
        }
        assert_eq!(seen, 100);
        assert_eq!(played.store.take_answered().len(), 100);
    }

    #[test]
    fn without_a_fetcher_every_question_has_an_answer() {
        let mut played = Played::new(&["sun.example", "moon.example"]);
        drop(std::mem::take(&mut played.socket));
        let now = played.now;
        played.store.give_up(now);
        assert_eq!(played.store.take_answered().len(), 2);
        assert_eq!(
            played.addresses("moon.example"),
            Err("the fetcher has ended")
        );
        played.tick(5);
        played.ask("sun.example");
        assert_eq!(played.store.take_answered(), set(&["sun.example"]));
        let why = played.addresses("sun.example").unwrap_err();
        assert_eq!(why, "the fetcher does not run");
    }
}
