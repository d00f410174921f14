//! Writes lines to a slow output: a bounded queue, and a thread that writes.
//!
//! A full disk or a blocked pipe delays only that thread. Lines that find the queue full are lost
//! and counted.

use std::fmt;
use std::io::{self, Write};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use zeroize::Zeroizing;

use crate::confine;

/// Most lines that wait, and most bytes of their text.
const LINES_MAX: usize = 4096;
const BYTES_MAX: usize = 4 << 20;
/// The time that the writer waits after an error before it tries again.
const RETRY: Duration = Duration::from_millis(500);
/// The time that the writer waits if the output only lacks room.
const RETRY_FULL: Duration = Duration::from_millis(20);
const FLUSH_STEP: Duration = Duration::from_millis(2);

/// Observes problems of an output, on the thread that writes.
pub trait Observer: Send + 'static {
    /// Called when writing starts to fail. The waiting lines are kept.
    fn failing(&mut self, _error: &io::Error) {}

    /// Called when `count` lines were lost since the line before. Returns the text that is written
    /// in their place.
    fn lost(&mut self, count: u64) -> Vec<u8>;
}

#[derive(Debug)]
struct OutputLine {
    /// The text. It may contain session keys.
    text: Zeroizing<Vec<u8>>,
    /// Number of lines that were lost between the line before and this line.
    lost_before: u64,
}

#[derive(Debug, Default)]
struct OutputState {
    lost: AtomicU64,
    /// Lost lines that the output does not mention yet.
    unreported: AtomicU64,
    /// Lines and bytes that are not yet written.
    lines: AtomicUsize,
    bytes: AtomicUsize,
    /// The current error of the output, if any.
    error: Mutex<Option<String>>,
}

/// The state of an output.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OutputReport {
    pub lost: u64,
    pub waiting: usize,
    pub error: Option<String>,
}

/// The entrance of an output. No call waits for the output, or fails because of it.
#[derive(Debug)]
pub struct LineOutput {
    queue: SyncSender<OutputLine>,
    state: Arc<OutputState>,
}

impl LineOutput {
    /// Starts a thread called `name` that writes to `sink`. The thread ends after the `LineOutput` is
    /// dropped and the last line is written.
    pub fn start(
        name: &str,
        sink: impl Write + Send + 'static,
        observer: impl Observer,
    ) -> io::Result<Self> {
        let (queue, lines) = sync_channel(LINES_MAX);
        let state = Arc::new(OutputState::default());
        let writer = OutputWriter {
            sink,
            observer,
            state: Arc::clone(&state),
        };
        confine::start_writing(name.to_owned(), move || writer.run(&lines))?;
        Ok(Self { queue, state })
    }

    /// Queues a line, or loses it. Never waits.
    pub fn push(&self, text: Vec<u8>) {
        let state = &*self.state;
        let len = text.len();
        let line = OutputLine {
            text: Zeroizing::new(text),
            lost_before: state.unreported.swap(0, Ordering::Relaxed),
        };
        let lost_before = line.lost_before;
        state.lines.fetch_add(1, Ordering::Relaxed);
        let bytes = state.bytes.fetch_add(len, Ordering::Relaxed) + len;
        if bytes <= BYTES_MAX && self.queue.try_send(line).is_ok() {
            return;
        }
        state.lines.fetch_sub(1, Ordering::Relaxed);
        state.bytes.fetch_sub(len, Ordering::Relaxed);
        state
            .unreported
            .fetch_add(lost_before + 1, Ordering::Relaxed);
        state.lost.fetch_add(1, Ordering::Relaxed);
    }

    /// Waits until every line is written, or until the timeout. Returns false after the timeout.
    pub fn flush(&self, timeout: Duration) -> bool {
        let end = Instant::now() + timeout;
        while self.state.lines.load(Ordering::Acquire) > 0 {
            if Instant::now() >= end {
                return false;
            }
            thread::sleep(FLUSH_STEP);
        }
        true
    }

    pub fn report(&self) -> OutputReport {
        OutputReport {
            lost: self.state.lost.load(Ordering::Relaxed),
            waiting: self.state.lines.load(Ordering::Relaxed),
            error: self.state.error().clone(),
        }
    }
}

impl OutputState {
    fn error(&self) -> std::sync::MutexGuard<'_, Option<String>> {
        self.error.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

struct OutputWriter<W, O> {
    sink: W,
    observer: O,
    state: Arc<OutputState>,
}

impl<W: Write, O: Observer> OutputWriter<W, O> {
    fn run(mut self, lines: &Receiver<OutputLine>) {
        while let Ok(line) = lines.recv() {
            self.write_lost(line.lost_before);
            self.write(&line.text);
            self.state
                .bytes
                .fetch_sub(line.text.len(), Ordering::Relaxed);
            if self.state.lines.fetch_sub(1, Ordering::Release) == 1 {
                // No later line may come to mention the loss, so mention it now.
                self.write_lost(self.state.unreported.swap(0, Ordering::Relaxed));
            }
        }
    }

    fn write_lost(&mut self, count: u64) {
        if count > 0 {
            let text = self.observer.lost(count);
            self.write(&text);
        }
    }

    /// Writes the whole text, however long that takes.
    fn write(&mut self, mut text: &[u8]) {
        let mut failing = false;
        while !text.is_empty() {
            let error = match self.sink.write(text) {
                Ok(0) => io::ErrorKind::WriteZero.into(),
                Ok(written) => {
                    text = text.get(written..).unwrap_or_default();
                    continue;
                }
                Err(error) => error,
            };
            match error.kind() {
                io::ErrorKind::Interrupted => {}
                // Another process made the shared descriptor non-blocking.
                io::ErrorKind::WouldBlock => thread::sleep(RETRY_FULL),
                _ => {
                    if !failing {
                        self.observer.failing(&error);
                    }
                    failing = true;
                    *self.state.error() = Some(error.to_string());
                    thread::sleep(RETRY);
                }
            }
        }
        if failing {
            *self.state.error() = None;
        }
    }
}

impl<W, O> fmt::Debug for OutputWriter<W, O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OutputWriter").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    const SOON: Duration = Duration::from_secs(10);

    /// A sink that writes only when it is permitted. It sends the text of each write to the test.
    struct WriteGate {
        leave: Receiver<io::Result<usize>>,
        written: mpsc::Sender<Vec<u8>>,
    }

    impl Write for WriteGate {
        fn write(&mut self, text: &[u8]) -> io::Result<usize> {
            let len = match self.leave.recv() {
                Ok(leave) => leave?.min(text.len()),
                Err(_) => text.len(),
            };
            self.written.send(text[..len].to_vec()).unwrap();
            Ok(len)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    struct PlainObserver(mpsc::Sender<String>);

    impl Observer for PlainObserver {
        fn failing(&mut self, error: &io::Error) {
            self.0.send(error.to_string()).unwrap();
        }

        fn lost(&mut self, count: u64) -> Vec<u8> {
            format!("lost {count}\n").into_bytes()
        }
    }

    struct Bench {
        output: LineOutput,
        leave: mpsc::Sender<io::Result<usize>>,
        written: Receiver<Vec<u8>>,
        failures: Receiver<String>,
    }

    fn bench() -> Bench {
        let (leave, leave_of_gate) = mpsc::channel();
        let (written_by_gate, written) = mpsc::channel();
        let (failed, failures) = mpsc::channel();
        let gate = WriteGate {
            leave: leave_of_gate,
            written: written_by_gate,
        };
        let output = LineOutput::start("test", gate, PlainObserver(failed)).unwrap();
        Bench {
            output,
            leave,
            written,
            failures,
        }
    }

    fn until(condition: impl Fn() -> bool) {
        let end = Instant::now() + SOON;
        while !condition() {
            assert!(Instant::now() < end);
            thread::sleep(FLUSH_STEP);
        }
    }

    fn text(bench: &Bench) -> String {
        let all: Vec<Vec<u8>> = bench.written.try_iter().collect();
        String::from_utf8(all.concat()).unwrap()
    }

    #[test]
    fn an_output_that_stands_still_loses_lines_and_tells_where() {
        let bench = bench();
        // The writer holds the first line, and the others fill the queue.
        bench.output.push(b"0\n".to_vec());
        let accepted = LINES_MAX + 1;
        let mut number = 1;
        while bench.output.report().lost == 0 {
            bench.output.push(format!("{number}\n").into_bytes());
            number += 1;
        }
        let queued = bench.output.report().waiting;
        assert!((LINES_MAX..=accepted).contains(&queued), "{queued}");
        for _ in 0..99 {
            bench.output.push(b"x\n".to_vec());
        }
        let lost = bench.output.report().lost;
        assert!(!bench.output.flush(Duration::ZERO));

        // One line leaves and one enters. The new line comes after the note of the loss.
        bench.leave.send(Ok(usize::MAX)).unwrap();
        until(|| bench.output.report().waiting < queued);
        bench.output.push(b"after\n".to_vec());
        assert_eq!(bench.output.report().lost, lost);
        bench.output.push(b"y\n".to_vec());
        drop(bench.leave);
        assert!(bench.output.flush(SOON));
        until(|| bench.output.state.unreported.load(Ordering::Relaxed) == 0);
        let all: Vec<Vec<u8>> = bench.written.try_iter().collect();
        let all = String::from_utf8(all.concat()).unwrap();
        let after = format!("{}\nlost {lost}\nafter\n", queued - 1);
        assert!(all.starts_with("0\n1\n2\n"));
        assert!(all.contains(&after), "{}", &all[all.len() - 80..]);
    }

    #[test]
    fn losses_are_told_without_a_further_line() {
        let bench = bench();
        while bench.output.report().lost < 3 {
            bench.output.push(vec![b'z'; BYTES_MAX / 4]);
        }
        drop(bench.leave);
        assert!(bench.output.flush(SOON));
        let end = Instant::now() + SOON;
        let mut all = Vec::new();
        while !all.ends_with(b"lost 3\n") {
            assert!(Instant::now() < end);
            all.extend(bench.written.recv_timeout(SOON).unwrap());
        }
    }

    #[test]
    fn memory_is_bounded_by_bytes_too() {
        let bench = bench();
        bench.output.push(vec![b'z'; BYTES_MAX + 1]);
        assert_eq!(bench.output.report().lost, 1);
        assert_eq!(bench.output.state.bytes.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn a_failing_output_keeps_what_waits_and_tears_no_line() {
        let bench = bench();
        let full = || io::Error::from(io::ErrorKind::StorageFull);
        bench.output.push(b"one\n".to_vec());
        bench.output.push(b"two\n".to_vec());
        bench.leave.send(Ok(2)).unwrap();
        bench.leave.send(Err(full())).unwrap();
        bench
            .leave
            .send(Err(io::ErrorKind::Interrupted.into()))
            .unwrap();
        bench
            .leave
            .send(Err(io::ErrorKind::WouldBlock.into()))
            .unwrap();
        bench.leave.send(Err(full())).unwrap();
        let told = bench.failures.recv_timeout(SOON).unwrap();
        assert_eq!(told, full().to_string());
        until(|| bench.output.report().error.is_some());
        assert_eq!(bench.output.report().waiting, 2);

        for _ in 0..2 {
            bench.leave.send(Ok(usize::MAX)).unwrap();
        }
        assert!(bench.output.flush(SOON));
        assert_eq!(text(&bench), "one\ntwo\n");
        assert_eq!(bench.output.report(), OutputReport::default());
        assert!(bench.failures.try_recv().is_err(), "told once");
    }
}
