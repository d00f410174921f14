//! A blocking client, for the command line.

use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

use socket2::{Domain, SockAddr, Socket, Type};

use super::packet::length;
use super::{ControlPacket, Malformed, Section};

/// The reason why a command got no answer.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Nobody listens at the socket.
    #[error("no gateway answers at the control socket: {0}")]
    Unreachable(io::Error),
    #[error("the connection to the gateway failed: {0}")]
    Io(#[from] io::Error),
    #[error("the gateway did not answer within {} s", .0.as_secs())]
    TimedOut(Duration),
    #[error("the gateway's answer is malformed: {0}")]
    Malformed(#[from] Malformed),
    #[error("the gateway does not know the command `{0}`")]
    UnknownCommand(String),
    #[error("the gateway does not know the event `{0}`")]
    UnknownEvent(String),
    #[error("the gateway sent a packet that does not belong here")]
    Unexpected,
}

/// A connection to the gateway's control socket.
#[derive(Debug)]
pub struct Client {
    stream: UnixStream,
    timeout: Duration,
}

impl Client {
    /// `timeout` bounds each command as a whole.
    pub fn connect(socket: &Path, timeout: Duration) -> Result<Self, Error> {
        let connected: io::Result<Socket> = (|| {
            let stream = Socket::new(Domain::UNIX, Type::STREAM, None)?;
            // If many clients wait to be accepted, connecting waits as well. This timeout bounds the wait.
            stream.set_write_timeout(Some(timeout))?;
            stream.connect(&SockAddr::unix(socket)?)?;
            Ok(stream)
        })();
        match connected {
            Ok(stream) => Ok(Self {
                stream: OwnedFd::from(stream).into(),
                timeout,
            }),
            Err(error) if error.kind() == ErrorKind::WouldBlock => Err(Error::TimedOut(timeout)),
            Err(error) => Err(Error::Unreachable(error)),
        }
    }

    /// Sends a command and waits for its answer.
    pub fn command(&mut self, command: &str, message: Section) -> Result<Section, Error> {
        self.streamed(command, message, None, |_| {})
    }

    /// Does the same as [`Self::command`]. Meanwhile `on_event` gets the events that are named `event`.
    pub fn streamed(
        &mut self,
        command: &str,
        message: Section,
        event: Option<&str>,
        mut on_event: impl FnMut(Section),
    ) -> Result<Section, Error> {
        let deadline = Instant::now() + self.timeout;
        if let Some(event) = event {
            self.send(&ControlPacket::Register(event.to_owned()), deadline)?;
            match self.receive(deadline)? {
                ControlPacket::EventConfirm => {}
                ControlPacket::EventUnknown => return Err(Error::UnknownEvent(event.to_owned())),
                _ => return Err(Error::Unexpected),
            }
        }
        self.send(
            &ControlPacket::Request {
                command: command.to_owned(),
                message,
            },
            deadline,
        )?;
        let answer = loop {
            match self.receive(deadline)? {
                ControlPacket::Event { name, message } if Some(name.as_str()) == event => {
                    on_event(message)
                }
                ControlPacket::Event { .. } => {}
                ControlPacket::Response(message) => break message,
                ControlPacket::CommandUnknown => {
                    return Err(Error::UnknownCommand(command.to_owned()));
                }
                _ => return Err(Error::Unexpected),
            }
        };
        if let Some(event) = event {
            self.send(&ControlPacket::Unregister(event.to_owned()), deadline)?;
            loop {
                match self.receive(deadline)? {
                    ControlPacket::EventConfirm => break,
                    ControlPacket::Event { .. } => {}
                    _ => return Err(Error::Unexpected),
                }
            }
        }
        Ok(answer)
    }

    fn send(&mut self, packet: &ControlPacket, deadline: Instant) -> Result<(), Error> {
        let bytes = packet.encode()?;
        self.stream.set_write_timeout(Some(self.left(deadline)?))?;
        self.stream
            .write_all(&bytes)
            .map_err(|error| self.io_error(error))
    }

    fn receive(&mut self, deadline: Instant) -> Result<ControlPacket, Error> {
        let mut field = [0; 4];
        self.fill(&mut field, deadline)?;
        let mut bytes = vec![0; length(field)?];
        self.fill(&mut bytes, deadline)?;
        Ok(ControlPacket::decode(&bytes)?)
    }

    fn fill(&mut self, mut buffer: &mut [u8], deadline: Instant) -> Result<(), Error> {
        while !buffer.is_empty() {
            self.stream.set_read_timeout(Some(self.left(deadline)?))?;
            match self.stream.read(buffer) {
                Ok(0) => return Err(Error::Io(ErrorKind::UnexpectedEof.into())),
                Ok(len) => buffer = &mut buffer[len..],
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(self.io_error(error)),
            }
        }
        Ok(())
    }

    fn left(&self, deadline: Instant) -> Result<Duration, Error> {
        match deadline.saturating_duration_since(Instant::now()) {
            Duration::ZERO => Err(Error::TimedOut(self.timeout)),
            left => Ok(left),
        }
    }

    fn io_error(&self, error: io::Error) -> Error {
        match error.kind() {
            ErrorKind::WouldBlock | ErrorKind::TimedOut => Error::TimedOut(self.timeout),
            _ => Error::Io(error),
        }
    }
}
