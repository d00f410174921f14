//! `esplanade explain`: which policy a packet meets, what happens to it and why.

mod packet;
mod report;

use super::args::Explain;
use super::{Exit, Failure, load, print};
use crate::config;

pub(super) fn explain(options: &Explain) -> Result<(), Failure> {
    let dscp = config::dscp(&options.dscp).ok_or_else(|| {
        let what = format!("`{}` is not a DSCP", options.dscp);
        Failure::new(Exit::Usage, what).help("write a name such as ef, af41 or cs1, or 0 to 63")
    })?;
    let packet = packet::Packet::parse(&options.packet, options.fragment, dscp)?;
    let loaded = load(&options.config)?;
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
