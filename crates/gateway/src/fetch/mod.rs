//! Asks the network for the gateway: for CRLs, for answers of OCSP responders, and for the addresses of host names.
//!
//! The gateway cannot open TCP connections or look names up, because it gives up these rights. So a process of its own,
//! the fetcher, does that. It has no secrets, writes no files and runs no programs. Nobody waits for it but the peers
//! whose certificates it fetches for, and attempts to reach a peer by its name.

pub mod fetcher;
mod fetcher_socket;
mod name_store;
mod status_fetcher;

pub use fetcher_socket::{FetchReport, FetcherSocket};
pub use name_store::NameStore;
pub use status_fetcher::StatusFetcher;
