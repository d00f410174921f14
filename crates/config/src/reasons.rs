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
        "ipcomp",
        "packets are not compressed (RFC 3173)",
        "set it to `no`; a peer that offers compression does without",
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
