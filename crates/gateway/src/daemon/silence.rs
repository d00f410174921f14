//! Silent peers: what the log, `status` and `explain` tell of attempts that get no answer, and of child SAs that send
//! and receive nothing.

use std::collections::HashSet;
use std::net::IpAddr;
use std::time::{Duration, Instant};

use esplanade_crypto::Protocol;
use esplanade_ike::event::{ChildSaId, DownReason, OneWayChange, OneWayTold};
use esplanade_ike::status::{Attempt, ChildSaStatus, OneWay, UdpTrial};

use super::Daemon;
use super::log_lines::{log_connect_failed, plain};
use crate::status::{ListedAttempt, ListedOneWay};

/// Connections whose peer was silent in an attempt, and has not been heard since.
pub(super) type SilentPeers = HashSet<String>;

/// Names what carries, or is to carry, the packets of an SA.
fn outer(one_way: &OneWay, udp_encap: bool, protocol: Protocol) -> &'static str {
    match (one_way.udp_trial, udp_encap, protocol) {
        (UdpTrial::Wanted | UdpTrial::UnderWay, ..) => "protocol 50 (ESP)",
        (UdpTrial::Failed, ..) => "ESP, as protocol 50 and in UDP port 4500",
        (_, true, _) => "UDP port 4500",
        (_, false, Protocol::Esp) => "protocol 50 (ESP); `encap = yes` has it go in UDP",
        (_, false, Protocol::Ah) => "protocol 51 (AH)",
    }
}

pub(super) fn listed(one_way: &OneWay, sa: &ChildSaStatus, now: Instant) -> ListedOneWay {
    ListedOneWay {
        verdict: match one_way.by_nature {
            true => "possible",
            false => "suspected",
        },
        lasts: now.saturating_duration_since(one_way.since).as_secs(),
        answered_before: one_way.answered_before,
        udp_trial: match one_way.udp_trial {
            UdpTrial::Untried => None,
            UdpTrial::Wanted | UdpTrial::UnderWay => Some("under-way"),
            UdpTrial::Helped => Some("helped"),
            UdpTrial::Failed => Some("in-vain"),
        },
        causes: one_way.causes(outer(one_way, sa.udp_encap, sa.esp.transform.protocol())),
    }
}

pub(super) fn listed_attempt(attempt: &Attempt, now: Instant) -> Option<ListedAttempt> {
    Some(ListedAttempt {
        lasts: now.saturating_duration_since(attempt.since).as_secs(),
        unanswered: attempt.unanswered,
        remote_host: attempt.remote.ip(),
        remote_port: attempt.remote.port(),
        seen: plain(&attempt.seen()),
        remedy: attempt.remedy(),
        hint: None,
    })
}

/// Writes out causes in one line.
fn numbered(causes: &[String]) -> String {
    let numbered = causes.iter().enumerate();
    let lines = numbered.map(|(index, cause)| format!("({}) {cause}", index + 1));
    lines.collect::<Vec<_>>().join("; ")
}

impl Daemon {
    /// Says what an ICMP error tells of a peer.
    pub(super) fn unreachable(&self, remote: IpAddr) -> Option<String> {
        let (what, seconds) = self.plane.unreachable(remote, self.clock.now_ms())?;
        Some(format!(
            "an ICMP error says that {what} ({seconds} s ago; it can be forged)"
        ))
    }

    /// Says what has come of the peer of an attempt, and what to look for.
    fn seen(&self, attempt: &Attempt) -> String {
        let hint = self.unreachable(attempt.remote.ip());
        let hint = hint.map(|hint| format!("; {hint}")).unwrap_or_default();
        format!("{}{hint}: {}", plain(&attempt.seen()), attempt.remedy())
    }

    /// The packets that a child SA has sent and received.
    fn packets(&self, child: ChildSaId) -> (u64, u64) {
        let installed = self.join.child(child);
        installed.map_or((0, 0), |child| {
            let sent = child.outbound.common.lifetime.packets();
            (sent, child.inbound.common.lifetime.packets())
        })
    }

    pub(super) fn log_one_way(&self, told: &OneWayTold) {
        let (connection, child) = (&told.connection, &told.name);
        let (sent, received) = self.packets(told.child);
        match told.change {
            OneWayChange::Began(one_way) => {
                let causes = one_way.causes(outer(&one_way, told.udp_encap, told.protocol));
                let causes = numbered(&causes);
                let then = match one_way.udp_trial == UdpTrial::Wanted {
                    true => "; a new IKE SA tries ESP in UDP",
                    false => "",
                };
                let what = format!(
                    "one-way traffic: {sent} packets out, {received} in, and the peer answers IKE{then}; likely causes: {causes}"
                );
                match one_way.by_nature {
                    true => tracing::info!(connection, child, "{what}"),
                    false => tracing::warn!(connection, child, "{what}"),
                }
            }
            OneWayChange::UdpInVain => tracing::info!(
                connection,
                child,
                "ESP in UDP does not help: a new IKE SA goes on without it"
            ),
            OneWayChange::Ended { lasted, by_udp } => {
                let seconds = lasted.as_secs();
                let how = match by_udp {
                    true => {
                        ", as ESP goes in UDP now: a filter drops protocol 50, and `encap = yes` saves the trial"
                    }
                    false => "",
                };
                tracing::info!(
                    connection,
                    child,
                    "packets come in again after {seconds} s of one-way traffic{how}"
                );
            }
            OneWayChange::Paused => tracing::info!(
                connection,
                child,
                "one-way traffic has paused: {sent} packets out, {received} in"
            ),
        }
    }

    /// The peer of an attempt is silent. The log has one line until it is heard, or until no attempt follows.
    pub(super) fn log_unanswered(&mut self, attempt: &Attempt) {
        let connection = &attempt.connection;
        let (requests, seen) = (attempt.unanswered, self.seen(attempt));
        match self.silent_peers.insert(connection.clone()) {
            true => tracing::warn!(
                connection,
                remote = %attempt.remote,
                "{requests} requests unanswered, {seen}"
            ),
            false => tracing::debug!(connection, "{requests} requests unanswered, {seen}"),
        }
    }

    pub(super) fn on_connect_failed(
        &mut self,
        connection: &str,
        reason: &DownReason,
        retry_in: Option<Duration>,
    ) {
        let retry = retry_in.map_or("no further attempt".to_owned(), |delay| {
            format!("next attempt in {} s", delay.as_secs())
        });
        if retry_in.is_none() {
            self.silent_peers.remove(connection);
        }
        let why = log_connect_failed(connection, reason, &retry);
        self.fail_waiters(connection, None, &why);
    }

    /// Describes the one-way traffic of a child SA for `explain`.
    pub(super) fn explain_one_way(&self, child: &ChildSaStatus) -> Option<String> {
        let one_way = child.one_way.as_ref()?;
        let (sent, received) = self.packets(child.id);
        let listed = listed(one_way, child, Instant::now());
        let (seconds, causes) = (listed.lasts, numbered(&listed.causes));
        Some(format!(
            "{sent} packets out, {received} in; nothing has come in for {seconds} s, and the peer answers IKE; likely \
             causes: {causes}"
        ))
    }

    /// Describes the attempt that packets of a connection wait for, for `explain`.
    pub(super) fn explain_attempt(&self, connection: &str) -> Option<String> {
        let attempt = self.endpoint.attempt(connection)?;
        let seconds = Instant::now()
            .saturating_duration_since(attempt.since)
            .as_secs();
        let requests = attempt.unanswered;
        let mut text = format!("connecting for {seconds} s, {requests} requests unanswered");
        if requests > 1 {
            text += &format!(", {}", self.seen(&attempt));
        }
        Some(text)
    }
}
