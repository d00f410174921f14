//! IPsec transforms by IANA name, key contexts and the engine seam.

pub mod iana;
