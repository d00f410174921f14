//! Bounds of the SETs in names.

use esplanade_testkit::certificate_file as file;

use super::*;
use crate::name::DistinguishedName;
use crate::path::Anchors;

/// Elements of a SET are sorted one by one when they are decoded.
#[test]
fn sets_are_small_wherever_names_are() {
    use x509_cert::attr::AttributeTypeAndValue;
    use x509_cert::der::asn1::{Any, ObjectIdentifier, OctetString, SetOfVec, Utf8StringRef};
    use x509_cert::der::oid::AssociatedOid;
    use x509_cert::der::{Decode, Encode};
    use x509_cert::ext::Extension;
    use x509_cert::ext::pkix::SubjectAltName;
    use x509_cert::ext::pkix::constraints::name::{GeneralSubtree, NameConstraints};
    use x509_cert::ext::pkix::crl::CrlDistributionPoints;
    use x509_cert::ext::pkix::crl::dp::DistributionPoint;
    use x509_cert::ext::pkix::name::{DistributionPointName, GeneralName};
    use x509_cert::name::{RdnSequence, RelativeDistinguishedName};

    let name = |attributes: u32| {
        let attribute = |number: u32| AttributeTypeAndValue {
            oid: ObjectIdentifier::new_unwrap("2.5.4.3"),
            value: Any::from(Utf8StringRef::new(&format!("{number:02}")).unwrap()),
        };
        let set = SetOfVec::from_iter((0..attributes).map(attribute)).unwrap();
        RdnSequence(vec![RelativeDistinguishedName(set)])
    };
    let der = file!("moon-ed25519.pem");
    let original = x509_cert::Certificate::from_der(load(der).der()).unwrap();
    let with = |change: &dyn Fn(&mut x509_cert::TbsCertificate)| {
        let mut changed = original.clone();
        change(&mut changed.tbs_certificate);
        changed.to_der().unwrap()
    };
    fn extend<T: AssociatedOid + Encode>(tbs: &mut x509_cert::TbsCertificate, value: &T) {
        let all = tbs.extensions.as_mut().unwrap();
        all.retain(|other| other.extn_id != T::OID);
        all.push(Extension {
            extn_id: T::OID,
            critical: false,
            extn_value: OctetString::new(value.to_der().unwrap()).unwrap(),
        });
    }
    for (attributes, taken) in [(32, true), (33, false)] {
        let name = name(attributes);
        let der = name.to_der().unwrap();
        assert_eq!(DistinguishedName::from_der(&der).is_some(), taken);
        let directory = || GeneralName::DirectoryName(name.clone());
        let subject = with(&|tbs| tbs.subject = name.clone());
        let issuer = with(&|tbs| tbs.issuer = name.clone());
        let alternative = with(&|tbs| extend(tbs, &SubjectAltName(vec![directory()])));
        let constraints = with(&|tbs| {
            let subtree = GeneralSubtree {
                base: directory(),
                minimum: 0,
                maximum: None,
            };
            let constraints = NameConstraints {
                permitted_subtrees: Some(vec![subtree]),
                excluded_subtrees: None,
            };
            extend(tbs, &constraints);
        });
        // Its tag is not that of a SET.
        let relative = with(&|tbs| {
            let relative = DistributionPointName::NameRelativeToCRLIssuer(name.0[0].clone());
            let point = DistributionPoint {
                distribution_point: Some(relative),
                reasons: None,
                crl_issuer: None,
            };
            extend(tbs, &CrlDistributionPoints(vec![point]));
        });
        for (der, place) in [
            (&subject, "subject"),
            (&issuer, "issuer"),
            (&alternative, "subjectAltName"),
            (&constraints, "name constraints"),
            (&relative, "distribution point"),
        ] {
            let path = Anchors::new(std::iter::once(der.as_slice()));
            // Distribution points that cannot be read are places that cannot be asked.
            let expected = taken || place == "distribution point";
            assert_eq!(path.is_ok(), expected, "path: {place}");
            // Constraints and distribution points are of no interest there.
            let parsed = Certificate::from_der(der);
            let expected = taken || ["name constraints", "distribution point"].contains(&place);
            assert_eq!(parsed.is_ok(), expected, "certificate: {place}");
        }
    }
}
