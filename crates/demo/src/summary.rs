//! The end of the demo: the findings on the wire, the figures, and the places of the files.

use std::path::Path;
use std::time::Duration;

use super::capture::Totals;
use super::traffic::{TcpResult, UdpResult};
use super::ui::{Ui, bits_per_second};

/// The level that `make build` has.
const FULL_OPTIMISATION: &str = "3";

/// The figures of the summary.
#[derive(Debug, Default)]
pub struct DemoResults {
    pub suite: Option<String>,
    pub esp_suite: Option<String>,
    pub rtts: Vec<Duration>,
    pub tcp: Option<TcpResult>,
    pub udp: Option<UdpResult>,
    pub rekeys: Vec<(&'static str, Duration)>,
    pub rekey_udp: Option<UdpResult>,
}

impl DemoResults {
    /// Returns the name and the value of each figure.
    pub fn rows(&self, totals: &Totals) -> Vec<(&'static str, String)> {
        let mut rows = Vec::new();
        if self.suite.is_some() || self.esp_suite.is_some() {
            let unknown = || "not seen".to_owned();
            rows.push(("IKE suite", self.suite.clone().unwrap_or_else(unknown)));
            rows.push(("ESP suite", self.esp_suite.clone().unwrap_or_else(unknown)));
        }
        if let Some(rtt) = rtt_text(&self.rtts) {
            rows.push(("round trip", rtt));
        }
        if let Some(tcp) = &self.tcp {
            rows.push(("TCP", bits_per_second(tcp.bits_per_second())));
        }
        if let Some(udp) = &self.udp {
            rows.push(("UDP", udp.to_string()));
        }
        if let Some(udp) = &self.rekey_udp {
            let slowest = self
                .rekeys
                .iter()
                .map(|(_, time)| time.as_millis())
                .max()
                .unwrap_or_default();
            rows.push((
                "rekeyed",
                format!(
                    "{} SAs under load, the slowest in {slowest} ms; {} of {} datagrams lost",
                    self.rekeys.len(),
                    udp.lost(),
                    udp.sent
                ),
            ));
        }
        rows.push((
            "wire",
            format!(
                "{} ESP packets on {} SAs, {} IKE messages, {} of the link itself, {} in clear",
                totals.esp_packets(),
                totals.esp_sas(),
                totals.ike,
                totals.link,
                totals.clear
            ),
        ));
        rows.push((
            "capture",
            format!(
                "{} packets recorded, {} frames missed under load",
                totals.recorded, totals.missed
            ),
        ));
        let level = env!("ESPLANADE_OPT_LEVEL");
        if level != FULL_OPTIMISATION {
            rows.push((
                "build",
                format!("optimisation level {level}, built in little time: `make build` makes a faster program"),
            ));
        }
        rows
    }
}

/// Checks that only ESP and IKE crossed between the gateways.
pub fn check_wire(ui: &mut Ui, totals: &Totals) {
    let esp = totals.esp_frames > 0;
    ui.check(
        esp && totals.clear == 0 && totals.sentry_missed == 0,
        format_args!(
            "only ESP and IKE between the gateways: {} ESP, {} IKE, {} in clear",
            totals.esp_packets(),
            totals.ike,
            totals.clear
        ),
    );
    for sample in &totals.clear_samples {
        ui.text(format_args!("    in clear: {}", sample.summary));
    }
    if totals.sentry_missed > 0 {
        ui.text(format_args!(
            "    the watch missed {} packets and proves nothing",
            totals.sentry_missed
        ));
    }
    ui.check(
        totals.marked == 0,
        format_args!(
            "the hosts' marker is in {} of {} recorded packets",
            totals.marked, totals.recorded
        ),
    );
    if let Some(error) = &totals.write_error {
        ui.check(false, format_args!("the capture file is complete: {error}"));
    }
}

/// Shows the places of the files. If there are keys, also shows the command that reads the capture.
pub fn show_files(ui: &mut Ui, directory: &Path, tshark: Option<String>) {
    let mut files = vec![
        (
            "files",
            format!("{} (kept; remove them when done)", directory.display()),
        ),
        (
            "captures",
            "wire.pcap (between the gateways), inside.pcap (at host-a)".into(),
        ),
    ];
    if tshark.is_some() {
        files.push((
            "keys",
            "wireshark/ikev2_decryption_table, wireshark/esp_sa".into(),
        ));
        files.push(("configuration", "gw-a.conf, gw-b.conf".into()));
    }
    ui.table(&files);
    if let Some(command) = tshark {
        ui.text("\nTo read the capture with the keys:");
        ui.line(format_args!("  {command}"));
    }
}

fn rtt_text(rtts: &[Duration]) -> Option<String> {
    let (min, max) = (rtts.iter().min()?, rtts.iter().max()?);
    let mean = rtts.iter().sum::<Duration>() / u32::try_from(rtts.len()).ok()?;
    let ms = |time: &Duration| time.as_secs_f64() * 1e3;
    Some(format!(
        "min/avg/max {:.3}/{:.3}/{:.3} ms",
        ms(min),
        ms(&mean),
        ms(max)
    ))
}
