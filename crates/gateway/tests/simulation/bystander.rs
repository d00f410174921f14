//! Watches the connection that no operation is about: its SAs stay, and no packet of it is lost.

use std::collections::{BTreeSet, VecDeque};
use std::time::{Duration, Instant};

use esplanade_ike::status::{ChildSaState, IkeSaState};
use esplanade_ipsec::selector::Flow;
use esplanade_ipsec::spd::Decision;

use crate::config::{BYSTANDER, BYSTANDERS, HUB, OTHER};
use crate::gateway::Gateway;
use crate::ledger::Checked;
use crate::world::{SECOND, World};

/// The SAs are watched once they have not changed for this long.
const SETTLING: Duration = Duration::from_secs(3);
/// A packet takes no longer than this on the perfect link.
const LATEST: Duration = Duration::from_millis(500);

/// The inbound and the outbound SPI of each child SA, at the hub.
type Spis = BTreeSet<(u32, u32)>;

pub struct Watch {
    next: Instant,
    /// The SAs of the last look, and the time since when they have not changed.
    seen: (Spis, Instant),
    /// The SAs that stay. Where both peers have initiated at once, they are two for a while, and one of them stays.
    settled: Option<Spis>,
    /// Packets under way, each with the time by which it has arrived.
    sent: VecDeque<(Instant, usize)>,
    is_stopped: bool,
}

impl Watch {
    pub fn new(now: Instant) -> Self {
        Self {
            next: now,
            seen: (Spis::new(), now),
            settled: None,
            sent: VecDeque::new(),
            is_stopped: false,
        }
    }

    /// The hub has lost its state.
    pub fn reset(&mut self, now: Instant) {
        *self = Self::new(now);
    }

    pub fn stop(&mut self) {
        self.is_stopped = true;
    }

    pub fn due(&self) -> Instant {
        match self.is_stopped {
            true => self.next + Duration::from_secs(1 << 20),
            false => self.next,
        }
    }

    /// Checks that the connection is up.
    pub fn is_steady(&self) -> Checked {
        match &self.settled {
            Some(settled) if settled.len() == 1 => Ok(()),
            _ => Err(format!(
                "the connection of the other peer is not up: {:?}",
                self.seen.0
            )),
        }
    }

    pub fn look(&mut self, world: &mut World) -> Checked {
        let now = world.now;
        if self.is_stopped || now < self.next {
            return Ok(());
        }
        self.next = now + SECOND;
        while let Some((_, number)) = self.sent.pop_front_if(|(by, _)| *by <= now) {
            if !world.ledger.is_delivered(number) {
                let packet = world.ledger.describe(number);
                return Err(format!(
                    "a connection that nobody touched lost a packet: {packet}"
                ));
            }
        }
        let [_, Some(hub), Some(other)] = &world.gateways else {
            return Ok(());
        };
        let (spis, others) = (spis(hub), spis(other));
        let crossed: Spis = others
            .iter()
            .map(|(inbound, outbound)| (*outbound, *inbound))
            .collect();
        if let Some(settled) = &mut self.settled {
            let is_rest = |left: &Spis| !left.is_empty() && left.is_subset(settled);
            if spis == crossed && is_rest(&spis) {
                *settled = spis;
            } else if settled.len() == 1 || !is_rest(&spis) || !is_rest(&crossed) {
                return Err(format!(
                    "a connection that nobody touched has other SAs: {settled:x?} became {spis:x?} and {crossed:x?}"
                ));
            }
            check_policies([hub, other], settled)?;
        } else if spis != self.seen.0 || spis != crossed || spis.is_empty() {
            self.seen = (spis, now);
            return Ok(());
        } else if now - self.seen.1 >= SETTLING {
            self.settled = Some(spis);
        }
        if self.settled.is_some() {
            for (from, to) in [(HUB, OTHER), (OTHER, HUB)] {
                let [source, destination] = [from, to].map(|at| (at, BYSTANDERS[at - HUB]));
                let (number, packet) = world.ledger.packet(source, destination, 7000, 80);
                self.sent.push_back((now + LATEST, number));
                world.read(from, &[packet])?;
            }
        }
        Ok(())
    }
}

/// The child SAs in use of the connection.
fn spis(gateway: &Gateway) -> Spis {
    let status = gateway.endpoint.status().into_iter();
    let of_bystander = status.filter(|sa| {
        sa.connection.as_deref() == Some(BYSTANDER) && sa.state == IkeSaState::Established
    });
    let children = of_bystander.flat_map(|sa| sa.children);
    children
        .filter(|child| child.state == ChildSaState::Installed)
        .map(|child| (child.spi_in, child.spi_out))
        .collect()
}

/// Checks that the SPDs of both ends lead the connection's packets into its SAs.
fn check_policies(gateways: [&Gateway; 2], settled: &Spis) -> Checked {
    for (end, gateway) in gateways.into_iter().enumerate() {
        let [local, remote] = [end, 1 - end].map(|end| BYSTANDERS[end].into());
        let spd = gateway.database.spd();
        let decision = spd.outbound(&Flow::new(local, remote, 17, Some((40_000, 7000))));
        let is_right = |spi: u32| settled.iter().any(|of| [of.1, of.0][end] == spi);
        match decision {
            Decision::Protect(sa) if is_right(sa.common.spi) => {}
            other => {
                return Err(format!(
                    "a connection that nobody touched has another policy at its end {end}: {other:?}"
                ));
            }
        }
    }
    Ok(())
}
