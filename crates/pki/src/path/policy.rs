//! Certificate policies along a path (RFC 5280 §6.1, with the sets of RFC 9618 in place of the tree).
//!
//! Every policy is acceptable to us. The check fails only if an authority demands a policy (requireExplicitPolicy)
//! and none is valid for the whole path. For that the set of policies that are valid so far is enough.

use std::collections::BTreeSet;

use x509_cert::der::asn1::ObjectIdentifier;

use super::parsed::Extensions;

const ANY_POLICY: ObjectIdentifier = ObjectIdentifier::new_unwrap("2.5.29.32.0");

pub(super) struct Policies {
    /// The policies that are valid so far, as the next certificate must name them. With `any`, all others are valid
    /// too.
    valid: BTreeSet<ObjectIdentifier>,
    any: bool,
    /// The number of certificates until each of the three rules applies. A rule with the number zero applies from now
    /// on.
    explicit: usize,
    no_any: usize,
    no_mapping: usize,
}

impl Policies {
    /// For a path of `len` certificates below the trust anchor.
    pub(super) fn new(len: usize) -> Self {
        Self {
            valid: BTreeSet::new(),
            any: true,
            explicit: len + 1,
            no_any: len + 1,
            no_mapping: len + 1,
        }
    }

    /// Takes the next certificate (RFC 5280 §6.1.3 (d) to (f)). Returns false if a policy is demanded and none is
    /// valid.
    pub(super) fn certificate(
        &mut self,
        extensions: &Extensions,
        last: bool,
        self_issued: bool,
    ) -> bool {
        match &extensions.policies {
            Some(policies) => {
                let named: BTreeSet<_> = policies.iter().copied().collect();
                let any =
                    named.contains(&ANY_POLICY) && (self.no_any > 0 || (!last && self_issued));
                let valid = match (any, self.any) {
                    (true, true) => named,
                    (true, false) => std::mem::take(&mut self.valid),
                    (false, true) => named,
                    (false, false) => self.valid.intersection(&named).copied().collect(),
                };
                self.any &= any;
                self.valid = valid;
                self.valid.remove(&ANY_POLICY);
            }
            None => self.clear(),
        }
        self.acceptable()
    }

    /// Says whether the policy is valid so far, by its own name.
    pub(super) fn has(&self, policy: &ObjectIdentifier) -> bool {
        self.valid.contains(policy)
    }

    fn clear(&mut self) {
        self.valid.clear();
        self.any = false;
    }

    fn acceptable(&self) -> bool {
        self.explicit > 0 || self.any || !self.valid.is_empty()
    }

    /// Takes an intermediate's mappings and constraints (RFC 5280 §6.1.4 (a), (b) and (h) to (j)). Returns false if the
    /// intermediate maps from or to anyPolicy.
    pub(super) fn prepare(&mut self, extensions: &Extensions, self_issued: bool) -> bool {
        let mappings = &extensions.policy_mappings;
        let mut ends = mappings.iter().flat_map(|(from, to)| [from, to]);
        if ends.any(|policy| *policy == ANY_POLICY) {
            return false;
        }
        self.map(mappings);
        if !self_issued {
            self.explicit = self.explicit.saturating_sub(1);
            self.no_mapping = self.no_mapping.saturating_sub(1);
            self.no_any = self.no_any.saturating_sub(1);
        }
        let lower = |count: &mut usize, limit: Option<u32>| {
            if let Some(limit) = limit.and_then(|limit| usize::try_from(limit).ok()) {
                *count = (*count).min(limit);
            }
        };
        lower(&mut self.explicit, extensions.require_explicit_policy);
        lower(&mut self.no_mapping, extensions.inhibit_policy_mapping);
        lower(&mut self.no_any, extensions.inhibit_any_policy);
        true
    }

    fn map(&mut self, mappings: &[(ObjectIdentifier, ObjectIdentifier)]) {
        let from: BTreeSet<_> = mappings.iter().map(|(from, _)| *from).collect();
        let allowed = self.no_mapping > 0;
        let known = std::mem::take(&mut self.valid);
        let mapped = mappings
            .iter()
            .filter(|(from, _)| allowed && (self.any || known.contains(from)));
        self.valid = mapped.map(|(_, to)| *to).collect();
        self.valid.extend(known.difference(&from));
    }

    /// Ends after the last certificate (RFC 5280 §6.1.5 (a), (b) and (g)).
    pub(super) fn wrap_up(&mut self, extensions: &Extensions) -> bool {
        self.explicit = self.explicit.saturating_sub(1);
        if extensions.require_explicit_policy == Some(0) {
            self.explicit = 0;
        }
        self.acceptable()
    }
}
