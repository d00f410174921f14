//! Which credentials a connection authenticates with (RFC 7296 section 2.15).

use std::net::IpAddr;
use std::time::{Duration, SystemTime};

use super::Context;
use crate::auth::UnixTime;
use crate::config::{Connection, Identity, LocalMethod, RemoteMethod};
use crate::suite::{Keys, Secret};
use crate::wire::{Auth, AuthMethod, Cert, HashAlgorithm};

/// Who we say we are.
pub(super) fn local_id(connection: &Connection, local: IpAddr) -> Identity {
    match (&connection.local.id, &connection.local.method) {
        (Identity::Any, LocalMethod::Certificate(credential)) => {
            Identity::Dn(credential.certificate().subject().clone())
        }
        (Identity::Any, LocalMethod::Psk) => Identity::Ip(local),
        (id, _) => id.clone(),
    }
}

/// The peer that a pre-shared key is looked up for.
#[derive(Clone, Copy)]
pub(super) enum Peer<'a> {
    /// It has said who it is.
    Is(&'a Identity),
    /// It is yet to say who it is, and may turn out to be somebody else.
    MayBe(&'a Identity),
}

/// The pre-shared key of two identities: the one that names the most of them. A key that names others beside us
/// is not for a peer that it does not name: each of those others could pass itself off as that peer.
fn psk<'a>(ctx: &'a Context<'_>, local: &Identity, peer: Peer<'_>) -> Option<&'a Secret> {
    let (Peer::Is(remote) | Peer::MayBe(remote)) = peer;
    let score = |owners: &[Identity]| {
        let names = |id: &Identity| owners.iter().any(|owner| owner.accepts(id));
        match (owners.is_empty(), names(remote), names(local)) {
            (true, ..) => Some(0),
            (_, false, false) => None,
            (_, false, true)
                if matches!(peer, Peer::Is(_)) && !owners.iter().all(|o| o.accepts(local)) =>
            {
                None
            }
            (_, theirs, ours) => Some(2 * u8::from(theirs) + u8::from(ours)),
        }
    };
    let best = ctx
        .config
        .secrets
        .iter()
        .filter_map(|secret| Some((score(&secret.owners)?, secret)));
    // Of equals the first in the file.
    best.rev()
        .max_by_key(|(score, _)| *score)
        .map(|(_, secret)| &*secret.key)
}

fn no_secret(local: &Identity, peer: Peer<'_>) -> String {
    let (Peer::Is(remote) | Peer::MayBe(remote)) = peer;
    format!("no secret for {local} and {remote}")
}

/// Our AUTH payload, and the certificates that go with it.
pub(super) fn sign(
    ctx: &Context<'_>,
    connection: &Connection,
    keys: &Keys,
    octets: &[u8],
    (local, peer): (&Identity, Peer<'_>),
    announced: &[HashAlgorithm],
) -> Result<(Vec<Cert>, Auth), String> {
    match &connection.local.method {
        LocalMethod::Psk => {
            let psk = psk(ctx, local, peer).ok_or_else(|| no_secret(local, peer))?;
            let data = keys.psk_auth(psk, octets).expose().to_vec();
            Ok((
                Vec::new(),
                Auth {
                    method: AuthMethod::SHARED_KEY,
                    data,
                },
            ))
        }
        LocalMethod::Certificate(credential) => {
            let auth = credential
                .sign(announced, octets, connection.legacy)
                .map_err(|error| error.to_string())?;
            Ok((credential.certificates().collect(), auth))
        }
    }
}

/// Checks the peer's AUTH payload.
pub(super) fn verify(
    ctx: &Context<'_>,
    connection: &Connection,
    keys: &Keys,
    octets: &[u8],
    ids: (&Identity, &Identity),
    certs: &[&Cert],
    auth: &Auth,
) -> Result<(), String> {
    let (local, remote) = ids;
    match &connection.remote.method {
        RemoteMethod::Psk => {
            if auth.method != AuthMethod::SHARED_KEY {
                return Err(format!("{} instead of a pre-shared key", auth.method));
            }
            let peer = Peer::Is(remote);
            let psk = psk(ctx, local, peer).ok_or_else(|| no_secret(local, peer))?;
            let expected = keys.psk_auth(psk, octets);
            if expected == Secret::from(auth.data.as_slice()) {
                Ok(())
            } else {
                Err("the pre-shared keys differ".to_owned())
            }
        }
        RemoteMethod::Certificate {
            authorities,
            pinned,
        } => {
            let now = ctx
                .wall_clock
                .duration_since(SystemTime::UNIX_EPOCH)
                .unwrap_or(Duration::ZERO);
            let peer = authorities
                .verify(certs, remote, UnixTime::since_unix_epoch(now))
                .map_err(|error| error.to_string())?;
            if !pinned.is_empty()
                && !pinned
                    .iter()
                    .any(|pin| pin.der() == peer.certificate().der())
            {
                return Err("not the certificate that is configured".to_owned());
            }
            peer.check_auth(auth, octets, connection.legacy)
                .map_err(|error| error.to_string())
        }
    }
}
