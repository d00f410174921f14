//! Descriptor rings: the way of packets from software to the device and back.
//!
//! A ring is an array of descriptors in shared memory and two counters. Software gives descriptors to the device by
//! raising TAIL. The device hands them back in order: it marks each as done and raises HEAD. A ring towards the
//! device gets packets; a ring from the device gets empty buffers. While a ring has no descriptors, the core's stream
//! waits, and nothing is lost.

use crate::device::{BusError, Device};
use crate::memory::Memory;

/// Address of the first ring's registers. The core's registers lie below it.
pub const BASE: u32 = 0x80_0000;
/// Distance in bytes from one ring's registers to those of the next ring.
pub const STRIDE: u32 = 0x20;
/// Byte address of the descriptors, low half.
pub const ADDRESS_LOW: u32 = 0x00;
/// Byte address of the descriptors, high half.
pub const ADDRESS_HIGH: u32 = 0x04;
/// Number of descriptors, a power of two. Writing it resets the ring.
pub const SIZE: u32 = 0x08;
/// Number of descriptors that software has given, modulo 2³².
pub const TAIL: u32 = 0x0c;
/// Number of descriptors that the device has handed back, modulo 2³²; read-only.
pub const HEAD: u32 = 0x10;

/// Bytes of a descriptor: address (low, high), length, and the core's TUSER, four bytes each.
pub const DESCRIPTOR_LEN: usize = 16;
/// Offset of the length in a descriptor.
pub const LENGTH: usize = 8;
/// Offset of TUSER in a descriptor.
pub const USER: usize = 12;
/// Bit in the length: the device has finished with the descriptor.
pub const DONE: u32 = 1 << 31;
/// Bit in the length: the packet was longer than the buffer and is truncated.
pub const CUT: u32 = 1 << 30;
/// Bits of the length itself, in bytes.
pub const LENGTH_MASK: u32 = 0xffff;

/// Names a ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Port {
    /// Clear packets to the outbound lane.
    OutboundIn,
    /// Datagrams from the outbound lane.
    OutboundOut,
    /// Datagrams to the inbound lane.
    InboundIn,
    /// Clear packets from the inbound lane.
    InboundOut,
}

impl Port {
    pub const ALL: [Self; 4] = [
        Self::OutboundIn,
        Self::OutboundOut,
        Self::InboundIn,
        Self::InboundOut,
    ];

    /// The address of a register of this ring.
    pub const fn register(self, offset: u32) -> u32 {
        BASE + STRIDE * self as u32 + offset
    }
}

/// Number of descriptors in a ring.
const ENTRIES: u32 = 64;
/// Bytes of a buffer. It holds the core's longest frame with everything around it.
pub const BUFFER_LEN: usize = 4096;
/// Bytes of memory for one ring.
const RING_LEN: usize = ENTRIES as usize * (DESCRIPTOR_LEN + BUFFER_LEN);
/// Bytes of memory for all rings.
pub const MEMORY_LEN: usize = RING_LEN * Port::ALL.len();

/// Software's side of a ring. It owns a buffer for each descriptor.
#[derive(Debug)]
pub(crate) struct Ring {
    port: Port,
    memory: Memory,
    base: usize,
    tail: u32,
    /// The value last read from HEAD in a ring towards the device, or the next descriptor to look at in a ring from the
    /// device.
    head: u32,
}

/// Describes a packet from the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Arrived {
    pub len: usize,
    pub user: u32,
    pub cut: bool,
}

impl Ring {
    /// Makes a ring. Returns `None` if the device's memory is too small.
    pub fn new(port: Port, memory: Memory) -> Option<Self> {
        let base = RING_LEN * port as usize;
        (base + RING_LEN <= memory.len()).then_some(Self {
            port,
            memory,
            base,
            tail: 0,
            head: 0,
        })
    }

    /// Tells the device where the ring lies.
    pub fn start<D: Device>(&mut self, device: &mut D) -> Result<(), BusError> {
        device.write(self.port.register(ADDRESS_LOW), self.base as u32)?;
        device.write(self.port.register(ADDRESS_HIGH), 0)?;
        device.write(self.port.register(SIZE), ENTRIES)?;
        (self.tail, self.head) = (0, 0);
        Ok(())
    }

    fn descriptor(&self, index: u32) -> usize {
        self.base + DESCRIPTOR_LEN * (index % ENTRIES) as usize
    }

    fn buffer(&self, index: u32) -> usize {
        self.base + DESCRIPTOR_LEN * ENTRIES as usize + BUFFER_LEN * (index % ENTRIES) as usize
    }

    fn give(&mut self, len: u32) {
        let (descriptor, buffer) = (self.descriptor(self.tail), self.buffer(self.tail));
        self.memory.store(descriptor, buffer as u32);
        self.memory.store(descriptor + 4, 0);
        self.memory.store(descriptor + USER, 0);
        self.memory.store(descriptor + LENGTH, len);
        self.tail = self.tail.wrapping_add(1);
    }

    /// Gives the device a packet. Returns false if the ring is full, or if the packet is empty or longer than a
    /// buffer.
    pub fn send<D: Device>(&mut self, device: &mut D, packet: &[u8]) -> Result<bool, BusError> {
        if packet.is_empty() || packet.len() > BUFFER_LEN {
            return Ok(false);
        }
        if self.tail.wrapping_sub(self.head) >= ENTRIES {
            self.head = device.read(self.port.register(HEAD))?;
            if self.tail.wrapping_sub(self.head) >= ENTRIES {
                return Ok(false);
            }
        }
        self.memory.copy_in(self.buffer(self.tail), packet);
        self.give(packet.len() as u32);
        device.write(self.port.register(TAIL), self.tail)?;
        Ok(true)
    }

    /// Returns the number of packets that the device has taken from a ring towards it, modulo 2³². Returns `None` if
    /// the device has taken all of them.
    pub fn progress<D: Device>(&mut self, device: &mut D) -> Result<Option<u32>, BusError> {
        if self.tail != self.head {
            self.head = device.read(self.port.register(HEAD))?;
        }
        Ok((self.tail != self.head).then_some(self.head))
    }

    /// Gives the device every buffer that it does not have.
    pub fn fill<D: Device>(&mut self, device: &mut D) -> Result<(), BusError> {
        while self.tail.wrapping_sub(self.head) < ENTRIES {
            self.give(BUFFER_LEN as u32);
        }
        device.write(self.port.register(TAIL), self.tail)
    }

    /// Copies the next packet into `packet` and gives its buffer back to the device. Returns `None` if no packet is
    /// done.
    pub fn receive<D: Device>(
        &mut self,
        device: &mut D,
        packet: &mut Vec<u8>,
    ) -> Result<Option<Arrived>, BusError> {
        if self.head == self.tail {
            return Ok(None);
        }
        let descriptor = self.descriptor(self.head);
        let length = self.memory.load(descriptor + LENGTH).unwrap_or(0);
        if length & DONE == 0 {
            return Ok(None);
        }
        let arrived = Arrived {
            // The length comes from the device and may be wrong, so it is limited to the buffer.
            len: ((length & LENGTH_MASK) as usize).min(BUFFER_LEN),
            user: self.memory.load(descriptor + USER).unwrap_or(0),
            cut: length & CUT != 0,
        };
        packet.resize(arrived.len, 0);
        self.memory.copy_out(self.buffer(self.head), packet);
        self.head = self.head.wrapping_add(1);
        self.fill(device)?;
        Ok(Some(arrived))
    }
}
