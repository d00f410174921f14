//! The answers of the fake gateway.

use esplanade::vici::Section;

/// Returns an explanation that repeats the question.
pub fn explanation(question: &Section) -> Section {
    let asked: Vec<String> = ["direction", "fragment", "length", "dont-fragment", "dscp"]
        .iter()
        .map(|key| format!("{key}={}", question.text(key).unwrap_or("-")))
        .collect();
    let mut step = Section::new();
    step.set("step", "decision").set("text", asked.join(" "));
    let mut steps = Section::new();
    steps.section("1", step);
    let mut hop = Section::new();
    for key in [
        "policy",
        "spi",
        "state",
        "protocol",
        "algorithms",
        "mode",
        "local",
        "remote",
    ] {
        hop.set(key, key);
    }
    hop.set("dscp", 46)
        .set("outcome", "sent")
        .set("path-mtu", 1500);
    let mut hops = Section::new();
    hops.section("1", hop);
    let mut message = Section::new();
    message
        .set("packet", "udp 10.0.0.5:1 -> 10.1.0.9:2")
        .set("direction", "outbound")
        .set("dscp", 46)
        .set("policies", 3)
        .set("decision", "protect")
        .section("compared", Section::new())
        .section("steps", steps)
        .section("hops", hops);
    message
}

pub fn connection() -> Section {
    let mut child = Section::new();
    child
        .set("mode", "TUNNEL")
        .set("rekey_time", 3600)
        .set("rekey_bytes", 0)
        .set("rekey_packets", 0)
        .set("dpd_action", "none")
        .set("close_action", "none")
        .list("local-ts", ["10.0.0.0/16"])
        .list("remote-ts", ["10.1.0.0/16"]);
    let mut children = Section::new();
    children.section("net", child);
    let mut auth = Section::new();
    auth.set("class", "pre-shared key")
        .set("id", "gw-a.example.org");
    let mut content = Section::new();
    content
        .list("local_addrs", ["192.0.2.1"])
        .list("remote_addrs", ["198.51.100.1"])
        .set("version", "IKEv2")
        .set("reauth_time", 0)
        .set("rekey_time", 14400)
        .section("local-1", auth.clone())
        .section("remote-1", auth)
        .section("children", children);
    let mut message = Section::new();
    message.section("office", content);
    message
}

/// Returns the `list-conn` event of a connection whose children are to be up and are not.
pub fn down() -> Section {
    let mut children = Section::new();
    for number in 1..=7 {
        let mut child = Section::new();
        child
            .set("state", "WAITING")
            .set("wanted", "yes")
            .set("next-attempt", 6)
            .set("last-error", format!("reason {number}"))
            .set("last-error-age", 4);
        if number == 1 {
            let mut drops = Section::new();
            drops.set("no-sa", 12);
            child.section("drops", drops);
        }
        children.section(&format!("lan{number}"), child);
    }
    let mut content = Section::new();
    content
        .list("remote_addrs", ["198.51.100.2"])
        .section("children", children);
    let mut message = Section::new();
    message.section("branch", content);
    message
}

pub fn sa(bytes_in: u64) -> Section {
    let mut child = Section::new();
    child
        .set("name", "net")
        .set("uniqueid", 1)
        .set("reqid", 1)
        .set("state", "INSTALLED")
        .set("mode", "TUNNEL")
        .set("protocol", "ESP")
        .set("encap", "yes")
        .set("spi-in", "c1234567")
        .set("spi-out", "c7654321")
        .set("encr-alg", "AES_GCM_16")
        .set("encr-keysize", 128)
        .set("esn", 1)
        .set("bytes-in", bytes_in)
        .set("packets-in", 1200)
        .set("use-in", 3)
        .set("bytes-out", 100)
        .set("packets-out", 1)
        .set("install-time", 65)
        .set("rekey-time", 3300)
        .set("life-time", 3895)
        .list("local-ts", ["10.0.0.0/16"])
        .list("remote-ts", ["10.1.0.0/16"]);
    let mut children = Section::new();
    children.section("net-1", child);
    let mut content = Section::new();
    content
        .set("uniqueid", 1)
        .set("version", 2)
        .set("state", "ESTABLISHED")
        .set("local-host", "192.0.2.1")
        .set("local-port", 4500)
        .set("local-id", "gw-a.example.org")
        .set("remote-host", "198.51.100.1")
        .set("remote-port", 4500)
        .set("remote-id", "gw-b\x1b[31m.example.org")
        .set("initiator", "yes")
        .set("initiator-spi", "0011223344556677")
        .set("responder-spi", "8899aabbccddeeff")
        .set("encr-alg", "AES_GCM_16")
        .set("encr-keysize", 128)
        .set("prf-alg", "PRF_HMAC_SHA2_256")
        .set("full-transcript", "yes")
        .set("dh-group", "CURVE_25519")
        .set("established", 65)
        .set("rekey-time", 13000)
        .section("child-sas", children);
    let mut message = Section::new();
    message.section("office", content);
    message
}
