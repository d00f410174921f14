//! Descriptor rings: how packets get from software to the device and back.
//!
//! A ring is an array of descriptors in shared memory and two counters. Software gives descriptors to the device by
//! raising TAIL; the device hands them back in order, marks each as done and raises HEAD. A ring towards the device is
//! given packets, one from the device empty buffers. A ring without descriptors holds the core's stream: nothing is lost.

use crate::device::{BusError, Device};
use crate::memory::Memory;

/// The first ring's registers; the core's lie below.
pub const BASE: u32 = 0x80_0000;
/// From one ring's registers to the next one's.
pub const STRIDE: u32 = 0x20;
/// Byte address of the descriptors, low and high half.
pub const ADDRESS_LOW: u32 = 0x00;
pub const ADDRESS_HIGH: u32 = 0x04;
/// Number of descriptors, a power of two. Writing it starts the ring anew.
pub const SIZE: u32 = 0x08;
/// How many descriptors software has given, modulo 2³².
pub const TAIL: u32 = 0x0c;
/// How many the device has handed back; read-only.
pub const HEAD: u32 = 0x10;

/// A descriptor: address (low, high), bytes, then the core's TUSER.
pub const DESCRIPTOR_LEN: usize = 16;
pub const LENGTH: usize = 8;
pub const USER: usize = 12;
/// In the length: the device has done its part.
pub const DONE: u32 = 1 << 31;
/// In the length: the packet was longer than the buffer, and is cut off.
pub const CUT: u32 = 1 << 30;
pub const LENGTH_MASK: u32 = 0xffff;

/// Which ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Port {
    /// Clear packets to the outbound lane.
    OutboundIn,
    /// Datagrams from it.
    OutboundOut,
    /// Datagrams to the inbound lane.
    InboundIn,
    /// Clear packets from it.
    InboundOut,
}

impl Port {
    pub const ALL: [Self; 4] = [
        Self::OutboundIn,
        Self::OutboundOut,
        Self::InboundIn,
        Self::InboundOut,
    ];

    /// Address of a register of this ring.
    pub const fn register(self, offset: u32) -> u32 {
        BASE + STRIDE * self as u32 + offset
    }
}

/// Descriptors of a ring.
const ENTRIES: u32 = 64;
/// Room for the core's longest frame with everything around it.
pub const BUFFER_LEN: usize = 4096;
/// What one ring takes.
const RING_LEN: usize = ENTRIES as usize * (DESCRIPTOR_LEN + BUFFER_LEN);
/// What all rings take.
pub const MEMORY_LEN: usize = RING_LEN * Port::ALL.len();

/// Software's side of a ring, which owns a buffer for each descriptor.
#[derive(Debug)]
pub(crate) struct Ring {
    port: Port,
    memory: Memory,
    base: usize,
    tail: u32,
    /// Towards the device: as last read. From the device: the next one to look at.
    head: u32,
}

/// A packet from the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Arrived {
    pub len: usize,
    pub user: u32,
    pub cut: bool,
}

impl Ring {
    /// None if the device's memory is too small.
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

    /// Gives the device a packet. False if the ring is full or no buffer takes so much.
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

    /// Towards the device: how many packets it has taken; none if no other is there for it.
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

    /// The next packet, copied into `packet`, and its buffer back to the device.
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
            // A device that says more than there is room for is not believed.
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
