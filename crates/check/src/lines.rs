//! The lines of a dump, on their way out and in, with the hash that they end with.
//!
//! Invariant: a dump that was read to its end is the one that was written: nothing is missing, changed or added.

use crate::line::Line;
use std::io::{self, BufRead, Read as _, Write};

/// What is longer is no line of a dump, and does not take more memory than this.
const LINE_BYTES_MAX: u64 = 64 << 20;

/// A line that is none of a dump.
#[derive(thiserror::Error, Clone, PartialEq, Eq, Debug)]
#[error("line {line_no} of the dump: {why}")]
pub struct LineError {
    /// Its number, from 1.
    pub line_no: u64,
    /// What is wrong with it.
    pub why: String,
}

/// Writes a dump.
pub(crate) struct LineWriter<W> {
    to: W,
    /// Of all that was written.
    hash: blake3::Hasher,
    line_count: u64,
    text: Vec<u8>,
}

impl<W: Write> LineWriter<W> {
    pub(crate) fn new(to: W) -> Self {
        Self { to, hash: blake3::Hasher::new(), line_count: 0, text: Vec::new() }
    }

    pub(crate) fn put(&mut self, line: &Line) -> io::Result<()> {
        self.text.clear();
        serde_json::to_writer(&mut self.text, line)?;
        self.text.push(b'\n');
        self.hash.update(&self.text);
        self.line_count += 1;
        self.to.write_all(&self.text)
    }

    /// Writes the last line; how many there are before it, and what they were written to.
    pub(crate) fn end(mut self) -> io::Result<(u64, W)> {
        let line_count = self.line_count;
        let blake3 = self.hash.finalize().to_hex().to_string();
        self.put(&Line::End { line_count, blake3 })?;
        Ok((line_count, self.to))
    }
}

/// Reads a dump.
pub(crate) struct LineReader<R> {
    from: R,
    line_no: u64,
    text: String,
    /// Of all lines that were read.
    hash: blake3::Hasher,
}

impl<R: BufRead> LineReader<R> {
    pub(crate) fn new(from: R) -> Self {
        Self { from, line_no: 0, text: String::new(), hash: blake3::Hasher::new() }
    }

    /// The next line; `None` behind the last one, which says that all were read as they were written.
    pub(crate) fn next(&mut self) -> Result<Option<Line>, LineError> {
        self.line_no += 1;
        if self.read()? == 0 {
            return Err(self.wrong("the dump ends before its last line"));
        }
        let line =
            serde_json::from_str(&self.text).map_err(|error| self.wrong(&error.to_string()))?;
        if let Line::End { line_count, blake3 } = line {
            self.end(line_count, &blake3)?;
            return Ok(None);
        }
        self.hash.update(self.text.as_bytes());
        Ok(Some(line))
    }

    fn read(&mut self) -> Result<usize, LineError> {
        self.text.clear();
        let read = self.from.by_ref().take(LINE_BYTES_MAX).read_line(&mut self.text);
        read.map_err(|error| self.wrong(&error.to_string()))
    }

    fn end(&mut self, line_count: u64, blake3: &str) -> Result<(), LineError> {
        if line_count != self.line_no - 1 {
            return Err(self.wrong(&format!("the dump had {line_count} lines before this one")));
        }
        if blake3 != self.hash.finalize().to_hex().as_str() {
            return Err(self
                .wrong("the dump was changed: its lines do not have the hash that it ends with"));
        }
        if self.read()? > 0 {
            return Err(self.wrong("the dump goes on behind its last line"));
        }
        Ok(())
    }

    /// The line that was read last is none that can be.
    pub(crate) fn wrong(&self, why: &str) -> LineError {
        LineError { line_no: self.line_no, why: why.to_owned() }
    }
}
