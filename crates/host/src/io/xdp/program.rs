//! Builds the eBPF program that steers ESP to the AF_XDP sockets, and loads it by bpf(2).
//!
//! The program runs in the driver for every frame that arrives on the link. ESP without UDP goes to
//! the socket of the queue on which it arrived. The packet must be whole, without IPv4 options or
//! IPv6 extension headers, and addressed to this host. All other frames, and ESP on a queue without
//! a socket, go to the kernel's stack.

use std::ffi::CStr;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use super::assembler::{Assembler, BYTE, BpfInstruction, DOUBLE, HALF, Label, WORD, code};
use crate::io::sys::{check, owned};

const ESP: i32 = 50;

/// Constants of <linux/bpf.h>.
mod bpf {
    pub const MAP_CREATE: i32 = 0;
    pub const MAP_UPDATE_ELEM: i32 = 2;
    pub const PROG_LOAD: i32 = 5;
    pub const OBJ_GET_INFO_BY_FD: i32 = 15;
    pub const LINK_CREATE: i32 = 28;

    pub const MAP_TYPE_XSKMAP: u32 = 17;
    pub const PROG_TYPE_XDP: u32 = 6;
    pub const ATTACH_TYPE_XDP: u32 = 37;

    pub const HELPER_REDIRECT_MAP: i32 = 51;
    pub const HELPER_FIB_LOOKUP: i32 = 69;

    pub const XDP_PASS: i32 = 2;

    /// Result of the route look-up: the packet is for this host, or has no route.
    pub const NOT_FORWARDED: i32 = 4;
    /// Result of the route look-up: forwarding is off on this link.
    pub const FORWARDING_OFF: i32 = 5;
}

/// The place where the program runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum XdpMode {
    /// In the driver, before the stack creates its packet.
    Driver,
    /// In the stack, for drivers without support. This is slower.
    Generic,
}

impl XdpMode {
    /// Flags of <linux/if_link.h>.
    pub(crate) fn flag(self) -> u32 {
        match self {
            Self::Driver => 1 << 2,
            Self::Generic => 1 << 1,
        }
    }

    /// Attaches in the driver, or else where its driver cannot, in the stack.
    pub fn attach<T>(attach: impl Fn(Self) -> io::Result<T>) -> io::Result<(T, Self)> {
        let attach = |mode: Self| Ok((attach(mode)?, mode));
        attach(Self::Driver).or_else(|error: io::Error| {
            match error.raw_os_error() {
                // Another program is attached, or we lack the right. The generic mode would fail
                // too.
                Some(libc::EBUSY | libc::EEXIST | libc::EPERM | libc::ENODEV) => Err(error),
                _ => attach(Self::Generic),
            }
        })
    }
}

/// The command of bpf(2) that fills the map of sockets. A confined process may call no other.
pub const MAP_UPDATE: u64 = bpf::MAP_UPDATE_ELEM as u64;

/// The program, attached to its link. It is detached when this value is dropped and when the
/// process ends.
#[derive(Debug)]
pub struct XdpProgram {
    sockets: OwnedFd,
    program: OwnedFd,
    /// The attachment to the first link, until that is gone.
    link: Option<OwnedFd>,
    /// The kernel's number of the program.
    pub id: u32,
    pub mode: XdpMode,
}

impl XdpProgram {
    /// Attaches the program to a link that has this number of queues.
    pub fn attach(link: u32, queues: u32) -> io::Result<Self> {
        let sockets = make_map(queues)?;
        let program = load(&instructions(&sockets))?;
        let (attached, mode) = XdpMode::attach(|mode| attach_to(link, &program, mode))?;
        Ok(Self {
            id: id_of(&program)?,
            sockets,
            program,
            link: Some(attached),
            mode,
        })
    }

    /// Detaches the program from its first link. The program and its map stay.
    pub fn detach(&mut self) {
        self.link = None;
    }

    /// From now on the socket gets the packets of the queue.
    pub fn lead(&self, queue: u32, socket: BorrowedFd<'_>) -> io::Result<()> {
        #[repr(C)]
        struct UpdateAttributes {
            map: u32,
            _pad: u32,
            key: u64,
            value: u64,
            flags: u64,
        }
        let value = socket.as_raw_fd();
        let mut update = UpdateAttributes {
            map: self.sockets.as_raw_fd() as u32,
            _pad: 0,
            key: (&raw const queue) as u64,
            value: (&raw const value) as u64,
            flags: 0,
        };
        call(bpf::MAP_UPDATE_ELEM, &mut update).map(drop)
    }
}

impl AsFd for XdpProgram {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.program.as_fd()
    }
}

fn make_map(queues: u32) -> io::Result<OwnedFd> {
    #[repr(C)]
    struct CreateAttributes {
        kind: u32,
        key_len: u32,
        value_len: u32,
        entries: u32,
        flags: u32,
    }
    let word = size_of::<u32>() as u32;
    let mut create = CreateAttributes {
        kind: bpf::MAP_TYPE_XSKMAP,
        key_len: word,
        value_len: word,
        entries: queues.max(1),
        flags: 0,
    };
    owned(call(bpf::MAP_CREATE, &mut create)?)
}

fn load(instructions: &[BpfInstruction]) -> io::Result<OwnedFd> {
    #[repr(C)]
    struct LoadAttributes {
        kind: u32,
        count: u32,
        instructions: u64,
        license: u64,
        log_level: u32,
        log_size: u32,
        log: u64,
        kernel: u32,
        flags: u32,
        name: [u8; 16],
        link: u32,
        attach_type: u32,
    }
    /// Only GPL programs may look up routes. These instructions are licensed under GPL as well.
    const LICENSE: &CStr = c"Dual MIT/GPL";
    let mut load = LoadAttributes {
        kind: bpf::PROG_TYPE_XDP,
        count: instructions.len() as u32,
        instructions: instructions.as_ptr() as u64,
        license: LICENSE.as_ptr() as u64,
        log_level: 0,
        log_size: 0,
        log: 0,
        kernel: 0,
        flags: 0,
        name: *b"esplanade_esp\0\0\0",
        link: 0,
        attach_type: bpf::ATTACH_TYPE_XDP,
    };
    owned(call(bpf::PROG_LOAD, &mut load)?)
}

/// Returns the number by which netlink names the program.
fn id_of(program: &OwnedFd) -> io::Result<u32> {
    /// The start of `struct bpf_prog_info`.
    #[derive(Default)]
    #[repr(C)]
    struct Info {
        kind: u32,
        id: u32,
    }
    #[repr(C)]
    struct InfoAttributes {
        object: u32,
        info_len: u32,
        info: u64,
    }
    let mut info = Info::default();
    let mut ask = InfoAttributes {
        object: program.as_raw_fd() as u32,
        info_len: size_of::<Info>() as u32,
        info: (&raw mut info) as u64,
    };
    call(bpf::OBJ_GET_INFO_BY_FD, &mut ask)?;
    Ok(info.id)
}

fn attach_to(link: u32, program: &OwnedFd, mode: XdpMode) -> io::Result<OwnedFd> {
    #[repr(C)]
    struct AttachAttributes {
        program: u32,
        link: u32,
        kind: u32,
        flags: u32,
    }
    let mut attach = AttachAttributes {
        program: program.as_raw_fd() as u32,
        link,
        kind: bpf::ATTACH_TYPE_XDP,
        flags: mode.flag(),
    };
    owned(call(bpf::LINK_CREATE, &mut attach)?)
}

fn call<T>(command: i32, attributes: &mut T) -> io::Result<i32> {
    // SAFETY: `attributes` has the layout of the start of `union bpf_attr` for this command, and
    // the stated size. Everything that it points to outlives the call.
    let result = unsafe {
        libc::syscall(
            libc::SYS_bpf,
            command,
            &raw mut *attributes,
            size_of::<T>() as u32,
        )
    };
    check(result)?;
    Ok(result as i32)
}

/// Returns a number in network byte order, as a 16-bit load from a packet yields it.
fn network(number: u16) -> i32 {
    number.to_be().into()
}

// A call overwrites registers 0 to 5. Registers 6 to 9 survive it, and register 10 is the frame
// pointer.
const RESULT: u8 = 0;
const PACKET: u8 = 2;
const END: u8 = 3;
const LIMIT: u8 = 4;
const FIELD: u8 = 5;
const CONTEXT: u8 = 6;
const STACK: u8 = 10;

// Offsets in `struct xdp_md`.
const MD_DATA: i16 = 0;
const MD_DATA_END: i16 = 4;
const MD_LINK: i16 = 12;
const MD_QUEUE: i16 = 16;

// Offsets of `struct bpf_fib_lookup`, which lies on the stack.
const QUESTION_LEN: i16 = 64;
const QUESTION: i16 = -QUESTION_LEN;
const FAMILY: i16 = QUESTION;
const PROTOCOL: i16 = QUESTION + 1;
const LINK: i16 = QUESTION + 8;
const SOURCE: i16 = QUESTION + 16;
const DESTINATION: i16 = QUESTION + 32;

/// Offset of the IP header in a frame.
const IP: i16 = 14;

fn instructions(sockets: &OwnedFd) -> Vec<BpfInstruction> {
    let mut a = Assembler::default();
    a.copy(CONTEXT, 1);
    a.load(WORD, PACKET, CONTEXT, MD_DATA);
    a.load(WORD, END, CONTEXT, MD_DATA_END);
    ends_behind(&mut a, IP + 20);
    for at in (0..QUESTION_LEN).step_by(8) {
        a.store_number(DOUBLE, STACK, QUESTION + at, 0);
    }
    a.load(HALF, FIELD, PACKET, IP - 2);
    a.jump(code::JUMP_EQUAL, FIELD, 0, network(0x0800), Label::V4);
    a.jump(code::JUMP_UNEQUAL, FIELD, 0, network(0x86dd), Label::Pass);
    is_esp_in_ipv6(&mut a);
    a.jump(code::JUMP, 0, 0, 0, Label::LookUp);
    a.here(Label::V4);
    is_esp_in_ipv4(&mut a);
    a.here(Label::LookUp);
    is_for_this_host(&mut a);

    a.here(Label::Take);
    // Load the descriptor of the map. This takes two instructions.
    a.put(code::LOAD_IMMEDIATE, 1, 1, 0, sockets.as_raw_fd());
    a.put(0, 0, 0, 0, 0);
    a.load(WORD, 2, CONTEXT, MD_QUEUE);
    a.set(3, bpf::XDP_PASS);
    a.call(bpf::HELPER_REDIRECT_MAP);
    a.exit();

    a.here(Label::Pass);
    a.set(RESULT, bpf::XDP_PASS);
    a.exit();
    a.finish()
}

/// Continues only if the frame has at least `len` bytes.
fn ends_behind(a: &mut Assembler, len: i16) {
    a.copy(LIMIT, PACKET);
    a.add(LIMIT, len.into());
    a.jump(code::JUMP_ABOVE, LIMIT, END, 0, Label::Pass);
}

/// Continues only if the packet is ESP in IPv6, and copies its addresses into the look-up.
fn is_esp_in_ipv6(a: &mut Assembler) {
    ends_behind(a, IP + 40);
    a.load(BYTE, FIELD, PACKET, IP + 6);
    a.jump(code::JUMP_UNEQUAL, FIELD, 0, ESP, Label::Pass);
    a.store_number(BYTE, STACK, FAMILY, libc::AF_INET6);
    for word in (0..16).step_by(4) {
        a.load(WORD, FIELD, PACKET, IP + 8 + word);
        a.store(WORD, STACK, SOURCE + word, FIELD);
        a.load(WORD, FIELD, PACKET, IP + 24 + word);
        a.store(WORD, STACK, DESTINATION + word, FIELD);
    }
}

/// Continues only if the packet is ESP in IPv4, and copies its addresses into the look-up.
fn is_esp_in_ipv4(a: &mut Assembler) {
    // Refuse options.
    a.load(BYTE, FIELD, PACKET, IP);
    a.jump(code::JUMP_UNEQUAL, FIELD, 0, 0x45, Label::Pass);
    // Refuse fragments.
    a.load(HALF, FIELD, PACKET, IP + 6);
    a.put(code::AND_IMMEDIATE, FIELD, 0, 0, network(0x3fff));
    a.jump(code::JUMP_UNEQUAL, FIELD, 0, 0, Label::Pass);
    a.load(BYTE, FIELD, PACKET, IP + 9);
    a.jump(code::JUMP_UNEQUAL, FIELD, 0, ESP, Label::Pass);
    a.store_number(BYTE, STACK, FAMILY, libc::AF_INET);
    a.load(WORD, FIELD, PACKET, IP + 12);
    a.store(WORD, STACK, SOURCE, FIELD);
    a.load(WORD, FIELD, PACKET, IP + 16);
    a.store(WORD, STACK, DESTINATION, FIELD);
}

/// Continues only if the packet is for this host. The kernel's routes are asked, because addresses
/// may change.
fn is_for_this_host(a: &mut Assembler) {
    a.store_number(BYTE, STACK, PROTOCOL, ESP);
    a.load(WORD, FIELD, CONTEXT, MD_LINK);
    a.store(WORD, STACK, LINK, FIELD);
    a.copy(1, CONTEXT);
    a.copy(2, STACK);
    a.add(2, QUESTION.into());
    a.set(3, QUESTION_LEN.into());
    a.set(4, 0);
    a.call(bpf::HELPER_FIB_LOOKUP);
    a.jump(code::JUMP_EQUAL, RESULT, 0, bpf::NOT_FORWARDED, Label::Take);
    a.jump(
        code::JUMP_UNEQUAL,
        RESULT,
        0,
        bpf::FORWARDING_OFF,
        Label::Pass,
    );
}
