//! Compiles ordered rules about packets into maps of intervals that lead from field to field, as nf_tables can look
//! them up: source address, destination address, protocol, ports. A packet costs one search in each map, however many
//! rules there are.
//!
//! Rules come and go one holder at a time. What changes are the stretches of remote addresses that the holder's rules
//! are about, and the nodes behind these. Stretches with the same rules share a node.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

/// An inclusive range of numbers.
pub type Span = (u128, u128);

/// A rule about packets, but for their remote addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ClassifierRule {
    pub local: Span,
    pub protocol: (u8, u8),
    /// The remote and the local port. A rule without ports is for packets too whose ports cannot be seen.
    pub ports: Option<[(u16, u16); 2]>,
    pub accepts: bool,
}

/// The place of a rule among all rules: the first rule that names a packet decides. The first two numbers are the
/// holder's.
pub type RulePlace = (usize, u64, usize);

/// A map of intervals, by the packet's field that it looks at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ClassifierMap {
    Remote,
    Local,
    /// The verdict on packets whose protocol cannot be seen.
    Addresses,
    /// The verdict on packets whose ports cannot be seen, or that no rule with ports is about.
    Protocol,
    /// Protocols that rules with ports are about.
    PortProtocol,
    RemotePort,
    LocalPort,
}

impl ClassifierMap {
    pub const ALL: [Self; 7] = [
        Self::Remote,
        Self::Local,
        Self::Addresses,
        Self::Protocol,
        Self::PortProtocol,
        Self::RemotePort,
        Self::LocalPort,
    ];
}

/// The verdicts, as the last map of a way gives them.
pub const DROP: u64 = 1;
pub const ACCEPT: u64 = 2;
/// The first number of a node that is not the start of a chain of rules.
const FIRST_NODE: u64 = 1 << 32;
/// The distance between the numbers of two nodes that stretches share: room for the nodes behind one.
const NODE_DISTANCE: u64 = 1 << 20;

/// An element of a map: from a node, by an interval of a field, to another node or to a verdict.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Branch {
    pub map: ClassifierMap,
    pub node: u64,
    pub span: Span,
    pub to: u64,
}

/// The error that rules overlap so often that the maps would grow out of bounds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the selectors overlap too often")]
pub struct OverlapsTooOften;

#[derive(Debug)]
pub struct Classifier {
    /// The stretches of remote addresses, each by the chain of rules that it is in and by its first address.
    stretches: BTreeMap<(u32, u128), Stretch>,
    nodes: HashMap<Arc<[ClassifierRule]>, Node>,
    next_node: u64,
    /// The number of branches.
    len: usize,
    /// Branches that have come (1) or gone (-1) since they were taken last.
    changes: BTreeMap<Branch, i8>,
}

#[derive(Clone, Debug)]
struct Stretch {
    last: u128,
    rules: Vec<(RulePlace, ClassifierRule)>,
    shared: Arc<[ClassifierRule]>,
    node: u64,
}

#[derive(Debug)]
struct Node {
    number: u64,
    stretches: usize,
    /// In their order.
    branches: Vec<Branch>,
}

impl Default for Classifier {
    fn default() -> Self {
        Self {
            stretches: BTreeMap::new(),
            nodes: HashMap::new(),
            next_node: FIRST_NODE,
            len: 0,
            changes: BTreeMap::new(),
        }
    }
}

impl Classifier {
    /// Adds rules of one holder for a range of remote addresses. `budget` bounds the work: the number of rules in all
    /// intervals that are made anew. After an error, [`Self::remove`] takes back what was added.
    pub fn add(
        &mut self,
        chain: u32,
        remote: Span,
        rules: &[(RulePlace, ClassifierRule)],
        budget: &mut usize,
    ) -> Result<(), OverlapsTooOften> {
        self.edit(chain, remote, Some(budget), |own| {
            own.extend(rules);
            own.sort_unstable_by_key(|(place, _)| *place);
        })
    }

    /// Removes the rules of one holder from a range of remote addresses.
    pub fn remove(&mut self, chain: u32, remote: Span, holder: (usize, u64)) {
        let gone = |place: &RulePlace| (place.0, place.1) == holder;
        let edited = self.edit(chain, remote, None, |own| {
            own.retain(|(place, _)| !gone(place));
        });
        // Without a budget nothing runs out.
        debug_assert_eq!(edited, Ok(()));
    }

    /// Returns the number of branches.
    pub fn branch_count(&self) -> usize {
        self.len
    }

    /// Returns all branches.
    pub fn branches(&self) -> Vec<Branch> {
        let stretches = self.stretches.iter();
        let mut all: Vec<_> = stretches.map(|(at, one)| one.branch(*at)).collect();
        all.extend(self.nodes.values().flat_map(|node| &node.branches));
        all
    }

    /// Takes the branches that have gone, and those that have come, since the last call.
    pub fn take_changes(&mut self) -> (Vec<Branch>, Vec<Branch>) {
        let (mut gone, mut come) = (Vec::new(), Vec::new());
        for (branch, change) in std::mem::take(&mut self.changes) {
            match change {
                ..=-1 => gone.push(branch),
                0 => {}
                1.. => come.push(branch),
            }
        }
        (gone, come)
    }

    fn edit(
        &mut self,
        chain: u32,
        (first, last): Span,
        mut budget: Option<&mut usize>,
        change: impl Fn(&mut Vec<(RulePlace, ClassifierRule)>),
    ) -> Result<(), OverlapsTooOften> {
        self.cut(chain, first);
        if let Some(behind) = last.checked_add(1) {
            self.cut(chain, behind);
        }
        for (first, last) in self.parts(chain, (first, last)) {
            let former = self.stretches.get(&(chain, first));
            let mut rules = former.map(|one| one.rules.clone()).unwrap_or_default();
            if let Some(budget) = &mut budget {
                **budget = budget
                    .checked_sub(rules.len() + 1)
                    .ok_or(OverlapsTooOften)?;
            }
            change(&mut rules);
            self.put(chain, (first, last), rules, budget.as_deref_mut())?;
        }
        self.merge(chain, first);
        if let Some(behind) = last.checked_add(1) {
            self.merge(chain, behind);
        }
        Ok(())
    }

    /// Returns the stretches inside a span, and the gaps between them.
    fn parts(&self, chain: u32, (first, last): Span) -> Vec<Span> {
        let mut parts = Vec::new();
        let mut next = Some(first);
        for ((_, from), stretch) in self.stretches.range((chain, first)..=(chain, last)) {
            if let Some(gap) = next.filter(|gap| gap < from) {
                parts.push((gap, from - 1));
            }
            parts.push((*from, stretch.last));
            next = stretch.last.checked_add(1);
        }
        parts.extend(next.filter(|next| *next <= last).map(|next| (next, last)));
        parts
    }

    /// Lets a stretch begin at this address, if one goes across it.
    fn cut(&mut self, chain: u32, at: u128) {
        let before = self.stretches.range((chain, 0)..(chain, at)).next_back();
        let Some((key, stretch)) = before.filter(|(_, stretch)| stretch.last >= at) else {
            return;
        };
        let (key, mut left, right) = (*key, stretch.clone(), stretch.clone());
        self.note(left.branch(key), -1);
        left.last = at - 1;
        self.note(left.branch(key), 1);
        self.note(right.branch((chain, at)), 1);
        if let Some(node) = self.nodes.get_mut(&right.shared) {
            node.stretches += 1;
        }
        self.stretches.insert(key, left);
        self.stretches.insert((chain, at), right);
    }

    /// Makes one stretch of two with the same rules that meet at this address.
    fn merge(&mut self, chain: u32, at: u128) {
        let before = self.stretches.range((chain, 0)..(chain, at)).next_back();
        let (Some((key, left)), Some(right)) = (before, self.stretches.get(&(chain, at))) else {
            return;
        };
        if left.last.checked_add(1) != Some(at) || left.rules != right.rules {
            return;
        }
        let (key, last) = (*key, right.last);
        self.take_out((chain, at));
        if let Some(mut left) = self.stretches.remove(&key) {
            self.note(left.branch(key), -1);
            left.last = last;
            self.note(left.branch(key), 1);
            self.stretches.insert(key, left);
        }
    }

    /// Puts a stretch with these rules where there is a gap, or a stretch of the same addresses.
    fn put(
        &mut self,
        chain: u32,
        (first, last): Span,
        rules: Vec<(RulePlace, ClassifierRule)>,
        budget: Option<&mut usize>,
    ) -> Result<(), OverlapsTooOften> {
        let key = (chain, first);
        if rules.is_empty() {
            self.take_out(key);
            return Ok(());
        }
        let shared: Arc<[_]> = rules.iter().map(|(_, rule)| *rule).collect();
        // A node that no other stretch shares keeps its number, so that only what differs behind it changes.
        let is_own = |one: &&Stretch| {
            let node = self.nodes.get(&one.shared);
            node.is_some_and(|node| node.stretches == 1)
        };
        let former = self.stretches.get(&key).filter(is_own);
        let former = former.map(|one| Arc::clone(&one.shared));
        let node = self.acquire(&shared, former, budget)?;
        self.take_out(key);
        let stretch = Stretch {
            last,
            rules,
            shared,
            node,
        };
        self.note(stretch.branch(key), 1);
        self.stretches.insert(key, stretch);
        Ok(())
    }

    fn take_out(&mut self, key: (u32, u128)) {
        let Some(stretch) = self.stretches.remove(&key) else {
            return;
        };
        self.note(stretch.branch(key), -1);
        let Some(node) = self.nodes.get_mut(&stretch.shared) else {
            return;
        };
        node.stretches -= 1;
        if node.stretches == 0
            && let Some(node) = self.nodes.remove(&stretch.shared)
        {
            self.replace(&node.branches, &[]);
        }
    }

    /// Returns the node with these rules, and makes it if there is none. `former` are the rules of a node that no
    /// other stretch shares: the new node takes its place and its number, so that only what differs changes.
    fn acquire(
        &mut self,
        rules: &Arc<[ClassifierRule]>,
        former: Option<Arc<[ClassifierRule]>>,
        budget: Option<&mut usize>,
    ) -> Result<u64, OverlapsTooOften> {
        if let Some(node) = self.nodes.get_mut(rules) {
            node.stretches += 1;
            return Ok(node.number);
        }
        let former = former.and_then(|former| self.nodes.get_mut(&former));
        let number = former.as_ref().map_or(self.next_node, |node| node.number);
        let branches = build(rules, number, budget)?;
        match former {
            Some(former) => {
                let gone = std::mem::take(&mut former.branches);
                self.replace(&gone, &branches);
            }
            None => {
                self.next_node += NODE_DISTANCE;
                self.replace(&[], &branches);
            }
        }
        let node = Node {
            number,
            stretches: 1,
            branches,
        };
        self.nodes.insert(Arc::clone(rules), node);
        Ok(number)
    }

    /// Notes what differs between two ordered lists of branches.
    fn replace(&mut self, gone: &[Branch], come: &[Branch]) {
        let (mut gone, mut come) = (gone.iter().peekable(), come.iter().peekable());
        loop {
            let order = match (gone.peek(), come.peek()) {
                (Some(left), Some(right)) => left.cmp(right),
                (Some(_), None) => Ordering::Less,
                (None, Some(_)) => Ordering::Greater,
                (None, None) => return,
            };
            let left = (order != Ordering::Greater).then(|| gone.next()).flatten();
            let right = (order != Ordering::Less).then(|| come.next()).flatten();
            match (left, right) {
                (Some(left), None) => self.note(*left, -1),
                (None, Some(right)) => self.note(*right, 1),
                _ => {}
            }
        }
    }

    fn note(&mut self, branch: Branch, change: i8) {
        let total = self.changes.entry(branch).or_default();
        *total += change;
        if *total == 0 {
            self.changes.remove(&branch);
        }
        self.len = self.len.saturating_add_signed(change.into());
    }
}

impl Stretch {
    fn branch(&self, (chain, first): (u32, u128)) -> Branch {
        Branch {
            map: ClassifierMap::Remote,
            node: chain.into(),
            span: (first, self.last),
            to: self.node,
        }
    }
}

/// A node, and those behind it, under construction.
struct Builder<'a> {
    rules: &'a [ClassifierRule],
    branches: Vec<Branch>,
    next_node: u64,
    budget: Option<&'a mut usize>,
}

/// Makes the node of this number, and those behind it, whose numbers follow. Returns their branches in order.
fn build(
    rules: &[ClassifierRule],
    number: u64,
    budget: Option<&mut usize>,
) -> Result<Vec<Branch>, OverlapsTooOften> {
    let mut builder = Builder {
        rules,
        branches: Vec::new(),
        next_node: number + 1,
        budget,
    };
    let all: Vec<usize> = (0..rules.len()).collect();
    for (span, some) in builder.intervals(&all, |rule| rule.local)? {
        let node = builder.node();
        builder.branch(ClassifierMap::Local, number, span, node);
        builder.protocols(node, span, number, &some)?;
    }
    let mut branches = builder.branches;
    branches.sort_unstable();
    Ok(branches)
}

impl Builder<'_> {
    fn protocols(
        &mut self,
        node: u64,
        local: Span,
        parent: u64,
        rules: &[usize],
    ) -> Result<(), OverlapsTooOften> {
        let known = self.rules;
        let decides = |some: &[usize], takes: fn(&ClassifierRule) -> bool| {
            let mut some = some.iter().filter_map(|index| known.get(*index));
            some.find(|rule| takes(rule)).map(ClassifierRule::verdict)
        };
        let whole = |rule: &ClassifierRule| rule.ports.is_none() && rule.protocol == (0, u8::MAX);
        if let Some(verdict) = decides(rules, whole) {
            self.branch(ClassifierMap::Addresses, parent, local, verdict);
        }
        for (span, some) in self.intervals(rules, |rule| wide(rule.protocol))? {
            if let Some(verdict) = decides(&some, |rule| rule.ports.is_none()) {
                self.branch(ClassifierMap::Protocol, node, span, verdict);
            }
            let mut some_rules = some.iter().filter_map(|index| known.get(*index));
            if some_rules.any(|rule| rule.ports.is_some()) {
                let behind = self.node();
                self.branch(ClassifierMap::PortProtocol, node, span, behind);
                self.ports(behind, &some)?;
            }
        }
        Ok(())
    }

    fn ports(&mut self, node: u64, rules: &[usize]) -> Result<(), OverlapsTooOften> {
        let known = self.rules;
        for (span, some) in self.intervals(rules, |rule| wide(rule.ports()[0]))? {
            let behind = self.node();
            self.branch(ClassifierMap::RemotePort, node, span, behind);
            for (span, some) in self.intervals(&some, |rule| wide(rule.ports()[1]))? {
                let first = some.first().and_then(|index| known.get(*index));
                if let Some(verdict) = first.map(ClassifierRule::verdict) {
                    self.branch(ClassifierMap::LocalPort, behind, span, verdict);
                }
            }
        }
        Ok(())
    }

    fn node(&mut self) -> u64 {
        let number = self.next_node;
        self.next_node += 1;
        number
    }

    fn branch(&mut self, map: ClassifierMap, node: u64, span: Span, to: u64) {
        self.branches.push(Branch {
            map,
            node,
            span,
            to,
        });
    }

    fn spend(&mut self, work: usize) -> Result<(), OverlapsTooOften> {
        if let Some(budget) = &mut self.budget {
            **budget = budget.checked_sub(work).ok_or(OverlapsTooOften)?;
        }
        Ok(())
    }

    /// Cuts the spans of rules where one of them begins or ends. Returns each interval with the rules that it lies in.
    fn intervals(
        &mut self,
        rules: &[usize],
        span: impl Fn(&ClassifierRule) -> Span,
    ) -> Result<Vec<(Span, Vec<usize>)>, OverlapsTooOften> {
        let spans = rules
            .iter()
            .filter_map(|index| Some((span(self.rules.get(*index)?), *index)));
        let mut spans: Vec<_> = spans.collect();
        // Most rules differ in one field only.
        if let Some((span, _)) = spans.first().copied()
            && spans.iter().all(|(other, _)| *other == span)
        {
            self.spend(spans.len())?;
            return Ok(vec![(span, rules.to_vec())]);
        }
        let ends = |(first, last): Span| [Some(first), last.checked_add(1)];
        let edges = spans.iter().flat_map(|(span, _)| ends(*span)).flatten();
        let edges: BTreeSet<u128> = edges.collect();
        spans.sort_unstable();
        let mut coming = spans.into_iter().peekable();
        let (mut active, mut leaving) = (BTreeSet::new(), BTreeSet::new());
        let mut intervals = Vec::new();
        let mut edges = edges.into_iter().peekable();
        while let Some(edge) = edges.next() {
            while let Some((last, index)) = leaving.pop_first() {
                if last >= edge {
                    leaving.insert((last, index));
                    break;
                }
                active.remove(&index);
            }
            while let Some(((_, last), index)) = coming.next_if(|((first, _), _)| *first == edge) {
                active.insert(index);
                leaving.insert((last, index));
            }
            if active.is_empty() {
                continue;
            }
            self.spend(active.len())?;
            let last = edges.peek().map_or(u128::MAX, |next| next - 1);
            intervals.push(((edge, last), active.iter().copied().collect()));
        }
        Ok(intervals)
    }
}

impl ClassifierRule {
    fn ports(&self) -> [(u16, u16); 2] {
        self.ports.unwrap_or([(0, u16::MAX); 2])
    }

    fn verdict(&self) -> u64 {
        if self.accepts { ACCEPT } else { DROP }
    }
}

fn wide<T: Into<u128>>((first, last): (T, T)) -> Span {
    (first.into(), last.into())
}

#[cfg(test)]
mod tests;
