//! Negotiated IKE suites: key exchange, PRF, key derivation and the Encrypted payload.
