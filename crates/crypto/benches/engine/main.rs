//! Compares the CPU engine, tier by tier, with other libraries: the core cycles to seal and to open a packet, in one
//! process.
//!
//! All contenders work in turns on the same packets, in the same memory, with the same keys, and must give the same
//! bytes. Each case and contender prints one line of JSON. bench/engine.py builds the other libraries' side and runs
//! this program, pinned to a core. Arguments: `--peer FILE` (any number), `--suites A,B`, `--sizes 64,64-1400,imix`,
//! `--keys 1,10000`, `--batches 32,128`, `--samples N`, `--case-ms N`, `--body-at N`. `--suites` takes parts of names.
//! Sizes are of what is encrypted, or with `--packets` of tunnelled packets, which ESP's trailer follows.

mod contender;
mod limits;
mod measure;
mod peer;
mod plan;

use std::sync::Arc;
use std::time::Duration;

use contender::{Contender, Esplanade, Packets, own_name};
use esplanade_crypto::{Batch, Direction, KeyContext, Tier, Transform};
use measure::{Limits, Race, Samples};
use peer::{BATCH_MAX, Key, Peer, PeerContender};
use plan::{Plan, Random, Size};

const SUITES: [&str; 8] = [
    "AES_GCM_16_128",
    "AES_GCM_16_256",
    "AES_CBC_128/HMAC_SHA1_96",
    "AES_CBC_256/HMAC_SHA1_96",
    "AES_CBC_128/HMAC_SHA2_256_128",
    "AES_CTR_256/HMAC_SHA2_256_128",
    "CHACHA20_POLY1305",
    "3DES/HMAC_MD5_96",
];
const SIZES: &str = "64,128,256,576,1024,1448,4096,9000,imix";
const DIRECTIONS: [(Direction, &str); 2] = [(Direction::Seal, "seal"), (Direction::Open, "open")];

struct Options {
    peers: Vec<String>,
    suites: Vec<String>,
    sizes: Vec<Size>,
    keys: Vec<usize>,
    batches: Vec<usize>,
    body_at: usize,
    /// The bytes of ESP's trailer that a size does not have in it.
    trailer: usize,
    limits: Limits,
}

fn options() -> Options {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let all = |name: &str| {
        let pairs = arguments.windows(2).filter(|pair| pair[0] == name);
        pairs.map(|pair| pair[1].clone()).collect::<Vec<_>>()
    };
    let list = |name: &str, default: &str| {
        let given = all(name).pop();
        let given = given.unwrap_or_else(|| default.to_owned());
        given.split(',').map(str::to_owned).collect::<Vec<_>>()
    };
    let numbers = |name: &str, default: &str| {
        let found = list(name, default).into_iter();
        found
            .map(|n| n.parse().expect("a number"))
            .collect::<Vec<usize>>()
    };
    let bytes = |text: &str| text.parse().expect("a size");
    let size = |name: String| match name.split_once('-') {
        _ if name == "imix" => Size::Imix,
        Some((least, most)) => Size::Between(bytes(least), bytes(most)),
        None => Size::Bytes(bytes(&name)),
    };
    Options {
        peers: all("--peer"),
        suites: list("--suites", ""),
        sizes: list("--sizes", SIZES).into_iter().map(size).collect(),
        keys: numbers("--keys", "1,10000"),
        batches: numbers("--batches", "32,64,128"),
        body_at: numbers("--body-at", "0")[0],
        trailer: if arguments.iter().any(|one| one == "--packets") {
            2
        } else {
            0
        },
        limits: Limits {
            samples: numbers("--samples", "15")[0],
            time: Duration::from_millis(numbers("--case-ms", "4000")[0] as u64),
        },
    }
}

/// The tiers of this machine; the last one is the fastest.
fn tiers() -> impl DoubleEndedIterator<Item = Tier> {
    Tier::ALL.into_iter().filter(|tier| tier.available())
}

fn key(tier: Tier, transform: Transform, material: &[u8]) -> KeyContext {
    KeyContext::for_tier(tier, transform, false, material).expect("good keys")
}

/// The keys of one suite for every contender.
struct Field {
    transform: Transform,
    own: Vec<(Tier, Vec<Arc<KeyContext>>)>,
    sealing: Vec<Arc<KeyContext>>,
    /// For each peer: its index in the list, the keys to seal with, and the keys to open with.
    peers: Vec<(usize, [Vec<Key>; 2])>,
}

impl Field {
    fn new(transform: Transform, materials: &[Vec<u8>], peers: &[Peer]) -> Self {
        let keys = |tier| {
            let keys = materials.iter().map(|m| Arc::new(key(tier, transform, m)));
            keys.collect::<Vec<_>>()
        };
        let fastest = tiers().next_back().expect("portable");
        let peers = peers.iter().enumerate().filter_map(|(i, peer)| {
            let suite = peer.suite(&transform.name())?;
            let keys = DIRECTIONS.map(|(direction, _)| {
                let keys = materials.iter().map(|m| suite.key(m, direction));
                keys.collect::<Option<Vec<_>>>()
            });
            match keys {
                [Some(seal), Some(open)] => Some((i, [seal, open])),
                _ => {
                    eprintln!("{} refuses keys of {transform}", peer.name);
                    None
                }
            }
        });
        Self {
            transform,
            own: tiers().map(|tier| (tier, keys(tier))).collect(),
            sealing: keys(fastest),
            peers: peers.collect(),
        }
    }

    fn contenders<'a>(
        &'a self,
        peers: &[Peer],
        direction: Direction,
    ) -> Vec<Box<dyn Contender + 'a>> {
        let own = self.own.iter().map(|(tier, keys)| {
            let own = Esplanade::new(*tier, direction, keys);
            Box::new(own) as Box<dyn Contender>
        });
        let mut all: Vec<_> = own.collect();
        for (i, keys) in &self.peers {
            let peer = &peers[*i];
            let keys = &keys[usize::from(direction == Direction::Open)];
            let suite = peer.suite(&self.transform.name());
            for way in suite.into_iter().flat_map(|suite| suite.ways()) {
                all.push(Box::new(PeerContender::new(peer, way, direction, keys)));
            }
        }
        all
    }

    fn sealer(&self) -> Esplanade {
        let fastest = tiers().next_back().expect("portable");
        Esplanade::new(fastest, Direction::Seal, &self.sealing)
    }
}

/// Makes the contender work on these bytes; it must refuse no packet.
fn do_all(contender: &mut dyn Contender, packets: &Packets, batch: &mut Batch, bytes: &[u8]) {
    batch.buffer.copy_from_slice(bytes);
    contender.set_up(packets, batch);
    let done = contender.run(batch);
    assert_eq!(done, packets.len(), "{:?}", contender.name());
}

/// Checks that every contender gives the bytes of the first one and gets the plain text back.
fn compare(field: &Field, peers: &[Peer], plan: &mut Plan) {
    let Plan { batches, batch, .. } = plan;
    let packets = &batches[0];
    let body = |buffer: &[u8]| {
        let icv = field.transform.icv_len();
        let start = 8 + field.transform.iv_len();
        let bodies = packets.iter().flat_map(|p| {
            let packet = &buffer[p.at as usize..][..p.len as usize - icv];
            packet[start..].to_vec()
        });
        bodies.collect::<Vec<u8>>()
    };
    Random(3).fill(&mut batch.buffer);
    let plain = batch.buffer.to_vec();
    let mut expected: Option<Vec<u8>> = None;
    for mut contender in field.contenders(peers, Direction::Seal) {
        do_all(contender.as_mut(), packets, batch, &plain);
        let sealed = expected.get_or_insert_with(|| batch.buffer.to_vec());
        assert!(
            sealed[..] == batch.buffer[..],
            "{:?} seals {} otherwise",
            contender.name(),
            field.transform
        );
    }
    let sealed = expected.expect("at least one tier");
    for mut contender in field.contenders(peers, Direction::Open) {
        do_all(contender.as_mut(), packets, batch, &sealed);
        let opened = body(&batch.buffer) == body(&plain);
        assert!(
            opened,
            "{:?} opens {} otherwise",
            contender.name(),
            field.transform
        );
    }
}

fn report(who: &(String, String), samples: &Samples, facts: &str) {
    let (name, way) = who;
    println!(
        "{{\"bench\": \"engine\", {facts}, \"who\": \"{name}\", \"way\": \"{way}\", \"cycles_median\": {:.1}, \
         \"cycles_min\": {:.1}, \"samples\": {}, \"ghz\": {:.2}}}",
        samples.median(),
        samples.least(),
        samples.len(),
        samples.ghz()
    );
}

/// Measures the time to make a key context for opening. With AES-CBC that takes longer than one for sealing.
fn key_set_up(transform: Transform, materials: &[Vec<u8>], peers: &[Peer]) {
    let facts = format!("\"suite\": \"{transform}\", \"direction\": \"key\"");
    let mut next = materials.iter().cycle();
    let mut material = || next.next().expect("at least one key").as_slice();
    for tier in tiers() {
        let samples = measure::latency(|| key(tier, transform, material()));
        let who = (own_name(tier), String::new());
        report(&who, &samples, &facts);
    }
    for peer in peers {
        if let Some(suite) = peer.suite(&transform.name()) {
            let samples = measure::latency(|| suite.key(material(), Direction::Open));
            report(&(peer.name.clone(), String::new()), &samples, &facts);
        }
    }
}

fn run(transform: Transform, options: &Options, peers: &[Peer]) {
    let most = options.keys.iter().copied().max().unwrap_or(1);
    let mut random = Random(7);
    let materials: Vec<Vec<u8>> = (0..most)
        .map(|_| {
            let mut material = vec![0; transform.key_material_len()];
            random.fill(&mut material);
            material
        })
        .collect();
    key_set_up(transform, &materials, peers);
    let field = Field::new(transform, &materials, peers);
    // The kernels of old ciphers work on more packets at once.
    let batches = match transform.legacy() {
        true => &[BATCH_MAX][..],
        false => &options.batches,
    };
    for &size in &options.sizes {
        for &packets in batches {
            let plan = |keys| {
                Plan::new(
                    transform,
                    size,
                    options.trailer,
                    keys,
                    packets,
                    options.body_at,
                )
            };
            let mut few = plan(most.min(packets));
            compare(&field, peers, &mut few);
            // All numbers of keys are measured only with the largest batch.
            let largest = batches.iter().all(|&other| other <= packets);
            let counts = if largest { options.keys.len() } else { 1 };
            for &keys in &options.keys[..counts] {
                let mut plan = plan(keys);
                for (direction, name) in DIRECTIONS {
                    let facts = format!(
                        "\"suite\": \"{transform}\", \"direction\": \"{name}\", \"size\": \"{size}\", \
                         \"bytes\": {:.1}, \"asked\": {:.1}, \"keys\": {keys}, \"batch\": {packets}",
                        plan.mean_bytes, plan.mean_asked
                    );
                    let contenders = field.contenders(peers, direction);
                    let mut race = Race::new(&mut plan, direction, field.sealer());
                    for (contender, samples) in race.run(contenders, &options.limits) {
                        report(&contender.name(), &samples, &facts);
                    }
                }
            }
        }
    }
}

fn main() {
    let options = options();
    let mut peers = Vec::new();
    for path in &options.peers {
        match Peer::load(path) {
            Ok(peer) => peers.push(peer),
            Err(reason) => println!("{{\"bench\": \"engine\", \"skipped\": \"{reason}\"}}"),
        }
    }
    for (suite, cycles) in limits::cycles_per_byte() {
        println!(
            "{{\"bench\": \"engine\", \"limit\": \"{suite}\", \"cycles_per_byte\": {cycles:.3}}}"
        );
    }
    let wanted = |name: &&str| {
        options
            .suites
            .iter()
            .any(|part| name.contains(part.as_str()))
    };
    for name in SUITES.iter().copied().filter(wanted) {
        let transform = Transform::from_name(name).expect("a transform");
        run(transform, &options, &peers);
    }
}
