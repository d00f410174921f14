//! Sends and receives many datagrams per system call (`recvmmsg`, `sendmmsg`), with their addresses
//! and control messages.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};
use std::os::fd::{AsRawFd, BorrowedFd};

use esplanade_dataplane::datagram::{Outgoing, ReceivedDatagram, SEND_MAX};
use esplanade_dataplane::slots::ReceiveSlots;

use super::sys::check;

const CONTROL_LEN: usize = 128;

/// A buffer for control messages, with the alignment of `struct cmsghdr`.
#[derive(Debug, Clone, Copy)]
#[repr(C, align(8))]
struct ControlBuffer([u8; CONTROL_LEN]);

/// A buffer for a `sockaddr_in` or a `sockaddr_in6`, with the alignment of both.
#[derive(Debug, Clone, Copy)]
#[repr(C, align(8))]
struct SocketName([u8; NAME_LEN]);

const NAME_LEN: usize = size_of::<libc::sockaddr_in6>();
const CMSG_HEADER: usize = size_of::<libc::cmsghdr>();
const WORD: usize = size_of::<usize>();

const fn align(length: usize) -> usize {
    (length + WORD - 1) & !(WORD - 1)
}

fn encode_name(address: &SocketAddr) -> (SocketName, u32) {
    let mut name = SocketName([0; NAME_LEN]);
    let bytes = &mut name.0;
    bytes[2..4].copy_from_slice(&address.port().to_be_bytes());
    match address {
        SocketAddr::V4(v4) => {
            bytes[..2].copy_from_slice(&(libc::AF_INET as u16).to_ne_bytes());
            bytes[4..8].copy_from_slice(&v4.ip().octets());
            (name, size_of::<libc::sockaddr_in>() as u32)
        }
        SocketAddr::V6(v6) => {
            bytes[..2].copy_from_slice(&(libc::AF_INET6 as u16).to_ne_bytes());
            bytes[4..8].copy_from_slice(&v6.flowinfo().to_be_bytes());
            bytes[8..24].copy_from_slice(&v6.ip().octets());
            bytes[24..28].copy_from_slice(&v6.scope_id().to_ne_bytes());
            (name, NAME_LEN as u32)
        }
    }
}

fn decode_name(name: &SocketName) -> Option<SocketAddr> {
    let bytes = &name.0;
    let port = u16::from_be_bytes([bytes[2], bytes[3]]);
    match i32::from(u16::from_ne_bytes([bytes[0], bytes[1]])) {
        libc::AF_INET => {
            let address: [u8; 4] = bytes[4..8].try_into().ok()?;
            Some(SocketAddrV4::new(address.into(), port).into())
        }
        libc::AF_INET6 => {
            let address: [u8; 16] = bytes[8..24].try_into().ok()?;
            let scope = u32::from_ne_bytes(bytes[24..28].try_into().ok()?);
            Some(SocketAddrV6::new(address.into(), port, 0, scope).into())
        }
        _ => None,
    }
}

/// Appends one control message at `at`. Returns the offset of the next message.
fn put_control(
    control: &mut ControlBuffer,
    at: usize,
    level: i32,
    kind: i32,
    data: &[u8],
) -> usize {
    let end = at + CMSG_HEADER + data.len();
    let bytes = &mut control.0[at..end];
    bytes[..WORD].copy_from_slice(&(CMSG_HEADER + data.len()).to_ne_bytes());
    bytes[WORD..WORD + 4].copy_from_slice(&level.to_ne_bytes());
    bytes[WORD + 4..WORD + 8].copy_from_slice(&kind.to_ne_bytes());
    bytes[CMSG_HEADER..].copy_from_slice(data);
    at + align(CMSG_HEADER + data.len())
}

/// Visits the control messages in order. A length that does not fit ends the walk.
fn each_control(mut bytes: &[u8], mut visit: impl FnMut(i32, i32, &[u8])) {
    while let Some((header, _)) = bytes.split_first_chunk::<CMSG_HEADER>() {
        let mut length = [0; WORD];
        length.copy_from_slice(&header[..WORD]);
        let length = usize::from_ne_bytes(length);
        let field = |at: usize| {
            i32::from_ne_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]])
        };
        let Some(data) = bytes.get(CMSG_HEADER..length) else {
            return;
        };
        visit(field(WORD), field(WORD + 4), data);
        bytes = bytes.get(align(length)..).unwrap_or(&[]);
    }
}

fn read_control(bytes: &[u8], meta: &mut ReceivedDatagram) {
    each_control(bytes, |level, kind, data| match (level, kind) {
        (libc::SOL_UDP, libc::UDP_GRO) => {
            if let Some(size) = data.first_chunk::<4>() {
                meta.segment = usize::try_from(i32::from_ne_bytes(*size)).unwrap_or(0);
            }
        }
        (libc::IPPROTO_IP, libc::IP_TOS) => meta.tos = data.first().copied().unwrap_or(0),
        (libc::IPPROTO_IPV6, libc::IPV6_TCLASS) => {
            if let Some(class) = data.first_chunk::<4>() {
                meta.tos = i32::from_ne_bytes(*class) as u8;
            }
        }
        // `struct in_pktinfo` holds the interface, the local address and the packet's destination.
        (libc::IPPROTO_IP, libc::IP_PKTINFO) => {
            if let Some(Ok(address)) = data.get(8..12).map(<[u8; 4]>::try_from) {
                meta.local = Some(Ipv4Addr::from(address).into());
            }
        }
        (libc::IPPROTO_IPV6, libc::IPV6_PKTINFO) => {
            if let Some(address) = data.first_chunk::<16>() {
                meta.local = Some(Ipv6Addr::from(*address).into());
            }
        }
        _ => {}
    });
}

fn write_control(control: &mut ControlBuffer, item: &Outgoing<'_>) -> usize {
    let mut used = 0;
    match item.local {
        Some(IpAddr::V4(address)) => {
            let mut info = [0; 12];
            info[4..8].copy_from_slice(&address.octets());
            used = put_control(control, used, libc::IPPROTO_IP, libc::IP_PKTINFO, &info);
        }
        Some(IpAddr::V6(address)) => {
            let mut info = [0; 20];
            info[..16].copy_from_slice(&address.octets());
            used = put_control(control, used, libc::IPPROTO_IPV6, libc::IPV6_PKTINFO, &info);
        }
        None => {}
    }
    let (level, tos, ttl) = match item.remote.is_ipv4() {
        true => (libc::IPPROTO_IP, libc::IP_TOS, libc::IP_TTL),
        false => (libc::IPPROTO_IPV6, libc::IPV6_TCLASS, libc::IPV6_HOPLIMIT),
    };
    let value = i32::from(item.tos).to_ne_bytes();
    used = put_control(control, used, level, tos, &value);
    if let Some(value) = item.ttl {
        let value = i32::from(value.get()).to_ne_bytes();
        used = put_control(control, used, level, ttl, &value);
    }
    if item.segment != 0 {
        used = put_control(
            control,
            used,
            libc::SOL_UDP,
            libc::UDP_SEGMENT,
            &item.segment.to_ne_bytes(),
        );
    }
    used
}

/// Preallocated memory for one `recvmmsg`.
#[derive(Debug)]
pub struct DatagramReceiver {
    names: Vec<SocketName>,
    controls: Vec<ControlBuffer>,
    metas: Vec<ReceivedDatagram>,
}

impl DatagramReceiver {
    /// Creates a receiver for at most `burst` datagrams per call.
    pub fn new(burst: usize) -> Self {
        Self {
            names: vec![SocketName([0; NAME_LEN]); burst],
            controls: vec![ControlBuffer([0; CONTROL_LEN]); burst],
            metas: vec![ReceivedDatagram::NONE; burst],
        }
    }

    pub fn burst(&self) -> usize {
        self.names.len()
    }

    /// Receives as many datagrams as `buffer` and `slots` have room for, and returns their
    /// descriptions. An empty slice means that no datagram waits.
    pub fn receive(
        &mut self,
        fd: BorrowedFd<'_>,
        buffer: &mut [u8],
        slots: ReceiveSlots,
    ) -> io::Result<&[ReceivedDatagram]> {
        const BURST_MAX: usize = 64;
        let slots = slots.within(buffer.len());
        let mut vectors = [[libc::iovec {
            iov_base: std::ptr::null_mut(),
            iov_len: 0,
        }; 2]; BURST_MAX];
        // SAFETY: `mmsghdr` consists of integers and pointers, for which zero is a valid value.
        let mut headers: [libc::mmsghdr; BURST_MAX] = unsafe { std::mem::zeroed() };
        let mut count = 0;
        let places = slots
            .places(buffer)
            .zip(&mut self.names)
            .zip(&mut self.controls);
        for ((((slot, rest), name), control), (vector, header)) in
            places.zip(vectors.iter_mut().zip(&mut headers))
        {
            *vector = [slot, rest].map(|part| libc::iovec {
                iov_base: part.as_mut_ptr().cast(),
                iov_len: part.len(),
            });
            header.msg_hdr.msg_name = name.0.as_mut_ptr().cast();
            header.msg_hdr.msg_namelen = NAME_LEN as u32;
            header.msg_hdr.msg_iov = vector.as_mut_ptr();
            header.msg_hdr.msg_iovlen = if slots.more == 0 { 1 } else { 2 };
            header.msg_hdr.msg_control = control.0.as_mut_ptr().cast();
            header.msg_hdr.msg_controllen = CONTROL_LEN as _;
            count += 1;
        }
        // SAFETY: `count` headers are valid. Each points to its own slot, name and control buffer
        // with the stated length. All of them outlive the call.
        let result = unsafe {
            libc::recvmmsg(
                fd.as_raw_fd(),
                headers.as_mut_ptr(),
                count,
                libc::MSG_DONTWAIT,
                std::ptr::null_mut(),
            )
        };
        let received = match check(result) {
            Ok(received) => received,
            Err(error) if super::sys::would_block(&error) => 0,
            Err(error) => return Err(error),
        };
        for (index, header) in headers[..received].iter().enumerate() {
            let meta = &mut self.metas[index];
            *meta = ReceivedDatagram::NONE;
            meta.len = header.msg_len as usize;
            meta.at = slots.join(buffer, index, meta.len);
            meta.truncated = header.msg_hdr.msg_flags & libc::MSG_TRUNC != 0;
            let control = &self.controls[index].0;
            #[allow(
                clippy::unnecessary_cast,
                reason = "its type differs between C libraries"
            )]
            read_control(
                &control[..CONTROL_LEN.min(header.msg_hdr.msg_controllen as usize)],
                meta,
            );
            match decode_name(&self.names[index]) {
                Some(remote) => meta.remote = remote,
                None => meta.truncated = true,
            }
            if meta.segment == 0 {
                meta.segment = meta.len;
            }
        }
        Ok(&self.metas[..received])
    }
}

/// Sends the first [`SEND_MAX`] of `items`. Returns how many left before the first error. Returns
/// the error itself only if the first item caused it.
pub fn send(fd: BorrowedFd<'_>, items: &[Outgoing<'_>]) -> io::Result<usize> {
    let items = &items[..items.len().min(SEND_MAX)];
    let mut names = [SocketName([0; NAME_LEN]); SEND_MAX];
    let mut controls = [ControlBuffer([0; CONTROL_LEN]); SEND_MAX];
    let mut vectors = [libc::iovec {
        iov_base: std::ptr::null_mut(),
        iov_len: 0,
    }; SEND_MAX];
    // SAFETY: `mmsghdr` consists of integers and pointers, for which zero is a valid value.
    let mut headers: [libc::mmsghdr; SEND_MAX] = unsafe { std::mem::zeroed() };
    for (index, item) in items.iter().enumerate() {
        let payload = item.payload;
        let (name, name_len) = encode_name(&item.remote);
        names[index] = name;
        let control_len = write_control(&mut controls[index], item);
        vectors[index] = libc::iovec {
            iov_base: payload.as_ptr().cast_mut().cast(),
            iov_len: payload.len(),
        };
        let header = &mut headers[index].msg_hdr;
        header.msg_name = names[index].0.as_mut_ptr().cast();
        header.msg_namelen = name_len;
        header.msg_iov = &raw mut vectors[index];
        header.msg_iovlen = 1;
        header.msg_control = controls[index].0.as_mut_ptr().cast();
        header.msg_controllen = control_len as _;
    }
    // SAFETY: `items.len()` headers are valid. Each points to a name, a control buffer and a
    // payload with the stated length. All of them outlive the call, and the kernel only reads the
    // payloads.
    let result = unsafe {
        libc::sendmmsg(
            fd.as_raw_fd(),
            headers.as_mut_ptr(),
            items.len() as u32,
            libc::MSG_DONTWAIT,
        )
    };
    check(result)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::num::NonZeroU8;

    #[test]
    fn names_survive_the_round_trip() {
        for text in ["192.0.2.1:4500", "[2001:db8::1]:500"] {
            let address: SocketAddr = text.parse().unwrap();
            assert_eq!(decode_name(&encode_name(&address).0), Some(address));
        }
        assert_eq!(decode_name(&SocketName([0; NAME_LEN])), None);
    }

    #[test]
    fn controls_are_found_again() {
        let item = Outgoing {
            remote: "[2001:db8::1]:4500".parse().unwrap(),
            local: Some("2001:db8::2".parse().unwrap()),
            tos: 0xb9,
            ttl: NonZeroU8::new(7),
            df: false,
            payload: &[],
            segment: 1400,
        };
        let mut control = ControlBuffer([0; CONTROL_LEN]);
        let used = write_control(&mut control, &item);
        let mut meta = ReceivedDatagram::NONE;
        read_control(&control.0[..used], &mut meta);
        assert_eq!((meta.local, meta.tos), (item.local, item.tos));
        let mut kinds = Vec::new();
        each_control(&control.0[..used], |level, kind, data| {
            kinds.push((level, kind, data.len()))
        });
        assert_eq!(
            kinds[1..],
            [
                (libc::IPPROTO_IPV6, libc::IPV6_TCLASS, 4),
                (libc::IPPROTO_IPV6, libc::IPV6_HOPLIMIT, 4),
                (libc::SOL_UDP, libc::UDP_SEGMENT, 2)
            ]
        );
    }

    proptest! {
        #[test]
        fn hostile_control_messages_end_the_walk(bytes in proptest::collection::vec(any::<u8>(), 0..200), length: usize) {
            let mut meta = ReceivedDatagram::NONE;
            read_control(&bytes, &mut meta);
            let mut bytes = bytes;
            if let Some(prefix) = bytes.get_mut(..WORD) {
                prefix.copy_from_slice(&length.to_ne_bytes());
            }
            read_control(&bytes, &mut meta);
        }

        #[test]
        fn plausible_lengths_stay_inside(length in 0usize..80, tail in proptest::collection::vec(any::<u8>(), 8..100)) {
            let mut bytes = length.to_ne_bytes().to_vec();
            bytes.extend_from_slice(&libc::IPPROTO_IP.to_ne_bytes());
            bytes.extend_from_slice(&tail);
            read_control(&bytes, &mut ReceivedDatagram::NONE.clone());
        }
    }
}
