//! Tests the links that bypass the kernel's network stack.

use super::{good, read};

#[test]
fn links_past_the_stack_are_named_once_and_carry_raw_esp() {
    let load = |keys: &str| read(&format!("gateway {{\n {keys}\n}}\n"));
    assert_eq!(good("").gateway.xdp, [""; 0]);
    assert_eq!(
        load("xdp = eth0, wan.7").unwrap().gateway.xdp,
        ["eth0", "wan.7"]
    );
    for (keys, expected) in [
        ("xdp = eth0, eth1, eth0", "`eth0` is there twice"),
        (
            "xdp = eth0\n raw_esp = no",
            "with `raw_esp = no` there is no ESP without UDP",
        ),
        ("xdp = eth/0", "is not an interface name"),
    ] {
        let refused = load(keys).unwrap_err().render(false);
        assert!(refused.contains(expected), "{refused}");
    }
}

#[test]
fn the_loopback_link_is_no_device_of_the_gateway() {
    for keys in ["tun = lo", "interfaces {\n lo {\n if_id = 1\n }\n }"] {
        let refused = read(&format!("gateway {{\n {keys}\n}}\n")).unwrap_err();
        let shown = refused.render(false);
        assert!(shown.contains("`lo` is the loopback link"), "{shown}");
    }
}
