//! The gateway's connection to the keeper.

use std::io;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use esplanade_host::{confine, helper_process};
use esplanade_tokens::TokenPlace;
use esplanade_tokens::desk::desk;
use esplanade_tokens::message::{ModuleRegistration, TokenReply, TokenRequest};
use tokio::sync::Notify;

use super::keeper;
use super::lines::{WipedLines, write_line};

/// The time that a start or a reload waits for certificates on tokens.
const CERTIFICATES: Duration = Duration::from_secs(3);

/// Has tokens sign, through the keeper. All copies share one connection to it.
#[derive(Clone, Debug, Default)]
pub struct TokenSigner {
    keeper: Arc<Mutex<Option<UnixStream>>>,
    modules: Arc<[PathBuf]>,
    answered: Arc<Notify>,
}

impl TokenSigner {
    /// Starts the keeper, if there are modules. Call it while the process can still run programs.
    pub fn start(modules: Vec<PathBuf>) -> io::Result<Self> {
        if modules.is_empty() {
            return Ok(Self::default());
        }
        let mut keeper = helper_process::spawn(keeper::COMMAND)?;
        let list = ModuleRegistration { modules };
        write_line(&mut keeper, &list)?;
        let answered = Arc::new(Notify::new());
        let (reader, notify) = (keeper.try_clone()?, answered.clone());
        confine::start_writing("tokens".to_owned(), move || read_replies(reader, &notify))?;
        Ok(Self {
            keeper: Arc::new(Mutex::new(Some(keeper))),
            modules: list.modules.into(),
            answered,
        })
    }

    /// Tells whether the gateway has started with this module.
    pub fn knows(&self, module: &PathBuf) -> bool {
        self.modules.contains(module)
    }

    /// Reads certificates that a configuration lacks, for a bounded time. Returns whether one has come: then the
    /// configuration is to be loaded again.
    pub fn read_certificates(&self, absent: &[TokenPlace]) -> bool {
        let known = absent.iter().filter(|place| self.knows(&place.module));
        let absent: Vec<_> = known.collect();
        if absent.is_empty() {
            return false;
        }
        for place in &absent {
            let request = desk().lock().ask_certificate(place);
            self.send(&request);
        }
        desk().wait_for_certificates(CERTIFICATES);
        absent
            .iter()
            .any(|place| esplanade_tokens::certificate(place).is_some())
    }

    /// Sends what IKE has asked for. Returns whether IKE has an answer already.
    pub fn pursue(&self) -> bool {
        let (due, failed) = desk().lock().take_due();
        due.iter().for_each(|request| self.send(request));
        failed
    }

    /// Gives up what has taken too long. Returns whether there was any.
    pub fn expire(&self, now: Instant) -> bool {
        desk().lock().expire(now)
    }

    /// Waits for an answer. It is safe to cancel.
    pub async fn answered(&self) {
        self.answered.notified().await;
    }

    fn send(&self, request: &TokenRequest) {
        let mut keeper = self.keeper.lock().unwrap_or_else(PoisonError::into_inner);
        let sent = match &mut *keeper {
            // The keeper reads at once, so that writing does not wait.
            Some(keeper) => write_line(keeper, request).is_ok(),
            None => false,
        };
        if !sent {
            *keeper = None;
            desk().close();
        }
    }
}

/// Takes replies off the socket until the keeper ends.
fn read_replies(socket: UnixStream, answered: &Notify) {
    let mut lines = WipedLines::new(socket);
    while let Ok(Some(TokenReply { id, outcome })) = lines.next() {
        desk().settle(id, outcome);
        answered.notify_one();
    }
    tracing::error!("the process that uses the tokens has ended");
    desk().close();
    answered.notify_one();
}
