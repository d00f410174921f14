//! Looks for keys of IKE SAs in the memory of the process, when the SAs have ended.
//!
//! The file has one test, so that no other test runs in the process.

#![cfg(target_os = "linux")]

mod common;

use std::fs::{File, read_to_string};
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::time::Duration;

use common::wiretap::Broken;
use common::*;
use esplanade_crypto::iana::Prf;
use esplanade_ike::suite::{Secret, prf, prf_plus};
use esplanade_ike::wire::{Message, Payload};

const SECOND: Duration = Duration::from_secs(1);
const PRF: Prf = Prf::HmacSha2_256;
const CHUNK: usize = 1 << 16;
const NONE: [&str; 0] = [];

/// A secret with all bits inverted, so that the test itself does not keep the secret.
struct Wanted {
    name: &'static str,
    inverted: Vec<u8>,
}

impl Wanted {
    fn new(name: &'static str, secret: &[u8]) -> Self {
        let inverted = secret.iter().map(|byte| !byte).collect();
        Self { name, inverted }
    }

    fn begins(&self, bytes: &[u8]) -> bool {
        let pairs = bytes.iter().zip(&self.inverted);
        bytes.len() >= self.inverted.len() && pairs.into_iter().all(|(a, b)| *a == !b)
    }
}

/// The names of the secrets that are in memory that the process can write to.
fn found(wanted: &[Wanted]) -> Vec<&'static str> {
    // Most memory is zero, and so is the first byte of one key in 256.
    let mut may_begin = vec![false; 1 << 16];
    let pair = |bytes: &[u8]| usize::from(u16::from_be_bytes([bytes[0], bytes[1]]));
    let longest = wanted.iter().map(|one| one.inverted.len()).max();
    let longest = longest.unwrap();
    for one in wanted {
        may_begin[pair(&[!one.inverted[0], !one.inverted[1]])] = true;
    }
    let memory = File::open("/proc/self/mem").unwrap();
    let mut names = Vec::new();
    let mut buffer = vec![0; CHUNK + longest];
    let own = buffer.as_ptr() as u64;
    let own = own..own + buffer.len() as u64;
    for line in read_to_string("/proc/self/maps").unwrap().lines() {
        let mut words = line.split(' ');
        let (range, rights) = (words.next().unwrap(), words.next().unwrap());
        if !rights.starts_with("rw") {
            continue;
        }
        let (start, end) = range.split_once('-').unwrap();
        let [start, end] = [start, end].map(|text| u64::from_str_radix(text, 16).unwrap());
        for at in (start..end).step_by(CHUNK) {
            buffer.fill(0);
            let len = buffer.len().min((end - at) as usize);
            let read = memory.read_at(&mut buffer[..len], at).unwrap_or(0);
            for (offset, bytes) in buffer[..read].windows(2).enumerate() {
                if may_begin[pair(bytes)] && !own.contains(&(at + offset as u64)) {
                    let here = wanted
                        .iter()
                        .filter(|one| one.begins(&buffer[offset..read]));
                    names.extend(here.map(|one| one.name));
                }
            }
        }
    }
    buffer.fill(0);
    names.sort_unstable();
    names.dedup();
    names
}

fn nonce(message: &Message) -> Vec<u8> {
    let mut payloads = message.payloads.iter();
    let nonce = payloads.find_map(|payload| match payload {
        Payload::Nonce(nonce) => Some(nonce.clone()),
        _ => None,
    });
    nonce.unwrap()
}

/// The keys of the first IKE SA, and what they were made of (RFC 7296 §2.14).
fn of_ike_sa(pair: &Pair, shared: &Secret) -> Vec<Wanted> {
    let [request, response] =
        [&pair.a.sent[0], &pair.b.sent[0]].map(|sent| Message::decode(&sent.payload).unwrap());
    let nonces = [nonce(&request), nonce(&response)].concat();
    let spis = (response.header.initiator_spi, response.header.responder_spi);
    let spis = [spis.0.to_be_bytes(), spis.1.to_be_bytes()].concat();
    let skeyseed = prf(PRF, &nonces, &[shared.expose()]);
    let seed = Secret::from([nonces, spis].concat());
    let names = ["SK_d", "SK_ei", "SK_er", "SK_pi", "SK_pr"];
    let lens = [32, 20, 20, 32, 32];
    let all = prf_plus(PRF, skeyseed.expose(), &seed, lens.iter().sum()).unwrap();
    let mut wanted = vec![
        Wanted::new("the shared secret", shared.expose()),
        Wanted::new("SKEYSEED", skeyseed.expose()),
    ];
    let mut rest = all.expose();
    for (name, len) in names.into_iter().zip(lens) {
        let (key, others) = rest.split_at(len);
        wanted.push(Wanted::new(name, key));
        rest = others;
    }
    wanted
}

fn of_child_sa(pair: &Pair) -> Vec<Wanted> {
    let child = &pair.a.installed[0];
    vec![
        Wanted::new("the inbound key", child.key_in.expose()),
        Wanted::new("the outbound key", child.key_out.expose()),
    ]
}

/// The model of the data plane has copies of the child SAs.
fn forget_events(pair: &mut Pair) {
    for side in [&mut pair.a, &mut pair.b] {
        side.events.clear();
        side.installed.clear();
    }
}

/// A rekey replaces the first IKE SA, and then all SAs are closed. The two ends are in the same process.
// RFC 7296 R122
#[test]
fn no_key_is_in_memory_when_its_sa_has_ended() {
    let leak = Arc::default();
    let mut pair = Pair::with(|_, _| {});
    let b = config(default_configs().1);
    pair.b = Side::with_host("b", B, b, pair.now, 3, |host| {
        host.key_exchange = Arc::new(Broken(Arc::clone(&leak)));
    });
    pair.initiate();
    pair.run(SECOND);
    pair.assert_agreed(1, 1);
    let shared = leak.lock().unwrap().take().unwrap();
    let keys = of_ike_sa(&pair, &shared);
    let child_keys = of_child_sa(&pair);
    drop(shared);
    forget_events(&mut pair);
    let in_use = ["SK_d", "SK_ei", "SK_er", "SK_pi", "SK_pr"];
    assert_eq!(found(&keys), in_use, "nothing that makes them");
    assert_eq!(found(&child_keys).len(), 2);

    pair.a.endpoint.rekey(pair.now, "site", None).unwrap();
    pair.flush();
    pair.run(60 * SECOND);
    pair.assert_agreed(1, 1);
    leak.lock().unwrap().take();
    assert_eq!(found(&keys), NONE);

    pair.assert_clean_end();
    forget_events(&mut pair);
    assert_eq!(found(&keys), NONE);
    assert_eq!(found(&child_keys), NONE);
}
