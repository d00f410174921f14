//! Which calls are due: what is up, compared with what scripts were told.
//!
//! A pair of selectors is up while a child SA has it. A script that was told so is told the end, however many calls wait.
//! A pair that ends before its script was told is not mentioned, and neither is one that comes back before its end was
//! told. So there is at most one call for a pair, and what waits takes no more memory than what is up.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;

use esplanade_ike::event::ChildSaId;

use super::environment::{CallSubject, ChildNetworks, SelectorPair};
use super::turns::Turns;

/// Most calls for one child SA when it comes up.
const PAIRS_MAX: usize = 1024;
/// Bytes that the child SAs of one peer of a connection may take here, those of one connection, and all.
const PEER_BYTES_MAX: usize = 1 << 20;
const CONNECTION_BYTES_MAX: usize = 32 << 20;
const BYTES_MAX: usize = 128 << 20;
/// Bytes that a pair takes, with its call, and a child SA besides its networks.
const PAIR_BYTES: usize = 384;
const CHILD_BYTES: usize = 256;

/// The reason why a child SA does not come up: its script cannot be told.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CallsRefused {
    #[error(
        "its updown script would be called {0} times, more than {PAIRS_MAX}; \
         fewer selectors help, and subnets in place of ranges"
    )]
    Pairs(usize),
    #[error("the updown scripts of this peer's child SAs have no more room: the peer has too many")]
    Peer,
    #[error("the updown scripts of this connection have no more room: it has too many child SAs")]
    Connection,
    #[error("updown scripts have no more room: there are too many child SAs")]
    All,
}

/// A call that is to be made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct DueCall {
    pub subject: Arc<CallSubject>,
    pub pair: SelectorPair,
    pub up: bool,
    /// The number of the IKE SA. The end is told with the number that was told before.
    pub ike_sa: u64,
}

#[derive(Debug, Default)]
pub(super) struct CallBook {
    children: HashMap<ChildSaId, ToldChild>,
    subjects: HashMap<Arc<CallSubject>, HashMap<SelectorPair, PairState>>,
    lanes: HashMap<String, ConnectionLane>,
    /// The connections that may make a call, in the order of their turns.
    turns: VecDeque<String>,
    bytes: usize,
    next_place: u64,
}

#[derive(Clone, Debug)]
struct ToldChild {
    subject: Arc<CallSubject>,
    networks: Arc<ChildNetworks>,
}

impl ToldChild {
    fn bytes(&self) -> usize {
        CHILD_BYTES + self.networks.bytes()
    }
}

#[derive(Debug, Default)]
struct PairState {
    /// The number of child SAs that have the pair. A peer that authenticates again has two for a while.
    sas: usize,
    /// The number of the IKE SA of the first of them.
    ike_sa: u64,
    /// A script was told that the pair is up, with this number.
    told: Option<u64>,
    /// The call that waits: whether the pair comes up, and its place.
    waiting: Option<(bool, u64)>,
    is_running: bool,
}

impl PairState {
    /// The call that is missing: for a pair that has come up, or has ended.
    fn wanted(&self) -> Option<bool> {
        match (self.sas > 0, self.told) {
            (true, None) => Some(true),
            (false, Some(_)) => Some(false),
            _ => None,
        }
    }
}

/// The calls of one connection, which are made one after another.
#[derive(Debug, Default)]
struct ConnectionLane {
    /// Ends go first. So the call for an SA that has ended does not undo that for another with the same traffic.
    ended: Turns<(Arc<CallSubject>, SelectorPair)>,
    begun: Turns<(Arc<CallSubject>, SelectorPair)>,
    is_running: bool,
    has_turn: bool,
    /// Bytes of all peers, and of each.
    bytes: usize,
    peers: HashMap<String, usize>,
}

impl ConnectionLane {
    fn waiting(&mut self, up: bool) -> &mut Turns<(Arc<CallSubject>, SelectorPair)> {
        match up {
            true => &mut self.begun,
            false => &mut self.ended,
        }
    }
}

impl CallBook {
    /// Tells whether there is room for a child SA.
    pub fn admits(
        &self,
        subject: &CallSubject,
        networks: &ChildNetworks,
    ) -> Result<(), CallsRefused> {
        let pairs = networks.pairs_count();
        if pairs > PAIRS_MAX {
            return Err(CallsRefused::Pairs(pairs));
        }
        let needed = self.new_bytes(subject, networks);
        let lane = self.lanes.get(&subject.connection);
        let peer = lane.and_then(|lane| lane.peers.get(&subject.peer));
        for (used, max, refused) in [
            (peer.copied(), PEER_BYTES_MAX, CallsRefused::Peer),
            (
                lane.map(|lane| lane.bytes),
                CONNECTION_BYTES_MAX,
                CallsRefused::Connection,
            ),
            (Some(self.bytes), BYTES_MAX, CallsRefused::All),
        ] {
            if used.unwrap_or_default() + needed > max {
                return Err(refused);
            }
        }
        Ok(())
    }

    /// Bytes that one more child SA takes. A peer that authenticates again has the same pairs twice, which are kept once.
    fn new_bytes(&self, subject: &CallSubject, networks: &ChildNetworks) -> usize {
        let known = self.subjects.get(subject);
        let is_new = |pair: &SelectorPair| known.is_none_or(|pairs| !pairs.contains_key(pair));
        let new: HashSet<_> = networks.pairs().filter(is_new).collect();
        let subject = known.map_or_else(|| subject.bytes(), |_| 0);
        subject + CHILD_BYTES + networks.bytes() + new.len() * PAIR_BYTES
    }

    /// A child SA has come up.
    pub fn add(
        &mut self,
        child: ChildSaId,
        ike_sa: u64,
        subject: CallSubject,
        networks: ChildNetworks,
    ) {
        let known = self.subjects.get_key_value(&subject);
        let subject = known.map_or_else(|| Arc::new(subject), |(known, _)| Arc::clone(known));
        let networks = Arc::new(networks);
        self.count(child, ike_sa, ToldChild { subject, networks });
    }

    /// A child SA has come up in the place of another, and stands for the same. The other may have several successors:
    /// both ends can rekey it at once.
    pub fn succeed(&mut self, former: ChildSaId, child: ChildSaId, ike_sa: u64) {
        if let Some(told) = self.children.get(&former).cloned() {
            self.count(child, ike_sa, told);
        }
    }

    fn count(&mut self, child: ChildSaId, ike_sa: u64, told: ToldChild) {
        let (subject, networks) = (Arc::clone(&told.subject), Arc::clone(&told.networks));
        let new_bytes = self.new_bytes(&subject, &networks);
        let pairs = self.subjects.entry(Arc::clone(&subject)).or_default();
        let mut changed = Vec::new();
        for pair in networks.pairs() {
            let state = pairs.entry(pair).or_default();
            if state.sas == 0 {
                state.ike_sa = ike_sa;
                changed.push(pair);
            }
            state.sas += 1;
        }
        self.children.insert(child, told);
        self.charge(&subject, new_bytes);
        self.settle(&subject, &changed);
    }

    /// A child SA has ended.
    pub fn remove(&mut self, child: ChildSaId) {
        let Some(told) = self.children.remove(&child) else {
            return;
        };
        let ToldChild { subject, networks } = &told;
        let mut changed = Vec::new();
        if let Some(pairs) = self.subjects.get_mut(subject) {
            for pair in networks.pairs() {
                if let Some(state) = pairs.get_mut(&pair) {
                    state.sas = state.sas.saturating_sub(1);
                    if state.sas == 0 {
                        changed.push(pair);
                    }
                }
            }
        }
        self.discharge(subject, told.bytes());
        self.settle(subject, &changed);
    }

    /// Takes the next call. Connections take turns, and each has one call under way at most.
    pub fn next(&mut self) -> Option<DueCall> {
        while let Some(connection) = self.turns.pop_front() {
            let Some(lane) = self.lanes.get_mut(&connection) else {
                continue;
            };
            lane.has_turn = false;
            let (taken, up) = match lane.ended.pop() {
                Some(taken) => (taken, false),
                None => match lane.begun.pop() {
                    Some(taken) => (taken, true),
                    None => continue,
                },
            };
            let (subject, pair) = taken;
            let pairs = self.subjects.get_mut(&subject);
            let Some(state) = pairs.and_then(|pairs| pairs.get_mut(&pair)) else {
                continue;
            };
            state.waiting = None;
            state.is_running = true;
            lane.is_running = true;
            let ike_sa = match up {
                true => *state.told.insert(state.ike_sa),
                false => state.told.take().unwrap_or(state.ike_sa),
            };
            return Some(DueCall {
                subject,
                pair,
                up,
                ike_sa,
            });
        }
        None
    }

    /// A call has been made.
    pub fn done(&mut self, call: &DueCall) {
        let DueCall { subject, pair, .. } = call;
        let pairs = self.subjects.get_mut(subject);
        if let Some(state) = pairs.and_then(|pairs| pairs.get_mut(pair)) {
            state.is_running = false;
        }
        if let Some(lane) = self.lanes.get_mut(&subject.connection) {
            lane.is_running = false;
        }
        self.settle(subject, &[*pair]);
    }

    /// Tells whether calls wait that may be made.
    pub fn has_due(&self) -> bool {
        !self.turns.is_empty()
    }

    /// The number of calls that wait.
    pub fn waiting(&self) -> usize {
        let states = self.subjects.values().flat_map(HashMap::values);
        states.filter(|state| state.waiting.is_some()).count()
    }

    /// Lets each of the pairs have the call that it needs, and no other.
    fn settle(&mut self, subject: &Arc<CallSubject>, changed: &[SelectorPair]) {
        let Some(pairs) = self.subjects.get_mut(subject) else {
            return self.tidy(subject);
        };
        let lane = self.lanes.entry(subject.connection.clone()).or_default();
        let mut over = 0;
        for pair in changed {
            let state = pairs.get_mut(pair);
            let Some(state) = state.filter(|state| !state.is_running) else {
                continue;
            };
            let wanted = state.wanted();
            if wanted.is_some() && state.waiting.map(|(up, _)| up) == wanted {
                continue;
            }
            if let Some((up, place)) = state.waiting.take() {
                lane.waiting(up).remove(&subject.peer, place);
            }
            if let Some(up) = wanted {
                let (place, due) = (self.next_place, (Arc::clone(subject), *pair));
                self.next_place += 1;
                state.waiting = Some((up, place));
                lane.waiting(up).push(&subject.peer, place, due);
            } else if state.sas == 0 {
                pairs.remove(pair);
                over += PAIR_BYTES;
            }
        }
        self.discharge(subject, over);
        self.tidy(subject);
    }

    /// Gives a connection its turn if it has calls, and forgets what nothing needs any more.
    fn tidy(&mut self, subject: &Arc<CallSubject>) {
        if self.subjects.get(subject).is_some_and(HashMap::is_empty) {
            self.subjects.remove(subject);
            self.discharge(subject, subject.bytes());
        }
        let connection = &subject.connection;
        let Some(lane) = self.lanes.get_mut(connection) else {
            return;
        };
        let has_calls = !lane.ended.is_empty() || !lane.begun.is_empty();
        if has_calls && !lane.is_running && !lane.has_turn {
            lane.has_turn = true;
            self.turns.push_back(connection.clone());
        } else if !has_calls && !lane.is_running && lane.peers.is_empty() {
            if lane.has_turn {
                self.turns.retain(|other| other != connection);
            }
            self.lanes.remove(connection);
        }
    }

    fn charge(&mut self, subject: &CallSubject, bytes: usize) {
        let lane = self.lanes.entry(subject.connection.clone()).or_default();
        *lane.peers.entry(subject.peer.clone()).or_default() += bytes;
        lane.bytes += bytes;
        self.bytes += bytes;
    }

    fn discharge(&mut self, subject: &CallSubject, bytes: usize) {
        self.bytes = self.bytes.saturating_sub(bytes);
        let Some(lane) = self.lanes.get_mut(&subject.connection) else {
            return;
        };
        lane.bytes = lane.bytes.saturating_sub(bytes);
        if let Some(peer) = lane.peers.get_mut(&subject.peer) {
            *peer = peer.saturating_sub(bytes);
            if *peer == 0 {
                lane.peers.remove(&subject.peer);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::environment::samples::{networks, subject};
    use super::*;

    const NET: &[(&str, &str)] = &[("10.5.0.0", "10.5.0.255")];

    fn child(number: u64) -> ChildSaId {
        ChildSaId(number)
    }

    /// Makes all calls that are due, one after another. Each is "peer up/down subnet".
    fn calls(book: &mut CallBook) -> Vec<String> {
        std::iter::from_fn(|| {
            let call = book.next()?;
            let text = told(&call);
            book.done(&call);
            Some(text)
        })
        .collect()
    }

    fn told(call: &DueCall) -> String {
        let environment = call.subject.environment(&call.pair, call.up, call.ike_sa);
        let (verb, _) = environment["PLUTO_VERB"].split_once('-').unwrap();
        let client = &environment["PLUTO_PEER_CLIENT"];
        format!("{} {verb} {client}", call.subject.peer)
    }

    fn assert_empty(book: &CallBook) {
        let lists = (&book.children, &book.subjects, &book.lanes, &book.turns);
        let lens = (lists.0.len(), lists.1.len(), lists.2.len(), lists.3.len());
        assert_eq!((lens, book.bytes), ((0, 0, 0, 0), 0), "{book:?}");
    }

    #[test]
    fn a_pair_is_told_once_however_many_sas_have_it() {
        let mut book = CallBook::default();
        let both = &[NET[0], ("10.6.0.0", "10.6.0.255")];
        book.add(child(1), 7, subject("site", "a"), networks(NET));
        assert_eq!(calls(&mut book), ["a up 10.5.0.0/24"]);
        book.add(child(2), 8, subject("site", "a"), networks(both));
        assert_eq!(calls(&mut book), ["a up 10.6.0.0/24"]);
        book.remove(child(1));
        assert!(calls(&mut book).is_empty());
        book.remove(child(2));
        let down = ["a down 10.5.0.0/24", "a down 10.6.0.0/24"];
        assert_eq!(calls(&mut book), down);
        book.remove(child(2));
        assert_empty(&book);
    }

    #[test]
    fn the_end_is_told_with_the_number_that_was_told_before() {
        let mut book = CallBook::default();
        book.add(child(1), 7, subject("site", "a"), networks(NET));
        let up = book.next().unwrap();
        book.done(&up);
        book.add(child(2), 8, subject("site", "a"), networks(NET));
        book.remove(child(1));
        book.remove(child(2));
        let down = book.next().unwrap();
        assert_eq!((up.ike_sa, up.up), (7, true));
        assert_eq!((down.ike_sa, down.up), (7, false));
    }

    /// Both ends can rekey an SA at once. The one that loses ends, then the old one.
    #[test]
    fn successors_stand_for_the_same() {
        let mut book = CallBook::default();
        book.add(child(1), 7, subject("site", "a"), networks(NET));
        assert_eq!(calls(&mut book).len(), 1);
        book.succeed(child(1), child(2), 7);
        book.succeed(child(1), child(3), 7);
        book.succeed(child(9), child(4), 7);
        book.remove(child(2));
        book.remove(child(1));
        assert!(calls(&mut book).is_empty());
        book.remove(child(3));
        assert_eq!(calls(&mut book), ["a down 10.5.0.0/24"]);
        assert_empty(&book);
    }

    #[test]
    fn calls_that_were_not_made_cancel_and_no_end_is_lost() {
        let mut book = CallBook::default();
        // A script of the connection hangs.
        book.add(child(1), 7, subject("site", "a"), networks(NET));
        let hangs = book.next().unwrap();
        book.add(child(2), 7, subject("site", "b"), networks(NET));
        book.remove(child(2));
        for number in 10..2000 {
            let remote = format!("10.9.{}.{}", number / 250, number % 250);
            let remote = [(remote.as_str(), remote.as_str())];
            book.add(child(number), 7, subject("site", "c"), networks(&remote));
            book.remove(child(number));
        }
        assert_eq!((book.next(), book.waiting()), (None, 0));
        // The pair whose script hangs goes, comes and goes.
        book.remove(child(1));
        book.add(child(3), 8, subject("site", "a"), networks(NET));
        book.remove(child(3));
        book.done(&hangs);
        assert_eq!(calls(&mut book), ["a down 10.5.0.0/24"]);
        assert_empty(&book);

        // It comes back before its end is told: nothing has changed.
        book.add(child(1), 7, subject("site", "a"), networks(NET));
        assert_eq!(calls(&mut book).len(), 1);
        book.remove(child(1));
        book.add(child(2), 7, subject("site", "a"), networks(NET));
        assert!(calls(&mut book).is_empty());
    }

    #[test]
    fn connections_have_lanes_of_their_own_and_their_peers_take_turns() {
        let mut book = CallBook::default();
        let many: Vec<String> = (0..5).map(|at| format!("10.9.0.{}", 2 * at)).collect();
        let many: Vec<_> = many.iter().map(|at| (&**at, &**at)).collect();
        book.add(child(1), 7, subject("wild", "bad"), networks(&many));
        let first = book.next().unwrap();
        book.add(child(2), 7, subject("wild", "good"), networks(NET));
        book.add(child(3), 7, subject("site", "other"), networks(NET));
        let other = book.next().unwrap();
        assert_eq!(told(&other), "other up 10.5.0.0/24");
        assert_eq!(book.next(), None, "each connection has one under way");
        book.done(&other);
        book.done(&first);
        let next = calls(&mut book);
        assert_eq!(next[1], "good up 10.5.0.0/24", "{next:?}");
        assert_eq!(next.len(), 5);
        // Ends go before what comes up, so that the traffic's next owner keeps it.
        book.remove(child(1));
        book.remove(child(2));
        book.add(child(4), 7, subject("wild", "heir"), networks(NET));
        let next = calls(&mut book);
        assert_eq!(next.len(), 7);
        assert_eq!(next[6], "heir up 10.5.0.0/24", "{next:?}");
        assert!(next[..3].contains(&"good down 10.5.0.0/24".to_owned()));
    }

    #[test]
    fn what_a_peer_can_make_the_gateway_keep_is_bounded() {
        let mut book = CallBook::default();
        let mut made = 0;
        let mut refused = HashMap::new();
        // Each child has a subnet of its own, and each peer as many children as it gets.
        'all: for connection in 0..10 {
            let connection = format!("wild-{connection}");
            for peer in 0..100 {
                let peer = format!("peer-{peer}");
                for _ in 0..64 {
                    let ranges: Vec<_> = (0..256)
                        .map(|at| format!("10.{}.{}.{at}", made >> 8 & 255, made & 255))
                        .collect();
                    let ranges: Vec<_> = ranges.iter().map(|at| (&**at, &**at)).collect();
                    let (subject, networks) = (subject(&connection, &peer), networks(&ranges));
                    match book.admits(&subject, &networks) {
                        Ok(()) => {
                            made += 1;
                            book.add(child(made), 7, subject, networks);
                        }
                        Err(why) => {
                            *refused.entry(why.to_string()).or_insert(0) += 1;
                            match why {
                                CallsRefused::Peer => break,
                                _ => continue 'all,
                            }
                        }
                    }
                }
            }
        }
        assert_eq!(refused.len(), 3, "{refused:?}");
        assert!(
            book.bytes <= BYTES_MAX && made > 1000,
            "{} {made}",
            book.bytes
        );
        for number in 1..=made {
            book.remove(child(number));
        }
        assert_empty(&book);
    }

    /// Pairs that are kept once are counted once: a peer with many pairs can authenticate again.
    #[test]
    fn a_peer_that_authenticates_again_is_admitted() {
        let mut book = CallBook::default();
        let ranges = |net: usize| -> Vec<String> {
            (0..1000)
                .map(|at| format!("10.{net}.{}.{}", at / 100, at % 100 * 2))
                .collect()
        };
        let mut admit = |id, net| {
            let ranges = ranges(net);
            let ranges: Vec<_> = ranges.iter().map(|at| (&**at, &**at)).collect();
            let (subject, networks) = (subject("site", "a"), networks(&ranges));
            book.admits(&subject, &networks)?;
            book.add(child(id), 7, subject, networks);
            Ok(())
        };
        assert_eq!([admit(1, 1), admit(2, 2)], [Ok(()); 2]);
        assert_eq!(admit(3, 3), Err(CallsRefused::Peer), "new pairs");
        assert_eq!([admit(3, 1), admit(4, 2)], [Ok(()); 2]);
        (1..=4).for_each(|id| book.remove(child(id)));
        assert_empty(&book);
    }

    /// The bytes that are counted are what is kept, by the sizes of the types.
    #[test]
    fn a_pair_takes_no_more_than_is_counted() {
        let due = size_of::<(u64, (Arc<CallSubject>, SelectorPair))>();
        let pair = size_of::<(SelectorPair, PairState)>();
        // Tables are at least seven sixteenths full.
        assert!(PAIR_BYTES >= pair * 16 / 7 + 1 + due * 2, "{pair} {due}");
        let told = size_of::<(ChildSaId, ToldChild)>() * 16 / 7;
        assert!(CHILD_BYTES >= told + size_of::<ChildNetworks>() + 16);
    }

    #[test]
    fn a_child_with_too_many_pairs_is_refused() {
        let book = CallBook::default();
        let widest = ("::1", "ffff:ffff:ffff:ffff:ffff:ffff:ffff:fffe");
        let told = subject("site", "a");
        let six = [widest; 5];
        // The network here is of IPv4.
        assert_eq!(book.admits(&told, &networks(&six)), Ok(()));
        let four = [("0.0.0.1", "255.255.255.254"); 17];
        assert_eq!(book.admits(&told, &networks(&four[..16])), Ok(()));
        let refused = book.admits(&told, &networks(&four)).unwrap_err();
        assert_eq!(refused, CallsRefused::Pairs(17 * 62));
        assert!(refused.to_string().contains("fewer selectors help"));
    }
}
