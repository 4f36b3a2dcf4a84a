//! What a server, a mount or `up` has to say of its work, on stderr: with time and level, or as the journal
//! takes it.
//!
//! ```text
//! 2026-11-23T12:51:02.123Z  WARN the server is away; operations wait for it      a terminal, a file, a pipe
//! <4>the server is away; operations wait for it                                  the journal, and `up`
//! ```
//! Commands that end by themselves have no log: their complaints are plain lines. Invariant: nobody who logs waits
//! for whoever reads it ([`sink`]).

mod sink;

use crate::out;
use clap::ValueEnum;
use interface::LogLevel as LineLevel;
use rustix::fs::fstat;
use sink::Sink;
use std::fmt;
use std::str::FromStr as _;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use tracing::level_filters::LevelFilter;
use tracing::{Event, Level, Subscriber, error, info, warn};
use tracing_subscriber::filter::Targets;
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::registry::{LookupSpan, Registry};
use tracing_subscriber::reload;

/// What is logged: this and all above.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum LogLevel {
    /// What ends the work, or may have lost something
    Error,
    /// What somebody should look at
    Warn,
    /// What happens
    Info,
    /// How it comes to it
    Debug,
    /// All
    Trace,
}

impl LogLevel {
    /// As it is written on a command line.
    pub(crate) const fn text(self) -> &'static str {
        match self {
            Self::Error => "error",
            Self::Warn => "warn",
            Self::Info => "info",
            Self::Debug => "debug",
            Self::Trace => "trace",
        }
    }

    const fn filter(self) -> LevelFilter {
        match self {
            Self::Error => LevelFilter::ERROR,
            Self::Warn => LevelFilter::WARN,
            Self::Info => LevelFilter::INFO,
            Self::Debug => LevelFilter::DEBUG,
            Self::Trace => LevelFilter::TRACE,
        }
    }
}

/// How a line begins.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Style {
    /// With time and level.
    Timed,
    /// With the number of its level, as syslog has them.
    Priority,
}

struct Log {
    style: Style,
    filter: reload::Handle<Targets, Registry>,
    sink: Sink,
    /// The last error goes to a file that has other lines, with their times.
    in_background: AtomicBool,
}

static LOG: OnceLock<Log> = OnceLock::new();

/// Begins the log of this process: what `level` says, else the variable RUST_LOG, else `info` and above. `of_up`: a
/// child of `up`, which gives its lines their time.
pub(crate) fn begin(level: Option<LogLevel>, of_up: bool) {
    let (targets, fault) = targets(level);
    let style = if of_up || is_journal() { Style::Priority } else { Style::Timed };
    let (filter, handle) = reload::Layer::new(targets);
    let sink = Sink::new();
    let to_sink = sink.clone();
    let lines = tracing_subscriber::fmt::layer()
        .with_ansi(false)
        .event_format(style)
        .with_writer(move || to_sink.clone());
    let subscriber = tracing_subscriber::registry().with(filter).with(lines);
    let in_background = AtomicBool::new(false);
    let begun = LOG.set(Log { style, filter: handle, sink, in_background }).is_ok();
    // There is one log for a process, and this is its begin.
    let set = begun && tracing::subscriber::set_global_default(subscriber).is_ok();
    debug_assert!(set, "a log is begun once");
    if let Some(fault) = fault {
        warn!("{fault}");
    }
}

/// What is let through, and what is wrong with RUST_LOG.
fn targets(level: Option<LogLevel>) -> (Targets, Option<String>) {
    let of = |level: LogLevel| Targets::new().with_default(level.filter());
    let variable = std::env::var("RUST_LOG").ok().filter(|text| !text.is_empty());
    match (level, variable) {
        (Some(level), _) => (of(level), None),
        (None, None) => (of(LogLevel::Info), None),
        (None, Some(text)) => match Targets::from_str(&text) {
            Ok(targets) => (targets, None),
            Err(error) => {
                let fault = format!("RUST_LOG={text} is not understood ({error}): logging info");
                (of(LogLevel::Info), Some(fault))
            }
        },
    }
}

/// Whether stderr is the journal's socket: systemd names it by device and inode.
fn is_journal() -> bool {
    let Ok(named) = std::env::var("JOURNAL_STREAM") else { return false };
    let stderr = fstat(rustix::stdio::stderr());
    stderr.is_ok_and(|stat| named == format!("{}:{}", stat.st_dev, stat.st_ino))
}

/// Changes what is logged from here on.
pub(crate) fn set_level(level: Option<LogLevel>) {
    let (targets, fault) = targets(level);
    if let Some(log) = LOG.get() {
        // It fails only when the subscriber is no more, which stays.
        let _gone = log.filter.reload(targets);
    }
    if let Some(fault) = fault {
        warn!("{fault}");
    }
}

/// Lines go through `write` from here on, which keeps them out of a screen.
pub(crate) fn write_through(write: impl Fn(&[u8]) + Send + 'static) {
    if let Some(log) = LOG.get() {
        log.sink.write_through(Box::new(write));
    }
}

/// From here on stderr is a file of the log.
pub(crate) fn to_background() {
    if let Some(log) = LOG.get() {
        log.in_background.store(true, Ordering::Relaxed);
    }
}

/// What a lane has to say.
pub(crate) fn say(level: LineLevel, line: &str) {
    match level {
        LineLevel::Info => info!("{line}"),
        LineLevel::Warning => warn!("{line}"),
        LineLevel::Alarm => error!("ALARM: {line}"),
    }
}

/// A complaint of code that commands without a log also run: there it is a plain line.
pub(crate) fn report(line: &str) {
    if LOG.get().is_some() { warn!("{line}") } else { out::print_error_line(line) }
}

/// The error that the process ends with.
pub(crate) fn complain_at_end(line: &str) {
    let Some(log) = LOG.get() else { return out::print_error_line(line) };
    match log.style {
        Style::Priority => error!("{line}"),
        Style::Timed if log.in_background.load(Ordering::Relaxed) => error!("{line}"),
        // Whoever waits for the command reads it.
        Style::Timed => {
            log.sink.flush();
            out::print_error_line(line);
        }
    }
}

/// Waits until all lines are written, as long as somebody reads them.
pub(crate) fn flush() {
    if let Some(log) = LOG.get() {
        log.sink.flush();
    }
}

/// Says again what a child of `up` has said.
pub(crate) fn say_again(who: &str, line: &str) {
    let (level, text) = parse(line);
    match level {
        Level::ERROR => error!("{who}: {text}"),
        Level::WARN => warn!("{who}: {text}"),
        Level::INFO => info!("{who}: {text}"),
        Level::DEBUG => tracing::debug!("{who}: {text}"),
        Level::TRACE => tracing::trace!("{who}: {text}"),
    }
}

/// Level and text of a line in [`Style::Priority`]. What did not come through a log is an error: a panic, say.
pub(crate) fn parse(line: &str) -> (Level, &str) {
    let Some((number, text)) = line.strip_prefix('<').and_then(|rest| rest.split_once('>')) else {
        return (Level::ERROR, line);
    };
    let levels = [Level::ERROR, Level::WARN, Level::INFO, Level::DEBUG];
    let level = levels.into_iter().find(|level| priority(*level) == number);
    level.map_or((Level::ERROR, line), |level| (level, text))
}

/// The number that syslog has for a level; it has none below debug.
const fn priority(level: Level) -> &'static str {
    match level {
        Level::ERROR => "3",
        Level::WARN => "4",
        Level::INFO => "6",
        Level::DEBUG | Level::TRACE => "7",
    }
}

impl<S, N> FormatEvent<S, N> for Style
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        context: &FmtContext<'_, S, N>,
        mut to: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let level = *event.metadata().level();
        match self {
            Self::Timed => write!(to, "{:.3} {level:>5} ", jiff::Timestamp::now())?,
            Self::Priority => write!(to, "<{}>", priority(level))?,
        }
        context.field_format().format_fields(to.by_ref(), event)?;
        writeln!(to)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_child_says_keeps_its_level() {
        assert_eq!(parse("<4>the server is away"), (Level::WARN, "the server is away"));
        assert_eq!(parse("<3>ALARM: gone"), (Level::ERROR, "ALARM: gone"));
        assert_eq!(parse("thread 'main' panicked"), (Level::ERROR, "thread 'main' panicked"));
        assert_eq!(parse("<9>text"), (Level::ERROR, "<9>text"));
    }

    #[test]
    fn every_level_is_named_as_it_is_written() {
        for level in LogLevel::value_variants() {
            assert_eq!(LogLevel::from_str(level.text(), false), Ok(*level));
        }
    }
}
