//! Tests the options of children, and some of connections.

use std::sync::Arc;

use esplanade::config::PolicyAction;
use esplanade_ike::config::{Fragmentation, Mode, Selector};
use esplanade_ipsec::icmp_errors::IcmpErrors;
use esplanade_ipsec::sa::{DscpSet, TfcPadding, TunnelOptions};
use esplanade_ipsec::tunnel::{DfPolicy, DscpMap, DscpPolicy, EcnPolicy};

use super::{good, refusal, site};

// RFC 4301 R35, R36, R58; RFC 4302 R31; RFC 4303 R42
#[test]
fn sa_options_are_read() {
    let loaded = good(&site(
        "",
        "start_action = trap\n copy_df = set\n copy_dscp = no\n tfc_padding = mtu\n tfc_dummies = 100\n icmp_errors = strict\n dscp = ef, cs5, 12\n class = 6
         pfp = remote_addr, protocol, remote_port\n inactivity = 5m\n replay_window = 65536\n peer_replay_window = 8192",
    ));
    let policy = &loaded.policies[0];
    assert_eq!(policy.mode, Mode::Tunnel);
    let options = &policy.sa;
    assert_eq!(options.tunnel.df, DfPolicy::Set);
    assert_eq!(options.tunnel.dscp, DscpPolicy::fixed(0));
    assert_eq!(options.tfc, TfcPadding::To(loaded.gateway.mtu));
    assert_eq!(options.dummies, 100);
    assert_eq!(options.dscp, DscpSet::from_iter([46, 40, 12]));
    assert_eq!(options.class, Some(6));
    assert_eq!(options.icmp_errors, IcmpErrors::Strict);
    assert!(options.populate.remote && options.populate.protocol && options.populate.remote_port);
    assert!(!options.populate.local && !options.populate.local_port);
    let child = &loaded.ike.connections[0].children[0];
    assert_eq!(child.inactivity.as_secs(), 300);
    assert_eq!(
        (child.replay_window, child.peer_replay_window),
        (65_536, 8192)
    );
    assert!(child.from_packet);

    let loaded = good(&site(
        "",
        "mode = transport\n copy_df = no\n tfc_padding = 0",
    ));
    assert_eq!(loaded.policies[0].mode, Mode::Transport);
    assert_eq!(loaded.policies[0].action, PolicyAction::Protect);
    assert_eq!(loaded.policies[0].sa.tunnel.df, DfPolicy::Clear);
    assert_eq!(loaded.policies[0].sa.dscp, DscpSet::ALL);
    assert_eq!(loaded.policies[0].sa.icmp_errors, IcmpErrors::Quoted);
    let child = &loaded.ike.connections[0].children[0];
    assert_eq!(child.mode, Mode::Transport);
    assert!(!child.from_packet);
    assert_eq!((child.replay_window, child.peer_replay_window), (8192, 32));
}

// RFC 4301 R36, R37
#[test]
fn options_of_the_tunnel_header_are_read() {
    let tunnel = |keys: &str| good(&site("", keys)).policies[0].sa.tunnel.clone();
    let standard = tunnel("");
    assert_eq!(standard, TunnelOptions::default());
    assert_eq!(
        tunnel("copy_dscp = out\n copy_ecn = yes\n copy_df = yes"),
        standard
    );
    assert_eq!(tunnel("copy_ecn = no").ecn, EcnPolicy::Clear);
    assert_eq!(tunnel("ttl = 255").ttl.map(|ttl| ttl.get()), Some(255));
    for (copy, out, inward) in [
        ("out", true, false),
        ("in", false, true),
        ("yes", true, true),
        ("no", false, false),
    ] {
        let tunnel = tunnel(&format!("copy_dscp = {copy}"));
        let dscp = match out {
            true => DscpPolicy::Copy,
            false => DscpPolicy::fixed(0),
        };
        assert_eq!((tunnel.dscp, tunnel.dscp_from_outer), (dscp, inward));
    }
    let map = DscpMap::fixed(0);
    let map = (10..14).fold(map, |map, inner| map.with(inner, 10));
    assert_eq!(
        tunnel("dscp_map = ef:46, 10-13:af11, *:0").dscp,
        DscpPolicy::Map(Arc::new(map.with(46, 46)))
    );
    let rest = DscpMap::identity().with(46, 40);
    assert_eq!(
        tunnel("dscp_map = 46:cs5").dscp,
        DscpPolicy::Map(Arc::new(rest))
    );
}

// RFC 4301 R106
#[test]
fn selectors_of_both_ip_versions() {
    let keys = "local_ts = 10.1.0.0/16, fd00:1::/32\n remote_ts = 10.2.0.0/16, fd00:2::/32";
    let loaded = good(&site("", keys));
    let child = &loaded.ike.connections[0].children[0];
    let net = |from: &str, to: &str| Selector::range(from.parse().unwrap(), to.parse().unwrap());
    let v6 = |n| {
        net(
            &format!("fd00:{n}::"),
            &format!("fd00:{n}:ffff:ffff:ffff:ffff:ffff:ffff"),
        )
    };
    assert_eq!(child.local_ts, [net("10.1.0.0", "10.1.255.255"), v6(1)]);
    assert_eq!(child.remote_ts, [net("10.2.0.0", "10.2.255.255"), v6(2)]);
}

// RFC 4301 R101
#[test]
fn contradictions_are_refused() {
    for (child, expected) in [
        ("mode = beet", "`mode`: the mode `beet` is not supported"),
        (
            "mode = transport\n tfc_padding = mtu",
            "`tfc_padding`: transport mode",
        ),
        (
            "mode = transport\n tfc_dummies = 1",
            "`tfc_dummies`: transport mode",
        ),
        (
            "ah_proposals = sha256\n tfc_dummies = 1",
            "`tfc_dummies`: AH",
        ),
        ("tfc_dummies = 101", "`tfc_dummies`: `101` is not a number"),
        (
            "mode = pass\n local_ts = 10.0.0.0/8\n remote_ts = 10.0.0.0/8\n tfc_padding = mtu",
            "`tfc_padding`: pass and drop",
        ),
        ("pfp = remote_addr", "`pfp`: only packets"),
        (
            "pfp = remote_port\n start_action = trap",
            "`pfp`: ports belong to a protocol",
        ),
        (
            "pfp = remote_port\n start_action = trap\n remote_ts = 10.2.0.0/16[udp/opaque]",
            "`pfp`: packets with opaque ports",
        ),
        ("pfp = remote", "`pfp`: `remote` is not known"),
        ("class = 8", "`class`"),
        ("dscp = ef, gold", "`dscp`: `gold` is not a DSCP"),
        ("replay_window = 65537", "`replay_window`"),
        ("peer_replay_window = 31", "`peer_replay_window`"),
        (
            "ah_proposals = sha256\n tfc_padding = mtu",
            "`tfc_padding`: AH",
        ),
        (
            "mode = pass\n local_ts = 10.0.0.0/8\n remote_ts = 10.0.0.0/8\n dscp = ef",
            "`dscp`: pass and drop",
        ),
        (
            "mode = drop\n local_ts = 10.0.0.0/8\n remote_ts = 10.0.0.0/8\n class = 3",
            "`class`: pass and drop",
        ),
        ("copy_df = maybe", "`copy_df`"),
        (
            "copy_ecn = maybe",
            "`copy_ecn`: `maybe` is neither yes nor no",
        ),
        ("copy_dscp = inout", "`copy_dscp`: `inout` is not known"),
        ("ttl = 0", "`ttl`: `0` is not a number from 1 to 255"),
        ("ttl = 256", "`ttl`"),
        ("dscp_map = 46", "`dscp_map`: `46` is not an entry"),
        ("dscp_map = 64:0", "`dscp_map`: `64` is not a DSCP"),
        (
            "dscp_map = 0-9:0, ef:1, 9:1",
            "`dscp_map`: the DSCP 9 is in",
        ),
        ("dscp_map = *:0, *:0", "`dscp_map`: `*` is in the map twice"),
        (
            "dscp_map = *:0\n copy_dscp = in",
            "`dscp_map`: `copy_dscp` says",
        ),
        ("icmp_errors = no", "`icmp_errors`"),
        ("tfc_padding = 70000", "`tfc_padding`"),
    ] {
        let rendered = refusal(&site("", child));
        assert!(rendered.contains(expected), "{expected}: {rendered}");
    }
    let rendered = refusal(&site("encap = yes", "ah_proposals = sha256"));
    assert!(rendered.contains("AH cannot be encapsulated"), "{rendered}");
    good(&site("", "ah_proposals = sha256\n mode = transport"));
}

#[test]
fn what_is_to_be_up_is_tried_without_end() {
    let tries =
        |keys: &str, child_keys: &str| good(&site(keys, child_keys)).ike.connections[0].keyingtries;
    assert_eq!(tries("", ""), 1);
    for action in [
        "start_action = trap",
        "start_action = start",
        "start_action = trap|start",
        "dpd_action = start",
        "close_action = start",
    ] {
        assert_eq!(tries("", action), 0, "{action}");
        assert_eq!(tries("keyingtries = 2", action), 2, "{action}");
    }
}

#[test]
fn fragmentation_is_read_as_strongswan_reads_it() {
    use Fragmentation::{Accept, No, Yes};
    let read = |value: &str| {
        let text = site(&format!("fragmentation = {value}"), "");
        good(&text).ike.connections[0].fragmentation
    };
    for (value, expected) in [("yes", Yes), ("accept", Accept), ("force", Yes), ("no", No)] {
        assert_eq!(read(value), expected);
    }
    assert_eq!(good(&site("", "")).ike.connections[0].fragmentation, Yes);
    let rendered = refusal(&site("fragmentation = maybe", ""));
    assert!(rendered.contains("`accept`"), "{rendered}");

    let size = |value: &str| good(&format!("gateway {{ fragment_size = {value}\n }}\n"));
    assert_eq!(size("0").ike.fragment_size, 0);
    assert_eq!(size("576").ike.fragment_size, 576);
    assert_eq!(good("").ike.fragment_size, 1280);
    let rendered = refusal("gateway { fragment_size = 575\n }\n");
    assert!(rendered.contains("too short for IKE"), "{rendered}");
}

#[test]
fn a_full_transcript_is_required_only_where_the_gateway_announces_it() {
    let read = |text: &str| {
        let loaded = good(text);
        let required = loaded.ike.connections.first();
        let required = required.map(|site| site.full_transcript_required);
        (loaded.ike.full_transcript_auth, required)
    };
    let require = site("full_transcript_auth = require", "");
    assert_eq!(read(&site("", "")), (true, Some(false)));
    assert_eq!(
        read(&site("full_transcript_auth = auto", "")),
        (true, Some(false))
    );
    assert_eq!(read(&require), (true, Some(true)));
    let off = "gateway { full_transcript_auth = no\n }\n";
    assert_eq!(read(off), (false, None));
    let rendered = refusal(&format!("{off}{require}"));
    assert!(rendered.contains("does not announce it"), "{rendered}");
    assert!(rendered.contains("gateway section"), "{rendered}");
    let rendered = refusal(&site("full_transcript_auth = yes", ""));
    assert!(rendered.contains("`require`"), "{rendered}");
}

#[test]
fn paths_are_probed_unless_that_is_switched_off() {
    let read = |keys: &str| good(&site(keys, "")).ike.connections[0].path_mtu_probe;
    assert!(read("") && read("path_mtu_probe = yes"));
    assert!(!read("path_mtu_probe = no"));
    let rendered = refusal(&site("path_mtu_probe = 1400", ""));
    assert!(rendered.contains("path_mtu_probe"), "{rendered}");
}

#[test]
fn a_peer_is_asked_by_traffic_unless_a_delay_is_set() {
    let read = |keys: &str| {
        let loaded = good(&site(keys, ""));
        let site = &loaded.ike.connections[0];
        let seconds = |time: std::time::Duration| time.as_secs();
        let (delay, timeout) = (seconds(site.dpd_delay), seconds(site.dpd_timeout));
        (delay, site.dpd_by_traffic, timeout)
    };
    assert_eq!(read(""), (30, true, 10));
    assert_eq!(read("dpd_timeout = 60s"), (30, true, 60));
    assert_eq!(read("dpd_delay = 0"), (0, false, 0));
    // As in strongSwan, retransmissions decide.
    assert_eq!(read("dpd_delay = 5s"), (5, false, 0));
    assert_eq!(read("dpd_delay = 5s\n dpd_timeout = 9s"), (5, false, 9));
    assert_eq!(read("dpd_delay = 5s\n dpd_timeout = 0"), (5, false, 0));
}

#[test]
fn crash_detection_can_be_turned_off() {
    let read = |keys: &str| {
        let text = format!("gateway {{ {keys} }}\n{}", site("", ""));
        let loaded = good(&text);
        let folder = loaded.gateway.state_directory;
        (loaded.ike.quick_crash_detection, folder)
    };
    assert_eq!(read(""), (true, None));
    let keys = "quick_crash_detection = no\n state_directory = /var/lib/esplanade";
    assert_eq!(read(keys), (false, Some("/var/lib/esplanade".into())));
    let text = format!("gateway {{ state_directory = here }}\n{}", site("", ""));
    assert!(refusal(&text).contains("no absolute path"));
}

#[test]
fn lifetimes_of_an_ike_sa_have_defaults_of_each_other() {
    for (keys, expected) in [
        ("", [14_400, 0, 1440, 1440]),
        ("reauth_time = 3h", [0, 10_800, 1080, 1080]),
        ("reauth_time = 0", [14_400, 0, 1440, 1440]),
        ("reauth_time = 1h\n rekey_time = 4m", [240, 3600, 360, 120]),
        ("reauth_time = 1h\n over_time = 1m", [0, 3600, 60, 60]),
    ] {
        let loaded = good(&site(keys, ""));
        let connection = &loaded.ike.connections[0];
        let times = [
            connection.rekey_time,
            connection.reauth_time,
            connection.over_time,
            connection.rand_time,
        ];
        assert_eq!(times.map(|time| time.as_secs()), expected, "{keys}");
    }
    let bad = refusal(&site("reauth_time = 1h\n rand_time = 2h", ""));
    assert!(
        bad.contains("`rand_time` is not smaller than `reauth_time`"),
        "{bad}"
    );
}

/// Appliances write these whether or not somebody wants them.
#[test]
fn what_templates_write_is_taken() {
    let templates = |keys: &str| {
        site("", keys).replace("secret = s", "secret = 0123456789abcdef")
            + "pools {\n}\nauthorities {\n}\n"
    };
    let quiet = good(&templates("hw_offload = auto\n ipcomp = no\n reqid = 0"));
    assert!(quiet.warnings.is_empty(), "{}", quiet.warnings);
    for (key, why) in [
        ("reqid = 20", "ties each policy to its SAs"),
        ("ipcomp = 1", "not compressed"),
    ] {
        let shown = good(&templates(key)).warnings.render(false);
        let name = key.split(' ').next().unwrap_or_default();
        let told = shown.contains(&format!("`{name}`: ")) && shown.contains(why);
        assert!(told && shown.matches("warning: ").count() == 1, "{shown}");
    }
    for (key, instead) in [
        ("reqid = x", "remove it"),
        ("ipcomp = maybe", "remove it"),
        ("hw_offload = yes", "set it to `auto` or `no`"),
        ("policies = no", "`if_id_in` and `if_id_out`"),
    ] {
        let shown = refusal(&templates(key));
        assert!(shown.contains(instead), "{shown}");
    }
    let shown = refusal(&(site("", "") + "pools { a { addrs = 10.9.0.0/24 } }\n"));
    assert!(shown.contains("`pools` is not supported yet"), "{shown}");
}
