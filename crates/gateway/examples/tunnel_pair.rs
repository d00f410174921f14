//! Measures two data planes with static keys by iperf3.
//!
//! `cargo run --release --example tunnel_pair -- [gcm128|gcm256|cbc128] [udp|raw] [WORKERS]
//! [IPERF3-ARGUMENTS…]`
//!
//! It needs iperf3, and root or `unshare -Urn`. WORKERS is the number of workers of each site.

use std::process::Command;
use std::sync::atomic::Ordering;
use std::time::Duration;

use esplanade::worker::{IoCounters, Worker};
use esplanade_crypto::Transform;

use pair::{Error, INNER_V4, Pair, PairOptions, inside};

#[path = "../tests/pair/mod.rs"]
mod pair;

fn main() -> Result<(), Error> {
    tracing_subscriber::fmt()
        .with_max_level(tracing::Level::WARN)
        .init();
    let mut arguments = std::env::args().skip(1);
    let transform = match arguments.next().as_deref() {
        Some("gcm256") => "AES_GCM_16_256",
        Some("cbc128") => "AES_CBC_128/HMAC_SHA2_256_128",
        _ => "AES_GCM_16_128",
    };
    let transform = Transform::from_name(transform).ok_or("unknown transform")?;
    let options = PairOptions {
        transform,
        udp_encap: arguments.next().as_deref() != Some("raw"),
        outer_v6: false,
        workers: arguments.next().and_then(|n| n.parse().ok()).unwrap_or(1),
        peer_replay_window: 8192,
    };
    let iperf: Vec<String> = arguments.collect();

    let pair = Pair::new(&options)?;
    std::thread::scope(|scope| -> Result<(), Error> {
        let server = scope.spawn(|| {
            inside(&pair.namespaces[1], || {
                Ok(Command::new("iperf3").args(["-s", "-1"]).output()?)
            })
        });
        std::thread::sleep(Duration::from_millis(500));
        inside(&pair.namespaces[0], || {
            let address = INNER_V4[1].to_string();
            Command::new("ping")
                .args(["-q", "-c", "3", "-i", "0.2", &address])
                .status()?;
            Ok(Command::new("iperf3")
                .args(["-c", &address])
                .args(&iperf)
                .status()?)
        })?;
        server.join().map_err(|_| "the server panicked")??;
        Ok(())
    })?;
    for (name, site) in ["client", "server"].iter().zip(&pair.sites) {
        site.workers.iter().for_each(|worker| report(name, worker));
    }
    Ok(())
}

fn report(name: &str, worker: &Worker) {
    println!("{name}:");
    for (direction, walk) in [("outbound", &worker.outbound), ("inbound", &worker.inbound)] {
        let packets = walk.packets_out.load(Ordering::Relaxed);
        let drops: Vec<_> = walk.drops.iter().filter(|(_, count)| *count > 0).collect();
        println!("  {direction}: {packets} packets, drops {drops:?}");
    }
    let counts = IoCounters::COUNTERS.iter().zip(worker.io.iter());
    let counters: Vec<_> = counts
        .filter(|(_, count)| *count > 0)
        .map(|(counter, count)| (counter.name(), count))
        .collect();
    println!("  {counters:?}");
}
