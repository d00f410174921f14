//! The progress of an attempt to establish an IKE SA, for people.

use super::context::Context;
use super::ike_sa::{IkeSa, IkeSaCommon};
use super::phase::Phase;
use crate::event::Event;
use crate::silence::{Attempt, Silence};

/// The retransmission after which the silence of a peer is told.
const TOLD_AFTER: u32 = 2;

impl IkeSa {
    /// Returns what our attempt has met, if a request of it waits for an answer.
    pub(crate) fn attempt(&self) -> Option<Attempt> {
        self.phase.attempt(&self.common)
    }
}

impl Phase {
    fn attempt(&self, sa: &IkeSaCommon) -> Option<Attempt> {
        let window = &sa.window;
        let unusable = || window.unusable().map(ToString::to_string);
        let silence = match self {
            Self::InitSent(state) => {
                let refused = state.refused.as_ref().map(ToString::to_string);
                match refused.or_else(unusable) {
                    Some(why) => Silence::Unusable(why),
                    None if state.restarts > 0 => Silence::AfterRestart,
                    None => Silence::Complete,
                }
            }
            Self::AuthSent(_) => match unusable() {
                Some(why) => Silence::Unusable(why),
                None => Silence::AfterInit {
                    in_fragments: window.is_fragmented(),
                },
            },
            _ => return None,
        };
        window.is_busy().then(|| Attempt {
            connection: sa.connection.name.clone(),
            since: sa.begun,
            remote: sa.remote,
            unanswered: 1 + window.retransmissions(),
            silence,
        })
    }

    /// Tells that the peer is silent, once in an attempt.
    pub(crate) fn tell_silence(&self, sa: &IkeSaCommon, ctx: &mut Context<'_>) {
        if sa.window.retransmissions() != TOLD_AFTER {
            return;
        }
        if let Some(attempt) = self.attempt(sa) {
            ctx.events.push_back(Event::Unanswered(Box::new(attempt)));
        }
    }
}
