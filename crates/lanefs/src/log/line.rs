//! A line of the log, and the forms that it is written in.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::fmt::Debug;
use tracing::field::{Field, Visit};
use tracing::{Event, Level};

/// How lines are written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Form {
    /// With time and level.
    Timed,
    /// With the number of its level, as syslog has them.
    Priority,
    /// As JSON objects.
    Json,
}

/// A line. JSON has all of it; the other forms have the message, with the process of `up` that wrote it.
#[derive(Clone, PartialEq, Serialize, Deserialize, Debug)]
pub(super) struct Line {
    timestamp: String,
    level: String,
    target: String,
    pub(super) message: String,
    #[serde(flatten)]
    pub(super) fields: Map<String, Value>,
}

impl Line {
    pub(super) fn new(level: Level, target: &str, message: String) -> Self {
        Self {
            timestamp: format!("{:.3}", jiff::Timestamp::now()),
            level: level.to_string(),
            target: target.to_owned(),
            message,
            fields: Map::new(),
        }
    }

    pub(super) fn of(event: &Event<'_>) -> Self {
        let metadata = event.metadata();
        let mut line = Self::new(*metadata.level(), metadata.target(), String::new());
        event.record(&mut line);
        line
    }

    /// A line that a child wrote as [`Form::Priority`] or [`Form::Json`]. Other output, such as a panic's, is an error.
    pub(super) fn of_child(process: &str, written: &str) -> Self {
        let mut line = serde_json::from_str(written).unwrap_or_else(|_| {
            let (level, text) = with_priority(written).unwrap_or((Level::ERROR, written));
            Self::new(level, "lanefs", text.to_owned())
        });
        line.fields.insert("process".to_owned(), process.into());
        line
    }

    pub(super) fn written_as(&self, form: Form) -> String {
        let Self { timestamp, level, message, .. } = self;
        let process = self.fields.get("process").and_then(Value::as_str);
        let process = process.map(|name| format!("{name}: ")).unwrap_or_default();
        match form {
            Form::Timed => format!("{timestamp} {level:>5} {process}{message}\n"),
            Form::Priority => format!("<{}>{process}{message}\n", priority(level)),
            Form::Json => serde_json::to_string(self).unwrap_or_default() + "\n",
        }
    }

    /// Equal for lines that differ in their times only.
    pub(super) fn key(&self) -> String {
        let Self { timestamp: _, level, target, message, fields } = self;
        format!("{level} {target} {} {message}", Value::from(fields.clone()))
    }

    fn put(&mut self, field: &Field, value: Value) {
        self.fields.insert(field.name().to_owned(), value);
    }
}

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        let text = format!("{value:?}");
        if field.name() == "message" {
            self.message = text;
        } else {
            self.put(field, text.into());
        }
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.put(field, value.into());
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.put(field, value.into());
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.put(field, value.into());
    }
}

fn with_priority(written: &str) -> Option<(Level, &str)> {
    let (number, text) = written.strip_prefix('<')?.split_once('>')?;
    let levels = [Level::ERROR, Level::WARN, Level::INFO, Level::DEBUG];
    Some((levels.into_iter().find(|level| priority(level.as_str()) == number)?, text))
}

/// The number that syslog has for a level; it has none below debug.
fn priority(level: &str) -> &'static str {
    match level {
        "ERROR" => "3",
        "WARN" => "4",
        "INFO" => "6",
        _ => "7",
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_childs_line_keeps_its_level() {
        let read = |written: &str| Line::of_child("server", written).written_as(Form::Priority);
        assert_eq!(read("<4>the client is away"), "<4>server: the client is away\n");
        assert_eq!(read("<3>ALARM: lost"), "<3>server: ALARM: lost\n");
        assert_eq!(read("thread 'main' panicked"), "<3>server: thread 'main' panicked\n");
        assert_eq!(read("<9>text"), "<3>server: <9>text\n");
    }

    #[test]
    fn a_childs_json_keeps_its_time_and_fields() {
        let mut line = Line::new(Level::WARN, "lanefs::lane", "one\n\"two\"".to_owned());
        line.fields.insert("lane".to_owned(), 3.into());
        let written = line.written_as(Form::Json);
        assert_eq!(written.lines().count(), 1, "{written}");
        line.fields.insert("process".to_owned(), "mount".into());
        assert_eq!(Line::of_child("mount", written.trim_end()), line);
        assert!(line.written_as(Form::Timed).ends_with("Z  WARN mount: one\n\"two\"\n"));
    }
}
