//! `commit` (seed 003): what a commit costs that makes many operations durable at once: none of
//! them waits for it, or all do.

use crate::create::create;
use crate::load::Work;
use crate::pace::{Pace, Turns};
use crate::report::Progress;
use crate::row::Row;
use crate::samples::fill;
use crate::server::Home;
use crate::wired;
use anyhow::{Result, ensure};
use wire::InodeNo;

pub(crate) const NAME: &str = "commit";

/// A row: who runs, on what, and how many operations a commit makes durable.
struct Case {
    row: &'static str,
    shape: (u32, u32),
    ops_per_commit: u64,
    waits: bool,
}

/// As many as the seed's authors met at each commit, and ten times as many. Where all wait, as many
/// wait as there are operations under way.
const CASES: [Case; 4] = [
    Case { row: "create 14000", shape: (16, 16), ops_per_commit: 14_000, waits: false },
    Case { row: "create 140000", shape: (16, 16), ops_per_commit: 140_000, waits: false },
    Case { row: "setattr waits 1000", shape: (1000, 1), ops_per_commit: 1_000, waits: true },
    Case { row: "setattr waits 14000", shape: (1000, 14), ops_per_commit: 14_000, waits: true },
];

pub(crate) fn run(home: &Home) -> Result<Vec<Row>> {
    let progress = Progress::new(NAME);
    progress.begin(CASES.len() * home.options.round_count);
    let mut rows = Vec::new();
    for case in CASES {
        rows.push(measure(home, &progress, &case)?);
    }
    progress.end();
    Ok(rows)
}

fn measure(home: &Home, progress: &Progress, case: &Case) -> Result<Row> {
    let outstanding_max = u64::from(case.shape.0) * u64::from(case.shape.1);
    let pace = Pace::ops(case.ops_per_commit)?;
    let inode = InodeNo::ROOT;
    let work = if case.waits { Work::Chmod { inode } } else { create(&[inode]) };
    let mut generator = wired::generator(home, case.shape, work, pace)?;
    let mut samples = Vec::new();
    let mut turns: Option<Turns> = None;
    for _ in 0..home.options.round_count {
        progress.step(case.row);
        generator.brain().pace.take_turns();
        samples.push(generator.measure(&home.options)?);
        let more = generator.brain().pace.take_turns();
        turns = match (turns, more) {
            (Some(mut all), Some(more)) => {
                all.all.add(&more.all)?;
                all.commits.add(&more.commits)?;
                Some(all)
            }
            (all, more) => all.or(more),
        };
    }
    let mut row = Row::new(NAME, case.row);
    (row.clients, row.depth) = (Some(case.shape.0), Some(case.shape.1));
    fill(&mut row, &samples);
    let lanes = samples.iter().filter_map(|sample| sample.usage?.lanes);
    let (held, touched) = lanes.fold((0, 0), |(held, touched), lanes| {
        (held + lanes.held_count, touched + lanes.touched_count)
    });
    // What is held when the measuring begins or ends is counted on one side only.
    let under_way = outstanding_max * 2 * u64::try_from(samples.len()).unwrap_or(u64::MAX);
    ensure!(
        touched.abs_diff(held) <= if case.waits { under_way } else { 0 },
        "{}: commits touched {touched} replies, of which {held} were held",
        case.row
    );
    ensure!(case.waits || held == 0, "{}: {held} replies of independent clients waited", case.row);
    if let Some(turns) = turns {
        let us = |ns: u64| crate::samples::number(ns) / 1e3;
        row.turn_max_us = Some(us(turns.all.max()));
        row.turn_p999_us = Some(us(turns.all.value_at_quantile(0.999)));
        row.commit_turn_max_us = Some(us(turns.commits.max()));
        row.commit_turn_p50_us = Some(us(turns.commits.value_at_quantile(0.5)));
    }
    row.note = Some(format!("{touched} replies touched at commits, {held} held"));
    Ok(row)
}
