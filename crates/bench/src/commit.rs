//! `commit` (seed 003): the cost of a commit that makes many operations durable at once, where no
//! operation waits for it or all do; and what applying the log to the rows costs operations that do
//! not wait.

use crate::create::make_dirs;
use crate::load::Work;
use crate::new_files::create;
use crate::pace::{Pace, Turns};
use crate::plan::Dirs;
use crate::race::Race;
use crate::report::Progress;
use crate::row::Row;
use crate::samples::{Compare, fill};
use crate::server::Home;
use crate::wired;
use anyhow::{Result, ensure};
use wire::InodeNo;

pub(crate) const NAME: &str = "commit";

/// A row: the clients, the server, and how many operations a commit makes durable.
struct Case {
    row: &'static str,
    shape: (u32, u32),
    ops_per_commit: u64,
    /// So many of ten clients depend on each other, because they change one inode; the others
    /// create files.
    wait_of_ten: u32,
}

impl Case {
    const fn waits(&self) -> bool {
        self.wait_of_ten > 0
    }
}

const fn case(row: &'static str, shape: (u32, u32), ops_per_commit: u64, wait_of_ten: u32) -> Case {
    Case { row, shape, ops_per_commit, wait_of_ten }
}

/// As many operations a commit as the seed's authors had, and ten times as many. Where all wait,
/// all operations under way wait.
const CASES: [Case; 8] = [
    case("create 14000", (16, 16), 14_000, 0),
    case("create 140000", (16, 16), 140_000, 0),
    case("1 of 10 waits, 14000", (1000, 14), 14_000, 1),
    case("1 of 10 waits, 140000", (1000, 14), 140_000, 1),
    case("5 of 10 wait, 14000", (1000, 14), 14_000, 5),
    case("setattr waits 1000", (1000, 1), 1_000, 10),
    case("setattr waits 14000", (1000, 14), 14_000, 10),
    case("setattr waits 140000", (10_000, 14), 140_000, 10),
];

pub(crate) fn run(home: &Home) -> Result<Vec<Row>> {
    let progress = Progress::new(NAME);
    progress.begin(CASES.len() * home.options.round_count);
    let mut rows = Vec::new();
    for case in CASES {
        rows.push(measure(home, &progress, &case)?);
    }
    progress.end();
    if home.options.remote.is_none() {
        rows.extend(half_load(home, &progress)?);
    }
    Ok(rows)
}

/// Half of the server's maximum rate, with and without the log being applied meanwhile.
fn half_load(home: &Home, progress: &Progress) -> Result<Vec<Row>> {
    const SHAPE: (u32, u32) = (16, 16);
    const HOUR_MS: u64 = 3_600_000;
    let quiet = home.collecting("quiet", HOUR_MS)?;
    let usual = home.collecting("usual", 1000)?;
    let busy = home.collecting("busy", 0)?;
    let mut race = Race::new(home);
    let mut rate = None;
    for (server, name) in [
        (&quiet, "half load, no checkpoint"),
        (&usual, "half load, every second"),
        (&busy, "half load, without pause"),
    ] {
        let parents = make_dirs(server, Dirs::Shared, 1)?;
        let work = create(&parents);
        let entrant = race.enter(server, Row::new(NAME, name), SHAPE, |_| Ok(work))?;
        if let Some(rate) = rate {
            race.set_rate(entrant, rate);
            race.hold(entrant, 0, Compare::Tail);
        } else {
            // At least some, however slow the machine.
            let half = (race.rate_of(entrant)? / 2.0).max(1.0);
            race.set_rate(entrant, half);
            rate = Some(half);
        }
    }
    race.run(progress)
}

fn measure(home: &Home, progress: &Progress, case: &Case) -> Result<Row> {
    let outstanding_max = u64::from(case.shape.0) * u64::from(case.shape.1);
    let pace = Pace::ops(case.ops_per_commit)?;
    let inode = InodeNo::ROOT;
    let (these, others) = (Work::Chmod { inodes: vec![inode] }, create(&[inode]));
    let work = match case.wait_of_ten {
        0 => others,
        10 => these,
        of_ten => Work::Mixed { of_ten, these: Box::new(these), others: Box::new(others) },
    };
    let mut generator = wired::generator(home, case.shape, work, pace)?;
    let mut samples = Vec::new();
    let mut turns: Option<Turns> = None;
    for _ in 0..home.options.round_count {
        progress.step(case.row);
        generator.core().pace.take_turns();
        samples.push(generator.measure(&home.options)?);
        let more = generator.core().pace.take_turns();
        turns = match (turns, more) {
            (Some(mut all), Some(more)) => {
                all.all.add(&more.all)?;
                all.commits.add(&more.commits)?;
                all.early_count += more.early_count;
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
        (held + lanes.deferred_count, touched + lanes.touched_count)
    });
    // Replies deferred across the beginning or end of the measured time are counted on one side
    // only.
    let under_way = outstanding_max * 2 * u64::try_from(samples.len()).unwrap_or(u64::MAX);
    ensure!(
        touched.abs_diff(held) <= if case.waits() { under_way } else { 0 },
        "{}: commits touched {touched} replies, of which {held} were held",
        case.row
    );
    ensure!(
        case.waits() || held == 0,
        "{}: {held} replies of independent clients waited",
        case.row
    );
    // A load that ends has no operations under way.
    let early_count_max = home.options.round_count as u64;
    let early_count = turns.as_ref().map_or(0, |turns| turns.early_count);
    ensure!(
        case.wait_of_ten == 10 || early_count <= early_count_max,
        "{}: {early_count} commits that nobody but waiting clients needed",
        case.row
    );
    if let Some(turns) = turns {
        let us = |ns: u64| crate::number::number(ns) / 1e3;
        row.turn_max_us = Some(us(turns.all.max()));
        row.turn_p999_us = Some(us(turns.all.value_at_quantile(0.999)));
        row.commit_turn_max_us = Some(us(turns.commits.max()));
        row.commit_turn_p50_us = Some(us(turns.commits.value_at_quantile(0.5)));
    }
    row.note = Some("no network, nothing reaches a disk; CPU of lane and load".to_owned());
    Ok(row)
}
