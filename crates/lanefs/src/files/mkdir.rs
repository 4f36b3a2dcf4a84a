//! `lanefs mkdir [-p]`.

use super::{Session, urls};
use crate::address::Url;
use crate::args;
use anyhow::Result;
use library::{FileKind, Status, Volume};
use std::path::{Component, Path, PathBuf};

/// Runs the command.
pub(crate) fn run(args: &args::Mkdir) -> Result<()> {
    let mut session = Session::new("mkdir", &args.access);
    let mode = 0o777;
    for url in urls(&args.paths)? {
        let made = make(&mut session, &url, mode, args.parents);
        session.note(&format!("cannot create directory '{}'", url.text()), made)?;
    }
    session.end()
}

fn make(session: &mut Session, url: &Url, mode: u32, parents: bool) -> Result<()> {
    let volume = session.volume(url)?;
    if !parents {
        volume.mkdir(&url.path, mode)?;
        return Ok(());
    }
    let mut path = PathBuf::new();
    for component in url.path.components() {
        path.push(component);
        if matches!(component, Component::Normal(_)) {
            make_if_missing(volume, &path, mode)?;
        }
    }
    Ok(())
}

fn make_if_missing(volume: &mut Volume, path: &Path, mode: u32) -> Result<()> {
    match volume.mkdir(path, mode) {
        Err(error) if error.status() == Some(Status::Exists) => {
            let there = volume.stat(path)?;
            if there.kind == FileKind::Directory { Ok(()) } else { Err(error.into()) }
        }
        made => Ok(made.map(drop)?),
    }
}
