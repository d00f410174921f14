//! Tests settings that would be ignored, or that would open what they look like closing.

use super::{good, refusal, site};

fn warnings(text: &str) -> String {
    good(text).warnings.render(false)
}

/// A site whose only secret has these ids.
fn owned(ids: &str) -> String {
    site("", "").replace("{ secret = s }", &format!("{{\n secret = s\n {ids}\n }}"))
}

/// A site whose sections `local` and `remote` have these keys.
fn ends(local: &str, remote: &str) -> String {
    let section = |name: &str, keys: &str| format!("{name} {{ auth = psk\n {keys}\n }}");
    site("", "")
        .replace("local { auth = psk }", &section("local", local))
        .replace("remote { auth = psk }", &section("remote", remote))
}

#[test]
fn a_cleared_identity_does_not_make_a_key_everybodys() {
    let owners = |ids: &str| good(&owned(ids)).ike.secrets[0].owners.len();
    assert_eq!(owners(""), 0, "without a word it is everybody's");
    assert_eq!(owners("id-1 = b.example.org\n id-2 ="), 1);
    assert_eq!(owners("id-1 = b.example.org\n id-2 = %any"), 0);
    for ids in ["id =", "id-1 =\n id-2 ="] {
        let shown = refusal(&owned(ids));
        assert!(
            shown.contains("all identities of `ike` are empty") && shown.contains("`id = %any`"),
            "{shown}"
        );
    }
    for ids in [
        "id = \"\"",
        "id-1 = b.example.org\n id-2 = \"\"",
        "id = \" \"",
    ] {
        let shown = refusal(&owned(ids));
        assert!(shown.contains("empty"), "{ids}: {shown}");
    }
    // An identity that another section has can be cleared.
    let heirs = |ids: &str| {
        let text = site("", "").replace(
            "ike { secret = s }",
            &format!("ike-1 {{ secret = s\n id-1 = b\n id-2 = c\n }}\n ike-2 : secrets.ike-1 {{ {ids}\n }}"),
        );
        good(&text).ike.secrets[1].owners.len()
    };
    assert_eq!([heirs(""), heirs("id-2 =")], [2, 1]);
    for remote in ["id = \"\"", "ca_id = \"\"", "groups = \"\""] {
        let shown = refusal(&ends("", remote));
        assert!(shown.contains("an empty text says nothing"), "{shown}");
    }
}

#[test]
fn demands_beside_a_secret_are_refused_by_name() {
    for key in [
        "certs = x.pem",
        "pubkeys = x.pub",
        "cacerts = /nonexistent.pem",
        "ca_id = \"CN=ca\"",
        "cert_policy = 1.2.3",
        "eku = strict",
        "groups = Research",
        "revocation = strict",
        "revocation = ifuri",
    ] {
        let shown = refusal(&ends("", key));
        let name = key.split(' ').next().unwrap_or_default();
        assert_eq!(shown.matches("error: ").count(), 1, "{shown}");
        assert!(
            shown.contains(&format!("error: `{name}`: ")) && shown.contains("auth = pubkey"),
            "{shown}"
        );
    }
    // This demands nothing, and public files have it.
    good(&ends("", "revocation = relaxed"));
    for key in [
        "certs = x.pem",
        "pubkeys = x.pub",
        "cert1 { handle = 01\n }",
        "cert {\n }",
    ] {
        let shown = refusal(&ends(key, ""));
        assert!(
            shown.contains("the gateway shows no certificate"),
            "{shown}"
        );
        assert_eq!(shown.matches("error: ").count(), 1, "{shown}");
    }
}

#[test]
fn lists_of_nothing_are_refused_and_cleared_lists_are_not() {
    for value in [",", " , ,", "\" \""] {
        for (text, key) in [
            (
                site("remote_addrs = 192.0.2.1\n local_addrs = X", ""),
                "local_addrs",
            ),
            (site("proposals = X", ""), "proposals"),
            (site("", "ah_proposals = X"), "ah_proposals"),
            (site("", "esp_proposals = X"), "esp_proposals"),
            (site("", "remote_ts = X"), "remote_ts"),
            (site("", "dscp = X"), "dscp"),
            (site("", "dscp_map = X"), "dscp_map"),
            (site("", "pfp = X"), "pfp"),
            (
                format!("gateway {{ listen = X\n }}\n{}", site("", "")),
                "listen",
            ),
            (
                format!("gateway {{ readable = X\n }}\n{}", site("", "")),
                "readable",
            ),
        ] {
            let shown = refusal(&text.replace('X', value));
            assert!(
                shown.contains(&format!("`{key}`: the list names nothing")),
                "{value}: {shown}"
            );
            good(&text.replace('X', ""));
        }
    }
    // A comma at the end is strongSwan's.
    good(&site("", "remote_ts = 10.2.0.0/16,"));
}

#[test]
fn keys_without_effect_on_pass_and_drop_are_named() {
    let alone = |keys: &str, child: &str| {
        format!(
            "connections {{ lan {{ {keys}\n children {{ a {{ mode = pass\n start_action = trap\n local_ts = 10.1.0.0/16\n \
             remote_ts = 10.1.0.0/16\n {child}\n }} }} }} }}\n"
        )
    };
    let quiet = good(&alone("remote_addrs = 127.0.0.1\n version = 2", ""));
    assert!(quiet.warnings.is_empty(), "{}", quiet.warnings);
    assert!(quiet.ike.connections.is_empty() && quiet.policies.len() == 1);
    for key in [
        "proposals = default",
        "unique = replace",
        "dpd_delay = 5s",
        "rekey_time = 4h",
        "encap = yes",
        "legacy = yes",
    ] {
        let shown = warnings(&alone(key, ""));
        assert!(shown.contains("need no IKE"), "{key}: {shown}");
        let name = key.split(' ').next().unwrap_or_default();
        let shown = refusal(&alone(&format!("{name} = garbage"), ""));
        assert!(shown.contains(&format!("`{name}`: ")), "{shown}");
    }
    let shown = refusal(&alone("version = 9", ""));
    assert!(shown.contains("`version`: "), "{shown}");
    // What nobody reads there is an error.
    let shown = refusal(&alone(
        "peers { x { id = a\n remote_ts = 10.0.0.1\n } }",
        "",
    ));
    assert!(shown.contains("`peers` has no effect here"), "{shown}");
    for key in [
        "rekey_time = 1h",
        "life_time = 2h",
        "rand_time = 0",
        "rekey_bytes = 1g",
        "life_bytes = 2g",
        "rand_bytes = 0",
        "rekey_packets = 1000",
        "life_packets = 2000",
        "rand_packets = 0",
        "set_mark_out = 220",
        "hostaccess = yes\n updown = echo",
    ] {
        let name = key.split(' ').next().unwrap_or_default();
        let shown = warnings(&alone("", key));
        assert!(
            shown.contains(&format!("`{name}`: pass and drop have no SA")),
            "{shown}"
        );
    }
}

#[test]
fn a_port_for_nat_traversal_brings_the_other() {
    let ports = |keys: &str| {
        let loaded = good(&site(keys, ""));
        let site = &loaded.ike.connections[0];
        (site.local_port, site.remote_port)
    };
    assert_eq!(ports(""), (None, 500));
    assert_eq!(ports("local_port = 4500"), (Some(4500), 4500));
    assert_eq!(ports("remote_port = 4500"), (Some(4500), 4500));
    assert_eq!(
        ports("local_port = 500\n remote_port = 500"),
        (Some(500), 500)
    );
    assert_eq!(
        ports("local_port = 4500\n remote_port = 4500"),
        (Some(4500), 4500)
    );
    assert_eq!(ports("remote_port = 5500"), (None, 5500));
    assert_eq!(
        ports("local_port = 4500\n remote_port = 5500"),
        (Some(4500), 5500)
    );
    for keys in [
        "local_port = 4500\n remote_port = 500",
        "local_port = 500\n remote_port = 4500",
    ] {
        let shown = refusal(&site(keys, ""));
        assert!(
            shown.contains("`remote_port`: one end would take"),
            "{shown}"
        );
    }
    // The gateway's own ports count.
    let own = format!(
        "gateway {{ port_nat_t = 14500\n }}\n{}",
        site("remote_port = 4500", "")
    );
    assert_eq!(good(&own).ike.connections[0].local_port, Some(14_500));
}

#[test]
fn settings_of_the_gateway_that_cannot_work_are_refused() {
    let directory = tempfile::tempdir().unwrap();
    let here = directory.path().display();
    let gateway = |keys: &str| format!("gateway {{ {keys}\n }}\n{}", site("", ""));
    good(&gateway(&format!("readable = {here}")));
    for (keys, why) in [
        (format!("readable = {here}/none"), "cannot be used"),
        ("readable = /".to_owned(), "is the whole file system"),
        (
            format!("readable = {here}/../../../../.."),
            "is the whole file system",
        ),
        (
            "mark = 0".to_owned(),
            "`mark`: all packets that nobody has marked",
        ),
        (
            "mark = 0x80000000".to_owned(),
            "`mark`: ICMP errors about protected packets would get the mark 0",
        ),
        (
            "listen = 224.0.0.1".to_owned(),
            "`listen`: `224.0.0.1` is not the IP address",
        ),
        ("socket = tcp://127.0.0.1:4502".to_owned(), "`socket`: "),
        (
            "socket = here".to_owned(),
            "`socket`: `here` is no absolute path",
        ),
    ] {
        let shown = refusal(&gateway(&keys));
        assert!(shown.contains(why), "{keys}: {shown}");
        assert_eq!(shown.matches("error: ").count(), 1, "{shown}");
    }
    let listens = |own: &str| {
        let text = site(&format!("local_addrs = {own}"), "");
        format!("gateway {{ listen = 192.0.2.1, ::\n }}\n{text}")
    };
    for own in [
        "192.0.2.1",
        "192.0.2.9, 192.0.2.1",
        "2001:db8::1",
        "192.0.2.0/24",
        "%any",
    ] {
        good(&listens(own));
    }
    let shown = refusal(&listens("192.0.2.9, 198.51.100.7"));
    assert!(
        shown.contains("`local_addrs`: the gateway receives at none"),
        "{shown}"
    );
}

#[test]
fn marks_lie_within_their_masks() {
    for key in [
        "mark_in = 0x1ff/0xff",
        "mark_out = 0x1ff/0xff",
        "mark_in = 1\n set_mark_in = 3/1",
    ] {
        let shown = refusal(&site("", key));
        assert!(
            shown.contains("bits that its mask does not have"),
            "{shown}"
        );
    }
    good(&site("", "mark_in = 5/0xff\n set_mark_in = %same/0xf"));
    good(&site("", "mark_in = 0/0x00000000"));
}

#[test]
fn what_means_less_than_it_seems_is_warned_about() {
    let shown = warnings(&site("", "start_action = start\n inactivity = 4s"));
    assert!(
        shown.contains("`inactivity` ends the child although"),
        "{shown}"
    );
    for child in [
        "start_action = trap|start\n inactivity = 4s",
        "start_action = trap\n inactivity = 4s",
        "start_action = start\n inactivity = 0",
        "priority = 100",
    ] {
        let shown = warnings(&site("", child));
        assert!(
            !shown.contains("`inactivity`") && !shown.contains("`priority`"),
            "{shown}"
        );
    }
    let shown = warnings(&site("", "priority = 1000000"));
    assert!(
        shown.contains("`priority`: any number comes ahead"),
        "{shown}"
    );
    for (name, counts) in [
        ("local", false),
        ("local-a", false),
        ("local1", false),
        ("local_x", true),
        ("localhost", true),
    ] {
        let text = site("", "").replace("local {", &format!("{name} {{"));
        let shown = warnings(&text);
        assert_eq!(
            shown.contains("counts as `local`"),
            counts,
            "{name}: {shown}"
        );
    }
    // Nobody wrote the `rekey_time` that would be too long.
    good(&site("", "life_time = 6s"));
}

#[test]
fn a_file_of_a_secret_is_there_before_it_is_needed() {
    for kind in ["private", "rsa", "ecdsa", "pkcs8", "pkcs12"] {
        let text = site("", "").replace(
            "secrets {",
            &format!("secrets {{ {kind} {{ file = none.pem\n }}\n"),
        );
        let shown = refusal(&text);
        assert!(
            shown.contains("none.pem") && shown.contains("it does not exist"),
            "{shown}"
        );
    }
}
