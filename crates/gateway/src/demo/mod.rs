//! `esplanade demo`.
