//! Parses IKE identities with the rules of swanctl.conf. The type `Identity` itself belongs to
//! `ike`.

use esplanade_ike::auth::{Identity, IdentityError};

use super::diagnostics::quoted;
use super::value::{ValueError, ValueResult, hex};

const HELP: &str = "write an address, a domain name, an email address or a distinguished name such as \
                    \"C=CH, O=Example, CN=gw\"; a prefix forces the type: fqdn:, email:, keyid:, ipv4:, ipv6:, asn1dn:";

/// Parses an identity, or a pattern of identities.
pub(super) fn identity(text: &str) -> ValueResult<Identity> {
    if matches!(text, "0.0.0.0" | "::") {
        return Ok(Identity::Any);
    }
    match text.split_once(':') {
        // After the colon, `#` introduces the raw bytes of the identity in hex.
        Some((kind, rest)) if rest.starts_with('#') => {
            raw(kind, rest.trim_start_matches('#'), text)
        }
        Some(("userfqdn", rest)) => parse(&format!("email:{rest}"), text),
        Some(("asn1gn", _)) => Err(ValueError::new(
            "identities of the type asn1gn are not supported yet",
            HELP,
        )),
        _ => parse(text, text),
    }
}

/// Parses our own identity. It must be a whole identity, or `%any`, which is resolved later.
pub(super) fn own_identity(text: &str) -> ValueResult<Identity> {
    match identity(text)? {
        pattern if pattern != Identity::Any && pattern.precision() < 2 => Err(ValueError::new(
            format!("{} is a pattern", quoted(text)),
            "write the whole identity",
        )),
        identity => Ok(identity),
    }
}

fn parse(text: &str, written: &str) -> ValueResult<Identity> {
    text.parse().map_err(|error| {
        let why = match error {
            IdentityError::Text(_, why) => why,
            _ => "unknown type",
        };
        ValueError::new(
            format!("{} is not an identity: {why}", quoted(written)),
            HELP,
        )
    })
}

fn raw(kind: &str, digits: &str, written: &str) -> ValueResult<Identity> {
    use esplanade_ike::wire::{Id, IdType};
    let id_type = match kind {
        "ipv4" => IdType::IPV4_ADDR,
        "ipv6" => IdType::IPV6_ADDR,
        "fqdn" | "dns" => IdType::FQDN,
        "email" | "rfc822" | "userfqdn" => IdType::RFC822_ADDR,
        "asn1dn" => IdType::DER_ASN1_DN,
        "keyid" => IdType::KEY_ID,
        _ => {
            return Err(ValueError::new(
                format!("{} has no known identity type", quoted(written)),
                HELP,
            ));
        }
    };
    let bytes = hex(digits).ok_or_else(|| {
        ValueError::new(
            format!(
                "{} has no hex digits after the number sign",
                quoted(written)
            ),
            HELP,
        )
    })?;
    Identity::from_payload(&Id::new(id_type, bytes.to_vec())).map_err(|error| {
        ValueError::new(
            format!("{} is not an identity: {error}", quoted(written)),
            HELP,
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_are_guessed_as_in_strongswan() {
        let guess = |text: &str| identity(text).unwrap();
        assert_eq!(guess("%any"), Identity::Any);
        assert_eq!(guess("0.0.0.0"), Identity::Any);
        assert_eq!(
            guess("192.0.2.1"),
            Identity::Ip("192.0.2.1".parse().unwrap())
        );
        assert_eq!(
            guess("2001:db8::1"),
            Identity::Ip("2001:db8::1".parse().unwrap())
        );
        assert_eq!(
            guess("moon.example.org"),
            Identity::Fqdn("moon.example.org".to_owned())
        );
        assert_eq!(guess("@moon"), Identity::Fqdn("moon".to_owned()));
        assert_eq!(
            guess("carol@example.org"),
            Identity::Email("carol@example.org".to_owned())
        );
        assert_eq!(
            guess("userfqdn:carol@example.org"),
            guess("carol@example.org")
        );
        assert_eq!(guess("@#0aff"), Identity::KeyId(vec![0x0a, 0xff]));
        assert_eq!(guess("keyid:abc"), Identity::KeyId(b"abc".to_vec()));
        assert_eq!(guess("keyid:#616263"), Identity::KeyId(b"abc".to_vec()));
        assert_eq!(
            guess("ipv4:#0a000001"),
            Identity::Ip("10.0.0.1".parse().unwrap())
        );
        assert!(matches!(
            guess("C=CH, O=strongSwan, CN=moon"),
            Identity::Dn(_)
        ));
        for bad in ["@#0", "asn1gn:x", "ipv4:#0a", "C=CH, O", "two words"] {
            assert!(identity(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn patterns_are_for_peers() {
        assert!(identity("*.example.org").is_ok());
        assert!(own_identity("*.example.org").is_err());
        assert!(matches!(own_identity("%any"), Ok(Identity::Any)));
    }
}
