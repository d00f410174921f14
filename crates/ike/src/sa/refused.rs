//! What the administrator is told of a peer that was refused.

use std::net::IpAddr;

use super::create_child::{ChildPayloads, Refuse};
use super::{Caller, Context, IkeSa, Received, candidates};
use crate::config::{Connection, Identity};
use crate::event::{Event, Held, Refused};
use crate::negotiate;
use crate::refusal::Refusal;
use crate::text;
use crate::wire::{Message, Payload, Proposal, ProtocolId};

impl Context<'_> {
    /// Tells of a refusal, if its turn has come. `proven` is an address at which the peer receives what is sent to it;
    /// where this very message is from is nobody's word.
    pub(crate) fn tell_refused(
        &mut self,
        received: &Received<'_>,
        proven: Option<IpAddr>,
        refusal: Refusal,
        make: impl FnOnce(&Context<'_>) -> Told,
    ) {
        let told = match proven {
            Some(host) => self.report_limit.proven(self.now, host),
            None => self.report_limit.unproven(self.now, received.remote.ip()),
        };
        let Some(untold) = told else {
            return;
        };
        let told = make(self);
        let id = |id: Option<String>| id.map(|id| text::clean(&id));
        let refused = Refused {
            local: received.local,
            remote: received.remote,
            connection: told.connection,
            local_id: id(told.local_id),
            remote_id: id(told.remote_id),
            refusal,
            why: text::clean(&told.why),
            offered: told.offered,
            configured: told.configured,
            untold,
        };
        self.events.push_back(Event::Refused(Box::new(refused)));
    }
}

/// The part of it that depends on what was refused.
#[derive(Default)]
pub(crate) struct Told {
    pub(crate) connection: Option<String>,
    pub(crate) local_id: Option<String>,
    pub(crate) remote_id: Option<String>,
    pub(crate) why: String,
    pub(crate) offered: String,
    pub(crate) configured: String,
}

/// An IKE_SA_INIT request that no connection is for, or that none has a proposal for.
pub(crate) fn init_refused<'a>(
    message: &Message,
    why: &str,
    configured: impl IntoIterator<Item = &'a Connection>,
    by_proposal: bool,
) -> Told {
    let configured = match by_proposal {
        false => text::addresses(configured),
        true => offers(configured.into_iter().map(|connection| {
            let own = negotiate::ike_offer(&connection.proposals, &[]);
            (connection.name.as_str(), own)
        })),
    };
    Told {
        why: why.to_owned(),
        offered: text::proposals(proposals_of(message)),
        configured,
        ..Told::default()
    }
}

fn proposals_of(message: &Message) -> &[Proposal] {
    let found = message.payloads.iter().find_map(|payload| match payload {
        Payload::Sa(proposals) => Some(proposals.as_slice()),
        _ => None,
    });
    found.unwrap_or_default()
}

/// What some of our connections or children offer.
fn offers<'a>(named: impl Iterator<Item = (&'a str, Vec<Proposal>)>) -> String {
    let one = |(name, own): (&str, Vec<_>)| format!("{name}: {}", text::proposals(&own));
    let all: Vec<_> = named.take(4).map(one).collect();
    text::clean(&all.join("; "))
}

/// A peer that was not authenticated, or is none of those that are configured.
pub(super) fn auth_refused(
    ctx: &Context<'_>,
    received: &Received<'_>,
    message: &Message,
    why: &str,
) -> Told {
    let id = |wanted: fn(&Payload) -> Option<&crate::wire::Id>| {
        let id = message.payloads.iter().find_map(wanted)?;
        Some(Identity::from_payload(id).map_or_else(|error| error.to_string(), |id| id.to_string()))
    };
    let here = candidates(&ctx.config.connections, Caller::of(received));
    Told {
        local_id: id(|payload| match payload {
            Payload::IdR(id) => Some(id),
            _ => None,
        }),
        remote_id: id(|payload| match payload {
            Payload::IdI(id) => Some(id),
            _ => None,
        }),
        why: why.to_owned(),
        configured: text::identities(here.iter().map(AsRef::as_ref)),
        ..Told::default()
    }
}

fn has_it(held: &Held) -> String {
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

impl IkeSa {
    /// Tells of a child SA, or of a rekey, that an authenticated peer does not get, unless that is how exchanges that
    /// collide go.
    pub(super) fn tell_refused(
        &self,
        ctx: &mut Context<'_>,
        received: &Received<'_>,
        message: &Message,
        refuse: &Refuse,
    ) {
        let held;
        let why = match refuse.refusal {
            Refusal::TrafficHeld => {
                held = refuse.held.as_deref().map(has_it).unwrap_or_default();
                &held
            }
            Refusal::TsUnacceptable => "its traffic selectors and ours have nothing in common",
            Refusal::NoProposalChosen => "its proposals and ours have nothing in common",
            Refusal::ChildSaLimit => "it has as many child SAs as an IKE SA may have",
            Refusal::SpiExhausted => "no SPI is left",
            Refusal::InvalidSyntax => "a payload is missing or malformed",
            _ => return,
        };
        let Some(state) = self.established() else {
            return;
        };
        let (local_id, remote_id) = (state.local_id.to_string(), state.remote_id.to_string());
        ctx.tell_refused(received, Some(self.hosts.1), refuse.refusal, |_| {
            let theirs = ChildPayloads::find(message);
            let (offered, configured) = match (refuse.refusal, theirs) {
                (Refusal::TsUnacceptable | Refusal::TrafficHeld, Some(theirs)) => (
                    text::ends(theirs.ts_r, theirs.ts_i),
                    text::children(&self.connection),
                ),
                (Refusal::NoProposalChosen, theirs) => self.proposals_refused(message, theirs),
                _ => Default::default(),
            };
            Told {
                connection: Some(self.connection.name.clone()),
                local_id: Some(local_id),
                remote_id: Some(remote_id),
                why: why.to_owned(),
                offered,
                configured,
            }
        });
    }

    fn proposals_refused(
        &self,
        message: &Message,
        theirs: Option<ChildPayloads<'_>>,
    ) -> (String, String) {
        let offered = proposals_of(message);
        let of_ike = offered
            .first()
            .is_some_and(|one| one.protocol == ProtocolId::IKE);
        let configured = match (of_ike, theirs) {
            (false, Some(_)) => offers(self.connection.children.iter().map(|child| {
                let own = negotiate::esp_offer(&child.esp_proposals, 0, true);
                (child.name.as_str(), own)
            })),
            _ => text::proposals(&negotiate::ike_offer(&self.connection.proposals, &[])),
        };
        (text::proposals(offered), configured)
    }
}
