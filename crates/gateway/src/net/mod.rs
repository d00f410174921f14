//! Interface, address and route set-up over netlink.
