//! One scenario: two ends, their policies and SAs, and what happens to them and their packets.

use std::net::{IpAddr, SocketAddr};

use esplanade_crypto::{Protocol, Transform};
use esplanade_testkit::model;

use super::choices::Choices;
use super::cipher::Keyed;
use super::pair::{Agreed, InFlight, Receiver, Sender, TFC_MAX, header_len, other_address};
use super::traffic;

const STEPS_MAX: usize = 60;
const BURST_MAX: usize = 8;
/// Packets on their way; the oldest get lost.
const IN_FLIGHT_MAX: usize = 64;

/// What happened, so that a test can see that everything does.
#[derive(Debug, Default)]
pub struct Tally {
    pub sealed: usize,
    pub delivered: usize,
    pub bypassed: u64,
    pub rekeys: usize,
    /// By drop reason, both directions.
    pub drops: std::collections::BTreeMap<model::Reason, u64>,
}

impl Tally {
    pub fn add(&mut self, other: &Self) {
        self.sealed += other.sealed;
        self.delivered += other.delivered;
        self.bypassed += other.bypassed;
        self.rekeys += other.rekeys;
        for (reason, packets) in &other.drops {
            *self.drops.entry(reason).or_default() += packets;
        }
    }

    /// A run that never gets anywhere proves nothing.
    pub fn assert_everything_happened(&self) {
        assert!(self.delivered * 4 > self.sealed, "most packets get lost");
        assert!(self.bypassed > 0 && self.rekeys > 0);
        for reason in [
            "malformed-inner",
            "policy-discard",
            "no-policy",
            "no-sa",
            "outside-sa-selectors",
            "sequence-exhausted",
            "lifetime-expired",
            "malformed-esp",
            "unknown-spi",
            "replayed",
            "before-window",
            "authentication-failed",
            "selector-mismatch",
            "unknown-fragment",
            "fragment-refused",
            "malformed-icmp-error",
            "icmp-error-mismatch",
            "ecn-not-capable",
        ] {
            assert!(self.drops.contains_key(reason), "{reason} never happened");
        }
    }
}

struct World<'a, 'b> {
    choices: &'a mut Choices<'b>,
    sender: Sender,
    receiver: Receiver,
    network: Vec<InFlight>,
    /// What was received already, for replays.
    history: Vec<InFlight>,
    agreed: Vec<Agreed>,
    /// Bursts are of one packet; there are limits that stop an SA, which a longer burst could overshoot.
    strict: bool,
    serial: u32,
    tally: Tally,
}

pub fn run(choices: &mut Choices<'_>) -> Tally {
    let strict = choices.once_in(3);
    let mut world = World {
        choices,
        sender: Sender::new(),
        receiver: Receiver::new(),
        network: Vec::new(),
        history: Vec::new(),
        agreed: Vec::new(),
        strict,
        serial: 0,
        tally: Tally::default(),
    };
    world.publish();
    for _ in 0..4 {
        world.rekey();
    }
    for _ in 0..STEPS_MAX {
        if world.choices.ended() {
            break;
        }
        world.step();
    }
    let World {
        mut tally,
        sender,
        receiver,
        ..
    } = world;
    tally.bypassed = sender.model.outbound_counters.packets_bypassed;
    for counters in [
        &sender.model.outbound_counters,
        &receiver.model.inbound_counters,
    ] {
        for (reason, packets) in &counters.drops {
            *tally.drops.entry(reason).or_default() += packets;
        }
    }
    tally
}

impl World<'_, '_> {
    fn step(&mut self) {
        match self.choices.below(24) {
            0 => self.publish(),
            1 | 2 => self.rekey(),
            3 => self.forget(),
            4..14 => self.send(),
            _ => self.receive(),
        }
    }

    fn publish(&mut self) {
        let mut entries = Vec::new();
        for number in 0..1 + self.choices.below(5) as u32 {
            let selectors = 1 + self.choices.below(2);
            let selectors = (0..selectors)
                .map(|_| traffic::selector(self.choices))
                .collect();
            let action = match self.choices.below(5) {
                0 => model::EntryAction::Bypass,
                1 => model::EntryAction::Discard,
                _ => model::EntryAction::Protect(number),
            };
            entries.push(model::Entry { selectors, action });
        }
        if self.choices.below(4) != 0 {
            // Everything else goes through a tunnel, as in most gateways.
            let selectors = [true, false].map(traffic::everything).to_vec();
            let action = model::EntryAction::Protect(99);
            entries.push(model::Entry { selectors, action });
        }
        self.sender.publish(entries);
    }

    /// A new SA, or one in place of another.
    fn rekey(&mut self) {
        let Some(agreed) = self.agree() else { return };
        let mut options = agreed.options.clone();
        options.selectors = options.selectors.iter().map(traffic::turned).collect();
        (options.path.local, options.path.remote) = (options.path.remote, options.path.local);
        if self.choices.once_in(5) {
            // The ends do not agree.
            options.selectors.truncate(1);
        }
        if self.receiver.install(&agreed, options) {
            self.sender.install(&agreed);
            self.agreed.push(agreed);
            self.tally.rekeys += 1;
        }
    }

    fn agree(&mut self) -> Option<Agreed> {
        let protects =
            |entry: &&model::Entry| matches!(entry.action, model::EntryAction::Protect(_));
        let entries: Vec<_> = self.sender.model.policies.iter().filter(protects).collect();
        if entries.is_empty() {
            return None;
        }
        // The last is the one for everything else.
        let index = self.choices.below(entries.len() + 2);
        let entry = entries[index.min(entries.len() - 1)];
        let model::EntryAction::Protect(policy) = entry.action else {
            return None;
        };
        let mut selectors = entry.selectors.clone();
        if self.choices.once_in(4) {
            // Narrowed by the peer.
            selectors.truncate(1);
            selectors[0].remote.0 = traffic::gateway(selectors[0].remote.0.is_ipv4(), 1);
            selectors[0].remote.1 = selectors[0].remote.0;
        }
        let transforms: Vec<Transform> = transforms();
        let transform = self.choices.of(&transforms);
        let esn = self.choices.below(2) == 0;
        let key = self.choices.bytes(8).repeat(16);
        let mut key = key[..transform.key_material_len()].to_vec();
        // Different key parts, and not a weak key.
        for (index, byte) in key.iter_mut().enumerate() {
            *byte = byte.wrapping_add((index as u8).wrapping_mul(29));
        }
        let cipher = Keyed::new(transform, esn, &key)?;
        let mut options = self.options(selectors, esn);
        if transform.protocol() == Protocol::Ah {
            options.path.udp = false;
        }
        if transform.protocol() == Protocol::Ah || options.mode == model::Mode::Transport {
            // What follows the payload would become part of it (RFC 4303 §2.7).
            options.tfc = 0;
        }
        Some(Agreed {
            policy,
            transform,
            key,
            cipher,
            options,
            first_sequence: self.first_sequence(esn),
            ahead: self.choices.of(&[0, 0, 0, 0, 40]),
            replay_window: self.replay_window(esn),
        })
    }

    fn options(&mut self, selectors: Vec<model::Selector>, esn: bool) -> model::SaOptions {
        let choices = &mut *self.choices;
        // Numbers are not used twice, but slots of the SAD are.
        self.serial += 1;
        let spi = self.serial << 20 | choices.below(60) as u32;
        let mode = choices.of(&[
            model::Mode::Tunnel,
            model::Mode::Tunnel,
            model::Mode::Transport,
        ]);
        model::SaOptions {
            spi,
            esn,
            mode,
            selectors,
            dscps: choices.of(&[u64::MAX, u64::MAX, 1, 1 << 46]),
            path: path(choices, mode),
            outer_dscp: choices.of::<Option<fn(u8) -> u8>>(&[
                None,
                None,
                Some(|_| 10),
                Some(|inner| inner ^ 5),
            ]),
            outer_ecn_clear: choices.of(&[false, false, true]),
            inner_dscp: choices.of(&[false, false, true]),
            outer_df: choices.of(&[None, None, Some(true), Some(false)]),
            tfc: choices.of(&[0, 0, 0, TFC_MAX]),
            limits: limits(choices, self.strict),
            non_first_fragments: choices.below(2) == 0,
            icmp_errors: choices.of(&[
                model::IcmpErrors::Quoted,
                model::IcmpErrors::Quoted,
                model::IcmpErrors::Header,
                model::IcmpErrors::Strict,
            ]),
        }
    }

    /// A burst counts as received at one time, so a small window may take a packet that it would have passed by one by
    /// one. Where bursts are longer, windows are too.
    fn replay_window(&mut self, esn: bool) -> u32 {
        match (self.strict, esn) {
            (true, _) => self.choices.of(&[32, 64, 100, 0]),
            // Without a window ESN has a small one.
            (false, true) => self.choices.of(&[1024, 65_536]),
            (false, false) => self.choices.of(&[1024, 0]),
        }
    }

    fn first_sequence(&mut self, esn: bool) -> u64 {
        let last_of_32_bits = u64::from(u32::MAX);
        match (esn, self.choices.below(4), self.strict) {
            (false, 3, true) => last_of_32_bits - self.choices.below(6) as u64,
            (true, 3, true) => u64::MAX - 1 - self.choices.below(6) as u64,
            (true, 2, _) => last_of_32_bits - self.choices.below(40) as u64,
            (true, 1, _) => last_of_32_bits * 5 - self.choices.below(40) as u64,
            (_, 0, _) => 100_000,
            _ => 1,
        }
    }

    /// An SA goes, at one end first or at both.
    fn forget(&mut self) {
        if self.agreed.is_empty() {
            return;
        }
        let index = self.choices.below(self.agreed.len());
        let (policy, spi) = (self.agreed[index].policy, self.agreed[index].options.spi);
        if self.choices.below(2) == 0 {
            self.sender.remove(policy, spi);
        }
        if self.choices.below(2) == 0 && self.receiver.model.inbound.contains_key(&spi) {
            self.receiver.remove(spi);
            self.agreed.swap_remove(index);
        }
    }

    fn send(&mut self) {
        let most = if self.strict { 1 } else { BURST_MAX };
        let burst = 1 + self.choices.below(most);
        let burst: Vec<_> = (0..burst).map(|_| traffic::packet(self.choices)).collect();
        let in_place = self.choices.below(2) == 0;
        for frame in self.sender.send(&burst, in_place) {
            self.tally.sealed += 1;
            let from = self.from(&frame);
            self.network.push((frame, from));
        }
        let surplus = self.network.len().saturating_sub(IN_FLIGHT_MAX);
        self.network.drain(..surplus);
    }

    fn from(&mut self, frame: &[u8]) -> SocketAddr {
        let ip = model::Ip::parse(frame).expect("the model writes IP packets");
        let udp = ip.protocol == 17;
        let from = SocketAddr::new(ip.source, if udp { 4500 } else { 0 });
        match udp && self.choices.once_in(15) {
            true => other_address(from),
            false => from,
        }
    }

    /// Receives some of what is on its way: copied, lost, out of order, changed.
    fn receive(&mut self) {
        let mut burst = Vec::new();
        let most = if self.strict { 1 } else { BURST_MAX };
        for _ in 0..1 + self.choices.below(most) {
            if self.network.is_empty() {
                break;
            }
            // Mostly in order.
            let index = match self.choices.below(4) {
                0 => self.choices.below(self.network.len()),
                _ => 0,
            };
            let packet = self.network.remove(index);
            match self.choices.below(24) {
                0 => continue,
                1 => burst.push(packet.clone()),
                2 => self.network.push(packet.clone()),
                3 | 4 => burst.extend(self.forge(&packet)),
                _ => {}
            }
            self.history.push(packet.clone());
            burst.push(packet);
        }
        if self.choices.once_in(6) && !self.history.is_empty() {
            let index = self.choices.below(self.history.len());
            burst.push(self.history[index].clone());
        }
        let most = if self.strict { 1 } else { burst.len().max(1) };
        for burst in burst.chunks(most) {
            self.tally.delivered += self.receiver.receive(burst);
        }
    }

    /// Changes a packet; none if it would not be taken for ESP.
    fn forge(&mut self, (frame, from): &InFlight) -> Option<InFlight> {
        let mut frame = frame.clone();
        let v4 = frame[0] >> 4 == 4;
        let esp = header_len(&frame);
        match self.choices.below(6) {
            // The path marks congestion.
            0 => {
                let tos = if v4 {
                    frame[1]
                } else {
                    frame[0] << 4 | frame[1] >> 4
                };
                model::set_tos(&mut frame, tos | 3);
            }
            1 => {
                let len = esp + 4 + self.choices.below(frame.len() - esp - 4);
                frame.truncate(len);
                model::complete(&mut frame);
            }
            2 => {
                frame.extend([0; 4]);
                model::complete(&mut frame);
            }
            3 => frame[esp + 3] ^= 1 << self.choices.below(8),
            _ => {
                let at = esp + self.choices.below(frame.len() - esp);
                frame[at] ^= 1 << self.choices.below(8);
            }
        }
        let marker = frame[esp..esp + 4] == [0; 4];
        (!marker).then_some((frame, *from))
    }
}

fn transforms() -> Vec<Transform> {
    Transform::all().collect()
}

fn path(choices: &mut Choices<'_>, mode: model::Mode) -> model::Path {
    let v4 = choices.below(3) != 0;
    let (local, remote): (IpAddr, IpAddr) = match (mode, v4) {
        (model::Mode::Transport, v4) => (traffic::gateway(v4, 0), traffic::gateway(v4, 1)),
        (_, true) => ([192, 0, 2, 1].into(), [198, 51, 100, 2].into()),
        (_, false) => ([0xfd; 16].into(), [0xfe; 16].into()),
    };
    model::Path {
        local: SocketAddr::new(local, 4500),
        remote: SocketAddr::new(remote, 4500),
        udp: choices.below(2) == 0,
    }
}

fn limits(choices: &mut Choices<'_>, strict: bool) -> model::Limits {
    let some = |choices: &mut Choices<'_>, limit: u64| choices.once_in(4).then_some(limit);
    let hard = strict;
    model::Limits {
        packets_soft: some(choices, 6),
        packets_hard: some(choices, 11).filter(|_| hard),
        bytes_soft: some(choices, 700),
        bytes_hard: some(choices, 1500).filter(|_| hard),
    }
}
