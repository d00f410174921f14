//! Fuzzes attribute certificates.

use std::sync::{Arc, OnceLock};

use esplanade_ike::auth::Credential;
use esplanade_pki::attributes::{
    AttributeAuthority, AttributeCertificate, AttributeStore, AttributeTerms, GroupName,
    Memberships, PeerAttributes,
};
use esplanade_pki::{Certificate, Revocation, RevocationPolicy, RevocationStore, SubjectName};

use crate::auth::{AUTHORITY, NOW, certificate, issue, issuer, signed, signed_part};

macro_rules! file {
    ($name:literal) => {
        include_bytes!(concat!("../../vectors/ike/", $name)).as_slice()
    };
}

const CERTIFICATES_MAX: usize = 8;
const POLICIES: [RevocationPolicy; 3] = [
    RevocationPolicy::Strict,
    RevocationPolicy::IfUri,
    RevocationPolicy::Relaxed,
];

/// Attribute certificates, each behind two bytes of length. They are checked unchanged, and once more with a signature
/// of an authority whose key is known here. The whole is read as a file too.
pub fn attributes(data: &[u8]) {
    let world = World::get();
    check_file(data);
    let (mut rest, mut all) = (data, Vec::new());
    while all.len() < CERTIFICATES_MAX
        && let Some(data) = crate::packets::next_packet(&mut rest)
    {
        check_file(data);
        all.push(data.to_vec());
    }
    if let Some(group) = world.prove(&all, RevocationPolicy::Relaxed).first() {
        let signed = |der: &Vec<u8>| signed_part(der).map(<[u8]>::to_vec);
        let known = |der: &Vec<u8>| signed(der).is_some_and(|part| world.issued.contains(&part));
        assert!(all.iter().any(known), "nobody has issued {group}");
    }
    let resigned = all.iter().filter_map(|der| world.sign(der));
    let mut resigned: Vec<Vec<u8>> = resigned.collect();
    let proved = POLICIES.map(|policy| world.prove(&resigned, policy));
    for (stricter, laxer) in proved.iter().zip(&proved[1..]) {
        assert!(stricter.iter().all(|group| laxer.contains(group)));
    }
    resigned.reverse();
    let other_order = world.prove(&resigned, RevocationPolicy::Relaxed);
    assert_eq!(other_order, proved[2], "the order counts");
}

/// Reads an attribute certificate in DER or PEM.
fn check_file(content: &[u8]) {
    let file = AttributeCertificate::from_file_content(content);
    if let Err(error) = &file {
        let _ = error.to_string();
    }
    let der = AttributeCertificate::from_der(content);
    for read in [file.ok(), der.ok()].into_iter().flatten() {
        let again = AttributeCertificate::from_der(read.der()).expect("it was read before");
        assert_eq!(again.issuer(), read.issuer());
        assert_eq!(again.groups(), read.groups());
        for group in read.groups() {
            assert!(!group.to_string().chars().any(char::is_control));
        }
    }
}

pub(crate) struct World {
    store: AttributeStore,
    holder: Certificate,
    /// The signed part of every attribute certificate of the authorities.
    issued: Vec<Vec<u8>>,
    /// The credential that signs as an authority.
    issuer: Credential,
    wanted: Vec<GroupName>,
}

impl World {
    pub(crate) fn get() -> &'static Self {
        static WORLD: OnceLock<World> = OnceLock::new();
        WORLD.get_or_init(Self::new)
    }

    fn new() -> Self {
        let issuer = issuer();
        let own = issue(&issuer, AUTHORITY, AUTHORITY, b"");
        let certificates = [
            Certificate::from_der(&own).expect("well-formed"),
            certificate(file!("attributes/aa.pem")),
            certificate(file!("attributes/self.pem")),
        ];
        let authorities = certificates.map(|one| AttributeAuthority::new(one).expect("no CA"));
        let read = |pem| AttributeCertificate::from_file_content(pem).expect("a good file");
        let issued = [
            file!("attributes/research.pem"),
            file!("attributes/sales.pem"),
            file!("attributes/pkcs1.pem"),
            file!("attributes/pss.pem"),
        ]
        .map(read);
        // The other holder's is never looked at.
        let known = vec![Arc::new(read(file!("attributes/sun.pem")))];
        let roots = [certificate(file!("attributes/root.pem"))];
        let groups = ["research", "Sales", "2.5.4.3", "octets"];
        Self {
            store: AttributeStore::new(authorities.into(), &roots, known).expect("a good root"),
            holder: certificate(file!("certs/moon-ecdsa256.pem")),
            issued: (issued.iter())
                .map(|one| signed_part(one.der()).expect("it was read").to_vec())
                .collect(),
            issuer,
            wanted: groups.map(|group| group.parse().expect("a group")).into(),
        }
    }

    /// The groups that the attribute certificates prove.
    pub(crate) fn prove(&self, all: &[Vec<u8>], policy: RevocationPolicy) -> Vec<GroupName> {
        let mut sent = PeerAttributes::new(all.iter().map(Vec::as_slice));
        let nothing = RevocationStore::default();
        let terms = AttributeTerms {
            now: NOW,
            revocation: Revocation {
                policy,
                store: &nothing,
                asked: true,
            },
            is_ours: &|name| *name == SubjectName::domain("gw.example.org"),
        };
        let mut prove = || {
            let (holder, wanted) = (&self.holder, &self.wanted);
            self.store.memberships(&mut sent, holder, wanted, &terms)
        };
        let first = prove();
        assert_eq!(prove(), first, "the second connection");
        match first {
            Ok(Memberships::Proved(proved)) => {
                assert!(!proved.is_empty());
                assert!(proved.iter().all(|group| self.wanted.contains(group)));
                proved
            }
            Ok(Memberships::Needs(_)) => Vec::new(),
            Err(error) => {
                let _ = error.to_string();
                Vec::new()
            }
        }
    }

    /// Replaces the signature of an attribute certificate with one of `issuer`.
    fn sign(&self, attributes: &[u8]) -> Option<Vec<u8>> {
        signed(&self.issuer, signed_part(attributes)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The seed proves each kind of group only with the signature that the target adds.
    #[test]
    fn the_seed_that_is_signed_here_proves_groups() {
        let mut seed = &include_bytes!("../corpus/attributes/signed-here")[..];
        let data = crate::packets::next_packet(&mut seed).expect("an attribute certificate");
        let world = World::get();
        let policy = RevocationPolicy::Strict;
        assert!(world.prove(&[data.to_vec()], policy).is_empty());
        let signed = world.sign(data).expect("a signed part");
        assert_eq!(world.prove(&[signed], policy).len(), 3);
    }
}
