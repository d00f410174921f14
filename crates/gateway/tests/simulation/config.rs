//! The configurations of the simulated gateways, as text. A seed draws their shape, and operations change parts of them.

use std::fmt::Write as _;
use std::net::Ipv4Addr;

use esplanade_testkit::net::Rng;

/// The gateways: a branch, which may be behind a NAT, the hub, and another peer of the hub.
pub const BRANCH: usize = 0;
pub const HUB: usize = 1;
pub const OTHER: usize = 2;

pub const ADDRESSES: [Ipv4Addr; 3] = [
    Ipv4Addr::new(192, 0, 2, 1),
    Ipv4Addr::new(198, 51, 100, 1),
    Ipv4Addr::new(198, 51, 100, 99),
];

/// The connection between branch and hub, which operations are about.
pub const SITE: &str = "site";
/// The connection between the other peer and the hub, which nothing disturbs.
pub const BYSTANDER: &str = "bystander";

/// A child of [`SITE`]: its name, and its networks at the branch and at the hub.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChildPlan {
    pub name: &'static str,
    pub nets: [(&'static str, [u8; 4]); 2],
}

pub const CHILDREN: [ChildPlan; 2] = [
    ChildPlan {
        name: "net",
        nets: [
            ("10.1.0.0/16", [10, 1, 0, 7]),
            ("10.2.0.0/16", [10, 2, 0, 9]),
        ],
    },
    ChildPlan {
        name: "two",
        nets: [
            ("10.3.0.0/24", [10, 3, 0, 7]),
            ("10.4.0.0/24", [10, 4, 0, 9]),
        ],
    },
];

/// The hosts of [`BYSTANDER`]: at the hub and at the other peer.
pub const BYSTANDERS: [[u8; 4]; 2] = [[10, 2, 0, 9], [10, 9, 0, 7]];

/// A change of a configuration that operations make and take back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Edit {
    /// The connection is not there.
    NoSite,
    /// The second child is not there.
    NoTwo,
    /// The second child's traffic is discarded.
    DropTwo,
    /// The second child's traffic is not protected.
    PassTwo,
    /// The first child has smaller networks.
    NarrowNet,
    /// The first child has other suites first.
    OtherSuites,
    /// The first child has no suite that the peer takes.
    WrongSuites,
    /// The connection has a secret that the peer does not have.
    WrongSecret,
    /// The second child has another replay window.
    OtherWindow,
    /// There is one more child, which the peer does not know.
    MoreChildren,
    /// The connection asks its peer for life at other times.
    OtherDpd,
    /// The children have another order in the SPD.
    OtherOrder,
}

impl Edit {
    pub const ALL: [Self; 12] = [
        Self::NoSite,
        Self::NoTwo,
        Self::DropTwo,
        Self::PassTwo,
        Self::NarrowNet,
        Self::OtherSuites,
        Self::WrongSuites,
        Self::WrongSecret,
        Self::OtherWindow,
        Self::MoreChildren,
        Self::OtherDpd,
        Self::OtherOrder,
    ];
}

/// What a seed draws once for both ends of [`SITE`].
#[derive(Clone, Debug)]
pub struct Shape {
    /// The branch is behind a NAT, and the hub waits for it.
    pub nat: bool,
    encap: bool,
    start: [&'static str; 2],
    dpd_delay: u64,
    unique: &'static str,
    rekey_child: [u64; 2],
    rekey_packets: u64,
    rekey_ike: [u64; 2],
    suites: &'static str,
    replay_window: u32,
    dummies: u64,
    /// Packets that are too long for the path are cut before they are sealed.
    whole: bool,
    /// The second child is for UDP alone.
    only_udp: bool,
    populates: bool,
    quick_crash_detection: bool,
}

impl Shape {
    pub fn draw(rng: &mut Rng) -> Self {
        let nat = rng.chance(0.4);
        let start = |rng: &mut Rng| ["start", "trap", "trap|start"][rng.below(3) as usize];
        let seldom = |rng: &mut Rng, from: u64, span: u64| match rng.chance(0.3) {
            true => from + rng.below(span),
            false => 0,
        };
        Self {
            nat,
            encap: rng.chance(0.3),
            start: [
                start(rng),
                match (nat, rng.chance(0.5)) {
                    (false, true) => start(rng),
                    (false, false) => "trap",
                    (true, _) => "none",
                },
            ],
            dpd_delay: 6 + rng.below(10),
            unique: ["replace", "replace", "no"][rng.below(3) as usize],
            rekey_child: [seldom(rng, 15, 40), seldom(rng, 15, 40)],
            rekey_packets: seldom(rng, 12, 40),
            rekey_ike: [seldom(rng, 20, 40), seldom(rng, 20, 40)],
            suites: [
                "aes128gcm16, aes256gcm16",
                "aes128gcm16-esn, aes128gcm16-noesn",
                "aes128gcm16-x25519",
                "chacha20poly1305",
            ][rng.below(4) as usize],
            replay_window: [32, 64, 256][rng.below(3) as usize],
            dummies: [0, 0, 0, 1][rng.below(4) as usize],
            whole: rng.chance(0.5),
            only_udp: rng.chance(0.3),
            populates: rng.chance(0.2),
            quick_crash_detection: rng.chance(0.3),
        }
    }

    /// Tells whether a configuration with these changes protects the traffic of a child.
    pub fn protects(child: usize, edits: &[Edit]) -> bool {
        let of_two = [Edit::NoTwo, Edit::DropTwo, Edit::PassTwo];
        !edits.contains(&Edit::NoSite)
            && (child == 0 || !of_two.iter().any(|edit| edits.contains(edit)))
    }

    /// Tells whether a gateway can begin the connection.
    pub fn can_initiate(&self, at: usize) -> bool {
        at == BRANCH || !self.nat
    }

    /// Returns the text of a gateway's configuration.
    pub fn text(&self, at: usize, edits: &[Edit]) -> String {
        let mut text = String::from("gateway {\n");
        text += "retransmit_tries = 4\nretransmit_timeout = 1.0\nretransmit_base = 1.5\n";
        let detection = ["no", "yes"][usize::from(self.quick_crash_detection)];
        let _ = writeln!(
            text,
            "quick_crash_detection = {detection}\n}}\nconnections {{"
        );
        if at != OTHER && !edits.contains(&Edit::NoSite) {
            self.site(at, edits, &mut text);
        }
        if at != BRANCH {
            bystander(at, &mut text);
        }
        let site = match edits.contains(&Edit::WrongSecret) {
            true => "a secret that nobody else has",
            false => "a secret that both ends have",
        };
        let _ = writeln!(text, "}}\nsecrets {{");
        for (ends, secret) in [
            ([BRANCH, HUB], site),
            ([HUB, OTHER], "another secret of both ends"),
        ] {
            if ends.contains(&at) {
                let [a, b] = ends;
                let _ = writeln!(
                    text,
                    "ike-{a} {{\nid-1 = {a}.example\nid-2 = {b}.example\nsecret = \"{secret}\"\n}}"
                );
            }
        }
        text += "}\n";
        text
    }

    fn site(&self, at: usize, edits: &[Edit], text: &mut String) {
        let has = |edit| edits.contains(&edit);
        let peer = 1 - at;
        let remote = match self.can_initiate(at) {
            true => ADDRESSES[peer].to_string(),
            false => "%any".to_owned(),
        };
        let dpd_delay = self.dpd_delay + 3 * u64::from(has(Edit::OtherDpd));
        let (rekey_ike, unique) = (self.rekey_ike[at], self.unique);
        let encap = ["no", "yes"][usize::from(self.encap)];
        let _ = writeln!(
            text,
            "{SITE} {{\nlocal_addrs = {}\nremote_addrs = {remote}\n\
             proposals = aes128gcm16-prfsha256-x25519\nkeyingtries = 0\nencap = {encap}\n\
             dpd_delay = {dpd_delay}s\nrekey_time = {rekey_ike}s\nover_time = 60s\nunique = {unique}\n\
             local {{\nauth = psk\nid = {at}.example\n}}\nremote {{\nauth = psk\nid = {peer}.example\n}}\nchildren {{",
            ADDRESSES[at]
        );
        for child in CHILDREN {
            self.child(child, at, edits, text);
        }
        if has(Edit::MoreChildren) {
            let nets = [
                ["10.5.0.0/24", "10.6.0.0/24"],
                ["10.6.0.0/24", "10.5.0.0/24"],
            ][at];
            let _ = writeln!(
                text,
                "more {{\nlocal_ts = {}\nremote_ts = {}\nesp_proposals = aes128gcm16\n}}",
                nets[0], nets[1]
            );
        }
        *text += "}\n}\n";
    }

    fn child(&self, child: ChildPlan, at: usize, edits: &[Edit], text: &mut String) {
        let has = |edit| edits.contains(&edit);
        let is_two = child == CHILDREN[1];
        if is_two && has(Edit::NoTwo) {
            return;
        }
        let protocol = ["", "[udp]"][usize::from(is_two && self.only_udp)];
        let narrow = !is_two && has(Edit::NarrowNet);
        let [local, remote] = [at, 1 - at].map(|end| {
            let net = child.nets[end].0;
            let net = match narrow {
                true => net.replace("/16", "/24"),
                false => net.to_owned(),
            };
            format!("{net}{protocol}")
        });
        let _ = writeln!(
            text,
            "{} {{\nlocal_ts = {local}\nremote_ts = {remote}",
            child.name
        );
        let priority = 1 + u32::from(has(Edit::OtherOrder) != is_two);
        let _ = writeln!(text, "priority = {priority}");
        let unprotected = [(Edit::DropTwo, "drop"), (Edit::PassTwo, "pass")];
        if let Some((_, mode)) = unprotected.iter().find(|(edit, _)| is_two && has(*edit)) {
            let _ = writeln!(text, "mode = {mode}\nstart_action = trap\n}}");
            return;
        }
        let suites = match is_two {
            false if has(Edit::WrongSuites) => "aes192gcm16".to_owned(),
            false if has(Edit::OtherSuites) => format!("aes256gcm16, {}", self.suites),
            _ => self.suites.to_owned(),
        };
        let window = self.replay_window + u32::from(is_two && has(Edit::OtherWindow)) * 32;
        let (start, rekey_time) = (self.start[at], self.rekey_child[at]);
        let then = ["start", "trap"][usize::from(start == "trap")];
        let _ = writeln!(
            text,
            "esp_proposals = {suites}\nreplay_window = {window}\nrekey_time = {rekey_time}s"
        );
        if start != "none" {
            let _ = writeln!(
                text,
                "start_action = {start}\ndpd_action = {then}\nclose_action = {then}"
            );
        }
        if rekey_time > 0 {
            let _ = writeln!(text, "life_time = {}s\nrand_time = 5s", rekey_time + 60);
        }
        if self.rekey_packets > 0 && !is_two {
            let _ = writeln!(
                text,
                "rekey_packets = {}\nlife_packets = {}\nrand_packets = 4",
                self.rekey_packets,
                self.rekey_packets + 1000
            );
        }
        if self.whole {
            *text += "copy_df = set\n";
        }
        if self.dummies > 0 && is_two {
            let _ = writeln!(text, "tfc_dummies = {}", self.dummies);
        }
        if self.populates && is_two && start == "trap" {
            *text += "pfp = local_addr, remote_addr\n";
        }
        *text += "}\n";
    }
}

fn bystander(at: usize, text: &mut String) {
    let peer = HUB + OTHER - at;
    let [local, remote] = match at {
        HUB => ["10.2.0.0/16", "10.9.0.0/16"],
        _ => ["10.9.0.0/16", "10.2.0.0/16"],
    };
    let _ = writeln!(
        text,
        "{BYSTANDER} {{\nlocal_addrs = {}\nremote_addrs = {}\n\
         proposals = aes128gcm16-prfsha256-x25519\nkeyingtries = 0\ndpd_delay = 10s\nrekey_time = 0s\nunique = replace\n\
         local {{\nauth = psk\nid = {at}.example\n}}\nremote {{\nauth = psk\nid = {peer}.example\n}}\n\
         children {{\nbystander {{\nlocal_ts = {local}\nremote_ts = {remote}\nesp_proposals = aes128gcm16\n\
         rekey_time = 0s\nstart_action = trap|start\ndpd_action = start\nclose_action = start\n}}\n}}\n}}",
        ADDRESSES[at], ADDRESSES[peer]
    );
}
