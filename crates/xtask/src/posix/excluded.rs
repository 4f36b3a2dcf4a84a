//! The list of tests that do not pass, each with its reason.
//!
//! ```text
//! # a comment
//! SUITE  TEST  fails|unrun  REASON, to the end of the line
//! ```

use super::suite::Suite;
use anyhow::{Context as _, Result, bail};
use std::fs;
use std::path::Path;

/// A reason has at least so many words.
const REASON_WORD_COUNT_MIN: usize = 2;

/// The expected result of a listed test.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Excuse {
    /// It runs and fails.
    Fails,
    /// It is not run, or reports that it cannot run.
    Unrun,
}

/// One line of the list.
#[derive(PartialEq, Eq, Debug)]
pub(crate) struct Line {
    suite: String,
    /// The test's name in its suite.
    pub(crate) name: String,
    /// Its result instead of passing.
    pub(crate) excuse: Excuse,
    /// Why.
    pub(crate) reason: String,
}

/// The whole list.
#[derive(Debug)]
pub(crate) struct Excluded {
    lines: Vec<Line>,
}

impl Excluded {
    /// Reads the list.
    pub(crate) fn read(path: &Path) -> Result<Self> {
        let shown = path.display().to_string();
        Self::parse(&fs::read_to_string(path).with_context(|| shown.clone())?).context(shown)
    }

    /// Reads the text of a list.
    pub(crate) fn parse(text: &str) -> Result<Self> {
        let mut lines: Vec<Line> = Vec::new();
        for (index, text) in text.lines().enumerate() {
            if text.trim().is_empty() || text.starts_with('#') {
                continue;
            }
            let line = parse_line(text).with_context(|| format!("line {}", index + 1))?;
            if lines.iter().any(|known| known.suite == line.suite && known.name == line.name) {
                bail!("line {}: {} stands there twice", index + 1, line.name);
            }
            lines.push(line);
        }
        Ok(Self { lines })
    }

    /// The lines of one suite.
    pub(crate) fn of<'a>(&'a self, suite: &'a str) -> impl Iterator<Item = &'a Line> {
        self.lines.iter().filter(move |line| line.suite == suite)
    }
}

fn parse_line(text: &str) -> Result<Line> {
    let mut words = text.split_whitespace();
    let (Some(suite), Some(name), Some(excuse)) = (words.next(), words.next(), words.next()) else {
        bail!("a line is: SUITE TEST fails|unrun REASON");
    };
    let excuse = match excuse {
        "fails" => Excuse::Fails,
        "unrun" => Excuse::Unrun,
        other => bail!("{other:?} is neither `fails` nor `unrun`"),
    };
    let reason: Vec<&str> = words.collect();
    if reason.len() < REASON_WORD_COUNT_MIN {
        bail!("{name} has no reason");
    }
    if !Suite::ALL.iter().any(|known| known.text() == suite) {
        bail!("{suite} is no suite");
    }
    Ok(Line { suite: suite.to_owned(), name: name.to_owned(), excuse, reason: reason.join(" ") })
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test may fail")]
mod tests {
    use super::*;

    #[test]
    fn a_line_has_suite_test_result_and_reason() {
        let text = "# why\n\nfsx  a::b   fails   it is  so\nfio c unrun not here\n";
        let list = Excluded::parse(text).unwrap();
        let lines: Vec<_> = list.of("fsx").collect();
        assert_eq!(lines.len(), 1);
        assert_eq!(lines[0].name, "a::b");
        assert_eq!(lines[0].excuse, Excuse::Fails);
        assert_eq!(lines[0].reason, "it is so");
        assert_eq!(list.of("fio").next().unwrap().excuse, Excuse::Unrun);
    }

    #[test]
    fn an_incomplete_line_is_refused() {
        let refused = |text: &str| format!("{:#}", Excluded::parse(text).unwrap_err());
        assert!(refused("fsx a fails").contains("no reason"));
        assert!(refused("fsx a").contains("a line is"));
        assert!(refused("\nfsx a sometimes it fails").contains("line 2"));
        assert!(refused("dbench a fails for some reason").contains("no suite"));
        assert!(refused("fsx a fails one reason\nfsx a unrun other reason").contains("twice"));
    }

    #[test]
    fn the_list_of_this_repository_can_be_read() {
        Excluded::read(&crate::run::root().join("tests/posix/excluded.txt")).unwrap();
    }
}
