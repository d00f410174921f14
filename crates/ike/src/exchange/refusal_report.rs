//! The report to the administrator about a refused peer: who it is, what it offers, and what is configured.

use std::net::IpAddr;
use std::sync::Arc;

use super::error_reply::ErrorReply;
use super::payloads::ChildPayloads;
use crate::auth::IdentityError;
use crate::config::{Connection, Identity};
use crate::event::{Event, RefusedPeer};
use crate::failure::{AuthFailure, HeldTraffic};
use crate::negotiate;
use crate::refusal::Refusal;
use crate::report_limit::{ReportSource, ReportedRefusal};
use crate::sa::{Context, Established, IkeSaCommon};
use crate::text;
use crate::transport::ReceivedMessage;
use crate::wire::{Id, Message, Payload, Proposal, ProtocolId};

impl Context<'_> {
    /// Reports a refusal, within the limits. `proven` is an address at which the peer has shown that it receives. The
    /// source address of the message itself can be false.
    pub(crate) fn report_refusal(
        &mut self,
        received: &ReceivedMessage<'_>,
        proven: Option<IpAddr>,
        refusal: Refusal,
        make: impl FnOnce(&Context<'_>) -> RefusalDetails,
    ) {
        let source = match proven {
            Some(host) => ReportSource::Proven(host),
            None => ReportSource::Unproven(received.remote.ip()),
        };
        if !self.report_limit.has_room(self.now, source) {
            return;
        }
        let details = make(self);
        let id = |id: Option<String>| id.map(|id| text::clean(&id));
        let remote_id = id(details.remote_id);
        let reported = ReportedRefusal {
            refusal,
            remote_id: remote_id.clone(),
        };
        let Some(unreported) = self.report_limit.take(self.now, source, reported) else {
            return;
        };
        let refused = RefusedPeer {
            local: received.local,
            remote: received.remote,
            connection: details.connection,
            local_id: id(details.local_id),
            remote_id,
            refusal,
            why: text::clean(&details.why),
            offered: details.offered,
            configured: details.configured,
            unreported,
        };
        self.events.push_back(Event::Refused(Box::new(refused)));
    }
}

/// The connections or children whose proposals a report has.
pub(crate) const OFFERS_SHOWN: usize = 4;

/// The part of a report that depends on what was refused.
#[derive(Default)]
pub(crate) struct RefusalDetails {
    pub(crate) connection: Option<String>,
    pub(crate) local_id: Option<String>,
    pub(crate) remote_id: Option<String>,
    pub(crate) why: String,
    pub(crate) offered: String,
    pub(crate) configured: String,
}

/// An IKE_SA_INIT request for which there is no connection, or no proposal of one.
pub(crate) fn init_refusal(
    message: &Message,
    why: &str,
    known: &[Arc<Connection>],
    by_proposal: bool,
) -> RefusalDetails {
    let connection = match (by_proposal, known) {
        (true, [only]) => Some(only.name.clone()),
        _ => None,
    };
    let configured = match by_proposal {
        false => text::addresses(known.iter().map(AsRef::as_ref)),
        true => offers(known.iter().map(|connection| {
            let own = negotiate::ike_offer(&connection.proposals, &[]);
            (connection.name.as_str(), own)
        })),
    };
    RefusalDetails {
        connection,
        why: why.to_owned(),
        offered: text::proposals(proposals_of(message)),
        configured,
        ..RefusalDetails::default()
    }
}

fn proposals_of(message: &Message) -> &[Proposal] {
    let found = message.payloads.iter().find_map(|payload| match payload {
        Payload::Sa(proposals) => Some(proposals.as_slice()),
        _ => None,
    });
    found.unwrap_or_default()
}

/// The proposals of some of our connections or children.
fn offers<'a>(named: impl Iterator<Item = (&'a str, Vec<Proposal>)>) -> String {
    let one = |(name, own): (&str, Vec<_>)| format!("{name}: {}", text::proposals(&own));
    let all: Vec<_> = named.take(OFFERS_SHOWN).map(one).collect();
    text::clean(&all.join("; "))
}

/// An IKE_AUTH request of a peer that is not authenticated, or not let in.
pub(super) fn auth_refusal(
    ctx: &Context<'_>,
    hosts: (IpAddr, IpAddr),
    message: &Message,
    failure: &AuthFailure,
) -> RefusalDetails {
    let find = |of: fn(&Payload) -> Option<&Id>| {
        let id = message.payloads.iter().find_map(of)?;
        Some(Identity::from_payload(id))
    };
    let local_id = find(|payload| match payload {
        Payload::IdR(id) => Some(id),
        _ => None,
    });
    let remote_id = find(|payload| match payload {
        Payload::IdI(id) => Some(id),
        _ => None,
    });
    // One more than the list has tells that there are others.
    let here = ctx.connections.first(hosts, text::MEMBERS_MAX + 1);
    let claimed = remote_id.as_ref().and_then(|id| id.as_ref().ok());
    let accepting = claimed.map(|id| ctx.connections.accepting(hosts, id));
    let connection = match (accepting.as_deref(), here.as_slice()) {
        // The peer can only mean the one for the identity that it claims, or else the only one.
        (Some([only]), _) | (None | Some([]), [only]) => Some(only.name.clone()),
        _ => None,
    };
    let shown = |id: Result<Identity, IdentityError>| match id {
        Ok(id) => id.to_string(),
        Err(error) => error.to_string(),
    };
    RefusalDetails {
        connection,
        local_id: local_id.map(shown),
        remote_id: remote_id.map(shown),
        why: failure.to_string(),
        configured: text::identities(here.iter().map(AsRef::as_ref)),
        ..RefusalDetails::default()
    }
}

fn describe_held(held: &HeldTraffic) -> String {
    let by = match held.sa {
        Some(child) => format!("with child SA {child}"),
        None => "by configuration".to_owned(),
    };
    format!(
        "{} has this traffic {by} of {}/{}: {}",
        held.peer,
        held.connection,
        held.child,
        text::ends(&held.local_ts, &held.remote_ts)
    )
}

impl Established {
    /// Reports that an authenticated peer does not get a child SA or a rekey. Refusals that only delay an exchange, as in
    /// collisions, are not reported.
    pub(super) fn report_refusal(
        &self,
        sa: &IkeSaCommon,
        ctx: &mut Context<'_>,
        received: &ReceivedMessage<'_>,
        message: &Message,
        reply: &ErrorReply,
    ) {
        let held;
        let why = match reply.refusal {
            Refusal::TrafficHeld => {
                held = reply.held.as_deref().map(describe_held).unwrap_or_default();
                &held
            }
            Refusal::TsUnacceptable => "its traffic selectors and ours have nothing in common",
            Refusal::NoProposalChosen => "its proposals and ours have nothing in common",
            Refusal::ChildSaLimit => "it has as many child SAs as an IKE SA may have",
            Refusal::ChildSaPerPeer => {
                "it has as many child SAs as `child_sas_per_peer_max` allows"
            }
            Refusal::SelectorsPerPeer => {
                "it would have more selectors than `selectors_per_peer_max` allows"
            }
            Refusal::WorkPerPeer => {
                "it asks for child SAs more often than `child_requests_per_second` allows"
            }
            Refusal::NoPolicyRoom => "there is no room for rules for its selectors",
            Refusal::SpiExhausted => "no SPI is left",
            Refusal::InvalidSyntax => "a payload is missing or malformed",
            _ => return,
        };
        ctx.report_refusal(received, Some(sa.hosts.1), reply.refusal, |_| {
            let theirs = ChildPayloads::find(message);
            let (offered, configured) = match (reply.refusal, theirs) {
                (Refusal::TsUnacceptable | Refusal::TrafficHeld, Some(theirs)) => (
                    text::ends(theirs.ts_r, theirs.ts_i),
                    text::children(&sa.connection),
                ),
                (Refusal::NoProposalChosen, theirs) => {
                    refused_proposals(&sa.connection, message, theirs.is_some())
                }
                _ => Default::default(),
            };
            RefusalDetails {
                connection: Some(sa.connection.name.clone()),
                local_id: Some(self.local_id.to_string()),
                remote_id: Some(self.remote_id.to_string()),
                why: why.to_owned(),
                offered,
                configured,
            }
        });
    }
}

/// The peer's proposals and ours, for a child or for the IKE SA.
fn refused_proposals(
    connection: &Connection,
    message: &Message,
    of_child: bool,
) -> (String, String) {
    let offered = proposals_of(message);
    let of_ike = offered
        .first()
        .is_some_and(|first| first.protocol == ProtocolId::IKE);
    let configured = match of_child && !of_ike {
        true => offers(connection.children.iter().map(|child| {
            let own = negotiate::esp_offer(&child.esp_proposals, 0, true);
            (child.name.as_str(), own)
        })),
        false => text::proposals(&negotiate::ike_offer(&connection.proposals, &[])),
    };
    (text::proposals(offered), configured)
}
