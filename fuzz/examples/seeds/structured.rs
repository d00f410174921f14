//! Seeds of the targets whose inputs choose among what is known here.

use std::io::Result;
use std::path::Path;

use esplanade_fuzz::{corpus, peers};

use super::others::put;

/// A TCP segment, as a kind of packet of `tunnels`.
const TCP: u8 = 2;

pub fn write(folder: &Path) -> Result<()> {
    put(folder, "der_edits", vec![("certificate", vec![0, 0, 0])])?;
    put(folder, "policies", vec![("few", vec![6, 2, 4, 9, 1])])?;
    let burst = vec![0, 0, 0, 0, 0, 0x71, TCP, 40, 2];
    put(folder, "tunnels", vec![("burst", burst)])?;
    let scripts = peers::scripts().into_iter();
    let scripts: Vec<_> = scripts.map(|(_, script)| script).collect();
    put(
        folder,
        "ike_peers",
        vec![("seeds.pack", corpus::pack(&scripts))],
    )
}
