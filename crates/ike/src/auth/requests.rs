//! The CERTREQ payloads, which ask for certificates and raw keys (RFC 7296 §3.7, RFC 7670 §3).

use esplanade_pki::Authorities;

use crate::wire::{CertEncoding, CertReq};

/// Authorities that the response to IKE_SA_INIT names. It must fit one datagram.
pub(crate) const AUTHORITIES_ASKED_MAX: usize = 24;

/// Asks the peer for a certificate below one of these authorities.
pub fn certreq(authorities: &Authorities) -> CertReq {
    CertReq::x509(authorities.key_hashes())
}

/// Asks the peer for a certificate below any of these authorities, by the hashes of their keys. A peer may offer another
/// certificate, so that authorities beyond a bound can be left out.
pub(crate) fn certreq_of_all<'a>(all: impl Iterator<Item = &'a [u8; 20]>) -> CertReq {
    let mut hashes: Vec<[u8; 20]> = Vec::new();
    for hash in all {
        if hashes.len() < AUTHORITIES_ASKED_MAX && !hashes.contains(hash) {
            hashes.push(*hash);
        }
    }
    CertReq::x509(&hashes)
}

/// Asks the peer for its raw key. There are no authorities that the request could name.
pub(crate) fn certreq_of_raw_key() -> CertReq {
    CertReq {
        encoding: CertEncoding::RAW_PUBLIC_KEY,
        data: Vec::new(),
    }
}
