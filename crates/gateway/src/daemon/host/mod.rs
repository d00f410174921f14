//! Changes the devices, routes, links and nf_tables of the host, and looks after them.

pub(super) mod device_routes;
pub(super) mod devices;
pub mod forwarding;
pub(super) mod guards;
pub mod host_state;
pub(super) mod keeper;
pub(super) mod links;
pub mod own_traffic;
pub(super) mod shield;
pub(super) mod shielding;
