//! Runs the packet path beside the reference model of `esplanade_testkit::model`. Random policies, SAs, packets,
//! rekeys, losses, copies and forgeries must have the same outcome, byte for byte and counter for counter.

#[allow(dead_code, reason = "the fuzz target uses what the test does not")]
mod choices;
mod cipher;
mod pair;
mod scenario;
mod traffic;

use choices::Choices;

/// The number of scenarios in a run, unless `ESPLANADE_MODEL_SEEDS` gives another.
const SEEDS: u64 = 1000;

// RFC 4301 R10, R67, R68, R71, R82, R110, R115; RFC 4303 R21, R51, R52; RFC 4302 R48
#[test]
fn the_packet_path_does_what_the_model_does() {
    let seeds = std::env::var("ESPLANADE_MODEL_SEEDS").ok();
    let seeds = seeds.map_or(SEEDS, |text| text.parse().expect("a number of seeds"));
    let first = std::env::var("ESPLANADE_MODEL_FIRST").ok();
    let first = first.map_or(0, |text| text.parse().expect("the first seed"));
    let mut total = scenario::Tally::default();
    for seed in first..first + seeds {
        // The output of a failure says which seed failed.
        println!("ESPLANADE_MODEL_FIRST={seed} ESPLANADE_MODEL_SEEDS=1");
        total.add(&scenario::run(&mut Choices::from_seed(seed)));
    }
    println!("{total:#?}");
    total.assert_everything_happened();
}
