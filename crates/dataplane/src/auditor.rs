//! Writes auditable events to the log, under the target `audit`.

use std::fmt;

use esplanade_ipsec::audit::AuditEvent;

use super::audit::{Audit, AuditReport};

/// Most events of one kind at once, and per second at first. This shows an attack and does not fill a
/// disk.
const BURST: u64 = 10;
const PER_SECOND: u64 = 1;
/// The longest time between two events of a kind that goes on. Other lines of the log must not drown.
const PAUSE_MAX_MS: u64 = 60_000;

#[derive(Debug)]
pub(crate) struct Auditor {
    audit: Audit,
    /// Events were suppressed and not yet reported.
    pending: bool,
}

impl Auditor {
    pub fn new() -> Self {
        Self {
            audit: Audit::new(BURST, PER_SECOND).slowing_to(PAUSE_MAX_MS),
            pending: false,
        }
    }

    /// Logs or suppresses `count` packets, of which `event` describes the first.
    pub fn record(&mut self, event: AuditEvent, count: u64, now_ms: u64) {
        match self.audit.record(event, count, now_ms) {
            Some(report) => log(&report),
            None => self.pending = count > 0 || self.pending,
        }
    }

    pub fn is_pending(&self) -> bool {
        self.pending
    }

    /// Logs the number of suppressed events, where the rate limit permits it.
    pub fn flush(&mut self, now_ms: u64) {
        for (kind, suppressed) in self.audit.flush(now_ms) {
            tracing::info!(target: "audit", kind = kind.name(), suppressed, "events were not logged one by one");
        }
        self.pending = self.audit.is_suppressing();
    }
}

fn log(report: &AuditReport) {
    let event = &report.event;
    tracing::info!(
        target: "audit",
        kind = event.kind.name(),
        spi = %Maybe(event.spi.map(|spi| format!("{spi:08x}"))),
        sequence = %Maybe(event.sequence),
        source = %Maybe(event.source),
        destination = %Maybe(event.destination),
        flow_label = %Maybe(event.flow_label),
        suppressed = report.suppressed,
        "auditable event",
    );
}

/// A field of an event that may be absent.
struct Maybe<T>(Option<T>);

impl<T: fmt::Display> fmt::Display for Maybe<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Some(value) => value.fmt(f),
            None => f.write_str("-"),
        }
    }
}
