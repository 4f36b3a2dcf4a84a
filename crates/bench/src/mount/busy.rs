//! `busy`: latencies of callers on a mount when every CPU computes: a build, a training loop's data
//! loaders.
//!
//! Server, mount and callers share all CPUs with computing threads, one for each CPU. Compared with
//! the same without those threads, with a passthrough file system over the same transport, and with
//! the local file system itself.

use super::caller::Place;
use super::side::Real;
use super::{BUSY_NAME, Op, fill_ops, measure};
use crate::fuse_null::mounted::{Exchange, Mounted};
use crate::plan::Options;
use crate::report::Progress;
use crate::rounds::alternate;
use crate::row::Row;
use crate::samples::{Compare, compare};
use crate::server::Home;
use anyhow::{Context as _, Result};
use ring::Transport;
use std::hint::black_box;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

const OPS: [Op; 2] = [Op::Stat, Op::ReadAt(4096)];
const SIDES: [&str; 4] = ["pinned", "unpinned", "passing through", "local"];
/// The index in [`SIDES`] of the limit.
const PASSING: usize = 2;

/// Rows of each operation, with idle and with busy CPUs.
///
/// # Errors When something cannot be mounted, or an operation fails.
pub(crate) fn run(home: &Home) -> Result<Vec<Row>> {
    let options = &home.options;
    let transport = Transport::best(options.driver);
    let lane_count = u16::try_from(ring::usable_cores()?.len())?.max(1);
    let start = |pin: bool| {
        home.cores.go_back()?;
        let home = Home::new(&Options { pin, together: true, lane_count, ..options.clone() })?;
        let real = Real::start(&home, "mount", (options.driver, transport))?;
        anyhow::Ok((home, real))
    };
    let (shared, pinned) = start(true)?;
    let (_free, unpinned) = start(false)?;
    let program = std::env::current_exe().context("cannot tell where this program lies")?;
    let at = (options.driver, transport, shared.cores.server[0]);
    let dir = shared.path().join("passing");
    let passing = Mounted::start(&program, dir, at, (Exchange::Local, &[]))?;
    let local = shared.path().join("local");
    std::fs::create_dir(&local).context("cannot make a directory to compare with")?;
    let dirs: [PathBuf; 4] = [pinned.dir.clone(), unpinned.dir.clone(), passing.dir.clone(), local];
    for dir in &dirs {
        Place::furnish(dir, 1, options).with_context(|| format!("cannot use {}", dir.display()))?;
    }
    let progress = Progress::new(BUSY_NAME);
    let contender_count = 2 * OPS.len() * SIDES.len();
    progress.begin(contender_count * options.round_count);
    let samples = alternate(contender_count, options.round_count, |index, _| {
        let (busy, op, side) = contender(index);
        progress.step(&name(index));
        let measured = || measure(&shared, (&dirs[side], op, 1), || Ok(None));
        let sample = if busy { beside_computing(lane_count, measured) } else { measured() };
        sample.with_context(|| name(index))
    });
    progress.end();
    let samples = samples?;
    let mut rows = Vec::new();
    for (index, own) in samples.iter().enumerate() {
        let mut row = Row::new(BUSY_NAME, name(index));
        row.clients = Some(1);
        fill_ops(&mut row, own);
        let side = index % SIDES.len();
        if side < PASSING {
            let limit = &samples[index - side + PASSING];
            compare(&mut row, own, (SIDES[PASSING], limit), Compare::P99);
        }
        rows.push(row);
    }
    Ok(rows)
}

/// Whether the CPUs compute, the operation, and the side.
fn contender(index: usize) -> (bool, Op, usize) {
    let (rest, side) = (index / SIDES.len(), index % SIDES.len());
    (rest / OPS.len() > 0, OPS[rest % OPS.len()], side)
}

fn name(index: usize) -> String {
    let (busy, op, side) = contender(index);
    let cores = if busy { "busy" } else { "idle" };
    format!("{cores} {} {}", op.text(), SIDES[side])
}

/// Runs `work` while every CPU computes.
fn beside_computing<T>(core_count: u16, work: impl FnOnce() -> T) -> T {
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        for _ in 0..core_count {
            scope.spawn(|| {
                let mut sum = 1_u64;
                while !over.load(Ordering::Relaxed) {
                    for _ in 0..10_000 {
                        sum = black_box(sum.wrapping_mul(6_364_136_223_846_793_005) ^ 1);
                    }
                }
            });
        }
        let done = work();
        over.store(true, Ordering::Relaxed);
        done
    })
}
