//! Writes nf_tables rules over netlink: the gateway's own table as a whole, or some elements of its
//! sets and maps, each in one transaction.

use std::io;
use std::os::fd::AsFd;

use aws_lc_rs::digest::{Context, SHA256};
use rtnetlink::sys::Socket;

use crate::io::sys::set_option;

pub(super) const NETLINK_NETFILTER: isize = libc::NETLINK_NETFILTER as isize;
const BATCH_BEGIN: u16 = libc::NFNL_MSG_BATCH_BEGIN as u16;
const BATCH_END: u16 = libc::NFNL_MSG_BATCH_END as u16;
const SUBSYSTEM: u16 = libc::NFNL_SUBSYS_NFTABLES as u16;
const NEW_TABLE: u16 = libc::NFT_MSG_NEWTABLE as u16;
const DELETE_TABLE: u16 = libc::NFT_MSG_DELTABLE as u16;
const NEW_CHAIN: u16 = libc::NFT_MSG_NEWCHAIN as u16;
const NEW_RULE: u16 = libc::NFT_MSG_NEWRULE as u16;
const NEW_SET: u16 = libc::NFT_MSG_NEWSET as u16;
const NEW_ELEMENTS: u16 = libc::NFT_MSG_NEWSETELEM as u16;
const DELETE_ELEMENTS: u16 = libc::NFT_MSG_DELSETELEM as u16;
const REQUEST: u16 = libc::NLM_F_REQUEST as u16;
const CREATE: u16 = libc::NLM_F_CREATE as u16;
/// Appends the rule to the chain, so that rules stand in the order of their addition.
const APPEND: u16 = libc::NLM_F_APPEND as u16;
const NESTED: u16 = libc::NLA_F_NESTED as u16;
const INTERVALS: u32 = libc::NFT_SET_INTERVAL as u32;
const MAP: u32 = libc::NFT_SET_MAP as u32;
/// The first 32-bit register. Keys of several fields lie in neighbouring registers.
const REGISTER: u32 = libc::NFT_REG32_00 as u32;
/// Length of the header in front of the packet that an ICMP error quotes, in bytes.
const ICMP_LEN: u32 = 8;
/// Length of a node's number in bytes.
const NODE_LEN: usize = 8;
/// Bytes in front of a node's number where a map gives it. `nft` aborts where a key begins with what a map gave. So the
/// map gives one register more, and the key begins behind that.
const PAD_LEN: usize = 4;
const REGISTER_OF_NODE: u32 = REGISTER + (PAD_LEN / 4) as u32;
/// The registers behind a node's number, for the packet's field.
const REGISTER_OF_FIELD: u32 = REGISTER_OF_NODE + (NODE_LEN / 4) as u32;
/// Tells `nft` that the keys of a set are in the order of the host. It shows names as empty otherwise. The bytes are a type,
/// a length and a number of 32 bits.
const HOST_ORDER: [u8; 6] = {
    let [a, b, c, d] = 1_u32.to_ne_bytes();
    [0, 4, a, b, c, d]
};

/// The numbers by which `nft` knows the types of names, addresses and plain numbers.
const TYPE_INTEGER: u32 = 4;
const TYPE_IPV4: u32 = 7;
const TYPE_IPV6: u32 = 8;
const TYPE_INTERFACE: u32 = 41;
// NFT_FIB_RESULT_OIFNAME and NFTA_FIB_F_SADDR, from <linux/netfilter/nf_tables.h>: `libc` lacks
// them.
const WAY_BACK: [u32; 2] = [2, 1];
/// NFTA_LIST_ELEM.
const LIST_ELEMENT: u16 = 1;
/// Length of the netlink header and the nfgenmsg header together, in bytes.
const HEADER_LEN: usize = 20;
/// Bound that keeps the attribute of a list below 64 KiB: the length of an attribute has 16 bits.
const ELEMENTS_PER_MESSAGE: usize = 256;

/// The hook of the kernel that calls a base chain.
#[derive(Debug, Clone, Copy)]
pub enum Hook {
    Prerouting,
    Input,
    Forward,
    Output,
    /// That of packets that leave, behind the translation of addresses.
    Postrouting,
    /// That of packets of the host, which are routed again if the chain gives them a mark.
    Reroute,
}

impl Hook {
    fn number(self) -> u32 {
        let number = match self {
            Self::Prerouting => libc::NF_INET_PRE_ROUTING,
            Self::Input => libc::NF_INET_LOCAL_IN,
            Self::Forward => libc::NF_INET_FORWARD,
            Self::Output | Self::Reroute => libc::NF_INET_LOCAL_OUT,
            Self::Postrouting => libc::NF_INET_POST_ROUTING,
        };
        number as u32
    }

    /// The type of a chain.
    fn kind(self) -> &'static str {
        match self {
            Self::Reroute => "route",
            _ => "filter",
        }
    }

    /// Returns the place of our chain among the chains of a hook. Rules of others see the marks that we give, those
    /// of connection tracking (-200) and of the raw table (-300) too.
    fn priority(self) -> i32 {
        match self {
            Self::Prerouting => -310,
            Self::Reroute => -150,
            Self::Input | Self::Forward | Self::Output => 0,
            // Sources are translated at 100.
            Self::Postrouting => 150,
        }
    }
}

/// The type of a set's keys. The kernel stores its number so that `nft` can print the keys.
#[derive(Debug, Clone, Copy)]
pub enum SetKeys {
    /// Names of interfaces.
    Names,
    /// Intervals of addresses, each with this many bytes.
    Addresses(usize),
    /// A map from the number of a node, and an interval of a packet's field of this many bytes, to
    /// the number of the next node. The kernel compares such keys byte by byte. So it finds one as
    /// fast as an interval of one field.
    Nodes(usize),
}

/// An element of a set: an interval of keys. In a map it has a value.
#[derive(Debug, Clone)]
pub struct SetElement {
    pub first: Vec<u8>,
    pub last: Vec<u8>,
    pub value: Option<u64>,
}

impl SetElement {
    pub fn new(first: Vec<u8>, last: Vec<u8>) -> Self {
        let value = None;
        Self { first, last, value }
    }
}

/// A field of a packet, by which a rule goes from one node to the next.
#[derive(Debug, Clone, Copy)]
pub enum PacketField {
    /// Bytes of the network header: their offset and their number.
    Network(u32, usize),
    Protocol,
    /// Two bytes of the transport header, from this offset.
    Transport(u32),
    /// Bytes of the packet that an ICMP error quotes: their offset in its network header, and their number.
    Quoted(u32, usize),
}

/// A condition of a rule. A packet that fails a condition leaves the rule.
#[derive(Debug, Clone)]
pub enum RuleMatch {
    /// The packet's family is NFPROTO_IPV4 or NFPROTO_IPV6.
    Family(u8),
    Protocol(u8),
    Mark(u32),
    /// The mark has this value under the mask.
    MaskedMark(u32, u32),
    /// The packet comes from this interface.
    From(String),
    InterfaceIn(&'static str),
    InterfaceOut(&'static str),
    /// Bytes of the transport header, from this offset, lie between two values.
    Transport(u32, Vec<u8>, Vec<u8>),
    /// The destination address is in the set. The numbers are its offset and its length in bytes.
    Destination(u32, usize, String),
    /// The way through maps begins at this node.
    Start(u64),
    /// The map knows the node that was reached before, together with the packet's field. The rule
    /// goes to the node that it names.
    Step(PacketField, String),
    /// The node that was reached is this one.
    Reached(u64),
    /// The routes back to the source address leave by this interface.
    WayBack(String),
}

#[derive(Debug, Clone, Copy)]
pub enum RuleVerdict<'a> {
    Accept,
    /// Drops the packet and counts it.
    Drop,
    /// Returns to the chain that jumped to this chain.
    Return,
    Jump(&'a str),
    /// Gives the packet this mark, and goes on to the next rule.
    SetMark(u32),
}

/// A transaction that changes one table. It is built step by step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NftChange {
    name: String,
    bytes: Vec<u8>,
}

impl NftChange {
    /// Returns the SHA-256 of the transaction.
    pub fn digest(&self) -> [u8; 32] {
        let mut context = Context::new(&SHA256);
        context.update(&(self.name.len() as u64).to_be_bytes());
        context.update(self.name.as_bytes());
        context.update(&self.bytes);
        let mut digest = [0; 32];
        digest.copy_from_slice(context.finish().as_ref());
        digest
    }

    /// Starts a transaction that changes elements of the table of that name.
    pub fn of(name: &str) -> Self {
        let mut change = Self {
            name: name.to_owned(),
            bytes: Vec::new(),
        };
        change.batch(BATCH_BEGIN);
        change
    }

    /// Starts a transaction that replaces the table of that name.
    pub fn replace(name: &str) -> Self {
        let mut change = Self::remove(name);
        change.message(NEW_TABLE, 0, &attribute(1, &string(name)));
        change
    }

    /// Starts a transaction that deletes the table of that name.
    pub fn remove(name: &str) -> Self {
        let mut change = Self::of(name);
        // Deleting a table that does not exist fails, so create it first.
        change.message(NEW_TABLE, 0, &attribute(1, &string(name)));
        change.message(DELETE_TABLE, 0, &attribute(1, &string(name)));
        change
    }

    pub fn chain(&mut self, name: &str, hook: Option<Hook>) {
        let mut body = attribute(1, &string(&self.name));
        body.extend(attribute(3, &string(name)));
        if let Some(hook) = hook {
            let place = [number(1, hook.number()), number(2, hook.priority() as u32)].concat();
            body.extend(attribute(4 | NESTED, &place));
            body.extend(attribute(7, &string(hook.kind())));
        }
        self.message(NEW_CHAIN, 0, &body);
    }

    /// Adds a set and its elements, which must not overlap.
    pub fn set(&mut self, name: &str, id: u32, keys: SetKeys, elements: &[SetElement]) {
        let (kind, len, flags) = match keys {
            SetKeys::Names => (TYPE_INTERFACE, libc::IFNAMSIZ, 0),
            SetKeys::Addresses(4) => (TYPE_IPV4, 4, INTERVALS),
            SetKeys::Addresses(len) => (TYPE_IPV6, len, INTERVALS),
            SetKeys::Nodes(len) => (TYPE_INTEGER, NODE_LEN + padded(len), INTERVALS | MAP),
        };
        let mut body = self.set_named(name);
        body.extend(number(3, flags));
        body.extend(number(4, kind));
        body.extend(number(5, len as u32));
        if let SetKeys::Nodes(_) = keys {
            body.extend(number(6, TYPE_INTEGER));
            body.extend(number(7, (PAD_LEN + NODE_LEN) as u32));
        }
        body.extend(number(10, id));
        if let SetKeys::Names = keys {
            body.extend(attribute(13, &HOST_ORDER));
        }
        self.message(NEW_SET, 0, &body);
        self.add(name, keys, elements);
    }

    /// Adds elements to a set, which must not overlap those that are there.
    pub fn add(&mut self, set: &str, keys: SetKeys, elements: &[SetElement]) {
        self.elements(NEW_ELEMENTS, set, keys, elements);
    }

    /// Deletes elements of a set.
    pub fn delete(&mut self, set: &str, keys: SetKeys, elements: &[SetElement]) {
        self.elements(DELETE_ELEMENTS, set, keys, elements);
    }

    fn elements(&mut self, kind: u16, set: &str, keys: SetKeys, elements: &[SetElement]) {
        for some in elements.chunks(ELEMENTS_PER_MESSAGE) {
            let list: Vec<u8> = some.iter().flat_map(|one| element(keys, one)).collect();
            let mut body = self.set_named(set);
            body.extend(attribute(3 | NESTED, &list));
            self.message(kind, 0, &body);
        }
    }

    fn set_named(&self, set: &str) -> Vec<u8> {
        [
            attribute(1, &string(&self.name)),
            attribute(2, &string(set)),
        ]
        .concat()
    }

    /// Returns how many rules the transaction adds to a table.
    pub fn rules(&self) -> usize {
        self.messages(NEW_RULE)
    }

    fn messages(&self, kind: u16) -> usize {
        let (mut at, mut count) = (0, 0);
        while let Some(header) = self.bytes.get(at..at + 6) {
            let of_kind = u16::from_ne_bytes([header[4], header[5]]) == (SUBSYSTEM << 8 | kind);
            count += usize::from(of_kind);
            at += u32::from_ne_bytes([header[0], header[1], header[2], header[3]]) as usize;
        }
        count
    }

    pub fn rule(&mut self, chain: &str, matches: &[RuleMatch], verdict: RuleVerdict<'_>) {
        let mut steps: Vec<u8> = matches.iter().flat_map(expressions).collect();
        let code = |code: libc::c_int| immediate_verdict(&number(1, code as u32));
        steps.extend(match verdict {
            RuleVerdict::Drop => [expression("counter", &[]), code(libc::NF_DROP)].concat(),
            RuleVerdict::Accept => code(libc::NF_ACCEPT),
            RuleVerdict::Return => code(libc::NFT_RETURN),
            RuleVerdict::Jump(chain) => {
                let jump = number(1, libc::NFT_JUMP as u32);
                immediate_verdict(&[jump, attribute(2, &string(chain))].concat())
            }
            RuleVerdict::SetMark(mark) => {
                let value = [number(1, REGISTER), data(2, &mark.to_ne_bytes())].concat();
                let set = [number(2, libc::NFT_META_MARK as u32), number(3, REGISTER)].concat();
                [expression("immediate", &value), expression("meta", &set)].concat()
            }
        });
        let mut body = attribute(1, &string(&self.name));
        body.extend(attribute(2, &string(chain)));
        body.extend(attribute(4 | NESTED, &steps));
        self.message(NEW_RULE, APPEND, &body);
    }

    fn batch(&mut self, kind: u16) {
        self.put(kind, REQUEST, 0, SUBSYSTEM, &[]);
    }

    fn message(&mut self, kind: u16, flags: u16, body: &[u8]) {
        let flags = match kind {
            DELETE_TABLE | DELETE_ELEMENTS => REQUEST,
            _ => REQUEST | CREATE | flags,
        };
        let family = libc::NFPROTO_INET as u8;
        self.put(SUBSYSTEM << 8 | kind, flags, family, 0, body);
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
    /// Port number of the socket. The kernel marks announcements of our own changes with it.
    pub(super) port: u32,
}

impl Nft {
    /// Connects to the network namespace of the calling thread.
    pub fn connect() -> io::Result<Self> {
        let mut socket = Socket::new(NETLINK_NETFILTER)?;
        let port = socket.bind_auto()?.port_number();
        socket.set_non_blocking(true)?;
        Ok(Self { socket, port })
    }

    /// Carries out the whole transaction or nothing. After an error of the socket itself, nobody
    /// knows which.
    pub fn commit(&self, change: &NftChange) -> io::Result<()> {
        let mut batch = change.clone();
        batch.batch(BATCH_END);
        // A transaction is one datagram, so make room for all of it.
        let room = i32::try_from(batch.bytes.len() + 4096).unwrap_or(i32::MAX);
        let _ = set_option(
            self.socket.as_fd(),
            libc::SOL_SOCKET,
            libc::SO_SNDBUFFORCE,
            room,
        );
        self.socket.send(&batch.bytes, 0)?;
        // The kernel has committed, and answered, before `send` returns. It answers only about
        // failures.
        answered(|| self.socket.recv_from_full().map(|(answer, _)| answer))
    }
}

/// Returns the first error among the waiting answers. An error of reading counts too: it may mean
/// that answers were lost because the socket was full.
fn answered(mut receive: impl FnMut() -> io::Result<Vec<u8>>) -> io::Result<()> {
    let mut result = Ok(());
    loop {
        match receive() {
            Ok(answer) => result = result.and(refusal(&answer)),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return result,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return result.and(Err(error)),
        }
    }
}

/// Returns the error that one answer reports.
fn refusal(answer: &[u8]) -> io::Result<()> {
    let kind = answer
        .get(4..6)
        .map(|kind| u16::from_ne_bytes([kind[0], kind[1]]));
    let error = answer.get(16..20).and_then(|error| error.try_into().ok());
    match error.map(i32::from_ne_bytes) {
        Some(error) if kind == Some(libc::NLMSG_ERROR as u16) && error != 0 => {
            Err(io::Error::from_raw_os_error(error.wrapping_neg()))
        }
        _ => Ok(()),
    }
}

/// Tells whether an announcement is about the table `name` and was not caused by `own_port`.
pub(super) fn concerns(mut datagram: &[u8], name: &str, own_port: u32) -> bool {
    let word = |bytes: &[u8], at: usize| {
        let bytes = bytes.get(at..at + 4)?.try_into().ok()?;
        Some(u32::from_ne_bytes(bytes))
    };
    // In every kind of announcement, the first attribute is the name of the table.
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

/// Puts NFTA_DATA_VALUE into an attribute of this kind.
fn data(kind: u16, value: &[u8]) -> Vec<u8> {
    attribute(kind | NESTED, &attribute(1, value))
}

fn element(keys: SetKeys, element: &SetElement) -> Vec<u8> {
    let one = |body: &[u8]| attribute(LIST_ELEMENT | NESTED, body);
    let padded = |value: u64| [&[0; PAD_LEN][..], &value.to_be_bytes()].concat();
    let value = element.value.map(|value| data(2, &padded(value)));
    let mut bytes = one(&[data(1, &element.first), value.unwrap_or_default()].concat());
    if let SetKeys::Names = keys {
        return bytes;
    }
    // An interval ends at the first key after it. The last interval may have no such key.
    let mut behind = element.last.clone();
    let carried = behind.iter_mut().rev().any(|byte| {
        *byte = byte.wrapping_add(1);
        *byte != 0
    });
    if carried {
        let end = number(3, libc::NFT_SET_ELEM_INTERVAL_END as u32);
        bytes.extend(one(&[data(1, &behind), end].concat()));
    }
    bytes
}

/// The key of a packet's field behind a node's number, as registers hold it.
pub fn node_key(node: u64, field: &[u8]) -> Vec<u8> {
    let mut key = [&node.to_be_bytes(), field].concat();
    key.resize(NODE_LEN + padded(field.len()), 0);
    key
}

/// The room that a field of this many bytes takes in registers.
fn padded(len: usize) -> usize {
    len.next_multiple_of(4)
}

fn expression(name: &str, body: &[u8]) -> Vec<u8> {
    let both = [attribute(1, &string(name)), attribute(2 | NESTED, body)].concat();
    attribute(LIST_ELEMENT | NESTED, &both)
}

fn immediate_verdict(verdict: &[u8]) -> Vec<u8> {
    let data = attribute(2 | NESTED, &attribute(2 | NESTED, verdict));
    let body = [number(1, libc::NFT_REG_VERDICT as u32), data].concat();
    expression("immediate", &body)
}

fn load_meta(register: u32, key: libc::c_int) -> Vec<u8> {
    let body = [number(1, register), number(2, key as u32)];
    expression("meta", &body.concat())
}

fn load(register: u32, base: libc::c_int, offset: u32, len: usize) -> Vec<u8> {
    let body = [
        number(1, register),
        number(2, base as u32),
        number(3, offset),
        number(4, len as u32),
    ];
    expression("payload", &body.concat())
}

fn equals(value: &[u8]) -> Vec<u8> {
    compare(REGISTER, value)
}

fn compare(register: u32, value: &[u8]) -> Vec<u8> {
    let equal = number(2, libc::NFT_CMP_EQ as u32);
    let body = [number(1, register), equal, data(3, value)];
    expression("cmp", &body.concat())
}

/// Clears the bits of the register that the mask has not.
fn masked(mask: [u8; 4]) -> Vec<u8> {
    let body = [
        number(1, REGISTER),
        number(2, REGISTER),
        number(3, 4),
        data(4, &mask),
        data(5, &[0; 4]),
    ];
    expression("bitwise", &body.concat())
}

fn between(first: &[u8], last: &[u8]) -> Vec<u8> {
    let equal = number(2, libc::NFT_RANGE_EQ as u32);
    let body = [number(1, REGISTER), equal, data(3, first), data(4, last)];
    expression("range", &body.concat())
}

fn is_in(set: &str) -> Vec<u8> {
    let body = [attribute(1, &string(set)), number(2, REGISTER)];
    expression("lookup", &body.concat())
}

fn expressions(step: &RuleMatch) -> Vec<u8> {
    const NETWORK: libc::c_int = libc::NFT_PAYLOAD_NETWORK_HEADER;
    const TRANSPORT: libc::c_int = libc::NFT_PAYLOAD_TRANSPORT_HEADER;
    let meta = |key, test| [load_meta(REGISTER, key), test].concat();
    match step {
        RuleMatch::Family(version) => meta(libc::NFT_META_NFPROTO, equals(&[*version])),
        RuleMatch::Protocol(protocol) => meta(libc::NFT_META_L4PROTO, equals(&[*protocol])),
        RuleMatch::Mark(mark) => meta(libc::NFT_META_MARK, equals(&mark.to_ne_bytes())),
        RuleMatch::MaskedMark(value, mask) => {
            let test = [masked(mask.to_ne_bytes()), equals(&value.to_ne_bytes())];
            meta(libc::NFT_META_MARK, test.concat())
        }
        RuleMatch::From(name) => meta(libc::NFT_META_IIFNAME, equals(&interface_name(name))),
        RuleMatch::InterfaceIn(set) => meta(libc::NFT_META_IIFNAME, is_in(set)),
        RuleMatch::InterfaceOut(set) => meta(libc::NFT_META_OIFNAME, is_in(set)),
        RuleMatch::Transport(offset, first, last) => {
            let field = load(REGISTER, TRANSPORT, *offset, first.len());
            [field, between(first, last)].concat()
        }
        RuleMatch::Destination(offset, len, set) => {
            [load(REGISTER, NETWORK, *offset, *len), is_in(set)].concat()
        }
        RuleMatch::Start(node) => {
            let body = [number(1, REGISTER_OF_NODE), data(2, &node.to_be_bytes())];
            expression("immediate", &body.concat())
        }
        RuleMatch::Step(field, map) => {
            let field = match *field {
                PacketField::Network(offset, len) => load(REGISTER_OF_FIELD, NETWORK, offset, len),
                PacketField::Protocol => load_meta(REGISTER_OF_FIELD, libc::NFT_META_L4PROTO),
                PacketField::Transport(offset) => load(REGISTER_OF_FIELD, TRANSPORT, offset, 2),
                PacketField::Quoted(offset, len) => {
                    load(REGISTER_OF_FIELD, TRANSPORT, ICMP_LEN + offset, len)
                }
            };
            let body = [
                attribute(1, &string(map)),
                number(2, REGISTER_OF_NODE),
                number(3, REGISTER),
            ];
            [field, expression("lookup", &body.concat())].concat()
        }
        RuleMatch::Reached(node) => compare(REGISTER_OF_NODE, &node.to_be_bytes()),
        RuleMatch::WayBack(interface) => {
            let [result, source] = WAY_BACK;
            let body = [number(1, REGISTER), number(2, result), number(3, source)];
            [
                expression("fib", &body.concat()),
                equals(&interface_name(interface)),
            ]
            .concat()
        }
    }
}

/// Pads the name of an interface to the form that registers and sets hold.
pub fn interface_name(name: &str) -> Vec<u8> {
    let mut bytes = name.as_bytes().to_vec();
    bytes.resize(libc::IFNAMSIZ, 0);
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answers(list: Vec<io::Result<Vec<u8>>>) -> io::Result<()> {
        let mut list = list.into_iter();
        answered(|| {
            let end = Err(io::ErrorKind::WouldBlock.into());
            list.next().unwrap_or(end)
        })
    }

    fn refused(error: i32) -> io::Result<Vec<u8>> {
        let mut answer = vec![0; 36];
        answer[4..6].copy_from_slice(&(libc::NLMSG_ERROR as u16).to_ne_bytes());
        answer[16..20].copy_from_slice(&(-error).to_ne_bytes());
        Ok(answer)
    }

    #[test]
    fn no_answer_is_overlooked() {
        let number = |list| answers(list).map_err(|error| error.raw_os_error());
        let lost = || Err(io::Error::from_raw_os_error(libc::ENOBUFS));
        let interrupted = || Err(io::Error::from_raw_os_error(libc::EINTR));
        assert_eq!(number(vec![]), Ok(()));
        assert_eq!(number(vec![refused(0), Ok(Vec::new())]), Ok(()));
        assert_eq!(
            number(vec![
                interrupted(),
                refused(libc::ENOENT),
                refused(libc::EINVAL)
            ]),
            Err(Some(libc::ENOENT))
        );
        // The table may or may not stand, so the transaction counts as failed.
        assert_eq!(number(vec![lost()]), Err(Some(libc::ENOBUFS)));
    }
}
