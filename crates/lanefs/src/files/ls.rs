//! `lanefs ls`: names in byte order, one line each.

use super::show::{Names, device_parts, mode_text, time_text};
use super::{Session, urls};
use crate::address::Url;
use crate::{args, out};
use anyhow::Result;
use library::{Attr, FileKind, Timestamp};
use std::ffi::{OsStr, OsString};
use std::io::IsTerminal as _;
use std::os::unix::ffi::OsStrExt as _;
use std::time::{SystemTime, UNIX_EPOCH};

/// Times older than this, or in the future, are shown with the year instead of the hour.
const RECENT_SECS: i64 = 15_778_476;

struct Row {
    name: OsString,
    attr: Attr,
    target: Option<OsString>,
}

/// Runs the command.
pub(crate) fn run(args: &args::Ls) -> Result<()> {
    let mut session = Session::new("ls", &args.access);
    let mut singles = Vec::new();
    let mut directories = Vec::new();
    for url in urls(&args.paths)? {
        let volume = session.volume(&url)?;
        // As with ls: a link to a directory is followed, unless its own line is wanted.
        let keep_link = args.long || args.directory;
        let attr = if keep_link { volume.lstat(&url.path) } else { volume.stat(&url.path) };
        let what = format!("cannot access '{}'", url.text());
        let Some(attr) = session.note(&what, attr.map_err(Into::into))? else { continue };
        if attr.kind == FileKind::Directory && !args.directory {
            directories.push(url);
        } else {
            let target = link_target(&mut session, &url, &attr);
            singles.push(Row { name: url.text().into(), attr, target });
        }
    }
    let titled = directories.len() + singles.len() > 1;
    let mut first = singles.is_empty();
    print(&singles, args)?;
    for url in &directories {
        let rows = list(&mut session, url, args);
        let what = format!("cannot open directory '{}'", url.text());
        let Some(rows) = session.note(&what, rows)? else { continue };
        if titled {
            let gap = if first { "" } else { "\n" };
            out::put(format!("{gap}{}:\n", url.text()).as_bytes())?;
        }
        first = false;
        if args.long {
            let bytes: u64 = rows.iter().map(|row| row.attr.allocated_bytes).sum();
            out::put(format!("total {}\n", bytes.div_ceil(1024)).as_bytes())?;
        }
        print(&rows, args)?;
    }
    session.end()
}

fn list(session: &mut Session, url: &Url, args: &args::Ls) -> Result<Vec<Row>> {
    let volume = session.volume(url)?;
    let mut dir = volume.read_dir(&url.path)?;
    let mut rows = Vec::new();
    loop {
        let entries = volume.next_entries(&mut dir)?;
        if entries.is_empty() {
            break;
        }
        for entry in entries {
            if args.all || !entry.name.as_bytes().starts_with(b".") {
                rows.push(Row { name: entry.name, attr: entry.attr, target: None });
            }
        }
    }
    if args.all {
        let here = volume.stat(&url.path)?;
        rows.push(Row { name: OsString::from("."), attr: here, target: None });
        let above = volume.stat(&url.path.join(".."))?;
        rows.push(Row { name: OsString::from(".."), attr: above, target: None });
    }
    rows.sort_by(|one, two| one.name.cmp(&two.name));
    if args.long {
        for row in &mut rows {
            let below = url.at(url.path.join(&row.name));
            row.target = link_target(session, &below, &row.attr);
        }
    }
    Ok(rows)
}

fn link_target(session: &mut Session, url: &Url, attr: &Attr) -> Option<OsString> {
    if attr.kind != FileKind::Symlink {
        return None;
    }
    session.volume(url).ok()?.readlink(&url.path).ok()
}

fn print(rows: &[Row], args: &args::Ls) -> Result<()> {
    let mut text = Vec::new();
    let terminal = std::io::stdout().is_terminal();
    if args.long {
        long(rows, terminal, &mut text);
    } else {
        for row in rows {
            text.extend(shown(&row.name, terminal));
            text.push(b'\n');
        }
    }
    out::put(&text)
}

fn long(rows: &[Row], terminal: bool, text: &mut Vec<u8>) {
    let users = Names::users();
    let groups = Names::groups();
    let columns: Vec<[String; 4]> = rows
        .iter()
        .map(|row| {
            let attr = &row.attr;
            let owner = users.of(attr.uid);
            [attr.nlink.to_string(), owner, groups.of(attr.gid), size_text(attr)]
        })
        .collect();
    let width = |index: usize| columns.iter().map(|row| row[index].len()).max().unwrap_or(0);
    let widths = [width(0), width(1), width(2), width(3)];
    for (row, [nlink, owner, group, size]) in rows.iter().zip(&columns) {
        let mode = mode_text(row.attr.kind, row.attr.mode);
        let time = ls_time(row.attr.mtime);
        let [nlink_width, owner_width, group_width, size_width] = widths;
        let front = format!(
            "{mode} {nlink:>nlink_width$} {owner:owner_width$} {group:group_width$} \
             {size:>size_width$} {time} "
        );
        text.extend_from_slice(front.as_bytes());
        text.extend(shown(&row.name, terminal));
        if let Some(target) = &row.target {
            text.extend_from_slice(b" -> ");
            text.extend(shown(target, terminal));
        }
        text.push(b'\n');
    }
}

/// Bytes, or a device's number.
fn size_text(attr: &Attr) -> String {
    if !attr.kind.is_device() {
        return attr.size_bytes.to_string();
    }
    let (major, minor) = device_parts(attr.rdev);
    format!("{major}, {minor}")
}

fn ls_time(time: Timestamp) -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |now| now.as_secs());
    let now = i64::try_from(now).unwrap_or(i64::MAX);
    let recent = time.secs <= now && now.saturating_sub(time.secs) < RECENT_SECS;
    time_text(time, if recent { "%b %e %H:%M" } else { "%b %e  %Y" })
}

/// A name as it may be shown: on a terminal, control characters become `?`.
fn shown(name: &OsStr, terminal: bool) -> Vec<u8> {
    let bytes = name.as_bytes().iter();
    let mask = |byte: &u8| if terminal && byte.is_ascii_control() { b'?' } else { *byte };
    bytes.map(mask).collect()
}
