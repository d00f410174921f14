//! What changes between two configurations, for a reload.

use std::collections::HashMap;

use super::Loaded;
use super::tree::Node;

/// All that a connection was read from. Private keys count through their certificates.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Fingerprint {
    name: String,
    settings: Vec<(String, String)>,
    /// All that it refers to, in DER.
    certificates: Vec<Vec<u8>>,
}

impl std::fmt::Debug for Fingerprint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Fingerprint").field(&self.name).finish()
    }
}

impl Fingerprint {
    pub fn new(node: &Node, certificates: Vec<Vec<u8>>) -> Self {
        let mut settings = Vec::new();
        flatten(node, "", &mut settings);
        settings.sort();
        Self {
            name: node.name.value.clone(),
            settings,
            certificates,
        }
    }
}

fn flatten(node: &Node, path: &str, settings: &mut Vec<(String, String)>) {
    for entry in node
        .values()
        .iter()
        .filter(|entry| !entry.value.value.is_empty())
    {
        settings.push((
            format!("{path}{}", entry.key.value),
            entry.value.value.to_string(),
        ));
    }
    for section in node.sections() {
        let path = format!("{path}{}.", section.name.value);
        settings.push((path.clone(), String::new()));
        flatten(section, &path, settings);
    }
}

/// Names of connections by what happened to them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Diff {
    pub added: Vec<String>,
    pub changed: Vec<String>,
    pub removed: Vec<String>,
    /// The pre-shared keys differ; they count from the next authentication on.
    pub secrets: bool,
    /// The policies differ, also those without a connection.
    pub policies: bool,
    /// The gateway section differs; most of it takes a restart.
    pub gateway: bool,
}

impl Diff {
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// What differs besides connections.
    pub fn others(&self) -> impl Iterator<Item = &'static str> {
        let others = [
            (self.policies, "policies"),
            (self.secrets, "secrets"),
            (self.gateway, "gateway"),
        ];
        others
            .into_iter()
            .filter_map(|(differs, name)| differs.then_some(name))
    }
}

impl Loaded {
    /// What is different in `new`.
    pub fn diff(&self, new: &Loaded) -> Diff {
        let mut diff = Diff::default();
        let mut gone: HashMap<&str, &Fingerprint> = self
            .fingerprints
            .iter()
            .map(|one| (one.name.as_str(), one))
            .collect();
        for one in &new.fingerprints {
            match gone.remove(one.name.as_str()) {
                None => diff.added.push(one.name.clone()),
                Some(old) if old != one => diff.changed.push(one.name.clone()),
                Some(_) => {}
            }
        }
        diff.removed = gone.into_keys().map(str::to_owned).collect();
        diff.removed.sort();
        let (old_secrets, new_secrets) = (&self.ike.secrets, &new.ike.secrets);
        diff.secrets = old_secrets.len() != new_secrets.len()
            || old_secrets
                .iter()
                .zip(new_secrets)
                .any(|(old, new)| old.owners != new.owners || old.key.expose() != new.key.expose());
        diff.policies = self.policies != new.policies;
        diff.gateway = self.gateway != new.gateway;
        diff
    }
}
