//! Watches for changes of the network settings that others make. It only reports them; `repair`
//! restores.

use std::io;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rtnetlink::packet_core::{NetlinkMessage, NetlinkPayload};
use rtnetlink::packet_route::RouteNetlinkMessage;
use rtnetlink::sys::{AsyncSocket, AsyncSocketExt, TokioSocket, protocols};
use rtnetlink::{MulticastGroup, sys::SocketAddr};
use tokio::sync::Notify;
use tokio::task::JoinHandle;

use super::nft::{self, Nft};
use super::{Net, NetError, Result, name, table_of};
use crate::io::steer::leave_port;

const GROUPS: [MulticastGroup; 7] = [
    MulticastGroup::Link,
    MulticastGroup::Ipv4Ifaddr,
    MulticastGroup::Ipv6Ifaddr,
    MulticastGroup::Ipv4Route,
    MulticastGroup::Ipv6Route,
    MulticastGroup::Ipv4Rule,
    MulticastGroup::Ipv6Rule,
];

const NFNLGRP_NFTABLES: u32 = libc::NFNLGRP_NFTABLES as u32;

/// Pause between two reports. It bounds the work if others delete again and again what we restore.
const PAUSE: Duration = Duration::from_millis(5);

/// The settings that the watch reports.
#[derive(Debug, Clone)]
pub struct Watched {
    /// Numbers of the routing tables.
    pub tables: WatchedNumbers,
    /// Indices of the links.
    pub links: WatchedNumbers,
    /// Names of links that may come and go.
    pub names: Vec<String>,
}

/// A list of numbers that its owner shares with the watch. The owner may change it at any time.
#[derive(Debug, Clone, Default)]
pub struct WatchedNumbers(Arc<Mutex<Vec<u32>>>);

impl WatchedNumbers {
    pub fn set(&self, numbers: Vec<u32>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = numbers;
    }

    fn contains(&self, number: u32) -> bool {
        let numbers = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        numbers.contains(&number)
    }
}

/// Reports that others changed a setting, but not which. One report may stand for several changes.
#[derive(Debug)]
pub struct NetWatch {
    changed: Arc<Notify>,
    task: JoinHandle<()>,
}

/// Reports changes of one nf_tables table, through the same channel as its [`NetWatch`].
#[derive(Debug)]
pub struct TableWatch {
    changed: Arc<Notify>,
    table_changed: Arc<AtomicBool>,
    task: Option<JoinHandle<()>>,
}

impl Drop for NetWatch {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Drop for TableWatch {
    fn drop(&mut self) {
        self.task.iter().for_each(JoinHandle::abort);
    }
}

impl NetWatch {
    /// Starts the watch. It does not report changes that `net` makes.
    pub fn start(net: &Net, watched: Watched) -> Result<Self> {
        let refused = |source| NetError {
            what: "cannot watch the network's settings".into(),
            source,
        };
        let groups = GROUPS.map(|group| group as u32);
        let socket = open(protocols::NETLINK_ROUTE, &groups).map_err(refused)?;
        let changed = Arc::new(Notify::new());
        let port = net.port;
        let concerns = move |datagram: &[u8]| concerns(datagram, &watched, port);
        let task = tokio::spawn(watch(socket, concerns, Arc::clone(&changed), None));
        Ok(Self { changed, task })
    }

    /// Returns a watch for a table. It reports through this watch, and watches nothing before its
    /// start.
    pub fn of_table(&self) -> TableWatch {
        TableWatch {
            changed: Arc::clone(&self.changed),
            table_changed: Arc::default(),
            task: None,
        }
    }

    /// Waits until something has changed since the last call.
    pub async fn changed(&self) {
        self.changed.notified().await;
    }
}

impl TableWatch {
    /// Starts the watch of the table `name`. It does not report changes that `nft` makes.
    pub fn start(&mut self, nft: &Nft, name: String) -> io::Result<()> {
        let socket = open(nft::NETLINK_NETFILTER, &[NFNLGRP_NFTABLES])?;
        let port = nft.port;
        // Our own changes can be larger than the socket's queue. What overflows it counts as a change by others.
        leave_port(socket.socket_ref().as_fd(), port)?;
        let concerns = move |datagram: &[u8]| nft::concerns(datagram, &name, port);
        let (changed, table) = (Arc::clone(&self.changed), Arc::clone(&self.table_changed));
        let task = tokio::spawn(watch(socket, concerns, changed, Some(table)));
        if let Some(former) = self.task.replace(task) {
            former.abort();
        }
        Ok(())
    }

    /// Tells whether the table changed since the last call.
    pub fn has_changed(&self) -> bool {
        self.table_changed.swap(false, Ordering::Relaxed)
    }
}

fn open(protocol: isize, groups: &[u32]) -> io::Result<TokioSocket> {
    let mut socket = TokioSocket::new(protocol)?;
    socket.socket_mut().bind(&SocketAddr::new(0, 0))?;
    for group in groups {
        socket.socket_mut().add_membership(*group)?;
    }
    Ok(socket)
}

async fn watch(
    socket: TokioSocket,
    concerns: impl Fn(&[u8]) -> bool,
    changed: Arc<Notify>,
    table: Option<Arc<AtomicBool>>,
) {
    loop {
        let concerns = match socket.recv_from_full().await {
            Ok((datagram, _)) => concerns(&datagram),
            // The socket overflowed (ENOBUFS): what happened is unknown, so report a change.
            Err(_) => true,
        };
        if concerns {
            if let Some(table) = &table {
                table.store(true, Ordering::Relaxed);
            }
            changed.notify_one();
            tokio::time::sleep(PAUSE).await;
        }
    }
}

fn concerns(mut datagram: &[u8], watched: &Watched, own_port: u32) -> bool {
    while !datagram.is_empty() {
        let Ok(message) = NetlinkMessage::<RouteNetlinkMessage>::deserialize(datagram) else {
            return true;
        };
        if message.header.port_number != own_port && is_of(&message.payload, watched) {
            return true;
        }
        let len = (message.header.length as usize).next_multiple_of(4);
        datagram = datagram.get(len.max(4)..).unwrap_or_default();
    }
    false
}

fn is_of(payload: &NetlinkPayload<RouteNetlinkMessage>, watched: &Watched) -> bool {
    use RouteNetlinkMessage as M;
    let NetlinkPayload::InnerMessage(message) = payload else {
        return matches!(payload, NetlinkPayload::Overrun(_));
    };
    match message {
        // Watch links and addresses too: the kernel does not announce the IPv4 routes that
        // disappear with them.
        M::NewLink(link) | M::DelLink(link) => {
            let is_named = |own: &String| name(link) == Some(own);
            watched.links.contains(link.header.index) || watched.names.iter().any(is_named)
        }
        M::NewAddress(_) | M::DelAddress(_) => true,
        M::NewRoute(route) | M::DelRoute(route) => watched.tables.contains(table_of(route)),
        M::NewRule(_) | M::DelRule(_) => true,
        _ => false,
    }
}
