//! `esplanade explain`: which policy a packet meets, what happens to it and why.

mod packet;
mod report;

use super::args::Explain;
use super::{Exit, Failure, load, print};
use crate::config::{self, GatewayConfig};

pub(super) fn explain(options: &Explain) -> Result<(), Failure> {
    let dscp = config::dscp(&options.dscp).ok_or_else(|| {
        let what = format!("`{}` is not a DSCP", options.dscp);
        Failure::new(Exit::Usage, what).help("write a name such as ef, af41 or cs1, or 0 to 63")
    })?;
    let mut packet = packet::Packet::parse(&options.packet, options.fragment, dscp)?;
    let loaded = load(&options.config)?;
    if let Some(name) = &options.interface {
        packet.interface = if_id(&loaded.gateway, name)?;
    }
    let report = report::Report::new(&loaded, &packet, options.r#in);
    let text = match options.json {
        true => {
            let json = serde_json::to_value(&report).map_err(Failure::runtime)?;
            format!("{json:#}\n")
        }
        false => report.to_string(),
    };
    print(text.as_bytes())
}

fn if_id(gateway: &GatewayConfig, name: &str) -> Result<u32, Failure> {
    let interfaces = &gateway.interfaces;
    match interfaces.iter().find(|interface| interface.name == name) {
        Some(interface) => Ok(interface.if_id),
        None if gateway.tun == name => Ok(0),
        None => {
            let names = interfaces.iter().map(|interface| interface.name.as_str());
            let names: Vec<_> = names.chain([gateway.tun.as_str()]).collect();
            let what = format!("`{name}` is not one of the gateway's interfaces");
            Err(Failure::new(Exit::Usage, what).help(format!("there are {}", names.join(", "))))
        }
    }
}
