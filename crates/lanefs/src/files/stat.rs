//! `lanefs stat`: everything that is known about a file.

use super::json::{self, FileRow};
use super::show::{Names, device_parts, kind_text, mode_text, time_text};
use super::{Session, urls};
use crate::address::Url;
use crate::{args, out};
use anyhow::Result;
use library::{BULK_BYTES_MAX, FileKind};
use std::os::unix::ffi::OsStrExt as _;

const TIME: &str = "%Y-%m-%d %H:%M:%S.%9f %z";

/// Runs the command.
pub(crate) fn run(args: &args::Stat) -> Result<()> {
    let mut session = Session::new("stat", &args.access);
    for url in urls(&args.paths)? {
        if args.json.json {
            let row = row(&mut session, &url);
            let what = format!("cannot stat '{}'", url.text());
            if let Some(row) = session.report(&what, row)? {
                json::put(&row)?;
            }
            continue;
        }
        let text = text(&mut session, &url);
        let what = format!("cannot stat '{}'", url.text());
        if let Some(text) = session.report(&what, text)? {
            out::print_bytes(text.as_bytes())?;
        }
    }
    session.end()
}

fn row(session: &mut Session, url: &Url) -> Result<FileRow> {
    let attr = session.volume(url)?.lstat(&url.path)?;
    let target = session.link_target(url, &attr);
    Ok(FileRow::new(url, &attr, target.as_ref().map(|target| target.as_bytes())))
}

fn text(session: &mut Session, url: &Url) -> Result<String> {
    let volume = session.volume(url)?;
    let attr = volume.lstat(&url.path)?;
    let mut name = url.text();
    if attr.kind == FileKind::Symlink {
        let target = volume.readlink(&url.path)?;
        name.push_str(&format!(" -> {}", target.display()));
    }
    let kind = match (attr.kind, attr.size_bytes) {
        (FileKind::File, 0) => "regular empty file",
        (kind, _) => kind_text(kind),
    };
    let device = if attr.kind.is_device() {
        let (major, minor) = device_parts(attr.rdev);
        format!(" Device type: {major},{minor}")
    } else {
        String::new()
    };
    let (user, group) = (Names::users().of(attr.uid), Names::groups().of(attr.gid));
    Ok(format!(
        "  File: {name}\n  Size: {:<15}\tBlocks: {:<10} IO Block: {BULK_BYTES_MAX} {kind}\n\
         Shard: {:<14}\tInode: {:<11} Links: {}{device}\n\
         Access: ({:04o}/{})  Uid: ({:>5}/{user:>8})   Gid: ({:>5}/{group:>8})\n\
         Access: {}\nModify: {}\nChange: {}\n Birth: {}\n",
        attr.size_bytes,
        attr.allocated_bytes.div_ceil(512),
        attr.inode.shard().to_string(),
        attr.inode.0,
        attr.nlink,
        attr.mode,
        mode_text(attr.kind, attr.mode),
        attr.uid,
        attr.gid,
        time_text(attr.atime, TIME),
        time_text(attr.mtime, TIME),
        time_text(attr.ctime, TIME),
        time_text(attr.birth, TIME),
    ))
}
