//! Reads one section of `connections`: addresses, proposals, authentication and children. It does
//! not check whether the peer would accept them.

use std::sync::Arc;

use esplanade_ike::auth::{CertificateRules, Identity, SchemeRules};
use esplanade_ike::config::{
    AddressMatch, Child, Connection, EndAction, LocalAuth, LocalMethod, RemoteAuth, RemoteMethod,
    StartAction,
};
use esplanade_pki::attributes::{AttributeAuthority, GroupName};
use esplanade_pki::{CertificatePolicy, KeyPurposes, RevocationPolicy};

use super::child::{self, ParentConnection, Policy};
use super::credentials::CredentialStore;
use super::diagnostics::{Diagnostic, Diagnostics, quoted};
use super::diff::Fingerprint;
use super::gateway::GatewayConfig;
use super::identity::{identity, own_identity};
use super::ike_options::ike_options;
use super::interface::{self, IfIds};
use super::own_credentials::{ConnectionFiles, own_credentials};
use super::peers::peers;
use super::proposal::Consent;
use super::schema;
use super::secret::KeyOwners;
use super::tree::SectionNode;
use super::trust;
use super::value::{
    ValueError, ValueResult, address_match, given, parts, place, read, read_list, refuse,
    refuse_empty_texts, report, switch, unused, warn_of_host_bits, word,
};

/// The other parts of the configuration that the reader of a connection needs.
pub(crate) struct ConnectionContext<'a> {
    pub gateway: &'a GatewayConfig,
    /// The owners of the pre-shared keys. `None` means that a secret was refused, so nobody can say
    /// whether a connection lacks one.
    pub secrets: Option<KeyOwners<'a>>,
    pub store: CredentialStore,
    pub diagnostics: &'a mut Diagnostics,
}

/// Keys that say how IKE works. Without IKE they change nothing. `version` says what holds in any case.
const WITHOUT_EFFECT_ON_SHUNTS: [&str; 23] = [
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
];

/// Reads one connection and appends the policies of its children. Returns `None` if the connection
/// was refused, or if none of its policies needs IKE.
pub(crate) fn connection(
    node: &SectionNode,
    context: &mut ConnectionContext<'_>,
    policies: &mut Vec<Policy>,
) -> Option<(Connection, Fingerprint)> {
    schema::check(node, &schema::CONNECTION, false, context.diagnostics);
    let name = node.name.value.clone();
    let remote_addrs =
        read_list(node, "remote_addrs", context.diagnostics, address_match).unwrap_or_default();
    for key in ["local_addrs", "remote_addrs"] {
        warn_of_host_bits(node, key, context.diagnostics);
    }
    let reachable = remote_addrs
        .iter()
        .any(|address| matches!(address, AddressMatch::Host(_) | AddressMatch::Name(_)));

    // Without raw sockets, ESP can leave only inside UDP.
    let encap = read(node, "encap", context.diagnostics, switch).unwrap_or(false)
        || !context.gateway.raw_esp;
    let consent = consent(node, context.diagnostics);
    let if_ids = interface::if_ids(node, IfIds::default(), context.diagnostics);
    let parent = ParentConnection {
        connection: &name,
        reachable,
        remote_addrs_at: place(node, "remote_addrs"),
        consent,
        if_ids,
        gateway: context.gateway,
    };
    let local_addrs =
        read_list(node, "local_addrs", context.diagnostics, address_match).unwrap_or_default();
    // Read every key before a missing part, or a part that is not needed, ends the function. So each error is reported, and
    // no key is ignored.
    let options = ike_options(node, context.gateway, consent.legacy, context.diagnostics);
    let (children, bypasses) = children(node, &parent, encap, context.diagnostics, policies);
    if bypasses > 0 && children.is_empty() && !authenticates(node) {
        let why = "the connection has no `local` and no `remote`, and its children need no IKE";
        unused(node, &WITHOUT_EFFECT_ON_SHUNTS, why, context.diagnostics);
        return None;
    }

    check_listening(node, &local_addrs, context.gateway, context.diagnostics);
    let mut files = ConnectionFiles::default();
    let remote = remote_auth(node, context, &mut files);
    let local = local_auth(node, context, &mut files);
    let (local, remote) = (local?, remote?);
    check_secret(node, &local, &remote, context);
    let peers = peers(node, &remote.id, context.diagnostics);
    warn_of_one_identity(node, &local, &remote, context.diagnostics);
    let connection = Connection {
        name,
        local_addrs,
        remote_addrs,
        local_port: options.local_port,
        remote_port: options.remote_port,
        dscp: options.dscp,
        proposals: options.proposals,
        legacy: consent.legacy,
        encap,
        fragmentation: options.fragmentation,
        path_mtu_probe: options.path_mtu_probe,
        childless: options.childless,
        full_transcript_required: options.full_transcript_required,
        send_certreq: options.send_certreq,
        ocsp: options.ocsp,
        send_cert: options.send_cert,
        rekey_time: options.lifetime.rekey,
        reauth_time: options.lifetime.reauth,
        over_time: options.lifetime.over,
        rand_time: options.lifetime.rand,
        dpd_delay: options.dpd_delay,
        dpd_by_traffic: options.dpd_by_traffic,
        dpd_timeout: options.dpd_timeout,
        unique: options.unique,
        keyingtries: (options.keyingtries).unwrap_or_else(|| default_tries(&children)),
        retransmission: context.gateway.retransmission,
        local,
        remote,
        peers: peers.into(),
        children,
    };
    Some((connection, Fingerprint::new(node, &files.into_der())))
}

/// Refuses own addresses of which the gateway receives at none.
fn check_listening(
    node: &SectionNode,
    local_addrs: &[AddressMatch],
    gateway: &GatewayConfig,
    d: &mut Diagnostics,
) {
    let receives = |address: &AddressMatch| match address {
        AddressMatch::Host(own) => gateway.listens_at(*own),
        _ => true,
    };
    if !local_addrs.is_empty() && !local_addrs.iter().any(receives) {
        let bad = ValueError::new(
            "the gateway receives at none of these addresses",
            "name one that `listen` in the gateway section has, or add one there",
        );
        report("local_addrs", bad, place(node, "local_addrs"), d);
    }
}

fn consent(node: &SectionNode, d: &mut Diagnostics) -> Consent {
    let mut is_on = |key| read(node, key, d, switch).unwrap_or(false);
    Consent {
        legacy: is_on("legacy"),
        private_use: is_on("private_use"),
    }
}

/// A connection that must stay up is retried without limit.
fn default_tries(children: &[Arc<Child>]) -> u32 {
    let must_stay_up = children.iter().any(|child| {
        child.start_action != StartAction::None
            || [child.dpd_action, child.close_action].contains(&EndAction::Start)
    });
    if must_stay_up { 0 } else { 1 }
}

/// Reads the children. Returns those that need IKE, and the number of the others.
fn children(
    node: &SectionNode,
    parent: &ParentConnection<'_>,
    encap: bool,
    d: &mut Diagnostics,
    policies: &mut Vec<Policy>,
) -> (Vec<Arc<Child>>, usize) {
    let Some(section) = node.section("children") else {
        return (Vec::new(), 0);
    };
    schema::check(section, &schema::CHILDREN, false, d);
    let mut children = Vec::new();
    for section in section.sections() {
        if encap {
            check_encap(section, d);
        }
        children.extend(child::child(section, parent, d, policies).map(Arc::new));
    }
    let others = section.sections().len() - children.len();
    (children, others)
}

/// Tells whether the connection has a section about authentication (`local…` or `remote…`).
pub(crate) fn authenticates(connection: &SectionNode) -> bool {
    connection.sections().iter().any(|section| {
        let name = &section.name.value;
        name.starts_with("local") || name.starts_with("remote")
    })
}

/// Refuses AH where packets must go through UDP. RFC 3948 encapsulates ESP only.
fn check_encap(child: &SectionNode, d: &mut Diagnostics) {
    if let Some(entry) = given(child, "ah_proposals") {
        let bad = ValueError::new(
            "AH cannot be encapsulated in UDP",
            "use esp_proposals, or set `encap` to no and `raw_esp` to yes",
        );
        report("ah_proposals", bad, entry.value.at, d);
    }
}

fn warn_of_one_identity(
    node: &SectionNode,
    local: &LocalAuth,
    remote: &RemoteAuth,
    d: &mut Diagnostics,
) {
    if local.id == remote.id && local.id != Identity::Any {
        let what = format!(
            "connection {} has one identity at both ends",
            quoted(&node.name.value)
        );
        let help = "give each gateway an `id` of its own";
        d.push(Diagnostic::warning(what).at(node.name.at).help(help));
    }
}

/// The value of `auth`.
enum Method {
    Psk,
    Certificate(SchemeRules),
}

fn method(text: &str) -> ValueResult<Method> {
    match text {
        _ if text.starts_with("eap") || text.starts_with("xauth") => {
            let what = format!("the method {} is not supported yet", quoted(text));
            Err(ValueError::new(what, "use `psk` or `pubkey`"))
        }
        _ if [
            "pubkey-", "rsa", "ecdsa", "ed25519", "ed448", "mldsa", "ike:",
        ]
        .iter()
        .any(|prefix| text.starts_with(prefix)) =>
        {
            let rules: Result<SchemeRules, String> = text.parse();
            rules.map(Method::Certificate).map_err(|problem| {
                let what = format!("{}: {problem}", quoted(text));
                ValueError::new(what, "write it as `pubkey-sha256` or `rsa-3072-ecdsa-256`")
            })
        }
        _ => word(text, &[("psk", true), ("pubkey", false)]).map(|psk| match psk {
            true => Method::Psk,
            false => Method::Certificate(SchemeRules::default()),
        }),
    }
}

/// The method of a section. Without `auth` it is a certificate.
fn method_of(section: &SectionNode, d: &mut Diagnostics) -> Option<Method> {
    match given(section, "auth") {
        None => Some(Method::Certificate(SchemeRules::default())),
        Some(_) => read(section, "auth", d, method),
    }
}

/// Returns the section whose name begins with `prefix`, or `None` if there is none. A second such
/// section asks for another authentication round, which is refused.
fn round<'a>(node: &'a SectionNode, prefix: &str, d: &mut Diagnostics) -> Option<&'a SectionNode> {
    let mut sections = node
        .sections()
        .iter()
        .filter(|section| section.name.value.starts_with(prefix));
    let first = sections.next();
    if let Some(section) = first {
        check_suffix(section, prefix, d);
    }
    for second in sections {
        let what = format!(
            "a second authentication round ({}) is not supported yet",
            quoted(&second.name.value)
        );
        d.push(
            Diagnostic::error(what)
                .at(second.name.at)
                .help(format!("keep one section `{prefix}`")),
        );
    }
    first
}

/// Warns of a section that counts by the beginning of its name alone.
fn check_suffix(section: &SectionNode, prefix: &str, d: &mut Diagnostics) {
    let name = section.name.value.as_str();
    let suffix = name.strip_prefix(prefix).unwrap_or_default();
    if suffix.starts_with(|c: char| c.is_alphabetic() || c == '_') {
        let what = format!("the section {} counts as `{prefix}`", quoted(name));
        let help = format!("call it `{prefix}`, or `{prefix}-NAME`");
        d.push(Diagnostic::warning(what).at(section.name.at).help(help));
    }
}

fn local_auth(
    node: &SectionNode,
    context: &mut ConnectionContext<'_>,
    files: &mut ConnectionFiles,
) -> Option<LocalAuth> {
    let d = &mut *context.diagnostics;
    let Some(section) = round(node, "local", d) else {
        missing(node, "local", d);
        return None;
    };
    schema::check(section, &schema::LOCAL, false, d);
    refuse_empty_texts(section, d);
    let id = read(section, "id", d, own_identity).unwrap_or(Identity::Any);
    let method = match method_of(section, d)? {
        Method::Psk => {
            refuse_own_credentials(section, d);
            LocalMethod::Psk
        }
        Method::Certificate(signatures) => {
            let store = &mut context.store;
            let credentials =
                own_credentials(section, &id, &signatures, &node.name.value, store, files, d)?;
            LocalMethod::Signature(credentials.into_iter().map(Arc::new).collect())
        }
    };
    Some(LocalAuth { id, method })
}

/// Keys that demand something of a certificate or a public key, beside `groups` and `revocation`.
const DEMANDS: [&str; 6] = ["certs", "pubkeys", "cacerts", "ca_id", "cert_policy", "eku"];

/// Refuses certificates and keys of a gateway that authenticates by a secret.
fn refuse_own_credentials(section: &SectionNode, d: &mut Diagnostics) {
    let why = "with `auth = psk` the gateway shows no certificate and no public key";
    let help = "remove it, or set `auth = pubkey`; `id` says who the gateway is";
    refuse(section, &["certs", "pubkeys"], why, help, d);
    for inner in section.sections() {
        inner.set_known();
        let what = format!("{}: {why}", quoted(&inner.name.value));
        d.push(Diagnostic::error(what).at(inner.name.at).help(help));
    }
}

fn remote_auth(
    node: &SectionNode,
    context: &mut ConnectionContext<'_>,
    files: &mut ConnectionFiles,
) -> Option<RemoteAuth> {
    let d = &mut *context.diagnostics;
    let Some(section) = round(node, "remote", d) else {
        missing(node, "remote", d);
        return None;
    };
    schema::check(section, &schema::REMOTE, false, d);
    refuse_empty_texts(section, d);
    let id = read(section, "id", d, identity).unwrap_or(Identity::Any);
    let method = method_of(section, d)?;
    let has_certificate =
        matches!(method, Method::Certificate(_)) && given(section, "pubkeys").is_none();
    let groups = groups(section, has_certificate, &node.name.value, context, files);
    let d = &mut *context.diagnostics;
    let revocation = read(section, "revocation", d, revocation).unwrap_or_default();
    if !has_certificate && revocation != RevocationPolicy::Relaxed {
        let why = "a peer without a certificate has none that could be revoked";
        let help = "remove it, or set `auth = pubkey` and have the peer show a certificate";
        refuse(section, &["revocation"], why, help, d);
    }
    let Method::Certificate(signatures) = method else {
        let why = "with `auth = psk` the peer shows no certificate and no public key";
        let help = "remove it, or set `auth = pubkey` to demand it of the peer";
        refuse(section, &DEMANDS, why, help, d);
        return Some(RemoteAuth {
            id,
            method: RemoteMethod::Psk,
        });
    };
    let mut rules = CertificateRules {
        purposes: read(section, "eku", d, key_purposes).unwrap_or_default(),
        signatures,
        policies: read_list(section, "cert_policy", d, policy).unwrap_or_default(),
        authority: read(section, "ca_id", d, identity),
        groups,
        known_need_no_path: false,
    };
    if given(section, "pubkeys").is_some() {
        let method = remote_keys(section, &id, rules.signatures, &context.store, files, d)?;
        return Some(RemoteAuth { id, method });
    }
    let store = &context.store;
    let named = |key: &str, folder: &str, d: &mut Diagnostics| {
        let mut found = Vec::new();
        if let Some(entry) = given(section, key) {
            for file in parts(key, entry, d) {
                found.extend(store.certificates(folder, file, entry.value.at, d));
            }
        }
        found
    };
    let pinned = named("certs", "x509", d);
    // As in strongSwan, a certificate that the file names needs no authority, unless the file names that too.
    let demands = ["cacerts", "ca_id", "cert_policy"];
    let demands = demands.iter().any(|key| given(section, key).is_some());
    rules.known_need_no_path = !pinned.is_empty() && !demands;
    let mut authorities = named("cacerts", "x509ca", d);
    if given(section, "cacerts").is_none() {
        // As in strongSwan, a connection that names no authority trusts all of them.
        authorities = context.store.authorities(d);
    }
    if authorities.is_empty() && !rules.known_need_no_path {
        if given(section, "cacerts").is_none() {
            let what = format!(
                "connection {} trusts no certificate authority",
                quoted(&node.name.value)
            );
            let help = "add `cacerts = …`, put the authority's certificate into x509ca/, or set `auth = psk`";
            d.push(Diagnostic::error(what).at(section.place()).help(help));
        }
        return None;
    }
    files.certificates.extend(authorities.iter().cloned());
    files.certificates.extend(pinned.iter().cloned());
    match trust::authorities(section, &authorities, &mut context.store, files, d) {
        Ok(authorities) => {
            let method = RemoteMethod::Certificate {
                authorities: Arc::new(authorities),
                pinned,
                rules: Arc::new(rules),
                revocation,
            };
            Some(RemoteAuth { id, method })
        }
        Err(error) => {
            report(
                "cacerts",
                ValueError::new(error.to_string(), "use certificates of authorities"),
                place(section, "cacerts"),
                d,
            );
            None
        }
    }
}

/// Reads `pubkeys`: the peer needs one of these keys, and no certificate.
fn remote_keys(
    section: &SectionNode,
    id: &Identity,
    signatures: SchemeRules,
    store: &CredentialStore,
    files: &mut ConnectionFiles,
    d: &mut Diagnostics,
) -> Option<RemoteMethod> {
    let errors = d.errors();
    let why = "a peer with a key of `pubkeys` has no certificate";
    let help = "remove one of the two, or make two connections";
    let keys = ["certs", "cacerts", "ca_id", "cert_policy", "eku"];
    refuse(section, &keys, why, help, d);
    if *id != Identity::Any && id.is_pattern() {
        let bad = ValueError::new(
            format!("{id} is a pattern, and a key of `pubkeys` belongs to one identity"),
            "write the whole identity, or leave `id` out: then the peer is called by its key",
        );
        report("id", bad, place(section, "id"), d);
    }
    let entry = given(section, "pubkeys")?;
    let mut keys = Vec::new();
    for file in parts("pubkeys", entry, d) {
        keys.extend(store.public_key(file, entry.value.at, d));
    }
    files.keys.extend(keys.iter().cloned());
    (errors == d.errors() && !keys.is_empty())
        .then_some(RemoteMethod::PublicKey { keys, signatures })
}

/// Reads the groups of which the peer must be in one. It needs a certificate to prove that.
fn groups(
    section: &SectionNode,
    has_certificate: bool,
    connection: &str,
    context: &mut ConnectionContext<'_>,
    files: &mut ConnectionFiles,
) -> Vec<GroupName> {
    let d = &mut *context.diagnostics;
    let groups = read_list(section, "groups", d, group).unwrap_or_default();
    let Some(entry) = given(section, "groups") else {
        return groups;
    };
    if !has_certificate {
        let bad = ValueError::new(
            "a peer without a certificate cannot prove that it is in a group",
            "use `auth = pubkey` without `pubkeys`, or remove it",
        );
        report("groups", bad, entry.value.at, d);
        return groups;
    }
    let authorities = context.store.attribute_authorities(d);
    if authorities.is_empty() {
        let what = format!(
            "connection {} accepts nobody: no attribute authority is trusted",
            quoted(connection)
        );
        let help = "put the certificate of the authority that issues the attribute certificates into x509aa/";
        d.push(Diagnostic::warning(what).at(entry.value.at).help(help));
    }
    let certificates = authorities.iter().map(AttributeAuthority::certificate);
    files.certificates.extend(certificates.cloned());
    groups
}

fn group(text: &str) -> ValueResult<GroupName> {
    text.parse().map_err(|why| {
        let what = format!("{}: {why}", quoted(text));
        ValueError::new(what, "name each group as the attribute certificates do")
    })
}

/// The extended key usages that a peer's certificate may have.
fn key_purposes(text: &str) -> ValueResult<KeyPurposes> {
    let words = [
        ("ike-or-tls", KeyPurposes::IkeOrTls),
        ("strict", KeyPurposes::Ike),
        ("any", KeyPurposes::Any),
    ];
    word(text, &words)
}

fn revocation(text: &str) -> ValueResult<RevocationPolicy> {
    let words = [
        ("strict", RevocationPolicy::Strict),
        ("ifuri", RevocationPolicy::IfUri),
        ("relaxed", RevocationPolicy::Relaxed),
    ];
    word(text, &words)
}

fn policy(text: &str) -> ValueResult<CertificatePolicy> {
    text.parse().map_err(|()| {
        let what = format!("{} is no object identifier", quoted(text));
        ValueError::new(
            what,
            "write numbers with dots, such as `1.3.6.1.4.1.36906.1`",
        )
    })
}

fn missing(node: &SectionNode, section: &str, d: &mut Diagnostics) {
    let what = format!(
        "connection {} has no section `{section}`",
        quoted(&node.name.value)
    );
    let help = format!("add `{section} {{ auth = psk }}` or `{section} {{ auth = pubkey … }}`");
    d.push(Diagnostic::error(what).at(node.name.at).help(help));
}

/// Reports a connection that authenticates by pre-shared key and has no key: it can never come up.
fn check_secret(
    node: &SectionNode,
    local: &LocalAuth,
    remote: &RemoteAuth,
    context: &mut ConnectionContext<'_>,
) {
    if !matches!(local.method, LocalMethod::Psk) && !matches!(remote.method, RemoteMethod::Psk) {
        return;
    }
    let secrets = context.secrets.as_ref();
    if secrets.is_some_and(|secrets| !secrets.fit(&local.id, &remote.id)) {
        let what = format!(
            "no secret belongs to connection {}",
            quoted(&node.name.value)
        );
        let help = "add secrets { ike { secret = …, id = … } } with the identity of the peer";
        context
            .diagnostics
            .push(Diagnostic::warning(what).at(node.name.at).help(help));
    }
}
