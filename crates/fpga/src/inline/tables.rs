//! Builds the contents of the core's policy tables from the SPD and from the SAs in the core.
//!
//! Ranges of addresses and ports become prefixes, and there may be more of them than a table has room for. Entries in
//! front of an SA must be there too: those for software, and discards. If they do not fit, the SAs behind them end,
//! and their successors find no room.

use std::sync::Arc;

use esplanade_ipsec::event::Event;
use esplanade_ipsec::sa::{DscpSet, OutboundSa, SaCommon, SaDirection};
use esplanade_ipsec::selector::Selector;
use esplanade_ipsec::spd::{self, Policy, PolicyId, Spd};

use super::{InLine, InstallRefused, Opening, ended};
use crate::core::{CoreError, Lane};
use crate::device::Device;
use crate::fit::row_of;
use crate::policy::{self, CoreAction, TernaryEntry};

/// A policy table while it is built.
struct PolicyTable {
    entries: Vec<TernaryEntry>,
    room: usize,
    /// True if something did not fit. Nothing may be added behind it then.
    full: bool,
}

impl PolicyTable {
    fn new(room: usize) -> Self {
        Self {
            entries: Vec::new(),
            room,
            full: false,
        }
    }

    /// Adds entries for everything that the selectors match. Entries that are there already keep deciding for their
    /// packets.
    fn add(&mut self, selectors: &[Selector], lane: Lane, action: CoreAction) {
        for selector in selectors {
            let entries = match (self.full, lane) {
                (true, _) => return,
                (false, Lane::Outbound) => policy::entries(selector, action, self.room),
                // Packets that the inbound lane decides about came through an SA.
                (false, Lane::Inbound) => policy::tunnelled(selector, action, self.room),
            };
            for entry in entries.iter().flatten() {
                if !self.entries.iter().any(|other| other.is_like(entry)) {
                    self.entries.push(*entry);
                }
            }
            self.full = entries.is_none() || self.entries.len() > self.room;
        }
    }

    /// Adds the entries of an SA that is not in the core yet.
    fn add_coming(mut self, sa: &SaCommon, lane: Lane) -> Result<Vec<TernaryEntry>, NoRoom> {
        self.add(sa.selectors.as_slice(), lane, ELSEWHERE);
        match self.full {
            true => Err(None),
            false => Ok(self.entries),
        }
    }
}

/// The action for an SA that has no row or group yet.
const ELSEWHERE: CoreAction = CoreAction::Protect(0);

/// The row of an SA that does not fit its table. `None` stands for the SA that is not in the core yet.
type NoRoom = Option<u32>;

/// An SA that is about to come into the core. The SPD may not have its policy yet.
type Coming<'a> = Option<&'a SaCommon>;

impl<D: Device> InLine<D> {
    /// Brings the core's tables up to date with the software's. Returns the events of SAs that end. An SA ends if the
    /// policies in front of it take too many entries, or if other SAs of its policy are for certain DSCPs. After an
    /// error the core discards every packet.
    pub fn follow(&mut self, spd: &Spd) -> Result<Vec<Event>, CoreError> {
        let result = self.try_follow(spd);
        if result.is_err() {
            for lane in [Lane::Outbound, Lane::Inbound] {
                self.core.set_policies(lane, &[])?;
            }
        }
        result
    }

    fn try_follow(&mut self, spd: &Spd) -> Result<Vec<Event>, CoreError> {
        self.follow_sas()?;
        let mut events = Vec::new();
        // Each round removes one SA.
        let outbound = loop {
            match self.outbound_entries(spd, None) {
                Ok(entries) => break entries,
                Err(Some(row)) => events.extend(self.end_outbound(row)?),
                // No SA is about to come, so this does not happen.
                Err(None) => break Vec::new(),
            }
        };
        let inbound = loop {
            match self.inbound_entries(spd, None) {
                Ok(entries) => break entries,
                Err(Some(row)) => events.extend(self.end_inbound(row)?),
                Err(None) => break Vec::new(),
            }
        };
        self.core.set_policies(Lane::Outbound, &outbound)?;
        self.core.set_policies(Lane::Inbound, &inbound)?;
        Ok(events)
    }

    /// Returns true if the tables would still have room with this SA in the core.
    pub(super) fn room_for(
        &self,
        spd: &Spd,
        lane: Lane,
        common: &SaCommon,
    ) -> Result<(), InstallRefused> {
        let made = match lane {
            Lane::Outbound => self.outbound_entries(spd, Some(common)),
            Lane::Inbound => self.inbound_entries(spd, Some(common)),
        };
        made.map(drop)
            .map_err(|_| InstallRefused::Policies(self.core.policies_max()))
    }

    /// Removes SAs whose owners dropped them, and follows peers that have moved.
    pub(super) fn follow_sas(&mut self) -> Result<(), CoreError> {
        let old = (self.sealing.iter()).filter(|(_, s)| s.sa.strong_count() == 0);
        let old: Vec<u32> = old.map(|(row, _)| *row).collect();
        for row in old {
            self.core.remove(Lane::Outbound, row)?;
            self.sealing.remove(&row);
        }
        let old = (self.opening.iter()).filter(|(_, o)| o.sa.strong_count() == 0);
        let old: Vec<u32> = old.map(|(row, _)| *row).collect();
        for row in old {
            self.core.remove(Lane::Inbound, row)?;
            self.opening.remove(&row);
        }
        let used: Vec<u16> = self.opening.values().map(|opening| opening.group).collect();
        self.groups.retain(|_, group| used.contains(group));
        for (place, sealing) in &mut self.sealing {
            let Some(sa) = sealing.sa.upgrade() else {
                continue;
            };
            if let Ok(row) = row_of(&sa, sealing.row.iv_base, sealing.path_mtu)
                && row != sealing.row
            {
                self.core.change_outbound(*place, &row, sealing.suite)?;
                sealing.row = row;
            }
        }
        Ok(())
    }

    /// Removes an SA. Its sequence numbers exist nowhere else, so nothing can seal with it any more.
    fn end_outbound(&mut self, row: u32) -> Result<Option<Event>, CoreError> {
        let Some(sealing) = self.sealing.remove(&row) else {
            return Ok(None);
        };
        self.core.remove(Lane::Outbound, row)?;
        let sa = sealing.sa.upgrade();
        Ok(sa.map(|sa| ended(SaDirection::Outbound, &sa.common)))
    }

    /// Removes an SA. The core keeps its SPI, and finds no SA for the packets. The software must not open them: its
    /// replay window has not seen what the core's has.
    fn end_inbound(&mut self, row: u32) -> Result<Option<Event>, CoreError> {
        let Some(opening) = self.opening.get_mut(&row) else {
            return Ok(None);
        };
        opening.ended = true;
        let sa = opening.sa.upgrade();
        self.core.remove(Lane::Inbound, row)?;
        Ok(sa.map(|sa| ended(SaDirection::Inbound, &sa.common)))
    }

    /// Builds the outbound entries from the policies of the common interface. Traffic for no SA in the core goes to
    /// software. Its policies may protect it, ask for an SA, bypass it or drop it.
    fn outbound_entries(&self, spd: &Spd, coming: Coming<'_>) -> Result<Vec<TernaryEntry>, NoRoom> {
        let mut table = PolicyTable::new(self.core.policies_max().saturating_sub(1));
        let (mut needed, mut coming) = (0, coming);
        for entry in spd.entries().iter().filter(|entry| entry.interface == 0) {
            let row = match &entry.action {
                spd::Action::Protect(policy) => self.row_for(policy)?,
                spd::Action::Discard | spd::Action::Bypass => None,
            };
            let action = row.map_or(CoreAction::ToHost, CoreAction::Protect);
            table.add(entry.selectors.as_slice(), Lane::Outbound, action);
            let new = coming.take_if(|new| is_for(entry, new));
            if let Some(new) = new {
                table.add(new.selectors.as_slice(), Lane::Outbound, action);
            }
            if row.is_some() || new.is_some() {
                if table.full {
                    return Err(row.map(u32::from));
                }
                needed = table.entries.len();
            }
        }
        if let Some(new) = coming {
            return table.add_coming(new, Lane::Outbound);
        }
        // Policies behind the last SA need no entries, because they all say "to the host".
        table.entries.truncate(needed);
        table.entries.push(TernaryEntry::any(CoreAction::ToHost));
        Ok(table.entries)
    }

    /// Returns the row of a policy's SA. If the newest SA is for certain DSCPs, the software chooses an SA for each
    /// packet. Another SA of that policy must then leave the core.
    fn row_for(&self, policy: &Policy) -> Result<Option<u16>, NoRoom> {
        let all = policy.outbound_sas();
        let Some(newest) = all.first() else {
            return Ok(None);
        };
        if newest.common.dscp != DscpSet::ALL
            && let Some(row) = all.iter().find_map(|sa| self.row_of(sa))
        {
            return Err(Some(row.into()));
        }
        Ok(self.row_of(newest))
    }

    /// Returns true if a policy has SAs for certain DSCPs.
    pub(super) fn is_by_dscp(spd: &Spd, id: PolicyId) -> bool {
        spd.entries().iter().any(|entry| match &entry.action {
            spd::Action::Protect(policy) if policy.id == id => {
                let mut sas = policy.outbound_sas().into_iter();
                sas.any(|sa| sa.common.dscp != DscpSet::ALL)
            }
            _ => false,
        })
    }

    fn row_of(&self, sa: &Arc<OutboundSa>) -> Option<u16> {
        let mut rows = self.sealing.iter();
        let found = rows.find(|(_, sealing)| std::ptr::eq(sealing.sa.as_ptr(), Arc::as_ptr(sa)));
        found.and_then(|(row, _)| u16::try_from(*row).ok())
    }

    /// Builds the inbound entries: what each group's SAs were negotiated for, and what the policies in front of them
    /// discard (RFC 4301 §5.2).
    fn inbound_entries(&self, spd: &Spd, coming: Coming<'_>) -> Result<Vec<TernaryEntry>, NoRoom> {
        let mut table = PolicyTable::new(self.core.policies_max());
        let (mut needed, mut coming) = (0, coming);
        for entry in spd.entries().iter().filter(|entry| entry.interface == 0) {
            match &entry.action {
                spd::Action::Bypass => {}
                spd::Action::Discard => {
                    table.add(
                        entry.selectors.as_slice(),
                        Lane::Inbound,
                        CoreAction::Discard,
                    );
                }
                spd::Action::Protect(policy) => {
                    let mut carries = false;
                    for (row, opening) in &self.opening {
                        carries |= carry(&mut table, *row, opening, |sa| sa.policy == policy.id)?;
                    }
                    if let Some(new) = coming.take_if(|new| is_for(entry, new)) {
                        table.add(new.selectors.as_slice(), Lane::Inbound, ELSEWHERE);
                        carries = true;
                    }
                    if carries {
                        if table.full {
                            return Err(None);
                        }
                        needed = table.entries.len();
                    }
                }
            }
        }
        if let Some(new) = coming {
            return table.add_coming(new, Lane::Inbound);
        }
        table.entries.truncate(needed);
        table.full = false;
        // These entries are for packets in flight on SAs whose policy is gone.
        for (row, opening) in &self.opening {
            carry(&mut table, *row, opening, |_| true)?;
        }
        Ok(table.entries)
    }
}

fn is_for(entry: &spd::SpdEntry, sa: &SaCommon) -> bool {
    matches!(&entry.action, spd::Action::Protect(policy) if policy.id == sa.policy)
}

/// Adds entries for what an SA in the core may carry, if `of` selects the SA. Returns whether it does.
fn carry(
    table: &mut PolicyTable,
    row: u32,
    opening: &Opening,
    of: impl Fn(&SaCommon) -> bool,
) -> Result<bool, NoRoom> {
    let sa = opening
        .sa
        .upgrade()
        .filter(|sa| !opening.ended && of(&sa.common));
    let Some(sa) = sa else {
        return Ok(false);
    };
    let action = CoreAction::Protect(opening.group);
    table.add(sa.common.selectors.as_slice(), Lane::Inbound, action);
    match table.full {
        true => Err(Some(row)),
        false => Ok(true),
    }
}
