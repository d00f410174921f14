//! Tests the binding of traffic selectors to peers.

use super::{good, read, refusal};

/// Makes a connection for `*.rw.example` with these entries in `peers`. Its child has `child_keys`.
fn with_peers(entries: &str, child_keys: &str) -> String {
    format!(
        "connections {{ rw {{\n local {{ auth = psk\n id = gw.example }}\n remote {{ auth = psk\n \
         id = *.rw.example }}\n peers {{ {entries} }}\n children {{ net {{\n remote_ts = 10.5.0.0/16\n \
         {child_keys}\n }} }} }} }}\nsecrets {{ ike {{ secret = 7Hq2mXv9TzR4kWc1bNf6 }} }}\n"
    )
}

// RFC 4301 R26
#[test]
fn selectors_are_bound_to_identities() {
    let loaded = good(&with_peers(
        "a { id = a.rw.example\n remote_ts = 10.5.0.7, 10.5.1.0/24 }
         guests { id = *.guest.rw.example\n remote_ts = 10.5.200.0/24 }",
        "overlap = yes",
    ));
    let connection = &loaded.ike.connections[0];
    let [a, guests] = &connection.peers[..] else {
        panic!("{:?}", connection.peers);
    };
    assert_eq!(a.id.to_string(), "a.rw.example");
    assert_eq!(a.remote_ts.len(), 2);
    assert_eq!(guests.id.precision(), 1);
    assert!(connection.children[0].overlap);
    assert!(loaded.warnings.is_empty(), "{}", loaded.warnings);
    assert!(!good(&with_peers("", "")).ike.connections[0].children[0].overlap);
}

#[test]
fn entries_that_cannot_work_are_refused() {
    for (entries, says) in [
        ("a { remote_ts = 10.5.0.7 }", "the peer `a` has no `id`"),
        ("a { id = a.rw.example }", "the peer `a` has no `remote_ts`"),
        (
            "a { id = a.example\n remote_ts = 10.5.0.7 }",
            "`id`: a.example is no peer of this connection, which is for *.rw.example",
        ),
        (
            "a { id = a.rw.example\n remote_ts = 10.5.0.7 }
             b { id = A.RW.example\n remote_ts = 10.5.0.8 }",
            "A.RW.example has an entry already",
        ),
        (
            "a { id = a.rw.example\n remote_ts = 10.5.0.7\n local_ts = 10.1.0.0/16 }",
            "a peer has no key `local_ts`",
        ),
    ] {
        let text = refusal(&with_peers(entries, ""));
        assert!(text.contains(says), "{text}");
    }
}

#[test]
fn addresses_of_two_peers_are_warned_about() {
    let warnings = |first: &str, second: &str| {
        let entries = format!(
            "a {{ id = a.rw.example\n remote_ts = {first} }} b {{ id = b.rw.example\n remote_ts = {second} }}"
        );
        read(&with_peers(&entries, ""))
            .unwrap()
            .warnings
            .render(false)
    };
    let text = warnings("10.5.9.9, 10.5.1.0/24", "10.5.0.0/24, 10.5.1.7");
    let says = "the peers `a` and `b` have addresses in common, such as 10.5.1.7";
    assert!(text.contains(says), "{text}");
    assert_eq!(warnings("10.5.1.0/24", "10.5.2.0/24, dynamic"), "");
}
