//! A queue in which networks take turns.
//!
//! Each network has an account. The time that its work has taken is charged to it, and it pays that off as time passes.
//! The network that has paid off first has the next turn. So work of a network that has asked for little is never behind
//! the work of one that has asked for much, and a network that waits for nobody does not wait at all.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::time::{Duration, Instant};

use crate::source_network::SourceNetwork;

/// A network pays work off in this many times the time that it took: it has a tenth of one processor to itself.
const PAY_OFF: u32 = 10;
/// A network is over its budget when it has this much left to pay off: two seconds' share of work in a row.
pub(super) const BUDGET: Duration = Duration::from_secs(2);
/// A network that has gone on for long is forgiven what exceeds this.
const DEBT_MAX: Duration = Duration::from_secs(30);
/// The time that a piece of work is taken to need until it is done.
const EXPECTED: Duration = Duration::from_millis(1);
/// Bytes of one network's work that wait, and of all networks' work.
const NETWORK_BYTES_MAX: usize = 1 << 20;
const BYTES_MAX: usize = 8 << 20;
/// Accounts of networks that still pay off.
const ACCOUNTS_MAX: usize = 1 << 16;

/// The place of a network among those that wait: when it has paid off, and its last turn.
type Turn = (Instant, u64, SourceNetwork);

/// The queue is full, and no other network has more in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct QueueFull;

#[derive(Debug)]
pub(super) struct FairQueue<T> {
    accounts: HashMap<SourceNetwork, Account<T>>,
    /// The networks that have work here.
    turns: BTreeSet<Turn>,
    turns_taken: u64,
    len: usize,
    bytes: usize,
}

#[derive(Debug)]
struct Account<T> {
    paid_off: Instant,
    last_turn: u64,
    /// The work, and its bytes.
    waiting: VecDeque<(T, usize)>,
    bytes: usize,
}

impl<T> Account<T> {
    fn has_use(&self, now: Instant) -> bool {
        !self.waiting.is_empty() || self.paid_off > now
    }
}

impl<T> Default for FairQueue<T> {
    fn default() -> Self {
        Self {
            accounts: HashMap::new(),
            turns: BTreeSet::new(),
            turns_taken: 0,
            len: 0,
            bytes: 0,
        }
    }
}

impl<T> FairQueue<T> {
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Appends to the network's work.
    pub(super) fn push(
        &mut self,
        now: Instant,
        network: SourceNetwork,
        item: T,
        bytes: usize,
    ) -> Result<(), QueueFull> {
        if self.bytes_of(network) + bytes > NETWORK_BYTES_MAX || self.bytes + bytes > BYTES_MAX {
            return Err(QueueFull);
        }
        self.change(now, network, |account| {
            account.waiting.push_back((item, bytes));
            account.bytes += bytes;
        });
        self.len += 1;
        self.bytes += bytes;
        Ok(())
    }

    /// Where there is no room for more of the network's work, takes out the last work of the network that has most here.
    /// Nothing is taken out for a network that has as much.
    pub(super) fn make_room(&mut self, network: SourceNetwork, bytes: usize) -> Option<T> {
        let own = self.bytes_of(network) + bytes;
        if self.bytes + bytes <= BYTES_MAX || own > NETWORK_BYTES_MAX {
            return None;
        }
        let networks = self.turns.iter().map(|(_, _, network)| *network);
        let heaviest = networks.max_by_key(|network| self.bytes_of(*network))?;
        if self.bytes_of(heaviest) <= own {
            return None;
        }
        self.remove(heaviest, |waiting| waiting.len().checked_sub(1))
    }

    fn bytes_of(&self, network: SourceNetwork) -> usize {
        let account = self.accounts.get(&network);
        account.map_or(0, |account| account.bytes)
    }

    /// The time at which the network whose turn it is has paid off.
    pub(super) fn first_paid_off(&self) -> Option<Instant> {
        self.turns.first().map(|(paid_off, _, _)| *paid_off)
    }

    /// Takes the work whose turn it is.
    pub(super) fn pop(&mut self, now: Instant) -> Option<T> {
        let (_, _, network) = *self.turns.first()?;
        let item = self.remove(network, |_| Some(0));
        self.turns_taken += 1;
        let turn = self.turns_taken;
        self.change(now, network, |account| account.last_turn = turn);
        self.charge(now, network, EXPECTED);
        item
    }

    /// Charges what work has taken beyond what was charged when it had its turn.
    pub(super) fn settle(&mut self, now: Instant, network: SourceNetwork, cost: Duration) {
        match cost.checked_sub(EXPECTED) {
            Some(more) => self.charge(now, network, more),
            None => {
                let less = (EXPECTED - cost) * PAY_OFF;
                self.change(now, network, |account| {
                    account.paid_off = account.paid_off.checked_sub(less).unwrap_or(now);
                });
            }
        }
    }

    pub(super) fn charge(&mut self, now: Instant, network: SourceNetwork, cost: Duration) {
        let latest = now + DEBT_MAX;
        let price = cost.saturating_mul(PAY_OFF).min(DEBT_MAX);
        self.change(now, network, |account| {
            account.paid_off = (account.paid_off.max(now) + price).min(latest);
        });
    }

    pub(super) fn is_over_budget(&self, now: Instant, network: SourceNetwork) -> bool {
        let account = self.accounts.get(&network);
        account.is_some_and(|account| account.paid_off > now + BUDGET)
    }

    /// Takes work out that nobody needs any more.
    pub(super) fn cancel(&mut self, network: SourceNetwork, is_it: impl Fn(&T) -> bool) {
        self.remove(network, |waiting| {
            waiting.iter().position(|(item, _)| is_it(item))
        });
    }

    fn remove(
        &mut self,
        network: SourceNetwork,
        place: impl FnOnce(&VecDeque<(T, usize)>) -> Option<usize>,
    ) -> Option<T> {
        let account = self.accounts.get_mut(&network)?;
        let turn = (account.paid_off, account.last_turn, network);
        let (item, bytes) = account.waiting.remove(place(&account.waiting)?)?;
        account.bytes -= bytes;
        if account.waiting.is_empty() {
            self.turns.remove(&turn);
        }
        self.len -= 1;
        self.bytes -= bytes;
        Some(item)
    }

    /// Changes an account, and gives the network its new place among those that wait.
    fn change(
        &mut self,
        now: Instant,
        network: SourceNetwork,
        change: impl FnOnce(&mut Account<T>),
    ) {
        if !self.accounts.contains_key(&network) && self.accounts.len() >= ACCOUNTS_MAX {
            self.accounts.retain(|_, account| account.has_use(now));
            if self.accounts.len() >= ACCOUNTS_MAX {
                self.accounts
                    .retain(|_, account| !account.waiting.is_empty());
            }
        }
        let account = self.accounts.entry(network).or_insert_with(|| Account {
            paid_off: now,
            last_turn: 0,
            waiting: VecDeque::new(),
            bytes: 0,
        });
        self.turns
            .remove(&(account.paid_off, account.last_turn, network));
        change(account);
        if !account.waiting.is_empty() {
            self.turns
                .insert((account.paid_off, account.last_turn, network));
        }
    }
}
