//! One end authenticates with a certificate, the other with a pre-shared key.

mod common;

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use common::*;
use esplanade_ike::config::{Authorities, Certificate, Credential, LocalMethod, RemoteMethod};
use esplanade_ike::failure::AuthFailure;
use esplanade_ike::{DownReason, Event, Refusal};

/// 2026-06-01.
const NOW: Duration = Duration::from_secs(1_780_272_000);

macro_rules! file {
    ($name:expr) => {
        include_bytes!(concat!("../../../vectors/ike/certs/", $name)).as_slice()
    };
}

fn load(pem: &[u8]) -> Vec<Certificate> {
    Certificate::from_file_content(pem).unwrap()
}

/// A has the credential, and B trusts the authority.
fn pair(key: &[u8], certificate: &[u8], authority: &[u8]) -> Pair {
    let credential = Arc::new(Credential::new(key, load(certificate)).unwrap());
    let authorities = Arc::new(Authorities::new(&load(authority)).unwrap());
    let mut pair = Pair::with(|a, b| {
        a.local.id = id("moon.example.org");
        a.local.method = LocalMethod::Certificate(credential);
        b.remote.id = id("*.example.org");
        b.remote.method = RemoteMethod::Certificate {
            authorities,
            pinned: vec![],
            rules: Arc::default(),
        };
    });
    for side in [&mut pair.a, &mut pair.b] {
        side.endpoint
            .set_wall_clock(pair.start, SystemTime::UNIX_EPOCH + NOW);
    }
    pair
}

// RFC 7296 R130, R233, R238
#[test]
fn every_kind_of_key() {
    for (key, certificate) in [
        (file!("moon-rsa.key"), file!("moon-rsa.pem")),
        (file!("moon-ecdsa256.key"), file!("moon-ecdsa256.pem")),
        (file!("moon-ecdsa384.key"), file!("moon-ecdsa384.pem")),
        (file!("moon-ecdsa521.key"), file!("moon-ecdsa521.pem")),
        (file!("moon-ed25519.key"), file!("moon-ed25519.pem")),
    ] {
        for initiator_is_a in [true, false] {
            let mut pair = pair(key, certificate, file!("root.pem"));
            let side = if initiator_is_a {
                &mut pair.a
            } else {
                &mut pair.b
            };
            side.endpoint.initiate(pair.now, "site", None).unwrap();
            pair.flush();
            pair.run(Duration::from_secs(1));
            pair.assert_agreed(1, 1);
            pair.assert_clean_end();
        }
    }
}

// RFC 7296 R2, R153
#[test]
fn a_stranger_is_refused_by_either_role() {
    let key = (file!("moon-ecdsa256.key"), file!("moon-ecdsa256.pem"));
    let mut first = pair(key.0, key.1, file!("other-root.pem"));
    first.initiate();
    first.run(Duration::from_secs(1));
    assert_eq!(first.b.refused(Refusal::AuthenticationFailed), 1);
    assert!(matches!(first.b.events[..], [Event::Refused(_)]));
    first.assert_clean_end();

    let mut second = pair(key.0, key.1, file!("other-root.pem"));
    second
        .b
        .endpoint
        .initiate(second.now, "site", None)
        .unwrap();
    second.flush();
    second.run(Duration::from_secs(1));
    let failed = |e: &Event| {
        matches!(
            e,
            Event::ConnectFailed {
                reason: DownReason::AuthenticationFailed(_),
                ..
            }
        )
    };
    assert!(second.b.events.iter().any(failed));
    let told = |e: &Event| {
        matches!(
            e,
            Event::IkeSaDown {
                reason: DownReason::AuthenticationFailed(AuthFailure::RejectedByPeer),
                ..
            }
        )
    };
    assert!(
        second.a.events.iter().any(told),
        "the responder hears of it (RFC 7296 section 2.21.2)"
    );
    second.assert_clean_end();
}
