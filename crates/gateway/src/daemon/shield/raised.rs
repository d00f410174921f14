//! The table as it should stand, and the attempts to make it so.

use std::io;
use std::time::{Duration, Instant};

use super::TooMany;
use crate::net::nft::{Nft, NftTable};

/// The time until the next attempt after a first failure. Each further failure doubles the time.
const WAIT: Duration = Duration::from_secs(1);
const WAIT_MAX: Duration = Duration::from_secs(64);

/// A receiver of nftables tables: the kernel, or a test.
pub trait Filter {
    fn commit(&self, table: &NftTable) -> io::Result<()>;
}

impl Filter for Nft {
    fn commit(&self, table: &NftTable) -> io::Result<()> {
        Self::commit(self, table)
    }
}

/// The outcome of an attempt.
#[derive(Debug, PartialEq, Eq)]
pub enum Outcome {
    /// There was nothing to do, or the attempt failed again.
    Nothing,
    Stands,
    StandsAgain,
    /// A table stands, but not the one that is wanted most. The text says why. This outcome is told once.
    StandsInPart(String),
    /// The first failure in a row. The text says why.
    Fails(String),
}

#[derive(Debug)]
pub struct Raised<F> {
    /// The kernel's packet filter. `None` means that the kernel could not be reached yet.
    filter: Option<F>,
    /// The tables that the policies ask for, made once. The first table that the kernel takes stands.
    tables: Vec<NftTable>,
    told_part: bool,
    /// The kernel may have another table.
    stale: bool,
    /// Failures in a row.
    failures: u32,
    again: Option<Instant>,
}

impl<F: Filter> Raised<F> {
    pub fn new() -> Self {
        Self {
            filter: None,
            tables: Vec::new(),
            told_part: false,
            stale: false,
            failures: 0,
            again: None,
        }
    }

    /// Asks for these tables from now on. If they cannot be made, the former table stays: it may drop too much, but
    /// lets out no more.
    pub fn want(&mut self, tables: Result<Vec<NftTable>, TooMany>) -> Result<(), TooMany> {
        let tables = tables?;
        if self.tables != tables {
            self.tables = tables;
            self.spoil();
        }
        Ok(())
    }

    /// Notes that the kernel may have another table.
    pub fn spoil(&mut self) {
        self.stale = true;
        self.again = None;
    }

    /// Makes the table if that is due. `connect` reaches the filter.
    pub fn settle(&mut self, now: Instant, connect: impl FnOnce() -> io::Result<F>) -> Outcome {
        let waits = self.again.is_some_and(|again| now < again);
        if !self.stale || waits || self.tables.is_empty() {
            return Outcome::Nothing;
        }
        let filter = match self.filter.take() {
            Some(filter) => Ok(filter),
            None => connect(),
        };
        let result = filter.and_then(|filter| {
            let result = first_taken(&filter, &self.tables);
            self.filter = Some(filter);
            result
        });
        match result {
            Ok(refused) => {
                self.stale = false;
                self.again = None;
                let failures = std::mem::take(&mut self.failures);
                match refused {
                    Some(error) if !std::mem::replace(&mut self.told_part, true) => {
                        Outcome::StandsInPart(error.to_string())
                    }
                    _ if failures == 0 => Outcome::Stands,
                    _ => Outcome::StandsAgain,
                }
            }
            Err(error) => {
                let wait = WAIT.saturating_mul(1 << self.failures.min(6));
                self.again = Some(now + wait.min(WAIT_MAX));
                self.failures = self.failures.saturating_add(1);
                match self.failures {
                    1 => Outcome::Fails(error.to_string()),
                    _ => Outcome::Nothing,
                }
            }
        }
    }

    /// Takes the table away for good.
    pub fn lift(&mut self, name: &str) -> io::Result<()> {
        self.tables.clear();
        match &self.filter {
            Some(filter) => filter.commit(&NftTable::absent(name)),
            None => Ok(()),
        }
    }
}

/// Commits the first table that the filter takes. Returns the first refusal if an earlier table was refused.
fn first_taken(filter: &impl Filter, tables: &[NftTable]) -> io::Result<Option<io::Error>> {
    let mut refused = None;
    for table in tables {
        match filter.commit(table) {
            Ok(()) => return Ok(refused),
            Err(error) => refused = refused.or(Some(error)),
        }
    }
    refused.map_or(Ok(None), Err)
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::rc::Rc;

    use super::*;

    /// A filter that refuses as often as the test says, and remembers the tables that it took.
    #[derive(Clone, Default)]
    struct Kernel(Rc<RefCell<(usize, Vec<NftTable>)>>);

    impl Filter for Kernel {
        fn commit(&self, table: &NftTable) -> io::Result<()> {
            let (refusals, taken) = &mut *self.0.borrow_mut();
            if *refusals > 0 {
                *refusals -= 1;
                return Err(io::Error::from_raw_os_error(libc::ENOMEM));
            }
            taken.push(table.clone());
            Ok(())
        }
    }

    impl Kernel {
        fn refuse(&self, times: usize) {
            self.0.borrow_mut().0 = times;
        }

        fn taken(&self) -> Vec<NftTable> {
            std::mem::take(&mut self.0.borrow_mut().1)
        }
    }

    fn fails(outcome: &Outcome) -> bool {
        matches!(outcome, Outcome::Fails(_))
    }

    #[test]
    fn what_could_not_be_made_is_tried_again() {
        let kernel = Kernel::default();
        let mut raised = Raised::new();
        let mut now = Instant::now();
        let connect = || Ok(kernel.clone());
        assert_eq!(raised.settle(now, connect), Outcome::Nothing);
        let table = NftTable::new("one");
        raised.want(Ok(vec![table.clone()])).unwrap();

        // The kernel is not reached at all, then it refuses twice. Only the first failure is told.
        let unreached = || Err(io::Error::from_raw_os_error(libc::EPROTONOSUPPORT));
        assert!(fails(&raised.settle(now, unreached)));
        assert_eq!(raised.settle(now, connect), Outcome::Nothing, "not yet");
        assert!(kernel.taken().is_empty());
        kernel.refuse(2);
        for _ in 0..2 {
            now += WAIT_MAX;
            assert_eq!(raised.settle(now, connect), Outcome::Nothing);
        }
        now += WAIT_MAX;
        assert_eq!(raised.settle(now, connect), Outcome::StandsAgain);
        assert_eq!(kernel.taken(), [table]);
        now += WAIT_MAX;
        assert_eq!(raised.settle(now, connect), Outcome::Nothing);
        assert!(kernel.taken().is_empty(), "it stands");
    }

    #[test]
    fn what_others_take_is_made_again_at_once() {
        let kernel = Kernel::default();
        let mut raised = Raised::new();
        let now = Instant::now();
        let connect = || Ok(kernel.clone());
        let table = NftTable::new("one");
        raised.want(Ok(vec![table.clone()])).unwrap();
        assert_eq!(raised.settle(now, connect), Outcome::Stands);
        raised.want(Ok(vec![table.clone()])).unwrap();
        assert_eq!(raised.settle(now, connect), Outcome::Nothing, "the same");
        kernel.refuse(1);
        raised.spoil();
        assert!(fails(&raised.settle(now, connect)));
        raised.spoil();
        assert_eq!(raised.settle(now, connect), Outcome::StandsAgain);
        assert_eq!(kernel.taken(), [table.clone(), table.clone()]);

        // If policies cannot be expressed, the table that stands stays.
        assert!(raised.want(Err(TooMany)).is_err());
        raised.spoil();
        assert_eq!(raised.settle(now, connect), Outcome::Stands);
        assert_eq!(kernel.taken(), [table]);
        raised.lift("one").unwrap();
        assert_eq!(kernel.taken(), [NftTable::absent("one")]);
        raised.spoil();
        assert_eq!(raised.settle(now, connect), Outcome::Nothing, "for good");
    }

    #[test]
    fn where_the_kernel_cannot_do_all_it_does_what_it_can() {
        let kernel = Kernel::default();
        let mut raised = Raised::new();
        let now = Instant::now();
        let connect = || Ok(kernel.clone());
        let (whole, part) = (NftTable::new("whole"), NftTable::new("part"));
        raised.want(Ok(vec![whole, part.clone()])).unwrap();
        kernel.refuse(1);
        let outcome = raised.settle(now, connect);
        assert!(matches!(outcome, Outcome::StandsInPart(_)), "{outcome:?}");
        raised.spoil();
        kernel.refuse(1);
        assert_eq!(raised.settle(now, connect), Outcome::Stands, "told once");
        assert_eq!(kernel.taken(), [part.clone(), part]);
        raised.spoil();
        kernel.refuse(2);
        assert!(fails(&raised.settle(now, connect)));
    }
}
