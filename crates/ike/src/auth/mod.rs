//! Authentication: pre-shared keys and certificates (RFC 7296 section 2.15, RFC 7427).
