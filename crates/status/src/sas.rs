//! Security associations, as `list-sas` shows them.

use std::net::IpAddr;

use esplanade_engines::Named;
use serde::Serialize;

use super::connections::Selectors;
use super::parts::{hex_32, hex_64, is_no};
use esplanade_engines::stats::NamedCounters;

/// An IKE SA. Times are in seconds. What strongSwan shows too comes in its order: programs read lines by patterns.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct ListedIkeSa {
    pub uniqueid: u64,
    /// The version of IKE.
    pub version: u8,
    pub state: &'static str,
    pub local_host: IpAddr,
    pub local_port: u16,
    /// The identity. It is `%any` while it is not known.
    pub local_id: String,
    pub remote_host: IpAddr,
    pub remote_port: u16,
    /// The identity. It is `%any` while it is not known.
    pub remote_id: String,
    /// This gateway began the SA.
    #[serde(skip_serializing_if = "is_no")]
    pub initiator: bool,
    #[serde(serialize_with = "hex_64")]
    pub initiator_spi: u64,
    #[serde(serialize_with = "hex_64")]
    pub responder_spi: u64,
    /// This gateway is behind a NAT.
    #[serde(skip_serializing_if = "is_no")]
    pub nat_local: bool,
    /// The peer is behind a NAT.
    #[serde(skip_serializing_if = "is_no")]
    pub nat_remote: bool,
    /// Either end is behind a NAT.
    #[serde(skip_serializing_if = "is_no")]
    pub nat_any: bool,
    /// The name of the cipher. This field and the next four are `None` before a suite is chosen.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub encr_alg: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub encr_keysize: Option<u16>,
    /// The name of the integrity algorithm. It is `None` with an AEAD cipher.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub integ_alg: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prf_alg: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dh_group: Option<String>,
    /// The groups of the connection that the peer has proved to be in.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub groups: Vec<String>,
    /// Both ends take fragments of IKE messages (RFC 7383).
    #[serde(skip_serializing_if = "is_no")]
    pub fragmentation: bool,
    /// The ends have proved who they are over both messages of IKE_SA_INIT.
    #[serde(skip_serializing_if = "is_no")]
    pub full_transcript: bool,
    /// The path MTU to the peer in bytes, if it is known to be less than the MTU of the route.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path_mtu: Option<u32>,
    /// The source of the path MTU: `probes`, or `icmp` for ICMP errors and the own kernel.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path_mtu_by: Option<&'static str>,
    /// Time since the SA was established.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub established: Option<u64>,
    /// Time until the SA is rekeyed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rekey_time: Option<u64>,
    /// Time until the peers authenticate again.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reauth_time: Option<u64>,
    /// The reason why the peers could not authenticate again, the last time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reauth_error: Option<String>,
    /// Time since that attempt.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reauth_error_age: Option<u64>,
    /// The reason why the SA could not be rekeyed, the last time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rekey_error: Option<String>,
    /// Time since that attempt.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rekey_error_age: Option<u64>,
    /// Exchanges that wait for their turn.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tasks_queued: Vec<&'static str>,
    /// The exchange that waits for the peer.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tasks_active: Vec<&'static str>,
    /// The child SAs by the child's name and the SA's number: `net-3`.
    pub child_sas: Named<ListedChildSa>,
}

/// A child SA. Times are in seconds. The order is strongSwan's.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct ListedChildSa {
    pub name: String,
    pub uniqueid: u64,
    /// The SPD's number of the policy. `None` means that the data plane does not have the SA.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reqid: Option<u32>,
    pub state: &'static str,
    pub mode: &'static str,
    pub protocol: &'static str,
    /// ESP packets travel in UDP (RFC 3948).
    #[serde(skip_serializing_if = "is_no")]
    pub encap: bool,
    #[serde(serialize_with = "hex_32")]
    pub spi_in: u32,
    #[serde(serialize_with = "hex_32")]
    pub spi_out: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub encr_alg: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub encr_keysize: Option<u16>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub integ_alg: Option<String>,
    /// The method of the key exchange of its own. It is `None` if the keys come from the IKE SA's keys alone.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dh_group: Option<String>,
    /// 1 with extended sequence numbers (RFC 4303 §2.2.1).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub esn: Option<u8>,
    /// The traffic of the SA. `None` means that the data plane does not have the SA.
    #[serde(flatten)]
    pub traffic: Option<ChildTraffic>,
    /// The SA sends and receives nothing, while its peer answers IKE.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub one_way: Option<ListedOneWay>,
    /// Time since the SA was installed.
    pub install_time: u64,
    /// Time until the SA is rekeyed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rekey_time: Option<u64>,
    /// Time until the SA ends.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub life_time: Option<u64>,
    pub local_ts: Selectors,
    pub remote_ts: Selectors,
}

/// Traffic of a child SA that goes one way.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct ListedOneWay {
    /// `suspected`, or `possible` where the traffic may need no answer.
    pub verdict: &'static str,
    /// Time since the first packet that had no answer.
    #[serde(rename = "for")]
    pub lasts: u64,
    /// The peer has sent on this SA before, or on one that this SA has replaced.
    #[serde(skip_serializing_if = "is_no")]
    pub answered_before: bool,
    /// The trial of UDP encapsulation: `under-way`, `helped` or `in-vain`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub udp_trial: Option<&'static str>,
    /// The likely causes, the likeliest first.
    pub causes: Vec<String>,
}

/// A child SA, as the data plane knows it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct ChildTraffic {
    /// The engine that carries the SA, if the gateway has several. It is `adaptive` if the load decides for each half.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub engine: Option<&'static str>,
    /// The engines that carry the halves of an adaptive child now.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub engine_in: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub engine_out: Option<&'static str>,
    /// The reason why the CPU carries the SA, or a half of it, and not the engine that it is to be with.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub engine_reason: Option<String>,
    #[serde(flatten, serialize_with = "inbound")]
    pub inbound: HalfTraffic,
    #[serde(flatten, serialize_with = "outbound")]
    pub outbound: HalfTraffic,
    /// The drops by reason. Only reasons for which a packet was dropped are there, because most SAs never drop one.
    #[serde(skip_serializing_if = "NamedCounters::is_empty")]
    pub drops: NamedCounters,
}

/// The traffic that one half of a child SA has carried.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HalfTraffic {
    pub bytes: u64,
    pub packets: u64,
    /// The tunnel interface that the half is bound to. `None` means the common one.
    pub if_id: Option<u32>,
    /// The firewall mark of the half's packets outside of the tunnel, and its mask.
    pub mark: Option<(u32, u32)>,
    /// Seconds since the last packet. `None` means that there was no packet yet.
    pub idle: Option<u64>,
}

fn inbound<S: serde::Serializer>(half: &HalfTraffic, serializer: S) -> Result<S::Ok, S::Error> {
    let keys = [
        "bytes-in",
        "packets-in",
        "if-id-in",
        "mark-in",
        "mark-mask-in",
        "use-in",
    ];
    half.serialize(keys, serializer)
}

fn outbound<S: serde::Serializer>(half: &HalfTraffic, serializer: S) -> Result<S::Ok, S::Error> {
    let keys = [
        "bytes-out",
        "packets-out",
        "if-id-out",
        "mark-out",
        "mark-mask-out",
        "use-out",
    ];
    half.serialize(keys, serializer)
}

impl HalfTraffic {
    fn serialize<S: serde::Serializer>(
        &self,
        [bytes, packets, if_id, mark, mask, idle]: [&'static str; 6],
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        use serde::ser::SerializeMap;
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry(bytes, &self.bytes)?;
        map.serialize_entry(packets, &self.packets)?;
        if let Some(id) = self.if_id {
            map.serialize_entry(if_id, &format!("{id:08x}"))?;
        }
        if let Some((value, bits)) = self.mark {
            map.serialize_entry(mark, &format!("{value:08x}"))?;
            map.serialize_entry(mask, &format!("{bits:08x}"))?;
        }
        if let Some(seconds) = self.idle {
            map.serialize_entry(idle, &seconds)?;
        }
        map.end()
    }
}
