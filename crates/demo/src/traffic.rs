//! Sends TCP and UDP between the hosts. Every received byte is compared with what was sent.

use std::fmt;
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::capture::MARKER;
use super::lab::Namespace;
use super::ui::bits_per_second;

/// Length of the pattern in bytes. It is no multiple of a segment or buffer size, so a lost or
/// duplicated piece shifts the pattern.
const PATTERN_LEN: usize = 262_139;
const CHUNK_LEN: usize = 128 << 10;
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// A flow that makes no progress for this long is given up.
const STALL: Duration = Duration::from_secs(10);
/// The time to wait for late datagrams after the last one was sent.
const LINGER: Duration = Duration::from_millis(500);
const DATAGRAM_HEADER_LEN: usize = 8;

/// Returns the content of every flow: a pseudo-random sequence that contains the marker in each
/// kibibyte. It is returned twice in a row, so that any window of one period is one slice.
fn pattern() -> Vec<u8> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut once: Vec<u8> = std::iter::repeat_with(|| {
        // The generator is xorshift64.
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state as u8
    })
    .take(PATTERN_LEN)
    .collect();
    for kibibyte in once.chunks_exact_mut(1024) {
        if let Some(start) = kibibyte.first_chunk_mut() {
            *start = *MARKER;
        }
    }
    [once.as_slice(), once.as_slice()].concat()
}

#[derive(Debug, Default)]
struct FlowState {
    stop: AtomicBool,
    received: AtomicU64,
}

/// A running TCP flow.
#[derive(Debug)]
pub struct TcpFlow {
    state: Arc<FlowState>,
    sender: JoinHandle<io::Result<u64>>,
    receiver: JoinHandle<io::Result<u64>>,
    started: Instant,
}

#[derive(Debug, Clone, Copy)]
pub struct TcpResult {
    pub bytes: u64,
    pub elapsed: Duration,
}

impl TcpResult {
    pub fn bits_per_second(&self) -> f64 {
        self.bytes as f64 * 8.0 / self.elapsed.as_secs_f64().max(1e-9)
    }
}

impl TcpFlow {
    /// Connects and starts to send. `bytes_per_second` bounds the rate.
    pub fn start(
        from: &Namespace,
        to: &Namespace,
        address: Ipv4Addr,
        bytes_per_second: Option<f64>,
    ) -> io::Result<Self> {
        let listener = to.run(|| TcpListener::bind((address, 0)))?;
        let target = listener.local_addr()?;
        let outgoing = from.run(|| TcpStream::connect_timeout(&target, CONNECT_TIMEOUT))?;
        let (incoming, _) = listener.accept()?;
        outgoing.set_write_timeout(Some(STALL))?;
        incoming.set_read_timeout(Some(STALL))?;
        let state = Arc::new(FlowState::default());
        let started = Instant::now();
        let sender = {
            let state = Arc::clone(&state);
            std::thread::spawn(move || send_tcp(outgoing, &state, bytes_per_second))
        };
        let receiver = {
            let state = Arc::clone(&state);
            std::thread::spawn(move || receive_tcp(incoming, &state))
        };
        Ok(Self {
            state,
            sender,
            receiver,
            started,
        })
    }

    pub fn received(&self) -> u64 {
        self.state.received.load(Ordering::Relaxed)
    }

    pub fn is_finished(&self) -> bool {
        self.sender.is_finished() || self.receiver.is_finished()
    }

    /// Ends the flow. Fails unless every sent byte arrived.
    pub fn finish(self) -> io::Result<TcpResult> {
        self.state.stop.store(true, Ordering::Relaxed);
        let sent = joined(self.sender)?;
        let bytes = joined(self.receiver)?;
        let elapsed = self.started.elapsed();
        if bytes != sent {
            return Err(io::Error::other(format!(
                "{sent} bytes were sent over TCP and {bytes} arrived"
            )));
        }
        Ok(TcpResult { bytes, elapsed })
    }
}

fn send_tcp(
    mut stream: TcpStream,
    state: &FlowState,
    bytes_per_second: Option<f64>,
) -> io::Result<u64> {
    let pattern = pattern();
    let started = Instant::now();
    let mut sent: u64 = 0;
    while !state.stop.load(Ordering::Relaxed) {
        let at = (sent % PATTERN_LEN as u64) as usize;
        let chunk = pattern.get(at..at + CHUNK_LEN).unwrap_or_default();
        sent += stream.write(chunk)? as u64;
        if let Some(rate) = bytes_per_second {
            let due = Duration::from_secs_f64(sent as f64 / rate.max(1.0));
            std::thread::sleep(due.saturating_sub(started.elapsed()));
        }
    }
    stream.shutdown(Shutdown::Write)?;
    Ok(sent)
}

fn receive_tcp(mut stream: TcpStream, state: &FlowState) -> io::Result<u64> {
    let pattern = pattern();
    let mut buffer = vec![0; CHUNK_LEN];
    let mut received: u64 = 0;
    loop {
        let len = stream.read(&mut buffer)?;
        if len == 0 {
            return Ok(received);
        }
        let at = (received % PATTERN_LEN as u64) as usize;
        if buffer.get(..len) != pattern.get(at..at + len) {
            return Err(io::Error::other(format!(
                "the TCP stream was changed on its way near byte {received}"
            )));
        }
        received += len as u64;
        state.received.store(received, Ordering::Relaxed);
    }
}

/// A running flow of numbered datagrams.
#[derive(Debug)]
pub struct UdpFlow {
    state: Arc<FlowState>,
    sender: JoinHandle<io::Result<u64>>,
    receiver: JoinHandle<io::Result<Tally>>,
    started: Instant,
    payload_len: usize,
}

#[derive(Debug, Clone, Copy)]
pub struct UdpResult {
    pub sent: u64,
    pub received: u64,
    pub duplicates: u64,
    pub late: u64,
    pub corrupt: u64,
    pub payload_len: usize,
    pub elapsed: Duration,
}

impl UdpResult {
    pub fn lost(&self) -> u64 {
        self.sent.saturating_sub(self.received)
    }

    pub fn bits_per_second(&self) -> f64 {
        (self.received * self.payload_len as u64) as f64 * 8.0
            / self.elapsed.as_secs_f64().max(1e-9)
    }
}

impl fmt::Display for UdpResult {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rate = bits_per_second(self.bits_per_second());
        write!(f, "{} datagrams, {rate}, {} lost", self.sent, self.lost())?;
        for (count, what) in [
            (self.late, "late"),
            (self.duplicates, "doubled"),
            (self.corrupt, "changed"),
        ] {
            if count > 0 {
                write!(f, ", {count} {what}")?;
            }
        }
        Ok(())
    }
}

#[derive(Debug, Default)]
struct Tally {
    /// A bit for each sequence number.
    seen: Vec<u64>,
    received: u64,
    duplicates: u64,
    late: u64,
    corrupt: u64,
    next: u64,
}

impl Tally {
    const SEQUENCE_MAX: u64 = 1 << 28;

    fn note(&mut self, sequence: u64) {
        if sequence >= Self::SEQUENCE_MAX {
            self.corrupt += 1;
            return;
        }
        let (word, bit) = ((sequence / 64) as usize, 1 << (sequence % 64));
        if self.seen.len() <= word {
            self.seen.resize(word + 1, 0);
        }
        let Some(word) = self.seen.get_mut(word) else {
            return;
        };
        if *word & bit != 0 {
            self.duplicates += 1;
            return;
        }
        *word |= bit;
        self.received += 1;
        if sequence < self.next {
            self.late += 1;
        }
        self.next = self.next.max(sequence + 1);
    }
}

impl UdpFlow {
    pub fn start(
        from: &Namespace,
        to: &Namespace,
        address: Ipv4Addr,
        packets_per_second: u32,
        payload_len: usize,
    ) -> io::Result<Self> {
        let payload_len = payload_len.max(DATAGRAM_HEADER_LEN);
        let incoming = to.run(|| UdpSocket::bind((address, 0)))?;
        let target = incoming.local_addr()?;
        let outgoing = from.run(|| UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)))?;
        incoming.set_read_timeout(Some(LINGER))?;
        let state = Arc::new(FlowState::default());
        let started = Instant::now();
        let sender = {
            let state = Arc::clone(&state);
            std::thread::spawn(move || {
                send_udp(&outgoing, target, &state, packets_per_second, payload_len)
            })
        };
        let receiver = {
            let state = Arc::clone(&state);
            std::thread::spawn(move || receive_udp(&incoming, &state, payload_len))
        };
        Ok(Self {
            state,
            sender,
            receiver,
            started,
            payload_len,
        })
    }

    pub fn received(&self) -> u64 {
        self.state.received.load(Ordering::Relaxed)
    }

    pub fn is_finished(&self) -> bool {
        self.sender.is_finished() || self.receiver.is_finished()
    }

    pub fn finish(self) -> io::Result<UdpResult> {
        self.state.stop.store(true, Ordering::Relaxed);
        let sent = joined(self.sender)?;
        let elapsed = self.started.elapsed();
        let tally = joined(self.receiver)?;
        Ok(UdpResult {
            sent,
            received: tally.received,
            duplicates: tally.duplicates,
            late: tally.late,
            corrupt: tally.corrupt,
            payload_len: self.payload_len,
            elapsed,
        })
    }
}

fn send_udp(
    socket: &UdpSocket,
    target: SocketAddr,
    state: &FlowState,
    packets_per_second: u32,
    payload_len: usize,
) -> io::Result<u64> {
    let pattern = pattern();
    let started = Instant::now();
    let mut datagram = vec![0; payload_len];
    let mut sent: u64 = 0;
    while !state.stop.load(Ordering::Relaxed) {
        let due = (started.elapsed().as_secs_f64() * f64::from(packets_per_second)) as u64;
        // If the scheduler paused this thread, send the overdue datagrams in small groups, so that
        // no queue overflows.
        let group_end = due.min(sent + 16);
        while sent < group_end {
            fill(&mut datagram, sent, &pattern);
            socket.send_to(&datagram, target)?;
            sent += 1;
        }
        std::thread::sleep(Duration::from_micros(500));
    }
    Ok(sent)
}

fn receive_udp(socket: &UdpSocket, state: &FlowState, payload_len: usize) -> io::Result<Tally> {
    let pattern = pattern();
    let mut buffer = vec![0; payload_len + 1];
    let mut expected = vec![0; payload_len];
    let mut tally = Tally::default();
    loop {
        match socket.recv(&mut buffer) {
            Ok(len) => {
                let datagram = buffer.get(..len).unwrap_or_default();
                let Some(sequence) = datagram
                    .first_chunk()
                    .map(|bytes| u64::from_be_bytes(*bytes))
                else {
                    tally.corrupt += 1;
                    continue;
                };
                fill(&mut expected, sequence, &pattern);
                if datagram == expected {
                    tally.note(sequence);
                } else {
                    tally.corrupt += 1;
                }
                state.received.store(tally.received, Ordering::Relaxed);
            }
            Err(error)
                if matches!(
                    error.kind(),
                    io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted
                ) =>
            {
                // The sender has stopped, and nothing arrived for a whole timeout.
                if state.stop.load(Ordering::Relaxed) {
                    return Ok(tally);
                }
            }
            Err(error) => return Err(error),
        }
    }
}

/// Fills a datagram: its number, the marker, and a piece of the pattern that depends on the number.
fn fill(datagram: &mut [u8], sequence: u64, pattern: &[u8]) {
    let Some((number, content)) = datagram.split_first_chunk_mut::<DATAGRAM_HEADER_LEN>() else {
        return;
    };
    *number = sequence.to_be_bytes();
    let at = (sequence.wrapping_mul(1021) % PATTERN_LEN as u64) as usize;
    let len = content.len().min(PATTERN_LEN);
    if let Some(piece) = pattern.get(at..at + len) {
        content
            .get_mut(..len)
            .unwrap_or_default()
            .copy_from_slice(piece);
    }
    if let Some(start) = content.first_chunk_mut() {
        *start = *MARKER;
    }
}

fn joined<T>(thread: JoinHandle<io::Result<T>>) -> io::Result<T> {
    thread
        .join()
        .unwrap_or_else(|_| Err(io::Error::other("a traffic thread panicked")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tally_counts_each_number_once() {
        let mut tally = Tally::default();
        for sequence in [0, 1, 3, 2, 3, 200, Tally::SEQUENCE_MAX] {
            tally.note(sequence);
        }
        assert_eq!(
            (tally.received, tally.duplicates, tally.late, tally.corrupt),
            (5, 1, 1, 1)
        );
    }

    #[test]
    fn the_pattern_has_the_marker_and_two_periods() {
        let pattern = pattern();
        assert_eq!(pattern[..PATTERN_LEN], pattern[PATTERN_LEN..]);
        assert_eq!(&pattern[1024..1040], MARKER);
        const { assert!(CHUNK_LEN <= PATTERN_LEN) };
    }

    #[test]
    fn datagrams_differ_by_their_number() {
        let pattern = pattern();
        let (mut first, mut second) = ([0; 200], [0; 200]);
        fill(&mut first, 1, &pattern);
        fill(&mut second, 2, &pattern);
        assert_ne!(first[24..], second[24..]);
        assert_eq!(first[8..24], second[8..24]);
    }
}
