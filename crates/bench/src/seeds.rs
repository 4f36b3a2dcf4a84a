//! `seeds`: the experiments of five mailing-list threads, run against this system: a report in
//! Markdown with plots that compares their measurements with ours.
//!
//! The threads: PVFS2 developers, December 2006 (000) and August 2006 (002); lustre-devel, July
//! 2009 (001) and October 2008 (003); OpenAFS-devel, June 2005 (004). Invariant: the report's
//! statements on this system come from rows of this run, and those on causes from their counters.

mod answers;
mod plot;
mod plots;
mod published;
mod rows;

use crate::plan::Options;
use crate::report::{report_table, write_json};
use crate::row::Row;
use crate::{Bench, Machine};
use anyhow::{Context as _, Result};
use plot::Bars;
use rows::Rows;
use std::fs;
use std::path::{Path, PathBuf};

/// The report's file in its folder.
const REPORT: &str = "seeds.md";
/// All rows, a JSON object a line.
const ROWS: &str = "seeds.jsonl";

/// A thread, and its benchmarks.
struct Seed {
    number: &'static str,
    title: &'static str,
    /// The authors' measurements: what, and how much.
    published: &'static [(&'static str, &'static str)],
    benches: &'static [Bench],
    plots: fn(&Rows) -> Vec<Bars>,
    answers: fn(&Rows) -> Vec<String>,
}

const SEEDS: [Seed; 5] = [
    Seed {
        number: "000",
        title: "PVFS2: server threads and kernel timers (2006)",
        published: published::TIMERS,
        benches: &[Bench::Echo, Bench::Getattr, Bench::Create, Bench::Clock],
        plots: plots::timers,
        answers: answers::timers,
    },
    Seed {
        number: "001",
        title: "Lustre: which core a request is executed on (2009)",
        published: published::AFFINITY,
        benches: &[Bench::Affinity, Bench::Brw],
        plots: plots::affinity,
        answers: answers::affinity,
    },
    Seed {
        number: "002",
        title: "PVFS2: one file, many readers, and POSIX AIO (2006)",
        published: published::AIO,
        benches: &[Bench::SharedFile, Bench::Lists],
        plots: plots::aio,
        answers: answers::aio,
    },
    Seed {
        number: "003",
        title: "Lustre: commit on share (2008)",
        published: published::SHARE,
        benches: &[Bench::Share, Bench::Commit],
        plots: plots::share,
        answers: answers::share,
    },
    Seed {
        number: "004",
        title: "OpenAFS: five bottlenecks of a file server (2005)",
        published: published::BOTTLENECKS,
        benches: &[Bench::Stream],
        plots: plots::bottlenecks,
        answers: answers::bottlenecks,
    },
];

/// Runs all of them and writes report, plots and rows into a folder, which is made. Calls `step`
/// with the name of each benchmark. Returns the path of the report.
///
/// # Errors When the folder cannot be made or written, a benchmark fails, or the user interrupts;
/// then there is no report.
pub fn run_seeds(options: &Options, dir: &Path, mut step: impl FnMut(&str)) -> Result<PathBuf> {
    let shown = dir.display();
    fs::create_dir_all(dir).with_context(|| format!("cannot make the report's folder {shown}"))?;
    // So that an error comes before the measurements.
    let path = dir.join(REPORT);
    let cannot = || format!("cannot write {}", path.display());
    fs::write(&path, "").with_context(cannot)?;
    let mut rows = Rows::default();
    let mut machine = None;
    for bench in SEEDS.iter().flat_map(|seed| seed.benches) {
        step(bench.title());
        let measured = bench.run(&options_of(*bench, options));
        let (found, more) = measured.inspect_err(|_| drop(fs::remove_file(&path)))?;
        machine = Some(found);
        rows.0.extend(more);
    }
    let mut text = head(options, machine.as_ref());
    for seed in &SEEDS {
        text.push_str(&section(seed, &rows, dir)?);
    }
    let mut lines = Vec::new();
    write_json(&rows.0, &mut lines)?;
    fs::write(dir.join(ROWS), lines).with_context(|| format!("cannot write {ROWS} in {shown}"))?;
    fs::write(&path, text).with_context(cannot)?;
    Ok(path)
}

/// The user's options with those of the experiment.
fn options_of(bench: Bench, options: &Options) -> Options {
    let mut options = options.clone();
    if bench == Bench::Echo && options.hops.is_empty() {
        options.hops = vec![0, 1, 2, 3, 4];
    }
    if bench == Bench::SharedFile {
        options.lane_count = 1;
    }
    options
}

fn head(options: &Options, machine: Option<&Machine>) -> String {
    let machine = machine.map_or_else(String::new, Machine::text);
    let (rounds, seconds) = (options.round_count, options.seconds);
    format!(
        "# Published experiments, repeated\n\n{machine}.\n\nEach row is the median of {rounds} rounds of \
         {seconds} s; what is compared took turns. `to limit` is the median of the rounds' ratios, `spread` \
         is (greatest - least) / median: a large one means that other programs ran. A table has the most \
         important columns; `{ROWS}` has all numbers.\n\n"
    )
}

fn section(seed: &Seed, rows: &Rows, dir: &Path) -> Result<String> {
    let Seed { number, title, .. } = seed;
    let mut text = format!("## {number}: {title}\n\n| published | |\n| --- | --- |\n");
    for (what, how_much) in seed.published {
        text.push_str(&format!("| {what} | {how_much} |\n"));
    }
    text.push_str("\n### Answers\n");
    for answer in (seed.answers)(rows) {
        text.push_str(&format!("- {answer}\n"));
    }
    text.push('\n');
    for (index, bars) in (seed.plots)(rows).into_iter().enumerate() {
        if let Some(svg) = bars.svg()? {
            let name = format!("{number}-{index}.svg");
            let path = dir.join(&name);
            fs::write(&path, svg).with_context(|| format!("cannot write {}", path.display()))?;
            text.push_str(&format!("![{}]({name})\n\n", bars.title));
        }
    }
    for bench in seed.benches {
        let of_bench: Vec<Row> = rows.of(*bench).cloned().collect();
        text.push_str(&format!("### {}\n{}\n\n", bench.title(), report_table(&of_bench)));
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn all_go_with_any_number_of_lanes() {
        for lane_count in [1, 4] {
            let options = Options { lane_count, ..Options::tiny(1.0) };
            for bench in SEEDS.iter().flat_map(|seed| seed.benches) {
                bench.check(&options_of(*bench, &options)).unwrap();
            }
        }
    }
}
