//! Limits the rate of auditable events (RFC 4301 §5.2, RFC 4303 §4). Events above it are counted and not reported one by
//! one.

use esplanade_ipsec::audit::{AuditEvent, AuditKind};

/// An event to report, and the number of events of its kind that were suppressed since the last report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct AuditReport {
    pub event: AuditEvent,
    pub suppressed: u64,
}

/// Token buckets, one for each kind of event, so that a flood of one kind hides no other kind.
#[derive(Debug)]
pub(crate) struct Audit {
    burst: u64,
    /// The time for one event, and the longest that it becomes.
    pause_ms: u64,
    pause_max_ms: u64,
    buckets: [Bucket; AuditKind::ALL.len()],
}

#[derive(Clone, Copy, Debug)]
struct Bucket {
    /// Tokens, in thousandths of an event.
    tokens: u64,
    filled_ms: u64,
    /// The time for one event at present.
    pause_ms: u64,
    suppressed: u64,
}

/// The tokens that one event costs.
const ONE: u64 = 1000;

impl Audit {
    /// Reports at most `burst` events of a kind at once, and at most `per_second` in the long run.
    pub fn new(burst: u64, per_second: u64) -> Self {
        let pause_ms = ONE / per_second.clamp(1, ONE);
        let bucket = Bucket {
            tokens: burst * ONE,
            filled_ms: 0,
            pause_ms,
            suppressed: 0,
        };
        Self {
            burst,
            pause_ms,
            pause_max_ms: pause_ms,
            buckets: [bucket; AuditKind::ALL.len()],
        }
    }

    /// Waits twice as long after each event that empties a bucket, up to this time: what goes on and on is reported
    /// ever more seldom. A full bucket ends that.
    #[must_use]
    pub fn slowing_to(mut self, pause_max_ms: u64) -> Self {
        self.pause_max_ms = pause_max_ms.max(self.pause_ms);
        self
    }

    /// Records `count` events for packets that differ in their sequence numbers only. Returns the report if one is to
    /// be reported now; the others count as suppressed.
    pub fn record(&mut self, event: AuditEvent, count: u64, now_ms: u64) -> Option<AuditReport> {
        let limits = (self.burst, self.pause_ms, self.pause_max_ms);
        let bucket = self.buckets.get_mut(event.kind as usize)?;
        if count == 0 {
            return None;
        }
        if !bucket.take(limits, now_ms) {
            bucket.suppressed += count;
            return None;
        }
        let suppressed = std::mem::take(&mut bucket.suppressed) + count - 1;
        Some(AuditReport { event, suppressed })
    }

    /// Returns true if suppressed events exist that [`Audit::flush`] has not yielded yet.
    pub fn is_suppressing(&self) -> bool {
        self.buckets.iter().any(|bucket| bucket.suppressed > 0)
    }

    /// Yields the kinds that have suppressed events and a token again, with the number of those events. The caller
    /// calls `flush` once in a while, so that the last events of a flood are reported too.
    pub fn flush(&mut self, now_ms: u64) -> impl Iterator<Item = (AuditKind, u64)> + '_ {
        let limits = (self.burst, self.pause_ms, self.pause_max_ms);
        let buckets = AuditKind::ALL.into_iter().zip(&mut self.buckets);
        buckets.filter_map(move |(kind, bucket)| {
            if bucket.suppressed == 0 || !bucket.take(limits, now_ms) {
                return None;
            }
            Some((kind, std::mem::take(&mut bucket.suppressed)))
        })
    }
}

impl Bucket {
    /// Takes the token for one event, if there is one. `limits` are the burst, and the shortest and the longest pause.
    fn take(&mut self, limits: (u64, u64, u64), now_ms: u64) -> bool {
        let (burst, pause_ms, pause_max_ms) = limits;
        self.fill(burst * ONE, pause_ms, now_ms);
        if self.tokens < ONE {
            return false;
        }
        self.tokens -= ONE;
        if self.tokens < ONE {
            self.pause_ms = self.pause_ms.saturating_mul(2).min(pause_max_ms);
        }
        true
    }

    fn fill(&mut self, full: u64, pause_ms: u64, now_ms: u64) {
        let passed_ms = now_ms.saturating_sub(self.filled_ms);
        let gained = passed_ms.saturating_mul(ONE) / self.pause_ms.max(1);
        self.tokens = self.tokens.saturating_add(gained).min(full);
        if self.tokens == full {
            self.pause_ms = pause_ms;
            self.filled_ms = self.filled_ms.max(now_ms);
        } else {
            // The rest of the time counts at the next look.
            self.filled_ms += gained * self.pause_ms / ONE;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(kind: AuditKind, spi: u32) -> AuditEvent {
        AuditEvent {
            kind,
            spi: Some(spi),
            sequence: Some(9),
            source: Some([192, 0, 2, 1].into()),
            destination: None,
            flow_label: None,
        }
    }

    #[test]
    fn what_goes_on_is_audited_ever_more_seldom() {
        let event = event(AuditKind::NoSa, 1);
        let mut audit = Audit::new(3, 1).slowing_to(4000);
        // Events every 10 ms. A look comes more often than a thousandth of a token.
        let mut reported = |from_s: u64, to_s: u64| -> Vec<u64> {
            let times = (from_s * 100..to_s * 100).map(|tick| tick * 10);
            times
                .filter(|now| audit.record(event, 1, *now).is_some())
                .collect()
        };
        let times = reported(0, 20);
        assert_eq!(times[..3], [0, 10, 20]);
        let gaps: Vec<u64> = times[3..]
            .windows(2)
            .map(|two| (two[1] - two[0]) / 1000)
            .collect();
        assert_eq!(gaps, [4, 4, 4, 4]);
        assert!((1000..=3000).contains(&times[3]), "{times:?}");
        // After a quiet time everything is as at first.
        assert_eq!(reported(40, 41).len(), 3);
    }

    // RFC 4301 R66; RFC 4302 R35; RFC 4303 R31, R40, R48
    #[test]
    fn every_audit_event_is_told_or_counted() {
        let mut audit = Audit::new(3, 2);
        let mut told = 0;
        let mut suppressed = 0;
        for n in 0..1000 {
            if let Some(report) = audit.record(event(AuditKind::Replay, n), 1, u64::from(n)) {
                told += 1;
                suppressed += report.suppressed;
                assert_eq!(report.event.spi, Some(n));
            }
        }
        // Three events are reported at once, and two per second.
        assert_eq!(told, 3 + 1);
        // Another kind of event has its own bucket.
        assert!(audit.record(event(AuditKind::NoSa, 1), 1, 1000).is_some());
        let rest: Vec<_> = audit.flush(60_000).collect();
        assert_eq!(rest, [(AuditKind::Replay, 1000 - told - suppressed)]);
        assert_eq!(audit.flush(120_000).count(), 0);
        let report = audit
            .record(event(AuditKind::NoSa, 1), 44, 120_000)
            .unwrap();
        assert_eq!(report.suppressed, 43);
    }

    #[test]
    fn time_that_stands_still_gives_no_tokens() {
        let mut audit = Audit::new(1, 1000);
        assert!(audit.record(event(AuditKind::NoSa, 1), 1, 5).is_some());
        assert!(audit.record(event(AuditKind::NoSa, 1), 1, 5).is_none());
        assert!(audit.record(event(AuditKind::NoSa, 1), 1, 4).is_none());
        assert!(audit.record(event(AuditKind::NoSa, 1), 1, 6).is_some());
    }
}
