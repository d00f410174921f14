//! Parses IKE identities with the rules of swanctl.conf. The type `Identity` itself, with its notation, belongs to `ike`.

use esplanade_ike::auth::{Identity, IdentityError};

use super::diagnostics::{nearest, quoted};
use super::value::{ValueError, ValueResult};

const HELP: &str = "write one whole identity: an address, a domain name, an email address or a distinguished name such as \
                    \"C=CH, O=Example, CN=gw\"; a prefix forces the type: fqdn:, email:, keyid:, ipv4:, ipv6:, asn1dn:; \
                    subnets of peers belong into `remote_addrs`";

/// Parses an identity, or a pattern of identities.
pub(crate) fn identity(text: &str) -> ValueResult<Identity> {
    if matches!(text, "0.0.0.0" | "::" | "0::0") {
        return Ok(Identity::Any);
    }
    let identity: Identity = text.parse().map_err(|error| {
        let why = match error {
            IdentityError::Text(_, why) => why,
            _ => "unknown type",
        };
        ValueError::new(format!("{} is not an identity: {why}", quoted(text)), HELP)
    })?;
    match misspelt_type(text) {
        None => Ok(identity),
        Some(word) => {
            let what = format!("{} has no known identity type", quoted(text));
            let help =
                format!("did you mean `{word}:`? `keyid:` in front makes the whole text a key ID");
            Err(ValueError::new(what, help))
        }
    }
}

/// Parses our own identity. It must be a whole identity, or `%any`, which is resolved later.
pub(crate) fn own_identity(text: &str) -> ValueResult<Identity> {
    match identity(text)? {
        pattern if pattern != Identity::Any && pattern.is_pattern() => Err(ValueError::new(
            format!("{} is a pattern", quoted(text)),
            "write the whole identity",
        )),
        identity => Ok(identity),
    }
}

/// Returns the word for a type that stands before a colon with a typing error. The whole text would be an identity of another type.
fn misspelt_type(text: &str) -> Option<&'static str> {
    const WORD_LEN_MIN: usize = 3;
    let (word, _) = text.split_once(':')?;
    let word = word.to_ascii_lowercase();
    let is_word = word.len() >= WORD_LEN_MIN && word.bytes().all(|c| c.is_ascii_alphanumeric());
    let near = nearest(&word, Identity::types().filter(|_| is_word))?;
    (near != word).then_some(near)
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
        assert_eq!(guess("0::0"), Identity::Any);
        assert_eq!(guess("site:7"), Identity::KeyId(b"site:7".to_vec()));
        for (bad, why) in [
            ("@#0", "hexadecimal"),
            ("asn1gn:x", "not supported"),
            ("ipv4net:10.0.0.0/8", "not supported"),
            ("ipv4:#0a", "octets"),
            ("C=CH, O", "distinguished name"),
            ("two words", "spaces"),
            (" ", "empty"),
            ("fdqn:a.example.org", "did you mean `fqdn:`"),
            ("Emial:a@b", "did you mean `email:`"),
            ("10.0.0.0/8", "`remote_addrs`"),
            ("a.example,b.example", "write one whole identity"),
        ] {
            let refused = identity(bad).expect_err(bad);
            let shown = refused.what + "; " + &refused.help;
            assert!(shown.contains(why), "{bad}: {shown}");
        }
    }

    #[test]
    fn patterns_are_for_peers() {
        assert!(identity("*.example.org").is_ok());
        assert!(own_identity("*.example.org").is_err());
        assert!(matches!(own_identity("%any"), Ok(Identity::Any)));
    }
}
