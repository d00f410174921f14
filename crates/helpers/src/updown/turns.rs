//! A queue in which peers take turns, so that the calls of one do not hold up those of others.

use std::collections::{BTreeMap, HashMap};

/// Items of peers. The items of one peer are taken in the order of their places.
#[derive(Debug)]
pub(super) struct Turns<T> {
    of_peer: HashMap<String, PeerItems<T>>,
    /// The peers that have items, in the order of their turns.
    order: BTreeMap<u64, String>,
    next_turn: u64,
}

#[derive(Debug)]
struct PeerItems<T> {
    turn: u64,
    items: BTreeMap<u64, T>,
}

impl<T> Default for Turns<T> {
    fn default() -> Self {
        Self {
            of_peer: HashMap::new(),
            order: BTreeMap::new(),
            next_turn: 0,
        }
    }
}

impl<T> Turns<T> {
    /// Adds an item. `place` is larger than those before.
    pub fn push(&mut self, peer: &str, place: u64, item: T) {
        let turn = self.next_turn;
        let own = match self.of_peer.get_mut(peer) {
            Some(own) => own,
            None => {
                self.next_turn += 1;
                self.order.insert(turn, peer.to_owned());
                let items = BTreeMap::new();
                let own = PeerItems { turn, items };
                self.of_peer.entry(peer.to_owned()).or_insert(own)
            }
        };
        own.items.insert(place, item);
    }

    pub fn remove(&mut self, peer: &str, place: u64) {
        let Some(own) = self.of_peer.get_mut(peer) else {
            return;
        };
        own.items.remove(&place);
        if own.items.is_empty() {
            self.order.remove(&own.turn);
            self.of_peer.remove(peer);
        }
    }

    /// Takes the first item of the peer whose turn it is. Its next turn comes after those of all others.
    pub fn pop(&mut self) -> Option<T> {
        let (_, peer) = self.order.pop_first()?;
        let own = self.of_peer.get_mut(&peer)?;
        let (_, item) = own.items.pop_first()?;
        if own.items.is_empty() {
            self.of_peer.remove(&peer);
        } else {
            own.turn = self.next_turn;
            self.next_turn += 1;
            self.order.insert(own.turn, peer);
        }
        Some(item)
    }

    pub fn is_empty(&self) -> bool {
        self.order.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn peers_take_turns_and_keep_their_order() {
        let mut turns = Turns::default();
        for place in 0..4 {
            turns.push("a", place, ("a", place));
        }
        turns.push("b", 4, ("b", 4));
        turns.push("b", 5, ("b", 5));
        turns.push("c", 6, ("c", 6));
        turns.remove("a", 1);
        turns.remove("c", 6);
        turns.remove("d", 6);
        assert_eq!(turns.pop(), Some(("a", 0)));
        turns.push("a", 7, ("a", 7));
        let left: Vec<_> = std::iter::from_fn(|| turns.pop()).collect();
        assert_eq!(left, [("b", 4), ("a", 2), ("b", 5), ("a", 3), ("a", 7)]);
        assert!(turns.is_empty() && turns.of_peer.is_empty());
    }
}
