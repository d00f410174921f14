//! The messages of gateway and fetcher. Their socket keeps them apart.
//!
//! The gateway sends a [`Request`] a message, in JSON. The fetcher sends [`Packet`]s. A report comes first, and then the
//! content that it announces, in pieces. Those of several requests come in any order, so that a long one holds up no
//! other.

use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;

use esplanade_host::helper_process::read_until_end;
use esplanade_pki::OcspAnswer;
use serde::{Deserialize, Serialize};

use super::reach::Reach;

/// Bytes of a request or of a report. A request has one URI, or one name.
pub(super) const LINE_MAX: usize = 1 << 14;
/// Bytes of a packet.
const PACKET_MAX: usize = 32 << 10;
/// Bytes of what is fetched from a place of CRLs. Those of large public authorities have a few MiB.
const CRLS_LEN_MAX: usize = 16 << 20;
/// Bytes of the addresses of a name.
const ADDRESSES_LEN_MAX: usize = 4 << 10;
/// Addresses of a name that are told.
pub(super) const ADDRESSES_MAX: usize = 16;

/// The first octets of packets.
const STARTED: u8 = 0;
const REPORT: u8 = 1;
const CONTENT: u8 = 2;

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Request {
    pub id: u64,
    pub task: FetchTask,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) enum FetchTask {
    Crl {
        uri: String,
        reach: Reach,
    },
    /// `request` is posted.
    Ocsp {
        uri: String,
        request: Vec<u8>,
        reach: Reach,
    },
    LookUp {
        name: String,
    },
}

impl FetchTask {
    pub(super) fn kind(&self) -> ReportKind {
        match self {
            Self::Crl { .. } => ReportKind::Crl,
            Self::Ocsp { .. } => ReportKind::Ocsp,
            Self::LookUp { .. } => ReportKind::Addresses,
        }
    }
}

/// The kind of content that a report brings.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum ReportKind {
    /// CRLs in DER, one behind the other.
    Crl,
    Ocsp,
    /// A list of addresses in JSON.
    Addresses,
}

impl ReportKind {
    pub(super) const fn len_max(self) -> usize {
        match self {
            Self::Crl => CRLS_LEN_MAX,
            Self::Ocsp => OcspAnswer::LEN_MAX,
            Self::Addresses => ADDRESSES_LEN_MAX,
        }
    }
}

/// The outcome of a request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Report {
    pub id: u64,
    pub kind: ReportKind,
    /// The length of the content.
    pub len: usize,
    pub failure: Option<FetchFailure>,
}

/// Why nothing came. The text is for the log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FetchFailure {
    pub text: String,
    /// Nobody answered in time.
    pub timed_out: bool,
}

impl FetchFailure {
    /// Characters that are told.
    const TEXT_MAX: usize = 300;

    pub(super) fn new(text: impl std::fmt::Display) -> Self {
        Self {
            text: text.to_string().chars().take(Self::TEXT_MAX).collect(),
            timed_out: false,
        }
    }

    pub(super) fn late(text: impl std::fmt::Display) -> Self {
        Self {
            timed_out: true,
            ..Self::new(text)
        }
    }
}

/// A message of the fetcher.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Packet {
    /// The fetcher has started. It knows nothing of earlier requests.
    Started,
    /// The outcome of a request. It takes the place of an earlier one.
    Report(Report),
    /// More of a report's content.
    Content { id: u64, piece: Vec<u8> },
}

impl Packet {
    /// Bytes of a piece of content.
    pub(super) const PIECE_MAX: usize = PACKET_MAX - 9;

    pub(super) fn send(&self, mut socket: &UnixStream) -> io::Result<()> {
        let packet = match self {
            Self::Started => vec![STARTED],
            Self::Report(report) => [&[REPORT][..], &serde_json::to_vec(report)?].concat(),
            Self::Content { id, piece } => [&[CONTENT][..], &id.to_be_bytes(), piece].concat(),
        };
        socket.write_all(&packet)
    }

    /// Waits for a packet. Returns `None` if the other end has closed the socket.
    pub(super) fn receive(socket: &UnixStream) -> io::Result<Option<Self>> {
        let Some(packet) = next_packet(socket, PACKET_MAX)? else {
            return Ok(None);
        };
        let packet = match packet.split_first() {
            Some((&STARTED, [])) => Some(Self::Started),
            Some((&REPORT, json)) => Some(Self::Report(serde_json::from_slice(json)?)),
            Some((&CONTENT, rest)) => rest.split_first_chunk().map(|(id, piece)| Self::Content {
                id: u64::from_be_bytes(*id),
                piece: piece.to_vec(),
            }),
            _ => None,
        };
        packet.map(Some).ok_or(io::ErrorKind::InvalidData.into())
    }
}

impl Request {
    /// Waits for a request. Returns `None` if the gateway has closed the socket.
    pub(super) fn receive(socket: &UnixStream) -> io::Result<Option<Self>> {
        let Some(packet) = next_packet(socket, LINE_MAX)? else {
            return Ok(None);
        };
        Ok(Some(serde_json::from_slice(&packet)?))
    }
}

fn next_packet(mut socket: &UnixStream, len_max: usize) -> io::Result<Option<Vec<u8>>> {
    let mut packet = vec![0; len_max];
    let Some(len) = read_until_end(|| socket.read(&mut packet))? else {
        return Ok(None);
    };
    packet.truncate(len);
    Ok(Some(packet))
}

#[cfg(test)]
mod tests {
    use super::*;
    use esplanade_host::helper_process::packet_pair;

    #[test]
    fn packets_stay_apart() {
        let (ours, theirs) = packet_pair::<UnixStream>().unwrap();
        let report = Report {
            id: 7,
            kind: ReportKind::Crl,
            len: Packet::PIECE_MAX,
            failure: Some(FetchFailure::late("x".repeat(1000))),
        };
        let piece = vec![9; Packet::PIECE_MAX];
        let packets = [
            Packet::Started,
            Packet::Report(report),
            Packet::Content {
                id: u64::MAX,
                piece,
            },
        ];
        for packet in &packets {
            packet.send(&theirs).unwrap();
        }
        for packet in packets {
            assert_eq!(Packet::receive(&ours).unwrap(), Some(packet));
        }
        (&theirs).write_all(&[CONTENT, 1, 2]).unwrap();
        assert!(Packet::receive(&ours).is_err());
        drop(theirs);
        assert_eq!(Packet::receive(&ours).unwrap(), None);
    }
}
