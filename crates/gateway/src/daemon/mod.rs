//! The daemon: joins IKE, the data plane and the control socket.
