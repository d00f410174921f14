//! A child of the configuration, as the SPD and the routes need it.

use std::sync::Arc;

use esplanade_ipsec::selector::TrafficSelector;
use esplanade_ipsec::spd::PolicyId;

use crate::config::SaOptions;

/// The names of a connection and of a child of it.
pub(super) type ChildName = (String, String);

/// A child of the configuration. A list of these has the order of the SPD. The SPD, the shield and the routes share it.
pub type ConfiguredPolicy = Arc<ChildPolicy>;

/// The policy of a child of the configuration.
#[derive(Clone, Debug, PartialEq)]
pub struct ChildPolicy {
    pub connection: String,
    pub child: String,
    pub kind: PolicyKind,
    pub local: Vec<TrafficSelector>,
    pub remote: Vec<TrafficSelector>,
    /// The child of the same connection whose SPD entry this child shares. Children that differ in DSCPs only share the
    /// entry of the first of them; any other child has its own.
    pub shares_entry_of: String,
    pub shared_traffic: SharedTraffic,
    pub sa: SaOptions,
}

/// The settings of a child that count where its traffic is another child's too.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SharedTraffic {
    /// The connection is for one identity only.
    pub of_one_peer: bool,
    /// `overlap`: several peers may have the traffic.
    pub overlap: bool,
    /// `start_action = trap`: a packet asks for an SA of this child.
    pub trap: bool,
}

/// The treatment of a policy's traffic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PolicyKind {
    Bypass,
    Discard,
    /// The traffic is held while there is no SA. With `trap` it also asks IKE for one.
    Protect {
        trap: bool,
    },
}

impl ChildPolicy {
    pub fn name(&self) -> ChildName {
        (self.connection.clone(), self.child.clone())
    }

    /// Returns the name of the child whose SPD entry this child shares.
    pub fn entry_name(&self) -> ChildName {
        (self.connection.clone(), self.shares_entry_of.clone())
    }

    /// Returns the name in the form `connection/child`.
    pub(super) fn full_name(&self) -> String {
        format!("{}/{}", self.connection, self.child)
    }
}

/// A policy that a peer has negotiated beside the selectors of its child. It stands while it has SAs.
#[derive(Clone, Debug)]
pub struct PeerPolicy {
    pub id: PolicyId,
    /// The connection, and the child whose entry in the SPD the policy comes behind.
    pub entry: (String, String),
    pub local: Vec<TrafficSelector>,
    pub remote: Vec<TrafficSelector>,
}

impl ChildPolicy {
    /// Tells whether the policy covers these addresses. A `dynamic` selector has an address only when the peer is
    /// there.
    pub fn covers(&self, local: &[TrafficSelector], remote: &[TrafficSelector]) -> bool {
        let within = |wide: &[TrafficSelector], ends: &[TrafficSelector]| {
            let mut ends = ends.iter();
            ends.all(|ts| wide.iter().any(|wide| covers(wide, ts)))
        };
        within(&self.local, local) && within(&self.remote, remote)
    }
}

/// Tells whether `wide` contains all addresses of `ts`.
pub(super) fn covers(wide: &TrafficSelector, ts: &TrafficSelector) -> bool {
    wide.addresses.contains(ts.addresses.first()) && wide.addresses.contains(ts.addresses.last())
}
