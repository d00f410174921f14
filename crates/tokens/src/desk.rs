//! The signatures and certificates that are asked for, and the answers.
//!
//! There is one desk. Connections of the configuration before a reload and after it have the same keys.

use std::collections::{HashMap, HashSet};
use std::path::PathBuf;
use std::sync::{Arc, Condvar, LazyLock, Mutex, MutexGuard, PoisonError};
use std::task::Poll;
use std::time::{Duration, Instant};

use esplanade_crypto::secret::Secret;
use esplanade_ike::auth::{ExternalKey, Identity, SigningRequest};

use crate::message::{CONTENT_MAX, SentPin, TokenOutcome, TokenPlace, TokenRequest, TokenTask};

/// Signatures that are asked for or kept. Each is for one IKE SA.
const ENTRIES_MAX: usize = 256;
/// Those of one peer, when half of the places are taken. Connections of ours to one gateway may begin together.
const PEER_ENTRIES_MAX: usize = 16;
/// Requests that the keeper has at a time.
const ASKED_MAX: usize = 32;
/// Those of one peer. A token signs one after the other, so that the others of a peer would be in front of other peers'.
const PEER_ASKED_MAX: usize = 2;
/// The time that a signature may take.
const PATIENCE: Duration = Duration::from_secs(15);
/// The time for which an answer is kept: IKE asks again when it goes on.
const KEPT: Duration = Duration::from_secs(15);

static DESK: LazyLock<Desk> = LazyLock::new(Desk::default);

pub fn desk() -> &'static Desk {
    &DESK
}

/// Returns the certificate of a token, if it was read.
pub fn certificate(place: &TokenPlace) -> Option<Vec<u8>> {
    desk().lock().certificates.get(place).cloned()
}

/// A private key on a token.
#[derive(Clone, Debug)]
pub struct TokenKey {
    pub place: TokenPlace,
    pub pin: Option<Arc<Secret>>,
}

impl ExternalKey for TokenKey {
    fn poll_sign(&self, request: &SigningRequest) -> Poll<Result<Vec<u8>, String>> {
        desk().lock().look(self, request, Instant::now())
    }
}

/// The place where IKE asks and the keeper answers.
#[derive(Debug, Default)]
pub struct Desk {
    state: Mutex<DeskState>,
    answered: Condvar,
}

#[derive(Debug, Default)]
pub struct DeskState {
    last_id: u64,
    signatures: Vec<Entry>,
    /// The signatures that the keeper has not answered yet, also those that nobody waits for any more.
    asked: HashMap<u64, Asked>,
    certificates: HashMap<TokenPlace, Vec<u8>>,
    /// Certificates that the keeper is asked for.
    asked_certificates: HashMap<u64, TokenPlace>,
    /// The PINs that tokens have refused. None of them is tried again.
    refused: Vec<(TokenId, Arc<Secret>)>,
    /// The keeper does not run.
    closed: bool,
}

type TokenId = (PathBuf, Option<u64>);

#[derive(Debug)]
struct Entry {
    key: TokenKey,
    request: SigningRequest,
    since: Instant,
    state: EntryState,
}

/// A signature that the keeper has been asked for.
#[derive(Debug)]
struct Asked {
    token: TokenId,
    peer: Identity,
    /// The PIN that was sent with it.
    pin: Option<Arc<Secret>>,
}

#[derive(Debug)]
enum EntryState {
    Wanted { with_pin: bool },
    Asked { id: u64 },
    Done(Result<Vec<u8>, String>),
}

impl Entry {
    fn token(&self) -> TokenId {
        (self.key.place.module.clone(), self.key.place.slot)
    }
}

impl Desk {
    pub fn lock(&self) -> MutexGuard<'_, DeskState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes an answer of the keeper.
    pub fn settle(&self, id: u64, outcome: TokenOutcome) {
        self.lock().settle(id, outcome);
        self.answered.notify_all();
    }

    /// The keeper has ended.
    pub fn close(&self) {
        let mut state = self.lock();
        state.closed = true;
        state.asked_certificates.clear();
        state.asked.clear();
        for entry in &mut state.signatures {
            if !matches!(entry.state, EntryState::Done(_)) {
                entry.state = EntryState::Done(Err(KEEPER_ENDED.to_owned()));
            }
        }
        drop(state);
        self.answered.notify_all();
    }

    /// Waits until certificates that are asked for have come, for a bounded time.
    pub fn wait_for_certificates(&self, patience: Duration) {
        let waiting = |state: &mut DeskState| !state.asked_certificates.is_empty();
        let state = self.lock();
        let waited = self.answered.wait_timeout_while(state, patience, waiting);
        let (mut state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        state.asked_certificates.clear();
    }
}

const KEEPER_ENDED: &str = "the process that uses the tokens has ended: restart the gateway";

impl DeskState {
    fn look(
        &mut self,
        key: &TokenKey,
        request: &SigningRequest,
        now: Instant,
    ) -> Poll<Result<Vec<u8>, String>> {
        if self.closed {
            return Poll::Ready(Err(KEEPER_ENDED.to_owned()));
        }
        if request.input.len() > CONTENT_MAX {
            return Poll::Ready(Err("the message is too long for a token".to_owned()));
        }
        self.forget(now);
        let same = |one: &&Entry| one.key.place == key.place && one.request == *request;
        match self.signatures.iter().find(same).map(|one| &one.state) {
            Some(EntryState::Done(outcome)) => Poll::Ready(outcome.clone()),
            Some(_) => Poll::Pending,
            None if self.signatures.len() >= ENTRIES_MAX => {
                Poll::Ready(Err("too many signatures are under way".to_owned()))
            }
            None if self.signatures.len() >= ENTRIES_MAX / 2
                && self.of_peer(&request.peer).count() >= PEER_ENTRIES_MAX =>
            {
                let why = "too many signatures are under way for this peer";
                Poll::Ready(Err(why.to_owned()))
            }
            None => {
                self.signatures.push(Entry {
                    key: key.clone(),
                    request: request.clone(),
                    since: now,
                    state: EntryState::Wanted { with_pin: false },
                });
                Poll::Pending
            }
        }
    }

    fn of_peer(&self, peer: &Identity) -> impl Iterator<Item = &Entry> {
        let entries = self.signatures.iter();
        entries.filter(move |entry| entry.request.peer == *peer)
    }

    fn forget(&mut self, now: Instant) {
        self.signatures.retain(|entry| {
            let old = now.saturating_duration_since(entry.since) >= KEPT;
            !old || !matches!(entry.state, EntryState::Done(_))
        });
    }

    /// Gives up what has taken too long. Returns whether there was any.
    pub fn expire(&mut self, now: Instant) -> bool {
        self.forget(now);
        let mut expired = false;
        for entry in &mut self.signatures {
            let old = now.saturating_duration_since(entry.since) >= PATIENCE;
            if old && !matches!(entry.state, EntryState::Done(_)) {
                let why = format!("there was no signature in {} s", PATIENCE.as_secs());
                entry.state = EntryState::Done(Err(why));
                entry.since = now;
                expired = true;
            }
        }
        expired
    }

    /// Returns the requests to send now. A token gets one PIN at a time, and none that it has refused.
    pub fn take_due(&mut self) -> (Vec<TokenRequest>, bool) {
        let (mut due, mut failed) = (Vec::new(), false);
        let mut room = ASKED_MAX.saturating_sub(self.asked.len());
        let mut logins: HashSet<TokenId> = HashSet::new();
        let mut of_peers: HashMap<Identity, usize> = HashMap::new();
        for asked in self.asked.values() {
            *of_peers.entry(asked.peer.clone()).or_default() += 1;
            if asked.pin.is_some() {
                logins.insert(asked.token.clone());
            }
        }
        for entry in &mut self.signatures {
            let EntryState::Wanted { with_pin } = entry.state else {
                continue;
            };
            let token = entry.token();
            let refused = |pin: &Arc<Secret>| {
                let mut known = self.refused.iter();
                known.any(|(of, other)| *of == token && other == pin)
            };
            let pin = match (&entry.key.pin, with_pin) {
                (None, true) => {
                    let why = "the token wants a PIN: add `pin` to its secret";
                    entry.state = EntryState::Done(Err(why.to_owned()));
                    failed = true;
                    continue;
                }
                (Some(pin), true) if refused(pin) => {
                    let why = "the token has refused the PIN, which is not tried again";
                    entry.state = EntryState::Done(Err(why.to_owned()));
                    failed = true;
                    continue;
                }
                (Some(_), true) if logins.contains(&token) => continue,
                (Some(pin), true) => Some(pin.clone()),
                (_, false) => None,
            };
            if room == 0 {
                break;
            }
            let of_peer = of_peers.entry(entry.request.peer.clone()).or_default();
            if *of_peer >= PEER_ASKED_MAX {
                continue;
            }
            *of_peer += 1;
            room -= 1;
            if with_pin {
                logins.insert(token.clone());
            }
            self.last_id += 1;
            let id = self.last_id;
            let sent_pin = pin.as_ref().map(|pin| SentPin(pin.expose().to_vec()));
            let asked = Asked {
                token,
                peer: entry.request.peer.clone(),
                pin,
            };
            self.asked.insert(id, asked);
            due.push(TokenRequest {
                id,
                place: entry.key.place.clone(),
                task: TokenTask::Sign {
                    mechanism: entry.request.mechanism.into(),
                    input: entry.request.input.clone(),
                    pin: sent_pin,
                },
            });
            entry.state = EntryState::Asked { id };
        }
        (due, failed)
    }

    /// Returns the request to read a certificate.
    pub fn ask_certificate(&mut self, place: &TokenPlace) -> TokenRequest {
        self.last_id += 1;
        self.asked_certificates.insert(self.last_id, place.clone());
        TokenRequest {
            id: self.last_id,
            place: place.clone(),
            task: TokenTask::Certificate,
        }
    }

    fn settle(&mut self, id: u64, outcome: TokenOutcome) {
        if let Some(place) = self.asked_certificates.remove(&id) {
            match outcome {
                TokenOutcome::Done(content) => {
                    self.certificates.insert(place, content);
                }
                TokenOutcome::Failed(why) => {
                    let module = place.module.display();
                    tracing::error!(%module, "a certificate was not read from its token: {why}");
                }
                TokenOutcome::PinNeeded | TokenOutcome::PinRefused(_) => {}
            }
            return;
        }
        let Some(asked) = self.asked.remove(&id) else {
            return;
        };
        let (module, slot) = (asked.token.0.display(), asked.token.1);
        let has_pin = asked.pin.is_some();
        let result = match outcome {
            TokenOutcome::Done(value) => Some(Ok(value)),
            TokenOutcome::PinNeeded if !has_pin => None,
            TokenOutcome::PinNeeded => Some(Err("the token is closed again".to_owned())),
            TokenOutcome::PinRefused(why) => {
                tracing::error!(
                    %module,
                    slot,
                    "the token has refused the PIN, which is not tried again until it is changed: {why}"
                );
                let pin = asked.pin.unwrap_or_default();
                self.refused.push((asked.token, pin));
                Some(Err(format!("the token has refused the PIN: {why}")))
            }
            TokenOutcome::Failed(why) => {
                tracing::warn!(%module, slot, "a token has not signed: {why}");
                Some(Err(why))
            }
        };
        let is_it = |entry: &&mut Entry| match entry.state {
            EntryState::Asked { id: other } => other == id,
            _ => false,
        };
        let Some(entry) = self.signatures.iter_mut().find(is_it) else {
            return;
        };
        match result {
            Some(result) => {
                entry.state = EntryState::Done(result);
                entry.since = Instant::now();
            }
            None => entry.state = EntryState::Wanted { with_pin: true },
        }
    }
}

#[cfg(test)]
mod tests {
    use esplanade_ike::auth::SigningMechanism;

    use super::*;

    fn key(pin: &str) -> TokenKey {
        TokenKey {
            place: TokenPlace {
                module: "/lib/one.so".into(),
                slot: Some(1),
                handle: vec![1],
            },
            pin: Some(Arc::new(Secret::from(pin.as_bytes()))),
        }
    }

    fn request_of(peer: &str, number: usize) -> SigningRequest {
        SigningRequest {
            mechanism: SigningMechanism::Ecdsa,
            input: number.to_be_bytes().to_vec(),
            peer: peer.parse().unwrap(),
        }
    }

    /// A request of a peer of its own.
    fn request(number: usize) -> SigningRequest {
        request_of(&format!("{number}.example.org"), number)
    }

    fn pins(due: &[TokenRequest]) -> Vec<bool> {
        let has = |task: &TokenTask| matches!(task, TokenTask::Sign { pin: Some(_), .. });
        due.iter().map(|one| has(&one.task)).collect()
    }

    #[test]
    fn a_refused_pin_is_tried_once() {
        let (mut desk, now) = (DeskState::default(), Instant::now());
        let wrong = key("0000");
        for number in 0..3 {
            assert!(desk.look(&wrong, &request(number), now).is_pending());
        }
        let (due, _) = desk.take_due();
        assert_eq!(pins(&due), [false; 3]);
        due.iter()
            .for_each(|one| desk.settle(one.id, TokenOutcome::PinNeeded));
        let (due, _) = desk.take_due();
        assert_eq!(pins(&due), [true], "the others wait");
        desk.settle(due[0].id, TokenOutcome::PinRefused("wrong".to_owned()));
        let (due, failed) = desk.take_due();
        assert!(due.is_empty() && failed);
        for number in 0..3 {
            let Poll::Ready(Err(why)) = desk.look(&wrong, &request(number), now) else {
                panic!("{number}");
            };
            assert!(why.contains("refused the PIN"), "{why}");
        }
        // Another PIN is tried.
        assert!(desk.look(&key("1234"), &request(9), now).is_pending());
        let (due, _) = desk.take_due();
        desk.settle(due[0].id, TokenOutcome::PinNeeded);
        let (due, _) = desk.take_due();
        assert_eq!(pins(&due), [true]);
        desk.settle(due[0].id, TokenOutcome::Done(vec![7]));
        let done = desk.look(&key("1234"), &request(9), now);
        assert_eq!(done, Poll::Ready(Ok(vec![7])));
    }

    #[test]
    fn what_is_asked_and_kept_is_bounded() {
        let (mut desk, now) = (DeskState::default(), Instant::now());
        let key = key("1234");
        for number in 0..ENTRIES_MAX {
            assert!(desk.look(&key, &request(number), now).is_pending());
        }
        assert!(desk.look(&key, &request(ENTRIES_MAX), now).is_ready());
        assert_eq!(desk.take_due().0.len(), ASKED_MAX);
        assert!(desk.take_due().0.is_empty());
        assert!(!desk.expire(now) && desk.expire(now + PATIENCE));
        assert!(!desk.expire(now + PATIENCE + KEPT) && desk.signatures.is_empty());
    }

    /// The keeper has them, whether somebody waits for them or not.
    #[test]
    fn what_the_keeper_has_is_bounded() {
        let (mut desk, now) = (DeskState::default(), Instant::now());
        let key = key("1234");
        let ask = |desk: &mut DeskState, number, now| {
            assert!(desk.look(&key, &request(number), now).is_pending());
        };
        (0..ASKED_MAX).for_each(|number| ask(&mut desk, number, now));
        let (first, _) = desk.take_due();
        assert_eq!(first.len(), ASKED_MAX);
        assert!(desk.expire(now + PATIENCE));
        let later = now + PATIENCE;
        (0..ASKED_MAX).for_each(|number| ask(&mut desk, ASKED_MAX + number, later));
        assert!(desk.take_due().0.is_empty());
        for one in &first[..3] {
            desk.settle(one.id, TokenOutcome::Done(vec![1]));
        }
        assert_eq!(desk.take_due().0.len(), 3);
    }

    /// A token locks itself after a few wrong PINs.
    #[test]
    fn a_pin_is_refused_also_if_nobody_waits_any_more() {
        let (mut desk, now) = (DeskState::default(), Instant::now());
        let wrong = key("0000");
        assert!(desk.look(&wrong, &request(1), now).is_pending());
        let (due, _) = desk.take_due();
        desk.settle(due[0].id, TokenOutcome::PinNeeded);
        let (late, _) = desk.take_due();
        assert_eq!(pins(&late), [true]);
        let later = now + PATIENCE;
        assert!(desk.expire(later));
        assert!(desk.look(&wrong, &request(2), later).is_pending());
        let (due, _) = desk.take_due();
        desk.settle(due[0].id, TokenOutcome::PinNeeded);
        assert!(desk.take_due().0.is_empty(), "one PIN is under way");
        desk.settle(late[0].id, TokenOutcome::PinRefused("wrong".to_owned()));
        let (due, failed) = desk.take_due();
        assert!(due.is_empty() && failed);
    }

    #[test]
    fn no_peer_keeps_the_token_from_others() {
        let (mut desk, now) = (DeskState::default(), Instant::now());
        let key = key("1234");
        let greedy = |number| request_of("greedy.example.org", number);
        for number in 0..ENTRIES_MAX / 2 {
            assert!(desk.look(&key, &greedy(number), now).is_pending());
        }
        let Poll::Ready(Err(why)) = desk.look(&key, &greedy(ENTRIES_MAX), now) else {
            panic!("it has its share");
        };
        assert!(why.contains("for this peer"), "{why}");
        let others: Vec<_> = (0..10).map(request).collect();
        for other in &others {
            assert!(desk.look(&key, other, now).is_pending());
        }
        // The others are behind two signatures, and not behind hundreds.
        let (due, _) = desk.take_due();
        assert_eq!(due.len(), PEER_ASKED_MAX + others.len());
        for one in due {
            desk.settle(one.id, TokenOutcome::Done(vec![1]));
        }
        for other in &others {
            assert!(desk.look(&key, other, now).is_ready());
        }
    }
}
