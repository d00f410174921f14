//! Tells the kernel which worker's socket gets a packet. Classic BPF does this without a privilege,
//! and without eBPF.
//!
//! The SPI decides, so an SA stays on one worker. The low bits of our SPIs are evenly distributed,
//! for any number of workers.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

use libc::sock_filter as FilterInstruction;

use super::sys::check;

/// The part of all SPIs that belongs to one worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SpiShare {
    pub index: u32,
    pub of: u32,
}

impl SpiShare {
    /// Returns the number of the worker that gets an SPI.
    pub fn worker(spi: u32, workers: u32) -> u32 {
        spi % workers.max(1)
    }
}

const LOAD_LEN: u32 = libc::BPF_LD | libc::BPF_W | libc::BPF_LEN;
const LOAD_WORD: u32 = libc::BPF_LD | libc::BPF_W | libc::BPF_ABS;
const LOAD_WORD_BEHIND_X: u32 = libc::BPF_LD | libc::BPF_W | libc::BPF_IND;
/// Loads four times the low half of a byte into X: the length of an IPv4 header.
const HEADER_LEN_TO_X: u32 = libc::BPF_LDX | libc::BPF_B | libc::BPF_MSH;
const NUMBER_TO_X: u32 = libc::BPF_LDX | libc::BPF_W | libc::BPF_IMM;
const SUBTRACT_X: u32 = libc::BPF_ALU | libc::BPF_SUB | libc::BPF_X;
const MODULO: u32 = libc::BPF_ALU | libc::BPF_MOD | libc::BPF_K;
const IF_AT_LEAST: u32 = libc::BPF_JMP | libc::BPF_JGE | libc::BPF_K;
const IF_EQUAL: u32 = libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K;
const RETURN: u32 = libc::BPF_RET | libc::BPF_K;
const RETURN_A: u32 = libc::BPF_RET | libc::BPF_A;

/// Results of a filter: accept the whole packet, or none of it.
const TAKE: u32 = u32::MAX;
const LEAVE: u32 = 0;

const fn step(code: u32, k: u32) -> FilterInstruction {
    branch(code, k, 0, 0)
}

/// Makes a jump. `yes` and `no` are the numbers of instructions to skip.
const fn branch(code: u32, k: u32, yes: u8, no: u8) -> FilterInstruction {
    FilterInstruction {
        code: code as u16,
        jt: yes,
        jf: no,
        k,
    }
}

/// Restricts a raw socket to its share, because each socket of a protocol gets a copy of every
/// packet. `spi_at` is the offset of the SPI in the protocol's header. A packet that is too short
/// for an SPI goes to the first worker, which counts it.
pub(super) fn take_share(
    fd: BorrowedFd<'_>,
    v4: bool,
    spi_at: u32,
    share: SpiShare,
) -> io::Result<()> {
    let short = if share.index == 0 { TAKE } else { LEAVE };
    let program = [
        // A raw socket gets the IPv4 header but not the IPv6 header.
        match v4 {
            true => step(HEADER_LEN_TO_X, 0),
            false => step(NUMBER_TO_X, 0),
        },
        step(LOAD_LEN, 0),
        step(SUBTRACT_X, 0),
        branch(IF_AT_LEAST, spi_at + 4, 1, 0),
        step(RETURN, short),
        step(LOAD_WORD_BEHIND_X, spi_at),
        step(MODULO, share.of.max(1)),
        branch(IF_EQUAL, share.index, 0, 1),
        step(RETURN, TAKE),
        step(RETURN, LEAVE),
    ];
    attach(fd, libc::SO_ATTACH_FILTER, &program)
}

/// Keeps announcements of the netlink port `port` from a socket, so that they take no room in its queue.
pub fn leave_port(fd: BorrowedFd<'_>, port: u32) -> io::Result<()> {
    /// The offset of the port in the header of a message.
    const PORT_AT: u32 = 12;
    let program = [
        step(LOAD_WORD, PORT_AT),
        // A load takes the bytes as big endian.
        branch(IF_EQUAL, u32::from_be_bytes(port.to_ne_bytes()), 0, 1),
        step(RETURN, LEAVE),
        step(RETURN, TAKE),
    ];
    attach(fd, libc::SO_ATTACH_FILTER, &program)
}

/// Spreads packets over a group of UDP sockets that share a port, in the order in which they were
/// bound. The first socket gets IKE, whose first word is zero (RFC 3948 §2.2), and packets shorter
/// than a word.
pub(super) fn spread(fd: BorrowedFd<'_>, sockets: u32) -> io::Result<()> {
    let program = [
        // A load beyond the end of the packet ends the program with result 0.
        step(LOAD_WORD, 0),
        step(MODULO, sockets.max(1)),
        step(RETURN_A, 0),
    ];
    attach(fd, libc::SO_ATTACH_REUSEPORT_CBPF, &program)
}

fn attach(fd: BorrowedFd<'_>, name: libc::c_int, program: &[FilterInstruction]) -> io::Result<()> {
    let program = libc::sock_fprog {
        len: program.len() as u16,
        filter: program.as_ptr().cast_mut(),
    };
    // SAFETY: the kernel copies the `sock_fprog` and the `len` instructions that it points to, and
    // writes to neither. Both outlive the call.
    let result = unsafe {
        libc::setsockopt(
            fd.as_raw_fd(),
            libc::SOL_SOCKET,
            name,
            (&raw const program).cast(),
            size_of_val(&program) as libc::socklen_t,
        )
    };
    check(result).map(drop)
}
