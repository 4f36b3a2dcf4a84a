//! A client's journal, on the machine's own file system: one line before each request, one line
//! with its result.
//!
//! ```text
//! I 17 rename c1/a c1/b<TAB>item c1i5<TAB>f 644 1 512 c1/b
//! R 17 ok                                     R 17 error no such file or directory
//! E                                           the client has ended in order
//! ```
//! The client got no reply to an operation without a result line.

use super::item::State;
use anyhow::{Context as _, Result, bail};
use std::fs;
use std::io::Write as _;
use std::path::Path;

/// The effect of an operation.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Touch {
    /// An item has this state afterwards.
    Item(String, State),
    /// The present state of an item is durable afterwards.
    Sync(String),
    /// A record is at the end of a file.
    Append(String, String),
    /// All of this client's records in a file are durable afterwards.
    SyncLog(String),
}

/// The result of an operation.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Outcome {
    /// No result line.
    Unknown,
    Done,
    Refused(String),
}

/// One operation.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    /// Its number.
    pub(crate) op_no: u64,
    /// For the reader of a journal.
    pub(crate) text: String,
    pub(crate) touches: Vec<Touch>,
    pub(crate) outcome: Outcome,
}

/// A client's journal, read.
#[derive(Clone, Default, Debug)]
pub(crate) struct Journal {
    /// In their order.
    pub(crate) entries: Vec<Entry>,
    /// The client ended in order.
    pub(crate) ended: bool,
}

/// A client's journal, being written.
pub(crate) struct JournalWriter {
    file: fs::File,
    op_no: u64,
}

impl JournalWriter {
    /// Creates a journal.
    pub(crate) fn new(path: &Path) -> Result<Self> {
        let file = fs::File::create_new(path).with_context(|| path.display().to_string())?;
        Ok(Self { file, op_no: 0 })
    }

    /// Writes the line before a request.
    pub(crate) fn begin(&mut self, text: &str, touches: &[Touch]) -> Result<()> {
        self.op_no += 1;
        let mut line = format!("I {} {text}", self.op_no);
        for touch in touches {
            let (what, which, how) = match touch {
                Touch::Item(item, state) => ("item", item, state.to_string()),
                Touch::Sync(item) => ("sync", item, String::new()),
                Touch::Append(path, record) => ("append", path, record.clone()),
                Touch::SyncLog(path) => ("synclog", path, String::new()),
            };
            line += &format!("\t{what} {which}\t{how}");
        }
        line.push('\n');
        Ok(self.file.write_all(line.as_bytes())?)
    }

    /// Writes the result line.
    pub(crate) fn end_operation(&mut self, result: &Result<()>) -> Result<()> {
        let line = match result {
            Ok(()) => format!("R {} ok\n", self.op_no),
            Err(error) => format!("R {} error {error:#}\n", self.op_no),
        };
        Ok(self.file.write_all(line.as_bytes())?)
    }

    /// Writes the last line: the client has ended in order.
    pub(crate) fn end(&mut self) -> Result<()> {
        Ok(self.file.write_all(b"E\n")?)
    }

    /// The number of the next operation.
    pub(crate) const fn next_no(&self) -> u64 {
        self.op_no + 1
    }
}

impl Journal {
    /// Reads a journal. A torn last line is ignored: its operation was not requested.
    pub(crate) fn read(path: &Path) -> Result<Self> {
        let text = fs::read_to_string(path).with_context(|| path.display().to_string())?;
        Self::parse(&text).with_context(|| path.display().to_string())
    }

    fn parse(text: &str) -> Result<Self> {
        let mut journal = Self::default();
        let whole = text.rsplit_once('\n').map_or("", |(whole, _)| whole);
        for line in whole.lines() {
            match line.split_at(1) {
                ("I", rest) => journal.entries.push(entry(rest.trim_start())?),
                ("R", rest) => journal.answer(rest.trim_start())?,
                ("E", _) => journal.ended = true,
                _ => bail!("no such line: {line}"),
            }
        }
        Ok(journal)
    }

    fn answer(&mut self, text: &str) -> Result<()> {
        let (op_no, outcome) = text.split_once(' ').context("an answer without its outcome")?;
        let last = self.entries.last_mut().context("an answer without its question")?;
        if last.op_no != op_no.parse::<u64>()? {
            bail!("a result of {op_no}, but {} is the last operation", last.op_no);
        }
        last.outcome = match outcome.split_once(' ') {
            None => Outcome::Done,
            Some((_, error)) => Outcome::Refused(error.to_owned()),
        };
        Ok(())
    }

    /// Operations that succeeded.
    pub(crate) fn done_count(&self) -> usize {
        self.entries.iter().filter(|entry| entry.outcome == Outcome::Done).count()
    }
}

fn entry(text: &str) -> Result<Entry> {
    let mut parts = text.split('\t');
    let head = parts.next().unwrap_or_default();
    let (op_no, text) = head.split_once(' ').context("an operation without its text")?;
    let mut touches = Vec::new();
    while let Some(what) = parts.next() {
        let how = parts.next().context("half a touch")?;
        let (what, which) = what.split_once(' ').context("a touch of nothing")?;
        let which = which.to_owned();
        touches.push(match what {
            "item" => Touch::Item(which, State::parse(how)?),
            "sync" => Touch::Sync(which),
            "append" => Touch::Append(which, how.to_owned()),
            "synclog" => Touch::SyncLog(which),
            _ => bail!("no such touch: {what}"),
        });
    }
    let outcome = Outcome::Unknown;
    Ok(Entry { op_no: op_no.parse()?, text: text.to_owned(), touches, outcome })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::work::item::Kind;

    #[test]
    fn a_journal_is_read_back_and_a_torn_line_is_ignored() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("journal");
        let mut journal = JournalWriter::new(&path).unwrap();
        let mut state = State::new(Kind::Dir, 0o755);
        state.names.insert("s0/x".to_owned());
        let touches = [Touch::Item("c1i1".to_owned(), state), Touch::Sync("c1i2".to_owned())];
        journal.begin("mkdir s0/x", &touches).unwrap();
        journal.end_operation(&Ok(())).unwrap();
        journal.begin("append", &[Touch::Append("log".to_owned(), "c1 2".to_owned())]).unwrap();
        journal.end_operation(&Err(anyhow::anyhow!("no space"))).unwrap();
        journal.begin("sync", &[]).unwrap();
        journal.file.write_all(b"R 3 o").unwrap();
        let journal = Journal::read(&path).unwrap();
        assert_eq!(journal.entries.len(), 3);
        assert_eq!(journal.entries[0].touches, touches);
        let outcomes: Vec<_> = journal.entries.into_iter().map(|entry| entry.outcome).collect();
        let refused = Outcome::Refused("no space".to_owned());
        assert_eq!(outcomes, [Outcome::Done, refused, Outcome::Unknown]);
        assert!(!journal.ended);
    }
}
