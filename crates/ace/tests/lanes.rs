//! The bitstreams of ESP lanes in `library/`: signed, whole, and known by the hashes of their frames.

use std::fs;
use std::path::PathBuf;

use aws_lc_rs::digest::{SHA256, digest};
use esplanade_ace::frames::Bitstream;
use esplanade_ace::library::{Library, Trust};
use serde_json::Value;

#[test]
fn frames_say_which_lane_a_bitstream_is() {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("library");
    let read = |name: &str| fs::read_to_string(folder.join(name)).expect("a file of the library");
    let key = hex::decode(read("public.key").trim()).expect("hexadecimal digits");
    let trust = Trust::Key(key.try_into().expect("32 bytes"));
    let library = Library::open(&folder, &trust, 1).expect("a good library");

    let rows: Vec<Value> = serde_json::from_str(&read("bitstreams.json")).expect("a table");
    let variants = library
        .manifest()
        .domains
        .iter()
        .map(|domain| domain.variants.len());
    assert_eq!(rows.len(), variants.sum::<usize>());
    let mut hashes = Vec::new();
    for row in &rows {
        let [domain, variant] =
            ["domain", "variant"].map(|field| row[field].as_str().expect("text"));
        let merge = library.bitstream(domain, variant).expect("a variant");
        let bytes: Vec<u8> = merge
            .collect::<Result<_, _>>()
            .expect("checked when opened");
        let bitstream = Bitstream::parse(&bytes).expect("a bitstream");
        let hash = hex::encode(digest(&SHA256, bitstream.frames()));
        assert_eq!(row["frames_sha256"], hash.as_str());
        assert_eq!(row["part"], bitstream.part().name);
        assert_eq!(row["algorithm"], domain);
        hashes.push(hash);
    }
    hashes.sort();
    hashes.dedup();
    assert_eq!(hashes.len(), rows.len(), "two lanes have the same frames");
}
