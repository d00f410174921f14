//! Firewall marks, and the numbers that follow from names.

/// Numbers that follow from a name have this bit, which is seldom written by hand.
const UNIQUE: u32 = 1 << 31;

/// A firewall mark: a value, and the bits of a packet's mark that are compared with the value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mark {
    pub value: u32,
    pub mask: u32,
}

impl Mark {
    pub fn matches(self, mark: u32) -> bool {
        (mark ^ self.value) & self.mask == 0
    }

    /// Tells whether a packet can match both.
    pub(crate) fn meets(self, other: Self) -> bool {
        (self.value ^ other.value) & self.mask & other.mask == 0
    }

    /// Returns the number of the routing table for packets with this mark. `common` is the number of the gateway's
    /// common table. The number follows from the mark, so that a gateway finds what an earlier one has left.
    pub fn table(self, common: u32) -> u32 {
        let bytes = [common, self.value, self.mask].map(u32::to_be_bytes);
        unique_id(bytes.as_flattened(), |_| false)
    }
}

impl std::fmt::Display for Mark {
    /// Prints a mark as updown scripts get it.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/0x{:08x}", self.value, self.mask)
    }
}

/// The marks of a child.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SaMarks {
    /// The mark of the packets that are for the child. `None` means that the mark does not matter.
    pub outbound: Option<Mark>,
    pub inbound: Option<Mark>,
    /// The mark that decrypted packets get.
    pub given: Option<u32>,
}

/// The marks of a TUN device that was made for them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct InterfaceMarks {
    /// The gateway leads packets with this mark into the device.
    pub outbound: Option<Mark>,
    /// The mark that packets from the device get.
    pub inbound: Option<u32>,
}

impl InterfaceMarks {
    /// Tells whether the device was made for marks.
    pub fn are_given(&self) -> bool {
        *self != Self::default()
    }

    pub(crate) fn of(marks: SaMarks) -> Self {
        Self {
            outbound: marks.outbound,
            inbound: marks.given,
        }
    }

    /// Tells whether both need the same device. A routing rule leads a mark to one device, so `mark_out` decides.
    pub(crate) fn share(&self, other: &Self) -> bool {
        match self.outbound {
            Some(_) => self.outbound == other.outbound,
            None => self == other,
        }
    }
}

/// Makes a number out of a name, by FNV-1a, that is not taken.
pub(crate) fn unique_id(name: &[u8], taken: impl Fn(u32) -> bool) -> u32 {
    let hash = name.iter().fold(0x811c_9dc5_u32, |hash, byte| {
        (hash ^ u32::from(*byte)).wrapping_mul(0x0100_0193)
    });
    let mut id = hash | UNIQUE;
    while taken(id) {
        id = id.wrapping_add(1) | UNIQUE;
    }
    id
}
