//! A packet socket that sees every frame of one interface, in both directions. The demo uses it;
//! the gateway does not.

use std::io;
use std::mem::{MaybeUninit, size_of};
use std::os::fd::{AsFd, AsRawFd};

use socket2::{Domain, Protocol, SockAddr, Socket, Type};

use super::sys::{check, set_option, would_block};

// From <linux/if_packet.h>.
const PACKET_STATISTICS: libc::c_int = 6;
const EVERY_PROTOCOL: u16 = libc::ETH_P_ALL as u16;

const QUEUE_BYTES: i32 = 32 << 20;

/// An instruction of a classic BPF filter.
pub type FilterInstruction = socket2::SockFilter;

/// The packet socket. Frames include their Ethernet header. They are seen before segmentation and
/// checksum offloads are carried out.
#[derive(Debug)]
pub struct PacketSocket {
    socket: Socket,
}

impl PacketSocket {
    /// Opens the socket on an interface of the calling thread's network namespace. The filter is in
    /// force before the first frame is queued.
    pub fn open(interface: &str, filter: &[FilterInstruction]) -> io::Result<Self> {
        // Protocol 0 receives nothing until `bind` names the interface.
        let socket = Socket::new(Domain::PACKET, Type::RAW, Some(Protocol::from(0)))?;
        socket.attach_filter(filter)?;
        // Forcing the size needs a privilege that a user namespace lacks.
        let _ = socket.set_recv_buffer_size(QUEUE_BYTES as usize);
        let _ = set_option(
            socket.as_fd(),
            libc::SOL_SOCKET,
            libc::SO_RCVBUFFORCE,
            QUEUE_BYTES,
        );
        socket.bind(&link_address(interface)?)?;
        Ok(Self { socket })
    }

    /// Replaces the filter.
    pub fn filter(&self, filter: &[FilterInstruction]) -> io::Result<()> {
        self.socket.attach_filter(filter)
    }

    /// Sets how long `receive` waits.
    pub fn set_timeout(&self, timeout: std::time::Duration) -> io::Result<()> {
        self.socket.set_read_timeout(Some(timeout))
    }

    /// Receives the next frame, cut to the buffer. Returns `None` after the timeout.
    pub fn receive<'a>(&self, buffer: &'a mut [u8]) -> io::Result<Option<&'a [u8]>> {
        match io::Read::read(&mut &self.socket, buffer) {
            Ok(len) => Ok(buffer.get(..len)),
            Err(error) if would_block(&error) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Returns the number of frames that found the socket's queue full, since the last call.
    pub fn missed(&self) -> io::Result<u64> {
        let mut statistics = MaybeUninit::<[u32; 2]>::zeroed();
        let mut len = size_of::<[u32; 2]>() as libc::socklen_t;
        // SAFETY: the kernel writes at most `len` bytes, which is the size of `statistics`. `struct
        // tpacket_stats` consists of two u32. Both variables outlive the call.
        check(unsafe {
            libc::getsockopt(
                self.socket.as_raw_fd(),
                libc::SOL_PACKET,
                PACKET_STATISTICS,
                statistics.as_mut_ptr().cast(),
                &mut len,
            )
        })?;
        // SAFETY: the value was zeroed above, and every bit pattern is a valid u32.
        let [_packets, drops] = unsafe { statistics.assume_init() };
        Ok(drops.into())
    }
}

fn link_address(interface: &str) -> io::Result<SockAddr> {
    let name = std::ffi::CString::new(interface)?;
    // SAFETY: `name` is a string with a final zero and outlives the call.
    let index = unsafe { libc::if_nametoindex(name.as_ptr()) };
    if index == 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the closure writes a sockaddr_ll, which fits the storage and is valid when filled
    // with zeros. It sets the length to the size of a sockaddr_ll.
    let ((), address) = unsafe {
        SockAddr::try_init(|storage, len| {
            let link = &mut *storage.cast::<libc::sockaddr_ll>();
            link.sll_family = libc::AF_PACKET as libc::sa_family_t;
            link.sll_protocol = EVERY_PROTOCOL.to_be();
            link.sll_ifindex = index as libc::c_int;
            *len = size_of::<libc::sockaddr_ll>() as libc::socklen_t;
            Ok(())
        })?
    };
    Ok(address)
}
