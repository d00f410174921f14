//! The cache beside paths that judge by it.

use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, UnixTime};
use serde_json::Value;

use super::*;
use crate::error::PathError;
use crate::path::{Anchors, Chain};
use crate::revocation::{Revocation, RevocationPolicy};
use crate::rules::PathRules;

const REVOKED: &str = "was revoked at";

/// A path whose leaf has a status, and places that say it.
struct World {
    file: Value,
    configured: RevocationStore,
    cache: RevocationCache,
}

impl World {
    fn crls() -> Self {
        Self::new(include_str!("../../../../../vectors/paths/revocation.json"))
    }

    fn answers() -> Self {
        Self::new(include_str!("../../../../../vectors/paths/ocsp.json"))
    }

    fn new(text: &str) -> Self {
        let mut world = Self {
            file: serde_json::from_str(text).unwrap(),
            configured: RevocationStore::default(),
            cache: RevocationCache::default(),
        };
        let root = world.crl("root");
        world.configured.add_crls([root]);
        world
    }

    fn der(&self, kind: &str, label: &str) -> Vec<u8> {
        let text = self.file[kind][label].as_str().unwrap();
        let pem = format!("-----BEGIN CERTIFICATE-----\n{text}\n-----END CERTIFICATE-----\n");
        let der = CertificateDer::from_pem_slice(pem.as_bytes());
        der.unwrap().to_vec()
    }

    fn now(&self) -> u64 {
        self.file["now"].as_u64().unwrap()
    }

    fn crl(&self, label: &str) -> Arc<Crl> {
        Arc::new(Crl::from_der(&self.der("crls", label)).unwrap())
    }

    fn fetch(&mut self, place: usize, label: &str) {
        let (crl, now) = (self.crl(label), self.now());
        self.cache.add_crls(&place_of(place), vec![crl], now);
    }

    fn request(&self) -> Vec<u8> {
        self.der("requests", "leaf")
    }

    fn ask(&mut self, label: &str) {
        let uri = "http://ocsp.example.org/".to_owned();
        let request = self.request();
        let answer = OcspAnswer::from_der(&self.der("answers", label)).unwrap();
        let (source, now) = (StatusSource::Ocsp { uri, request }, self.now());
        self.cache.add_answer(&source, Arc::new(answer), now);
    }

    fn store(&self) -> RevocationStore {
        let mut store = self.configured.clone();
        self.cache.add_to(&mut store);
        store
    }

    /// Returns why the leaf is refused, or what is asked before it is accepted.
    fn verdict(&self, policy: RevocationPolicy) -> Result<Vec<StatusSource>, String> {
        let store = self.store();
        let root = self.der("certificates", "root");
        let anchors = Anchors::new([root.as_slice()].into_iter()).unwrap();
        let [leaf, ca] = ["leaf", "ca"].map(|label| self.der("certificates", label));
        let mut chain = Chain::new(&leaf, &[&ca], Vec::new()).unwrap();
        let now = UnixTime::since_unix_epoch(std::time::Duration::from_secs(self.now()));
        let revocation = Revocation {
            policy,
            asked: false,
            store: &store,
        };
        let rules = PathRules::default();
        let verified = anchors.verify(&mut chain, now, &rules, &revocation);
        verified.map_err(|error: PathError| error.to_string())
    }

    fn relaxed(&self) -> Result<Vec<StatusSource>, String> {
        self.verdict(RevocationPolicy::Relaxed)
    }

    fn strict(&self) -> Result<Vec<StatusSource>, String> {
        self.verdict(RevocationPolicy::Strict)
    }

    #[track_caller]
    fn assert_revoked(&self) {
        let why = self.relaxed().unwrap_err();
        assert!(why.contains(REVOKED), "{why}");
    }
}

fn place_of(number: usize) -> StatusSource {
    let uri = format!("http://crl.example.org/{number}");
    StatusSource::Crl { uri }
}

#[test]
fn a_revocation_stays_until_its_issuer_has_a_newer_word() {
    let mut world = World::crls();
    world.fetch(1, "lists");
    world.assert_revoked();
    // A stranger's, an older one, a later stranger's, and those of other places.
    for (place, label) in [
        (1, "forged"),
        (1, "stale"),
        (1, "forged"),
        (2, "forged"),
        (3, "empty"),
    ] {
        world.fetch(place, label);
        world.assert_revoked();
    }
    let kept = world.cache.crls.len();
    assert!(
        kept <= 5,
        "one that nobody has verified for a place: {kept}"
    );
    world.fetch(1, "newer");
    assert!(world.strict().is_ok());
    // The one that the newer one replaces is gone.
    world.fetch(1, "forged");
    let verified = world
        .cache
        .crls
        .iter()
        .filter(|kept| kept.content.is_verified());
    assert_eq!(verified.count(), 1);
}

#[test]
fn what_nobody_has_verified_takes_no_room() {
    let mut world = World::crls();
    let size = world.crl("lists").size();
    world.cache.bounds.crl_bytes = 2 * size;
    world.fetch(1, "lists");
    world.assert_revoked();
    for place in 2..100 {
        world.fetch(place, "forged");
        let kept: usize = world
            .cache
            .crls
            .iter()
            .map(|kept| kept.content.size())
            .sum();
        assert!(kept <= 3 * size, "{kept}");
    }
    world.assert_revoked();
    assert!(!world.store().has_forgotten());
}

#[test]
fn a_revocation_that_is_forgotten_opens_nothing() {
    let mut world = World::crls();
    world.cache.bounds.crl_bytes = 1;
    world.fetch(1, "lists");
    world.assert_revoked();
    // A list without entries goes before one with entries.
    world.fetch(2, "root");
    assert!(
        world
            .cache
            .crls
            .iter()
            .all(|kept| kept.content.entries() == 0)
    );
    for policy in [
        RevocationPolicy::Relaxed,
        RevocationPolicy::IfUri,
        RevocationPolicy::Strict,
    ] {
        let why = world.verdict(policy).unwrap_err();
        assert!(why.contains("there is no CRL"), "{policy:?}: {why}");
    }
    let mut roomy = World::crls();
    roomy.fetch(1, "lists");
    assert!(roomy.relaxed().is_err());
    roomy.cache.bounds.crl_bytes = roomy.crl("lists").size();
    roomy.fetch(2, "older-lists");
    assert!(!roomy.store().has_forgotten());
}

#[test]
fn a_flush_forgets_what_is_good() {
    let mut world = World::crls();
    world.fetch(1, "empty");
    assert!(world.strict().is_ok());
    assert!(world.cache.flush(StatusKind::Ocsp).is_empty());
    assert!(world.strict().is_ok());
    assert!(world.cache.flush(StatusKind::Crl).is_empty());
    let why = world.strict().unwrap_err();
    assert!(why.contains("there is no CRL"), "{why}");
    world.fetch(1, "hold");
    world.assert_revoked();
    let again = world.cache.flush(StatusKind::Crl);
    assert_eq!(again, [place_of(1)], "its issuer may say otherwise");
    assert_eq!(world.cache.overdue(world.now()), again);
    world.assert_revoked();
    // The same list again is current again.
    world.fetch(1, "hold");
    world.assert_revoked();
    world.fetch(1, "newer");
    assert!(world.strict().is_ok());
}

#[test]
fn files_are_replaced_by_what_is_verified() {
    let mut world = World::crls();
    let (lists, forged, newer) = (world.crl("lists"), world.crl("forged"), world.crl("newer"));
    world.configured.add_crls([lists]);
    world.assert_revoked();
    let root = world.configured.crls()[0].clone();
    let reload = |world: &mut World, crl: &Arc<Crl>| {
        let root = world.crl("root");
        let mut new = RevocationStore::new(vec![root, crl.clone()]);
        let now = world.now();
        world.cache.keep(&world.configured, &mut new, now);
        world.configured = new;
    };
    reload(&mut world, &forged);
    let same = Arc::ptr_eq(&root, &world.configured.crls()[0]);
    assert!(same, "what is known about a file that stays is kept");
    world.assert_revoked();
    reload(&mut world, &newer);
    assert!(world.strict().is_ok());
    reload(&mut world, &newer);
    assert!(
        world.cache.crls.is_empty(),
        "nothing is kept twice, and nothing for ever"
    );
}

// RFC 5280 R33
#[test]
fn a_delta_that_a_crl_names_is_asked_for() {
    let mut world = World::crls();
    world.fetch(1, "empty");
    assert_eq!(world.strict(), Ok(vec![]), "nobody fetches");
    world.configured.set_fetches();
    let uri = "http://crl.example.org/delta.crl".to_owned();
    let delta = StatusSource::Crl { uri };
    for policy in [RevocationPolicy::Strict, RevocationPolicy::Relaxed] {
        let asked = world.verdict(policy).unwrap();
        assert!(asked.contains(&delta), "{asked:?}");
    }
    let mut failed = world.configured.clone();
    failed.note_tried(delta.clone());
    let before = std::mem::replace(&mut world.configured, failed);
    let why = world.strict().unwrap_err();
    assert!(why.contains("a delta CRL, and no current one"), "{why}");
    assert_eq!(world.relaxed(), Ok(vec![]), "it goes by the complete one");
    world.configured = before;
    world.fetch(2, "delta-lists");
    world.assert_revoked();
}

#[test]
fn a_delta_that_does_not_reach_back_takes_nothing_back() {
    let mut world = World::crls();
    world.fetch(1, "empty");
    world.fetch(2, "delta-lists");
    world.assert_revoked();
    world.fetch(2, "delta-far");
    world.assert_revoked();
    world.fetch(1, "newest");
    assert!(world.strict().is_ok());
}

#[test]
fn an_answer_stays_until_its_issuer_has_a_newer_one() {
    let mut world = World::answers();
    world.ask("lists");
    world.assert_revoked();
    for label in [
        "stranger",
        "forged",
        "good-older",
        "unknown",
        "early",
        "stale",
        "itself",
    ] {
        world.ask(label);
        world.assert_revoked();
    }
    assert_eq!(world.cache.flush(StatusKind::Ocsp).len(), 1);
    world.assert_revoked();
    assert_eq!(world.cache.answers.len(), 1);
    world.ask("good-newest");
    assert!(world.strict().is_ok());
    world.ask("stranger");
    assert!(world.strict().is_ok());
    assert_eq!(world.cache.answers.len(), 2);
}

#[test]
fn answers_go_in_the_order_of_their_worth() {
    let mut world = World::answers();
    world.cache.bounds.answers = 1;
    for _ in 0..5 {
        world.ask("lists");
        world.assert_revoked();
        assert_eq!(world.cache.answers.len(), 1, "the same word is kept once");
    }
    for _ in 0..10 {
        world.ask("stranger");
        world.assert_revoked();
        assert!(world.cache.answers.len() <= 2);
    }
    assert!(!world.store().has_forgotten());
    world.cache.bounds.answers = 0;
    world.ask("stranger");
    assert!(world.store().has_forgotten());
    let why = world.relaxed().unwrap_err();
    assert!(why.contains("there is no CRL"), "{why}");
}

#[test]
fn an_answer_is_about_what_was_asked() {
    let world = World::answers();
    for (label, expected) in [("good", true), ("sha256", true), ("about-other", false)] {
        let answer = OcspAnswer::from_der(&world.der("answers", label)).unwrap();
        assert_eq!(answer.is_about(&world.request()), expected, "{label}");
        assert!(!answer.is_about(b"nothing"));
    }
}

#[test]
fn what_is_fetched_is_reduced_to_der() {
    let world = World::crls();
    let [one, two] = ["empty", "newer"].map(|label| world.der("crls", label));
    assert_eq!(Crl::reduce(&one), Ok(one.clone()));
    let pem = |label: &str| {
        let text = world.file["crls"][label].as_str().unwrap();
        format!("-----BEGIN X509 CRL-----\n{text}\n-----END X509 CRL-----\n")
    };
    let both = Crl::reduce((pem("empty") + &pem("newer")).as_bytes()).unwrap();
    assert_eq!(both, [one.clone(), two].concat());
    let read = Crl::from_reduced(&both).unwrap();
    assert_eq!(read.len(), 2);
    assert!(Crl::reduce(b"").is_err() && Crl::reduce(b"nonsense").is_err());
    assert!(Crl::reduce(&one[..one.len() - 1]).is_err());
    let many = Crl::from_reduced(&one.repeat(20)).unwrap();
    assert_eq!(many.len(), 8);
    assert!(Crl::from_reduced(&both[..both.len() - 1]).is_err());
}
