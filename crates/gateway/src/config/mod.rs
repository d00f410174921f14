//! Configuration: swanctl.conf grammar, schema and loading.
