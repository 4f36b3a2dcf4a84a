//! `shared-file`: one file that all clients read at random offsets of their own parts, beside a
//! file for each, with every engine, through the page cache and past it (PVFS2 developers list,
//! 2006: alternate AIO); and the same reads by threads without a server.
//!
//! Invariants: one lane, so that the same thread reads one file and many; both run in every round,
//! and `to limit` is the rate of the one file divided by that of the many, pair by pair.

mod files;
mod local;

use crate::generator::Generator;
use crate::load::Work;
use crate::number::number;
use crate::report::Progress;
use crate::rounds::{alternate, median};
use crate::row::Row;
use crate::samples::Sample;
use crate::samples::{Compare, compare, fill};
use crate::server::{Home, Server};
use crate::stream::contents;
use anyhow::{Context as _, Result};
use files::{Files, region};
use local::Local;
use ring::IoEngine;
use std::fs::File;
use wire::InodeNo;

pub(crate) const NAME: &str = "shared-file";
const SHAPES: [(u32, u32); 2] = [(16, 1), (16, 8)];
/// The reader.
enum Reader {
    Served(Box<Generator>),
    Here(Local),
}

/// A contender; even indexes read separate files, the next one the shared file.
struct Contender {
    row: Row,
    reader: Reader,
}

/// A server and its files.
struct Side {
    engine: IoEngine,
    server: Server,
    separate: Vec<InodeNo>,
    shared: InodeNo,
}

pub(crate) fn run(home: &Home) -> Result<Vec<Row>> {
    let mut rows = run_way(home, false)?;
    let dir = File::open(home.path()).context("cannot open the benchmark's folder")?;
    match ring::check_direct(&dir) {
        Ok(()) => rows.extend(run_way(home, true)?),
        Err(error) => {
            let mut row = Row::new(NAME, "direct");
            row.note = Some(format!("not measured: {error}"));
            rows.push(row);
        }
    }
    Ok(rows)
}

/// Through the page cache, or past it.
fn run_way(home: &Home, direct: bool) -> Result<Vec<Row>> {
    let shapes = home.options.shapes(&SHAPES);
    let client_count = shapes.iter().map(|shape| shape.0).max().unwrap_or(1);
    let mut sides = Vec::new();
    for engine in engines(home) {
        sides.push(Side::start(home, (engine, direct), client_count)?);
    }
    let mut rows = Vec::new();
    for shape in shapes {
        rows.extend(race(home, &sides, shape, direct)?);
    }
    Ok(rows)
}

/// Each once: on io_uring `auto` is `uring`.
fn engines(home: &Home) -> Vec<IoEngine> {
    let driver = home.options.driver;
    let has_uring = IoEngine::Uring.check(driver).is_ok();
    let once = |engine: &IoEngine| *engine != IoEngine::Auto || !has_uring;
    IoEngine::ALL.into_iter().filter(once).filter(|engine| engine.check(driver).is_ok()).collect()
}

impl Side {
    fn start(home: &Home, (engine, direct): (IoEngine, bool), client_count: u32) -> Result<Self> {
        let server = home.with_engine(engine, direct)?;
        let file_bytes = region(home).file_bytes;
        let mut separate = Vec::new();
        for index in 0..client_count {
            separate.push(make_file(&server, &format!("separate-{index}"), file_bytes)?);
        }
        let shared = make_file(&server, "shared", u64::from(client_count) * file_bytes)?;
        Ok(Self { engine, server, separate, shared })
    }
}

/// Makes a durable file, so that nothing is written while it is read.
fn make_file(server: &Server, name: &str, file_bytes: u64) -> Result<InodeNo> {
    let bytes = contents(1 << 19);
    let mut volume = server.volume()?;
    let path = server.folder(&mut volume)?.join(name);
    let file = volume.create(&path, 0o644, true)?;
    // One write at a time, so that the counters show the clients' concurrency only.
    for offset in (0..file_bytes).step_by(bytes.len()) {
        volume.write_at(&file, offset, &bytes)?;
    }
    volume.sync_file(&file)?;
    let inode = file.attr.inode;
    volume.close(file)?;
    Ok(inode)
}

fn race(home: &Home, sides: &[Side], shape: (u32, u32), direct: bool) -> Result<Vec<Row>> {
    let options = &home.options;
    let mut contenders = Vec::new();
    for files in Files::BOTH {
        let row = row_of("local preads", files, shape, direct);
        contenders
            .push(Contender { row, reader: Reader::Here(Local::new(home, files, shape, direct)?) });
    }
    for side in sides {
        for files in Files::BOTH {
            let mut row = row_of(side.engine.text(), files, shape, direct);
            row.lanes = side.server.lane_count.map(u32::from);
            let files = match files {
                Files::Separate => side.separate.clone(),
                Files::Shared => vec![side.shared],
            };
            let work = |_: &mut ring::Ring| Ok(Work::ReadAnywhere { files, region: region(home) });
            let generator = Generator::connect(&side.server, shape, options, work)?;
            contenders.push(Contender { row, reader: Reader::Served(Box::new(generator)) });
        }
    }
    let progress = Progress::new(NAME);
    progress.begin(contenders.len() * options.round_count);
    let samples = alternate(contenders.len(), options.round_count, |index, _| {
        let Contender { row, reader } = &mut contenders[index];
        progress.step(&row.row);
        let sample = match reader {
            Reader::Served(generator) => generator.measure(options),
            Reader::Here(local) => local.measure(home),
        };
        sample.with_context(|| format!("{NAME}: {}", row.row))
    })?;
    progress.end();
    Ok(rows_of(contenders, &samples))
}

fn row_of(who: &str, files: Files, shape: (u32, u32), direct: bool) -> Row {
    let way = if direct { " direct" } else { "" };
    let mut row = Row::new(NAME, format!("{who} {}{way}", files.text()));
    (row.clients, row.depth) = (Some(shape.0), Some(shape.1));
    row
}

fn rows_of(contenders: Vec<Contender>, samples: &[Vec<Sample>]) -> Vec<Row> {
    let mut rows: Vec<Row> = Vec::new();
    for (index, (Contender { mut row, reader }, samples_of)) in
        contenders.into_iter().zip(samples).enumerate()
    {
        fill(&mut row, samples_of);
        // The cost is by operation; each moves the same few bytes.
        (row.cpu_s_per_gb, row.switches_per_mb, row.syscalls_per_mb) = (None, None, None);
        let is_shared = index % 2 == 1;
        if matches!(reader, Reader::Here(_)) {
            row.generator_busy = None;
        } else {
            count(&mut row, samples_of, is_shared);
        }
        if let Some(separate) = rows.last().filter(|_| is_shared) {
            let name = separate.row.clone();
            compare(&mut row, samples_of, (&name, &samples[index - 1]), Compare::Rate);
        }
        rows.push(row);
    }
    rows
}

/// The server's counters of its readers.
fn count(row: &mut Row, samples: &[Sample], is_shared: bool) {
    let of = |pick: fn(&Sample) -> Option<f64>| {
        let values: Option<Vec<f64>> = samples.iter().map(pick).collect();
        values.and_then(|values| median(&values))
    };
    let per_op = |pick: fn(&Sample) -> Option<u64>| {
        let values: Option<Vec<f64>> = samples
            .iter()
            .map(|sample| Some(number(pick(sample)?) / number(sample.tally.op_count.max(1))))
            .collect();
        values.and_then(|values| median(&values))
    };
    row.handed_per_op = per_op(|sample| Some(sample.usage?.lanes?.handed_count));
    row.started_per_op = per_op(|sample| Some(sample.usage?.lanes?.started_count));
    row.threads = of(|sample| Some(number(sample.usage?.threads?.thread_count)));
    // Totals since the server's start: the last one is the greatest. Both kinds of files share the
    // server.
    let last = samples.last().and_then(|sample| sample.usage?.lanes);
    row.under_way = last.map(|lanes| number(lanes.under_way_max));
    row.under_way_one = last.filter(|_| is_shared).map(|lanes| number(lanes.under_way_one_max));
}
