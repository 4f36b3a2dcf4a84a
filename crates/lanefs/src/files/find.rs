//! `lanefs find`: prints matching entries below the URLs.
//!
//! The server compares each directory's entries with the predicate; the client descends, because
//! directories lie on many shards. Invariant: memory holds one piece of a listing for each level, however
//! large the directories are.

use super::conditions::{self, Conditions, Entry};
use super::json::{self, FileRow};
use super::show::shown;
use super::{Session, urls};
use crate::address::Url;
use crate::args;
use crate::out;
use anyhow::Result;
use library::{Attr, FileKind, Fit, FoundEntry, Search, SearchOptions, Status};
use std::collections::VecDeque;
use std::io::IsTerminal as _;
use std::os::unix::ffi::OsStrExt as _;

struct Finder<'a> {
    session: Session,
    args: &'a args::Find,
    asked: Conditions<'a>,
    terminal: bool,
    /// What is to be printed.
    text: Vec<u8>,
}

/// A directory that is being looked through.
struct Level {
    url: Url,
    search: Search,
    listed: VecDeque<FoundEntry>,
}

/// Runs the command.
pub(crate) fn run(args: &args::Find) -> Result<()> {
    let urls = urls(&args.paths)?;
    let mut session = Session::new("find", &args.access);
    let asked = Conditions::new(&mut session, args)?;
    let terminal = std::io::stdout().is_terminal();
    let mut finder = Finder { session, args, asked, terminal, text: Vec::new() };
    for url in urls {
        let looked = finder.below(url);
        // What was found before a server went away was found.
        finder.flush()?;
        looked?;
    }
    finder.session.end()
}

impl Finder<'_> {
    /// What a URL names, and what is below it.
    fn below(&mut self, url: Url) -> Result<()> {
        let found = self.session.volume(&url)?.lstat(&url.path);
        let what = format!("cannot access '{}'", url.text());
        let Some(attr) = self.session.report(&what, found.map_err(Into::into))? else {
            return Ok(());
        };
        let entry = Entry { url: &url, kind: attr.kind, inode: attr.inode, attr: Some(&attr) };
        let fits = conditions::fits(&self.asked.predicate, &entry);
        let is_pruned = fits && self.found(&entry, 0)?;
        let mut levels = Vec::new();
        let is_below = attr.kind == FileKind::Directory && self.args.maxdepth != Some(0);
        if is_below && !is_pruned {
            levels.push(Level::new(url, &attr.inode));
        }
        while let Some(mut level) = levels.pop() {
            let Some(entry) = level.listed.pop_front() else {
                if self.more(&mut level, levels.len())? {
                    levels.push(level);
                }
                continue;
            };
            let url = level.url.at(level.url.path.join(&entry.name));
            let may_descend = level.search.may_descend;
            levels.push(level);
            let mut is_pruned = false;
            match entry.fit {
                Fit::Yes => {
                    let FoundEntry { kind, inode, attr, .. } = &entry;
                    let entry =
                        Entry { url: &url, kind: *kind, inode: *inode, attr: attr.as_ref() };
                    is_pruned = self.found(&entry, levels.len())?;
                }
                Fit::No => {}
                Fit::Denied => {
                    self.session.report_error(&format!(
                        "'{}': {}",
                        url.text(),
                        Status::Access.text()
                    ));
                }
            }
            let is_directory = entry.kind == FileKind::Directory;
            if !is_directory || is_pruned || !self.goes_below(levels.len()) {
                continue;
            }
            if may_descend {
                levels.push(Level::new(url, &entry.inode));
            } else if entry.fit != Fit::Denied {
                let denied = Status::Access.text();
                self.session.report_error(&format!("cannot look into '{}': {denied}", url.text()));
            }
        }
        Ok(())
    }

    /// Whether what is in a directory so many levels down is looked at.
    fn goes_below(&self, depth: usize) -> bool {
        self.args.maxdepth.is_none_or(|max| usize::try_from(max).is_ok_and(|max| depth < max))
    }

    /// Asks for the next piece; false: the level is at its end.
    fn more(&mut self, level: &mut Level, depth: usize) -> Result<bool> {
        let wanted = SearchOptions {
            predicate: self.asked.predicate,
            attrs: self.args.json.json || self.asked.asks_attrs(),
            directories: self.goes_below(depth + 1),
        };
        self.flush()?;
        let asked = self.session.volume(&level.url)?.search(&mut level.search, &wanted);
        // A directory that was removed meanwhile is no failure of ours.
        if asked.as_ref().is_err_and(|error| error.status() == Some(Status::Stale)) {
            return Ok(false);
        }
        let what = format!("cannot look into '{}'", level.url.text());
        match self.session.report(&what, asked.map_err(Into::into))?.flatten() {
            Some(entries) => level.listed.extend(entries),
            None => return Ok(false),
        }
        Ok(true)
    }

    /// An entry at this depth that the server's part holds for. Returns whether the directory is pruned.
    fn found(&mut self, entry: &Entry<'_>, depth: usize) -> Result<bool> {
        if usize::try_from(self.args.mindepth).is_ok_and(|min| depth < min) {
            return Ok(false);
        }
        let outcome = self.asked.outcome(&mut self.session, entry)?;
        for _ in 0..outcome.print_count {
            self.print(entry.url, entry.attr)?;
        }
        Ok(outcome.is_pruned)
    }

    fn print(&mut self, url: &Url, attr: Option<&Attr>) -> Result<()> {
        if let (true, Some(attr)) = (self.args.json.json, attr) {
            let target = self.session.link_target(url, attr);
            let row = FileRow::new(url, attr, target.as_ref().map(|to| to.as_bytes()));
            self.text.extend(json::line(&row)?);
            return Ok(());
        }
        let bytes = url.bytes();
        let line = match self.args.print0 {
            true => bytes,
            false => shown(std::ffi::OsStr::from_bytes(&bytes), self.terminal),
        };
        self.text.extend(line);
        self.text.push(if self.args.print0 { 0 } else { b'\n' });
        Ok(())
    }

    fn flush(&mut self) -> Result<()> {
        out::print_bytes(&std::mem::take(&mut self.text))
    }
}

impl Level {
    fn new(url: Url, inode: &library::InodeNo) -> Self {
        let search = Search::new(*inode, &url.path);
        Self { url, search, listed: VecDeque::new() }
    }
}
