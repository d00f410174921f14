//! Demands on the peer's certificates and signatures, beside a valid path.

use std::str::FromStr;

use esplanade_pki::attributes::GroupName;
use esplanade_pki::{
    AuthorityName, CertificatePolicy, Hash, KeyFamily, KeyPurposes, KeyType, ParameterSet,
    PathRules, PathSchemes, Scheme, SubjectName,
};

use super::identity::Identity;

/// Demands on the certificates of a path, and on the signature in AUTH.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CertificateRules {
    pub purposes: KeyPurposes,
    pub signatures: SchemeRules,
    /// The peer's certificate has all of these policies, and the whole path allows them.
    pub policies: Vec<CertificatePolicy>,
    /// An authority of the path has this name, as subject or as subjectAltName.
    pub authority: Option<Identity>,
    /// The peer proves by attribute certificates that it is in one of these groups. An empty list asks for none.
    pub groups: Vec<GroupName>,
    /// A certificate that the configuration has for the peer needs no path, where no authority is known that has issued
    /// it.
    pub known_need_no_path: bool,
}

impl CertificateRules {
    /// Returns the demands on the path alone.
    pub(super) fn of_path(&self) -> PathRules {
        // `%any` demands nothing: every authority has a name.
        let authority = self
            .authority
            .as_ref()
            .filter(|name| **name != Identity::Any);
        PathRules {
            purposes: self.purposes,
            signatures: self.signatures.path.clone(),
            policies: self.policies.clone(),
            authority: authority.map(|name| AuthorityName {
                name: name.subject_name().map(SubjectName::into_owned),
                text: name.to_string(),
            }),
        }
    }
}

/// Signatures and keys that are accepted, in the notation of swanctl.conf.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SchemeRules {
    path: PathSchemes,
    /// Schemes for the signature in AUTH. An empty list accepts all.
    ike: Vec<Scheme>,
}

/// A kind of key, as the notation names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Any,
    Rsa,
    RsaPss,
    Ecdsa,
    Ed25519,
    MlDsa(ParameterSet),
}

impl Kind {
    fn from_word(word: &str) -> Option<Self> {
        Some(match word {
            "pubkey" => Self::Any,
            "rsa" => Self::Rsa,
            "rsa/pss" => Self::RsaPss,
            "ecdsa" => Self::Ecdsa,
            "ed25519" => Self::Ed25519,
            "mldsa44" => Self::MlDsa(ParameterSet::MlDsa44),
            "mldsa65" => Self::MlDsa(ParameterSet::MlDsa65),
            "mldsa87" => Self::MlDsa(ParameterSet::MlDsa87),
            _ => return None,
        })
    }

    fn family(self) -> Option<KeyFamily> {
        match self {
            Self::Rsa | Self::RsaPss => Some(KeyFamily::Rsa),
            Self::Ecdsa => Some(KeyFamily::Ecdsa),
            Self::Any | Self::Ed25519 | Self::MlDsa(_) => None,
        }
    }

    /// The schemes with this kind of key and this hash. `None` stands for a scheme without a hash of its own.
    fn schemes(self, hash: Option<Hash>) -> Vec<Scheme> {
        let all = match hash {
            Some(hash) => vec![
                (Self::Rsa, Scheme::RsaPkcs1(hash)),
                (Self::RsaPss, Scheme::RsaPss(hash)),
                (Self::Ecdsa, Scheme::Ecdsa(hash)),
            ],
            None => {
                let sets = [
                    ParameterSet::MlDsa44,
                    ParameterSet::MlDsa65,
                    ParameterSet::MlDsa87,
                ];
                let ml_dsa = sets.map(|set| (Self::MlDsa(set), Scheme::MlDsa(set)));
                let all = ml_dsa.into_iter().chain([(Self::Ed25519, Scheme::Ed25519)]);
                all.collect()
            }
        };
        let of_kind = all.into_iter().filter(|(kind, _)| match self {
            Self::Any => true,
            // PSS is no weaker than PKCS#1 v1.5, and we prefer it ourselves (RFC 8247 §4.2).
            Self::Rsa => matches!(kind, Self::Rsa | Self::RsaPss),
            kind_alone => *kind == kind_alone,
        });
        of_kind.map(|(_, scheme)| scheme).collect()
    }
}

fn hash_of(word: &str) -> Option<Option<Hash>> {
    Some(match word {
        "sha256" => Some(Hash::Sha256),
        "sha384" => Some(Hash::Sha384),
        "sha512" => Some(Hash::Sha512),
        "identity" => None,
        _ => return None,
    })
}

impl FromStr for SchemeRules {
    type Err = String;

    /// Reads words that are joined by dashes: a kind of key, then its least size, hashes or both. Behind `ike:` the
    /// hashes are for AUTH alone. Without any for AUTH, those of the path are for AUTH too.
    fn from_str(text: &str) -> Result<Self, String> {
        let mut rules = Self::default();
        let (mut kind, mut of_ike) = (None, false);
        for word in text.split('-') {
            let word = match word.strip_prefix("ike:") {
                Some(word) => {
                    of_ike = true;
                    word
                }
                None => word,
            };
            let schemes = if of_ike {
                &mut rules.ike
            } else {
                &mut rules.path.schemes
            };
            if let Some(found) = Kind::from_word(word) {
                kind = Some(found);
                continue;
            }
            let kind = kind.ok_or_else(|| format!("`{word}` is no kind of key"))?;
            if let Some(hash) = hash_of(word) {
                schemes.extend(kind.schemes(hash));
            } else if let Ok(bits) = word.parse()
                && let Some(family) = kind.family()
                && !of_ike
            {
                rules.path.strengths.push((family, bits));
            } else {
                return Err(format!("`{word}` is no hash, nor the size of a key"));
            }
        }
        if rules.ike.is_empty() {
            rules.ike.clone_from(&rules.path.schemes);
        }
        Ok(rules)
    }
}

impl SchemeRules {
    /// Those for AUTH that a key of ours can make, in their order.
    pub(super) fn of_key(&self, key: KeyType) -> Vec<Scheme> {
        let schemes = self.ike.iter().copied();
        schemes.filter(|scheme| scheme.is_made_by(key)).collect()
    }

    pub(super) fn is_free(&self) -> bool {
        self.ike.is_empty()
    }

    pub(super) fn allow_in_ike(&self, scheme: Option<Scheme>) -> bool {
        self.ike.is_empty() || scheme.is_some_and(|scheme| self.ike.contains(&scheme))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules(text: &str) -> SchemeRules {
        text.parse().unwrap()
    }

    #[test]
    fn hashes_follow_their_kind_of_key() {
        let rules = rules("rsa-2048-sha256-ecdsa-256-sha256-sha384");
        for (scheme, allowed) in [
            (Scheme::RsaPkcs1(Hash::Sha256), true),
            (Scheme::RsaPss(Hash::Sha256), true),
            (Scheme::RsaPkcs1(Hash::Sha384), false),
            (Scheme::Ecdsa(Hash::Sha384), true),
            (Scheme::Ecdsa(Hash::Sha512), false),
            (Scheme::Ed25519, false),
        ] {
            assert_eq!(rules.path.allow_scheme(Some(scheme)), allowed, "{scheme:?}");
            assert_eq!(rules.allow_in_ike(Some(scheme)), allowed, "{scheme:?}");
        }
        assert!(!rules.path.allow_scheme(None));
    }

    #[test]
    fn sizes_are_least_sizes_and_name_all_kinds() {
        let rules = rules("rsa-3072-ecdsa-384");
        for (key, allowed) in [
            (Some((KeyType::Rsa, 3072)), true),
            (Some((KeyType::Rsa, 2048)), false),
            (Some((KeyType::P256, 256)), false),
            (Some((KeyType::P384, 384)), true),
            (Some((KeyType::P521, 521)), true),
            (Some((KeyType::Ed25519, 255)), false),
            (None, false),
        ] {
            assert_eq!(rules.path.allow_key(key), allowed, "{key:?}");
        }
        assert!(rules.path.allow_scheme(None) && rules.allow_in_ike(None));
        assert!(SchemeRules::default().path.allow_key(None));
    }

    #[test]
    fn ike_is_apart_from_the_path() {
        let both = rules("pubkey-sha256-ike:rsa/pss-sha384");
        assert!(both.path.allow_scheme(Some(Scheme::RsaPkcs1(Hash::Sha256))));
        assert!(!both.allow_in_ike(Some(Scheme::RsaPss(Hash::Sha256))));
        assert!(both.allow_in_ike(Some(Scheme::RsaPss(Hash::Sha384))));
        let ike = rules("ike:pubkey-sha384");
        assert!(ike.path.allow_scheme(None));
        assert!(ike.allow_in_ike(Some(Scheme::Ecdsa(Hash::Sha384))));
        assert!(!ike.allow_in_ike(Some(Scheme::Ecdsa(Hash::Sha256))));
        let ed25519 = rules("ed25519-identity");
        assert!(ed25519.allow_in_ike(Some(Scheme::Ed25519)));
        assert!(!ed25519.allow_in_ike(Some(Scheme::Ecdsa(Hash::Sha256))));
        let ml_dsa = |set| Some(Scheme::MlDsa(set));
        let either = rules("mldsa65-identity-mldsa87-identity");
        assert!(either.allow_in_ike(ml_dsa(ParameterSet::MlDsa65)));
        assert!(either.path.allow_scheme(ml_dsa(ParameterSet::MlDsa87)));
        assert!(!either.path.allow_scheme(ml_dsa(ParameterSet::MlDsa44)));
        assert!(!either.path.allow_scheme(Some(Scheme::Ed25519)));
        assert!(rules("pubkey-identity").allow_in_ike(ml_dsa(ParameterSet::MlDsa44)));
        assert_eq!(rules("pubkey"), SchemeRules::default());
    }

    #[test]
    fn other_words_are_refused() {
        for text in [
            "",
            "sha256",
            "rsa-",
            "rsa-sha1",
            "pubkey-2048",
            "ed448",
            "ike:",
            "ike:rsa-2048",
            "rsa-99999999999",
            "rsa-2048-",
            "RSA",
            "ed25519-256",
            "mldsa-identity",
            "mldsa65-sha257",
        ] {
            assert!(text.parse::<SchemeRules>().is_err(), "{text:?}");
        }
    }
}
