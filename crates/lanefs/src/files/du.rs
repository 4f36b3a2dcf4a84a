//! `lanefs du`: the space of directories with everything below them.
//!
//! Invariant: a file with several names counts once, at its first name.

use super::json::{self, SumRow};
use super::show::{human, shown};
use super::{Session, urls};
use crate::address::Url;
use crate::{args, out};
use anyhow::Result;
use library::{Attr, FileKind, InodeNo};
use std::collections::HashSet;
use std::ffi::OsStr;
use std::io::IsTerminal as _;
use std::os::unix::ffi::OsStrExt as _;

struct Sums<'a> {
    session: Session,
    args: &'a args::Du,
    terminal: bool,
    /// Those with several names that were counted, by server.
    counted: HashSet<(String, InodeNo)>,
}

#[derive(Clone, Copy, Default)]
struct Sum {
    allocated_bytes: u64,
    size_bytes: u64,
}

impl Sum {
    fn add(&mut self, more: Self) {
        self.allocated_bytes = self.allocated_bytes.saturating_add(more.allocated_bytes);
        self.size_bytes = self.size_bytes.saturating_add(more.size_bytes);
    }
}

/// Runs the command.
pub(crate) fn run(args: &args::Du) -> Result<()> {
    let urls = urls(&args.paths)?;
    let session = Session::new("du", &args.access);
    let terminal = std::io::stdout().is_terminal();
    let mut sums = Sums { session, args, terminal, counted: HashSet::new() };
    for url in urls {
        let found = sums.session.volume(&url)?.lstat(&url.path);
        let what = format!("cannot access '{}'", url.text());
        let found = sums.session.report(&what, found.map_err(Into::into))?;
        if let Some(attr) = found {
            sums.of(&url, &attr, 0)?;
        }
    }
    sums.session.end()
}

impl Sums<'_> {
    fn of(&mut self, url: &Url, attr: &Attr, depth: u32) -> Result<Sum> {
        let directory = attr.kind == FileKind::Directory;
        let again =
            !directory && attr.nlink > 1 && !self.counted.insert((url.address.clone(), attr.inode));
        if again {
            return Ok(Sum::default());
        }
        let own = Sum { allocated_bytes: attr.allocated_bytes, size_bytes: attr.size_bytes };
        // A directory's size is not a number of readable bytes.
        let mut sum = if directory { Sum { size_bytes: 0, ..own } } else { own };
        if directory {
            sum.add(self.below(url, depth)?);
        }
        let depth_max = if self.args.summarize { Some(0) } else { self.args.max_depth };
        let near = depth_max.is_none_or(|max| depth <= max);
        if depth == 0 || (near && (directory || self.args.all)) {
            self.print(url, attr.kind, sum)?;
        }
        Ok(sum)
    }

    fn below(&mut self, url: &Url, depth: u32) -> Result<Sum> {
        let mut sum = Sum::default();
        let what = format!("cannot read directory '{}'", url.text());
        let begun = self.session.volume(url)?.read_dir(&url.path);
        let begun = self.session.report(&what, begun.map_err(Into::into))?;
        let Some(mut dir) = begun else { return Ok(sum) };
        loop {
            let entries = self.session.volume(url)?.next_entries(&mut dir);
            let entries = self.session.report(&what, entries.map_err(Into::into))?;
            let entries = entries.unwrap_or_default();
            if entries.is_empty() {
                return Ok(sum);
            }
            for entry in entries {
                let below = url.at(url.path.join(&entry.name));
                sum.add(self.of(&below, &entry.attr, depth + 1)?);
            }
        }
    }

    fn print(&self, url: &Url, kind: FileKind, sum: Sum) -> Result<()> {
        if self.args.json.json {
            return json::put(&SumRow::new(url, kind, sum.allocated_bytes, sum.size_bytes));
        }
        let bytes = if self.args.apparent_size { sum.size_bytes } else { sum.allocated_bytes };
        let size = match self.args.human {
            true => human(bytes),
            false => bytes.div_ceil(1024).to_string(),
        };
        let mut line = format!("{size}\t").into_bytes();
        line.extend(shown(OsStr::from_bytes(&url.bytes()), self.terminal));
        line.push(b'\n');
        out::print_bytes(&line)
    }
}
