//! The vici protocol (strongSwan's control protocol).
