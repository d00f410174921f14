//! The end of an IKE SA, and of its children.
//!
//! An exchange that ends its SA returns an [`Ending`]. [`Phase::end`] carries it out and gives the next phase. The
//! children are gone for IKE at once. The data plane is told of each child when its turn comes ([`DueEnd`]).

use std::time::Duration;

use super::child_sa::ChildSa;
use super::context::{Context, Effect};
use super::due_end::DueEnd;
use super::established::Established;
use super::ike_sa::IkeSaCommon;
use super::phase::{AuthSent, Closing, Gone, Phase, Rekeyed};
use super::task::{PendingExchange, Task};
use crate::failure::DownReason;
use crate::protected::ProtectedChannel;
use crate::wire::{Delete, ExchangeType, Payload, ProtocolId};

/// The time for which the last response is kept, for a request that comes again after the SA has ended.
const GONE_TIME: Duration = Duration::from_secs(30);

/// The SA is to end.
#[derive(Debug)]
pub(crate) enum Ending {
    /// The SA ends without another message: the peer ends its SA by itself, or cannot be told.
    Silent(DownReason),
    /// An INFORMATIONAL request with these payloads tells the peer. No other request may be outstanding.
    Announced(DownReason, Vec<Payload>),
}

impl Ending {
    /// The SA is to be deleted by an INFORMATIONAL exchange (RFC 7296 §1.4.1).
    pub(crate) fn delete(reason: DownReason) -> Self {
        let delete = Delete {
            protocol: ProtocolId::IKE,
            spis: Vec::new(),
        };
        Self::Announced(reason, vec![Payload::Delete(delete)])
    }
}

impl Phase {
    pub(crate) fn end(self, sa: &mut IkeSaCommon, ctx: &mut Context<'_>, ending: Ending) -> Self {
        match ending {
            Ending::Silent(reason) => self.close(sa, ctx, reason),
            Ending::Announced(reason, payloads) => self.announce_end(sa, ctx, reason, &payloads),
        }
    }

    /// Ends the SA without another message. A responder's last response is kept for a while.
    pub(crate) fn close(
        self,
        sa: &mut IkeSaCommon,
        ctx: &mut Context<'_>,
        reason: DownReason,
    ) -> Self {
        let gone = Self::Gone(Gone {
            until: ctx.now + GONE_TIME,
            unauthenticated: self.is_half_open(),
        });
        sa.window.forget_request();
        match self {
            Self::InitSent(_) | Self::AuthDue(_) => {
                sa.connect_failed(ctx, reason);
                Self::Closed
            }
            Self::AuthSent(state) => {
                state.release(ctx);
                sa.connect_failed(ctx, reason);
                Self::Closed
            }
            Self::Established(state) => {
                state.tear_down(sa, ctx, &reason);
                gone
            }
            Self::InitReceived(_) | Self::Closed => Self::Closed,
            Self::InitResponded(_) | Self::Rekeyed(_) | Self::Closing(_) | Self::Gone(_) => gone,
        }
    }

    /// Tells the peer that the SA ends, and forgets the children at once.
    fn announce_end(
        self,
        sa: &mut IkeSaCommon,
        ctx: &mut Context<'_>,
        reason: DownReason,
        payloads: &[Payload],
    ) -> Self {
        let mut channel = match self {
            Self::Established(state) => state.tear_down(sa, ctx, &reason),
            Self::AuthSent(state) => {
                sa.connect_failed(ctx, reason);
                state.release(ctx)
            }
            Self::InitResponded(state) => state.channel,
            Self::Rekeyed(state) => state.channel,
            Self::Closing(state) => state.channel,
            Self::InitSent(_)
            | Self::InitReceived(_)
            | Self::AuthDue(_)
            | Self::Gone(_)
            | Self::Closed => return Self::Closed,
        };
        let sent = sa.send_request(ctx, &mut channel, ExchangeType::INFORMATIONAL, payloads);
        let closing = Self::Closing(Box::new(Closing { channel }));
        match sent {
            Ok(()) => closing,
            Err(ending) => closing.end(sa, ctx, ending),
        }
    }

    /// Waits for the peer to delete an SA that a rekey has replaced. Our answer to the rekey can be lost. The peer repeats its
    /// request then, and has nothing if the old SA is gone.
    pub(crate) fn await_delete(self, sa: &mut IkeSaCommon, ctx: &mut Context<'_>) -> Self {
        match self {
            Self::Established(state) => Self::Rekeyed(Box::new(Rekeyed {
                channel: state.tear_down(sa, ctx, &DownReason::Rekeyed),
                delete_at: ctx.now + sa.connection.retransmission.patience(),
            })),
            other => other,
        }
    }

    /// Drops an attempt that the peer has not answered yet.
    pub(crate) fn withdraw(self, sa: &IkeSaCommon, ctx: &mut Context<'_>) -> Self {
        match self {
            Self::InitSent(state) => {
                for request in &state.requests {
                    sa.child_abandoned(ctx, &request.config.name);
                }
                Self::Closed
            }
            other => other,
        }
    }

    /// Drops an SA that waits for the peer's delete. What has replaced it has ended.
    pub(crate) fn forget_replaced(self) -> Self {
        match self {
            Self::Rekeyed(_) => Self::Closed,
            other => other,
        }
    }

    /// Drops an SA that is kept for its last response, or for a delete, or that nobody has authenticated.
    pub(crate) fn forget(self) -> Self {
        match self {
            Self::InitReceived(_)
            | Self::InitResponded(_)
            | Self::Rekeyed(_)
            | Self::Closing(_)
            | Self::Gone(_) => Self::Closed,
            other => other,
        }
    }
}

impl AuthSent {
    fn release(self, ctx: &mut Context<'_>) -> ProtectedChannel {
        if let Some(child) = &self.child {
            ctx.spis.release(child.spi_in);
        }
        self.channel
    }
}

impl IkeSaCommon {
    /// Has children taken out of the data plane when their turn comes.
    pub(super) fn end_later(
        &self,
        ctx: &mut Context<'_>,
        children: Vec<ChildSa>,
        reason: &DownReason,
    ) {
        let ends = children.into_iter();
        ctx.ends
            .extend(ends.map(|child| self.due_end(Some(child), reason)));
    }

    fn due_end(&self, child: Option<ChildSa>, reason: &DownReason) -> DueEnd {
        DueEnd {
            ike_sa: self.id,
            connection: self.connection.clone(),
            reason: reason.clone(),
            child,
            of_goals: self.is_with_initiation_peer(),
        }
    }

    pub(crate) fn connect_failed(&self, ctx: &mut Context<'_>, reason: DownReason) {
        ctx.counters.connect_failures += 1;
        ctx.effects.push(Effect::ConnectFailed {
            connection: self.connection.clone(),
            reason,
            remote: Some(self.hosts.1),
            reauthenticates: self.reauthenticates,
        });
    }

    fn child_abandoned(&self, ctx: &mut Context<'_>, child: &str) {
        ctx.effects.push(Effect::ChildAbandoned {
            connection: self.connection.name.clone(),
            child: child.to_owned(),
        });
    }
}

impl Established {
    /// Goes on in this phase, or ends the SA.
    pub(crate) fn settle(
        self: Box<Self>,
        sa: &mut IkeSaCommon,
        ctx: &mut Context<'_>,
        result: Result<(), Ending>,
    ) -> Phase {
        let phase = Phase::Established(self);
        match result {
            Ok(()) => phase,
            Err(ending) => phase.end(sa, ctx, ending),
        }
    }

    /// Forgets the children and the tasks. Returns the channel, for a last message to the peer.
    fn tear_down(
        self,
        sa: &IkeSaCommon,
        ctx: &mut Context<'_>,
        reason: &DownReason,
    ) -> ProtectedChannel {
        match self.exchange {
            Some(PendingExchange::CreateChild(pending)) => {
                ctx.spis.release(pending.spi_in);
                if pending.rekeys.is_none() {
                    sa.child_abandoned(ctx, &pending.config().name);
                }
            }
            Some(PendingExchange::DeleteUnaccepted(spi)) => ctx.spis.release(spi),
            Some(PendingExchange::RekeyIke(pending)) => {
                if let Some(peers) = pending.simultaneous {
                    ctx.effects.push(Effect::DeleteRedundant {
                        ike_sa: peers.ike_sa,
                    });
                }
            }
            Some(PendingExchange::PathProbe(_)) => sa.ended_over_path_probe(ctx, reason),
            Some(
                PendingExchange::DeleteChild(..)
                | PendingExchange::DeleteEnded(_)
                | PendingExchange::Liveness
                | PendingExchange::CrashToken,
            )
            | None => {}
        }
        for queued in self.tasks {
            match queued.task {
                Task::DeleteUnaccepted(_, spi) => ctx.spis.release(spi),
                Task::CreateChild(request) => sa.child_abandoned(ctx, &request.config.name),
                _ => {}
            }
        }
        sa.end_later(ctx, self.children, reason);
        if *reason != DownReason::Rekeyed {
            ctx.ends.push_back(sa.due_end(None, reason));
            if let Some(replaced) = sa.predecessor {
                ctx.effects
                    .push(Effect::ForgetReplaced { ike_sa: replaced });
            }
        }
        self.channel
    }
}
