//! Lays out one packet: ESP or AH header, IV, padding and trailer around it, and the job for the engine.

use esplanade_crypto::{Batch, IvKind, Job, JobStatus, Protocol};

use super::ESP_LEN_MAX;
use super::side::{Frame, OutboundWalkState};
use crate::drop_reason::DropReason;
use crate::iv::IvPool;
use crate::layout::Layout;
use crate::sa::{Mode, OutboundSa};
use crate::tunnel::{OuterHeader, OuterMeta};
use crate::wire::ip::{IPV4_HEADER_LEN, IPV6_HEADER_LEN, PROTOCOL_UDP};
use crate::wire::udp_encap::UDP_HEADER_LEN;
use crate::wire::{IpVersion, IpView, ah, be16, checksum, esp};

/// Length of the longest outer headers with which a [`super::Train`] can be sent: IPv6 and UDP.
pub(super) const OUTER_HEADROOM: usize = 48;

/// Parameters that the packets of one run share.
#[derive(Clone, Copy, Debug)]
pub(super) struct Plan {
    pub shape: Shape,
    pub meta: OuterMeta,
    pub depth: u8,
}

/// Parameters of the ESP or AH around the packets.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shape {
    pub layout: Layout,
    pub spi: u32,
    pub key: u32,
    pub class: u8,
    /// The next header field of the trailer in tunnel mode.
    pub next_header: u8,
    /// Inner packets are padded to this length in bytes (RFC 4303 §2.7).
    pub padded_to: usize,
}

impl Shape {
    #[inline(always)]
    pub fn new(sa: &OutboundSa, inner_tos: u8, next_header: u8) -> Self {
        let layout = sa.common.layout;
        Self {
            layout,
            spi: sa.common.spi,
            key: sa.number(),
            class: layout.class(inner_tos),
            next_header,
            padded_to: sa.padded_to(),
        }
    }

    /// Does the same as [`Self::new`] for a usual SA, some of whose parameters the compiler then knows.
    #[inline(always)]
    pub fn of_usual(sa: &OutboundSa, inner_tos: u8, next_header: u8) -> Self {
        let layout = sa.common.layout.usual();
        Self {
            layout,
            spi: sa.common.spi,
            key: sa.number(),
            class: layout.class(inner_tos),
            next_header,
            padded_to: 0,
        }
    }

    /// Makes a job for the bytes of the arena from `start` on. [`Job`] explains `icv`.
    #[inline(always)]
    pub fn job(&self, start: usize, len: usize, icv: usize, sequence: u64) -> Job {
        Job {
            key: self.key,
            esp: start as u32,
            len: len as u32,
            icv: icv as u32,
            sequence,
            class: self.class,
            status: JobStatus::Pending,
        }
    }
}

impl Plan {
    pub fn new(sa: &OutboundSa, meta: OuterMeta, inner_tos: u8, next_header: u8) -> Self {
        Self {
            shape: Shape::new(sa, inner_tos, next_header),
            meta,
            depth: 0,
        }
    }

    /// Returns how many bytes of a slot go before an inner packet of `len` bytes, and the length of the slot.
    pub fn room(&self, len: usize) -> (usize, usize) {
        let layout = &self.shape.layout;
        if layout.is_esp_tunnel() {
            let whole = layout.sealed_len(len.max(self.shape.padded_to));
            return (layout.esp_header_len(), whole);
        }
        let front = self.front();
        let back = match layout.protocol {
            // The payload's length within the packet is not known yet.
            Protocol::Esp => layout.behind_len_max(),
            Protocol::Ah => 0,
        };
        (front, front + len + back)
    }

    /// Number of bytes that go in front of the inner packet in the arena.
    fn front(&self) -> usize {
        let layout = &self.shape.layout;
        match (layout.protocol, layout.mode) {
            (Protocol::Esp, Mode::Tunnel) => layout.esp_header_len(),
            (Protocol::Esp, Mode::Transport) => layout.esp_header_len() + self.udp_len(),
            (Protocol::Ah, Mode::Tunnel) => self.ah_len() + self.meta.ip_header_len(),
            (Protocol::Ah, Mode::Transport) => self.ah_len(),
        }
    }

    fn udp_len(&self) -> usize {
        match self.meta.udp_encap() {
            true => UDP_HEADER_LEN,
            false => 0,
        }
    }

    fn ah_len(&self) -> usize {
        let icv_field = self.shape.layout.iv_len() + self.shape.layout.icv_len();
        ah::header_len(self.meta.version(), icv_field)
    }
}

/// An inner packet in the arena, and the slot around it.
#[derive(Clone, Copy, Debug)]
pub(super) struct PacketPlace {
    pub slot_start: usize,
    pub slot_end: usize,
    pub start: usize,
    pub len: usize,
}

/// The batch being filled, and what is needed to fill it.
pub(super) struct Preparer<'a> {
    pub batch: &'a mut Batch,
    pub side: &'a mut OutboundWalkState,
    pub ivs: &'a mut IvPool,
    pub identification: &'a mut u16,
}

impl std::fmt::Debug for Preparer<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Preparer").finish_non_exhaustive()
    }
}

impl Preparer<'_> {
    /// Lays out a packet that is in its place, in any mode.
    pub fn packet(
        &mut self,
        sa: &OutboundSa,
        plan: &Plan,
        sequence: u64,
        place: &PacketPlace,
    ) -> Result<(), DropReason> {
        if !plan.shape.layout.is_esp_tunnel() {
            return self.framed(sa, plan, sequence, place);
        }
        let first_job = self.batch.jobs.len() as u32;
        let place = std::iter::once(*place);
        esp_tunnel(self.batch, self.ivs, &plan.shape, sequence, place)
            .map_err(|(reason, _)| reason)?;
        self.side.add_jobs(sa, &plan.meta, plan.depth, first_job, 1);
        Ok(())
    }

    /// Lays out a packet in transport mode, or with AH in either mode. The packet is in its place and includes its IP
    /// header.
    pub fn framed(
        &mut self,
        sa: &OutboundSa,
        plan: &Plan,
        sequence: u64,
        place: &PacketPlace,
    ) -> Result<(), DropReason> {
        let start = place.start.checked_sub(plan.front());
        let start = start
            .filter(|start| *start >= place.slot_start && place.start + place.len <= place.slot_end)
            .ok_or(DropReason::TooLong)?;
        let (job, frame) = match (plan.shape.layout.protocol, plan.shape.layout.mode) {
            (Protocol::Ah, Mode::Tunnel) => self.ah_tunnel(plan, sequence, place, start)?,
            (Protocol::Ah, _) => self.ah_transport(plan, sequence, place, start)?,
            (Protocol::Esp, _) => self.esp_transport(plan, sequence, place, start)?,
        };
        let index = self.batch.jobs.len() as u32;
        self.batch.jobs.push(job);
        self.side
            .add_frame(sa, &plan.meta, plan.depth, index, frame);
        Ok(())
    }

    /// Moves the headers that precede ESP or AH to the front, which opens a gap behind them.
    fn insert(&mut self, place: &PacketPlace, start: usize) -> Result<ah::Insertion, DropReason> {
        let end = place.start + place.len;
        let packet = self.batch.buffer.get(place.start..end);
        let packet = packet.ok_or(DropReason::TooLong)?;
        let at = ah::Insertion::find(packet).ok_or_else(|| match IpView::parse(packet) {
            Ok(view) if view.fragment => DropReason::Fragment,
            _ => DropReason::MalformedInner,
        })?;
        // The headers move towards the front, into the room that the caller left there.
        let moved = self.batch.buffer.get_mut(start..place.start + at.at);
        let moved = moved.ok_or(DropReason::TooLong)?;
        let headers = moved.len().saturating_sub(at.at)..moved.len();
        moved.copy_within(headers, 0);
        Ok(at)
    }

    /// Lays out ESP in transport mode (RFC 4303 §3.1.1), in UDP if encapsulated (RFC 3948 §3.2).
    fn esp_transport(
        &mut self,
        plan: &Plan,
        sequence: u64,
        place: &PacketPlace,
        start: usize,
    ) -> Result<(Job, Frame), DropReason> {
        let layout = &plan.shape.layout;
        let at = self.insert(place, start)?;
        let header_len = at.at + plan.udp_len();
        let payload_len = place.len - at.at;
        let esp_len = layout.sealed_len(payload_len);
        let frame_len = header_len + esp_len;
        let frame = self
            .batch
            .buffer
            .get_mut(start..start + frame_len)
            .filter(|_| start + frame_len <= place.slot_end)
            .ok_or(DropReason::TooLong)?;
        let (headers, packet) = frame
            .split_at_mut_checked(header_len)
            .ok_or(DropReason::TooLong)?;
        write_header(packet, &plan.shape, sequence, self.ivs)?;
        let pad_len = layout.body_len(payload_len) - payload_len - esp::TRAILER_LEN;
        if let Some(trailer) = packet.get_mut(layout.esp_header_len() + payload_len..) {
            esp::write_trailer(trailer, pad_len, at.next_header);
        }
        let protocol = match plan.meta.udp_encap() {
            true => PROTOCOL_UDP,
            false => esp::PROTOCOL,
        };
        set_protocol_and_len(headers, at.next_header_at, protocol, frame_len)
            .ok_or(DropReason::TooLong)?;
        let job = plan.shape.job(start + header_len, esp_len, 0, sequence);
        Ok((job, unsaved(start, frame_len, header_len)))
    }

    /// Lays out AH in transport mode (RFC 4302 §3.1.1).
    fn ah_transport(
        &mut self,
        plan: &Plan,
        sequence: u64,
        place: &PacketPlace,
        start: usize,
    ) -> Result<(Job, Frame), DropReason> {
        let at = self.insert(place, start)?;
        let frame_len = plan.ah_len() + place.len;
        let frame = self.batch.buffer.get_mut(start..start + frame_len);
        let frame = frame.ok_or(DropReason::TooLong)?;
        set_protocol_and_len(frame, at.next_header_at, ah::PROTOCOL, frame_len)
            .ok_or(DropReason::TooLong)?;
        number(frame, self.identification);
        self.ah(plan, sequence, at.at, at.next_header, start, frame_len)
    }

    /// Lays out AH in tunnel mode (RFC 4302 §3.1.2).
    fn ah_tunnel(
        &mut self,
        plan: &Plan,
        sequence: u64,
        place: &PacketPlace,
        start: usize,
    ) -> Result<(Job, Frame), DropReason> {
        let frame_len = plan.front() + place.len;
        let frame = self.batch.buffer.get_mut(start..start + frame_len);
        let frame = frame.ok_or(DropReason::TooLong)?;
        let identification = next(self.identification);
        let header = OuterHeader::of_protocol(&plan.meta, ah::PROTOCOL);
        let at = header
            .write_ip(identification, frame)
            .ok_or(DropReason::TooLong)?;
        self.ah(plan, sequence, at, plan.shape.next_header, start, frame_len)
    }

    /// Writes AH at `at`, and replaces the mutable fields by zeros while the engine works (RFC 4302 §3.3.3).
    fn ah(
        &mut self,
        plan: &Plan,
        sequence: u64,
        at: usize,
        next_header: u8,
        start: usize,
        frame_len: usize,
    ) -> Result<(Job, Frame), DropReason> {
        let frame = self.batch.buffer.get_mut(start..start + frame_len);
        let frame = frame.ok_or(DropReason::TooLong)?;
        let header = frame.get_mut(at..at + plan.ah_len());
        let header = header.ok_or(DropReason::TooLong)?;
        ah::write(header, next_header, plan.shape.spi, sequence as u32)
            .ok_or(DropReason::TooLong)?;
        if plan.shape.layout.iv_kind == IvKind::Sequence
            && let Some(iv) = header.get_mut(ah::FIXED_LEN..ah::FIXED_LEN + 8)
        {
            // AES-GMAC's IV begins the ICV field (RFC 4543 §4).
            iv.copy_from_slice(&sequence.to_be_bytes());
        }
        let saved = self.side.saved.len();
        let saved_len = ah::zero_mutable(frame, &mut self.side.saved)
            .map_err(|_| DropReason::MalformedInner)?;
        let icv = at + ah::FIXED_LEN + plan.shape.layout.iv_len();
        let job = plan.shape.job(start, frame_len, icv, sequence);
        let frame = Frame {
            saved: saved as u32,
            saved_len: saved_len as u32,
            ..unsaved(start, frame_len, at)
        };
        Ok((job, frame))
    }
}

fn unsaved(start: usize, len: usize, header_len: usize) -> Frame {
    Frame {
        start: start as u32,
        len: len as u32,
        header_len: header_len as u32,
        saved: 0,
        saved_len: 0,
    }
}

/// Returns the next IPv4 identification, for packets that may be fragmented on their way. It is never zero, see
/// [`number`].
pub(super) fn next(identification: &mut u16) -> u16 {
    *identification = identification.wrapping_add(1).max(1);
    *identification
}

/// Sets the identification of an IPv4 packet if it is zero. A raw socket would otherwise set it after AH has covered
/// it.
fn number(packet: &mut [u8], identification: &mut u16) {
    if let Some(ip) = packet.first_chunk_mut::<IPV4_HEADER_LEN>()
        && ip[0] >> 4 == 4
        && ip[4..6] == [0, 0]
    {
        let new = next(identification);
        let sum = checksum::update(u16::from_be_bytes([ip[10], ip[11]]), 0, new);
        ip[4..6].copy_from_slice(&new.to_be_bytes());
        ip[10..12].copy_from_slice(&sum.to_be_bytes());
    }
}

/// Lays out ESP in tunnel mode (RFC 4303 §3.3). It reads no byte of the packets, which may be written later. If some
/// packets could not be laid out, the error has the reason of the last one and their number.
#[inline(always)]
pub(super) fn esp_tunnel(
    batch: &mut Batch,
    ivs: &mut IvPool,
    shape: &Shape,
    mut sequence: u64,
    places: impl Iterator<Item = PacketPlace>,
) -> Result<(), (DropReason, u32)> {
    let Batch { buffer, jobs, .. } = batch;
    let buffer = &mut **buffer;
    let mut result = Ok(());
    for place in places {
        match lay_out(buffer, shape, sequence, &place, ivs) {
            Ok((start, len)) => jobs.push(shape.job(start, len, 0, sequence)),
            Err(reason) => {
                let before = result.map_or_else(|(_, count)| count, |()| 0);
                result = Err((reason, before + 1));
            }
        }
        sequence += 1;
    }
    result
}

/// Writes header, IV and trailer around a packet of an ESP tunnel. Returns where ESP begins and its length.
#[inline(always)]
pub(super) fn lay_out(
    buffer: &mut [u8],
    shape: &Shape,
    sequence: u64,
    place: &PacketPlace,
    ivs: &mut IvPool,
) -> Result<(usize, usize), DropReason> {
    let layout = &shape.layout;
    let payload_len = place.len.max(shape.padded_to);
    let body_len = layout.body_len(payload_len);
    let len = layout.esp_header_len() + body_len + layout.icv_len();
    let start = place.start.wrapping_sub(layout.esp_header_len());
    let end = start.wrapping_add(len);
    let outside = start > place.start || start < place.slot_start || end > place.slot_end;
    if outside || len > ESP_LEN_MAX {
        return Err(DropReason::TooLong);
    }
    let packet = buffer.get_mut(start..end).ok_or(DropReason::TooLong)?;
    write_header(packet, shape, sequence, ivs)?;
    let behind = packet
        .get_mut(layout.esp_header_len() + place.len..)
        .ok_or(DropReason::TooLong)?;
    let trailer = match payload_len - place.len {
        0 => behind,
        tfc => {
            let (padding, trailer) = behind
                .split_at_mut_checked(tfc)
                .ok_or(DropReason::TooLong)?;
            padding.fill(0);
            trailer
        }
    };
    let pad_len = body_len - payload_len - esp::TRAILER_LEN;
    esp::write_trailer(trailer, pad_len, shape.next_header);
    Ok((start, len))
}

/// Writes SPI, sequence number and IV (RFC 4303 §2).
#[inline(always)]
fn write_header(
    packet: &mut [u8],
    shape: &Shape,
    sequence: u64,
    ivs: &mut IvPool,
) -> Result<(), DropReason> {
    match shape.layout.iv_kind {
        IvKind::Sequence => {
            let place = packet.first_chunk_mut().ok_or(DropReason::TooLong)?;
            *place = esp::header_and_iv(shape.spi, sequence);
        }
        IvKind::None | IvKind::Implicit => {
            let place = packet.first_chunk_mut().ok_or(DropReason::TooLong)?;
            *place = esp::header(shape.spi, sequence);
        }
        IvKind::Random => {
            let iv = ivs.next().map_err(|_| DropReason::NoRandomness)?;
            let iv_len = shape.layout.iv_len().min(iv.len());
            let (place, rest) = packet.split_first_chunk_mut().ok_or(DropReason::TooLong)?;
            *place = esp::header(shape.spi, sequence);
            rest.get_mut(..iv_len)
                .ok_or(DropReason::TooLong)?
                .copy_from_slice(&iv[..iv_len]);
        }
    }
    Ok(())
}

/// Changes the protocol and length of an IP header and updates the checksum (RFC 1624). Returns `None` if the length is
/// too large for the header.
pub(crate) fn set_protocol_and_len(
    packet: &mut [u8],
    protocol_at: usize,
    protocol: u8,
    len: usize,
) -> Option<()> {
    if IpVersion::of_packet(packet)? == IpVersion::V6 {
        *packet.get_mut(protocol_at)? = protocol;
        let payload_len = len.checked_sub(IPV6_HEADER_LEN)?;
        let payload_len = u16::try_from(payload_len).ok()?.to_be_bytes();
        packet.get_mut(4..6)?.copy_from_slice(&payload_len);
        return Some(());
    }
    let ip = packet.first_chunk_mut::<IPV4_HEADER_LEN>()?;
    let words = |ip: &[u8; IPV4_HEADER_LEN]| [be16(ip, 2), be16(ip, 8)];
    let old = words(ip);
    ip[9] = protocol;
    ip[2..4].copy_from_slice(&u16::try_from(len).ok()?.to_be_bytes());
    let mut sum = be16(ip, 10)?;
    for (old, new) in old.into_iter().zip(words(ip)) {
        sum = checksum::update(sum, old?, new?);
    }
    ip[10..12].copy_from_slice(&sum.to_be_bytes());
    Some(())
}

#[cfg(test)]
mod tests {
    #[test]
    fn no_identification_is_zero() {
        let mut identification = u16::MAX;
        assert_eq!(super::next(&mut identification), 1);
        assert_eq!(super::next(&mut identification), 2);
    }
}
