//! The `explain` command of the control socket: a packet in this gateway as it is now.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Instant;

use esplanade_crypto::Tier;
use esplanade_ipsec::sa::{InboundSa, SaCommon, SaDirection};
use esplanade_ipsec::spd::{PolicyId, Spd};

use crate::config;
use crate::daemon::Daemon;
use crate::explain::running::{self, Gateway};
use crate::explain::{PacketSpec, Report};
use crate::net::{KnownMtu, RoutedTo};
use crate::vici::Section;
use crate::vici::server::Request;
use esplanade_engines::EngineHost;

/// Most bytes of a packet's text. The longest text has two IPv6 addresses with ports.
const SPEC_BYTES_MAX: usize = 256;

/// The question of an `explain` command.
struct Question {
    packet: PacketSpec,
    inbound: bool,
}

struct View<'a> {
    daemon: &'a Daemon,
    spd: Arc<Spd>,
}

impl Daemon {
    pub(in crate::daemon) fn explain(&self, request: Request) {
        match self.question(&request.message) {
            Ok(question) => {
                let report = self.answer(&question);
                request.reply(report.message());
            }
            Err(why) => request.fail(why),
        }
    }

    fn question(&self, message: &Section) -> Result<Question, String> {
        let spec = message.text("packet").ok_or("`packet` is missing")?;
        if spec.len() > SPEC_BYTES_MAX {
            return Err(format!("`packet` is longer than {SPEC_BYTES_MAX} bytes"));
        }
        let dscp = match message.text("dscp") {
            None => 0,
            Some(text) => config::dscp(text).ok_or("`dscp` is not a DSCP")?,
        };
        let fragment = switch(message, "fragment")?;
        let mut packet = PacketSpec::parse(&[spec.to_owned()], fragment, dscp)
            .map_err(|failure| failure.what)?;
        packet.dont_fragment |= switch(message, "dont-fragment")?;
        if let Some(text) = message.text("length") {
            packet.set_len(text)?;
        }
        if let Some(name) = message.text("interface") {
            let id = self.loaded.gateway.interface_id(name);
            packet.interface = id.ok_or("`interface` is not one of the gateway's")?;
        }
        let inbound = match message.text("direction") {
            None | Some("out") => false,
            Some("in") => true,
            Some(_) => return Err("`direction` is neither `in` nor `out`".to_owned()),
        };
        Ok(Question { packet, inbound })
    }

    fn answer(&self, question: &Question) -> Report {
        let view = View {
            daemon: self,
            spd: self.plane.database().spd(),
        };
        running::report(&view, &question.packet, question.inbound)
    }
}

impl Gateway for View<'_> {
    fn spd(&self) -> &Spd {
        &self.spd
    }

    fn place(&self, policy: &str) -> String {
        self.daemon.loaded.place_of(policy).unwrap_or_default()
    }

    fn state(&self, sa: &SaCommon, inbound: bool) -> Option<(String, &'static str)> {
        let direction = direction(inbound);
        let (child, _) = self.daemon.join.child_of(direction, sa.policy, sa.spi)?;
        let ike_sa = self.daemon.endpoint.status_around(child)?;
        let connection = ike_sa.connection.as_deref().unwrap_or("(unnamed)");
        let own = ike_sa.children.iter().find(|one| one.id == child)?;
        let name = format!("{connection}/{}-{}", own.name, child.0);
        Some((name, own.state.name()))
    }

    fn one_way(&self, sa: &SaCommon, inbound: bool) -> Option<String> {
        let (child, _) = (self.daemon.join).child_of(direction(inbound), sa.policy, sa.spi)?;
        let ike_sa = self.daemon.endpoint.status_around(child)?;
        let own = ike_sa.children.iter().find(|one| one.id == child)?;
        self.daemon.explain_one_way(own)
    }

    fn attempt(&self, policy: PolicyId, dscp: u8) -> Option<String> {
        let (connection, _) = self.daemon.join.children_to_ask(policy, dscp)?;
        self.daemon.explain_attempt(connection)
    }

    fn engine(&self, sa: &SaCommon, inbound: bool) -> Option<String> {
        let direction = direction(inbound);
        let join = &self.daemon.join;
        let (_, child) = join.child_of(direction, sa.policy, sa.spi)?;
        let tier = sa.tier();
        let own_tier =
            (tier != Tier::current()).then(|| format!(" (tier {tier}, which is cheaper)"));
        let Some(engine) = join.engine_of_half(child, direction) else {
            return Some(format!("cpu{}", own_tier?));
        };
        let engines = self.daemon.plane.engines();
        let host = engines.index_of(engine).and_then(|at| engines.worker(at));
        let tier = own_tier.filter(|_| host.is_some_and(EngineHost::has_tiers));
        let tier = tier.unwrap_or_default();
        let why = join.engine_reason(child);
        let why = why.map(|why| format!(": {why}")).unwrap_or_default();
        Some(format!("{engine}{tier}{why}"))
    }

    fn led(&self, packet: &PacketSpec) -> Option<RoutedTo> {
        self.daemon.plane.led(packet)
    }

    fn path(&self, remote: IpAddr) -> Option<KnownMtu> {
        self.daemon.plane.path_mtu(remote, self.now_ms())
    }

    fn inbound_sas(&self, policy: PolicyId) -> Vec<Arc<InboundSa>> {
        self.daemon.join.inbound_sas(policy)
    }

    fn asks(&self, policy: PolicyId) -> bool {
        self.daemon.join.asks(policy)
    }

    fn refusal(&self, policy: PolicyId, dscp: u8) -> Option<String> {
        let (connection, children) = self.daemon.join.children_to_ask(policy, dscp)?;
        let endpoint = &self.daemon.endpoint;
        let child = children.first()?;
        if endpoint.is_closed_to_traffic(connection, child) {
            return Some(format!("{connection}/{child} is closed by command"));
        }
        let (left, why) = endpoint.refuses_traffic(Instant::now(), connection, child)?;
        let seconds = left.as_secs() + 1;
        Some(format!("packets ask again in {seconds} s: {why}"))
    }

    fn last_refusal(&self, policy: &str) -> Option<String> {
        let (connection, _) = policy.split_once('/')?;
        self.daemon.refusals.told(connection, Instant::now())
    }

    fn interface_mtu(&self, interface: u32) -> u16 {
        self.daemon.loaded.gateway.interface_mtu(interface)
    }

    fn reassembles(&self) -> bool {
        self.daemon.loaded.gateway.reassemble
    }

    fn reports_discards(&self) -> bool {
        self.daemon.loaded.gateway.icmp_unreachable
    }

    fn now_ms(&self) -> u64 {
        self.daemon.clock.now_ms()
    }
}

fn direction(inbound: bool) -> SaDirection {
    match inbound {
        true => SaDirection::Inbound,
        false => SaDirection::Outbound,
    }
}

fn switch(message: &Section, key: &str) -> Result<bool, String> {
    match message.text(key) {
        None | Some("no") => Ok(false),
        Some("yes") => Ok(true),
        Some(_) => Err(format!("`{key}` is neither `yes` nor `no`")),
    }
}
