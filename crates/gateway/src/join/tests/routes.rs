//! Tests of traffic that is kept out of the TUN device.

use super::*;

#[test]
fn a_bypass_keeps_nothing_but_its_own_traffic_out_of_the_tun() {
    let net = || policy("net", TRAP, "10.2.0.0/16");
    let pass = || policy("pass", PolicyKind::Bypass, "10.2.1.0/24");
    let thrown = |policies: &[ConfiguredPolicy]| bypass_routes(policies).len();
    assert_eq!(thrown(&[pass(), net()]), 1);
    assert_eq!(thrown(&[net(), pass()]), 0, "the tunnel comes first");
    assert_eq!(
        thrown(&[net(), policy("far", PolicyKind::Bypass, "10.9.0.0/16")]),
        1
    );

    let mut ssh = pass();
    ssh.remote[0].protocol = 6;
    ssh.remote[0].ports = PortRange::Range(22, 22);
    assert_eq!(thrown(&[ssh, net()]), 0, "only one port is bypassed");
    let mut host = pass();
    host.local = ends("10.1.0.5/32");
    assert_eq!(thrown(&[host, net()]), 0, "only one host is bypassed");
    let mut unknown = net();
    unknown.local.clear();
    assert_eq!(thrown(&[pass(), unknown]), 0, "an address not known yet");
    let drop = policy("drop", PolicyKind::Discard, "10.2.1.128/25");
    assert_eq!(thrown(&[drop, pass()]), 0, "some of it is discarded");

    let mut join = join_with(vec![pass(), net()]);
    assert!(route_changes(&mut join).iter().any(|c| c.bypass && c.add));
    join.configure(vec![net(), pass()]);
    let changes = route_changes(&mut join);
    assert!(matches!(changes.as_slice(), [change] if change.bypass && !change.add));
}
