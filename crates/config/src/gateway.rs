//! Reads the section `gateway`, which swanctl.conf does not have. Its settings hold for all
//! connections.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::PathBuf;
use std::time::Duration;

use esplanade_crypto::Tier;
use esplanade_ike::config::{Limits, Ports, Retransmission};
use esplanade_prefix::Prefix;

use super::ace::{self, AceConfig};
use super::diagnostics::{Diagnostics, quoted};
use super::engine::{EngineKind, EnginePlace, EngineSettings, Given, engine, engine_section};
use super::gpu::{self, GpuConfig};
use super::interface::{self, InterfaceConfig, device_name, interface_name};
use super::mark::InterfaceMarks;
use super::tokens::{self, Pkcs11Module};
use super::tree::SectionNode;
use super::value::{
    ValueError, ValueResult, absolute, count, given, number, read, read_list, switch, time, word,
};
use super::{DEFAULT_SOCKET, schema};

/// Settings of the gateway as a whole.
#[derive(Clone, Debug, PartialEq)]
pub struct GatewayConfig {
    /// Own addresses that receive packets. An unspecified address stands for all of its IP version.
    pub listen: Vec<IpAddr>,
    pub ports: Ports,
    /// Use ESP as IP protocol 50 where there is no NAT.
    pub raw_esp: bool,
    /// Links on which ESP bypasses the kernel's network stack, by AF_XDP.
    pub xdp: Vec<String>,
    /// Name of the common TUN device.
    pub tun: String,
    pub mtu: u16,
    /// TUN devices besides the common one.
    pub interfaces: Vec<InterfaceConfig>,
    /// Number of data workers.
    pub workers: usize,
    /// Number of threads for IKE's work with public keys. `None` starts one for each processor but one.
    pub ike_threads: Option<usize>,
    /// The number of flows of each IP version that a worker's flow cache holds.
    pub flow_cache_size: usize,
    pub engine: EngineKind,
    /// Number of helper threads of the pool. With `engine = cpu`, a number adds a pool to the CPU
    /// engine. `None` starts one thread for each processor that no worker occupies.
    pub pool_threads: Option<usize>,
    /// The GPU, for all SAs or for some of them. `None` means that there is none.
    pub gpu: Option<GpuConfig>,
    /// The adaptive cryptographic engine, for all SAs or for some of them. `None` means that there is none.
    pub ace: Option<AceConfig>,
    /// The sections of engines that were added.
    pub added: Vec<EngineSettings>,
    /// Tier of the CPU engine. `None` means the best tier of this machine.
    pub cpu_tier: Option<Tier>,
    /// Number of the routing table for the routes into the TUN device.
    pub table: u32,
    /// Firewall mark of the gateway's own packets.
    pub mark: u32,
    /// Path of the control socket.
    pub socket: PathBuf,
    pub log_level: String,
    /// Length of the IP datagrams that IKE messages are cut to fit in. Zero means what RFC 7383
    /// recommends.
    pub fragment_size: u16,
    /// Interval between NAT keepalives. Zero sends none.
    pub nat_keepalive: Duration,
    /// Prove and check identities over both messages of IKE_SA_INIT, where the peer does so too.
    pub full_transcript_auth: bool,
    /// Give peers tokens that show a crash of this gateway, and take theirs (RFC 6290).
    pub quick_crash_detection: bool,
    /// An IKE SA ends with its only child SA, if that one is closed for want of traffic.
    pub inactivity_close_ike: bool,
    /// CRLs and answers of OCSP responders are fetched where certificates or authorities name them.
    pub fetch_revocation: bool,
    /// Prefixes of special or own addresses to which URIs in certificates may lead.
    pub fetch_allow: Vec<Prefix>,
    /// The folder for files that outlive the gateway. `None` means that of the service manager, if there is one.
    pub state_directory: Option<PathBuf>,
    pub retransmission: Retransmission,
    pub limits: Limits,
    /// Lower the segment size that TCP connections agree on to what fits through the tunnels.
    pub mss_clamp: bool,
    /// Reassemble fragments where a policy selects by port.
    pub reassemble: bool,
    /// Send an ICMP error to the sender of a packet that a policy discards.
    pub icmp_unreachable: bool,
    /// The fate of protected traffic when the gateway stops.
    pub on_stop: OnStop,
    /// Restrict the running gateway to the system calls and files that it uses.
    pub confine: bool,
    /// The PKCS#11 modules.
    pub modules: Vec<Pkcs11Module>,
    /// Files and folders that a reload may read, besides those that were read at the start.
    pub readable: Vec<PathBuf>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnStop {
    /// The traffic is dropped until the gateway runs again.
    #[default]
    Closed,
    /// The traffic takes the ordinary routes, in the clear.
    Open,
}

impl Default for GatewayConfig {
    fn default() -> Self {
        Self {
            listen: vec![Ipv4Addr::UNSPECIFIED.into(), Ipv6Addr::UNSPECIFIED.into()],
            ports: Ports::default(),
            raw_esp: true,
            xdp: Vec::new(),
            tun: "esp0".to_owned(),
            mtu: 1400,
            interfaces: Vec::new(),
            workers: 1,
            flow_cache_size: 65_536,
            engine: EngineKind::default(),
            ike_threads: None,
            pool_threads: None,
            gpu: None,
            ace: None,
            added: Vec::new(),
            cpu_tier: None,
            // strongSwan uses the same table, so administrators find what they know.
            table: 220,
            mark: 220,
            socket: PathBuf::from(DEFAULT_SOCKET),
            log_level: "info".to_owned(),
            fragment_size: 1280,
            nat_keepalive: Duration::from_secs(20),
            full_transcript_auth: true,
            quick_crash_detection: true,
            inactivity_close_ike: false,
            fetch_revocation: true,
            fetch_allow: Vec::new(),
            state_directory: None,
            retransmission: Retransmission::default(),
            limits: Limits::default(),
            mss_clamp: true,
            reassemble: true,
            icmp_unreachable: false,
            on_stop: OnStop::default(),
            confine: true,
            modules: Vec::new(),
            readable: Vec::new(),
        }
    }
}

impl GatewayConfig {
    /// Tells whether there are helper threads, for all SAs or for some of them.
    pub fn has_pool(&self) -> bool {
        self.engine == EngineKind::POOL || self.pool_threads.is_some()
    }

    /// Returns what says which engines there are.
    pub fn engines(&self) -> Given<'_> {
        Given {
            engine: self.engine,
            has_pool: self.has_pool(),
            has_gpu: self.gpu.is_some(),
            has_ace: self.ace.is_some(),
            can_share: self.gpu.is_some() || self.added.iter().any(EngineSettings::can_share),
            settings: &self.added,
        }
    }

    /// Returns the section of an engine that was added ([`add_engine`](super::add_engine)).
    pub fn engine_settings(&self, engine: &str) -> Option<&EngineSettings> {
        let mut sections = self.added.iter();
        sections.find(|section| section.engine == engine)
    }

    /// Tells whether packets for this own address are received.
    pub(crate) fn listens_at(&self, own: IpAddr) -> bool {
        let takes =
            |at: &IpAddr| *at == own || at.is_unspecified() && at.is_ipv4() == own.is_ipv4();
        self.listen.iter().any(takes)
    }

    /// Returns the `if_id` of the TUN device with this name. Zero is the common device.
    pub fn interface_id(&self, name: &str) -> Option<u32> {
        let mut interfaces = self.interfaces.iter();
        match interfaces.find(|interface| interface.name == name) {
            Some(interface) => Some(interface.if_id),
            None => (self.tun == name).then_some(0),
        }
    }

    /// Returns the name of the TUN device with this `if_id`.
    pub fn interface_name(&self, if_id: u32) -> &str {
        let mut others = self.interfaces.iter();
        let own = others.find(|other| other.if_id == if_id);
        own.map_or(&self.tun, |own| &own.name)
    }

    /// Returns the device that was made for these marks.
    pub(crate) fn interface_for(&self, marks: InterfaceMarks) -> Option<&InterfaceConfig> {
        self.interfaces.iter().find(|one| one.marks == marks)
    }

    /// The mark of ICMP errors about packets of policies.
    pub fn error_mark(&self) -> u32 {
        self.mark ^ ERROR_BIT
    }

    /// The devices that were made for marks.
    pub fn marked_interfaces(&self) -> impl Iterator<Item = &InterfaceConfig> {
        let interfaces = self.interfaces.iter();
        interfaces.filter(|interface| interface.marks.are_given())
    }

    /// Returns this configuration with the devices for marks of another.
    pub fn with_marks_of(&self, other: &Self) -> Self {
        let unmarked = self.interfaces.iter().filter(|one| !one.marks.are_given());
        let marked = other.marked_interfaces().map(|one| InterfaceConfig {
            mtu: self.mtu,
            ..one.clone()
        });
        Self {
            interfaces: unmarked.cloned().chain(marked).collect(),
            ..self.clone()
        }
    }

    /// Returns the MTU of the TUN device with this `if_id`.
    pub fn interface_mtu(&self, if_id: u32) -> u16 {
        let mut others = self.interfaces.iter();
        let own = others.find(|other| other.if_id == if_id);
        own.map_or(self.mtu, |own| own.mtu)
    }
}

pub(crate) fn gateway(node: &SectionNode, diagnostics: &mut Diagnostics) -> GatewayConfig {
    schema::check(node, &schema::GATEWAY, false, diagnostics);
    let d = diagnostics;
    let standard = GatewayConfig::default();
    let port = |text: &str| number(text, 1..=65_535).map(|port| port as u16);
    let threads = |text: &str| number(text, 1..=256).map(|threads| threads as usize);
    let mut gateway = GatewayConfig {
        listen: read_list(node, "listen", d, address).unwrap_or(standard.listen),
        ports: Ports {
            ike: read(node, "port", d, port).unwrap_or(standard.ports.ike),
            nat_t: read(node, "port_nat_t", d, port).unwrap_or(standard.ports.nat_t),
        },
        raw_esp: read(node, "raw_esp", d, switch).unwrap_or(standard.raw_esp),
        xdp: read_list(node, "xdp", d, interface_name).unwrap_or_default(),
        tun: read(node, "tun", d, device_name).unwrap_or(standard.tun),
        // IPv6 needs an MTU of at least 1280 bytes (RFC 8200 §5).
        mtu: read(node, "mtu", d, |text| number(text, 1280..=65_535))
            .map_or(standard.mtu, |mtu| mtu as u16),
        interfaces: Vec::new(),
        workers: read(node, "workers", d, threads).unwrap_or(standard.workers),
        ike_threads: read(node, "ike_threads", d, threads),
        flow_cache_size: read(node, "flow_cache_size", d, |text| {
            number(text, 1024..=16_777_216)
        })
        .map_or(standard.flow_cache_size, |flows| flows as usize),
        engine: read(node, "engine", d, engine).unwrap_or_default(),
        pool_threads: read(node, "pool_threads", d, threads),
        gpu: None,
        ace: None,
        added: Vec::new(),
        cpu_tier: read(node, "cpu_tier", d, |text| {
            word(text, &Tier::ALL.map(|tier| (tier.name(), tier)))
        }),
        table: read(node, "table", d, |text| number(text, 1..=u32::MAX.into()))
            .map_or(standard.table, |table| table as u32),
        mark: read(node, "mark", d, own_mark).unwrap_or(standard.mark),
        socket: read(node, "socket", d, socket).unwrap_or(standard.socket),
        log_level: read(node, "log_level", d, log_level).unwrap_or(standard.log_level),
        fragment_size: read(node, "fragment_size", d, fragment_size)
            .unwrap_or(standard.fragment_size),
        nat_keepalive: read(node, "nat_keepalive", d, time).unwrap_or(standard.nat_keepalive),
        full_transcript_auth: read(node, "full_transcript_auth", d, switch)
            .unwrap_or(standard.full_transcript_auth),
        quick_crash_detection: read(node, "quick_crash_detection", d, switch)
            .unwrap_or(standard.quick_crash_detection),
        inactivity_close_ike: read(node, "inactivity_close_ike", d, switch)
            .unwrap_or(standard.inactivity_close_ike),
        fetch_revocation: read(node, "fetch_revocation", d, switch)
            .unwrap_or(standard.fetch_revocation),
        fetch_allow: read_list(node, "fetch_allow", d, prefix).unwrap_or_default(),
        state_directory: read(node, "state_directory", d, absolute),
        retransmission: retransmission(node, d),
        limits: limits(node, d),
        mss_clamp: read(node, "mss_clamp", d, switch).unwrap_or(standard.mss_clamp),
        reassemble: read(node, "reassemble", d, switch).unwrap_or(standard.reassemble),
        icmp_unreachable: read(node, "icmp_unreachable", d, switch)
            .unwrap_or(standard.icmp_unreachable),
        on_stop: read(node, "on_stop", d, on_stop).unwrap_or_default(),
        confine: read(node, "confine", d, switch).unwrap_or(standard.confine),
        modules: Vec::new(),
        readable: read_list(node, "readable", d, readable).unwrap_or_default(),
    };
    if let Some(section) = node.section("interfaces") {
        gateway.interfaces = interface::interfaces(section, &gateway.tun, gateway.mtu, d);
    }
    gateway.gpu = match node.section("gpu") {
        Some(section) => Some(gpu::gpu(section, d)),
        None => (gateway.engine == EngineKind::GPU).then(GpuConfig::default),
    };
    gateway.ace = node.section("ace").and_then(|section| ace::ace(section, d));
    if let Some(section) = node.section("pkcs11") {
        gateway.modules = tokens::modules(section, d);
    }
    if gateway.listen.is_empty() {
        gateway.listen = GatewayConfig::default().listen;
    }
    gateway.added = added_engines(node, d);
    // A section that is wrong has been told of.
    let is_told = gateway.engine == EngineKind::ACE && node.section("ace").is_some();
    if let Some(lack) = gateway.engine.lack(&gateway.engines())
        && !is_told
        && let Some(entry) = given(node, "engine")
    {
        let bad = ValueError::new(lack.what, lack.help);
        super::value::report("engine", bad, entry.value.at, d);
    }
    check_xdp(&gateway, node, d);
    check_device(&gateway, node, d);
    check_ports(&gateway, node, d);
    gateway
}

fn check_device(gateway: &GatewayConfig, node: &SectionNode, d: &mut Diagnostics) {
    if gateway.engine.place() == EnginePlace::Front
        && gateway.engine.lack(&gateway.engines()).is_none()
        && gateway.workers > 1
        && let Some(entry) = given(node, "workers")
    {
        let what = format!(
            "the device {} is driven by one worker",
            gateway.engine.name()
        );
        let bad = ValueError::new(what, "remove `workers`, or set `engine = cpu`");
        super::value::report("workers", bad, entry.value.at, d);
    }
}

fn check_ports(gateway: &GatewayConfig, node: &SectionNode, d: &mut Diagnostics) {
    if gateway.ports.ike == gateway.ports.nat_t
        && let Some(entry) = given(node, "port_nat_t").or(given(node, "port"))
    {
        let bad = ValueError::new(
            "`port` and `port_nat_t` are the same",
            "choose two ports; 500 and 4500 are usual",
        );
        super::value::report("port_nat_t", bad, entry.value.at, d);
    }
}

fn check_xdp(gateway: &GatewayConfig, node: &SectionNode, d: &mut Diagnostics) {
    let Some(entry) = given(node, "xdp") else {
        return;
    };
    let twice = (1..gateway.xdp.len()).find(|at| gateway.xdp[..*at].contains(&gateway.xdp[*at]));
    let bad = match twice.and_then(|at| gateway.xdp.get(at)) {
        Some(link) => ValueError::new(
            format!("{} is there twice", quoted(link)),
            "name each link once",
        ),
        None if !gateway.raw_esp => ValueError::new(
            "with `raw_esp = no` there is no ESP without UDP",
            "remove `xdp`, or `raw_esp`",
        ),
        None => return,
    };
    super::value::report("xdp", bad, entry.value.at, d);
}

/// Reads the sections of engines that were added.
fn added_engines(node: &SectionNode, d: &mut Diagnostics) -> Vec<EngineSettings> {
    let mut settings = Vec::new();
    for section in node.sections() {
        let Some((engine, keys)) = engine_section(&section.name.value) else {
            continue;
        };
        let what = "the section of this engine";
        let keys_of_it = schema::Schema {
            what,
            keys,
            ..schema::EMPTY
        };
        schema::check(section, &keys_of_it, false, d);
        let value = |key: &&'static str| {
            let text = read(section, key, d, |text| Ok(text.to_owned()));
            Some((*key, text?))
        };
        let values = keys.iter().filter_map(value).collect();
        settings.push(EngineSettings { engine, values });
    }
    settings.sort_unstable_by_key(|section| section.engine);
    settings
}

fn retransmission(node: &SectionNode, d: &mut Diagnostics) -> Retransmission {
    let standard = Retransmission::default();
    Retransmission {
        tries: read(node, "retransmit_tries", d, |text| number(text, 1..=20))
            .map_or(standard.tries, |tries| tries as u32),
        timeout: read(node, "retransmit_timeout", d, fraction(0.1, 60.0))
            .map_or(standard.timeout, Duration::from_secs_f64),
        base: read(node, "retransmit_base", d, fraction(1.0, 4.0)).unwrap_or(standard.base),
    }
}

fn limits(node: &SectionNode, d: &mut Diagnostics) -> Limits {
    let standard = Limits::default();
    let mut most = |key: &str, standard: usize| {
        read(node, key, d, |text| number(text, 1..=1_000_000)).map_or(standard, |n| n as usize)
    };
    Limits {
        half_open_max: most("half_open_max", standard.half_open_max),
        half_open_per_source_max: most(
            "half_open_per_source_max",
            standard.half_open_per_source_max,
        ),
        half_open_per_network_max: most(
            "half_open_per_network_max",
            standard.half_open_per_network_max,
        ),
        ike_sas_per_peer_max: most("ike_sas_per_peer_max", standard.ike_sas_per_peer_max),
        children_per_sa_max: most("child_sas_per_ike_sa_max", standard.children_per_sa_max),
        children_per_peer_max: most("child_sas_per_peer_max", standard.children_per_peer_max),
        selectors_per_peer_max: most("selectors_per_peer_max", standard.selectors_per_peer_max),
        child_requests_per_second: most(
            "child_requests_per_second",
            standard.child_requests_per_second as usize,
        ) as u32,
        half_open_timeout: read(node, "half_open_timeout", d, fraction(1.0, 600.0))
            .map_or(standard.half_open_timeout, Duration::from_secs_f64),
        cookie_threshold: read(node, "cookie_threshold", d, count)
            .map_or(standard.cookie_threshold, |n| n as usize),
        ..standard
    }
}

/// Every IPv4 host takes datagrams of 576 bytes (RFC 791 §3.1).
fn fragment_size(text: &str) -> ValueResult<u16> {
    const SHORTEST: u64 = 576;
    match number(text, 0..=65_535)? {
        0 => Ok(0),
        size if size >= SHORTEST => Ok(size as u16),
        size => Err(ValueError::new(
            format!("IP datagrams of {size} bytes are too short for IKE"),
            format!("write a length from {SHORTEST} to 65535, or 0 for what RFC 7383 recommends"),
        )),
    }
}

fn on_stop(text: &str) -> ValueResult<OnStop> {
    word(text, &[("closed", OnStop::Closed), ("open", OnStop::Open)])
}

fn address(text: &str) -> ValueResult<IpAddr> {
    match text {
        "%any" | "%any4" => Ok(Ipv4Addr::UNSPECIFIED.into()),
        "%any6" => Ok(Ipv6Addr::UNSPECIFIED.into()),
        _ => {
            let parsed = text.parse().ok();
            let bad = || {
                let what = format!("{} is not the IP address of a host", quoted(text));
                ValueError::new(what, "write own addresses, such as 192.0.2.1")
            };
            parsed
                .filter(|ip: &IpAddr| !ip.is_multicast())
                .ok_or_else(bad)
        }
    }
}

/// A path that reloads may read. The whole file system would leave nothing of the confinement.
fn readable(text: &str) -> ValueResult<PathBuf> {
    let path = absolute(text)?;
    let bad =
        |what: &str, help: &str| Err(ValueError::new(format!("{} {what}", quoted(text)), help));
    match path.canonicalize() {
        Err(error) => bad(
            &format!("cannot be used: {error}"),
            "make it before the gateway starts",
        ),
        Ok(real) if real.parent().is_none() => bad(
            "is the whole file system",
            "name the folders that a reload reads, or set `confine = no`",
        ),
        Ok(_) => Ok(path),
    }
}

/// The bit by which the mark of ICMP errors differs from that of the gateway's own packets.
const ERROR_BIT: u32 = 1 << 31;

/// The mark of the gateway's own packets.
fn own_mark(text: &str) -> ValueResult<u32> {
    const OTHER: &str = "write another 32-bit number, such as 0x20";
    match mark(text)? {
        0 => Err(ValueError::new(
            "all packets that nobody has marked have the mark 0",
            OTHER,
        )),
        ERROR_BIT => Err(ValueError::new(
            "ICMP errors about protected packets would get the mark 0, which all packets have that nobody has marked",
            OTHER,
        )),
        mark => Ok(mark),
    }
}

fn prefix(text: &str) -> ValueResult<Prefix> {
    let parsed = match text.split_once('/') {
        Some((address, length)) => address.parse().ok().zip(length.parse().ok()),
        None => text
            .parse()
            .ok()
            .map(|address: IpAddr| (address, Prefix::host(address).length())),
    };
    let prefix = parsed.and_then(|(address, length)| Prefix::new(address, length));
    prefix.ok_or_else(|| {
        ValueError::new(
            format!("{} is not a prefix", quoted(text)),
            "write prefixes or addresses, such as 127.0.0.0/8 or ::1",
        )
    })
}

pub(crate) fn mark(text: &str) -> ValueResult<u32> {
    let parsed = match text.strip_prefix("0x") {
        Some(hex) => u32::from_str_radix(hex, 16).ok(),
        None => text.parse().ok(),
    };
    parsed.ok_or_else(|| {
        ValueError::new(
            format!("{} is not a mark", quoted(text)),
            "write a 32-bit number, such as 0x20",
        )
    })
}

fn socket(text: &str) -> ValueResult<PathBuf> {
    // `sun_path` holds 108 bytes with the final zero, and bind uses a temporary name that is
    // longer.
    const PATH_BYTES_MAX: usize = 90;
    let path = text.strip_prefix("unix://").unwrap_or(text);
    let path = absolute(path)?;
    if path.as_os_str().len() > PATH_BYTES_MAX {
        let what = format!("the path is longer than {PATH_BYTES_MAX} bytes");
        return Err(ValueError::new(
            what,
            "choose a shorter path; the system limits socket paths",
        ));
    }
    Ok(path)
}

fn log_level(text: &str) -> ValueResult<String> {
    match super::log_filter::parse(text) {
        Ok(_) => Ok(text.to_owned()),
        Err(refused) => Err(ValueError::new(
            refused.to_string(),
            "write error, warn, info, debug or trace, also for single parts: `info,esplanade_ike=debug`",
        )),
    }
}

fn fraction(from: f64, to: f64) -> impl Fn(&str) -> ValueResult<f64> {
    move |text| match text.trim_end_matches('s').parse::<f64>() {
        Ok(value) if (from..=to).contains(&value) => Ok(value),
        _ => {
            let what = format!("{} is not a number from {from} to {to}", quoted(text));
            Err(ValueError::new(
                what,
                format!("write a number from {from} to {to}, such as 1.8"),
            ))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefixes_are_read() {
        for (text, expected) in [
            ("127.0.0.0/8", Some("127.0.0.0/8")),
            ("192.0.2.77/24", Some("192.0.2.0/24")),
            ("::1", Some("::1/128")),
            ("127.0.0.1/33", None),
            ("127.0.0.1/", None),
            ("::/129", None),
            ("localhost", None),
        ] {
            let read = prefix(text).ok().map(|prefix| prefix.to_string());
            assert_eq!(read.as_deref(), expected, "{text}");
        }
    }
}
