//! Fuzzes the decoders of certificates, CRLs, OCSP responses and attribute certificates, and the checks behind them.
//! The input chooses something well-formed and changes its structure: random bytes seldom keep the lengths right.

use std::sync::{Arc, LazyLock};

use esplanade_ike::auth::{CertificateRules, Identity, PeerCertificates};
use esplanade_ike::wire::{Cert, CertEncoding};
use esplanade_pki::attributes::AttributeCertificate;
use esplanade_pki::{
    Authorities, Certificate, Crl, KeyPurposes, OcspAnswer, Revocation, RevocationPolicy,
    RevocationStore,
};
use serde_json::Value;

use crate::auth::{AUTHORITY, NOW, issue, issuer, signed_part};
use crate::peers::der_of;

/// The most edits of an input.
const EDITS_MAX: usize = 8;
/// The tags of what can contain other elements.
const OCTET_STRING: u8 = 4;
const BIT_STRING: u8 = 3;
const CONSTRUCTED: u8 = 0x20;
const DEPTH_MAX: usize = 24;
const EXTENSIONS_TAG: u8 = 0xa3;

/// An element of DER. Its content is bytes, or other elements.
#[derive(Clone)]
struct Element {
    tag: u8,
    /// What comes before the elements inside: the unused bits of a BIT STRING.
    before: Vec<u8>,
    inside: Vec<Element>,
    /// The length is written longer than it need be, or is wrong by this.
    long_form: bool,
    excess: usize,
}

impl Element {
    /// All elements of the bytes, or `None` if they are none.
    fn all(mut bytes: &[u8], depth: usize) -> Option<Vec<Self>> {
        let mut elements = Vec::new();
        while !bytes.is_empty() {
            let (header, len) = crate::auth::der_header(bytes)?;
            let content = bytes.get(header..header.checked_add(len)?)?;
            elements.push(Self::new(bytes[0], content, depth));
            bytes = &bytes[header + len..];
        }
        Some(elements)
    }

    fn new(tag: u8, content: &[u8], depth: usize) -> Self {
        let skipped = usize::from(tag == BIT_STRING).min(content.len());
        let (before, rest) = content.split_at(skipped);
        let nests = tag & CONSTRUCTED != 0 || matches!(tag, OCTET_STRING | BIT_STRING);
        let inside = (nests && depth < DEPTH_MAX && !rest.is_empty())
            .then(|| Self::all(rest, depth + 1))
            .flatten();
        Self {
            tag,
            before: match &inside {
                Some(_) => before.to_vec(),
                None => content.to_vec(),
            },
            inside: inside.unwrap_or_default(),
            long_form: false,
            excess: 0,
        }
    }

    fn write(&self, out: &mut Vec<u8>) {
        let mut content = self.before.clone();
        for one in &self.inside {
            one.write(&mut content);
        }
        let len = content.len() + self.excess;
        let written = match (self.long_form, u32::try_from(len).unwrap_or(0)) {
            (false, short @ ..=0x7f) => vec![short.to_be_bytes()[3]],
            (false, long) => {
                let digits = long.to_be_bytes();
                let zeros = digits.iter().take_while(|digit| **digit == 0).count();
                let count = u8::try_from(4 - zeros).unwrap_or(4);
                [&[0x80 | count], &digits[zeros..]].concat()
            }
            (true, len) => [&[0x84], &len.to_be_bytes()[..]].concat(),
        };
        out.push(self.tag);
        out.extend(written);
        out.extend(content);
    }
}

/// Makes a change of the element with the number `at`, counted from the first one, each before those inside.
fn edit(elements: &mut Vec<Element>, at: &mut usize, kind: u8, value: u8) -> bool {
    for index in 0..elements.len() {
        if *at == 0 {
            edit_one(elements, index, kind, value);
            return true;
        }
        *at -= 1;
        if edit(&mut elements[index].inside, at, kind, value) {
            return true;
        }
    }
    false
}

fn edit_one(elements: &mut Vec<Element>, at: usize, kind: u8, value: u8) {
    let copies = usize::from(value);
    if kind % 16 == 9 && at + 1 < elements.len() {
        return elements.swap(at, at + 1);
    }
    let one = &mut elements[at];
    match kind % 16 {
        0 => drop(elements.remove(at)),
        1 => {
            let copy = one.clone();
            elements.insert(at, copy);
        }
        2 => one.tag ^= value.max(1),
        3 => one.tag = value,
        4 => {
            one.before.clear();
            one.inside.clear();
        }
        5 => {
            let place = copies % one.before.len().max(1);
            if let Some(byte) = one.before.get_mut(place) {
                *byte ^= 1;
            }
        }
        6 => one.before.push(value),
        7 => {
            one.before.truncate(copies);
            one.inside.truncate(copies);
        }
        8 => {
            one.before = OIDS[copies % OIDS.len()].to_vec();
            one.inside.clear();
            one.tag = 6;
        }
        10 => {
            one.before = vec![0xff; copies];
            one.inside.clear();
        }
        11 => one.excess = copies.max(1),
        12 => one.long_form = true,
        13 => {
            let copy = one.clone();
            elements.splice(at..at, std::iter::repeat_n(copy, copies));
        }
        14 => {
            let inner = std::mem::take(&mut one.inside);
            let wrapped = Element {
                inside: inner,
                ..Element::new(0x30, &[], 0)
            };
            one.inside = vec![wrapped];
        }
        _ => {
            let place = copies % one.before.len().max(1);
            if let Some(byte) = one.before.get_mut(place) {
                *byte = byte.wrapping_add(1 + value / 16);
            }
        }
    }
}

/// Object identifiers that some decoder knows.
const OIDS: &[&[u8]] = &[
    b"\x55\x1d\x0e",
    b"\x55\x1d\x0f",
    b"\x55\x1d\x11",
    b"\x55\x1d\x12",
    b"\x55\x1d\x13",
    b"\x55\x1d\x14",
    b"\x55\x1d\x15",
    b"\x55\x1d\x18",
    b"\x55\x1d\x1b",
    b"\x55\x1d\x1c",
    b"\x55\x1d\x1d",
    b"\x55\x1d\x1e",
    b"\x55\x1d\x1f",
    b"\x55\x1d\x20",
    b"\x55\x1d\x21",
    b"\x55\x1d\x23",
    b"\x55\x1d\x24",
    b"\x55\x1d\x25",
    b"\x55\x1d\x2e",
    b"\x55\x1d\x36",
    b"\x55\x1d\x37",
    b"\x55\x1d\x38",
    b"\x55\x1d\x20\x00",
    b"\x55\x1d\x25\x00",
    b"\x2b\x06\x01\x05\x05\x07\x01\x01",
    b"\x2b\x06\x01\x05\x05\x07\x01\x04",
    b"\x2b\x06\x01\x05\x05\x07\x30\x01",
    b"\x2b\x06\x01\x05\x05\x07\x30\x01\x01",
    b"\x2b\x06\x01\x05\x05\x07\x30\x01\x02",
    b"\x2b\x06\x01\x05\x05\x07\x30\x01\x05",
    b"\x2b\x06\x01\x05\x05\x07\x30\x01\x06",
    b"\x2b\x06\x01\x05\x05\x07\x0a\x04",
    b"\x2b\x06\x01\x05\x05\x07\x03\x01",
    b"\x2b\x06\x01\x05\x05\x07\x03\x02",
    b"\x2b\x06\x01\x05\x05\x07\x03\x09",
    b"\x2b\x06\x01\x05\x05\x07\x03\x11",
    b"\x2b\x06\x01\x05\x05\x08\x02\x02",
    b"\x2a\x86\x48\x86\xf7\x0d\x01\x01\x01",
    b"\x2a\x86\x48\x86\xf7\x0d\x01\x01\x05",
    b"\x2a\x86\x48\x86\xf7\x0d\x01\x01\x08",
    b"\x2a\x86\x48\x86\xf7\x0d\x01\x01\x0a",
    b"\x2a\x86\x48\x86\xf7\x0d\x01\x01\x0b",
    b"\x2a\x86\x48\x86\xf7\x0d\x01\x01\x0c",
    b"\x2a\x86\x48\x86\xf7\x0d\x01\x01\x0d",
    b"\x2a\x86\x48\x86\xf7\x0d\x01\x01\x0e",
    b"\x2a\x86\x48\x86\xf7\x0d\x01\x09\x01",
    b"\x2a\x86\x48\xce\x3d\x02\x01",
    b"\x2a\x86\x48\xce\x3d\x03\x01\x07",
    b"\x2a\x86\x48\xce\x3d\x04\x03\x01",
    b"\x2a\x86\x48\xce\x3d\x04\x03\x02",
    b"\x2a\x86\x48\xce\x3d\x04\x03\x03",
    b"\x2a\x86\x48\xce\x3d\x04\x03\x04",
    b"\x2b\x81\x04\x00\x0a",
    b"\x2b\x81\x04\x00\x22",
    b"\x2b\x81\x04\x00\x23",
    b"\x2b\x65\x70",
    b"\x2b\x65\x71",
    b"\x2b\x0e\x03\x02\x1a",
    b"\x60\x86\x48\x01\x65\x03\x04\x02\x01",
    b"\x60\x86\x48\x01\x65\x03\x04\x02\x02",
    b"\x60\x86\x48\x01\x65\x03\x04\x02\x03",
    b"\x60\x86\x48\x01\x65\x03\x04\x02\x04",
    b"\x60\x86\x48\x01\x65\x03\x04\x02\x08",
    b"\x60\x86\x48\x01\x65\x03\x04\x02\x09",
    b"\x60\x86\x48\x01\x65\x03\x04\x02\x0a",
    b"\x60\x86\x48\x01\x65\x03\x04\x03\x0e",
    b"\x60\x86\x48\x01\x65\x03\x04\x03\x0f",
    b"\x60\x86\x48\x01\x65\x03\x04\x03\x10",
    b"\x60\x86\x48\x01\x65\x03\x04\x03\x11",
    b"\x60\x86\x48\x01\x65\x03\x04\x03\x12",
    b"\x60\x86\x48\x01\x65\x03\x04\x03\x13",
    b"\x55\x04\x03",
    b"\x55\x04\x06",
    b"\x55\x04\x0a",
    b"\x09\x92\x26\x89\x93\xf2\x2c\x64\x01\x19",
    b"\x09\x92\x26\x89\x93\xf2\x2c\x64\x01\x01",
];

/// The kinds of things that are changed, by byte 0 of the input.
pub const KINDS: [&str; 5] = ["certificate", "CRL", "answer", "attributes", "path"];

/// What can be changed.
struct Templates {
    /// Certificates that the authority of the other targets has issued.
    certificates: Vec<Vec<u8>>,
    crls: Vec<Vec<u8>>,
    answers: Vec<Vec<u8>>,
    attributes: Vec<Vec<u8>>,
    paths: Vec<Path>,
}

/// A path of `vectors/paths` with what says whether it is revoked.
struct Path {
    chain: Vec<Vec<u8>>,
    authorities: Arc<Authorities>,
    crls: Vec<Vec<u8>>,
    answers: Vec<Vec<u8>>,
}

static TEMPLATES: LazyLock<Templates> = LazyLock::new(Templates::new);

impl Templates {
    fn new() -> Self {
        let files = [
            include_str!("../../vectors/paths/openssl.json"),
            include_str!("../../vectors/paths/pkits.json"),
            include_str!("../../vectors/paths/pkits-crls.json"),
            include_str!("../../vectors/paths/hashes.json"),
            include_str!("../../vectors/paths/revocation.json"),
            include_str!("../../vectors/paths/ocsp.json"),
        ];
        let files = files.map(|text| serde_json::from_str::<Value>(text).expect("good vectors"));
        let all = |kind: &str| -> Vec<Vec<u8>> {
            let of_file = |file: &Value| -> Vec<Vec<u8>> {
                let labels = file[kind].as_object().into_iter().flatten();
                labels.filter_map(|(_, text)| der_of(text)).collect()
            };
            files.iter().flat_map(of_file).collect()
        };
        let issuer = issuer();
        let extended = all("certificates");
        let extended = extended.iter().filter_map(|der| extensions_of(der));
        let mut distinct: Vec<Vec<u8>> = Vec::new();
        for extensions in extended {
            if !distinct.contains(&extensions) {
                distinct.push(extensions);
            }
        }
        let made = |extensions: Vec<u8>| issue(&issuer, AUTHORITY, AUTHORITY, &extensions);
        Self {
            certificates: distinct.into_iter().map(made).collect(),
            crls: all("crls"),
            answers: all("answers"),
            attributes: ATTRIBUTES
                .iter()
                .map(|pem| AttributeCertificate::from_file_content(pem))
                .map(|read| read.expect("a good file").der().to_vec())
                .collect(),
            paths: files.iter().flat_map(paths_of).collect(),
        }
    }
}

const ATTRIBUTES: [&[u8]; 5] = [
    include_bytes!("../../vectors/ike/attributes/research.pem"),
    include_bytes!("../../vectors/ike/attributes/sales.pem"),
    include_bytes!("../../vectors/ike/attributes/pkcs1.pem"),
    include_bytes!("../../vectors/ike/attributes/pss.pem"),
    include_bytes!("../../vectors/ike/attributes/renewed.pem"),
];

/// The content of the sequence of extensions.
fn extensions_of(certificate: &[u8]) -> Option<Vec<u8>> {
    let [tbs] = &Element::all(signed_part(certificate)?, 0)?[..] else {
        return None;
    };
    let found = tbs.inside.iter().find(|one| one.tag == EXTENSIONS_TAG)?;
    let mut content = Vec::new();
    for extension in &found.inside.first()?.inside {
        extension.write(&mut content);
    }
    Some(content)
}

fn paths_of(file: &Value) -> Vec<Path> {
    let list = |case: &Value, name: &str, kind: &str| -> Vec<Vec<u8>> {
        let labels = case[name].as_array().into_iter().flatten();
        labels
            .filter_map(|label| der_of(&file[kind][label.as_str()?]))
            .collect()
    };
    let path = |case: &Value| {
        let root = case["root"].as_str().unwrap_or("root");
        let root = Certificate::from_der(&der_of(&file["certificates"][root])?).ok()?;
        let mut chain = list(case, "chain", "certificates");
        if chain.is_empty() {
            chain = ["leaf", "ca"]
                .iter()
                .filter_map(|label| der_of(&file["certificates"][label]))
                .collect();
        }
        Some(Path {
            chain,
            authorities: Arc::new(Authorities::named(&[root], &[]).ok()?),
            crls: list(case, "crls", "crls"),
            answers: list(case, "answers", "answers"),
        })
    };
    let cases = file["cases"].as_array().into_iter().flatten();
    cases.filter_map(path).collect()
}

/// Byte 0 is the kind, and bytes 1 and 2 choose the one of that kind. Edits follow, of three bytes each: the kind, the
/// number of the element, a value.
pub fn der_edits(data: &[u8]) {
    let Some((&[kind, high, low], edits)) = data.split_first_chunk() else {
        return;
    };
    let at = usize::from(u16::from_be_bytes([high, low]));
    let templates = &*TEMPLATES;
    let kind = usize::from(kind) % KINDS.len();
    let lists = [
        &templates.certificates,
        &templates.crls,
        &templates.answers,
        &templates.attributes,
    ];
    let path = &templates.paths[at % templates.paths.len()];
    let template = match lists.get(kind) {
        Some(list) => &list[at % list.len()],
        None => &path.chain[0],
    };
    let check = |der: &[u8]| match kind {
        0 => crate::auth::certificates(&[&[0], &prefixed(der)[..]].concat()),
        1 => crate::revocation::revocation(&prefixed(der)),
        2 => check_answer(der),
        3 => crate::attributes::attributes(&prefixed(der)),
        _ => path.verify(der),
    };
    let mut elements = Element::all(template, 0).unwrap_or_default();
    for &[kind, at, value] in edits.as_chunks::<3>().0.iter().take(EDITS_MAX) {
        if !edit(&mut elements, &mut usize::from(at), kind, value) {
            return;
        }
    }
    let mut bytes = Vec::new();
    elements.iter().for_each(|one| one.write(&mut bytes));
    if bytes.len() <= usize::from(u16::MAX) {
        check(&bytes);
    }
}

/// The bytes behind two bytes of length.
fn prefixed(der: &[u8]) -> Vec<u8> {
    let len = u16::try_from(der.len()).unwrap_or(u16::MAX);
    [&len.to_be_bytes(), der].concat()
}

/// An answer as it is, and what its responder signs, which the target signs again.
fn check_answer(der: &[u8]) {
    let mut input = prefixed(der);
    let signs = |one: &Element| one.tag == 0x30 && one.inside.len() >= 3;
    let basic = Element::all(der, 0).unwrap_or_default();
    let mut inside = basic.iter();
    while let Some(one) = inside.next() {
        if signs(one)
            && let Some(data) = one.inside.first()
        {
            let mut bytes = Vec::new();
            data.write(&mut bytes);
            input.extend(prefixed(&bytes));
            break;
        }
        inside = one.inside.iter();
        if one.inside.len() == 2 {
            inside.next();
        }
    }
    crate::revocation::ocsp(&input);
}

impl Path {
    /// Verifies the path with another certificate in the first place, under each policy.
    fn verify(&self, first: &[u8]) {
        let chain = std::iter::once(first).chain(self.chain[1..].iter().map(Vec::as_slice));
        let mut sent: Vec<Cert> = chain
            .map(|der| cert(CertEncoding::X509_SIGNATURE, der))
            .collect();
        sent.extend(self.answers.iter().map(|der| cert(CertEncoding::OCSP, der)));
        let subject = Certificate::from_der(first).map(|one| Identity::Dn(one.subject().clone()));
        let Ok(identity) = subject else {
            let _ = PeerCertificates::new(&sent.iter().collect::<Vec<_>>());
            return;
        };
        let crls = self.crls.iter().filter_map(|der| Crl::from_der(der).ok());
        let mut store = RevocationStore::new(crls.map(Arc::new).collect());
        let answers = self
            .answers
            .iter()
            .filter_map(|der| OcspAnswer::from_der(der).ok());
        answers.for_each(|answer| store.add_answer(Arc::new(answer)));
        let mut accepted = Vec::new();
        for policy in [RevocationPolicy::Strict, RevocationPolicy::Relaxed] {
            let rules = CertificateRules {
                purposes: KeyPurposes::Any,
                ..CertificateRules::default()
            };
            let revocation = Revocation {
                policy,
                store: &store,
                asked: true,
            };
            let mut sent = PeerCertificates::new(&sent.iter().collect::<Vec<_>>());
            let verified = sent.verify(&self.authorities, &identity, NOW, &rules, &revocation);
            accepted.push(verified.is_ok());
            drop(verified.map_err(|error| format!("{error} {error:?}")));
        }
        assert!(
            !accepted[0] || accepted[1],
            "a stricter policy accepts more"
        );
    }
}

fn cert(encoding: CertEncoding, der: &[u8]) -> Cert {
    let data = der.to_vec();
    Cert { encoding, data }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is not changed is written as it was read.
    #[test]
    fn elements_are_written_as_they_are_read() {
        let templates = &*TEMPLATES;
        assert!(templates.certificates.len() > 100 && templates.paths.len() > 500);
        let lists = [
            &templates.certificates,
            &templates.crls,
            &templates.answers,
            &templates.attributes,
        ];
        for template in lists.into_iter().flatten() {
            let mut again = Vec::new();
            let elements = Element::all(template, 0).unwrap();
            elements.iter().for_each(|one| one.write(&mut again));
            assert!(again == *template);
        }
    }

    /// Each kind of edit changes something of an element.
    #[test]
    fn every_edit_changes_something() {
        let template = &TEMPLATES.certificates[0];
        for kind in 0..16 {
            let changes = |at: usize| {
                let mut elements = Element::all(template, 0).unwrap();
                assert!(edit(&mut elements, &mut at.clone(), kind, 3), "{kind}");
                let mut changed = Vec::new();
                elements.iter().for_each(|one| one.write(&mut changed));
                changed != *template
            };
            // What has other elements inside has no bytes of its own.
            assert!((4..12).any(changes), "{kind}");
            let mut elements = Element::all(template, 0).unwrap();
            assert!(!edit(&mut elements, &mut 10_000, kind, 3));
        }
        // An element with the tag of the sequence, as the helper of the seeds writes it.
        let made = crate::auth::der(0x30, &[b"\x05\x00"]);
        let [one] = &Element::all(&made, 0).unwrap()[..] else {
            panic!("one element");
        };
        assert_eq!((one.tag, one.inside.len()), (0x30, 1));
    }
}
