//! The keywords of algorithms in proposals. They are strongSwan's.

use esplanade_crypto::iana::{Encryption, Group, Integrity, Prf, SequenceNumbers};

use super::diagnostics::{nearest, quoted};
use super::value::{ValueError, ValueResult};

/// The meaning of one keyword in a proposal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Algorithm {
    /// A cipher with its Key Length attribute in bits. Zero means that the cipher has no such
    /// attribute.
    Encryption(Encryption, u16),
    /// AES-GMAC with this key length in bits. It is a cipher of ESP, or an integrity algorithm of
    /// AH.
    Gmac(u16),
    Integrity(Integrity),
    Prf(Prf),
    Group(Group),
    SequenceNumbers(SequenceNumbers),
}

use Algorithm as A;
use Encryption::*;

/// strongSwan's keywords. It lacks those with `iiv` (implicit IV, RFC 8750), and `ctr` of ciphers other than AES.
const KEYWORDS: &[(&str, Algorithm)] = &[
    ("null", A::Encryption(Null, 0)),
    ("des", A::Encryption(Des, 0)),
    ("3des", A::Encryption(TripleDes, 0)),
    ("aes", A::Encryption(AesCbc, 128)),
    ("aes128", A::Encryption(AesCbc, 128)),
    ("aes192", A::Encryption(AesCbc, 192)),
    ("aes256", A::Encryption(AesCbc, 256)),
    ("aes128ctr", A::Encryption(AesCtr, 128)),
    ("aes192ctr", A::Encryption(AesCtr, 192)),
    ("aes256ctr", A::Encryption(AesCtr, 256)),
    ("aes128gcm", A::Encryption(AesGcm16, 128)),
    ("aes128gcm16", A::Encryption(AesGcm16, 128)),
    ("aes128gcm128", A::Encryption(AesGcm16, 128)),
    ("aes128gcm12", A::Encryption(AesGcm12, 128)),
    ("aes128gcm96", A::Encryption(AesGcm12, 128)),
    ("aes128gcm8", A::Encryption(AesGcm8, 128)),
    ("aes128gcm64", A::Encryption(AesGcm8, 128)),
    ("aes192gcm", A::Encryption(AesGcm16, 192)),
    ("aes192gcm16", A::Encryption(AesGcm16, 192)),
    ("aes192gcm128", A::Encryption(AesGcm16, 192)),
    ("aes192gcm12", A::Encryption(AesGcm12, 192)),
    ("aes192gcm96", A::Encryption(AesGcm12, 192)),
    ("aes192gcm8", A::Encryption(AesGcm8, 192)),
    ("aes192gcm64", A::Encryption(AesGcm8, 192)),
    ("aes256gcm", A::Encryption(AesGcm16, 256)),
    ("aes256gcm16", A::Encryption(AesGcm16, 256)),
    ("aes256gcm128", A::Encryption(AesGcm16, 256)),
    ("aes256gcm12", A::Encryption(AesGcm12, 256)),
    ("aes256gcm96", A::Encryption(AesGcm12, 256)),
    ("aes256gcm8", A::Encryption(AesGcm8, 256)),
    ("aes256gcm64", A::Encryption(AesGcm8, 256)),
    ("aes128ccm16", A::Encryption(AesCcm16, 128)),
    ("aes128ccm128", A::Encryption(AesCcm16, 128)),
    ("aes128ccm12", A::Encryption(AesCcm12, 128)),
    ("aes128ccm96", A::Encryption(AesCcm12, 128)),
    ("aes128ccm8", A::Encryption(AesCcm8, 128)),
    ("aes128ccm64", A::Encryption(AesCcm8, 128)),
    ("aes192ccm16", A::Encryption(AesCcm16, 192)),
    ("aes192ccm128", A::Encryption(AesCcm16, 192)),
    ("aes192ccm12", A::Encryption(AesCcm12, 192)),
    ("aes192ccm96", A::Encryption(AesCcm12, 192)),
    ("aes192ccm8", A::Encryption(AesCcm8, 192)),
    ("aes192ccm64", A::Encryption(AesCcm8, 192)),
    ("aes256ccm16", A::Encryption(AesCcm16, 256)),
    ("aes256ccm128", A::Encryption(AesCcm16, 256)),
    ("aes256ccm12", A::Encryption(AesCcm12, 256)),
    ("aes256ccm96", A::Encryption(AesCcm12, 256)),
    ("aes256ccm8", A::Encryption(AesCcm8, 256)),
    ("aes256ccm64", A::Encryption(AesCcm8, 256)),
    ("aes128gcm16iiv", A::Encryption(AesGcm16Iiv, 128)),
    ("aes192gcm16iiv", A::Encryption(AesGcm16Iiv, 192)),
    ("aes256gcm16iiv", A::Encryption(AesGcm16Iiv, 256)),
    ("aes128ccm8iiv", A::Encryption(AesCcm8Iiv, 128)),
    ("aes192ccm8iiv", A::Encryption(AesCcm8Iiv, 192)),
    ("aes256ccm8iiv", A::Encryption(AesCcm8Iiv, 256)),
    ("chacha20poly1305", A::Encryption(ChaCha20Poly1305, 0)),
    ("chacha20poly1305iiv", A::Encryption(ChaCha20Poly1305Iiv, 0)),
    ("aes128gmac", A::Gmac(128)),
    ("aes192gmac", A::Gmac(192)),
    ("aes256gmac", A::Gmac(256)),
    // Private use: CBC with strongSwan's numbers, counter mode with numbers of our own.
    ("serpent", A::Encryption(SerpentCbc, 128)),
    ("twofish", A::Encryption(TwofishCbc, 128)),
    ("serpent128", A::Encryption(SerpentCbc, 128)),
    ("serpent192", A::Encryption(SerpentCbc, 192)),
    ("serpent256", A::Encryption(SerpentCbc, 256)),
    ("twofish128", A::Encryption(TwofishCbc, 128)),
    ("twofish192", A::Encryption(TwofishCbc, 192)),
    ("twofish256", A::Encryption(TwofishCbc, 256)),
    ("mars128ctr", A::Encryption(MarsCtr, 128)),
    ("mars192ctr", A::Encryption(MarsCtr, 192)),
    ("mars256ctr", A::Encryption(MarsCtr, 256)),
    ("rc6_128ctr", A::Encryption(Rc6Ctr, 128)),
    ("rc6_192ctr", A::Encryption(Rc6Ctr, 192)),
    ("rc6_256ctr", A::Encryption(Rc6Ctr, 256)),
    ("serpent128ctr", A::Encryption(SerpentCtr, 128)),
    ("serpent192ctr", A::Encryption(SerpentCtr, 192)),
    ("serpent256ctr", A::Encryption(SerpentCtr, 256)),
    ("twofish128ctr", A::Encryption(TwofishCtr, 128)),
    ("twofish192ctr", A::Encryption(TwofishCtr, 192)),
    ("twofish256ctr", A::Encryption(TwofishCtr, 256)),
    ("md5", A::Integrity(Integrity::HmacMd5_96)),
    ("sha", A::Integrity(Integrity::HmacSha1_96)),
    ("sha1", A::Integrity(Integrity::HmacSha1_96)),
    ("aesxcbc", A::Integrity(Integrity::AesXcbc96)),
    ("aescmac", A::Integrity(Integrity::AesCmac96)),
    ("sha256", A::Integrity(Integrity::HmacSha2_256_128)),
    ("sha2_256", A::Integrity(Integrity::HmacSha2_256_128)),
    ("sha384", A::Integrity(Integrity::HmacSha2_384_192)),
    ("sha2_384", A::Integrity(Integrity::HmacSha2_384_192)),
    ("sha512", A::Integrity(Integrity::HmacSha2_512_256)),
    ("sha2_512", A::Integrity(Integrity::HmacSha2_512_256)),
    ("prfaesxcbc", A::Prf(Prf::Aes128Xcbc)),
    ("prfaescmac", A::Prf(Prf::Aes128Cmac)),
    ("prfsha1", A::Prf(Prf::HmacSha1)),
    ("prfsha256", A::Prf(Prf::HmacSha2_256)),
    ("prfsha384", A::Prf(Prf::HmacSha2_384)),
    ("prfsha512", A::Prf(Prf::HmacSha2_512)),
    ("modp1024", A::Group(Group::Modp1024)),
    ("modp1536", A::Group(Group::Modp1536)),
    ("modp2048", A::Group(Group::Modp2048)),
    ("modp3072", A::Group(Group::Modp3072)),
    ("modp4096", A::Group(Group::Modp4096)),
    ("modp6144", A::Group(Group::Modp6144)),
    ("modp8192", A::Group(Group::Modp8192)),
    ("modp1024s160", A::Group(Group::Modp1024Subgroup160)),
    ("modp2048s224", A::Group(Group::Modp2048Subgroup224)),
    ("modp2048s256", A::Group(Group::Modp2048Subgroup256)),
    ("ecp256", A::Group(Group::Ecp256)),
    ("ecp384", A::Group(Group::Ecp384)),
    ("ecp521", A::Group(Group::Ecp521)),
    ("x25519", A::Group(Group::Curve25519)),
    ("curve25519", A::Group(Group::Curve25519)),
    ("esn", A::SequenceNumbers(SequenceNumbers::Bits64)),
    ("noesn", A::SequenceNumbers(SequenceNumbers::Bits32)),
];

/// Keywords that are refused on purpose because they are too weak, with the reason.
const WEAK: &[(&str, &str)] = &[
    ("blowfish", "its 64-bit blocks collide (Sweet32)"),
    ("blowfish128", "its 64-bit blocks collide (Sweet32)"),
    ("blowfish192", "its 64-bit blocks collide (Sweet32)"),
    ("blowfish256", "its 64-bit blocks collide (Sweet32)"),
    ("cast128", "its 64-bit blocks collide (Sweet32)"),
    ("prfmd5", "MD5 is broken"),
    ("sha1_160", "it is deprecated (RFC 8247)"),
    ("sha256_96", "it truncates against RFC 4868"),
    ("sha2_256_96", "it truncates against RFC 4868"),
    ("modp768", "a 768-bit group is broken"),
    ("ecp192", "a 192-bit curve is below today's minimum"),
    ("ecp224", "a 224-bit curve is below today's minimum"),
    (
        "modpnone",
        "without a key exchange there is no forward secrecy",
    ),
];

const NO_LIBRARY: &str = "no library that Esplanade could use for it is maintained";

/// Prefixes of strongSwan's keywords that are not supported, with the reason.
const UNSUPPORTED: &[(&str, &str)] = &[
    ("camellia", NO_LIBRARY),
    ("prfcamellia", NO_LIBRARY),
    ("ecp224bp", NO_LIBRARY),
    ("ecp256bp", NO_LIBRARY),
    ("ecp384bp", NO_LIBRARY),
    ("ecp512bp", NO_LIBRARY),
    ("x448", NO_LIBRARY),
    ("curve448", NO_LIBRARY),
    ("newhope", "no standard defines it for IKEv2"),
    ("ntru", "no standard defines it for IKEv2"),
    ("mlkem", NOT_YET),
    ("ke1_", NOT_YET),
    ("ke2_", NOT_YET),
    ("ke3_", NOT_YET),
    ("ke4_", NOT_YET),
    ("ke5_", NOT_YET),
    ("ke6_", NOT_YET),
    ("ke7_", NOT_YET),
];
const NOT_YET: &str = "additional key exchanges are still missing (RFC 9370)";

/// Looks up one keyword.
pub(crate) fn keyword(text: &str) -> ValueResult<Algorithm> {
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
            word if word.starts_with("sha") => "sha256",
            _ => "aes256gcm16 or aes256-sha256",
        };
        return Err(ValueError::new(
            format!("{} is not supported: {why}", quoted(text)),
            format!("use {instead}"),
        ));
    }
    if let Some((_, why)) = UNSUPPORTED
        .iter()
        .find(|(prefix, _)| lower.starts_with(prefix))
    {
        let help = "use aes128gcm16, aes256gcm16, aes128 or aes256; sha256, sha384 or sha512; x25519, ecp256, \
                    ecp384, ecp521, modp2048, modp3072 or modp4096";
        return Err(ValueError::new(
            format!("{} is not supported: {why}", quoted(text)),
            help,
        ));
    }
    let help = match nearest(&lower, KEYWORDS.iter().map(|&(word, _)| word)) {
        Some(near) => format!("did you mean `{near}`?"),
        None => "docs/configuration/proposals.md lists the algorithms; `default` is a good choice"
            .to_owned(),
    };
    Err(ValueError::new(
        format!("{} is not a known algorithm", quoted(text)),
        help,
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

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
    }

    #[test]
    fn every_integrity_and_cipher_has_a_keyword() {
        let has = |wanted| KEYWORDS.iter().any(|(_, algorithm)| *algorithm == wanted);
        for &cipher in Encryption::ALL {
            for &bits in cipher.key_bits() {
                let gmac = cipher == NullAuthAesGmac && has(A::Gmac(bits));
                assert!(gmac || has(A::Encryption(cipher, bits)), "{cipher} {bits}");
            }
        }
        for &integrity in Integrity::ALL
            .iter()
            .filter(|integrity| !integrity.is_gmac())
        {
            assert!(has(A::Integrity(integrity)), "{integrity}");
        }
    }
}
