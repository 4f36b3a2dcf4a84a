//! `lists`: one request for 64 pieces of 4 KiB of a file, beside 64 requests for one piece each.
//!
//! Both use the same offsets in the same order. An operation is a request, so bytes are compared: a
//! list moves 64 times as many in one operation.

use crate::load::{Strided, Work};
use crate::race::Race;
use crate::report::Progress;
use crate::row::Row;
use crate::samples::Compare;
use crate::server::Home;
use crate::stream::{contents, file_bytes, make_files};
use anyhow::{Context as _, Result};

pub(crate) const NAME: &str = "lists";
/// One client, alone and with as many requests under way as a session has slots.
const SHAPES: [(u32, u32); 2] = [(1, 1), (1, 16)];
const PIECE_BYTES: u32 = 4096;
const PIECE_COUNT: u32 = 64;
/// From one piece to the next.
const STEP_BYTES: u64 = 4 * PIECE_BYTES as u64;

pub(crate) fn run(home: &Home) -> Result<Vec<Row>> {
    let bytes: Vec<u8> = contents((PIECE_BYTES * PIECE_COUNT) as usize);
    let server = home.server(NAME)?;
    let file_bytes = file_bytes(home);
    let files = make_files(&server, &bytes, (1, file_bytes))?;
    let mut rows = Vec::new();
    for way in ["read", "write"] {
        let mut race = Race::new(home);
        for shape in home.options.shapes(&SHAPES) {
            let mut enter = |name: &str, one_by_one| {
                race.enter(&server, Row::new(NAME, name), shape, |ring| {
                    let strided = Strided {
                        file_bytes,
                        piece_bytes: PIECE_BYTES,
                        piece_count: PIECE_COUNT,
                        step_bytes: STEP_BYTES,
                        one_by_one,
                    };
                    let files = files.clone();
                    if way == "read" {
                        return Ok(Work::ReadList { files, strided });
                    }
                    let sent = &bytes[..strided.request_bytes() as usize];
                    let bulk = ring.bulk_of(sent).context("no memory for the bytes to write")?;
                    let bulk = interface::Bulk { crc32c: Some(wire::crc32c(sent)), ..bulk };
                    Ok(Work::WriteList { files, strided, bulk })
                })
            };
            let single = enter(&format!("{way} 4 KiB"), true)?;
            let list = enter(&format!("{way} list"), false)?;
            race.hold(list, single, Compare::CpuPerByte);
        }
        rows.extend(race.run(&Progress::new(NAME))?);
    }
    Ok(rows)
}
