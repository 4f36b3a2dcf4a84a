//! A finding of `lanefs doctor`: what was looked at, what was found, and what to do about it.
//!
//! Invariant: what is worse than a note has a remedy.

use serde::Serialize;
use serde_json::{Map, Value};
use std::fmt;

/// How bad it is.
#[derive(Serialize, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Severity {
    /// As it should be.
    Ok,
    /// Worth knowing, or it could not be looked at.
    Note,
    /// lanefs works, but worse or less safely than it could.
    Warning,
    /// Something does not work.
    Error,
}

impl Severity {
    /// Its name.
    pub(crate) const fn text(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Note => "note",
            Self::Warning => "warning",
            Self::Error => "error",
        }
    }
}

/// One line of what was found, and one of what to do.
#[derive(Serialize, Clone, PartialEq, Debug)]
#[serde(tag = "type", rename = "finding")]
pub(crate) struct Finding {
    pub(crate) severity: Severity,
    /// What was looked at, as scripts name it.
    pub(crate) check: &'static str,
    /// Of which directory, server or process.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) about: Option<String>,
    pub(crate) found: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) remedy: Option<String>,
    /// The numbers in it; names have their units.
    #[serde(flatten)]
    values: Map<String, Value>,
}

impl Finding {
    fn new(severity: Severity, check: &'static str, found: impl Into<String>) -> Self {
        let found = found.into();
        Self { severity, check, about: None, found, remedy: None, values: Map::new() }
    }

    pub(crate) fn ok(check: &'static str, found: impl Into<String>) -> Self {
        Self::new(Severity::Ok, check, found)
    }

    pub(crate) fn note(check: &'static str, found: impl Into<String>) -> Self {
        Self::new(Severity::Note, check, found)
    }

    pub(crate) fn warning(
        check: &'static str,
        found: impl Into<String>,
        remedy: impl Into<String>,
    ) -> Self {
        Self::new(Severity::Warning, check, found).remedy(remedy)
    }

    pub(crate) fn error(
        check: &'static str,
        found: impl Into<String>,
        remedy: impl Into<String>,
    ) -> Self {
        Self::new(Severity::Error, check, found).remedy(remedy)
    }

    /// What to do.
    pub(crate) fn remedy(mut self, remedy: impl Into<String>) -> Self {
        self.remedy = Some(remedy.into());
        self
    }

    /// Of which directory, server or process.
    pub(crate) fn about(mut self, about: impl Into<String>) -> Self {
        self.about = Some(about.into());
        self
    }

    /// A number in it.
    pub(crate) fn value(mut self, name: &str, value: impl Into<Value>) -> Self {
        self.values.insert(name.to_owned(), value.into());
        self
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { severity, check, about, found, remedy, values: _ } = self;
        let about = about.as_ref().map(|about| format!(" {about}")).unwrap_or_default();
        write!(f, "{:<8} {check}{about}: {found}", severity.text())?;
        match remedy {
            Some(remedy) => write!(f, "\n         remedy: {remedy}"),
            None => Ok(()),
        }
    }
}

/// The last line: how many there are of each.
#[derive(Serialize, Clone, Copy, PartialEq, Eq, Debug)]
#[serde(tag = "type", rename = "summary")]
pub(crate) struct Summary {
    ok_count: usize,
    note_count: usize,
    warning_count: usize,
    error_count: usize,
}

impl Summary {
    pub(crate) fn of(findings: &[Finding]) -> Self {
        let count = |severity| findings.iter().filter(|it| it.severity == severity).count();
        Self {
            ok_count: count(Severity::Ok),
            note_count: count(Severity::Note),
            warning_count: count(Severity::Warning),
            error_count: count(Severity::Error),
        }
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { ok_count, note_count, warning_count, error_count } = self;
        write!(
            f,
            "{error_count} errors, {warning_count} warnings, {note_count} notes, {ok_count} ok"
        )
    }
}

/// The worst of them.
pub(crate) fn worst(findings: &[Finding]) -> Severity {
    findings.iter().map(|finding| finding.severity).max().unwrap_or(Severity::Ok)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_finding_is_a_line_and_a_remedy_a_second_one() {
        let finding = Finding::warning("flush", "takes 30 ms", "take another disk");
        let finding = finding.about("/srv").value("median_us", 30_000);
        assert_eq!(
            finding.to_string(),
            "warning  flush /srv: takes 30 ms\n         remedy: take another disk"
        );
        assert_eq!(
            serde_json::to_value(&finding).unwrap(),
            serde_json::json!({
                "type": "finding", "severity": "warning", "check": "flush", "about": "/srv",
                "found": "takes 30 ms", "remedy": "take another disk", "median_us": 30_000
            })
        );
        assert_eq!(Finding::ok("kernel", "Linux").to_string(), "ok       kernel: Linux");
    }

    #[test]
    fn the_worst_one_counts() {
        let all = [
            Finding::ok("a", ""),
            Finding::error("b", "", ""),
            Finding::note("c", ""),
            Finding::warning("d", "", ""),
        ];
        assert_eq!(worst(&all), Severity::Error);
        assert_eq!(worst(&all[..1]), Severity::Ok);
        assert_eq!(worst(&all[2..]), Severity::Warning);
        assert_eq!(Summary::of(&all).to_string(), "1 errors, 1 warnings, 1 notes, 1 ok");
    }
}
