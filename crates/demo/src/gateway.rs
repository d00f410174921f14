//! The two gateways of the demo: their configurations, their processes and their control sockets.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use esplanade_crypto::random;
use esplanade_host::io::ns;
use esplanade_host::private;
use esplanade_vici::Section;
use esplanade_vici::client::Client;

use super::Error;
use super::lab::{GATEWAY_A, GATEWAY_B, Namespace, SITE_A, SITE_B};

pub const CONNECTION: &str = "site";
pub const CHILD: &str = "net";
const IKE_PROPOSAL: &str = "aes128gcm16-prfsha256-x25519";
// The proposal has no ESN: Wireshark before 4.2 cannot verify ICVs with 64-bit sequence numbers.
const ESP_PROPOSAL: &str = "aes128gcm16-x25519-noesn";
const READY_TIMEOUT: Duration = Duration::from_secs(10);
const COMMAND_TIMEOUT: Duration = Duration::from_secs(20);
const STOP_TIMEOUT: Duration = Duration::from_secs(3);
const LOG_LINES: usize = 15;

/// A gateway of the demo.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GatewaySide {
    A,
    B,
}

impl GatewaySide {
    pub const fn name(self) -> &'static str {
        match self {
            Self::A => "gw-a",
            Self::B => "gw-b",
        }
    }

    const fn address(self) -> Ipv4Addr {
        match self {
            Self::A => GATEWAY_A,
            Self::B => GATEWAY_B,
        }
    }

    const fn site(self) -> &'static str {
        match self {
            Self::A => SITE_A,
            Self::B => SITE_B,
        }
    }

    const fn other(self) -> Self {
        match self {
            Self::A => Self::B,
            Self::B => Self::A,
        }
    }
}

/// The files of one gateway.
#[derive(Debug, Clone)]
pub struct GatewayFiles {
    pub config: PathBuf,
    pub keys: PathBuf,
    pub log: PathBuf,
    pub socket: PathBuf,
}

impl GatewayFiles {
    pub fn of(side: GatewaySide, directory: &Path) -> Self {
        let file = |suffix: &str| directory.join(format!("{}.{suffix}", side.name()));
        Self {
            config: file("conf"),
            keys: file("keys"),
            log: file("log"),
            socket: file("sock"),
        }
    }
}

pub fn configuration(side: GatewaySide, socket: &Path, psk: &str) -> String {
    let (own, peer) = (side, side.other());
    format!(
        r#"# {name} of the demo
gateway {{
    listen = {own_address}
    socket = "{socket}"
}}
connections {{
    {CONNECTION} {{
        version = 2
        local_addrs = {own_address}
        remote_addrs = {peer_address}
        proposals = {IKE_PROPOSAL}
        encap = yes
        local {{
            auth = psk
            id = {name}
        }}
        remote {{
            auth = psk
            id = {peer_name}
        }}
        children {{
            {CHILD} {{
                local_ts = {own_site}
                remote_ts = {peer_site}
                esp_proposals = {ESP_PROPOSAL}
            }}
        }}
    }}
}}
secrets {{
    ike-demo {{
        id-a = gw-a
        id-b = gw-b
        secret = 0x{psk}
    }}
}}
"#,
        name = own.name(),
        own_address = own.address(),
        peer_address = peer.address(),
        peer_name = peer.name(),
        own_site = own.site(),
        peer_site = peer.site(),
        socket = socket.display(),
    )
}

/// Returns 256 random bits in hexadecimal.
pub fn random_psk() -> Result<String, Error> {
    let mut bytes = [0; 32];
    random::fill(&mut bytes)
        .map_err(|error| Error::system("cannot make a secret", io::Error::other(error)))?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

/// Writes a file that only its owner can read.
pub fn write_private(path: &Path, text: &str) -> Result<(), Error> {
    private::create(path)
        .and_then(|mut file| file.write_all(text.as_bytes()))
        .map_err(|source| Error::system(format!("cannot write {}", path.display()), source))
}

/// A running gateway. Dropping it ends the process.
#[derive(Debug)]
pub struct GatewayProcess {
    pub side: GatewaySide,
    pub files: GatewayFiles,
    child: Child,
}

/// The identifiers that distinguish security associations from their successors.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SaNames {
    /// The initiator's SPIs of the IKE SAs.
    pub ike: BTreeSet<String>,
    /// The inbound SPIs of the installed child SAs.
    pub children: BTreeSet<String>,
}

impl GatewayProcess {
    /// Starts `esplanade run` in the namespace. The gateway ends with the calling thread.
    pub fn start(
        side: GatewaySide,
        place: &Namespace,
        files: GatewayFiles,
        log_level: &str,
    ) -> Result<Self, Error> {
        let failed = |source| Error::system(format!("cannot start {}", side.name()), source);
        let log = private::append(&files.log).map_err(failed)?;
        let mut command = Command::new(std::env::current_exe().map_err(failed)?);
        command
            .args([
                "run",
                "--log-format",
                "json",
                "--log-level",
                log_level,
                "--config",
            ])
            .arg(&files.config)
            .arg("--export-keys")
            .arg(&files.keys)
            .env_remove("RUST_LOG")
            .stdin(Stdio::null())
            .stdout(log.try_clone().map_err(failed)?)
            .stderr(log);
        let child = ns::spawn_in(&place.network, &mut command).map_err(failed)?;
        Ok(Self { side, files, child })
    }

    /// Waits until the gateway answers a command. The control socket exists before the ports are
    /// bound, so its existence is not enough. `pause` waits a moment, and fails if the demo was
    /// interrupted.
    pub fn wait_ready(
        &mut self,
        mut pause: impl FnMut() -> Result<(), Error>,
    ) -> Result<(), Error> {
        let deadline = Instant::now() + READY_TIMEOUT;
        while self.asked("version", Section::new()).is_err() {
            self.check_alive()?;
            if Instant::now() > deadline {
                let message = format!(
                    "{} did not answer at its control socket {} within {} s",
                    self.side.name(),
                    self.files.socket.display(),
                    READY_TIMEOUT.as_secs()
                );
                return Err(self.failure(&message));
            }
            pause()?;
        }
        Ok(())
    }

    /// Fails, with the end of the log, if the process has ended.
    pub fn check_alive(&mut self) -> Result<(), Error> {
        match self.child.try_wait() {
            Ok(None) => Ok(()),
            Ok(Some(status)) => {
                Err(self.failure(&format!("{} ended with {status}", self.side.name())))
            }
            Err(source) => Err(Error::system(
                format!("cannot watch {}", self.side.name()),
                source,
            )),
        }
    }

    /// Makes an error about this gateway. The error ends with the last lines of the gateway's log.
    pub fn failure(&self, message: &str) -> Error {
        let mut text = format!("{message}; the end of {}:", self.files.log.display());
        for line in tail(&self.files.log).unwrap_or_default().lines() {
            text.push_str("\n    ");
            text.push_str(&readable(line));
        }
        Error::Gateway(text)
    }

    fn connect(&self) -> Result<Client, esplanade_vici::client::Error> {
        Client::connect(&self.files.socket, COMMAND_TIMEOUT)
    }

    fn asked(
        &self,
        command: &str,
        message: Section,
    ) -> Result<Section, esplanade_vici::client::Error> {
        self.connect()
            .and_then(|mut client| client.command(command, message))
    }

    /// Sends a vici command. An answer with `success = no` is an error.
    fn command(&self, command: &str, message: Section) -> Result<(), Error> {
        let answer = self.asked(command, message).map_err(|error| {
            self.failure(&format!("{} on {}: {error}", command, self.side.name()))
        })?;
        if answer.text("success") == Some("no") {
            let reason = answer.text("errmsg").unwrap_or("no reason given");
            return Err(self.failure(&format!(
                "{command} on {} failed: {reason}",
                self.side.name()
            )));
        }
        Ok(())
    }

    pub fn initiate(&self) -> Result<(), Error> {
        let mut message = Section::new();
        message
            .set("ike", CONNECTION)
            .set("child", CHILD)
            .set("timeout", 10_000);
        self.command("initiate", message)
    }

    pub fn rekey_child(&self) -> Result<(), Error> {
        let mut message = Section::new();
        message.set("child", CHILD);
        self.command("rekey", message)
    }

    pub fn rekey_ike(&self) -> Result<(), Error> {
        let mut message = Section::new();
        message.set("ike", CONNECTION);
        self.command("rekey", message)
    }

    /// Returns the identifiers of the current security associations.
    pub fn associations(&self) -> Result<SaNames, Error> {
        let mut names = SaNames::default();
        let note = |event: Section| {
            for (_, ike) in event.sections() {
                names
                    .ike
                    .extend(ike.text("initiator-spi").map(str::to_owned));
                for (_, child) in ike.sub("child-sas").into_iter().flat_map(Section::sections) {
                    if child.text("state") == Some("INSTALLED") {
                        names
                            .children
                            .extend(child.text("spi-in").map(str::to_owned));
                    }
                }
            }
        };
        self.connect()
            .and_then(|mut client| {
                client.streamed("list-sas", Section::new(), Some("list-sa"), note)
            })
            .map_err(|error| self.failure(&format!("list-sas on {}: {error}", self.side.name())))?;
        Ok(names)
    }

    /// Asks the process to end, and kills it after [`STOP_TIMEOUT`]. Returns true if it ended by
    /// itself without an error.
    pub fn stop(&mut self) -> bool {
        if let Ok(Some(status)) = self.child.try_wait() {
            return status.success();
        }
        let _ = ns::terminate(&self.child);
        let deadline = Instant::now() + STOP_TIMEOUT;
        while Instant::now() < deadline {
            if let Ok(Some(status)) = self.child.try_wait() {
                return status.success();
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
        false
    }
}

impl Drop for GatewayProcess {
    fn drop(&mut self) {
        self.stop();
    }
}

/// Returns the last lines of a file. Reads at most the last 16 KiB.
fn tail(path: &Path) -> io::Result<String> {
    let mut file = File::open(path)?;
    let len = file.metadata()?.len();
    file.seek(SeekFrom::Start(len.saturating_sub(16 << 10)))?;
    let mut bytes = Vec::new();
    file.take(16 << 10).read_to_end(&mut bytes)?;
    let text = String::from_utf8_lossy(&bytes);
    let lines: Vec<&str> = text.lines().collect();
    let start = lines.len().saturating_sub(LOG_LINES);
    Ok(lines.get(start..).unwrap_or_default().join("\n"))
}

/// Returns the level and the message of a JSON log line. Any other line is returned unchanged.
pub fn readable(line: &str) -> String {
    let Ok(serde_json::Value::Object(fields)) = serde_json::from_str(line) else {
        return line.to_owned();
    };
    let text = |name: &str| {
        fields
            .get(name)
            .and_then(serde_json::Value::as_str)
            .unwrap_or_default()
    };
    let mut readable = format!("{} {}", text("level"), text("message"));
    for (name, value) in &fields {
        if !matches!(name.as_str(), "level" | "message" | "timestamp" | "target") {
            readable.push_str(&format!(" {name}={value}"));
        }
    }
    readable
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn log_lines_are_made_readable() {
        let line =
            r#"{"timestamp":"t","level":"ERROR","target":"x","message":"port in use","port":500}"#;
        assert_eq!(readable(line), "ERROR port in use port=500");
        assert_eq!(readable("thread main panicked"), "thread main panicked");
    }
}
