//! Three gateways on simulated links under a virtual clock: a branch, a hub, and another peer of the hub. The link of the
//! branch loses, repeats, delays and corrupts, and a NAT may stand on it. The link of the other peer is perfect.

use std::collections::{BTreeSet, VecDeque};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::ops::Range;
use std::time::{Duration, Instant};

use esplanade_ike::status::IkeSaState;
use esplanade_testkit::net::{Conditions, Datagram, Network, Rng};

use crate::bystander::Watch;
use crate::config::{ADDRESSES, BRANCH, BYSTANDERS, CHILDREN, Edit, HUB, OTHER, SITE, Shape};
use crate::forge;
use crate::gateway::{ESP_PORT, Gateway, HostOptions};
use crate::ledger::{Checked, Ledger, esp_of};
use crate::operations::Act;
use crate::seen::Seen;

pub const SECOND: Duration = Duration::from_secs(1);
/// The time that gateways have to mend everything once the link is perfect.
const MENDING: Duration = Duration::from_secs(120);
/// The time for which packets in flight still pass through an SA that has ended.
const LINGERING: Duration = Duration::from_secs(6);
/// The time after which nothing of a connection that was ended is left.
const ENDING: Duration = Duration::from_secs(90);
/// Most IKE SAs and child SAs of a gateway after the storm. Exchanges that cross can make a few of each.
const IKE_SAS_MAX: usize = 4;
const CHILD_SAS_MAX: usize = 12;
/// The delay of packets that overtake each other, their number, and the time between them.
const JITTER: Range<Duration> = Duration::from_millis(1)..Duration::from_millis(60);
const PACKETS: usize = 12;
const SPACING: Duration = Duration::from_millis(15);
/// Most datagrams that can be sent once more.
const RECENT_MAX: usize = 64;
/// Most steps of one run. Gateways that do not come to rest take more.
const STEPS_MAX: usize = 100_000;

/// The state of the branch's NAT: its outside address and ports change when it begins anew.
#[derive(Clone, Copy, Debug)]
struct Nat {
    rebinds: u16,
}

impl Nat {
    fn outside(self, port: u16) -> Option<SocketAddr> {
        let index = match port {
            500 => 0,
            4500 => 1,
            _ => return None,
        };
        let address = Ipv4Addr::new(203, 0, 113, 1 + (self.rebinds / 2) as u8);
        Some((address, 20_000 + 4 * self.rebinds + index).into())
    }

    fn inside(self, outside: SocketAddr) -> Option<SocketAddr> {
        let mut ports = [500, 4500].into_iter();
        let port = ports.find(|port| self.outside(*port) == Some(outside))?;
        Some((ADDRESSES[BRANCH], port).into())
    }
}

pub struct World {
    pub shape: Shape,
    seed: u64,
    rng: Rng,
    start: Instant,
    pub now: Instant,
    /// The gateways that are alive.
    pub gateways: [Option<Gateway>; 3],
    /// How often each gateway has begun.
    lives: [u64; 3],
    revive_at: [Option<Instant>; 3],
    pub edits: [Vec<Edit>; 3],
    /// The times since when the configurations of branch and hub do not protect each child.
    unprotected: [[Option<Instant>; 2]; 2],
    links: [Network; 2],
    cut_until: Instant,
    nat: Option<Nat>,
    pub ledger: Ledger,
    recent: VecDeque<Datagram>,
    closed: BTreeSet<(usize, Option<usize>)>,
    watch: Watch,
    options: (Duration, Option<u16>),
    pub seen: Seen,
}

impl World {
    pub fn new(seed: u64) -> Self {
        let mut rng = Rng::new(seed ^ 0x776f_726c_6400);
        let shape = Shape::draw(&mut rng);
        let rough = |rng: &mut Rng| rng.below(3) as f64 / 2.0;
        let conditions = Conditions {
            loss: 0.25 * rough(&mut rng),
            duplication: 0.15 * rough(&mut rng),
            corruption: 0.1 * rough(&mut rng),
            delay: Duration::from_millis(1)..Duration::from_millis(2 + 400 * rng.below(3)),
        };
        let now = Instant::now();
        let mut world = Self {
            seed,
            start: now,
            now,
            gateways: [None, None, None],
            lives: [0; 3],
            revive_at: [None; 3],
            edits: Default::default(),
            unprotected: Default::default(),
            links: [conditions, Conditions::PERFECT].map(|one| Network::new(one, seed)),
            cut_until: now,
            nat: shape.nat.then_some(Nat { rebinds: 0 }),
            ledger: Ledger::default(),
            recent: VecDeque::new(),
            closed: BTreeSet::new(),
            watch: Watch::new(now),
            options: (
                Duration::from_millis([0, 1, 30][rng.below(3) as usize]),
                rng.chance(0.6).then(|| 1000 + rng.below(300) as u16),
            ),
            shape,
            rng,
            seen: Seen::default(),
        };
        (BRANCH..=OTHER).for_each(|at| world.revive(at));
        world
    }

    /// Runs all operations, and then lets the gateways mend what is broken.
    pub fn run(&mut self, operations: &[(Duration, Act)]) -> Checked {
        self.drain_all()?;
        self.pass(2 * SECOND)?;
        for (wait, act) in operations {
            self.pass(*wait)?;
            self.act(act)?;
        }
        self.mend()?;
        self.end()
    }

    fn act(&mut self, act: &Act) -> Checked {
        let now = self.now;
        match act {
            Act::Initiate { at, child } => {
                self.command(*at, |endpoint| endpoint.initiate(now, SITE, name(*child)))?;
                self.closed.remove(&(*at, *child));
            }
            Act::Terminate { at, child } => {
                self.command(*at, |endpoint| endpoint.terminate(now, SITE, name(*child)))?;
                self.closed.insert((*at, *child));
            }
            Act::Rekey { at, child } => {
                self.command(*at, |endpoint| endpoint.rekey(now, SITE, name(*child)))?;
            }
            Act::Reauthenticate { at } => self.reauthenticate(*at)?,
            Act::Collide { children } => {
                for (at, child) in children.iter().enumerate() {
                    self.command(at, |endpoint| endpoint.rekey(now, SITE, name(*child)))?;
                }
            }
            Act::Reload { at, edits } => self.reload(*at, edits)?,
            Act::Restart { at, down } => {
                self.gateways[*at] = None;
                self.revive_at[*at] = Some(now + *down);
                self.closed.retain(|(of, _)| of != at);
                if *at == HUB {
                    self.watch.reset(now);
                }
            }
            Act::Cut { time } => self.cut_until = now + *time,
            Act::Rebind => {
                if let Some(nat) = &mut self.nat {
                    nat.rebinds += 1;
                }
            }
            Act::Traffic {
                from,
                child,
                packets,
                len,
            } => {
                let flows = (0..*packets).map(|flow| flow % 3);
                self.send(*from, *child, flows, *len)?;
            }
            Act::Repeat { packets, from } => {
                for _ in 0..*packets {
                    let index = self.rng.below(self.recent.len() as u64) as usize;
                    if let Some(datagram) = self.recent.get(index) {
                        self.seen.count("repeated datagram");
                        let mut copy = datagram.clone();
                        if let Some(elsewhere) = *from {
                            copy.from = SocketAddr::new(elsewhere.into(), copy.from.port());
                        }
                        self.links[0].send(now, copy);
                    }
                }
            }
            Act::Forge { by, child } => forge::send(self, *by, *child)?,
        }
        Ok(())
    }

    fn command<T, E>(
        &mut self,
        at: usize,
        command: impl FnOnce(&mut esplanade_ike::Endpoint) -> Result<T, E>,
    ) -> Checked {
        let now = self.now;
        if let Some(gateway) = &mut self.gateways[at] {
            // A command that does not apply is refused.
            let _ = gateway.command(now, command);
        }
        self.drain(at)
    }

    fn reauthenticate(&mut self, at: usize) -> Checked {
        let gateway = self.gateways[at].as_ref();
        let status = gateway.map_or_else(Vec::new, |gateway| gateway.endpoint.status());
        let site = status.iter().find(|sa| {
            sa.connection.as_deref() == Some(SITE) && sa.state == IkeSaState::Established
        });
        let Some(ike_sa) = site.map(|sa| sa.id) else {
            return Ok(());
        };
        let now = self.now;
        self.command(at, |endpoint| endpoint.reauthenticate_ike_sa(now, ike_sa))
    }

    fn reload(&mut self, at: usize, edits: &[Edit]) -> Checked {
        self.edits[at] = edits.to_vec();
        for (child, since) in self.unprotected[at].iter_mut().enumerate() {
            *since = match Shape::protects(child, edits) {
                true => None,
                false => since.or(Some(self.now)),
            };
        }
        if let Some(gateway) = &mut self.gateways[at] {
            gateway.reload(&self.shape.text(at, edits), self.now);
        }
        self.drain(at)
    }

    /// Begins a gateway without any state of its former life.
    fn revive(&mut self, at: usize) {
        self.lives[at] += 1;
        self.revive_at[at] = None;
        let (job_time, path_mtu) = self.options;
        let options = HostOptions {
            address: ADDRESSES[at],
            seed: self.seed << 8 | self.lives[at] << 2 | at as u64,
            job_time,
            // Behind a NAT the branch has another address.
            path_mtu: path_mtu
                .filter(|_| at != OTHER)
                .map(|mtu| (mtu, ADDRESSES[1 - at])),
        };
        let text = self.shape.text(at, &self.edits[at]);
        self.gateways[at] = Some(Gateway::start(&text, options, self.now));
    }

    /// Sends packets of a child from one end to the other. Returns their numbers, or none if there is no gateway.
    fn send(
        &mut self,
        from: usize,
        child: usize,
        flows: impl Iterator<Item = u16>,
        len: usize,
    ) -> Result<Vec<usize>, String> {
        let to = 1 - from;
        let nets = CHILDREN[child].nets;
        let make = |flow| {
            let (source, destination) = ((from, nets[from].1), (to, nets[to].1));
            self.ledger.packet(source, destination, 7000 + flow, len)
        };
        let (numbers, packets): (Vec<_>, Vec<_>) = flows.map(make).unzip();
        if !Shape::protects(child, &self.edits[from]) {
            // A new configuration holds at once.
            numbers
                .iter()
                .for_each(|number| self.ledger.forbid(*number));
        }
        self.read(from, &packets)?;
        Ok(numbers)
    }

    /// Gives a gateway packets of its inner network.
    pub fn read(&mut self, at: usize, packets: &[Vec<u8>]) -> Checked {
        if let Some(gateway) = &mut self.gateways[at] {
            gateway.read(packets, self.now);
        }
        self.drain(at)
    }

    /// Lets time pass.
    pub fn pass(&mut self, time: Duration) -> Checked {
        let until = self.now + time;
        for _ in 0..STEPS_MAX {
            let gateways = self.gateways.iter().flatten().map(Gateway::deadline);
            let arrivals = self.links.iter().filter_map(Network::next_arrival);
            let revivals = self.revive_at.iter().flatten().copied();
            let all = gateways.chain(arrivals).chain(revivals);
            let next = all.fold(self.watch.due(), Instant::min);
            if next > until {
                self.now = until;
                return Ok(());
            }
            self.now = self.now.max(next);
            self.step()?;
        }
        Err("the gateways do not come to rest".to_owned())
    }

    /// Does what is due now.
    fn step(&mut self) -> Checked {
        for at in BRANCH..=OTHER {
            if self.revive_at[at].is_some_and(|due| due <= self.now) {
                self.revive(at);
                self.drain(at)?;
            }
        }
        for link in 0..self.links.len() {
            while let Some(datagram) = self.links[link].arrive(self.now) {
                self.arrive(datagram)?;
            }
        }
        for at in BRANCH..=OTHER {
            if let Some(gateway) = self.gateways[at].as_mut()
                && gateway.deadline() <= self.now
            {
                gateway.tick(self.now);
                self.drain(at)?;
            }
        }
        let mut watch = std::mem::replace(&mut self.watch, Watch::new(self.now));
        let watched = watch.look(self);
        self.watch = watch;
        watched
    }

    fn arrive(&mut self, mut datagram: Datagram) -> Checked {
        let is_outside = |ip: IpAddr| matches!(ip, IpAddr::V4(ip) if ip.octets()[0] == 203);
        if is_outside(datagram.to.ip()) {
            let inside = self.nat.and_then(|nat| nat.inside(datagram.to));
            let Some(inside) = inside else { return Ok(()) };
            datagram.to = inside;
        }
        let to = datagram.to.ip();
        let Some(at) = ADDRESSES.iter().position(|own| *own == to) else {
            return Ok(());
        };
        if let Some(gateway) = &mut self.gateways[at] {
            gateway.receive(&datagram, self.now);
        }
        self.drain(at)
    }

    fn drain_all(&mut self) -> Checked {
        (BRANCH..=OTHER).try_for_each(|at| self.drain(at))
    }

    /// Takes what a gateway has sent and delivered, and checks it.
    fn drain(&mut self, at: usize) -> Checked {
        let Some(gateway) = &mut self.gateways[at] else {
            return Ok(());
        };
        let output = gateway.take_output();
        for packet in output.written {
            self.ledger.deliver(at, &packet)?;
            let of = |child: &usize| at != OTHER && packet[16..20] == CHILDREN[*child].nets[at].1;
            let is_of_branch = packet[12] == 10 && packet[13] != BYSTANDERS[1][1];
            let child = (0..CHILDREN.len()).find(of).filter(|_| is_of_branch);
            // An SA whose negotiation was under way ends when it has come up.
            let ended = child.and_then(|child| gateway.ended.get(CHILDREN[child].name).copied());
            if let Some(since) = child.and_then(|child| self.unprotected[at][child])
                && self.now > ended.map_or(since, |ended| ended.max(since)) + LINGERING
            {
                return Err(format!(
                    "gateway {at} delivered a packet of a child that its configuration does not protect: {packet:02x?}"
                ));
            }
        }
        let passes = self.edits[at].contains(&Edit::PassTwo);
        let nets = CHILDREN[1].nets;
        for packet in output.bypassed {
            let is_of_two = at != OTHER && packet[12..16] == nets[at].1;
            self.seen.count("packet that may be clear");
            if !(passes && is_of_two) {
                return Err(format!(
                    "gateway {at} let a packet out in the clear: {packet:02x?}"
                ));
            }
        }
        for datagram in output.sent {
            self.ledger.send((at, self.lives[at]), &datagram)?;
            self.transmit(at, datagram);
        }
        Ok(())
    }

    /// Puts a datagram of a gateway on its link.
    pub fn transmit(&mut self, at: usize, mut datagram: Datagram) {
        if at == OTHER || datagram.to.ip() == ADDRESSES[OTHER] {
            return self.links[1].send(self.now, datagram);
        }
        if let Some(nat) = self.nat.filter(|_| at == BRANCH) {
            let Some(outside) = nat.outside(datagram.from.port()) else {
                return;
            };
            datagram.from = outside;
        }
        if esp_of(&datagram).is_some() || datagram.to.port() == ESP_PORT {
            self.recent.truncate(RECENT_MAX - 1);
            self.recent.push_front(datagram.clone());
        }
        if self.now >= self.cut_until {
            self.links[0].send(self.now, datagram);
        }
    }

    /// Ends all faults, takes all changes back, and checks that everything comes up that is wanted.
    fn mend(&mut self) -> Checked {
        self.cut_until = self.now;
        self.links[0].conditions = Conditions::PERFECT;
        for at in BRANCH..=HUB {
            if self.revive_at[at].is_some() {
                self.reload(at, &[])?;
                self.revive(at);
                self.drain(at)?;
            }
            if !self.edits[at].is_empty() {
                self.reload(at, &[])?;
            }
        }
        let now = self.now;
        for (at, child) in std::mem::take(&mut self.closed) {
            self.command(at, |endpoint| endpoint.initiate(now, SITE, name(child)))?;
        }
        let until = self.now + MENDING;
        while self.now < until {
            self.send_everywhere()?;
            self.pass(2 * SECOND)?;
        }
        let mut sent = self.send_everywhere()?;
        self.pass(2 * SECOND)?;
        sent.extend(self.rekey_under_traffic()?);
        self.check_sizes()?;
        let lost = sent.iter().find(|one| !self.ledger.is_delivered(**one));
        if let Some(lost) = lost {
            let lost = self.ledger.describe(*lost);
            return Err(format!(
                "not all that is wanted has come up: {lost} was lost\n{}",
                self.status()
            ));
        }
        self.watch.is_steady()
    }

    /// Checks that storms leave no heaps of SAs.
    fn check_sizes(&mut self) -> Checked {
        for (at, gateway) in self.gateways.iter().enumerate() {
            let Some(gateway) = gateway else { continue };
            self.seen.add(&gateway.seen);
            let status = gateway.endpoint.status();
            let children: usize = status.iter().map(|sa| sa.children.len()).sum();
            let inbound = gateway.database.sad().all().len();
            let rekeyed = status.iter().filter(|sa| sa.state == IkeSaState::Rekeyed);
            let rekeyed = rekeyed.count();
            let current = status.len() - rekeyed;
            let counts = [
                current,
                rekeyed,
                gateway.endpoint.half_open(),
                children,
                inbound,
            ];
            // A peer may still repeat a request to an SA that another has replaced.
            let most = [
                IKE_SAS_MAX,
                IKE_SAS_MAX,
                0,
                CHILD_SAS_MAX,
                2 * CHILD_SAS_MAX,
            ];
            for (what, count) in ["IKE SAs", "child SAs"]
                .iter()
                .zip([status.len(), children])
            {
                self.seen.most(what, count as u64);
            }
            if counts.iter().zip(most).any(|(count, most)| *count > most) {
                return Err(format!(
                    "gateway {at} has too much after the storm: {counts:?}\n{}",
                    self.status()
                ));
            }
        }
        Ok(())
    }

    /// Rekeys SAs while packets overtake each other and none is lost on the link. Returns the packets.
    fn rekey_under_traffic(&mut self) -> Result<Vec<usize>, String> {
        self.links[0].conditions.delay = JITTER;
        let mut sent = Vec::new();
        for ends in [BRANCH..HUB, BRANCH..OTHER] {
            let now = self.now;
            for at in ends {
                let child = [None, Some(0), Some(1)][self.rng.below(3) as usize];
                self.command(at, |endpoint| endpoint.rekey(now, SITE, name(child)))?;
            }
            for _ in 0..PACKETS {
                sent.extend(self.send_everywhere()?);
                self.pass(SPACING)?;
            }
        }
        self.pass(2 * SECOND)?;
        self.reauthenticate(BRANCH)?;
        for _ in 0..PACKETS {
            sent.extend(self.send_everywhere()?);
            self.pass(SPACING)?;
        }
        self.links[0].conditions = Conditions::PERFECT;
        self.pass(2 * SECOND)?;
        Ok(sent)
    }

    /// Sends a packet of each child in each direction.
    fn send_everywhere(&mut self) -> Result<Vec<usize>, String> {
        let mut sent = Vec::new();
        for from in BRANCH..=HUB {
            for child in 0..CHILDREN.len() {
                sent.extend(self.send(from, child, 0..1, 100)?);
            }
        }
        Ok(sent)
    }

    /// Ends all connections, and checks that nothing of them is left.
    fn end(&mut self) -> Checked {
        self.watch.stop();
        let now = self.now;
        for at in BRANCH..=OTHER {
            self.command(at, |endpoint| Ok::<_, ()>(endpoint.terminate_all(now)))?;
        }
        self.pass(ENDING)?;
        for (at, gateway) in self.gateways.iter().enumerate() {
            let Some(gateway) = gateway else {
                return Err(format!("gateway {at} is not alive"));
            };
            let left = [
                ("IKE SAs", gateway.endpoint.status().len()),
                ("half-open IKE SAs", gateway.endpoint.half_open()),
                ("inbound SAs", gateway.database.sad().all().len()),
                ("policies of peers", gateway.join.peer_policies().len()),
                (
                    "lingering SPIs",
                    usize::from(gateway.join.next_drained().is_some()),
                ),
            ];
            let [entries, expected] = gateway.entries();
            if entries != expected {
                return Err(format!(
                    "gateway {at} has other policies than its configuration: {entries:?} instead of {expected:?}"
                ));
            }
            for (what, count) in left {
                if count > 0 {
                    return Err(format!(
                        "gateway {at} still has {what} ({count})\n{}",
                        self.status()
                    ));
                }
            }
        }
        Ok(())
    }

    /// Describes the IKE SAs of all gateways.
    fn status(&self) -> String {
        let mut text = format!("after {:?}: {:?}\n", self.now - self.start, self.shape);
        for (at, gateway) in self.gateways.iter().enumerate() {
            for sa in gateway.iter().flat_map(|gateway| gateway.endpoint.status()) {
                let children = sa.children.iter();
                let children: Vec<_> = children
                    .map(|child| (&child.name, child.state, format!("{:08x}", child.spi_in)))
                    .collect();
                let (connection, state, task) = (sa.connection, sa.state, sa.task_active);
                text += &format!("gateway {at}: {connection:?} {state:?} {task:?} {children:?}\n");
            }
            for child in gateway
                .iter()
                .flat_map(|gateway| gateway.endpoint.configured())
            {
                text += &format!("gateway {at}: {child:?}\n");
            }
        }
        text
    }
}

fn name(child: Option<usize>) -> Option<&'static str> {
    child.map(|child| CHILDREN[child].name)
}
