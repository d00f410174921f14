//! Reads the configuration in swanctl.conf's grammar into the types that the gateway runs on. It
//! starts and changes nothing. Besides files it has no input.
//!
//! [`load`] reads the file and its includes (`syntax`), carries out inheritance (`tree`), checks
//! every key (`schema`) and converts the values. It reports all errors at once ([`Diagnostics`]).

#![forbid(unsafe_code)]

mod ace;
mod authorities;
mod child;
mod connection;
mod credentials;
mod diagnostics;
mod diff;
mod engine;
mod gateway;
mod gpu;
mod header;
mod identity;
mod ike_options;
mod include;
mod interface;
mod keywords;
mod lexer;
mod lifetime;
pub mod log_filter;
mod made_interfaces;
mod mark;
mod marks;
mod own_credentials;
mod peers;
mod proposal;
pub mod reach;
mod reasons;
pub mod schema;
mod secret;
mod selector;
mod source;
mod syntax;
mod tokens;
mod tree;
mod trust;
mod value;
mod wiped;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use esplanade_ike::config::{Config, LocalMethod, RemoteMethod};
use esplanade_pki::attributes::AttributeStore;

pub use ace::AceConfig;
pub use authorities::Authority;
pub use child::{Policy, PolicyAction, SaOptions};
pub use diagnostics::{Diagnostic, Diagnostics, Severity, nearest};
pub use diff::{Diff, Subject};
pub use engine::{
    EngineEntry, EngineKind, EnginePlace, EngineSettings, Given, Lack, NameTaken, add_engine,
};
pub use gateway::{GatewayConfig, OnStop};
pub use gpu::{GpuConfig, ShareLimits};
pub use interface::{IfIds, InterfaceConfig};
pub use mark::{InterfaceMarks, Mark, SaMarks};
pub use source::Location;
pub use tokens::Pkcs11Module;

use diagnostics::quoted;
use esplanade_tokens::TokenPlace;
use source::Spanned;
use tree::SectionNode;

/// Parses a DSCP, by its name or its number, as the key `dscp` takes it.
pub fn dscp(text: &str) -> Option<u8> {
    header::dscp(text).ok()
}

/// The names of protocols in traffic selectors.
pub use selector::PROTOCOLS;

/// The configuration file if the command line names no other.
pub const DEFAULT_PATH: &str = "/etc/esplanade/esplanade.conf";
/// The control socket if neither the configuration nor the command line names another.
pub const DEFAULT_SOCKET: &str = "/run/esplanade/esplanade.vici";

/// A configuration without errors.
#[derive(Clone, Debug)]
pub struct Loaded {
    pub ike: Config,
    /// The policies, in the order in which the policy database searches them.
    pub policies: Vec<Policy>,
    pub gateway: GatewayConfig,
    pub warnings: Diagnostics,
    /// The files that were read, and the folders that were searched.
    pub read: Vec<PathBuf>,
    /// Certificates on tokens that are not read yet. Their connections lack them.
    pub absent_certificates: Vec<TokenPlace>,
    /// The sections of `authorities`, in their order.
    pub authorities: Vec<Authority>,
    fingerprints: Vec<diff::Fingerprint>,
}

impl Loaded {
    /// Formats a place in the configuration as `file:line`.
    pub fn place(&self, at: &Location) -> String {
        let path = self.warnings.sources.path(at).display().to_string();
        format!("{}:{}", source::printable(&path), at.line)
    }

    /// Returns the policy of a child.
    pub fn policy(&self, connection: &str, child: &str) -> Option<&Policy> {
        let mut policies = self.policies.iter();
        policies.find(|policy| policy.connection == connection && policy.child == child)
    }

    /// Returns the place of the policy `connection/child`, formatted by `place`.
    pub fn place_of(&self, policy: &str) -> Option<String> {
        let (connection, child) = policy.split_once('/')?;
        let found = self.policy(connection, child)?;
        Some(self.place(&found.at))
    }

    /// Wipes the text of the files, which contains secrets. Findings that come later have no source
    /// lines.
    pub fn forget_text(&mut self) {
        self.warnings.sources.forget_text();
    }

    /// Makes a list of findings about this configuration from `list`. The warnings of loading are
    /// not in it.
    pub fn diagnostics(&self, list: impl IntoIterator<Item = Diagnostic>) -> Diagnostics {
        let mut diagnostics = Diagnostics::default();
        diagnostics.sources = self.warnings.sources.clone();
        list.into_iter().for_each(|one| diagnostics.push(one));
        diagnostics.sort();
        diagnostics
    }
}

/// Reads the configuration at `path`.
pub fn load(path: &Path) -> Result<Loaded, Diagnostics> {
    let mut diagnostics = Diagnostics::default();
    let root = syntax::read(path, &mut diagnostics);
    // Certificates and keys lie beside the real file. `path` may be a link to it.
    let file = path.canonicalize().unwrap_or_else(|_| path.to_owned());
    build(&root, file.parent().unwrap_or(Path::new(".")), diagnostics)
}

/// Tells whether any section of the configuration at `path` gives `key` a value. Errors are not reported.
pub fn names_key(path: &Path, key: &str) -> bool {
    fn names(node: &SectionNode, key: &str) -> bool {
        value::given(node, key).is_some() || node.sections().iter().any(|one| names(one, key))
    }
    let root = syntax::read(path, &mut Diagnostics::default());
    names(&root, key)
}

/// Reads `text` as if it were the content of `path`.
pub fn load_text(path: &Path, text: &str) -> Result<Loaded, Diagnostics> {
    let mut diagnostics = Diagnostics::default();
    let root = syntax::read_text(path, text, &mut diagnostics);
    build(&root, path.parent().unwrap_or(Path::new(".")), diagnostics)
}

fn build(
    root: &SectionNode,
    base: &Path,
    mut diagnostics: Diagnostics,
) -> Result<Loaded, Diagnostics> {
    let d = &mut diagnostics;
    let resolved = tree::resolve(root, d);
    check_top(root, &resolved, d);

    let nothing = SectionNode::new(root.name.clone());
    let mut gateway = gateway::gateway(resolved.section("gateway").unwrap_or(&nothing), d);
    let secrets = resolved.section("secrets").unwrap_or(&nothing);
    let secrets = secret::secrets(secrets, &gateway.modules, d);

    let mut connections = resolved.section("connections").unwrap_or(&nothing).clone();
    made_interfaces::add_interfaces(&mut connections, &mut gateway, d);
    let unique_marks = marks::add_devices(&mut connections, &mut gateway, d);
    let connections = &connections;
    schema::check(connections, &schema::CONNECTIONS, false, d);
    let mut store = credentials::CredentialStore::new(
        base,
        credentials::NamedKeys {
            files: secrets.private,
            containers: secrets.pkcs12,
            tokens: secrets.tokens,
        },
        gateway.modules.clone(),
    );
    store.read_named(d);
    let mut context = connection::ConnectionContext {
        gateway: &gateway,
        secrets: (!secrets.incomplete).then(|| secret::KeyOwners::new(&secrets.psk)),
        store,
        diagnostics: d,
    };
    let mut ike = Config {
        ports: gateway.ports,
        limits: gateway.limits,
        fragment_size: gateway.fragment_size,
        full_transcript_auth: gateway.full_transcript_auth,
        quick_crash_detection: gateway.quick_crash_detection,
        inactivity_close_ike: gateway.inactivity_close_ike,
        nat_keepalive: gateway.nat_keepalive,
        ..Config::default()
    };
    let mut policies = Vec::new();
    let mut fingerprints = Vec::new();
    let mut lost = Vec::new();
    for node in connections.sections() {
        match connection::connection(node, &mut context, &mut policies) {
            Some((connection, fingerprint)) => {
                fingerprints.push(fingerprint);
                ike.connections.push(Arc::new(connection));
            }
            None if connection::authenticates(node) => lost.push(&node.name),
            None => {}
        }
    }
    marks::check_peers(&unique_marks, &ike.connections, context.diagnostics);
    let needed = ike
        .connections
        .iter()
        .any(|connection| matches!(connection.remote.method, RemoteMethod::Certificate { .. }));
    let authorities = resolved.section("authorities").unwrap_or(&nothing);
    let store = &context.store;
    let mut authorities =
        authorities::authorities(authorities, base, store, needed, context.diagnostics);
    if needed && gateway.fetch_revocation {
        authorities.revocation.set_fetches();
    }
    ike.revocation = authorities.revocation.into();
    ike.uri_bases = authorities.uri_bases;
    ike.attributes = attributes(&ike, &mut context).into();
    let absent_certificates = context.store.take_absent();
    child::sort(&mut policies);
    policies.shrink_to_fit();
    fingerprints.shrink_to_fit();
    ike.connections.shrink_to_fit();
    ike.secrets = secrets.psk;
    if diagnostics.errors() == 0 {
        let others = ["gateway", "secrets", "authorities"].map(|name| resolved.section(name));
        let sections = others.into_iter().flatten().chain([connections]);
        refuse_ignored(sections, &lost, &mut diagnostics);
    }

    diagnostics.sort();
    if diagnostics.errors() > 0 {
        return Err(diagnostics);
    }
    Ok(Loaded {
        ike,
        policies,
        gateway,
        read: diagnostics.sources.take_read(),
        warnings: diagnostics,
        absent_certificates,
        authorities: authorities.listed,
        fingerprints,
    })
}

/// Returns what connections judge memberships in groups by. Without such connections it has the attribute certificates that
/// are sent.
fn attributes(ike: &Config, context: &mut connection::ConnectionContext<'_>) -> AttributeStore {
    let d = &mut *context.diagnostics;
    let mut methods = ike.connections.iter().map(|one| &one.remote.method);
    let needed = methods.any(|method| match method {
        RemoteMethod::Certificate { rules, .. } => !rules.groups.is_empty(),
        RemoteMethod::Psk | RemoteMethod::PublicKey { .. } => false,
    });
    let mut local = ike.connections.iter().map(|one| &one.local.method);
    let sent = local.any(|method| matches!(method, LocalMethod::Signature(_)));
    let store = &mut context.store;
    let known = match needed || sent {
        true => store.attribute_certificates(d),
        false => Vec::new(),
    };
    let (authorities, anchors) = match needed {
        true => (store.attribute_authorities(d), store.authorities(d)),
        false => Default::default(),
    };
    AttributeStore::new(authorities, &anchors, known).unwrap_or_else(|error| {
        let what = format!("the folder \"x509ca\": {error}");
        d.push(Diagnostic::error(what).help("use certificates of authorities"));
        AttributeStore::default()
    })
}

/// Refuses keys and sections that nobody has asked for, and connections that were lost, whatever the reason: what they demand
/// would not be done. An error elsewhere may be the reason, so there must be none.
fn refuse_ignored<'a>(
    sections: impl Iterator<Item = &'a SectionNode>,
    connections: &[&Spanned<String>],
    d: &mut Diagnostics,
) {
    for name in connections {
        let what = format!("the connection {} cannot come up", quoted(&name.value));
        let help = "give it what proves the identities of both ends, or remove it";
        d.push(Diagnostic::error(what).at(name.at).help(help));
    }
    for section in sections {
        section.for_each_ignored(&mut |name| {
            let what = format!("{} has no effect here", quoted(&name.value));
            let help = "remove it, or what keeps it from taking effect";
            d.push(Diagnostic::error(what).at(name.at).help(help).hide_source());
        });
    }
}

/// Checks the top level. A section there that others refer to is a template, and its keys are
/// checked where they are inherited.
fn check_top(root: &SectionNode, resolved: &SectionNode, d: &mut Diagnostics) {
    let templates = tree::referenced_roots(root);
    let mut rest = SectionNode::new(resolved.name.clone());
    for entry in resolved.values() {
        rest.set(entry.clone());
    }
    for section in resolved.sections() {
        let name = section.name.value.as_str();
        if !templates.contains(name) || schema::TOP.sections.contains(&name) {
            rest.open(section.name.clone());
        }
    }
    let is_empty = |section: &SectionNode| {
        let full = resolved.section(&section.name.value);
        full.is_none_or(SectionNode::is_empty)
    };
    schema::check_with(&rest, &schema::TOP, false, d, is_empty);
}
