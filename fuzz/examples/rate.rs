//! Replays the corpus of each target again and again, and prints the number of inputs per second.
//!
//! Run `cargo run -p esplanade-fuzz --release --example rate [TARGET...]`.

use std::time::{Duration, Instant};

use esplanade_fuzz::{TARGETS, corpus};

const TIME: Duration = Duration::from_secs(5);

fn main() {
    let wanted: Vec<String> = std::env::args().skip(1).collect();
    for (name, target) in TARGETS {
        if !wanted.is_empty() && !wanted.iter().any(|one| one == name) {
            continue;
        }
        let inputs = corpus(name);
        let (begin, mut runs) = (Instant::now(), 0_u32);
        while begin.elapsed() < TIME {
            for input in &inputs {
                target(input);
                runs += 1;
            }
        }
        let rate = f64::from(runs) / begin.elapsed().as_secs_f64();
        println!("{name}: {rate:.0} inputs/s over {} inputs", inputs.len());
    }
}

fn corpus(target: &str) -> Vec<Vec<u8>> {
    let files = corpus::files(&corpus::folder(target)).expect("a corpus");
    let inputs = files.iter().map(|path| corpus::inputs(path));
    inputs
        .flat_map(|inputs| inputs.expect("a corpus file"))
        .collect()
}
