//! Packets: type, name and message behind a 32-bit length.

use super::Malformed;
use super::section::{Reader, Section};

/// Most bytes of a packet without its length field, as in strongSwan.
pub const PACKET_BYTES_MAX: usize = 512 * 1024;

/// A packet in either direction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ControlPacket {
    Request { command: String, message: Section },
    Response(Section),
    CommandUnknown,
    Register(String),
    Unregister(String),
    EventConfirm,
    EventUnknown,
    Event { name: String, message: Section },
}

impl ControlPacket {
    /// Encodes the packet, with its length in front. Fails on a message that is too long.
    pub fn encode(&self) -> Result<Vec<u8>, Malformed> {
        let mut out = vec![0; 4];
        match self {
            Self::Request { command, message } => {
                named(&mut out, 0, command);
                message.encode(&mut out);
            }
            Self::Response(message) => {
                out.push(1);
                message.encode(&mut out);
            }
            Self::CommandUnknown => out.push(2),
            Self::Register(event) => named(&mut out, 3, event),
            Self::Unregister(event) => named(&mut out, 4, event),
            Self::EventConfirm => out.push(5),
            Self::EventUnknown => out.push(6),
            Self::Event { name, message } => {
                named(&mut out, 7, name);
                message.encode(&mut out);
            }
        }
        let len = out.len() - 4;
        if len > PACKET_BYTES_MAX {
            return Err(Malformed::TooLong(len));
        }
        out[..4].copy_from_slice(&(len as u32).to_be_bytes());
        Ok(out)
    }

    /// Decodes a packet from the bytes after its length.
    pub fn decode(bytes: &[u8]) -> Result<Self, Malformed> {
        let mut reader = Reader { bytes };
        let packet = match reader.byte().ok_or(Malformed::Empty)? {
            0 => {
                let command = reader.name()?;
                return Ok(Self::Request {
                    command,
                    message: Section::decode(reader.bytes)?,
                });
            }
            1 => return Section::decode(reader.bytes).map(Self::Response),
            2 => Self::CommandUnknown,
            3 => Self::Register(reader.name()?),
            4 => Self::Unregister(reader.name()?),
            5 => Self::EventConfirm,
            6 => Self::EventUnknown,
            7 => {
                let name = reader.name()?;
                return Ok(Self::Event {
                    name,
                    message: Section::decode(reader.bytes)?,
                });
            }
            other => return Err(Malformed::PacketType(other)),
        };
        Ok(packet)
    }
}

/// Returns the length of a packet from its length field, if the length is allowed.
pub(crate) fn length(field: [u8; 4]) -> Result<usize, Malformed> {
    match u32::from_be_bytes(field) as usize {
        0 => Err(Malformed::Empty),
        len if len > PACKET_BYTES_MAX => Err(Malformed::TooLong(len)),
        len => Ok(len),
    }
}

fn named(out: &mut Vec<u8>, kind: u8, name: &str) {
    let mut end = name.len().min(usize::from(u8::MAX));
    while !name.is_char_boundary(end) {
        end -= 1;
    }
    out.push(kind);
    out.push(end as u8);
    out.extend_from_slice(&name.as_bytes()[..end]);
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn round_trips() {
        let mut message = Section::new();
        message.set("success", "yes");
        for packet in [
            ControlPacket::Request {
                command: "initiate".to_owned(),
                message: message.clone(),
            },
            ControlPacket::Response(message.clone()),
            ControlPacket::CommandUnknown,
            ControlPacket::Register("list-sa".to_owned()),
            ControlPacket::Unregister("list-sa".to_owned()),
            ControlPacket::EventConfirm,
            ControlPacket::EventUnknown,
            ControlPacket::Event {
                name: "list-sa".to_owned(),
                message,
            },
        ] {
            let bytes = packet.encode().unwrap();
            assert_eq!(length(bytes[..4].try_into().unwrap()), Ok(bytes.len() - 4));
            assert_eq!(ControlPacket::decode(&bytes[4..]), Ok(packet));
        }
    }

    #[test]
    fn lengths_are_bounded() {
        assert_eq!(length([0xff; 4]), Err(Malformed::TooLong(0xffff_ffff)));
        assert_eq!(length([0; 4]), Err(Malformed::Empty));
        let mut message = Section::new();
        message.list("l", std::iter::repeat_n("x".repeat(60_000), 9));
        assert!(matches!(
            ControlPacket::Response(message).encode(),
            Err(Malformed::TooLong(_))
        ));
    }

    proptest! {
        #[test]
        fn hostile_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..256)) {
            let _ = ControlPacket::decode(&bytes);
        }
    }
}
