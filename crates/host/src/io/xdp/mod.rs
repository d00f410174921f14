//! Sends and receives ESP without UDP past the kernel's network stack, by AF_XDP sockets.
//!
//! The kernel's stack handles packets of protocol 50 one by one: it neither splits nor coalesces
//! them as it does with UDP. On an opened link, the driver passes ESP directly to the workers and
//! sends what they produce. These packets do not pass the rest of the stack: firewalls, packet
//! captures and other users of ESP on the link do not see them.

mod assembler;
mod frame;
mod program;

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

use esplanade_dataplane::datagram::Outgoing;
use esplanade_dataplane::datagram::ReceivedDatagram;
use esplanade_dataplane::slots;
use xdp::slab::{HeapSlab, Slab};
use xdp::socket::{XdpSocket, XdpSocketBuilder};
use xdp::umem::{FrameSize, Umem, UmemCfgBuilder};
use xdp::{Packet, RingConfigBuilder, Rings};

use super::sys::{check, would_block};

pub use frame::{LinkEnds, MacAddress};
pub use program::{MAP_UPDATE, XdpMode, XdpProgram};

/// Number of frames on the way in, and as many on the way out.
const RING: u32 = 2048;
/// Most frames that one receive takes.
pub const RECEIVE_MAX: usize = 64;
/// Bytes that the kernel reserves before each frame in a chunk of memory.
const HEADROOM: usize = 256;
const FRAME_SHORT: usize = 2048 - HEADROOM;
const FRAME_LONG: usize = 4096 - HEADROOM;
/// Largest MTU of a link whose packets fit into a frame.
pub const MTU_MAX: usize = FRAME_LONG - frame::ETHERNET_LEN;
/// Upper bound of system calls for one flush. An older kernel sends 32 frames per call.
const KICKS_MAX: u32 = 2 * RING / 32;
/// Number of frames that one call may send (XDP_MAX_TX_SKB_BUDGET, Linux 6.17).
const SEND_BUDGET: i32 = 1024;

/// The socket of one queue of a link, with the memory of its frames.
pub struct XdpQueue {
    // The order of the fields matters: frames are dropped before the memory that they lie in.
    received: HeapSlab,
    sending: HeapSlab,
    rings: Rings,
    socket: XdpSocket,
    memory: Umem,
    /// Number of frames that the kernel has not returned.
    in_flight: usize,
    /// The driver had no room for some of the frames.
    is_stuck: bool,
    /// Bytes that fit into a frame.
    room: usize,
}

// SAFETY: this value owns the mappings of the memory and of the rings, and nothing else refers to
// them. No field is tied to a thread.
unsafe impl Send for XdpQueue {}

impl std::fmt::Debug for XdpQueue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("XdpQueue")
            .field("socket", &self.socket.as_raw_fd())
            .finish_non_exhaustive()
    }
}

impl XdpQueue {
    /// Opens a queue of a link whose packets have up to `mtu` bytes.
    pub fn open(link: u32, queue: u32, mtu: usize) -> io::Result<Self> {
        let long = mtu + frame::ETHERNET_LEN > FRAME_SHORT;
        let memory = UmemCfgBuilder {
            frame_size: if long {
                FrameSize::FourK
            } else {
                FrameSize::TwoK
            },
            frame_count: 2 * RING,
            ..UmemCfgBuilder::default()
        };
        let mut memory = Umem::map(memory.build().map_err(io::Error::other)?)?;
        let mut socket = XdpSocketBuilder::new().map_err(of_socket)?;
        let rings = RingConfigBuilder {
            rx_count: RING,
            tx_count: RING,
            fill_count: RING,
            completion_count: RING,
        };
        let rings = rings.build().map_err(io::Error::other)?;
        let (mut rings, flags) = socket.build_rings(&memory, rings).map_err(of_socket)?;
        let socket = socket
            .bind(xdp::nic::NicIndex(link), queue, flags)
            .map_err(of_socket)?;
        // SAFETY: the frames lie in `memory`. They are dropped before it, because of the order of
        // the fields of `XdpQueue`.
        unsafe { rings.fill_ring.enqueue(&mut memory, RING as usize) };
        let queue = Self {
            received: HeapSlab::with_capacity(RECEIVE_MAX),
            sending: HeapSlab::with_capacity(RING as usize),
            rings,
            socket,
            memory,
            in_flight: 0,
            is_stuck: false,
            room: if long { FRAME_LONG } else { FRAME_SHORT },
        };
        // Without this option, the kernel sends 32 frames per call. Older kernels do not have it.
        let _ = super::sys::set_option(queue.as_fd(), SOL_XDP, XDP_MAX_TX_SKB_BUDGET, SEND_BUDGET);
        Ok(queue)
    }

    /// Copies the received ESP packets into `buffer` and describes them in `packets`. Returns the
    /// number of frames without an ESP packet.
    pub fn receive(&mut self, buffer: &mut [u8], packets: &mut Vec<ReceivedDatagram>) -> u64 {
        packets.clear();
        let (mut at, mut others) = (0, 0);
        let Some(ring) = &mut self.rings.rx_ring else {
            return 0;
        };
        // SAFETY: the frames lie in `self.memory`. They are dropped before it, because of the order
        // of the fields.
        let taken = unsafe { ring.recv(&self.memory, &mut self.received) };
        while let Some(packet) = self.received.pop_back() {
            match place(&packet, buffer, at) {
                Some(meta) => {
                    packets.push(meta);
                    at = slots::used(&[meta]);
                }
                None => others += 1,
            }
            self.memory.free_packet(packet);
        }
        // SAFETY: the frames lie in `self.memory`, as above.
        unsafe { self.rings.fill_ring.enqueue(&mut self.memory, taken) };
        others
    }

    /// Returns the number of frames that the kernel dropped so far because the worker was too slow.
    pub fn dropped(&self) -> u64 {
        let statistics = self.socket.statistics().ok();
        statistics.map_or(0, |s| s.rx_dropped + s.rx_ring_full)
    }

    /// Tells whether frames wait for another [`Self::flush`].
    pub fn is_stuck(&self) -> bool {
        self.is_stuck
    }

    /// Tells whether the socket failed for good, for example because its link is gone.
    pub fn is_dead(&self) -> bool {
        let mut error: i32 = 0;
        let mut len = size_of::<i32>() as libc::socklen_t;
        // SAFETY: the pointers name `error` and `len`. `len` is the size of `error`, and both
        // outlive the call.
        let result = unsafe {
            libc::getsockopt(
                self.socket.as_raw_fd(),
                libc::SOL_SOCKET,
                libc::SO_ERROR,
                (&raw mut error).cast(),
                &raw mut len,
            )
        };
        result != 0 || error != 0
    }

    /// Tells whether the packet fits into a frame.
    pub fn takes(&self, local: IpAddr, item: &Outgoing<'_>) -> bool {
        frame::header_len(local) + item.payload.len() <= self.room
    }

    /// Queues an ESP packet. The caller guarantees that [`Self::takes`] accepted it. It leaves with
    /// the next [`Self::flush`].
    pub fn push(
        &mut self,
        ends: &LinkEnds,
        local: IpAddr,
        item: &Outgoing<'_>,
        identification: u16,
    ) -> bool {
        if self.in_flight == RING as usize {
            self.reap();
        }
        if self.in_flight == RING as usize {
            return false;
        }
        // SAFETY: the frame lies in `self.memory`. It is dropped before it, because of the order of
        // the fields.
        let Some(mut packet) = (unsafe { self.memory.alloc() }) else {
            return false;
        };
        let header_len = frame::header_len(local);
        let is_written = write(&mut packet, header_len, item.payload)
            && frame::write_headers(ends, local, item, identification, &mut packet);
        if !is_written {
            self.memory.free_packet(packet);
            return false;
        }
        self.in_flight += 1;
        self.sending.push_front(packet);
        true
    }

    /// Sends the queued frames. Returns how many of them the kernel did not take.
    pub fn flush(&mut self) -> io::Result<usize> {
        let Some(ring) = &mut self.rings.tx_ring else {
            return Ok(0);
        };
        // SAFETY: the frames lie in `self.memory`. They are dropped before it, because of the order
        // of the fields.
        unsafe { ring.send(&mut self.sending) };
        let result = self.kick();
        self.is_stuck = matches!(result, Ok(false));
        self.reap();
        // The ring has a place for every frame, so normally nothing is left here.
        let mut left = 0;
        while let Some(packet) = self.sending.pop_back() {
            self.memory.free_packet(packet);
            self.in_flight -= 1;
            left += 1;
        }
        result.map(|_| left)
    }

    /// Makes the kernel send the frames in the ring. Returns false if the driver had no room for
    /// all of them.
    fn kick(&self) -> io::Result<bool> {
        for _ in 0..KICKS_MAX {
            // SAFETY: both pointers are null and both lengths are zero, so the kernel touches no
            // memory of ours.
            let result = unsafe {
                libc::sendto(
                    self.socket.as_raw_fd(),
                    std::ptr::null(),
                    0,
                    libc::MSG_DONTWAIT,
                    std::ptr::null(),
                    0,
                )
            };
            match check(result as i64) {
                Ok(_) => return Ok(true),
                // This call sent as many frames as it may, or there is no room: try again.
                Err(error) if would_block(&error) => {}
                Err(error) => {
                    return match error.raw_os_error() {
                        Some(libc::ENOBUFS | libc::EBUSY) => Ok(false),
                        // The link is down. The waiting frames leave with a later send, when the
                        // link is up.
                        Some(libc::ENETDOWN) => Ok(true),
                        _ => Err(error),
                    };
                }
            }
        }
        Ok(false)
    }

    fn reap(&mut self) {
        let ring = &mut self.rings.completion_ring;
        self.in_flight -= ring.dequeue(&mut self.memory, self.in_flight);
    }
}

impl AsFd for XdpQueue {
    fn as_fd(&self) -> BorrowedFd<'_> {
        // SAFETY: the socket stays open as long as `self` exists, and the borrow does not outlive
        // `self`.
        unsafe { BorrowedFd::borrow_raw(self.socket.as_raw_fd()) }
    }
}

/// Returns the length in bytes of the IP packet around an ESP packet.
pub fn packet_len(local: IpAddr, item: &Outgoing<'_>) -> usize {
    frame::header_len(local) - frame::ETHERNET_LEN + item.payload.len()
}

/// From <linux/if_xdp.h>.
const SOL_XDP: i32 = 283;
const XDP_MAX_TX_SKB_BUDGET: i32 = 9;

fn of_socket(error: xdp::socket::SocketError) -> io::Error {
    use xdp::socket::SocketError as E;
    match error {
        E::SocketCreation(inner)
        | E::Bind(inner)
        | E::SetSockOpt { inner, .. }
        | E::GetSockOpt { inner, .. }
        | E::RingMap { inner, .. } => inner,
    }
}

/// Copies the ESP packet of a frame to offset `at` of the buffer. Returns `None` if the frame has
/// none, or if there is no room.
fn place(frame: &[u8], buffer: &mut [u8], at: usize) -> Option<ReceivedDatagram> {
    let found = frame::find(frame)?;
    let esp = &frame[found.esp];
    let meta = ReceivedDatagram {
        at,
        len: esp.len(),
        remote: SocketAddr::new(found.source, 0),
        tos: found.tos,
        segment: esp.len(),
        ..ReceivedDatagram::NONE
    };
    let slot = buffer.get_mut(slots::with_spare(&meta))?;
    slot[..esp.len()].copy_from_slice(esp);
    Some(meta)
}

/// Reserves room for the headers and appends the payload.
fn write(packet: &mut Packet, header_len: usize, payload: &[u8]) -> bool {
    packet.adjust_tail(header_len as i32).is_ok() && packet.append(payload).is_ok()
}
