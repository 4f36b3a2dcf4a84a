//! `lanefs mkdir [-p] [-m MODE]`.

use super::mode::Mode;
use super::{Session, side, urls};
use crate::address::Url;
use crate::args;
use crate::exit::{Code, Exit};
use anyhow::Result;
use library::{Attr, FileKind, SetAttr, Status, Volume};
use std::path::{Component, Path, PathBuf};

/// What is made, less the umask.
const MODE: u32 = 0o777;

/// Runs the command.
pub(crate) fn run(args: &args::Mkdir) -> Result<()> {
    let mode = args.mode.as_deref().map(Mode::parse).transpose();
    let mode = mode.map_err(|line| Exit::new(Code::Usage, line))?;
    let mut session = Session::new("mkdir", &args.access);
    for url in urls(&args.paths)? {
        let made = make(&mut session, &url, mode.as_ref(), args.parents);
        session.report(&format!("cannot create directory '{}'", url.text()), made)?;
    }
    session.end()
}

fn make(session: &mut Session, url: &Url, mode: Option<&Mode>, parents: bool) -> Result<()> {
    let volume = session.volume(url)?;
    if parents {
        return match make_all(volume, &url.path)? {
            Some(attr) => set_mode(volume, &url.path, &attr, mode),
            None => Ok(()),
        };
    }
    let attr = volume.mkdir(&url.path, MODE)?;
    set_mode(volume, &url.path, &attr, mode)
}

fn set_mode(volume: &mut Volume, path: &Path, attr: &Attr, mode: Option<&Mode>) -> Result<()> {
    let Some(mode) = mode else { return Ok(()) };
    // As mkdir(1): a mode that begins with a sign changes what there would be without a umask.
    let special = attr.mode & !MODE;
    let wanted = mode.apply(MODE | special, true, side::umask());
    let set = SetAttr { mode: Some(wanted), ..SetAttr::default() };
    Ok(volume.set_attr(attr.inode, path, &set).map(drop)?)
}

/// Makes a directory and those above it, as far as they are missing. `None`: it was there.
pub(crate) fn make_all(volume: &mut Volume, path: &Path) -> Result<Option<Attr>> {
    let mut above = PathBuf::new();
    let mut made = None;
    for component in path.components() {
        above.push(component);
        if matches!(component, Component::Normal(_)) {
            made = make_if_missing(volume, &above)?;
        }
    }
    Ok(made)
}

fn make_if_missing(volume: &mut Volume, path: &Path) -> Result<Option<Attr>> {
    match volume.mkdir(path, MODE) {
        Err(error) if error.status() == Some(Status::Exists) => {
            let there = volume.stat(path)?;
            if there.kind == FileKind::Directory { Ok(None) } else { Err(error.into()) }
        }
        made => Ok(made.map(Some)?),
    }
}
