//! `lanefs chmod [-R] MODE`.

use super::mode::Mode;
use super::{Session, side, urls};
use crate::address::Url;
use crate::args;
use crate::exit::Exit;
use anyhow::Result;
use library::{Attr, FileKind, SetAttr};

/// Runs the command.
pub(crate) fn run(args: &args::Chmod) -> Result<()> {
    let mode = Mode::parse(&args.mode).map_err(Exit::usage)?;
    let umask = side::umask();
    let mut session = Session::new("chmod", &args.access);
    for url in urls(&args.paths)? {
        let found = session.volume(&url)?.stat(&url.path);
        let what = format!("cannot access '{}'", url.text());
        let found = session.report(&what, found.map_err(Into::into))?;
        let Some(attr) = found else { continue };
        let mut change = |session: &mut Session, url: &Url, attr: &Attr| {
            // What a symbolic link found on the way points to may lie anywhere.
            if attr.kind == FileKind::Symlink {
                return Ok(());
            }
            let directory = attr.kind == FileKind::Directory;
            let wanted = mode.apply(attr.mode, directory, umask);
            let set = SetAttr { mode: Some(wanted), ..SetAttr::default() };
            let changed = session.volume(url)?.set_attr(attr.inode, &url.path, &set);
            let what = format!("cannot change permissions of '{}'", url.text());
            session.report(&what, changed.map_err(Into::into)).map(drop)
        };
        session.each(&url, &attr, args.recursive, &mut change)?;
    }
    session.end()
}
