//! The IPsec packet path: SPD, SAD, anti-replay, ESP (RFC 4301, RFC 4303).
#![forbid(unsafe_code)]
