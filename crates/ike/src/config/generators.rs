//! A plain connection, and strategies for proposals that a configuration can have.

use std::time::Duration;

use esplanade_crypto::iana::{Encryption, Group, Integrity, Prf, SequenceNumbers};
use proptest::prelude::*;
use proptest::sample::{select, subsequence};

use super::{
    Childless, Connection, EspProposal, Fragmentation, Identity, IkeProposal, LocalAuth,
    LocalMethod, OcspInIke, PeerEntries, RemoteAuth, RemoteMethod, Retransmission, SendCert,
    Unique,
};

/// A connection with pre-shared keys for any peer at any address. Nothing in it has a time, and it has no proposals and no
/// children.
pub fn plain_connection() -> Connection {
    Connection {
        name: "site".to_owned(),
        local_addrs: vec![],
        remote_addrs: vec![],
        local_port: None,
        remote_port: 500,
        dscp: 0,
        proposals: vec![],
        legacy: false,
        encap: false,
        fragmentation: Fragmentation::default(),
        path_mtu_probe: true,
        childless: Childless::default(),
        full_transcript_required: false,
        send_certreq: true,
        send_cert: SendCert::default(),
        ocsp: OcspInIke::default(),
        rekey_time: Duration::ZERO,
        reauth_time: Duration::ZERO,
        over_time: Duration::ZERO,
        rand_time: Duration::ZERO,
        dpd_delay: Duration::ZERO,
        dpd_by_traffic: false,
        dpd_timeout: Duration::ZERO,
        unique: Unique::No,
        keyingtries: 1,
        retransmission: Retransmission::default(),
        local: LocalAuth {
            id: Identity::Any,
            method: LocalMethod::Psk,
        },
        remote: RemoteAuth {
            id: Identity::Any,
            method: RemoteMethod::Psk,
        },
        peers: PeerEntries::default(),
        children: vec![],
    }
}

fn some<T: Copy + std::fmt::Debug + 'static>(
    all: Vec<T>,
    at_least: usize,
) -> impl Strategy<Value = Vec<T>> {
    let count = at_least..=all.len().min(4);
    subsequence(all, count).prop_shuffle()
}

/// Gives ciphers with their key lengths: AEADs only, or none.
fn ciphers(
    aead: bool,
    fits: fn(Encryption) -> bool,
) -> impl Strategy<Value = Vec<(Encryption, u16)>> {
    let fitting = Encryption::ALL.iter().copied();
    let fitting = fitting.filter(|cipher| cipher.is_aead() == aead && fits(*cipher));
    let all = fitting.flat_map(|cipher| cipher.key_bits().iter().map(move |&bits| (cipher, bits)));
    some(all.collect(), 1)
}

/// Gives integrity algorithms beside a cipher that is no AEAD.
fn integrity(fits: fn(Integrity) -> bool) -> impl Strategy<Value = Vec<Integrity>> {
    some(
        Integrity::ALL
            .iter()
            .copied()
            .filter(|&i| fits(i))
            .collect(),
        1,
    )
}

pub fn ike_proposal() -> impl Strategy<Value = IkeProposal> {
    let algorithms = prop_oneof![
        (ciphers(true, Encryption::for_ike), Just(Vec::new())),
        (
            ciphers(false, Encryption::for_ike),
            integrity(Integrity::for_ike)
        ),
    ];
    (
        algorithms,
        some(Prf::ALL.to_vec(), 1),
        some(Group::ALL.to_vec(), 1),
    )
        .prop_map(|((encryption, integrity), prf, groups)| IkeProposal {
            encryption,
            integrity,
            prf,
            groups,
        })
}

/// Gives proposals for ESP. Some have an own key exchange.
pub fn esp_proposal() -> impl Strategy<Value = EspProposal> {
    let algorithms = prop_oneof![
        (ciphers(true, |_| true), Just(Vec::new())),
        (
            ciphers(false, |cipher| !cipher.private_use()),
            integrity(|i| !i.is_gmac())
        ),
        (
            ciphers(false, |_| true),
            Just(vec![Integrity::HmacSha2_256_128])
        ),
    ];
    let sequence_numbers = select(vec![
        vec![SequenceNumbers::Bits64, SequenceNumbers::Bits32],
        vec![SequenceNumbers::Bits32],
        vec![SequenceNumbers::Bits64],
    ]);
    (algorithms, some(Group::ALL.to_vec(), 0), sequence_numbers).prop_map(
        |((encryption, integrity), groups, sequence_numbers)| EspProposal {
            encryption,
            integrity,
            groups,
            sequence_numbers,
        },
    )
}
