//! The conditions of `lanefs find`. The server evaluates as many of them as it can, the client the rest.
//!
//! Invariant: the paths that are printed and the directories that are entered do not depend on the server's part.
//! That part ([`super::parts`]) holds wherever a path is printed or a directory is pruned.

use super::bounds::{self, Age, Size};
use super::parts::{Part, Together as _, condition_of_action, without_known};
use super::{Session, side};
use crate::address::{Place, Url};
use crate::args::{self, Expression, FindKind, What};
use crate::exit::{Code, Exit};
use anyhow::Result;
use library::{
    Attr, FileKind, InodeNo, Kinds, Pattern, Predicate, Search, SearchOptions, Status, Timestamp,
    Verdict,
};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// A search.
pub(super) struct Conditions<'a> {
    /// The server's part.
    pub(super) predicate: Predicate<'a>,
    /// The rest of the expression, for entries that match the server's part.
    here: Part<'a>,
}

/// What is to be done with an entry.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(super) struct Outcome {
    /// How often its path is printed.
    pub(super) print_count: usize,
    /// The directory is not entered.
    pub(super) is_pruned: bool,
}

/// An entry to judge.
pub(super) struct Entry<'a> {
    pub(super) url: &'a Url,
    pub(super) kind: FileKind,
    pub(super) inode: InodeNo,
    /// Present if [`Conditions::asks_attrs`].
    pub(super) attr: Option<&'a Attr>,
}

impl<'a> Conditions<'a> {
    /// The search of a command line.
    pub(super) fn new(session: &mut Session, args: &'a args::Find) -> Result<Self> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH)?;
        let mut all = Vec::new();
        let mut add = |predicate| all.push(Part::Predicate(predicate));
        if let Some(pattern) = &args.name {
            add(of_name(pattern, "--name")?);
        }
        if !args.kinds.is_empty() {
            add(of_kinds(&args.kinds));
        }
        args.size.iter().for_each(|size| add(of_size(size)));
        args.mtime.iter().for_each(|age| add(of_age(age, now)));
        if let Some(newer) = &args.newer {
            let time = newer.to_str().and_then(bounds::time);
            let time = time.filter(|_| matches!(Place::parse(newer), Ok(Place::Local(_))));
            add(after(match time {
                Some(time) => time,
                None => changed_at(session, newer, "--newer")?,
            }));
        }
        if args.empty {
            all.push(Part::Empty);
        }
        all.extend(of_expression(session, &args.expression, now)?.into_all());
        if !args.expression.prints() {
            all.push(Part::Print);
        }
        let (known, here) = without_known(all);
        let predicate = known.and(&condition_of_action(&here).unwrap_or(Predicate::ANY));
        Ok(Self { predicate, here })
    }

    /// Whether our part needs attributes.
    pub(super) fn asks_attrs(&self) -> bool {
        self.here.asks_attrs()
    }

    /// What is to be done with an entry that fits the server's part.
    pub(super) fn outcome(&self, session: &mut Session, entry: &Entry<'_>) -> Result<Outcome> {
        let mut outcome = Outcome::default();
        evaluate(&self.here, session, entry, &mut outcome)?;
        Ok(outcome)
    }
}

/// Whether a part holds, evaluated with short circuits as in find(1).
fn evaluate(
    part: &Part<'_>,
    session: &mut Session,
    entry: &Entry<'_>,
    outcome: &mut Outcome,
) -> Result<bool> {
    match part {
        Part::Predicate(predicate) => Ok(fits(predicate, entry)),
        Part::Empty => is_empty(session, entry),
        Part::Prune => {
            outcome.is_pruned = true;
            Ok(true)
        }
        Part::Print => {
            outcome.print_count += 1;
            Ok(true)
        }
        Part::Not(part) => Ok(!evaluate(part, session, entry, outcome)?),
        Part::All(parts) => {
            for part in parts {
                if !evaluate(part, session, entry, outcome)? {
                    return Ok(false);
                }
            }
            Ok(true)
        }
        Part::Any(parts) => {
            for part in parts {
                if evaluate(part, session, entry, outcome)? {
                    return Ok(true);
                }
            }
            Ok(false)
        }
    }
}

/// The words of find(1), with the times of files that they name.
fn of_expression<'a>(
    session: &mut Session,
    expression: &'a Expression,
    now: Duration,
) -> Result<Part<'a>> {
    let mut of_all = |parts: &'a [Expression]| {
        parts.iter().map(|part| of_expression(session, part, now)).collect::<Result<Vec<_>>>()
    };
    let what = match expression {
        Expression::Test(what) => what,
        Expression::Prune => return Ok(Part::Prune),
        Expression::Print => return Ok(Part::Print),
        Expression::Not(part) => {
            return Ok(Part::Not(Box::new(of_expression(session, part, now)?)));
        }
        Expression::All(parts) => return Ok(Part::All(of_all(parts)?)),
        Expression::Any(parts) => return Ok(Part::Any(of_all(parts)?)),
    };
    Ok(Part::Predicate(match what {
        What::Name(pattern) => of_name(pattern, "-name")?,
        What::Kinds(kinds) => of_kinds(kinds),
        What::Size(size) => of_size(size),
        What::Age(age) => of_age(age, now),
        What::Newer(file) => after(changed_at(session, file, "-newer")?),
        What::NewerThan(time) => after(time_of(time)?),
        What::Empty => return Ok(Part::Empty),
    }))
}

/// Whether an entry matches, by its known attributes.
pub(super) fn fits(predicate: &Predicate<'_>, entry: &Entry<'_>) -> bool {
    match predicate.evaluate(entry.url.name(), entry.kind, &mut 0) {
        Verdict::No => false,
        Verdict::Yes => true,
        Verdict::Undecided => entry.attr.is_some_and(|attr| predicate.fits_attr(attr)),
    }
}

/// A file without bytes, or a directory without names.
fn is_empty(session: &mut Session, entry: &Entry<'_>) -> Result<bool> {
    match entry.kind {
        FileKind::File => Ok(entry.attr.is_some_and(|attr| attr.size_bytes == 0)),
        FileKind::Directory => {
            let wanted =
                SearchOptions { predicate: Predicate::ANY, attrs: false, directories: false };
            let mut search = Search::new(entry.inode, &entry.url.path);
            loop {
                let asked = session.volume(entry.url)?.search(&mut search, &wanted);
                let what = format!("cannot look into '{}'", entry.url.text());
                match session.report(&what, asked.map_err(Into::into))? {
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
