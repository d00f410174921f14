//! The installed child SAs: finds them by their numbers, and looks at their use and age.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::Bound;
use std::sync::Arc;

use esplanade_few::FewSet;
use esplanade_ike::event::ChildSaId;
use esplanade_ipsec::lifetime::LifetimeEvent;
use esplanade_ipsec::sa::{DscpSet, InboundSa, OutboundSa, SaDirection};
use esplanade_ipsec::selector::SelectorSet;
use esplanade_ipsec::spd::PolicyId;

use super::policy::ChildName;

/// Fewest child SAs of one look. A look takes more if all SAs would need more than `LOOKS_MAX` looks. There can be a
/// million.
const SLICE_MIN: usize = 8192;
const LOOKS_MAX: usize = 16;

/// The carrier of an SA. An SA stays with its carrier, because its sequence numbers are taken in one place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Carrier {
    /// The workers' engines. The text says why the device in front has not taken the SA, if it was to have it.
    Engine(Option<String>),
    /// The device in front.
    Device,
}

/// A child SA, as the data plane knows it.
#[derive(Clone, Debug)]
pub struct InstalledChild {
    pub inbound: Arc<InboundSa>,
    pub outbound: Arc<OutboundSa>,
    pub carrier: Carrier,
    pub(super) name: Arc<ChildName>,
    /// The policy whose traffic the SA carries.
    pub(super) policy: PolicyId,
    /// The load decides which engine carries each half.
    pub(super) is_adaptive: bool,
    /// The peer has made this SA beside the SAs that exist.
    pub(super) made_by_peer: bool,
    /// `last_used_ms` of the inbound and the outbound half when IKE was last told.
    seen: (u64, u64),
}

impl InstalledChild {
    pub(super) fn new(
        name: ChildName,
        policy: PolicyId,
        (inbound, outbound): (Arc<InboundSa>, Arc<OutboundSa>),
        carrier: Carrier,
        made_by_peer: bool,
    ) -> Self {
        Self {
            inbound,
            outbound,
            carrier,
            name: Arc::new(name),
            policy,
            is_adaptive: false,
            made_by_peer,
            seen: (0, 0),
        }
    }

    /// Returns the workers' engines that seal and open.
    pub(super) fn engines(&self) -> [u8; 2] {
        let halves = [&self.outbound.common, &self.inbound.common];
        halves.map(|half| half.placement.get().engine)
    }
}

/// The halves of a child SA that have carried traffic since the last look, and the event of its lifetime that is due.
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

/// The packets that SAs are for: those of a policy with these selectors and DSCPs.
type AlikeKey = (PolicyId, SelectorSet, DscpSet);

fn alike_key(policy: PolicyId, sa: &OutboundSa) -> AlikeKey {
    (policy, sa.common.selectors.clone(), sa.common.dscp)
}

/// The SAs for the same packets. A set is in order of age, as the numbers of child SAs are.
#[derive(Debug, Default)]
struct AlikeSas {
    installed: FewSet<ChildSaId>,
    sending: FewSet<ChildSaId>,
    /// SAs that wait for their peer before they send.
    waiting: BTreeSet<ChildSaId>,
}

/// All installed child SAs.
#[derive(Debug, Default)]
pub(super) struct ChildSas {
    by_id: BTreeMap<ChildSaId, Box<InstalledChild>>,
    by_policy: HashMap<PolicyId, FewSet<ChildSaId>>,
    alike: HashMap<AlikeKey, AlikeSas>,
    /// The SAs by their inbound SPIs, which we choose and which are unique.
    by_spi: HashMap<u32, ChildSaId>,
    /// The SAs by their outbound SPIs, which peers choose.
    by_outbound_spi: BTreeSet<(PolicyId, u32, ChildSaId)>,
    /// The last SA of the last look, if more SAs follow it.
    looked_at: Option<ChildSaId>,
}

impl ChildSas {
    pub fn insert(&mut self, id: ChildSaId, child: InstalledChild) {
        self.by_policy.entry(child.policy).or_default().insert(id);
        let alike = self.alike.entry(alike_key(child.policy, &child.outbound));
        alike.or_default().installed.insert(id);
        self.by_spi.insert(child.inbound.common.spi, id);
        let outbound = (child.policy, child.outbound.common.spi, id);
        self.by_outbound_spi.insert(outbound);
        self.by_id.insert(id, Box::new(child));
    }

    pub fn remove(&mut self, id: ChildSaId) -> Option<InstalledChild> {
        let child = self.by_id.remove(&id)?;
        self.by_spi.remove(&child.inbound.common.spi);
        let outbound = (child.policy, child.outbound.common.spi, id);
        self.by_outbound_spi.remove(&outbound);
        let key = alike_key(child.policy, &child.outbound);
        if let Some(alike) = self.alike.get_mut(&key) {
            alike.installed.remove(&id);
            alike.sending.remove(&id);
            alike.waiting.remove(&id);
            if alike.installed.is_empty() {
                self.alike.remove(&key);
            }
        }
        if let Some(of_policy) = self.by_policy.get_mut(&child.policy) {
            of_policy.remove(&id);
            if of_policy.is_empty() {
                self.by_policy.remove(&child.policy);
            }
        }
        Some(*child)
    }

    pub fn get(&self, id: ChildSaId) -> Option<&InstalledChild> {
        self.by_id.get(&id).map(|child| &**child)
    }

    pub fn get_mut(&mut self, id: ChildSaId) -> Option<&mut InstalledChild> {
        self.by_id.get_mut(&id).map(|child| &mut **child)
    }

    /// Notes that an SA may be sent with from now on.
    pub fn begin_sending(&mut self, id: ChildSaId) -> Option<&InstalledChild> {
        let child = self.by_id.get(&id)?;
        if let Some(alike) = self
            .alike
            .get_mut(&alike_key(child.policy, &child.outbound))
        {
            alike.sending.insert(id);
        }
        Some(child)
    }

    /// Notes that an SA waits for its peer before it sends.
    pub fn begin_waiting(&mut self, id: ChildSaId) {
        if let Some(child) = self.by_id.get(&id)
            && let Some(alike) = self
                .alike
                .get_mut(&alike_key(child.policy, &child.outbound))
        {
            alike.waiting.insert(id);
        }
    }

    /// Takes the SA and the older ones for the same packets out of those that wait.
    pub fn end_waiting(&mut self, id: ChildSaId) -> BTreeSet<ChildSaId> {
        let child = self.by_id.get(&id);
        let key = child.map(|child| alike_key(child.policy, &child.outbound));
        let Some(alike) = key.and_then(|key| self.alike.get_mut(&key)) else {
            return BTreeSet::new();
        };
        let newer = alike.waiting.split_off(&ChildSaId(id.0.saturating_add(1)));
        std::mem::replace(&mut alike.waiting, newer)
    }

    pub fn iter(&self) -> impl Iterator<Item = (ChildSaId, &InstalledChild)> {
        self.by_id.iter().map(|(id, child)| (*id, &**child))
    }

    /// Returns the SAs of a policy, oldest first.
    pub fn of_policy(
        &self,
        policy: PolicyId,
    ) -> impl DoubleEndedIterator<Item = (ChildSaId, &InstalledChild)> {
        let ids = self.by_policy.get(&policy).into_iter();
        let ids = ids.flat_map(FewSet::iter);
        ids.filter_map(|id| Some((*id, self.get(*id)?)))
    }

    /// Returns the newest SA of a policy that is for the same packets as this one.
    pub fn newest_like(&self, policy: PolicyId, sa: &OutboundSa) -> Option<ChildSaId> {
        let alike = self.alike.get(&alike_key(policy, sa))?;
        alike.installed.last().copied()
    }

    /// Returns the newest of these SAs that may be sent with.
    pub fn newest_sending_like(
        &self,
        policy: PolicyId,
        sa: &OutboundSa,
    ) -> Option<&InstalledChild> {
        let alike = self.alike.get(&alike_key(policy, sa))?;
        self.get(*alike.sending.last()?)
    }

    /// Returns the child SA that an event of the data plane is about. Two peers may choose the same outbound SPI, and
    /// it may equal an inbound SPI of ours.
    pub fn find(
        &self,
        direction: SaDirection,
        policy: PolicyId,
        spi: u32,
    ) -> Option<(ChildSaId, &InstalledChild)> {
        match direction {
            SaDirection::Inbound => {
                let id = *self.by_spi.get(&spi)?;
                Some((id, self.get(id)?))
            }
            SaDirection::Outbound => {
                let least = (policy, spi, ChildSaId(0));
                let (of, own, id) = *self.by_outbound_spi.range(least..).next()?;
                let found = (of, own) == (policy, spi);
                found.then_some((id, self.get(id)?))
            }
        }
    }

    /// Looks at the next slice of child SAs. `now_ms` is the data plane's clock.
    pub fn take_activity(&mut self, now_ms: u64) -> Vec<Activity> {
        let slice = self.by_id.len().div_ceil(LOOKS_MAX).max(SLICE_MIN);
        let from = self.looked_at.map_or(Bound::Unbounded, Bound::Excluded);
        let mut active = Vec::new();
        let (mut looks, mut last) = (0, None);
        let next = self.by_id.range_mut((from, Bound::Unbounded)).take(slice);
        for (id, child) in next {
            looks += 1;
            last = Some(*id);
            active.extend(look(*id, child, now_ms));
        }
        self.looked_at = last.filter(|_| looks == slice);
        active
    }

    /// Returns the activity of one child SA, or `None` if there was none.
    pub fn activity_of(&mut self, id: ChildSaId, now_ms: u64) -> Option<Activity> {
        look(id, self.by_id.get_mut(&id)?, now_ms)
    }
}

/// Tells whether two SAs of one policy are for the same packets.
pub(super) fn alike(a: &OutboundSa, b: &OutboundSa) -> bool {
    (&a.common.selectors, a.common.dscp) == (&b.common.selectors, b.common.dscp)
}

fn look(id: ChildSaId, child: &mut InstalledChild, now_ms: u64) -> Option<Activity> {
    let (inbound, outbound) = (&child.inbound.common, &child.outbound.common);
    let used = (inbound.last_used_ms(), outbound.last_used_ms());
    let due = inbound.lifetime.poll(now_ms);
    let activity = Activity {
        child: id,
        inbound: used.0 != child.seen.0,
        outbound: used.1 != child.seen.1,
        due: due.or_else(|| outbound.lifetime.poll(now_ms)),
    };
    child.seen = used;
    (activity.is_used() || activity.due.is_some()).then_some(activity)
}
