//! The driver of the core: tables, lanes, rings and counters. It does not know the software's SPD and SAD.

use crate::device_key::{DeviceKey, Suite};
use esplanade_counters::{Counter, Unit};
use esplanade_ipsec::DropReason;

use crate::device::{BusError, Device};
use crate::policy::{CoreAction, TernaryEntry};
use crate::regs::{self, key_row, lane_counters, policy_entry, sa_snapshot};
use crate::ring::{Port, Ring};
use crate::sa::{InboundSaRow, OutboundSaRow};

/// Offset of the flags in an SA's row, in either table.
const SA_FLAGS: u32 = regs::outbound_sa::FLAGS;
const _: () = assert!(SA_FLAGS == regs::inbound_sa::FLAGS);

/// A half of the core, named by its direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Lane {
    Outbound,
    Inbound,
}

/// Register addresses of a lane.
struct Places {
    enable: u32,
    counters: u32,
    snapshot: u32,
    snapshot_request: u32,
    options: u32,
    policies: u32,
    sas: u32,
    keys: u32,
    /// Shift of the generation in the flags of an SA.
    generation: u32,
}

impl Lane {
    const fn places(self) -> Places {
        match self {
            Self::Outbound => Places {
                enable: regs::CONTROL_OUT_ENABLE,
                counters: regs::OUT_COUNTERS,
                snapshot: regs::OUT_SNAPSHOT,
                snapshot_request: regs::OUT_SNAPSHOT_REQUEST,
                options: regs::OUT_CONTROL,
                policies: regs::OUT_POLICIES,
                sas: regs::OUT_SAS,
                keys: regs::OUT_KEYS,
                generation: regs::outbound_sa::FLAGS_GENERATION_SHIFT,
            },
            Self::Inbound => Places {
                enable: regs::CONTROL_IN_ENABLE,
                counters: regs::IN_COUNTERS,
                snapshot: regs::IN_SNAPSHOT,
                snapshot_request: regs::IN_SNAPSHOT_REQUEST,
                options: regs::IN_CONTROL,
                policies: regs::IN_POLICIES,
                sas: regs::IN_SAS,
                keys: regs::IN_KEYS,
                generation: regs::inbound_sa::FLAGS_GENERATION_SHIFT,
            },
        }
    }
}

/// The reason why the driver could not do what it was asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CoreError {
    #[error(transparent)]
    Bus(#[from] BusError),
    #[error("this is no ESP core, or one with another register map: {id:#x}, version {version:#x}")]
    Unknown { id: u32, version: u32 },
    #[error(
        "the core says that it has {policies} policy entries and {sas} rows of SAs: up to {} and a power of two up to {} were expected",
        regs::OUT_POLICIES_ROWS,
        regs::OUT_SAS_ROWS
    )]
    Capabilities { policies: u32, sas: u32 },
    #[error("the device shares too little memory")]
    Memory,
    #[error("the core has no room for {wanted} policy entries, only for {room}")]
    Policies { wanted: usize, room: usize },
    #[error("the core has no row {0} for an SA")]
    NoRow(u32),
    #[error("the core was built without what {0:?} wants")]
    NoUnits(Suite),
    #[error("the core gave a packet as sealed that is no ESP packet")]
    NotSealed,
    #[error("the core takes no packets any more")]
    Stalled,
}

type Result<T> = std::result::Result<T, CoreError>;

/// The counters of a lane's packets.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LaneCounters {
    pub packets: u32,
    pub bytes: u64,
    /// Drops by reason, in the numbering of `drop_e` in `rtl/common/esp_pkg.sv`. Number 0 stands for no drop.
    pub drops: [u32; DROPS],
}

/// Bytes of the longest packet that the outbound lane takes (`MaxBytes` of `rtl/esp/esp_core.sv`). The inbound lane takes
/// 128 bytes more.
pub const FRAME_MAX: usize = 2048;

/// The counters of a lane besides the drops that the software path counts, too.
pub const COUNTERS: &[Counter] = &[
    Counter::new(
        "packets",
        Unit::Packets,
        "Packets that left the lane, also those for the host.",
    ),
    Counter::new("bytes", Unit::Bytes, "Their bytes."),
    Counter::new(
        MALFORMED_OUTER,
        Unit::Packets,
        "Inbound: the outer header is malformed.",
    ),
    Counter::new(
        TTL,
        Unit::Packets,
        "Always 0: software checks the hop limit.",
    ),
    Counter::new(
        OUTER_MISMATCH,
        Unit::Packets,
        "Always 0: software checks the addresses of the outer header.",
    ),
];

const MALFORMED_OUTER: &str = "malformed-outer";
const TTL: &str = "ttl";
const OUTER_MISMATCH: &str = "outer-mismatch";

/// The names of a lane's drop reasons, in the order of its counters. A reason that the software path has too has the
/// same name there.
pub fn reasons(lane: Lane) -> [&'static str; DROPS - 1] {
    let (malformed, no_sa) = match lane {
        Lane::Outbound => (DropReason::MalformedInner.name(), DropReason::NoSa),
        Lane::Inbound => (MALFORMED_OUTER, DropReason::UnknownSpi),
    };
    [
        malformed,
        DropReason::TooLong.name(),
        DropReason::NoPolicy.name(),
        DropReason::PolicyDiscard.name(),
        DropReason::FragmentRefused.name(),
        no_sa.name(),
        DropReason::SequenceExhausted.name(),
        DropReason::LifetimeExpired.name(),
        DropReason::TooBig.name(),
        TTL,
        DropReason::MalformedEsp.name(),
        DropReason::Replayed.name(),
        DropReason::AuthenticationFailed.name(),
        DropReason::BadPadding.name(),
        DropReason::SelectorMismatch.name(),
        OUTER_MISMATCH,
        DropReason::BadNextHeader.name(),
        DropReason::Dummy.name(),
        DropReason::MalformedInner.name(),
        DropReason::EcnNotCapable.name(),
        DropReason::NotProtected.name(),
    ]
}

impl LaneCounters {
    /// Returns the number of drops for each reason's name.
    pub fn reasons(&self, lane: Lane) -> impl Iterator<Item = (&'static str, u32)> {
        let counts = self.drops.iter().skip(1).copied();
        reasons(lane).into_iter().zip(counts)
    }
}

/// Number of drop counters, including the one for no drop.
const DROPS: usize = (lane_counters::DROP_NOT_PROTECTED / 4) as usize + 1;

/// The state of an SA in the core.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Snapshot {
    /// The last sequence number used by an outbound SA, or the highest number seen by an inbound SA.
    pub sequence: u64,
    pub bytes: u64,
    /// The replay window of an inbound SA. Bit 0 is the highest number seen.
    pub window: u64,
}

/// An event that the core reports to software.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CoreEvent {
    pub kind: u8,
    pub lane: Lane,
    pub row: u16,
}

/// The way in which a packet left the core.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Facts {
    /// True if the core left the packet to software.
    pub to_host: bool,
    /// The reason, in the numbering of `drop_e`.
    pub reason: u8,
    /// The row of the SA that protected or opened the packet, if one did.
    pub sa: Option<u16>,
}

impl Facts {
    fn of_user(user: u32) -> Self {
        Self {
            to_host: user & 1 == 1,
            reason: (user >> 1 & 31) as u8,
            sa: (user >> 6 & 1 == 1).then_some((user >> 7 & 0x3ff) as u16),
        }
    }
}

/// A core that software drives through registers and rings.
#[derive(Debug)]
pub struct Core<D> {
    device: D,
    outbound: [Ring; 2],
    inbound: [Ring; 2],
    policies_max: usize,
    sas_max: u32,
    /// The value of the register UNITS.
    units: u32,
    enabled: u32,
    /// The entries of each lane's policy table, each with the generation of its SA.
    policies: [Vec<(TernaryEntry, u32)>; 2],
    /// The generation of the SA that was last put into each row; 0 if there was none.
    generations: [Vec<u32>; 2],
    cut: [u64; 2],
}

impl<D: Device> Core<D> {
    /// Identifies the core, clears its tables and starts its rings. A former driver may have left entries in the
    /// tables, and keys above all. Both lanes are off afterwards.
    pub fn open(mut device: D) -> Result<Self> {
        let id = device.read(regs::ID)?;
        let version = device.read(regs::VERSION)?;
        if id != regs::ID_VALUE || (version ^ regs::VERSION_VALUE) & regs::VERSION_MAJOR_MASK != 0 {
            return Err(CoreError::Unknown { id, version });
        }
        let capabilities = device.read(regs::CAPABILITIES)?;
        let policies =
            (capabilities & regs::CAPABILITIES_POLICIES_MASK) >> regs::CAPABILITIES_POLICIES_SHIFT;
        let sas = (capabilities & regs::CAPABILITIES_SAS_MASK) >> regs::CAPABILITIES_SAS_SHIFT;
        // Rows are found by the low bits of a SPI, so their number must be a power of two.
        let no_policies = policies == 0 || policies > regs::OUT_POLICIES_ROWS;
        if no_policies || sas > regs::OUT_SAS_ROWS || !sas.is_power_of_two() {
            return Err(CoreError::Capabilities { policies, sas });
        }
        let units = device.read(regs::UNITS)?;
        device.write(regs::CONTROL, 0)?;
        let memory = device.memory();
        let ring = |port| Ring::new(port, memory.clone()).ok_or(CoreError::Memory);
        let mut core = Self {
            outbound: [ring(Port::OutboundIn)?, ring(Port::OutboundOut)?],
            inbound: [ring(Port::InboundIn)?, ring(Port::InboundOut)?],
            device,
            policies_max: policies as usize,
            sas_max: sas,
            units,
            enabled: 0,
            policies: [Vec::new(), Vec::new()],
            generations: [vec![0; sas as usize], vec![0; sas as usize]],
            cut: [0; 2],
        };
        for [to, from] in [&mut core.outbound, &mut core.inbound] {
            to.start(&mut core.device)?;
            from.start(&mut core.device)?;
            from.fill(&mut core.device)?;
        }
        for lane in [Lane::Outbound, Lane::Inbound] {
            for row in 0..core.policies_max {
                core.clear_policy(lane, row)?;
            }
            for row in 0..core.sas_max {
                core.remove(lane, row)?;
            }
        }
        Ok(core)
    }

    pub fn device(&mut self) -> &mut D {
        &mut self.device
    }

    /// Number of entries in each policy table.
    pub fn policies_max(&self) -> usize {
        self.policies_max
    }

    /// Number of rows in each SA table.
    pub fn sas_max(&self) -> u32 {
        self.sas_max
    }

    /// Returns true if the core was built with the units that a suite needs.
    pub fn can(&self, suite: Suite) -> bool {
        match suite {
            Suite::Gcm256 | Suite::Gcm128 => self.units & regs::UNITS_GCM != 0,
            Suite::Ctr256Sha2 | Suite::Ctr128Sha2 => self.units & regs::UNITS_HASH_MASK != 0,
        }
    }

    /// Number of packets from a lane that were longer than a buffer and were dropped.
    pub fn cut(&self, lane: Lane) -> u64 {
        self.cut[lane as usize]
    }

    /// Turns a lane on or off. A lane that is off leaves frames waiting.
    pub fn enable(&mut self, lane: Lane, on: bool) -> Result<()> {
        let bit = lane.places().enable;
        let enabled = if on {
            self.enabled | bit
        } else {
            self.enabled & !bit
        };
        self.device.write(regs::CONTROL, enabled)?;
        self.enabled = enabled;
        Ok(())
    }

    /// Chooses what happens to packets that the core leaves to software: they go to the host, or they are dropped.
    pub fn exceptions(&mut self, lane: Lane, to_host: bool) -> Result<()> {
        let options = lane.places().options;
        Ok(self.device.write(options, u32::from(to_host))?)
    }

    /// Replaces a lane's policies. The first matching entry decides.
    ///
    /// The lane takes no frames meanwhile, but packets that it has taken look up their policy later. Each such packet
    /// meets the former policies or the new ones. If the two match a packet differently, the packet may for a moment
    /// meet a third entry. The third entry leaves the packet to software or, inbound, drops it.
    ///
    /// Entries that name an SA's row mean the SA that is there now. If another SA is installed in the row, the
    /// entry's packets find no SA until the policies are set again.
    pub fn set_policies(&mut self, lane: Lane, entries: &[TernaryEntry]) -> Result<()> {
        if entries.len() > self.policies_max {
            return Err(CoreError::Policies {
                wanted: entries.len(),
                room: self.policies_max,
            });
        }
        let entries: Vec<_> = entries
            .iter()
            .map(|entry| (*entry, self.generation_of(lane, entry)))
            .collect();
        if self.policies[lane as usize] == entries {
            return Ok(());
        }
        let was_on = self.enabled & lane.places().enable != 0;
        self.enable(lane, false)?;
        let former = std::mem::take(&mut self.policies[lane as usize]);
        self.replace_policies(lane, &former, &entries)?;
        self.policies[lane as usize] = entries;
        self.enable(lane, was_on)
    }

    /// Changes the policy rows in an order that never mixes old and new entries.
    ///
    /// Leading rows that match the same packets as before are changed one by one: a packet that matches one of them
    /// matches no other. At the first row that differs, an entry for all packets is written first. The rows behind it
    /// then change unseen, and that entry is replaced last. Each row is written atomically.
    fn replace_policies(
        &mut self,
        lane: Lane,
        former: &[(TernaryEntry, u32)],
        entries: &[(TernaryEntry, u32)],
    ) -> Result<()> {
        let pairs = former.iter().zip(entries);
        let alike = pairs.take_while(|((a, _), (b, _))| a.is_like(b)).count();
        for row in (0..alike).filter(|row| former[*row] != entries[*row]) {
            self.write_policy(lane, row, entries[row])?;
        }
        let end = former.len().max(entries.len());
        if alike + 1 < end {
            let all = match lane {
                Lane::Outbound => CoreAction::ToHost,
                Lane::Inbound => CoreAction::Discard,
            };
            self.write_policy(lane, alike, (TernaryEntry::any(all), 0))?;
        }
        for row in (alike..end).rev() {
            match entries.get(row) {
                Some(entry) if row == alike || former.get(row) != Some(entry) => {
                    self.write_policy(lane, row, *entry)?;
                }
                Some(_) => {}
                None => self.clear_policy(lane, row)?,
            }
        }
        Ok(())
    }

    /// The entries that the last [`Self::set_policies`] of the lane put in.
    pub fn policies(&self, lane: Lane) -> impl Iterator<Item = &TernaryEntry> {
        self.policies[lane as usize].iter().map(|(entry, _)| entry)
    }

    /// The generation of the SA that an entry names. It is 0 if the entry names none; inbound entries name groups
    /// instead.
    fn generation_of(&self, lane: Lane, entry: &TernaryEntry) -> u32 {
        match (lane, entry.action) {
            (Lane::Outbound, CoreAction::Protect(row)) => {
                let rows = &self.generations[lane as usize];
                rows.get(usize::from(row)).copied().unwrap_or(0)
            }
            _ => 0,
        }
    }

    fn write_policy(
        &mut self,
        lane: Lane,
        row: usize,
        (entry, generation): (TernaryEntry, u32),
    ) -> Result<()> {
        let base = lane.places().policies + regs::ROW_STRIDE * row as u32;
        for (index, word) in (0..).zip(entry.words(generation)) {
            self.device.write(base + 4 * index, word)?;
        }
        let commit = base + policy_entry::COMMIT;
        Ok(self.device.write(commit, policy_entry::COMMIT_VALID)?)
    }

    fn clear_policy(&mut self, lane: Lane, row: usize) -> Result<()> {
        let base = lane.places().policies + regs::ROW_STRIDE * row as u32;
        Ok(self.device.write(base + policy_entry::COMMIT, 0)?)
    }

    fn row(&self, lane: Lane, row: u32) -> Result<(u32, u32)> {
        if row >= self.sas_max {
            return Err(CoreError::NoRow(row));
        }
        let (places, offset) = (lane.places(), regs::ROW_STRIDE * row);
        Ok((places.sas + offset, places.keys + offset))
    }

    /// The row of an inbound SA. The core finds it by the low bits of the SPI.
    pub fn inbound_row(&self, spi: u32) -> u32 {
        spi & (self.sas_max - 1)
    }

    /// Puts an SA into a row. From the first write on, the former SA takes no more packets. The new SA takes packets
    /// only after the last write. A packet of the former SA that still waits for its key is dropped.
    pub fn install_outbound(
        &mut self,
        row: u32,
        sa: &OutboundSaRow,
        key: &DeviceKey,
    ) -> Result<()> {
        let flags = sa.flags(key.suite);
        self.install(Lane::Outbound, row, key, &sa.words(), flags)
    }

    /// Does the same as [`Self::install_outbound`]. The SPI determines the row.
    pub fn install_inbound(&mut self, sa: &InboundSaRow, key: &DeviceKey) -> Result<()> {
        let (row, flags) = (self.inbound_row(sa.spi), sa.flags(key.suite));
        self.install(Lane::Inbound, row, key, &sa.words(), flags)
    }

    fn install(
        &mut self,
        lane: Lane,
        row: u32,
        key: &DeviceKey,
        words: &[(u32, u32)],
        flags: u32,
    ) -> Result<()> {
        let (sa, keys) = self.row(lane, row)?;
        if !self.can(key.suite) {
            return Err(CoreError::NoUnits(key.suite));
        }
        let last = &mut self.generations[lane as usize][row as usize];
        let generation = *last % key_row::GENERATION_SA_MASK + 1;
        *last = generation;
        self.device.write(sa + SA_FLAGS, 0)?;
        let parts: [(u32, &[u32]); 5] = [
            (key_row::GENERATION, &[0]),
            (key_row::AES, key.aes()),
            (key_row::AUTHENTICATION, key.authentication()),
            (key_row::SALT, &[key.salt()]),
            (key_row::GENERATION, &[generation]),
        ];
        for (offset, part) in parts {
            for (index, word) in (0..).zip(part) {
                self.device.write(keys + offset + 4 * index, *word)?;
            }
        }
        for (offset, word) in words {
            self.device.write(sa + offset, *word)?;
        }
        self.write_flags(lane, row, flags)
    }

    /// Makes the row valid, with the generation of the SA that was put there last.
    fn write_flags(&mut self, lane: Lane, row: u32, flags: u32) -> Result<()> {
        let (sa, _) = self.row(lane, row)?;
        let generation = self.generations[lane as usize][row as usize] << lane.places().generation;
        Ok(self.device.write(sa + SA_FLAGS, flags | generation)?)
    }

    /// Removes an SA and overwrites its keys. Packets that still wait for the keys are dropped.
    pub fn remove(&mut self, lane: Lane, row: u32) -> Result<()> {
        let (sa, keys) = self.row(lane, row)?;
        self.device.write(sa + SA_FLAGS, 0)?;
        Ok(self.device.write(keys + key_row::WIPE, 1)?)
    }

    /// Changes an installed outbound SA. Its key, sequence numbers and byte count stay. During the change its packets
    /// find no SA.
    pub fn change_outbound(&mut self, row: u32, sa: &OutboundSaRow, suite: Suite) -> Result<()> {
        let (base, _) = self.row(Lane::Outbound, row)?;
        self.device.write(base + SA_FLAGS, 0)?;
        for (offset, word) in sa.words() {
            if offset < regs::outbound_sa::SEQUENCE_LOW {
                self.device.write(base + offset, word)?;
            }
        }
        self.write_flags(Lane::Outbound, row, sa.flags(suite))
    }

    /// Reads the state of an SA.
    pub fn snapshot(&mut self, lane: Lane, row: u32) -> Result<Snapshot> {
        self.row(lane, row)?;
        let places = lane.places();
        self.device.write(places.snapshot_request, row)?;
        let mut pair = |low: u32| -> Result<u64> {
            let low = places.snapshot + low;
            let value = u64::from(self.device.read(low)?);
            Ok(value | u64::from(self.device.read(low + 4)?) << 32)
        };
        let mut snapshot = Snapshot {
            sequence: pair(sa_snapshot::SEQUENCE_LOW)?,
            bytes: pair(sa_snapshot::BYTES_LOW)?,
            window: 0,
        };
        if lane == Lane::Inbound {
            snapshot.window = pair(sa_snapshot::WINDOW_LOW)?;
        }
        Ok(snapshot)
    }

    pub fn counters(&mut self, lane: Lane) -> Result<LaneCounters> {
        let base = lane.places().counters;
        let mut counters = LaneCounters {
            packets: self.device.read(base + lane_counters::PACKETS)?,
            ..LaneCounters::default()
        };
        for (reason, count) in (1..).zip(counters.drops.iter_mut().skip(1)) {
            *count = self.device.read(base + 4 * reason)?;
        }
        let low = self.device.read(base + lane_counters::BYTES_LOW)?;
        let high = self.device.read(base + lane_counters::BYTES_HIGH)?;
        counters.bytes = u64::from(high) << 32 | u64::from(low);
        Ok(counters)
    }

    /// Takes the oldest event.
    pub fn next_event(&mut self) -> Result<Option<CoreEvent>> {
        let word = self.device.read(regs::NEXT_EVENT)?;
        let kind = (word & regs::NEXT_EVENT_KIND_MASK) >> regs::NEXT_EVENT_KIND_SHIFT;
        let inbound = word & regs::NEXT_EVENT_LANE != 0;
        Ok((kind != 0).then_some(CoreEvent {
            kind: kind as u8,
            lane: if inbound {
                Lane::Inbound
            } else {
                Lane::Outbound
            },
            row: (word & regs::NEXT_EVENT_ROW_MASK) as u16,
        }))
    }

    /// Returns true if events were lost since the last call.
    pub fn events_lost(&mut self) -> Result<bool> {
        let lost = regs::IRQ_STATUS_EVENT_LOST;
        let status = self.device.read(regs::IRQ_STATUS)?;
        if status & lost != 0 {
            self.device.write(regs::IRQ_STATUS, lost)?;
        }
        Ok(status & lost != 0)
    }

    /// Returns the number of frames that the device has taken so far, modulo 2³². Returns `None` if the device has
    /// taken all frames that it was given.
    pub fn progress(&mut self) -> Result<Option<u32>> {
        let mut taken = None;
        let Self {
            device,
            outbound: [out, _],
            inbound: [inbound, _],
            ..
        } = self;
        for ring in [out, inbound] {
            let of_ring = ring.progress(device)?;
            taken = match (taken, of_ring) {
                (Some(a), Some(b)) => Some(u32::wrapping_add(a, b)),
                (a, b) => a.or(b),
            };
        }
        Ok(taken)
    }

    /// Gives a lane a packet. Returns false if the lane cannot take it now.
    pub fn send(&mut self, lane: Lane, packet: &[u8]) -> Result<bool> {
        let [to, _] = match lane {
            Lane::Outbound => &mut self.outbound,
            Lane::Inbound => &mut self.inbound,
        };
        Ok(to.send(&mut self.device, packet)?)
    }

    /// Takes the next packet from a lane and copies it into `packet`.
    pub fn receive(&mut self, lane: Lane, packet: &mut Vec<u8>) -> Result<Option<Facts>> {
        let [_, from] = match lane {
            Lane::Outbound => &mut self.outbound,
            Lane::Inbound => &mut self.inbound,
        };
        while let Some(arrived) = from.receive(&mut self.device, packet)? {
            if !arrived.cut {
                return Ok(Some(Facts::of_user(arrived.user)));
            }
            self.cut[lane as usize] += 1;
        }
        Ok(None)
    }

    /// Gives a device without a clock of its own time to work.
    pub fn work(&mut self) {
        self.device.work();
    }
}
