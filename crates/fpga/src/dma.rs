//! The device's side of the rings, for devices that are programs.

use crate::memory::Memory;
use crate::ring::{
    ADDRESS_HIGH, ADDRESS_LOW, BASE, CUT, DESCRIPTOR_LEN, DONE, HEAD, LENGTH, LENGTH_MASK, Port,
    SIZE, STRIDE, TAIL, USER,
};

/// The most descriptors that a ring may have.
const SIZE_MAX: u32 = 1 << 16;

#[derive(Clone, Copy, Debug, Default)]
struct RingState {
    address: u32,
    size: u32,
    tail: u32,
    head: u32,
}

/// A DMA engine with a ring for each port of the core.
#[derive(Debug)]
pub struct Dma {
    memory: Memory,
    rings: [RingState; Port::ALL.len()],
}

impl Dma {
    pub fn new(memory: Memory) -> Self {
        Self {
            memory,
            rings: Default::default(),
        }
    }

    pub fn memory(&self) -> Memory {
        self.memory.clone()
    }

    /// Reads a register. Returns `None` if there is no such register.
    pub fn read(&self, address: u32) -> Option<u32> {
        let (ring, offset) = place(address)?;
        let ring = self.rings.get(ring)?;
        match offset {
            ADDRESS_LOW => Some(ring.address),
            ADDRESS_HIGH => Some(0),
            SIZE => Some(ring.size),
            TAIL => Some(ring.tail),
            HEAD => Some(ring.head),
            _ => None,
        }
    }

    /// Writes a register. Returns `None` if there is no such register, or if the value is not possible.
    pub fn write(&mut self, address: u32, value: u32) -> Option<()> {
        let (ring, offset) = place(address)?;
        let ring = self.rings.get_mut(ring)?;
        match offset {
            ADDRESS_LOW if value.is_multiple_of(16) => ring.address = value,
            ADDRESS_HIGH if value == 0 => {}
            SIZE if value.is_power_of_two() && value <= SIZE_MAX => {
                *ring = RingState {
                    address: ring.address,
                    size: value,
                    ..RingState::default()
                };
            }
            // Software may give only as many descriptors as the ring has.
            TAIL if value.wrapping_sub(ring.head) <= ring.size => ring.tail = value,
            _ => return None,
        }
        Some(())
    }

    fn descriptor(&self, port: Port) -> Option<usize> {
        let ring = self.rings[port as usize];
        (ring.head != ring.tail)
            .then(|| ring.address as usize + DESCRIPTOR_LEN * (ring.head % ring.size) as usize)
    }

    fn hand_back(&mut self, port: Port, descriptor: usize, length: u32) {
        self.memory.store(descriptor + LENGTH, length | DONE);
        let head = &mut self.rings[port as usize].head;
        *head = head.wrapping_add(1);
    }

    /// Returns true if software has given the ring a descriptor that is not done.
    pub fn is_ready(&self, port: Port) -> bool {
        self.descriptor(port).is_some()
    }

    /// Takes the next packet from a ring towards the core. A packet that lies outside of memory counts as empty.
    pub fn take(&mut self, port: Port) -> Option<Vec<u8>> {
        let descriptor = self.descriptor(port)?;
        let address = self.memory.load(descriptor).unwrap_or(0) as usize;
        let length = self.memory.load(descriptor + LENGTH).unwrap_or(0);
        let mut packet = vec![0; (length & LENGTH_MASK) as usize];
        if !self.memory.copy_out(address, &mut packet) {
            packet.clear();
        }
        self.hand_back(port, descriptor, length);
        Some(packet)
    }

    /// Puts a packet from the core into the next buffer of its ring. Returns false if the ring has no free buffer.
    pub fn put(&mut self, port: Port, packet: &[u8], user: u32) -> bool {
        let Some(descriptor) = self.descriptor(port) else {
            return false;
        };
        let address = self.memory.load(descriptor).unwrap_or(0) as usize;
        let room = self.memory.load(descriptor + LENGTH).unwrap_or(0) & LENGTH_MASK;
        let kept = packet.get(..room as usize).unwrap_or(packet);
        let cut = if kept.len() < packet.len() { CUT } else { 0 };
        self.memory.copy_in(address, kept);
        self.memory.store(descriptor + USER, user);
        self.hand_back(port, descriptor, kept.len() as u32 | cut);
        true
    }
}

/// Returns the ring and the offset of the register for an address.
fn place(address: u32) -> Option<(usize, u32)> {
    let offset = address.checked_sub(BASE)?;
    Some(((offset / STRIDE) as usize, offset % STRIDE))
}
