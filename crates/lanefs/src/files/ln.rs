//! `lanefs ln [-s] [-f]`: one more name for a file, or a symbolic link.

use super::{Session, url};
use crate::address::{Place, Url};
use crate::args;
use crate::exit::Exit;
use anyhow::Result;
use library::FileKind;

/// Runs the command.
pub(crate) fn run(args: &args::Ln) -> Result<()> {
    let mut link = url(&args.link)?;
    let target = Place::parse(&args.target)?;
    let name = match (&target, args.symbolic) {
        (Place::Remote(target), false) if target.address == link.address => target.path.file_name(),
        (Place::Remote(_), false) => {
            let line = "a hard link is on the server of its file: copy it with `lanefs cp`";
            return Err(Exit::usage(line).into());
        }
        (Place::Local(path), false) => {
            let line =
                format!("{} is no lanefs://HOST:PORT/path; -s would take it", path.display());
            return Err(Exit::usage(line).into());
        }
        (Place::Local(path), true) => path.file_name(),
        (Place::Remote(_), true) => {
            let line = "a symbolic link has a path, not a URL: give it as it is seen from the link";
            return Err(Exit::usage(line).into());
        }
    };
    let mut session = Session::new("ln", &args.access);
    // As ln: into a directory, also through a link to one.
    let into = session.volume(&link)?.stat(&link.path);
    if let (true, Some(name)) = (into.is_ok_and(|attr| attr.kind == FileKind::Directory), name) {
        link = link.at(link.path.join(name));
    }
    let made = make(&mut session, args, &target, &link);
    let what = if args.symbolic { "symbolic link" } else { "hard link" };
    let what = format!("cannot make {what} '{}' to '{}'", link.text(), target.text());
    session.report(&what, made)?;
    session.end()
}

fn make(session: &mut Session, args: &args::Ln, target: &Place, link: &Url) -> Result<()> {
    let volume = session.volume(link)?;
    let inode = match target {
        Place::Remote(target) => Some(volume.lstat(&target.path)?.inode),
        Place::Local(_) => None,
    };
    if args.force {
        match volume.lstat(&link.path) {
            // It is that file's name already.
            Ok(there) if Some(there.inode) == inode => return Ok(()),
            Ok(_) => volume.unlink(&link.path)?,
            Err(error) if error.is_not_found() => {}
            Err(error) => return Err(error.into()),
        }
    }
    match inode {
        Some(inode) => volume.link(inode, &link.path)?,
        None => volume.symlink(&args.target, &link.path)?,
    };
    Ok(())
}
