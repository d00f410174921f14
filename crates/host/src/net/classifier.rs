//! Compiles ordered rules about packets into maps of intervals that lead from field to field, as nf_tables can look
//! them up: source address, destination address, protocol, ports. A packet costs one search in each map, however many
//! rules there are.
//!
//! Holders of rules come and go. What changes are the stretches of remote addresses that a holder's rules are about, and
//! in the nodes behind these the intervals that the rules meet. Holders that go together change each stretch once.
//! Stretches with the same rules share a node.

mod tree;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::hash::{BuildHasher, RandomState};

use tree::{Level, LevelChange, RuleChange};

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

/// Those who hold rules, each with a number. The first two numbers of a rule's place are the holder's.
type Holder = (usize, u64);

/// Rules of one holder for a range of remote addresses.
#[derive(Clone, Copy, Debug)]
pub struct HeldRules<'a> {
    /// The chain of rules that they are in.
    pub chain: u32,
    pub remote: Span,
    /// In the order of their places.
    pub rules: &'a [(RulePlace, ClassifierRule)],
    /// The number of the one whom the branches are charged to.
    pub payer: Option<u64>,
}

/// The work that rules may make when they come.
#[derive(Debug)]
pub struct WorkLimit {
    /// The number of rules in all intervals that are looked at.
    pub rules: usize,
    /// The number of branches that come or go.
    pub branches: usize,
}

impl WorkLimit {
    fn spend(&mut self, rules: usize) -> Result<(), OverlapsTooOften> {
        self.rules = self.rules.checked_sub(rules).ok_or(OverlapsTooOften)?;
        Ok(())
    }

    fn change(&mut self, branches: usize) -> Result<(), OverlapsTooOften> {
        let left = self.branches.checked_sub(branches);
        self.branches = left.ok_or(OverlapsTooOften)?;
        Ok(())
    }
}

#[derive(Debug)]
pub struct Classifier {
    /// The stretches of remote addresses, each by the chain of rules that it is in and by its first address.
    stretches: BTreeMap<StretchKey, Stretch>,
    /// By their numbers.
    nodes: HashMap<u64, Node>,
    /// The numbers of nodes, by the hashes of their rules.
    by_hash: HashMap<u64, Vec<u64>>,
    hasher: RandomState,
    next_node: u64,
    /// The number of branches.
    len: usize,
    /// Rules that are to go.
    leaving: Vec<Leaving>,
    /// The branches that each payer's stretches have, as if no other stretch shared them.
    charges: HashMap<u64, usize>,
    /// Branches that have come (1) or gone (-1) since they were taken last.
    changes: BTreeMap<Branch, i8>,
    /// Rules in intervals that were looked at, and branches that were noted, so far.
    work: u64,
}

type StretchKey = (u32, u128);

#[derive(Clone, Debug)]
struct Stretch {
    last: u128,
    rules: Vec<(RulePlace, ClassifierRule)>,
    /// The sum of the rules' hashes.
    hash: u64,
    node: u64,
    /// How many of the rules each payer pays for.
    payers: BTreeMap<u64, usize>,
}

#[derive(Debug)]
struct Node {
    stretches: usize,
    rules: Vec<ClassifierRule>,
    /// The sum of the rules' hashes.
    hash: u64,
    tree: Level,
    /// The number of branches of the tree.
    branches: usize,
}

#[derive(Clone, Copy, Debug)]
struct Leaving {
    chain: u32,
    remote: Span,
    holder: Holder,
    payer: Option<u64>,
}

impl Default for Classifier {
    fn default() -> Self {
        Self {
            stretches: BTreeMap::new(),
            nodes: HashMap::new(),
            by_hash: HashMap::new(),
            hasher: RandomState::new(),
            next_node: FIRST_NODE,
            len: 0,
            leaving: Vec::new(),
            charges: HashMap::new(),
            changes: BTreeMap::new(),
            work: 0,
        }
    }
}

impl Classifier {
    /// Adds rules of a holder. After an error, [`Self::remove`] takes back what was added.
    pub fn add(
        &mut self,
        held: HeldRules<'_>,
        budget: &mut WorkLimit,
    ) -> Result<(), OverlapsTooOften> {
        self.settle();
        let (chain, (first, last)) = (held.chain, held.remote);
        self.cut(chain, held.remote);
        for (first, last) in self.parts(chain, (first, last)) {
            let former = self.stretches.get(&(chain, first));
            let work = former.map_or(0, |one| one.rules.len()) + held.rules.len();
            budget.spend(work)?;
            self.edit((chain, first), last, &[], Some((held, &mut *budget)))?;
        }
        self.merge(chain, held.remote);
        Ok(())
    }

    /// Removes the rules of a holder from a range of remote addresses. They go together with others, once the branches
    /// are asked for or rules come.
    pub fn remove(&mut self, chain: u32, remote: Span, holder: Holder, payer: Option<u64>) {
        self.leaving.push(Leaving {
            chain,
            remote,
            holder,
            payer,
        });
    }

    /// Returns the number of branches.
    pub fn branch_count(&mut self) -> usize {
        self.settle();
        self.len
    }

    /// Returns the number of branches that a payer would have alone.
    pub fn charge(&mut self, payer: u64) -> usize {
        self.settle();
        self.charges.get(&payer).copied().unwrap_or_default()
    }

    /// Returns all branches, in their order.
    pub fn branches(&mut self) -> Vec<Branch> {
        self.settle();
        let stretches = self.stretches.iter();
        let mut all: Vec<_> = stretches.map(|(at, one)| one.branch(*at)).collect();
        for (number, node) in &self.nodes {
            node.tree.collect(*number, &mut all);
        }
        all.sort_unstable();
        all
    }

    /// Takes the branches that have gone, and those that have come, since the last call.
    pub fn take_changes(&mut self) -> (Vec<Branch>, Vec<Branch>) {
        self.settle();
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

    /// Returns the work so far: rules in intervals that were looked at, and branches that changed.
    pub fn work(&self) -> u64 {
        self.work
    }

    /// Lets all rules go that are to go. Each stretch changes once, however many holders leave it.
    fn settle(&mut self) {
        let all = std::mem::take(&mut self.leaving);
        let mut by_stretch: BTreeMap<StretchKey, Vec<(Holder, Option<u64>)>> = BTreeMap::new();
        for one in &all {
            self.cut(one.chain, one.remote);
        }
        for one in &all {
            let range = (one.chain, one.remote.0)..=(one.chain, one.remote.1);
            for (key, _) in self.stretches.range(range) {
                let leaving = by_stretch.entry(*key).or_default();
                leaving.push((one.holder, one.payer));
            }
        }
        for (key, leaving) in by_stretch {
            if let Some(last) = self.stretches.get(&key).map(|one| one.last) {
                let edited = self.edit(key, last, &leaving, None);
                // Without a budget nothing runs out.
                debug_assert_eq!(edited, Ok(()));
            }
        }
        for one in &all {
            self.merge(one.chain, one.remote);
        }
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

    /// Lets stretches begin and end where a span does.
    fn cut(&mut self, chain: u32, (first, last): Span) {
        for at in [Some(first), last.checked_add(1)].into_iter().flatten() {
            let before = self.stretches.range((chain, 0)..(chain, at)).next_back();
            let Some((key, _)) = before.filter(|(_, stretch)| stretch.last >= at) else {
                continue;
            };
            let key = *key;
            let Some(mut left) = self.take_out(key) else {
                continue;
            };
            let right = left.clone();
            left.last = at - 1;
            if let Some(node) = self.nodes.get_mut(&left.node) {
                node.stretches += 1;
            }
            self.put(key, left);
            self.put((chain, at), right);
        }
    }

    /// Makes one stretch of two with the same rules that meet at the end of a span.
    fn merge(&mut self, chain: u32, (first, last): Span) {
        for at in [Some(first), last.checked_add(1)].into_iter().flatten() {
            let before = self.stretches.range((chain, 0)..(chain, at)).next_back();
            let (Some((key, left)), Some(right)) = (before, self.stretches.get(&(chain, at)))
            else {
                continue;
            };
            if left.last.checked_add(1) != Some(at)
                || left.node != right.node
                || left.rules != right.rules
            {
                continue;
            }
            let key = *key;
            if let (Some(mut left), Some(right)) = (self.take_out(key), self.take_out((chain, at)))
            {
                left.last = right.last;
                self.put(key, left);
                self.leave(right.node);
            }
        }
    }

    /// Takes a stretch out. It keeps its share of the node.
    fn take_out(&mut self, key: StretchKey) -> Option<Stretch> {
        let stretch = self.stretches.remove(&key)?;
        self.note(stretch.branch(key), -1);
        let cost = self.cost(&stretch);
        for payer in stretch.payers.keys() {
            if let Some(charge) = self.charges.get_mut(payer) {
                *charge = charge.saturating_sub(cost);
                if *charge == 0 {
                    self.charges.remove(payer);
                }
            }
        }
        Some(stretch)
    }

    fn put(&mut self, key: StretchKey, stretch: Stretch) {
        self.note(stretch.branch(key), 1);
        let cost = self.cost(&stretch);
        for payer in stretch.payers.keys() {
            *self.charges.entry(*payer).or_default() += cost;
        }
        self.stretches.insert(key, stretch);
    }

    fn cost(&self, stretch: &Stretch) -> usize {
        let node = self.nodes.get(&stretch.node);
        1 + node.map_or(0, |node| node.branches)
    }

    /// Gives up a stretch's share of a node.
    fn leave(&mut self, number: u64) {
        let Some(node) = self.nodes.get_mut(&number) else {
            return;
        };
        node.stretches -= 1;
        if node.stretches == 0
            && let Some(node) = self.nodes.remove(&number)
        {
            self.forget_hash(node.hash, number);
            let mut edit = LevelChange::new(self.next_node, None);
            edit.drop_tree(&node.tree, number);
            self.take_over(edit);
        }
    }

    /// Lets rules go from a stretch, or a gap, and lets others come. After an error nothing has changed.
    fn edit(
        &mut self,
        key: StretchKey,
        last: u128,
        leaving: &[(Holder, Option<u64>)],
        coming: Option<(HeldRules<'_>, &mut WorkLimit)>,
    ) -> Result<(), OverlapsTooOften> {
        let (coming, budget) = coming.unzip();
        let come = coming.map_or(&[][..], |held| held.rules);
        let leaving_holders: HashMap<Holder, Option<u64>> = leaving.iter().copied().collect();
        let former = self.take_out(key);
        let former_node = former.as_ref().map(|one| one.node);
        let mut stretch = former.unwrap_or_else(|| Stretch::empty(last));
        let mut gone = Vec::new();
        if !leaving_holders.is_empty() {
            stretch.rules.retain(|(place, rule)| {
                let payer = leaving_holders.get(&holder(*place));
                if let Some(payer) = payer {
                    gone.push(*rule);
                    payer.inspect(|payer| drop_payer(&mut stretch.payers, *payer));
                }
                payer.is_none()
            });
        }
        stretch.rules.extend(come);
        stretch.rules.shrink_to_fit();
        // Two runs in their order become one.
        stretch.rules.sort_by_key(|(place, _)| *place);
        if let Some(payer) = coming.and_then(|held| held.payer) {
            *stretch.payers.entry(payer).or_default() += come.len();
        }
        let come: Vec<_> = come.iter().map(|(_, rule)| *rule).collect();
        let sums = (self.hash(&gone), self.hash(&come));
        stretch.hash = stretch.hash.wrapping_sub(sums.0).wrapping_add(sums.1);
        if stretch.rules.is_empty() {
            former_node.inspect(|node| self.leave(*node));
            return Ok(());
        }
        let node = self.node_for(&stretch, former_node, (&gone, &come), budget);
        let result = node.map(|node| stretch.node = node);
        if result.is_err() {
            let held = coming.map_or(&[][..], |held| held.rules);
            let came: HashSet<RulePlace> = held.iter().map(|(place, _)| *place).collect();
            stretch.rules.retain(|(place, _)| !came.contains(place));
            stretch.hash = stretch.hash.wrapping_sub(sums.1);
            if let Some(payer) = coming.and_then(|held| held.payer) {
                (0..held.len()).for_each(|_| drop_payer(&mut stretch.payers, payer));
            }
        }
        if result.is_ok() || former_node.is_some() {
            self.put(key, stretch);
        }
        result
    }

    /// Returns the node for the rules of a stretch that was at another node, if it was at any. A node that no other
    /// stretch shares keeps its number: only what differs behind it changes.
    fn node_for(
        &mut self,
        stretch: &Stretch,
        former: Option<u64>,
        (gone, come): (&[ClassifierRule], &[ClassifierRule]),
        budget: Option<&mut WorkLimit>,
    ) -> Result<u64, OverlapsTooOften> {
        let wanted = || stretch.rules.iter().map(|(_, rule)| rule);
        let numbers = self.by_hash.get(&stretch.hash).into_iter().flatten();
        let same = numbers.copied().find(|number| {
            let node = self.nodes.get(number);
            node.is_some_and(|node| node.rules.iter().eq(wanted()))
        });
        if let Some(number) = same {
            if let Some(node) = self.nodes.get_mut(&number) {
                node.stretches += 1;
            }
            former.inspect(|former| self.leave(*former));
            return Ok(number);
        }
        let after: Vec<_> = wanted().collect();
        let own = former.and_then(|number| Some((number, self.nodes.get_mut(&number)?)));
        let own = own.filter(|(_, node)| node.stretches == 1);
        let is_bounded = budget.is_some();
        let mut edit = LevelChange::new(self.next_node, budget);
        let Some((number, node)) = own else {
            let number = edit.number();
            let mut tree = Level::default();
            edit.follow(&mut tree, number, RuleChange::from_nothing(&after))?;
            let node = Node {
                stretches: 1,
                rules: after.into_iter().copied().collect(),
                hash: stretch.hash,
                tree,
                branches: edit.changes.len(),
            };
            self.nodes.insert(number, node);
            self.by_hash.entry(stretch.hash).or_default().push(number);
            self.take_over(edit);
            former.inspect(|former| self.leave(*former));
            return Ok(number);
        };
        let change = RuleChange {
            gone: &gone.iter().collect::<Vec<_>>(),
            come: &come.iter().collect::<Vec<_>>(),
            after: &after,
        };
        if is_bounded {
            // The work can end in the middle.
            let mut tree = node.tree.clone();
            edit.follow(&mut tree, number, change)?;
            node.tree = tree;
        } else {
            edit.follow(&mut node.tree, number, change)?;
        }
        for (_, change) in &edit.changes {
            node.branches = node.branches.saturating_add_signed((*change).into());
        }
        node.rules = after.into_iter().copied().collect();
        let former = std::mem::replace(&mut node.hash, stretch.hash);
        self.take_over(edit);
        self.forget_hash(former, number);
        self.by_hash.entry(stretch.hash).or_default().push(number);
        Ok(number)
    }

    fn take_over(&mut self, edit: LevelChange<'_>) {
        self.next_node = edit.next_node;
        self.work += edit.work as u64;
        for (branch, change) in edit.changes {
            self.note(branch, change);
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

    /// Returns the sum of the rules' hashes. Peers cannot choose rules with the same sum: they do not know the key.
    fn hash(&self, rules: &[ClassifierRule]) -> u64 {
        let hashes = rules.iter().map(|rule| self.hasher.hash_one(rule));
        hashes.fold(0, u64::wrapping_add)
    }

    fn forget_hash(&mut self, hash: u64, number: u64) {
        if let Some(numbers) = self.by_hash.get_mut(&hash) {
            numbers.retain(|other| *other != number);
            if numbers.is_empty() {
                self.by_hash.remove(&hash);
            }
        }
    }
}

fn holder(place: RulePlace) -> Holder {
    (place.0, place.1)
}

fn drop_payer(payers: &mut BTreeMap<u64, usize>, payer: u64) {
    if let Some(rules) = payers.get_mut(&payer) {
        *rules = rules.saturating_sub(1);
        if *rules == 0 {
            payers.remove(&payer);
        }
    }
}

impl Stretch {
    fn empty(last: u128) -> Self {
        Self {
            last,
            rules: Vec::new(),
            hash: 0,
            node: 0,
            payers: BTreeMap::new(),
        }
    }

    fn branch(&self, (chain, first): StretchKey) -> Branch {
        Branch {
            map: ClassifierMap::Remote,
            node: chain.into(),
            span: (first, self.last),
            to: self.node,
        }
    }
}

impl ClassifierRule {
    fn verdict(&self) -> u64 {
        if self.accepts { ACCEPT } else { DROP }
    }
}

#[cfg(test)]
mod tests;
