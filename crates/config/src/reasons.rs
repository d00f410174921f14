//! Tells why keys of swanctl.conf are refused for good, and what does their job here. A key that is not among them is
//! only not supported yet.

/// The key, the reason, and the advice.
type Reason = (&'static str, &'static str, &'static str);

const NO_MEDIATION: &str = "IKEv2 mediation was a draft, and only strongSwan has it";
const INSTEAD_OF_MEDIATION: &str = "remove it; forward UDP ports 500 and 4500 to one of the two gateways, and name its \
                                    public address in `remote_addrs`";
const NO_LABELS: &str = "packets carry no security label in a data plane outside of the kernel";
const INSTEAD_OF_LABELS: &str =
    "remove it; make a child for each kind of traffic, with selectors or an interface";

const REASONS: &[Reason] = &[
    (
        "mark_in_sa",
        "an SA is found by its SPI, whatever mark its packets come with",
        "remove it; `mark_in` marks the packets that the child's SAs have brought",
    ),
    (
        "interface",
        "policies hold for packets from every link",
        "give the child an interface by `if_id_out`, and lead the packets of the link into it with `ip rule add iif`",
    ),
    ("label", NO_LABELS, INSTEAD_OF_LABELS),
    ("label_mode", NO_LABELS, INSTEAD_OF_LABELS),
    ("mediation", NO_MEDIATION, INSTEAD_OF_MEDIATION),
    ("mediated_by", NO_MEDIATION, INSTEAD_OF_MEDIATION),
    ("mediation_peer", NO_MEDIATION, INSTEAD_OF_MEDIATION),
    (
        "policies",
        "what no policy names enters no SA here",
        "give the child an interface by `if_id_in` and `if_id_out`, lead packets into it by routes, and remove \
         `policies` and `reqid`",
    ),
    (
        "hw_offload",
        "the data plane is not in the kernel, which would offload it",
        "set it to `auto` or `no`; `engine` chooses a device",
    ),
    (
        "per_cpu_sas",
        "all workers seal for one SA, so there are no SAs for each processor",
        "set it to `no`; `workers` in the gateway section and `peer_replay_window` in the child spread the load",
    ),
    (
        "aggressive",
        "aggressive mode belongs to IKEv1",
        "set it to `no`, and use IKEv2 at the peer",
    ),
];

/// The reason and the advice for a key that is refused for good.
pub(crate) fn reason(key: &str) -> Option<(&'static str, &'static str)> {
    let found = REASONS.iter().find(|(name, ..)| *name == key);
    found.map(|(_, why, instead)| (*why, *instead))
}

/// The reason why a value of a key that is not supported changes nothing all the same. Such a value is taken.
pub(crate) fn idle(key: &str, value: &str) -> Option<&'static str> {
    match key {
        "reqid" if value.parse::<u32>().is_ok() => {
            Some("the gateway itself ties each policy to its SAs, and numbers neither")
        }
        // RFC 7296 §2.22: a responder may decline, and the child comes up without.
        "ipcomp" if ["yes", "true", "enabled", "1"].contains(&value) => {
            Some("packets are not compressed (RFC 3173), and the peer is not asked to")
        }
        _ => None,
    }
}
