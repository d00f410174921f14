//! Tools for development only: test vectors, network simulator, reference model, clock, and guarded
//! memory. The product does not use them.
pub mod clock;
pub mod counted;
pub mod freed;
pub mod guard;
pub mod model;
pub mod net;
pub mod program;
pub mod seeds;
pub mod vectors;

/// Includes a file with certificates or keys of `vectors/ike/certs`, as bytes.
#[macro_export]
macro_rules! certificate_file {
    ($name:expr) => {
        include_bytes!(concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/../../vectors/ike/certs/",
            $name
        ))
        .as_slice()
    };
}
