//! The bench runs over CUDA, from its options to its last line.

#[allow(dead_code, reason = "its `main` is not called")]
#[path = "../benches/gpu/main.rs"]
mod bench;
mod common;

use common::stand_in;

/// Runs the bench in the process of the stand-in, and there alone.
fn run(test: &str, fault: &str, more: &[&str], is_right: impl Fn(&str) -> bool) {
    if !stand_in::is_inside(fault) {
        return stand_in::run(&[test], fault, is_right);
    }
    let usual = [
        "--device",
        "stand-in 1",
        "--packets",
        "96",
        "--seconds",
        "0.01",
    ];
    let arguments = usual.iter().chain(more).map(ToString::to_string);
    // The test's name stands before it.
    println!();
    let worked = bench::run(&bench::Options::read(arguments).unwrap());
    println!("worked: {worked}");
}

#[test]
fn all_parts_run_over_cuda_in_both_forms() {
    let test = "all_parts_run_over_cuda_in_both_forms";
    run(test, "none", &["--rows", "R1,R4", "--warp", "32"], |text| {
        let of = |part: &str, with: &str| {
            let part = format!("{{\"part\":\"{part}\"");
            let lines = text.lines();
            lines
                .filter(|line| line.starts_with(&part) && line.contains(with))
                .count()
        };
        for tables in ["\"tables\":false", "\"tables\":true"] {
            let device = format!("\"device\":\"CUDA: Stand-in 1\",{tables}");
            assert_eq!(of("device", &device), 2);
            // Three arrangements of two rows, and the transforms of one.
            assert_eq!(of("closed", tables), 6 + 5);
            assert_eq!(of("open", tables), 8);
            assert_eq!(of("lanes", tables), 6);
            assert_eq!(of("walk", tables), 1);
        }
        assert_eq!(of("device", "\"wrong\":[]"), 4);
        assert_eq!(of("closed", "\"packets_by_cpu\":0,"), 22);
        assert_eq!((of("closed", "\"cpu\""), of("walk", "\"cpu\"")), (2, 1));
        assert_eq!((of("left out", ""), of("failed", "")), (0, 0));
        // The device has timers.
        assert!(!text.contains("\"cipher\":0.000") && !text.contains("NaN"));
        text.contains("worked: true") && text.contains("stand-in: 0 contexts are left")
    });
}

#[test]
fn what_the_budget_has_no_time_for_is_named() {
    let test = "what_the_budget_has_no_time_for_is_named";
    let more = ["--rows", "R1", "--budget", "0", "--forms", "tables"];
    run(test, "none", &more, |text| {
        for case in ["closed R1 cpu", "closed R1 full", "walk gpu", "lanes"] {
            let line = format!("{{\"part\":\"left out\",\"case\":\"{case}\"}}");
            assert!(text.contains(&line), "{case}");
        }
        !text.contains("gbits") && text.contains("worked: true")
    });
}

/// One form that cannot be measured does not cost the other one.
#[test]
fn a_device_that_fails_is_told() {
    let test = "a_device_that_fails_is_told";
    run(test, "refuse-launch@3", &["--rows", "R1"], |text| {
        let failed =
            "{\"part\":\"failed\",\"tables\":false,\"why\":\"cuLaunchKernel fails: TRIAL_ERROR_701";
        assert!(text.contains(failed));
        assert!(
            text.contains("\"part\":\"closed\",\"row\":\"R1\",\"engine\":\"gpu\",\"tables\":true")
        );
        text.contains("worked: false")
    });
}
