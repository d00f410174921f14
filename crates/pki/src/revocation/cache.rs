//! A cache of CRLs and answers: it decides which word of an issuer stays, and which takes its place.
//!
//! Anybody on the way to a server can answer in its place. So nothing that nobody has verified takes the place of what
//! is verified, and nothing older that of what is newer. Both are there until a path has shown whose signature is right.
//!
//! Where there is no room, what nobody has verified goes first, and then what revokes nothing. A revocation goes last.
//! From then on an unknown status may be a revocation, and [`RevocationStore`] has every policy refuse it.

use std::sync::Arc;

use super::crl::Crl;
use super::ocsp::OcspAnswer;
use super::store::{RevocationStore, StatusSource};

/// A kind of information about revocation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StatusKind {
    Crl,
    Ocsp,
}

/// The most bytes that are kept of a kind. What came last may lie above.
#[derive(Clone, Copy, Debug)]
struct Bounds {
    crl_bytes: usize,
    crls: usize,
    answer_bytes: usize,
    answers: usize,
}

const BOUNDS: Bounds = Bounds {
    crl_bytes: 128 << 20,
    crls: 4096,
    answer_bytes: 32 << 20,
    answers: 4096,
};

/// CRLs and answers of OCSP responders, with the places that they come from.
#[derive(Debug)]
pub struct RevocationCache {
    /// The oldest come first.
    crls: Vec<Kept<Crl>>,
    answers: Vec<Kept<OcspAnswer>>,
    bounds: Bounds,
    has_forgotten: bool,
}

#[derive(Debug)]
struct Kept<T> {
    content: Arc<T>,
    /// A file of an earlier configuration has none.
    source: Option<StatusSource>,
}

/// The properties by which content is dropped where there is no room.
trait Evictable {
    fn size(&self) -> usize;
    fn is_verified(&self) -> bool;
    fn revokes(&self) -> bool;
}

impl Evictable for Crl {
    fn size(&self) -> usize {
        self.size()
    }

    fn is_verified(&self) -> bool {
        self.is_verified()
    }

    fn revokes(&self) -> bool {
        self.entries() > 0
    }
}

impl Evictable for OcspAnswer {
    fn size(&self) -> usize {
        self.der().len()
    }

    fn is_verified(&self) -> bool {
        self.is_verified()
    }

    fn revokes(&self) -> bool {
        self.revokes()
    }
}

impl Default for RevocationCache {
    fn default() -> Self {
        Self {
            crls: Vec::new(),
            answers: Vec::new(),
            bounds: BOUNDS,
            has_forgotten: false,
        }
    }
}

impl RevocationCache {
    /// Takes what a place has given. What it gave before goes, unless it is verified. The time is in seconds since 1970.
    pub fn add_crls(&mut self, source: &StatusSource, crls: Vec<Arc<Crl>>, now: u64) {
        let of_place = |kept: &&Kept<Crl>| kept.source.as_ref() == Some(source);
        let newer = self.crls.iter().filter(of_place);
        let newer: Vec<_> = newer.map(|kept| kept.content.clone()).collect();
        self.drop_superseded(&newer, now);
        discard_unverified(&mut self.crls, source);
        for content in crls {
            let mut same = self.crls.iter();
            let is_there = |kept: &Kept<Crl>| kept.content == content && !kept.content.has_ended();
            if !same.any(is_there) {
                let source = Some(source.clone());
                self.crls.push(Kept { content, source });
            }
        }
        self.make_room();
    }

    /// Does the same for the answer of a responder. It must be about the certificate that was asked for.
    pub fn add_answer(&mut self, source: &StatusSource, answer: Arc<OcspAnswer>, now: u64) {
        if let StatusSource::Ocsp { request, .. } = source {
            self.drop_superseded_answers(request, now);
        }
        discard_unverified(&mut self.answers, source);
        let mut same = (self.answers.iter()).filter(|kept| kept.source.as_ref() == Some(source));
        if same.any(|kept| kept.content.says_the_same(&answer)) {
            return;
        }
        self.answers.push(Kept {
            content: answer,
            source: Some(source.clone()),
        });
        self.make_room();
    }

    /// Keeps the CRLs of the files of a configuration that `new` replaces, as it keeps those that were fetched. What both
    /// have stays verified.
    pub fn keep(&mut self, old: &RevocationStore, new: &mut RevocationStore, now: u64) {
        for crl in old.crls() {
            match new.crls_mut().iter_mut().find(|other| *other == crl) {
                Some(same) => *same = crl.clone(),
                None if crl.is_refuted() => {}
                None => self.crls.push(Kept {
                    content: crl.clone(),
                    source: None,
                }),
            }
        }
        self.crls.retain(|kept| !new.crls().contains(&kept.content));
        self.drop_superseded(new.crls(), now);
        self.make_room();
    }

    /// Forgets what was fetched, but for revocations. Returns the places of those, which can have newer words.
    pub fn flush(&mut self, kind: StatusKind) -> Vec<StatusSource> {
        match kind {
            StatusKind::Crl => {
                let sources = keep_revocations(&mut self.crls);
                let fetched = |kept: &&mut Kept<Crl>| kept.source.is_some();
                for kept in self.crls.iter_mut().filter(fetched) {
                    kept.content = Arc::new(kept.content.to_ended());
                }
                sources
            }
            StatusKind::Ocsp => keep_revocations(&mut self.answers),
        }
    }

    /// Returns the places whose revocations are no current words any more.
    pub fn overdue(&self, now: u64) -> Vec<StatusSource> {
        let crls = self.crls.iter().filter(|kept| {
            let crl = &kept.content;
            crl.is_verified() && crl.entries() > 0 && !crl.is_current(now)
        });
        let answers = self.answers.iter().filter(|kept| {
            let answer = &kept.content;
            answer.is_verified() && answer.revokes() && answer.usable_until() < now
        });
        let crls = crls.filter_map(|kept| kept.source.clone());
        crls.chain(answers.filter_map(|kept| kept.source.clone()))
            .collect()
    }

    /// Adds what is kept to what the configuration has.
    pub fn add_to(&self, store: &mut RevocationStore) {
        store.add_crls(self.crls.iter().map(|kept| kept.content.clone()));
        for kept in &self.answers {
            store.add_answer(kept.content.clone());
        }
        if self.has_forgotten {
            store.note_forgotten();
        }
    }

    /// Drops what these CRLs supersede.
    fn drop_superseded(&mut self, newer: &[Arc<Crl>], now: u64) {
        self.crls
            .retain(|kept| !newer.iter().any(|crl| crl.supersedes(&kept.content, now)));
    }

    /// Drops answers to a request that others have superseded.
    fn drop_superseded_answers(&mut self, request: &[u8], now: u64) {
        let is_to = |kept: &Kept<OcspAnswer>| {
            let source = kept.source.as_ref();
            source.is_some_and(|source| source.request() == Some(request))
        };
        let same = self.answers.iter().filter(|kept| is_to(kept));
        let same: Vec<_> = same.map(|kept| kept.content.clone()).collect();
        self.answers.retain(|kept| {
            let mut newer = same.iter();
            !is_to(kept) || !newer.any(|answer| answer.supersedes(&kept.content, request, now))
        });
    }

    fn make_room(&mut self) {
        let Bounds {
            crl_bytes,
            crls,
            answer_bytes,
            answers,
        } = self.bounds;
        let forgot_crl = make_room(&mut self.crls, crl_bytes, crls);
        let forgot_answer = make_room(&mut self.answers, answer_bytes, answers);
        self.has_forgotten |= forgot_crl || forgot_answer;
    }
}

fn discard_unverified<T: Evictable>(all: &mut Vec<Kept<T>>, source: &StatusSource) {
    all.retain(|kept| kept.source.as_ref() != Some(source) || kept.content.is_verified());
}

/// Keeps files, and what is verified and revokes. Returns the places of the latter.
fn keep_revocations<T: Evictable>(all: &mut Vec<Kept<T>>) -> Vec<StatusSource> {
    all.retain(|kept| {
        let revokes = kept.content.is_verified() && kept.content.revokes();
        kept.source.is_none() || revokes
    });
    let mut sources: Vec<_> = all.iter().filter_map(|kept| kept.source.clone()).collect();
    sources.dedup();
    sources
}

/// Drops the oldest of the least worth until the rest fits, but not the newest while nobody has looked at it. Returns
/// whether a revocation was dropped.
fn make_room<T: Evictable>(all: &mut Vec<Kept<T>>, bytes_max: usize, count_max: usize) -> bool {
    let fits = |all: &[Kept<T>], counts: fn(&T) -> bool| {
        let counted = all.iter().filter(|kept| counts(&kept.content));
        let (bytes, count) = counted.fold((0, 0), |(bytes, count), kept| {
            (bytes + kept.content.size(), count + 1)
        });
        bytes <= bytes_max && count <= count_max
    };
    let first = |all: &[Kept<T>], wanted: fn(&T) -> bool| {
        let last = all.len().saturating_sub(1);
        let mut older = all.iter().take(last);
        older.position(|kept| wanted(&kept.content))
    };
    while !fits(all, |_| true)
        && let Some(at) = first(all, |content| !content.is_verified())
    {
        all.remove(at);
    }
    let mut has_forgotten = false;
    while !fits(all, T::is_verified) {
        let good = first(all, |content| content.is_verified() && !content.revokes());
        let Some(at) = good.or_else(|| first(all, T::is_verified)) else {
            break;
        };
        has_forgotten |= all.remove(at).content.revokes();
    }
    has_forgotten
}

#[cfg(test)]
mod tests;
