//! The thread that compiles large parts of the SPD, and frees them. The control thread goes on meanwhile, and searches are
//! right all the while: what is compiled anew stays in force in its former parts.

use std::io;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::Duration;

use esplanade_ipsec::spd::{LevelMerge, MergedLevel, ReplacedLevels};
use tokio::sync::mpsc;

use crate::confine;

/// The pause between two looks at parts that snapshots still have.
const PAUSE: Duration = Duration::from_secs(1);

#[derive(Debug)]
enum Order {
    Merge(LevelMerge),
    Free(ReplacedLevels),
}

#[derive(Debug)]
pub(super) struct SpdCompiler {
    /// One merge is under way at a time, and each replaces levels once, so that few orders wait.
    orders: Sender<Order>,
    compiled: mpsc::Receiver<MergedLevel>,
}

impl SpdCompiler {
    pub fn start() -> io::Result<Self> {
        let (orders, waiting) = channel();
        let (sender, compiled) = mpsc::channel(1);
        confine::start_writing("spd".to_owned(), move || serve(&waiting, &sender))?;
        Ok(Self { orders, compiled })
    }

    /// Has a merge made.
    pub fn compile(&self, merge: LevelMerge) {
        self.order(Order::Merge(merge));
    }

    /// Has levels freed when no snapshot has them any more, so that no worker frees them.
    pub fn free(&self, replaced: ReplacedLevels) {
        self.order(Order::Free(replaced));
    }

    fn order(&self, order: Order) {
        // The control thread notices if the thread has ended.
        let _ = self.orders.send(order);
    }

    /// Says whether the thread is there.
    pub fn runs(&self) -> bool {
        !self.compiled.is_closed()
    }

    /// Returns the result of a merge. Call it again if it was cancelled.
    pub async fn compiled(&mut self) -> MergedLevel {
        match self.compiled.recv().await {
            Some(level) => level,
            None => std::future::pending().await,
        }
    }
}

fn serve(orders: &Receiver<Order>, compiled: &mpsc::Sender<MergedLevel>) {
    let mut replaced: Vec<ReplacedLevels> = Vec::new();
    loop {
        let order = match replaced.is_empty() {
            true => orders.recv().map_err(RecvTimeoutError::from),
            false => orders.recv_timeout(PAUSE),
        };
        match order {
            Ok(Order::Merge(merge)) => {
                if compiled.blocking_send(merge.run()).is_err() {
                    return;
                }
            }
            Ok(Order::Free(levels)) => replaced.push(levels),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return,
        }
        replaced.retain(|levels| !levels.are_unused());
    }
}

#[cfg(test)]
mod tests {
    use esplanade_ipsec::selector::{AddressRange, Selector, SelectorSet};
    use esplanade_ipsec::spd::{Action, EntryPlace, SpdBook, SpdEntry};

    use super::*;

    #[tokio::test]
    async fn the_thread_makes_one_level_of_many() {
        let mut compiler = SpdCompiler::start().unwrap();
        let mut book = SpdBook::default();
        let (mut merges, mut entries) = (0, 0);
        for n in 0..4000u32 {
            let host = AddressRange::host(std::net::Ipv4Addr::from(n).into());
            let set = SelectorSet::new(vec![Selector::between(host, host)]).unwrap();
            let entry = SpdEntry::new(set, Action::Discard);
            book.add(EntryPlace(n.into()), entry);
            entries = book.take_snapshot().unwrap().entries().len();
            if let Some(merge) = book.take_merge() {
                compiler.compile(merge);
                let level = compiler.compiled().await;
                compiler.free(book.merged(level));
                merges += 1;
            }
        }
        assert!(merges > 0);
        assert_eq!(entries, 4000);
    }
}
