//! IKEv2 messages and payloads on the wire (RFC 7296 section 3).
