//! The choice of the pre-shared key for the identities of both ends.

use std::collections::HashMap;
use std::sync::Arc;

use esplanade_crypto::secret::Secret as SecretBytes;

use crate::config::{Identity, Secret};
use crate::identity_table::IdentityTable;

/// The peer that we prove ourselves to.
#[derive(Clone, Copy, Debug)]
pub(crate) enum ProofPeer<'a> {
    /// The peer has said who it is.
    Is(&'a Identity),
    /// The peer is yet to say who it is, and may have another identity.
    MayBe(&'a Identity),
}

/// The pre-shared keys of a configuration, found by the identities that they belong to.
///
/// A key that names the peer is preferred, and then a key that names us. Among equal keys the first one in the
/// configuration wins. A key that names others beside us is not for a peer that it does not name: each of the others could
/// pass itself off as that peer.
#[derive(Default)]
pub(crate) struct SecretTable {
    /// In the order of the configuration. Places count in it.
    keys: Vec<Arc<SecretBytes>>,
    by_owner: IdentityTable,
    /// The first key of those that belong to one identity alone, without patterns.
    of_one: HashMap<Identity, usize>,
    /// The keys that have a pattern among their owners, with all owners.
    of_patterns: Vec<(usize, Vec<Identity>)>,
    /// The first key that belongs to everybody.
    of_all: Option<usize>,
}

impl SecretTable {
    pub(crate) fn new(secrets: &[Secret]) -> Self {
        let mut table = Self::default();
        for (place, Secret { owners, key }) in secrets.iter().enumerate() {
            table.keys.push(key.clone());
            for owner in owners {
                table.by_owner.add(owner, place);
            }
            match owners.as_slice() {
                [] => table.of_all = table.of_all.or(Some(place)),
                all if all.iter().any(Identity::is_pattern) => {
                    table.of_patterns.push((place, owners.clone()));
                }
                [first, others @ ..] if others.iter().all(|other| other == first) => {
                    table.of_one.entry(first.clone()).or_insert(place);
                }
                _ => {}
            }
        }
        table
    }

    /// Returns the key for our identity `local` and the peer's.
    pub(crate) fn choose(&self, local: &Identity, peer: ProofPeer<'_>) -> Option<&SecretBytes> {
        let ours: Vec<_> = self.by_owner.accepting(local).collect();
        let names_us = |place: &usize| ours.iter().any(|list| list.binary_search(place).is_ok());
        let (ProofPeer::Is(remote) | ProofPeer::MayBe(remote)) = peer;
        let theirs = self.by_owner.accepting(remote).flatten().copied();
        let place = theirs
            .min_by_key(|place| (!names_us(place), *place))
            .or_else(|| match peer {
                ProofPeer::Is(_) => self.of_us_alone(local),
                ProofPeer::MayBe(_) => ours.iter().filter_map(|list| list.first()).min().copied(),
            })
            .or(self.of_all);
        place.map(|place| &*self.keys[place])
    }

    /// The first key that names us and nobody else.
    fn of_us_alone(&self, local: &Identity) -> Option<usize> {
        let names_us = |owners: &Vec<Identity>| owners.iter().all(|owner| owner.accepts(local));
        let mut of_patterns = self.of_patterns.iter();
        let by_pattern = of_patterns.find(|(_, owners)| names_us(owners));
        let by_name = self.of_one.get(local).copied();
        by_pattern
            .map(|(place, _)| *place)
            .into_iter()
            .chain(by_name)
            .min()
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;
    use crate::auth::generators::identity_among;

    /// The scan of all keys that the table stands for.
    fn scan<'a>(
        secrets: &'a [Secret],
        local: &Identity,
        peer: ProofPeer<'_>,
    ) -> Option<&'a SecretBytes> {
        let (ProofPeer::Is(remote) | ProofPeer::MayBe(remote)) = peer;
        let score = |owners: &[Identity]| {
            let names = |id: &Identity| owners.iter().any(|owner| owner.accepts(id));
            let of_us_alone = owners.iter().all(|owner| owner.accepts(local));
            match (owners.is_empty(), names(remote), names(local)) {
                (true, ..) => Some(0),
                (_, false, false) => None,
                (_, false, true) if matches!(peer, ProofPeer::Is(_)) && !of_us_alone => None,
                (_, theirs, ours) => Some(2 * u8::from(theirs) + u8::from(ours)),
            }
        };
        let scored = secrets
            .iter()
            .filter_map(|one| Some((score(&one.owners)?, one)));
        let best = scored.rev().max_by_key(|(score, _)| *score);
        best.map(|(_, secret)| &*secret.key)
    }

    fn identity() -> impl Strategy<Value = Identity> {
        identity_among(&[
            "a.example",
            "A.Example.",
            "b.example",
            "*.example",
            "%any",
            "O=x, CN=a",
            "O=x, CN=*",
            "192.0.2.7",
        ])
    }

    fn secrets() -> impl Strategy<Value = Vec<Secret>> {
        let owners = vec(identity(), 0..4);
        vec(owners, 0..8).prop_map(|all| {
            let numbered = all.into_iter().enumerate();
            let secrets = numbered.map(|(number, owners)| Secret {
                owners,
                key: Arc::new(SecretBytes::from([number as u8].as_slice())),
            });
            secrets.collect()
        })
    }

    proptest! {
        #[test]
        fn the_key_is_the_one_that_a_scan_gives(
            secrets in secrets(),
            local in identity(),
            remote in identity(),
        ) {
            let table = SecretTable::new(&secrets);
            for peer in [ProofPeer::Is(&remote), ProofPeer::MayBe(&remote)] {
                let key = table.choose(&local, peer).map(SecretBytes::expose);
                let scanned = scan(&secrets, &local, peer).map(SecretBytes::expose);
                prop_assert_eq!(key, scanned);
            }
        }
    }
}
