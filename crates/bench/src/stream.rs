//! `stream` (seed 004): many clients read and write large files, beside sendfile, and recv and
//! pwrite, of the same bytes: with a sync behind them as often as a server's, and without one.

use crate::getattr::refuse_hops;
use crate::limit::Limit;
use crate::load::{Pieces, Work};
use crate::race::{Race, hold_against_best};
use crate::report::Progress;
use crate::row::Row;
use crate::samples::Compare;
use crate::server::{Home, Server};
use anyhow::{Context as _, Result};
use interface::Bulk;
use std::fs::File;
use std::io::Write as _;
use std::path::PathBuf;
use wire::InodeNo;

pub(crate) const NAME: &str = "stream";
const SHAPES: [(u32, u32); 5] = [(1, 1), (4, 1), (16, 1), (64, 1), (256, 1)];
/// Files that the clients share.
const FILE_COUNT: u32 = 32;
const FILE_BYTES: u64 = 8 << 20;

pub(crate) fn run(home: &Home) -> Result<Vec<Row>> {
    let piece_bytes = home.options.piece_bytes;
    let bytes: Vec<u8> = contents(piece_bytes as usize);
    let server = home.server(NAME)?;
    let file_bytes = file_bytes(home).max(u64::from(piece_bytes));
    let files = make_files(&server, &bytes, (FILE_COUNT, file_bytes))?;
    let pieces = Pieces { file_bytes, piece_bytes };
    let local = home.options.remote.is_none();
    let mut rows = Vec::new();
    for way in ["read", "write"] {
        // The last one is what our row is compared with.
        let limit_names: &[&str] = match way {
            "read" => &["sendfile"],
            _ => &["recv+pwrite", "recv+pwrite+sync"],
        };
        let limit_names = if local { limit_names } else { &[] };
        let start =
            |name: &&'static str| Ok((*name, start_limit(home, name, (&bytes, file_bytes))?));
        let limits = limit_names.iter().map(start).collect::<Result<Vec<_>>>()?;
        let mut race = Race::new(home);
        for shape in home.options.shapes(&SHAPES) {
            let name = |who: &str| Row::new(NAME, who);
            let work = |ring: &mut ring::Ring| {
                let files = files.clone();
                if way == "read" {
                    return Ok(Work::Read { files, pieces });
                }
                write_of(ring, files, pieces, &bytes)
            };
            let mut beside = None;
            for (limit_name, limit) in &limits {
                beside = Some(race.enter(limit, name(limit_name), shape, work)?);
            }
            let ours = race.enter(&server, name(way), shape, work)?;
            if let Some(beside) = beside {
                race.hold(ours, beside, Compare::CpuPerByte);
            }
        }
        let mut raced = race.run(&Progress::new(NAME))?;
        refuse_hops(&raced)?;
        hold_against_best(&mut raced, |row| row.mb_per_s.filter(|_| row.row == way));
        rows.extend(raced);
    }
    Ok(rows)
}

/// Bytes of each file.
pub(crate) fn file_bytes(home: &Home) -> u64 {
    home.options.file_bytes(FILE_BYTES)
}

/// Bytes that are not all equal.
pub(crate) fn contents(count: usize) -> Vec<u8> {
    (0..count).map(|index| index.to_le_bytes()[0] ^ 0x5a).collect()
}

/// Repeated writes of these bytes.
pub(crate) fn write_of(
    ring: &mut ring::Ring,
    files: Vec<InodeNo>,
    pieces: Pieces,
    bytes: &[u8],
) -> Result<Work> {
    let bulk = ring.bulk_of(bytes).context("no memory for the bytes to write")?;
    // Computed once for all writes.
    let bulk = Bulk { crc32c: Some(wire::crc32c(bytes)), ..bulk };
    Ok(Work::Write { files, pieces, bulk })
}

/// Makes files with contents, and reads them once into the page cache.
pub(crate) fn make_files(
    server: &Server,
    bytes: &[u8],
    (count, file_bytes): (u32, u64),
) -> Result<Vec<InodeNo>> {
    let mut volume = server.volume()?;
    let folder = server.folder(&mut volume)?;
    let piece_bytes = bytes.len() as u64;
    let mut files = Vec::new();
    for index in 0..count {
        let file = volume.create(&folder.join(format!("stream-{index}")), 0o644, true)?;
        let offsets = (0..file_bytes / piece_bytes).map(|piece_no| piece_no * piece_bytes);
        let pieces: Vec<(u64, &[u8])> = offsets.map(|offset| (offset, bytes)).collect();
        volume.write_pieces(&file, &pieces)?;
        files.push(file.attr.inode);
        volume.close(file)?;
    }
    Ok(files)
}

/// One file as large as all of the server's files together.
fn start_limit(home: &Home, name: &str, (bytes, file_bytes): (&[u8], u64)) -> Result<Server> {
    let path: PathBuf = home.path().join(format!("limit-{name}"));
    let mut file = File::create(&path).context("cannot make the limit's file")?;
    for _ in 0..u64::from(FILE_COUNT) * file_bytes / bytes.len() as u64 {
        file.write_all(bytes).context("cannot fill the limit's file")?;
    }
    file.sync_data().context("cannot sync the limit's file")?;
    let piece_bytes = u32::try_from(bytes.len())?;
    home.start_limit(&match name {
        "sendfile" => Limit::Sendfile { file: path, piece_bytes },
        _ => Limit::RecvWrite { file: path, piece_bytes, synced: name == "recv+pwrite+sync" },
    })
}
