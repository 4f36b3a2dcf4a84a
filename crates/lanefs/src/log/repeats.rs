//! Limits lines that differ in their times only, so that they do not crowd out others.
//!
//! Invariant: suppressed lines are counted, and a later line reports the count.

use super::line::Line;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};
use tracing::Level;

/// Equal lines that are written in a window.
pub(super) const EQUAL_COUNT_MAX: u64 = 20;
/// Length of a window; it begins with a line.
pub(super) const WINDOW: Duration = Duration::from_secs(10);
/// Different lines of a window that are counted; others are written.
const LINE_COUNT_MAX: usize = 1024;

/// The lines of a window.
#[derive(Debug, Default)]
pub(super) struct Repeats {
    ends_at: Option<Instant>,
    seen: BTreeMap<String, (Line, u64)>,
    withheld: bool,
}

impl Repeats {
    /// Whether a line is to be written.
    pub(super) fn admits(&mut self, line: &Line, now: Instant) -> bool {
        self.ends_at.get_or_insert(now + WINDOW);
        let key = line.key();
        if self.seen.len() >= LINE_COUNT_MAX && !self.seen.contains_key(&key) {
            return true;
        }
        let (_, count) = self.seen.entry(key).or_insert_with(|| (line.clone(), 0));
        *count += 1;
        self.withheld |= *count > EQUAL_COUNT_MAX;
        *count <= EQUAL_COUNT_MAX
    }

    /// When lines are to be written that nothing else causes.
    pub(super) fn due_at(&self) -> Option<Instant> {
        self.ends_at.filter(|_| self.withheld)
    }

    /// Ends the window if it is over. Returns the lines about those that were not written.
    pub(super) fn pass(&mut self, now: Instant) -> Vec<Line> {
        if self.ends_at.is_some_and(|ends_at| now >= ends_at) { self.end() } else { Vec::new() }
    }

    /// The same, whether or not it is over.
    pub(super) fn end(&mut self) -> Vec<Line> {
        let Self { seen, .. } = std::mem::take(self);
        seen.into_values().filter(|(_, count)| *count > EQUAL_COUNT_MAX).map(summary).collect()
    }
}

fn summary((line, count): (Line, u64)) -> Line {
    let more = count - EQUAL_COUNT_MAX;
    let message = format!("{more} more lines were not written: {}", line.message);
    let mut summary = Line::new(Level::WARN, "lanefs::log", message);
    summary.fields = line.fields;
    summary.fields.insert("repeated".to_owned(), more.into());
    summary
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(message: &str) -> Line {
        Line::new(Level::INFO, "lanefs", message.to_owned())
    }

    #[test]
    fn equal_lines_are_limited_and_counted() {
        let (mut repeats, start) = (Repeats::default(), Instant::now());
        let admitted = (0..EQUAL_COUNT_MAX + 7).filter(|_| repeats.admits(&line("a"), start));
        assert_eq!(admitted.count() as u64, EQUAL_COUNT_MAX);
        assert!(repeats.admits(&line("b"), start), "another line has its own count");
        assert_eq!(repeats.due_at(), Some(start + WINDOW));
        assert_eq!(repeats.pass(start + WINDOW / 2), []);
        let summaries = repeats.pass(start + WINDOW);
        let messages: Vec<&str> = summaries.iter().map(|line| &*line.message).collect();
        assert_eq!(messages, ["7 more lines were not written: a"]);
        assert!(repeats.admits(&line("a"), start + WINDOW), "a new window");
    }

    #[test]
    fn nothing_is_due_while_every_line_is_written() {
        let (mut repeats, start) = (Repeats::default(), Instant::now());
        assert!(repeats.admits(&line("a"), start));
        assert_eq!(repeats.due_at(), None);
        assert_eq!(repeats.end(), []);
    }
}
