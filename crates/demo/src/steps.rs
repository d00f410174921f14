//! The steps of the demo, in order.

use std::net::IpAddr;
use std::path::Path;
use std::time::{Duration, Instant};

use esplanade_host::io::ns::Isolation;
use esplanade_ike::wire::ExchangeType;

use super::capture::{Recorder, Sample, Scope, Totals};
use super::files::{INSIDE_CAPTURE, OutputDirectory, WIRE_CAPTURE};
use super::gateway::{self, GatewayFiles, GatewayProcess, GatewaySide, SaNames};
use super::lab::{GATEWAY_A, HOST_A, HOST_B, LAN, Lab, Namespace, WIRE};
use super::ping::ping;
use super::sequence::{self, IkeKeys};
use super::summary::{self, DemoResults};
use super::system::Interrupt;
use super::traffic::{TcpFlow, UdpFlow};
use super::ui::{Ui, bits_per_second, hex_dump};
use super::{DemoOptions, Error};

const PINGS: u16 = 4;
const PING_INTERVAL: Duration = Duration::from_millis(200);
const UDP_PACKETS_PER_SECOND_MAX: u32 = 10_000;
const UDP_PAYLOAD_LEN: usize = 1200;
const LIGHT_LOAD_SHARE: f64 = 0.25;
/// Bytes of whole frames that each part of the demo may add to the capture file.
const CAPTURE_TCP: usize = 4 << 20;
const CAPTURE_UDP: usize = 1 << 20;
const CAPTURE_REKEY: usize = 2 << 20;
/// The streams during which the SAs are rekeyed. TCP is limited so that no queue is full: any loss
/// then comes from the rekeying.
const REKEY_UDP_PACKETS_PER_SECOND: u32 = 2_000;
const REKEY_UDP_PAYLOAD_LEN: usize = 256;
const REKEY_TIMEOUT: Duration = Duration::from_secs(10);
const REKEY_PAUSE: Duration = Duration::from_millis(600);
const POLL: Duration = Duration::from_millis(20);
/// Greatest loss of the UDP stream before the rekeying, in percent. A busy machine overflows
/// queues.
const UDP_LOSS_MAX_PERCENT: f64 = 10.0;

struct Demo<'a> {
    options: &'a DemoOptions,
    interrupt: &'a Interrupt,
    output: &'a OutputDirectory,
    ui: &'a mut Ui,
    lab: &'a Lab,
    results: DemoResults,
}

pub fn run(
    options: &DemoOptions,
    isolation: Isolation,
    interrupt: &Interrupt,
    output: &OutputDirectory,
    ui: &mut Ui,
) -> Result<(), Error> {
    ui.line("Esplanade demo: two sites, an internet between them, and ESP on the wire.");
    ui.step("Two sites and an internet");
    let lab = Lab::build()?;
    ui.text(match isolation {
        Isolation::Privileged => {
            "Network namespaces, made as root; the machine's own network is untouched."
        }
        Isolation::UserNamespace => {
            "Network namespaces in a user namespace: no privilege was needed."
        }
    });
    ui.text(DRAWING);
    let mut demo = Demo {
        options,
        interrupt,
        output,
        ui,
        lab: &lab,
        results: DemoResults::default(),
    };
    let recorder = watch(&lab.internet, WIRE, Scope::Wire, &output.file(WIRE_CAPTURE))?;
    if options.without_tunnel {
        lab.route_in_clear()?;
        demo.ping_and_look(&recorder)?;
        demo.bulk(&recorder, &mut [])?;
    } else {
        let mut gateways = demo.start_gateways()?;
        demo.negotiate(&recorder, &gateways)?;
        demo.ping_and_look(&recorder)?;
        demo.bulk(&recorder, &mut gateways)?;
        demo.rekey(&recorder, &mut gateways)?;
        demo.stop(&recorder, &mut gateways)?;
    }
    let totals = recorder
        .finish()
        .map_err(|source| Error::system("the capture failed", source))?;
    demo.summarize(&totals)
}

const DRAWING: &str = "
    site A                        internet                        site B
  +--------+    +------+        +----------+        +------+    +--------+
  | host-a |----| gw-a |--------|  router  |--------| gw-b |----| host-b |
  +--------+    +------+   ^    +----------+        +------+    +--------+
   10.1.0.2     192.0.2.2  |                    198.51.100.2     10.2.0.2
                           every packet here is watched
";

fn watch(place: &Namespace, interface: &str, scope: Scope, path: &Path) -> Result<Recorder, Error> {
    Recorder::start(place, interface, scope, path).map_err(|source| {
        Error::system(
            format!("cannot watch {interface} in {}", place.name),
            source,
        )
    })
}

impl Demo<'_> {
    fn start_gateways(&mut self) -> Result<[GatewayProcess; 2], Error> {
        self.ui.step("Two gateways");
        let psk = gateway::random_psk()?;
        let log_level = if self.options.verbose {
            "debug"
        } else {
            "info"
        };
        let start = |demo: &mut Self, side, place| {
            let files = GatewayFiles::of(side, demo.output.path());
            let text = gateway::configuration(side, &files.socket, &psk);
            gateway::write_private(&files.config, &text)?;
            if demo.options.verbose {
                demo.ui.faint(text.replace(&psk, "(random)"));
            }
            GatewayProcess::start(side, place, files, log_level)
        };
        let mut gateways = [
            start(self, GatewaySide::A, &self.lab.gw_a)?,
            start(self, GatewaySide::B, &self.lab.gw_b)?,
        ];
        for gateway in &mut gateways {
            gateway.wait_ready(|| self.interrupt.pause(POLL))?;
            self.ui.check(
                true,
                format_args!(
                    "{} runs with {}",
                    gateway.side.name(),
                    gateway.files.config.display()
                ),
            );
        }
        Ok(gateways)
    }

    fn negotiate(
        &mut self,
        recorder: &Recorder,
        gateways: &[GatewayProcess; 2],
    ) -> Result<(), Error> {
        self.ui
            .step("The negotiation, as captured between the gateways");
        let [gw_a, gw_b] = gateways;
        gw_a.initiate()?;
        // The responder is ready once it lists the child SA as well.
        self.until(REKEY_TIMEOUT, || {
            Ok(!gw_b.associations()?.children.is_empty())
        })?
        .ok_or_else(|| gw_b.failure("gw-b has no child SA"))?;
        self.interrupt.pause(Duration::from_millis(200))?;
        let messages = recorder.ike_messages(0);
        let keys = IkeKeys::read(&gw_a.files.keys).unwrap_or_default();
        sequence::draw(self.ui, &messages, &keys, IpAddr::V4(GATEWAY_A));
        for message in &messages {
            let reading = sequence::read(&message.bytes, &keys);
            match reading.exchange {
                Some(ExchangeType::IKE_SA_INIT) => {
                    self.results.suite = reading.chosen.or(self.results.suite.take())
                }
                Some(ExchangeType::IKE_AUTH) => {
                    self.results.esp_suite = reading.chosen.or(self.results.esp_suite.take());
                }
                _ => {}
            }
        }
        self.ui.line("");
        self.ui
            .faint("What stands in SK { } was opened with the exported keys.");
        self.ui.check(true, "IKE SA and child SA are established");
        if self.options.verbose {
            self.show_logs(gateways);
        }
        Ok(())
    }

    fn show_logs(&mut self, gateways: &[GatewayProcess]) {
        for gateway in gateways {
            self.ui
                .text(format_args!("\n{} logs:", gateway.side.name()));
            for line in std::fs::read_to_string(&gateway.files.log)
                .unwrap_or_default()
                .lines()
            {
                self.ui.faint(gateway::readable(line));
            }
        }
    }

    fn ping_and_look(&mut self, recorder: &Recorder) -> Result<(), Error> {
        self.ui.step("Ping across");
        let inside = watch(
            &self.lab.host_a,
            LAN,
            Scope::Pings,
            &self.output.file(INSIDE_CAPTURE),
        )?;
        recorder.clear_samples();
        let lab = self.lab;
        self.ping_from(&lab.host_a, HOST_B)?;
        self.ping_from(&lab.host_b, HOST_A)?;
        self.interrupt.pause(Duration::from_millis(100))?;

        self.ui.step("The same ping before and after gw-a");
        self.ui
            .text("Before, on the link of host-a, in clear (inside.pcap):");
        self.show_samples(&inside.samples(), 1);
        self.ui
            .text("After, on the link between the gateways (wire.pcap):");
        self.show_samples(&recorder.samples(), 2);
        inside
            .finish()
            .map_err(|source| Error::system("the capture at host-a failed", source))?;
        Ok(())
    }

    fn ping_from(&mut self, from: &Namespace, to: std::net::Ipv4Addr) -> Result<(), Error> {
        self.ui.text(format_args!("{} pings {to}", from.name));
        let (ui, results) = (&mut *self.ui, &mut self.results);
        let mut answered = 0;
        ping(
            from,
            to,
            PINGS,
            PING_INTERVAL,
            |sequence, reply| match reply {
                Some(reply) => {
                    answered += 1;
                    results.rtts.push(reply.rtt);
                    ui.text(format_args!(
                        "  {} bytes from {to}: icmp_seq={} ttl={} time={:.3} ms",
                        reply.len,
                        reply.sequence,
                        reply.ttl,
                        reply.rtt.as_secs_f64() * 1e3
                    ));
                }
                None => ui.text(format_args!("  no answer to icmp_seq={sequence}")),
            },
        )
        .map_err(|source| Error::system(format!("cannot ping from {}", from.name), source))?;
        self.interrupt.check()?;
        self.ui.check(
            answered == PINGS,
            format_args!("{answered} of {PINGS} pings from {} answered", from.name),
        );
        Ok(())
    }

    fn show_samples(&mut self, samples: &[Sample], count: usize) {
        for sample in samples.iter().take(count) {
            self.ui.text(format_args!("  {}", sample.summary));
            for line in hex_dump(&sample.excerpt).lines() {
                self.ui.faint(format_args!("    {line}"));
            }
        }
        if samples.is_empty() {
            self.ui.check(false, "packets were captured");
        }
    }

    fn bulk(&mut self, recorder: &Recorder, gateways: &mut [GatewayProcess]) -> Result<(), Error> {
        self.ui.step("Bulk TCP and UDP");
        let lab = self.lab;
        let allow = |bytes| {
            recorder
                .allow(bytes)
                .map_err(|source| Error::system("the capture failed", source))
        };
        allow(CAPTURE_TCP)?;
        let flow = TcpFlow::start(&lab.host_a, &lab.host_b, HOST_B, None).map_err(|source| {
            Error::system("cannot connect from host-a to host-b over TCP", source)
        })?;
        self.follow(
            self.options.duration as f64,
            gateways,
            "TCP host-a > host-b",
            || (!flow.is_finished()).then(|| flow.received()),
        )?;
        match flow.finish() {
            Ok(result) => {
                self.ui.check(
                    true,
                    format_args!(
                        "TCP: {:.2} GB in {:.1} s, {}, every byte compared",
                        result.bytes as f64 / 1e9,
                        result.elapsed.as_secs_f64(),
                        bits_per_second(result.bits_per_second())
                    ),
                );
                self.results.tcp = Some(result);
            }
            Err(error) => self
                .ui
                .check(false, format_args!("TCP from host-a to host-b: {error}")),
        }

        allow(CAPTURE_UDP)?;
        let packets_per_second = self.udp_packets_per_second();
        let unread_before = lab.unread()?;
        let flow = UdpFlow::start(
            &lab.host_a,
            &lab.host_b,
            HOST_B,
            packets_per_second,
            UDP_PAYLOAD_LEN,
        )?;
        self.follow(1.0, gateways, "UDP host-a > host-b", || {
            (!flow.is_finished()).then(|| flow.received() * UDP_PAYLOAD_LEN as u64)
        })?;
        match flow.finish() {
            Ok(result) => {
                let unread = lab.unread()?.saturating_sub(unread_before);
                let lost = result.lost().saturating_sub(unread);
                let lost_percent = lost as f64 * 100.0 / result.sent.max(1) as f64;
                self.ui.check(
                    result.corrupt == 0
                        && result.received > 0
                        && lost_percent <= UDP_LOSS_MAX_PERCENT,
                    format_args!("UDP: {result}"),
                );
                self.results.udp = Some(result);
            }
            Err(error) => self
                .ui
                .check(false, format_args!("UDP from host-a to host-b: {error}")),
        }
        Ok(())
    }

    /// Returns a rate in bytes per second at which no queue should be full: a fraction of the
    /// measured TCP rate.
    fn light_load(&self) -> f64 {
        let bulk = self
            .results
            .tcp
            .map_or(0.0, |tcp| tcp.bits_per_second() / 8.0);
        (bulk * LIGHT_LOAD_SHARE).max(1e6)
    }

    /// Returns ten thousand packets per second, or fewer if the measured TCP rate shows that the
    /// machine is too slow.
    fn udp_packets_per_second(&self) -> u32 {
        let share = self.light_load() / UDP_PAYLOAD_LEN as f64;
        (share as u32).clamp(100, UDP_PACKETS_PER_SECOND_MAX)
    }

    /// Shows the rate of a flow for some seconds. `received` returns `None` if the flow ended
    /// early.
    fn follow(
        &mut self,
        seconds: f64,
        gateways: &mut [GatewayProcess],
        name: &str,
        received: impl Fn() -> Option<u64>,
    ) -> Result<(), Error> {
        let started = Instant::now();
        let interval = Duration::from_millis(if self.ui.is_live() { 200 } else { 1000 });
        let (mut last_at, mut last_bytes) = (started, 0);
        while started.elapsed().as_secs_f64() < seconds {
            let left = seconds - started.elapsed().as_secs_f64();
            self.interrupt
                .pause(interval.min(Duration::from_secs_f64(left.max(0.0))))?;
            for gateway in &mut *gateways {
                gateway.check_alive()?;
            }
            let Some(bytes) = received() else { break };
            let rate = bytes.saturating_sub(last_bytes) as f64 * 8.0
                / last_at.elapsed().as_secs_f64().max(1e-3);
            (last_at, last_bytes) = (Instant::now(), bytes);
            let line = format!(
                "{name}  {:4.1} s  {:>12}  {:9.1} MB",
                started.elapsed().as_secs_f64(),
                bits_per_second(rate),
                bytes as f64 / 1e6
            );
            if self.ui.is_live() {
                self.ui.live(line);
            } else {
                self.ui.text(line);
            }
        }
        Ok(())
    }

    fn rekey(
        &mut self,
        recorder: &Recorder,
        gateways: &mut [GatewayProcess; 2],
    ) -> Result<(), Error> {
        self.ui.step("Fresh keys under load");
        let lab = self.lab;
        let before = recorder.ike_messages(0).len();
        let unread_before = lab.unread()?;
        let tcp_rate = self.light_load();
        self.ui.text(format_args!(
            "Numbered UDP datagrams ({REKEY_UDP_PACKETS_PER_SECOND} a second) and TCP at {} run meanwhile.",
            bits_per_second(tcp_rate * 8.0)
        ));
        let tcp =
            TcpFlow::start(&lab.host_a, &lab.host_b, HOST_B, Some(tcp_rate)).map_err(|source| {
                Error::system("cannot connect from host-a to host-b over TCP", source)
            })?;
        let udp = UdpFlow::start(
            &lab.host_a,
            &lab.host_b,
            HOST_B,
            REKEY_UDP_PACKETS_PER_SECOND,
            REKEY_UDP_PAYLOAD_LEN,
        )?;
        self.replace_associations(recorder, gateways)?;
        self.interrupt.pause(REKEY_PAUSE)?;
        let (tcp, udp) = (tcp.finish(), udp.finish()?);
        for gateway in &mut *gateways {
            gateway.check_alive()?;
        }
        self.ui.line("");
        let keys = IkeKeys::read(&gateways[0].files.keys).unwrap_or_default();
        sequence::draw(
            self.ui,
            &recorder.ike_messages(before),
            &keys,
            IpAddr::V4(GATEWAY_A),
        );
        self.ui.line("");
        let unread = lab.unread()?.saturating_sub(unread_before);
        self.ui.check(
            udp.lost() <= unread && udp.corrupt == 0 && udp.received > 0,
            format_args!("UDP while rekeying: {udp}"),
        );
        if unread > 0 {
            self.ui.text(format_args!(
                "{unread} packets found a full queue: their readers came too late."
            ));
        }
        if udp.lost() > unread {
            self.ui.text(
                "Datagrams were lost that found no full queue: a rekeying must not lose any.",
            );
        }
        match tcp {
            Ok(result) => self.ui.check(
                true,
                format_args!(
                    "TCP while rekeying: {:.2} GB, every byte compared",
                    result.bytes as f64 / 1e9
                ),
            ),
            Err(error) => self
                .ui
                .check(false, format_args!("TCP while rekeying: {error}")),
        }
        self.results.rekey_udp = Some(udp);
        Ok(())
    }

    fn replace_associations(
        &mut self,
        recorder: &Recorder,
        gateways: &[GatewayProcess; 2],
    ) -> Result<(), Error> {
        let [gw_a, gw_b] = gateways;
        type Ask = fn(&GatewayProcess) -> Result<(), Error>;
        let exchanges: [(&'static str, &GatewayProcess, Ask, bool); 4] = [
            (
                "child SA, by gw-a",
                gw_a,
                GatewayProcess::rekey_child,
                false,
            ),
            ("IKE SA, by gw-a", gw_a, GatewayProcess::rekey_ike, true),
            (
                "child SA, by gw-b",
                gw_b,
                GatewayProcess::rekey_child,
                false,
            ),
            ("IKE SA, by gw-b", gw_b, GatewayProcess::rekey_ike, true),
        ];
        for (name, gateway, ask, ike) in exchanges {
            self.interrupt.pause(REKEY_PAUSE)?;
            recorder.allow(CAPTURE_REKEY)?;
            let old = gateway.associations()?;
            let asked = Instant::now();
            ask(gateway)?;
            let replaced = self.until(REKEY_TIMEOUT, || {
                Ok(is_replaced(&old, &gateway.associations()?, ike))
            })?;
            self.ui.check(
                replaced.is_some(),
                format_args!("{name}: replaced within {} ms", asked.elapsed().as_millis()),
            );
            if replaced.is_some() {
                self.results.rekeys.push((name, asked.elapsed()));
            }
        }
        Ok(())
    }

    fn stop(
        &mut self,
        recorder: &Recorder,
        gateways: &mut [GatewayProcess; 2],
    ) -> Result<(), Error> {
        self.ui.step("The end");
        let before = recorder.ike_messages(0).len();
        for gateway in &mut *gateways {
            let in_order = gateway.stop();
            self.ui.check(
                in_order,
                format_args!("{} ended in order", gateway.side.name()),
            );
        }
        self.interrupt.pause(Duration::from_millis(100))?;
        let keys = IkeKeys::read(&gateways[0].files.keys).unwrap_or_default();
        sequence::draw(
            self.ui,
            &recorder.ike_messages(before),
            &keys,
            IpAddr::V4(GATEWAY_A),
        );
        Ok(())
    }

    fn summarize(&mut self, totals: &Totals) -> Result<(), Error> {
        self.ui.step("Summary");
        summary::check_wire(self.ui, totals);
        let tshark = match self.options.without_tunnel {
            true => None,
            false => Some(self.output.write_wireshark_tables()?),
        };
        self.ui.line("");
        self.ui.table(&self.results.rows(totals));
        self.ui.line("");
        summary::show_files(self.ui, self.output.path(), tshark);
        self.ui.line("");
        if !self.ui.failures().is_empty() {
            return Err(Error::Checks(self.ui.failures().to_vec()));
        }
        let verdict = self.ui.paint("1;32", "All checks passed.");
        self.ui.text(verdict);
        Ok(())
    }

    /// Repeats the question until the answer is yes. Returns `None` if the time ran out.
    fn until(
        &self,
        time: Duration,
        mut question: impl FnMut() -> Result<bool, Error>,
    ) -> Result<Option<()>, Error> {
        let end = Instant::now() + time;
        loop {
            if question()? {
                return Ok(Some(()));
            }
            if Instant::now() >= end {
                return Ok(None);
            }
            self.interrupt.pause(POLL)?;
        }
    }
}

/// Tells whether none of the old SAs is left and there is a new SA.
fn is_replaced(old: &SaNames, new: &SaNames, ike: bool) -> bool {
    let (old, new) = if ike {
        (&old.ike, &new.ike)
    } else {
        (&old.children, &new.children)
    };
    !new.is_empty() && new.is_disjoint(old)
}
