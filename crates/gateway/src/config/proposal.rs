//! Proposals: `aes128gcm16-prfsha256-x25519`, `aes256-sha256-modp2048`, `default`.

use esplanade_crypto::iana::{Encryption, Group, Integrity, Prf, SequenceNumbers};
use esplanade_ike::config::{EspProposal, IkeProposal};

use super::diagnostics::{nearest, quoted};
use super::value::{Bad, Parsed};

/// One keyword of a proposal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Algorithm {
    Encryption(Encryption, u16),
    Integrity(Integrity),
    Prf(Prf),
    Group(Group),
    SequenceNumbers(SequenceNumbers),
}

use Algorithm as A;
use Encryption::{AesCbc, AesGcm16};

const KEYWORDS: &[(&str, Algorithm)] = &[
    ("aes", A::Encryption(AesCbc, 128)),
    ("aes128", A::Encryption(AesCbc, 128)),
    ("aes192", A::Encryption(AesCbc, 192)),
    ("aes256", A::Encryption(AesCbc, 256)),
    ("aes128gcm", A::Encryption(AesGcm16, 128)),
    ("aes192gcm", A::Encryption(AesGcm16, 192)),
    ("aes256gcm", A::Encryption(AesGcm16, 256)),
    ("aes128gcm16", A::Encryption(AesGcm16, 128)),
    ("aes192gcm16", A::Encryption(AesGcm16, 192)),
    ("aes256gcm16", A::Encryption(AesGcm16, 256)),
    ("aes128gcm128", A::Encryption(AesGcm16, 128)),
    ("aes192gcm128", A::Encryption(AesGcm16, 192)),
    ("aes256gcm128", A::Encryption(AesGcm16, 256)),
    ("sha256", A::Integrity(Integrity::HmacSha2_256_128)),
    ("sha2_256", A::Integrity(Integrity::HmacSha2_256_128)),
    ("sha384", A::Integrity(Integrity::HmacSha2_384_192)),
    ("sha2_384", A::Integrity(Integrity::HmacSha2_384_192)),
    ("sha512", A::Integrity(Integrity::HmacSha2_512_256)),
    ("sha2_512", A::Integrity(Integrity::HmacSha2_512_256)),
    ("prfsha256", A::Prf(Prf::HmacSha2_256)),
    ("prfsha384", A::Prf(Prf::HmacSha2_384)),
    ("prfsha512", A::Prf(Prf::HmacSha2_512)),
    ("modp2048", A::Group(Group::Modp2048)),
    ("modp3072", A::Group(Group::Modp3072)),
    ("modp4096", A::Group(Group::Modp4096)),
    ("ecp256", A::Group(Group::Ecp256)),
    ("ecp384", A::Group(Group::Ecp384)),
    ("x25519", A::Group(Group::Curve25519)),
    ("curve25519", A::Group(Group::Curve25519)),
    ("esn", A::SequenceNumbers(SequenceNumbers::Bits64)),
    ("noesn", A::SequenceNumbers(SequenceNumbers::Bits32)),
];

/// Known to be too weak, and why: not spoken on purpose.
const WEAK: &[(&str, &str)] = &[
    ("null", "it does not encrypt"),
    ("des", "its 56-bit key is broken"),
    ("3des", "its 64-bit blocks collide (Sweet32)"),
    ("blowfish", "its 64-bit blocks collide (Sweet32)"),
    ("cast128", "its 64-bit blocks collide (Sweet32)"),
    ("md5", "MD5 is broken"),
    ("prfmd5", "MD5 is broken"),
    ("sha1", "SHA-1 is broken"),
    ("sha", "SHA-1 is broken"),
    ("sha1_160", "SHA-1 is broken"),
    ("prfsha1", "SHA-1 is broken"),
    ("sha256_96", "it truncates against RFC 4868"),
    ("sha2_256_96", "it truncates against RFC 4868"),
    ("modp768", "a 768-bit group is broken"),
    (
        "modp1024",
        "a 1024-bit group is within reach of well-funded attackers",
    ),
    (
        "modp1536",
        "a 1536-bit group is below today's minimum of 2048 bits",
    ),
    (
        "modp1024s160",
        "a 1024-bit group is within reach of well-funded attackers",
    ),
    ("modp2048s224", "its small subgroups are unsafe (RFC 8247)"),
    ("modp2048s256", "its small subgroups are unsafe (RFC 8247)"),
    ("ecp192", "a 192-bit curve is below today's minimum"),
    ("ecp224", "a 224-bit curve is below today's minimum"),
    (
        "modpnone",
        "without a key exchange there is no forward secrecy",
    ),
];

/// Keywords of strongSwan, by prefix, that are not supported yet.
const LATER: &[&str] = &[
    "chacha20poly1305",
    "aes128ccm",
    "aes192ccm",
    "aes256ccm",
    "aes128ctr",
    "aes192ctr",
    "aes256ctr",
    "aes128gmac",
    "aes192gmac",
    "aes256gmac",
    "aes128gcm8",
    "aes192gcm8",
    "aes256gcm8",
    "aes128gcm64",
    "aes192gcm64",
    "aes256gcm64",
    "aes128gcm12",
    "aes192gcm12",
    "aes256gcm12",
    "aes128gcm96",
    "aes192gcm96",
    "aes256gcm96",
    "camellia",
    "serpent",
    "twofish",
    "aesxcbc",
    "aescmac",
    "prfaesxcbc",
    "prfaescmac",
    "modp6144",
    "modp8192",
    "ecp521",
    "ecp224bp",
    "ecp256bp",
    "ecp384bp",
    "ecp512bp",
    "x448",
    "curve448",
    "mlkem",
    "ke1_",
    "ke2_",
    "ke3_",
    "ke4_",
    "ke5_",
    "ke6_",
    "ke7_",
    "newhope",
    "ntru",
];

fn keyword(text: &str) -> Parsed<Algorithm> {
    let lower = text.to_ascii_lowercase();
    if let Some(&(_, algorithm)) = KEYWORDS.iter().find(|(word, _)| *word == lower) {
        return Ok(algorithm);
    }
    if let Some((word, why)) = WEAK.iter().find(|(word, _)| *word == lower) {
        let instead = match *word {
            word if word.starts_with("modp") || word.starts_with("ecp") => {
                "x25519, ecp256 or modp3072"
            }
            word if word.starts_with("prf") => "prfsha256",
            word if word.starts_with("sha") || word == "md5" => "sha256",
            _ => "aes256gcm16 or aes256-sha256",
        };
        return Err(Bad::new(
            format!("{} is not supported: {why}", quoted(text)),
            format!("use {instead}"),
        ));
    }
    if LATER.iter().any(|prefix| lower.starts_with(prefix)) {
        let help = "use aes128gcm16, aes256gcm16, aes128 or aes256; sha256, sha384 or sha512; x25519, ecp256, \
                    ecp384, modp2048, modp3072 or modp4096";
        return Err(Bad::new(
            format!("{} is not supported yet", quoted(text)),
            help,
        ));
    }
    let help = match nearest(&lower, KEYWORDS.iter().map(|&(word, _)| word)) {
        Some(near) => format!("did you mean `{near}`?"),
        None => "docs/configuration.md lists the algorithms; `default` is a good choice".to_owned(),
    };
    Err(Bad::new(
        format!("{} is not a known algorithm", quoted(text)),
        help,
    ))
}

/// What one proposal lists, by kind, in its order.
#[derive(Default)]
struct Listed {
    encryption: Vec<(Encryption, u16)>,
    integrity: Vec<Integrity>,
    prf: Vec<Prf>,
    groups: Vec<Group>,
    sequence_numbers: Vec<SequenceNumbers>,
}

fn list(text: &str) -> Parsed<Listed> {
    fn add<T: PartialEq>(list: &mut Vec<T>, member: T) {
        if !list.contains(&member) {
            list.push(member);
        }
    }
    let mut listed = Listed::default();
    for word in text.split('-') {
        match keyword(word.trim())? {
            Algorithm::Encryption(algorithm, bits) => {
                add(&mut listed.encryption, (algorithm, bits))
            }
            Algorithm::Integrity(integrity) => add(&mut listed.integrity, integrity),
            Algorithm::Prf(prf) => add(&mut listed.prf, prf),
            Algorithm::Group(group) => add(&mut listed.groups, group),
            Algorithm::SequenceNumbers(bits) => add(&mut listed.sequence_numbers, bits),
        }
    }
    if listed.encryption.is_empty() {
        let help = "begin with an encryption algorithm such as aes256gcm16";
        return Err(Bad::new(format!("{} does not encrypt", quoted(text)), help));
    }
    let aeads = listed
        .encryption
        .iter()
        .filter(|(algorithm, _)| algorithm.is_aead())
        .count();
    if aeads != 0 && aeads != listed.encryption.len() {
        // RFC 7296 section 3.3: combined-mode algorithms go into a proposal of their own.
        let what = format!("{} mixes combined-mode and plain ciphers", quoted(text));
        return Err(Bad::new(what, "write two proposals, separated by a comma"));
    }
    if aeads == 0 && listed.integrity.is_empty() {
        let what = format!("{} has no integrity algorithm", quoted(text));
        return Err(Bad::new(what, "add sha256, sha384 or sha512"));
    }
    Ok(listed)
}

fn prf_of(integrity: Integrity) -> Prf {
    match integrity {
        Integrity::HmacSha2_384_192 => Prf::HmacSha2_384,
        Integrity::HmacSha2_512_256 => Prf::HmacSha2_512,
        _ => Prf::HmacSha2_256,
    }
}

/// One IKE proposal, or the default ones.
pub(super) fn ike(text: &str) -> Parsed<Vec<IkeProposal>> {
    if text == "default" {
        return Ok(ike_default());
    }
    let mut listed = list(text)?;
    if listed.prf.is_empty() {
        // As strongSwan does: the hash of the integrity algorithm is the PRF as well.
        listed.prf = listed.integrity.iter().copied().map(prf_of).collect();
    }
    if listed.prf.is_empty() {
        return Err(Bad::new(
            format!("{} has no PRF", quoted(text)),
            "add prfsha256, prfsha384 or prfsha512",
        ));
    }
    if listed.groups.is_empty() {
        let what = format!("{} has no key exchange", quoted(text));
        return Err(Bad::new(
            what,
            "add x25519, ecp256, ecp384, modp2048, modp3072 or modp4096",
        ));
    }
    if !listed.sequence_numbers.is_empty() {
        let what = format!("{}: sequence numbers belong to ESP", quoted(text));
        return Err(Bad::new(what, "move esn or noesn to esp_proposals"));
    }
    if listed
        .encryption
        .iter()
        .all(|(algorithm, _)| algorithm.is_aead())
    {
        listed.integrity.clear();
    }
    Ok(vec![IkeProposal {
        encryption: listed.encryption,
        integrity: listed.integrity,
        prf: listed.prf,
        groups: listed.groups,
    }])
}

/// One ESP proposal, or the default ones.
pub(super) fn esp(text: &str) -> Parsed<Vec<EspProposal>> {
    if text == "default" {
        return Ok(esp_default());
    }
    let mut listed = list(text)?;
    if !listed.prf.is_empty() {
        let what = format!("{}: a PRF has no place in an ESP proposal", quoted(text));
        return Err(Bad::new(
            what,
            "remove it; the PRF belongs into `proposals` of the connection",
        ));
    }
    if listed
        .encryption
        .iter()
        .all(|(algorithm, _)| algorithm.is_aead())
    {
        listed.integrity.clear();
    }
    if listed.sequence_numbers.is_empty() {
        listed.sequence_numbers.push(SequenceNumbers::Bits32);
    }
    Ok(vec![EspProposal {
        encryption: listed.encryption,
        integrity: listed.integrity,
        groups: listed.groups,
        sequence_numbers: listed.sequence_numbers,
    }])
}

/// Combined-mode ciphers first, then CBC with HMAC.
pub(super) fn ike_default() -> Vec<IkeProposal> {
    use Group::*;
    let prf = vec![Prf::HmacSha2_256, Prf::HmacSha2_384, Prf::HmacSha2_512];
    let groups = vec![Curve25519, Ecp256, Ecp384, Modp3072, Modp4096, Modp2048];
    vec![
        IkeProposal {
            encryption: vec![(AesGcm16, 128), (AesGcm16, 256)],
            integrity: Vec::new(),
            prf: prf.clone(),
            groups: groups.clone(),
        },
        IkeProposal {
            encryption: vec![(AesCbc, 128), (AesCbc, 256)],
            integrity: vec![
                Integrity::HmacSha2_256_128,
                Integrity::HmacSha2_384_192,
                Integrity::HmacSha2_512_256,
            ],
            prf,
            groups,
        },
    ]
}

pub(super) fn esp_default() -> Vec<EspProposal> {
    let sequence_numbers = vec![SequenceNumbers::Bits64, SequenceNumbers::Bits32];
    vec![
        EspProposal {
            encryption: vec![(AesGcm16, 128), (AesGcm16, 256)],
            integrity: Vec::new(),
            groups: Vec::new(),
            sequence_numbers: sequence_numbers.clone(),
        },
        EspProposal {
            encryption: vec![(AesCbc, 128), (AesCbc, 256)],
            integrity: vec![Integrity::HmacSha2_256_128],
            groups: Vec::new(),
            sequence_numbers,
        },
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn combined_mode_needs_a_prf_and_drops_integrity() {
        let one = ike("aes128gcm16-prfsha256-x25519").unwrap();
        assert_eq!(one[0].encryption, [(AesGcm16, 128)]);
        assert!(one[0].integrity.is_empty());
        assert_eq!(one[0].prf, [Prf::HmacSha2_256]);
        let two = ike("aes256gcm16-sha384-ecp384").unwrap();
        assert!(two[0].integrity.is_empty());
        assert_eq!(two[0].prf, [Prf::HmacSha2_384]);
        assert!(ike("aes256gcm16-x25519").is_err_and(|bad| bad.what.contains("no PRF")));
    }

    #[test]
    fn plain_ciphers_take_the_prf_from_the_integrity() {
        let one = ike("aes128-aes256-sha256-modp2048-x25519").unwrap();
        assert_eq!(one[0].encryption, [(AesCbc, 128), (AesCbc, 256)]);
        assert_eq!(one[0].prf, [Prf::HmacSha2_256]);
        assert_eq!(one[0].groups, [Group::Modp2048, Group::Curve25519]);
        assert!(esp("aes128").is_err_and(|bad| bad.what.contains("integrity")));
        assert!(ike("aes128-sha256").is_err_and(|bad| bad.what.contains("key exchange")));
        assert!(
            ike("aes128gcm16-aes128-sha256-x25519").is_err_and(|bad| bad.what.contains("mixes"))
        );
    }

    #[test]
    fn esn_is_on_only_where_asked_for() {
        assert_eq!(
            esp("aes128gcm16").unwrap()[0].sequence_numbers,
            [SequenceNumbers::Bits32]
        );
        assert_eq!(
            esp("aes128gcm16-esn").unwrap()[0].sequence_numbers,
            [SequenceNumbers::Bits64]
        );
        assert_eq!(
            esp("aes128gcm16-esn-noesn").unwrap()[0]
                .sequence_numbers
                .len(),
            2
        );
    }

    #[test]
    fn refusals_say_why() {
        for (text, part) in [
            ("3des-sha256-x25519", "Sweet32"),
            ("aes128-sha1-x25519", "SHA-1 is broken"),
            ("aes128-sha256-modp1024", "1024-bit"),
            ("chacha20poly1305-prfsha256-x25519", "not supported yet"),
            ("aes128-sha265-x25519", "not a known algorithm"),
        ] {
            assert!(
                ike(text).is_err_and(|bad| bad.what.contains(part)),
                "{text}"
            );
        }
        assert!(ike("aes128-sha265-x25519").is_err_and(|bad| bad.help.contains("`sha256`")));
    }

    #[test]
    fn every_iana_keyword_is_known() {
        for group in Group::ALL {
            assert_eq!(
                keyword(group.keyword()).ok(),
                Some(Algorithm::Group(*group))
            );
        }
        for prf in Prf::ALL {
            assert_eq!(keyword(prf.keyword()).ok(), Some(Algorithm::Prf(*prf)));
        }
        for integrity in Integrity::ALL {
            assert_eq!(
                keyword(integrity.keyword()).ok(),
                Some(Algorithm::Integrity(*integrity))
            );
        }
    }
}
