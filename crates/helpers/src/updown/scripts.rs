//! The gateway's side: it asks the runner for the calls that are due.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::path::Path;
use std::time::Instant;

use esplanade_host::rate::LineLimit;
use esplanade_ike::ChildSaInstalled;
use esplanade_ike::event::ChildSaDeleted;
use tokio::io::Interest;
use tokio::net::UnixDatagram;

use super::book::{CallBook, CallsRefused, DueCall};
use super::environment::{CallSubject, ChildFacts, ChildNetworks};
use super::keeper::RunnerSocket;
use super::message::{
    MESSAGE_MAX, RunnerReport, RunnerRequest, ScriptOutcome, ScriptRegistration, ScriptRequest,
    encode,
};

/// Most scripts that run at a time, each of another connection.
const RUNNING_MAX: usize = 8;
/// A call is made so often if the runner ends meanwhile, perhaps by the script.
const TRIES_MAX: u32 = 3;

/// Calls updown scripts through the runner. Without a runner there are no calls.
#[derive(Debug)]
pub struct UpdownScripts {
    socket: Option<UnixDatagram>,
    scripts: Vec<String>,
    book: CallBook,
    /// The calls that the runner has.
    running: BTreeMap<u64, RunningCall>,
    last_id: u64,
    /// Messages that the socket has not taken yet.
    outgoing: VecDeque<Vec<u8>>,
    /// The runner is there. It was started again if it has been there before.
    is_ready: bool,
    was_ready: bool,
    lines: ScriptLines,
}

#[derive(Debug)]
struct RunningCall {
    call: DueCall,
    tries: u32,
}

/// Limits for lines that peers cause.
#[derive(Debug)]
struct ScriptLines {
    calls: LineLimit,
    refusals: LineLimit,
}

/// The calls for a child SA that may come up.
#[derive(Debug)]
pub struct ChildCalls {
    subject: CallSubject,
    networks: ChildNetworks,
}

impl UpdownScripts {
    fn new(socket: Option<UnixDatagram>, scripts: Vec<String>) -> Self {
        Self {
            socket,
            scripts,
            book: CallBook::default(),
            running: BTreeMap::new(),
            last_id: 0,
            outgoing: VecDeque::new(),
            is_ready: false,
            was_ready: false,
            lines: ScriptLines {
                calls: LineLimit::new(100, 20),
                refusals: LineLimit::new(10, 1),
            },
        }
    }

    /// Connects to the runner's keeper and tells it which scripts there are.
    pub async fn start(runner: Option<RunnerSocket>, scripts: Vec<String>) -> io::Result<Self> {
        let Some(runner) = runner else {
            return Ok(Self::new(None, Vec::new()));
        };
        let socket = UnixDatagram::from_std(runner.into_socket()?)?;
        let listed = scripts.iter().cloned().map(ScriptRegistration::Script);
        for message in listed.chain([ScriptRegistration::Complete]) {
            socket.send(&encode(&message)?).await?;
        }
        Ok(Self::new(Some(socket), scripts))
    }

    /// Tells whether there is any script that could be called.
    pub fn has_scripts(&self) -> bool {
        !self.scripts.is_empty()
    }

    /// Tells whether a script was there when the gateway started. Only such scripts can be called.
    pub fn knows(&self, script: &str) -> bool {
        self.scripts.iter().any(|known| known == script)
    }

    /// Decides, before a child SA comes up, whether its script can be told. There are no calls without a script, and for
    /// an SA that replaces another.
    pub fn admit(
        &mut self,
        facts: &ChildFacts<'_>,
        now: Instant,
    ) -> Result<Option<ChildCalls>, CallsRefused> {
        let script = facts.policy.updown.as_deref();
        let Some(script) = script.filter(|_| facts.sa.rekeyed_from.is_none()) else {
            return Ok(None);
        };
        let (connection, child) = (&facts.sa.connection, &facts.sa.name);
        if self.socket.is_none() {
            if self.lines.refusals.admits(now) {
                tracing::error!(connection, child, "the updown script is not called");
            }
            return Ok(None);
        }
        let subject = CallSubject::new(facts, script);
        let networks = ChildNetworks::new(&facts.sa.local_ts, &facts.sa.remote_ts);
        if let Err(why) = self.book.admits(&subject, &networks) {
            if self.lines.refusals.admits(now) {
                let peer = &subject.peer;
                tracing::error!(connection, child, peer, "the child SA is refused: {why}");
            }
            return Err(why);
        }
        Ok(Some(ChildCalls { subject, networks }))
    }

    /// Calls the child's script for an SA that has come up. Scripts do not hear of an SA that replaces another, or that
    /// stands beside one for the same traffic.
    pub fn installed(&mut self, sa: &ChildSaInstalled, calls: Option<ChildCalls>) {
        if let Some(former) = sa.rekeyed_from {
            self.book.succeed(former, sa.child, sa.ike_sa.0);
        }
        if let Some(ChildCalls { subject, networks }) = calls {
            self.book.add(sa.child, sa.ike_sa.0, subject, networks);
        }
    }

    /// Calls the child's script for an SA that has ended, if no other carries its traffic.
    pub fn deleted(&mut self, event: &ChildSaDeleted) {
        self.book.remove(event.child);
    }

    /// Tells whether calls are under way or wait.
    pub fn is_busy(&self) -> bool {
        self.socket.is_some() && (!self.running.is_empty() || self.book.has_due())
    }

    /// Logs how many lines were not written.
    pub fn tick(&mut self, now: Instant) {
        if let Some(suppressed) = self.lines.calls.take_suppressed(now) {
            tracing::warn!(
                suppressed,
                "calls of updown scripts were not logged one by one"
            );
        }
        if let Some(suppressed) = self.lines.refusals.take_suppressed(now) {
            tracing::error!(
                suppressed,
                "child SAs were refused for their updown scripts and not logged one by one"
            );
        }
    }

    /// Gives the runner the next calls, and waits for its next report. It is safe to cancel. Without a runner it waits for
    /// ever.
    pub async fn proceed(&mut self) {
        if self.socket.is_none() {
            return std::future::pending().await;
        }
        if let Err(error) = self.exchange().await {
            self.give_up(&error);
        }
    }

    /// Gives the runner the calls that are due. What follows from one message is settled before: an SA that has ended and
    /// come back by then is not mentioned.
    pub fn hand_out_due(&mut self) {
        if let Err(error) = self.send_due() {
            self.give_up(&error);
        }
    }

    fn give_up(&mut self, error: &io::Error) {
        let lost = self.book.waiting() + self.running.len();
        tracing::error!(lost, "updown scripts are not called any more: {error}");
        let scripts = std::mem::take(&mut self.scripts);
        *self = Self::new(None, scripts);
    }

    fn send_due(&mut self) -> io::Result<()> {
        self.hand_out()?;
        self.flush()
    }

    async fn exchange(&mut self) -> io::Result<()> {
        self.send_due()?;
        let Some(socket) = &self.socket else {
            return Ok(());
        };
        let interest = match self.outgoing.is_empty() {
            true => Interest::READABLE,
            false => Interest::READABLE | Interest::WRITABLE,
        };
        socket.ready(interest).await?;
        self.flush()?;
        let Some(socket) = &self.socket else {
            return Ok(());
        };
        let mut buffer = vec![0; MESSAGE_MAX];
        match socket.try_recv(&mut buffer) {
            Ok(0) => Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(len) => {
                let report = serde_json::from_slice(&buffer[..len])?;
                self.take(report, Instant::now())
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Sends what the socket takes.
    fn flush(&mut self) -> io::Result<()> {
        let Some(socket) = &self.socket else {
            return Ok(());
        };
        while let Some(message) = self.outgoing.front() {
            match socket.try_send(message) {
                Ok(_) => self.outgoing.pop_front(),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) => return Err(error),
            };
        }
        Ok(())
    }

    /// Makes requests of the calls that are due.
    fn hand_out(&mut self) -> io::Result<()> {
        while self.is_ready && self.running.len() < RUNNING_MAX {
            let Some(call) = self.book.next() else { break };
            self.last_id += 1;
            self.outgoing.push_back(request(self.last_id, &call)?);
            let running = RunningCall { call, tries: 1 };
            self.running.insert(self.last_id, running);
        }
        Ok(())
    }

    fn take(&mut self, report: RunnerReport, now: Instant) -> io::Result<()> {
        match report {
            RunnerReport::Ended {
                id,
                outcome,
                output,
            } => {
                if let Some(RunningCall { call, .. }) = self.running.remove(&id) {
                    self.book.done(&call);
                    if self.lines.calls.admits(now) {
                        log(&call, &outcome, &output);
                    }
                }
            }
            RunnerReport::Started => self.begin()?,
        }
        Ok(())
    }

    /// A runner has started. It gets the calls that an earlier one has not reported about.
    fn begin(&mut self) -> io::Result<()> {
        if std::mem::replace(&mut self.was_ready, true) {
            let again = self.running.len();
            tracing::warn!(
                again,
                "the runner of updown scripts has ended and was started again"
            );
        }
        self.is_ready = true;
        self.outgoing.clear();
        self.outgoing.push_back(encode(&RunnerRequest::Begin)?);
        let worn = self.running.extract_if(.., |_, running| {
            running.tries += 1;
            running.tries > TRIES_MAX
        });
        for (_, RunningCall { call, .. }) in worn.collect::<Vec<_>>() {
            let subject = subject_of(&call);
            let script = &call.subject.script;
            tracing::error!(
                subject,
                script,
                "the updown script is not called again: the runner has ended each time"
            );
            self.book.done(&call);
        }
        for (id, RunningCall { call, .. }) in &self.running {
            self.outgoing.push_back(request(*id, call)?);
        }
        Ok(())
    }
}

fn request(id: u64, call: &DueCall) -> io::Result<Vec<u8>> {
    let DueCall {
        subject,
        pair,
        up,
        ike_sa,
    } = call;
    encode(&RunnerRequest::Call(ScriptRequest {
        id,
        script: subject.script.clone(),
        environment: subject.environment(pair, *up, *ike_sa),
    }))
}

/// The child and the verb, for the log.
fn subject_of(call: &DueCall) -> String {
    let verb = call.subject.verb(&call.pair, call.up);
    format!("{} {verb}", call.subject.child)
}

fn log(call: &DueCall, outcome: &ScriptOutcome, output: &str) {
    let subject = subject_of(call);
    let script = &call.subject.script;
    let output = esplanade_ike::text::clean(output.trim_end());
    match outcome {
        ScriptOutcome::Exited(0) => tracing::info!(subject, output, "updown script called"),
        ScriptOutcome::Exited(status) => {
            tracing::warn!(
                subject,
                script,
                output,
                "the updown script failed with status {status}"
            );
        }
        ScriptOutcome::Killed => {
            tracing::warn!(subject, script, output, "a signal ended the updown script")
        }
        ScriptOutcome::TimedOut => {
            tracing::warn!(
                subject,
                script,
                output,
                "the updown script took too long and was ended"
            );
        }
        ScriptOutcome::NotStarted(error) => {
            tracing::error!(
                subject,
                script,
                "the updown script cannot be started: {error}"
            );
        }
    }
}

/// Starts the runner's keeper, if the configuration at `path` names an updown script. Call it while the process can still
/// run programs.
pub fn runner_if_needed(path: &Path) -> io::Result<Option<RunnerSocket>> {
    match esplanade_config::names_key(path, "updown") {
        true => RunnerSocket::start().map(Some),
        false => Ok(None),
    }
}

#[cfg(test)]
mod tests {
    use esplanade_ike::event::ChildSaId;

    use super::super::environment::samples;
    use super::*;
    use esplanade_host::helper_process::packet_pair;

    /// The runner's end, as the test plays it.
    struct PlayedRunner(UnixDatagram);

    impl PlayedRunner {
        async fn say(&self, report: &RunnerReport) {
            self.0.send(&encode(report).unwrap()).await.unwrap();
        }

        async fn asked(&self) -> Vec<u64> {
            let (mut ids, mut buffer) = (Vec::new(), vec![0; MESSAGE_MAX]);
            self.0.readable().await.unwrap();
            while let Ok(len) = self.0.try_recv(&mut buffer) {
                match serde_json::from_slice(&buffer[..len]).unwrap() {
                    RunnerRequest::Begin => ids.push(0),
                    RunnerRequest::Call(request) => ids.push(request.id),
                }
            }
            ids
        }
    }

    fn connected() -> (UpdownScripts, PlayedRunner) {
        let (ours, theirs) = packet_pair::<std::os::unix::net::UnixDatagram>().unwrap();
        let [ours, theirs] = [ours, theirs].map(|socket| {
            socket.set_nonblocking(true).unwrap();
            UnixDatagram::from_std(socket).unwrap()
        });
        let scripts = UpdownScripts::new(Some(ours), vec!["true".to_owned()]);
        (scripts, PlayedRunner(theirs))
    }

    fn ended(id: u64) -> RunnerReport {
        RunnerReport::Ended {
            id,
            outcome: ScriptOutcome::Exited(0),
            output: String::new(),
        }
    }

    fn add(scripts: &mut UpdownScripts, number: u64) {
        let subject = samples::subject(&format!("site-{number}"), "peer");
        let networks = samples::networks(&[("10.5.0.0", "10.5.0.255")]);
        scripts.book.add(ChildSaId(number), 7, subject, networks);
    }

    #[tokio::test]
    async fn a_new_runner_gets_the_calls_that_the_old_one_had() {
        let (mut scripts, runner) = connected();
        (1..=20).for_each(|number| add(&mut scripts, number));
        runner.say(&RunnerReport::Started).await;
        scripts.proceed().await;
        runner.say(&ended(99)).await;
        scripts.proceed().await;
        assert_eq!(runner.asked().await, [0, 1, 2, 3, 4, 5, 6, 7, 8]);
        for id in [3, 5] {
            runner.say(&ended(id)).await;
            scripts.proceed().await;
        }
        // Calls that nobody has read, and those that were read, come again to the next one.
        runner.say(&RunnerReport::Started).await;
        scripts.proceed().await;
        runner.say(&ended(9)).await;
        scripts.proceed().await;
        let again = [9, 10, 0, 1, 2, 4, 6, 7, 8, 9, 10];
        assert_eq!(runner.asked().await, again);
        // A script that ends the runner each time is given up.
        runner.say(&RunnerReport::Started).await;
        scripts.proceed().await;
        runner.say(&RunnerReport::Started).await;
        scripts.proceed().await;
        runner.say(&ended(99)).await;
        scripts.proceed().await;
        let asked = runner.asked().await;
        let newest = asked.rsplit(|id| *id == 0).next().unwrap();
        assert_eq!(newest, [11, 12, 13, 14, 15, 16, 17, 18], "{asked:?}");
    }

    /// The peer deletes its SA and makes it again before the gateway looks after its scripts.
    #[tokio::test]
    async fn an_end_that_was_handed_out_is_told_though_the_sa_comes_back() {
        let (mut scripts, runner) = connected();
        runner.say(&RunnerReport::Started).await;
        scripts.proceed().await;
        add(&mut scripts, 1);
        scripts.hand_out_due();
        runner.say(&ended(1)).await;
        scripts.proceed().await;
        assert_eq!(runner.asked().await, [0, 1]);
        scripts.book.remove(ChildSaId(1));
        scripts.hand_out_due();
        add(&mut scripts, 1);
        scripts.hand_out_due();
        for id in [2, 3] {
            runner.say(&ended(id)).await;
            scripts.proceed().await;
        }
        scripts.hand_out_due();
        assert_eq!(runner.asked().await, [2, 3]);
        assert!(!scripts.is_busy());
    }

    #[tokio::test]
    async fn without_a_runner_nothing_waits() {
        let (mut scripts, runner) = connected();
        add(&mut scripts, 1);
        assert!(scripts.is_busy());
        drop(runner);
        scripts.proceed().await;
        assert!(!scripts.is_busy() && scripts.socket.is_none());
        assert!(scripts.knows("true"));
    }
}
