//! Asks the network for the gateway: for CRLs, for answers of OCSP responders, and for the addresses of host names.
//!
//! The gateway cannot open TCP connections or look names up, because it gives up these rights. So processes of their own
//! do that. They have no secrets and write no files. Nobody waits for them but the peers whose certificates they fetch
//! for, and attempts to reach a peer by its name.
//!
//! A keeper starts the fetcher, and starts it again where it ends. The fetcher starts a worker for each request. Only
//! workers touch what comes from the network. They check its form, within bounds of time and memory, and run no programs.

mod asked_places;
pub mod fetcher;
mod fetcher_socket;
mod host_queue;
pub mod keeper;
mod message;
mod name_store;
mod reach;
mod status_fetcher;
mod web;
pub mod worker;

pub use fetcher_socket::{FetchReport, FetcherSocket};
pub use name_store::NameStore;
pub use status_fetcher::{StatusFetcher, StatusPlaces};
