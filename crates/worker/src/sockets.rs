//! Opens the sockets of all workers, and the control thread's handle for sending through them.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;

use esplanade_ipsec::pmtu::PathMtus;

use esplanade_host::io::ah::AhSocket;
use esplanade_host::io::icmp::IcmpSocket;
use esplanade_host::io::raw::{BypassSocket, EspSocket};
use esplanade_host::io::steer::SpiShare;
use esplanade_host::io::udp::{Outgoing, SendReport, SocketOptions, UdpSocket};

use super::links::LinkQueue;
use super::port_user::port_user;
use super::unreachable::UnreachablePeers;

/// The port of IKE (RFC 7296 §2).
pub const IKE_PORT: u16 = 500;
/// The port of IKE and ESP with NAT traversal (RFC 3948 §2).
pub const NAT_T_PORT: u16 = 4500;

/// The addresses and ports to listen on.
#[derive(Debug, Clone)]
pub struct ListenConfig {
    /// The own addresses. An empty list means every address of both IP versions.
    pub addresses: Vec<IpAddr>,
    pub ike_port: u16,
    pub nat_t_port: u16,
    /// Use ESP without UDP too. This needs CAP_NET_RAW in the network namespace.
    pub raw_esp: bool,
    /// Firewall mark of everything sent. It belongs with the rule of [`esplanade_host::net::Routing`].
    pub mark: Option<u32>,
    /// Number of workers. Each has its own socket on the NAT traversal port.
    pub workers: usize,
}

impl Default for ListenConfig {
    fn default() -> Self {
        Self {
            addresses: Vec::new(),
            ike_port: IKE_PORT,
            nat_t_port: NAT_T_PORT,
            raw_esp: true,
            mark: None,
            workers: 1,
        }
    }
}

/// The reason why a socket could not be opened. The text says what to do.
#[derive(Debug, thiserror::Error)]
pub enum BindError {
    #[error(
        "UDP port {port} on {address} is in use by {user}: stop that program, or set another port"
    )]
    InUse {
        address: IpAddr,
        port: u16,
        user: String,
    },
    #[error(
        "{address} is not an address of this machine: correct the listen addresses, or configure the address first"
    )]
    NoSuchAddress { address: IpAddr },
    #[error(
        "no permission for {what}: run as root, with CAP_NET_ADMIN, CAP_NET_RAW and CAP_NET_BIND_SERVICE, or inside a user namespace of your own (unshare -Urn)"
    )]
    NoPermission { what: String },
    #[error("cannot open {what}: {source}")]
    Other { what: String, source: io::Error },
}

/// The sockets of one worker.
#[derive(Debug, Default)]
pub struct WorkerSockets {
    /// Sockets on the IKE port. Only the first worker has them.
    pub ike: Vec<Arc<UdpSocket>>,
    /// Sockets on the NAT traversal port, which the workers share. The kernel gives each ESP packet
    /// to a worker by its SPI, and IKE to the first worker.
    pub nat_t: Vec<Arc<UdpSocket>>,
    /// Raw sockets for ESP. Each worker has its own, which receives its share of the SPIs.
    pub esp: Vec<EspSocket>,
    /// Raw sockets for AH. They are shared out like those for ESP.
    pub ah: Vec<AhSocket>,
    pub bypass: Option<Arc<BypassSocket>>,
    /// Sockets for ICMP errors. Only the first worker has them.
    pub icmp: Vec<IcmpSocket>,
    /// Queues of the links on which ESP bypasses the kernel's stack.
    pub links: Vec<LinkQueue>,
    /// The known MTUs of paths. All workers share them.
    pub paths: Arc<PathMtus>,
    /// The peers that ICMP errors call unreachable. All workers share them.
    pub unreachable: Arc<UnreachablePeers>,
    pub ike_port: u16,
    pub nat_t_port: u16,
    /// Firewall mark of everything sent.
    pub mark: Option<u32>,
}

/// The sockets of all workers.
#[derive(Debug)]
pub struct Sockets {
    pub workers: Vec<WorkerSockets>,
    pub sender: IkeSender,
    /// The known MTUs of paths. All workers share them.
    pub paths: Arc<PathMtus>,
    pub unreachable: Arc<UnreachablePeers>,
}

impl Sockets {
    /// Opens the sockets in the network namespace of the calling thread.
    pub fn bind(config: &ListenConfig) -> Result<Self, BindError> {
        let addresses = listen_addresses(config);
        let workers = config.workers.max(1);
        let single = SocketOptions {
            mark: config.mark,
            reuse_port: false,
        };
        let shared = SocketOptions {
            reuse_port: workers > 1,
            ..single
        };
        let mut all: Vec<WorkerSockets> = (0..workers).map(|_| WorkerSockets::default()).collect();
        for &(address, required) in &addresses {
            let ike = match bind(SocketAddr::new(address, config.ike_port), &single) {
                Err(BindError::Other { source, .. }) if !required && no_family(&source) => continue,
                other => Arc::new(other?),
            };
            let nat_t = SocketAddr::new(address, config.nat_t_port);
            if shared.reuse_port {
                // A shared port would also be shared with another program. A socket that does not
                // share detects that program.
                drop(bind(nat_t, &single)?);
            }
            for worker in &mut all {
                worker.nat_t.push(Arc::new(bind(nat_t, &shared)?));
            }
            all[0].ike.push(ike);
            spread(&all);
            if config.raw_esp {
                open_raw(address, &single, &mut all)?;
            }
        }
        if config.raw_esp {
            let bypass = BypassSocket::open(&single)
                .map_err(|error| classify(error, "a raw socket for bypassed packets".into()))?;
            let bypass = Arc::new(bypass);
            all.iter_mut()
                .for_each(|worker| worker.bypass = Some(Arc::clone(&bypass)));
        }
        all[0].icmp = icmp_sockets();
        let paths = Arc::new(PathMtus::default());
        let unreachable = Arc::new(UnreachablePeers::default());
        for worker in &mut all {
            worker.paths = Arc::clone(&paths);
            worker.unreachable = Arc::clone(&unreachable);
            worker.ike_port = config.ike_port;
            worker.nat_t_port = config.nat_t_port;
            worker.mark = config.mark;
        }
        let mut sockets = all[0].ike.clone();
        sockets.extend(all[0].nat_t.iter().cloned());
        Ok(Self {
            workers: all,
            sender: IkeSender { sockets },
            paths,
            unreachable,
        })
    }
}

/// Spreads ESP by SPI over the workers' sockets of the address that was bound last. The sockets
/// were bound in the order of the workers.
fn spread(workers: &[WorkerSockets]) {
    let [first, _, ..] = workers else { return };
    if let Some(socket) = first.nat_t.last()
        && let Err(error) = socket.spread(workers.len() as u32)
    {
        let bound = socket.local();
        tracing::warn!(
            "the kernel does not spread ESP to {bound} over the workers by SPI ({error}): each peer stays on one worker"
        );
    }
}

fn open_raw(
    address: IpAddr,
    options: &SocketOptions,
    workers: &mut [WorkerSockets],
) -> Result<(), BindError> {
    let of = workers.len() as u32;
    for (worker, index) in workers.iter_mut().zip(0..) {
        let share = (of > 1).then_some(SpiShare { index, of });
        let esp = EspSocket::open(address, options).and_then(|socket| {
            share.map_or(Ok(()), |share| socket.take_share(share))?;
            Ok(socket)
        });
        let what = || format!("a raw socket for ESP on {address}");
        worker
            .esp
            .push(esp.map_err(|error| classify(error, what()))?);
        let ah = AhSocket::open(address, options).and_then(|socket| {
            share.map_or(Ok(()), |share| socket.take_share(share))?;
            Ok(socket)
        });
        let what = || format!("a raw socket for AH on {address}");
        worker.ah.push(ah.map_err(|error| classify(error, what()))?);
    }
    Ok(())
}

/// Opens the sockets for ICMP errors. Without them, every path keeps the MTU of its interface.
fn icmp_sockets() -> Vec<IcmpSocket> {
    let open = |v4| {
        IcmpSocket::open(v4)
            .inspect_err(|error| tracing::debug!("cannot hear ICMP errors: {error}"))
            .ok()
    };
    [true, false].into_iter().filter_map(open).collect()
}

/// Returns the addresses to bind, and whether a missing IP version is an error.
fn listen_addresses(config: &ListenConfig) -> Vec<(IpAddr, bool)> {
    if config.addresses.is_empty() {
        return vec![
            (Ipv4Addr::UNSPECIFIED.into(), true),
            (Ipv6Addr::UNSPECIFIED.into(), false),
        ];
    }
    config
        .addresses
        .iter()
        .map(|address| (*address, true))
        .collect()
}

fn bind(address: SocketAddr, options: &SocketOptions) -> Result<UdpSocket, BindError> {
    UdpSocket::bind(address, options).map_err(|error| match error.raw_os_error() {
        Some(libc::EADDRINUSE) => BindError::InUse {
            address: address.ip(),
            port: address.port(),
            user: port_user(address.port()).unwrap_or_else(|| "another program".into()),
        },
        Some(libc::EADDRNOTAVAIL) => BindError::NoSuchAddress {
            address: address.ip(),
        },
        _ => classify(
            error,
            format!("UDP port {} on {}", address.port(), address.ip()),
        ),
    })
}

fn classify(source: io::Error, what: String) -> BindError {
    match source.raw_os_error() {
        Some(libc::EPERM | libc::EACCES) => BindError::NoPermission { what },
        _ => BindError::Other { what, source },
    }
}

fn no_family(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EAFNOSUPPORT))
}

/// Sends IKE messages and keepalives from the control thread.
#[derive(Debug, Clone)]
pub struct IkeSender {
    sockets: Vec<Arc<UdpSocket>>,
}

impl IkeSender {
    /// Sends `payload` from `local`, whose port chooses the socket. An unspecified address lets the
    /// kernel choose. `tos` has the DSCP and ECN bits of the IP header. With `df` nobody fragments the datagram.
    pub fn send(
        &self,
        (local, remote): (SocketAddr, SocketAddr),
        tos: u8,
        df: bool,
        payload: &[u8],
    ) -> io::Result<()> {
        let serves = |socket: &&Arc<UdpSocket>| {
            let bound = socket.local();
            bound.port() == local.port()
                && bound.is_ipv4() == remote.is_ipv4()
                && (bound.ip().is_unspecified()
                    || bound.ip() == local.ip()
                    || local.ip().is_unspecified())
        };
        let socket = self
            .sockets
            .iter()
            .find(serves)
            .ok_or_else(|| io::Error::from_raw_os_error(libc::EADDRNOTAVAIL))?;
        let source = (!local.ip().is_unspecified()).then_some(local.ip());
        let item = Outgoing {
            remote,
            local: source,
            tos,
            df,
            payload,
            ..Outgoing::NONE
        };
        match socket.send(&[item]) {
            SendReport { sent: 1, .. } => Ok(()),
            SendReport { too_big: 0, .. } => Err(io::Error::from_raw_os_error(libc::ENETUNREACH)),
            _ => Err(io::Error::from_raw_os_error(libc::EMSGSIZE)),
        }
    }

    /// Returns the addresses to which the sockets are bound.
    pub fn bound(&self) -> impl Iterator<Item = SocketAddr> + '_ {
        self.sockets.iter().map(|socket| socket.local())
    }
}
