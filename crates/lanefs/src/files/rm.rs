//! `lanefs rm [-r] [-f]`.

use super::{Session, urls};
use crate::address::Url;
use crate::args;
use anyhow::Result;
use library::{Attr, FileKind};

/// Runs the command.
pub(crate) fn run(args: &args::Rm) -> Result<()> {
    let mut session = Session::new("rm", &args.access);
    for url in urls(&args.paths)? {
        if url.path.file_name().is_none() {
            let line = format!("refusing to remove '{}': the root, `.` or `..`", url.text());
            session.report_error(&line);
            continue;
        }
        let found = session.volume(&url)?.lstat(&url.path);
        if args.force && found.as_ref().is_err_and(library::Error::is_not_found) {
            continue;
        }
        let what = format!("cannot remove '{}'", url.text());
        let Some(attr) = session.report(&what, found.map_err(Into::into))? else { continue };
        if attr.kind == FileKind::Directory && !args.recursive {
            session.report_error(&format!("{what}: is a directory"));
            continue;
        }
        remove(&mut session, &url, &attr)?;
    }
    session.end()
}

/// Removes a tree, entries first. Reports and leaves entries that cannot be removed.
fn remove(session: &mut Session, url: &Url, attr: &Attr) -> Result<()> {
    let directory = attr.kind == FileKind::Directory;
    if directory {
        let listed = session.list(url);
        let what = format!("cannot remove '{}'", url.text());
        let Some(entries) = session.report(&what, listed)? else { return Ok(()) };
        for entry in entries {
            remove(session, &url.at(url.path.join(&entry.name)), &entry.attr)?;
        }
    }
    let volume = session.volume(url)?;
    let removed = if directory { volume.rmdir(&url.path) } else { volume.unlink(&url.path) };
    session.report(&format!("cannot remove '{}'", url.text()), removed.map_err(Into::into))?;
    Ok(())
}
