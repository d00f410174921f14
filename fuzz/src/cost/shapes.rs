//! The shapes that a message or an answer can be filled with: many of each thing of which there can be many.

use esplanade_ike::wire::{
    Auth, AuthMethod, Cert, CertEncoding, CertReq, Configuration, ConfigurationType, Delete, Id,
    IdType, Notify, NotifyType, Payload, PayloadType, Proposal, ProtocolId, TrafficSelector,
    Transform, TransformType, encode_chain,
};

use super::{Door, input};
use crate::auth::der;
use crate::endpoint::common::script::Script;

/// A kind of input that can have any length.
#[derive(Debug)]
pub struct Shape {
    pub name: &'static str,
    pub door: Door,
    /// Makes the content, of about this length.
    content: fn(usize) -> Vec<u8>,
}

impl Shape {
    const fn new(name: &'static str, door: Door, content: fn(usize) -> Vec<u8>) -> Self {
        Self {
            name,
            door,
            content,
        }
    }

    pub fn content(&self, len: usize) -> Vec<u8> {
        (self.content)(len)
    }

    /// An input of the target, of about this length.
    pub fn input(&self, len: usize) -> Vec<u8> {
        input(self.door, &self.content(len))
    }
}

pub const SHAPES: &[Shape] = &[
    // The peer's certificate, which anybody can make.
    Shape::new("subject", Door::Auth, |len| stranger(&rdns(len), &[])),
    Shape::new("subject-set", Door::Auth, |len| stranger(&set(len), &[])),
    Shape::new("extensions", Door::Auth, |len| {
        stranger(&[], &repeat(len, |at| extension(&own_id(at), b"\x05\x00")))
    }),
    Shape::new("same-extension", Door::Auth, |len| {
        stranger(&[], &repeat(len, |_| extension(ALTERNATIVE, b"\x30\x00")))
    }),
    Shape::new("nested", Door::Auth, |len| {
        let mut inner = Vec::new();
        for _ in 0..len / 4 {
            inner = der(0x30, &[&inner]);
        }
        stranger(
            &der(0x31, &[&der(0x30, &[b"\x06\x03\x55\x04\x03", &inner])]),
            &[],
        )
    }),
    Shape::new("names", Door::Auth, |len| stranger(&[], &names(len))),
    Shape::new("directory-names", Door::Auth, |len| {
        let one = |at| der(0xa4, &[&der(0x30, &[&rdn(at)])]);
        stranger(&[], &list(ALTERNATIVE, &repeat(len, one)))
    }),
    Shape::new("directory-set", Door::Auth, |len| {
        let name = der(0xa4, &[&der(0x30, &[&set(len)])]);
        stranger(&[], &list(ALTERNATIVE, &name))
    }),
    Shape::new("relative-name", Door::Auth, |len| {
        stranger(&[], &list(POINTS, &relative(len)))
    }),
    Shape::new("relative-names", Door::Auth, |len| {
        stranger(&[], &list(POINTS, &repeat(len, |_| relative(9))))
    }),
    Shape::new("points", Door::Auth, |len| {
        let uri = |at| der(0x30, &[&der(0xa0, &[&der(0xa0, &[&uri(at)])])]);
        stranger(&[], &list(POINTS, &repeat(len, uri)))
    }),
    Shape::new("point-names", Door::Auth, |len| {
        let point = der(0x30, &[&der(0xa0, &[&der(0xa0, &[&repeat(len, uri)])])]);
        stranger(&[], &list(POINTS, &point))
    }),
    Shape::new("point-issuer", Door::Auth, |len| {
        let issuer = der(0xa4, &[&der(0x30, &[&set(len)])]);
        stranger(&[], &list(POINTS, &der(0x30, &[&der(0xa2, &[&issuer])])))
    }),
    Shape::new("access", Door::Auth, |len| {
        let one = |at| der(0x30, &[OCSP_ACCESS, &uri(at)]);
        stranger(&[], &list(ACCESS, &repeat(len, one)))
    }),
    Shape::new("policies", Door::Auth, |len| stranger(&[], &policies(len))),
    Shape::new("mappings", Door::Auth, |len| stranger(&[], &mappings(len))),
    Shape::new("purposes", Door::Auth, |len| stranger(&[], &purposes(len))),
    Shape::new("constraints", Door::Auth, |len| {
        stranger(&[], &constraints(len))
    }),
    Shape::new("certificates", Door::Auth, |len| {
        let one = |_| cert(CertEncoding::X509_SIGNATURE, certificate(&rdn(0), &[]));
        with_certificates(payloads(len, one))
    }),
    Shape::new("answers", Door::Auth, |len| {
        let one = |_| cert(CertEncoding::OCSP, response(&single(0), &[]));
        with_certificates(payloads(len, one))
    }),
    Shape::new("attribute-certificates", Door::Auth, |len| {
        let one = |_| cert(CertEncoding::X509_ATTRIBUTE, attributes(&groups(100), &[]));
        with_certificates(payloads(len, one))
    }),
    Shape::new("fragments", Door::Fragments, |len| {
        stranger(&[], &names(len / 2))
    }),
    // The other payloads of IKE_AUTH.
    Shape::new("identity", Door::Auth, |len| {
        identified(der(0x30, &[&rdns(len)]))
    }),
    Shape::new("identity-set", Door::Auth, |len| {
        identified(der(0x30, &[&set(len)]))
    }),
    Shape::new("auth-notifies", Door::Auth, |len| {
        with_certificates(payloads(len, |at| notify(40_000 + (at % 999) as u16, 0)))
    }),
    Shape::new("auth-requests", Door::Auth, |len| {
        with_certificates(vec![Payload::CertReq(CertReq {
            encoding: CertEncoding::X509_SIGNATURE,
            data: vec![7; len],
        })])
    }),
    // IKE_SA_INIT.
    Shape::new("init-notifies", Door::Init, |len| {
        init(payloads(len, |at| notify(40_000 + (at % 999) as u16, 0)))
    }),
    Shape::new("nat-detection", Door::Init, |len| {
        init(payloads(len, |_| {
            notify(NotifyType::NAT_DETECTION_SOURCE_IP.0, 20)
        }))
    }),
    Shape::new("cookies", Door::Init, |len| {
        init(payloads(len, |_| notify(NotifyType::COOKIE.0, 32)))
    }),
    Shape::new("hash-algorithms", Door::Init, |len| {
        init(vec![notify(NotifyType::SIGNATURE_HASH_ALGORITHMS.0, len)])
    }),
    Shape::new("vendors", Door::Init, |len| {
        init(payloads(len, |at| {
            Payload::Vendor(at.to_be_bytes().to_vec())
        }))
    }),
    Shape::new("unknown-payloads", Door::Init, |len| {
        let kind = PayloadType(200);
        let body = Vec::new();
        init(payloads(len, |_| Payload::Unknown {
            kind,
            body: body.clone(),
        }))
    }),
    Shape::new("proposals", Door::Init, |len| proposed(len / 255, 255)),
    Shape::new("transforms", Door::Init, |len| proposed(2040, len / 2040)),
    // An established peer.
    Shape::new("selectors", Door::CreateChild, |len| {
        // 255 fit each payload.
        let hosts = |second: u8| -> Vec<_> {
            let host = |at: usize| std::net::Ipv4Addr::new(10, second, at as u8, 1).into();
            let one = |at| TrafficSelector::addresses(host(at), host(at));
            (0..(len / 32).clamp(1, 255)).map(one).collect()
        };
        child(vec![Payload::TsI(hosts(1)), Payload::TsR(hosts(2))])
    }),
    Shape::new("configuration", Door::CreateChild, |len| {
        let attributes = (0..len / 4).map(|at| (at as u16 & 0x7fff, Vec::new()));
        child(vec![Payload::Configuration(Configuration {
            kind: ConfigurationType::CFG_REQUEST,
            attributes: attributes.collect(),
        })])
    }),
    Shape::new("deletes", Door::Informational, |len| {
        chain(&[Payload::Delete(Delete {
            protocol: ProtocolId::ESP,
            spis: (0..len as u32 / 4).map(|at| 0x0100_0000 + at).collect(),
        })])
    }),
    Shape::new("delete-payloads", Door::Informational, |len| {
        chain(&payloads(len, |at| {
            Payload::Delete(Delete {
                protocol: ProtocolId::AH,
                spis: vec![0x0100_0000 + at as u32],
            })
        }))
    }),
    Shape::new("peer-notifies", Door::Informational, |len| {
        chain(&payloads(len, |at| notify(40_000 + (at % 999) as u16, 0)))
    }),
    // Servers that are asked for the status of certificates.
    Shape::new("crl-entries", Door::Crl, |len| {
        crl(&rdn(0), &repeat(len, |at| entry(at, &[])), &[])
    }),
    Shape::new("crl-entry-issuers", Door::Crl, |len| {
        let issuers = |at| {
            entry(
                at,
                &list(ENTRY_ISSUER, &der(0xa4, &[&der(0x30, &[&rdn(0)])])),
            )
        };
        crl(&rdns(len / 2), &repeat(len / 2, issuers), &[])
    }),
    Shape::new("crl-relative-name", Door::Crl, |len| {
        let point = relative_point(len);
        crl(&rdn(0), &[], &extension(CRL_POINT, &der(0x30, &[&point])))
    }),
    Shape::new("crl-point-names", Door::Crl, |len| {
        let point = der(0xa0, &[&der(0xa0, &[&repeat(len, uri)])]);
        crl(&rdn(0), &[], &extension(CRL_POINT, &der(0x30, &[&point])))
    }),
    Shape::new("crl-extensions", Door::Crl, |len| {
        let extensions = repeat(len, |at| extension(&own_id(at), b"\x05\x00"));
        crl(&rdn(0), &[], &extensions)
    }),
    Shape::new("ocsp-answers", Door::Ocsp, |len| {
        response(&repeat(len, single), &[])
    }),
    Shape::new("ocsp-relative-name", Door::Ocsp, |len| {
        let extensions = list(POINTS, &relative(len));
        response_with(&GOOD[2..], &certificate(&rdn(0), &extensions))
    }),
    Shape::new("ocsp-certificates", Door::Ocsp, |len| {
        response_with(&GOOD[2..], &repeat(len, |_| certificate(&rdn(0), &[])))
    }),
    Shape::new("attribute-groups", Door::Attributes, |len| {
        attributes(&groups(len), &[])
    }),
    Shape::new("attribute-targets", Door::Attributes, |len| {
        let target = |at| der(0xa0, &[&uri(at)]);
        let targets = der(0x30, &[&der(0x30, &[&repeat(len, target)])]);
        attributes(&groups(9), &extension(b"\x55\x1d\x37", &targets))
    }),
    // What an authority has signed.
    Shape::new("issued-names", Door::Issued, names),
    Shape::new("issued-policies", Door::Issued, policies),
    Shape::new("issued-points", Door::Issued, |len| {
        list(POINTS, &repeat(len, |_| relative(9)))
    }),
    Shape::new("authority-constraints", Door::Authority, constraints),
    Shape::new("authority-mappings", Door::Authority, |len| {
        [policies(len / 2), mappings(len / 2)].concat()
    }),
];

const ALTERNATIVE: &[u8] = b"\x55\x1d\x11";
const POINTS: &[u8] = b"\x55\x1d\x1f";
const CRL_POINT: &[u8] = b"\x55\x1d\x1c";
const ENTRY_ISSUER: &[u8] = b"\x55\x1d\x1d";
const ACCESS: &[u8] = b"\x2b\x06\x01\x05\x05\x07\x01\x01";
const OCSP_ACCESS: &[u8] = b"\x06\x08\x2b\x06\x01\x05\x05\x07\x30\x01";
const ED25519: &[u8] = b"\x30\x05\x06\x03\x2b\x65\x70";
const TIMES: &[u8] = b"\x17\x0d250101000000Z\x17\x0d350101000000Z";
/// The ResponseData of an answer about the peer, behind its length.
const GOOD: &[u8] = include_bytes!("../../corpus/ocsp/good");
const SIGNATURE: [u8; 64] = [0x5a; 64];

/// Repeats an element until there are this many bytes.
fn repeat(len: usize, one: impl Fn(usize) -> Vec<u8>) -> Vec<u8> {
    let mut all = Vec::new();
    for at in 0.. {
        let next = one(at);
        if !all.is_empty() && all.len() + next.len() > len {
            break;
        }
        all.extend(next);
    }
    all
}

/// Three letters that are a number, in order.
fn letters(at: usize) -> [u8; 3] {
    [at / 94 / 94, at / 94, at].map(|digit| 33 + (digit % 94) as u8)
}

/// Three letters that may be in a domain name.
fn label(at: usize) -> [u8; 3] {
    letters(at).map(|letter| letter.clamp(b'a', b'z'))
}

fn attribute(at: usize) -> Vec<u8> {
    der(
        0x30,
        &[b"\x06\x03\x55\x04\x03", &der(0x0c, &[&letters(at)])],
    )
}

fn rdn(at: usize) -> Vec<u8> {
    der(0x31, &[&attribute(at)])
}

fn rdns(len: usize) -> Vec<u8> {
    repeat(len, rdn)
}

/// Attributes in falling order, which takes the most steps to sort.
fn falling(len: usize) -> Vec<u8> {
    let count = (len / attribute(0).len()).max(1);
    (0..count).rev().flat_map(attribute).collect()
}

fn set(len: usize) -> Vec<u8> {
    der(0x31, &[&falling(len)])
}

/// DistributionPointName with nameRelativeToCRLIssuer (RFC 5280 §4.2.1.13), in its tag.
fn relative_point(len: usize) -> Vec<u8> {
    der(0xa0, &[&der(0xa1, &[&falling(len)])])
}

fn relative(len: usize) -> Vec<u8> {
    der(0x30, &[&relative_point(len)])
}

fn uri(at: usize) -> Vec<u8> {
    der(0x86, &[b"ldap:", &label(at)])
}

fn extension(id: &[u8], value: &[u8]) -> Vec<u8> {
    der(0x30, &[&der(6, &[id]), &der(4, &[value])])
}

/// An extension whose value is a SEQUENCE.
fn list(id: &[u8], content: &[u8]) -> Vec<u8> {
    extension(id, &der(0x30, &[content]))
}

/// The content of an object identifier that nobody knows.
fn own_id(at: usize) -> [u8; 5] {
    let arc = |shift: u32| (at >> shift) as u8 & 0x7f;
    [0x2b, 6, 0x80 | arc(14) | 1, 0x80 | arc(7), arc(0)]
}

pub(super) fn names(len: usize) -> Vec<u8> {
    let one = |at| der(0x82, &[&label(at)]);
    list(ALTERNATIVE, &repeat(len, one))
}

fn policies(len: usize) -> Vec<u8> {
    let one = |at| der(0x30, &[&der(6, &[&own_id(at)])]);
    list(b"\x55\x1d\x20", &repeat(len, one))
}

fn mappings(len: usize) -> Vec<u8> {
    let one = |at| {
        der(
            0x30,
            &[&der(6, &[&own_id(at)]), &der(6, &[&own_id(at + 1)])],
        )
    };
    list(b"\x55\x1d\x21", &repeat(len, one))
}

fn purposes(len: usize) -> Vec<u8> {
    list(b"\x55\x1d\x25", &repeat(len, |at| der(6, &[&own_id(at)])))
}

fn constraints(len: usize) -> Vec<u8> {
    let one = |at| der(0x30, &[&der(0x82, &[&label(at)])]);
    list(b"\x55\x1d\x1e", &der(0xa1, &[&repeat(len, one)]))
}

/// The extensions of an authority.
pub(super) fn authority() -> Vec<u8> {
    extension(b"\x55\x1d\x13", b"\x30\x03\x01\x01\xff")
}

fn signed(content: &[u8]) -> Vec<u8> {
    der(0x30, &[content, ED25519, &der(3, &[&[0], &SIGNATURE])])
}

/// A certificate that nobody has signed.
fn certificate(subject: &[u8], extensions: &[u8]) -> Vec<u8> {
    let key = der(0x30, &[ED25519, &der(3, &[&[0; 33]])]);
    let extensions = match extensions {
        [] => Vec::new(),
        some => der(0xa3, &[&der(0x30, &[some])]),
    };
    let issuer = der(0x30, &[&rdn(0)]);
    let (times, subject) = (der(0x30, &[TIMES]), der(0x30, &[subject]));
    let parts: [&[u8]; 8] = [
        b"\xa0\x03\x02\x01\x02",
        b"\x02\x01\x01",
        ED25519,
        &issuer,
        &times,
        &subject,
        &key,
        &extensions,
    ];
    signed(&der(0x30, &parts))
}

fn entry(at: usize, extensions: &[u8]) -> Vec<u8> {
    let serial = der(2, &[&[1], &letters(at)]);
    let extensions = match extensions {
        [] => Vec::new(),
        some => der(0x30, &[some]),
    };
    der(0x30, &[&serial, b"\x17\x0d250101000000Z", &extensions])
}

fn crl(issuer: &[u8], entries: &[u8], extensions: &[u8]) -> Vec<u8> {
    let entries = match entries {
        [] => Vec::new(),
        some => der(0x30, &[some]),
    };
    let extensions = match extensions {
        [] => Vec::new(),
        some => der(0xa0, &[&der(0x30, &[some])]),
    };
    let issuer = der(0x30, &[issuer]);
    let parts: [&[u8]; 6] = [
        b"\x02\x01\x01",
        ED25519,
        &issuer,
        TIMES,
        &entries,
        &extensions,
    ];
    signed(&der(0x30, &parts))
}

/// The answer about one certificate (RFC 6960 §4.2.1).
fn single(at: usize) -> Vec<u8> {
    const SHA1: &[u8] = b"\x30\x07\x06\x05\x2b\x0e\x03\x02\x1a";
    let hash = der(4, &[&[7; 20]]);
    let id = der(0x30, &[SHA1, &hash, &hash, &der(2, &[&[1], &letters(at)])]);
    der(0x30, &[&id, b"\x80\x00", b"\x18\x0f20260601000000Z"])
}

fn response(singles: &[u8], certificates: &[u8]) -> Vec<u8> {
    let by_key = der(0xa2, &[&der(4, &[&[7; 20]])]);
    let singles = der(0x30, &[singles]);
    let data = der(0x30, &[&by_key, b"\x18\x0f20260601000000Z", &singles]);
    response_with(&data, certificates)
}

/// An OCSPResponse with this ResponseData.
fn response_with(data: &[u8], certificates: &[u8]) -> Vec<u8> {
    let certificates = match certificates {
        [] => Vec::new(),
        some => der(0xa0, &[&der(0x30, &[some])]),
    };
    let signature = der(3, &[&[0], &SIGNATURE]);
    let basic = der(0x30, &[data, ED25519, &signature, &certificates]);
    let kind = b"\x06\x09\x2b\x06\x01\x05\x05\x07\x30\x01\x01";
    let bytes = der(0x30, &[kind, &der(4, &[&basic])]);
    der(0x30, &[b"\x0a\x01\x00", &der(0xa0, &[&bytes])])
}

/// Values of the attribute `group` (RFC 5755 §4.4.4).
fn groups(len: usize) -> Vec<u8> {
    let one = |at| der(0x30, &[&der(0x30, &[&der(0x0c, &[&letters(at)])])]);
    repeat(len, one)
}

fn attributes(groups: &[u8], extensions: &[u8]) -> Vec<u8> {
    let name = der(0xa4, &[&der(0x30, &[&rdn(0)])]);
    let holder = der(0x30, &[&der(0xa1, &[&name])]);
    let issuer = der(0xa0, &[&der(0x30, &[&name])]);
    let times = der(0x30, &[b"\x18\x0f20250101000000Z\x18\x0f20350101000000Z"]);
    let kind = b"\x06\x08\x2b\x06\x01\x05\x05\x07\x0a\x04";
    let all = der(0x30, &[&der(0x30, &[kind, &der(0x31, &[groups])])]);
    let extensions = match extensions {
        [] => Vec::new(),
        some => der(0x30, &[some]),
    };
    let parts: [&[u8]; 8] = [
        b"\x02\x01\x01",
        &holder,
        &issuer,
        ED25519,
        b"\x02\x01\x01",
        &times,
        &all,
        &extensions,
    ];
    signed(&der(0x30, &parts))
}

/// Repeats a payload until the payloads have this many bytes.
fn payloads(len: usize, one: impl Fn(usize) -> Payload) -> Vec<Payload> {
    let mut content = Vec::new();
    encode_chain(&[one(0)], &mut content).expect("a payload encodes");
    (0..(len / content.len()).max(1)).map(one).collect()
}

/// The type of the first payload, and all payloads.
fn chain(payloads: &[Payload]) -> Vec<u8> {
    let mut content = vec![0];
    let first = encode_chain(payloads, &mut content).expect("the payloads encode");
    content[0] = first.0;
    content
}

fn cert(encoding: CertEncoding, data: Vec<u8>) -> Payload {
    Payload::Cert(Cert { encoding, data })
}

fn notify(kind: u16, len: usize) -> Payload {
    Payload::Notify(Notify::new(NotifyType(kind), vec![1; len]))
}

/// IKE_AUTH with a signature that does not verify.
fn auth(id: Id, others: Vec<Payload>) -> Vec<u8> {
    let auth = Payload::Auth(Auth {
        method: AuthMethod::DIGITAL_SIGNATURE,
        data: [&[7], ED25519, &SIGNATURE].concat(),
    });
    let all = [
        vec![Payload::IdI(id)],
        others,
        vec![auth],
        Script::child_payloads(),
    ];
    chain(&all.concat())
}

fn with_certificates(others: Vec<Payload>) -> Vec<u8> {
    let own = cert(CertEncoding::X509_SIGNATURE, certificate(&rdn(0), &[]));
    let id = Id::new(IdType::FQDN, b"a.example".to_vec());
    auth(id, [vec![own], others].concat())
}

fn stranger(subject: &[u8], extensions: &[u8]) -> Vec<u8> {
    let own = cert(
        CertEncoding::X509_SIGNATURE,
        certificate(subject, extensions),
    );
    auth(Id::new(IdType::FQDN, b"a.example".to_vec()), vec![own])
}

fn identified(name: Vec<u8>) -> Vec<u8> {
    let own = cert(CertEncoding::X509_SIGNATURE, certificate(&rdn(0), &[]));
    auth(Id::new(IdType::DER_ASN1_DN, name), vec![own])
}

fn init(others: Vec<Payload>) -> Vec<u8> {
    let mut all = Script::new().init_payloads();
    all.extend(others);
    chain(&all)
}

/// IKE_SA_INIT with proposals that fit but for their last transform.
fn proposed(len: usize, count: usize) -> Vec<u8> {
    let mut all = Script::new().init_payloads();
    let proposal = |number: usize| Proposal {
        number: (number + 1) as u8,
        protocol: ProtocolId::IKE,
        spi: Vec::new(),
        transforms: (0..(len / 8).clamp(1, 255))
            .map(|at| Transform::new(TransformType::PRF, 0x4000 + at as u16))
            .collect(),
    };
    all[0] = Payload::Sa((0..count.clamp(1, 255)).map(proposal).collect());
    chain(&all)
}

fn child(others: Vec<Payload>) -> Vec<u8> {
    let mut all = Script::create_child_payloads();
    let replaced: Vec<_> = others.iter().map(Payload::kind).collect();
    all.retain(|payload| !replaced.contains(&payload.kind()));
    all.extend(others);
    chain(&all)
}
