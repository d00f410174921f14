//! Compares two configurations for a reload: which connections and children were added, changed or
//! removed. It does not apply the change.

use std::collections::HashMap;

use aws_lc_rs::digest::{Context, SHA256};

use super::Loaded;
use super::tree::SectionNode;

/// Hashes of everything that a connection was read from. A private key is represented by its certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Fingerprint {
    name: Box<str>,
    /// Stands for the connection without its children.
    head: Hash,
    /// In the order of their names.
    children: Box<[(Box<str>, Hash)]>,
}

/// The SHA-256 of settings: gateways with many connections would otherwise keep the text of each.
type Hash = [u8; 32];
type Setting = (String, String);

impl Fingerprint {
    /// The certificates are all that the connection refers to, in DER.
    pub fn new(node: &SectionNode, certificates: &[Vec<u8>]) -> Self {
        let mut children = Vec::new();
        let mut settings = values(node, "");
        for section in node.sections() {
            match section.name.value.as_str() {
                "children" => {
                    for child in section.sections() {
                        let name = child.name.value.as_str().into();
                        children.push((name, hash(&flatten(child), &[])));
                    }
                }
                name => {
                    let inner = flatten(section).into_iter();
                    settings.extend(inner.map(|(key, value)| (format!("{name}.{key}"), value)));
                }
            }
        }
        settings.sort();
        children.sort();
        Self {
            name: node.name.value.as_str().into(),
            head: hash(&settings, certificates),
            children: children.into(),
        }
    }

    fn child(&self, name: &str) -> Option<&Hash> {
        let children = &self.children;
        let found = children.binary_search_by(|(child, _)| (**child).cmp(name));
        found.ok().and_then(|at| Some(&children.get(at)?.1))
    }
}

/// Each part goes in behind its length, so that no other parts have the same hash.
fn hash(settings: &[Setting], certificates: &[Vec<u8>]) -> Hash {
    let mut context = Context::new(&SHA256);
    let mut part = |bytes: &[u8]| {
        context.update(&(bytes.len() as u64).to_be_bytes());
        context.update(bytes);
    };
    part(&(settings.len() as u64).to_be_bytes());
    for (key, value) in settings {
        part(key.as_bytes());
        part(value.as_bytes());
    }
    certificates
        .iter()
        .for_each(|certificate| part(certificate));
    let mut hash = Hash::default();
    hash.copy_from_slice(context.finish().as_ref());
    hash
}

fn values(node: &SectionNode, path: &str) -> Vec<Setting> {
    let given = (node.values().iter()).filter(|entry| !entry.value.value.is_empty());
    given
        .map(|entry| {
            let key = format!("{path}{}", entry.key.value);
            (key, entry.value.value.peek().to_owned())
        })
        .collect()
}

fn flatten(node: &SectionNode) -> Vec<Setting> {
    fn walk(node: &SectionNode, path: &str, settings: &mut Vec<Setting>) {
        settings.extend(values(node, path));
        for section in node.sections() {
            let path = format!("{path}{}.", section.name.value);
            settings.push((path.clone(), String::new()));
            walk(section, &path, settings);
        }
    }
    let mut settings = Vec::new();
    walk(node, "", &mut settings);
    settings.sort();
    settings
}

/// A connection, or one child of a connection. A child stands alone if the rest of its connection
/// did not change.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Subject {
    pub connection: String,
    pub child: Option<String>,
}

impl std::fmt::Display for Subject {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.connection)?;
        match &self.child {
            Some(child) => write!(f, "/{child}"),
            None => Ok(()),
        }
    }
}

/// The connections, children and other parts that changed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Diff {
    pub added: Vec<Subject>,
    pub changed: Vec<Subject>,
    pub removed: Vec<Subject>,
    /// The pre-shared keys differ. New keys take effect at the next authentication.
    pub secrets: bool,
    /// The CRLs differ. They take effect at the next authentication.
    pub crls: bool,
    /// The attribute authorities or certificates differ. They take effect at the next authentication.
    pub attributes: bool,
    /// The policies differ, including those without a connection.
    pub policies: bool,
    /// The section `gateway` differs. Most of its keys take effect only after a restart.
    pub gateway: bool,
}

impl Diff {
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Lists what cannot go on as it is: the removed and the changed connections and children.
    pub fn ended(&self) -> impl Iterator<Item = &Subject> {
        self.removed.iter().chain(&self.changed)
    }

    fn compare(&mut self, old: &Fingerprint, new: &Fingerprint) {
        let subject = |child: &str| Subject {
            connection: new.name.to_string(),
            child: Some(child.to_owned()),
        };
        if old.head != new.head {
            let (connection, child) = (new.name.to_string(), None);
            return self.changed.push(Subject { connection, child });
        }
        for (name, child) in &new.children {
            match old.child(name) {
                None => self.added.push(subject(name)),
                Some(before) if before != child => self.changed.push(subject(name)),
                Some(_) => {}
            }
        }
        let gone = old
            .children
            .iter()
            .filter(|(name, _)| new.child(name).is_none());
        self.removed.extend(gone.map(|(name, _)| subject(name)));
    }

    /// Marks a child as changed because other children changed. Its own settings are the same, but
    /// DSCPs divide traffic among children.
    pub fn affect(&mut self, connection: &str, child: &str) {
        let is_in = |list: &[Subject]| {
            let mut list = list
                .iter()
                .filter(|subject| subject.connection == connection);
            list.any(|subject| subject.child.as_deref().is_none_or(|name| name == child))
        };
        if ![&self.added, &self.changed, &self.removed]
            .into_iter()
            .any(|list| is_in(list))
        {
            self.changed.push(Subject {
                connection: connection.to_owned(),
                child: Some(child.to_owned()),
            });
        }
    }

    /// Names the parts that differ besides connections.
    pub fn others(&self) -> impl Iterator<Item = &'static str> {
        let others = [
            (self.policies, "policies"),
            (self.secrets, "secrets"),
            (self.crls, "crls"),
            (self.attributes, "attributes"),
            (self.gateway, "gateway"),
        ];
        others
            .into_iter()
            .filter_map(|(differs, name)| differs.then_some(name))
    }
}

impl Loaded {
    /// Compares this configuration with `new`.
    pub fn diff(&self, new: &Loaded) -> Diff {
        let mut diff = Diff::default();
        let mut gone: HashMap<&str, &Fingerprint> = self
            .fingerprints
            .iter()
            .map(|one| (&*one.name, one))
            .collect();
        let whole = |name: &str| Subject {
            connection: name.to_owned(),
            child: None,
        };
        for one in &new.fingerprints {
            match gone.remove(&*one.name) {
                None => diff.added.push(whole(&one.name)),
                Some(old) => diff.compare(old, one),
            }
        }
        diff.removed.extend(gone.into_keys().map(whole));
        diff.removed.sort();
        let (old_secrets, new_secrets) = (&self.ike.secrets, &new.ike.secrets);
        diff.secrets = old_secrets.len() != new_secrets.len()
            || old_secrets
                .iter()
                .zip(new_secrets)
                .any(|(old, new)| old.owners != new.owners || old.key.expose() != new.key.expose());
        diff.crls = self.ike.revocation != new.ike.revocation;
        diff.attributes = self.ike.attributes != new.ike.attributes;
        diff.policies = self.policies != new.policies;
        // Marks belong to children: a reload follows them.
        diff.gateway = self.gateway.with_marks_of(&new.gateway) != new.gateway;
        diff
    }
}
