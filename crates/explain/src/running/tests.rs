//! Tests of explanations of packets in a fake gateway.

use esplanade_crypto::Transform;
use esplanade_ipsec::sa::{Path, SaParameters};
use esplanade_ipsec::selector::{AddressRange, NextLayer, PortRange, SelectorSet};
use esplanade_ipsec::spd::SpdEntry;

use super::*;

const WEB: &str = "tcp 10.1.0.5:40000 -> 10.2.0.9:443";
const SITE: PolicyId = PolicyId(7);

/// A Protect policy between two networks, behind a Bypass policy.
struct Site {
    spd: Spd,
    policy: Arc<Policy>,
    path: Option<KnownMtu>,
    inbound: Vec<Arc<InboundSa>>,
    reports_discards: bool,
    asks: bool,
    refusal: Option<&'static str>,
    last_refusal: Option<&'static str>,
    attempt: Option<&'static str>,
    one_way: Option<&'static str>,
    device: u16,
    led: Option<RoutedTo>,
    engine: Option<&'static str>,
}

fn net(text: &str, bits: u8) -> AddressRange {
    AddressRange::from_prefix(text.parse().unwrap(), bits).unwrap()
}

fn selectors() -> SelectorSet {
    let selector = Selector::between(net("10.1.0.0", 16), net("10.2.0.0", 16));
    SelectorSet::new(vec![selector]).unwrap()
}

impl Site {
    fn new() -> Self {
        let policy = Arc::new(Policy::new(SITE, "site/net"));
        let dns = Selector {
            protocol: NextLayer::Is(17),
            remote_ports: PortRange::Range(53, 53),
            ..Selector::between(net("10.1.0.0", 16), net("10.2.0.53", 32))
        };
        let dns = SelectorSet::new(vec![dns]).unwrap();
        let entries = vec![
            SpdEntry {
                name: "site/dns".into(),
                ..SpdEntry::new(dns, Action::Bypass)
            },
            SpdEntry {
                name: "site/net".into(),
                ..SpdEntry::new(selectors(), Action::Protect(Arc::clone(&policy)))
            },
        ];
        let mtu = 1500;
        Self {
            spd: Spd::new(entries),
            policy,
            path: Some(KnownMtu {
                mtu,
                by: KnownBy::Error,
            }),
            inbound: Vec::new(),
            reports_discards: false,
            asks: true,
            refusal: None,
            last_refusal: None,
            attempt: None,
            one_way: None,
            device: 9000,
            led: Some(RoutedTo::Tun),
            engine: None,
        }
    }

    fn report(&self, packet: &PacketSpec, inbound: bool) -> Report {
        let report = report(self, packet, inbound);
        let read = Report::read(&report.message());
        assert_eq!(read.as_ref(), Some(&report), "through the control socket");
        report
    }
}

impl Gateway for Site {
    fn spd(&self) -> &Spd {
        &self.spd
    }

    fn place(&self, policy: &str) -> String {
        format!("{policy}.conf:1")
    }

    fn state(&self, sa: &SaCommon, inbound: bool) -> Option<(String, &'static str)> {
        assert_eq!(inbound, sa.spi == 900);
        (sa.policy == SITE).then(|| ("site/net-1".to_owned(), "INSTALLED"))
    }

    fn one_way(&self, _: &SaCommon, _: bool) -> Option<String> {
        self.one_way.map(str::to_owned)
    }

    fn attempt(&self, _: PolicyId, _: u8) -> Option<String> {
        self.attempt.map(str::to_owned)
    }

    fn engine(&self, _: &SaCommon, _: bool) -> Option<String> {
        self.engine.map(str::to_owned)
    }

    fn path(&self, _: IpAddr) -> Option<KnownMtu> {
        self.path
    }

    fn inbound_sas(&self, policy: PolicyId) -> Vec<Arc<InboundSa>> {
        assert_eq!(policy, SITE);
        self.inbound.clone()
    }

    fn asks(&self, _policy: PolicyId) -> bool {
        self.asks
    }

    fn refusal(&self, _policy: PolicyId, _dscp: u8) -> Option<String> {
        self.refusal.map(str::to_owned)
    }

    fn last_refusal(&self, policy: &str) -> Option<String> {
        assert_eq!(policy, "site/net");
        self.last_refusal.map(str::to_owned)
    }

    fn interface_mtu(&self, _: u32) -> u16 {
        self.device
    }

    fn led(&self, _: &PacketSpec) -> Option<RoutedTo> {
        self.led.clone()
    }

    fn reassembles(&self) -> bool {
        true
    }

    fn reports_discards(&self) -> bool {
        self.reports_discards
    }

    fn now_ms(&self) -> u64 {
        1
    }
}

fn sa(spi: u32, policy: PolicyId, transform: Transform, with: fn(&mut SaParameters)) -> OutboundSa {
    let key = vec![7; transform.key_material_len()];
    OutboundSa::new(parameters(spi, policy, transform, &key, with)).unwrap()
}

fn parameters<'a>(
    spi: u32,
    policy: PolicyId,
    transform: Transform,
    key: &'a [u8],
    with: fn(&mut SaParameters),
) -> SaParameters<'a> {
    let path = Path {
        local: "192.0.2.1:0".parse().unwrap(),
        remote: "192.0.2.2:0".parse().unwrap(),
        udp_encap: false,
    };
    let mut parameters = SaParameters::new(spi, policy, transform, key, selectors(), path);
    with(&mut parameters);
    parameters
}

fn packet(text: &str) -> PacketSpec {
    PacketSpec::parse(&[text.to_owned()], false, 0).unwrap()
}

fn sized(len: u16, dont_fragment: bool) -> PacketSpec {
    PacketSpec {
        len: Some(len),
        dont_fragment,
        ..packet(WEB)
    }
}

fn assert_says(report: &Report, lines: &[&str]) {
    let text = report.to_string();
    for line in lines {
        assert!(text.contains(line), "{line:?} is not in\n{text}");
    }
}

#[test]
fn the_engine_of_an_sa_is_named() {
    let mut site = Site::new();
    let sa = sa(0xabc, SITE, Transform::ESP[0], |_| {});
    site.policy.install(Arc::new(sa));
    let names = |site: &Site| {
        let text = site.report(&packet(WEB), false).to_string();
        text.contains("no kernel of the GPU seals it")
    };
    assert!(!names(&site));
    site.engine = Some("cpu: no kernel of the GPU seals it");
    assert!(names(&site));
}

#[test]
fn without_an_sa_the_packet_asks_for_one() {
    let site = Site::new();
    let report = site.report(&packet(WEB), false);
    assert_eq!((&*report.decision, report.hops.len()), ("protect", 0));
    assert_says(
        &report,
        &[
            "site/net (site/net.conf:1)",
            "dropped (no-sa), and it asks for one: 10.1.0.0/16 === 10.2.0.0/16",
        ],
    );
    let Decision::Acquire(acquire) = site.spd.outbound(&packet(WEB).flow(false)) else {
        panic!("no SA is up")
    };
    acquire
        .raise(&packet(WEB).flow(false))
        .expect("explaining has asked for nothing");
    assert_says(
        &site.report(&packet(WEB), false),
        &["and one has been asked for"],
    );

    let site = Site {
        refusal: Some("too narrow"),
        last_refusal: Some("its secret is another"),
        ..site
    };
    let refused = "dropped (no-sa), and it asks for none now: 10.1.0.0/16 === 10.2.0.0/16";
    let report = site.report(&packet(WEB), false);
    assert_says(&report, &[refused, "too narrow", "its secret is another"]);
}

#[test]
fn a_policy_that_waits_for_a_command_says_so() {
    let site = Site {
        asks: false,
        last_refusal: Some("the peer was refused"),
        ..Site::new()
    };
    let report = site.report(&packet(WEB), false);
    assert_says(
        &report,
        &[
            "dropped (no-sa), and asks for none (start_action = none); one would be for 10.1.0.0/16 === 10.2.0.0/16",
            "the peer was refused",
        ],
    );
}

#[test]
fn the_sa_and_its_header_are_described() {
    let site = Site::new();
    site.policy
        .install(Arc::new(sa(0xabc, SITE, Transform::ESP[0], |p| {
            p.esn = true;
            p.path.udp_encap = true;
            p.path.remote.set_port(4500);
            p.path.local.set_port(4500);
        })));
    let voice = PacketSpec {
        dscp: 46,
        ..sized(1400, true)
    };
    let report = site.report(&voice, false);
    let [hop] = &report.hops[..] else {
        panic!("{report}")
    };
    assert_eq!((&*hop.spi, &*hop.state), ("00000abc", "INSTALLED"));
    assert_eq!(
        (hop.dscp, hop.dont_fragment, hop.udp_encap),
        (46, true, true)
    );
    assert_eq!(&*hop.outcome, "sent");
    assert_eq!(hop.path_mtu, Some(1500));
    assert_says(
        &report,
        &[
            "site/net-1 with SPI 00000abc is INSTALLED: ESP in tunnel mode",
            ", ESN, for 10.1.0.0/16 === 10.2.0.0/16",
            "192.0.2.1 -> 192.0.2.2, in UDP, port 4500 to 4500, DSCP 46, Don't Fragment (as the packet), TTL 64",
            "the path takes 1500 bytes, as learned",
        ],
    );
    let other = site.report(&packet("tcp 10.1.0.5:1 -> 10.3.0.9:2"), false);
    assert_says(&other, &["drop reason no-policy"]);
}

#[test]
fn long_packets_are_cut_or_refused_as_the_worker_does_it() {
    let outcome = |site: &Site, packet: &PacketSpec| {
        let report = site.report(packet, false);
        (report.hops[0].outcome.clone(), report.to_string())
    };
    let mut site = Site::new();
    let copied = sa(1, SITE, Transform::ESP[0], |_| {});
    let fits = copied.inner_mtu(1500) as u16;
    site.policy.install(Arc::new(copied));
    assert_eq!(outcome(&site, &sized(fits, true)).0, "sent");
    let (too_big, text) = outcome(&site, &sized(fits + 1, true));
    assert_eq!(too_big, "too-big");
    assert!(text.contains(&format!("an ICMP error tells its sender {fits} bytes")));
    assert_eq!(
        outcome(&site, &sized(fits + 1, false)).0,
        "fragmented-after"
    );

    // The kernel refuses the first packet that meets an MTU which no packet has tested.
    site.path = Some(KnownMtu {
        mtu: 1500,
        by: KnownBy::Route,
    });
    let (_, text) = outcome(&site, &sized(fits + 1, true));
    assert!(text.contains("the kernel refuses the first such packet"));

    let set = sa(2, SITE, Transform::ESP[0], |p| p.tunnel.df = DfPolicy::Set);
    site.policy.install(Arc::new(set));
    assert_eq!(
        outcome(&site, &sized(fits + 1, false)).0,
        "fragmented-before"
    );
    let clear = sa(3, SITE, Transform::ESP[0], |p| {
        p.tunnel.df = DfPolicy::Clear
    });
    site.policy.install(Arc::new(clear));
    assert_eq!(outcome(&site, &sized(fits + 1, true)).0, "fragmented-after");
}

#[test]
fn the_tun_device_takes_less_than_the_path() {
    let mut site = Site::new();
    site.device = 1400;
    let copied = sa(1, SITE, Transform::ESP[0], |_| {});
    site.policy.install(Arc::new(copied));
    let report = |len, dont_fragment| site.report(&sized(len, dont_fragment), false);
    let fits = report(1400, true);
    assert_eq!(
        (fits.hops[0].outcome.as_str(), fits.hops[0].inner_mtu),
        ("sent", Some(1400))
    );
    assert_says(&fits, &["packets of up to 1400 fit in whole"]);
    let refused = report(1401, true);
    assert_eq!(refused.hops[0].outcome, "too-big");
    assert_says(&refused, &["tells its sender 1400 bytes"]);
    let cut = report(1440, false);
    assert_eq!(cut.hops[0].outcome, "fragmented-before");
    assert!(!cut.to_string().contains("which fit"), "{cut}");
}

#[test]
fn what_the_routes_lead_past_the_gateway_is_not_protected() {
    let mut site = Site::new();
    site.led = Some(RoutedTo::Past("lan0".to_owned()));
    let ping = packet("icmp 10.1.0.5 -> 10.2.0.9");
    let report = site.report(&ping, false);
    assert_eq!(report.decision, "elsewhere");
    assert_says(&report, &["lead it out of lan0"]);
    site.led = Some(RoutedTo::NotForwarded("lan1".to_owned()));
    let report = site.report(&ping, false);
    assert_eq!(report.decision, "elsewhere");
    assert_says(
        &report,
        &["comes in by lan1, and this machine does not forward"],
    );
    site.led = Some(RoutedTo::Nowhere);
    assert_says(&site.report(&ping, false), &["no route leads it anywhere"]);
    site.led = None;
    assert_eq!(site.report(&ping, false).decision, "protect");
}

#[test]
fn transport_mode_is_for_the_two_hosts() {
    let site = Site::new();
    let transport = sa(1, SITE, Transform::ESP[0], |p| p.mode = Mode::Transport);
    site.policy.install(Arc::new(transport));
    let report = site.report(&packet(WEB), false);
    assert_eq!(report.hops[0].outcome, "outside-sa-selectors");
}

#[test]
fn bundles_are_followed_from_sa_to_sa() {
    let mut site = Site::new();
    let around = Arc::new(Policy::new(PolicyId(8), "site/ah"));
    let inner = sa(1, SITE, Transform::ESP[0], |_| {}).through(around.id);
    site.policy.install(Arc::new(inner));
    let report = site.report(&sized(100, true), false);
    assert_says(&report, &["the SPD has no policy for the next SA"]);

    let mut entries = site.spd.entries().to_vec();
    entries.push(SpdEntry::new(
        selectors(),
        Action::Protect(Arc::clone(&around)),
    ));
    site.spd = Spd::new(entries);
    let report = site.report(&sized(100, true), false);
    assert_eq!(report.hops.len(), 1);
    assert_says(
        &report,
        &[
            "through an SA of site/ah",
            "none is up: the packet is dropped",
        ],
    );

    let ah = sa(2, PolicyId(8), Transform::AH[0], |p| {
        p.mode = Mode::Transport;
        let (local, remote) = (p.path.local.ip(), p.path.remote.ip());
        let ends = Selector::between(AddressRange::host(local), AddressRange::host(remote));
        p.selectors = SelectorSet::new(vec![ends]).unwrap();
    });
    let with_ah = |len| ah.outer_len(len) as u32;
    let esp_len = site.report(&sized(100, true), false).hops[0]
        .outer_len
        .unwrap();
    let expected = with_ah(esp_len as usize);
    around.install(Arc::new(ah));
    let report = site.report(&sized(100, true), false);
    let [esp, ah] = &report.hops[..] else {
        panic!("{report}")
    };
    assert_eq!((&*esp.protocol, &*ah.protocol), ("ESP", "AH"));
    assert_eq!(
        (&*ah.policy, &*ah.mode, &*ah.state),
        ("site/ah", "transport", "UNKNOWN")
    );
    assert_eq!(ah.outer_len, Some(expected));
    assert_eq!(ah.outcome, "sent");

    // A policy around itself has no end; the walk gives up, and so does its explanation.
    let endless = sa(3, PolicyId(8), Transform::ESP[0], |p| {
        let any = net("0.0.0.0", 0);
        p.selectors = SelectorSet::new(vec![Selector::between(any, any)]).unwrap();
    });
    around.install(Arc::new(endless.through(around.id)));
    let report = site.report(&sized(100, true), false);
    assert_says(&report, &["nested-too-deep"]);
}

#[test]
fn inbound_packets_need_an_sa_that_takes_them() {
    let mut site = Site::new();
    let back = packet("tcp 10.2.0.9:443 -> 10.1.0.5:40000");
    let report = site.report(&back, true);
    assert_eq!(report.decision, "discard");
    assert_says(&report, &["not-protected", "no SA of site/net is up"]);

    let key = vec![7; Transform::ESP[0].key_material_len()];
    let narrow = parameters(900, SITE, Transform::ESP[0], &key, |p| {
        let ends = Selector::between(net("10.1.0.0", 24), net("10.2.0.0", 24));
        p.selectors = SelectorSet::new(vec![ends]).unwrap();
    });
    site.inbound = vec![Arc::new(InboundSa::new(narrow).unwrap())];
    let report = site.report(&back, true);
    assert_eq!(report.hops[0].outcome, "accepted");
    let outside = packet("tcp 10.2.9.9:443 -> 10.1.0.5:40000");
    let report = site.report(&outside, true);
    assert_eq!(report.hops[0].outcome, "selector-mismatch");
    let dns = packet("udp 10.2.0.53:53 -> 10.1.0.5:40000");
    assert_eq!(site.report(&dns, true).decision, "bypass");
}

#[test]
fn a_silent_peer_is_told_of() {
    let mut site = Site::new();
    site.attempt = Some("connecting for 8 s");
    assert_says(&site.report(&packet(WEB), false), &["connecting for 8 s"]);
    site.one_way = Some("150 packets out, 0 in");
    let up = sa(0xabc, SITE, Transform::ESP[0], |_| {});
    site.policy.install(Arc::new(up));
    let report = site.report(&packet(WEB), false);
    assert_says(&report, &["150 packets out, 0 in"]);
    assert!(
        !report.to_string().contains("connecting"),
        "it needs no attempt"
    );
}

#[test]
fn fragments_wait_where_ports_decide() {
    let mut site = Site::new();
    let fragment = |text: &str| PacketSpec::parse(&[text.to_owned()], true, 0).unwrap();
    let report = site.report(&fragment("udp 10.1.0.5 -> 10.2.0.53"), false);
    assert_eq!(report.decision, "held");
    assert_says(&report, &["It waits until its datagram is whole"]);
    let report = site.report(&fragment("udp 10.1.0.5 -> 10.2.0.54"), false);
    assert_says(&report, &["dropped (no-sa)"]);

    let elsewhere = packet("udp 10.9.0.5:1 -> 10.2.0.53:53");
    let silent = site.report(&elsewhere, false).to_string();
    assert!(!silent.contains("its sender is told"), "{silent}");
    site.reports_discards = true;
    assert_says(
        &site.report(&elsewhere, false),
        &["its sender is told that it is prohibited"],
    );
}
