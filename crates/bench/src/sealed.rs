//! `seal`: requests and streams under TLS, beside the same in plain text, and the cost of the
//! cipher alone for the same bytes.
//!
//! Two servers, one with TLS and one without, under loads of the same shape in turn.

use crate::getattr::{make_file, refuse_hops};
use crate::load::{Pieces, Work};
use crate::number::number;
use crate::race::Race;
use crate::report::Progress;
use crate::row::Row;
use crate::samples::Compare;
use crate::server::{Home, Server};
use crate::stream;
use anyhow::{Result, anyhow};
use std::time::{Duration, Instant};
use wire::InodeNo;

pub(crate) const NAME: &str = "seal";
const REQUESTS: [(u32, u32); 3] = [(1, 1), (64, 1), (64, 16)];
const STREAMS: [(u32, u32); 2] = [(1, 1), (16, 1)];
const FILE_COUNT: u32 = 8;

pub(crate) fn run(home: &Home) -> Result<Vec<Row>> {
    let (plain, sealed) = (home.server("plain")?, home.sealed("sealed")?);
    let mut rows = requests(home, (&plain, &sealed))?;
    let bytes = stream::contents(home.options.piece_bytes as usize);
    let file_bytes = stream::file_bytes(home).max(u64::from(home.options.piece_bytes));
    let make = |server: &Server| stream::make_files(server, &bytes, (FILE_COUNT, file_bytes));
    let (in_plain, in_sealed) = (make(&plain)?, make(&sealed)?);
    for way in ["read", "write"] {
        let sides = [(&plain, "plain", &in_plain), (&sealed, "sealed", &in_sealed)];
        rows.extend(streams(home, sides, way, (&bytes, file_bytes))?);
    }
    rows.push(cipher()?);
    Ok(rows)
}

fn requests(home: &Home, (plain, sealed): (&Server, &Server)) -> Result<Vec<Row>> {
    let (in_plain, in_sealed) = (make_file(plain)?, make_file(sealed)?);
    let mut race = Race::new(home);
    for shape in home.options.shapes(&REQUESTS) {
        let row = Row::new(NAME, "getattr plain");
        let beside = race.enter(plain, row, shape, |_| Ok(Work::Getattr { inode: in_plain }))?;
        let row = Row::new(NAME, "getattr sealed");
        let ours = race.enter(sealed, row, shape, |_| Ok(Work::Getattr { inode: in_sealed }))?;
        race.hold(ours, beside, Compare::ops(shape.0));
    }
    let rows = race.run(&Progress::new(NAME))?;
    refuse_hops(&rows)?;
    Ok(rows)
}

/// A server, its name, and its files.
type Side<'a> = (&'a Server, &'a str, &'a Vec<InodeNo>);

fn streams(
    home: &Home,
    sides: [Side<'_>; 2],
    way: &str,
    (bytes, file_bytes): (&[u8], u64),
) -> Result<Vec<Row>> {
    let pieces = Pieces { file_bytes, piece_bytes: home.options.piece_bytes };
    let mut race = Race::new(home);
    for shape in home.options.shapes(&STREAMS) {
        let mut entered = Vec::new();
        for (server, who, files) in sides {
            let work = |ring: &mut ring::Ring| match way {
                "read" => Ok(Work::Read { files: files.clone(), pieces }),
                _ => stream::write_of(ring, files.clone(), pieces, bytes),
            };
            let row = Row::new(NAME, format!("{way} {who}"));
            entered.push(race.enter(server, row, shape, work)?);
        }
        race.hold(entered[1], entered[0], Compare::CpuPerByte);
    }
    let rows = race.run(&Progress::new(NAME))?;
    refuse_hops(&rows)?;
    Ok(rows)
}

/// The cost of sealing bytes in the processor's cache: this thread's time.
fn cipher() -> Result<Row> {
    const LONG: Duration = Duration::from_millis(500);
    let mut seal = connected_seal().ok_or_else(|| anyhow!("TLS with oneself fails"))?;
    let plain_bytes = seal::RECORD_BYTES_MAX;
    let mut out = vec![0; plain_bytes + seal::RECORD_OVERHEAD_BYTES];
    let (mut record_count, began) = (0_u64, Instant::now());
    while began.elapsed() < LONG {
        for _ in 0..64 {
            seal.seal(&mut out, plain_bytes, |_| Ok::<(), anyhow::Error>(()))?;
        }
        record_count += 64;
    }
    let seconds = began.elapsed().as_secs_f64();
    let mut row = Row::new(NAME, "cipher");
    let bytes = number(record_count * plain_bytes as u64);
    row.mb_per_s = Some(bytes / 1e6 / seconds);
    row.note = Some(format!("{:.3} s of CPU a GB, of records in cache", seconds * 1e9 / bytes));
    Ok(row)
}

/// The client's end of a connection within this thread.
fn connected_seal() -> Option<seal::Seal> {
    let (mut sent, mut answer) = (Vec::new(), Vec::new());
    let mut client = seal::Seal::client(&seal::Client::with_any_key().ok()?, &mut sent).ok()?;
    let mut server = seal::Seal::server(&seal::Server::with_new_key().ok()?);
    server.push_received(&sent);
    server.advance_handshake(&mut answer).ok()?;
    client.push_received(&answer);
    sent.clear();
    client.advance_handshake(&mut sent).ok()?;
    client.is_open().then_some(client)
}
