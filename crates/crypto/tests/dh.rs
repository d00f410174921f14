//! Key exchange by groups.

use esplanade_crypto::dh::{DhError, KeyPair, check_public, public_len};
use esplanade_crypto::iana::Group;
use esplanade_crypto::testing;

#[test]
fn both_sides_agree_in_every_group() {
    for &group in Group::ALL {
        let ours = KeyPair::generate(group).unwrap();
        let theirs = KeyPair::generate(group).unwrap();
        assert_eq!(ours.public().len(), public_len(group));
        assert_eq!(
            ours.agree(theirs.public()).unwrap(),
            theirs.agree(ours.public()).unwrap(),
            "{group}"
        );
    }
}

#[test]
fn wrong_length_is_refused() {
    for &group in Group::ALL {
        let ours = KeyPair::generate(group).unwrap();
        let mut public = ours.public().to_vec();
        public.pop();
        assert!(matches!(ours.agree(&public), Err(DhError::Length { .. })));
        assert!(matches!(ours.agree(&[]), Err(DhError::Length { .. })));
    }
}

#[test]
fn public_values_are_checked_before_anything_is_computed() {
    for &group in Group::ALL {
        let len = public_len(group);
        assert!(check_public(group, &vec![2; len]).is_ok());
        assert!(check_public(group, &vec![2; len - 1]).is_err());
        let modp = group.name().starts_with("MODP_");
        assert_eq!(check_public(group, &vec![0; len]).is_err(), modp);
        assert_eq!(check_public(group, &vec![0xff; len]).is_err(), modp);
    }
}

#[test]
fn invalid_elements_are_refused() {
    for &group in Group::ALL {
        let ours = KeyPair::generate(group).unwrap();
        // Zero is off every ECP curve, of small order on Curve25519, and outside every MODP range.
        let mut public = vec![0; public_len(group)];
        assert_eq!(ours.agree(&public), Err(DhError::InvalidPublic(group)));
        // The value one is invalid too.
        let place = if group == Group::Curve25519 {
            0
        } else {
            public.len() - 1
        };
        public[place] = 1;
        assert_eq!(ours.agree(&public), Err(DhError::InvalidPublic(group)));
    }
}

#[test]
fn modp_values_at_the_modulus_are_refused() {
    let safe_primes = [
        Group::Modp1024,
        Group::Modp1536,
        Group::Modp2048,
        Group::Modp3072,
        Group::Modp4096,
        Group::Modp6144,
        Group::Modp8192,
    ];
    for group in safe_primes {
        let ours = KeyPair::generate(group).unwrap();
        let mut p = testing::modulus(group).unwrap();
        assert_eq!(p.len(), public_len(group));
        assert_eq!(ours.agree(&p), Err(DhError::InvalidPublic(group)), "p");
        *p.last_mut().unwrap() -= 1;
        assert_eq!(ours.agree(&p), Err(DhError::InvalidPublic(group)), "p - 1");
        *p.last_mut().unwrap() -= 1;
        assert!(ours.agree(&p).is_ok(), "p - 2");
    }
}

// RFC 6989 §2.2
#[test]
fn values_outside_of_a_subgroup_are_refused() {
    let with_subgroup = [
        Group::Modp1024Subgroup160,
        Group::Modp2048Subgroup224,
        Group::Modp2048Subgroup256,
    ];
    for group in with_subgroup {
        let ours = KeyPair::generate(group).unwrap();
        let mut p = testing::modulus(group).unwrap();
        assert_eq!(p.len(), public_len(group));
        *p.last_mut().unwrap() -= 2;
        assert!(check_public(group, &p).is_ok());
        assert_eq!(ours.agree(&p), Err(DhError::InvalidPublic(group)), "p - 2");
    }
}
