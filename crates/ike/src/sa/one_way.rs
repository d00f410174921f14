//! Traffic of a child SA that goes one way: packets go out, and nothing comes in.
//!
//! IKE and ESP can take different ways through filters, so ESP can be lost while the peer answers every message of IKE.
//! The counters of one SA show that. They cannot show whether the traffic is to be answered at all: syslog is not. So
//! a child is measured by its own past. Where nothing has ever come in, ten seconds are enough. Where the peer has
//! sent before, the silence must be twice as long as any that ended with a packet of the peer. An outage looks the same
//! as such a silence, so there is a bound: after a night without ESP the next outage is not hidden for two nights.

use std::time::{Duration, Instant};

use crate::wire::TrafficSelector;

/// The time of unanswered sending after which the traffic is one-way, where nothing has ever come in.
const NEVER_ANSWERED: Duration = Duration::from_secs(10);
/// The same where the peer has sent before, at least.
const ANSWERED_BEFORE: Duration = Duration::from_secs(30);
/// The same, at most.
const ANSWERED_LATE: Duration = Duration::from_secs(1800);
/// The looks at the data plane that must have found packets. A few packets can be lost by chance, or have no answer.
const LOOKS_MIN: u32 = 4;
/// Sending that pauses for this long begins anew, and one-way traffic that pauses for this long is over.
const PAUSE: Duration = Duration::from_secs(300);

const PROTOCOL_UDP: u8 = 17;

/// Packets that go out without an answer.
#[derive(Clone, Copy, Debug)]
struct Stretch {
    since: Instant,
    last: Instant,
    looks: u32,
    is_one_way: bool,
}

/// The outcome of all looks at the counters of a child SA, and of those that it has replaced.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct TrafficPast {
    stretch: Option<Stretch>,
    received_at: Option<Instant>,
    /// The longest stretch that ended with a packet of the peer. `None`: the peer has never sent.
    longest_answered: Option<Duration>,
}

impl TrafficPast {
    /// Packets went out. `alive_at` is the time at which the peer was last heard in any way; `None`: it is being asked
    /// whether it lives. Returns true if the traffic is one-way from now on.
    pub(crate) fn sent(&mut self, now: Instant, alive_at: Option<Instant>) -> bool {
        // Nobody knows which came first in one look at the data plane. An answer may have come.
        if self.received_at == Some(now) {
            return false;
        }
        let goes_on = |stretch: &Stretch| now.saturating_duration_since(stretch.last) < PAUSE;
        let mut stretch = self.stretch.filter(goes_on).unwrap_or(Stretch {
            since: now,
            last: now,
            looks: 0,
            is_one_way: false,
        });
        stretch.last = now;
        stretch.looks = stretch.looks.saturating_add(1);
        let lasts = now.saturating_duration_since(stretch.since) >= self.patience();
        // A peer that has not been heard since may be gone, which is the matter of its liveness check.
        let lives = alive_at.is_some_and(|at| at > stretch.since);
        let begins = !stretch.is_one_way && lasts && stretch.looks >= LOOKS_MIN && lives;
        stretch.is_one_way |= begins;
        self.stretch = Some(stretch);
        begins
    }

    fn patience(&self) -> Duration {
        match self.longest_answered {
            None => NEVER_ANSWERED,
            Some(longest) => longest
                .saturating_mul(2)
                .clamp(ANSWERED_BEFORE, ANSWERED_LATE),
        }
    }

    /// Packets came in. Returns true if the traffic was one-way until now.
    pub(crate) fn received(&mut self, now: Instant) -> bool {
        self.received_at = Some(now);
        let ended = self.stretch.take();
        let lasted = ended.map(|one| one.last.saturating_duration_since(one.since));
        let longest = self.longest_answered.max(lasted).unwrap_or_default();
        self.longest_answered = Some(longest);
        ended.is_some_and(|stretch| stretch.is_one_way)
    }

    /// The time at which one-way traffic has paused for so long that nothing can be said of it any more.
    pub(crate) fn lapses_at(&self) -> Option<Instant> {
        let stretch = self.stretch.filter(|stretch| stretch.is_one_way)?;
        super::deadline(stretch.last, PAUSE)
    }

    /// Forgets one-way traffic that has paused for long. Returns true if there was some.
    pub(crate) fn lapse(&mut self, now: Instant) -> bool {
        let lapses = self.lapses_at().is_some_and(|at| at <= now);
        if lapses {
            self.stretch = None;
        }
        lapses
    }

    /// The time since which the traffic is one-way.
    pub(crate) fn one_way_since(&self) -> Option<Instant> {
        let stretch = self.stretch.filter(|stretch| stretch.is_one_way)?;
        Some(stretch.since)
    }

    pub(crate) fn answered_before(&self) -> bool {
        self.longest_answered.is_some()
    }

    /// Says whether a packet of the peer has come in since.
    pub(crate) fn has_received_since(&self, then: Instant) -> bool {
        self.received_at.is_some_and(|at| at > then)
    }
}

/// Says whether all traffic of these selectors may need no answer: UDP alone, or multicast alone.
pub(crate) fn may_be_one_way(local: &[TrafficSelector], remote: &[TrafficSelector]) -> bool {
    let udp = |list: &[TrafficSelector]| list.iter().all(|ts| ts.protocol == PROTOCOL_UDP);
    let multicast = |ts: &TrafficSelector| ts.start.is_multicast() && ts.end.is_multicast();
    udp(local) || udp(remote) || remote.iter().all(multicast)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOOK: Duration = Duration::from_millis(500);

    /// A child SA whose peer answers IKE all the time.
    struct Sa {
        past: TrafficPast,
        now: Instant,
    }

    impl Sa {
        fn new() -> Self {
            Self {
                past: TrafficPast::default(),
                now: Instant::now(),
            }
        }

        /// Sends in every look for this time. Returns when the traffic was found to be one-way.
        fn send_for(&mut self, time: Duration) -> Option<Duration> {
            let from = self.now;
            let mut found = None;
            while self.now < from + time {
                self.now += LOOK;
                if self.past.sent(self.now, Some(self.now)) {
                    assert_eq!(found, None, "told once");
                    found = Some(self.now - from);
                }
            }
            found
        }

        fn receive(&mut self) -> bool {
            self.now += LOOK;
            self.past.received(self.now)
        }
    }

    fn seconds(n: u64) -> Duration {
        Duration::from_secs(n)
    }

    #[test]
    fn sending_into_silence_is_found_in_ten_seconds_and_ends_with_the_first_packet() {
        let mut sa = Sa::new();
        let found = sa.send_for(seconds(60)).unwrap();
        assert!(found >= seconds(10) && found <= seconds(11), "{found:?}");
        assert!(sa.past.one_way_since().is_some() && !sa.past.answered_before());
        assert!(sa.receive(), "it was one-way");
        assert_eq!(sa.past.one_way_since(), None);
        assert!(!sa.receive(), "told once");
    }

    #[test]
    fn a_peer_that_may_be_gone_is_not_judged() {
        let mut sa = Sa::new();
        let before = sa.now;
        for _ in 0..200 {
            sa.now += LOOK;
            assert!(!sa.past.sent(sa.now, None), "it is being asked");
            assert!(!sa.past.sent(sa.now, Some(before)), "not heard since");
        }
    }

    #[test]
    fn an_answer_in_the_same_look_is_an_answer() {
        let mut sa = Sa::new();
        for _ in 0..200 {
            sa.now += LOOK;
            assert!(!sa.past.received(sa.now));
            assert!(!sa.past.sent(sa.now, Some(sa.now)));
        }
    }

    #[test]
    fn a_few_packets_or_rare_ones_are_no_sign() {
        let mut sa = Sa::new();
        assert_eq!(sa.send_for(LOOK), None);
        sa.now += seconds(100);
        assert_eq!(sa.send_for(2 * LOOK), None, "three looks");
        for _ in 0..20 {
            sa.now += PAUSE;
            assert_eq!(sa.send_for(LOOK), None, "each begins anew");
        }
    }

    #[test]
    fn a_child_is_measured_by_its_own_past() {
        let mut sa = Sa::new();
        sa.receive();
        // Its usual traffic is answered, so that half a minute is long.
        let found = sa.send_for(seconds(40)).unwrap();
        assert!(found >= seconds(30) && found <= seconds(31), "{found:?}");
        assert!(sa.receive());
        // A pause of forty seconds was no fault, so that another one is none.
        assert_eq!(sa.send_for(seconds(75)), None);
        assert!(!sa.receive());
        let found = sa.send_for(seconds(200)).unwrap();
        assert!(found >= seconds(148) && found <= seconds(151), "{found:?}");
    }

    #[test]
    fn a_long_outage_does_not_hide_the_next_one() {
        let mut sa = Sa::new();
        sa.receive();
        for _ in 0..3 {
            let found = sa.send_for(seconds(4 * 3600)).unwrap();
            assert!(found <= seconds(1801), "{found:?}");
            assert!(sa.receive());
        }
    }

    #[test]
    fn one_way_traffic_that_stops_is_over_in_the_end() {
        let mut sa = Sa::new();
        assert_eq!(sa.past.lapses_at(), None);
        sa.send_for(seconds(20)).unwrap();
        let at = sa.past.lapses_at().unwrap();
        assert_eq!(at, sa.now + PAUSE);
        assert!(!sa.past.lapse(at - LOOK) && sa.past.one_way_since().is_some());
        assert!(sa.past.lapse(at) && sa.past.one_way_since().is_none());
    }

    #[test]
    fn udp_and_multicast_may_be_one_way() {
        let ts = |text: &str, protocol| TrafficSelector {
            protocol,
            start_port: 0,
            end_port: u16::MAX,
            start: text.parse().unwrap(),
            end: text.parse().unwrap(),
        };
        let (any, udp) = (ts("10.1.0.1", 0), ts("10.1.0.1", 17));
        let (tcp, group) = (ts("10.2.0.1", 6), ts("239.1.1.1", 0));
        for (local, remote, may) in [
            (vec![any], vec![any], false),
            (vec![udp], vec![any], true),
            (vec![any], vec![udp, udp], true),
            (vec![any], vec![udp, tcp], false),
            (vec![any], vec![group], true),
            (vec![any], vec![group, any], false),
        ] {
            assert_eq!(may_be_one_way(&local, &remote), may, "{local:?} {remote:?}");
        }
    }
}
