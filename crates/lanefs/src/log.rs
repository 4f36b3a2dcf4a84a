//! The log of a server, a mount or `up`, on stderr: as text, in the journal's format, or as JSON.
//!
//! ```text
//! 2026-11-23T12:51:02.123Z  WARN the server is away; operations wait for it      a terminal, a file, a pipe
//! <4>the server is away; operations wait for it                                  the journal, and `up`
//! {"timestamp":"2026-11-23T12:51:02.123Z","level":"WARN","target":"lanefs::lane",
//!  "message":"the server is away; operations wait for it","lane":0}              one line, `--log-format json`
//! ```
//! Short commands have no log: they print errors as plain lines. Invariant: a thread that logs never waits for
//! the reader of the log ([`sink`]).

mod level;
mod line;
mod repeats;
mod sink;

use crate::args::LogArg;
use crate::out;
use interface::LogLevel as LineLevel;
pub(crate) use level::{LogFormat, LogLevel};
use line::{Form, Line};
use rustix::fs::fstat;
use sink::Sink;
use std::str::FromStr as _;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use tracing::{error, info, warn};
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::registry::Registry;
use tracing_subscriber::reload;

/// The target of the lanes' log lines.
const LANE: &str = "lanefs::lane";

struct Log {
    form: Form,
    filter: reload::Handle<Targets, Registry>,
    sink: Sink,
    /// The last error is written to a log file with timestamps.
    in_background: AtomicBool,
}

static LOG: OnceLock<Log> = OnceLock::new();

/// Begins the log of this process: what the level says, else the variable RUST_LOG, else `info` and above. `of_up`: a
/// child of `up`, which gives its lines their time.
pub(crate) fn begin(arg: LogArg, of_up: bool) {
    let (targets, fault) = targets(arg.log_level);
    let form = match arg.log_format {
        LogFormat::Json => Form::Json,
        LogFormat::Text if of_up || is_journal() => Form::Priority,
        LogFormat::Text => Form::Timed,
    };
    let (filter, handle) = reload::Layer::new(targets);
    let sink = Sink::new(form);
    let subscriber = tracing_subscriber::registry().with(filter).with(sink.clone());
    let in_background = AtomicBool::new(false);
    let begun = LOG.set(Log { form, filter: handle, sink, in_background }).is_ok();
    // There is one log for a process, and this is its begin.
    let set = begun && tracing::subscriber::set_global_default(subscriber).is_ok();
    debug_assert!(set, "a log is begun once");
    if let Some(fault) = fault {
        warn!("{fault}");
    }
}

/// The filter, and the fault of RUST_LOG if it is invalid.
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

/// Changes the filter.
pub(crate) fn set_level(level: Option<LogLevel>) {
    let (targets, fault) = targets(level);
    if let Some(log) = LOG.get() {
        // It fails only when the subscriber is no more, which stays.
        let _ignored = log.filter.reload(targets);
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

/// Logs a lane's line by its level.
pub(crate) fn of_lane(lane: u16) -> ring::LogFn {
    Box::new(move |level, line| match level {
        LineLevel::Info => info!(target: LANE, lane, "{line}"),
        LineLevel::Warning => warn!(target: LANE, lane, "{line}"),
        LineLevel::Alarm => error!(target: LANE, lane, alarm = true, "ALARM: {line}"),
    })
}

/// A complaint of code that commands without a log also run: there it is a plain line.
pub(crate) fn report(line: &str) {
    if LOG.get().is_some() { warn!("{line}") } else { out::print_error_line(line) }
}

/// The error that the process ends with.
pub(crate) fn complain_at_end(line: &str) {
    let Some(log) = LOG.get() else { return out::print_error_line(line) };
    match log.form {
        Form::Priority | Form::Json => error!("{line}"),
        Form::Timed if log.in_background.load(Ordering::Relaxed) => error!("{line}"),
        // The caller of the command reads it.
        Form::Timed => {
            log.sink.flush();
            out::print_error_line(line);
        }
    }
}

/// Waits until all lines are written, as long as stderr is read.
pub(crate) fn flush() {
    if let Some(log) = LOG.get() {
        log.sink.flush();
    }
}

/// Writes again what a child of `up` has written: it has chosen by level already. Returns the message.
pub(crate) fn say_again(process: &str, written: &str) -> String {
    let line = Line::of_child(process, written);
    let message = line.message.clone();
    if let Some(log) = LOG.get() {
        log.sink.put(line);
    }
    message
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::ValueEnum as _;

    #[test]
    fn every_level_is_named_as_it_is_written() {
        for level in LogLevel::value_variants() {
            assert_eq!(LogLevel::from_str(level.text(), false), Ok(*level));
        }
        for format in LogFormat::value_variants() {
            assert_eq!(LogFormat::from_str(format.text(), false), Ok(*format));
        }
    }
}
