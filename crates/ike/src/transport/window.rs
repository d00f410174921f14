//! Message IDs, the window of one, and the response that is kept for a repeated request (RFC 7296 §2.1 to §2.3).
//!
//! Each end has one request outstanding at most. A request that comes again gets the same response again, unchanged.
//! What is kept of a message in fragments goes with its message ID.

use std::time::{Duration, Instant};

use aws_lc_rs::digest;

use super::datagram::ReceivedMessage;
use super::reassembly::{
    FragmentEffect, IncomingFragments, ReassembledMessage, ReassemblyFull, ReassemblyLimits,
};
use super::retransmission::pause;
use crate::config::Retransmission;
use crate::failure::UnusableResponse;
use crate::host::Random;
use crate::protected::OutgoingMessage;
use crate::rate::{Due, Rate};
use crate::refusal::Refusal;
use crate::suite::OpenedFragment;
use crate::wire::FragmentPlace;

/// The rate at which a response is repeated. A peer that has lost it repeats its request after some seconds.
const REPEATS: Rate = Rate {
    every: Duration::from_secs(1),
    burst: 4,
};

/// The IKE SA is rekeyed when an end has used the message IDs up to here. A million are left for that.
const REKEY_FROM: u32 = u32::MAX - 1_000_000;

/// Message IDs of both directions of one IKE SA.
#[derive(Debug, Default)]
pub(crate) struct Window {
    next_request: u32,
    expected_request: u32,
    /// Few SAs have one at a time.
    outstanding: Option<Box<OutstandingRequest>>,
    last_response: Option<CachedResponse>,
    /// Fragments of the expected request, and of the response to the outstanding one.
    incoming_request: IncomingFragments,
    incoming_response: IncomingFragments,
}

/// Our request that waits for its response.
#[derive(Debug)]
struct OutstandingRequest {
    message_id: u32,
    message: OutgoingMessage,
    retransmissions: u32,
    timing: Retransmission,
    urgency: Urgency,
    next_at: Instant,
    /// The request fills a packet of a certain size, and is to show whether such packets arrive.
    probe: Option<ProbeOutcome>,
    /// The reason why the last response could not be used. Anybody may have sent it, so the right response is still
    /// awaited.
    unusable: Option<UnusableResponse>,
}

/// The outcome of a request that was sent in one long packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ProbeOutcome {
    /// It was sent once.
    Sent,
    /// Its time is over, and a short request was sent in its place.
    Lost,
    /// A short request was sent in its place before its time was over. A response says nothing about the long packet.
    Void,
}

/// The urgency of a request's verdict.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Urgency {
    Usual,
    /// The request asks whether the peer is alive.
    Question,
    /// It does, and a message that nobody has authenticated says that the peer has lost the SA.
    Doubt,
}

/// Our last response, kept for copies of its request.
#[derive(Debug)]
struct CachedResponse {
    message_id: u32,
    /// SHA-256 of the request, or of its first fragment.
    request: [u8; 32],
    message: OutgoingMessage,
    repeated: u32,
    next_repeat: Due,
}

/// The meaning of the message ID of a received request.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum RequestStatus {
    /// It has the next message ID. [`Window::response_sent`] accepts it, after it was authenticated.
    New,
    /// It is a copy of the last request; see [`Window::repeat_response`].
    Repeated,
    /// It differs from the last request and has the same message ID.
    IdReused,
    OutsideWindow,
}

#[derive(Debug)]
pub(crate) enum Expiry<'a> {
    Nothing,
    Retransmit(&'a mut OutgoingMessage),
    /// The last retransmission got no response that could be used. The field is the reason why the last response could
    /// not be used, if there was one.
    GiveUp(Option<UnusableResponse>),
}

fn fingerprint(request: &[u8]) -> [u8; 32] {
    let mut bytes = [0; 32];
    bytes.copy_from_slice(digest::digest(&digest::SHA256, request).as_ref());
    bytes
}

impl Window {
    /// Goes on with these message IDs, for tests.
    #[cfg(test)]
    pub(crate) fn skip_to(&mut self, next_request: u32, expected_request: u32) {
        (self.next_request, self.expected_request) = (next_request, expected_request);
    }

    pub(crate) fn next_request_id(&self) -> u32 {
        self.next_request
    }

    /// The message IDs of one end are about to be used up (RFC 7296 §2.2).
    pub(crate) fn runs_out(&self) -> bool {
        self.next_request.max(self.expected_request) >= REKEY_FROM
    }

    /// One end has one message ID left. Ours is for the Delete.
    pub(crate) fn has_run_out(&self) -> bool {
        self.next_request.max(self.expected_request) == u32::MAX
    }

    pub(crate) fn is_busy(&self) -> bool {
        self.outstanding.is_some()
    }

    /// Remembers a request that is being sent; its ID was [`Window::next_request_id`].
    pub(crate) fn request_sent(
        &mut self,
        now: Instant,
        message: OutgoingMessage,
        timing: &Retransmission,
        random: &mut dyn Random,
    ) {
        self.outstanding = Some(Box::new(OutstandingRequest {
            message_id: self.next_request,
            message,
            retransmissions: 0,
            timing: *timing,
            urgency: Urgency::Usual,
            next_at: now + pause(timing, 0, random),
            probe: None,
            unusable: None,
        }));
    }

    /// The outstanding request, which is being sent for the first time, is a probe of the path. It has this time.
    pub(crate) fn begin_probe(&mut self, now: Instant, wait: Duration) {
        if let Some(outstanding) = &mut self.outstanding {
            outstanding.probe = Some(ProbeOutcome::Sent);
            outstanding.next_at = now + wait;
        }
    }

    /// The outcome of the outstanding request, if it is a probe of the path.
    pub(crate) fn probe_outcome(&self) -> Option<ProbeOutcome> {
        self.outstanding.as_ref()?.probe
    }

    /// Something else is to be sent. A short request goes at once in the place of a probe that is out.
    pub(crate) fn hurry_probe(&mut self, now: Instant) {
        if let Some(outstanding) = &mut self.outstanding
            && outstanding.probe == Some(ProbeOutcome::Sent)
        {
            outstanding.probe = Some(ProbeOutcome::Void);
            outstanding.next_at = now;
        }
    }

    /// The outstanding request asks whether the peer is alive, with a timing of its own.
    pub(crate) fn asks_for_life(&self) -> bool {
        let outstanding = self.outstanding.as_ref();
        outstanding.is_some_and(|outstanding| outstanding.urgency > Urgency::Usual)
    }

    /// Makes the outstanding request more urgent: it is sent again at once, and then with this timing.
    pub(crate) fn hasten(&mut self, now: Instant, timing: Retransmission, urgency: Urgency) {
        let outstanding = self.outstanding.as_mut();
        if let Some(outstanding) = outstanding.filter(|one| one.urgency < urgency) {
            outstanding.urgency = urgency;
            if outstanding.probe == Some(ProbeOutcome::Sent) {
                outstanding.probe = Some(ProbeOutcome::Void);
            }
            outstanding.retransmissions = 0;
            outstanding.timing = timing;
            outstanding.next_at = now;
        }
    }

    /// The peer is alive, though it has not answered. The request waits as others do, with this timing.
    pub(crate) fn calm(&mut self, now: Instant, timing: Retransmission) {
        let outstanding = self.outstanding.as_mut();
        if let Some(outstanding) = outstanding.filter(|one| one.urgency > Urgency::Usual) {
            outstanding.urgency = Urgency::Usual;
            outstanding.retransmissions = 0;
            outstanding.timing = timing;
            outstanding.next_at = now;
        }
    }

    /// The outstanding request, which is being sent for the first time, asks whether the peer is alive.
    pub(crate) fn ask_for_life(&mut self) {
        if let Some(outstanding) = &mut self.outstanding {
            outstanding.urgency = Urgency::Question;
        }
    }

    /// Notes why a response to the outstanding request could not be used.
    pub(crate) fn note_unusable(&mut self, why: UnusableResponse) {
        if let Some(outstanding) = &mut self.outstanding {
            outstanding.unusable = Some(why);
        }
    }

    /// The reason why the last response to the outstanding request could not be used.
    pub(crate) fn unusable(&self) -> Option<&UnusableResponse> {
        self.outstanding.as_ref()?.unusable.as_ref()
    }

    /// The outstanding request goes in fragments.
    pub(crate) fn is_fragmented(&self) -> bool {
        let outstanding = self.outstanding.as_ref();
        outstanding.is_some_and(|outstanding| outstanding.message.is_fragmented())
    }

    /// Remembers IKE_SA_INIT that is sent anew, with a cookie or another KE payload. Its message ID is zero again
    /// (RFC 7296 §2.6).
    pub(crate) fn init_sent(
        &mut self,
        now: Instant,
        message: OutgoingMessage,
        timing: &Retransmission,
        random: &mut dyn Random,
    ) {
        self.next_request = 0;
        self.request_sent(now, message, timing, random);
    }

    /// Retransmissions of the outstanding request.
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
    pub(crate) fn response_accepted(&mut self) {
        self.outstanding = None;
        self.incoming_response.clear();
        self.next_request = self.next_request.saturating_add(1);
    }

    pub(crate) fn classify(&self, message_id: u32, request: &[u8]) -> RequestStatus {
        match &self.last_response {
            Some(response) if response.message_id == message_id => {
                if response.request == fingerprint(request) {
                    RequestStatus::Repeated
                } else {
                    RequestStatus::IdReused
                }
            }
            _ if message_id == self.expected_request => RequestStatus::New,
            _ => RequestStatus::OutsideWindow,
        }
    }

    /// The last response, for a copy of its request. It is given a few times at once, then once a second, and `most` times
    /// in all.
    pub(crate) fn repeat_response(
        &mut self,
        now: Instant,
        most: u32,
    ) -> Option<&mut OutgoingMessage> {
        let response = self.last_response.as_mut()?;
        if response.repeated >= most || !REPEATS.allows(now, response.next_repeat) {
            return None;
        }
        REPEATS.take(now, &mut response.next_repeat);
        response.repeated += 1;
        Some(&mut response.message)
    }

    /// The expected request was accepted, and `message` is the response to it.
    pub(crate) fn response_sent(&mut self, request: &[u8], message: OutgoingMessage) {
        let message_id = self.expected_request;
        self.last_response = Some(CachedResponse {
            message_id,
            request: fingerprint(request),
            message,
            repeated: 0,
            next_repeat: None,
        });
        self.incoming_request.clear();
        self.expected_request = self.expected_request.saturating_add(1);
    }

    /// Says what a fragment at this place would change. The message ID is one that is awaited, and the fragment is not
    /// verified yet.
    pub(crate) fn fragment_effect(
        &self,
        response: bool,
        place: FragmentPlace,
    ) -> Result<FragmentEffect, Refusal> {
        match response {
            true => self.incoming_response.effect(place),
            false => self.incoming_request.effect(place),
        }
    }

    /// Takes a verified fragment, for which [`Window::fragment_effect`] has given an effect. Returns the message when it is
    /// complete.
    pub(crate) fn add_fragment(
        &mut self,
        now: Instant,
        fragment: OpenedFragment,
        received: &ReceivedMessage<'_>,
        limits: ReassemblyLimits,
    ) -> Result<Option<ReassembledMessage>, ReassemblyFull> {
        let fragments = match received.header.response {
            true => &mut self.incoming_response,
            false => &mut self.incoming_request,
        };
        fragments.add(now, fragment, received.datagram, limits)
    }

    /// Drops fragments that have waited too long for the rest. Returns the number of messages that were begun in vain.
    pub(crate) fn expire_fragments(&mut self, now: Instant) -> u64 {
        let both = [&mut self.incoming_request, &mut self.incoming_response];
        both.into_iter()
            .map(|fragments| u64::from(fragments.expire(now)))
            .sum()
    }

    pub(crate) fn next_timeout(&self) -> Option<Instant> {
        let outstanding = self.outstanding.as_ref();
        let fragments = [&self.incoming_request, &self.incoming_response];
        outstanding
            .map(|outstanding| outstanding.next_at)
            .into_iter()
            .chain(
                fragments
                    .into_iter()
                    .filter_map(IncomingFragments::next_timeout),
            )
            .min()
    }

    pub(crate) fn handle_timeout(&mut self, now: Instant, random: &mut dyn Random) -> Expiry<'_> {
        let Some(outstanding) = self
            .outstanding
            .as_mut()
            .filter(|outstanding| outstanding.next_at <= now)
        else {
            return Expiry::Nothing;
        };
        if outstanding.probe == Some(ProbeOutcome::Sent) {
            // From here on it is a request like others.
            outstanding.probe = Some(ProbeOutcome::Lost);
            outstanding.next_at = now + pause(&outstanding.timing, 0, random);
            return Expiry::Retransmit(&mut outstanding.message);
        }
        if outstanding.retransmissions >= outstanding.timing.tries {
            return Expiry::GiveUp(outstanding.unusable.take());
        }
        outstanding.retransmissions += 1;
        let wait = pause(&outstanding.timing, outstanding.retransmissions, random);
        outstanding.next_at = now + wait;
        Expiry::Retransmit(&mut outstanding.message)
    }

    /// Drops the outstanding request, whose response is not awaited any more, and all fragments.
    pub(crate) fn forget_request(&mut self) {
        self.outstanding = None;
        self.incoming_request.clear();
        self.incoming_response.clear();
    }
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

    fn message(text: &[u8]) -> OutgoingMessage {
        OutgoingMessage::whole(text.to_vec())
    }

    /// Returns the times at which a request is sent again, and the time at which the peer is given up, in seconds.
    fn schedule(random: &mut dyn Random) -> (Vec<u64>, u64) {
        let timing = Retransmission::default();
        let start = Instant::now();
        let mut window = Window::default();
        window.request_sent(start, message(b"request"), &timing, random);
        let mut at = Vec::new();
        loop {
            let next = window.next_timeout().unwrap();
            match window.handle_timeout(next, random) {
                Expiry::Retransmit(again) => {
                    assert_eq!(again.send(), [b"request"]);
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

    // RFC 7296 R42, R45, R47, R51, R66
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

    // RFC 7296 R41, R43, R44, R58
    #[test]
    fn only_an_identical_request_is_answered_again() {
        let mut window = Window::default();
        assert_eq!(window.classify(0, b"a"), RequestStatus::New);
        window.response_sent(b"a", message(b"reply"));
        assert_eq!(window.classify(0, b"a"), RequestStatus::Repeated);
        assert_eq!(window.classify(0, b"b"), RequestStatus::IdReused);
        assert_eq!(window.classify(1, b"b"), RequestStatus::New);
        assert_eq!(window.classify(2, b"b"), RequestStatus::OutsideWindow);
        window.response_sent(b"b", message(b"reply"));
        assert_eq!(
            window.classify(0, b"a"),
            RequestStatus::OutsideWindow,
            "only one reply is kept"
        );
    }

    #[test]
    fn the_last_message_id_is_used_once() {
        let mut window = Window::default();
        window.skip_to(0, u32::MAX);
        assert!(window.has_run_out());
        assert_eq!(window.classify(u32::MAX, b"a"), RequestStatus::New);
        window.response_sent(b"a", message(b"reply"));
        assert_eq!(window.classify(u32::MAX, b"a"), RequestStatus::Repeated);
        assert_eq!(window.classify(u32::MAX, b"b"), RequestStatus::IdReused);
    }

    #[test]
    fn a_response_is_repeated_a_few_times_and_then_slowly() {
        let start = Instant::now();
        let mut window = Window::default();
        assert!(
            window.repeat_response(start, 10).is_none(),
            "nothing was answered"
        );
        window.response_sent(b"a", message(b"reply"));
        let mut repeats = |second: u64, most| {
            let now = start + Duration::from_millis(1000 * second + 1);
            let mut given = || Some(window.repeat_response(now, most)?.send() == [b"reply"]);
            (0..100).filter(|_| given() == Some(true)).count()
        };
        assert_eq!(repeats(0, 10), 4);
        assert_eq!(repeats(1, 10), 1);
        assert_eq!(repeats(3, 10), 2);
        assert_eq!(repeats(100, 10), 3, "the last of ten");
        assert_eq!(repeats(200, 10), 0);
        assert_eq!(repeats(300, u32::MAX), 4);
    }
}
