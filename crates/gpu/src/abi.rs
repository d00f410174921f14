//! The words that host and kernels exchange. `kernels/abi.h` has the same numbers, and a test compares them.

/// Lanes of a work-group.
pub const GROUP_LANES: usize = 64;
/// Words of a job's descriptor.
pub const JOB_WORDS: usize = 8;
/// Words of a work-group's descriptor.
pub const GROUP_WORDS: usize = 8;
/// Words of a key as the host gives it to `expand_keys`.
pub const RAW_WORDS: usize = 40;
/// Words of a key's row on the device.
pub const ROW_WORDS: usize = 192;
/// Words of scratch memory that GHASH needs for a job.
pub const SCRATCH_WORDS: usize = 32;

/// The verdict of a job that was sealed, or that is authentic.
pub const DONE: u32 = 1;
/// The verdict of a job whose ICV is wrong.
pub const NOT_AUTHENTIC: u32 = 2;

/// The work of a stage on one packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u32)]
pub enum StageKind {
    Copy = 1,
    CbcSeal = 2,
    CbcOpen = 3,
    Ctr = 4,
    ChaCha = 5,
    TripleDesOpen = 6,
    CbcSealTables = 7,
    CbcOpenTables = 8,
    CtrTables = 9,
    TripleDesSealTables = 10,
    TripleDesOpenTables = 11,
    HmacMd5 = 16,
    HmacSha1 = 17,
    HmacSha256 = 18,
    Ghash = 19,
    Gmac = 20,
    Poly1305 = 21,
    FinishGcm = 32,
}

impl StageKind {
    pub const ALL: [Self; 18] = [
        Self::Copy,
        Self::CbcSeal,
        Self::CbcOpen,
        Self::Ctr,
        Self::ChaCha,
        Self::TripleDesOpen,
        Self::CbcSealTables,
        Self::CbcOpenTables,
        Self::CtrTables,
        Self::TripleDesSealTables,
        Self::TripleDesOpenTables,
        Self::HmacMd5,
        Self::HmacSha1,
        Self::HmacSha256,
        Self::Ghash,
        Self::Gmac,
        Self::Poly1305,
        Self::FinishGcm,
    ];

    /// Lanes that share a job. `None` stands for a lane that has two jobs.
    pub const fn lanes(self) -> Option<usize> {
        match self {
            Self::CbcSeal => None,
            Self::Copy
            | Self::CbcOpen
            | Self::Ctr
            | Self::ChaCha
            | Self::TripleDesOpen
            | Self::CbcOpenTables
            | Self::CtrTables
            | Self::TripleDesOpenTables
            | Self::Ghash
            | Self::Gmac => Some(8),
            _ => Some(1),
        }
    }

    /// Jobs of a full work-group.
    pub const fn jobs(self) -> usize {
        match self.lanes() {
            Some(lanes) => GROUP_LANES / lanes,
            None => GROUP_LANES * 2,
        }
    }

    /// The cost of a turn of the kind's loop, in hundreds of a lane's instructions on NVIDIA's sm_90. The order of
    /// work-groups follows it, and the model of lane efficiency. Only the ratios matter.
    pub const fn cost(self) -> u64 {
        match self {
            Self::Copy => 1,
            Self::CbcSeal => 30,
            Self::CbcOpen => 28,
            Self::Ctr => 25,
            Self::ChaCha => 12,
            Self::TripleDesOpen => 232,
            Self::CbcSealTables => 9,
            Self::CbcOpenTables | Self::CtrTables => 17,
            // Two lanes share a memory bank, and wait for each other.
            Self::TripleDesSealTables | Self::TripleDesOpenTables => 31,
            Self::HmacMd5 => 4,
            Self::HmacSha1 => 8,
            Self::HmacSha256 => 16,
            Self::Ghash | Self::Gmac => 6,
            Self::Poly1305 => 2,
            Self::FinishGcm => 15,
        }
    }
}
