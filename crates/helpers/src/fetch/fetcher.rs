//! The fetcher: a process that has one further process carry out each request of the gateway. It parses nothing that
//! comes from the network.

use std::io::{self, BufReader, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use esplanade_host::confine;
use esplanade_host::helper_process::{self, line, next_line};

use super::message::{FetchFailure, LINE_MAX, Packet, Report, Request};
use super::worker;

/// The hidden command of `esplanade` that is the fetcher.
pub const COMMAND: &str = "fetcher";
/// Requests that are carried out at a time. The gateway has fewer under way.
const REQUESTS_MAX: usize = 64;

/// Carries out requests until the gateway closes the socket. `socket` is the standard input.
pub fn serve(socket: OwnedFd) -> io::Result<()> {
    confine::keeping()?;
    let socket = UnixStream::from(socket);
    Packet::Started.send(&socket)?;
    let under_way = AtomicUsize::new(0);
    std::thread::scope(|threads| {
        while let Some(request) = Request::receive(&socket)? {
            let (under_way, socket) = (&under_way, &socket);
            if under_way.fetch_add(1, Ordering::Relaxed) >= REQUESTS_MAX {
                under_way.fetch_sub(1, Ordering::Relaxed);
                fail(
                    &request,
                    socket,
                    FetchFailure::new("too many requests are under way"),
                )?;
                continue;
            }
            let again = request.clone();
            let thread = std::thread::Builder::new().spawn_scoped(threads, move || {
                if let Err(failure) = Worker::carry_out(&request, socket) {
                    // The gateway may have ended.
                    let _ = fail(&request, socket, failure);
                }
                under_way.fetch_sub(1, Ordering::Relaxed);
            });
            if let Err(error) = thread {
                under_way.fetch_sub(1, Ordering::Relaxed);
                fail(&again, socket, FetchFailure::new(error))?;
            }
        }
        Ok(())
    })
}

fn fail(request: &Request, gateway: &UnixStream, failure: FetchFailure) -> io::Result<()> {
    let report = Report {
        id: request.id,
        kind: request.task.kind(),
        len: 0,
        failure: Some(failure),
    };
    Packet::Report(report).send(gateway)
}

/// The process of one request.
struct Worker {
    child: std::process::Child,
    socket: UnixStream,
    ends: Instant,
}

impl Worker {
    /// Passes on to the gateway what the process reports. After an error the gateway forgets what came before.
    fn carry_out(request: &Request, gateway: &UnixStream) -> Result<(), FetchFailure> {
        let started = helper_process::start(worker::COMMAND);
        let (socket, child) = started.map_err(FetchFailure::new)?;
        let mut worker = Self {
            child,
            socket,
            ends: Instant::now() + worker::TIME_MAX,
        };
        let passed = worker.pass(request, gateway);
        let how = worker.end();
        passed.map_err(|error| match error.kind() {
            io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => {
                let seconds = worker::TIME_MAX.as_secs();
                FetchFailure::late(format!("it took longer than {seconds} s"))
            }
            _ => FetchFailure::new(format!("the process for it has ended{how}: {error}")),
        })
    }

    fn pass(&mut self, request: &Request, gateway: &UnixStream) -> io::Result<()> {
        self.socket.write_all(&line(request)?)?;
        let mut reader = BufReader::new(Until {
            socket: &self.socket,
            ends: self.ends,
        });
        let Some(report) = next_line(&mut reader, LINE_MAX)? else {
            return Err(io::ErrorKind::UnexpectedEof.into());
        };
        let report: Report = serde_json::from_slice(&report)?;
        let kind = request.task.kind();
        if (report.id, report.kind) != (request.id, kind) || report.len > kind.len_max() {
            return Err(io::ErrorKind::InvalidData.into());
        }
        let mut left = report.len;
        Packet::Report(report).send(gateway)?;
        while left > 0 {
            let mut piece = vec![0; left.min(Packet::PIECE_MAX)];
            reader.read_exact(&mut piece)?;
            left -= piece.len();
            let id = request.id;
            Packet::Content { id, piece }.send(gateway)?;
        }
        Ok(())
    }

    /// Ends the process, if it runs, and tells how it ended.
    fn end(&mut self) -> String {
        // A process that has ended already keeps its status.
        let _ = self.child.kill();
        match self.child.wait() {
            Ok(status) => format!(" ({status})"),
            Err(_) => String::new(),
        }
    }
}

/// Reads from a socket until a time.
struct Until<'a> {
    socket: &'a UnixStream,
    ends: Instant,
}

impl Read for Until<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let left = self.ends.saturating_duration_since(Instant::now());
        if left == Duration::ZERO {
            return Err(io::ErrorKind::TimedOut.into());
        }
        self.socket.set_read_timeout(Some(left))?;
        let mut socket = self.socket;
        socket.read(buffer)
    }
}
