//! Tests the marks of children, and the devices that are made for them.

use esplanade::config::{Loaded, Mark};

use super::{good, refusal, site};

fn devices(loaded: &Loaded) -> Vec<(&str, Option<Mark>, Option<u32>)> {
    let devices = loaded.gateway.marked_interfaces();
    devices
        .map(|one| (one.name.as_str(), one.marks.outbound, one.marks.inbound))
        .collect()
}

fn whole(value: u32) -> Mark {
    Mark {
        value,
        mask: u32::MAX,
    }
}

#[test]
fn a_child_with_marks_gets_a_device() {
    let loaded = good(&site("", "mark_in = 10\n mark_out = 0x0b/0xff"));
    let mark = Mark {
        value: 11,
        mask: 0xff,
    };
    assert_eq!(devices(&loaded), [("espm11", Some(mark), Some(10))]);
    let device = loaded.gateway.interface_id("espm11").unwrap();
    let sa = &loaded.policies[0].sa;
    assert_eq!((sa.if_ids.inbound, sa.if_ids.outbound), (device, device));
    assert_eq!(
        (sa.marks.inbound, sa.marks.outbound),
        (Some(whole(10)), Some(mark))
    );
    assert_eq!(sa.marks.outbound.unwrap().to_string(), "11/0x000000ff");
    assert!(sa.is_led());

    // Inbound alone, the child's packets come by a device of its own, and leave by the common one.
    for keys in [
        "mark_in = 10",
        "set_mark_in = 10",
        "mark_in = 10/0xf\n set_mark_in = %same",
    ] {
        let loaded = good(&site("", keys));
        assert_eq!(devices(&loaded), [("espmi10", None, Some(10))], "{keys}");
        let if_ids = loaded.policies[0].sa.if_ids;
        assert_ne!(if_ids.inbound, 0);
        assert_eq!(if_ids.outbound, 0);
    }
    let loaded = good(&site("", "mark_in = 0x10/0xf0\n set_mark_in = 3/0xf"));
    assert_eq!(devices(&loaded), [("espmi19", None, Some(19))]);
    let nothing =
        "mark_in = 0\n mark_out = 0/0\n set_mark_in = 0\n set_mark_out = 0\n mark_in_sa = no";
    let loaded = good(&site("", nothing));
    assert!(devices(&loaded).is_empty());
    // The mark that all packets of the gateway have.
    good(&site("", "set_mark_out = 220"));
}

#[test]
fn numbers_for_unique_marks_stay() {
    let marks = |loaded: &Loaded| {
        let marks = loaded.policies[0].sa.marks;
        (marks.inbound.unwrap(), marks.outbound.unwrap())
    };
    let named = |keys: &str| {
        site("", keys).replace(
            "remote { auth = psk",
            "remote { auth = psk\n id = b.example\n",
        )
    };
    let text = named("mark_in = %unique\n mark_out = %unique");
    let first = good(&text);
    let (inbound, outbound) = marks(&first);
    assert_eq!(inbound, outbound);
    assert_eq!(inbound.mask, u32::MAX);
    assert_eq!(marks(&good(&text)), (inbound, outbound), "at a reload");
    let each = good(&text.replace("%unique", "%unique-dir"));
    assert_ne!(marks(&each).0, marks(&each).1);
    let same = good(&named("mark_in = %unique\n set_mark_in = %same"));
    assert_eq!(same.policies[0].sa.marks.given, Some(inbound.value));

    let anybody = text.replace("id = b.example", "id = %any");
    assert_ne!(anybody, text);
    let refused = refusal(&anybody);
    assert!(
        refused.contains("several peers can have the child"),
        "{refused}"
    );
    assert!(
        refused.contains("whose remote section names it by `id`"),
        "{refused}"
    );
}

#[test]
fn marks_that_cannot_be_are_refused() {
    for (keys, expected) in [
        ("mark_out = ten", "`ten` is not a mark"),
        ("mark_out = 1/ten", "`ten` is not a mark"),
        (
            "mark_out = 0x100/0xff",
            "has bits that its mask does not have",
        ),
        ("mark_out = 0/0xff", "leaves no bit of a mark"),
        ("mark_in = %unique/0xff", "takes all 32 bits"),
        (
            "mark_out = 220",
            "the gateway's own packets have the mark 220",
        ),
        (
            "mark_out = 0xc/0xf",
            "the gateway's own packets have the mark 220",
        ),
        (
            "mark_in = 220",
            "the gateway's own packets have the mark 220",
        ),
        (
            "mark_out = 0x800000dc",
            "ICMP errors about protected packets have the mark 2147483868",
        ),
        (
            "mark_in = 0x800000dc",
            "ICMP errors about protected packets have the mark 2147483868",
        ),
        (
            "mark_in = 1\n set_mark_in = 2",
            "packets get the mark 2, which `mark_in` does not take",
        ),
        (
            "mark_in = 1\n set_mark_in = 0",
            "packets get the mark 0, which `mark_in` does not take",
        ),
        (
            "set_mark_out = 9",
            "all packets that the gateway sends have the mark 220",
        ),
        (
            "mark_out = 9\n set_mark_out = %same",
            "all packets that the gateway sends",
        ),
        ("mark_in_sa = yes", "an SA is found by its SPI"),
        (
            "mark_in = 9\n if_id_in = 9",
            "the child is bound to an interface",
        ),
        (
            "mark_out = 9\n mode = pass\n start_action = trap\n remote_ts = 10.2.0.0/16",
            "pass and drop",
        ),
    ] {
        let text = refusal(&site("", keys));
        assert!(
            text.contains(expected) && text.contains("test.conf:"),
            "{keys}: {text}"
        );
    }
    let taken = "gateway { interfaces { espm9 { if_id = 1\n } } }\n".to_owned();
    let text = refusal(&(taken + &site("", "mark_out = 9")));
    assert!(
        text.contains("`espm9` is the name of another interface"),
        "{text}"
    );
}

#[test]
fn children_share_a_device_or_exclude_each_other() {
    let both = |first: &str, second: &str| {
        let net = "remote_ts = 10.2.0.0/16\n";
        site("", &format!("{net}{first}\n }} second {{ {net}{second}"))
    };
    let loaded = good(&both(
        "mark_in = 1\n mark_out = 2",
        "mark_in = 1\n mark_out = 2",
    ));
    assert_eq!(devices(&loaded), [("espm2", Some(whole(2)), Some(1))]);
    let loaded = good(&both("mark_out = 1/0xf", "mark_out = 0x12/0xff"));
    assert_eq!(devices(&loaded).len(), 2);

    let text = refusal(&both("mark_out = 2/0xf", "mark_out = 0x12/0xff"));
    assert!(
        text.contains("packets can match 18/0x000000ff, and 2/0x0000000f"),
        "{text}"
    );
    let text = refusal(&both(
        "mark_in = 1\n mark_out = 2",
        "mark_in = 3\n mark_out = 2",
    ));
    assert!(
        text.contains("another child has the same `mark_out`"),
        "{text}"
    );
}

#[test]
fn marks_tell_equal_networks_apart() {
    let warnings = |keys: &str| {
        let net = "local_ts = 10.1.0.0/16\n remote_ts = 10.1.0.0/16";
        good(&site("", &format!("{net}\n{keys}")))
            .warnings
            .render(false)
    };
    assert!(warnings("").contains("is on both sides"));
    assert!(!warnings("mark_in = 8\n mark_out = 4").contains("is on both sides"));
    let same = warnings("mark_in = 8\n mark_out = 8");
    assert!(
        same.contains("led back into the tunnel by their mark"),
        "{same}"
    );
}
