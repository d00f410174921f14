//! Lines of the log about what the endpoint tells.

use std::net::IpAddr;
use std::time::Duration;

use esplanade_ike::config::Identity;
use esplanade_ike::event::{ChildSaDeleted, DownReason, Event, IkeSaId, PeerLimit};

/// Makes a text safe for the log. Reasons and identities contain what peers have sent.
pub(super) fn plain(text: &impl ToString) -> String {
    esplanade_ike::text::clean(&text.to_string())
}

pub(super) fn log_up(up: &esplanade_ike::IkeSaUp) {
    let groups: Vec<String> = up.groups.iter().map(ToString::to_string).collect();
    let groups = groups.join(", ");
    tracing::info!(
        connection = up.connection,
        ike_sa = %up.ike_sa,
        local = %up.local,
        remote = %up.remote,
        local_id = %plain(&up.local_id),
        remote_id = %plain(&up.remote_id),
        groups = (!groups.is_empty()).then(|| plain(&groups)),
        suite = up.suite,
        full_transcript = up.full_transcript,
        "IKE SA established"
    );
}

pub(super) fn log_down(ike_sa: IkeSaId, connection: &str, reason: &DownReason) {
    let why = plain(reason);
    match reason {
        DownReason::Terminated | DownReason::PeerDeleted | DownReason::Reauthenticated => {
            tracing::info!(connection, %ike_sa, "IKE SA down: {why}");
        }
        _ => tracing::warn!(connection, %ike_sa, "IKE SA down: {why}"),
    }
}

/// Logs how the renewal of an IKE SA has ended.
pub(super) fn log_renewal(event: &Event) {
    match event {
        Event::IkeSaReauthenticated {
            old,
            new,
            connection,
        } => tracing::info!(connection, %old, %new, "the peers have authenticated again"),
        Event::ReauthenticationFailed {
            ike_sa,
            connection,
            reason,
            retry_in,
        } => {
            let (why, retry) = (plain(reason), next_attempt(*retry_in));
            tracing::warn!(connection, %ike_sa, "cannot authenticate again: {why}; {retry}");
        }
        Event::RekeyFailed {
            ike_sa,
            connection,
            reason,
        } => {
            tracing::warn!(connection, %ike_sa, "cannot rekey the IKE SA: {}", plain(reason));
        }
        _ => {}
    }
}

/// Says when the next attempt is.
pub(super) fn next_attempt(retry_in: Option<Duration>) -> String {
    retry_in.map_or("no further attempt".to_owned(), |delay| {
        format!("next attempt in {} s", delay.as_secs())
    })
}

pub(super) fn log_address_failed(connection: &str, remote: IpAddr, reason: &DownReason) {
    let why = plain(reason);
    tracing::warn!(connection, %remote, "no IKE SA with this address: {why}; the next one is tried");
}

/// Logs that an attempt has failed, and returns the reason. It is no failure that a command ends an attempt.
pub(super) fn log_connect_failed(connection: &str, reason: &DownReason, retry: &str) -> String {
    let why = plain(reason);
    match reason {
        DownReason::Terminated => {
            tracing::info!(
                connection,
                "the attempt to establish the IKE SA ends: {why}"
            );
        }
        _ => tracing::warn!(connection, "cannot establish the IKE SA: {why}; {retry}"),
    }
    why
}

/// Packets that a child leaves out ask `again` and again: the log has the first refusal.
pub(super) fn log_child_failed(
    ike_sa: IkeSaId,
    (connection, child): (&str, &str),
    why: &str,
    again: bool,
) {
    match again {
        false => {
            tracing::warn!(connection, child, %ike_sa, "cannot establish the child SA: {why}");
        }
        true => tracing::debug!(connection, child, %ike_sa, "refused as before: {why}"),
    }
}

/// Warns of a limit before a peer meets it.
pub(super) fn log_limit(peer: &Identity, limit: PeerLimit, used: usize, most: usize) {
    let (what, key) = match limit {
        PeerLimit::IkeSas => ("IKE SAs", "ike_sas_per_peer_max"),
        PeerLimit::ChildSas => ("child SAs", "child_sas_per_peer_max"),
        PeerLimit::Selectors => ("pairs of selectors", "selectors_per_peer_max"),
    };
    let peer = plain(peer);
    tracing::warn!(%peer, "the peer has {used} {what}, and `{key}` allows {most}");
}

pub(super) fn log_deleted(deleted: &ChildSaDeleted) {
    tracing::info!(
        connection = deleted.connection,
        child = deleted.name,
        spi_in = format_args!("{:08x}", deleted.spi_in),
        spi_out = format_args!("{:08x}", deleted.spi_out),
        "child SA deleted: {}",
        plain(&deleted.reason)
    );
}

/// Logs that a peer was refused. The endpoint limits these events by source and in all, because strangers can cause
/// them.
pub(super) fn log_refused(refused: &esplanade_ike::event::RefusedPeer) {
    let id = |id: &Option<String>| id.clone().unwrap_or_else(|| "%any".to_owned());
    tracing::warn!(
        connection = refused.connection.as_deref().unwrap_or("none yet"),
        local = %refused.local,
        remote = %refused.remote,
        local_id = id(&refused.local_id),
        remote_id = id(&refused.remote_id),
        reason = refused.refusal.name(),
        offered = refused.offered,
        configured = refused.configured,
        untold = refused.unreported,
        "refused a peer: {}",
        refused.why
    );
}

/// Logs a message of a negotiation. The level is TRACE, because a stranger can cause such a line with a single packet.
pub(super) fn trace_message(trace: &esplanade_ike::event::MessageTrace) {
    let kind = if trace.response {
        "response"
    } else {
        "request"
    };
    tracing::trace!(
        connection = trace.connection,
        ike_sa = %trace.ike_sa,
        direction = ?trace.direction,
        local = %trace.local,
        remote = %trace.remote,
        exchange = trace.exchange,
        kind,
        message_id = trace.message_id,
        len = trace.len,
        payloads = trace.payloads,
        "IKE message"
    );
}
