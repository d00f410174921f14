//! Parses proposals such as `aes128gcm16-prfsha256-x25519`, `aes256-sha256-modp2048` and `default`.
//! It does not negotiate them.

use esplanade_crypto::iana::{Encryption, Group, Integrity, Prf, Requirement, SequenceNumbers};
use esplanade_ike::config::{EspProposal, IkeProposal};

use super::diagnostics::{Diagnostic, Diagnostics, quoted};
use super::keywords::{Algorithm, keyword};
use super::tree::SectionNode;
use super::value::{ValueError, ValueResult, given, read_list, report};

use Encryption::*;

/// The algorithms that a connection permits beside the usual ones.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Consent {
    /// Weak algorithms.
    pub legacy: bool,
    /// Ciphers whose numbers are for private use.
    pub private_use: bool,
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
fn ike(text: &str, legacy: bool) -> ValueResult<Vec<IkeProposal>> {
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
        return Err(ValueError::new(
            what,
            "name a PRF such as prfsha256; if the peer knows only SHA-1, write `legacy = yes` into the connection",
        ));
    }
    if listed.prf.is_empty() {
        return Err(ValueError::new(
            format!("{} has no PRF", quoted(text)),
            "add prfsha256, prfsha384 or prfsha512",
        ));
    }
    if listed.groups.is_empty() {
        let what = format!("{} has no key exchange", quoted(text));
        return Err(ValueError::new(
            what,
            "add x25519, ecp256, ecp384, modp2048, modp3072 or modp4096",
        ));
    }
    if let Some(weak) = listed.groups.iter().find(|group| group.legacy() && !legacy) {
        return Err(group_refusal(*weak));
    }
    if !listed.sequence_numbers.is_empty() {
        let what = format!("{}: sequence numbers belong to ESP", quoted(text));
        return Err(ValueError::new(what, "move esn or noesn to esp_proposals"));
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
    let proposals = read_list(node, "proposals", d, |text| ike(text, legacy))
        .map(|proposals| proposals.concat())
        .filter(|proposals| !proposals.is_empty())
        .unwrap_or_else(ike_default);
    let groups = proposals.iter().flat_map(|proposal| &proposal.groups);
    push_findings(node, "proposals", doubtful_groups(groups), d);
    proposals
}

/// Refuses algorithms that the IKE SA must not use: those that do not encrypt, and weak ones.
fn check_for_ike(text: &str, listed: &ListedAlgorithms) -> ValueResult<()> {
    let cipher = listed.encryption.iter().map(|(cipher, _)| *cipher);
    let cipher = cipher
        .filter(|cipher| !cipher.for_ike())
        .map(Encryption::name);
    let integrity = listed
        .integrity
        .iter()
        .filter(|integrity| !integrity.for_ike());
    let gmac = listed.gmac.iter().map(|_| NullAuthAesGmac.name());
    let mut refused = cipher
        .chain(integrity.map(|integrity| integrity.name()))
        .chain(gmac);
    match refused.next() {
        None => Ok(()),
        Some(name) => {
            let private_use = listed
                .encryption
                .iter()
                .any(|(cipher, _)| cipher.private_use());
            let why = match private_use {
                true => ": ciphers for private use are for children only",
                false => "",
            };
            Err(ValueError::new(
                format!("{}: {name} is not for IKE SAs{why}", quoted(text)),
                "use aes256gcm16, or aes256 with sha256",
            ))
        }
    }
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
    parse: impl FnMut(&str) -> ValueResult<Vec<EspProposal>>,
    consent: Consent,
    d: &mut Diagnostics,
) -> Option<Vec<EspProposal>> {
    let proposals = read_list(node, key, d, parse)?.concat();
    push_findings(node, key, findings(&proposals, consent.legacy), d);
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

/// Lists what RFC 8221 and RFC 8247 say against the algorithms of these proposals, one finding for
/// each algorithm.
fn findings(proposals: &[EspProposal], legacy: bool) -> Vec<AlgorithmFinding> {
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
    let mut findings = Vec::new();
    for (name, requirement, is_legacy) in seen {
        if is_legacy && !legacy {
            findings.push(AlgorithmFinding::Refused(ValueError::new(
                format!("{name} {requirement} be used (RFC 8221): {}", weakness(name)),
                "use aes256gcm16 or aes256-sha256; `legacy = yes` in the connection permits it for an old peer",
            )));
        } else if requirement <= Requirement::ShouldNot {
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
    let groups = || proposals.iter().flat_map(|proposal| &proposal.groups);
    match groups().find(|group| group.legacy() && !legacy) {
        Some(group) => findings.push(AlgorithmFinding::Refused(group_refusal(*group))),
        None => findings.extend(doubtful_groups(groups())),
    }
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
            integrity: vec![
                Integrity::HmacSha2_256_128,
                Integrity::HmacSha2_384_192,
                Integrity::HmacSha2_512_256,
            ],
            prf,
            groups,
        },
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
            integrity: vec![Integrity::HmacSha2_256_128],
            groups: Vec::new(),
            sequence_numbers,
        },
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn combined_mode_needs_a_prf_and_drops_integrity() {
        let one = ike("aes128gcm16-prfsha256-x25519", false).unwrap();
        assert_eq!(one[0].encryption, [(AesGcm16, 128)]);
        assert!(one[0].integrity.is_empty());
        assert_eq!(one[0].prf, [Prf::HmacSha2_256]);
        let two = ike("aes256gcm16-sha384-ecp384", false).unwrap();
        assert!(two[0].integrity.is_empty());
        assert_eq!(two[0].prf, [Prf::HmacSha2_384]);
        assert!(ike("aes256gcm16-x25519", false).is_err_and(|bad| bad.what.contains("no PRF")));
    }

    #[test]
    fn plain_ciphers_take_the_prf_from_the_integrity() {
        let one = ike("aes128-aes256-sha256-modp2048-x25519", false).unwrap();
        assert_eq!(one[0].encryption, [(AesCbc, 128), (AesCbc, 256)]);
        assert_eq!(one[0].prf, [Prf::HmacSha2_256]);
        assert_eq!(one[0].groups, [Group::Modp2048, Group::Curve25519]);
        assert!(esp("aes128").is_err_and(|bad| bad.what.contains("integrity")));
        assert!(ike("aes128-sha256", false).is_err_and(|bad| bad.what.contains("key exchange")));
        assert!(
            ike("aes128gcm16-aes128-sha256-x25519", false)
                .is_err_and(|bad| bad.what.contains("mixes"))
        );
    }

    #[test]
    fn esn_is_on_only_where_asked_for() {
        assert_eq!(
            esp("aes128gcm16").unwrap()[0].sequence_numbers,
            [SequenceNumbers::Bits32]
        );
        assert_eq!(
            esp("aes128gcm16-esn").unwrap()[0].sequence_numbers,
            [SequenceNumbers::Bits64]
        );
        assert_eq!(
            esp("aes128gcm16-esn-noesn").unwrap()[0]
                .sequence_numbers
                .len(),
            2
        );
    }

    #[test]
    fn refusals_say_why() {
        for (text, part) in [
            ("3des-sha256-x25519", "ENCR_3DES is not for IKE"),
            (
                "aes128-md5-prfsha256-x25519",
                "AUTH_HMAC_MD5_96 is not for IKE",
            ),
            ("aes128gmac-prfsha256-x25519", "GMAC is not for IKE"),
            ("null-sha256-x25519", "ENCR_NULL is not for IKE"),
            ("blowfish-sha256-x25519", "Sweet32"),
            (
                "aes256-sha1-modp2048",
                "names no PRF, which makes it PRF_HMAC_SHA1",
            ),
            ("aes256-sha256-prfsha1-modp2048", "PRF_HMAC_SHA1 is weak"),
            ("aes128-sha256-modp1024", "1024-bit"),
            ("aes128-sha256-modp2048s256", "small subgroups"),
            ("camellia128-sha256-x25519", "no library"),
            (
                "serpent256-sha256-x25519",
                "ENCR_SERPENT_CBC is not for IKE SAs: ciphers for private use",
            ),
            (
                "aes256-mars128ctr-sha256-x25519",
                "ENCR_MARS_CTR is not for IKE SAs",
            ),
            ("aes256-sha256-ecp256bp", "no library"),
            ("aes256-sha256-x25519-ke1_mlkem768", "RFC 9370"),
            ("aes128-sha265-x25519", "not a known algorithm"),
        ] {
            assert!(
                ike(text, false).is_err_and(|bad| bad.what.contains(part)),
                "{text}"
            );
        }
        let of = |text, legacy| ike(text, legacy).unwrap()[0].prf.clone();
        assert_eq!(of("aes128-aesxcbc-x25519", false), [Prf::Aes128Xcbc]);
        assert_eq!(of("aes128-aescmac-x25519", false), [Prf::Aes128Cmac]);
        assert_eq!(of("aes256-sha1-modp2048", true), [Prf::HmacSha1]);
        assert_eq!(
            of("aes256-sha1-sha256-modp2048", false),
            [Prf::HmacSha2_256]
        );
        assert_eq!(
            of("aes256-sha1-prfsha256-modp2048", false),
            [Prf::HmacSha2_256]
        );
        assert!(ike("aes128-sha265-x25519", false).is_err_and(|bad| bad.help.contains("`sha256`")));
    }

    /// Reads one child section. Returns the transforms of each proposal, and the findings.
    fn read_child(lines: &str, legacy: bool) -> (Vec<String>, Vec<String>) {
        read_child_with(if legacy { "legacy = yes\n" } else { "" }, lines)
    }

    /// The same with switches of the connection.
    fn read_child_with(switches: &str, lines: &str) -> (Vec<String>, Vec<String>) {
        let text = format!(
            "connections {{ net {{ {switches} local_addrs = 10.0.0.1\n remote_addrs = 10.0.0.2\n \
             local {{ auth = psk }}\n remote {{ auth = psk }}\n children {{ c {{ {lines}\n }} }} }} }}\n\
             secrets {{ ike {{ secret = 0123456789abcdef }} }}\n",
        );
        let loaded = super::super::load_text(std::path::Path::new("/proposal.conf"), &text);
        let found = |list: &Diagnostics| list.iter().map(|d| d.what.clone()).collect();
        match loaded {
            Ok(loaded) => {
                let child = &loaded.ike.connections[0].children[0];
                let of_proposal = |proposal: &EspProposal| {
                    let ciphers = proposal
                        .encryption
                        .iter()
                        .map(|(c, bits)| format!("{c} {bits}"));
                    let integrity = proposal.integrity.iter().map(|i| i.name().to_owned());
                    ciphers.chain(integrity).collect::<Vec<_>>().join(" ")
                };
                let proposals = child.esp_proposals.iter().map(of_proposal).collect();
                (proposals, found(&loaded.warnings))
            }
            Err(diagnostics) => (Vec::new(), found(&diagnostics)),
        }
    }

    #[test]
    fn keywords_of_strongswan_name_the_algorithms() {
        for (text, expected) in [
            ("aes128gcm8", "ENCR_AES_GCM_8 128"),
            ("aes256gcm96", "ENCR_AES_GCM_12 256"),
            ("aes192ccm16", "ENCR_AES_CCM_16 192"),
            ("aes128ccm64", "ENCR_AES_CCM_8 128"),
            ("chacha20poly1305", "ENCR_CHACHA20_POLY1305 0"),
            ("aes256ctr-aesxcbc", "ENCR_AES_CTR 256 AUTH_AES_XCBC_96"),
            ("aes128-sha1-esn", "ENCR_AES_CBC 128 AUTH_HMAC_SHA1_96"),
            ("aes192-aescmac", "ENCR_AES_CBC 192 AUTH_AES_CMAC_96"),
            ("aes256gcm16iiv-esn", "ENCR_AES_GCM_16_IIV 256"),
        ] {
            let (proposals, findings) = read_child(&format!("esp_proposals = {text}"), false);
            assert_eq!(proposals, [expected]);
            assert_eq!(findings, [""; 0]);
        }
    }

    #[test]
    fn gmac_is_a_cipher_of_esp_and_an_integrity_algorithm_of_ah() {
        let (esp, findings) = read_child("esp_proposals = aes128gmac", false);
        assert_eq!(esp, ["ENCR_NULL_AUTH_AES_GMAC 128"]);
        assert!(findings[0].contains("does not encrypt"), "{findings:?}");
        let (ah, findings) = read_child("ah_proposals = aes128gmac-sha256, sha512", false);
        assert_eq!(
            ah,
            [
                "AUTH_HMAC_SHA2_256_128 AUTH_AES_128_GMAC",
                "AUTH_HMAC_SHA2_512_256"
            ]
        );
        assert_eq!(findings, [""; 0]);
        let (_, findings) = read_child("ah_proposals = aes128-sha256", false);
        assert!(findings[0].contains("AH does not encrypt"), "{findings:?}");
        let both = "ah_proposals = sha256\n esp_proposals = aes128gcm16";
        let (_, findings) = read_child(both, false);
        assert!(findings[0].contains("not both"), "{findings:?}");
    }

    #[test]
    fn ciphers_for_private_use_need_consent() {
        for (text, name) in [
            ("serpent-sha256", "ENCR_SERPENT_CBC 128"),
            ("serpent192-sha256", "ENCR_SERPENT_CBC 192"),
            ("twofish256-sha256", "ENCR_TWOFISH_CBC 256"),
            ("mars128ctr-sha256", "ENCR_MARS_CTR 128"),
            ("rc6_192ctr-sha256", "ENCR_RC6_CTR 192"),
            ("serpent256ctr-sha256", "ENCR_SERPENT_CTR 256"),
            ("twofish256ctr-sha256", "ENCR_TWOFISH_CTR 256"),
        ] {
            let line = format!("esp_proposals = {text}");
            for switches in ["", "private_use = no\n", "legacy = yes\n"] {
                let (refused, findings) = read_child_with(switches, &line);
                let named = name.split_once(' ').unwrap().0;
                assert!(refused.is_empty() && findings.len() == 1, "{findings:?}");
                let expected = [named, "private use"];
                assert!(
                    expected.iter().all(|part| findings[0].contains(part)),
                    "{findings:?}"
                );
            }
            let (taken, findings) = read_child_with("private_use = yes\n", &line);
            assert_eq!(taken, [format!("{name} AUTH_HMAC_SHA2_256_128")]);
            assert_eq!(findings, [""; 0]);
        }
        let (refused, findings) =
            read_child_with("private_use = yes\n", "esp_proposals = 3des-sha256");
        assert!(
            refused.is_empty() && findings[0].contains("ENCR_3DES"),
            "{findings:?}"
        );
    }

    #[test]
    fn ciphers_for_private_use_have_one_partner() {
        for text in [
            "aes256-mars256ctr-sha256-sha512",
            "serpent256-sha1",
            "aes128-sha256, rc6_128ctr-sha384",
        ] {
            let line = format!("esp_proposals = {text}");
            let (refused, findings) = read_child_with("private_use = yes\n", &line);
            assert!(refused.is_empty(), "{refused:?}");
            assert!(
                findings[0].contains("does not go with ENCR_"),
                "{findings:?}"
            );
        }
        let line = "esp_proposals = aes256-twofish256-sha256, aes256-sha512";
        let (taken, findings) = read_child_with("private_use = yes\n", line);
        assert_eq!((taken.len(), findings.len()), (2, 0), "{findings:?}");
    }

    #[test]
    fn weak_algorithms_need_consent_and_are_warned_about() {
        for (key, text, name) in [
            ("esp_proposals", "3des-sha256", "ENCR_3DES SHOULD NOT"),
            ("esp_proposals", "des-sha256", "ENCR_DES MUST NOT"),
            ("esp_proposals", "aes128-md5", "AUTH_HMAC_MD5_96 MUST NOT"),
            ("ah_proposals", "md5", "AUTH_HMAC_MD5_96 MUST NOT"),
            ("esp_proposals", "aes128-sha256-modp1536", "MODP_1536"),
        ] {
            let line = format!("{key} = {text}");
            let (refused, findings) = read_child(&line, false);
            assert!(
                refused.is_empty() && findings[0].contains(name),
                "{findings:?}"
            );
            let (taken, findings) = read_child(&line, true);
            assert_eq!(taken.len(), 1, "{findings:?}");
            assert!(findings[0].contains(name), "{findings:?}");
        }
    }
}
