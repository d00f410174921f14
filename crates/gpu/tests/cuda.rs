//! CUDA's host over a stand-in for the driver, which has faults: what is there, and what becomes of errors.

mod common;

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use common::stand_in::{inside, is_inside, run};
use common::{Numbers, batch, carried, carry, in_memory, keys, there_and_back};
use esplanade_crypto::{Batch, Direction};
use esplanade_gpu::device::cuda::{Cuda, CudaFound};
use esplanade_gpu::launch::{STAGES, stages_of};
use esplanade_gpu::{
    DeviceError, DeviceOptions, Gpu, LaunchChoice, Tables, names, open, open_with, self_test,
};

fn opened() -> Gpu {
    common::gpu_of(common::device(Tables::No).unwrap())
}

fn refused() -> DeviceError {
    let found = CudaFound::new(None).unwrap();
    Cuda::open(found, Arc::new(|| {}), DeviceOptions::default()).unwrap_err()
}

/// Batches that need all stages.
fn some(jobs: usize) -> Vec<Batch> {
    let numbers = &mut Numbers(17);
    let transforms = carried();
    let keys = keys(&transforms, transforms.len(), numbers);
    vec![batch(&keys, transforms.len(), jobs, numbers)]
}

/// No call reaches the driver after an error.
fn assert_out_of_service(gpu: &mut Gpu) {
    for error in [
        gpu.carry(some(40)).unwrap_err(),
        gpu.poll().unwrap_err(),
        gpu.wait().unwrap_err(),
    ] {
        assert!(error.to_string().contains("failed before"), "{error}");
    }
}

#[test]
fn a_part_of_a_name_selects_the_device() {
    let test = "a_part_of_a_name_selects_the_device";
    inside(test, "two", 0, || {
        let (names, failures) = names();
        assert_eq!(names[..2], ["CUDA: Stand-in 0", "CUDA: Stand-in 1"]);
        assert!(
            !failures
                .iter()
                .any(|error| error.to_string().contains("cu"))
        );
        for (wanted, name) in [
            (None, "CUDA: Stand-in 0"),
            (Some("cuda"), "CUDA: Stand-in 0"),
            (Some("STAND-IN 1"), "CUDA: Stand-in 1"),
        ] {
            assert_eq!(
                open(wanted, Tables::No, Arc::new(|| {})).unwrap().name(),
                name
            );
        }
        let error = CudaFound::new(Some("Portable")).unwrap_err().to_string();
        assert!(error.contains("Stand-in 0, CUDA: Stand-in 1"), "{error}");
    });
}

#[test]
fn a_driver_that_is_not_there_is_an_error() {
    inside(
        "a_driver_that_is_not_there_is_an_error",
        "no-library",
        0,
        || {
            let error = CudaFound::new(None).unwrap_err();
            assert_eq!(error, DeviceError::NoLibrary("libcuda.so.1"));
            assert_eq!(error.to_string(), "libcuda.so.1 is not there");
        },
    );
}

#[test]
fn a_driver_that_lacks_a_call_is_an_error() {
    inside(
        "a_driver_that_lacks_a_call_is_an_error",
        "old-driver",
        0,
        || {
            let error = CudaFound::new(None).unwrap_err();
            assert_eq!(error, DeviceError::OldDriver("cuLaunchHostFunc"));
            assert_eq!(
                open(Some("stand-in"), Tables::No, Arc::new(|| {})).err(),
                Some(error)
            );
        },
    );
}

#[test]
fn a_driver_without_a_device_has_none() {
    inside("a_driver_without_a_device_has_none", "no-device", 0, || {
        let there = Vec::new();
        let wanted = None;
        assert_eq!(
            CudaFound::new(None).unwrap_err(),
            DeviceError::NoDevice { wanted, there }
        );
    });
}

#[test]
fn a_broken_driver_is_told_and_does_not_hide_opencl() {
    let test = "a_broken_driver_is_told_and_does_not_hide_opencl";
    inside(test, "broken", 0, || {
        let (_, failures) = names();
        let failure = failures[0].to_string();
        assert!(
            failure.starts_with("cuInit fails: TRIAL_ERROR_999"),
            "{failure}"
        );
        let error = open(Some("stand-in"), Tables::No, Arc::new(|| {}))
            .map(drop)
            .unwrap_err();
        assert_eq!(error, failures[0]);
    });
}

#[test]
fn an_old_device_is_refused_by_its_name() {
    inside(
        "an_old_device_is_refused_by_its_name",
        "old-device",
        0,
        || {
            let error = open(Some("stand-in 1"), Tables::No, Arc::new(|| {}))
                .map(drop)
                .unwrap_err();
            let text = "CUDA: Stand-in 1 has compute capability 7.0, and the kernels need 7.5";
            assert_eq!(error.to_string(), text);
        },
    );
}

#[test]
fn a_driver_that_refuses_the_kernels_tells_why() {
    inside(
        "a_driver_that_refuses_the_kernels_tells_why",
        "refuse-kernels",
        0,
        || {
            let error = refused();
            assert!(
                matches!(&error, DeviceError::Compiler(why) if why.contains("the trial wants it"))
            );
        },
    );
}

/// Opens the stand-in with tables.
fn with_tables(tables: Tables) -> Result<Gpu, DeviceError> {
    open(Some("stand-in"), tables, Arc::new(|| {})).map(common::gpu_of)
}

#[test]
fn a_whole_gpu_has_tables_if_told_to() {
    inside("a_whole_gpu_has_tables_if_told_to", "none", 0, || {
        let mut gpu = with_tables(Tables::Yes).unwrap();
        assert!(gpu.tables() && gpu.name().starts_with("CUDA"));
        carry(&mut gpu, some(40), "with tables");
        assert!(!with_tables(Tables::No).unwrap().tables());
    });
}

/// What is refused, is refused before anything is made for it.
fn assert_only_by_force(why: &str) {
    match with_tables(Tables::Yes).unwrap_err() {
        DeviceError::NotWhole { device, why: found } => {
            assert!(device.starts_with("CUDA: Stand-in 0"), "{device}");
            assert!(found.contains(why), "{found}");
        }
        error => panic!("{error}"),
    }
    assert!(with_tables(Tables::Force).unwrap().tables());
    assert!(!with_tables(Tables::No).unwrap().tables());
}

#[test]
fn a_part_of_a_gpu_has_tables_only_by_force() {
    let test = "a_part_of_a_gpu_has_tables_only_by_force";
    inside(test, "part", 0, || assert_only_by_force("a part of a GPU"));
}

#[test]
fn a_gpu_in_the_processor_has_tables_only_by_force() {
    let test = "a_gpu_in_the_processor_has_tables_only_by_force";
    inside(test, "integrated", 0, || {
        assert_only_by_force("built into the host's processor");
    });
}

#[test]
fn a_gpu_that_does_not_say_has_tables_only_by_force() {
    let test = "a_gpu_that_does_not_say_has_tables_only_by_force";
    inside(test, "no-answer", 0, || {
        assert_only_by_force("built into the host's processor");
    });
}

#[test]
fn a_gpu_with_mps_has_tables_only_by_force() {
    let test = "a_gpu_with_mps_has_tables_only_by_force";
    inside(test, "mps", 0, || assert_only_by_force("MPS"));
}

#[test]
fn the_device_measures_the_stages() {
    inside("the_device_measures_the_stages", "none", 0, || {
        let options = DeviceOptions {
            is_timed: true,
            ..DeviceOptions::default()
        };
        let device = open_with(Some("stand-in"), Arc::new(|| {}), options);
        let mut gpu = common::gpu_of(device.unwrap());
        let begun = Instant::now();
        carry(&mut gpu, some(300), "timed");
        let stage_ns = gpu.counters().stage_ns;
        let of_seal = stages_of(Direction::Seal);
        for (stage, ns) in stage_ns.into_iter().enumerate() {
            assert_eq!(ns > 0, of_seal.contains(&stage), "{stage}: {stage_ns:?}");
        }
        assert!(u128::from(stage_ns.iter().sum::<u64>()) <= begun.elapsed().as_nanos());
        // Nobody else pays for timers.
        let mut gpu = opened();
        carry(&mut gpu, some(40), "not timed");
        assert_eq!(gpu.counters().stage_ns, [0; STAGES]);
    });
}

/// What was made before is given back.
#[test]
fn a_device_without_memory_is_not_opened() {
    inside(
        "a_device_without_memory_is_not_opened",
        "no-memory@7",
        0,
        || {
            assert!(
                refused()
                    .to_string()
                    .starts_with("cuMemAlloc_v2 fails: TRIAL_ERROR_2")
            );
        },
    );
}

#[test]
fn a_host_without_pinned_memory_opens_no_device() {
    inside(
        "a_host_without_pinned_memory_opens_no_device",
        "no-pinned@4",
        0,
        || {
            assert!(
                refused()
                    .to_string()
                    .starts_with("cuMemHostAlloc fails: TRIAL_ERROR_2")
            );
        },
    );
}

#[test]
fn batches_in_pinned_memory_are_copied_from_there() {
    let test = "batches_in_pinned_memory_are_copied_from_there";
    inside(test, "none", 0, || {
        let mut gpu = opened();
        let made = &some(300)[0];
        let pinned = in_memory(&gpu, made).unwrap();
        let place = pinned.buffer.as_ptr();
        let mut both = vec![pinned, made.copied()];
        for _ in 0..2 {
            both = carry(&mut gpu, both, "pinned and not");
        }
        assert_eq!(both[0].buffer.as_ptr(), place);
        // Batches may outlive the device.
        drop(gpu);
        assert!(both[0].buffer[..both[0].used()] == both[1].buffer[..both[1].used()]);
    });
}

#[test]
fn a_host_may_pin_less() {
    inside("a_host_may_pin_less", "no-register@1", 0, || {
        assert!(opened().memory().is_some());
    });
}

#[test]
fn a_host_may_pin_nothing_for_batches() {
    inside(
        "a_host_may_pin_nothing_for_batches",
        "no-register",
        0,
        || {
            let mut gpu = opened();
            assert!(gpu.memory().is_none());
            carry(&mut gpu, some(40), "without");
        },
    );
}

#[test]
fn each_launch_wakes_the_engine() {
    inside("each_launch_wakes_the_engine", "none", 0, || {
        let woken = Arc::new(AtomicU32::new(0));
        let wake = Arc::clone(&woken);
        let wake = Arc::new(move || {
            wake.fetch_add(1, Ordering::SeqCst);
        });
        let mut gpu = Gpu::new(
            open(Some("stand-in"), Tables::No, wake).unwrap(),
            LaunchChoice::default(),
        );
        let mut launches = 0;
        while gpu.can_start() {
            assert!(gpu.start(some(1500)).unwrap().is_none());
            launches += 1;
        }
        assert_eq!(launches, 4);
        while gpu.under_way() > 0 {
            gpu.wait().unwrap();
        }
        // The last call comes behind the event that `wait` waits for.
        let begun = Instant::now();
        while woken.load(Ordering::SeqCst) < launches {
            assert!(begun.elapsed() < Duration::from_secs(60));
            std::thread::yield_now();
        }
        assert_eq!(woken.load(Ordering::SeqCst), launches);
    });
}

#[test]
fn a_refused_launch_ends_the_device() {
    inside(
        "a_refused_launch_ends_the_device",
        "refuse-launch@3",
        1,
        || {
            let mut gpu = opened();
            let error = gpu.carry(some(100)).unwrap_err().to_string();
            assert!(
                error.starts_with("cuLaunchKernel fails: TRIAL_ERROR_701"),
                "{error}"
            );
            assert_out_of_service(&mut gpu);
        },
    );
}

/// The keys were on the device already. A device that has failed is not wiped later.
#[test]
fn keys_do_not_stay_where_they_were_not_expanded() {
    let (test, fault) = (
        "keys_do_not_stay_where_they_were_not_expanded",
        "refuse-launch@1",
    );
    if is_inside(fault) {
        opened().carry(some(100)).unwrap_err();
        return;
    }
    run(&[test], fault, |text| {
        text.contains("stand-in: 1 contexts are left") && !text.contains("keys are left")
    });
}

/// A kernel's error is told by later calls. The launch does not come back.
#[test]
fn an_error_of_a_kernel_ends_the_device() {
    inside(
        "an_error_of_a_kernel_ends_the_device",
        "sticky@12",
        1,
        || {
            let mut gpu = opened();
            let numbers = &mut Numbers(23);
            there_and_back(&mut gpu, some(100), numbers);
            let error = loop {
                if let Err(error) = gpu.carry(some(100)) {
                    break error.to_string();
                }
            };
            assert!(error.contains("fails: TRIAL_ERROR_700"), "{error}");
            assert_out_of_service(&mut gpu);
        },
    );
}

/// Nothing that the device may still use is freed.
#[test]
fn a_launch_that_hangs_keeps_its_memory() {
    inside("a_launch_that_hangs_keeps_its_memory", "hang@4", 1, || {
        let mut gpu = opened();
        assert!(gpu.start(some(100)).unwrap().is_none());
        let begun = Instant::now();
        while begun.elapsed() < Duration::from_millis(300) {
            assert!(gpu.poll().unwrap().is_none());
        }
        assert_eq!(gpu.under_way(), 1);
    });
}

/// The device may still read and write packets, but it knows nothing of the host's keys.
#[test]
fn a_launch_that_hangs_keeps_no_keys() {
    inside("a_launch_that_hangs_keeps_no_keys", "hang@4", 1, || {
        let mut gpu = opened();
        let batches = some(100);
        let of_batches = batches.iter().flat_map(|batch| batch.keys.iter());
        let keys: Vec<_> = of_batches.map(|(_, key)| Arc::downgrade(key)).collect();
        assert!(gpu.start(batches).unwrap().is_none());
        assert!(keys.iter().all(|key| key.strong_count() > 0));
        gpu.abandon();
        assert!(!keys.is_empty() && keys.iter().all(|key| key.strong_count() == 0));
    });
}

#[test]
fn a_launch_that_is_refused_keeps_no_keys() {
    let test = "a_launch_that_is_refused_keeps_no_keys";
    inside(test, "refuse-launch@3", 1, || {
        let mut gpu = opened();
        let batches = some(100);
        let of_batches = batches.iter().flat_map(|batch| batch.keys.iter());
        let keys: Vec<_> = of_batches.map(|(_, key)| Arc::downgrade(key)).collect();
        gpu.start(batches).unwrap_err();
        gpu.abandon();
        assert!(!keys.is_empty() && keys.iter().all(|key| key.strong_count() == 0));
    });
}

#[test]
fn a_self_test_that_hangs_ends() {
    inside("a_self_test_that_hangs_ends", "hang@4", 1, || {
        let mut gpu = opened().with_patience(Duration::from_millis(200));
        let error = self_test::run(&mut gpu).unwrap_err().to_string();
        assert!(
            error.ends_with("a launch fails: it is under way for 200 ms"),
            "{error}"
        );
        gpu.abandon();
    });
}

#[test]
fn a_stage_that_did_not_run_is_noticed() {
    // The first kernel loads keys. Then come cipher and MAC.
    inside("a_stage_that_did_not_run_is_noticed", "skip@3", 0, || {
        let error = opened().carry(some(100)).unwrap_err();
        assert!(
            matches!(&error, DeviceError::Wrong(what) if what.contains("verdict 0")),
            "{error}"
        );
    });
}

#[test]
fn a_wrong_lane_disables_what_it_does() {
    inside(
        "a_wrong_lane_disables_what_it_does",
        "wrong-lane",
        0,
        || {
            let mut gpu = opened();
            self_test::run(&mut gpu).unwrap();
            assert_eq!(gpu.disabled().len(), carried().len());
        },
    );
}
