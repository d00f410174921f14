//! Datagrams of all lengths come into their slots.

use std::net::UdpSocket;
use std::os::fd::AsFd;

use esplanade_dataplane::datagram::ReceivedDatagram;
use esplanade_dataplane::slots::{ReceiveSlots, SPARE, used, with_spare};

use super::message::DatagramReceiver;

fn datagram(number: u8, len: usize) -> Vec<u8> {
    (0..len).map(|at| number.wrapping_add(at as u8)).collect()
}

/// Sends datagrams of these lengths and receives them in one call. Returns each with whether it
/// is whole.
fn receive(
    slots: ReceiveSlots,
    buffer: &mut [u8],
    lens: &[usize],
) -> (Vec<(Vec<u8>, bool)>, usize) {
    let receiving = UdpSocket::bind("127.0.0.1:0").unwrap();
    let sending = UdpSocket::bind("127.0.0.1:0").unwrap();
    for (number, len) in lens.iter().enumerate() {
        let to = receiving.local_addr().unwrap();
        sending.send_to(&datagram(number as u8, *len), to).unwrap();
    }
    let mut receiver = DatagramReceiver::new(slots.count);
    let got = receiver.receive(receiving.as_fd(), buffer, slots).unwrap();
    let mut ranges: Vec<_> = got.iter().map(with_spare).collect();
    ranges.sort_by_key(|range| range.start);
    assert!(ranges.windows(2).all(|two| two[0].end <= two[1].start));
    assert!(ranges.iter().all(|range| range.end <= used(got)));
    let bytes = |meta: &ReceivedDatagram| buffer[meta.at..][..meta.len].to_vec();
    let got = got.iter().map(|meta| (bytes(meta), !meta.truncated));
    let got: Vec<_> = got.collect();
    let ends = ranges.iter().map(|range| range.end).max().unwrap_or(0);
    (got, ends)
}

const SLOTS: ReceiveSlots = ReceiveSlots {
    count: 6,
    len: 100,
    more: 900,
};

#[test]
fn long_datagrams_beside_short_ones_are_whole_and_in_order() {
    let mut buffer = vec![0; SLOTS.total()];
    let lens = [10, 100, 101, 0, 1000, 99];
    let (got, _) = receive(SLOTS, &mut buffer, &lens);
    let sent = lens.iter().enumerate();
    let sent: Vec<_> = sent
        .map(|(number, len)| (datagram(number as u8, *len), true))
        .collect();
    assert_eq!(got, sent);
}

#[test]
fn what_no_slot_takes_is_truncated() {
    let mut buffer = vec![0; SLOTS.total()];
    let (got, _) = receive(SLOTS, &mut buffer, &[1001, 7]);
    assert_eq!(got[0], (datagram(0, 1000), false));
    assert_eq!(got[1], (datagram(1, 7), true));
    let short = ReceiveSlots { more: 0, ..SLOTS };
    let (got, _) = receive(short, &mut buffer, &[101, 100]);
    assert_eq!(got[0], (datagram(0, 100), false));
    assert_eq!(got[1], (datagram(1, 100), true));
}

#[test]
fn short_datagrams_leave_the_rest_alone() {
    let mut buffer = vec![0; SLOTS.total()];
    let (_, end) = receive(SLOTS, &mut buffer, &[100; 6]);
    assert_eq!(end, 6 * (100 + SPARE));
    assert!(buffer[end..].iter().all(|byte| *byte == 0));
}

#[test]
fn a_small_buffer_has_fewer_slots() {
    let mut buffer = vec![0; SLOTS.total() - 1];
    let (got, _) = receive(SLOTS, &mut buffer, &[500; 6]);
    assert_eq!(got.len(), 5);
    assert_eq!(got[4], (datagram(4, 500), true));
    let (got, _) = receive(SLOTS, &mut [], &[5]);
    assert!(got.is_empty());
}
