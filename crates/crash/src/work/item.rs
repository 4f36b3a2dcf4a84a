//! An item of the workload and its state, which is a line of text in a journal.

use anyhow::{Context as _, Result, bail};
use std::collections::BTreeSet;
use std::fmt;

/// The kind of an item.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    File,
    Dir,
    Symlink,
}

impl Kind {
    const fn symbol(self) -> char {
        match self {
            Self::File => 'f',
            Self::Dir => 'd',
            Self::Symlink => 'l',
        }
    }
}

/// The state of an item: `f 644 3 512 c1/a,s0/b` (kind, mode, version and bytes of the contents,
/// names). Without a name it does not exist.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct State {
    pub(crate) kind: Kind,
    /// Permission bits.
    pub(crate) mode: u32,
    /// The version of the contents.
    pub(crate) version: u64,
    /// How many bytes of them.
    pub(crate) size_bytes: usize,
    /// All names.
    pub(crate) names: BTreeSet<String>,
}

impl State {
    /// An item that does not exist yet.
    pub(crate) const fn new(kind: Kind, mode: u32) -> Self {
        Self { kind, mode, version: 0, size_bytes: 0, names: BTreeSet::new() }
    }

    /// Reads what [`fmt::Display`] wrote.
    pub(crate) fn parse(text: &str) -> Result<Self> {
        let words: Vec<&str> = text.split(' ').collect();
        let [kind, mode, version, size_bytes, names] = words[..] else { bail!("no state: {text}") };
        let kind = match kind {
            "f" => Kind::File,
            "d" => Kind::Dir,
            "l" => Kind::Symlink,
            _ => bail!("no kind: {text}"),
        };
        let names = names.split(',').filter(|name| !name.is_empty()).map(ToOwned::to_owned);
        Ok(Self {
            kind,
            mode: u32::from_str_radix(mode, 8).context("no mode")?,
            version: version.parse()?,
            size_bytes: size_bytes.parse()?,
            names: names.collect(),
        })
    }
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&str> = self.names.iter().map(String::as_str).collect();
        let (kind, names) = (self.kind.symbol(), names.join(","));
        write!(f, "{kind} {:o} {} {} {names}", self.mode, self.version, self.size_bytes)
    }
}

/// Bytes of a line of contents. Each line names its item and version, so that no two are alike.
const LINE_BYTES: usize = 64;

/// The contents of a version.
pub(crate) fn contents(item: &str, version: u64, size_bytes: usize) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(size_bytes + LINE_BYTES);
    let mut line_no = 0;
    while bytes.len() < size_bytes {
        let text = format!("{item}{CONTENTS_MARK}{version} line {line_no} ");
        bytes.extend(format!("{text:.<63}\n").bytes());
        line_no += 1;
    }
    bytes.truncate(size_bytes);
    bytes
}

/// A part of every line of a file's contents.
pub(crate) const CONTENTS_MARK: &str = " version ";

/// The target of a symbolic link.
pub(crate) fn target(item: &str) -> String {
    format!("target-of-{item}")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_state_is_read_as_it_was_written() {
        let mut state = State::new(Kind::File, 0o640);
        assert_eq!(State::parse(&state.to_string()).unwrap(), state);
        state.names.extend(["a/b".to_owned(), "c".to_owned()]);
        (state.version, state.size_bytes) = (7, 512);
        assert_eq!(state.to_string(), "f 640 7 512 a/b,c");
        assert_eq!(State::parse(&state.to_string()).unwrap(), state);
    }

    #[test]
    fn contents_of_two_versions_differ_in_every_line() {
        let (one, two) = (contents("c1i1", 1, 640), contents("c1i1", 2, 640));
        assert!(one.chunks(64).zip(two.chunks(64)).all(|(one, two)| one != two));
        assert_eq!(contents("c1i1", 1, 100)[..], one[..100]);
    }
}
