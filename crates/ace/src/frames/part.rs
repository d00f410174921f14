//! Parts, and how a part counts its configuration frames.

/// A part whose frames are known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Part {
    /// The maker's name for it.
    pub name: &'static str,
    /// The number that the command VERIFY_ID compares.
    pub idcode: u32,
    /// The frames of a whole configuration.
    pub frames: u16,
    /// The bytes of a frame.
    pub frame_len: usize,
    /// The first columns of its regions, in the order in which frames are sent. Empty if they are not known.
    regions: &'static [u16],
}

const fn part(
    name: &'static str,
    idcode: u32,
    frames: u16,
    frame_len: usize,
    regions: &'static [u16],
) -> Part {
    Part {
        name,
        idcode,
        frames,
        frame_len,
        regions,
    }
}

/// Frames of a column.
const COLUMN: u16 = 106;
/// A region's columns have numbers below this one.
const REGION_COLUMNS: u16 = 32;

/// Regions of the LFE5U-45F, as Project Trellis documents them ("Partial Bitstreams") and its ecppack writes them. Those of
/// other parts are published nowhere, and do not follow from the part's grid.
const REGIONS_45F: &[u16] = &[0, 12, 30, 49, 68];

/// Project Trellis, `devices.json`.
const PARTS: [Part; 10] = [
    part("LFE5U-12F", 0x2111_1043, 7562, 74, &[]),
    part("LFE5U-25F", 0x4111_1043, 7562, 74, &[]),
    part("LFE5U-45F", 0x4111_2043, 9470, 106, REGIONS_45F),
    part("LFE5U-85F", 0x4111_3043, 13294, 142, &[]),
    part("LFE5UM-25F", 0x0111_1043, 7562, 74, &[]),
    part("LFE5UM-45F", 0x0111_2043, 9470, 106, REGIONS_45F),
    part("LFE5UM-85F", 0x0111_3043, 13294, 142, &[]),
    part("LFE5UM5G-25F", 0x8111_1043, 7562, 74, &[]),
    part("LFE5UM5G-45F", 0x8111_2043, 9470, 106, REGIONS_45F),
    part("LFE5UM5G-85F", 0x8111_3043, 13294, 142, &[]),
];

impl Part {
    /// The part with a name.
    pub fn named(name: &str) -> Option<&'static Self> {
        PARTS.iter().find(|part| part.name == name)
    }

    /// The part that VERIFY_ID names.
    pub fn with_idcode(idcode: u32) -> Option<&'static Self> {
        PARTS.iter().find(|part| part.idcode == idcode)
    }

    /// True if the addresses of single frames are known, so that partial streams can be made.
    pub fn has_addresses(&self) -> bool {
        !self.regions.is_empty()
    }

    /// The address of a frame for LSC_WRITE_ADDRESS. Frames count from the one that a whole bitstream sends first.
    pub fn address(&self, frame: u16) -> Option<u32> {
        let column = frame / COLUMN;
        let region = self.regions.iter().rposition(|&first| first <= column)?;
        let first = self.regions.get(region)?;
        let within = (u32::from(column - first) << 7) | u32::from(frame % COLUMN);
        (frame < self.frames).then_some((region as u32) << 12 | within)
    }

    /// The frame at an address.
    pub fn frame_at(&self, address: u32) -> Option<u16> {
        let first = self.regions.get((address >> 12) as usize)?;
        let (column, frame) = ((address >> 7) as u16 % REGION_COLUMNS, address as u16 % 128);
        let frame = (first + column) * COLUMN + frame;
        // An address has one frame, and a frame one address.
        (self.address(frame) == Some(address)).then_some(frame)
    }
}
