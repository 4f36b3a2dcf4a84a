//! `lanefs find`: what fits, wherever below the URLs it lies.
//!
//! The server holds each directory's entries against the predicate; going down is done here, because
//! directories lie on many shards. Invariant: what is remembered is one piece of a listing for each
//! level, however large the directories are.

use super::bounds::{self, Age};
use super::json::{self, FileRow};
use super::show::shown;
use super::{Session, urls};
use crate::address::{Place, Url};
use crate::args::{self, FindKind};
use crate::exit::{Code, Exit};
use crate::out;
use anyhow::Result;
use library::{
    Attr, FileKind, Fit, FoundEntry, Kinds, Pattern, Predicate, Search, Status, Timestamp, Wanted,
};
use std::collections::VecDeque;
use std::io::IsTerminal as _;
use std::os::unix::ffi::OsStrExt as _;
use std::time::{SystemTime, UNIX_EPOCH};

struct Finder<'a> {
    session: Session,
    args: &'a args::Find,
    predicate: Predicate<'a>,
    terminal: bool,
    /// What is to be printed.
    text: Vec<u8>,
}

/// A directory that is being looked through.
struct Level {
    url: Url,
    search: Search,
    told: VecDeque<FoundEntry>,
}

/// Runs the command.
pub(crate) fn run(args: &args::Find) -> Result<()> {
    let urls = urls(&args.paths)?;
    let mut session = Session::new("find", &args.access);
    let predicate = predicate(&mut session, args)?;
    let terminal = std::io::stdout().is_terminal();
    let mut finder = Finder { session, args, predicate, terminal, text: Vec::new() };
    for url in urls {
        let looked = finder.below(url);
        // What was found before a server went away was found.
        finder.flush()?;
        looked?;
    }
    finder.session.end()
}

fn predicate<'a>(session: &mut Session, args: &'a args::Find) -> Result<Predicate<'a>> {
    let mut predicate = Predicate::ANY;
    if let Some(pattern) = &args.name {
        let wrong = |status: Status| {
            let line = format!("--name '{}': {}", pattern.display(), pattern_text(status));
            Exit::usage(line)
        };
        predicate.name = Some(Pattern::new(pattern.as_bytes()).map_err(wrong)?);
    }
    if !args.kinds.is_empty() {
        let kinds = args.kinds.iter().map(|kind| file_kind(*kind));
        predicate.kinds = Some(kinds.fold(Kinds::default(), Kinds::with));
    }
    for size in &args.size {
        predicate.size_bytes_min = predicate.size_bytes_min.max(size.bytes_min);
        predicate.size_bytes_max = least(predicate.size_bytes_max, size.bytes_max);
    }
    let now = SystemTime::now().duration_since(UNIX_EPOCH)?;
    let now_secs = i64::try_from(now.as_secs())?;
    for age in &args.mtime {
        let ago =
            |secs| Timestamp { secs: now_secs.saturating_sub(secs), nanos: now.subsec_nanos() };
        match age {
            Age::Older(secs) => {
                predicate.mtime_before = least(predicate.mtime_before, Some(ago(*secs)));
            }
            Age::Younger(secs) => {
                predicate.mtime_after = predicate.mtime_after.max(Some(ago(*secs)));
            }
        }
    }
    if let Some(newer) = &args.newer {
        predicate.mtime_after = predicate.mtime_after.max(Some(newer_than(session, newer)?));
    }
    Ok(predicate)
}

fn pattern_text(status: Status) -> &'static str {
    if status == Status::NameTooLong {
        "a pattern has 255 bytes at most"
    } else {
        "a pattern has a byte at least"
    }
}

const fn file_kind(kind: FindKind) -> FileKind {
    match kind {
        FindKind::F => FileKind::File,
        FindKind::D => FileKind::Directory,
        FindKind::L => FileKind::Symlink,
        FindKind::P => FileKind::Fifo,
        FindKind::S => FileKind::Socket,
        FindKind::C => FileKind::CharDevice,
        FindKind::B => FileKind::BlockDevice,
    }
}

/// The lower of two bounds, where there is one.
fn least<T: Ord>(one: Option<T>, two: Option<T>) -> Option<T> {
    match (one, two) {
        (Some(one), Some(two)) => Some(one.min(two)),
        (one, two) => one.or(two),
    }
}

fn newer_than(session: &mut Session, newer: &std::ffi::OsStr) -> Result<Timestamp> {
    let place = Place::parse(newer)?;
    let time = newer.to_str().and_then(bounds::time);
    if let (Place::Local(_), Some(time)) = (&place, time) {
        return Ok(time);
    }
    let found = super::side::look(session, &place, true)?;
    let none = || {
        let line = format!("--newer {}: neither a time nor a file that exists", place.text());
        Exit::new(Code::Failed, line)
    };
    Ok(found.ok_or_else(none)?.mtime)
}

impl Finder<'_> {
    /// What a URL names, and what is below it.
    fn below(&mut self, url: Url) -> Result<()> {
        let found = self.session.volume(&url)?.lstat(&url.path);
        let what = format!("cannot access '{}'", url.text());
        let Some(attr) = self.session.note(&what, found.map_err(Into::into))? else {
            return Ok(());
        };
        if self.fits(&url, &attr) {
            self.print(&url, Some(&attr))?;
        }
        let mut levels = Vec::new();
        if attr.kind == FileKind::Directory && self.args.maxdepth != Some(0) {
            levels.push(Level::new(url, &attr.inode));
        }
        while let Some(mut level) = levels.pop() {
            let Some(entry) = level.told.pop_front() else {
                if self.more(&mut level, levels.len())? {
                    levels.push(level);
                }
                continue;
            };
            let url = level.url.at(level.url.path.join(&entry.name));
            let may_descend = level.search.may_descend;
            levels.push(level);
            match entry.fit {
                Fit::Yes => self.print(&url, entry.attr.as_ref())?,
                Fit::No => {}
                Fit::Denied => {
                    self.session.complain(&format!("'{}': {}", url.text(), Status::Access.text()));
                }
            }
            if entry.kind != FileKind::Directory || !self.goes_below(levels.len()) {
                continue;
            }
            if may_descend {
                levels.push(Level::new(url, &entry.inode));
            } else if entry.fit != Fit::Denied {
                let denied = Status::Access.text();
                self.session.complain(&format!("cannot look into '{}': {denied}", url.text()));
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
        let wanted = Wanted {
            predicate: self.predicate,
            attrs: self.args.json.json,
            directories: self.goes_below(depth + 1),
        };
        self.flush()?;
        let asked = self.session.volume(&level.url)?.search(&mut level.search, &wanted);
        // A directory that was removed meanwhile is no failure of ours.
        if asked.as_ref().is_err_and(|error| error.status() == Some(Status::Stale)) {
            return Ok(false);
        }
        let what = format!("cannot look into '{}'", level.url.text());
        match self.session.note(&what, asked.map_err(Into::into))?.flatten() {
            Some(entries) => level.told.extend(entries),
            None => return Ok(false),
        }
        Ok(true)
    }

    fn fits(&self, url: &Url, attr: &Attr) -> bool {
        let mut step_count = 0;
        match self.predicate.judge(url.name(), attr.kind, &mut step_count) {
            library::Verdict::No => false,
            library::Verdict::Yes => true,
            library::Verdict::Open => self.predicate.fits_attr(attr),
        }
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
        out::put(&std::mem::take(&mut self.text))
    }
}

impl Level {
    fn new(url: Url, inode: &library::InodeNo) -> Self {
        let search = Search::new(*inode, &url.path);
        Self { url, search, told: VecDeque::new() }
    }
}
