//! Attaches XDP programs to links by netlink, as a confined process can.
//!
//! Unlike an attachment by bpf(2), this one outlives a process that is killed. So the link gets a
//! further name, which says whose the program is. The next gateway finds it and detaches the program.

use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use rtnetlink::packet_core::{NLM_F_APPEND, NLM_F_CREATE, NLM_F_EXCL};
use rtnetlink::packet_route::RouteNetlinkMessage;
use rtnetlink::packet_route::link::{LinkAttribute, LinkMessage, LinkXdp, Prop, XdpAttached};

use super::lookup::{ask_one, order, unusable};
use crate::io::xdp::{XdpMode, XdpProgram};

/// Flags of <linux/if_link.h>.
const UPDATE_IF_NOEXIST: u32 = 1 << 0;
const REPLACE: u32 = 1 << 4;

/// A descriptor that stands for no program.
const NONE: i32 = -1;

/// A program on a link. It is detached when this value is dropped.
#[derive(Debug)]
pub struct XdpAttachment {
    link: u32,
    program: OwnedFd,
    mode: XdpMode,
    /// The further name of the link.
    name: String,
}

impl XdpAttachment {
    /// Attaches the program, if the link has none. `owner` is what the next gateway knows its own leftovers by.
    pub fn new(link: u32, program: &XdpProgram, mode: XdpMode, owner: &str) -> io::Result<Self> {
        let name = format!("{}{}", prefix(owner), program.id);
        let own = program.as_fd().try_clone_to_owned()?;
        let flags = NLM_F_EXCL | NLM_F_CREATE | NLM_F_APPEND;
        order(RouteNetlinkMessage::NewLinkProp(named(link, &name)), flags)?;
        let descriptor = LinkXdp::Fd(own.as_raw_fd());
        let flags = LinkXdp::Flags(mode.flag() | UPDATE_IF_NOEXIST);
        // If that fails, the further name goes as this value does.
        let attached = Self {
            link,
            program: own,
            mode,
            name,
        };
        set(link, [descriptor, flags])?;
        Ok(attached)
    }
}

impl Drop for XdpAttachment {
    fn drop(&mut self) {
        let expected = LinkXdp::ExpectedFd(self.program.as_fd().as_raw_fd() as u32);
        let flags = LinkXdp::Flags(self.mode.flag() | REPLACE);
        // The link may be gone, and its program with it.
        let _ = set(self.link, [LinkXdp::Fd(NONE), flags, expected]);
        let _ = order(
            RouteNetlinkMessage::DelLinkProp(named(self.link, &self.name)),
            0,
        );
    }
}

/// Detaches the program that an earlier gateway of this owner left on the link, and tells whether there was one.
pub fn detach_leftover(link: u32, owner: &str) -> io::Result<bool> {
    let mut question = LinkMessage::default();
    question.header.index = link;
    let found = match ask_one(RouteNetlinkMessage::GetLink(question))? {
        RouteNetlinkMessage::NewLink(found) => found,
        _ => return Err(unusable()),
    };
    let (mut names, mut programs) = (Vec::new(), Vec::new());
    for attribute in &found.attributes {
        match attribute {
            LinkAttribute::PropList(list) => names.extend(list),
            LinkAttribute::Xdp(list) => programs.extend(list),
            _ => {}
        }
    }
    let mut any = false;
    for name in names {
        let Prop::AltIfName(name) = name else {
            continue;
        };
        let number = name.strip_prefix(&prefix(owner));
        // The name of another gateway's TUN device can begin like ours.
        let Some(id) = number.and_then(|number| number.parse::<u32>().ok()) else {
            continue;
        };
        let is_it = |one: &&LinkXdp| matches!(one, LinkXdp::ProgId(own) if id == *own);
        if programs.iter().any(is_it) {
            let is_generic = programs.contains(&&LinkXdp::Attached(XdpAttached::SocketBuffer));
            let mode = if is_generic {
                XdpMode::Generic
            } else {
                XdpMode::Driver
            };
            set(link, [LinkXdp::Fd(NONE), LinkXdp::Flags(mode.flag())])?;
            any = true;
        }
        order(RouteNetlinkMessage::DelLinkProp(named(link, name)), 0)?;
    }
    Ok(any)
}

fn prefix(owner: &str) -> String {
    format!("{owner}-xdp-")
}

fn named(link: u32, name: &str) -> LinkMessage {
    let mut message = LinkMessage::default();
    message.header.index = link;
    let name = Prop::AltIfName(name.to_owned());
    message.attributes.push(LinkAttribute::PropList(vec![name]));
    message
}

fn set(link: u32, settings: impl Into<Vec<LinkXdp>>) -> io::Result<()> {
    let mut message = LinkMessage::default();
    message.header.index = link;
    message.attributes.push(LinkAttribute::Xdp(settings.into()));
    order(RouteNetlinkMessage::SetLink(message), 0)
}
