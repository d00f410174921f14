//! Tests text that the grammar reads otherwise than it looks.

use std::fs;

use esplanade::config::load;

use super::{good, read, refusal, site};

fn psk(secret: &str) -> String {
    site("", "").replace("{ secret = s }", &format!("{{\n secret = {secret}\n }}"))
}

fn warnings(text: &str) -> String {
    good(text).warnings.render(false)
}

#[test]
fn two_settings_on_one_line_are_named() {
    let local = |text: &str| site("", "").replace("local { auth = psk }", text);
    for (text, key) in [
        (local("local { auth = psk  id = a.example.org }"), "id"),
        (local("local { id = a.example.org  auth = psk }"), "auth"),
        (local("local { auth=psk;id=a.example.org }"), ""),
        (local("local { auth = psk; id=a.example.org }"), "id"),
        (
            site("", "local_ts = 10.1.0.0/16 remote_ts = 10.2.0.0/16"),
            "remote_ts",
        ),
        (site("dpd_delay = 30s rekey_time = 4h", ""), "rekey_time"),
        (psk("abc id-1 = a.example.org"), "id-1"),
    ] {
        let shown = refusal(&text);
        match key {
            // To the grammar, this is one word.
            "" => assert!(shown.contains("is not known here"), "{shown}"),
            key => assert!(
                shown.contains(&format!("two settings on one line: `{key}` begins another"))
                    && shown.contains("end each setting with a line break or `}`")
                    && shown.matches("error: ").count() == 1,
                "{shown}"
            ),
        }
    }
    let shown = refusal(&local("local { id = a.example.org  auth = psk }"));
    assert!(shown.contains("--> test.conf:4:"), "{shown}");
    // Other equals signs belong to values.
    good(&local(
        "local { auth = psk\n id = C=CH, O = Example, CN=gw\n }",
    ));
}

#[test]
fn sections_where_values_stand_are_named() {
    let shown = refusal(&site("", "").replace("local { auth", "local = { auth"));
    assert!(
        shown.contains("`local` is a section, not a value"),
        "{shown}"
    );
    assert_eq!(shown.matches("error: ").count(), 1, "{shown}");
    let shown = refusal(&site("encap = yes children { other { } }", ""));
    assert!(
        shown.contains("a section begins behind a value on one line"),
        "{shown}"
    );
    assert_eq!(shown.matches("error: ").count(), 1, "{shown}");
}

#[test]
fn sections_that_begin_alike_are_proposed() {
    let shown = refusal(&site("", "").replace("children {", "childs {"));
    assert!(shown.contains("did you mean `children`?"), "{shown}");
}

// RFC 7296 R132
#[test]
fn secrets_that_would_be_others_are_refused() {
    for (secret, why) in [
        ("abcdefghijklmnop#hunter2", "`#` begins a comment"),
        ("\"abcdefghijklmnop\"#hunter2", "`#` begins a comment"),
        ("hunter2  hunter2", "joined by single spaces"),
        ("hunter2\"hunter2\"", "joined by single spaces"),
        ("\"hunter2\\hunter2\"", "a backslash in quotes is not kept"),
        ("\"hunter2\nhunter2\"", "has a line break in it"),
        ("hunter2 secret = hunter2", "two settings on one line"),
        ("hunter2 more { }", "a section begins behind a value"),
    ] {
        let shown = refusal(&psk(secret));
        assert!(shown.contains(why), "{secret}: {shown}");
        assert!(!shown.contains("hunter2"), "{shown}");
    }
    // Our reading agrees with strongSwan and with the look of the text.
    for (secret, key) in [
        ("correct horse battery", "correct horse battery"),
        ("correcthorsebattery # comment", "correcthorsebattery"),
        ("\"correct  horse # battery\"", "correct  horse # battery"),
        (
            "\"correct \\\"horse\\\" \\\\ battery\"",
            "correct \"horse\" \\ battery",
        ),
        ("cor\\rect\\horse=battery", "cor\\rect\\horse=battery"),
    ] {
        let loaded = read(&psk(secret)).unwrap_or_else(|errors| panic!("{errors}"));
        assert_eq!(
            loaded.ike.secrets[0].key.expose(),
            key.as_bytes(),
            "{secret}"
        );
        assert!(loaded.warnings.is_empty(), "{secret}: {}", loaded.warnings);
    }
}

#[test]
fn other_values_that_end_in_a_comment_are_warned_about() {
    let shown = warnings(&site("dpd_delay = 30s# the peer is slow", ""));
    assert!(
        shown.contains("`dpd_delay`: `#` begins a comment"),
        "{shown}"
    );
    // A wrong identity is an error: only the peer would notice it.
    let text = site("", "").replace(
        "local { auth = psk }",
        "local { auth = psk\n id = keyid:gw#1\n }",
    );
    assert!(refusal(&text).contains("`id`: `#` begins a comment"));
    assert!(!warnings(&site("dpd_delay = 30s # slow", "")).contains("comment"));
}

#[test]
fn the_same_key_twice_in_a_file_is_warned_about() {
    let copy = site("", "remote_ts = 10.2.0.0/16") + &site("", "remote_ts = 10.3.0.0/16");
    let shown = warnings(&copy);
    assert!(
        shown.contains("`remote_ts` is set in line 7 already"),
        "{shown}"
    );
    let same = site("", "remote_ts = 10.2.0.0/16") + &site("", "local_ts = 10.3.0.0/16");
    assert!(!warnings(&same).contains("already"));
}

#[test]
fn what_is_valid_but_hardly_meant_is_warned_about() {
    let shown = warnings(&site(
        "",
        "local_ts = 10.1.0.5/16\n remote_ts = 10.2.0.0/16",
    ));
    assert!(
        shown.contains("`10.1.0.5/16` stands for all of 10.1.0.0 to 10.1.255.255"),
        "{shown}"
    );
    assert!(
        shown.contains("write `10.1.0.0/16`, or `10.1.0.5`"),
        "{shown}"
    );
    let shown = warnings(&site(
        "",
        "local_ts = fd00::1/64[tcp/80]\n remote_ts = fd01::/64",
    ));
    assert!(shown.contains("`fd00::1/64` stands for"), "{shown}");
    let shown = warnings(&site("", "").replace("198.51.100.1", "198.51.100.1/24"));
    assert!(
        shown.contains("`198.51.100.1/24` stands for all of 198.51.100.0 to"),
        "{shown}"
    );

    let shown = warnings(&site(
        "",
        "local_ts = 10.1.0.0/16\n remote_ts = 10.2.0.0/16,10.1.0.0/16",
    ));
    assert!(
        shown.contains("10.1.0.0-10.1.255.255 is on both sides"),
        "{shown}"
    );
    let everything = site("", "local_ts = 0.0.0.0/0\n remote_ts = 0.0.0.0/0");
    assert!(
        !warnings(&everything).contains("both sides"),
        "route-based tunnels have it"
    );

    let ids = |local: &str, remote: &str| {
        site("", "")
            .replace(
                "local { auth = psk",
                &format!("local {{ auth = psk\n id = {local}\n"),
            )
            .replace(
                "remote { auth = psk",
                &format!("remote {{ auth = psk\n id = {remote}\n"),
            )
    };
    let shown = warnings(&ids("a.example.org", "a.example.org"));
    assert!(shown.contains("has one identity at both ends"), "{shown}");

    let owners = |owners: &str| {
        ids("a.example.org", "b.example.org")
            .replace("secret = s", &format!("secret = s\n {owners}\n"))
    };
    for (ids, missing) in [
        ("id-a = a.example.org\n id-b = b.example.org", false),
        ("id-a = a.example.org", false),
        ("id-b = b.example.org", false),
        // This key authenticates connection `c` only.
        ("id-a = a.example.org\n id-c = c.example.org", true),
    ] {
        let shown = warnings(&owners(ids));
        assert_eq!(
            shown.contains("no secret belongs to"),
            missing,
            "{ids}: {shown}"
        );
    }
    let shown = warnings(&psk("fifteen-letters"));
    assert!(shown.contains("shorter than 16 bytes"), "{shown}");
    assert!(warnings(&psk("sixteen--letters")).is_empty());
}

#[test]
fn any_number_of_warnings_is_no_error() {
    let one = |number: usize| {
        format!(
            "c{number} {{ mobike = yes\n local {{ auth = psk }}\n remote {{ auth = psk }}\n }}\n"
        )
    };
    let many: String = (0..600).map(one).collect();
    let loaded = good(&format!(
        "connections {{\n{many}}}\nsecrets {{ ike {{ secret = s }} }}\n"
    ));
    assert_eq!(loaded.ike.connections.len(), 600);
    assert!(loaded.warnings.warnings() > 600);
    assert!(loaded.warnings.render(false).contains("... and 1"));
}

#[test]
fn log_levels_that_are_none_are_refused() {
    let shown = refusal("gateway {\n log_level = loud\n}\n");
    assert!(
        shown.contains(
            "`log_level`: `loud` is no level; the levels are error, warn, info, debug, trace, off"
        ),
        "{shown}"
    );
    assert!(
        refusal("gateway {\n log_level = charon=debug\n}\n")
            .contains("nothing that logs is called `charon`")
    );
}

#[test]
fn mobike_as_strongswan_has_it_by_default_loads() {
    for value in ["yes", "no"] {
        let shown = warnings(&site(&format!("mobike = {value}"), ""));
        assert_eq!(shown.contains("not followed by MOBIKE yet"), value == "yes");
    }
    assert!(refusal(&site("mobike = perhaps", "")).contains("neither yes nor no"));
}

#[test]
fn only_stored_files_are_read() {
    let directory = tempfile::tempdir().unwrap();
    let at = |name: &str| directory.path().join(name);
    rustix::fs::mkfifoat(rustix::fs::CWD, at("fifo"), rustix::fs::Mode::RUSR).unwrap();
    let _socket = std::os::unix::net::UnixListener::bind(at("socket")).unwrap();
    for (file, why) in [
        ("/dev/zero", "it is a device"),
        ("/proc/kmsg", "no stored file"),
        ("/proc/self/environ", "no stored file"),
        ("/sys/kernel/uevent_seqnum", "no stored file"),
        ("fifo", "it is a FIFO"),
        ("socket", "it is a socket"),
    ] {
        fs::write(at("main.conf"), format!("include {file}")).unwrap();
        let said = load(&at("main.conf")).unwrap_err().render(false);
        assert!(said.contains(why), "{file}: {said}");
    }
}

/// Several connections may share a template. What one of them lacks is told at its own line.
#[test]
fn what_a_connection_lacks_is_told_at_its_own_line() {
    let text = "base {\n local {\n auth = psk\n }\n remote {\n auth = psk\n }\n children {\n net {\n \
                start_action = start\n }\n }\n}\nconnections {\n good : base {\n remote_addrs = 192.0.2.1\n }\n \
                bad : base {\n }\n any : base {\n remote_addrs = %any\n }\n}\nsecrets {\n ike {\n secret = s\n }\n}\n";
    let shown = refusal(text);
    let line = |of: &str| 1 + text.lines().position(|line| line.trim() == of).unwrap();
    for at in [line("bad : base {"), line("remote_addrs = %any")] {
        let place = format!("no single address to connect to\n  --> test.conf:{at}:");
        assert!(shown.contains(&place), "{place} is missing in {shown}");
    }
    assert_eq!(shown.matches("error: ").count(), 2, "{shown}");
    let text = text.replace("psk\n }\n children", "pubkey\n }\n children");
    let shown = refusal(&text);
    let place = format!(
        "trusts no certificate authority\n  --> test.conf:{}:",
        line("bad : base {")
    );
    assert!(shown.contains(&place), "{place} is missing in {shown}");
}
