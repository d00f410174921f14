//! Loads configurations in a thread of their own. Files can be slow, and passphrases are hashed for long: IKE goes on
//! meanwhile.

use std::thread::JoinHandle;
use std::time::Instant;

use tokio::sync::oneshot;

use crate::config::{Diagnostics, Loaded};
use crate::confine;
use crate::failure::Failure;
use crate::status::text::human_duration;
use crate::vici::server::Request;

/// Most reloads that wait for their turn.
const WAITING_MAX: usize = 64;

/// Why a configuration was not loaded.
#[derive(Debug)]
pub(in crate::daemon) struct NotLoaded {
    pub failure: Failure,
    /// The errors in the files.
    pub diagnostics: Option<Box<Diagnostics>>,
}

impl From<Failure> for NotLoaded {
    fn from(failure: Failure) -> Self {
        Self {
            failure,
            diagnostics: None,
        }
    }
}

/// The configuration that the gateway follows.
#[derive(Clone, Copy, Debug)]
pub(in crate::daemon) struct ConfigurationInForce {
    /// Its number, from 1 at the start. Each reload that succeeds adds one.
    pub number: u64,
    /// The time at which it came into force.
    pub since: Instant,
}

impl ConfigurationInForce {
    pub fn next(self, now: Instant) -> Self {
        Self {
            number: self.number + 1,
            since: now,
        }
    }

    /// Tells that it stays.
    pub fn stays(self, now: Instant) -> String {
        let age = human_duration(now.saturating_duration_since(self.since).as_secs());
        format!(
            "configuration {} stays in force, read {age} ago",
            self.number
        )
    }
}

/// Loads for commands, which are answered, and for signals (`None`). One runs at a time. Who asks meanwhile gets a later
/// one, because the files may have changed since it began.
#[derive(Debug)]
pub(in crate::daemon) struct LoadQueue<T = Request> {
    under_way: Option<RunningLoad<T>>,
    waiting: Vec<Option<T>>,
}

#[derive(Debug)]
struct RunningLoad<T> {
    askers: Vec<Option<T>>,
    outcome: oneshot::Receiver<Result<Loaded, NotLoaded>>,
    thread: Option<JoinHandle<()>>,
}

/// A load that has ended, and who asked for it.
#[derive(Debug)]
pub(in crate::daemon) struct LoadDone<T = Request> {
    pub askers: Vec<Option<T>>,
    pub outcome: Result<Loaded, NotLoaded>,
}

impl<T> Default for LoadQueue<T> {
    fn default() -> Self {
        Self {
            under_way: None,
            waiting: Vec::new(),
        }
    }
}

impl<T> LoadQueue<T> {
    /// Notes that somebody asks for a reload. Returns a command for which there is no room.
    pub fn ask(&mut self, asker: Option<T>) -> Result<(), T> {
        match asker {
            None if self.waiting.iter().any(Option::is_none) => Ok(()),
            Some(command) if self.waiting.len() >= WAITING_MAX => Err(command),
            asker => {
                self.waiting.push(asker);
                Ok(())
            }
        }
    }

    /// Begins a load for all who wait, unless one is under way or nobody waits.
    pub fn begin(&mut self, load: impl FnOnce() -> Result<Loaded, NotLoaded> + Send + 'static) {
        if self.under_way.is_some() || self.waiting.is_empty() {
            return;
        }
        let (sender, outcome) = oneshot::channel();
        let work = move || drop(sender.send(load()));
        let thread = confine::start_reading("load".to_owned(), work);
        // Without a thread nobody has the sender, which counts as a failure.
        let thread = thread.inspect_err(|error| {
            tracing::error!("the thread that loads the configuration does not start: {error}");
        });
        self.under_way = Some(RunningLoad {
            askers: std::mem::take(&mut self.waiting),
            outcome,
            thread: thread.ok(),
        });
    }

    /// Waits for the load that is under way, or for ever. It is safe to cancel.
    pub async fn done(&mut self) -> LoadDone<T> {
        let outcome = match &mut self.under_way {
            Some(under_way) => (&mut under_way.outcome).await,
            None => std::future::pending().await,
        };
        let ended = self.under_way.take();
        let (askers, thread) = ended.map_or_else(Default::default, |one| (one.askers, one.thread));
        // The thread ends now. Its memory, where secrets were, is gone before anybody is answered.
        if let Some(thread) = thread {
            let _ = thread.join();
        }
        let failed = |_| {
            let failure = Failure::runtime("the thread that loads the configuration has ended");
            Err(failure.help("the log says why").into())
        };
        let outcome = outcome.unwrap_or_else(failed);
        LoadDone { askers, outcome }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::sync::mpsc;
    use std::task::Poll;

    use super::*;
    use crate::config::load_text;

    fn loaded() -> Loaded {
        load_text(Path::new("esplanade.conf"), "").unwrap()
    }

    /// A load that does not end holds nobody up. Who asks meanwhile gets the next one.
    #[tokio::test]
    async fn a_load_holds_nothing_up_and_later_askers_get_a_later_one() {
        let mut loads = LoadQueue::default();
        loads.begin(|| panic!("nobody has asked"));
        let (go, stands_still) = mpsc::channel::<()>();
        loads.ask(Some(1)).unwrap();
        loads.begin(move || {
            stands_still.recv().unwrap();
            Ok(loaded())
        });
        let pending = futures_util::poll!(std::pin::pin!(loads.done()));
        assert!(matches!(pending, Poll::Pending));
        for asker in [Some(2), None, None, Some(3)] {
            loads.ask(asker).unwrap();
        }
        loads.begin(|| panic!("one is under way"));
        go.send(()).unwrap();
        let done = loads.done().await;
        assert_eq!((done.askers, done.outcome.is_ok()), (vec![Some(1)], true));
        loads.begin(|| Err(Failure::runtime("no file").into()));
        let done = loads.done().await;
        assert_eq!(done.askers, [Some(2), None, Some(3)]);
        assert_eq!(done.outcome.unwrap_err().failure.what, "no file");
    }

    #[tokio::test]
    async fn a_load_that_panics_has_failed() {
        let mut loads = LoadQueue::default();
        loads.ask(Some(1)).unwrap();
        loads.begin(|| panic!("by design"));
        let done = loads.done().await;
        assert_eq!((done.askers, done.outcome.is_err()), (vec![Some(1)], true));
        // The next one works.
        loads.ask(Some(2)).unwrap();
        loads.begin(|| Ok(loaded()));
        assert!(loads.done().await.outcome.is_ok());
    }

    #[test]
    fn the_configuration_in_force_has_a_number_and_an_age() {
        let start = Instant::now();
        let first = ConfigurationInForce {
            number: 1,
            since: start,
        };
        let later = start + std::time::Duration::from_secs(65);
        let stays = "configuration 1 stays in force, read 1m 05s ago";
        assert_eq!(first.stays(later), stays);
        let stays = "configuration 2 stays in force, read 0s ago";
        assert_eq!(first.next(later).stays(later), stays);
    }

    #[test]
    fn those_who_wait_are_bounded() {
        let mut loads = LoadQueue::default();
        let taken = (0..1000).filter(|number| loads.ask(Some(*number)).is_ok());
        assert_eq!(taken.count(), WAITING_MAX);
        loads.ask(None).unwrap();
        loads.ask(None).unwrap();
        assert_eq!(loads.waiting.len(), WAITING_MAX + 1);
    }
}
