//! `esplanade explain`: which policy a packet meets, what happens to it and why.

mod configured;

use super::args::{Control, Explain};
use super::{control, load, print};
use crate::config::{self, GatewayConfig};
use crate::explain::{PacketSpec, Report};
use crate::failure::{Exit, Failure};
use crate::vici::Section;

pub(super) fn explain(options: &Explain) -> Result<(), Failure> {
    let dscp = config::dscp(&options.dscp).ok_or_else(|| {
        let what = format!("`{}` is not a DSCP", options.dscp);
        Failure::new(Exit::Usage, what).help("write a name such as ef, af41 or cs1, or 0 to 63")
    })?;
    let mut packet = PacketSpec::parse(&options.packet, options.fragment, dscp)
        .map_err(|error| Failure::new(Exit::Usage, error.what).help(error.help))?;
    let report = match &options.config {
        Some(file) => {
            let loaded = load(file)?;
            if let Some(name) = &options.interface {
                packet.interface = interface(&loaded.gateway, name)?;
            }
            configured::report(&loaded, &packet, options.r#in)
        }
        None => ask(options)?,
    };
    let text = match options.json {
        true => {
            let json = serde_json::to_value(&report).map_err(Failure::runtime)?;
            crate::status::json::lines(&json)
        }
        false => report.to_string(),
    };
    print(text.as_bytes())
}

/// Asks the running gateway.
fn ask(options: &Explain) -> Result<Report, Failure> {
    let mut question = Section::new();
    question
        .set("packet", options.packet.join(" "))
        .set("direction", if options.r#in { "in" } else { "out" })
        .set("dscp", &options.dscp);
    for (key, on) in [
        ("fragment", options.fragment),
        ("dont-fragment", options.dont_fragment),
    ] {
        if on {
            question.set(key, "yes");
        }
    }
    if let Some(name) = &options.interface {
        question.set("interface", name);
    }
    if let Some(length) = options.length {
        question.set("length", length);
    }
    let control = Control {
        socket: options.socket.clone(),
        timeout: options.timeout,
    };
    let answer = control::ask(&control, "explain", question).map_err(|failure| {
        let help = "start one with `esplanade run`, name its socket with --socket, or a configuration with --config";
        match failure.exit {
            Exit::Unreachable => failure.help(help),
            _ => failure,
        }
    })?;
    Report::read(&answer).ok_or_else(|| {
        let what = "the gateway's answer is of another version";
        Failure::runtime(what).help("use the `esplanade` that runs the gateway")
    })
}

fn interface(gateway: &GatewayConfig, name: &str) -> Result<u32, Failure> {
    gateway.interface_id(name).ok_or_else(|| {
        let interfaces = gateway.interfaces.iter();
        let names = interfaces.map(|interface| interface.name.as_str());
        let names: Vec<_> = names.chain([gateway.tun.as_str()]).collect();
        let what = format!("`{name}` is not one of the gateway's interfaces");
        Failure::new(Exit::Usage, what).help(format!("there are {}", names.join(", ")))
    })
}
