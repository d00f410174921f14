//! Reads the test vectors in `vectors/`.
//!
//! A file that is missing or malformed causes a panic: a test without its vectors must fail.

use std::path::PathBuf;

use serde::{Deserialize, Deserializer};

/// Whole ESP or AH packets of one transform (`vectors/packets/*.json`).
#[derive(Debug, Deserialize)]
pub struct PacketFile {
    pub source: String,
    pub transform: String,
    pub protocol: PacketProtocol,
    #[serde(deserialize_with = "hex_u64")]
    pub spi: u64,
    pub replay_window: u32,
    pub selectors: ModeSelectors,
    pub cases: Vec<PacketCase>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PacketProtocol {
    Esp,
    Ah,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PacketMode {
    Tunnel,
    Transport,
}

/// Local and remote prefixes, as the receiver sees them.
#[derive(Debug, Deserialize)]
pub struct ModeSelectors {
    pub tunnel: Vec<[String; 2]>,
    pub transport: Vec<[String; 2]>,
}

impl ModeSelectors {
    pub fn of(&self, mode: PacketMode) -> &[[String; 2]] {
        match mode {
            PacketMode::Tunnel => &self.tunnel,
            PacketMode::Transport => &self.transport,
        }
    }
}

#[derive(Debug, Deserialize)]
pub struct PacketCase {
    pub name: String,
    pub mode: PacketMode,
    pub esn: bool,
    /// The packet is encapsulated in UDP between the ports 4500.
    pub udp: bool,
    #[serde(deserialize_with = "hex_bytes")]
    pub key: Vec<u8>,
    #[serde(deserialize_with = "hex_u64")]
    pub sequence: u64,
    /// The only sequence number that the receiver has seen before.
    #[serde(deserialize_with = "hex_u64")]
    pub replay_top: u64,
    /// The packet on the wire, starting with the outer IP header.
    #[serde(deserialize_with = "hex_bytes")]
    pub frame: Vec<u8>,
    /// The packet that the receiver delivers, unless it drops.
    #[serde(deserialize_with = "hex_bytes_or_null")]
    pub delivered: Option<Vec<u8>>,
    /// The name of the drop reason.
    pub drop: Option<String>,
}

impl PacketCase {
    pub fn outer_version(&self) -> u8 {
        self.frame[0] >> 4
    }

    /// Returns the IPv4 TOS or the IPv6 traffic class of the outer header.
    pub fn outer_tos(&self) -> u8 {
        match self.outer_version() {
            4 => self.frame[1],
            _ => self.frame[0] << 4 | self.frame[1] >> 4,
        }
    }

    /// Returns the offset of the ESP header, of the AH, or of the UDP header before ESP.
    pub fn payload_offset(&self) -> usize {
        if self.outer_version() == 4 {
            return usize::from(self.frame[0] & 15) * 4;
        }
        let (mut next, mut at) = (self.frame[6], 40);
        while matches!(next, 0 | 43 | 60) {
            (next, at) = (self.frame[at], at + 8 + usize::from(self.frame[at + 1]) * 8);
        }
        at
    }

    /// Returns the ESP packet, or the AH and the bytes after it.
    pub fn payload(&self) -> &[u8] {
        let udp = if self.udp { 8 } else { 0 };
        &self.frame[self.payload_offset() + udp..]
    }

    /// Returns the expected result: the delivered packet, or the name of a drop reason.
    pub fn expected(&self) -> Result<&[u8], &str> {
        match (&self.delivered, &self.drop) {
            (Some(packet), None) => Ok(packet),
            (None, Some(drop)) => Err(drop),
            _ => panic!("{}: expects nothing or both", self.name),
        }
    }
}

/// Known answers of a primitive (`vectors/primitives/*.json`). Fields that a primitive does not
/// have are empty.
#[derive(Debug, Deserialize)]
pub struct PrimitiveFile {
    pub source: String,
    #[serde(default)]
    pub algorithm: String,
    pub cases: Vec<PrimitiveCase>,
}

#[derive(Debug, Deserialize)]
pub struct PrimitiveCase {
    pub name: String,
    #[serde(deserialize_with = "hex_bytes")]
    pub key: Vec<u8>,
    #[serde(default, deserialize_with = "hex_bytes")]
    pub iv: Vec<u8>,
    #[serde(deserialize_with = "hex_bytes")]
    pub input: Vec<u8>,
    #[serde(default, deserialize_with = "hex_bytes")]
    pub aad: Vec<u8>,
    #[serde(default, deserialize_with = "hex_bytes")]
    pub output: Vec<u8>,
    #[serde(default, deserialize_with = "hex_bytes")]
    pub icv: Vec<u8>,
    /// How often a block is encrypted, each time what came out.
    #[serde(default = "once")]
    pub chain: u32,
    /// False if the ICV must be refused.
    #[serde(default = "yes")]
    pub valid: bool,
    /// For ESP only.
    #[serde(default, deserialize_with = "hex_bytes")]
    pub spi: Vec<u8>,
    #[serde(default)]
    pub esn: bool,
    #[serde(default, deserialize_with = "hex_u64")]
    pub sequence: u64,
}

/// Returns the `vectors` directory of the repository.
pub fn directory() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../vectors")
}

/// Reads every file of whole packets.
pub fn packet_files() -> Vec<PacketFile> {
    files("packets")
}

fn files<T: for<'de> Deserialize<'de>>(directory_name: &str) -> Vec<T> {
    let directory = directory().join(directory_name);
    let entries = std::fs::read_dir(&directory).expect("the directory can be listed");
    let mut paths: Vec<PathBuf> = entries
        .map(|entry| entry.expect("the directory can be listed").path())
        .filter(|path| path.extension().is_some_and(|e| e == "json"))
        .collect();
    paths.sort();
    assert!(!paths.is_empty(), "{} has no vectors", directory.display());
    paths.into_iter().map(read).collect()
}

fn once() -> u32 {
    1
}

fn yes() -> bool {
    true
}

/// Reads every file of known answers of primitives.
pub fn primitive_files() -> Vec<PrimitiveFile> {
    files("primitives")
}

/// Reads one file of known answers, by its name in `vectors`.
pub fn primitives(name: &str) -> PrimitiveFile {
    read(directory().join(name))
}

fn read<T: for<'de> Deserialize<'de>>(path: PathBuf) -> T {
    let text = std::fs::read_to_string(&path)
        .unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn hex_bytes<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<u8>, D::Error> {
    let text = String::deserialize(deserializer)?;
    hex::decode(text).map_err(serde::de::Error::custom)
}

fn hex_bytes_or_null<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<Vec<u8>>, D::Error> {
    let text = Option::<String>::deserialize(deserializer)?;
    let bytes = text.map(hex::decode).transpose();
    bytes.map_err(serde::de::Error::custom)
}

fn hex_u64<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u64, D::Error> {
    let text = String::deserialize(deserializer)?;
    u64::from_str_radix(&text, 16).map_err(serde::de::Error::custom)
}
