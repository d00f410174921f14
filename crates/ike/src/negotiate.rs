//! Proposal negotiation (RFC 7296 §2.7 and §3.3).
//!
//! A responder follows its own order of preference. It passes over a proposal that has a transform type which it does
//! not know (§3.3.6).

use esplanade_crypto::iana::{Encryption, Group, Integrity, SequenceNumbers};
use esplanade_crypto::transform::{Protocol, Transform as EspTransform};

use crate::config::{EspProposal, IkeProposal};
use crate::event::EspSuite;
use crate::suite::Suite;
use crate::wire::{Proposal, ProtocolId, Transform, TransformType};

/// The transform ID of NONE, for integrity and for key exchange.
const NONE: u16 = 0;

/// An IKE proposal that was chosen from an offer.
#[derive(Debug)]
pub(crate) struct ChosenIke {
    pub(crate) suite: Suite,
    /// The proposal of the response. Our SPI is still missing.
    pub(crate) proposal: Proposal,
    /// The peer's SPI for the new SA of a rekey.
    pub(crate) peer_spi: Option<u64>,
}

/// A proposal of a child SA that was chosen from an offer, or found in a response.
#[derive(Debug)]
pub(crate) struct ChosenEsp {
    pub(crate) suite: EspSuite,
    pub(crate) key_exchange: Option<Group>,
    /// The proposal of the response. Our SPI is still missing.
    pub(crate) proposal: Proposal,
    pub(crate) peer_spi: u32,
}

const fn protocol_id(protocol: Protocol) -> ProtocolId {
    match protocol {
        Protocol::Esp => ProtocolId::ESP,
        Protocol::Ah => ProtocolId::AH,
    }
}

fn encryption(kind: &[(Encryption, u16)]) -> Vec<Transform> {
    kind.iter()
        .map(|&(cipher, bits)| Transform::encryption(cipher, bits))
        .collect()
}

fn push_all(
    transforms: &mut Vec<Transform>,
    kind: TransformType,
    numbers: impl Iterator<Item = u16>,
) {
    transforms.extend(numbers.map(|number| Transform::new(kind, number)));
}

fn ike_transforms(own: &IkeProposal) -> Vec<Transform> {
    let mut transforms = encryption(&own.encryption);
    push_all(
        &mut transforms,
        TransformType::INTEGRITY,
        own.integrity.iter().map(|i| i.number()),
    );
    push_all(
        &mut transforms,
        TransformType::PRF,
        own.prf.iter().map(|p| p.number()),
    );
    push_all(
        &mut transforms,
        TransformType::KEY_EXCHANGE,
        own.groups.iter().map(|g| g.number()),
    );
    transforms
}

fn numbered(
    index: usize,
    protocol: ProtocolId,
    spi: &[u8],
    transforms: Vec<Transform>,
) -> Option<Proposal> {
    let number = u8::try_from(index + 1).ok()?;
    Some(Proposal {
        number,
        protocol,
        spi: spi.to_vec(),
        transforms,
    })
}

/// Our IKE proposals. `spi` is empty except in a rekey.
pub(crate) fn ike_offer(own: &[IkeProposal], spi: &[u8]) -> Vec<Proposal> {
    own.iter()
        .enumerate()
        .filter_map(|(index, proposal)| {
            numbered(index, ProtocolId::IKE, spi, ike_transforms(proposal))
        })
        .take(crate::wire::PROPOSALS_MAX)
        .collect()
}

/// Our proposals for a child SA. In IKE_AUTH there is no key exchange method in them (RFC 7296 §1.2).
pub(crate) fn esp_offer(own: &[EspProposal], spi: u32, with_groups: bool) -> Vec<Proposal> {
    own.iter()
        .enumerate()
        .filter_map(|(index, proposal)| {
            let mut transforms = encryption(&proposal.encryption);
            push_all(
                &mut transforms,
                TransformType::INTEGRITY,
                proposal.integrity.iter().map(|i| i.number()),
            );
            if with_groups {
                push_all(
                    &mut transforms,
                    TransformType::KEY_EXCHANGE,
                    proposal.groups.iter().map(|g| g.number()),
                );
            }
            push_all(
                &mut transforms,
                TransformType::SEQUENCE_NUMBERS,
                proposal.sequence_numbers.iter().map(|s| s.number()),
            );
            let protocol = protocol_id(proposal.protocol());
            numbered(index, protocol, &spi.to_be_bytes(), transforms)
        })
        .take(crate::wire::PROPOSALS_MAX)
        .collect()
}

/// The first of our transforms that the offer has too.
fn pick(own: &[Transform], offered: &Proposal, kind: TransformType) -> Option<Transform> {
    own.iter()
        .filter(|ours| ours.kind == kind)
        .find(|ours| offered.of_kind(kind).any(|theirs| same(ours, theirs)))
        .copied()
}

fn same(a: &Transform, b: &Transform) -> bool {
    a.kind == b.kind
        && a.id == b.id
        && a.key_bits == b.key_bits
        && !a.unknown_attribute
        && !b.unknown_attribute
}

/// Says whether the offer has a transform type that we cannot choose from.
fn has_other_types(offered: &Proposal, known: &[TransformType]) -> bool {
    offered
        .transforms
        .iter()
        .any(|transform| !known.contains(&transform.kind))
}

/// Picks the integrity transform that goes with a chosen cipher. Returns `Some(None)` for an AEAD, which goes without
/// one.
fn pick_integrity(
    own: &[Transform],
    offered: &Proposal,
    cipher: &Transform,
) -> Option<Option<Transform>> {
    let aead = Encryption::from_number(cipher.id)?.is_aead();
    if !aead {
        return pick(own, offered, TransformType::INTEGRITY).map(Some);
    }
    let mut offered = offered.of_kind(TransformType::INTEGRITY).peekable();
    match offered.peek() {
        None => Some(None),
        // NONE is the only integrity that goes with an AEAD (RFC 7296 §3.3.2).
        Some(_) => offered
            .any(|t| t.id == NONE)
            .then(|| Some(Transform::new(TransformType::INTEGRITY, NONE))),
    }
}

/// Chooses from the peer's offer. `ke_group` is the method of the peer's KE payload. It is preferred within a
/// proposal, because that saves a round trip.
pub(crate) fn choose_ike(
    own: &[IkeProposal],
    offered: &[Proposal],
    ke_group: u16,
    spi_len: usize,
) -> Option<ChosenIke> {
    const KNOWN: [TransformType; 4] = [
        TransformType::ENCRYPTION,
        TransformType::INTEGRITY,
        TransformType::PRF,
        TransformType::KEY_EXCHANGE,
    ];
    let offers = |theirs: &&Proposal| {
        theirs.protocol == ProtocolId::IKE
            && theirs.spi.len() == spi_len
            && !has_other_types(theirs, &KNOWN)
    };
    for ours in own.iter().map(ike_transforms) {
        for theirs in offered.iter().filter(offers) {
            let Some(cipher) = pick(&ours, theirs, TransformType::ENCRYPTION) else {
                continue;
            };
            let Some(integrity) = pick_integrity(&ours, theirs, &cipher) else {
                continue;
            };
            let Some(prf) = pick(&ours, theirs, TransformType::PRF) else {
                continue;
            };
            let Some(group) = pick_group(&ours, theirs, Some(ke_group)) else {
                continue;
            };
            let transforms: Vec<_> = [Some(cipher), integrity, Some(prf), Some(group)]
                .into_iter()
                .flatten()
                .collect();
            let answer = Proposal {
                number: theirs.number,
                protocol: ProtocolId::IKE,
                spi: Vec::new(),
                transforms,
            };
            let Ok(suite) = Suite::from_proposal(&answer) else {
                continue;
            };
            return Some(ChosenIke {
                suite,
                proposal: answer,
                peer_spi: theirs.spi_u64(),
            });
        }
    }
    None
}

fn pick_group(own: &[Transform], offered: &Proposal, ke_group: Option<u16>) -> Option<Transform> {
    if let Some(group) = ke_group {
        let wanted = Transform::new(TransformType::KEY_EXCHANGE, group);
        let allowed = own.iter().any(|ours| same(ours, &wanted))
            && offered
                .of_kind(TransformType::KEY_EXCHANGE)
                .any(|theirs| same(&wanted, theirs));
        if allowed {
            return Some(wanted);
        }
    }
    pick(own, offered, TransformType::KEY_EXCHANGE)
}

/// Checks the response to our offer. It must have one of our proposals, with one transform of each of its types.
pub(crate) fn accept_ike(offer: &[Proposal], answer: &[Proposal]) -> Option<ChosenIke> {
    let (answer, _) = matching(offer, answer)?;
    let suite = Suite::from_proposal(answer).ok()?;
    Some(ChosenIke {
        suite,
        proposal: answer.clone(),
        peer_spi: answer.spi_u64(),
    })
}

fn matching<'a>(
    offer: &'a [Proposal],
    answer: &'a [Proposal],
) -> Option<(&'a Proposal, &'a Proposal)> {
    let [answer] = answer else { return None };
    let offered = offer.iter().find(|offered| {
        offered.number == answer.number
            && offered.protocol == answer.protocol
            && offered.spi.len() == answer.spi.len()
    })?;
    let chosen_of_offered = answer.transforms.iter().all(|t| {
        offered.transforms.iter().any(|o| same(o, t))
            || (t.kind == TransformType::INTEGRITY && t.id == NONE)
    });
    chosen_of_offered.then_some((answer, offered))
}

/// Our proposals for the rekey of a child SA. The algorithms of the old SA come first, where the configuration has
/// them: the new SA is to have the same (RFC 7296 §2.8).
pub(crate) fn kept_first(own: &[EspProposal], old: EspSuite) -> Vec<EspProposal> {
    let (transform, sequence) = (old.transform, old.sequence_numbers);
    let cipher = transform.encryption().map(|of| (of, transform.key_bits()));
    let integrity = transform.integrity();
    let has_all = |proposal: &&EspProposal| {
        proposal.protocol() == transform.protocol()
            && cipher.is_none_or(|cipher| proposal.encryption.contains(&cipher))
            && integrity.is_none_or(|integrity| proposal.integrity.contains(&integrity))
            && proposal.sequence_numbers.contains(&sequence)
    };
    let kept = own.iter().filter(has_all).map(|proposal| EspProposal {
        encryption: cipher.into_iter().collect(),
        integrity: integrity.into_iter().collect(),
        groups: proposal.groups.clone(),
        sequence_numbers: vec![sequence],
    });
    let mut proposals: Vec<EspProposal> = Vec::with_capacity(2 * own.len());
    for proposal in kept.chain(own.iter().cloned()) {
        if !proposals.contains(&proposal) {
            proposals.push(proposal);
        }
    }
    proposals
}

/// Chooses from the peer's offer for a child SA. In IKE_AUTH key exchange methods are ignored.
pub(crate) fn choose_esp(
    own: &[EspProposal],
    offered: &[Proposal],
    ke_group: Option<u16>,
    with_groups: bool,
) -> Option<ChosenEsp> {
    const KNOWN: [TransformType; 4] = [
        TransformType::ENCRYPTION,
        TransformType::INTEGRITY,
        TransformType::KEY_EXCHANGE,
        TransformType::SEQUENCE_NUMBERS,
    ];
    for ours in esp_offer(own, 0, with_groups) {
        for theirs in offered
            .iter()
            .filter(|theirs| theirs.protocol == ours.protocol && !has_other_types(theirs, &KNOWN))
        {
            let Some(peer_spi) = theirs.spi_u32().filter(|spi| *spi > 255) else {
                continue;
            };
            let ours = &ours.transforms;
            let Some((cipher, integrity)) = pick_algorithms(ours, theirs) else {
                continue;
            };
            let Some(sequence) = pick_sequence(ours, theirs) else {
                continue;
            };
            let group = if with_groups {
                let Some(group) = pick_child_group(ours, theirs, ke_group) else {
                    continue;
                };
                group
            } else {
                None
            };
            let transforms: Vec<_> = [cipher, integrity, group, sequence]
                .into_iter()
                .flatten()
                .collect();
            let answer = Proposal {
                number: theirs.number,
                protocol: theirs.protocol,
                spi: Vec::new(),
                transforms,
            };
            if let Some(chosen) = esp_from(&answer, peer_spi) {
                return Some(chosen);
            }
        }
    }
    None
}

/// The encryption and the integrity of a child SA. AH has no encryption.
fn pick_algorithms(
    own: &[Transform],
    offered: &Proposal,
) -> Option<(Option<Transform>, Option<Transform>)> {
    if offered.protocol == ProtocolId::AH {
        let none = offered.of_kind(TransformType::ENCRYPTION).next().is_none();
        let integrity = pick(own, offered, TransformType::INTEGRITY)?;
        return none.then_some((None, Some(integrity)));
    }
    let cipher = pick(own, offered, TransformType::ENCRYPTION)?;
    let integrity = pick_integrity(own, offered, &cipher)?;
    Some((Some(cipher), integrity))
}

/// Picks the sequence numbers. Returns `None` if there is no common choice. Returns `Some(None)` if the peer names no
/// sequence numbers, which stands for 32 bits.
fn pick_sequence(own: &[Transform], offered: &Proposal) -> Option<Option<Transform>> {
    if offered
        .of_kind(TransformType::SEQUENCE_NUMBERS)
        .next()
        .is_none()
    {
        let allowed = own.iter().any(|t| {
            t.kind == TransformType::SEQUENCE_NUMBERS && t.id == SequenceNumbers::Bits32.number()
        });
        return allowed.then_some(None);
    }
    pick(own, offered, TransformType::SEQUENCE_NUMBERS).map(Some)
}

/// Picks the key exchange method of a child SA. Returns `None` if there is no common choice, and `Some(None)` if
/// neither end wants a key exchange.
fn pick_child_group(
    own: &[Transform],
    offered: &Proposal,
    ke_group: Option<u16>,
) -> Option<Option<Transform>> {
    let wanted = own.iter().any(|t| t.kind == TransformType::KEY_EXCHANGE);
    let mut theirs = offered.of_kind(TransformType::KEY_EXCHANGE).peekable();
    match (wanted, theirs.peek().is_some()) {
        (false, false) => Some(None),
        (false, true) => theirs
            .any(|t| t.id == NONE)
            .then(|| Some(Transform::new(TransformType::KEY_EXCHANGE, NONE))),
        (true, _) => pick_group(own, offered, ke_group).map(Some),
    }
}

/// Checks the response to our offer for a child SA.
pub(crate) fn accept_esp(offer: &[Proposal], answer: &[Proposal]) -> Option<ChosenEsp> {
    let (answer, offered) = matching(offer, answer)?;
    let wants_group = offered
        .of_kind(TransformType::KEY_EXCHANGE)
        .next()
        .is_some();
    let chosen = esp_from(answer, answer.spi_u32().filter(|spi| *spi > 255)?)?;
    // The response may leave out sequence numbers of 32 bits, if we offered them.
    let number = chosen.suite.sequence_numbers.number();
    let sequence = offered
        .of_kind(TransformType::SEQUENCE_NUMBERS)
        .any(|t| t.id == number);
    (sequence && wants_group == chosen.key_exchange.is_some()).then_some(chosen)
}

fn esp_from(answer: &Proposal, peer_spi: u32) -> Option<ChosenEsp> {
    let one = |kind| {
        let mut all = answer.of_kind(kind);
        match (all.next(), all.next()) {
            (first, None) => {
                Some(first.filter(|t| t.id != NONE || kind == TransformType::SEQUENCE_NUMBERS))
            }
            _ => None,
        }
    };
    let cipher = one(TransformType::ENCRYPTION)?;
    let integrity = match one(TransformType::INTEGRITY)? {
        Some(t) => Some(Integrity::from_number(t.id)?),
        None => None,
    };
    let group = match one(TransformType::KEY_EXCHANGE)? {
        Some(t) => Some(Group::from_number(t.id)?),
        None => None,
    };
    let sequence_numbers = match one(TransformType::SEQUENCE_NUMBERS)? {
        Some(t) => SequenceNumbers::from_number(t.id)?,
        None => SequenceNumbers::Bits32,
    };
    let transform = match (answer.protocol, cipher) {
        (ProtocolId::ESP, Some(cipher)) => EspTransform::esp(
            Encryption::from_number(cipher.id)?,
            cipher.key_bits.unwrap_or(0),
            integrity,
        )?,
        (ProtocolId::AH, None) => EspTransform::ah(integrity?),
        _ => return None,
    };
    let suite = EspSuite {
        transform,
        sequence_numbers,
    };
    Some(ChosenEsp {
        suite,
        key_exchange: group,
        proposal: answer.clone(),
        peer_spi,
    })
}

/// Says whether a suite that was chosen before fits a connection too.
pub(crate) fn allows(own: &[IkeProposal], suite: &Suite) -> bool {
    own.iter().any(|proposal| {
        proposal
            .encryption
            .contains(&(suite.encryption, suite.key_bits))
            && proposal.prf.contains(&suite.prf)
            && proposal.groups.contains(&suite.key_exchanges.first())
            && suite
                .integrity
                .is_none_or(|integrity| proposal.integrity.contains(&integrity))
    })
}

/// Says whether we propose a key exchange method.
pub(crate) fn offers_method(own: &[IkeProposal], method: Group) -> bool {
    own.iter().any(|proposal| proposal.groups.contains(&method))
}

/// The key exchange method of our first KE payload.
pub(crate) fn first_method(own: &[IkeProposal]) -> Option<Group> {
    own.iter()
        .find_map(|proposal| proposal.groups.first().copied())
}

#[cfg(test)]
mod tests {
    use esplanade_crypto::iana::Prf;
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;
    use crate::config::generators::{esp_proposal, ike_proposal};

    fn meet<T: PartialEq>(a: &[T], b: &[T]) -> bool {
        a.iter().any(|value| b.contains(value))
    }

    /// The lists are equal, or they have a member in common.
    fn meet_or_absent<T: PartialEq>(a: &[T], b: &[T]) -> bool {
        meet(a, b) || a.is_empty() && b.is_empty()
    }

    proptest! {
        // RFC 7296 R91, R93
        #[test]
        fn both_ends_find_one_ike_suite_or_there_is_none(
            ours in vec(ike_proposal(), 1..4), theirs in vec(ike_proposal(), 1..4),
        ) {
            let offer = ike_offer(&theirs, &[]);
            let method = first_method(&theirs).unwrap().number();
            let Some(chosen) = choose_ike(&ours, &offer, method, 0) else {
                let fit = |a: &IkeProposal, b: &IkeProposal| {
                    meet(&a.encryption, &b.encryption)
                        && meet_or_absent(&a.integrity, &b.integrity)
                        && meet(&a.prf, &b.prf)
                        && meet(&a.groups, &b.groups)
                };
                prop_assert!(!ours.iter().any(|a| theirs.iter().any(|b| fit(a, b))));
                return Ok(());
            };
            prop_assert!(allows(&ours, &chosen.suite) && allows(&theirs, &chosen.suite));
            let accepted = accept_ike(&offer, &[chosen.proposal]).unwrap();
            prop_assert_eq!(accepted.suite, chosen.suite);
        }

        // RFC 7296 R91, R93
        #[test]
        fn both_ends_find_one_esp_suite_or_there_is_none(
            ours in vec(esp_proposal(), 1..4), theirs in vec(esp_proposal(), 1..4), with_groups: bool,
        ) {
            let offer = esp_offer(&theirs, 0x1000, with_groups);
            let Some(chosen) = choose_esp(&ours, &offer, None, with_groups) else {
                let fit = |a: &EspProposal, b: &EspProposal| {
                    meet(&a.encryption, &b.encryption)
                        && meet_or_absent(&a.integrity, &b.integrity)
                        && meet(&a.sequence_numbers, &b.sequence_numbers)
                        && (!with_groups || meet_or_absent(&a.groups, &b.groups))
                };
                prop_assert!(!ours.iter().any(|a| theirs.iter().any(|b| fit(a, b))));
                return Ok(());
            };
            let mut answer = chosen.proposal;
            answer.spi = vec![0, 0, 16, 0];
            let accepted = accept_esp(&offer, &[answer]).unwrap();
            prop_assert_eq!(accepted.suite, chosen.suite);
            prop_assert_eq!(accepted.key_exchange, chosen.key_exchange);
        }
    }

    fn ike(cipher: Encryption, bits: u16, groups: &[Group]) -> IkeProposal {
        IkeProposal {
            encryption: vec![(cipher, bits)],
            integrity: if cipher.is_aead() {
                vec![]
            } else {
                vec![Integrity::HmacSha2_256_128]
            },
            prf: vec![Prf::HmacSha2_256],
            groups: groups.to_vec(),
        }
    }

    fn esp(bits: u16, groups: &[Group], sequence: &[SequenceNumbers]) -> EspProposal {
        EspProposal {
            encryption: vec![(Encryption::AesGcm16, bits)],
            integrity: vec![],
            groups: groups.to_vec(),
            sequence_numbers: sequence.to_vec(),
        }
    }

    // RFC 7296 R91, R211
    #[test]
    fn the_responder_follows_its_own_order() {
        let gcm = ike(Encryption::AesGcm16, 256, &[Group::Curve25519]);
        let cbc = ike(Encryption::AesCbc, 128, &[Group::Ecp256, Group::Curve25519]);
        let offer = ike_offer(&[cbc.clone(), gcm.clone()], &[]);
        let chosen = choose_ike(
            &[gcm.clone(), cbc.clone()],
            &offer,
            Group::Ecp256.number(),
            0,
        )
        .unwrap();
        assert_eq!(chosen.suite.encryption, Encryption::AesGcm16);
        assert_eq!(
            chosen.suite.key_exchanges.first(),
            Group::Curve25519,
            "although the KE payload is of another"
        );
        let answer = [chosen.proposal];
        assert_eq!(accept_ike(&offer, &answer).unwrap().suite, chosen.suite);
        let chosen = choose_ike(
            std::slice::from_ref(&cbc),
            &offer,
            Group::Curve25519.number(),
            0,
        )
        .unwrap();
        assert_eq!(
            chosen.suite.key_exchanges.first(),
            Group::Curve25519,
            "within a proposal the KE payload decides"
        );
        assert!(
            choose_ike(
                &[ike(Encryption::AesGcm16, 128, &[Group::Ecp384])],
                &offer,
                31,
                0
            )
            .is_none()
        );
        assert!(accept_ike(&ike_offer(&[gcm], &[]), &ike_offer(&[cbc], &[])).is_none());
    }

    // RFC 7296 R223
    #[test]
    fn unknown_transform_types_spoil_a_proposal() {
        let own = [ike(Encryption::AesGcm16, 256, &[Group::Curve25519])];
        let mut offer = ike_offer(&own, &[]);
        offer[0]
            .transforms
            .push(Transform::new(TransformType(6), 36));
        assert!(choose_ike(&own, &offer, 31, 0).is_none());
    }

    // RFC 4302 R11; RFC 4303 R11; RFC 7296 R213, R214
    #[test]
    fn esp_groups_and_sequence_numbers() {
        use SequenceNumbers::{Bits32, Bits64};
        let pfs = [esp(128, &[Group::Curve25519], &[Bits64, Bits32])];
        let plain = [esp(128, &[], &[Bits32])];
        let offer = esp_offer(&pfs, 0x1000, true);
        let chosen = choose_esp(&pfs, &offer, Some(31), true).unwrap();
        assert_eq!(
            (chosen.key_exchange, chosen.suite.sequence_numbers),
            (Some(Group::Curve25519), Bits64)
        );
        assert!(
            choose_esp(&plain, &offer, None, true).is_none(),
            "the peer insists on a fresh exchange"
        );
        assert!(choose_esp(&pfs, &esp_offer(&plain, 0x1000, true), None, true).is_none());
        let in_auth = choose_esp(&pfs, &esp_offer(&plain, 0x1000, false), None, false).unwrap();
        assert_eq!(
            (in_auth.key_exchange, in_auth.suite.sequence_numbers),
            (None, Bits32)
        );
        assert!(
            choose_esp(&plain, &esp_offer(&plain, 255, true), None, true).is_none(),
            "reserved SPI"
        );
        let mut optional = esp_offer(&plain, 0x1000, true);
        optional[0]
            .transforms
            .push(Transform::new(TransformType::KEY_EXCHANGE, 31));
        optional[0]
            .transforms
            .push(Transform::new(TransformType::KEY_EXCHANGE, NONE));
        let chosen = choose_esp(&plain, &optional, None, true).unwrap();
        assert_eq!(chosen.key_exchange, None);
        assert!(
            chosen
                .proposal
                .transforms
                .contains(&Transform::new(TransformType::KEY_EXCHANGE, NONE))
        );
    }

    // RFC 7296 R93, R222
    #[test]
    fn an_answer_must_come_from_the_offer() {
        use SequenceNumbers::{Bits32, Bits64};
        let offer = esp_offer(&[esp(128, &[Group::Curve25519], &[Bits32])], 0x1000, true);
        let answer = |transforms: &[Transform]| {
            [Proposal {
                number: 1,
                protocol: ProtocolId::ESP,
                spi: vec![0, 0, 2, 0],
                transforms: transforms.to_vec(),
            }]
        };
        let cipher = Transform::with_key_bits(TransformType::ENCRYPTION, 20, 128);
        let group = Transform::new(TransformType::KEY_EXCHANGE, 31);
        let sequence = Transform::new(TransformType::SEQUENCE_NUMBERS, Bits32.number());
        assert!(accept_esp(&offer, &answer(&[cipher, group, sequence])).is_some());
        assert!(
            accept_esp(&offer, &answer(&[cipher, sequence])).is_none(),
            "the group went missing"
        );
        assert!(accept_esp(&offer, &answer(&[cipher, cipher, group, sequence])).is_none());
        let other = Transform::new(TransformType::SEQUENCE_NUMBERS, Bits64.number());
        assert!(accept_esp(&offer, &answer(&[cipher, group, other])).is_none());
        assert!(accept_esp(&offer, &[]).is_none());
        assert!(
            accept_esp(&offer, &answer(&[cipher, group])).is_some(),
            "32 bits go without saying"
        );
        let extended = esp_offer(&[esp(128, &[Group::Curve25519], &[Bits64])], 0x1000, true);
        assert!(accept_esp(&extended, &answer(&[cipher, group])).is_none());
    }

    // RFC 7296 R123, R218, R219, R221
    #[test]
    fn key_lengths_are_named_where_a_cipher_has_several() {
        let own = |encryption| EspProposal {
            encryption: vec![encryption],
            integrity: Vec::new(),
            groups: Vec::new(),
            sequence_numbers: vec![SequenceNumbers::Bits32],
        };
        let chacha = [own((Encryption::ChaCha20Poly1305, 0))];
        let gcm = [own((Encryption::AesGcm16, 128))];
        let offered = |own: &[EspProposal]| esp_offer(own, 0x1234, false);
        assert_eq!(offered(&chacha)[0].transforms[0].key_bits, None);
        assert_eq!(offered(&gcm)[0].transforms[0].key_bits, Some(128));
        for own in [&chacha, &gcm] {
            let chosen = choose_esp(own, &offered(own), None, false).unwrap();
            assert_eq!(chosen.proposal.transforms, offered(own)[0].transforms);
            // RFC 7296 §3.3.6: another attribute makes another transform.
            let mut other = offered(own);
            let bits = &mut other[0].transforms[0].key_bits;
            *bits = match bits {
                None => Some(256),
                Some(_) => None,
            };
            assert!(choose_esp(own, &other, None, false).is_none());
        }
    }
}
