//! SA lifetimes in bytes and packets (RFC 4301 §4.4.2.1). Lifetimes in time belong to IKE.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Limits of one SA; none is unlimited.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LifetimeLimits {
    pub bytes_soft: Option<u64>,
    pub bytes_hard: Option<u64>,
    pub packets_soft: Option<u64>,
    pub packets_hard: Option<u64>,
}

/// What reaching a limit asks for. Each is reported once per SA.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LifetimeEvent {
    /// Rekey.
    Soft,
    /// Delete: the SA passes nothing more.
    Hard,
}

/// The traffic of one SA against its limits.
#[derive(Debug, Default)]
pub struct Lifetime {
    limits: LifetimeLimits,
    bytes: AtomicU64,
    packets: AtomicU64,
    soft_reported: AtomicBool,
    hard_reported: AtomicBool,
}

impl Lifetime {
    pub fn new(limits: LifetimeLimits) -> Self {
        Self {
            limits,
            ..Self::default()
        }
    }

    pub fn limits(&self) -> &LifetimeLimits {
        &self.limits
    }

    pub fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    pub fn packets(&self) -> u64 {
        self.packets.load(Ordering::Relaxed)
    }

    /// Whether nothing more may pass.
    pub fn expired(&self) -> bool {
        reached(self.bytes(), self.limits.bytes_hard)
            || reached(self.packets(), self.limits.packets_hard)
    }

    /// Counts traffic that has passed. Several workers may each overshoot a limit by one burst.
    pub fn count(&self, packets: u64, bytes: u64) -> Option<LifetimeEvent> {
        let bytes = self.bytes.fetch_add(bytes, Ordering::Relaxed) + bytes;
        let packets = self.packets.fetch_add(packets, Ordering::Relaxed) + packets;
        let limits = &self.limits;
        if reached(bytes, limits.bytes_hard) || reached(packets, limits.packets_hard) {
            self.soft_reported.store(true, Ordering::Relaxed);
            return first_time(&self.hard_reported).then_some(LifetimeEvent::Hard);
        }
        if reached(bytes, limits.bytes_soft) || reached(packets, limits.packets_soft) {
            return self.report_soft();
        }
        None
    }

    /// A soft limit other than bytes and packets is reached, such as that of sequence numbers.
    pub(crate) fn report_soft(&self) -> Option<LifetimeEvent> {
        first_time(&self.soft_reported).then_some(LifetimeEvent::Soft)
    }

    pub(crate) fn report_hard(&self) -> Option<LifetimeEvent> {
        first_time(&self.hard_reported).then_some(LifetimeEvent::Hard)
    }
}

fn reached(value: u64, limit: Option<u64>) -> bool {
    limit.is_some_and(|limit| value >= limit)
}

fn first_time(flag: &AtomicBool) -> bool {
    !flag.load(Ordering::Relaxed) && !flag.swap(true, Ordering::Relaxed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn soft_then_hard_and_each_once() {
        let lifetime = Lifetime::new(LifetimeLimits {
            bytes_soft: Some(1000),
            packets_hard: Some(20),
            ..LifetimeLimits::default()
        });
        assert_eq!(lifetime.count(9, 999), None);
        assert_eq!(lifetime.count(1, 1), Some(LifetimeEvent::Soft));
        assert_eq!(lifetime.count(1, 1), None);
        assert!(!lifetime.expired());
        assert_eq!(lifetime.count(9, 1), Some(LifetimeEvent::Hard));
        assert!(lifetime.expired());
        assert_eq!(lifetime.count(1, 1), None);
    }

    #[test]
    fn unlimited_never_expires() {
        let lifetime = Lifetime::default();
        assert_eq!(lifetime.count(u64::MAX, u64::MAX), None);
        assert!(!lifetime.expired());
    }
}
