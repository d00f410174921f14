//! Sends and receives ESP without UDP on links that bypass the kernel's stack. What cannot take
//! this way goes through the stack.

use std::collections::HashMap;
use std::io;
use std::net::IpAddr;
use std::os::fd::{AsFd, BorrowedFd};

use esplanade_host::io::udp::{Outgoing, ReceivedDatagram, SendReport};
use esplanade_host::io::xdp::{self, LinkEnds};
use esplanade_host::net::{link_facts, neighbour, next_hop};

/// The time, in milliseconds, for which an answer of the kernel about a path stays valid.
const FRESH_MS: u64 = 2_000;
/// After this time, in milliseconds, the stack has asked for a neighbour's address.
const ASKED_MS: u64 = 50;
/// Most paths that are remembered.
const HOPS_MAX: usize = 65_536;

const GONE: &str = "the link is gone";

/// A worker's queue of a link.
#[derive(Debug)]
pub struct LinkQueue {
    pub name: String,
    pub link: u32,
    pub queue: xdp::XdpQueue,
    /// Frames that the kernel dropped, as counted so far.
    dropped: u64,
}

impl LinkQueue {
    pub fn open(name: &str, link: u32, queue: u32, mtu: usize) -> io::Result<Self> {
        Ok(Self {
            name: name.to_owned(),
            link,
            queue: xdp::XdpQueue::open(link, queue, mtu)?,
            dropped: 0,
        })
    }
}

/// A destination, with its source address if the packet names one.
type PathKey = (IpAddr, Option<IpAddr>);

/// The way in which the packets of a path leave.
#[derive(Clone, Copy, Debug)]
struct CachedHop {
    /// Index of the queue. `None` means the kernel's stack.
    queue: Option<usize>,
    ends: LinkEnds,
    local: IpAddr,
    /// MTU of the link in bytes.
    mtu: usize,
    /// Most bytes of a packet that the stack would not have to fragment. A longer packet goes
    /// through the stack if it may be fragmented.
    uncut: usize,
    /// The kernel has confirmed the neighbour lately.
    is_sure: bool,
    until_ms: u64,
}

/// The place of a link's queue.
#[derive(Debug)]
struct LinkPlace {
    name: String,
    /// `None` means that the queue failed. Its socket is closed, and its memory is free.
    queue: Option<LinkQueue>,
}

impl LinkPlace {
    fn give_up(&mut self, why: &dyn std::fmt::Display) {
        if self.queue.take().is_some() {
            let link = &self.name;
            tracing::warn!(
                link,
                "ESP goes through the kernel's stack until the link is made anew, and slowly: {why}"
            );
        }
    }
}

#[derive(Debug, Default)]
pub(super) struct XdpLinks {
    places: Vec<LinkPlace>,
    mark: u32,
    hops: HashMap<PathKey, CachedHop>,
    /// The path of the last look-up, with its result.
    last: Option<(PathKey, CachedHop)>,
    identification: u16,
}

impl XdpLinks {
    /// Creates the table. `mark` is the firewall mark of everything that the gateway sends.
    pub fn new(queues: Vec<LinkQueue>, mark: u32) -> Self {
        let place = |queue: LinkQueue| LinkPlace {
            name: queue.name.clone(),
            queue: Some(queue),
        };
        Self {
            places: queues.into_iter().map(place).collect(),
            mark,
            ..Self::default()
        }
    }

    fn queue(&mut self, index: usize) -> Option<&mut LinkQueue> {
        self.places.get_mut(index)?.queue.as_mut()
    }

    fn queues(&mut self) -> impl Iterator<Item = &mut LinkQueue> {
        self.places
            .iter_mut()
            .filter_map(|place| place.queue.as_mut())
    }

    pub fn is_empty(&self) -> bool {
        self.places.is_empty()
    }

    pub fn count(&self) -> usize {
        self.places.len()
    }

    /// Returns the socket of a queue, unless the queue failed.
    pub fn descriptor(&self, index: usize) -> Option<BorrowedFd<'_>> {
        let queue = self.places.get(index)?.queue.as_ref()?;
        Some(queue.queue.as_fd())
    }

    /// Puts a queue into the place of the one for the link of that name, and returns the place. The worker has no place
    /// for a link that it had no queue of at the start.
    pub fn replace(&mut self, queue: LinkQueue) -> Option<usize> {
        let at = self.places.iter().position(|own| own.name == queue.name)?;
        // The next hops were neighbours on the former link.
        self.hops.clear();
        self.last = None;
        self.places.get_mut(at)?.queue = Some(queue);
        Some(at)
    }

    /// Gives up the queue of a link that is gone.
    pub fn lose(&mut self, name: &str) {
        let mut places = self.places.iter_mut();
        if let Some(place) = places.find(|own| own.name == name) {
            place.give_up(&GONE);
        }
    }

    /// Writes the received ESP packets of a queue into the buffer. Returns the number of other
    /// frames.
    pub fn receive(
        &mut self,
        index: usize,
        buffer: &mut [u8],
        packets: &mut Vec<ReceivedDatagram>,
    ) -> u64 {
        let Some(link) = self.queue(index) else {
            packets.clear();
            return 0;
        };
        let others = link.queue.receive(buffer, packets);
        if packets.is_empty() && others == 0 {
            self.give_up_dead(index);
        }
        others
    }

    /// Tells whether [`Self::retry_sends`] must be called soon.
    pub fn is_stuck(&self) -> bool {
        let mut queues = self.places.iter().filter_map(|place| place.queue.as_ref());
        queues.any(|link| link.queue.is_stuck())
    }

    /// Sends again the frames for which the drivers had no room.
    pub fn retry_sends(&mut self) {
        for place in &mut self.places {
            if let Some(link) = &mut place.queue
                && link.queue.is_stuck()
                && let Err(error) = link.queue.flush()
            {
                place.give_up(&error);
            }
        }
    }

    /// Gives up the queues whose links are gone. Newer kernels wake nobody for them.
    pub fn give_up_all_dead(&mut self) {
        for index in 0..self.places.len() {
            self.give_up_dead(index);
        }
    }

    /// Gives up a queue whose link is gone: its descriptor could wake the worker for ever.
    fn give_up_dead(&mut self, index: usize) {
        if let Some(place) = self.places.get_mut(index)
            && (place.queue.as_ref()).is_some_and(|link| link.queue.is_dead())
        {
            place.give_up(&GONE);
        }
    }

    /// Returns the number of frames that the kernel dropped since the last call, because this
    /// worker was behind.
    pub fn take_dropped(&mut self) -> u64 {
        let of = |link: &mut LinkQueue| {
            let dropped = link.queue.dropped().max(link.dropped);
            dropped - std::mem::replace(&mut link.dropped, dropped)
        };
        self.queues().map(of).sum()
    }

    /// Sends packets in order, by a link or through `stack`. Also returns how many packets left by
    /// a link.
    pub fn send(
        &mut self,
        items: &[Outgoing<'_>],
        now_ms: u64,
        mut stack: impl FnMut(&[Outgoing<'_>]) -> SendReport,
    ) -> (SendReport, u64) {
        let mut report = SendReport::default();
        let mut by_link = 0;
        let mut rest = items;
        while let Some(first) = rest.first() {
            let path = (first.remote.ip(), first.local);
            let (hop, is_to_be_told) = self.hop(path, now_ms);
            if is_to_be_told {
                report += stack(std::slice::from_ref(first));
                rest = rest.get(1..).unwrap_or_default();
                continue;
            }
            let place = hop.queue.and_then(|at| self.places.get(at));
            let queue = place.and_then(|place| place.queue.as_ref());
            let goes = |item: &Outgoing<'_>| match queue {
                Some(link) => {
                    let len = xdp::packet_len(hop.local, item);
                    let most = if item.df { hop.mtu } else { hop.uncut };
                    len <= most && link.queue.takes(hop.local, item)
                }
                None => false,
            };
            let past = goes(first);
            let is_alike =
                |item: &&Outgoing<'_>| (item.remote.ip(), item.local) == path && goes(item) == past;
            let run = rest.iter().take_while(is_alike).count();
            let (run, behind) = rest.split_at(run.max(1));
            rest = behind;
            match hop.queue.filter(|_| past) {
                Some(at) => by_link += self.push(at, &hop, run, &mut report),
                None => report += stack(run),
            }
        }
        (report, by_link)
    }

    /// Sends packets through one queue. Returns how many left.
    fn push(
        &mut self,
        at: usize,
        hop: &CachedHop,
        items: &[Outgoing<'_>],
        report: &mut SendReport,
    ) -> u64 {
        let Some(place) = self.places.get_mut(at) else {
            return 0;
        };
        let Some(link) = &mut place.queue else {
            return 0;
        };
        let (mut failed, mut refused, mut broken) = (0, 0, None);
        let mut flush = |link: &mut LinkQueue| match link.queue.flush() {
            Ok(left) => failed += left as u64,
            Err(error) => broken = Some(error),
        };
        for item in items {
            self.identification = self.identification.wrapping_add(1);
            let number = self.identification;
            if !link.queue.push(&hop.ends, hop.local, item, number) {
                flush(link);
                let pushed = link.queue.push(&hop.ends, hop.local, item, number);
                refused += u64::from(!pushed);
            }
        }
        flush(link);
        let lost = match broken {
            Some(error) => {
                place.give_up(&error);
                items.len() as u64
            }
            None => failed + refused,
        };
        let sent = items.len() as u64 - lost;
        report.sent += sent;
        report.failed += lost;
        sent
    }

    /// Returns how packets of a path leave, and whether the next packet must go through the stack.
    /// The stack checks a neighbour only when it gets packets for it.
    fn hop(&mut self, path: PathKey, now_ms: u64) -> (CachedHop, bool) {
        let fresh = |hop: &CachedHop| now_ms < hop.until_ms;
        if let Some((last, hop)) = &self.last
            && *last == path
            && fresh(hop)
        {
            return (*hop, false);
        }
        let known = self.hops.get(&path).copied().filter(fresh);
        let (hop, is_new) = match known {
            Some(hop) => (hop, false),
            None => (self.ask(path, now_ms), true),
        };
        if is_new {
            if self.hops.len() == HOPS_MAX {
                self.hops.clear();
            }
            self.hops.insert(path, hop);
        }
        self.last = Some((path, hop));
        (hop, is_new && !hop.is_sure)
    }

    /// Asks the kernel, which looks at its routes and neighbours.
    fn ask(&self, (remote, local): PathKey, now_ms: u64) -> CachedHop {
        let by_stack = |for_ms| CachedHop {
            queue: None,
            ends: LinkEnds::default(),
            local: local.unwrap_or(remote),
            mtu: 0,
            uncut: 0,
            is_sure: true,
            until_ms: now_ms + for_ms,
        };
        let leads_to_link = || {
            let next = next_hop(remote, local, self.mark).ok()?;
            let is_it = |link: &LinkQueue| link.link == next.link;
            let mut places = self.places.iter();
            let queue = places.position(|place| place.queue.as_ref().is_some_and(is_it))?;
            Some((next, queue, link_facts(next.link).ok()?))
        };
        let Some((next, queue, facts)) = leads_to_link() else {
            return by_stack(FRESH_MS);
        };
        let neighbour = neighbour(next.link, next.address).ok().flatten();
        let (Some(neighbour), Some(local)) = (neighbour, next.source) else {
            return by_stack(ASKED_MS);
        };
        CachedHop {
            queue: Some(queue),
            ends: LinkEnds {
                from: facts.mac,
                to: neighbour.mac,
            },
            local,
            mtu: facts.mtu,
            // Routers fragment IPv4 packets, but not IPv6 packets (RFC 8200 §5).
            uncut: match remote.is_ipv4() {
                true => facts.mtu,
                false => next.path_mtu.map_or(facts.mtu, |mtu| mtu.min(facts.mtu)),
            },
            is_sure: neighbour.is_sure,
            until_ms: now_ms + FRESH_MS,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use esplanade_host::io::netns::NetworkNamespace;
    use esplanade_host::net::Net;

    /// Makes a namespace with a link of two ends, and opens a queue of each. Returns `None` if that is not permitted.
    fn queues() -> io::Result<[LinkQueue; 2]> {
        NetworkNamespace::create()?.enter()?;
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        let links = runtime.block_on(async {
            let net = Net::connect().unwrap();
            net.link_add_veth("wan", "other").await.unwrap();
            let mut links = [0; 2];
            for (link, name) in links.iter_mut().zip(["wan", "other"]) {
                *link = net.link_index(name).await.unwrap();
                net.link_set_up(*link).await.unwrap();
            }
            links
        });
        let [first, second] = links.map(|link| LinkQueue::open("wan", link, 0, 1500));
        Ok([first?, second?])
    }

    #[test]
    fn a_new_link_has_other_neighbours() {
        let [former, new] = match queues() {
            Ok(queues) => queues,
            Err(error) => return eprintln!("SKIP a_new_link_has_other_neighbours: {error}"),
        };
        let index = new.link;
        let mut links = XdpLinks::new(vec![former], 0);
        let path = ("192.0.2.1".parse().unwrap(), None);
        let hop = links.ask(path, 0);
        links.hops.insert(path, hop);
        links.last = Some((path, hop));
        links.lose("wan");
        assert!(links.descriptor(0).is_none(), "its memory is free");
        let place = links.replace(new);
        assert_eq!((place, links.queue(0).unwrap().link), (Some(0), index));
        assert!(links.hops.is_empty() && links.last.is_none());
    }
}
