//! Fragments from the protected side, put together where a policy wants to see ports (RFC 4301 §7).

use esplanade_ipsec::fragment::{Fragment, Limits, Pushed, Reassembler};
use esplanade_ipsec::spd::Spd;
use esplanade_ipsec::wire::IpView;

use super::counters::{IoCounters, add};

/// What a packet is for the outbound walk.
#[derive(Debug)]
pub(super) enum Admitted {
    /// It goes on as it is.
    AsItIs,
    /// It waits for the rest of its datagram.
    Held,
    Whole(Vec<u8>),
    Refused,
}

#[derive(Debug)]
pub(super) struct Fragments {
    reassembler: Reassembler,
}

impl Fragments {
    pub fn new() -> Self {
        Self {
            reassembler: Reassembler::new(Limits::default()),
        }
    }

    /// Whether datagrams wait for more fragments, so that time has to be kept.
    pub fn is_waiting(&self) -> bool {
        self.reassembler.bytes() > 0
    }

    /// Forgets what took too long; gives the number of datagrams.
    pub fn expire(&mut self, now_ms: u64) -> usize {
        self.reassembler.expire(now_ms)
    }

    /// `view` was parsed from `packet`.
    pub fn admit(
        &mut self,
        io: &IoCounters,
        spd: &Spd,
        (packet, view): (&[u8], &IpView),
        now_ms: u64,
    ) -> Admitted {
        let fragment = match Fragment::parse(packet, view) {
            Ok(Some(fragment)) => fragment,
            Ok(None) => return Admitted::AsItIs,
            Err(_) => return Admitted::Refused,
        };
        if !spd.ports_decide(&view.outbound_flow()) {
            return Admitted::AsItIs;
        }
        match self.reassembler.push(packet, &fragment, now_ms) {
            Pushed::Held => {
                add(&io.fragments_held, 1);
                Admitted::Held
            }
            Pushed::Whole(whole) => {
                add(&io.reassembled, 1);
                Admitted::Whole(whole)
            }
            Pushed::Refused(refusal) => {
                tracing::trace!(?refusal, "a fragment is refused");
                Admitted::Refused
            }
        }
    }
}
