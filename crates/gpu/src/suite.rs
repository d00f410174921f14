//! The stages that carry a transform, and how much of each a packet needs.

use esplanade_crypto::iana::{Encryption, Integrity};
use esplanade_crypto::{Direction, Protocol, Transform};

use crate::abi::StageKind;

/// Words of the ESP header: SPI and sequence number (RFC 4303 §2).
const HEADER_WORDS: u32 = 2;
/// Words of a block of AES.
const AES_WORDS: u32 = 4;
/// Words of a block of DES.
const DES_WORDS: u32 = 2;
/// Blocks that a step of CBC_OPEN and CTR does: two in each of eight lanes.
const AES_STEP: u32 = 16;
/// Bytes of the shortest padding of MD5, SHA-1 and SHA-256: a byte and the length.
const HASH_PADDING: u32 = 9;

/// The work of one stage: kind, argument, and turns of the loop for a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StageWork {
    pub kind: StageKind,
    pub argument: u32,
    pub trip: u32,
}

/// The cipher whose key the device expands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CipherKey {
    None,
    Aes,
    ChaCha20,
    TripleDes,
}

/// A transform of ESP that the kernels can carry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Suite {
    pub cipher_key: CipherKey,
    /// The kernels need powers of GHASH's key.
    pub ghash: bool,
    cipher: SuiteCipher,
    mac: StageKind,
    rounds: u32,
    iv_words: u32,
    icv_words: u32,
    block_words: u32,
    tables: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SuiteCipher {
    Copy,
    Cbc,
    /// The value is the counter of the first block.
    Ctr(u32),
    ChaCha,
    TripleDes,
}

impl Suite {
    /// Returns the stages of a transform, by kernels that have tables or not; `None` if the kernels do not have it.
    pub fn of(transform: Transform, tables: bool) -> Option<Self> {
        if transform.protocol() != Protocol::Esp {
            return None;
        }
        let (cipher, cipher_key, aead) = match transform.encryption()? {
            Encryption::Null => (SuiteCipher::Copy, CipherKey::None, None),
            Encryption::AesCbc => (SuiteCipher::Cbc, CipherKey::Aes, None),
            Encryption::TripleDes => (SuiteCipher::TripleDes, CipherKey::TripleDes, None),
            // RFC 3686 §4: the first block has counter one.
            Encryption::AesCtr => (SuiteCipher::Ctr(1), CipherKey::Aes, None),
            // SP 800-38D §7.1: counter one makes the tag.
            Encryption::AesGcm8
            | Encryption::AesGcm12
            | Encryption::AesGcm16
            | Encryption::AesGcm16Iiv => {
                (SuiteCipher::Ctr(2), CipherKey::Aes, Some(StageKind::Ghash))
            }
            Encryption::NullAuthAesGmac => {
                (SuiteCipher::Copy, CipherKey::Aes, Some(StageKind::Gmac))
            }
            Encryption::ChaCha20Poly1305 | Encryption::ChaCha20Poly1305Iiv => (
                SuiteCipher::ChaCha,
                CipherKey::ChaCha20,
                Some(StageKind::Poly1305),
            ),
            _ => return None,
        };
        let mac = match (aead, transform.integrity()) {
            (Some(mac), None) => mac,
            (None, Some(Integrity::HmacMd5_96)) => StageKind::HmacMd5,
            (None, Some(Integrity::HmacSha1_96)) => StageKind::HmacSha1,
            (None, Some(Integrity::HmacSha2_256_128)) => StageKind::HmacSha256,
            _ => return None,
        };
        let words = |bytes: usize| bytes as u32 / 4;
        Some(Self {
            cipher_key,
            ghash: matches!(mac, StageKind::Ghash | StageKind::Gmac),
            cipher,
            mac,
            // FIPS 197 §5: ten rounds, and two more for each 64 bits beyond 128.
            rounds: u32::from(transform.key_bits()) / 32 + 6,
            iv_words: words(transform.iv_len()),
            icv_words: words(transform.icv_len()),
            block_words: words(transform.block_align()).max(1),
            tables,
        })
    }

    /// Returns the words between IV and ICV of a packet; `None` if no packet of this transform is `len` bytes long.
    pub fn payload_words(&self, len: u32) -> Option<u32> {
        if !len.is_multiple_of(4) {
            return None;
        }
        let around = HEADER_WORDS + self.iv_words + self.icv_words;
        let payload = (len / 4).checked_sub(around)?;
        (payload > 0 && payload.is_multiple_of(self.block_words)).then_some(payload)
    }

    /// The word of a job that says where its fields are.
    pub fn fields(&self, esn: bool) -> u32 {
        self.iv_words | (self.icv_words << 8) | (u32::from(esn) << 16)
    }

    /// Returns the cipher stage; `None` if the kernels have it in the other direction only.
    pub fn cipher(&self, direction: Direction, payload_words: u32) -> Option<StageWork> {
        let blocks = payload_words.div_ceil(AES_WORDS);
        let (kind, argument, trip) = match (self.cipher, direction) {
            (SuiteCipher::Copy, _) => (StageKind::Copy, 0, payload_words.div_ceil(32)),
            (SuiteCipher::Cbc, Direction::Seal) => {
                let kind = self.either(StageKind::CbcSeal, StageKind::CbcSealTables);
                (kind, self.rounds, blocks)
            }
            (SuiteCipher::Cbc, Direction::Open) => {
                let kind = self.either(StageKind::CbcOpen, StageKind::CbcOpenTables);
                (kind, self.rounds, blocks.div_ceil(AES_STEP))
            }
            (SuiteCipher::Ctr(first), _) => {
                let kind = self.either(StageKind::Ctr, StageKind::CtrTables);
                let argument = self.rounds | (first << 8);
                (kind, argument, blocks.div_ceil(AES_STEP))
            }
            (SuiteCipher::ChaCha, _) => {
                (StageKind::ChaCha, 0, payload_words.div_ceil(16).div_ceil(8))
            }
            (SuiteCipher::TripleDes, Direction::Seal) if self.tables => {
                (StageKind::TripleDesSealTables, 0, payload_words / DES_WORDS)
            }
            // A bitsliced state has 32 blocks, and a chain has one at a time.
            (SuiteCipher::TripleDes, Direction::Seal) => return None,
            (SuiteCipher::TripleDes, Direction::Open) => {
                let slices = (StageKind::TripleDesOpen, payload_words.div_ceil(512));
                let blocks = (payload_words / DES_WORDS).div_ceil(8);
                let by_tables = (StageKind::TripleDesOpenTables, blocks);
                let cost = |(kind, trip): (StageKind, u32)| kind.cost() * u64::from(trip);
                // Slices are the faster way for packets that fill them.
                let (kind, trip) = match self.tables && cost(by_tables) < cost(slices) {
                    true => by_tables,
                    false => slices,
                };
                (kind, 0, trip)
            }
        };
        Some(StageWork {
            kind,
            argument,
            trip,
        })
    }

    fn either(&self, constant_time: StageKind, with_tables: StageKind) -> StageKind {
        match self.tables {
            true => with_tables,
            false => constant_time,
        }
    }

    pub fn mac(&self, esn: bool, payload_words: u32) -> StageWork {
        let before = HEADER_WORDS + self.iv_words + u32::from(esn);
        let trip = match self.mac {
            StageKind::Ghash => (payload_words.div_ceil(AES_WORDS) + 2).div_ceil(8),
            // RFC 4543 §3.3: header, IV and payload are additional data, side by side.
            StageKind::Gmac => ((before + payload_words).div_ceil(AES_WORDS) + 1).div_ceil(8),
            StageKind::Poly1305 => payload_words.div_ceil(AES_WORDS) + 2,
            _ => ((before + payload_words) * 4 + HASH_PADDING).div_ceil(64),
        };
        StageWork {
            kind: self.mac,
            argument: 0,
            trip,
        }
    }

    pub fn finish(&self) -> Option<StageWork> {
        self.ghash.then_some(StageWork {
            kind: StageKind::FinishGcm,
            argument: self.rounds,
            trip: 1,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn suite(name: &str) -> Suite {
        Suite::of(Transform::from_name(name).unwrap(), false).unwrap()
    }

    #[test]
    fn the_loops_of_known_packets() {
        let cbc = suite("AES_CBC_128/HMAC_SHA1_96");
        let payload = cbc.payload_words(8 + 16 + 1024 + 12).unwrap();
        assert_eq!(payload, 256);
        let seal = cbc.cipher(Direction::Seal, payload).unwrap();
        assert_eq!(
            (seal.kind, seal.argument, seal.trip),
            (StageKind::CbcSeal, 10, 64)
        );
        assert_eq!(cbc.cipher(Direction::Open, payload).unwrap().trip, 4);
        // 1048 bytes and nine of padding are 17 blocks, as are 1052 with the high half of the sequence number.
        assert_eq!(cbc.mac(false, payload).trip, 17);
        assert_eq!(cbc.mac(true, payload).trip, 17);
        assert_eq!(cbc.finish(), None);

        let gcm = suite("AES_GCM_16_256");
        let payload = gcm.payload_words(8 + 8 + 36 + 16).unwrap();
        let ctr = gcm.cipher(Direction::Open, payload).unwrap();
        assert_eq!(
            (ctr.kind, ctr.argument, ctr.trip),
            (StageKind::Ctr, 14 | (2 << 8), 1)
        );
        assert_eq!(gcm.mac(true, payload).trip, 1);
        assert_eq!(gcm.finish().map(|work| work.argument), Some(14));
    }

    #[test]
    fn lengths_that_no_packet_has_are_refused() {
        let cbc = suite("AES_CBC_256/HMAC_SHA2_256_128");
        for len in [0, 8, 40, 8 + 16 + 16 + 16 + 4, 8 + 16 + 16 + 15] {
            assert_eq!(cbc.payload_words(len), None, "{len}");
        }
        assert_eq!(cbc.payload_words(8 + 16 + 16 + 16), Some(4));
    }

    #[test]
    fn what_the_kernels_lack_is_left_to_the_cpu() {
        let has = |transform: &Transform| Suite::of(*transform, false).is_some();
        let carried: Vec<_> = Transform::all().filter(has).collect();
        assert!(
            carried
                .iter()
                .all(|transform| transform.protocol() == Protocol::Esp)
        );
        // NULL, three AES-CBC and three AES-CTR with three HMACs, 3 × 3 AES-GCM and 3 with implicit IV, 3 AES-GMAC,
        // 2 ChaCha20-Poly1305, 3DES with three HMACs.
        assert_eq!(carried.len(), 3 + 9 + 9 + 9 + 3 + 3 + 2 + 3);
        let des = suite("3DES/HMAC_MD5_96");
        assert_eq!(des.cipher(Direction::Seal, 256), None);
        assert_eq!(
            des.cipher(Direction::Open, 513).map(|work| work.trip),
            Some(2)
        );
    }
    #[test]
    fn tables_change_the_cipher_stage_alone() {
        for transform in Transform::all() {
            let both = [false, true].map(|tables| Suite::of(transform, tables));
            let [Some(plain), Some(tables)] = both else {
                assert_eq!(both, [None, None]);
                continue;
            };
            assert_eq!(plain.mac(true, 100), tables.mac(true, 100));
            assert_eq!(plain.finish(), tables.finish());
            for direction in [Direction::Seal, Direction::Open] {
                let [was, is] = [&plain, &tables].map(|suite| suite.cipher(direction, 100));
                let Some(is) = is else {
                    panic!("{transform}: kernels with tables have both directions");
                };
                let looks_up = matches!(
                    is.kind,
                    StageKind::CbcSealTables
                        | StageKind::CbcOpenTables
                        | StageKind::CtrTables
                        | StageKind::TripleDesSealTables
                        | StageKind::TripleDesOpenTables
                );
                let cipher = plain.cipher_key;
                let is_aes = cipher == CipherKey::Aes && plain.cipher != SuiteCipher::Copy;
                assert_eq!(looks_up, is_aes || cipher == CipherKey::TripleDes);
                assert_eq!(was == Some(is), !looks_up, "{transform}");
            }
        }
        let des = Transform::from_name("3DES/HMAC_SHA1_96").unwrap();
        let des = Suite::of(des, true).unwrap();
        let work = |direction, words| {
            let work = des.cipher(direction, words).unwrap();
            (work.kind, work.trip)
        };
        let seal = StageKind::TripleDesSealTables;
        assert_eq!(work(Direction::Seal, 258), (seal, 129));
        // A long packet fills slices.
        let (short, long) = (StageKind::TripleDesOpenTables, StageKind::TripleDesOpen);
        assert_eq!(work(Direction::Open, 18), (short, 2));
        assert_eq!(work(Direction::Open, 374), (long, 1));
    }
}
