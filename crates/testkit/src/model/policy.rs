//! Selectors and the SPD (RFC 4301 §4.4.1). The SPD is a list that is searched from the top.

use std::net::IpAddr;

/// The fields of one packet that selectors examine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flow {
    pub local: IpAddr,
    pub remote: IpAddr,
    /// The protocol. `None` if a later fragment of IPv6 does not show it.
    pub protocol: Option<u8>,
    pub ports: Option<(u16, u16)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ports {
    Any,
    Opaque,
    Range(u16, u16),
}

impl Ports {
    fn matches(self, port: Option<u16>) -> bool {
        match (self, port) {
            (Self::Any, _) => true,
            (Self::Opaque, port) => port.is_none(),
            (Self::Range(first, last), Some(port)) => first <= port && port <= last,
            (Self::Range(..), None) => false,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    Any,
    Opaque,
    Is(u8),
}

impl Protocol {
    fn matches(self, protocol: Option<u8>) -> bool {
        match self {
            Self::Any => true,
            Self::Opaque => protocol.is_none(),
            Self::Is(wanted) => protocol == Some(wanted),
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Selector {
    /// First and last address.
    pub local: (IpAddr, IpAddr),
    pub remote: (IpAddr, IpAddr),
    pub protocol: Protocol,
    pub local_ports: Ports,
    pub remote_ports: Ports,
}

fn within((first, last): (IpAddr, IpAddr), address: IpAddr) -> bool {
    first.is_ipv4() == address.is_ipv4() && first <= address && address <= last
}

impl Selector {
    fn addresses_match(&self, flow: &Flow) -> bool {
        within(self.local, flow.local) && within(self.remote, flow.remote)
    }

    /// Tells whether the selector could match if the packet showed every field.
    fn may_match(&self, flow: &Flow) -> bool {
        let hidden = flow.protocol.is_none();
        self.addresses_match(flow) && (hidden || self.protocol.matches(flow.protocol))
    }

    pub fn matches(&self, flow: &Flow) -> bool {
        self.addresses_match(flow)
            && self.protocol.matches(flow.protocol)
            && self.local_ports.matches(flow.ports.map(|(local, _)| local))
            && self
                .remote_ports
                .matches(flow.ports.map(|(_, remote)| remote))
    }
}

pub fn matches_any(selectors: &[Selector], flow: &Flow) -> bool {
    selectors.iter().any(|selector| selector.matches(flow))
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EntryAction {
    /// Protects packets by the policy with this number.
    Protect(u32),
    Bypass,
    Discard,
}

#[derive(Clone, Debug)]
pub struct Entry {
    pub selectors: Vec<Selector>,
    pub action: EntryAction,
}

pub enum Lookup {
    Protect(u32),
    Bypass,
    Discard,
    None,
}

/// Returns the first match, and no match means Discard (RFC 4301 §5.1). A packet without ports does
/// not bypass if an earlier entry might have matched its ports (RFC 4301 §7.4).
pub fn lookup(entries: &[Entry], flow: &Flow) -> Lookup {
    for (index, entry) in entries.iter().enumerate() {
        if !matches_any(&entry.selectors, flow) {
            continue;
        }
        let doubtful = flow.ports.is_none()
            && entries[..index].iter().any(|before| {
                before.action != EntryAction::Bypass
                    && before
                        .selectors
                        .iter()
                        .any(|selector| selector.may_match(flow))
            });
        return match entry.action {
            EntryAction::Protect(policy) => Lookup::Protect(policy),
            EntryAction::Bypass if doubtful => Lookup::Discard,
            EntryAction::Bypass => Lookup::Bypass,
            EntryAction::Discard => Lookup::Discard,
        };
    }
    Lookup::None
}
