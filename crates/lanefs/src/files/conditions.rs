//! What `lanefs find` asks of a file: as much of it as possible is held against entries by the server, the rest
//! here.
//!
//! Invariant: all of it must hold, and what holds does not depend on where it is looked at.

use super::bounds::{self, Age, Size};
use super::{Session, side};
use crate::address::{Place, Url};
use crate::args::{self, FindKind, Test, What};
use crate::exit::{Code, Exit};
use anyhow::Result;
use library::{
    Attr, FileKind, InodeNo, Kinds, Pattern, Predicate, Search, Status, Timestamp, Verdict, Wanted,
};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// All that must hold.
pub(super) struct Conditions<'a> {
    /// The server's part.
    pub(super) predicate: Predicate<'a>,
    /// Ours.
    here: Vec<Here<'a>>,
}

struct Here<'a> {
    not: bool,
    what: Part<'a>,
}

enum Part<'a> {
    Predicate(Predicate<'a>),
    Empty,
}

/// An entry to judge.
pub(super) struct Entry<'a> {
    pub(super) url: &'a Url,
    pub(super) kind: FileKind,
    pub(super) inode: InodeNo,
    /// There, if [`Conditions::asks_attrs`] says so.
    pub(super) attr: Option<&'a Attr>,
}

impl<'a> Conditions<'a> {
    /// What a command line asks for.
    pub(super) fn new(session: &mut Session, args: &'a args::Find) -> Result<Self> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH)?;
        let mut asked = Self { predicate: Predicate::ANY, here: Vec::new() };
        if let Some(pattern) = &args.name {
            asked.add(of_name(pattern, "--name")?);
        }
        if !args.kinds.is_empty() {
            asked.add(of_kinds(&args.kinds));
        }
        args.size.iter().for_each(|size| asked.add(of_size(size)));
        args.mtime.iter().for_each(|age| asked.add(of_age(age, now)));
        if let Some(newer) = &args.newer {
            let time = newer.to_str().and_then(bounds::time);
            let time = time.filter(|_| matches!(Place::parse(newer), Ok(Place::Local(_))));
            asked.add(after(match time {
                Some(time) => time,
                None => changed_at(session, newer, "--newer")?,
            }));
        }
        if args.empty {
            asked.add_here(false, Part::Empty);
        }
        for Test { not, what } in &args.tests {
            let predicate = match what {
                What::Name(pattern) => of_name(pattern, "-name")?,
                What::Kinds(kinds) => of_kinds(kinds),
                What::Size(size) => of_size(size),
                What::Age(age) => of_age(age, now),
                What::Newer(file) => after(changed_at(session, file, "-newer")?),
                What::NewerThan(time) => after(time_of(time)?),
                What::Empty => {
                    asked.add_here(*not, Part::Empty);
                    continue;
                }
            };
            if *not {
                asked.add_here(true, Part::Predicate(predicate));
            } else {
                asked.add(predicate);
            }
        }
        Ok(asked)
    }

    /// One more for the server, or for us where it takes one of the kind.
    fn add(&mut self, more: Predicate<'a>) {
        let all = &mut self.predicate;
        if all.name.is_some() && more.name.is_some() || all.kinds.is_some() && more.kinds.is_some()
        {
            self.here.push(Here { not: false, what: Part::Predicate(more) });
            return;
        }
        all.name = all.name.or(more.name);
        all.kinds = all.kinds.or(more.kinds);
        all.size_bytes_min = all.size_bytes_min.max(more.size_bytes_min);
        all.size_bytes_max = least(all.size_bytes_max, more.size_bytes_max);
        all.mtime_after = all.mtime_after.max(more.mtime_after);
        all.mtime_before = least(all.mtime_before, more.mtime_before);
    }

    fn add_here(&mut self, not: bool, what: Part<'a>) {
        self.here.push(Here { not, what });
    }

    /// Whether our part needs attributes.
    pub(super) fn asks_attrs(&self) -> bool {
        self.here.iter().any(|here| match &here.what {
            Part::Predicate(predicate) => {
                let of_names =
                    Predicate { name: predicate.name, kinds: predicate.kinds, ..Predicate::ANY };
                *predicate != of_names
            }
            Part::Empty => true,
        })
    }

    /// Whether an entry that fits the server's part fits ours.
    pub(super) fn fits_here(&self, session: &mut Session, entry: &Entry<'_>) -> Result<bool> {
        for here in &self.here {
            let fits = match &here.what {
                Part::Predicate(predicate) => fits(predicate, entry),
                Part::Empty => is_empty(session, entry)?,
            };
            if fits == here.not {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

/// Whether an entry fits, by what is known of it.
pub(super) fn fits(predicate: &Predicate<'_>, entry: &Entry<'_>) -> bool {
    match predicate.judge(entry.url.name(), entry.kind, &mut 0) {
        Verdict::No => false,
        Verdict::Yes => true,
        Verdict::Open => entry.attr.is_some_and(|attr| predicate.fits_attr(attr)),
    }
}

/// A file without bytes, or a directory without names.
fn is_empty(session: &mut Session, entry: &Entry<'_>) -> Result<bool> {
    match entry.kind {
        FileKind::File => Ok(entry.attr.is_some_and(|attr| attr.size_bytes == 0)),
        FileKind::Directory => {
            let wanted = Wanted { predicate: Predicate::ANY, attrs: false, directories: false };
            let mut search = Search::new(entry.inode, &entry.url.path);
            loop {
                let asked = session.volume(entry.url)?.search(&mut search, &wanted);
                let what = format!("cannot look into '{}'", entry.url.text());
                match session.note(&what, asked.map_err(Into::into))? {
                    Some(Some(names)) if names.is_empty() => {}
                    Some(Some(_)) | None => return Ok(false),
                    Some(None) => return Ok(true),
                }
            }
        }
        FileKind::Fifo
        | FileKind::CharDevice
        | FileKind::BlockDevice
        | FileKind::Symlink
        | FileKind::Socket => Ok(false),
    }
}

fn of_name<'a>(pattern: &'a OsStr, option: &str) -> Result<Predicate<'a>> {
    let wrong = |status: Status| {
        let is_long = status == Status::NameTooLong;
        let bound = if is_long { "255 bytes at most" } else { "a byte at least" };
        Exit::usage(format!("{option} '{}': a pattern has {bound}", pattern.display()))
    };
    let name = Some(Pattern::new(pattern.as_bytes()).map_err(wrong)?);
    Ok(Predicate { name, ..Predicate::ANY })
}

fn of_kinds(kinds: &[FindKind]) -> Predicate<'static> {
    let kinds = kinds.iter().map(|kind| file_kind(*kind));
    let kinds = Some(kinds.fold(Kinds::default(), Kinds::with));
    Predicate { kinds, ..Predicate::ANY }
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

const fn of_size(size: &Size) -> Predicate<'static> {
    let Size { bytes_min, bytes_max } = *size;
    Predicate { size_bytes_min: bytes_min, size_bytes_max: bytes_max, ..Predicate::ANY }
}

fn of_age(age: &Age, now: Duration) -> Predicate<'static> {
    let now_secs = i64::try_from(now.as_secs()).unwrap_or(i64::MAX);
    let ago = |secs| Timestamp { secs: now_secs.saturating_sub(secs), nanos: now.subsec_nanos() };
    let Age { older_secs, younger_secs } = *age;
    Predicate {
        mtime_before: older_secs.map(ago),
        mtime_after: younger_secs.map(ago),
        ..Predicate::ANY
    }
}

const fn after(time: Timestamp) -> Predicate<'static> {
    Predicate { mtime_after: Some(time), ..Predicate::ANY }
}

/// The lower of two bounds, where there is one.
fn least<T: Ord>(one: Option<T>, two: Option<T>) -> Option<T> {
    match (one, two) {
        (Some(one), Some(two)) => Some(one.min(two)),
        (one, two) => one.or(two),
    }
}

/// When a file's contents were changed, here or on a server.
fn changed_at(session: &mut Session, file: &OsStr, option: &str) -> Result<Timestamp> {
    let place = Place::parse(file)?;
    // find(1) looks at a symbolic link itself.
    let found = side::look(session, &place, option == "--newer")?;
    let none = || {
        let of = if option == "--newer" {
            "neither a time nor a file that exists"
        } else {
            "no such file"
        };
        Exit::new(Code::Failed, format!("{option} {}: {of}", place.text()))
    };
    Ok(found.ok_or_else(none)?.mtime)
}

fn time_of(text: &OsStr) -> Result<Timestamp> {
    let time = text.to_str().and_then(bounds::time);
    Ok(time.ok_or_else(|| {
        let shown = text.display();
        Exit::usage(format!("-newermt {shown}: no time, as 2026-01-31 or 2026-01-31T12:00"))
    })?)
}
