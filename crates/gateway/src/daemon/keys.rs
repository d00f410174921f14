//! Session keys for Wireshark, only on explicit request (`--export-keys FILE`).
//!
//! Every line is one entry of a Wireshark table, with the table's name before it:
//!
//! ```text
//! ikev2_decryption_table:<initiator SPI>,<responder SPI>,<SK_ei>,<SK_er>,"<cipher>",<SK_ai>,<SK_ar>,"<integrity>"
//! esp_sa:"<IPv4 or IPv6>","<source>","<destination>","0x<SPI>","<cipher>","0x<key>","<integrity>","0x<key>"
//! ipsec_sa:"<source>","<destination>","0x<SPI>","<transform>","<1 with extended sequence numbers>","0x<key material>"
//! ```
//!
//! `ipsec_sa` is no table of Wireshark's: it has the SAs that Wireshark cannot decrypt.
//!
//! `tshark -o uat:LINE` takes a line as it is. Wireshark takes the part after the colon as a line of the file in its
//! profile folder that has the table's name.

use std::fmt::Write as _;
use std::io;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use esplanade_crypto::iana::{Encryption, Integrity, SequenceNumbers};
use esplanade_ike::event::EspSuite;
use esplanade_ike::{ChildSaInstalled, KeyLog};
use zeroize::Zeroizing;

use crate::output::{LineOutput, Observer, OutputReport};
use crate::private;

/// The time that the gateway waits at its end for the file to be written.
const FLUSH: Duration = Duration::from_secs(1);

/// The open key file. A thread of its own writes the file. If writing fails (on a full disk, for example), traffic goes
/// on.
#[derive(Debug)]
pub struct KeyFile {
    output: LineOutput,
}

impl KeyFile {
    /// Opens `path` for appending, readable by its owner alone.
    pub fn open(path: &Path) -> io::Result<Self> {
        let file = private::append(path)?;
        let path = path.to_owned();
        let output = LineOutput::start("keys", file, Troubles { path })?;
        Ok(Self { output })
    }

    pub fn report(&self) -> OutputReport {
        self.output.report()
    }

    pub fn ike(&self, log: &KeyLog) {
        if let Some(line) = log.wireshark_line() {
            self.line("ikev2_decryption_table:", line.expose());
        }
    }

    pub fn esp(&self, sa: &ChildSaInstalled) {
        let (local, remote) = (sa.local.ip(), sa.remote.ip());
        for (source, destination, spi, key) in [
            (remote, local, sa.spi_in, sa.key_in.expose()),
            (local, remote, sa.spi_out, sa.key_out.expose()),
        ] {
            match esp_line(&sa.esp, source, destination, spi, key) {
                Some(line) => self.line("esp_sa:", line.as_str()),
                None => self.line(
                    "ipsec_sa:",
                    other_line(&sa.esp, source, destination, spi, key).as_str(),
                ),
            }
        }
    }

    fn line(&self, table: &str, entry: impl AsRef<[u8]>) {
        self.output
            .push([table.as_bytes(), entry.as_ref(), b"\n"].concat());
    }
}

impl Drop for KeyFile {
    fn drop(&mut self) {
        self.output.flush(FLUSH);
    }
}

#[derive(Debug)]
struct Troubles {
    path: PathBuf,
}

impl Observer for Troubles {
    fn failing(&mut self, error: &io::Error) {
        tracing::error!(
            "cannot write session keys to {}: {error}; they wait, the tunnels go on",
            self.path.display()
        );
    }

    fn lost(&mut self, count: u64) -> Vec<u8> {
        tracing::error!(
            lost = count,
            "session keys are missing in {}: it could not be written for too long",
            self.path.display()
        );
        Vec::new()
    }
}

fn esp_line(
    suite: &EspSuite,
    source: IpAddr,
    destination: IpAddr,
    spi: u32,
    key: &[u8],
) -> Option<Zeroizing<String>> {
    let version = if source.is_ipv4() { "IPv4" } else { "IPv6" };
    let cipher = cipher_name(suite.transform.encryption()?, suite.transform.key_bits())?;
    let integrity = match suite.transform.integrity() {
        None => "NULL",
        Some(integrity) => integrity_name(integrity),
    };
    // An AEAD's salt follows its key and is part of what Wireshark calls the key.
    let cipher_len = suite.transform.encryption_key_len().min(key.len());
    let (cipher_key, integrity_key) = key.split_at(cipher_len);
    let mut line = Zeroizing::new(String::new());
    let _ = write!(
        line,
        "\"{version}\",\"{source}\",\"{destination}\",\"0x{spi:08x}\",\"{cipher}\",\"0x"
    );
    hex(&mut line, cipher_key);
    let _ = write!(line, "\",\"{integrity}\",\"");
    if !integrity_key.is_empty() {
        line.push_str("0x");
        hex(&mut line, integrity_key);
    }
    line.push('"');
    // Only Wireshark 4.2 and later has the columns for ESN; the defaults stand for 32 bits.
    if suite.sequence_numbers == SequenceNumbers::Bits64 {
        line.push_str(",\"64-bit\",\"0\"");
    }
    Some(line)
}

fn other_line(
    suite: &EspSuite,
    source: IpAddr,
    destination: IpAddr,
    spi: u32,
    key: &[u8],
) -> Zeroizing<String> {
    let esn = u8::from(suite.sequence_numbers == SequenceNumbers::Bits64);
    let transform = suite.transform;
    let mut line = Zeroizing::new(String::new());
    let _ = write!(
        line,
        "\"{source}\",\"{destination}\",\"0x{spi:08x}\",\"{transform}\",\"{esn}\",\"0x"
    );
    hex(&mut line, key);
    line.push('"');
    line
}

/// Returns Wireshark's name of a cipher, or `None` if Wireshark cannot decrypt it.
fn cipher_name(cipher: Encryption, key_bits: u16) -> Option<&'static str> {
    Some(match cipher {
        // Wireshark has no key of 192 bits here.
        Encryption::TwofishCbc if key_bits != 192 => "TWOFISH-CBC",
        Encryption::Null => "NULL",
        Encryption::Des => "DES-CBC [RFC2405]",
        Encryption::TripleDes => "TripleDES-CBC [RFC2451]",
        Encryption::AesCbc => "AES-CBC [RFC3602]",
        Encryption::AesCtr => "AES-CTR [RFC3686]",
        Encryption::AesGcm8 => "AES-GCM with 8 octet ICV [RFC4106]",
        Encryption::AesGcm12 => "AES-GCM with 12 octet ICV [RFC4106]",
        Encryption::AesGcm16 => "AES-GCM with 16 octet ICV [RFC4106]",
        _ => return None,
    })
}

fn integrity_name(integrity: Integrity) -> &'static str {
    match integrity {
        Integrity::HmacMd5_96 => "HMAC-MD5-96 [RFC2403]",
        Integrity::HmacSha1_96 => "HMAC-SHA-1-96 [RFC2404]",
        Integrity::HmacSha2_256_128 => "HMAC-SHA-256-128 [RFC4868]",
        Integrity::HmacSha2_384_192 => "HMAC-SHA-384-192 [RFC4868]",
        Integrity::HmacSha2_512_256 => "HMAC-SHA-512-256 [RFC4868]",
        // Wireshark does not know these algorithms. So it only takes the ICV off.
        Integrity::AesXcbc96 | Integrity::AesCmac96 => "ANY 96 bit authentication [no checking]",
        Integrity::Aes128Gmac | Integrity::Aes192Gmac | Integrity::Aes256Gmac => {
            "ANY 128 bit authentication [no checking]"
        }
    }
}

fn hex(line: &mut String, bytes: &[u8]) {
    for byte in bytes {
        let _ = write!(line, "{byte:02x}");
    }
}
