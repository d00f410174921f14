//! Message IDs, the window of one, and retransmission (RFC 7296 sections 2.1 to 2.4).

use std::time::{Duration, Instant};

use aws_lc_rs::digest;

use crate::config::Retransmission;
use crate::host::Random;
use crate::rate::{Due, Rate};

/// The longest pause between two retransmissions.
const PAUSE_MAX: Duration = Duration::from_secs(3600);
/// The part of a pause that chance may take away, so that what was lost at once is not sent again at once. The protocol
/// leaves the timing to us (section 2.4).
const JITTER: f64 = 0.2;

/// How often a response is repeated. A peer that has lost it asks again after a while.
const REPEATS: Rate = Rate {
    every: Duration::from_secs(1),
    burst: 4,
};

/// Message IDs of both directions of one IKE SA.
#[derive(Debug, Default)]
pub(crate) struct Window {
    next_request: u32,
    expected_request: u32,
    outstanding: Option<Outstanding>,
    last_reply: Option<Reply>,
}

/// Our request that waits for its response.
#[derive(Debug)]
struct Outstanding {
    message_id: u32,
    datagram: Vec<u8>,
    retransmissions: u32,
    next_at: Instant,
    /// Why the last answer to it was of no use. Anybody may have sent that one: the right one is waited for.
    unusable: Option<String>,
}

/// Our last response, for a request that comes again.
#[derive(Debug)]
struct Reply {
    message_id: u32,
    request: [u8; 32],
    datagram: Vec<u8>,
    repeated: u32,
    next_repeat: Due,
}

/// What a request's message ID says about it.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Incoming {
    /// The next one. It is accepted only once it is authenticated, by [`Window::answered`].
    New,
    /// The very request that was answered last; see [`Window::repeat`].
    Again,
    /// Another request under an ID that was answered.
    Reused,
    Outside,
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Expiry<'a> {
    Nothing,
    Retransmit(&'a [u8]),
    /// Nothing came, or nothing that could be used, and why not.
    GiveUp(Option<String>),
}

fn fingerprint(request: &[u8]) -> [u8; 32] {
    let mut bytes = [0; 32];
    bytes.copy_from_slice(digest::digest(&digest::SHA256, request).as_ref());
    bytes
}

impl Window {
    pub(crate) fn next_request_id(&self) -> u32 {
        self.next_request
    }

    pub(crate) fn is_busy(&self) -> bool {
        self.outstanding.is_some()
    }

    /// Remembers a request that is being sent; its ID was [`Window::next_request_id`].
    pub(crate) fn sent(
        &mut self,
        now: Instant,
        datagram: Vec<u8>,
        timing: &Retransmission,
        random: &mut dyn Random,
    ) {
        self.outstanding = Some(Outstanding {
            message_id: self.next_request,
            datagram,
            retransmissions: 0,
            next_at: now + pause(timing, 0, random),
            unusable: None,
        });
    }

    /// An answer to the outstanding request was of no use.
    pub(crate) fn unusable(&mut self, why: impl Into<String>) {
        if let Some(outstanding) = &mut self.outstanding {
            outstanding.unusable = Some(why.into());
        }
    }

    /// Sends IKE_SA_INIT in another form: the message ID stays zero (section 2.6).
    pub(crate) fn restarted(
        &mut self,
        now: Instant,
        datagram: Vec<u8>,
        timing: &Retransmission,
        random: &mut dyn Random,
    ) {
        self.next_request = 0;
        self.sent(now, datagram, timing, random);
    }

    /// How often the outstanding request was sent again.
    pub(crate) fn retransmissions(&self) -> u32 {
        self.outstanding
            .as_ref()
            .map_or(0, |outstanding| outstanding.retransmissions)
    }

    pub(crate) fn awaits(&self, message_id: u32) -> bool {
        self.outstanding
            .as_ref()
            .is_some_and(|outstanding| outstanding.message_id == message_id)
    }

    /// The response to the outstanding request was accepted.
    pub(crate) fn completed(&mut self) {
        self.outstanding = None;
        // An SA is rekeyed or gone long before 2^32 exchanges (section 2.2).
        self.next_request = self.next_request.saturating_add(1);
    }

    pub(crate) fn incoming(&self, message_id: u32, request: &[u8]) -> Incoming {
        if message_id == self.expected_request {
            return Incoming::New;
        }
        match &self.last_reply {
            Some(reply) if reply.message_id == message_id => {
                if reply.request == fingerprint(request) {
                    Incoming::Again
                } else {
                    Incoming::Reused
                }
            }
            _ => Incoming::Outside,
        }
    }

    /// The last response, for a copy of its request: a few at once, then one a second, and `most` in all.
    pub(crate) fn repeat(&mut self, now: Instant, most: u32) -> Option<&[u8]> {
        let reply = self.last_reply.as_mut()?;
        if reply.repeated >= most || !REPEATS.allows(now, reply.next_repeat) {
            return None;
        }
        REPEATS.take(now, &mut reply.next_repeat);
        reply.repeated += 1;
        Some(&reply.datagram)
    }

    /// The expected request was accepted and answered.
    pub(crate) fn answered(&mut self, request: &[u8], datagram: Vec<u8>) {
        let message_id = self.expected_request;
        self.last_reply = Some(Reply {
            message_id,
            request: fingerprint(request),
            datagram,
            repeated: 0,
            next_repeat: None,
        });
        self.expected_request = self.expected_request.saturating_add(1);
    }

    pub(crate) fn next_timeout(&self) -> Option<Instant> {
        self.outstanding
            .as_ref()
            .map(|outstanding| outstanding.next_at)
    }

    pub(crate) fn handle_timeout(
        &mut self,
        now: Instant,
        timing: &Retransmission,
        random: &mut dyn Random,
    ) -> Expiry<'_> {
        let Some(outstanding) = self
            .outstanding
            .as_mut()
            .filter(|outstanding| outstanding.next_at <= now)
        else {
            return Expiry::Nothing;
        };
        if outstanding.retransmissions >= timing.tries {
            return Expiry::GiveUp(outstanding.unusable.take());
        }
        outstanding.retransmissions += 1;
        outstanding.next_at = now + pause(timing, outstanding.retransmissions, random);
        Expiry::Retransmit(&outstanding.datagram)
    }

    /// Drops the outstanding request: nobody waits for its response any more.
    pub(crate) fn forget_request(&mut self) {
        self.outstanding = None;
    }
}

fn pause(timing: &Retransmission, retransmissions: u32, random: &mut dyn Random) -> Duration {
    let exponent = i32::try_from(retransmissions).unwrap_or(i32::MAX);
    let seconds = timing.timeout.as_secs_f64() * timing.base.max(1.0).powi(exponent);
    Duration::try_from_secs_f64(seconds * (1.0 - JITTER * random.fraction()))
        .unwrap_or(PAUSE_MAX)
        .clamp(Duration::from_millis(10), PAUSE_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Always the same.
    struct Constant(u8);

    impl Random for Constant {
        fn fill(&mut self, bytes: &mut [u8]) {
            bytes.fill(self.0);
        }
    }

    /// When a request is sent again, and when the peer is given up, in seconds.
    fn schedule(random: &mut dyn Random) -> (Vec<u64>, u64) {
        let timing = Retransmission::default();
        let start = Instant::now();
        let mut window = Window::default();
        window.sent(start, b"request".to_vec(), &timing, random);
        let mut at = Vec::new();
        loop {
            let next = window.next_timeout().unwrap();
            match window.handle_timeout(next, &timing, random) {
                Expiry::Retransmit(bytes) => {
                    assert_eq!(bytes, b"request");
                    at.push((next - start).as_secs());
                }
                Expiry::GiveUp(why) => {
                    assert_eq!(why, None);
                    return (at, (next - start).as_secs());
                }
                Expiry::Nothing => panic!("a timeout does something"),
            }
        }
    }

    #[test]
    fn back_off_grows_and_ends() {
        let longest = schedule(&mut Constant(0));
        assert_eq!(longest, (vec![4, 11, 24, 47, 89], 165));
    }

    #[test]
    fn chance_makes_a_pause_shorter() {
        let shortest = schedule(&mut Constant(0xff));
        assert_eq!(shortest, (vec![3, 8, 19, 37, 71], 132));
    }

    #[test]
    fn only_an_identical_request_is_answered_again() {
        let mut window = Window::default();
        assert_eq!(window.incoming(0, b"a"), Incoming::New);
        window.answered(b"a", b"reply".to_vec());
        assert_eq!(window.incoming(0, b"a"), Incoming::Again);
        assert_eq!(window.incoming(0, b"b"), Incoming::Reused);
        assert_eq!(window.incoming(1, b"b"), Incoming::New);
        assert_eq!(window.incoming(2, b"b"), Incoming::Outside);
        window.answered(b"b", b"reply".to_vec());
        assert_eq!(
            window.incoming(0, b"a"),
            Incoming::Outside,
            "only one reply is kept"
        );
    }

    #[test]
    fn a_response_is_repeated_a_few_times_and_then_slowly() {
        let start = Instant::now();
        let mut window = Window::default();
        assert_eq!(window.repeat(start, 10), None, "nothing was answered");
        window.answered(b"a", b"reply".to_vec());
        let mut repeats = |second: u64, most| {
            let now = start + Duration::from_millis(1000 * second + 1);
            let given = (0..100).filter(|_| window.repeat(now, most) == Some(b"reply"));
            given.count()
        };
        assert_eq!(repeats(0, 10), 4);
        assert_eq!(repeats(1, 10), 1);
        assert_eq!(repeats(3, 10), 2);
        assert_eq!(repeats(100, 10), 3, "the last of ten");
        assert_eq!(repeats(200, 10), 0);
        assert_eq!(repeats(300, u32::MAX), 4);
    }

    #[test]
    fn a_pause_is_bounded() {
        let timing = Retransmission {
            tries: 5000,
            timeout: Duration::from_secs(4),
            base: 1e300,
        };
        let random = &mut Constant(0);
        assert_eq!(pause(&timing, 4000, random), PAUSE_MAX);
        assert!(
            pause(
                &Retransmission {
                    timeout: Duration::ZERO,
                    ..timing
                },
                1,
                random
            ) > Duration::ZERO
        );
    }
}
