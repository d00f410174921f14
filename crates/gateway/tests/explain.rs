//! Tests `esplanade explain`, and the policy warnings of `esplanade check`, as a user runs them.

mod program;

use std::path::Path;

use program::{esplanade, text};

fn fixture() -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/config/good/policies.conf");
    path.display().to_string()
}

fn explain(arguments: &[&str]) -> String {
    let file = fixture();
    let output = esplanade(&[&["explain", "--config", &file], arguments].concat());
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    text(&output.stdout)
}

fn json(arguments: &[&str]) -> serde_json::Value {
    serde_json::from_str(&explain(&[arguments, &["--json"]].concat())).unwrap()
}

/// Returns the policy that decides, and the decision.
fn decided(arguments: &[&str]) -> (String, String) {
    let report = json(arguments);
    let compared = report["compared"].as_array().unwrap();
    let decides = compared.iter().find(|one| one["decides"] == true);
    let policy = decides.map_or("", |one| one["policy"].as_str().unwrap());
    (
        policy.to_owned(),
        report["decision"].as_str().unwrap().to_owned(),
    )
}

fn is(policy: &str, decision: &str) -> (String, String) {
    (policy.to_owned(), decision.to_owned())
}

#[test]
fn the_first_match_decides() {
    let web = "tcp 10.1.0.5:40000 -> 10.2.0.9:443";
    assert_eq!(decided(&[web]), is("site/net", "protect"));
    let telnet = "tcp 10.1.0.5:40000 -> 10.2.0.9:23";
    assert_eq!(decided(&[telnet]), is("site/telnet", "discard"));
    assert_eq!(
        decided(&["udp 10.1.7.5:1 -> 10.200.0.1:2"]),
        is("site/crossing", "bypass")
    );
    assert_eq!(
        decided(&["udp 10.1.7.5:1 -> 10.200.0.1:2", "--fragment"]),
        is("site/crossing", "bypass")
    );
    assert_eq!(
        decided(&["icmp6 fd00:1::1 -> fd00:2::2"]),
        is("site/hosts", "protect")
    );
    assert_eq!(
        decided(&["proto 47 172.16.0.1 -> 172.16.0.2"]),
        is("", "discard")
    );
    // The packet may also be given as several words without quotes.
    let words = ["tcp", "10.1.0.5:40000", "to", "10.2.0.9:443"];
    assert_eq!(decided(&words), is("site/net", "protect"));
}

#[test]
fn the_report_says_why_and_what_follows() {
    let report = explain(&["tcp 10.1.0.5:40000 -> 10.2.0.9:443"]);
    for line in [
        "tcp 10.1.0.5:40000 -> 10.2.0.9:443, outbound, DSCP 0",
        "remote port 443 is not 23",
        "policies.conf:17)",
        "matches: 10.1.0.0/16 === 10.2.0.0/16",
        "protect: with an SA of site/net",
        "site/net takes DSCP 0 of 2 children",
        "offered: ENCR_AES_GCM_16_256",
        "192.0.2.1 -> 198.51.100.1, in UDP, port 4500 (encap = yes)",
        "roaming/client",
    ] {
        assert!(report.contains(line), "{line:?} is not in\n{report}");
    }
    let voice = explain(&["udp 10.1.0.5:1 -> 10.2.0.9:2", "--dscp", "ef"]);
    assert!(
        voice.contains("protect: with an SA of site/voice"),
        "{voice}"
    );
    assert!(voice.contains("DSCP 46 copied from the packet"), "{voice}");
    let host = explain(&["udp [fd00:1::1]:1 -> [fd00:2::2]:2"]);
    assert!(
        host.contains("fd00:1::/32 === fd00:2::2, the policy's selectors with the fields"),
        "{host}"
    );
}

#[test]
fn fragments_and_inbound_packets() {
    let fragment = json(&["tcp 10.1.0.5 -> 10.2.0.9", "--fragment"]);
    assert_eq!(fragment["decision"], "protect");
    let seen = fragment["compared"][0]["why"].as_str().unwrap();
    assert!(seen.contains("ports cannot be seen"), "{seen}");
    let unprotected = json(&["tcp 10.2.0.9:443 -> 10.1.0.5:40000", "--in"]);
    assert_eq!(
        (&unprotected["decision"], &unprotected["direction"]),
        (&"discard".into(), &"inbound".into())
    );
    let reason = unprotected["steps"][0]["text"].as_str().unwrap();
    assert!(reason.contains("not-protected"), "{reason}");
}

#[test]
fn the_interface_counts() {
    let file = std::env::temp_dir().join(format!("esplanade-explain-{}.conf", std::process::id()));
    let child = "local_ts = 0.0.0.0/0\n remote_ts = 0.0.0.0/0\n mode = pass";
    let bound = format!("if_id_out = 42\n children {{ all {{\n {child}\n }} }}");
    let interfaces = "interfaces { ipsec0 { if_id = 42\n } }";
    let text = format!("gateway {{ {interfaces} }}\nconnections {{ c {{\n {bound}\n }} }}\n");
    std::fs::write(&file, text).unwrap();
    let run = |interface: &[&str]| {
        let file = file.to_str().unwrap();
        let packet = ["explain", "udp 10.1.0.5:1 -> 10.2.0.9:2", "--config", file];
        esplanade(&[&packet[..], interface].concat())
    };
    let common = String::from_utf8(run(&[]).stdout).unwrap();
    assert!(common.contains("is for another interface"), "{common}");
    assert!(common.contains("discard"), "{common}");
    let bound = String::from_utf8(run(&["--interface", "ipsec0"]).stdout).unwrap();
    assert!(bound.contains("bypass: c/all"), "{bound}");
    let unknown = run(&["--interface", "eth0"]);
    assert_eq!(unknown.status.code(), Some(2));
    let errors = String::from_utf8(unknown.stderr).unwrap();
    assert!(errors.contains("there are ipsec0, esp0"), "{errors}");
    std::fs::remove_file(&file).unwrap();
}

#[test]
fn bad_packets_and_configurations_are_refused() {
    let file = fixture();
    for (arguments, code, what) in [
        (
            &["explain", "tcp 10.1.0.5 -> 10.2.0.9", "-c", &file][..],
            2,
            "the packet lacks ports",
        ),
        (
            &["explain", "tcp 10.1.0.5:1 -", "-c", &file],
            2,
            "a shell takes",
        ),
        (
            &[
                "explain",
                "udp 10.1.0.5:1 -> 10.2.0.9:2",
                "--dscp",
                "gold",
                "-c",
                &file,
            ],
            2,
            "is not a DSCP",
        ),
        (
            &[
                "explain",
                "udp 10.1.0.5:1 -> 10.2.0.9:2",
                "-c",
                "/nonexistent",
            ],
            3,
            "it does not exist",
        ),
        (&["explain"], 2, "PACKET-SPEC"),
        (
            &[
                "explain",
                "udp 10.1.0.5:1 -> 10.2.0.9:2",
                "--socket",
                "/nonexistent",
            ],
            4,
            "no gateway answers",
        ),
    ] {
        let output = esplanade(arguments);
        let errors = text(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{errors}");
        assert!(errors.contains(what), "{errors}");
        assert!(output.stdout.is_empty());
    }
}

/// Returns the warnings of `check` about a connection with these children, in this order.
fn warnings(children: &[String], more: &str) -> String {
    let in_order = |(child, number): (&String, usize)| child.replace("ORDER", &number.to_string());
    let children: String = children.iter().zip(1..).map(in_order).collect();
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("test.conf");
    let content = format!(
        "{more} connections {{ s {{
            local_addrs = 192.0.2.1
            remote_addrs = 192.0.2.2
            children {{ {children} }} }} }}\n"
    );
    std::fs::write(&file, content).unwrap();
    let output = esplanade(&["check", file.to_str().unwrap()]);
    let errors = text(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{errors}");
    errors
}

fn child(name: &str, local: &str, remote: &str, mode: &str) -> String {
    format!(
        "{name} {{ local_ts = {local}\n remote_ts = {remote}\n mode = {mode}\n start_action = trap\n priority = ORDER }}\n"
    )
}

/// RFC 4301 appendix B, applied to packets that exist: an ICMP packet has one type and code, and a
/// packet shows both ports or none.
#[test]
fn check_knows_which_packets_there_are() {
    let (ours, theirs) = ("10.0.0.0/8", "10.2.0.0/16");
    let icmp = |name: &str, types: &str, mode: &str| {
        let end = |net: &str| format!("{net}[icmp/{types}]");
        child(name, &end(ours), &end(theirs), mode)
    };
    let covered = warnings(
        &[
            icmp("low", "0-3", "pass"),
            icmp("high", "4-255", "drop"),
            icmp("fragments", "opaque", "drop"),
            child(
                "all",
                &format!("{ours}[icmp]"),
                &format!("{theirs}[icmp]"),
                "pass",
            ),
        ],
        "",
    );
    let together = "`s/all` gets no packet: together these come before it and take them all";
    assert!(covered.contains(together), "{covered}");
    assert_eq!(covered.matches("warning:").count(), 1, "{covered}");
    let gap = [
        icmp("low", "0-3", "pass"),
        icmp("high", "5-255", "drop"),
        icmp("all", "0-255", "pass"),
    ];
    assert_eq!(warnings(&gap, ""), "");

    let tcp = |name: &str, local: &str, remote: &str, mode: &str| {
        child(
            name,
            &format!("{ours}[tcp{local}]"),
            &format!("{theirs}[tcp{remote}]"),
            mode,
        )
    };
    let ports = warnings(
        &[
            tcp("hidden", "/opaque", "/opaque", "drop"),
            tcp("low", "/0-1023", "", "pass"),
            tcp("high", "/1024-65534", "", "drop"),
            tcp("last", "/65535", "", "drop"),
            tcp("all", "", "", "pass"),
        ],
        "",
    );
    assert!(ports.contains(together), "{ports}");
    for covers in ["s/hidden", "s/low", "s/high", "s/last"] {
        assert!(ports.contains(covers), "{ports}");
    }
}

#[test]
fn check_warns_about_selectors_that_contradict_each_other() {
    let contradicts = "gets no packet: its local and remote selectors contradict each other";
    for (local, remote) in [
        ("10.0.0.0/8[tcp/80]", "10.2.0.0/16[udp/53]"),
        ("10.0.0.0/8", "fd00::/16"),
        ("10.0.0.0/8[icmp/8]", "10.2.0.0/16[icmp/0]"),
    ] {
        let found = warnings(&[child("odd", local, remote, "pass")], "");
        assert!(found.contains(&format!("`s/odd` {contradicts}")), "{found}");
    }
    let half = child("half", "10.0.0.0/8, fd00:1::/32", "fd00:2::/32", "pass");
    assert_eq!(warnings(&[half], ""), "");
}

#[test]
fn policies_of_different_interfaces_do_not_meet() {
    let child = |name: &str, mode| child(name, "10.0.0.0/8", "10.2.0.0/16", mode);
    let common = warnings(&[child("a", "pass"), child("b", "drop")], "");
    assert!(common.contains("`s/b` gets no packet: `s/a`"), "{common}");
    let bound = format!(
        "{} }} }} t {{ if_id_out = 42\n children {{ {}",
        child("a", "pass"),
        child("b", "drop")
    );
    let interface = "gateway { interfaces { ipsec0 { if_id = 42\n } } }";
    assert_eq!(warnings(&[bound], interface), "");
}

#[test]
fn check_warns_about_policies_that_meet_no_packet_or_cross() {
    let output = esplanade(&["check", &fixture()]);
    let warnings = text(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{warnings}");
    for line in [
        "`site/shadowed` gets packets only while `site/net`",
        "policies.conf:24) has no SA: that comes before it and takes them all",
        "`site/dead` gets no packet: `site/crossing`",
        "`site/crossing` and `site/net`",
        "do different things with packets that match both; site/net comes first",
        "set `priority`",
    ] {
        assert!(warnings.contains(line), "{line:?} is not in\n{warnings}");
    }
    assert!(
        !warnings.contains("`site/voice`"),
        "DSCPs tell it apart: {warnings}"
    );
    let quiet = fixture().replace("policies.conf", "site-to-site.conf");
    let quiet = text(&esplanade(&["check", &quiet]).stderr);
    // Ignore warnings about a machine that does not forward packets.
    let of_policies = quiet
        .replace("forward IPv4 packets", "")
        .replace("forward IPv6 packets", "");
    assert!(!of_policies.contains("packet"), "{quiet}");
}

/// Returns the warnings of `check` about connections `p` and `q`, each with a child of its name for these networks of the
/// peer.
fn of_two(first: (&str, &str), second: (&str, &str)) -> String {
    let connection = |name: &str, (id, child): (&str, &str)| {
        format!(
            "{name} {{ remote_addrs = 192.0.2.2
                local {{ auth = psk\n id = a.example }}
                remote {{ auth = psk\n id = {id} }}
                children {{ {name} {{ local_ts = 10.1.0.0/16\n {child} }} }} }}\n"
        )
    };
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("test.conf");
    let (p, q) = (connection("p", first), connection("q", second));
    let content = format!("connections {{ {p} {q} }}\nsecrets {{ ike {{ secret = s }} }}\n");
    std::fs::write(&file, content).unwrap();
    let output = esplanade(&["check", file.to_str().unwrap()]);
    let errors = text(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{errors}");
    let of_machine = |line: &&str| line.contains("`p/p`") || line.contains("`q/q`");
    let lines: Vec<&str> = errors.lines().filter(of_machine).collect();
    lines.join("\n")
}

#[test]
fn check_tells_whose_sa_carries_traffic_of_two_children() {
    let (net, part) = ("remote_ts = 10.2.0.0/16", "remote_ts = 10.2.7.0/24");
    let same = of_two(("b.example", net), ("c.example", net));
    let only = "`q/q` gets packets only while `p/p`";
    assert!(same.contains(only) && same.contains("has no SA"), "{same}");

    // The narrower one comes first, wherever it stands.
    let narrower = of_two(("b.example", net), ("c.example", part));
    let carries = "`p/p` carries packets of `q/q`";
    assert!(narrower.contains(carries), "{narrower}");
    assert_eq!(narrower.lines().count(), 1, "{narrower}");
    let trap = format!("{part}\n start_action = trap");
    assert_eq!(of_two(("b.example", net), ("c.example", &trap)), "");
    let apart = "remote_ts = 10.3.0.0/16";
    assert_eq!(of_two(("b.example", net), ("c.example", apart)), "");

    // What is bound to one peer is for nobody else.
    let bound = of_two(("b.example", net), ("*.example", net));
    assert!(bound.contains("`q/q` gets no packet: `p/p`"), "{bound}");
    assert_eq!(of_two(("*.example", net), ("c.example", part)), "");
    let overlap = format!("{net}\n overlap = yes");
    let both = of_two(("b.example", &overlap), ("*.example", &overlap));
    assert!(both.contains(only), "{both}");
}

#[test]
fn check_knows_a_peer_that_is_the_gateway_itself() {
    let own = "in `remote_addrs` is an address of this gateway";
    for (local, remote, is_own) in [
        ("%any", "127.0.0.1", true),
        ("192.0.2.1, 192.0.2.2", "192.0.2.9, 192.0.2.2", true),
        ("203.0.113.76", "203.0.113.77", false),
        ("%any", "%any", false),
    ] {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("test.conf");
        let content = format!(
            "connections {{ site {{
                local_addrs = {local}
                remote_addrs = {remote}
                local {{ auth = psk\n id = a.example }}
                remote {{ auth = psk\n id = b.example }}
                children {{ net {{ remote_ts = 10.2.0.0/16 }} }} }} }}
             secrets {{ ike {{ secret = s }} }}"
        );
        std::fs::write(&file, content).unwrap();
        let output = esplanade(&["check", file.to_str().unwrap()]);
        let errors = text(&output.stderr);
        assert_eq!(output.status.code(), Some(0), "{errors}");
        assert_eq!(errors.contains(own), is_own, "{errors}");
    }
}

/// Transport mode carries only packets of the two gateways, and AH is never inside UDP.
#[test]
fn hosts_and_their_selectors() {
    let text_of = |name: &str, child: &str| {
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
        let text = format!(
            "connections {{ site {{
                local_addrs = 192.0.2.1
                remote_addrs = 192.0.2.2
                local {{ auth = psk }}
                remote {{ auth = psk }}
                children {{ hosts {{ mode = transport\n start_action = trap\n {child} }} }} }} }}
             secrets {{ ike {{ secret = s }} }}"
        );
        std::fs::write(&path, text).unwrap();
        path.display().to_string()
    };
    let packet = "udp 192.0.2.1:1 -> 192.0.2.2:2";
    let file = text_of("ah.conf", "ah_proposals = sha256");
    let report = text(&esplanade(&["explain", packet, "-c", &file]).stdout);
    assert!(
        report.contains("protect: with an SA of site/hosts"),
        "{report}"
    );
    assert!(
        report.contains("192.0.2.1 -> 192.0.2.2, directly"),
        "{report}"
    );
    assert!(!report.contains("UDP port"), "{report}");

    let file = text_of("no-hosts.conf", "remote_ts = 10.2.0.0/16");
    let report = text(&esplanade(&["explain", packet, "-c", &file]).stdout);
    assert!(
        report.contains("site/hosts (") && report.contains("takes no packet"),
        "{report}"
    );
    let warnings = text(&esplanade(&["check", &file]).stderr);
    assert!(
        warnings.contains("`site/hosts` gets no packet: transport mode"),
        "{warnings}"
    );
}
