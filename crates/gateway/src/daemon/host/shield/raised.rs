//! The table as it should stand, and the attempts to make it so.

use std::io;
use std::time::{Duration, Instant};

use crate::net::nft::{Nft, NftChange};

/// The time until the next attempt after a first failure. Each further failure doubles the time.
const WAIT: Duration = Duration::from_secs(1);
const WAIT_MAX: Duration = Duration::from_secs(64);

/// A receiver of changes of nftables tables: the kernel, or a test.
pub trait Filter {
    fn commit(&self, change: &NftChange) -> io::Result<()>;
}

impl Filter for Nft {
    fn commit(&self, change: &NftChange) -> io::Result<()> {
        Self::commit(self, change)
    }
}

/// The table as it is wanted.
pub trait Tables {
    /// Returns the tables that the policies ask for. The first table that the kernel takes stands.
    fn whole(&mut self) -> Vec<NftChange>;
    /// Returns what has changed since either was asked for.
    fn difference(&mut self) -> Option<NftChange>;
    fn absent(&self) -> NftChange;
}

/// The outcome of an attempt.
#[derive(Debug, PartialEq, Eq)]
pub enum Outcome {
    /// There was nothing to do, or the attempt failed again.
    Nothing,
    /// The table has followed the policies.
    Followed,
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
    /// The digest of the whole table that stands, if nothing has changed since it was made. The table itself takes half a
    /// kilobyte a policy.
    made: Option<[u8; 32]>,
    told_part: bool,
    /// The kernel may have another table.
    stale: bool,
    /// The tables that were wanted when the policies became others altogether.
    renewed: Option<Vec<NftChange>>,
    /// A table has stood.
    stood: bool,
    lifted: bool,
    /// Failures in a row, and the reason of the last one.
    failures: u32,
    failure: Option<String>,
    /// The configuration's policies are too many for a table.
    misfit: Option<String>,
    again: Option<Instant>,
}

impl<F: Filter> Raised<F> {
    pub fn new() -> Self {
        Self {
            filter: None,
            made: None,
            told_part: false,
            stale: true,
            renewed: None,
            stood: false,
            lifted: false,
            failures: 0,
            failure: None,
            misfit: None,
            again: None,
        }
    }

    /// Notes whether the policies of a new configuration can be expressed, or why not.
    pub fn set_misfit(&mut self, why: Option<String>) {
        self.misfit = why;
    }

    /// Notes that the policies are others altogether.
    pub fn renew(&mut self, tables: &mut impl Tables) {
        let wanted = tables.whole();
        let as_made = self.made.is_some() && self.made == wanted.first().map(NftChange::digest);
        if self.stale || !as_made {
            self.spoil();
            self.renewed = Some(wanted);
        }
    }

    /// Notes that the kernel may have another table.
    pub fn spoil(&mut self) {
        self.stale = true;
        self.made = None;
        self.again = None;
    }

    /// Returns why the table does not stand as it should.
    pub fn failure(&self) -> Option<&str> {
        self.misfit.as_deref().or(self.failure.as_deref())
    }

    /// Tells whether the kernel refuses the table, though it took one before.
    pub fn has_fallen(&self) -> bool {
        self.stood && self.failure.is_some()
    }

    /// Lets the kernel's table be the wanted one, if that is due. `connect` reaches the filter. If the kernel refuses a
    /// difference, it gets the whole table at once.
    pub fn settle(
        &mut self,
        now: Instant,
        tables: &mut impl Tables,
        connect: impl FnOnce() -> io::Result<F>,
    ) -> Outcome {
        // While no policies have fitted yet, an earlier gateway's table is better than an empty one.
        if self.lifted || (!self.stood && self.misfit.is_some()) {
            return Outcome::Nothing;
        }
        if !self.stale {
            let (Some(change), Some(filter)) = (tables.difference(), &self.filter) else {
                return Outcome::Nothing;
            };
            self.made = None;
            if filter.commit(&change).is_ok() {
                return Outcome::Followed;
            }
            self.spoil();
        }
        if self.again.is_some_and(|again| now < again) {
            return Outcome::Nothing;
        }
        let renewed = self.renewed.take();
        let wanted = match renewed.filter(|_| tables.difference().is_none()) {
            Some(renewed) => renewed,
            None => tables.whole(),
        };
        let filter = match self.filter.take() {
            Some(filter) => Ok(filter),
            None => connect(),
        };
        let result = filter.and_then(|filter| {
            let result = first_taken(&filter, &wanted);
            self.filter = Some(filter);
            result
        });
        match result {
            Ok(refused) => {
                self.stale = false;
                self.stood = true;
                self.again = None;
                self.failure = None;
                self.made = wanted.first().map(NftChange::digest);
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
                self.failure = Some(error.to_string());
                match self.failures {
                    1 => Outcome::Fails(error.to_string()),
                    _ => Outcome::Nothing,
                }
            }
        }
    }

    /// Takes the table away for good.
    pub fn lift(&mut self, tables: &impl Tables) -> io::Result<()> {
        self.lifted = true;
        match &self.filter {
            Some(filter) => filter.commit(&tables.absent()),
            None => Ok(()),
        }
    }
}

/// Commits the first table that the filter takes. Returns the first refusal if an earlier table was refused.
fn first_taken(filter: &impl Filter, tables: &[NftChange]) -> io::Result<Option<io::Error>> {
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

    /// A filter that refuses as often as the test says, and remembers the changes that it took.
    #[derive(Clone, Default)]
    struct Kernel(Rc<RefCell<(usize, Vec<NftChange>)>>);

    impl Filter for Kernel {
        fn commit(&self, change: &NftChange) -> io::Result<()> {
            let (refusals, taken) = &mut *self.0.borrow_mut();
            if *refusals > 0 {
                *refusals -= 1;
                return Err(io::Error::from_raw_os_error(libc::ENOMEM));
            }
            taken.push(change.clone());
            Ok(())
        }
    }

    impl Kernel {
        fn refuse(&self, times: usize) {
            self.0.borrow_mut().0 = times;
        }

        fn taken(&self) -> Vec<NftChange> {
            std::mem::take(&mut self.0.borrow_mut().1)
        }
    }

    #[derive(Default)]
    struct Wanted {
        whole: Vec<NftChange>,
        /// How often the whole was asked for.
        asked: usize,
        difference: Option<NftChange>,
    }

    impl Wanted {
        fn of(names: &[&str]) -> Self {
            let table = |name: &&str| NftChange::replace(name);
            Self {
                whole: names.iter().map(table).collect(),
                asked: 0,
                difference: None,
            }
        }
    }

    fn begin() -> (Kernel, Raised<Kernel>, Instant) {
        (Kernel::default(), Raised::new(), Instant::now())
    }

    impl Tables for Wanted {
        fn whole(&mut self) -> Vec<NftChange> {
            self.difference = None;
            self.asked += 1;
            self.whole.clone()
        }

        fn difference(&mut self) -> Option<NftChange> {
            self.difference.take()
        }

        fn absent(&self) -> NftChange {
            NftChange::remove("one")
        }
    }

    fn fails(outcome: &Outcome) -> bool {
        matches!(outcome, Outcome::Fails(_))
    }

    #[test]
    fn what_could_not_be_made_is_tried_again() {
        let (kernel, mut raised, mut now) = begin();
        let connect = || Ok(kernel.clone());
        let mut wanted = Wanted::of(&["one"]);

        // The kernel is not reached at all, then it refuses twice. Only the first failure is told.
        let unreached = || Err(io::Error::from_raw_os_error(libc::EPROTONOSUPPORT));
        assert!(fails(&raised.settle(now, &mut wanted, unreached)));
        assert!(raised.failure().is_some() && !raised.has_fallen());
        assert_eq!(raised.settle(now, &mut wanted, connect), Outcome::Nothing);
        assert!(kernel.taken().is_empty());
        kernel.refuse(2);
        for _ in 0..2 {
            now += WAIT_MAX;
            assert_eq!(raised.settle(now, &mut wanted, connect), Outcome::Nothing);
        }
        now += WAIT_MAX;
        let outcome = raised.settle(now, &mut wanted, connect);
        assert_eq!((outcome, raised.failure()), (Outcome::StandsAgain, None));
        assert_eq!(kernel.taken(), wanted.whole);
        now += WAIT_MAX;
        assert_eq!(raised.settle(now, &mut wanted, connect), Outcome::Nothing);
        assert!(kernel.taken().is_empty(), "it stands");
    }

    #[test]
    fn what_others_take_is_made_again_at_once() {
        let (kernel, mut raised, now) = begin();
        let connect = || Ok(kernel.clone());
        let mut wanted = Wanted::of(&["one"]);
        let table = wanted.whole[0].clone();
        assert_eq!(raised.settle(now, &mut wanted, connect), Outcome::Stands);
        raised.renew(&mut wanted);
        let outcome = raised.settle(now, &mut wanted, connect);
        assert_eq!(outcome, Outcome::Nothing, "the same");
        kernel.refuse(1);
        raised.spoil();
        assert!(fails(&raised.settle(now, &mut wanted, connect)));
        assert!(raised.has_fallen());
        raised.spoil();
        let outcome = raised.settle(now, &mut wanted, connect);
        assert_eq!(outcome, Outcome::StandsAgain);
        assert_eq!(kernel.taken(), [table.clone(), table]);
        raised.lift(&wanted).unwrap();
        assert_eq!(kernel.taken(), [NftChange::remove("one")]);
        raised.spoil();
        let outcome = raised.settle(now, &mut wanted, connect);
        assert_eq!(outcome, Outcome::Nothing, "for good");
    }

    #[test]
    fn the_kernel_gets_differences_and_after_a_refusal_the_whole() {
        let (kernel, mut raised, mut now) = begin();
        let connect = || Ok(kernel.clone());
        let mut wanted = Wanted::of(&["one"]);
        let table = wanted.whole[0].clone();
        assert_eq!(raised.settle(now, &mut wanted, connect), Outcome::Stands);
        let difference = NftChange::of("one");
        wanted.difference = Some(difference.clone());
        assert_eq!(raised.settle(now, &mut wanted, connect), Outcome::Followed);
        assert_eq!(kernel.taken(), [table.clone(), difference.clone()]);
        wanted.difference = Some(difference.clone());
        kernel.refuse(1);
        assert_eq!(raised.settle(now, &mut wanted, connect), Outcome::Stands);
        assert_eq!(kernel.taken(), std::slice::from_ref(&table));
        // While the kernel refuses all, no difference is lost: the whole table comes.
        wanted.difference = Some(difference.clone());
        kernel.refuse(2);
        assert!(fails(&raised.settle(now, &mut wanted, connect)));
        wanted.difference = Some(difference);
        assert_eq!(raised.settle(now, &mut wanted, connect), Outcome::Nothing);
        now += WAIT_MAX;
        let outcome = raised.settle(now, &mut wanted, connect);
        assert_eq!(outcome, Outcome::StandsAgain);
        assert_eq!(kernel.taken(), [table]);
    }

    #[test]
    fn the_table_of_an_earlier_gateway_stays_until_policies_fit() {
        let (kernel, mut raised, now) = begin();
        let connect = || Ok(kernel.clone());
        let mut wanted = Wanted::of(&["one"]);
        raised.set_misfit(Some("too many".to_owned()));
        assert_eq!(raised.settle(now, &mut wanted, connect), Outcome::Nothing);
        assert_eq!(raised.failure(), Some("too many"));
        assert!(kernel.taken().is_empty());
        raised.set_misfit(None);
        assert_eq!(raised.settle(now, &mut wanted, connect), Outcome::Stands);
        // A table that stands goes on where other policies do not fit.
        raised.set_misfit(Some("too many".to_owned()));
        wanted.difference = Some(NftChange::of("one"));
        assert_eq!(raised.settle(now, &mut wanted, connect), Outcome::Followed);
        assert!(raised.failure().is_some() && kernel.taken().len() == 2);
    }

    #[test]
    fn a_table_for_other_policies_is_put_together_once() {
        let (kernel, mut raised, now) = begin();
        let connect = || Ok(kernel.clone());
        let mut wanted = Wanted::of(&["one"]);
        assert_eq!(raised.settle(now, &mut wanted, connect), Outcome::Stands);
        for (changes, asked) in [(false, 1), (true, 2)] {
            let name = if changes { "three" } else { "two" };
            wanted = Wanted::of(&[name]);
            raised.renew(&mut wanted);
            // Policies that come meanwhile are not in the table.
            wanted.difference = changes.then(|| NftChange::of(name));
            assert_eq!(raised.settle(now, &mut wanted, connect), Outcome::Stands);
            assert_eq!(wanted.asked, asked);
        }
        assert_eq!(kernel.taken().len(), 3);
    }

    #[test]
    fn where_the_kernel_cannot_do_all_it_does_what_it_can() {
        let (kernel, mut raised, now) = begin();
        let connect = || Ok(kernel.clone());
        let mut wanted = Wanted::of(&["whole", "part"]);
        let part = wanted.whole[1].clone();
        kernel.refuse(1);
        let outcome = raised.settle(now, &mut wanted, connect);
        assert!(matches!(outcome, Outcome::StandsInPart(_)), "{outcome:?}");
        raised.spoil();
        kernel.refuse(1);
        let outcome = raised.settle(now, &mut wanted, connect);
        assert_eq!(outcome, Outcome::Stands, "told once");
        assert_eq!(kernel.taken(), [part.clone(), part]);
        raised.spoil();
        kernel.refuse(2);
        assert!(fails(&raised.settle(now, &mut wanted, connect)));
    }
}
