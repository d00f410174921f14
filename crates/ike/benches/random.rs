//! Times the random numbers that IKE takes for nonces, cookies and identifiers, on one core.
//!
//! Each request size prints a line of JSON with the median and the best of five rounds.

use std::hint::black_box;
use std::time::{Duration, Instant};

use esplanade_ike::{Random, SystemRandom};

const ROUNDS: usize = 5;
const ROUND: Duration = Duration::from_millis(500);
/// An SPI of IKE, a nonce, and more than anyone asks for at a time.
const SIZES: [usize; 3] = [8, 32, 4096];

fn mbit_s(bytes: usize) -> f64 {
    let mut buffer = vec![0; bytes];
    let begun = Instant::now();
    let mut filled = 0u64;
    while begun.elapsed() < ROUND {
        for _ in 0..64 {
            SystemRandom.fill(black_box(&mut buffer));
        }
        filled += 64 * bytes as u64;
    }
    8.0 * filled as f64 / begun.elapsed().as_secs_f64() / 1e6
}

fn main() {
    for bytes in SIZES {
        let mut rates: Vec<f64> = (0..ROUNDS).map(|_| mbit_s(bytes)).collect();
        rates.sort_by(f64::total_cmp);
        let (median, best) = (rates[ROUNDS / 2], rates[ROUNDS - 1]);
        println!(
            "{{\"bench\": \"random\", \"bytes\": {bytes}, \"mbit_s\": {median:.0}, \"best\": {best:.0}}}"
        );
    }
}
