//! The TUN device with virtio headers. One read delivers up to 64 KiB of one flow, and one write
//! takes as much.

use std::fs::{File, OpenOptions};
use std::io::{self, IoSlice, Read, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::fs::OpenOptionsExt;

use esplanade_dataplane::virtio::HEADER_LEN;

use super::sys::check;

const DEVICE: &str = "/dev/net/tun";

/// Largest read in bytes: the virtio header and one IP packet.
pub const READ_MAX: usize = HEADER_LEN + 65_535;

/// The reason why a TUN device is missing. The text says what to do about it.
#[derive(Debug, thiserror::Error)]
pub enum TunError {
    #[error(
        "{DEVICE} does not exist: load the kernel's tun module (modprobe tun), or give the container the device (--device {DEVICE})"
    )]
    NoDevice,
    #[error(
        "no permission to open {DEVICE} or to make the interface {0}: run as root, with CAP_NET_ADMIN, or inside a user namespace of your own (unshare -Urn)"
    )]
    NoPermission(String),
    #[error(
        "the interface {0} is in use by another program: choose another TUN name, or stop that program"
    )]
    Busy(String),
    #[error("{0:?} is no interface name: 1 to 15 bytes without '/', ':' or blanks")]
    BadName(String),
    #[error("cannot open the TUN {name}: {step}: {source}")]
    Other {
        name: String,
        step: &'static str,
        source: io::Error,
    },
}

/// A queue of a TUN interface.
#[derive(Debug)]
pub struct Tun {
    file: File,
    name: String,
    udp_segmentation: bool,
}

impl Tun {
    /// Opens one queue of the interface `name` and creates the interface if it does not exist. The
    /// interface disappears with its last queue, unless [`Tun::keep`] was called. A `%d` in the
    /// name becomes the first free number. If there are several queues, each must be opened with
    /// `multi_queue`.
    pub fn open(name: &str, multi_queue: bool) -> Result<Self, TunError> {
        let bytes = name.as_bytes();
        let bad = bytes.is_empty()
            || bytes.len() >= libc::IFNAMSIZ
            || bytes
                .iter()
                .any(|byte| matches!(byte, b'/' | b':' | 0) || byte.is_ascii_whitespace());
        if bad {
            return Err(TunError::BadName(name.to_owned()));
        }
        let other = |step: &'static str, source| TunError::Other {
            name: name.to_owned(),
            step,
            source,
        };
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .custom_flags(libc::O_NONBLOCK | libc::O_CLOEXEC)
            .open(DEVICE)
            .map_err(|error| match error.raw_os_error() {
                Some(libc::ENOENT | libc::ENODEV | libc::ENXIO) => TunError::NoDevice,
                Some(libc::EACCES | libc::EPERM) => TunError::NoPermission(name.to_owned()),
                _ => other("open", error),
            })?;

        let mut flags = libc::IFF_TUN | libc::IFF_NO_PI | libc::IFF_VNET_HDR;
        if multi_queue {
            flags |= libc::IFF_MULTI_QUEUE;
        }
        // SAFETY: an all-zero ifreq is valid.
        let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
        for (to, from) in request.ifr_name.iter_mut().zip(bytes) {
            *to = *from as libc::c_char;
        }
        request.ifr_ifru.ifru_flags = flags as libc::c_short;
        // SAFETY: TUNSETIFF reads and writes one ifreq, which outlives the call. Its name has at
        // most 15 bytes and ends with a zero.
        check(unsafe { libc::ioctl(file.as_raw_fd(), libc::TUNSETIFF, &raw mut request) })
            .map_err(|error| {
                match error.raw_os_error() {
                    Some(libc::EPERM | libc::EACCES) => TunError::NoPermission(name.to_owned()),
                    // EINVAL means that the interface exists and is no TUN, or has flags that
                    // differ from ours.
                    Some(libc::EBUSY | libc::EINVAL | libc::E2BIG) => {
                        TunError::Busy(name.to_owned())
                    }
                    _ => other("TUNSETIFF", error),
                }
            })?;
        let header_len = HEADER_LEN as libc::c_int;
        // SAFETY: TUNSETVNETHDRSZ reads one int, which outlives the call.
        check(unsafe {
            libc::ioctl(
                file.as_raw_fd(),
                libc::TUNSETVNETHDRSZ,
                &raw const header_len,
            )
        })
        .map_err(|error| other("TUNSETVNETHDRSZ", error))?;
        let tcp = libc::TUN_F_CSUM | libc::TUN_F_TSO4 | libc::TUN_F_TSO6 | libc::TUN_F_TSO_ECN;
        let offload = |bits: u32| {
            // SAFETY: TUNSETOFFLOAD takes its argument by value.
            check(unsafe {
                libc::ioctl(
                    file.as_raw_fd(),
                    libc::TUNSETOFFLOAD,
                    libc::c_ulong::from(bits),
                )
            })
        };
        // Kernels before 6.2 do not support UDP segmentation.
        let udp_segmentation = offload(tcp | libc::TUN_F_USO4 | libc::TUN_F_USO6).is_ok();
        if !udp_segmentation {
            offload(tcp).map_err(|error| other("TUNSETOFFLOAD", error))?;
        }
        let name = request
            .ifr_name
            .iter()
            .take_while(|byte| **byte != 0)
            .map(|byte| *byte as u8 as char)
            .collect();
        Ok(Self {
            file,
            name,
            udp_segmentation,
        })
    }

    /// Returns the interface's name, as the kernel completed it.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Tells whether the interface stays when its last queue is closed.
    pub fn is_kept(&self) -> io::Result<bool> {
        // SAFETY: an all-zero ifreq is valid.
        let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
        let fd = self.file.as_raw_fd();
        // SAFETY: TUNGETIFF writes one ifreq, which outlives the call.
        check(unsafe { libc::ioctl(fd, libc::TUNGETIFF, &raw mut request) })?;
        // SAFETY: TUNGETIFF wrote the flags, and every bit pattern of them is valid.
        let flags = unsafe { request.ifr_ifru.ifru_flags };
        Ok(libc::c_int::from(flags) & libc::IFF_PERSIST != 0)
    }

    /// From now on the interface stays when its last queue is closed. Packets that routes lead into
    /// it are then lost.
    pub fn keep(&self) -> io::Result<()> {
        let keep: libc::c_ulong = 1;
        // SAFETY: TUNSETPERSIST takes its argument by value.
        check(unsafe { libc::ioctl(self.file.as_raw_fd(), libc::TUNSETPERSIST, keep) }).map(drop)
    }

    /// Tells whether the kernel accepts UDP super-segments.
    pub fn udp_segmentation(&self) -> bool {
        self.udp_segmentation
    }

    /// Reads a virtio header and its packet. Returns `None` when nothing waits.
    pub fn read(&self, buffer: &mut [u8]) -> io::Result<Option<usize>> {
        match (&self.file).read(buffer) {
            Ok(length) => Ok(Some(length)),
            Err(error) if super::sys::would_block(&error) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Writes a virtio header and a packet, gathered from `slices`.
    pub fn write(&self, slices: &[IoSlice<'_>]) -> io::Result<()> {
        (&self.file).write_vectored(slices).map(drop)
    }
}

impl AsFd for Tun {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}
