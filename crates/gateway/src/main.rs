//! `esplanade`, the gateway's one program.

fn main() {}
