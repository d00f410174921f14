//! What SAs say of their use and their age, asked a slice of them at a time: there can be a million.

use std::ops::Bound;

use esplanade_ike::event::ChildSaId;
use esplanade_ipsec::lifetime::LifetimeEvent;

use super::{Installed, Join};

/// Child SAs of one look, if they are not so many that it would take more than this number of looks to see all.
const SLICE_MIN: usize = 8192;
const LOOKS_MAX: usize = 16;

/// Which halves of a child SA have carried traffic since the last look, and what its age asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Activity {
    pub child: ChildSaId,
    pub inbound: bool,
    pub outbound: bool,
    pub due: Option<LifetimeEvent>,
}

impl Activity {
    pub fn is_used(&self) -> bool {
        self.inbound || self.outbound
    }
}

impl Join {
    /// Looks at the next slice of child SAs. `now_ms` is the data plane's clock.
    pub fn take_activity(&mut self, now_ms: u64) -> Vec<Activity> {
        let mut active = Vec::new();
        // A peer that sends on its SA has it.
        let waiting: Vec<_> = self.handovers.iter().map(|(_, child)| *child).collect();
        for child in waiting {
            let Some(activity) = self.activity_of(child, now_ms) else {
                continue;
            };
            if activity.inbound {
                self.switch_to(child);
            }
            active.push(activity);
        }
        let slice = self.children.len().div_ceil(LOOKS_MAX).max(SLICE_MIN);
        let from = self.looked_at.map_or(Bound::Unbounded, Bound::Excluded);
        let mut looks = 0;
        let mut last = None;
        for (child, installed) in self
            .children
            .range_mut((from, Bound::Unbounded))
            .take(slice)
        {
            looks += 1;
            last = Some(*child);
            active.extend(look(*child, installed, now_ms));
        }
        self.looked_at = last.filter(|_| looks == slice);
        active
    }

    /// The same of one child SA; none if nothing has happened.
    pub fn activity_of(&mut self, child: ChildSaId, now_ms: u64) -> Option<Activity> {
        look(child, self.children.get_mut(&child)?, now_ms)
    }
}

fn look(child: ChildSaId, installed: &mut Installed, now_ms: u64) -> Option<Activity> {
    let (inbound, outbound) = (&installed.inbound.common, &installed.outbound.common);
    let used = (inbound.last_used_ms(), outbound.last_used_ms());
    let due = inbound.lifetime.poll(now_ms);
    let activity = Activity {
        child,
        inbound: used.0 != installed.seen.0,
        outbound: used.1 != installed.seen.1,
        due: due.or_else(|| outbound.lifetime.poll(now_ms)),
    };
    installed.seen = used;
    (activity.is_used() || activity.due.is_some()).then_some(activity)
}
