//! `lanefs ls`: names in byte order, one line each.

use super::json::{self, FileRow};
use super::show::{Names, device_parts, mode_text, shown, time_text};
use super::{Session, urls};
use crate::address::Url;
use crate::{args, out};
use anyhow::Result;
use library::{Attr, FileKind, Timestamp};
use std::ffi::OsString;
use std::io::IsTerminal as _;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::time::{SystemTime, UNIX_EPOCH};

/// Times older than this, or in the future, are shown with the year instead of the hour.
const RECENT_SECS: i64 = 15_778_476;

struct Row {
    name: OsString,
    url: Url,
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
        let keep_link = args.long || args.directory || args.json.json;
        let attr = if keep_link { volume.lstat(&url.path) } else { volume.stat(&url.path) };
        let what = format!("cannot access '{}'", url.text());
        let Some(attr) = session.report(&what, attr.map_err(Into::into))? else { continue };
        if attr.kind == FileKind::Directory && !args.directory {
            directories.push(url);
        } else {
            let target = session.link_target(&url, &attr);
            let name = OsString::from_vec(url.bytes());
            singles.push(Row { name, url, attr, target });
        }
    }
    let titled = directories.len() + singles.len() > 1;
    let mut first = singles.is_empty();
    print(&singles, args)?;
    for url in &directories {
        let rows = list(&mut session, url, args);
        let what = format!("cannot open directory '{}'", url.text());
        let Some(rows) = session.report(&what, rows)? else { continue };
        if titled && !args.json.json {
            let gap = if first { "" } else { "\n" };
            out::print_bytes(format!("{gap}{}:\n", url.text()).as_bytes())?;
        }
        first = false;
        if args.long && !args.json.json {
            let bytes: u64 = rows.iter().map(|row| row.attr.allocated_bytes).sum();
            out::print_bytes(format!("total {}\n", bytes.div_ceil(1024)).as_bytes())?;
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
                let url = url.at(url.path.join(&entry.name));
                rows.push(Row { name: entry.name, url, attr: entry.attr, target: None });
            }
        }
    }
    if args.all {
        for name in [".", ".."] {
            let url = url.at(url.path.join(name));
            let attr = volume.stat(&url.path)?;
            rows.push(Row { name: OsString::from(name), url, attr, target: None });
        }
    }
    rows.sort_by(|one, two| one.name.cmp(&two.name));
    if args.long || args.json.json {
        for row in &mut rows {
            row.target = session.link_target(&row.url, &row.attr);
        }
    }
    Ok(rows)
}

fn print(rows: &[Row], args: &args::Ls) -> Result<()> {
    let mut text = Vec::new();
    if args.json.json {
        for row in rows {
            let target = row.target.as_ref().map(|target| target.as_bytes());
            text.extend(json::line(&FileRow::new(&row.url, &row.attr, target))?);
        }
        return out::print_bytes(&text);
    }
    let terminal = std::io::stdout().is_terminal();
    if args.long {
        long(rows, terminal, &mut text);
    } else {
        for row in rows {
            text.extend(shown(&row.name, terminal));
            text.push(b'\n');
        }
    }
    out::print_bytes(&text)
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
