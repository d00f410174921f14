//! Parses proposals such as `aes128gcm16-prfsha256-x25519`, `aes256-sha256-modp2048` and `default`.
//! It does not negotiate them.

use esplanade_crypto::iana::{Encryption, Group, Integrity, Prf, Requirement, SequenceNumbers};
use esplanade_ike::config::{EspProposal, IkeProposal};

use super::diagnostics::{Diagnostic, Diagnostics, quoted};
use super::keywords::{Algorithm, keyword};
use super::tree::SectionNode;
use super::value::{ValueError, ValueResult, given, parts, report};

use Encryption::*;

/// The algorithms that a connection permits beside the usual ones.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Consent {
    /// Weak algorithms.
    pub legacy: bool,
    /// Ciphers whose numbers are for private use.
    pub private_use: bool,
}

/// The reason why a proposal is not taken.
enum Refusal {
    Wrong(ValueError),
    /// Only legacy peers need its algorithms, and the connection is for none.
    Weak(Vec<ValueError>),
}

impl From<ValueError> for Refusal {
    fn from(wrong: ValueError) -> Self {
        Self::Wrong(wrong)
    }
}

/// Reads a list of proposals. Weak ones are left out with a warning if others remain: public configurations offer both,
/// and the peer takes what is left. If none remains, the weak ones are errors.
fn read<T>(
    node: &SectionNode,
    key: &str,
    d: &mut Diagnostics,
    mut parse: impl FnMut(&str) -> Result<Vec<T>, Refusal>,
) -> Option<Vec<T>> {
    let entry = given(node, key)?;
    let (mut taken, mut left_out) = (Vec::new(), Vec::new());
    for part in parts(key, entry, d) {
        match parse(part) {
            Ok(proposals) => taken.extend(proposals),
            Err(Refusal::Wrong(bad)) => report(key, bad, entry.value.at, d),
            Err(Refusal::Weak(bad)) => left_out.push((part, bad)),
        }
    }
    let mut told = Vec::new();
    for (part, bad) in left_out {
        for bad in bad {
            if !taken.is_empty() {
                let what = format!("`{key}`: {} is left out: {}", quoted(part), bad.what);
                d.push(Diagnostic::warning(what).at(entry.value.at).help(bad.help));
            } else if !told.contains(&bad.what) {
                told.push(bad.what.clone());
                report(key, bad, entry.value.at, d);
            }
        }
    }
    taken.shrink_to_fit();
    Some(taken)
}

/// The algorithms of one proposal, by type. The order within a type is the order of preference.
#[derive(Default)]
struct ListedAlgorithms {
    encryption: Vec<(Encryption, u16)>,
    gmac: Vec<u16>,
    integrity: Vec<Integrity>,
    prf: Vec<Prf>,
    groups: Vec<Group>,
    sequence_numbers: Vec<SequenceNumbers>,
}

fn add<T: PartialEq>(list: &mut Vec<T>, member: T) {
    if !list.contains(&member) {
        list.push(member);
    }
}

fn list(text: &str) -> ValueResult<ListedAlgorithms> {
    let mut listed = ListedAlgorithms::default();
    for word in text.split('-') {
        match keyword(word.trim())? {
            Algorithm::Encryption(algorithm, bits) => {
                add(&mut listed.encryption, (algorithm, bits))
            }
            Algorithm::Gmac(bits) => add(&mut listed.gmac, bits),
            Algorithm::Integrity(integrity) => add(&mut listed.integrity, integrity),
            Algorithm::Prf(prf) => add(&mut listed.prf, prf),
            Algorithm::Group(group) => add(&mut listed.groups, group),
            Algorithm::SequenceNumbers(bits) => add(&mut listed.sequence_numbers, bits),
        }
    }
    Ok(listed)
}

/// Checks the ciphers of a proposal. Either all ciphers are combined-mode, or none is and the
/// proposal has an integrity algorithm.
fn check_ciphers(text: &str, listed: &ListedAlgorithms) -> ValueResult<()> {
    if listed.encryption.is_empty() {
        let help = "begin with an encryption algorithm such as aes256gcm16";
        return Err(ValueError::new(
            format!("{} does not encrypt", quoted(text)),
            help,
        ));
    }
    let aeads = listed
        .encryption
        .iter()
        .filter(|(algorithm, _)| algorithm.is_aead())
        .count();
    if aeads != 0 && aeads != listed.encryption.len() {
        // RFC 7296 §3.3: combined-mode algorithms go into a proposal of their own.
        let what = format!("{} mixes combined-mode and plain ciphers", quoted(text));
        return Err(ValueError::new(
            what,
            "write two proposals, separated by a comma",
        ));
    }
    if aeads == 0 && listed.integrity.is_empty() {
        // RFC 8221 §4: no encryption without integrity.
        let what = format!("{} has no integrity algorithm", quoted(text));
        return Err(ValueError::new(what, "add sha256, sha384 or sha512"));
    }
    Ok(())
}

/// Returns the PRF with the hash or the MAC of the integrity algorithm, if there is one. strongSwan
/// implies the PRF in the same way.
fn prf_of(integrity: Integrity) -> Option<Prf> {
    match integrity {
        Integrity::HmacSha1_96 => Some(Prf::HmacSha1),
        Integrity::AesXcbc96 => Some(Prf::Aes128Xcbc),
        Integrity::AesCmac96 => Some(Prf::Aes128Cmac),
        Integrity::HmacSha2_256_128 => Some(Prf::HmacSha2_256),
        Integrity::HmacSha2_384_192 => Some(Prf::HmacSha2_384),
        Integrity::HmacSha2_512_256 => Some(Prf::HmacSha2_512),
        _ => None,
    }
}

/// Parses one IKE proposal, or `default`. `legacy` means that the connection permits weak
/// algorithms.
fn ike(text: &str, legacy: bool) -> Result<Vec<IkeProposal>, Refusal> {
    if text == "default" {
        return Ok(ike_default());
    }
    let mut listed = list(text)?;
    check_for_ike(text, &listed)?;
    check_ciphers(text, &listed)?;
    let implied = listed.prf.is_empty();
    if implied {
        let of_integrity = listed.integrity.iter().copied().filter_map(prf_of);
        listed.prf = of_integrity.collect();
        if listed.prf.iter().any(|prf| !prf.legacy()) && !legacy {
            listed.prf.retain(|prf| !prf.legacy());
        }
    }
    if let Some(weak) = listed.prf.iter().find(|prf| prf.legacy() && !legacy) {
        let what = match implied {
            true => format!(
                "{} names no PRF, which makes it {weak}: weak, and only for legacy peers",
                quoted(text)
            ),
            false => format!(
                "{}: {weak} is weak, and only for legacy peers",
                quoted(text)
            ),
        };
        return Err(Refusal::Weak(vec![ValueError::new(
            what,
            "name a PRF such as prfsha256; if the peer knows only SHA-1, write `legacy = yes` into the connection",
        )]));
    }
    if listed.prf.is_empty() {
        let what = format!("{} has no PRF", quoted(text));
        return Err(ValueError::new(what, "add prfsha256, prfsha384 or prfsha512").into());
    }
    if listed.groups.is_empty() {
        let what = format!("{} has no key exchange", quoted(text));
        let help = "add x25519, ecp256, ecp384, modp2048, modp3072 or modp4096";
        return Err(ValueError::new(what, help).into());
    }
    if let Some(weak) = listed.groups.iter().find(|group| group.legacy() && !legacy) {
        return Err(Refusal::Weak(vec![group_refusal(*weak)]));
    }
    if !listed.sequence_numbers.is_empty() {
        let what = format!("{}: sequence numbers belong to ESP", quoted(text));
        return Err(ValueError::new(what, "move esn or noesn to esp_proposals").into());
    }
    if listed
        .encryption
        .iter()
        .all(|(algorithm, _)| algorithm.is_aead())
    {
        listed.integrity.clear();
    }
    Ok(vec![IkeProposal {
        encryption: listed.encryption,
        integrity: listed.integrity,
        prf: listed.prf,
        groups: listed.groups,
    }])
}

/// The weakness of a group that is only for legacy peers (RFC 8247 §2.4).
fn group_weakness(group: Group) -> &'static str {
    match group {
        Group::Modp1024 | Group::Modp1024Subgroup160 => {
            "a 1024-bit group is within reach of well-funded attackers"
        }
        Group::Modp1536 => "a 1536-bit group is below today's minimum of 2048 bits",
        _ => "its small subgroups are unsafe",
    }
}

fn group_refusal(group: Group) -> ValueError {
    let what = format!(
        "{group} is for legacy peers only (RFC 8247): {}",
        group_weakness(group)
    );
    let help = match group {
        // Their own documentation names these ways.
        Group::Modp1024 => {
            "Windows and Azure offer it by default: choose modp2048, ecp256 or ecp384 there (Windows: \
             Set-VpnConnectionIPsecConfiguration; Azure: a custom IPsec policy); else write `legacy = yes` into the \
             connection"
        }
        _ => {
            "use x25519, ecp256 or modp3072; `legacy = yes` in the connection permits it for an old peer"
        }
    };
    ValueError::new(what, help)
}

/// Warns of each group that is only for legacy peers.
fn doubtful_groups<'a>(
    groups: impl Iterator<Item = &'a Group>,
) -> impl Iterator<Item = AlgorithmFinding> {
    let mut seen = Vec::new();
    groups
        .filter(|group| group.legacy())
        .for_each(|&group| add(&mut seen, group));
    seen.into_iter().map(|group| {
        AlgorithmFinding::Doubtful(
            format!("{group} is weak (RFC 8247): {}", group_weakness(group)),
            "use x25519, ecp256 or modp3072 as soon as the peer can",
        )
    })
}

/// Reads the proposals of a connection. `legacy` means that it permits weak algorithms.
pub(crate) fn connection(
    node: &SectionNode,
    legacy: bool,
    d: &mut Diagnostics,
) -> Vec<IkeProposal> {
    let proposals = read(node, "proposals", d, |text| ike(text, legacy))
        .filter(|proposals| !proposals.is_empty())
        .unwrap_or_else(ike_default);
    let groups = proposals.iter().flat_map(|proposal| &proposal.groups);
    push_findings(node, "proposals", doubtful_groups(groups), d);
    proposals
}

/// Refuses algorithms that the IKE SA must not use: those that do not encrypt, and weak ones.
fn check_for_ike(text: &str, listed: &ListedAlgorithms) -> Result<(), Refusal> {
    let ciphers = listed.encryption.iter().map(|(cipher, _)| *cipher);
    let ciphers = ciphers.filter(|cipher| !cipher.for_ike());
    let integrity = listed.integrity.iter().filter(|one| !one.for_ike());
    let gmac = listed.gmac.iter().map(|_| (NullAuthAesGmac.name(), false));
    let refused: Vec<_> = ciphers
        .clone()
        .map(|cipher| (cipher.name(), cipher.legacy()))
        .chain(integrity.map(|one| (one.name(), one.legacy())))
        .chain(gmac)
        .collect();
    // An algorithm that is wrong is told before a weak one.
    let Some((name, weak)) = refused.iter().min_by_key(|(_, weak)| *weak) else {
        return Ok(());
    };
    let why = match ciphers.into_iter().any(Encryption::private_use) {
        true => ": ciphers for private use are for children only",
        false => "",
    };
    let bad = ValueError::new(
        format!("{}: {name} is not for IKE SAs{why}", quoted(text)),
        "use aes256gcm16, or aes256 with sha256",
    );
    Err(match weak {
        true => Refusal::Weak(vec![bad]),
        false => Refusal::Wrong(bad),
    })
}

/// Parses one ESP proposal, or `default`.
fn esp(text: &str) -> ValueResult<Vec<EspProposal>> {
    if text == "default" {
        return Ok(esp_default());
    }
    let mut listed = list(text)?;
    for bits in std::mem::take(&mut listed.gmac) {
        add(&mut listed.encryption, (NullAuthAesGmac, bits));
    }
    check_ciphers(text, &listed)?;
    if listed
        .encryption
        .iter()
        .all(|(algorithm, _)| algorithm.is_aead())
    {
        listed.integrity.clear();
    }
    of_child(text, listed)
}

/// Parses one AH proposal, or `default`.
fn ah(text: &str) -> ValueResult<Vec<EspProposal>> {
    if text == "default" {
        return ah("sha256-sha384-sha512-esn-noesn");
    }
    let mut listed = list(text)?;
    for bits in std::mem::take(&mut listed.gmac) {
        let gmac = match bits {
            128 => Integrity::Aes128Gmac,
            192 => Integrity::Aes192Gmac,
            _ => Integrity::Aes256Gmac,
        };
        add(&mut listed.integrity, gmac);
    }
    if let Some((cipher, _)) = listed.encryption.first() {
        let what = format!("{}: AH does not encrypt, and {cipher} does", quoted(text));
        return Err(ValueError::new(
            what,
            "name integrity algorithms only, or use esp_proposals",
        ));
    }
    if listed.integrity.is_empty() {
        let what = format!("{} has no integrity algorithm", quoted(text));
        return Err(ValueError::new(what, "add sha256, sha384 or sha512"));
    }
    of_child(text, listed)
}

/// Completes a child's proposal with the rules that ESP and AH share.
fn of_child(text: &str, mut listed: ListedAlgorithms) -> ValueResult<Vec<EspProposal>> {
    if !listed.prf.is_empty() {
        let what = format!("{}: a PRF has no place in a child's proposal", quoted(text));
        return Err(ValueError::new(
            what,
            "remove it; the PRF belongs into `proposals` of the connection",
        ));
    }
    if listed.sequence_numbers.is_empty() {
        listed.sequence_numbers.push(SequenceNumbers::Bits32);
    }
    Ok(vec![EspProposal {
        encryption: listed.encryption,
        integrity: listed.integrity,
        groups: listed.groups,
        sequence_numbers: listed.sequence_numbers,
    }])
}

/// A member of a child's proposals: the gateway puts the others, or the default ones, into the order of their costs.
const ADAPTIVE: &str = "adaptive";

/// Tells whether the gateway orders the child's ESP proposals by their costs.
pub(crate) fn is_adaptive(node: &SectionNode) -> bool {
    let entry = given(node, "esp_proposals");
    entry.is_some_and(|entry| {
        let mut parts = entry.value.value.peek().split(',');
        parts.any(|one| one.trim() == ADAPTIVE)
    })
}

/// Reads the proposals of a child from `esp_proposals` or `ah_proposals`.
pub(crate) fn child(node: &SectionNode, consent: Consent, d: &mut Diagnostics) -> Vec<EspProposal> {
    let parse = |text: &str| match text {
        ADAPTIVE => Ok(Vec::new()),
        text => esp(text),
    };
    let esp = of_key(node, "esp_proposals", parse, consent, d);
    let ah = of_key(node, "ah_proposals", ah, consent, d);
    if let (Some(_), Some(_), Some(entry)) = (&esp, &ah, given(node, "ah_proposals")) {
        let bad = ValueError::new(
            "a child uses ESP or AH, not both",
            "remove one of esp_proposals and ah_proposals",
        );
        report("ah_proposals", bad, entry.value.at, d);
    }
    ah.or(esp)
        .filter(|list| !list.is_empty())
        .unwrap_or_else(esp_default)
}

fn of_key(
    node: &SectionNode,
    key: &str,
    mut parse: impl FnMut(&str) -> ValueResult<Vec<EspProposal>>,
    consent: Consent,
    d: &mut Diagnostics,
) -> Option<Vec<EspProposal>> {
    let proposals = read(node, key, d, |text| {
        let proposals = parse(text)?;
        let weak = match consent.legacy {
            true => Vec::new(),
            false => weaknesses(&proposals),
        };
        match weak.is_empty() {
            true => Ok(proposals),
            false => Err(Refusal::Weak(weak)),
        }
    })?;
    push_findings(node, key, doubts(&proposals), d);
    push_findings(node, key, private_use(&proposals, consent), d);
    Some(proposals)
}

fn push_findings(
    node: &SectionNode,
    key: &str,
    findings: impl IntoIterator<Item = AlgorithmFinding>,
    d: &mut Diagnostics,
) {
    let Some(entry) = given(node, key) else {
        return;
    };
    for finding in findings {
        match finding {
            AlgorithmFinding::Refused(bad) => report(key, bad, entry.value.at, d),
            AlgorithmFinding::Doubtful(what, help) => d.push(
                Diagnostic::warning(format!("`{key}`: {what}"))
                    .at(entry.value.at)
                    .help(help),
            ),
        }
    }
}

enum AlgorithmFinding {
    Refused(ValueError),
    Doubtful(String, &'static str),
}

/// An algorithm's name, what RFC 8221 says of it, and whether only legacy peers need it.
type Named = (&'static str, Requirement, bool);

/// Returns the ciphers and integrity algorithms of these proposals, each once.
fn algorithms(proposals: &[EspProposal]) -> Vec<Named> {
    let mut seen = Vec::new();
    for proposal in proposals {
        for &(cipher, bits) in &proposal.encryption {
            add(
                &mut seen,
                (cipher.name(), cipher.requirement(bits), cipher.legacy()),
            );
        }
        for integrity in &proposal.integrity {
            add(
                &mut seen,
                (
                    integrity.name(),
                    integrity.requirement(),
                    integrity.legacy(),
                ),
            );
        }
    }
    seen
}

/// Lists the algorithms that only legacy peers need (RFC 8221, RFC 8247).
fn weaknesses(proposals: &[EspProposal]) -> Vec<ValueError> {
    let legacy = algorithms(proposals)
        .into_iter()
        .filter(|(.., legacy)| *legacy);
    let mut weak: Vec<_> = legacy
        .map(|(name, requirement, _)| {
            ValueError::new(
                format!("{name} {requirement} be used (RFC 8221): {}", weakness(name)),
                "use aes256gcm16 or aes256-sha256; `legacy = yes` in the connection permits it for an old peer",
            )
        })
        .collect();
    let mut groups = proposals.iter().flat_map(|proposal| &proposal.groups);
    weak.extend(
        groups
            .find(|group| group.legacy())
            .map(|group| group_refusal(*group)),
    );
    weak
}

/// Lists what RFC 8221 and RFC 8247 say against the algorithms of these proposals, one finding for each algorithm.
fn doubts(proposals: &[EspProposal]) -> Vec<AlgorithmFinding> {
    let mut findings = Vec::new();
    for (name, requirement, _) in algorithms(proposals) {
        if requirement <= Requirement::ShouldNot {
            findings.push(AlgorithmFinding::Doubtful(
                format!(
                    "{name} {requirement} be used (RFC 8221): {}",
                    weakness(name)
                ),
                "use aes256gcm16 or aes256-sha256 as soon as the peer can",
            ));
        } else if name == Null.name() || name == NullAuthAesGmac.name() {
            findings.push(AlgorithmFinding::Doubtful(
                format!("{name} authenticates packets and does not encrypt them"),
                "use aes256gcm16 if anybody on the way might read them",
            ));
        }
    }
    let groups = proposals.iter().flat_map(|proposal| &proposal.groups);
    findings.extend(doubtful_groups(groups));
    findings
}

/// Lists what is wrong with ciphers for private use: consent is missing, or an integrity algorithm does not go with one.
fn private_use(proposals: &[EspProposal], consent: Consent) -> Vec<AlgorithmFinding> {
    let mut seen = Vec::new();
    for proposal in proposals {
        let ciphers = proposal.encryption.iter().map(|(cipher, _)| *cipher);
        for cipher in ciphers.filter(|cipher| cipher.private_use()) {
            let alone = |integrity: &&Integrity| !cipher.goes_with(**integrity);
            add(
                &mut seen,
                (cipher, proposal.integrity.iter().find(alone).copied()),
            );
        }
    }
    let refusal = |(cipher, misfit): (Encryption, Option<Integrity>)| match (consent, misfit) {
        (
            Consent {
                private_use: false, ..
            },
            _,
        ) => Some(ValueError::new(
            format!(
                "{cipher} has the number {}, which is for private use: it may mean another cipher to the peer (RFC 7296 §3.3.2)",
                cipher.number()
            ),
            "use aes256gcm16 or aes256-sha256; if the peer is known to give the number this meaning, write \
             `private_use = yes` into the connection",
        )),
        (_, Some(integrity)) => Some(ValueError::new(
            format!("{integrity} does not go with {cipher}"),
            "name sha256 alone beside it, and other integrity algorithms in a proposal of their own",
        )),
        (_, None) => None,
    };
    let refusals = seen.into_iter().filter_map(refusal);
    refusals.map(AlgorithmFinding::Refused).collect()
}

fn weakness(name: &str) -> &'static str {
    match name {
        "ENCR_DES" => "its 56-bit key is broken",
        "ENCR_3DES" => "its 64-bit blocks collide (Sweet32)",
        _ => "its hash is broken",
    }
}

/// The default IKE proposals: combined-mode ciphers first, then CBC with HMAC.
fn ike_default() -> Vec<IkeProposal> {
    use Group::*;
    let prf = vec![Prf::HmacSha2_256, Prf::HmacSha2_384, Prf::HmacSha2_512];
    let groups = vec![Curve25519, Ecp256, Ecp384, Modp3072, Modp4096, Modp2048];
    vec![
        IkeProposal {
            encryption: vec![(AesGcm16, 128), (AesGcm16, 256)],
            integrity: Vec::new(),
            prf: prf.clone(),
            groups: groups.clone(),
        },
        IkeProposal {
            encryption: vec![(AesCbc, 128), (AesCbc, 256)],
            integrity: integrity_default(),
            prf,
            groups,
        },
    ]
}

fn integrity_default() -> Vec<Integrity> {
    vec![
        Integrity::HmacSha2_256_128,
        Integrity::HmacSha2_384_192,
        Integrity::HmacSha2_512_256,
    ]
}

fn esp_default() -> Vec<EspProposal> {
    let sequence_numbers = vec![SequenceNumbers::Bits64, SequenceNumbers::Bits32];
    vec![
        EspProposal {
            encryption: vec![(AesGcm16, 128), (AesGcm16, 256)],
            integrity: Vec::new(),
            groups: Vec::new(),
            sequence_numbers: sequence_numbers.clone(),
        },
        EspProposal {
            encryption: vec![(AesCbc, 128), (AesCbc, 256)],
            // OpenIKED on Linux offers neither AES-GCM nor SHA-256 for ESP by default.
            integrity: integrity_default(),
            groups: Vec::new(),
            sequence_numbers,
        },
    ]
}

#[cfg(test)]
mod tests;
