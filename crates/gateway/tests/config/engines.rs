//! Tests the choice of the engine that carries SAs.

use std::time::Duration;

use esplanade::config::ShareLimits;
use esplanade::config::{EngineEntry, EngineKind, EnginePlace, GpuConfig, Lack, add_engine};
use esplanade_gpu::Tables;

use super::{good, read, refusal};

#[test]
fn the_fpga_engine_needs_a_device_and_one_worker() {
    assert_eq!(good("").gateway.engine, EngineKind::CPU);
    let text = |keys: &str| format!("gateway {{\n engine = {keys}\n}}\n");
    assert_eq!(
        good(&text("cpu\n workers = 2")).gateway.engine,
        EngineKind::CPU
    );
    assert!(refusal(&text("tpu")).contains("`cpu`, `pool`, `fpga`, `gpu`, `adaptive`"));
    if esplanade_fpga::simulated::BUILT {
        assert_eq!(good(&text("fpga")).gateway.engine, EngineKind::FPGA);
        let error = refusal(&text("fpga\n workers = 2"));
        assert!(error.contains("driven by one worker"), "{error}");
        assert!(error.contains("--> test.conf:3:12"), "{error}");
    } else {
        let error = refusal(&text("fpga"));
        assert!(error.contains("has no FPGA device"), "{error}");
        assert!(error.contains("--features fpga-sim"), "{error}");
    }
}

#[test]
fn keys_of_the_pool_are_for_the_pool() {
    let load = |keys: &str| read(&format!("gateway {{\n {keys}\n}}\n"));
    let gateway = good("gateway {\n engine = pool\n pool_threads = 3\n}\n").gateway;
    assert_eq!(gateway.engine, EngineKind::POOL);
    assert_eq!(gateway.pool_threads, Some(3));
    assert!(gateway.has_pool());
    let beside = good("gateway {\n pool_threads = 3\n}\n").gateway;
    assert_eq!(beside.engine, EngineKind::CPU);
    assert!(beside.has_pool());
    assert!(!good("").gateway.has_pool());
    for (keys, expected) in [
        ("engine = pool\n pool_threads = 0", "`pool_threads`"),
        ("engine = pool\n pool_delay_ms = 1", "`pool_delay_ms`"),
    ] {
        let refused = load(keys).unwrap_err().render(false);
        assert!(refused.contains(expected), "{refused}");
    }
}

#[test]
fn the_gpu_is_for_all_or_for_some() {
    let standard = good("gateway {\n engine = gpu\n}\n").gateway;
    assert_eq!(standard.engine, EngineKind::GPU);
    assert_eq!(standard.gpu, Some(GpuConfig::default()));
    let beside = "gateway {\n gpu {\n device = H100\n batch = 512\n deadline_us = 50\n latency_us = 400\n threshold = 60\n tables = force\n }\n}\n";
    let beside = good(beside).gateway;
    assert_eq!(beside.engine, EngineKind::CPU);
    let expected = GpuConfig {
        device: Some("H100".to_owned()),
        batch: 512,
        deadline: Duration::from_micros(50),
        tables: Tables::Force,
        share: ShareLimits {
            latency: Duration::from_micros(400),
            threshold: 60,
        },
    };
    assert_eq!(beside.gpu, Some(expected));
    assert_eq!(good("").gateway.gpu, None);
    for (key, expected) in [
        ("batch = 31", "`batch`"),
        ("fail_after = 9", "`fail_after`"),
        ("residue = yes", "`residue`"),
        ("deadline_us = 10001", "`deadline_us`"),
        ("latency_us = 49", "`latency_us`"),
        ("threshold = 0", "`threshold`"),
        ("threshold = 101", "`threshold`"),
        ("tables = perhaps", "`yes`, `no`, or `force`"),
        ("lookups = yes", "`lookups`"),
    ] {
        let refused = refusal(&format!("gateway {{\n gpu {{\n {key}\n }}\n}}\n"));
        assert!(refused.contains(expected), "{refused}");
    }
}

#[test]
fn a_load_is_shared_with_a_gpu_only() {
    let gateway = good("gateway {\n engine = adaptive\n gpu {\n }\n}\n").gateway;
    assert_eq!(gateway.engine, EngineKind::ADAPTIVE);
    assert_eq!(gateway.gpu, Some(GpuConfig::default()));
    assert!(!gateway.has_pool());
    let refused = refusal("gateway {\n engine = adaptive\n}\n");
    assert!(refused.contains("the gateway has no GPU"), "{refused}");
    assert!(refused.contains("add a section `gpu`"), "{refused}");
    assert!(refused.contains("--> test.conf:2:11"), "{refused}");
}

#[test]
fn tables_are_a_choice_that_is_warned_of_once() {
    let load = |value: &str| {
        let key = format!("gateway {{\n gpu {{\n tables = {value}\n }}\n}}\n");
        let loaded = good(&key);
        (loaded.gateway.gpu.unwrap().tables, loaded.warnings)
    };
    for (value, expected) in [("yes", Tables::Yes), ("force", Tables::Force)] {
        let (tables, warnings) = load(value);
        assert_eq!(tables, expected);
        let text = warnings.render(false);
        assert_eq!(warnings.warnings(), 1, "{text}");
        assert!(
            text.contains("may learn keys") && text.contains("test.conf:3:11"),
            "{text}"
        );
    }
    let (tables, warnings) = load("no");
    assert_eq!((tables, warnings.warnings()), (Tables::No, 0));
}

#[test]
fn a_child_has_an_engine_of_the_gateway() {
    let text = |gateway: &str, child: &str| {
        format!(
            "gateway {{\n {gateway}\n}}\nconnections {{\n a {{\n remote_addrs = 192.0.2.1\n local {{\n auth = psk\n id = a\n }}\n \
             remote {{\n auth = psk\n id = b\n }}\n children {{\n net {{\n remote_ts = 10.0.0.0/8\n {child}\n }}\n }}\n }}\n}}\n\
             secrets {{\n ike {{\n secret = 0123456789abcdef\n }}\n}}\n"
        )
    };
    if esplanade_fpga::simulated::BUILT {
        for engine in ["cpu", "pool", "fpga"] {
            let (gateway, child) = (
                "engine = fpga\n pool_threads = 1",
                format!("engine = {engine}"),
            );
            let loaded = good(&text(gateway, &child));
            assert_eq!(loaded.policies[0].sa.engine.unwrap().name(), engine);
        }
    }
    for (gateway, child, expected) in [
        ("", "", None),
        ("", "engine = cpu", Some(EngineKind::CPU)),
        ("pool_threads = 1", "engine = pool", Some(EngineKind::POOL)),
        ("engine = pool", "engine = cpu", Some(EngineKind::CPU)),
        ("engine = gpu", "engine = gpu", Some(EngineKind::GPU)),
        ("gpu {\n }", "engine = gpu", Some(EngineKind::GPU)),
        ("gpu {\n }", "engine = adaptive", Some(EngineKind::ADAPTIVE)),
        (
            "engine = adaptive\n gpu {\n }",
            "engine = cpu",
            Some(EngineKind::CPU),
        ),
    ] {
        let loaded = good(&text(gateway, child));
        assert_eq!(loaded.policies[0].sa.engine, expected, "{gateway}, {child}");
    }
    let no_core = match esplanade_fpga::simulated::BUILT {
        true => "`engine`: the gateway has no FPGA core",
        false => "`engine`: this build of Esplanade has no FPGA device",
    };
    for (child, expected) in [
        ("engine = pool", "`engine`: the gateway has no pool"),
        ("engine = fpga", no_core),
        ("engine = gpu", "`engine`: the gateway has no GPU"),
        ("engine = adaptive", "`engine`: the gateway has no GPU"),
        (
            "mode = pass\n start_action = trap\n engine = cpu",
            "pass and drop have no SA",
        ),
    ] {
        let refused = read(&text("", child)).unwrap_err().render(false);
        assert!(refused.contains(expected), "{refused}");
    }
}

static EXTRA: EngineEntry = EngineEntry {
    name: "extra",
    place: EnginePlace::Workers,
    keys: &["size"],
    lacks: |given| {
        Lack::unless(
            given.has_section("extra"),
            "the gateway has no extra engine",
            "add a section `extra`",
        )
    },
};

#[test]
fn a_section_that_is_wrong_is_told_of_once() {
    let refused = refusal("gateway {\n engine = ace\n ace {\n library = relative\n }\n}\n");
    assert!(
        !refused.contains("the gateway has no engine ace"),
        "{refused}"
    );
}

#[test]
fn an_added_engine_has_a_section_of_its_own() {
    add_engine(&EXTRA).unwrap();
    let gateway = good("gateway {\n engine = extra\n extra {\n size = 3\n }\n}\n").gateway;
    assert_eq!(gateway.engine.name(), "extra");
    let section = gateway.engine_settings("extra").unwrap();
    assert_eq!(
        (section.get("size"), section.get("other")),
        (Some("3"), None)
    );
    for (text, expected) in [
        (
            "engine = extra",
            "`engine`: the gateway has no extra engine",
        ),
        ("engine = extra", "help: add a section `extra`"),
        ("extra {\n sise = 3\n }", "did you mean `size`?"),
        ("extra {\n sub {\n }\n }", "has no section"),
    ] {
        let refused = refusal(&format!("gateway {{\n {text}\n}}\n"));
        assert!(refused.contains(expected), "{refused}");
    }
}
