//! Whether an SA of the software path fits the core, and what it is there.

use esplanade_crypto::device_key::DeviceKey;
use esplanade_ipsec::sa::{DscpSet, Mode, OutboundSa, SaCommon, TfcPadding};
use esplanade_ipsec::selector::{AddressRange, PortRange, Selector};
use esplanade_ipsec::tunnel::{DscpPolicy, FlowLabelPolicy, OUTER_TTL};

use crate::inline::Refused;
use crate::sa::{self, Udp};

/// So far before the end of 32-bit sequence numbers the SA is renewed.
const SEQUENCE_MARGIN: u64 = 1 << 20;

/// The key, if the core can do all that the SA wants of either direction.
pub(crate) fn device_key(common: &SaCommon, key_material: &[u8]) -> Result<DeviceKey, Refused> {
    let no = |what| Err(Refused::Unsupported(what));
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
    // Fragments of their packets would have to be put together, and become too long.
    let by_ports =
        |s: &Selector| s.local_ports != PortRange::Any || s.remote_ports != PortRange::Any;
    if common.non_first_fragments || selectors.iter().any(by_ports) {
        return no("ports as selectors");
    }
    DeviceKey::new(common.transform(), key_material)
        .ok_or(Refused::Unsupported("this combination of algorithms"))
}

/// The row of an SA that begins anew.
pub(crate) fn row_of(
    sa: &OutboundSa,
    iv_base: u64,
    path_mtu: Option<u16>,
) -> Result<sa::OutboundSa, Refused> {
    let common = &sa.common;
    let (path, tunnel) = (common.path(), &common.tunnel);
    let dscp = match &tunnel.dscp {
        DscpPolicy::Copy => None,
        DscpPolicy::Map(map) => {
            let first = map.get(0);
            if (0..64).any(|code_point| map.get(code_point) != first) {
                return Err(Refused::Unsupported("a map of DSCPs"));
            }
            Some(first)
        }
    };
    if tunnel.flow_label == FlowLabelPolicy::Hash {
        return Err(Refused::Unsupported("hashes as flow labels"));
    }
    let ports = Udp {
        local: path.local.port(),
        remote: path.remote.port(),
    };
    let esn = common.esn();
    Ok(sa::OutboundSa {
        udp: path.udp_encap.then_some(ports),
        df: tunnel.df,
        ecn: tunnel.ecn,
        dscp,
        path_mtu,
        ttl: tunnel.ttl.map_or(OUTER_TTL, Into::into),
        copy_flow_label: tunnel.flow_label == FlowLabelPolicy::Copy,
        iv_base,
        sequence_soft: if esn {
            u64::MAX
        } else {
            u64::from(u32::MAX) - SEQUENCE_MARGIN
        },
        ..sa::OutboundSa::new(common.spi, esn, path.local.ip(), path.remote.ip())
    })
}

/// Whether some packet is for both.
pub(crate) fn overlap(a: &Selector, b: &Selector) -> bool {
    let ranges =
        |a: &AddressRange, b: &AddressRange| a.contains(b.first()) || b.contains(a.first());
    ranges(&a.local, &b.local) && ranges(&a.remote, &b.remote)
}
