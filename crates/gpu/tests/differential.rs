//! Holds devices against the CPU engine, byte for byte: PoCL or what `ESPLANADE_GPU` names, CUDA over a stand-in for
//! its driver, and the kernels as plain C under sanitizers.

mod common;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use common::plain::Plain;
use common::{
    Numbers, batch, batch_up_to, carried, carry, in_memory, keys, stand_in, there_and_back,
};
use esplanade_crypto::{Direction, Transform, cpu};
use esplanade_gpu::host_memory::HostMemoryUse;
use esplanade_gpu::launch::stages_of;
use esplanade_gpu::{
    Arrangement, Device, DeviceError, DeviceOptions, Gpu, LaunchChoice, OpenCl, Tables, self_test,
};

/// One test at a time uses the device.
static DEVICE: Mutex<()> = Mutex::new(());

/// Returns the device, or `None` where there is none.
fn gpu(arrangement: Arrangement, residue: bool) -> Option<(MutexGuard<'static, ()>, Gpu)> {
    gpu_with(Tables::No, arrangement, residue)
}

fn gpu_with(
    tables: Tables,
    arrangement: Arrangement,
    residue: bool,
) -> Option<(MutexGuard<'static, ()>, Gpu)> {
    let guard = DEVICE.lock().unwrap_or_else(PoisonError::into_inner);
    let choice = LaunchChoice {
        arrangement,
        residue,
        ..LaunchChoice::default()
    };
    let gpu = Gpu::new(common::device(tables)?, choice);
    assert_eq!(gpu.tables(), tables == Tables::Force);
    Some((guard, gpu))
}

/// The tests of a device again, with CUDA.
#[test]
fn cuda_is_as_the_cpu_has_it() {
    let tests = [
        "every_transform_is_as_the_cpu_has_it",
        "a_mix_of_all_transforms_is_as_the_cpu_has_it",
        "the_cpu_gets_what_the_kernels_lack_and_what_fills_no_warp",
        "the_self_test_finds_nothing",
        "several_launches_are_under_way_and_come_back_in_order",
    ];
    stand_in::run(&tests, "none", |text| {
        let passed = format!("{} passed", tests.len());
        let left = "stand-in: 0 contexts are left";
        text.contains(&passed) && text.contains(left) && !text.contains("SKIP")
    });
}

#[test]
fn every_transform_is_as_the_cpu_has_it() {
    for tables in common::FORMS {
        let Some((_guard, mut gpu)) = gpu_with(tables, Arrangement::Full, true) else {
            return;
        };
        for (number, transform) in carried().into_iter().enumerate() {
            let numbers = &mut Numbers(number as u64 + 1);
            let keys = keys(&[transform], 4, numbers);
            let batches = vec![batch(&keys, 4, 70, numbers)];
            there_and_back(&mut gpu, batches, numbers);
        }
        // Without tables the CPU seals 3DES.
        let by_cpu = if gpu.tables() { 0 } else { 3 * 70 };
        assert_eq!(gpu.counters().cpu_jobs, by_cpu);
    }
}

#[test]
fn a_mix_of_all_transforms_is_as_the_cpu_has_it() {
    let forms = [
        (Tables::No, Arrangement::Full),
        (Tables::Force, Arrangement::Full),
        (Tables::No, Arrangement::ByKind),
        (Tables::Force, Arrangement::Arrival),
    ];
    for (tables, arrangement) in forms {
        let Some((_guard, mut gpu)) = gpu_with(tables, arrangement, true) else {
            return;
        };
        let numbers = &mut Numbers(99);
        let (transforms, keys_count) = (carried(), 500);
        let keys = keys(&transforms, keys_count, numbers);
        let jobs = if arrangement == Arrangement::Full {
            10_000
        } else {
            1000
        };
        for _ in 0..jobs / 1000 {
            let batches = [300, 1, 500, 199]
                .map(|jobs| batch(&keys, keys_count, jobs, numbers))
                .into_iter()
                .collect();
            there_and_back(&mut gpu, batches, numbers);
        }
        // A thousand packets do not name every key.
        assert!((400..=keys_count).contains(&gpu.keys()));
        let counters = gpu.counters();
        assert_eq!(counters.device_jobs + counters.cpu_jobs, 2 * jobs as u64);
        assert!(counters.cpu_jobs < jobs as u64 / 10);
        assert_eq!(counters.cpu_jobs == 0, gpu.tables());
        assert!(counters.checked > 0);
        drop(keys);
        // All keys are wiped when their SAs are gone.
        let wiped: usize = (0..64).map(|_| gpu.sweep().unwrap()).sum();
        assert!(wiped >= 400 && gpu.keys() == 0);
    }
}

#[test]
fn packets_in_shared_memory_are_not_copied() {
    let Some((_guard, mut gpu)) = gpu(Arrangement::Full, false) else {
        return;
    };
    let numbers = &mut Numbers(17);
    // So few that packets of one kind fill a warp.
    let is_common = |transform: &Transform| !transform.private_use();
    let transforms: Vec<_> = Transform::ESP.into_iter().filter(is_common).collect();
    let keys = keys(&transforms, transforms.len(), numbers);
    let mut made = |jobs| batch(&keys, transforms.len(), jobs, numbers);
    // The CPU gets some of the packets, and they come back beside the device's.
    let batches = [made(600), made(3), made(300)];
    let Some(batches) = batches.iter().map(|made| in_memory(&gpu, made)).collect() else {
        println!("SKIP shared memory: the device has none");
        return;
    };
    there_and_back(&mut gpu, batches, &mut Numbers(18));
    let counters = gpu.counters();
    assert!(counters.cpu_jobs > 0 && counters.device_jobs > 0);
    assert_eq!((counters.launches, counters.in_place), (2, 2));
    // One batch elsewhere, and all of the launch is copied.
    let shared = in_memory(&gpu, &made(600)).unwrap();
    let batches = vec![made(600), shared];
    there_and_back(&mut gpu, batches, &mut Numbers(19));
    let counters = gpu.counters();
    assert_eq!((counters.launches, counters.in_place), (4, 2));
}

#[test]
fn packets_in_mapped_memory_are_copied_from_there() {
    let _guard = DEVICE.lock().unwrap_or_else(PoisonError::into_inner);
    let options = DeviceOptions {
        memory_use: Some(HostMemoryUse::Copied),
        is_timed: true,
        ..DeviceOptions::default()
    };
    let Some(device) = common::opencl_with(options) else {
        return;
    };
    let mut gpu = common::gpu(device);
    let numbers = &mut Numbers(23);
    let transforms = carried();
    let keys = keys(&transforms, transforms.len(), numbers);
    let batches = [300, 200].map(|jobs| {
        let made = batch(&keys, transforms.len(), jobs, numbers);
        in_memory(&gpu, &made).expect("mapped memory")
    });
    let places = batches.each_ref().map(|batch| batch.buffer.as_ptr());
    let done = carry(&mut gpu, batches.into(), "mapped");
    assert!(done.iter().map(|batch| batch.buffer.as_ptr()).eq(places));
    let counters = gpu.counters();
    assert_eq!(counters.in_place, 0);
    let stages = stages_of(Direction::Seal);
    assert!(stages.iter().all(|stage| counters.stage_ns[*stage] > 0));
}

/// Few enough for Oclgrind, which looks for races (`tools/test.sh kernels`).
#[test]
fn a_few_of_all_transforms() {
    for tables in common::FORMS {
        let Some((_guard, mut gpu)) = gpu_with(tables, Arrangement::Full, true) else {
            return;
        };
        let numbers = &mut Numbers(5);
        let transforms = carried();
        let keys = keys(&transforms, transforms.len(), numbers);
        let batches = vec![batch_up_to(90, &keys, transforms.len(), 64, numbers)];
        there_and_back(&mut gpu, batches, numbers);
    }
}

#[test]
fn plain_c_under_sanitizers_is_as_the_cpu_has_it() {
    for tables in [false, true] {
        let Some(plain) = Plain::compile(tables) else {
            return;
        };
        let mut gpu = common::gpu(plain);
        let numbers = &mut Numbers(77);
        let transforms = carried();
        let keys = keys(&transforms, 2 * transforms.len(), numbers);
        for jobs in [1, 400, 700] {
            let batches = vec![batch(&keys, 2 * transforms.len(), jobs, numbers)];
            there_and_back(&mut gpu, batches, numbers);
        }
        drop(keys);
        let wiped: usize = (0..4).map(|_| gpu.sweep().unwrap()).sum();
        assert!(wiped > transforms.len() && gpu.keys() == 0);
    }
}

/// A CPU shares its caches with other programs, so tables take more than a wish.
#[test]
fn tables_are_refused_on_a_cpu() {
    let wanted = std::env::var("ESPLANADE_OPENCL").unwrap_or_else(|_| "Portable".to_owned());
    let options = DeviceOptions {
        tables: Tables::Yes,
        ..DeviceOptions::default()
    };
    match OpenCl::open_with(Some(&wanted), Arc::new(|| {}), options) {
        Err(error @ DeviceError::NotWhole { .. }) => {
            assert!(error.to_string().contains("it is no GPU"), "{error}");
        }
        Err(error @ (DeviceError::NoLibrary(_) | DeviceError::NoDevice { .. })) => {
            println!("SKIP opencl: {error}");
        }
        // A whole GPU may have them.
        Ok(device) => assert!(device.tables()),
        Err(error) => panic!("{error}"),
    }
}

#[test]
fn the_cpu_gets_what_the_kernels_lack_and_what_fills_no_warp() {
    let Some((_guard, mut gpu)) = gpu(Arrangement::Full, false) else {
        return;
    };
    let numbers = &mut Numbers(7);
    let transforms: Vec<_> = Transform::ESP.to_vec();
    let keys = keys(&transforms, transforms.len(), numbers);
    let batches = (0..4)
        .map(|_| batch(&keys, transforms.len(), 400, numbers))
        .collect();
    there_and_back(&mut gpu, batches, numbers);
    let counters = gpu.counters();
    assert!(counters.cpu_jobs > 0 && counters.device_jobs > 0);
    assert_eq!(counters.cpu_jobs + counters.device_jobs, 3200);
    assert_eq!(counters.device_jobs % 32, 0);
}

/// No key comes to the device for a job that the CPU does.
#[test]
fn the_cpu_alone_needs_no_key_on_the_device() {
    let Some(plain) = Plain::compile(false) else {
        return;
    };
    let mut gpu = common::gpu(plain);
    let numbers = &mut Numbers(11);
    let transforms = carried();
    let keys = keys(&transforms, transforms.len(), numbers);
    // More jobs than a launch has.
    let jobs = gpu.limits().jobs + 1;
    let batches = vec![batch_up_to(90, &keys, transforms.len(), jobs, numbers)];
    carry(&mut gpu, batches, "too many");
    gpu.set_residue(false);
    let batches = vec![batch(&keys, transforms.len(), 8, numbers)];
    carry(&mut gpu, batches, "too few");
    let counters = gpu.counters();
    assert_eq!((counters.cpu_jobs, counters.launches), (jobs as u64 + 8, 0));
    assert_eq!(gpu.keys(), 0);
}

#[test]
fn the_self_test_finds_nothing() {
    for tables in common::FORMS {
        let Some((_guard, mut gpu)) = gpu_with(tables, Arrangement::Full, false) else {
            return;
        };
        self_test::run(&mut gpu).unwrap();
        assert_eq!(gpu.disabled(), []);
    }
}

#[test]
fn several_launches_are_under_way_and_come_back_in_order() {
    let Some((_guard, mut gpu)) = gpu(Arrangement::Full, true) else {
        return;
    };
    let numbers = &mut Numbers(31);
    let transforms = carried();
    let keys = keys(&transforms, 40, numbers);
    let mut expected = Vec::new();
    while gpu.can_start() {
        let batch = batch(&keys, 40, 64 + expected.len(), numbers);
        let mut wanted = batch.copied();
        cpu::process(&mut wanted);
        expected.push(wanted);
        assert!(gpu.start(vec![batch]).unwrap().is_none());
    }
    assert!(expected.len() >= 2);
    for wanted in expected {
        let done = gpu.wait().unwrap().unwrap();
        let used = ..wanted.used();
        assert!(done[0].buffer[used] == wanted.buffer[used]);
    }
    assert!(gpu.wait().unwrap().is_none());
}
