//! `lanefs cp - URL` and `lanefs cp URL -`: between a file of a server and standard input or output.
//!
//! As with cp, bytes written before an error remain. If the reader of standard output ends, SIGPIPE ends the
//! command, as it ends cat.

use super::copying::{progress, target_of};
use super::side;
use super::target::{Dest, Target};
use super::{Session, cat};
use crate::address::Place;
use crate::args;
use crate::exit::{Code, Exit};
use anyhow::{Context as _, Result};
use indicatif::ProgressBar;
use library::{BULK_BYTES_MAX, FileKind};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::BorrowedFd;
use rustix::io::{read, retry_on_intr};
use rustix::stdio::stdin;

/// What stands for standard input or output; a local file of this name is `./-`.
pub(super) const PIPE: &str = "-";

/// Bytes that are read before they are written together.
const BATCH_BYTES: usize = 8 * BULK_BYTES_MAX as usize;

/// Runs the command if one of its paths is `-`. Whether one was.
pub(super) fn run(args: &args::Cp) -> Result<bool> {
    if !args.paths.iter().any(|path| path == PIPE) {
        return Ok(false);
    }
    let alone = || Exit::usage("- stands for one SOURCE or for DEST: `cp - URL` or `cp URL -`");
    let [source, dest] = args.paths.as_slice() else { return Err(alone().into()) };
    if args.recursive || args.preserve || args.to_export.is_some() || args.to_secret_file.is_some()
    {
        return Err(Exit::usage("-r, -p and --to-... are not for pipes").into());
    }
    let file = Place::parse(if source == PIPE { dest } else { source })?;
    if source == dest || matches!(file, Place::Local(_)) {
        return Err(Exit::usage("the other one has to be lanefs://HOST:PORT/path").into());
    }
    let mut session = Session::new("cp", &args.access);
    match source == PIPE {
        true => from_input(&mut session, &file)?,
        false => to_output(&mut session, &file)?,
    }
    session.end()?;
    Ok(true)
}

fn to_output(session: &mut Session, source: &Place) -> Result<()> {
    let Place::Remote(url) = source else { return Ok(()) };
    let printed = cat::print(session, url);
    session.report(&format!("cannot copy '{}' to standard output", url.text()), printed).map(drop)
}

fn from_input(session: &mut Session, dest: &Place) -> Result<()> {
    let shown = dest.text();
    if side::look(session, dest, true)?.is_some_and(|meta| meta.is_dir()) {
        let line =
            format!("'{shown}' is a directory, and standard input has no name to have in it");
        return Err(Exit::new(Code::Failed, line).into());
    }
    let target = target_of(dest, false, dest)?;
    if target.look(session)?.is_some_and(|there| there.kind == FileKind::Symlink) {
        session
            .report_error(&format!("not writing through symbolic link '{shown}': remove it first"));
        return Ok(());
    }
    let copied = file(session, &target);
    session.report(&format!("cannot copy standard input to '{shown}'"), copied).map(drop)
}

fn file(session: &mut Session, target: &Target) -> Result<()> {
    let progress = progress();
    progress.set_message(target.text());
    let to = target.create(session, 0o666)?;
    let mut end = End::default();
    let copied = contents(session, &to, &mut end, &progress);
    // Closed also when the copy failed, so that the server forgets the handle.
    let finished = to.finish(session, end.file_offset, end.hole);
    progress.finish_and_clear();
    copied.and(finished)
}

/// How far a copy has come.
#[derive(Default)]
struct End {
    file_offset: u64,
    /// The last bytes are zeros that were not written.
    hole: bool,
}

fn contents(session: &mut Session, to: &Dest, end: &mut End, progress: &ProgressBar) -> Result<()> {
    let mut buffer = vec![0; BATCH_BYTES];
    loop {
        let (read_bytes, ended) = fill(&mut buffer).context("cannot read standard input")?;
        let mut writes = Vec::new();
        for bytes in buffer[..read_bytes].chunks(BULK_BYTES_MAX as usize) {
            end.hole = bytes.iter().all(|byte| *byte == 0);
            if !end.hole {
                writes.push((end.file_offset, bytes));
            }
            end.file_offset += bytes.len() as u64;
        }
        to.write(session, &writes)?;
        progress.inc_length(read_bytes as u64);
        progress.inc(read_bytes as u64);
        if ended {
            return Ok(());
        }
    }
}

/// Reads until nothing more is there at once, or the buffer is full. How much that is, and whether the input
/// has ended.
fn fill(buffer: &mut [u8]) -> rustix::io::Result<(usize, bool)> {
    let input = stdin();
    let mut filled_bytes = 0;
    while filled_bytes < buffer.len() && (filled_bytes == 0 || is_ready(input)) {
        match retry_on_intr(|| read(input, &mut buffer[filled_bytes..]))? {
            0 => return Ok((filled_bytes, true)),
            read_bytes => filled_bytes += read_bytes,
        }
    }
    Ok((filled_bytes, false))
}

/// Whether a read would not wait.
fn is_ready(input: BorrowedFd<'_>) -> bool {
    let mut sources = [PollFd::from_borrowed_fd(input, PollFlags::IN)];
    let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
    poll(&mut sources, Some(&at_once)).is_ok_and(|count| count > 0)
}
