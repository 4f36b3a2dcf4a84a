//! `mount`: operations through a real mount of a real server, beside a null file system that makes
//! as many exchanges with an echoing lane, on the same CPU, over the same transport. Writes are
//! also compared with a null file system that stores them in a file, since no file system can be as
//! fast as one that does not.
//!
//! The server counts the exchanges without other load: those that the caller waits for, and those
//! that follow asynchronously when a file is closed.

mod busy;
mod caller;
mod drivers;
mod op;
mod side;

pub(crate) use busy::run as run_busy;
pub(crate) use drivers::run as run_drivers;

use crate::fuse_null::mounted::{Exchange, Mounted};
use crate::generator::WARM_PART;
use crate::load::Tally;
use crate::null::Cost;
use crate::number::number;
use crate::report::Progress;
use crate::rounds::alternate;
use crate::row::Row;
use crate::samples::{Compare, Sample, compare, fill};
use crate::server::Home;
use crate::usage::Usage;
use anyhow::{Context as _, Result, bail};
use caller::{Caller, Place};
use op::{MANY, Op};
use ring::Transport;
use side::Real;
use std::path::{Path, PathBuf};
use std::sync::Barrier;
use std::time::Duration;

pub(crate) const NAME: &str = "mount";
pub(crate) const BUSY_NAME: &str = "busy";

/// Operations whose exchanges are counted.
const COUNTED_COUNT: u64 = 32;

/// The exchanges of a mount by request: every other request takes one. The table is for the limits;
/// the benchmark's counts show whether it is right.
const COSTS: [Cost; 2] = [
    Cost { opcode: 18, before: [0, 0], behind: [1, 0] },
    // At the metadata and at the data shard.
    Cost { opcode: 20, before: [2, 0], behind: [0, 0] },
];

/// The file system.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Side {
    Lanefs,
    /// The null file system with as many exchanges.
    Null,
    /// The same, with writes stored in a file of the file system under the server's store.
    Keeping,
    /// The file system under the server's store, by itself.
    Local,
}

/// A contender.
#[derive(Clone, Copy, Debug)]
struct Contender {
    side: Side,
    op: Op,
    caller_count: usize,
}

struct Sides<'a> {
    home: &'a Home,
    real: Real,
    null: Mounted,
    keeping: Mounted,
    local: PathBuf,
}

pub(crate) fn run(home: &Home) -> Result<Vec<Row>> {
    let transport = Transport::best(home.options.driver);
    let lane_core = home.cores.server[0];
    let program = std::env::current_exe().context("cannot tell where this program lies")?;
    let real = Real::start(home, "mount", (home.options.driver, transport))?;
    let dir = home.path().join("null");
    let at = (home.options.driver, transport, lane_core);
    let null = Mounted::start(&program, dir, at, (Exchange::Apart, &COSTS))?;
    let dir = home.path().join("keeping");
    let keeping = Mounted::start(&program, dir, at, (Exchange::Keeping, &COSTS))?;
    let local = home.path().join("local");
    std::fs::create_dir(&local).context("cannot make a directory to compare with")?;
    let mut sides = Sides { home, real, null, keeping, local };
    for side in [Side::Lanefs, Side::Null, Side::Keeping, Side::Local] {
        let dir = sides.dir(side);
        Place::furnish(dir, MANY, &home.options)
            .with_context(|| format!("cannot use {}", dir.display()))?;
    }
    let contenders = contenders();
    let mut counts = Vec::new();
    for op in Op::ALL {
        let counted = sides.count(op).with_context(|| format!("{NAME}: {}", op.text()))?;
        counts.push((op, counted));
    }
    let progress = Progress::new(NAME);
    progress.begin(contenders.len() * home.options.round_count);
    let samples = alternate(contenders.len(), home.options.round_count, |index, _| {
        let contender = contenders[index];
        let what = format!("{} {:?}", contender.op.text(), contender.side);
        progress.step(&what);
        sides.measure(contender).with_context(|| format!("{NAME}: {what}"))
    });
    home.cores.go_to_generator()?;
    progress.end();
    let mut rows = rows(&contenders, &samples?);
    for (row, contender) in rows.iter_mut().zip(&contenders) {
        let counted = counts.iter().find(|(op, _)| *op == contender.op);
        if let Some((_, [in_way, behind])) = counted
            && contender.side == Side::Lanefs
        {
            (row.exchanges_in_way, row.exchanges_behind) = (Some(*in_way), Some(*behind));
        }
    }
    Ok(rows)
}

fn contenders() -> Vec<Contender> {
    let mut contenders = Vec::new();
    for op in Op::ALL {
        for &caller_count in op.caller_counts() {
            contenders.push(Contender { side: Side::Lanefs, op, caller_count });
            if !op.waits_for_disk() {
                contenders.push(Contender { side: Side::Null, op, caller_count });
            }
            if op.is_write() {
                contenders.push(Contender { side: Side::Keeping, op, caller_count });
            }
            if op.waits_for_disk() || op == Op::Unpack {
                contenders.push(Contender { side: Side::Local, op, caller_count });
            }
        }
    }
    contenders
}

/// Lanefs is compared with the null file system; with many callers that wait for the disk, with
/// one.
fn rows(contenders: &[Contender], samples: &[Vec<Sample>]) -> Vec<Row> {
    let index_of = |side, op, caller_count| {
        contenders
            .iter()
            .position(|it| it.side == side && it.op == op && it.caller_count == caller_count)
    };
    let mut rows = Vec::new();
    for (contender, own) in contenders.iter().zip(samples) {
        let Contender { side, op, caller_count } = *contender;
        let place = match side {
            Side::Lanefs => "",
            Side::Null => "null ",
            Side::Keeping => "keeping ",
            Side::Local => "local ",
        };
        let mut row = Row::new(NAME, format!("{place}{}", op.text()));
        row.clients = u32::try_from(caller_count).ok();
        fill_ops(&mut row, own);
        let limit = match side {
            Side::Lanefs if !op.waits_for_disk() => index_of(Side::Null, op, caller_count),
            Side::Lanefs | Side::Local if op.waits_for_disk() && caller_count > 1 => {
                index_of(side, op, 1)
            }
            // The null file system that stores writes is the limit of lanefs as well.
            Side::Keeping => index_of(Side::Lanefs, op, caller_count),
            Side::Lanefs | Side::Null | Side::Local => None,
        };
        if let Some(limit) = limit {
            let one = contenders[limit].caller_count != caller_count;
            let name = if one { "one caller" } else { "null" };
            let (ours, limit, name) = match side {
                Side::Keeping => (samples[limit].as_slice(), own.as_slice(), "lanefs to this"),
                Side::Lanefs | Side::Null | Side::Local => {
                    (own.as_slice(), samples[limit].as_slice(), name)
                }
            };
            compare(&mut row, ours, (name, limit), Compare::Rate);
        }
        rows.push(row);
    }
    rows
}

impl Sides<'_> {
    fn dir(&self, side: Side) -> &Path {
        match side {
            Side::Lanefs => &self.real.dir,
            Side::Null => &self.null.dir,
            Side::Keeping => &self.keeping.dir,
            Side::Local => &self.local,
        }
    }

    fn usage(&mut self, side: Side) -> Result<Option<Usage>> {
        match side {
            Side::Lanefs => self.real.usage().map(Some),
            Side::Null => self.null.usage().map(Some),
            Side::Keeping => self.keeping.usage().map(Some),
            Side::Local => Ok(None),
        }
    }

    /// Exchanges of an operation: synchronous ones, and asynchronous ones.
    fn count(&mut self, op: Op) -> Result<[f64; 2]> {
        self.home.cores.go_to_server()?;
        let mut caller = Caller::new(self.dir(Side::Lanefs), (0, op), &self.home.options)?;
        caller.prepare(COUNTED_COUNT)?;
        let before = self.real.quiet_request_count()?;
        let mut held = Vec::new();
        for _ in 0..COUNTED_COUNT {
            held.push(caller.call()?);
        }
        let during = self.real.request_count()?;
        drop(held);
        let after = self.real.quiet_request_count()?;
        let per_op = |count: u64| number(count) / number(COUNTED_COUNT);
        Ok([per_op(during - before), per_op(after - during)])
    }

    fn measure(&mut self, contender: Contender) -> Result<Sample> {
        let Contender { side, op, caller_count } = contender;
        let (home, dir) = (self.home, self.dir(side).to_owned());
        measure(home, (&dir, op, caller_count), || self.usage(side))
    }
}

/// Fills a row whose unit is operations, whatever bytes they move.
fn fill_ops(row: &mut Row, samples: &[Sample]) {
    fill(row, samples);
    (row.cpu_s_per_gb, row.switches_per_mb, row.syscalls_per_mb) = (None, None, None);
    // They include the counters' own requests; the other columns count better.
    row.exchanges_per_op = None;
}

/// Runs so many callers in a directory; returns the resources of `used` meanwhile.
fn measure(
    home: &Home,
    (dir, op, caller_count): (&Path, Op, usize),
    mut used: impl FnMut() -> Result<Option<Usage>>,
) -> Result<Sample> {
    let options = &home.options;
    if caller_count == 1 {
        home.cores.go_to_server()?;
    } else {
        home.cores.go_back()?;
    }
    let measured = Duration::from_secs_f64(options.seconds);
    let warm = Duration::from_secs_f64(options.seconds * WARM_PART);
    let begin = Barrier::new(caller_count + 1);
    let (usages, tallies) = std::thread::scope(|scope| {
        let callers: Vec<_> = (0..caller_count)
            .map(|index| {
                let begin = &begin;
                scope.spawn(move || -> Result<Tally> {
                    let caller = Caller::new(dir, (index, op), options);
                    let warmed = caller.and_then(|mut caller| {
                        caller.run(warm, options)?;
                        Ok(caller)
                    });
                    // After a failure too: the other callers wait at the barrier.
                    begin.wait();
                    warmed?.run(measured, options)
                })
            })
            .collect();
        begin.wait();
        let before = used();
        let tallies: Vec<_> =
            callers.into_iter().map(std::thread::ScopedJoinHandle::join).collect();
        ((before, used()), tallies)
    });
    let mut tally = Tally::new()?;
    for one in tallies {
        let Ok(one) = one else { bail!("a caller panicked") };
        let one = one?;
        tally.op_count += one.op_count;
        tally.moved_bytes += one.moved_bytes;
        tally.measured_ns += one.measured_ns / u64::try_from(caller_count)?;
        tally.latency.add(&one.latency).context("histograms of one shape")?;
    }
    let usage = usages.0?.zip(usages.1?).map(|(before, after)| after.since(&before));
    Ok(Sample { tally, usage, busy: 0.0 })
}
