//! Packs bitstreams as a library, from the command line.
//!
//!     cargo run -p esplanade-ace --example pack -- FOLDER SERIAL KEY DOMAIN:VARIANT=FILE.bit ..
//!
//! KEY is a file with an Ed25519 key in PKCS #8, as `openssl genpkey -algorithm ed25519 -outform DER` writes it, or `-` for
//! a library without a signature. The public half goes into FOLDER/public.key. FOLDER/bitstreams.json has the hash of
//! each bitstream's configuration frames, by which a device can tell what it was loaded with.

use std::collections::BTreeMap;
use std::error::Error;
use std::fs;
use std::path::Path;

use aws_lc_rs::digest::{SHA256, digest};
use aws_lc_rs::signature::{Ed25519KeyPair, KeyPair};
use esplanade_ace::compress::Phase;
use esplanade_ace::frames::{Bitstream, Grain};
use esplanade_ace::library::{Library, Trust, pack, publish};
use esplanade_ace::simulated::frames_hash;

type Domains = BTreeMap<String, Vec<(String, Vec<u8>)>>;

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [folder, serial, key, files @ ..] = &arguments[..] else {
        return Err("FOLDER SERIAL KEY DOMAIN:VARIANT=FILE.bit ..".into());
    };
    let (folder, serial) = (Path::new(folder), serial.parse()?);
    let key = match key.as_str() {
        "-" => None,
        file => Some(Ed25519KeyPair::from_pkcs8_maybe_unchecked(&fs::read(
            file,
        )?)?),
    };

    let mut domains = Domains::new();
    for argument in files {
        let (name, file) = argument
            .split_once('=')
            .ok_or("DOMAIN:VARIANT=FILE.bit is wanted")?;
        let (domain, variant) = name.split_once(':').ok_or("DOMAIN:VARIANT is wanted")?;
        let bitstreams = domains.entry(domain.to_owned()).or_default();
        bitstreams.push((variant.to_owned(), fs::read(file)?));
    }

    fs::create_dir_all(folder)?;
    let mut packed = Vec::new();
    for (name, variants) in &domains {
        let named: Vec<(&str, &[u8])> = variants
            .iter()
            .map(|(variant, bytes)| (variant.as_str(), &bytes[..]))
            .collect();
        // Bitstreams that were placed apart have most frames of their own: whole frames take the least memory.
        let domain = pack(name, &named, Grain::Frame, &[], Phase::Three)?;
        let total: usize = variants.iter().map(|(_, bytes)| bytes.len()).sum();
        println!("{name}: {} of {total} bytes", domain.domain().bytes);
        packed.push(domain);
    }
    publish(folder, serial, &packed, key.as_ref())?;

    let trust = match &key {
        None => Trust::Directory,
        Some(key) => {
            let public = key.public_key().as_ref();
            fs::write(folder.join("public.key"), hex::encode(public) + "\n")?;
            Trust::Key(public.try_into()?)
        }
    };
    Library::open(folder, &trust, serial)?;
    let table = table(&domains)?;
    fs::write(folder.join("bitstreams.json"), table)?;
    Ok(())
}

/// Each bitstream's part, length and the hash of its frames, as JSON.
fn table(domains: &Domains) -> Result<String, Box<dyn Error>> {
    let mut rows = Vec::new();
    for (domain, variants) in domains {
        for (variant, bytes) in variants {
            let parsed = Bitstream::parse(bytes).map_err(|(at, error)| format!("{at}: {error}"))?;
            rows.push(serde_json::json!({
                "domain": domain,
                "variant": variant,
                "part": parsed.part().name,
                "frames_sha256": frames_hash(parsed.frames()),
                "bitstream_sha256": hex::encode(digest(&SHA256, bytes)),
                "bytes": bytes.len(),
            }));
        }
    }
    Ok(serde_json::to_string_pretty(&rows)? + "\n")
}
