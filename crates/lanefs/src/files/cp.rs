//! `lanefs cp [-r] [-p]`: to, from and within servers. Between a file and a pipe it is [`super::pipes`]'.
//!
//! It leaves the verbs of either side to [`super::side`] and [`super::target`]. Pieces of zeros are not
//! written: holes stay holes. Symbolic links that it finds where it writes are never written through.

use super::copying::{progress, target_of};
use super::show::kind_text;
use super::side::{self, Meta, Names, READ_AHEAD_COUNT, Source};
use super::target::{Dest, Target};
use super::{Session, pipes};
use crate::address::Place;
use crate::args;
use crate::exit::{Code, Exit};
use anyhow::{Result, bail};
use indicatif::ProgressBar;
use library::{BULK_BYTES_MAX, Bytes, FileKind};

struct Copy<'a> {
    session: Session,
    args: &'a args::Cp,
    progress: ProgressBar,
}

/// Runs the command.
pub(crate) fn run(args: &args::Cp) -> Result<()> {
    if pipes::run(args)? {
        return Ok(());
    }
    let parse = |path| Place::parse(path);
    let mut sources = args.paths.iter().map(|path| parse(path)).collect::<Result<Vec<_>>>()?;
    let Some(dest) = sources.pop() else { return Ok(()) };
    let remote = |place: &Place| matches!(place, Place::Remote(_));
    if !remote(&dest) && !sources.iter().any(remote) {
        let line = "no lanefs://HOST:PORT/path among them: for local files there is cp";
        return Err(Exit::usage(line).into());
    }
    let mut session = Session::new("cp", &args.access);
    if let Some(access) = access_to(args, &dest, &sources)?
        && let Place::Remote(dest) = &dest
    {
        session.go_to(&dest.address, access);
    }
    let mut copy = Copy { session, args, progress: progress() };
    let into = side::look(&mut copy.session, &dest, true)?.is_some_and(|meta| meta.is_dir());
    if !into && sources.len() > 1 {
        let line = format!("target '{}' is not a directory", dest.text());
        return Err(Exit::new(Code::Failed, line).into());
    }
    for source in &sources {
        let target = target_of(&dest, into, source);
        let Some(target) = copy.session.report(&source.text(), target)? else { continue };
        copy.top(source, &target)?;
    }
    copy.progress.finish_and_clear();
    copy.session.end()
}

/// How to reach the server of DEST, if that is said apart.
fn access_to(args: &args::Cp, dest: &Place, sources: &[Place]) -> Result<Option<args::Access>> {
    if args.to_export.is_none() && args.to_secret_file.is_none() {
        return Ok(None);
    }
    let usage = |line| Err(Exit::usage(line).into());
    let Place::Remote(_) = dest else {
        return usage("--to-export and --to-secret-file are for a DEST on a server");
    };
    if sources.iter().any(|source| matches!(source, Place::Remote(_)) && same_side(source, dest)) {
        return usage("--to-export and --to-secret-file are for a DEST on another server");
    }
    let mut access = args.access.clone();
    if let Some(export) = &args.to_export {
        access.export.clone_from(export);
    }
    if let Some(file) = &args.to_secret_file {
        access.secret.secret_file = Some(file.clone());
        access.certificates = args::CertArg::default();
    }
    Ok(Some(access))
}

impl Copy<'_> {
    /// Copies one source named on the command line.
    fn top(&mut self, source: &Place, target: &Target) -> Result<()> {
        // As cp: links are followed, unless whole trees are copied.
        let meta = side::look(&mut self.session, source, !self.args.recursive);
        let what = format!("cannot stat '{}'", source.text());
        let meta = self.session.report(&what, meta)?;
        match meta {
            None => Ok(()),
            Some(None) => {
                self.report_error(&format!("{what}: no such file or directory"));
                Ok(())
            }
            Some(Some(meta)) if meta.is_dir() && !self.args.recursive => {
                let line = format!("-r not given; omitting directory '{}'", source.text());
                self.report_error(&line);
                Ok(())
            }
            Some(Some(meta)) if meta.is_dir() && is_below(&target.place(), source) => {
                let (source, target) = (source.text(), target.text());
                let line = format!("cannot copy a directory, '{source}', into itself, '{target}'");
                self.report_error(&line);
                Ok(())
            }
            Some(Some(meta)) => self.one(source, target, &meta),
        }
    }

    /// Copies a file, link or tree.
    fn one(&mut self, source: &Place, target: &Target, meta: &Meta) -> Result<()> {
        let there = target.look(&mut self.session);
        let what = format!("cannot stat '{}'", target.text());
        let Some(there) = self.session.report(&what, there)? else { return Ok(()) };
        if let Some(there) = &there {
            let (from, to) = (source.text(), target.text());
            let line = match (meta.is_dir(), there.is_dir()) {
                (true, false) => {
                    format!("cannot overwrite non-directory '{to}' with directory '{from}'")
                }
                (false, true) => {
                    format!("cannot overwrite directory '{to}' with non-directory '{from}'")
                }
                _ if meta.kind == FileKind::File && there.kind == FileKind::Symlink => {
                    format!("not writing through symbolic link '{to}': remove it first")
                }
                _ if !meta.is_dir()
                    && same_side(source, &target.place())
                    && meta.identity == there.identity =>
                {
                    format!("'{from}' and '{to}' are the same file")
                }
                _ => String::new(),
            };
            if !line.is_empty() {
                self.report_error(&line);
                return Ok(());
            }
        }
        let copied = match meta.kind {
            FileKind::Directory => return self.tree(source, target, meta, there.is_some()),
            FileKind::Symlink => self.link(source, target),
            FileKind::File => self.file(source, target, meta),
            FileKind::Fifo | FileKind::Socket | FileKind::CharDevice | FileKind::BlockDevice => {
                self.special(target, meta)
            }
        };
        let preserved = copied.and_then(|()| self.preserve(target, meta));
        let what = format!("cannot copy '{}' to '{}'", source.text(), target.text());
        self.session.report(&what, preserved).map(drop)
    }

    fn preserve(&mut self, target: &Target, meta: &Meta) -> Result<()> {
        if self.args.preserve { target.preserve(&mut self.session, meta) } else { Ok(()) }
    }

    fn tree(&mut self, source: &Place, target: &Target, meta: &Meta, exists: bool) -> Result<()> {
        let what = format!("cannot create directory '{}'", target.text());
        if !exists {
            // Its owner can write into it until everything is there.
            let made = target.make_dir(&mut self.session, 0o700);
            if self.session.report(&what, made)?.is_none() {
                return Ok(());
            }
        }
        self.entries(source, target)?;
        let finished = if self.args.preserve {
            target.preserve(&mut self.session, meta)
        } else if exists {
            Ok(())
        } else {
            let mode = meta.mode & 0o777 & !side::umask();
            target.set_mode(&mut self.session, mode)
        };
        self.session.report(&what, finished).map(drop)
    }

    /// Copies all that is in a directory.
    fn entries(&mut self, source: &Place, target: &Target) -> Result<()> {
        let unreadable = format!("cannot read directory '{}'", source.text());
        let names = Names::open(&mut self.session, source);
        let Some(mut names) = self.session.report(&unreadable, names)? else { return Ok(()) };
        loop {
            let piece = names.next(&mut self.session);
            let piece = self.session.report(&unreadable, piece)?.unwrap_or_default();
            if piece.is_empty() {
                return Ok(());
            }
            for name in &piece {
                let from = side::below(source, name);
                let found = side::look(&mut self.session, &from, false);
                let failed = format!("cannot stat '{}'", from.text());
                // A name that vanished meanwhile is no failure of ours.
                let Some(Some(meta)) = self.session.report(&failed, found)? else { continue };
                self.one(&from, &target.join(name), &meta)?;
            }
        }
    }

    fn link(&mut self, source: &Place, target: &Target) -> Result<()> {
        let points_to = side::read_link(&mut self.session, source)?;
        if target.look(&mut self.session)?.is_some() {
            target.remove(&mut self.session)?;
        }
        target.make_link(&mut self.session, &points_to)
    }

    /// Creates a fifo, socket or device of the same kind. Nothing is read from it; `cat` does that.
    fn special(&mut self, target: &Target, meta: &Meta) -> Result<()> {
        if !self.args.recursive {
            bail!("a {}, which -r would make anew", kind_text(meta.kind));
        }
        if target.look(&mut self.session)?.is_some() {
            target.remove(&mut self.session)?;
        }
        target.make_special(&mut self.session, meta)
    }

    fn file(&mut self, source: &Place, target: &Target, meta: &Meta) -> Result<()> {
        self.progress.inc_length(meta.size_bytes);
        self.progress.set_message(source.text());
        let from = Source::open(&mut self.session, source)?;
        let to = target.create(&mut self.session, meta.mode & 0o777)?;
        let size = self.contents(&from, &to, meta);
        // Closed also when the copy failed, so that the server forgets the handles.
        let closed = from.close(&mut self.session);
        let (size_bytes, hole) = *size.as_ref().unwrap_or(&(0, false));
        let finished = to.finish(&mut self.session, size_bytes, hole);
        size?;
        closed?;
        finished
    }

    /// Copies the bytes. Returns how many there are, and whether the last ones are a hole.
    fn contents(&mut self, from: &Source, to: &Dest, meta: &Meta) -> Result<(u64, bool)> {
        let piece_bytes = u64::from(BULK_BYTES_MAX);
        let mut file_offset = 0;
        let mut hole = false;
        loop {
            let data_offset = from.next_data(file_offset)?;
            hole |= data_offset > file_offset;
            self.progress.inc(data_offset - file_offset);
            file_offset = data_offset;
            let left_bytes = meta.size_bytes.saturating_sub(file_offset);
            let count = left_bytes.div_ceil(piece_bytes).clamp(1, READ_AHEAD_COUNT);
            let pieces = from.read(&mut self.session, file_offset, count)?;
            let mut writes: Vec<(u64, &[u8])> = Vec::with_capacity(pieces.len());
            let mut ended = false;
            for bytes in &pieces {
                let end = (bytes.len() as u64) < piece_bytes;
                if !bytes.is_empty() {
                    hole = bytes.iter().all(|byte| *byte == 0);
                    if !hole {
                        writes.push((file_offset, bytes));
                    }
                }
                file_offset += bytes.len() as u64;
                if end {
                    ended = true;
                    break;
                }
            }
            to.write(&mut self.session, &writes)?;
            let read_bytes: usize = pieces.iter().map(Bytes::len).sum();
            self.progress.inc(read_bytes as u64);
            if ended {
                return Ok((file_offset, hole));
            }
        }
    }

    fn report_error(&mut self, line: &str) {
        let session = &mut self.session;
        self.progress.suspend(|| session.report_error(line));
    }
}

fn same_side(one: &Place, two: &Place) -> bool {
    match (one, two) {
        (Place::Local(_), Place::Local(_)) => true,
        (Place::Remote(one), Place::Remote(two)) => one.address == two.address,
        (Place::Local(_), Place::Remote(_)) | (Place::Remote(_), Place::Local(_)) => false,
    }
}

fn is_below(inner: &Place, outer: &Place) -> bool {
    match (inner, outer) {
        (Place::Remote(inner), Place::Remote(outer)) => {
            inner.address == outer.address && inner.path.starts_with(&outer.path)
        }
        (Place::Local(inner), Place::Local(outer)) => inner.starts_with(outer),
        (Place::Local(_), Place::Remote(_)) | (Place::Remote(_), Place::Local(_)) => false,
    }
}
