//! IKE messages in fragments (RFC 7383): agreed upon, cut, put together, lost, forged and repeated.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use crate::common::script::Script;
use crate::common::*;
use esplanade_crypto::iana::{Encryption, Integrity};
use esplanade_ike::config::{AddressMatch, Fragmentation, IkeProposal, Selector};
use esplanade_ike::failure::{RequestFault, UnusableResponse};
use esplanade_ike::wire::{
    ExchangeType, FragmentPlace, HEADER_LEN, Header, Message, Notify, NotifyType, Payload,
    PayloadType, fragment_place,
};
use esplanade_ike::{Config, DownReason, Event, Refusal, Transmit};
use esplanade_testkit::net::{Conditions, Network};

/// The pair's own network delivers nothing: [`Road`] does.
const LOST: Conditions = Conditions {
    loss: 1.0,
    ..Conditions::PERFECT
};
const SECOND: Duration = Duration::from_secs(1);

/// The fragments of the large messages, for the usual size and for the smallest.
const TOTAL: u16 = 4;
const SMALL_TOTAL: u16 = 9;

/// Two ends whose IKE_AUTH and CREATE_CHILD_SA messages have about 4 KiB.
fn large(change: impl FnOnce(&mut Config, &mut Config)) -> Road {
    let (mut a, mut b) = default_configs();
    let net = |n| subnet(&format!("10.1.{n}.0-10.1.{n}.127"));
    let nets: Vec<Selector> = (0..=254).map(net).collect();
    change_children(&mut a, |child| child.local_ts.clone_from(&nets));
    change_children(&mut b, |child| child.remote_ts.clone_from(&nets));
    let (mut a, mut b) = (config(a), config(b));
    change(&mut a, &mut b);
    Road::between(Pair::new(a, b, LOST, 1))
}

/// A datagram on its way.
struct Seen {
    from_a: bool,
    place: Option<FragmentPlace>,
    header: Header,
    bytes: Vec<u8>,
}

impl Seen {
    fn is(&self, exchange: ExchangeType, response: bool) -> bool {
        self.header.exchange == exchange && self.header.response == response
    }

    fn number(&self) -> u16 {
        self.place.map_or(0, |place| place.number)
    }
}

/// Carries datagrams between the two ends of a pair. The test decides on each one.
struct Road {
    pair: Pair,
    /// The number of each end's datagrams that were carried.
    taken: [usize; 2],
}

fn seen(from_a: bool, transmit: &Transmit) -> Seen {
    let bytes = transmit.payload.clone();
    let marker = if transmit.local.port() == 4500 { 4 } else { 0 };
    Seen {
        from_a,
        place: fragment_place(&bytes[marker..]),
        header: Header::decode(&bytes[marker..]).unwrap(),
        bytes,
    }
}

impl Road {
    fn between(pair: Pair) -> Self {
        Self {
            pair,
            taken: [0; 2],
        }
    }

    /// Runs for a time. `road` returns the datagrams that arrive in place of one that was sent.
    fn run(&mut self, time: Duration, mut road: impl FnMut(&Seen) -> Vec<Vec<u8>>) {
        let until = self.pair.now + time;
        self.pair.flush();
        loop {
            let mut moved = false;
            for from_a in [true, false] {
                let taken = &mut self.taken[usize::from(from_a)];
                let sent = match from_a {
                    true => &self.pair.a.sent,
                    false => &self.pair.b.sent,
                };
                let new = sent[*taken..].to_vec();
                *taken = sent.len();
                for transmit in new {
                    moved = true;
                    for bytes in road(&seen(from_a, &transmit)) {
                        self.deliver(from_a, &transmit, &bytes);
                    }
                }
            }
            if !moved && !self.pair.step(until) {
                break;
            }
        }
        self.pair.now = until;
    }

    fn deliver(&mut self, from_a: bool, transmit: &Transmit, bytes: &[u8]) {
        let side = match from_a {
            true => &mut self.pair.b,
            false => &mut self.pair.a,
        };
        let (to, from) = (transmit.remote, transmit.local);
        side.endpoint
            .handle_datagram(self.pair.now, to, from, bytes);
        self.pair.flush();
    }

    /// Runs on a road that loses nothing.
    fn run_freely(&mut self, time: Duration) {
        self.run(time, |datagram| vec![datagram.bytes.clone()]);
    }

    fn initiate(&mut self) {
        let now = self.pair.now;
        self.pair.a.endpoint.initiate(now, "site", None).unwrap();
    }

    /// Establishes an IKE SA on a road of the test's.
    fn establish(&mut self, time: Duration, road: impl FnMut(&Seen) -> Vec<Vec<u8>>) {
        self.initiate();
        self.run(time, road);
        self.pair.assert_agreed(1, 1);
    }

    /// All that was sent.
    fn all(&self) -> Vec<Seen> {
        let of = |from_a| move |transmit: &Transmit| seen(from_a, transmit);
        let a = self.pair.a.sent.iter().map(of(true));
        a.chain(self.pair.b.sent.iter().map(of(false))).collect()
    }

    fn fragments(&self) -> usize {
        self.all().iter().filter(|one| one.place.is_some()).count()
    }
}

fn set(config: &mut Config, fragmentation: Fragmentation) {
    change_connection(config, |connection| {
        connection.fragmentation = fragmentation
    });
}

fn cbc() -> IkeProposal {
    IkeProposal {
        encryption: vec![(Encryption::AesCbc, 256)],
        integrity: vec![Integrity::HmacSha2_256_128],
        ..ike_proposal()
    }
}

/// Checks that each datagram was sealed with an IV of its own.
fn assert_fresh_ivs(all: &[Seen], iv_len: usize) {
    for from_a in [true, false] {
        let sent = all.iter().filter(|one| one.from_a == from_a);
        let sealed = sent.filter(|one| one.header.exchange != ExchangeType::IKE_SA_INIT);
        // Copies are the same bytes.
        let different: BTreeSet<_> = sealed
            .map(|one| (one.place.is_some(), one.bytes.clone()))
            .collect();
        let iv = |(fragment, bytes): &(bool, Vec<u8>)| {
            let at = HEADER_LEN + 4 + if *fragment { 4 } else { 0 };
            bytes[at..at + iv_len].to_vec()
        };
        let ivs: BTreeSet<_> = different.iter().map(iv).collect();
        assert_eq!(ivs.len(), different.len());
    }
}

// RFC 7383 R1, R3, R4, R5, R6, R7, R8, R9, R10, R11
#[test]
fn what_is_larger_than_the_size_goes_in_fragments() {
    for (proposal, iv_len) in [(ike_proposal(), 8), (cbc(), 16)] {
        let mut road = large(|a, b| {
            for side in [a, b] {
                change_connection(side, |one| one.proposals = vec![proposal.clone()]);
            }
        });
        road.establish(SECOND, |datagram| vec![datagram.bytes.clone()]);
        let now = road.pair.now;
        road.pair
            .a
            .endpoint
            .rekey(now, "site", Some("net"))
            .unwrap();
        road.run_freely(SECOND);
        road.pair.assert_agreed(1, 1);

        let all = road.all();
        for one in &all {
            let fits = one.bytes.len() <= 1280 - IPV4_AND_UDP;
            assert!(fits, "{} bytes", one.bytes.len());
            let large = [ExchangeType::IKE_AUTH, ExchangeType::CREATE_CHILD_SA];
            let cut = large.contains(&one.header.exchange);
            assert_eq!(one.place.is_some(), cut, "{:?}", one.header);
            if let Some(place) = one.place {
                assert_eq!(place.total, TOTAL, "{place:?}");
                let full = one.bytes.len() > 1280 - IPV4_AND_UDP - 16;
                assert_eq!(full, place.number < TOTAL, "only the last one is short");
                let inner = one.bytes[HEADER_LEN];
                assert_eq!(inner == 0, place.number > 1, "the first payload's type");
            }
        }
        assert_eq!(road.fragments(), 4 * usize::from(TOTAL));
        assert_fresh_ivs(&all, iv_len);
        for side in [&road.pair.a, &road.pair.b] {
            assert!(side.endpoint.status()[0].fragmentation);
            let counters = side.endpoint.counters();
            assert_eq!(counters.fragments_sent, 2 * u64::from(TOTAL));
            assert_eq!(counters.fragments_received, 2 * u64::from(TOTAL));
            assert_eq!(counters.messages_reassembled, 2);
        }
    }
}

// RFC 7383 R12
#[test]
fn the_size_counts_ipv6_headers_and_the_non_esp_marker() {
    let (a6, b6) = ("2001:db8::a", "2001:db8::b");
    let mut road = large(|a, b| {
        for (side, local, remote) in [(a, a6, b6), (b, b6, a6)] {
            change_connection(side, |one| {
                one.encap = true;
                one.local_addrs = vec![AddressMatch::Host(local.parse().unwrap())];
                one.remote_addrs = vec![AddressMatch::Host(remote.parse().unwrap())];
            });
        }
    });
    for (side, address) in [(&mut road.pair.a, a6), (&mut road.pair.b, b6)] {
        side.address = address.parse().unwrap();
        *side.routes.0.lock().unwrap() = Some(side.address);
    }
    road.establish(SECOND, |datagram| vec![datagram.bytes.clone()]);
    let longest = road.all().iter().map(|one| one.bytes.len()).max();
    assert_eq!(longest, Some(1280 - 48));
    assert_eq!(road.pair.a.sent.last().unwrap().local.port(), 4500);
}

// RFC 7383 R2
#[test]
fn no_end_sends_fragments_that_the_other_did_not_announce() {
    use Fragmentation::{Accept, No, Yes};
    // The settings of A and B, and the ends that send fragments.
    let cases = [
        (Yes, No, [false, false]),
        (No, Yes, [false, false]),
        (Accept, Yes, [false, true]),
        (Yes, Accept, [true, false]),
        (Accept, Accept, [false, false]),
        (Accept, No, [false, false]),
    ];
    for (of_a, of_b, sends) in cases {
        let mut road = large(|a, b| {
            set(a, of_a);
            set(b, of_b);
        });
        road.establish(SECOND, |datagram| vec![datagram.bytes.clone()]);
        let case = format!("{of_a:?} and {of_b:?}");
        for from_a in [true, false] {
            let all = road.all();
            let mut sent = all.iter().filter(|one| one.from_a == from_a);
            let cut = sent.any(|one| one.place.is_some());
            assert_eq!(cut, sends[usize::from(!from_a)], "{case}");
        }
        let agreed = road.pair.a.endpoint.status()[0].fragmentation;
        assert_eq!(agreed, of_a != No && of_b != No, "{case}");
        assert_eq!(road.pair.b.endpoint.status()[0].fragmentation, agreed);
    }
}

/// Adds a notify to an unprotected message.
fn with_notify(bytes: &[u8], kind: NotifyType) -> Vec<u8> {
    let mut message = Message::decode(bytes).unwrap();
    message
        .payloads
        .push(Payload::Notify(Notify::new(kind, vec![])));
    message.encode().unwrap()
}

#[test]
fn an_agreement_that_nobody_asked_for_is_ignored() {
    let mut road = large(|a, _| set(a, Fragmentation::No));
    road.initiate();
    road.run(SECOND, |datagram| {
        let init = datagram.is(ExchangeType::IKE_SA_INIT, true);
        let announced = NotifyType::IKEV2_FRAGMENTATION_SUPPORTED;
        let asked = Message::decode(&datagram.bytes).unwrap();
        assert!(asked.notification(announced).is_none());
        match init {
            true => vec![with_notify(&datagram.bytes, announced)],
            false => vec![datagram.bytes.clone()],
        }
    });
    assert_eq!(road.fragments(), 0);
}

// RFC 7383 R24
#[test]
fn a_lost_fragment_is_made_good_by_the_retransmission() {
    for response in [false, true] {
        for lost in [1, 2, TOTAL] {
            let mut road = large(|_, _| {});
            let mut left = 1;
            road.establish(20 * SECOND, |datagram| {
                let here = datagram.is(ExchangeType::IKE_AUTH, response);
                if here && datagram.number() == lost && left > 0 {
                    left -= 1;
                    return vec![];
                }
                vec![datagram.bytes.clone()]
            });
            let all = road.all();
            let requests = all
                .iter()
                .filter(|one| one.is(ExchangeType::IKE_AUTH, false));
            let requests: Vec<_> = requests.map(|one| &one.bytes).collect();
            let count = usize::from(TOTAL);
            assert_eq!(requests.len(), 2 * count, "all fragments are sent twice");
            assert_eq!(requests[..count], requests[count..], "and unchanged");
            let responses = all
                .iter()
                .filter(|one| one.is(ExchangeType::IKE_AUTH, true));
            let responses: Vec<_> = responses.map(|one| &one.bytes).collect();
            assert_eq!(responses.len(), if response { 2 * count } else { count });
            assert_eq!(responses[..count], responses[responses.len() - count..]);
            assert_eq!(road.pair.a.endpoint.counters().retransmissions_sent, 1);
        }
    }
}

// RFC 7383 R17, R18, R29
#[test]
fn order_copies_and_mixed_retransmissions_do_not_matter() {
    // The first time the odd ones arrive, the second time the others, last one first. All arrive twice.
    let mut road = large(|_, _| {});
    let mut waiting = Vec::new();
    let mut passed = 0;
    road.establish(20 * SECOND, |datagram| {
        if !datagram.is(ExchangeType::IKE_AUTH, false) {
            return vec![datagram.bytes.clone()];
        }
        passed += 1;
        waiting.insert(0, datagram.bytes.clone());
        waiting.insert(0, datagram.bytes.clone());
        if passed % TOTAL != 0 {
            return vec![];
        }
        let parity = usize::from(passed > TOTAL);
        let all = std::mem::take(&mut waiting);
        let arrives = |(index, _): &(usize, _)| index / 2 % 2 == parity;
        let arrived = all.into_iter().enumerate().filter(arrives);
        arrived.map(|(_, bytes)| bytes).collect()
    });
    let b = &road.pair.b;
    assert_eq!(b.endpoint.counters().fragments_received, u64::from(TOTAL));
    // The last one to come is the first fragment. Its copy is a copy of the request.
    assert_eq!(b.refused(Refusal::FragmentDuplicate), u64::from(TOTAL - 1));
    assert_eq!(b.refused(Refusal::Retransmission), 1);
    assert_eq!(b.endpoint.counters().ike_sas_established, 1);
}

// RFC 7383 R19, R20
#[test]
fn a_forged_fragment_neither_evicts_nor_completes() {
    let mut road = large(|_, _| {});
    road.establish(SECOND, |datagram| {
        let Some(place) = datagram.place else {
            return vec![datagram.bytes.clone()];
        };
        let forge = |at: usize, value: u8| {
            let mut forged = datagram.bytes.clone();
            forged[at] = value;
            forged
        };
        let flipped = forge(60, datagram.bytes[60] ^ 1);
        // More fragments than there are, so that all others would be dropped.
        let more = forge(HEADER_LEN + 7, 200);
        let other_number = forge(HEADER_LEN + 5, (place.number % TOTAL + 1) as u8);
        vec![flipped, more, other_number, datagram.bytes.clone()]
    });
    for side in [&road.pair.a, &road.pair.b] {
        assert_eq!(
            side.endpoint.counters().fragments_received,
            u64::from(TOTAL)
        );
        assert_eq!(side.refused(Refusal::FragmentsIncomplete), 0);
        // The other number is a duplicate once.
        assert_eq!(side.refused(Refusal::Integrity), 3 * u64::from(TOTAL) - 1);
    }
}

/// Loses what is longer than an IP datagram of `mtu` bytes may be, in one direction or both.
fn narrow(mtu: usize, ways: [bool; 2]) -> impl FnMut(&Seen) -> Vec<Vec<u8>> {
    move |datagram| {
        let here = ways[usize::from(!datagram.from_a)];
        match here && datagram.bytes.len() > mtu - IPV4_AND_UDP {
            true => vec![],
            false => vec![datagram.bytes.clone()],
        }
    }
}

// RFC 7383 R13, R15, R21
#[test]
fn a_narrow_path_gets_smaller_fragments() {
    for ways in [[true, false], [false, true], [true, true]] {
        let mut road = large(|_, _| {});
        road.establish(60 * SECOND, narrow(576, ways));
        for (from_a, narrow) in [true, false].into_iter().zip(ways) {
            let all = road.all();
            let of = all.iter().filter(|one| one.from_a == from_a);
            let totals: Vec<_> = of.filter_map(|one| Some(one.place?.total)).collect();
            assert!(totals.is_sorted(), "{totals:?}");
            if narrow {
                assert!(totals.contains(&SMALL_TOTAL), "{totals:?}");
            }
        }
        assert_fresh_ivs(&road.all(), 8);
        // The SA remembers it.
        let before = road.pair.a.endpoint.counters().retransmissions_sent;
        let now = road.pair.now;
        let sent = road.pair.a.sent.len();
        road.pair
            .a
            .endpoint
            .rekey(now, "site", Some("net"))
            .unwrap();
        road.run(60 * SECOND, narrow(576, ways));
        road.pair.assert_agreed(1, 1);
        if ways[0] {
            let after = road.pair.a.endpoint.counters().retransmissions_sent;
            assert_eq!(after, before);
            let fits = |one: &Transmit| one.payload.len() <= 576 - IPV4_AND_UDP;
            assert!(road.pair.a.sent[sent..].iter().all(fits));
        }
    }
}

// RFC 7383 R14, R28
#[test]
fn the_responder_cuts_as_small_as_the_initiator() {
    let mut road = large(|a, _| a.fragment_size = 0);
    road.establish(SECOND, narrow(576, [true, true]));
    assert_eq!(road.pair.a.endpoint.counters().retransmissions_sent, 0);
    let longest = |side: &Side| side.sent.iter().map(|one| one.payload.len()).max();
    assert_eq!(longest(&road.pair.a), Some(576 - IPV4_AND_UDP));
    assert_eq!(longest(&road.pair.b), Some(576 - IPV4_AND_UDP));
}

// RFC 7383 R21
#[test]
fn more_fragments_replace_those_that_came_before() {
    let mut road = large(|_, _| {});
    // All but the last fragment of the first two attempts arrive.
    road.establish(60 * SECOND, |datagram| {
        let place = datagram.place.filter(|_| datagram.from_a);
        match place {
            Some(FragmentPlace {
                number: TOTAL,
                total: TOTAL,
            }) => vec![],
            _ => vec![datagram.bytes.clone()],
        }
    });
    let b = &road.pair.b;
    assert_eq!(b.refused(Refusal::FragmentsIncomplete), 1);
    assert_eq!(
        b.endpoint.counters().fragments_received,
        u64::from(TOTAL - 1 + SMALL_TOTAL)
    );
}

/// A responder, and an initiator of the test's that has announced fragmentation.
fn half_open(change: impl FnOnce(&mut Config)) -> (Side, Script, Instant) {
    let (mut side, now) = b_with(change);
    let mut script = Script::new();
    let mut payloads = script.init_payloads();
    let announced = NotifyType::IKEV2_FRAGMENTATION_SUPPORTED;
    payloads.push(Payload::Notify(Notify::new(announced, vec![])));
    let answer = script.init(&mut side, now, payloads).unwrap();
    let answered = answer.notification(announced).unwrap();
    assert!(answered.data.is_empty());
    (side, script, now)
}

fn auth_request(script: &Script) -> (Header, Vec<Payload>) {
    let header = script.header(ExchangeType::IKE_AUTH, 1);
    (header, script.auth_payloads(b"a shared secret"))
}

// RFC 7383 R16, R22
#[test]
fn impossible_numbers_and_smaller_totals_are_dropped() {
    let (mut side, mut script, now) = half_open(|_| {});
    let (header, payloads) = auth_request(&script);
    let kind = PayloadType::IDI;
    for place in [(0, 0), (0, 3), (1, 0), (4, 3), (65535, 1)] {
        let datagram = script.seal_fragment(&header, kind, place, &[1; 100]);
        assert!(script.send(&mut side, now, &datagram).is_empty());
    }
    assert_eq!(side.refused(Refusal::FragmentPlace), 5);
    assert_eq!(side.endpoint.counters().fragments_received, 0);

    let parts = script.seal_fragments(&header, &payloads, 30);
    assert!(parts.len() > 3);
    let (last, others) = parts.split_last().unwrap();
    for part in others {
        assert!(script.send(&mut side, now, part).is_empty());
    }
    let fewer = script.seal_fragments(&header, &payloads, 60);
    for part in &fewer {
        assert!(script.send(&mut side, now, part).is_empty());
    }
    assert_eq!(side.refused(Refusal::FragmentPlace), 5 + fewer.len() as u64);
    assert_eq!(script.send(&mut side, now, last).len(), 1);
    assert_eq!(side.endpoint.counters().ike_sas_established, 1);
}

#[test]
fn a_whole_message_is_taken_while_its_fragments_come_in() {
    let (mut side, mut script, now) = half_open(|_| {});
    let (header, payloads) = auth_request(&script);
    let parts = script.seal_fragments(&header, &payloads, 50);
    script.send(&mut side, now, &parts[0]);
    let whole = script.seal(&header, &payloads);
    assert_eq!(script.send(&mut side, now, &whole).len(), 1);
    // Its first fragment is a copy of the request, the others are not.
    assert_eq!(script.send(&mut side, now, &parts[0]).len(), 1);
    assert!(script.send(&mut side, now, &parts[1]).is_empty());
    assert_eq!(side.endpoint.counters().ike_sas_established, 1);
}

// RFC 7383 R26
#[test]
fn twenty_nine_fragments_and_more_are_taken() {
    for room in [5, 2] {
        let (mut side, mut script, now) = half_open(|_| {});
        let (header, payloads) = auth_request(&script);
        let parts = script.seal_fragments(&header, &payloads, room);
        assert!((29..=255).contains(&parts.len()), "{}", parts.len());
        let answers: Vec<_> = parts
            .iter()
            .flat_map(|part| script.send(&mut side, now, part))
            .collect();
        assert_eq!(answers.len(), 1);
        assert_eq!(side.endpoint.counters().ike_sas_established, 1);
    }
}

// RFC 7383 R26, R27
#[test]
fn memory_is_bounded_and_the_sa_of_a_peer_that_wants_more_ends() {
    // In bytes, while nobody has authenticated the peer.
    let (mut side, mut script, now) = half_open(|_| {});
    let header = script.header(ExchangeType::IKE_AUTH, 1);
    for number in 1..=33 {
        assert_eq!(side.endpoint.half_open(), 1);
        let place = (number, 200);
        let part = script.seal_fragment(&header, PayloadType::IDI, place, &[0; 1000]);
        assert!(script.send(&mut side, now, &part).is_empty());
    }
    assert_eq!(side.refused(Refusal::FragmentLimit), 1);
    assert_eq!(side.endpoint.counters().fragments_received, 33);
    let part = script.seal_fragment(&header, PayloadType::IDI, (34, 200), &[0; 1000]);
    assert!(script.send(&mut side, now, &part).is_empty());
    assert_eq!(side.endpoint.counters().fragments_received, 33);

    // In number. A fragment that does not authenticate ends nothing.
    let (mut side, mut script, now) = half_open(|config| config.limits.fragments_max = 40);
    let header = script.header(ExchangeType::IKE_AUTH, 1);
    let mut part = script.seal_fragment(&header, PayloadType::IDI, (1, 65535), &[0; 10]);
    part[40] ^= 1;
    script.send(&mut side, now, &part);
    assert_eq!(side.refused(Refusal::FragmentLimit), 0);
    let part = script.seal_fragment(&header, PayloadType::IDI, (1, 41), &[0; 10]);
    script.send(&mut side, now, &part);
    assert_eq!(side.refused(Refusal::FragmentLimit), 1);
}

/// An authenticated peer sends more than is kept, in a request or in a response.
#[test]
fn an_ike_sa_whose_peer_wants_more_memory_says_so() {
    for answers in [false, true] {
        let (mut side, mut script, now) = half_open(|config| config.limits.fragments_max = 40);
        let (_, payloads) = auth_request(&script);
        script
            .exchange(&mut side, now, ExchangeType::IKE_AUTH, &payloads)
            .unwrap();
        let header = match answers {
            false => script.header(ExchangeType::INFORMATIONAL, script.next_id),
            true => {
                side.endpoint.rekey(now, "site", Some("net")).unwrap();
                let request = Script::take(&mut side).pop().unwrap();
                let id = Header::decode(&request).unwrap().message_id;
                Header {
                    response: true,
                    ..script.header(ExchangeType::CREATE_CHILD_SA, id)
                }
            }
        };
        let part = script.seal_fragment(&header, PayloadType::SA, (1, 41), &[0; 10]);
        script.send(&mut side, now, &part);
        let expected = match answers {
            false => DownReason::PeerMisbehaved(RequestFault::TooLarge),
            true => DownReason::UnusableResponse(UnusableResponse::TooLarge),
        };
        let down = side.events.iter().find_map(|event| match event {
            Event::IkeSaDown { reason, .. } => Some(reason),
            _ => None,
        });
        assert_eq!(down, Some(&expected));
        assert!(side.ike_sas().is_empty());
    }
}

// RFC 7383 R26, R27
#[test]
fn an_authenticated_peer_may_send_as_much_as_a_datagram_holds() {
    let (mut side, mut script, now) = half_open(|_| {});
    let (header, payloads) = auth_request(&script);
    for part in script.seal_fragments(&header, &payloads, 1000) {
        script.send(&mut side, now, &part);
    }
    assert_eq!(side.endpoint.counters().ike_sas_established, 1);
    let header = script.header(ExchangeType::INFORMATIONAL, 2);
    let vendors = vec![Payload::Vendor(vec![7; 16_000]); 4];
    let parts = script.seal_fragments(&header, &vendors, 1000);
    let answers = parts
        .iter()
        .flat_map(|part| script.send(&mut side, now, part));
    assert_eq!(answers.count(), 1);
    let header = script.header(ExchangeType::INFORMATIONAL, 3);
    let vendors = vec![Payload::Vendor(vec![7; 16_500]); 4];
    for part in script.seal_fragments(&header, &vendors, 1000) {
        assert!(script.send(&mut side, now, &part).is_empty());
    }
    assert_eq!(side.refused(Refusal::FragmentLimit), 1);
    let down = |event: &Event| matches!(event, Event::IkeSaDown { .. });
    assert!(side.events.iter().any(down));
}

// RFC 7383 R25, R29
#[test]
fn a_repeated_request_is_answered_for_its_first_fragment_only() {
    let mut road = large(|_, _| {});
    let mut requests = Vec::new();
    road.establish(SECOND, |datagram| {
        if datagram.is(ExchangeType::IKE_AUTH, false) {
            requests.push(datagram.bytes.clone());
        }
        vec![datagram.bytes.clone()]
    });
    let (to, from) = (
        format!("{B}:500").parse().unwrap(),
        format!("{A}:500").parse().unwrap(),
    );
    let now = road.pair.now;
    let b = &mut road.pair.b;
    let mut answers = |bytes: &[u8]| {
        b.endpoint.handle_datagram(now, to, from, bytes);
        std::iter::from_fn(|| b.endpoint.poll_transmit()).count()
    };
    let (count, more) = (usize::from(TOTAL), usize::from(SMALL_TOTAL));
    assert_eq!(answers(&requests[0]), count);
    for other in &requests[1..] {
        assert_eq!(answers(other), 0);
    }
    let mut forged = requests[0].clone();
    *forged.last_mut().unwrap() ^= 1;
    assert_eq!(answers(&forged), 0);
    // The rate is limited, as for messages in one datagram. After two more the fragments are smaller.
    let counts: Vec<_> = (0..5).map(|_| answers(&requests[0])).collect();
    assert_eq!(counts, [more, more, more, 0, 0]);
    assert_eq!(b.refused(Refusal::Retransmission), 4);
}

// RFC 7383 R23
#[test]
fn fragments_do_not_wait_for_ever() {
    let (mut side, mut script, now) =
        half_open(|config| config.limits.half_open_timeout = 600 * SECOND);
    let (header, payloads) = auth_request(&script);
    let parts = script.seal_fragments(&header, &payloads, 50);
    script.send(&mut side, now, &parts[0]);
    assert_eq!(side.endpoint.poll_timeout(), Some(now + 60 * SECOND));
    side.endpoint.handle_timeout(now + 60 * SECOND);
    assert_eq!(side.refused(Refusal::FragmentsIncomplete), 1);
    assert_eq!(side.endpoint.poll_timeout(), Some(now + 600 * SECOND));
    for part in &parts[1..] {
        let answer = script.send(&mut side, now + 61 * SECOND, part);
        assert!(answer.is_empty());
    }
    // The half-open SA ends with what it holds.
    side.endpoint.handle_timeout(now + 600 * SECOND);
    assert_eq!(side.endpoint.half_open(), 0);
    assert_eq!(side.endpoint.poll_timeout(), None);
}

// RFC 7383 R2
#[test]
fn fragments_that_were_not_agreed_upon_are_dropped() {
    let (mut side, now) = b_with(|_| {});
    let mut script = Script::new();
    let payloads = script.init_payloads();
    script.init(&mut side, now, payloads).unwrap();
    let (header, payloads) = auth_request(&script);
    let parts = script.seal_fragments(&header, &payloads, 50);
    for part in &parts {
        assert!(script.send(&mut side, now, part).is_empty());
    }
    let count = parts.len() as u64;
    assert_eq!(side.refused(Refusal::FragmentNotAgreed), count);
}

#[test]
fn a_rekeyed_ike_sa_still_takes_fragments() {
    let mut road = large(|_, _| {});
    road.establish(SECOND, |datagram| vec![datagram.bytes.clone()]);
    let now = road.pair.now;
    road.pair.a.endpoint.rekey(now, "site", None).unwrap();
    road.run_freely(SECOND);
    let before = road.fragments();
    let now = road.pair.now;
    road.pair
        .b
        .endpoint
        .rekey(now, "site", Some("net"))
        .unwrap();
    road.run_freely(SECOND);
    road.pair.assert_agreed(1, 1);
    assert_eq!(road.fragments(), before + 2 * usize::from(TOTAL));
    road.pair.assert_same();
}

/// Loss, copies and reordering by chance, as in `storms`.
#[test]
fn fragments_pass_a_bad_network() {
    for seed in 0..6 {
        let mut pair = large(|_, _| {}).pair;
        pair.network = Network::new(
            Conditions {
                loss: 0.1,
                duplication: 0.2,
                corruption: 0.02,
                delay: Duration::from_millis(5)..Duration::from_millis(200),
            },
            seed,
        );
        pair.initiate();
        pair.run(200 * SECOND);
        pair.assert_agreed(1, 1);
        pair.network = Network::new(Conditions::PERFECT, seed);
        pair.assert_clean_end();
    }
}
