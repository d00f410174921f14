//! The entry points that a worker uses: those of a data plane, with an accelerator in front or without.

use std::sync::Arc;

use esplanade_ipsec::spd::Spd;
use esplanade_ipsec::{Database, Event};

use super::accelerator::Accelerator;
use super::datagram::{IkeDatagram, ReceivedDatagram};
use super::front::{AcceleratorFront, COMMON};
use super::packet_io::{PacketIo, ReceiveSocket};
use super::{DataPlane, ms};

/// A data plane and what stands in front of it.
pub trait Doors<I: PacketIo> {
    /// The data plane behind the doors.
    fn plane(&mut self) -> &mut DataPlane<I>;

    /// Sets the time for all that follows.
    fn handle_time(&mut self, now_ns: u64);

    /// Runs the jobs that other threads asked of what stands in front.
    fn serve(&mut self);

    /// Takes one read from a port.
    fn handle_inner(&mut self, spd: &Spd, port: usize, read: &mut [u8]);

    /// Ends a burst of reads from a port.
    fn finish_inner(&mut self, spd: &Spd, port: usize);

    /// Returns the buffer for the next datagrams, as [`DataPlane::room`] does. Packets that wait for an SA go first if it
    /// has come: those that come now must not overtake them.
    fn room(&mut self) -> Option<(&mut I, &mut [u8])> {
        self.follow_early();
        self.plane().room()
    }

    /// Takes the datagrams of one receive, which stand in [`Self::room`]. IKE's go to `ike`.
    fn handle_outer(
        &mut self,
        receive_socket: ReceiveSocket,
        received: &[ReceivedDatagram],
        ike: &mut dyn FnMut(IkeDatagram),
    );

    /// Opens packets that came before their SA, where the SA is there now.
    fn follow_early(&mut self);

    /// Does what is due after a burst.
    fn finish(&mut self);

    /// Tells whether the worker has to call [`Self::finish`] within a millisecond.
    fn is_busy(&self) -> bool;

    /// Returns the events for the control thread.
    fn take_events(&mut self) -> Vec<Event>;
}

impl<I: PacketIo> Doors<I> for DataPlane<I> {
    fn plane(&mut self) -> &mut Self {
        self
    }

    fn handle_time(&mut self, now_ns: u64) {
        Self::handle_time(self, now_ns);
    }

    fn serve(&mut self) {}

    fn handle_inner(&mut self, spd: &Spd, port: usize, read: &mut [u8]) {
        Self::handle_inner(self, spd, port, read);
    }

    fn finish_inner(&mut self, _: &Spd, _: usize) {}

    fn handle_outer(
        &mut self,
        receive_socket: ReceiveSocket,
        received: &[ReceivedDatagram],
        ike: &mut dyn FnMut(IkeDatagram),
    ) {
        Self::handle_outer(self, receive_socket, received, ike);
    }

    fn follow_early(&mut self) {
        Self::follow_early(self, |_, _, _| false);
    }

    fn finish(&mut self) {
        Self::finish(self);
    }

    fn is_busy(&self) -> bool {
        false
    }

    fn take_events(&mut self) -> Vec<Event> {
        self.events().collect()
    }
}

/// A data plane with an accelerator in front.
#[derive(Debug)]
pub struct FrontPlane<I, A> {
    plane: DataPlane<I>,
    front: AcceleratorFront<A>,
    database: Arc<Database>,
}

impl<I: PacketIo, A: Accelerator> FrontPlane<I, A> {
    pub fn new(plane: DataPlane<I>, device: A) -> Self {
        let database = Arc::clone(&plane.database);
        Self {
            plane,
            front: AcceleratorFront::new(device),
            database,
        }
    }
}

impl<I: PacketIo, A: Accelerator> Doors<I> for FrontPlane<I, A> {
    fn plane(&mut self) -> &mut DataPlane<I> {
        &mut self.plane
    }

    fn handle_time(&mut self, now_ns: u64) {
        self.plane.handle_time(now_ns);
        let spd = self.database.spd();
        self.front.handle_time(&mut self.plane, &spd, ms(now_ns));
    }

    fn serve(&mut self) {
        self.front.serve(&mut self.plane, &self.database.spd());
    }

    fn handle_inner(&mut self, spd: &Spd, port: usize, read: &mut [u8]) {
        match port {
            COMMON => self.front.handle_inner(&mut self.plane, spd, read),
            _ => self.plane.handle_inner(spd, port, read),
        }
    }

    fn finish_inner(&mut self, spd: &Spd, port: usize) {
        if port == COMMON {
            self.front.finish_inner(&mut self.plane, spd);
        }
    }

    fn handle_outer(
        &mut self,
        receive_socket: ReceiveSocket,
        received: &[ReceivedDatagram],
        ike: &mut dyn FnMut(IkeDatagram),
    ) {
        let plane = &mut self.plane;
        self.front
            .handle_outer(plane, receive_socket, received, ike);
    }

    fn follow_early(&mut self) {
        self.front.follow_early(&mut self.plane);
    }

    fn finish(&mut self) {
        let spd = self.database.spd();
        self.front.poll_device(&mut self.plane, &spd);
        self.plane.finish();
    }

    fn is_busy(&self) -> bool {
        self.front.is_busy()
    }

    fn take_events(&mut self) -> Vec<Event> {
        let mut events: Vec<_> = self.plane.events().collect();
        events.extend(self.front.take_events());
        events
    }
}
