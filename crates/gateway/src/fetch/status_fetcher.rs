//! Information about revocation: what the fetcher is asked for, and what was fetched.

use std::collections::{HashMap, HashSet};
use std::io;
use std::sync::Arc;
use std::time::SystemTime;

use esplanade_ike::auth::{RevocationStore, StatusSource};

use super::fetcher::FetchTask;
use super::fetcher_socket::{FetchContent, FetchReport, FetcherSocket, StatusContent};

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

/// Asks the fetcher, and keeps what it brings.
#[derive(Debug, Default)]
pub struct StatusFetcher {
    asked: HashMap<u64, StatusSource>,
    under_way: HashSet<StatusSource>,
    /// The oldest come first.
    kept: Vec<(StatusSource, StatusContent)>,
    tried: HashMap<StatusSource, u64>,
}

impl StatusFetcher {
    /// Asks places that are not asked already. Returns whether a place cannot be asked: then the endpoint must be told.
    pub fn ask(&mut self, fetcher: &mut FetcherSocket, sources: &[StatusSource]) -> bool {
        let mut is_refused = false;
        for source in sources {
            if self.under_way.contains(source) {
                continue;
            }
            if let Err(error) = self.request(fetcher, source) {
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

    fn request(&mut self, fetcher: &mut FetcherSocket, source: &StatusSource) -> io::Result<()> {
        if self.asked.len() >= REQUESTS_MAX {
            return Err(io::Error::other("too many requests are under way"));
        }
        let task = match source.clone() {
            StatusSource::Crl { uri } => FetchTask::Crl { uri },
            StatusSource::Ocsp { uri, request } => FetchTask::Ocsp { uri, request },
        };
        let id = fetcher.request(task)?;
        self.asked.insert(id, source.clone());
        self.under_way.insert(source.clone());
        Ok(())
    }

    /// The fetcher has ended, so that all requests have come to nothing.
    pub fn give_up(&mut self) {
        for (_, source) in std::mem::take(&mut self.asked) {
            self.note_tried(source);
        }
        self.under_way.clear();
    }

    /// Keeps what a request has brought.
    pub fn take(&mut self, report: FetchReport) {
        let Some(source) = self.asked.remove(&report.id) else {
            return;
        };
        self.under_way.remove(&source);
        let uri = plain(source.uri());
        let content = match report.content {
            Ok(FetchContent::Status(content)) => Ok(content),
            Ok(FetchContent::Addresses(_)) => Err("addresses have come instead".to_owned()),
            Err(error) => Err(error),
        };
        match content {
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
                    StatusContent::Crls(_, len) => bytes += len,
                    StatusContent::Answer(_) => answers += 1,
                }
            }
            let too_much = |content: &StatusContent| match content {
                StatusContent::Crls(..) => bytes > CRL_BYTES_MAX,
                StatusContent::Answer(_) => answers > ANSWERS_MAX,
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
                StatusContent::Crls(crls, _) => store.add_crls(crls.iter().cloned()),
                StatusContent::Answer(answer) => store.add_answer(answer.clone()),
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

fn describe(content: &StatusContent) -> String {
    match content {
        StatusContent::Crls(crls, _) => {
            let entries: usize = crls.iter().map(|crl| crl.entries()).sum();
            format!("fetched a CRL with {entries} entries")
        }
        StatusContent::Answer(_) => "an OCSP responder has answered".to_owned(),
    }
}

/// Makes a text safe for the log: certificates of peers name URIs, and servers send errors.
fn plain(text: &str) -> String {
    esplanade_ike::text::clean(text)
}
