//! The thread that compiles large parts of the SPD. The control thread goes on meanwhile, and searches are right all the
//! while: what is compiled anew stays in force in its former parts.

use std::io;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use esplanade_ipsec::spd::{LevelMerge, MergedLevel};
use tokio::sync::mpsc;

use crate::confine;

#[derive(Debug)]
pub(super) struct SpdCompiler {
    merges: SyncSender<LevelMerge>,
    compiled: mpsc::Receiver<MergedLevel>,
}

impl SpdCompiler {
    pub fn start() -> io::Result<Self> {
        // One merge is under way at a time.
        let (merges, orders) = sync_channel(1);
        let (sender, compiled) = mpsc::channel(1);
        confine::start_writing("spd".to_owned(), move || serve(&orders, &sender))?;
        Ok(Self { merges, compiled })
    }

    /// Has a merge made.
    pub fn compile(&self, merge: LevelMerge) {
        if self.merges.try_send(merge).is_err() {
            tracing::error!("the thread for the SPD does not answer: lookups become slower");
        }
    }

    /// Returns the result of a merge. Call it again if it was cancelled.
    pub async fn compiled(&mut self) -> MergedLevel {
        match self.compiled.recv().await {
            Some(level) => level,
            None => std::future::pending().await,
        }
    }
}

fn serve(orders: &Receiver<LevelMerge>, compiled: &mpsc::Sender<MergedLevel>) {
    for merge in orders {
        if compiled.blocking_send(merge.run()).is_err() {
            return;
        }
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
                book.merged(compiler.compiled().await);
                merges += 1;
            }
        }
        assert!(merges > 0);
        assert_eq!(entries, 4000);
    }
}
