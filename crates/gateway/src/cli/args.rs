//! The command line, from which help, man pages and completions are made.

use std::path::PathBuf;

use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{Args, Parser, Subcommand};
use esplanade_crypto::Tier;

use crate::fetch;
use crate::{config, demo, log, tokens, updown};

/// An IPsec gateway: IKEv2 and ESP
#[derive(Debug, Parser)]
#[command(name = "esplanade", version, about, propagate_version = true, after_help = EXIT_CODES)]
pub struct Cli {
    #[command(subcommand)]
    pub command: Command,
}

const EXIT_CODES: &str = "\
Exit codes:
    0  success
    1  something failed while running
    2  wrong command line
    3  the configuration has errors
    4  no gateway answers at the control socket
    5  the system forbids or lacks what is needed
  130  interrupted";

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run the gateway in the foreground
    Run(RunOptions),
    /// Check a configuration and print every error
    Check {
        /// The configuration
        #[arg(default_value = config::DEFAULT_PATH)]
        file: PathBuf,
    },
    /// Say which policy a packet meets, what happens to it and why
    Explain(Explain),
    /// Show the security associations of the running gateway
    Status(StatusOptions),
    /// Establish a connection, or one child of it
    Up {
        #[command(flatten)]
        control: Control,
        /// A connection, a child, or CONNECTION/CHILD
        name: String,
    },
    /// Close a connection, or one child of it
    Down {
        #[command(flatten)]
        control: Control,
        /// A connection, a child, or CONNECTION/CHILD
        name: String,
    },
    /// Fetch fresh keys for a connection, one child of it, or all connections
    Rekey {
        #[command(flatten)]
        control: Control,
        /// A connection, a child, or CONNECTION/CHILD; all connections and children if left out
        name: Option<String>,
        /// Have the peers authenticate again, over a new IKE SA with the same children
        #[arg(long)]
        reauth: bool,
        /// Do not wait for the outcome
        #[arg(long)]
        no_wait: bool,
    },
    /// Move a child to another engine, while its packets flow and until the gateway ends
    Engine {
        #[command(flatten)]
        control: Control,
        /// A child, or CONNECTION/CHILD
        name: String,
        /// `cpu`, `pool`, `gpu`, `fpga`, `ace`, or `adaptive` for CPU or GPU as the load wants it
        engine: String,
    },
    /// Read the configuration again; unchanged connections stay up
    Reload {
        #[command(flatten)]
        control: Control,
    },
    /// List the OpenCL devices, or test one for the GPU engine
    Gpu {
        /// A part of the device's name, or of its driver's
        device: Option<String>,
        /// Test the kernels with tables
        #[arg(long, requires = "device")]
        tables: bool,
    },
    /// The table that keeps protected traffic off the wire while no gateway runs
    Guard {
        #[command(subcommand)]
        action: Guard,
    },
    /// Show a tunnel at work between two gateways in network namespaces
    Demo(demo::DemoOptions),
    /// Print a completion script for a shell
    Completions { shell: clap_complete::Shell },
    /// Print the man page of the program, or of one of its commands
    Man { command: Option<String> },
    /// Run the fetcher for the gateway that has started this process
    #[command(name = fetch::keeper::COMMAND, hide = true)]
    FetchKeeper,
    /// Have revocation lists fetched, and names looked up, for the gateway
    #[command(name = fetch::fetcher::COMMAND, hide = true)]
    Fetcher,
    /// Carry out one request of the fetcher that has started this process
    #[command(name = fetch::worker::COMMAND, hide = true)]
    FetchWorker,
    /// Keep a runner of updown scripts for the gateway that has started this process
    #[command(name = updown::keeper::COMMAND, hide = true)]
    UpdownKeeper,
    /// Run updown scripts for the gateway whose keeper has started this process
    #[command(name = updown::runner::COMMAND, hide = true)]
    UpdownRunner,
    /// Run the processes of PKCS#11 modules for the gateway that has started this process
    #[command(name = tokens::keeper::COMMAND, hide = true)]
    TokenKeeper,
    /// Load a PKCS#11 module for the process that has started this one
    #[command(name = tokens::module::COMMAND, hide = true)]
    TokenModule,
}

#[derive(Debug, Subcommand)]
pub enum Guard {
    /// Remove it: what a stopped gateway has protected may leave in the clear
    Clear {
        /// The configuration of the gateway
        #[arg(short, long, value_name = "FILE", default_value = config::DEFAULT_PATH)]
        config: PathBuf,
    },
}

#[derive(Debug, Args)]
pub struct RunOptions {
    /// The configuration
    #[arg(short, long, value_name = "FILE", default_value = config::DEFAULT_PATH)]
    pub config: PathBuf,
    /// Append the session keys to FILE, for Wireshark: whoever has it can read the traffic
    #[arg(long, value_name = "FILE")]
    pub export_keys: Option<PathBuf>,
    /// The CPU instructions for ESP; by default the best that the machine has
    #[arg(long, value_name = "TIER", value_parser = tier())]
    pub cpu_tier: Option<Tier>,
    /// Give up no rights, and let debuggers and core dumps read the memory: for finding faults
    #[arg(long)]
    pub unconfined: bool,
    /// How log lines look
    #[arg(long, value_enum, value_name = "FORMAT", default_value_t)]
    pub log_format: log::Format,
    /// A level (error, warn, info, debug, trace), also for single parts: info,esplanade_ike=debug
    #[arg(long, value_name = "FILTER")]
    pub log_level: Option<String>,
}

fn tier() -> impl TypedValueParser<Value = Tier> {
    PossibleValuesParser::new(Tier::ALL.map(Tier::name)).try_map(|name| name.parse::<Tier>())
}

#[derive(Debug, Args)]
#[command(after_help = PACKETS)]
pub struct Explain {
    /// The packet, such as 'tcp 10.0.1.5:40000 -> 10.0.2.9:443'
    #[arg(required = true, value_name = "PACKET-SPEC")]
    pub packet: Vec<String>,
    /// Look at this configuration, not at the running gateway
    #[arg(short, long, value_name = "FILE", conflicts_with_all = ["socket", "timeout"])]
    pub config: Option<PathBuf>,
    /// The control socket of the gateway
    #[arg(long, value_name = "PATH", default_value = config::DEFAULT_SOCKET)]
    pub socket: PathBuf,
    /// How many seconds to wait for an answer
    #[arg(long, value_name = "SECONDS", default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..=3600))]
    pub timeout: u64,
    /// The packet comes in without protection; otherwise it is on its way out
    #[arg(long)]
    pub r#in: bool,
    /// A route leads the packet into this tunnel interface; otherwise into the common one
    #[arg(long, value_name = "NAME")]
    pub interface: Option<String>,
    /// The packet is a fragment, not the first: its ports cannot be seen
    #[arg(long)]
    pub fragment: bool,
    /// How long the packet is, with its IP header: whether it fits (only the running gateway knows paths)
    #[arg(long, value_name = "BYTES", conflicts_with = "config", value_parser = clap::value_parser!(u16).range(20..))]
    pub length: Option<u16>,
    /// The packet has Don't Fragment set, as all of IPv6
    #[arg(long, conflicts_with = "config")]
    pub dont_fragment: bool,
    /// The DSCP of the packet: a name such as ef, or a number
    #[arg(long, value_name = "DSCP", default_value = "0")]
    pub dscp: String,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

const PACKETS: &str = "\
Packets:
  tcp 10.0.1.5:40000 -> 10.0.2.9:443          also udp, sctp, udplite
  udp [fd00:1::5]:40000 -> [fd00:2::9]:53     IPv6 addresses with a port in brackets
  icmp 10.0.1.5 -> 10.0.2.9 type 8 code 0     an echo request if type and code are left out
  icmp6 fd00::1 -> fd00::2 type 128
  proto 47 10.0.1.5 -> 10.0.2.9               any protocol by number or name
Quote the packet, or write `to` for the arrow: a shell takes `>` for itself.";

#[derive(Debug, Args)]
pub struct StatusOptions {
    #[command(flatten)]
    pub control: Control,
    /// Connections, children, or CONNECTION/CHILD; everything if left out
    #[arg(value_name = "NAME")]
    pub names: Vec<String>,
    /// Show only what is not as wanted
    #[arg(long)]
    pub down: bool,
    /// Print one line for each tunnel, the worst first
    #[arg(long)]
    pub brief: bool,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    /// Measure for so long what each child carries in a second, and show it
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..=3600))]
    pub rate: Option<u64>,
    /// End with 1 if a child that is to be up by itself is not up
    #[arg(long)]
    pub check: bool,
}

#[derive(Debug, Args)]
pub struct Control {
    /// The control socket of the gateway
    #[arg(long, value_name = "PATH", default_value = config::DEFAULT_SOCKET)]
    pub socket: PathBuf,
    /// How many seconds to wait for an answer
    #[arg(long, value_name = "SECONDS", default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..=3600))]
    pub timeout: u64,
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn definitions_are_sound() {
        Cli::command().debug_assert();
    }
}
