//! `lanefs layout`: over which servers files are spread, of paths on mounts and of `lanefs://` paths.
//!
//! What a file has and a directory gives is the extended attribute `lanefs.layout`, which the server
//! answers. Where stripes lie follows from it, the inode number and the map.

use crate::address::{Place, Url};
use crate::exit::Exit;
use crate::files::Session;
use crate::files::human;
use crate::running::{self, Kind};
use crate::table::{self, Column};
use crate::{address, args, out};
use anyhow::{Context as _, Result};
use rustix::io::Errno;
use serde::Serialize;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use wire::{InodeNo, Layout, Map, ServerAddress, ServerId, Status};

/// Runs the command.
pub(crate) fn run(args: &args::Layout) -> Result<()> {
    match &args.command {
        args::LayoutCommand::Get(args) => get(args),
        args::LayoutCommand::Set(args) => set(args),
        args::LayoutCommand::Check(args) => check(args),
    }
}

/// A line of `lanefs layout get --json`.
#[derive(Serialize)]
struct LayoutRow {
    path: String,
    /// `None`: a directory that has none; new files get that of the file system.
    unit_bytes: Option<u64>,
    /// 0: as many as there are servers.
    count: Option<u16>,
    /// At one server until there is a second stripe.
    grows: Option<bool>,
}

fn get(args: &args::LayoutGet) -> Result<()> {
    let mut session = Session::new("layout get", &args.access);
    for path in &args.paths {
        let place = Place::parse(path)?;
        let found = layout_of(&mut session, &place);
        let what = format!("cannot get the layout of '{}'", place.text());
        let Some(layout) = session.report(&what, found)? else { continue };
        if args.json {
            let count = layout.map(|layout| {
                let is_all = layout.stripe_count == Layout::STRIPE_COUNT_MAX;
                if is_all { 0 } else { layout.stripe_count }
            });
            let unit_bytes = layout.map(|layout| layout.stripe_unit_bytes);
            let grows = layout.map(|layout| layout.narrow);
            put_json(&LayoutRow { path: place.text(), unit_bytes, count, grows })?;
        } else {
            out::print_bytes(format!("{}: {}\n", place.text(), shown(layout)).as_bytes())?;
        }
    }
    session.end()
}

fn shown(layout: Option<Layout>) -> String {
    let Some(Layout { stripe_unit_bytes, stripe_count, narrow }) = layout else {
        return "no layout of its own".to_owned();
    };
    let unit = human(stripe_unit_bytes);
    let first = if narrow { "one server, from the second stripe on " } else { "" };
    match stripe_count {
        1 => "one server".to_owned(),
        Layout::STRIPE_COUNT_MAX => format!("{first}all servers, stripes of {unit}"),
        count => format!("{first}{count} servers, stripes of {unit}"),
    }
}

fn set(args: &args::LayoutSet) -> Result<()> {
    let mut session = Session::new("layout set", &args.access);
    let grows = if args.grows { ",grows=1" } else { "" };
    let text = format!("unit={},count={}{grows}", args.unit, args.count);
    for path in &args.paths {
        let place = Place::parse(path)?;
        let done = set_text(&mut session, &place, &text);
        session.report(&format!("cannot set the layout of '{}'", place.text()), done)?;
    }
    session.end()
}

fn set_text(session: &mut Session, place: &Place, text: &str) -> Result<()> {
    let name = String::from_utf8_lossy(Layout::XATTR);
    let exists = || {
        "a file keeps the layout that it was made with; copy it into a directory that \
                     gives another one"
    };
    match place {
        Place::Remote(url) => {
            let done = session.volume(url)?.set_xattr(&url.path, &name, text.as_bytes());
            match done {
                Err(error) if error.status() == Some(Status::Exists) => {
                    anyhow::bail!(exists())
                }
                done => Ok(done?),
            }
        }
        Place::Local(path) => {
            let flags = rustix::fs::XattrFlags::empty();
            match rustix::fs::setxattr(path, &*name, text.as_bytes(), flags) {
                Ok(()) => Ok(()),
                Err(Errno::EXIST) => anyhow::bail!(exists()),
                Err(Errno::OPNOTSUPP) => anyhow::bail!(NO_MOUNT),
                Err(errno) => Err(std::io::Error::from(errno).into()),
            }
        }
    }
}

const NO_MOUNT: &str = "it is neither a file nor a directory on a mount of lanefs";

/// What a file has or a directory gives. `None`: a directory without one.
fn layout_of(session: &mut Session, place: &Place) -> Result<Option<Layout>> {
    let name = String::from_utf8_lossy(Layout::XATTR);
    let text = match place {
        Place::Remote(url) => match session.volume(url)?.xattr(&url.path, &name) {
            Ok(text) => text,
            Err(error) if error.status() == Some(Status::NoData) => return Ok(None),
            Err(error) => return Err(error.into()),
        },
        Place::Local(path) => {
            let mut text = [0; 64];
            match rustix::fs::getxattr(path, &*name, &mut text) {
                Ok(text_bytes) => text[..text_bytes].to_vec(),
                Err(Errno::NODATA) => return Ok(None),
                Err(Errno::OPNOTSUPP) => anyhow::bail!(NO_MOUNT),
                Err(errno) => return Err(std::io::Error::from(errno).into()),
            }
        }
    };
    Ok(Some(read(&text).context("the server's text is no layout")?))
}

/// What the server writes as `unit=1048576,count=4`. Stripes of files at one server may be larger than
/// those that can be asked for.
fn read(text: &[u8]) -> Option<Layout> {
    let words = std::str::from_utf8(text).ok()?.split_once(',')?;
    let (count, narrow) = match words.1.strip_suffix(",grows=1") {
        Some(count) => (count, true),
        None => (words.1, false),
    };
    let stripe_unit_bytes = words.0.strip_prefix("unit=")?.parse().ok()?;
    let stripe_count = match count.strip_prefix("count=")?.parse().ok()? {
        0 => Layout::STRIPE_COUNT_MAX,
        count => count,
    };
    Some(Layout { stripe_unit_bytes, stripe_count, narrow })
}

/// A line of `lanefs layout check`: what one server has of a file.
#[derive(Serialize)]
struct PartRow {
    path: String,
    /// Its first stripe; the next ones are each as many further as the file has parts.
    first_stripe: u32,
    server: u16,
    address: String,
    shard: u16,
    stripe_count: u64,
    /// Of the file's size: holes count too.
    size_bytes: u64,
}

fn check(args: &args::LayoutCheck) -> Result<()> {
    let mut session = Session::new("layout check", &args.access);
    for path in &args.paths {
        let place = Place::parse(path)?;
        let rows = parts(&mut session, &place);
        let what = format!("cannot find the stripes of '{}'", place.text());
        let Some((layout, rows)) = session.report(&what, rows)? else { continue };
        if args.json {
            rows.iter().try_for_each(put_json)?;
            continue;
        }
        let size_bytes = rows.iter().map(|row| row.size_bytes).sum();
        let mut text =
            format!("{}: {}, {}\n", place.text(), human(size_bytes), shown(Some(layout)));
        let head = ["STRIPES FROM", "SERVER", "ADDRESS", "DATA SHARD", "STRIPES", "SIZE"];
        let mut lines = vec![head.map(str::to_owned).to_vec()];
        lines.extend(rows.into_iter().map(|row| {
            let PartRow { first_stripe, server, address, shard, stripe_count, size_bytes, .. } =
                row;
            let numbers = [first_stripe.to_string(), server.to_string()];
            let counts = [shard.to_string(), stripe_count.to_string(), human(size_bytes)];
            numbers.into_iter().chain([address]).chain(counts).collect()
        }));
        table::put(
            &mut text,
            &lines,
            |column| {
                if column == 2 { Column::Text } else { Column::Number }
            },
        );
        out::print_bytes(text.as_bytes())?;
    }
    session.end()
}

/// What each server has of a file.
fn parts(session: &mut Session, place: &Place) -> Result<(Layout, Vec<PartRow>)> {
    let (url, inode, size_bytes) = match place {
        Place::Remote(url) => {
            let attr = session.volume(url)?.stat(&url.path)?;
            (url.clone(), attr.inode, attr.size_bytes)
        }
        Place::Local(path) => {
            let meta = fs::metadata(path)?;
            (server_of(path)?, InodeNo(meta.ino()), meta.size())
        }
    };
    let is_file = match place {
        Place::Remote(url) => session.volume(url)?.stat(&url.path)?.kind == library::FileKind::File,
        Place::Local(path) => fs::metadata(path)?.is_file(),
    };
    if !is_file {
        anyhow::bail!("only a file has stripes; `lanefs layout get` shows what a directory gives");
    }
    let layout = layout_of(session, place)?.context("it has no layout")?;
    let map = session.volume(&url)?.map().context("the server has sent no map")?;
    let rows = (0..u32::from(layout.stripe_count)).map(|part| {
        let shard = map.data_shard(inode, part);
        let server = map.place(shard).server;
        let (stripe_count, part_bytes) = of_part(layout, part, size_bytes);
        PartRow {
            path: place.text(),
            first_stripe: part,
            server: server.0,
            address: address_of(&map, server, &url.address),
            shard: shard.index(),
            stripe_count,
            size_bytes: part_bytes,
        }
    });
    Ok((layout, rows.collect()))
}

/// The number of stripes that a part has of a file of this size, and their bytes.
fn of_part(layout: Layout, part: u32, size_bytes: u64) -> (u64, u64) {
    let (unit, count) = (layout.stripe_unit_bytes, u64::from(layout.stripe_count));
    let stripes = size_bytes.div_ceil(unit);
    let own = stripes.saturating_sub(u64::from(part)).div_ceil(count);
    let has_last = own > 0 && (stripes - 1) % count == u64::from(part);
    let missing = if has_last { stripes * unit - size_bytes } else { 0 };
    (own, own * unit - missing)
}

fn address_of(map: &Map, server: ServerId, connected_to: &str) -> String {
    let row = map.servers().iter().find(|row| row.id == server);
    match row.map(|row| row.address) {
        Some(ServerAddress::At(address)) => address.to_string(),
        Some(ServerAddress::Initial) | None => connected_to.to_owned(),
    }
}

/// The server of the mount that has a path, with the same path.
fn server_of(path: &Path) -> Result<Url> {
    let path: PathBuf = fs::canonicalize(path)?;
    let mounts = running::all()?.into_iter().map(|found| found.entry);
    let mounts = mounts.filter(|entry| entry.kind == Kind::Mount && entry.mounted);
    let below = mounts.filter(|entry| entry.dir.as_ref().is_some_and(|dir| path.starts_with(dir)));
    let nearest = below.max_by_key(|entry| entry.dir.as_ref().map_or(0, String::len));
    let server = nearest.and_then(|entry| entry.address).ok_or_else(|| {
        Exit::usage(format!("{} is on no mount of lanefs that runs here", path.display()))
    })?;
    let server = server.split_once('/').map_or(&*server, |(server, _)| server);
    let text: OsString = [address::SCHEME, server, "/"].concat().into();
    match Place::parse(OsStr::new(&text))? {
        Place::Remote(url) => Ok(url),
        Place::Local(_) => Err(Exit::usage("the mount has no server").into()),
    }
}

fn put_json(row: &impl Serialize) -> Result<()> {
    out::print_bytes(format!("{}\n", serde_json::to_string(row)?).as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_server_writes_is_a_layout() {
        for layout in
            [Layout::DEFAULT, Layout { stripe_unit_bytes: 1 << 16, stripe_count: 3, narrow: false }]
        {
            assert_eq!(read(layout.text().as_bytes()), Some(layout));
        }
        let all = Layout {
            stripe_unit_bytes: 1 << 20,
            stripe_count: Layout::STRIPE_COUNT_MAX,
            narrow: false,
        };
        assert_eq!(read(b"unit=1048576,count=0"), Some(all));
        assert_eq!([read(b"unit=1"), read(b"count=1,unit=1"), read(b"")], [None; 3]);
    }

    #[test]
    fn the_parts_of_a_file_have_all_its_bytes() {
        let layout = Layout { stripe_unit_bytes: 10, stripe_count: 3, narrow: false };
        let parts = |size_bytes| [0, 1, 2].map(|part| of_part(layout, part, size_bytes));
        assert_eq!(parts(0), [(0, 0), (0, 0), (0, 0)]);
        assert_eq!(parts(10), [(1, 10), (0, 0), (0, 0)]);
        assert_eq!(parts(11), [(1, 10), (1, 1), (0, 0)]);
        assert_eq!(parts(45), [(2, 20), (2, 15), (1, 10)]);
    }
}
