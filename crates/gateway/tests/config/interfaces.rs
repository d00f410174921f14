//! Tests the interfaces that policies are bound to.

use esplanade::config::Loaded;
use esplanade_ipsec::sa::TfcPadding;

use super::{good, refusal, site};

/// Makes two interfaces, and a connection with `keys` whose child has `child_keys`.
fn with_interfaces(keys: &str, child_keys: &str) -> String {
    let interfaces = "gateway { mtu = 1500\n interfaces {\n\
         ipsec0 { if_id = 42\n addresses = 10.255.0.1/30, fd00::1 }\n\
         ipsec1 { if_id = 0x2b\n mtu = 1300 }\n\
         } }\n";
    interfaces.to_owned() + &site(keys, child_keys)
}

#[test]
fn policies_are_bound_to_interfaces() {
    let loaded = good(&with_interfaces(
        "if_id_in = 42\n if_id_out = 42",
        "if_id_out = 43\n tfc_padding = mtu",
    ));
    let [first, second] = &loaded.gateway.interfaces[..] else {
        panic!("{:?}", loaded.gateway.interfaces);
    };
    assert_eq!(
        (first.name.as_str(), first.if_id, first.mtu),
        ("ipsec0", 42, 1500)
    );
    let addresses = [
        ("10.255.0.1".parse().unwrap(), 30),
        ("fd00::1".parse().unwrap(), 128),
    ];
    assert_eq!(first.addresses, addresses);
    assert_eq!((second.if_id, second.mtu), (43, 1300));
    let sa = &loaded.policies[0].sa;
    assert_eq!((sa.if_ids.inbound, sa.if_ids.outbound), (42, 43));
    assert_eq!(sa.tfc, TfcPadding::To(1300), "the MTU of its own interface");
    // As in strongSwan, 0 means "not given".
    let loaded = good(&with_interfaces("if_id_out = 42", "if_id_out = 0"));
    let if_ids = loaded.policies[0].sa.if_ids;
    assert_eq!((if_ids.inbound, if_ids.outbound), (0, 42));
}

#[test]
fn interfaces_are_made_for_numbers_alone() {
    let made = |loaded: &Loaded| -> Vec<(String, u32)> {
        let interfaces = loaded.gateway.interfaces.iter().skip(2);
        interfaces
            .map(|one| (one.name.clone(), one.if_id))
            .collect()
    };
    let bound = |loaded: &Loaded| {
        let if_ids = loaded.policies[0].sa.if_ids;
        (if_ids.inbound, if_ids.outbound)
    };
    let loaded = good(&with_interfaces("if_id_in = 0x2c", "if_id_out = 7"));
    assert_eq!(
        made(&loaded),
        [("esp44".to_owned(), 44), ("esp7".to_owned(), 7)]
    );
    assert_eq!(bound(&loaded), (44, 7));
    let warnings = loaded.warnings.render(false);
    assert!(
        warnings.contains("the gateway makes the interface `esp7`"),
        "{warnings}"
    );
    assert!(warnings.contains("dev esp7"), "{warnings}");

    let both = "if_id_in = %unique\n if_id_out = %unique";
    let unique = good(&with_interfaces("", both));
    let (inbound, outbound) = bound(&unique);
    assert_eq!((inbound, made(&unique).len()), (outbound, 1));
    assert_eq!(
        bound(&good(&with_interfaces("", both))),
        (inbound, outbound),
        "at a reload"
    );
    let other = good(&with_interfaces(both, ""));
    assert_ne!(bound(&other).0, inbound, "the connection has its own");
    let each = both.replace("%unique", "%unique-dir");
    let each = good(&with_interfaces("", &each));
    assert_ne!(bound(&each).0, bound(&each).1);
    assert_eq!(made(&each).len(), 2);

    let taken = with_interfaces("", "if_id_in = 7").replace("ipsec1", "esp7");
    let text = refusal(&taken);
    assert!(
        text.contains("`esp7` is the name of another interface"),
        "{text}"
    );
}

#[test]
fn interfaces_that_cannot_be_are_refused() {
    let child = |keys: &str| refusal(&with_interfaces("", keys));
    let text = child("if_id_out = +42");
    assert!(text.contains("is not an interface id"), "{text}");
    assert!(text.contains("test.conf:14"), "{text}");

    let interfaces = |text: &str| {
        let rest = site("", "");
        refusal(&format!("gateway {{ interfaces {{\n{text}\n}} }}\n{rest}"))
    };
    for (text, expected) in [
        ("a { }", "has no `if_id`"),
        ("a { if_id = 0 }", "0 stands for the common TUN device"),
        ("a { if_id = 1 }\n b { if_id = 0x1 }", "`a` has it already"),
        (
            "esp0 { if_id = 1 }",
            "`esp0` is the common TUN device already",
        ),
        ("abcdefghijklmnop { if_id = 1 }", "is not an interface name"),
        ("a { if_id = 1\n mtu = 576 }", "is not a number from 1280"),
        (
            "a { if_id = 1\n addresses = 10.0.0.1/33 }",
            "is not an address",
        ),
        (
            "a { if_id = 1\n table = 3 }",
            "an interface has no key `table`",
        ),
    ] {
        let refusal = interfaces(text);
        assert!(
            refusal.contains(expected) && refusal.contains("test.conf:"),
            "{text}: {refusal}"
        );
    }
}
