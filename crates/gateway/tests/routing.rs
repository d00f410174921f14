//! Tests routes and rules in a separate network namespace, as `ip` shows them.
//!
//! The test needs the right to create network namespaces. Without it, the test prints SKIP and
//! passes.

use std::net::IpAddr;
use std::process::Command;

use esplanade::io::netns::NetworkNamespace;
use esplanade::net::{AddressRange, Family, Net, Routing, RuleConfig, RulePackets};

const MARK: u32 = 0xe5b;

fn ip(arguments: &str) -> String {
    let output = Command::new("ip")
        .args(arguments.split(' '))
        .output()
        .unwrap();
    String::from_utf8(output.stdout).unwrap()
}

fn range(first: &str, last: &str) -> AddressRange {
    AddressRange {
        first: first.parse().unwrap(),
        last: last.parse().unwrap(),
    }
}

/// If one policy leads a prefix into the TUN device and another bypasses it, nothing leaves in the
/// clear. A route that the kernel refused for one policy is not taken from another policy.
async fn the_tun_wins(net: &Net, routing: &mut Routing) {
    let site = [range("10.7.0.0", "10.7.255.255")];
    let local = [range("10.1.0.0", "10.1.255.255")];
    let route = || ip("route show table 220 10.7.0.0/16");
    routing.bypass(net, &site).await.unwrap();
    assert!(route().contains("throw"), "{}", route());
    routing.protect(net, &local, &site).await.unwrap();
    assert!(route().contains("dev tun0"), "{}", route());
    assert!(!route().contains("throw"), "{}", route());
    routing.withdraw(net, &local, &site).await.unwrap();
    assert!(route().contains("throw"), "{}", route());
    routing.protect(net, &local, &site).await.unwrap();
    routing.withdraw_bypass(net, &site).await.unwrap();
    assert!(route().contains("dev tun0"), "{}", route());

    // The kernel refuses half of the policy's routes.
    std::fs::write("/proc/sys/net/ipv6/conf/tun0/disable_ipv6", "1").unwrap();
    let both = [site[0], range("fd07::", "fd07::ff")];
    assert!(routing.protect(net, &local, &both).await.is_err());
    let _ = routing.withdraw(net, &local, &both).await;
    assert!(route().contains("dev tun0"), "{}", route());
    routing.withdraw(net, &local, &site).await.unwrap();
    assert_eq!(route().trim(), "");
}

/// The guards of a stopped gateway hold until the next gateway has its own routes.
async fn stop_and_restart(net: &Net, tun: u32, config: RuleConfig, routing: Routing) {
    let guards = || {
        [ip("route show table 220"), ip("-6 route show table 220")].map(|routes| {
            assert!(!routes.contains("tun0"), "{routes}");
            routes.contains("unreachable default")
        })
    };
    routing.leave_closed(net).await.unwrap();
    assert_eq!(guards(), [true, true]);
    assert!(ip("rule show").contains("220:\tnot from all fwmark 0xe5b lookup 220"));
    let mut again = Routing::install(net, config.clone()).await.unwrap();
    assert_eq!(guards(), [true, true]);
    let local = [range("10.1.0.0", "10.1.255.255")];
    let site = [range("10.2.0.0", "10.2.255.255")];
    let six = [range("fd02::", "fd02::ffff:ffff:ffff:ffff")];
    again.bypass(net, &six).await.unwrap();
    again.protect(net, &local, &site).await.unwrap();
    again.protect(net, &local, &six).await.unwrap();
    again.settle(net).await.unwrap();
    // Without a TUN device, only the guards exist.
    let routes = [ip("route show table 220"), ip("-6 route show table 220")].concat();
    assert!(routes.contains("unreachable 10.2.0.0/16"), "{routes}");
    assert!(routes.contains("unreachable fd02::/64"), "{routes}");
    assert!(!routes.contains("tun0"), "{routes}");
    assert!(!routes.contains("throw"), "{routes}");
    std::fs::write("/proc/sys/net/ipv6/conf/tun0/disable_ipv6", "0").unwrap();
    again.lead_into(net, tun).await.unwrap();
    let routes = [ip("route show table 220"), ip("-6 route show table 220")].concat();
    assert!(routes.contains("unreachable fd02::/64"), "{routes}");
    assert!(routes.contains("fd02::/64 dev tun0"), "{routes}");
    let routes = ip("route show table 220");
    assert!(routes.contains("10.2.0.0/16 dev tun0"), "{routes}");
    assert!(routes.contains("unreachable 10.2.0.0/16"), "{routes}");
    assert!(!routes.contains("default"), "another gateway's: {routes}");
    again.close(net).await.unwrap();
}

async fn scenario() {
    let net = Net::connect().unwrap();
    net.link_add_veth("tun0", "lan0").await.unwrap();
    let tun = net.link_index("tun0").await.unwrap();
    let lan = net.link_index("lan0").await.unwrap();
    net.link_set_mtu(tun, 1400).await.unwrap();
    assert_eq!(net.link_mtu("tun0").await.unwrap(), 1400);
    let gateway: IpAddr = "10.1.0.1".parse().unwrap();
    net.address_add(lan, gateway, 16).await.unwrap();
    for link in [tun, lan] {
        net.link_set_up(link).await.unwrap();
    }
    assert!(
        net.addresses()
            .await
            .unwrap()
            .iter()
            .any(|entry| entry.address == gateway)
    );

    let config = RuleConfig {
        table: 220,
        priority: 220,
        packets: RulePackets::Unmarked(MARK),
    };
    let mut routing = Routing::install(&net, config.clone()).await.unwrap();
    routing.lead_into(&net, tun).await.unwrap();
    // After a crash, the next installation finds its rules, and routes that would let traffic out.
    ip("route add throw 10.2.3.0/24 table 220 proto static");
    ip("route add throw 10.2.3.0/24 table 221");
    ip("-6 route add throw fd02::/64 table 220 proto static");
    let after_a_crash = Routing::install(&net, config.clone()).await.unwrap();
    assert!(ip("route show table 220").contains("throw 10.2.3.0/24"));
    after_a_crash.settle(&net).await.unwrap();
    assert_eq!(ip("route show table 220").trim(), "");
    assert_eq!(ip("-6 route show table 220").trim(), "");
    assert_eq!(ip("-6 route show table 220").trim(), "");
    assert!(ip("route show table 221").contains("throw 10.2.3.0/24"));
    assert!(
        ip("rule show").contains("220:\tnot from all fwmark 0xe5b lookup 220"),
        "{}",
        ip("rule show")
    );
    assert!(ip("-6 rule show").contains("fwmark 0xe5b"));

    let local = [range("10.1.0.0", "10.1.255.255")];
    let everything = [
        range("0.0.0.0", "255.255.255.255"),
        range("::", "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff"),
    ];
    let site = [range("10.2.0.0", "10.2.255.255")];
    routing.protect(&net, &local, &everything).await.unwrap();
    routing.protect(&net, &local, &site).await.unwrap();
    routing.protect(&net, &local, &site).await.unwrap();
    routing
        .bypass(&net, &[range("10.9.0.0", "10.9.0.255")])
        .await
        .unwrap();
    let routes = ip("route show table 220");
    assert!(routes.contains("default dev tun0"), "{routes}");
    assert!(
        routes.contains("10.2.0.0/16 dev tun0 proto static src 10.1.0.1"),
        "{routes}"
    );
    assert!(
        routes.contains("throw 10.1.0.0/16"),
        "what lies behind the gateway stays there: {routes}"
    );
    assert!(routes.contains("throw 10.9.0.0/24"), "{routes}");
    assert!(
        ip("route get 10.2.0.9").contains("dev tun0 table 220"),
        "{}",
        ip("route get 10.2.0.9")
    );
    assert!(ip("route get 10.1.0.9").contains("dev lan0"));

    for family in ["-4", "-6"] {
        let routes = ip(&format!("{family} route show table 220"));
        assert!(
            routes.contains("unreachable default"),
            "what no TUN takes goes nowhere: {routes}"
        );
    }

    routing.withdraw(&net, &local, &site).await.unwrap();
    assert!(
        ip("route show table 220").contains("10.2.0.0/16"),
        "another policy still needs it"
    );
    routing.withdraw(&net, &local, &site).await.unwrap();
    assert!(!ip("route show table 220").contains("10.2.0.0/16"));
    the_tun_wins(&net, &mut routing).await;
    stop_and_restart(&net, tun, config, routing).await;
    assert_eq!(ip("route show table 220").trim(), "");
    assert_eq!(ip("-6 route show table 220").trim(), "");
    assert!(!ip("rule show").contains("220"));
    assert!(!ip("-6 rule show").contains("220"));
    only_marked_packets_are_led(&net, tun).await;
}

/// The rule of a mark leads to a table of its own, which a change of the mask moves.
async fn only_marked_packets_are_led(net: &Net, tun: u32) {
    let rule = |table, mask| RuleConfig {
        table,
        priority: 219,
        packets: RulePackets::Marked { value: 8, mask },
    };
    let mut routing = Routing::install(net, rule(8008, 0xf)).await.unwrap();
    routing.lead_into(net, tun).await.unwrap();
    let site = [range("10.2.0.0", "10.2.255.255")];
    routing.protect(net, &[], &site).await.unwrap();
    let led = |mark: &str| ip(&format!("route get 10.2.0.9 mark {mark}"));
    assert!(
        led("0x18").contains("dev tun0 table 8008"),
        "{}",
        led("0x18")
    );
    assert!(!led("9").contains("tun0"), "{}", led("9"));
    let listed = net.rules_for_marks(Family::V4, 219).await.unwrap();
    assert_eq!(listed, [rule(8008, 0xf)]);

    routing.move_to(net, rule(8009, u32::MAX)).await.unwrap();
    assert!(led("8").contains("dev tun0 table 8009"), "{}", led("8"));
    assert!(!led("0x18").contains("tun0"), "{}", led("0x18"));
    assert_eq!(ip("route show table 8008").trim(), "");
    assert!(!ip("rule show").contains("8008"), "{}", ip("rule show"));
    // What a crash leaves keeps the packets in, until somebody clears it.
    routing.leave_closed(net).await.unwrap();
    assert!(ip("route show table 8009").contains("unreachable 10.2.0.0/16"));
    Routing::clear(net, &rule(8009, u32::MAX)).await.unwrap();
    assert_eq!(ip("route show table 8009").trim(), "");
    assert!(!ip("rule show").contains("8009"), "{}", ip("rule show"));
}

#[test]
fn policies_lead_traffic_into_the_tun_and_leave_nothing_behind() {
    let namespace = match NetworkNamespace::create() {
        Ok(namespace) => namespace,
        Err(error) => {
            eprintln!(
                "SKIP policies_lead_traffic_into_the_tun: no network namespace can be made: {error}"
            );
            return;
        }
    };
    std::thread::spawn(move || {
        namespace.enter().unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        runtime.block_on(scenario());
    })
    .join()
    .unwrap();
}
