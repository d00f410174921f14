//! Lists the keys and sections that exist: those that Esplanade obeys, and those of swanctl.conf
//! that it does not support yet. It does not parse values.

use super::diagnostics::{Diagnostic, Diagnostics, nearest, quoted};
use super::engine::engine_section;
use super::reasons;
use super::tree::SectionNode;
use super::value::given;

/// The keys and sections that one kind of section may contain.
#[derive(Debug)]
pub struct Schema {
    /// The kind of section, with its article, for messages.
    pub what: &'static str,
    pub keys: &'static [&'static str],
    /// Prefixes of keys that end in a free suffix (`id-1`).
    pub key_prefixes: &'static [&'static str],
    pub sections: &'static [&'static str],
    /// Prefixes of sections that end in a free suffix (`local-1`).
    pub section_prefixes: &'static [&'static str],
    /// Sections with any other name are accepted too (connections, children).
    pub named_sections: bool,
    /// Sections with the names of engines are accepted too.
    pub engine_sections: bool,
    /// Keys of swanctl.conf that are not supported, or not yet. The listed values change nothing, so they
    /// are accepted.
    pub later: &'static [(&'static str, &'static [&'static str])],
    /// Prefixes of sections of swanctl.conf that are not supported yet.
    pub later_sections: &'static [&'static str],
}

pub(crate) const EMPTY: Schema = Schema {
    what: "",
    keys: &[],
    key_prefixes: &[],
    sections: &[],
    section_prefixes: &[],
    named_sections: false,
    engine_sections: false,
    later: &[],
    later_sections: &[],
};

const YES: &[&str] = &["yes", "true", "enabled", "1"];
const NO: &[&str] = &["no", "false", "disabled", "0"];
const EITHER: &[&str] = &[
    "yes", "true", "enabled", "1", "no", "false", "disabled", "0",
];
const NO_OR_AUTO: &[&str] = &["no", "false", "disabled", "0", "auto"];
const ZERO: &[&str] = &["0", "0s", "0m", "0h", "0d"];
const NONE: &[&str] = &[];

pub const TOP: Schema = Schema {
    what: "the configuration",
    sections: &["connections", "secrets", "authorities", "gateway"],
    later_sections: &["pools"],
    ..EMPTY
};

pub const GATEWAY: Schema = Schema {
    what: "the gateway section",
    keys: &[
        "listen",
        "port",
        "port_nat_t",
        "raw_esp",
        "xdp",
        "tun",
        "mtu",
        "workers",
        "ike_threads",
        "flow_cache_size",
        "engine",
        "cpu_tier",
        "pool_threads",
        "table",
        "mark",
        "socket",
        "log_level",
        "fragment_size",
        "nat_keepalive",
        "full_transcript_auth",
        "quick_crash_detection",
        "inactivity_close_ike",
        "fetch_revocation",
        "fetch_allow",
        "state_directory",
        "retransmit_tries",
        "retransmit_timeout",
        "retransmit_base",
        "cookie_threshold",
        "half_open_max",
        "half_open_per_source_max",
        "half_open_per_network_max",
        "half_open_timeout",
        "ike_sas_per_peer_max",
        "child_sas_per_ike_sa_max",
        "child_sas_per_peer_max",
        "selectors_per_peer_max",
        "child_requests_per_second",
        "mss_clamp",
        "reassemble",
        "icmp_unreachable",
        "on_stop",
        "confine",
        "readable",
    ],
    sections: &["ace", "gpu", "interfaces", "pkcs11"],
    engine_sections: true,
    ..EMPTY
};

pub const ACE: Schema = Schema {
    what: "the ace section",
    keys: &["library", "signer", "fabrics", "interface_rate"],
    ..EMPTY
};

pub const GPU: Schema = Schema {
    what: "the gpu section",
    keys: &[
        "device",
        "batch",
        "deadline_us",
        "tables",
        "latency_us",
        "threshold",
    ],
    ..EMPTY
};

pub const INTERFACES: Schema = Schema {
    what: "the interfaces section",
    named_sections: true,
    ..EMPTY
};

pub const INTERFACE: Schema = Schema {
    what: "an interface",
    keys: &["if_id", "mtu", "addresses"],
    ..EMPTY
};

pub const PKCS11: Schema = Schema {
    what: "the pkcs11 section",
    sections: &["modules"],
    ..EMPTY
};

pub const PKCS11_MODULES: Schema = Schema {
    what: "the modules section",
    named_sections: true,
    ..EMPTY
};

pub const PKCS11_MODULE: Schema = Schema {
    what: "a PKCS#11 module",
    keys: &["path"],
    ..EMPTY
};

pub const CONNECTIONS: Schema = Schema {
    what: "the connections section",
    named_sections: true,
    ..EMPTY
};

pub const CONNECTION: Schema = Schema {
    what: "a connection",
    keys: &[
        "version",
        "local_addrs",
        "remote_addrs",
        "dscp",
        "local_port",
        "remote_port",
        "proposals",
        "encap",
        "fragmentation",
        "path_mtu_probe",
        "childless",
        "full_transcript_auth",
        "mobike",
        "dpd_delay",
        "dpd_timeout",
        "send_certreq",
        "ocsp",
        "send_cert",
        "keyingtries",
        "unique",
        "reauth_time",
        "rekey_time",
        "over_time",
        "rand_time",
        "legacy",
        "private_use",
        "if_id_in",
        "if_id_out",
    ],
    sections: &["children", "peers"],
    section_prefixes: &["local", "remote"],
    later: &[
        ("vips", NONE),
        ("aggressive", NO),
        ("pull", &["yes", "true", "enabled", "1"]),
        ("ppk_id", NONE),
        ("ppk_required", NO),
        ("pools", NONE),
        ("mediation", NO),
        ("mediated_by", NONE),
        ("mediation_peer", NONE),
    ],
    ..EMPTY
};

pub const LOCAL: Schema = Schema {
    what: "a local section",
    keys: &["auth", "id", "certs", "pubkeys"],
    later: &[
        ("round", ZERO),
        ("cert", NONE),
        ("eap_id", NONE),
        ("aaa_id", NONE),
        ("xauth_id", NONE),
    ],
    section_prefixes: &["cert"],
    ..EMPTY
};

pub const LOCAL_CERT: Schema = Schema {
    what: "a certificate",
    keys: &["file", "handle", "slot", "module"],
    ..EMPTY
};

pub const REMOTE: Schema = Schema {
    what: "a remote section",
    keys: &[
        "auth",
        "id",
        "certs",
        "pubkeys",
        "cacerts",
        "ca_id",
        "cert_policy",
        "eku",
        "revocation",
        "groups",
    ],
    later: &[
        ("round", ZERO),
        ("cert", NONE),
        ("cacert", NONE),
        ("eap_id", NONE),
    ],
    later_sections: &["cert", "cacert"],
    ..EMPTY
};

pub const PEERS: Schema = Schema {
    what: "the peers section",
    named_sections: true,
    ..EMPTY
};

pub const PEER: Schema = Schema {
    what: "a peer",
    keys: &["id", "remote_ts"],
    ..EMPTY
};

pub const CHILDREN: Schema = Schema {
    what: "the children section",
    named_sections: true,
    ..EMPTY
};

pub const CHILD: Schema = Schema {
    what: "a child",
    keys: &[
        "local_ts",
        "remote_ts",
        "esp_proposals",
        "ah_proposals",
        "mode",
        "start_action",
        "dpd_action",
        "close_action",
        "rekey_time",
        "life_time",
        "rand_time",
        "rekey_bytes",
        "life_bytes",
        "rand_bytes",
        "rekey_packets",
        "life_packets",
        "rand_packets",
        "replay_window",
        "peer_replay_window",
        "priority",
        "copy_df",
        "copy_dscp",
        "copy_ecn",
        "dscp_map",
        "ttl",
        "icmp_errors",
        "icmp",
        "non_first_fragments",
        "tfc_padding",
        "tfc_dummies",
        "inactivity",
        "dscp",
        "class",
        "pfp",
        "overlap",
        "if_id_in",
        "if_id_out",
        "mark_in",
        "mark_out",
        "set_mark_in",
        "set_mark_out",
        "engine",
        "updown",
        "hostaccess",
    ],
    later: &[
        ("sha256_96", NO),
        ("policies", YES),
        // Nothing but the policies decides here which packets are forwarded.
        ("policies_fwd_out", EITHER),
        ("ipcomp", NO),
        ("reqid", ZERO),
        ("interface", NONE),
        ("mark_in_sa", NO),
        ("label", NONE),
        ("label_mode", &["system"]),
        // Automatic means "if there is any", and there is none outside of the kernel.
        ("hw_offload", NO_OR_AUTO),
        ("per_cpu_sas", NO),
    ],
    ..EMPTY
};

pub const SECRETS: Schema = Schema {
    what: "the secrets section",
    section_prefixes: &["ike", "private", "rsa", "ecdsa", "pkcs8", "pkcs12", "token"],
    later_sections: &["eap", "xauth", "ntlm", "ppk"],
    ..EMPTY
};

pub const SECRET_IKE: Schema = Schema {
    what: "an ike secret",
    keys: &["secret"],
    key_prefixes: &["id"],
    ..EMPTY
};

pub const SECRET_PRIVATE: Schema = Schema {
    what: "a private key",
    keys: &["file", "secret"],
    ..EMPTY
};

pub const SECRET_TOKEN: Schema = Schema {
    what: "a token secret",
    keys: &["handle", "slot", "module", "pin"],
    ..EMPTY
};

pub const AUTHORITIES: Schema = Schema {
    what: "the authorities section",
    named_sections: true,
    ..EMPTY
};

pub const AUTHORITY: Schema = Schema {
    what: "an authority",
    keys: &[
        "cacert",
        "crl_uris",
        "ocsp_uris",
        "cert_uri_base",
        "file",
        "handle",
        "slot",
        "module",
    ],
    ..EMPTY
};

/// Every kind of section, by the path that the documentation uses.
pub const ALL: &[(&str, &Schema)] = &[
    ("gateway", &GATEWAY),
    ("gateway.ace", &ACE),
    ("gateway.gpu", &GPU),
    ("gateway.interfaces.<interface>", &INTERFACE),
    ("gateway.pkcs11.modules.<module>", &PKCS11_MODULE),
    ("connections.<conn>", &CONNECTION),
    ("connections.<conn>.local<suffix>", &LOCAL),
    ("connections.<conn>.local<suffix>.cert<suffix>", &LOCAL_CERT),
    ("connections.<conn>.remote<suffix>", &REMOTE),
    ("connections.<conn>.peers.<peer>", &PEER),
    ("connections.<conn>.children.<child>", &CHILD),
    ("secrets.ike<suffix>", &SECRET_IKE),
    ("secrets.private<suffix>", &SECRET_PRIVATE),
    ("secrets.token<suffix>", &SECRET_TOKEN),
    ("authorities.<authority>", &AUTHORITY),
];

/// Reports every key and section of `node` that `schema` does not contain.
pub(crate) fn check(
    node: &SectionNode,
    schema: &Schema,
    secret: bool,
    diagnostics: &mut Diagnostics,
) {
    check_with(node, schema, secret, diagnostics, SectionNode::is_empty);
}

/// The same for a node whose sections lack their contents. `is_empty` tells which of them have none.
pub(crate) fn check_with(
    node: &SectionNode,
    schema: &Schema,
    secret: bool,
    diagnostics: &mut Diagnostics,
    is_empty: impl Fn(&SectionNode) -> bool,
) {
    node.set_known();
    let mut push = |diagnostic: Diagnostic| {
        diagnostics.push(if secret {
            diagnostic.hide_source()
        } else {
            diagnostic
        });
    };
    for entry in node.values() {
        let key = entry.key.value.as_str();
        let known = schema.keys.contains(&key)
            || schema
                .key_prefixes
                .iter()
                .any(|prefix| key.starts_with(prefix));
        // An empty value only clears an inherited value, so it is always accepted.
        if known || given(node, key).is_none() && schema.later.iter().any(|(name, _)| *name == key)
        {
            continue;
        }
        let later = schema.later.iter().find(|(name, _)| *name == key);
        match later {
            Some((_, taken)) if taken.contains(&entry.value.value.obey()) => {}
            Some((_, taken)) => {
                if let Some(why) = reasons::idle(key, entry.value.value.obey()) {
                    let warning = Diagnostic::warning(format!("`{key}`: {why}")).at(entry.value.at);
                    push(warning.help("leave it out: it changes nothing"));
                    continue;
                }
                let help = match taken.first() {
                    Some(value) => format!("remove it, or set it to `{value}`"),
                    None => "remove it".to_owned(),
                };
                let what = format!("`{key}` in {} is not supported", schema.what);
                let (what, help) = match reasons::reason(key) {
                    Some((why, instead)) => (format!("{what}: {why}"), instead.to_owned()),
                    None => (format!("{what} yet"), help),
                };
                push(Diagnostic::error(what).at(entry.key.at).help(help));
            }
            None => {
                let what = format!("{} has no key {}", schema.what, quoted(key));
                let help = match (nearest(key, keys_of(schema)), elsewhere(key)) {
                    (Some(near), _) if near != key => format!("did you mean `{near}`?"),
                    (_, Some(place)) => format!("`{key}` belongs into {place}"),
                    _ if is_section(key, schema) => {
                        format!("`{key}` is a section: write `{key} {{ … }}`")
                    }
                    _ => "remove it; docs/configuration.md lists the keys".to_owned(),
                };
                push(Diagnostic::error(what).at(entry.key.at).help(help));
            }
        }
    }
    check_sections(node, schema, is_empty, &mut push);
}

/// Reports every section of `node` that `schema` does not contain.
fn check_sections(
    node: &SectionNode,
    schema: &Schema,
    is_empty: impl Fn(&SectionNode) -> bool,
    push: &mut impl FnMut(Diagnostic),
) {
    for section in node.sections() {
        let name = section.name.value.as_str();
        if schema.named_sections || is_section(name, schema) {
            continue;
        }
        if schema.engine_sections && engine_section(name).is_some() {
            continue;
        }
        let later = schema
            .later_sections
            .iter()
            .any(|prefix| name.starts_with(prefix));
        // Templates write sections that they have nothing for.
        if later && is_empty(section) {
            section.set_known();
            continue;
        }
        let (what, help) = if later {
            (
                format!("the section `{name}` is not supported yet"),
                "remove it".to_owned(),
            )
        } else {
            let what = format!("{} has no section {}", schema.what, quoted(name));
            let known = schema
                .sections
                .iter()
                .chain(schema.section_prefixes)
                .copied();
            let help = match nearest(name, known.clone()).or_else(|| begins_alike(name, known)) {
                Some(near) => format!("did you mean `{near}`?"),
                None if schema.keys.contains(&name) => {
                    format!("`{name}` is a key: write `{name} = …`")
                }
                None => "remove it; docs/configuration.md lists the sections".to_owned(),
            };
            (what, help)
        };
        push(Diagnostic::error(what).at(section.name.at).help(help));
    }
}

/// Returns the known section that shares most of the beginning of `name`: `childs` means
/// `children`.
fn begins_alike(name: &str, mut known: impl Iterator<Item = &'static str>) -> Option<&'static str> {
    const ALIKE_MIN: usize = 4;
    known.find(|known| {
        let same = name.chars().zip(known.chars()).take_while(|(a, b)| a == b);
        let alike = same.count();
        alike >= ALIKE_MIN && alike * 3 >= name.chars().count() * 2
    })
}

fn keys_of(schema: &Schema) -> impl Iterator<Item = &'static str> {
    schema
        .keys
        .iter()
        .copied()
        .chain(schema.later.iter().map(|(name, _)| *name))
        .chain(schema.key_prefixes.iter().copied())
}

fn is_section(name: &str, schema: &Schema) -> bool {
    schema.sections.contains(&name)
        || schema
            .section_prefixes
            .iter()
            .any(|prefix| name.starts_with(prefix))
}

/// Tells whether any section, here or in strongSwan, has the key `name`.
pub(crate) fn is_key_anywhere(name: &str) -> bool {
    let numbered = |prefix: &&str| {
        name.strip_prefix(*prefix)
            .is_some_and(|rest| rest.is_empty() || rest.starts_with('-'))
    };
    ALL.iter().any(|(_, schema)| {
        schema.keys.contains(&name)
            || schema.later.iter().any(|(later, _)| *later == name)
            || schema.key_prefixes.iter().any(numbered)
    })
}

/// Returns the kind of section that has `key`.
fn elsewhere(key: &str) -> Option<&'static str> {
    ALL.iter()
        .find(|(_, schema)| schema.keys.contains(&key))
        .map(|(_, schema)| schema.what)
}
