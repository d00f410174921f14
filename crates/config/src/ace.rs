//! Reads the section `gateway.ace`.

use std::path::PathBuf;

use esplanade_ace::library::Trust;
use esplanade_ace::simulated::{self, INTERFACE_RATE};

use super::diagnostics::{Diagnostic, Diagnostics};
use super::engine::NO_DEVICE;
use super::schema;
use super::tree::SectionNode;
use super::value::{ValueError, ValueResult, absolute, given, number, place, read};

/// The part of the bitstreams that are shipped.
const PART: &str = "LFE5U-25F";

/// Settings of the adaptive cryptographic engine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AceConfig {
    /// The folder of the library.
    pub library: PathBuf,
    /// Who may have made it.
    pub trust: Trust,
    /// The part that bitstreams must be for.
    pub part: String,
    /// The number of fabrics, each of which has one lane at a time.
    pub fabrics: usize,
    /// Bytes in a second that a fabric's configuration interface takes.
    pub interface_rate: u64,
}

pub(crate) fn ace(node: &SectionNode, d: &mut Diagnostics) -> Option<AceConfig> {
    schema::check(node, &schema::ACE, false, d);
    if !simulated::BUILT {
        let bad = Diagnostic::error(NO_DEVICE.what).at(node.name.at);
        d.push(bad.help("remove the section, or build with the simulated lanes: `cargo build --features fpga-sim` with Verilator (docs/ace.md)"));
    }
    let library = read(node, "library", d, absolute);
    let trust = read(node, "signer", d, signer);
    if given(node, "library").is_none() {
        let what = "the section `ace` names no library of bitstreams";
        let help =
            "set `library` to the folder of one; make install has put one into share/esplanade/ace";
        d.push(Diagnostic::error(what).at(node.name.at).help(help));
    }
    if given(node, "signer").is_none() {
        let what = "`ace`: whoever can write to the library can change the ciphers";
        let help = "set `signer` to the public key of the library's maker (docs/ace.md)";
        d.push(
            Diagnostic::warning(what)
                .at(place(node, "library"))
                .help(help),
        );
    }
    Some(AceConfig {
        library: library?,
        trust: trust.unwrap_or(Trust::Directory),
        part: PART.to_owned(),
        fabrics: read(node, "fabrics", d, |text| number(text, 1..=16)).map_or(1, |n| n as usize),
        interface_rate: read(node, "interface_rate", d, |text| {
            number(text, 1000..=10_000_000_000)
        })
        .unwrap_or(INTERFACE_RATE),
    })
}

/// Reads an Ed25519 public key.
fn signer(text: &str) -> ValueResult<Trust> {
    let key = (text.len() == 64).then(|| {
        let mut key = [0; 32];
        for (byte, digits) in key.iter_mut().zip(text.as_bytes().chunks(2)) {
            *byte = u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()?;
        }
        Some(key)
    });
    key.flatten().map(Trust::Key).ok_or_else(|| {
        ValueError::new(
            "this is no Ed25519 public key",
            "write the key as 64 hexadecimal digits",
        )
    })
}
