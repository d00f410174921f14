//! Tests routes and rules in a separate network namespace, as `ip` shows them.
//!
//! The test needs the right to create network namespaces. Without it, the test prints SKIP and
//! passes.

use std::net::IpAddr;
use std::process::Command;

use esplanade::io::netns::NetworkNamespace;
use esplanade::net::{
    AddressRange, Family, LinkKind, Net, Routing, RuleConfig, RulePackets, link_kind,
};

const MARK: u32 = 0xe5b;

fn of_policies() -> RuleConfig {
    RuleConfig {
        table: 220,
        priority: 220,
        packets: RulePackets::OfPolicies {
            own_mark: MARK,
            error_mark: 0xe44,
            own_table: 8220,
            by_routes: false,
        },
    }
}

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
    assert!(ip("rule show").contains("222:\tfrom 10.1.0.0/16 lookup 220"));
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

/// Routes of several policies stand side by side, and share what is the same.
async fn the_longest_prefix_decides(net: &Net, routing: &mut Routing) {
    let local = [range("10.1.0.0", "10.1.255.255")];
    let everything = everything();
    let site = [range("10.2.0.0", "10.2.255.255")];
    routing.protect(net, &local, &everything).await.unwrap();
    routing.protect(net, &local, &site).await.unwrap();
    routing.protect(net, &local, &site).await.unwrap();
    routing
        .bypass(net, &[range("10.9.0.0", "10.9.0.255")])
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
        ip("route get 10.2.0.9").contains("dev tun0 table 8220 src 10.1.0.1"),
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

    routing.withdraw(net, &local, &site).await.unwrap();
    assert!(
        ip("route show table 220").contains("10.2.0.0/16"),
        "another policy still needs it"
    );
    routing.withdraw(net, &local, &site).await.unwrap();
    assert!(!ip("route show table 220").contains("10.2.0.0/16"));
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

    let config = of_policies();
    let mut routing = Routing::install(&net, config.clone()).await.unwrap();
    routing.lead_into(&net, tun).await.unwrap();
    // After a crash, the next installation finds its rules, and routes that would let traffic out.
    ip("rule add priority 221 from 10.77.0.0/16 lookup 220");
    ip("rule add priority 220 not from all fwmark 0xe5b lookup 220");
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
        ip("rule show").contains("220:\tfrom all fwmark 0xe5b goto 227"),
        "{}",
        ip("rule show")
    );
    assert!(ip("-6 rule show").contains("fwmark 0xe5b"));
    let rules = ip("rule show");
    assert!(
        !rules.contains("10.77.0.0") && !rules.contains("not from"),
        "{rules}"
    );

    the_longest_prefix_decides(&net, &mut routing).await;
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

/// A scenario in a namespace of its own.
fn in_namespace(name: &str, scenario: impl AsyncFnOnce() + Send + 'static) {
    let namespace = match NetworkNamespace::create() {
        Ok(namespace) => namespace,
        Err(error) => return eprintln!("SKIP {name}: no network namespace can be made: {error}"),
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

/// Waits until the kernel has the address: it takes IPv6 addresses in its own time.
fn await_address(address: &str) {
    let is_local = || ip(&format!("route get {address}")).contains("local");
    while !is_local() || ip("-6 address show tentative").contains(address) {
        std::thread::yield_now();
    }
}

/// Adds an address that the host has at once.
fn add_address(address: &str, link: &str) {
    ip(&format!("address add {address} dev {link} nodad"));
    await_address(address.split('/').next().unwrap());
}

/// A host with a link to the outside, two networks behind it and a device for tunnels.
fn host() {
    ip("link set lo up");
    for (link, peer) in [
        ("wan0", "wan1"),
        ("lan0", "lan1"),
        ("guests0", "guests1"),
        ("tun0", "tun1"),
    ] {
        ip(&format!("link add {link} type veth peer name {peer}"));
        ip(&format!("link set {peer} up"));
        ip(&format!("link set {link} up"));
    }
    for address in [
        "172.16.1.2/24 dev wan0",
        "fd00:1::2/64 dev wan0 nodad",
        "10.1.0.1/16 dev lan0",
        "10.11.0.1/16 dev guests0",
        "fd00:b::1/64 dev guests0 nodad",
        "fe80::1/64 dev lan0 nodad",
        "fd00:a::2/64 dev lan0 nodad preferred_lft 0",
        "fd00:a::1/64 dev lan0 nodad",
    ] {
        ip(&format!("address add {address}"));
    }
    for address in ["fd00:1::2", "fd00:b::1", "fd00:a::2", "fd00:a::1"] {
        await_address(address);
    }
    ip("route add default via 172.16.1.1");
    ip("-6 route add default via fd00:1::1");
    for version in ["ipv4", "ipv6"] {
        let forwarding = format!("/proc/sys/net/{version}/conf/all/forwarding");
        std::fs::write(forwarding, "1").unwrap();
    }
}

fn everything() -> [AddressRange; 2] {
    [
        range("0.0.0.0", "255.255.255.255"),
        range("::", "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff"),
    ]
}

/// The host's own packets come from an address that others can answer to, whatever `local` has.
async fn sources() {
    let net = Net::connect().unwrap();
    host();
    let rule = of_policies();
    let mut routing = Routing::install(&net, rule).await.unwrap();
    let tun = net.link_index("tun0").await.unwrap();
    routing.lead_into(&net, tun).await.unwrap();
    let all = [
        range("10.1.0.0", "172.31.255.255"),
        range("fd00:1::", "fe80::ffff"),
    ];
    let all = [everything(), all].concat();
    let remote = [
        range("10.7.0.0", "10.7.255.255"),
        range("fd07::", "fd07::ffff"),
    ];
    let source = |family: &str| {
        let routes = ip(&format!("{family} route show table 220"));
        let words: Vec<_> = routes.split_whitespace().collect();
        let at = words.iter().position(|word| *word == "src");
        at.map_or_else(
            || format!("none in {routes}"),
            |at| words[at + 1].to_owned(),
        )
    };
    routing.protect(&net, &all, &remote).await.unwrap();
    assert_eq!(source("-4"), "10.1.0.1", "neither loopback nor outside");
    assert_eq!(source("-6"), "fd00:a::1", "nor link-local, nor deprecated");
    let mut repair = async || {
        let addresses = net.addresses().await.unwrap();
        routing.repair(&net, &addresses).await.1.unwrap();
    };
    for link in ["lan0", "guests0"] {
        ip(&format!("-4 address flush dev {link}"));
        ip(&format!("-6 address flush dev {link} scope global"));
    }
    repair().await;
    assert_eq!(source("-4"), "172.16.1.2");
    assert_eq!(source("-6"), "fd00:1::2");
    add_address("10.1.0.1/16", "lan0");
    add_address("fd00:a::1/64", "lan0");
    repair().await;
    assert_eq!(source("-4"), "10.1.0.1");
    assert_eq!(source("-6"), "fd00:a::1");
    // Another host may have the address: it is tentative.
    ip("address del fd00:a::1/64 dev lan0");
    ip("address del fd00:1::2/64 dev wan0");
    std::fs::write("/proc/sys/net/ipv6/conf/lan0/dad_transmits", "100").unwrap();
    ip("address add fd00:a::1/64 dev lan0");
    repair().await;
    let without = ip("-6 route show table 220");
    assert!(without.contains("fd07::/112 dev tun0"), "{without}");
    assert!(!without.contains("src"), "{without}");
    routing.withdraw(&net, &all, &remote).await.unwrap();
    assert_eq!(ip("route show table 220").trim(), "");
}

fn lan() -> [AddressRange; 2] {
    [
        range("10.1.0.0", "10.1.255.255"),
        range("fd00:a::", "fd00:a::ffff:ffff:ffff:ffff"),
    ]
}

/// Packets that a policy for the LAN and everything takes, and packets that it does not take.
const OF_LAN: &[&str] = &[
    "198.51.100.1 from 10.1.0.2 iif lan0",
    "198.51.100.1 from 10.1.0.1",
    "10.11.0.2 from 10.1.0.2 iif lan0",
    "2001:db8::1 from fd00:a::9 iif lan0",
    "2001:db8::1 from fd00:a::1",
];
const OF_OTHERS: &[&str] = &[
    "198.51.100.1 from 10.11.0.2 iif guests0",
    "198.51.100.1 from 172.16.1.2",
    "198.51.100.1 from 10.1.0.1 mark 0xe5b",
    "198.51.100.1",
    "10.1.0.2",
    "10.1.0.2 from 198.51.100.1 iif tun0",
    "10.1.0.2 from 10.1.0.1",
    "2001:db8::1 from fd00:b::9 iif guests0",
    "2001:db8::1 from fd00:1::2",
    "2001:db8::1 from fd00:a::1 mark 0xe5b",
    "2001:db8::1",
    "fd00:a::9",
];

/// Asserts whether the kernel's routes lead these packets into the TUN device.
fn all_led(wanted: bool, packets: &[&str]) {
    for packet in packets {
        let family = if packet.contains("::") { "-6" } else { "-4" };
        let route = ip(&format!("{family} route get {packet}"));
        let rules = || [ip("rule show"), ip("-6 rule show")].concat();
        assert_eq!(route.contains("dev tun0"), wanted, "{packet}\n{}", rules());
    }
}

/// A narrower route in our table, and a rule for all packets ahead of ours, take packets away. They stay, and are named.
async fn settings_of_others_are_named(net: &Net, routing: &mut Routing) {
    assert_eq!(routing.foreign(), [""; 0]);
    let addresses = net.addresses().await.unwrap();
    ip("route add blackhole 10.2.0.0/17 table 8220");
    ip("rule add priority 100 lookup main");
    // This one is for some packets only.
    ip("rule add priority 101 from 192.0.2.0/24 lookup main");
    routing.repair(net, &addresses).await.1.unwrap();
    let named = routing.foreign().to_vec();
    assert_eq!(
        named,
        [
            "the route to 10.2.0.0/17 in table 8220",
            "the IPv4 rule 100 for table 254"
        ]
    );
    ip("route del blackhole 10.2.0.0/17 table 8220");
    for priority in [100, 101] {
        ip(&format!("rule del priority {priority}"));
    }
    routing.repair(net, &addresses).await.1.unwrap();
    assert_eq!(routing.foreign(), [""; 0]);
}

/// A network with other destinations has rules of its own, and leaves those of the LAN.
async fn another_network_comes_and_goes(net: &Net, routing: &mut Routing, site: &[AddressRange]) {
    let guests = [range("10.11.0.0", "10.11.255.255")];
    routing.protect(net, &guests, site).await.unwrap();
    all_led(true, OF_LAN);
    all_led(true, &["10.2.0.9 from 10.11.0.2 iif guests0"]);
    all_led(false, OF_OTHERS);
    routing.withdraw(net, &guests, site).await.unwrap();
    all_led(true, OF_LAN);
    all_led(false, &["10.2.0.9 from 10.11.0.2 iif guests0"]);
    // An error about a packet of a policy comes from anywhere.
    all_led(
        true,
        &[
            "10.2.0.9 from 172.16.1.2 mark 0xe44",
            "fd02::9 from fd00:1::2 mark 0xe44",
        ],
    );
}

/// Whoever is on the link to the outside can give the host an address there. It opens no policy, and nothing of it is
/// left when it goes.
async fn an_address_from_outside_opens_nothing(net: &Net, routing: &mut Routing) {
    let own = &["10.2.0.9", "fd02::9", "10.2.0.9 from 10.1.0.1"];
    let given = ["10.2.0.77/24", "8.8.8.77/24", "fd02::77/120"];
    let mut repair = async || {
        let addresses = net.addresses().await.unwrap();
        routing.repair(net, &addresses).await.1.unwrap();
    };
    let tables = || {
        let of_family =
            |family| ["220", "8220"].map(|table| ip(&format!("{family} route show table {table}")));
        ["-4", "-6"].map(of_family)
    };
    let before = tables();
    for address in given {
        add_address(address, "wan0");
    }
    repair().await;
    all_led(true, own);
    all_led(true, &["8.8.8.8 from 10.1.0.2 iif lan0"]);
    for address in given {
        ip(&format!("address del {address} dev wan0"));
    }
    // The host has this one for a time, as from DHCP.
    ip("address add 10.2.0.78/24 dev guests0 valid_lft 1000 preferred_lft 1000");
    repair().await;
    all_led(true, own);
    ip("address del 10.2.0.78/24 dev guests0");
    repair().await;
    assert_eq!(tables(), before);
    // This network is the administrator's. It is left alone while it is there.
    ip("address add 10.2.0.78/24 dev guests0");
    repair().await;
    all_led(false, &["10.2.0.9"]);
    ip("address del 10.2.0.78/24 dev guests0");
    repair().await;
    all_led(true, own);
    assert_eq!(tables(), before);
}

/// While the host has no address inside the policies, its own packets are held.
async fn packets_without_a_source_are_held(net: &Net, routing: &mut Routing) {
    let own = ["10.2.0.9", "fd02::9", "fd02::9 from fd00:1::2"];
    let lan = ["10.1.0.1/16", "fd00:a::1/64"];
    let mut repair = async || {
        let addresses = net.addresses().await.unwrap();
        routing.repair(net, &addresses).await.1.unwrap();
    };
    for address in lan {
        ip(&format!("address del {address} dev lan0"));
    }
    repair().await;
    for packet in own {
        let family = if packet.contains("::") { "-6" } else { "-4" };
        let route = ip(&format!("{family} route get {packet}"));
        assert!(!route.contains("dev"), "{packet}: {route}");
    }
    for address in lan {
        add_address(address, "lan0");
    }
    repair().await;
    all_led(true, &["10.2.0.9", "fd02::9"]);
    all_led(false, &["fd02::9 from fd00:1::2"]);
}

/// A policy for the host alone takes its packets, except those for the networks on its links.
async fn the_host_alone(net: &Net, routing: &mut Routing) {
    ip("address add 10.5.0.7/32 dev lo");
    let own = [range("10.5.0.7", "10.5.0.7")];
    routing.protect(net, &own, &everything()).await.unwrap();
    all_led(
        true,
        &[
            "198.51.100.1",
            "198.51.100.1 from 10.5.0.7",
            "10.1.0.2 from 10.5.0.7",
        ],
    );
    all_led(
        false,
        &["198.51.100.1 from 172.16.1.2", "172.16.1.9", "10.1.0.2"],
    );
    routing.lose_tun();
    ip("link del tun0");
    let held = ip("route get 198.51.100.1");
    assert!(!held.contains("wan0"), "{held}");
    ip("link add tun0 type veth peer name tun2");
    ip("link set tun0 up");
    let tun = net.link_index("tun0").await.unwrap();
    routing.lead_into(net, tun).await.unwrap();
    all_led(true, &["198.51.100.1"]);
    routing.withdraw(net, &own, &everything()).await.unwrap();
}

/// The kernel's routes take a packet only if its source and its destination are those of a policy.
async fn widths() {
    let net = Net::connect().unwrap();
    host();
    let mut routing = Routing::install(&net, of_policies()).await.unwrap();
    let tun = net.link_index("tun0").await.unwrap();
    routing.lead_into(&net, tun).await.unwrap();
    let lan = lan();
    routing.protect(&net, &lan, &everything()).await.unwrap();
    all_led(true, OF_LAN);
    all_led(false, OF_OTHERS);
    // Packets of the host that have no source get one inside the policy, if the policy says more than everything.
    let site = [
        range("10.2.0.0", "10.2.255.255"),
        range("fd02::", "fd02::ffff"),
    ];
    routing.protect(&net, &lan, &site).await.unwrap();
    all_led(true, &["10.2.0.9", "fd02::9", "10.2.0.9 from 10.1.0.1"]);
    all_led(
        false,
        &["10.2.0.9 from 172.16.1.2", "fd02::9 from fd00:1::2"],
    );
    all_led(false, OF_OTHERS);
    another_network_comes_and_goes(&net, &mut routing, &site).await;
    an_address_from_outside_opens_nothing(&net, &mut routing).await;
    packets_without_a_source_are_held(&net, &mut routing).await;
    // What others take away comes back, in its place.
    for family in ["-4", "-6"] {
        for priority in 220..228 {
            ip(&format!("{family} rule del priority {priority}"));
        }
        ip(&format!("{family} route flush table 8220"));
    }
    let addresses = net.addresses().await.unwrap();
    let (repaired, result) = routing.repair(&net, &addresses).await;
    assert!(result.is_ok() && repaired.len() > 4, "{repaired:?}");
    all_led(true, OF_LAN);
    all_led(true, &["10.2.0.9", "fd02::9"]);
    all_led(false, OF_OTHERS);
    settings_of_others_are_named(&net, &mut routing).await;
    // A network on a link of the host is not what a wider prefix names.
    let wide = [range("10.0.0.0", "10.255.255.255")];
    routing.protect(&net, &lan, &wide).await.unwrap();
    all_led(true, &["10.50.0.1", "10.11.0.2 from 10.1.0.2 iif lan0"]);
    all_led(
        false,
        &["10.11.0.2", "10.1.0.2", "10.50.0.1 from 172.16.1.2"],
    );
    for remote in [&wide[..], &site] {
        routing.withdraw(&net, &lan, remote).await.unwrap();
    }
    all_led(true, OF_LAN);
    all_led(false, OF_OTHERS);
    routing.withdraw(&net, &lan, &everything()).await.unwrap();
    all_led(false, OF_LAN);

    the_host_alone(&net, &mut routing).await;

    // A policy for everything leaves the networks on the host's links alone.
    routing
        .protect(&net, &everything(), &everything())
        .await
        .unwrap();
    all_led(
        true,
        &[
            "198.51.100.1 from 10.1.0.2 iif lan0",
            "2001:db8::1 from fd00:a::9 iif lan0",
        ],
    );
    all_led(
        false,
        &[
            "10.1.0.2 from 10.1.0.1",
            "10.1.0.2 from 10.2.0.2 iif tun0",
            "fd00:a::9",
        ],
    );
    ip("address add 10.12.0.1/16 dev guests0");
    let addresses = net.addresses().await.unwrap();
    routing.repair(&net, &addresses).await.1.unwrap();
    all_led(false, &["10.12.0.2 from 10.12.0.1"]);
    routing.close(&net).await.unwrap();
    for family in ["-4", "-6"] {
        for table in ["220", "8220"] {
            let left = ip(&format!("{family} route show table {table}"));
            assert_eq!(left.trim(), "");
        }
        let rules = ip(&format!("{family} rule show"));
        assert!(!rules.contains("22"), "{rules}");
    }
}

#[test]
fn a_route_is_no_wider_than_its_policy() {
    in_namespace("a_route_is_no_wider_than_its_policy", widths);
}

#[test]
fn a_route_has_a_source_that_others_can_answer_to() {
    in_namespace("a_route_has_a_source_that_others_can_answer_to", sources);
}

#[test]
fn policies_lead_traffic_into_the_tun_and_leave_nothing_behind() {
    in_namespace("policies_lead_traffic_into_the_tun", scenario);
}

/// The gateway can take the name of a TUN device, and of no other link.
#[test]
fn a_tun_device_is_told_from_other_links() {
    in_namespace("a_tun_device_is_told_from_other_links", async || {
        ip("tuntap add name t0 mode tun");
        ip("tuntap add name t1 mode tap");
        ip("link add v0 type veth peer name v1");
        let kinds = ["t0", "t1", "v0", "lo", "nowhere"].map(|name| link_kind(name).unwrap());
        let [tun, other] = [LinkKind::Tun, LinkKind::Other].map(Some);
        assert_eq!(kinds, [tun, other, other, other, None]);
    });
}
