//! Reads the test vectors in `vectors/`.
//!
//! Files that are missing or malformed panic: a test without its vectors must fail.

use std::path::PathBuf;

use serde::{Deserialize, Deserializer};

/// Whole ESP packets of one transform, in tunnel mode (`vectors/esp/*.json`).
#[derive(Debug, Deserialize)]
pub struct EspFile {
    pub source: String,
    pub transform: String,
    #[serde(deserialize_with = "hex_u64")]
    pub spi: u64,
    pub replay_window: u32,
    /// Local and remote prefix, seen from the receiver.
    pub selectors: Vec<[String; 2]>,
    pub cases: Vec<EspCase>,
}

#[derive(Debug, Deserialize)]
pub struct EspCase {
    pub name: String,
    pub esn: bool,
    #[serde(deserialize_with = "hex_bytes")]
    pub key: Vec<u8>,
    #[serde(deserialize_with = "hex_u64")]
    pub sequence: u64,
    /// The highest sequence number that the receiver has seen before.
    #[serde(deserialize_with = "hex_u64")]
    pub replay_top: u64,
    pub outer_version: u8,
    pub udp: bool,
    pub outer_tos: u8,
    /// The packet on the wire, from the outer IP header on.
    #[serde(deserialize_with = "hex_bytes")]
    pub frame: Vec<u8>,
    /// What the receiver delivers, unless it drops.
    #[serde(deserialize_with = "hex_bytes_or_null")]
    pub inner: Option<Vec<u8>>,
    /// The name of the drop reason.
    pub drop: Option<String>,
}

impl EspCase {
    /// The ESP packet inside the frame.
    pub fn esp(&self) -> &[u8] {
        let ip = if self.outer_version == 4 { 20 } else { 40 };
        let udp = if self.udp { 8 } else { 0 };
        &self.frame[ip + udp..]
    }
}

/// Known answers of a primitive (`vectors/esp-*.json`); fields that a primitive lacks are empty.
#[derive(Debug, Deserialize)]
pub struct PrimitiveFile {
    pub source: String,
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
    #[serde(deserialize_with = "hex_bytes")]
    pub output: Vec<u8>,
    /// HMAC only: the IANA name.
    #[serde(default)]
    pub integrity: String,
    /// ESP only.
    #[serde(default, deserialize_with = "hex_bytes")]
    pub spi: Vec<u8>,
    #[serde(default)]
    pub esn: bool,
    #[serde(default, deserialize_with = "hex_u64")]
    pub sequence: u64,
}

/// The repository's `vectors` directory.
pub fn directory() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../vectors")
}

/// Every file of whole ESP packets.
pub fn esp_files() -> Vec<EspFile> {
    let directory = directory().join("esp");
    let entries = std::fs::read_dir(&directory).expect("vectors/esp can be listed");
    let mut paths: Vec<PathBuf> = entries
        .map(|entry| entry.expect("vectors/esp can be listed").path())
        .filter(|path| path.extension().is_some_and(|e| e == "json"))
        .collect();
    paths.sort();
    assert!(!paths.is_empty(), "vectors/esp has no vectors");
    paths.into_iter().map(read).collect()
}

/// One file of known answers, by its name in `vectors`.
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
