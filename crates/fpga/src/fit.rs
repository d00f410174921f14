//! Decides whether an SA of the software path fits the core, and makes its row for the core.

use crate::device_key::DeviceKey;
use esplanade_ipsec::pmtu::V6_MIN;
use esplanade_ipsec::sa::{DscpSet, Mode, OutboundSa, SaCommon, TfcPadding};
use esplanade_ipsec::selector::{PortRange, Selector};
use esplanade_ipsec::tunnel::{DfPolicy, DscpPolicy, FlowLabelPolicy, OUTER_TTL};

use crate::core::CoreError;
use crate::sa::{self, Udp};

/// The reason why an SA is not installed: the core lacks a feature, or has no room.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InstallRefused {
    #[error("the FPGA core cannot do {0}")]
    Unsupported(&'static str),
    #[error("the FPGA core has no room for another SA")]
    Full,
    #[error(
        "its selectors and those of the policies in front take more than the FPGA core's {0} policy entries"
    )]
    Policies(usize),
    #[error("there is no randomness for IVs")]
    NoRandomness,
    #[error("sequence numbers of the SA were used before")]
    Used,
    #[error(transparent)]
    Core(#[from] CoreError),
}

/// The SA is renewed this many sequence numbers before the end of 32-bit sequence numbers.
const SEQUENCE_MARGIN: u64 = 1 << 20;

/// Returns the key if the core can do everything that the SA asks for, in either direction.
pub(crate) fn device_key(common: &SaCommon) -> Result<DeviceKey, InstallRefused> {
    let no = |what| Err(InstallRefused::Unsupported(what));
    if common.mode != Mode::Tunnel {
        return no("transport mode");
    }
    if common.tfc != TfcPadding::None {
        return no("padding against traffic analysis");
    }
    if common.interface != 0 {
        return no("policies of interfaces");
    }
    if common.dscp != DscpSet::ALL {
        return no("SAs for certain DSCPs");
    }
    let selectors = common.selectors.as_slice();
    // The core does not reassemble. Packets of such SAs would have to be reassembled first, and could become too
    // long.
    let by_ports =
        |s: &Selector| s.local_ports != PortRange::Any || s.remote_ports != PortRange::Any;
    if common.non_first_fragments || selectors.iter().any(by_ports) {
        return no("ports as selectors");
    }
    DeviceKey::new(common.material()).ok_or(InstallRefused::Unsupported(
        "this combination of algorithms",
    ))
}

/// Makes the row of an SA that starts at its first sequence number.
pub(crate) fn row_of(
    sa: &OutboundSa,
    iv_base: u64,
    path_mtu: Option<u16>,
) -> Result<sa::OutboundSaRow, InstallRefused> {
    let common = &sa.common;
    let (path, tunnel) = (common.path(), &common.tunnel);
    let dscp = match &tunnel.dscp {
        DscpPolicy::Copy => None,
        DscpPolicy::Map(map) => {
            let first = map.get(0);
            if (0..64).any(|code_point| map.get(code_point) != first) {
                return Err(InstallRefused::Unsupported("a map of DSCPs"));
            }
            Some(first)
        }
    };
    if tunnel.flow_label == FlowLabelPolicy::Hash {
        return Err(InstallRefused::Unsupported("hashes as flow labels"));
    }
    let ports = Udp {
        local: path.local.port(),
        remote: path.remote.port(),
    };
    let esn = common.esn();
    Ok(sa::OutboundSaRow {
        udp: path.udp_encap.then_some(ports),
        df: tunnel.df,
        ecn: tunnel.ecn,
        dscp,
        path_mtu: limit(sa, path_mtu),
        ttl: tunnel.ttl.map_or(OUTER_TTL, Into::into),
        copy_flow_label: tunnel.flow_label == FlowLabelPolicy::Copy,
        iv_base,
        sequence_soft: if esn {
            u64::MAX
        } else {
            u64::from(u32::MAX) - SEQUENCE_MARGIN
        },
        ..sa::OutboundSaRow::new(common.spi, esn, path.local.ip(), path.remote.ip())
    })
}

/// Returns the limit for the core's outer packets in bytes. There is no limit if all of them may be fragmented. The
/// limit is never below what an IPv6 sender may send on every path (RFC 8200 §5). Longer outer packets are then
/// fragmented on their way out.
fn limit(sa: &OutboundSa, path_mtu: Option<u16>) -> Option<u16> {
    let path_mtu = path_mtu.filter(|_| sa.common.tunnel.df != DfPolicy::Clear)?;
    let mut selectors = sa.common.selectors.as_slice().iter();
    let least = match selectors.any(|selector| selector.local.first().is_ipv6()) {
        true => sa.outer_len(V6_MIN.into()),
        false => 0,
    };
    Some(path_mtu.max(least.try_into().unwrap_or(u16::MAX)))
}

/// Returns true if some addresses match both selectors, whatever the protocol.
pub(crate) fn overlap(a: &Selector, b: &Selector) -> bool {
    a.local.overlaps(&b.local) && a.remote.overlaps(&b.remote)
}
