//! nf_tables over netlink, as far as the gateway's own table needs it: a table is replaced as a whole, in one transaction.

use std::io;
use std::os::fd::AsFd;

use rtnetlink::sys::Socket;

use crate::io::sys::set_option;

// <linux/netfilter/nfnetlink.h>, <linux/netfilter/nf_tables.h>
pub(super) const NETLINK_NETFILTER: isize = 12;
const BATCH_BEGIN: u16 = 0x10;
const BATCH_END: u16 = 0x11;
const SUBSYSTEM: u16 = 10;
const NEW_TABLE: u16 = 0;
const DELETE_TABLE: u16 = 2;
const NEW_CHAIN: u16 = 3;
const NEW_RULE: u16 = 6;
const NEW_SET: u16 = 9;
const NEW_ELEMENTS: u16 = 12;
const FAMILY_INET: u8 = 1;
/// NLM_F_REQUEST and NLM_F_CREATE.
const FLAGS: u16 = 0x401;
/// NLM_F_APPEND: rules come in the order in which they are added.
const FLAG_APPEND: u16 = 0x800;
const NESTED: u16 = 0x8000;
const LIST_ELEMENT: u16 = 1;
const HEADER_LEN: usize = 20;
/// The length of an attribute has 16 bits.
const ELEMENTS_PER_MESSAGE: usize = 256;
const NLMSG_ERROR: u16 = 2;

/// Where a base chain is called.
#[derive(Debug, Clone, Copy)]
pub enum Hook {
    Input = 1,
    Forward = 2,
    Output = 3,
}

/// What a set's keys are; the number tells `nft` how to print them.
#[derive(Debug, Clone, Copy)]
pub enum Keys {
    /// Names of interfaces.
    Names,
    /// Intervals of addresses of this many bytes.
    Addresses(usize),
    /// Intervals of a source and a destination address.
    Pairs(usize),
}

/// One step of a rule. What does not match ends the rule.
#[derive(Debug, Clone)]
pub enum Match {
    /// The version of IP: 2 is IPv4, 10 is IPv6.
    Family(u8),
    Protocol(u8),
    Mark(u32),
    InterfaceIn(&'static str),
    InterfaceOut(&'static str),
    /// Bytes of the network header lie between two values.
    Network(u32, Vec<u8>, Vec<u8>),
    /// Bytes of the transport header.
    Transport(u32, Vec<u8>, Vec<u8>),
    /// The destination address, of so many bytes at an offset, is in the set.
    Destination(u32, usize, String),
    /// The source and the destination address, the first at an offset.
    Pair(u32, usize, String),
}

#[derive(Debug, Clone, Copy)]
pub enum Verdict {
    Accept,
    /// Counted.
    Drop,
    /// Back to the chain that has jumped here.
    Return,
    Jump(&'static str),
}

/// A table in the making.
#[derive(Debug)]
pub struct Table {
    name: String,
    bytes: Vec<u8>,
}

impl Table {
    /// Takes the place of the table of that name.
    pub fn new(name: &str) -> Self {
        let mut table = Self::absent(name);
        let name = string(name);
        table.message(NEW_TABLE, 0, &attribute(1, &name));
        table
    }

    /// No table of that name.
    pub fn absent(name: &str) -> Self {
        let mut table = Self {
            name: name.to_owned(),
            bytes: Vec::new(),
        };
        table.batch(BATCH_BEGIN);
        // What is not there cannot be deleted.
        table.message(NEW_TABLE, 0, &attribute(1, &string(name)));
        table.message(DELETE_TABLE, 0, &attribute(1, &string(name)));
        table
    }

    pub fn chain(&mut self, name: &str, hook: Option<Hook>) {
        let mut body = attribute(1, &string(&self.name));
        body.extend(attribute(3, &string(name)));
        if let Some(hook) = hook {
            let place = [number(1, hook as u32), number(2, 0)].concat();
            body.extend(attribute(4 | NESTED, &place));
            body.extend(attribute(7, &string("filter")));
        }
        self.message(NEW_CHAIN, 0, &body);
    }

    /// A set with its elements: pairs of the first and the last key. They must not overlap.
    pub fn set(&mut self, name: &str, id: u32, keys: Keys, elements: &[(Vec<u8>, Vec<u8>)]) {
        let (kind, len, flags) = match keys {
            Keys::Names => (41, 16, 0),
            Keys::Addresses(len) => (type_of(len), len, 4),
            Keys::Pairs(len) => (type_of(len) << 6 | type_of(len), 2 * len, 4 | 0x80),
        };
        let mut body = attribute(1, &string(&self.name));
        body.extend(attribute(2, &string(name)));
        body.extend(number(3, flags));
        body.extend(number(4, kind));
        body.extend(number(5, len as u32));
        body.extend(number(10, id));
        if let Keys::Pairs(len) = keys {
            let field = attribute(LIST_ELEMENT | NESTED, &number(1, len as u32));
            let fields = attribute(2 | NESTED, &[field.clone(), field].concat());
            body.extend(attribute(9 | NESTED, &fields));
        }
        self.message(NEW_SET, 0, &body);
        for some in elements.chunks(ELEMENTS_PER_MESSAGE) {
            let list: Vec<u8> = some
                .iter()
                .flat_map(|(first, last)| element(keys, first, last))
                .collect();
            let mut body = attribute(1, &string(&self.name));
            body.extend(attribute(2, &string(name)));
            body.extend(number(4, id));
            body.extend(attribute(3 | NESTED, &list));
            self.message(NEW_ELEMENTS, 0, &body);
        }
    }

    pub fn rule(&mut self, chain: &str, matches: &[Match], verdict: Verdict) {
        let mut steps: Vec<u8> = matches.iter().flat_map(expressions).collect();
        if matches!(verdict, Verdict::Drop) {
            steps.extend(expression("counter", &[]));
        }
        let verdict = match verdict {
            Verdict::Drop => number(1, 0),
            Verdict::Accept => number(1, 1),
            Verdict::Return => number(1, -5_i32 as u32),
            Verdict::Jump(chain) => {
                [number(1, -3_i32 as u32), attribute(2, &string(chain))].concat()
            }
        };
        let data = attribute(2 | NESTED, &attribute(2 | NESTED, &verdict));
        steps.extend(expression("immediate", &[number(1, 0), data].concat()));
        let mut body = attribute(1, &string(&self.name));
        body.extend(attribute(2, &string(chain)));
        body.extend(attribute(4 | NESTED, &steps));
        self.message(NEW_RULE, FLAG_APPEND, &body);
    }

    fn batch(&mut self, kind: u16) {
        self.put(kind, 1, 0, SUBSYSTEM, &[]);
    }

    fn message(&mut self, kind: u16, flags: u16, body: &[u8]) {
        let flags = match kind {
            DELETE_TABLE => 1,
            _ => FLAGS | flags,
        };
        self.put(SUBSYSTEM << 8 | kind, flags, FAMILY_INET, 0, body);
    }

    fn put(&mut self, kind: u16, flags: u16, family: u8, resource: u16, body: &[u8]) {
        let len = HEADER_LEN + body.len();
        self.bytes.extend((len as u32).to_ne_bytes());
        self.bytes.extend(kind.to_ne_bytes());
        self.bytes.extend(flags.to_ne_bytes());
        self.bytes.extend([0; 8]);
        self.bytes.extend([family, 0]);
        self.bytes.extend(resource.to_be_bytes());
        self.bytes.extend(body);
    }
}

/// A socket to nf_tables.
#[derive(Debug)]
pub struct Nft {
    socket: Socket,
    /// What we change ourselves is announced with it.
    pub(super) port: u32,
}

impl Nft {
    /// Speaks to the network namespace of the calling thread.
    pub fn connect() -> io::Result<Self> {
        let mut socket = Socket::new(NETLINK_NETFILTER)?;
        let port = socket.bind_auto()?.port_number();
        socket.set_non_blocking(true)?;
        Ok(Self { socket, port })
    }

    /// All of it, or nothing.
    pub fn commit(&self, mut table: Table) -> io::Result<()> {
        table.batch(BATCH_END);
        // A transaction is one datagram.
        let room = i32::try_from(table.bytes.len() + 4096).unwrap_or(i32::MAX);
        let _ = set_option(
            self.socket.as_fd(),
            libc::SOL_SOCKET,
            libc::SO_SNDBUFFORCE,
            room,
        );
        self.socket.send(&table.bytes, 0)?;
        // The kernel has done it, and answered, before `send` returns. It answers what it refuses only.
        let mut result = Ok(());
        while let Ok((answer, _)) = self.socket.recv_from_full() {
            result = result.and(refusal(&answer));
        }
        result
    }
}

/// The first error of an answer.
fn refusal(answer: &[u8]) -> io::Result<()> {
    let kind = answer
        .get(4..6)
        .map(|kind| u16::from_ne_bytes([kind[0], kind[1]]));
    let error = answer.get(16..20).and_then(|error| error.try_into().ok());
    match (kind, error.map(i32::from_ne_bytes)) {
        (Some(NLMSG_ERROR), Some(error)) if error != 0 => Err(io::Error::from_raw_os_error(-error)),
        _ => Ok(()),
    }
}

/// Whether an announcement is about a table of this name, and not made by `own_port`.
pub(super) fn concerns(mut datagram: &[u8], name: &str, own_port: u32) -> bool {
    let word = |bytes: &[u8], at: usize| {
        let bytes = bytes.get(at..at + 4)?.try_into().ok()?;
        Some(u32::from_ne_bytes(bytes))
    };
    // The name of the table is the first attribute of all kinds.
    let name = string(name);
    while let (Some(len), Some(port)) = (word(datagram, 0), word(datagram, 12)) {
        let of_name = datagram
            .get(HEADER_LEN..)
            .is_some_and(|body| body.get(4..).is_some_and(|value| value.starts_with(&name)));
        if port != own_port && of_name {
            return true;
        }
        let len = (len as usize).max(HEADER_LEN).next_multiple_of(4);
        datagram = datagram.get(len..).unwrap_or_default();
    }
    false
}

/// `nft`'s numbers of its data types.
fn type_of(address_len: usize) -> u32 {
    if address_len == 4 { 7 } else { 8 }
}

fn attribute(kind: u16, value: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(value.len() + 8);
    bytes.extend((4 + value.len() as u16).to_ne_bytes());
    bytes.extend(kind.to_ne_bytes());
    bytes.extend(value);
    bytes.resize(bytes.len().next_multiple_of(4), 0);
    bytes
}

fn number(kind: u16, value: u32) -> Vec<u8> {
    attribute(kind, &value.to_be_bytes())
}

fn string(text: &str) -> Vec<u8> {
    [text.as_bytes(), &[0]].concat()
}

/// NFTA_DATA_VALUE in an attribute of this kind.
fn data(kind: u16, value: &[u8]) -> Vec<u8> {
    attribute(kind | NESTED, &attribute(1, value))
}

fn element(keys: Keys, first: &[u8], last: &[u8]) -> Vec<u8> {
    let one = |body: &[u8]| attribute(LIST_ELEMENT | NESTED, body);
    match keys {
        Keys::Names => one(&data(1, first)),
        Keys::Pairs(_) => one(&[data(1, first), data(10, last)].concat()),
        Keys::Addresses(_) => {
            let mut bytes = one(&data(1, first));
            // The end of an interval is the first key behind it, if there is one.
            let mut behind = last.to_vec();
            let carried = behind.iter_mut().rev().any(|byte| {
                *byte = byte.wrapping_add(1);
                *byte != 0
            });
            if carried {
                bytes.extend(one(&[data(1, &behind), number(3, 1)].concat()));
            }
            bytes
        }
    }
}

fn expression(name: &str, body: &[u8]) -> Vec<u8> {
    let both = [attribute(1, &string(name)), attribute(2 | NESTED, body)].concat();
    attribute(LIST_ELEMENT | NESTED, &both)
}

fn load_meta(key: u32) -> Vec<u8> {
    expression("meta", &[number(1, 8), number(2, key)].concat())
}

fn load(register: u32, base: u32, offset: u32, len: usize) -> Vec<u8> {
    let body = [
        number(1, register),
        number(2, base),
        number(3, offset),
        number(4, len as u32),
    ];
    expression("payload", &body.concat())
}

fn equals(value: &[u8]) -> Vec<u8> {
    expression(
        "cmp",
        &[number(1, 8), number(2, 0), data(3, value)].concat(),
    )
}

fn between(first: &[u8], last: &[u8]) -> Vec<u8> {
    let body = [number(1, 8), number(2, 0), data(3, first), data(4, last)];
    expression("range", &body.concat())
}

fn is_in(set: &str) -> Vec<u8> {
    expression(
        "lookup",
        &[attribute(1, &string(set)), number(2, 8)].concat(),
    )
}

fn expressions(step: &Match) -> Vec<u8> {
    match step {
        Match::Family(version) => [load_meta(15), equals(&[*version])].concat(),
        Match::Protocol(protocol) => [load_meta(16), equals(&[*protocol])].concat(),
        Match::Mark(mark) => [load_meta(3), equals(&mark.to_ne_bytes())].concat(),
        Match::InterfaceIn(set) => [load_meta(6), is_in(set)].concat(),
        Match::InterfaceOut(set) => [load_meta(7), is_in(set)].concat(),
        Match::Network(offset, first, last) => {
            [load(8, 1, *offset, first.len()), between(first, last)].concat()
        }
        Match::Transport(offset, first, last) => {
            [load(8, 2, *offset, first.len()), between(first, last)].concat()
        }
        Match::Destination(offset, len, set) => [load(8, 1, *offset, *len), is_in(set)].concat(),
        Match::Pair(offset, len, set) => {
            let second = 8 + (*len / 4) as u32;
            let behind = offset + *len as u32;
            [
                load(8, 1, *offset, *len),
                load(second, 1, behind, *len),
                is_in(set),
            ]
            .concat()
        }
    }
}
