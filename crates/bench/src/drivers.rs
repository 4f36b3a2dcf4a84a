//! `drivers`: the same servers and mounts with lanes on epoll, beside those with lanes on io_uring.
//!
//! Invariant: both run in every round, under the same load, and `to limit` is the ratio of epoll to io_uring,
//! pair by pair.

use crate::create::make_dirs;
use crate::getattr::make_file;
use crate::limit::Limit;
use crate::load::{Pieces, Work};
use crate::new_files::create;
use crate::plan::Dirs;
use crate::race::Race;
use crate::report::Progress;
use crate::row::Row;
use crate::samples::Compare;
use crate::server::{Home, Server};
use crate::{echo, mount, stream};
use anyhow::Result;
use ring::{DriverChoice, DriverKind, Ring};
use wire::InodeNo;

pub(crate) const NAME: &str = "drivers";
/// A load of one waiting client, and one that keeps a CPU busy.
const SHAPES: [(u32, u32); 2] = [(1, 1), (64, 16)];
/// Clients that change something, or move bytes.
const FEW: [(u32, u32); 2] = [(1, 1), (16, 1)];
const SMALL_BYTES: u32 = 4096;
const LARGE_BYTES: u32 = 1 << 20;

/// The servers of one driver, with their files.
struct Side {
    driver: DriverKind,
    echo: Server,
    server: Server,
    inode: InodeNo,
    parents: Vec<InodeNo>,
    files: Vec<InodeNo>,
}

impl Side {
    fn start(home: &Home, driver: DriverKind, bytes: &[u8]) -> Result<Self> {
        let server = home.server_on(driver.text(), driver)?;
        let few = home.options.shapes(&FEW).iter().map(|shape| shape.0).max().unwrap_or(1);
        Ok(Self {
            driver,
            echo: home.start_limit(&Limit::Echo(driver))?,
            inode: make_file(&server)?,
            parents: make_dirs(&server, Dirs::Own, few)?,
            files: stream::make_files(&server, bytes, (few, stream::file_bytes(home)))?,
            server,
        })
    }
}

pub(crate) fn run(home: &Home) -> Result<Vec<Row>> {
    if let Err(error) = DriverChoice::Only(DriverKind::IoUring).find() {
        let mut row = Row::new(NAME, "none");
        row.note = Some(format!("nothing to compare: {error}"));
        return Ok(vec![row]);
    }
    let bytes = stream::contents(LARGE_BYTES as usize);
    let mut rows = race(home, &bytes)?;
    rows.extend(mount::run_drivers(home, NAME)?);
    Ok(rows)
}

fn race(home: &Home, bytes: &[u8]) -> Result<Vec<Row>> {
    let sides = DriverKind::ALL.map(|driver| Side::start(home, driver, bytes));
    let [io_uring, epoll] = sides;
    let sides = [io_uring?, epoll?];
    let mut rows = Vec::new();
    for (name, shapes, by_cpu) in PARTS {
        let mut race = Race::new(home);
        for shape in home.options.shapes(shapes) {
            let mut first = None;
            for side in &sides {
                let row = Row::new(NAME, format!("{name} {}", side.driver.text()));
                let server = if name == "echo" { &side.echo } else { &side.server };
                let work = |ring: &mut Ring| work(home, (name, side), bytes, ring);
                let entrant = race.enter(server, row, shape, work)?;
                match first {
                    None => first = Some(entrant),
                    Some(first) if by_cpu => race.hold(entrant, first, Compare::CpuPerByte),
                    Some(first) => race.hold(entrant, first, Compare::ops(shape.0)),
                }
            }
        }
        rows.extend(race.run(&Progress::new(NAME))?);
    }
    Ok(rows)
}

/// The operation, the numbers of clients, and whether the rows are compared by processor time a
/// byte.
type Part = (&'static str, &'static [(u32, u32)], bool);

const PARTS: [Part; 7] = [
    ("echo", &SHAPES, false),
    ("getattr", &SHAPES, false),
    ("create", &FEW, false),
    ("read-4KiB", &FEW, false),
    ("write-4KiB", &FEW, false),
    ("read-1MiB", &FEW, true),
    ("write-1MiB", &FEW, true),
];

fn work(home: &Home, (name, side): (&str, &Side), bytes: &[u8], ring: &mut Ring) -> Result<Work> {
    let (inode, files) = (side.inode, side.files.clone());
    let piece_bytes = if name.ends_with("4KiB") { SMALL_BYTES } else { LARGE_BYTES };
    let pieces = Pieces { file_bytes: stream::file_bytes(home), piece_bytes };
    Ok(match name {
        "echo" => echo::GETATTR,
        "getattr" => Work::Getattr { inode },
        "create" => create(&side.parents),
        _ if name.starts_with("read") => Work::Read { files, pieces },
        _ => {
            let piece = bytes.get(..piece_bytes as usize).unwrap_or(bytes);
            stream::write_of(ring, files, pieces, piece)?
        }
    })
}
