//! Logging: one subscriber that writes text or JSON to standard error, or entries with fields to the journal.
//!
//! While the gateway runs, a separate thread writes to standard error. So a thread that logs never
//! waits.

mod journal;

use std::backtrace::{Backtrace, BacktraceStatus};
use std::cell::RefCell;
use std::fmt;
use std::fs::File;
use std::io::{self, IsTerminal, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::panic::PanicHookInfo;
use std::path::Path;
use std::sync::OnceLock;
use std::thread;
use std::time::Duration;

use tracing::{Event, Level, Subscriber};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::format::{self, JsonFields, Writer};
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields, MakeWriter};
use tracing_subscriber::registry::LookupSpan;

use self::journal::{Entry, JournalSocket};
use crate::output::{LineOutput, Observer, OutputReport};

/// The time that the end of the program waits for the log to be written.
const FLUSH: Duration = Duration::from_secs(1);

static OUTPUT: OnceLock<LineOutput> = OnceLock::new();
/// Set if the output takes entries of the journal.
static ENTRIES: OnceLock<()> = OnceLock::new();

thread_local! {
    /// Collects the events that the writing thread logs itself.
    static NOTE: RefCell<Option<Vec<u8>>> = const { RefCell::new(None) };
}

/// The format of log lines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Format {
    /// One readable line per event.
    #[default]
    Text,
    /// One JSON object per event.
    Json,
}

/// Starts the thread that writes for this module: to standard error, or text to the journal where standard error goes
/// there anyway. Panics become events.
pub fn start(format: Format) -> io::Result<()> {
    if OUTPUT.get().is_some() {
        return Ok(());
    }
    let journal = (format == Format::Text && to_journal())
        .then(|| JournalSocket::connect(Path::new(journal::SOCKET)));
    let output = match journal {
        Some(Ok(socket)) => {
            let _ = ENTRIES.set(());
            LineOutput::start("log", socket, Losses)?
        }
        // `Stderr` would hold its lock during a slow write.
        Some(Err(_)) | None => {
            let sink = File::from(io::stderr().as_fd().try_clone_to_owned()?);
            LineOutput::start("log", sink, Losses)?
        }
    };
    let _ = OUTPUT.set(output);
    std::panic::set_hook(Box::new(log_panic));
    Ok(())
}

/// Tells whether standard error goes to the journal of systemd, which sets this variable to the numbers of the stream.
fn to_journal() -> bool {
    static FOUND: OnceLock<bool> = OnceLock::new();
    *FOUND.get_or_init(|| {
        let stream = std::env::var("JOURNAL_STREAM").unwrap_or_default();
        let file = io::stderr().as_fd().try_clone_to_owned().map(File::from);
        let found = file.and_then(|file| file.metadata());
        found.is_ok_and(|found| stream == format!("{}:{}", found.dev(), found.ino()))
    })
}

/// Writes events for the journal, which has the time itself.
#[derive(Debug)]
struct ForJournal<F> {
    text: F,
    /// The journal takes entries. Otherwise it takes lines with their priority, as sd-daemon(3) has it.
    entries: bool,
}

impl<S, N, F> FormatEvent<S, N> for ForJournal<F>
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
    F: FormatEvent<S, N>,
{
    fn format_event(
        &self,
        context: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let mut text = String::new();
        self.text
            .format_event(context, Writer::new(&mut text), event)?;
        let priority = priority(*event.metadata().level());
        if !self.entries {
            return writer.write_str(&prioritized(&text, priority));
        }
        let mut entry = Entry::new(&text, priority);
        entry.own("target", event.metadata().target());
        event.record(&mut entry);
        // The writer takes text only.
        EventWriter
            .write_all(&entry.into_bytes())
            .map_err(|_| fmt::Error)
    }
}

fn lines<F>(text: F) -> ForJournal<F> {
    let entries = false;
    ForJournal { text, entries }
}

fn entries() -> ForJournal<format::Format<format::Full, ()>> {
    let text = timeless().with_level(false);
    let entries = true;
    ForJournal { text, entries }
}

/// Returns the form of text lines for the journal.
fn timeless() -> format::Format<format::Full, ()> {
    format::format().with_ansi(false).without_time()
}

/// Returns the form of JSON lines for the journal.
fn objects() -> format::Format<format::Json> {
    format::format().json().flatten_event(true)
}

/// Puts a priority in front of each line of a text. The journal reads every line by itself.
fn prioritized(text: &str, priority: u8) -> String {
    let lines = text.split_inclusive('\n');
    lines.map(|line| format!("<{priority}>{line}")).collect()
}

/// Returns the priority of syslog(3).
fn priority(level: Level) -> u8 {
    match level {
        Level::ERROR => 3,
        Level::WARN => 4,
        Level::INFO => 6,
        _ => 7,
    }
}

/// Installs the subscriber of the whole process. A second call in the same process changes nothing.
pub fn init(format: Format, filter: EnvFilter) {
    let builder = tracing_subscriber::fmt()
        .with_env_filter(filter)
        // Otherwise the subscriber would print to standard error by itself, and panic if that
        // fails.
        .log_internal_errors(false)
        .with_writer(EventWriter);
    // A test that embeds the gateway may have installed its own subscriber, which stays.
    let _ = match format {
        Format::Text if ENTRIES.get().is_some() => builder.event_format(entries()).try_init(),
        Format::Text if to_journal() => builder.event_format(lines(timeless())).try_init(),
        Format::Json if to_journal() => builder
            .fmt_fields(JsonFields::new())
            .event_format(lines(objects()))
            .try_init(),
        Format::Text => builder
            .with_ansi(std::io::stderr().is_terminal())
            .try_init(),
        Format::Json => builder
            .json()
            .flatten_event(true)
            .with_ansi(false)
            .try_init(),
    };
}

/// Joins the first names of a list, and says how many more there are.
pub fn first_names(all: &[String], most: usize) -> String {
    let some = all.get(..most).unwrap_or(all).join(", ");
    match all.len().saturating_sub(most) {
        0 => some,
        more => format!("{some} and {more} more"),
    }
}

/// Writes text where the log goes, in order with it, and unchanged unless the journal reads it.
/// A failure is ignored: there is no place to report it.
pub fn write_text(level: Level, text: &str) {
    let priority = priority(level);
    match to_journal() {
        true if ENTRIES.get().is_some() => put(&Entry::new(text, priority).into_bytes()),
        true => put(prioritized(text, priority).as_bytes()),
        false => put(text.as_bytes()),
    }
}

fn put(text: &[u8]) {
    match OUTPUT.get() {
        Some(output) => output.push(text.to_vec()),
        None => drop(io::stderr().write_all(text)),
    }
}

/// Returns the state of the log.
pub fn report() -> OutputReport {
    OUTPUT.get().map(LineOutput::report).unwrap_or_default()
}

/// Waits on drop until the log is written, but at most `FLUSH`.
#[derive(Debug)]
pub struct FlushAtEnd;

impl Drop for FlushAtEnd {
    fn drop(&mut self) {
        if let Some(output) = OUTPUT.get() {
            output.flush(FLUSH);
        }
    }
}

/// Makes writers for the subscriber, which passes each event in one call.
#[derive(Debug)]
struct EventWriter;

impl MakeWriter<'_> for EventWriter {
    type Writer = Self;

    fn make_writer(&self) -> Self {
        Self
    }
}

impl Write for EventWriter {
    fn write(&mut self, text: &[u8]) -> io::Result<usize> {
        // A thread that is ending may have lost its thread-local variable and still log.
        let noted = NOTE.try_with(|note| match &mut *note.borrow_mut() {
            Some(note) => {
                note.extend_from_slice(text);
                true
            }
            None => false,
        });
        if noted != Ok(true) {
            put(text);
        }
        Ok(text.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[derive(Debug)]
struct Losses;

impl Observer for Losses {
    fn lost(&mut self, count: u64) -> Vec<u8> {
        NOTE.set(Some(Vec::new()));
        tracing::error!(
            lost = count,
            "log lines were lost: they came faster than they could be written"
        );
        // A filter that logs only audit events must show losses as well.
        if NOTE.with_borrow(|note| note.as_ref().is_some_and(Vec::is_empty)) {
            tracing::error!(target: "audit", lost = count, "log lines were lost");
        }
        NOTE.take().unwrap_or_default()
    }
}

/// Logs a panic as an event. The standard hook would write to standard error and wait for it.
fn log_panic(panic: &PanicHookInfo<'_>) {
    let thread = thread::current();
    let message = panic.payload_as_str().unwrap_or("no message");
    let place = panic.location().map(ToString::to_string);
    let backtrace = Backtrace::capture();
    let backtrace = match backtrace.status() {
        BacktraceStatus::Captured => format!("\n{backtrace}"),
        _ => String::new(),
    };
    tracing::error!(
        thread = thread.name().unwrap_or("unnamed"),
        place,
        "panicked: {message}{backtrace}"
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_for_the_journal_have_a_priority_and_no_time() {
        let subscriber = tracing_subscriber::fmt()
            .with_max_level(Level::TRACE)
            .with_writer(EventWriter)
            .event_format(lines(timeless()))
            .finish();
        NOTE.set(Some(Vec::new()));
        tracing::subscriber::with_default(subscriber, || {
            tracing::error!(target: "t", "one\ntwo");
            tracing::warn!(target: "t", count = 3, "three");
            tracing::info!(target: "t", "four");
            tracing::debug!(target: "t", "five");
        });
        let text = String::from_utf8(NOTE.take().unwrap()).unwrap();
        let expected = "<3>ERROR t: one\n<3>two\n<4> WARN t: three count=3\n<6> INFO t: four\n<7>DEBUG t: five\n";
        assert_eq!(text, expected);
    }

    #[test]
    fn entries_for_the_journal_have_the_fields_of_the_event() {
        let subscriber = tracing_subscriber::fmt()
            .with_writer(EventWriter)
            .event_format(entries())
            .finish();
        NOTE.set(Some(Vec::new()));
        tracing::subscriber::with_default(subscriber, || {
            let (spi_in, none) = (format_args!("{:08x}", 7), None::<u8>);
            tracing::warn!(target: "t", connection = "hq", spi_in, count = 3, none, "child SA {}", "up");
        });
        let text = String::from_utf8(NOTE.take().unwrap()).unwrap();
        let expected = "PRIORITY=4\nSYSLOG_IDENTIFIER=esplanade\n\
            MESSAGE=t: child SA up connection=\"hq\" spi_in=00000007 count=3\n\
            ESPLANADE_TARGET=t\nESPLANADE_CONNECTION=hq\nESPLANADE_SPI_IN=00000007\nESPLANADE_COUNT=3\n";
        assert_eq!(text, expected);
    }

    #[test]
    fn objects_for_the_journal_have_a_priority() {
        let subscriber = tracing_subscriber::fmt()
            .with_writer(EventWriter)
            .fmt_fields(JsonFields::new())
            .event_format(lines(objects()))
            .finish();
        NOTE.set(Some(Vec::new()));
        tracing::subscriber::with_default(subscriber, || tracing::warn!(count = 3, "three"));
        let text = String::from_utf8(NOTE.take().unwrap()).unwrap();
        let object = text.strip_prefix("<4>").unwrap();
        let object: serde_json::Value = serde_json::from_str(object).unwrap();
        assert_eq!(
            (&object["count"], &object["message"]),
            (&3.into(), &"three".into())
        );
        assert_eq!(object["level"], "WARN");
    }

    #[test]
    fn losses_are_told_in_the_format_of_the_log_at_every_filter() {
        for (filter, words) in [
            ("info", "\"lost\":7"),
            ("error", "\"lost\":7"),
            ("off,audit=info", "\"target\":\"audit\""),
        ] {
            let subscriber = tracing_subscriber::fmt()
                .with_env_filter(EnvFilter::new(filter))
                .with_writer(EventWriter)
                .json()
                .flatten_event(true)
                .finish();
            let text = tracing::subscriber::with_default(subscriber, || Losses.lost(7));
            let text = String::from_utf8(text).unwrap();
            assert!(text.contains(words), "{filter}: {text}");
            assert_eq!(text.lines().count(), 1, "{filter}: {text}");
        }
        assert!(NOTE.with_borrow(Option::is_none));
    }
}
