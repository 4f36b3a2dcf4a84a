//! `affinity` (seed 001: does object affinity trump client affinity?): requests that arrive at the
//! lane that executes them, at their client's lane, and at a random lane.
//!
//! A request that arrives at another lane crosses twice, as messages between lanes. Invariants: all
//! sides run in every round under the same load; objects are spread evenly over all lanes; where
//! requests may cross, a lone client is connected such that they do, so that its time is that of
//! the wrong lane.

use crate::brw::PIECE_BYTES;
use crate::load::{Pieces, Work};
use crate::plan::Options;
use crate::race::Race;
use crate::report::Progress;
use crate::row::Row;
use crate::samples::Compare;
use crate::server::{Home, Server};
use crate::stream::{contents, write_of};
use anyhow::{Context as _, Result, bail};
use ring::Ring;
use wire::{InodeNo, Map, Op};

pub(crate) const NAME: &str = "affinity";
/// The first is the limit of the others.
const SIDES: [&str; 3] = ["object", "client", "random"];
const LANE_COUNTS: [u16; 5] = [1, 2, 4, 8, 16];
/// A load of one waiting client, and one that keeps the CPUs busy.
const SHAPES: [(u32, u32); 2] = [(1, 1), (64, 16)];
const FEW: [(u32, u32); 2] = [(1, 1), (16, 1)];
const FILE_BYTES: usize = 1 << 20;
/// Files of each lane.
const FILE_COUNT: usize = 4;
/// Files that are made at most until every lane has that many.
const MADE_COUNT_MAX: usize = 4096;
/// How often a lone client connects until its requests cross.
const TRY_COUNT_MAX: usize = 64;
/// Seconds of the first trial of whether they cross; doubled while too few operations complete.
const TRY_SECONDS: f64 = 0.01;
/// The longest trial.
const TRY_SECONDS_MAX: f64 = 60.0;
/// Operations that a trial must complete.
const TRY_OPS_MIN: u64 = 10;

const WORKS: [(&str, &[(u32, u32)]); 3] =
    [("getattr", &SHAPES), ("read-4KiB", &SHAPES), ("write-4KiB", &FEW)];

/// A server, and its files by lane.
struct Side {
    name: &'static str,
    server: Server,
    /// Files by the lanes of their attributes, and by those of their contents.
    attr_files: Vec<InodeNo>,
    filled: Vec<InodeNo>,
}

pub(crate) fn run(home: &Home) -> Result<Vec<Row>> {
    let options = &home.options;
    home.cores.go_back()?;
    let core_count = u16::try_from(ring::core_count())?;
    let lane_count_max = options.lane_count_max.unwrap_or(core_count);
    let mut rows = Vec::new();
    for lane_count in LANE_COUNTS.into_iter().filter(|count| *count <= lane_count_max) {
        let home = Home::new(&Options { lane_count, ..options.clone() })?;
        rows.extend(race(&home, lane_count)?);
    }
    Ok(rows)
}

fn race(home: &Home, lane_count: u16) -> Result<Vec<Row>> {
    let bytes = contents(FILE_BYTES);
    let mut sides = Vec::new();
    for name in SIDES {
        sides.push(Side::start(home, name, &bytes)?);
    }
    let mut rows = Vec::new();
    for (name, shapes) in WORKS {
        let mut race = Race::new(home);
        for shape in home.options.shapes(shapes) {
            let mut first = None;
            for side in &sides {
                let entrant = enter(&mut race, side, (name, shape), &bytes, lane_count)?;
                match first {
                    None => first = Some(entrant),
                    Some(first) => race.hold(entrant, first, Compare::ops(shape.0)),
                }
            }
        }
        let mut raced = race.run(&Progress::new(NAME))?;
        raced.chunks_mut(sides.len()).for_each(|rows| explain(rows, home));
        rows.extend(raced);
    }
    Ok(rows)
}

impl Side {
    fn start(home: &Home, name: &'static str, bytes: &[u8]) -> Result<Self> {
        let server = home.with_affinity(name)?;
        let mut volume = server.volume()?;
        let folder = server.folder(&mut volume)?;
        let map = volume.map().context("the server does not tell its shape")?;
        let lane_count = usize::from(map.first_server().lane_count);
        let (mut attr_files, mut filled) =
            (vec![Vec::new(); lane_count], vec![Vec::new(); lane_count]);
        // Directories near the root are spread over the shards, and so are the inodes in them.
        for index in 0..MADE_COUNT_MAX {
            let wanted = |of: &[Vec<InodeNo>]| of.iter().any(|of| of.len() < FILE_COUNT);
            if !wanted(&attr_files) && !wanted(&filled) {
                return Ok(Self {
                    name,
                    attr_files: in_turn(&attr_files),
                    filled: in_turn(&filled),
                    server,
                });
            }
            let dir = folder.join(format!("affinity-{index}"));
            volume.mkdir(&dir, 0o755)?;
            let file = volume.create(&dir.join("file"), 0o644, true)?;
            let inode = file.attr.inode;
            attr_files[lane_of(&map, Op::Getattr, inode)?].push(inode);
            let filled = &mut filled[lane_of(&map, Op::Read, inode)?];
            if filled.len() < FILE_COUNT {
                volume.write_at(&file, 0, bytes)?;
                filled.push(inode);
            }
            volume.close(file)?;
        }
        bail!("after {MADE_COUNT_MAX} files there is still a lane without any")
    }

    fn work(&self, name: &str, bytes: &[u8], ring: &mut Ring) -> Result<Work> {
        let pieces = Pieces { file_bytes: FILE_BYTES as u64, piece_bytes: PIECE_BYTES };
        let files = self.filled.clone();
        Ok(match name {
            "getattr" => Work::Look { files: self.attr_files.clone() },
            "read-4KiB" => Work::Read { files, pieces },
            _ => {
                let piece = bytes.get(..PIECE_BYTES as usize).unwrap_or(bytes);
                write_of(ring, files, pieces, piece)?
            }
        })
    }
}

fn lane_of(map: &Map, op: Op, inode: InodeNo) -> Result<usize> {
    let shard = map.shard(op, inode, (None, 0)).context("the operation belongs to no shard")?;
    Ok(usize::from(map.lane(shard).0))
}

/// As many files of each lane, in turn.
fn in_turn(of_lanes: &[Vec<InodeNo>]) -> Vec<InodeNo> {
    (0..FILE_COUNT)
        .flat_map(|index| of_lanes.iter().filter_map(move |of| of.get(index)))
        .copied()
        .collect()
}

/// Adds the load of a side. A lone client's requests cross, if the side's may.
fn enter(
    race: &mut Race<'_>,
    side: &Side,
    (name, shape): (&str, (u32, u32)),
    bytes: &[u8],
    lane_count: u16,
) -> Result<usize> {
    let row = || Row::new(NAME, format!("{name} {}", side.name));
    let work = |ring: &mut Ring| side.work(name, bytes, ring);
    let must_cross = shape.0 == 1 && lane_count > 1 && side.name != SIDES[0];
    let entrant = race.enter(&side.server, row(), shape, work)?;
    for _ in 0..TRY_COUNT_MAX {
        if !must_cross || race.crosses(entrant)? {
            return Ok(entrant);
        }
        race.leave();
        race.enter(&side.server, row(), shape, work)?;
    }
    bail!("{name} {}: no request crossed lanes in {TRY_COUNT_MAX} connections", side.name)
}

impl Race<'_> {
    /// Whether an entrant's requests cross lanes.
    fn crosses(&mut self, entrant: usize) -> Result<bool> {
        let doubled = std::iter::successors(Some(TRY_SECONDS), |seconds| Some(seconds * 2.0));
        for seconds in doubled.take_while(|seconds| *seconds <= TRY_SECONDS_MAX) {
            let sample = self.try_once(entrant, seconds)?;
            let lanes = sample.usage.and_then(|usage| usage.lanes);
            let message_count = lanes.map_or(0, |lanes| lanes.message_count);
            // With fewer operations the other messages between lanes would count too much.
            if sample.tally.op_count >= TRY_OPS_MIN {
                return Ok(message_count > sample.tally.op_count);
            }
        }
        bail!(
            "fewer than {TRY_OPS_MIN} operations in up to {TRY_SECONDS_MAX} s: what crosses is not seen"
        )
    }
}

/// Notes how many requests crossed, and what makes the rows hard to compare.
fn explain(rows: &mut [Row], home: &Home) {
    // Messages of a request: two for one that crosses. Lanes exchange a few others as well.
    let messages = |row: &Row| Some(row.hops_per_op? / row.exchanges_per_op?.max(1.0));
    let own = rows.first().and_then(messages).unwrap_or(0.0);
    let (core_count, lane_count) = (home.cores.server.len(), home.options.lane_count);
    for row in rows {
        let mut notes: Vec<String> = row.note.take().into_iter().collect();
        let crossed = messages(row).map(|messages| ((messages - own) * 50.0).clamp(0.0, 100.0));
        notes.extend(crossed.map(|crossed| format!("{crossed:.0} % of requests crossed lanes")));
        if core_count < usize::from(lane_count) {
            notes.push(format!("cores of {lane_count} lanes: {core_count}"));
        }
        row.note = Some(notes.join("; "));
        row.count_by_operation();
    }
}
