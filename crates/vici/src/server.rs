//! The server side: connections on tokio tasks, commands handed to one owner over a channel.
//!
//! The owner of the gateway's state receives [`Request`]s, emits the events that belong to one
//! (`list-sa` while `list-sas` runs) and replies. Events for everybody go through [`Events`].

use std::collections::{BTreeMap, HashSet};
use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use serde::Serialize;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{Notify, broadcast, mpsc, oneshot};
use tokio::task::JoinSet;

pub use super::clients::CONNECTIONS_MAX;
use super::clients::{AdmittedClient, Clients, Membership};
use super::log_limit::LogLimit;
use super::packet::length;
use super::{ControlPacket, Malformed, Section, Unrepresentable, refused};

/// Events that a client may register for.
pub const EVENTS: &[&str] = &[
    "list-sa",
    "list-conn",
    "list-policy",
    "list-cert",
    "list-authority",
    "control-log",
    "log",
    "ike-updown",
    "ike-rekey",
    "child-updown",
    "child-rekey",
];

/// Most bytes of a client's packet. No command of ours is longer.
const REQUEST_BYTES_MAX: usize = 64 << 10;
/// The time for which a client may read nothing although data waits for it. Then it is disconnected.
const STALL_MAX: Duration = Duration::from_secs(30);
/// Most connections that the kernel keeps until they are accepted.
const LISTEN_BACKLOG: i32 = 128;
const MODE: u32 = 0o600;
/// Most events for everybody that may wait for a connection. If there are more, the oldest are lost.
const EVENTS_WAITING_MAX: usize = 1024;

/// A command of a client. Dropping it without a reply answers with a failure.
#[derive(Debug)]
pub struct Request {
    pub command: String,
    pub message: Section,
    registered: Arc<Mutex<HashSet<String>>>,
    outbox: Outbox,
    answer: oneshot::Sender<ControlPacket>,
}

impl Request {
    /// Tells whether [`Self::emit`] with this name reaches the client.
    pub fn wants(&self, event: &str) -> bool {
        self.registered
            .lock()
            .is_ok_and(|registered| registered.contains(event))
    }

    /// Tells whether the client has left and hears no answer.
    pub fn is_abandoned(&self) -> bool {
        self.answer.is_closed()
    }

    /// Sends an event to the client that gave the command, if it has registered for it.
    pub fn emit(&self, event: &str, message: Section) {
        if self.wants(event) {
            self.outbox.send(&ControlPacket::Event {
                name: event.to_owned(),
                message,
            });
        }
    }

    /// Sends an event whose message is one section of this name. Returns false if it is left out.
    pub fn emit_named(&self, event: &str, name: &str, content: &impl Serialize) -> bool {
        self.emit_divided(event, name, content, &|_| None)
    }

    /// Does the same with what one message may not hold: `halves_of` divides it, and each half has its own event. Returns
    /// false if something is left out.
    pub fn emit_divided<T: Serialize>(
        &self,
        event: &str,
        name: &str,
        content: &T,
        halves_of: &impl Fn(&T) -> Option<[T; 2]>,
    ) -> bool {
        if !self.wants(event) {
            return true;
        }
        let packet = self
            .form(&BTreeMap::from([(name, content)]))
            .map(|message| ControlPacket::Event {
                name: event.to_owned(),
                message,
            });
        let encoded = match packet {
            Ok(packet) => packet.encode(),
            Err(error) => {
                tracing::error!("an event {event} is left out: {error}");
                return false;
            }
        };
        let error = match encoded {
            Ok(bytes) => return self.outbox.queue(bytes),
            Err(error) => error,
        };
        let Some(halves) = halves_of(content) else {
            tracing::warn!(%error, name, "an event {event} is left out");
            return false;
        };
        let mut halves = halves.iter();
        halves.all(|half| self.emit_divided(event, name, half, halves_of))
    }

    /// Replies with any structure.
    pub fn answer(self, content: &impl Serialize) {
        match self.form(content) {
            Ok(message) => self.reply(message),
            Err(error) => self.fail(error),
        }
    }

    /// Puts a structure into the form that the client wants.
    fn form(&self, content: &impl Serialize) -> Result<Section, Unrepresentable> {
        match self.message.wants_json() {
            true => Section::of_json(content),
            false => Section::of(content),
        }
    }

    pub fn reply(self, message: Section) {
        // The client may be gone; then nobody waits.
        let _ = self.answer.send(ControlPacket::Response(message));
    }

    /// Answers with `success = yes`.
    pub fn succeed(self) {
        let mut message = Section::new();
        message.set("success", "yes");
        self.reply(message);
    }

    /// Answers with `success = no` and the reason.
    pub fn fail(self, why: impl std::fmt::Display) {
        self.reply(failure(why));
    }

    /// Answers that the command is not known, or why it is refused if strongSwan's daemon knows it.
    pub fn unknown(self) {
        if let Some(why) = refused::why(&self.command) {
            return self.fail(why);
        }
        let _ = self.answer.send(ControlPacket::CommandUnknown);
    }
}

/// The answer `success = no` with its reason.
pub fn failure(why: impl std::fmt::Display) -> Section {
    let mut message = Section::new();
    message.set("success", "no").set("errmsg", why);
    message
}

/// Sends events to every client that has registered for them. Sending never waits.
#[derive(Clone, Debug)]
pub struct Events {
    sender: broadcast::Sender<(Arc<str>, Arc<Section>)>,
}

impl Default for Events {
    fn default() -> Self {
        Self {
            sender: broadcast::Sender::new(EVENTS_WAITING_MAX),
        }
    }
}

impl Events {
    pub fn emit(&self, event: &str, message: Section) {
        if self.sender.receiver_count() > 0 {
            let _ = self.sender.send((event.into(), Arc::new(message)));
        }
    }
}

/// The reason why the control socket could not be made.
#[derive(Debug, thiserror::Error)]
pub enum BindError {
    #[error("another gateway already listens at {}", .0.display())]
    InUse(PathBuf),
    #[error("{} exists and is no socket", .0.display())]
    NotASocket(PathBuf),
    #[error("cannot make the control socket {}: {source}", path.display())]
    Io { path: PathBuf, source: io::Error },
}

/// The control socket. Its file is removed on drop.
#[derive(Debug)]
pub struct Socket {
    listener: UnixListener,
    path: PathBuf,
}

impl Socket {
    /// Makes the socket, for the owner only. It replaces a socket file that nobody listens at. The call needs a tokio
    /// runtime.
    pub fn bind(path: &Path) -> Result<Self, BindError> {
        let error = |source| BindError::Io {
            path: path.to_owned(),
            source,
        };
        match fs::symlink_metadata(path) {
            Ok(metadata) if !metadata.file_type().is_socket() => {
                return Err(BindError::NotASocket(path.to_owned()));
            }
            Ok(_) => match std::os::unix::net::UnixStream::connect(path) {
                Ok(_) => return Err(BindError::InUse(path.to_owned())),
                Err(refused) if refused.kind() == ErrorKind::ConnectionRefused => {
                    fs::remove_file(path).map_err(error)?;
                }
                Err(other) => return Err(error(other)),
            },
            Err(missing) if missing.kind() == ErrorKind::NotFound => {
                if let Some(directory) = path
                    .parent()
                    .filter(|directory| !directory.as_os_str().is_empty())
                {
                    fs::create_dir_all(directory).map_err(error)?;
                }
            }
            Err(other) => return Err(error(other)),
        }
        // The file gets its name only when the socket listens. So whoever finds the file can connect.
        let staging = path.with_extension(format!("new-{}", std::process::id()));
        let bound = (|| {
            // A process with the same number may have left such a file, as in a container that was restarted.
            let _ = fs::remove_file(&staging);
            let socket = bind_private(&staging)?;
            socket.listen(LISTEN_BACKLOG)?;
            socket.set_nonblocking(true)?;
            let listener = UnixListener::from_std(OwnedFd::from(socket).into())?;
            fs::rename(&staging, path)?;
            Ok(listener)
        })();
        match bound {
            Ok(listener) => Ok(Self {
                listener,
                path: path.to_owned(),
            }),
            Err(source) => {
                let _ = fs::remove_file(&staging);
                Err(error(source))
            }
        }
    }

    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
    }
}

/// Binds a socket whose file has the mode [`MODE`] from the beginning, whatever the umask is. Linux copies the mode
/// from the socket.
fn bind_private(path: &Path) -> io::Result<socket2::Socket> {
    let socket = socket2::Socket::new(socket2::Domain::UNIX, socket2::Type::STREAM, None)?;
    let file = File::from(OwnedFd::from(socket));
    file.set_permissions(fs::Permissions::from_mode(MODE))?;
    let socket = socket2::Socket::from(OwnedFd::from(file));
    socket.bind(&socket2::SockAddr::unix(path)?)?;
    Ok(socket)
}

/// Accepts connections until the receiver of `requests` is gone. Dropping the future closes them all.
pub async fn serve(socket: Socket, requests: mpsc::Sender<Request>, events: Events) {
    let mut connections = JoinSet::new();
    let clients = Clients::default();
    let (mut refused, mut failed) = (LogLimit::default(), LogLimit::default());
    loop {
        while connections.try_join_next().is_some() {}
        let accepted = tokio::select! {
            accepted = socket.listener.accept() => accepted,
            () = requests.closed() => return,
        };
        let admitted = accepted.and_then(|(stream, _)| {
            let uid = stream.peer_cred()?.uid();
            Ok((stream, clients.admit(uid)))
        });
        match admitted {
            Ok((stream, Some(place))) => {
                connections.spawn(connection(
                    stream,
                    place,
                    requests.clone(),
                    events.sender.subscribe(),
                ));
            }
            Ok((_, None)) => {
                if let Some(untold) = refused.admit(Instant::now()) {
                    tracing::warn!(untold, "control connection refused: all are busy");
                }
            }
            Err(error) => {
                // The process has most likely no file descriptor left. So it closes an idle connection, or gives others
                // time to close some.
                if let Some(untold) = failed.admit(Instant::now()) {
                    tracing::warn!(%error, untold, "control connection not accepted");
                }
                clients.close_idle();
                tokio::time::sleep(Duration::from_millis(200)).await;
            }
        }
    }
}

/// Packets on their way to one client.
#[derive(Clone, Debug)]
struct Outbox {
    /// The queue of packets. The membership accounts for its bytes, and so bounds it.
    queue: mpsc::UnboundedSender<Vec<u8>>,
    membership: Membership,
}

impl Outbox {
    /// Sends a packet. Returns false if that failed: the packet is too long, or the client had to go.
    fn send(&self, packet: &ControlPacket) -> bool {
        let bytes = match packet.encode() {
            Ok(bytes) => bytes,
            Err(error) => {
                tracing::warn!(%error, "control message not sent");
                return false;
            }
        };
        self.queue(bytes)
    }

    /// Sends an encoded packet. Returns false if the client had to go.
    fn queue(&self, bytes: Vec<u8>) -> bool {
        self.membership.queue(bytes.len()) && self.queue.send(bytes).is_ok()
    }
}

/// The state that the tasks of one connection share.
#[derive(Debug)]
struct Connection {
    outbox: Outbox,
    registered: Arc<Mutex<HashSet<String>>>,
    /// The signal that the client has read everything.
    drained: Notify,
}

async fn connection(
    stream: UnixStream,
    place: AdmittedClient,
    requests: mpsc::Sender<Request>,
    events: broadcast::Receiver<(Arc<str>, Arc<Section>)>,
) {
    let (reader, writer) = stream.into_split();
    let (queue, outgoing) = mpsc::unbounded_channel();
    // The reader is one packet ahead, so that it notices a client that leaves while its command is at work.
    let (ahead, packets) = mpsc::channel(1);
    let connection = Connection {
        outbox: Outbox {
            queue,
            membership: place.membership().clone(),
        },
        registered: Arc::default(),
        drained: Notify::new(),
    };
    // The first of these tasks to end also ends the connection: the client left, it does not read, or others need its
    // place.
    let ended = tokio::select! {
        result = read(reader, ahead) => result,
        result = connection.answer(packets, requests) => result,
        () = connection.forward(events) => Ok(()),
        result = connection.write(writer, outgoing) => result,
        () = place.membership().closed() => Err(io::Error::other("its place is needed")),
    };
    if let Err(error) = ended
        && error.kind() != ErrorKind::UnexpectedEof
    {
        tracing::debug!(%error, "control connection closed");
    }
}

async fn read(mut reader: OwnedReadHalf, ahead: mpsc::Sender<ControlPacket>) -> io::Result<()> {
    loop {
        let mut field = [0; 4];
        reader.read_exact(&mut field).await?;
        let len = length(field).map_err(io::Error::other)?;
        if len > REQUEST_BYTES_MAX {
            return Err(io::Error::other(Malformed::TooLong(len)));
        }
        // The buffer grows as bytes arrive: the length alone claims no memory.
        let mut bytes = Vec::new();
        (&mut reader)
            .take(len as u64)
            .read_to_end(&mut bytes)
            .await?;
        if bytes.len() < len {
            return Err(ErrorKind::UnexpectedEof.into());
        }
        let packet = ControlPacket::decode(&bytes).map_err(io::Error::other)?;
        if ahead.send(packet).await.is_err() {
            return Ok(());
        }
    }
}

impl Connection {
    /// Answers one packet after the other. Each packet waits until the client has read the answer to the one before.
    async fn answer(
        &self,
        mut packets: mpsc::Receiver<ControlPacket>,
        requests: mpsc::Sender<Request>,
    ) -> io::Result<()> {
        let membership = &self.outbox.membership;
        while let Some(packet) = packets.recv().await {
            membership.set_busy(true);
            let answer = match packet {
                ControlPacket::Request { command, message } => {
                    let (answer, answered) = oneshot::channel();
                    let request = Request {
                        command,
                        message,
                        registered: self.registered.clone(),
                        outbox: self.outbox.clone(),
                        answer,
                    };
                    if requests.send(request).await.is_err() {
                        return Ok(());
                    }
                    answered.await.unwrap_or_else(|_| {
                        ControlPacket::Response(failure("the gateway dropped the command"))
                    })
                }
                other => self.register(other)?,
            };
            membership.set_busy(false);
            let sent = self.outbox.send(&answer)
                || self.outbox.send(&ControlPacket::Response(failure(
                    "the answer is too long for one message",
                )));
            if !sent {
                return Err(io::Error::other("the client reads too slowly"));
            }
            while !membership.is_drained() {
                self.drained.notified().await;
            }
        }
        Ok(())
    }

    fn register(&self, packet: ControlPacket) -> io::Result<ControlPacket> {
        let mut registered = self
            .registered
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let known = match packet {
            ControlPacket::Register(event) if EVENTS.contains(&event.as_str()) => {
                registered.insert(event);
                true
            }
            ControlPacket::Register(_) => false,
            ControlPacket::Unregister(event) => registered.remove(&event),
            _ => {
                return Err(io::Error::other(
                    "a client sent a packet that only servers send",
                ));
            }
        };
        self.outbox.membership.set_listens(!registered.is_empty());
        Ok(match known {
            true => ControlPacket::EventConfirm,
            false => ControlPacket::EventUnknown,
        })
    }

    /// Sends the events for everybody. The future ends only if an event cannot be sent.
    async fn forward(&self, mut events: broadcast::Receiver<(Arc<str>, Arc<Section>)>) {
        loop {
            match events.recv().await {
                Ok((name, message)) => {
                    let wanted = self
                        .registered
                        .lock()
                        .is_ok_and(|registered| registered.contains(&*name));
                    let packet = || ControlPacket::Event {
                        name: name.to_string(),
                        message: (*message).clone(),
                    };
                    if wanted && !self.outbox.send(&packet()) {
                        return;
                    }
                }
                Err(broadcast::error::RecvError::Lagged(lost)) => {
                    tracing::debug!(lost, "control client missed events");
                }
                // No more events can come. The connection goes on for commands.
                Err(broadcast::error::RecvError::Closed) => std::future::pending().await,
            }
        }
    }

    async fn write(
        &self,
        mut writer: OwnedWriteHalf,
        mut outgoing: mpsc::UnboundedReceiver<Vec<u8>>,
    ) -> io::Result<()> {
        while let Some(bytes) = outgoing.recv().await {
            let mut left = bytes.as_slice();
            while !left.is_empty() {
                let written = tokio::time::timeout(STALL_MAX, writer.write(left)).await??;
                if written == 0 {
                    return Err(ErrorKind::WriteZero.into());
                }
                left = left.get(written..).unwrap_or_default();
            }
            if self.outbox.membership.wrote(bytes.len()) {
                self.drained.notify_one();
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_socket_has_its_mode_before_it_can_be_connected_to() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("vici");
        let socket = bind_private(&path).unwrap();
        let mode = fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, MODE);
        let refused = std::os::unix::net::UnixStream::connect(&path).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::ConnectionRefused);
        drop(socket);
    }
}
