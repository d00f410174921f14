//! Commands that wait for fresh SAs: which SAs are renewed, and which are not and why.

use std::time::Duration;

use esplanade_ike::event::{ChildSaId, DownReason, Event, IkeSaId};

use crate::config::Subject;
use crate::daemon::answers::answer_lists::add_list;
use crate::daemon::log_lines::plain;
use crate::vici::Section;

/// Most failures that the text of an answer has. Its list has more of them.
const REASONS_MAX: usize = 10;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::daemon) enum Sa {
    Ike(IkeSaId),
    Child(ChildSaId),
}

/// An SA that is to be renewed.
#[derive(Debug)]
struct Renewal {
    sa: Sa,
    /// The IKE SA that it is, or that it is a child SA of. Many peers can have SAs of one child.
    ike_sa: IkeSaId,
    /// The connection or child that the SA is of.
    subject: Subject,
}

/// The SAs of one command.
#[derive(Debug)]
pub(in crate::daemon) struct Renewals {
    /// The peers are to authenticate again. Otherwise fresh keys are enough.
    reauth: bool,
    pending: Vec<Renewal>,
    renewed: Vec<String>,
    failed: Vec<String>,
}

impl Renewals {
    pub fn new(reauth: bool) -> Self {
        Self {
            reauth,
            pending: Vec::new(),
            renewed: Vec::new(),
            failed: Vec::new(),
        }
    }

    /// Notes that an SA is being renewed, or why it is not.
    pub fn begin(&mut self, ike_sa: IkeSaId, sa: Sa, subject: Subject, begun: Result<(), String>) {
        match begun {
            Ok(()) => self.pending.push(Renewal {
                sa,
                ike_sa,
                subject,
            }),
            Err(why) => self.failed.push(format!("{subject}: {why}")),
        }
    }

    /// The number of SAs of which the outcome is open.
    pub fn pending(&self) -> usize {
        self.pending.len()
    }

    pub fn note(&mut self, event: &Event) {
        if let Event::IkeSaRekeyed { old, new, .. } = event {
            // The new IKE SA has the children.
            let all = self.pending.iter_mut();
            for renewal in all.filter(|one| one.ike_sa == *old && one.sa != Sa::Ike(*old)) {
                renewal.ike_sa = *new;
            }
        }
        match event {
            // The peers have not authenticated again.
            Event::IkeSaRekeyed { old, new, .. } if self.reauth => {
                let all = self.pending.iter_mut();
                for renewal in all.filter(|one| one.sa == Sa::Ike(*old)) {
                    (renewal.sa, renewal.ike_sa) = (Sa::Ike(*new), *new);
                }
            }
            Event::IkeSaRekeyed { old, .. } | Event::IkeSaReauthenticated { old, .. } => {
                self.end(|one| one.sa == Sa::Ike(*old), None);
            }
            Event::IkeSaDown { ike_sa, reason, .. } => {
                let renewed = matches!(reason, DownReason::Rekeyed | DownReason::Reauthenticated);
                let why = (!renewed).then(|| plain(reason));
                self.end(|one| one.sa == Sa::Ike(*ike_sa), why);
            }
            Event::ReauthenticationFailed { ike_sa, reason, .. } if self.reauth => {
                self.end(|one| one.sa == Sa::Ike(*ike_sa), Some(plain(reason)));
            }
            Event::RekeyFailed { ike_sa, reason, .. } if !self.reauth => {
                self.end(|one| one.sa == Sa::Ike(*ike_sa), Some(plain(reason)));
            }
            Event::ChildSaInstalled(installed) => {
                let old = installed.rekeyed_from.map(Sa::Child);
                self.end(|one| Some(one.sa) == old, None);
            }
            Event::ChildSaDeleted(deleted) => {
                let why = (!deleted.replaced).then(|| plain(&deleted.reason));
                self.end(|one| one.sa == Sa::Child(deleted.child), why);
            }
            Event::ChildFailed {
                ike_sa,
                child,
                reason,
                ..
            } => {
                let is_it = |one: &Renewal| {
                    one.ike_sa == *ike_sa && one.subject.child.as_ref() == Some(child)
                };
                self.end(is_it, Some(plain(reason)));
            }
            _ => {}
        }
    }

    /// Ends those that `is_it` takes: they are renewed, or there is a reason why not.
    fn end(&mut self, is_it: impl Fn(&Renewal) -> bool, why: Option<String>) {
        for renewal in self.pending.extract_if(.., |one| is_it(one)) {
            match &why {
                None => self.renewed.push(renewal.subject.to_string()),
                Some(why) => self.failed.push(format!("{}: {why}", renewal.subject)),
            }
        }
    }

    /// The time is up for those that have no outcome.
    pub fn give_up(&mut self, waited: Duration) {
        let why = format!(
            "no outcome within {} s; the gateway goes on",
            waited.as_secs()
        );
        self.end(|_| true, Some(why));
    }

    /// The answer to a command that does not wait, or has waited. A refusal makes it a failure, whatever else went well.
    pub fn answer(&self) -> Section {
        let mut message = Section::new();
        let matches = self.pending.len() + self.renewed.len();
        match self.failed.as_slice() {
            [] if matches == 0 => {
                message.set("success", "no").set("errmsg", "no SA matches");
            }
            [] => {
                message.set("success", "yes").set("matches", matches);
            }
            failed => {
                message
                    .set("success", "no")
                    .set("matches", matches)
                    .set("errmsg", reasons(failed));
            }
        }
        add_list(&mut message, "renewed", &self.renewed);
        add_list(&mut message, "failed", &self.failed);
        message
    }
}

/// Joins the first failures.
fn reasons(failed: &[String]) -> String {
    let mut told: Vec<_> = failed.iter().take(REASONS_MAX).cloned().collect();
    if let Some(more @ 1..) = failed.len().checked_sub(REASONS_MAX) {
        told.push(format!("and {more} more"));
    }
    told.join("; ")
}

#[cfg(test)]
mod tests {
    use esplanade_ike::event::{ChildFailure, ChildSaDeleted};

    use super::*;

    const OLD: IkeSaId = IkeSaId(1);
    const NEW: IkeSaId = IkeSaId(2);

    fn subject(child: Option<&str>) -> Subject {
        Subject {
            connection: "site".to_owned(),
            child: child.map(str::to_owned),
        }
    }

    fn of_ike(reauth: bool) -> Renewals {
        let mut renewals = Renewals::new(reauth);
        renewals.begin(OLD, Sa::Ike(OLD), subject(None), Ok(()));
        renewals
    }

    fn rekeyed(old: IkeSaId, new: IkeSaId) -> Event {
        let connection = "site".to_owned();
        Event::IkeSaRekeyed {
            old,
            new,
            connection,
        }
    }

    fn errmsg(renewals: &Renewals) -> String {
        let answer = renewals.answer();
        assert_eq!(answer.text("success"), Some("no"));
        answer.text("errmsg").unwrap().to_owned()
    }

    #[test]
    fn a_rekey_is_no_reauthentication() {
        let mut rekey = of_ike(false);
        rekey.note(&rekeyed(OLD, NEW));
        assert_eq!(rekey.answer().text("success"), Some("yes"));
        assert_eq!(
            rekey.answer().items("renewed").collect::<Vec<_>>(),
            ["site"]
        );
        let mut reauth = of_ike(true);
        reauth.note(&rekeyed(OLD, NEW));
        assert_eq!(reauth.pending(), 1);
        reauth.note(&Event::ReauthenticationFailed {
            ike_sa: NEW,
            connection: "site".to_owned(),
            reason: DownReason::Timeout,
            retry_in: None,
        });
        assert_eq!(errmsg(&reauth), "site: the peer does not answer");
    }

    /// One child of two is refused: that is told, although the other one has fresh keys.
    #[test]
    fn one_refusal_makes_the_command_fail() {
        let mut renewals = Renewals::new(false);
        for (id, name) in [(1, "first"), (2, "second")] {
            let sa = Sa::Child(ChildSaId(id));
            renewals.begin(OLD, sa, subject(Some(name)), Ok(()));
        }
        renewals.note(&Event::ChildFailed {
            ike_sa: OLD,
            connection: "site".to_owned(),
            child: "second".to_owned(),
            reason: ChildFailure::NotItsTraffic,
        });
        let deleted = |replaced| {
            Event::ChildSaDeleted(ChildSaDeleted {
                ike_sa: OLD,
                child: ChildSaId(1),
                connection: "site".to_owned(),
                name: "first".to_owned(),
                spi_in: 1,
                spi_out: 2,
                linger: Duration::ZERO,
                replaced,
                reason: DownReason::Rekeyed,
                then: esplanade_ike::config::EndAction::Clear,
            })
        };
        renewals.note(&deleted(true));
        assert_eq!(renewals.pending(), 0);
        assert!(errmsg(&renewals).starts_with("site/second: "));
        let answer = renewals.answer();
        assert_eq!(answer.items("renewed").collect::<Vec<_>>(), ["site/first"]);
    }

    /// Many peers use one child, as road warriors do. One of them refuses.
    #[test]
    fn one_peers_refusal_is_not_that_of_the_others() {
        let mut renewals = Renewals::new(false);
        for id in [1, 2] {
            let sa = Sa::Child(ChildSaId(id));
            renewals.begin(IkeSaId(id), sa, subject(Some("net")), Ok(()));
        }
        // The IKE SA of the second one is rekeyed meanwhile.
        renewals.note(&rekeyed(IkeSaId(2), IkeSaId(3)));
        let refused = |ike_sa| Event::ChildFailed {
            ike_sa,
            connection: "site".to_owned(),
            child: "net".to_owned(),
            reason: ChildFailure::NotItsTraffic,
        };
        renewals.note(&refused(IkeSaId(1)));
        assert_eq!(renewals.pending(), 1);
        renewals.note(&refused(IkeSaId(3)));
        assert_eq!(renewals.pending(), 0);
    }

    #[test]
    fn an_answer_has_the_first_of_many_reasons() {
        let mut renewals = Renewals::new(false);
        for id in 0..50 {
            let failed = Err("no route".to_owned());
            renewals.begin(IkeSaId(id), Sa::Ike(IkeSaId(id)), subject(None), failed);
        }
        let why = errmsg(&renewals);
        assert_eq!(why.matches("no route").count(), REASONS_MAX);
        assert!(why.ends_with("; and 40 more"), "{why}");
        assert_eq!(renewals.answer().items("failed").count(), 50);
    }

    #[test]
    fn silence_and_refused_commands_are_failures() {
        let mut renewals = of_ike(false);
        renewals.give_up(Duration::from_secs(6));
        assert_eq!(
            errmsg(&renewals),
            "site: no outcome within 6 s; the gateway goes on"
        );
        let mut renewals = Renewals::new(true);
        renewals.begin(OLD, Sa::Ike(OLD), subject(None), Err("no route".to_owned()));
        assert_eq!(errmsg(&renewals), "site: no route");
        assert_eq!(errmsg(&Renewals::new(false)), "no SA matches");
    }
}
