//! Strategies for identities.

use std::net::IpAddr;

use esplanade_pki::DistinguishedName;
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;

use super::Identity;

fn name() -> impl Strategy<Value = String> {
    "[!-~]{1,40}"
}

fn distinguished_name() -> impl Strategy<Value = DistinguishedName> {
    let escape = |value: String| value.chars().flat_map(|c| ['\\', c]).collect::<String>();
    let value = "[ -~]{0,10}[!-~]".prop_map(escape);
    let attribute = (select(vec!["C", "O", "OU", "CN"]), value);
    vec(attribute, 1..5).prop_filter_map("a value that its attribute cannot have", |attributes| {
        let texts: Vec<_> = attributes
            .iter()
            .map(|(kind, value)| format!("{kind}={value}"))
            .collect();
        DistinguishedName::parse(&texts.join(", "))
    })
}

/// Gives one of these identities or patterns. With few, they often meet.
pub fn identity_among(texts: &'static [&'static str]) -> impl Strategy<Value = Identity> {
    select(texts).prop_map(|text| text.parse().expect("an identity"))
}

/// Gives identities that a peer can present.
pub fn identity() -> impl Strategy<Value = Identity> {
    prop_oneof![
        any::<IpAddr>().prop_map(Identity::Ip),
        name().prop_map(Identity::Fqdn),
        name().prop_map(Identity::Email),
        distinguished_name().prop_map(Identity::Dn),
        vec(any::<u8>(), 1..40).prop_map(Identity::KeyId),
    ]
}
