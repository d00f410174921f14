//! The keeper: a process that runs the processes of PKCS#11 modules for the gateway.

use std::collections::HashMap;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::process::Child;
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use esplanade_host::{confine, helper_process};
use esplanade_tokens::message::{ModuleRegistration, TokenOutcome, TokenReply, TokenRequest};

use super::lines::{WipedLines, write_line};
use super::module;

/// The hidden command of `esplanade` that is the keeper.
pub const COMMAND: &str = "token-keeper";
/// The time that a module has for one answer.
const ANSWER_MAX: Duration = Duration::from_secs(10);
/// Half of the first pause before a module that has ended is started again.
const PAUSE: Duration = Duration::from_secs(1);

type Shared = Arc<Mutex<UnixStream>>;

/// Serves the gateway until it closes the socket. `socket` is the standard input.
pub fn serve(socket: OwnedFd) -> io::Result<()> {
    confine::keeping()?;
    let socket = UnixStream::from(socket);
    let mut lines = WipedLines::new(socket.try_clone()?);
    let writer: Shared = Arc::new(Mutex::new(socket));
    let Some(ModuleRegistration { modules }) = lines.next()? else {
        return Ok(());
    };
    let mut queues: HashMap<_, Sender<TokenRequest>> = HashMap::new();
    // The gateway bounds the number of requests that wait.
    while let Some(request) = lines.next::<TokenRequest>()? {
        let module = &request.place.module;
        if !modules.contains(module) {
            let outcome = TokenOutcome::failed("the gateway did not start with this module");
            reply(&writer, request.id, outcome)?;
            continue;
        }
        let queue = queues.entry(module.clone()).or_insert_with(|| {
            let (queue, waiting) = mpsc::channel();
            let writer = writer.clone();
            std::thread::spawn(move || run_module(&waiting, &writer));
            queue
        });
        if queue.send(request).is_err() {
            break;
        }
    }
    Ok(())
}

fn reply(writer: &Shared, id: u64, outcome: TokenOutcome) -> io::Result<()> {
    let mut writer = writer.lock().unwrap_or_else(PoisonError::into_inner);
    write_line(&mut writer, &TokenReply { id, outcome })
}

/// Carries out the requests for one module, one after another.
fn run_module(waiting: &Receiver<TokenRequest>, writer: &Shared) {
    let mut process = ModuleProcess::default();
    while let Ok(request) = waiting.recv() {
        let outcome = process.carry_out(&request);
        if reply(writer, request.id, outcome).is_err() {
            return;
        }
    }
}

/// The process of one module.
#[derive(Debug)]
struct ModuleProcess {
    running: Option<RunningModule>,
    /// The pause after the last end, which doubles each time that the process ends before it has answered.
    pause: Duration,
    paused_until: Option<Instant>,
}

impl Default for ModuleProcess {
    fn default() -> Self {
        Self {
            running: None,
            pause: PAUSE,
            paused_until: None,
        }
    }
}

#[derive(Debug)]
struct RunningModule {
    child: Child,
    socket: UnixStream,
    lines: WipedLines,
}

impl ModuleProcess {
    fn carry_out(&mut self, request: &TokenRequest) -> TokenOutcome {
        let now = Instant::now();
        if let Some(until) = self.paused_until.filter(|until| *until > now) {
            let left = until.saturating_duration_since(now).as_secs() + 1;
            return TokenOutcome::failed(format!(
                "the module's process has ended, and is started again in {left} s"
            ));
        }
        match self.ask(request) {
            Ok(outcome) => {
                self.pause = PAUSE;
                outcome
            }
            Err(error) => {
                let how = self.end();
                self.pause = helper_process::next_pause(self.pause);
                self.paused_until = Some(Instant::now() + self.pause);
                TokenOutcome::failed(match error.kind() {
                    io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => {
                        format!("the module gave no answer in {} s", ANSWER_MAX.as_secs())
                    }
                    _ => format!("the module's process has ended{how}: {error}"),
                })
            }
        }
    }

    fn ask(&mut self, request: &TokenRequest) -> io::Result<TokenOutcome> {
        let running = match &mut self.running {
            Some(running) => running,
            none => none.insert(RunningModule::start()?),
        };
        write_line(&mut running.socket, request)?;
        match running.lines.next::<TokenReply>()? {
            Some(reply) if reply.id == request.id => Ok(reply.outcome),
            _ => Err(io::ErrorKind::UnexpectedEof.into()),
        }
    }

    /// Ends the process, if it runs, and tells how it ended.
    fn end(&mut self) -> String {
        let Some(mut running) = self.running.take() else {
            return String::new();
        };
        // A process that has ended already keeps its status.
        let _ = running.child.kill();
        match running.child.wait() {
            Ok(status) => format!(" ({status})"),
            Err(_) => String::new(),
        }
    }
}

impl RunningModule {
    fn start() -> io::Result<Self> {
        let (socket, child) = helper_process::start(module::COMMAND)?;
        socket.set_read_timeout(Some(ANSWER_MAX))?;
        let lines = WipedLines::new(socket.try_clone()?);
        Ok(Self {
            child,
            socket,
            lines,
        })
    }
}
