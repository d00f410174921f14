//! Connections, children, proposals and credentials as the state machines need them.
