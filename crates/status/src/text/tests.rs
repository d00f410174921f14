//! Tests of the texts.

use super::*;

#[test]
fn counters_name_their_reasons() {
    let (mut walk, mut drops, mut counters) = (Section::new(), Section::new(), Section::new());
    walk.set("packets-out", 3).set("bytes-out", 2048);
    drops
        .set("no-sa", 0)
        .set("replayed", 2)
        .set("unknown-spi", 1);
    counters.section("outbound", walk).section("drops", drops);
    let text = render_counters(&counters);
    assert!(text.contains("sent      3 packets, 2.0 KiB\n"), "{text}");
    assert!(text.contains("received  0 packets, 0 B\n"), "{text}");
    assert!(
        text.ends_with("dropped   replayed 2, unknown-spi 1\n"),
        "{text}"
    );
}

#[test]
fn failed_renewals_are_told_with_the_ike_sa() {
    let mut sa = Section::new();
    sa.set("rekey-error", "the peer\u{1b} refuses")
        .set("rekey-error-age", 65)
        .set("reauth-error", "no route");
    let text = render_sa("site", &sa);
    let told =
        "\n  reauth  failed: no route\n  rekey   failed: the peer\u{fffd} refuses (1m 05s ago)\n";
    assert!(text.contains(told), "{text}");
}

#[test]
fn workers_have_a_line_each() {
    let (mut stats, mut workers, mut second) = (Section::new(), Section::new(), Section::new());
    second.set("packets-out", 7).set("packets-in", 5);
    second.set("busy-percent", 93).set("busy-for", 12);
    workers.set("total", 2).section("0", Section::new());
    workers.section("1", second);
    stats.section("workers", workers);
    let expected = "worker    0: sent 0 packets, received 0, 0 % busy
worker    1: sent 7 packets, received 5, 93 % busy
warning   worker 1 has been busy for 12 s and may lose packets: set more `workers`
";
    assert_eq!(render_workers(&stats), expected);
}

#[test]
fn the_share_has_a_line() {
    let mut share = Section::new();
    share.set("with", "the GPU");
    for (key, value) in [
        ("percent", 37),
        ("halves", 12),
        ("gpu-halves", 3),
        ("busy-percent", 62),
        ("threshold", 80),
        ("latency-us", 1000),
        ("moves", 9),
    ] {
        share.set(key, value);
    }
    let render = |share: &Section| {
        let (mut stats, mut engine) = (Section::new(), Section::new());
        engine.section("share", share.clone());
        stats.section("engine", engine);
        render_engine(&stats)
    };
    let begin = "share     the GPU carries 37 % of the load, 3 of 12 halves; the busiest worker is 62 % busy, threshold 80 %";
    assert_eq!(render(&share), format!("{begin}; moves: 9\n"));
    share.set("p99-us", 310);
    let late = "; batches take 310 us, 1000 at most; moves: 9\n";
    assert_eq!(render(&share), format!("{begin}{late}"));
}

#[test]
fn crls_have_a_line_each() {
    let (mut stats, mut crls) = (Section::new(), Section::new());
    let mut crl = Section::new();
    crl.set("issuer", "CN=ca\n")
        .set("number", "0a")
        .set("entries", 2);
    crl.set("delta", "yes").set("unusable", "why");
    crls.section("0", crl);
    stats.section("crls", crls);
    assert_eq!(
        render_crls(&stats),
        "crl       CN=ca\u{fffd}: delta CRL 0a with 2 entries, next update -; it cannot be used: why\n"
    );
}

#[test]
fn names_have_a_line_each() {
    let named = |name: &str, addresses: &[&str], error: Option<&str>| {
        let (mut connection, mut names) = (Section::new(), Section::new());
        let mut section = Section::new();
        section.list("addresses", addresses);
        if let Some(error) = error {
            section.set("error", error);
        }
        names.section(name, section);
        connection.section("names", names);
        connection
    };
    let connections = [
        named("sun.example", &["192.0.2.1", "2001:db8::1"], None),
        named("moon.example", &[], Some("why\n")),
        named("sun.example", &["192.0.2.1", "2001:db8::1"], None),
        Section::new(),
    ];
    assert_eq!(
        render_names(&connections),
        "name      moon.example has no address: why\u{fffd}\n\
         name      sun.example: 192.0.2.1, 2001:db8::1\n"
    );
}

#[test]
fn children_that_are_down_say_why() {
    let (mut connection, mut children) = (Section::new(), Section::new());
    let of = |entries: &[(&str, &str)]| {
        let mut child = Section::new();
        for (key, value) in entries {
            child.set(key, value);
        }
        child
    };
    children
        .section("up", of(&[("state", "UP")]))
        .section(
            "net",
            of(&[
                ("state", "WAITING"),
                ("next-attempt", "65"),
                ("last-error", "the peer\u{1b} does not answer"),
                ("last-error-age", "3"),
            ]),
        )
        .section("old", of(&[("state", "CLOSED")]))
        .section(
            "part",
            of(&[
                ("state", "UP"),
                ("last-error", "the peer leaves out the packet"),
                ("last-error-age", "4"),
            ]),
        )
        .section("trap", of(&[("state", "DOWN")]));
    connection.section("children", children);
    assert_eq!(
        render_down("site", &connection),
        "down      site/net, next attempt in 1m 05s: the peer\u{fffd} does not answer (3s ago)\n\
         down      site/old, closed by command\n\
         refused   site/part, up: the peer leaves out the packet (4s ago)\n\
         down      site/trap, waits for traffic, the peer or a command\n"
    );
}

#[test]
fn refusals_say_who_and_why() {
    let mut refusal = Section::new();
    for (key, value) in [
        ("remote-host", "192.0.2.1"),
        ("remote-id", "a\u{202e}.example.org"),
        ("why", "the pre-shared keys differ"),
        ("configured", "site: b.example.org"),
        ("age", "65"),
    ] {
        refusal.set(key, value);
    }
    let told = "192.0.2.1 'a\u{fffd}.example.org': the pre-shared keys differ; \
        configured: site: b.example.org (1m 05s ago)\n";
    let (mut connection, mut stats, mut all) = (Section::new(), Section::new(), Section::new());
    connection.section("last-refusal", refusal.clone());
    assert_eq!(
        render_down("site", &connection),
        format!("refused   site: {told}")
    );
    all.section("0", refusal);
    stats.section("refusals", all);
    assert_eq!(render_refusals(&stats), format!("refused   {told}"));
}

#[test]
fn an_attempt_says_how_it_goes() {
    let render = |requests: u32| {
        let (mut connection, mut children) = (Section::new(), Section::new());
        let (mut child, mut attempt) = (Section::new(), Section::new());
        attempt.set("for", 8).set("unanswered", requests);
        attempt.set("seen", "nothing has come from 198.51.100.1");
        attempt.set("remedy", "does the peer\u{1b} run?");
        child.set("state", "CONNECTING").section("attempt", attempt);
        children.section("net", child);
        connection.section("children", children);
        render_down("site", &connection)
    };
    assert_eq!(render(1), "down      site/net, connecting for 8s\n");
    assert_eq!(
        render(2),
        "down      site/net, connecting for 8s, 2 requests unanswered, nothing has come from 198.51.100.1: \
         does the peer\u{fffd} run?\n"
    );
}

#[test]
fn one_way_traffic_is_told_with_its_causes() {
    let (mut sa, mut children) = (Section::new(), Section::new());
    let (mut child, mut one_way) = (Section::new(), Section::new());
    one_way.set("verdict", "suspected").set("for", 34);
    one_way.list("causes", &["a filter\u{1b}", "no route"]);
    child.set("name", "net").set("state", "INSTALLED");
    child.set("mode", "TUNNEL").section("one-way", one_way);
    children.section("net-3", child);
    sa.section("child-sas", children);
    let text = render_sa("site", &sa);
    assert!(
        text.contains("  net: INSTALLED, one-way, TUNNEL\n"),
        "{text}"
    );
    let end = "    one-way for 34s: packets go out, none comes in, and the peer answers IKE; likely causes:\n    \
               \u{20}    1. a filter\u{fffd}\n         2. no route\n";
    assert!(text.ends_with(end), "{text}");
}

#[test]
fn human_units() {
    assert_eq!(plural(1, "policy"), "1 policy");
    assert_eq!(plural(0, "policy"), "0 policies");
    assert_eq!(plural(2, "child"), "2 children");
    assert_eq!(plural(1, "packet"), "1 packet");
    assert_eq!(plural(3, "packet"), "3 packets");
    assert_eq!(human_duration(59), "59s");
    assert_eq!(human_duration(3725), "1h 02m");
    assert_eq!(human_duration(90_000), "1d 01h");
    assert_eq!(human_bytes(1023), "1023 B");
    assert_eq!(human_bytes(1536), "1.5 KiB");
    assert_eq!(human_bytes(u64::MAX), "16.0 EiB");
}

#[test]
fn a_narrow_path_is_told_with_its_source() {
    for (by, told) in [
        ("probes", "probes have found it"),
        ("icmp", "an ICMP error"),
    ] {
        let mut sa = Section::new();
        sa.set("path-mtu", 1400).set("path-mtu-by", by);
        let text = render_sa("site", &sa);
        let line = format!("\n  path MTU 1400 bytes; {told}");
        assert!(text.contains(&line), "{text}");
    }
}
