//! ESP without UDP past the kernel's stack, by AF_XDP sockets.
//!
//! The stack takes packets of protocol 50 one by one, and neither cuts nor joins them as it does with UDP. A link that is
//! opened gives them to the workers from the driver, and takes theirs. What the stack does beside that does not happen to
//! them: firewalls, packet captures and other users of ESP on the link do not see them.

mod assembler;
mod frame;
mod program;

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

use xdp::slab::{HeapSlab, Slab};
use xdp::socket::{XdpSocket, XdpSocketBuilder};
use xdp::umem::{FrameSize, Umem, UmemCfgBuilder};
use xdp::{Packet, RingConfigBuilder, Rings};

use super::message::Outgoing;
use super::received::Received;
use super::slots;
use super::sys::{check, would_block};

pub use frame::{Ends, Mac};
pub use program::{Mode, Program};

/// Frames on their way in, and as many on their way out.
const RING: u32 = 2048;
/// Frames that are taken at a time.
pub const RECEIVE_MAX: usize = 64;
/// Bytes of a page of memory that the kernel keeps for itself in front of a frame.
const HEADROOM: usize = 256;
const FRAME_SHORT: usize = 2048 - HEADROOM;
const FRAME_LONG: usize = 4096 - HEADROOM;
/// The longest packets of a link that fit a frame.
pub const MTU_MAX: usize = FRAME_LONG - frame::ETHERNET_LEN;
/// Calls in one go: an older kernel sends 32 frames with each.
const KICKS_MAX: u32 = 2 * RING / 32;
/// Frames that one call may send (XDP_MAX_TX_SKB_BUDGET, Linux 6.17).
const SEND_BUDGET: i32 = 1024;

/// The socket of one queue of a link, with the memory that its frames lie in.
pub struct Queue {
    // In this order: frames do not outlive the memory.
    received: HeapSlab,
    sending: HeapSlab,
    rings: Rings,
    socket: XdpSocket,
    memory: Umem,
    /// Frames that the kernel has not given back.
    in_flight: usize,
    /// The driver had no room for some of them.
    is_stuck: bool,
    /// Of a frame.
    room: usize,
}

// SAFETY: the memory and the rings are mappings that this one value owns; no thread has a right of its own to them.
unsafe impl Send for Queue {}

impl std::fmt::Debug for Queue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Queue")
            .field("socket", &self.socket.as_raw_fd())
            .finish_non_exhaustive()
    }
}

/// What became of frames.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sent {
    pub sent: u64,
    /// The queue was full.
    pub failed: u64,
}

impl Queue {
    /// Of a link with packets of up to `mtu` bytes.
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
        // SAFETY: no frame outlives the memory, see the order of the fields.
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
        // An older kernel sends 32 at a time.
        let _ = super::sys::set_option(queue.as_fd(), SOL_XDP, XDP_MAX_TX_SKB_BUDGET, SEND_BUDGET);
        Ok(queue)
    }

    /// Copies the ESP packets that have come into `buffer`, and says where they are. Frames without one are counted in
    /// the number beside.
    pub fn receive(&mut self, buffer: &mut [u8], packets: &mut Vec<Received>) -> u64 {
        packets.clear();
        let (mut at, mut others) = (0, 0);
        let Some(ring) = &mut self.rings.rx_ring else {
            return 0;
        };
        // SAFETY: no frame outlives the memory, see the order of the fields.
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
        // SAFETY: as above.
        unsafe { self.rings.fill_ring.enqueue(&mut self.memory, taken) };
        others
    }

    /// Frames that the kernel has dropped so far, because nobody took those before them in time.
    pub fn dropped(&self) -> u64 {
        let statistics = self.socket.statistics().ok();
        statistics.map_or(0, |s| s.rx_dropped + s.rx_ring_full)
    }

    /// Whether frames wait for a further [`Self::flush`].
    pub fn is_stuck(&self) -> bool {
        self.is_stuck
    }

    /// An error of the socket, for good: its link is gone, say.
    pub fn is_dead(&self) -> bool {
        let mut error: i32 = 0;
        let mut len = size_of::<i32>() as libc::socklen_t;
        // SAFETY: the pointers describe `error` and `len`, which outlive the call.
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

    /// Whether the packet fits a frame.
    pub fn takes(&self, local: IpAddr, item: &Outgoing<'_>) -> bool {
        frame::header_len(local) + item.payload.len() <= self.room
    }

    /// Queues an ESP packet that [`Self::takes`] said fits. It leaves with the next [`Self::flush`].
    pub fn push(
        &mut self,
        ends: &Ends,
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
        // SAFETY: no frame outlives the memory, see the order of the fields.
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

    /// Sends what was queued; how many frames the kernel has not taken.
    pub fn flush(&mut self) -> io::Result<usize> {
        let Some(ring) = &mut self.rings.tx_ring else {
            return Ok(0);
        };
        // SAFETY: no frame outlives the memory, see the order of the fields.
        unsafe { ring.send(&mut self.sending) };
        let result = self.kick();
        self.is_stuck = matches!(result, Ok(false));
        self.reap();
        // The ring is as long as there are frames.
        let mut left = 0;
        while let Some(packet) = self.sending.pop_back() {
            self.memory.free_packet(packet);
            self.in_flight -= 1;
            left += 1;
        }
        result.map(|_| left)
    }

    /// Has the kernel send what is in the ring. False if some of it stays there, because the driver has no room.
    fn kick(&self) -> io::Result<bool> {
        for _ in 0..KICKS_MAX {
            // SAFETY: no pointers.
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
                // One call sends no more, or there is no room.
                Err(error) if would_block(&error) => {}
                Err(error) => {
                    return match error.raw_os_error() {
                        Some(libc::ENOBUFS | libc::EBUSY) => Ok(false),
                        // The link is down. What waits leaves when something is sent after it has come up.
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

impl AsFd for Queue {
    fn as_fd(&self) -> BorrowedFd<'_> {
        // SAFETY: the socket is open as long as `self` is.
        unsafe { BorrowedFd::borrow_raw(self.socket.as_raw_fd()) }
    }
}

/// Bytes of the IP packet that an ESP packet becomes.
pub fn packet_len(local: IpAddr, item: &Outgoing<'_>) -> usize {
    frame::header_len(local) - frame::ETHERNET_LEN + item.payload.len()
}

/// <linux/if_xdp.h>.
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

/// Copies the ESP packet of a frame to `at` in the buffer; None if there is none, or no room.
fn place(frame: &[u8], buffer: &mut [u8], at: usize) -> Option<Received> {
    let found = frame::find(frame)?;
    let esp = &frame[found.esp];
    let meta = Received {
        at,
        len: esp.len(),
        remote: SocketAddr::new(found.source, 0),
        tos: found.tos,
        segment: esp.len(),
        ..Received::NONE
    };
    let slot = buffer.get_mut(slots::with_spare(&meta))?;
    slot[..esp.len()].copy_from_slice(esp);
    Some(meta)
}

/// Room for the headers, and the payload.
fn write(packet: &mut Packet, header_len: usize, payload: &[u8]) -> bool {
    packet.adjust_tail(header_len as i32).is_ok() && packet.append(payload).is_ok()
}
