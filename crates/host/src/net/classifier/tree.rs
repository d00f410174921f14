//! The maps behind a node, as a tree of intervals with one level for each field of a packet. Rules that come and go
//! change the intervals that they are about, and those that meet these. The others keep their numbers.

use std::collections::{BTreeMap, BTreeSet};

use super::{Branch, ClassifierMap, ClassifierRule, OverlapsTooOften, Span, WorkLimit};

/// The intervals of a field.
#[derive(Clone, Debug, Default)]
pub(super) struct Level(Intervals);

/// Intervals by their first numbers. Most fields have one interval, which takes a tenth of the room of a map.
#[derive(Clone, Debug, Default)]
enum Intervals {
    #[default]
    Empty,
    One(u128, Interval),
    Many(BTreeMap<u128, Interval>),
}

#[derive(Clone, Debug)]
struct Interval {
    last: u128,
    verdict: Option<u64>,
    behind: Option<Box<Behind>>,
}

#[derive(Clone, Debug)]
struct Behind {
    node: u64,
    level: Level,
}

/// The field of a packet that a level looks at.
#[derive(Clone, Copy, Debug)]
enum Field {
    Local,
    Protocol,
    RemotePort,
    LocalPort,
}

/// Rules that come and go, and all rules that stand then, in their order. All of them are about the interval of each
/// field before.
#[derive(Clone, Copy, Debug)]
pub(super) struct RuleChange<'a> {
    pub gone: &'a [&'a ClassifierRule],
    pub come: &'a [&'a ClassifierRule],
    pub after: &'a [&'a ClassifierRule],
}

/// A change of trees under way.
#[derive(Debug)]
pub(super) struct LevelChange<'a> {
    pub next_node: u64,
    /// The work that is left. `None` sets no bound.
    budget: Option<&'a mut WorkLimit>,
    /// Branches that have come (1) or gone (-1).
    pub changes: Vec<(Branch, i8)>,
    /// The changes that are off the budget.
    paid: usize,
    /// The work so far: rules in intervals that were looked at, and changes.
    pub work: usize,
}

impl Field {
    fn span(self, rule: &ClassifierRule) -> Span {
        let ports = rule.ports.unwrap_or([(0, u16::MAX); 2]);
        match self {
            Self::Local => rule.local,
            Self::Protocol => wide(rule.protocol),
            Self::RemotePort => wide(ports[0]),
            Self::LocalPort => wide(ports[1]),
        }
    }

    /// Returns the verdict on packets that show no further field. The first rule that takes them decides.
    fn verdict(self, rules: &[&ClassifierRule]) -> Option<u64> {
        let takes = |rule: &ClassifierRule| match self {
            Self::Local => rule.ports.is_none() && rule.protocol == (0, u8::MAX),
            Self::Protocol => rule.ports.is_none(),
            Self::RemotePort => false,
            Self::LocalPort => true,
        };
        let first = rules.iter().find(|rule| takes(rule))?;
        Some(first.verdict())
    }

    /// Returns the next field, if these rules ask for it.
    fn goes_on(self, rules: &[&ClassifierRule]) -> Option<Self> {
        let asked = match self {
            Self::Protocol => rules.iter().any(|rule| rule.ports.is_some()),
            _ => true,
        };
        self.next().filter(|_| asked)
    }

    fn next(self) -> Option<Self> {
        match self {
            Self::Local => Some(Self::Protocol),
            Self::Protocol => Some(Self::RemotePort),
            Self::RemotePort => Some(Self::LocalPort),
            Self::LocalPort => None,
        }
    }

    /// The maps with the verdicts of this field's intervals, and with the nodes behind them.
    fn maps(self) -> (ClassifierMap, ClassifierMap) {
        match self {
            Self::Local => (ClassifierMap::Addresses, ClassifierMap::Local),
            Self::Protocol => (ClassifierMap::Protocol, ClassifierMap::PortProtocol),
            Self::RemotePort => (ClassifierMap::RemotePort, ClassifierMap::RemotePort),
            Self::LocalPort => (ClassifierMap::LocalPort, ClassifierMap::LocalPort),
        }
    }

    /// The branches of an interval of the node: to its verdict, and to the node behind it.
    fn branches(self, node: u64, first: u128, one: &Interval) -> [Option<Branch>; 2] {
        let (verdicts, nodes) = self.maps();
        let branch = |map, to| Branch {
            map,
            node,
            span: (first, one.last),
            to,
        };
        let behind = one.behind.as_ref();
        [
            one.verdict.map(|to| branch(verdicts, to)),
            behind.map(|behind| branch(nodes, behind.node)),
        ]
    }
}

impl Level {
    /// Adds all branches of the tree behind a node to a list.
    pub fn collect(&self, node: u64, to: &mut Vec<Branch>) {
        self.visit(Field::Local, node, &mut |branch| to.push(branch));
    }

    fn visit(&self, field: Field, node: u64, take: &mut dyn FnMut(Branch)) {
        match &self.0 {
            Intervals::Empty => {}
            Intervals::One(first, one) => one.visit(field, node, *first, take),
            Intervals::Many(all) => {
                for (first, one) in all {
                    one.visit(field, node, *first, take);
                }
            }
        }
    }

    fn insert(&mut self, first: u128, one: Interval) {
        self.0 = match std::mem::take(&mut self.0) {
            Intervals::Empty => Intervals::One(first, one),
            Intervals::One(other, former) => {
                Intervals::Many([(other, former), (first, one)].into())
            }
            Intervals::Many(mut all) => {
                all.insert(first, one);
                Intervals::Many(all)
            }
        };
    }

    /// Returns the last interval that begins at a place or before it.
    fn last_from(&self, at: u128) -> Option<Span> {
        match &self.0 {
            Intervals::Empty => None,
            Intervals::One(first, one) => (*first <= at).then_some((*first, one.last)),
            Intervals::Many(all) => {
                let (first, one) = all.range(..=at).next_back()?;
                Some((*first, one.last))
            }
        }
    }

    /// Takes out the intervals inside a span.
    fn take(&mut self, (first, last): Span) -> Vec<(u128, Interval)> {
        let Intervals::Many(all) = &mut self.0 else {
            return match std::mem::take(&mut self.0) {
                Intervals::One(at, one) if (first..=last).contains(&at) => vec![(at, one)],
                other => {
                    self.0 = other;
                    Vec::new()
                }
            };
        };
        let inside: Vec<_> = all.range(first..=last).map(|(at, _)| *at).collect();
        let inside = inside.into_iter();
        let inside = inside.filter_map(|at| Some((at, all.remove(&at)?)));
        let inside = inside.collect();
        if all.is_empty() {
            self.0 = Intervals::Empty;
        }
        inside
    }

    /// Returns the spans that rules are about, each with the intervals that it meets. A rule that comes can cut these.
    /// A rule that goes can leave one of two.
    fn windows(&self, field: Field, change: RuleChange<'_>) -> Vec<Span> {
        let window = |rule: &&ClassifierRule| {
            let (first, last) = field.span(rule);
            let beside = first.saturating_sub(1);
            let before = self.last_from(beside);
            let before = before.filter(|(_, end)| *end >= beside);
            let behind = self.last_from(last.saturating_add(1));
            let behind = behind.map_or(last, |(_, end)| end.max(last));
            (before.map_or(first, |(first, _)| first), behind)
        };
        let changed = change.gone.iter().chain(change.come);
        if matches!(self.0, Intervals::Empty) {
            let spans = changed.map(|rule| field.span(rule));
            let whole = spans.reduce(|one, other| (one.0.min(other.0), one.1.max(other.1)));
            return whole.into_iter().collect();
        }
        let mut windows: Vec<_> = changed.map(window).collect();
        windows.sort_unstable();
        let mut joined: Vec<Span> = Vec::new();
        for (first, last) in windows {
            match joined.last_mut() {
                Some(open) if first <= open.1.saturating_add(1) => open.1 = open.1.max(last),
                _ => joined.push((first, last)),
            }
        }
        joined
    }
}

impl Interval {
    fn visit(&self, field: Field, node: u64, first: u128, take: &mut dyn FnMut(Branch)) {
        for branch in field.branches(node, first, self).into_iter().flatten() {
            take(branch);
        }
        if let (Some(behind), Some(next)) = (&self.behind, field.next()) {
            behind.level.visit(next, behind.node, take);
        }
    }
}

impl<'a> RuleChange<'a> {
    pub fn from_nothing(rules: &'a [&'a ClassifierRule]) -> Self {
        Self {
            gone: &[],
            come: rules,
            after: rules,
        }
    }
}

impl<'a> LevelChange<'a> {
    pub fn new(next_node: u64, budget: Option<&'a mut WorkLimit>) -> Self {
        Self {
            next_node,
            budget,
            changes: Vec::new(),
            paid: 0,
            work: 0,
        }
    }

    /// Returns the number of a new node.
    pub fn number(&mut self) -> u64 {
        let number = self.next_node;
        self.next_node += 1;
        number
    }

    /// Lets the tree behind a node follow its rules. After an error the tree is in pieces.
    pub fn follow(
        &mut self,
        tree: &mut Level,
        node: u64,
        change: RuleChange<'_>,
    ) -> Result<(), OverlapsTooOften> {
        self.level(Field::Local, node, tree, change)?;
        self.spend(0)
    }

    /// Notes that the tree behind a node is gone.
    pub fn drop_tree(&mut self, tree: &Level, node: u64) {
        tree.visit(Field::Local, node, &mut |branch| self.note(branch, -1));
    }

    fn level(
        &mut self,
        field: Field,
        node: u64,
        level: &mut Level,
        change: RuleChange<'_>,
    ) -> Result<(), OverlapsTooOften> {
        let windows = level.windows(field, change);
        let rules = by_span(field, change.after, &windows);
        for (window, rules) in windows.into_iter().zip(rules) {
            let intervals = self.intervals(field, window, &rules)?;
            let former = level.take(window);
            let span = |(first, one): &(u128, Interval)| (*first, one.last);
            let gone = by_span(
                field,
                change.gone,
                &former.iter().map(span).collect::<Vec<_>>(),
            );
            let spans: Vec<_> = intervals.iter().map(|(span, _)| *span).collect();
            let come = by_span(field, change.come, &spans);
            let mut former = former.into_iter().zip(gone).peekable();
            for ((span, rules), come) in intervals.into_iter().zip(come) {
                let is_before = |((_, one), _): &((_, Interval), _)| one.last < span.0;
                while let Some(((first, one), _)) = former.next_if(is_before) {
                    self.drop_interval(field, node, first, &one);
                }
                // The first of the new intervals that lie in a former one has its numbers.
                let one = match former.next_if(|((first, _), _)| *first <= span.1) {
                    Some((one, gone)) => {
                        let change = RuleChange {
                            gone: &gone,
                            come: &come,
                            after: &rules,
                        };
                        self.go_on(field, node, one, span, change)?
                    }
                    None => self.make(field, node, span, &rules)?,
                };
                level.insert(span.0, one);
            }
            for ((first, one), _) in former {
                self.drop_interval(field, node, first, &one);
            }
        }
        Ok(())
    }

    fn go_on(
        &mut self,
        field: Field,
        node: u64,
        (first, mut one): (u128, Interval),
        span: Span,
        change: RuleChange<'_>,
    ) -> Result<Interval, OverlapsTooOften> {
        if (first, one.last) == span && change.gone.is_empty() && change.come.is_empty() {
            return Ok(one);
        }
        let before = field.branches(node, first, &one);
        one.last = span.1;
        one.verdict = field.verdict(change.after);
        match (field.goes_on(change.after), one.behind.take()) {
            (Some(next), Some(mut behind)) => {
                self.level(next, behind.node, &mut behind.level, change)?;
                one.behind = Some(behind);
            }
            (Some(next), None) => one.behind = Some(self.behind(next, change.after)?),
            (None, Some(behind)) => {
                if let Some(next) = field.next() {
                    let note = &mut |branch| self.note(branch, -1);
                    behind.level.visit(next, behind.node, note);
                }
            }
            (None, None) => {}
        }
        let after = field.branches(node, span.0, &one);
        for (before, after) in before.into_iter().zip(after) {
            if before != after {
                before.into_iter().for_each(|branch| self.note(branch, -1));
                after.into_iter().for_each(|branch| self.note(branch, 1));
            }
        }
        Ok(one)
    }

    fn make(
        &mut self,
        field: Field,
        node: u64,
        (first, last): Span,
        rules: &[&ClassifierRule],
    ) -> Result<Interval, OverlapsTooOften> {
        let behind = field.goes_on(rules);
        let one = Interval {
            last,
            verdict: field.verdict(rules),
            behind: behind.map(|next| self.behind(next, rules)).transpose()?,
        };
        for branch in field.branches(node, first, &one).into_iter().flatten() {
            self.note(branch, 1);
        }
        Ok(one)
    }

    fn behind(
        &mut self,
        field: Field,
        rules: &[&ClassifierRule],
    ) -> Result<Box<Behind>, OverlapsTooOften> {
        let node = self.number();
        let mut level = Level::default();
        self.level(field, node, &mut level, RuleChange::from_nothing(rules))?;
        Ok(Box::new(Behind { node, level }))
    }

    fn drop_interval(&mut self, field: Field, node: u64, first: u128, one: &Interval) {
        one.visit(field, node, first, &mut |branch| self.note(branch, -1));
    }

    fn note(&mut self, branch: Branch, change: i8) {
        self.work += 1;
        self.changes.push((branch, change));
    }

    fn spend(&mut self, work: usize) -> Result<(), OverlapsTooOften> {
        self.work += work;
        if let Some(budget) = &mut self.budget {
            budget.spend(work)?;
            let changed = std::mem::replace(&mut self.paid, self.changes.len());
            budget.change(self.changes.len() - changed)?;
        }
        Ok(())
    }

    /// Cuts a window where one of the rules begins or ends. Returns each interval with the rules that it lies in.
    fn intervals<'r>(
        &mut self,
        field: Field,
        window: Span,
        rules: &[&'r ClassifierRule],
    ) -> Result<Vec<(Span, Vec<&'r ClassifierRule>)>, OverlapsTooOften> {
        let clip = |(first, last): Span| (first.max(window.0), last.min(window.1));
        let spans = rules.iter().map(|rule| clip(field.span(rule)));
        let mut spans: Vec<_> = spans.zip(0..).collect();
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
            let rules = active.iter().filter_map(|index| rules.get(*index).copied());
            intervals.push(((edge, last), rules.collect()));
        }
        Ok(intervals)
    }
}

/// Returns the rules about each of some spans, which have an order and do not overlap.
fn by_span<'r>(
    field: Field,
    rules: &[&'r ClassifierRule],
    spans: &[Span],
) -> Vec<Vec<&'r ClassifierRule>> {
    let mut all = vec![Vec::new(); spans.len()];
    for rule in rules {
        let (first, last) = field.span(rule);
        let from = spans.partition_point(|span| span.1 < first);
        let about = all.iter_mut().zip(spans).skip(from);
        for (of_span, _) in about.take_while(|(_, span)| span.0 <= last) {
            of_span.push(*rule);
        }
    }
    all
}

fn wide<T: Into<u128>>((first, last): (T, T)) -> Span {
    (first.into(), last.into())
}
