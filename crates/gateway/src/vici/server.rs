//! The server side: connections on tokio tasks, commands handed to one owner over a channel.
//!
//! The owner of the gateway's state receives [`Request`]s, emits the events that belong to one
//! (`list-sa` while `list-sas` runs) and replies. Events for everybody go through [`Events`].

use std::collections::HashSet;
use std::fs;
use std::io::{self, ErrorKind};
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{broadcast, mpsc, oneshot};
use tokio::task::JoinSet;

use super::packet::length;
use super::{Message, Packet};

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

/// Connections at one time; more are closed at once.
const CONNECTIONS_MAX: usize = 64;
/// Bytes that may wait for a client that does not read; then it is disconnected.
const BACKLOG_BYTES_MAX: usize = 64 << 20;
/// Events for everybody that may wait for a connection; then the oldest are lost.
const EVENTS_WAITING_MAX: usize = 1024;

/// A command of a client. Dropping it without a reply answers with a failure.
#[derive(Debug)]
pub struct Request {
    pub command: String,
    pub message: Message,
    registered: Arc<Mutex<HashSet<String>>>,
    outbox: Outbox,
    answer: oneshot::Sender<Packet>,
}

impl Request {
    /// Whether [`Self::emit`] with that name reaches the client.
    pub fn wants(&self, event: &str) -> bool {
        self.registered
            .lock()
            .is_ok_and(|registered| registered.contains(event))
    }

    /// Sends an event to the client that gave the command, if it has registered for it.
    pub fn emit(&self, event: &str, message: Message) {
        if self.wants(event) {
            self.outbox.send(&Packet::Event {
                name: event.to_owned(),
                message,
            });
        }
    }

    pub fn reply(self, message: Message) {
        // The client may be gone; then nobody waits.
        let _ = self.answer.send(Packet::Response(message));
    }

    /// `success = yes`.
    pub fn succeed(self) {
        let mut message = Message::new();
        message.set("success", "yes");
        self.reply(message);
    }

    /// `success = no` and why.
    pub fn fail(self, why: impl std::fmt::Display) {
        self.reply(failure(why));
    }

    /// The command is not known.
    pub fn unknown(self) {
        let _ = self.answer.send(Packet::CommandUnknown);
    }
}

fn failure(why: impl std::fmt::Display) -> Message {
    let mut message = Message::new();
    message.set("success", "no").set("errmsg", why);
    message
}

/// Where events for every registered client go in. Sending never waits.
#[derive(Clone, Debug)]
pub struct Events {
    sender: broadcast::Sender<(Arc<str>, Arc<Message>)>,
}

impl Default for Events {
    fn default() -> Self {
        Self {
            sender: broadcast::Sender::new(EVENTS_WAITING_MAX),
        }
    }
}

impl Events {
    pub fn emit(&self, event: &str, message: Message) {
        if self.sender.receiver_count() > 0 {
            let _ = self.sender.send((event.into(), Arc::new(message)));
        }
    }
}

/// Why the control socket could not be made.
#[derive(Debug, thiserror::Error)]
pub enum BindError {
    #[error("another gateway already listens at {}", .0.display())]
    InUse(PathBuf),
    #[error("{} exists and is no socket", .0.display())]
    NotASocket(PathBuf),
    #[error("cannot make the control socket {}: {source}", path.display())]
    Io { path: PathBuf, source: io::Error },
}

/// The control socket; its file is removed on drop.
#[derive(Debug)]
pub struct Socket {
    listener: UnixListener,
    path: PathBuf,
}

impl Socket {
    /// Makes the socket, for the owner only. A socket file that nobody listens at is replaced.
    /// Needs a tokio runtime.
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
        // Bound under another name and renamed, so that it is never reachable with a wider mode.
        let staging = path.with_extension(format!("new-{}", std::process::id()));
        let bound = (|| {
            let listener = UnixListener::bind(&staging)?;
            fs::set_permissions(&staging, fs::Permissions::from_mode(0o600))?;
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

/// Accepts connections until the receiver of `requests` is gone. Dropping the future closes them all.
pub async fn serve(socket: Socket, requests: mpsc::Sender<Request>, events: Events) {
    let mut connections = JoinSet::new();
    loop {
        while connections.try_join_next().is_some() {}
        let accepted = tokio::select! {
            accepted = socket.listener.accept() => accepted,
            () = requests.closed() => return,
        };
        match accepted {
            Ok((stream, _)) if connections.len() < CONNECTIONS_MAX => {
                connections.spawn(connection(
                    stream,
                    requests.clone(),
                    events.sender.subscribe(),
                ));
            }
            Ok(_) => {
                tracing::warn!("control connection refused: {CONNECTIONS_MAX} are open already")
            }
            Err(error) => {
                // Out of file descriptors, most likely: give others time to close some.
                tracing::warn!(%error, "control connection not accepted");
                tokio::time::sleep(std::time::Duration::from_millis(200)).await;
            }
        }
    }
}

/// Packets on their way to one client.
#[derive(Clone, Debug)]
struct Outbox {
    queue: mpsc::UnboundedSender<Vec<u8>>,
    /// Bytes in the queue: bounds it by what it holds.
    waiting: Arc<AtomicUsize>,
}

impl Outbox {
    /// False if the packet cannot be sent: too long, or the client reads too slowly.
    fn send(&self, packet: &Packet) -> bool {
        let bytes = match packet.encode() {
            Ok(bytes) => bytes,
            Err(error) => {
                tracing::warn!(%error, "control message not sent");
                return false;
            }
        };
        let waiting = self.waiting.fetch_add(bytes.len(), Ordering::Relaxed) + bytes.len();
        waiting <= BACKLOG_BYTES_MAX && self.queue.send(bytes).is_ok()
    }
}

async fn connection(
    stream: UnixStream,
    requests: mpsc::Sender<Request>,
    events: broadcast::Receiver<(Arc<str>, Arc<Message>)>,
) {
    let (reader, writer) = stream.into_split();
    let (queue, outgoing) = mpsc::unbounded_channel();
    let waiting = Arc::new(AtomicUsize::new(0));
    let outbox = Outbox {
        queue,
        waiting: waiting.clone(),
    };
    let registered = Arc::new(Mutex::new(HashSet::new()));
    // Whichever ends first ends the connection: the client left, or it does not read.
    tokio::select! {
        result = read(reader, requests, &outbox, &registered) => {
            if let Err(error) = result
                && error.kind() != ErrorKind::UnexpectedEof
            {
                tracing::debug!(%error, "control connection closed");
            }
        }
        () = forward(events, &outbox, &registered) => tracing::debug!("control client reads too slowly"),
        result = write(writer, outgoing, &waiting) => {
            if let Err(error) = result {
                tracing::debug!(%error, "control connection closed");
            }
        }
    }
}

async fn read(
    mut reader: OwnedReadHalf,
    requests: mpsc::Sender<Request>,
    outbox: &Outbox,
    registered: &Arc<Mutex<HashSet<String>>>,
) -> io::Result<()> {
    loop {
        let mut field = [0; 4];
        reader.read_exact(&mut field).await?;
        let len = length(field).map_err(io::Error::other)?;
        // Grows as bytes arrive: the length alone claims no memory.
        let mut bytes = Vec::new();
        (&mut reader)
            .take(len as u64)
            .read_to_end(&mut bytes)
            .await?;
        if bytes.len() < len {
            return Err(ErrorKind::UnexpectedEof.into());
        }
        let answer = match Packet::decode(&bytes).map_err(io::Error::other)? {
            Packet::Request { command, message } => {
                let (answer, answered) = oneshot::channel();
                let request = Request {
                    command,
                    message,
                    registered: registered.clone(),
                    outbox: outbox.clone(),
                    answer,
                };
                if requests.send(request).await.is_err() {
                    return Ok(());
                }
                answered.await.unwrap_or_else(|_| {
                    Packet::Response(failure("the gateway dropped the command"))
                })
            }
            Packet::Register(event) if EVENTS.contains(&event.as_str()) => {
                if let Ok(mut registered) = registered.lock() {
                    registered.insert(event);
                }
                Packet::EventConfirm
            }
            Packet::Unregister(event) => {
                match registered
                    .lock()
                    .is_ok_and(|mut registered| registered.remove(&event))
                {
                    true => Packet::EventConfirm,
                    false => Packet::EventUnknown,
                }
            }
            Packet::Register(_) => Packet::EventUnknown,
            _ => {
                return Err(io::Error::other(
                    "a client sent a packet that only servers send",
                ));
            }
        };
        let sent = outbox.send(&answer)
            || outbox.send(&Packet::Response(failure(
                "the answer is too long for one message",
            )));
        if !sent {
            return Err(io::Error::other("the client reads too slowly"));
        }
    }
}

/// Ends only when the client is too slow.
async fn forward(
    mut events: broadcast::Receiver<(Arc<str>, Arc<Message>)>,
    outbox: &Outbox,
    registered: &Mutex<HashSet<String>>,
) {
    loop {
        match events.recv().await {
            Ok((name, message)) => {
                let wanted = registered
                    .lock()
                    .is_ok_and(|registered| registered.contains(&*name));
                let packet = || Packet::Event {
                    name: name.to_string(),
                    message: (*message).clone(),
                };
                if wanted && !outbox.send(&packet()) {
                    return;
                }
            }
            Err(broadcast::error::RecvError::Lagged(lost)) => {
                tracing::debug!(lost, "control client missed events");
            }
            // No more events: the connection goes on for commands.
            Err(broadcast::error::RecvError::Closed) => std::future::pending().await,
        }
    }
}

async fn write(
    mut writer: OwnedWriteHalf,
    mut outgoing: mpsc::UnboundedReceiver<Vec<u8>>,
    waiting: &AtomicUsize,
) -> io::Result<()> {
    while let Some(bytes) = outgoing.recv().await {
        writer.write_all(&bytes).await?;
        waiting.fetch_sub(bytes.len(), Ordering::Relaxed);
    }
    Ok(())
}
