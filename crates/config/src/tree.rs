//! Holds the sections with their values, and carries out inheritance between sections. It does not
//! interpret values.

use std::cell::Cell;
use std::collections::HashMap;

use zeroize::Zeroizing;

use super::diagnostics::{Diagnostic, Diagnostics, nearest, quoted};
use super::source::{Location, Spanned};

/// A section `name { … }`, merged from all places where it occurs.
#[derive(Clone, Debug)]
pub(crate) struct SectionNode {
    pub name: Spanned<String>,
    pub references: Vec<Spanned<String>>,
    values: Vec<KeyValue>,
    sections: Vec<SectionNode>,
    /// The section that has inherited this one as a whole. What is missing here is missing there.
    inherited_by: Option<Location>,
    /// Somebody has looked for keys that do not belong here, and so knows this section.
    known: Cell<bool>,
    value_index: HashMap<String, usize>,
    section_index: HashMap<String, usize>,
}

/// A setting `key = value`. An empty value means that the key is not set.
#[derive(Clone)]
pub(crate) struct KeyValue {
    pub key: Spanned<String>,
    pub value: Spanned<GivenValue>,
    /// It comes from a section that is referred to.
    pub inherited: bool,
}

/// The text of a value, which remembers whether anybody has obeyed it.
#[derive(Clone)]
pub(crate) struct GivenValue {
    content: Zeroizing<String>,
    obeyed: Cell<bool>,
}

impl GivenValue {
    pub fn new(content: Zeroizing<String>) -> Self {
        Self {
            content,
            obeyed: Cell::new(false),
        }
    }

    /// Returns the text to somebody who obeys or reports it. Values that nobody has asked for are errors.
    pub fn obey(&self) -> &str {
        self.obeyed.set(true);
        &self.content
    }

    /// Returns the text to somebody who only compares or copies it.
    pub fn peek(&self) -> &str {
        &self.content
    }

    pub fn is_empty(&self) -> bool {
        self.content.is_empty()
    }
}

impl std::fmt::Debug for KeyValue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Print no value: any may be a secret, even under a misspelt key.
        f.debug_tuple("KeyValue").field(&self.key.value).finish()
    }
}

impl SectionNode {
    pub fn new(name: Spanned<String>) -> Self {
        Self {
            name,
            references: Vec::new(),
            values: Vec::new(),
            sections: Vec::new(),
            inherited_by: None,
            known: Cell::new(false),
            value_index: HashMap::new(),
            section_index: HashMap::new(),
        }
    }

    /// Sets a value. Returns the earlier value of the same key, which it replaces.
    pub fn set(&mut self, entry: KeyValue) -> Option<KeyValue> {
        match self
            .value_index
            .get(&entry.key.value)
            .and_then(|&at| self.values.get_mut(at))
        {
            Some(slot) => Some(std::mem::replace(slot, entry)),
            None => {
                self.value_index
                    .insert(entry.key.value.clone(), self.values.len());
                self.values.push(entry);
                None
            }
        }
    }

    /// Returns the section with that name, and creates it if there is none.
    pub fn open(&mut self, name: Spanned<String>) -> &mut SectionNode {
        let at = match self.section_index.get(&name.value) {
            Some(&at) => at,
            None => {
                self.section_index
                    .insert(name.value.clone(), self.sections.len());
                self.sections.push(SectionNode::new(name));
                self.sections.len() - 1
            }
        };
        &mut self.sections[at]
    }

    /// The place of what this section lacks: its own, or that of the section that inherits it.
    pub fn place(&self) -> Location {
        self.inherited_by.unwrap_or(self.name.at)
    }

    fn set_inherited_by(&mut self, heir: Location) {
        self.inherited_by = Some(heir);
        for entry in &mut self.values {
            entry.inherited = true;
        }
        for section in &mut self.sections {
            section.set_inherited_by(heir);
        }
    }

    pub fn value(&self, key: &str) -> Option<&KeyValue> {
        self.value_index
            .get(key)
            .and_then(|&at| self.values.get(at))
    }

    pub fn section(&self, name: &str) -> Option<&SectionNode> {
        self.section_index
            .get(name)
            .and_then(|&at| self.sections.get(at))
    }

    pub fn values(&self) -> &[KeyValue] {
        &self.values
    }

    pub fn sections(&self) -> &[SectionNode] {
        &self.sections
    }

    pub fn is_empty(&self) -> bool {
        self.values.is_empty() && self.sections.is_empty()
    }

    pub fn set_known(&self) {
        self.known.set(true);
    }

    /// Calls `visit` for each section of `self` that nobody knows, and for each value that nobody has obeyed in the
    /// others.
    pub fn for_each_ignored(&self, visit: &mut impl FnMut(&Spanned<String>)) {
        for entry in &self.values {
            if !entry.value.value.is_empty() && !entry.value.value.obeyed.get() {
                visit(&entry.key);
            }
        }
        for section in &self.sections {
            match section.known.get() {
                true => section.for_each_ignored(visit),
                false => visit(&section.name),
            }
        }
    }

    /// Adds what `other` has and `self` lacks. What `self` has takes precedence.
    fn inherit(&mut self, other: &SectionNode) {
        for entry in &other.values {
            if self.value(&entry.key.value).is_none() {
                self.set(KeyValue {
                    inherited: true,
                    ..entry.clone()
                });
            }
        }
        for section in &other.sections {
            match self.section_index.get(&section.name.value) {
                Some(&at) => self.sections[at].inherit(section),
                None => {
                    self.section_index
                        .insert(section.name.value.clone(), self.sections.len());
                    let mut section = section.clone();
                    section.set_inherited_by(self.name.at);
                    self.sections.push(section);
                }
            }
        }
    }

    fn size(&self) -> usize {
        1 + self.values.len() + self.sections.iter().map(SectionNode::size).sum::<usize>()
    }
}

/// Upper bound of the values and sections that inheritance copies in total.
const INHERITED_MAX: usize = 1_000_000;
/// Upper bound of the sections that refer to each other in a chain.
const CHAIN_MAX: usize = 32;

/// Carries out all references (`name : other.section { … }`) below `root`.
pub(crate) fn resolve(root: &SectionNode, diagnostics: &mut Diagnostics) -> SectionNode {
    let mut resolver = Resolver {
        root,
        diagnostics,
        budget: INHERITED_MAX,
        exhausted: false,
    };
    resolver.node(root, &mut Vec::new())
}

/// Returns the first part of every path that a section refers to. These top-level sections are
/// templates.
pub(crate) fn referenced_roots(root: &SectionNode) -> std::collections::HashSet<&str> {
    let mut found = std::collections::HashSet::new();
    let mut open = vec![root];
    while let Some(node) = open.pop() {
        found.extend(
            node.references
                .iter()
                .filter_map(|reference| reference.value.split('.').next()),
        );
        open.extend(&node.sections);
    }
    found
}

struct Resolver<'a> {
    root: &'a SectionNode,
    diagnostics: &'a mut Diagnostics,
    budget: usize,
    exhausted: bool,
}

impl<'a> Resolver<'a> {
    /// Copies `node` with everything that it inherits. `chain` holds the references in progress, to
    /// find cycles.
    fn node(&mut self, node: &'a SectionNode, chain: &mut Vec<&'a str>) -> SectionNode {
        let mut out = SectionNode::new(node.name.clone());
        if !self.spend(1 + node.values.len(), &node.name.at) {
            return out;
        }
        out.values.clone_from(&node.values);
        out.value_index.clone_from(&node.value_index);
        out.section_index.clone_from(&node.section_index);
        out.sections = node
            .sections
            .iter()
            .map(|section| self.node(section, chain))
            .collect();
        for reference in &node.references {
            if let Some(inherited) = self.reference(reference, chain) {
                if !self.spend(inherited.size(), &reference.at) {
                    break;
                }
                out.inherit(&inherited);
            }
        }
        out
    }

    fn reference(
        &mut self,
        reference: &'a Spanned<String>,
        chain: &mut Vec<&'a str>,
    ) -> Option<SectionNode> {
        let mut target = self.root;
        for part in reference.value.split('.') {
            let Some(next) = target.section(part) else {
                let known = target
                    .sections
                    .iter()
                    .map(|section| section.name.value.as_str());
                let help = match nearest(part, known) {
                    Some(near) => format!("the nearest section there is {}", quoted(near)),
                    None => "a reference is the full path of a section, such as `connections.site`"
                        .to_owned(),
                };
                let what = format!("there is no section {}", quoted(&reference.value));
                self.diagnostics
                    .push(Diagnostic::error(what).at(reference.at).help(help));
                return None;
            };
            target = next;
        }
        if chain.contains(&reference.value.as_str()) {
            let what = format!("section {} refers to itself", quoted(&reference.value));
            let help = "remove one of the references that form the circle";
            self.diagnostics
                .push(Diagnostic::error(what).at(reference.at).help(help));
            return None;
        }
        if chain.len() == CHAIN_MAX {
            let what = format!("more than {CHAIN_MAX} sections refer to each other in a row");
            self.diagnostics.push(
                Diagnostic::error(what)
                    .at(reference.at)
                    .help("flatten the chain of references"),
            );
            return None;
        }
        chain.push(&reference.value);
        let resolved = self.node(target, chain);
        chain.pop();
        Some(resolved)
    }

    fn spend(&mut self, cost: usize, at: &Location) -> bool {
        self.budget = self.budget.saturating_sub(cost);
        if self.budget == 0 && !self.exhausted {
            self.exhausted = true;
            let what = format!("the references expand to more than {INHERITED_MAX} settings");
            self.diagnostics.push(
                Diagnostic::error(what)
                    .at(*at)
                    .help("refer to smaller sections"),
            );
        }
        self.budget > 0
    }
}
