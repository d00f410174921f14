//! Fetches information about revocation: CRLs, and answers of OCSP responders.
//!
//! The gateway cannot open TCP connections or look names up, because it gives up these rights. So a process of its own,
//! the fetcher, does that. It has no secrets, writes no files and runs no programs. Nobody waits for it but the peers
//! whose certificates it fetches for.

pub mod fetcher;
mod status_fetcher;

pub use status_fetcher::{FetchReport, StatusFetcher};
