//! Suite tests.
