//! `brw` (seed 001's BRW): reads and writes of 4 KiB by many clients, beside a lane that makes one
//! pread or pwrite for each.
//!
//! Both reply to a write when it is in the page cache; the server also makes it durable after its
//! reply, which the limit does not.

use crate::getattr::refuse_hops;
use crate::limit::Limit;
use crate::load::{Pieces, Work};
use crate::race::{Race, hold_against_best};
use crate::report::Progress;
use crate::row::Row;
use crate::samples::Compare;
use crate::server::{Home, Server};
use crate::stream;
use anyhow::{Context as _, Result};
use std::fs::File;
use std::io::Write as _;

pub(crate) const NAME: &str = "brw";
const SHAPES: [(u32, u32); 4] = [(1, 1), (16, 1), (64, 1), (256, 1)];
pub(crate) const PIECE_BYTES: u32 = 4096;
/// Bytes of a write that makes a file.
const MAKE_BYTES: usize = 1 << 20;
/// Files that the clients share.
const FILE_COUNT: u32 = 8;

pub(crate) fn run(home: &Home) -> Result<Vec<Row>> {
    let bytes: Vec<u8> = stream::contents(MAKE_BYTES);
    let server = home.server(NAME)?;
    let file_bytes = stream::file_bytes(home);
    let files = stream::make_files(&server, &bytes, (FILE_COUNT, file_bytes))?;
    let pieces = Pieces { file_bytes, piece_bytes: PIECE_BYTES };
    let local = home.options.remote.is_none();
    let mut rows = Vec::new();
    for (way, limit_name) in [("read", "pread"), ("write", "pwrite")] {
        let limit = if local { Some(start_limit(home, way, &bytes)?) } else { None };
        let mut race = Race::new(home);
        for shape in home.options.shapes(&SHAPES) {
            let name = |who: &str| Row::new(NAME, who);
            let work = |ring: &mut ring::Ring| {
                let files = files.clone();
                if way == "read" {
                    return Ok(Work::Read { files, pieces });
                }
                let piece = bytes.get(..PIECE_BYTES as usize).unwrap_or(&bytes);
                stream::write_of(ring, files, pieces, piece)
            };
            let beside = match &limit {
                Some(limit) => Some(race.enter(limit, name(limit_name), shape, work)?),
                None => None,
            };
            let ours = race.enter(&server, name(way), shape, work)?;
            if let Some(beside) = beside {
                race.hold(ours, beside, Compare::ops(shape.0));
            }
        }
        let mut raced = race.run(&Progress::new(NAME))?;
        refuse_hops(&raced)?;
        hold_against_best(&mut raced, |row| row.ops_per_s.filter(|_| row.row == way));
        raced.iter_mut().for_each(Row::count_by_operation);
        rows.extend(raced);
    }
    Ok(rows)
}

/// One file as large as all of the server's files together.
fn start_limit(home: &Home, way: &str, bytes: &[u8]) -> Result<Server> {
    let path = home.path().join(format!("limit-{way}"));
    let mut file = File::create(&path).context("cannot make the limit's file")?;
    for _ in 0..u64::from(FILE_COUNT) * stream::file_bytes(home) / bytes.len() as u64 {
        file.write_all(bytes).context("cannot fill the limit's file")?;
    }
    file.sync_data().context("cannot sync the limit's file")?;
    let driver = home.options.driver;
    home.start_limit(&Limit::Inline { driver, file: path, piece_bytes: PIECE_BYTES })
}
