//! Which engine carries SAs.

use std::time::Duration;

use esplanade::config::EngineKind;

use super::{good, read, refusal};

#[test]
fn the_fpga_engine_needs_a_device_and_one_worker() {
    assert_eq!(good("").gateway.engine, EngineKind::Cpu);
    let text = |keys: &str| format!("gateway {{\n engine = {keys}\n}}\n");
    assert_eq!(
        good(&text("cpu\n workers = 2")).gateway.engine,
        EngineKind::Cpu
    );
    assert!(refusal(&text("gpu")).contains("`cpu`, `pool`, `fpga`"));
    if esplanade_fpga::simulated::BUILT {
        assert_eq!(good(&text("fpga")).gateway.engine, EngineKind::Fpga);
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
    let gateway =
        good("gateway {\n engine = pool\n pool_threads = 3\n pool_delay_ms = 5\n}\n").gateway;
    assert_eq!(gateway.engine, EngineKind::Pool);
    assert_eq!(gateway.pool_threads, Some(3));
    assert_eq!(gateway.pool_delay, Duration::from_millis(5));
    for (keys, expected) in [
        (
            "pool_threads = 3",
            "`pool_threads`: the engine is not the pool",
        ),
        ("engine = cpu\n pool_delay_ms = 1", "`pool_delay_ms`"),
        ("engine = pool\n pool_threads = 0", "`pool_threads`"),
        ("engine = pool\n pool_delay_ms = 10001", "`pool_delay_ms`"),
    ] {
        let refused = load(keys).unwrap_err().render(false);
        assert!(refused.contains(expected), "{refused}");
    }
}
