//! `lanefs bench`: runs benchmarks of the crate `bench` and prints their rows.
//!
//! Invariant: Ctrl-C leaves no process, file or mount behind.

use crate::args::{self, BenchCommand, BenchDirs, BenchName};
use crate::{address, bench_versus, driver, out, secret, signals};
use anyhow::{Context as _, Result, ensure};
use bench::{Bench, Dirs, Interrupt, Options, Remote};
use std::fs::File;
use std::path::Path;

/// Runs the command.
pub(crate) fn run(args: &args::Bench) -> Result<()> {
    let interrupt = Interrupt::default();
    let on_signal = interrupt.clone();
    signals::on_ending(move |_| on_signal.set())?;
    if let Some(BenchCommand::Versus(args)) = &args.command {
        return bench_versus::run(args, interrupt);
    }
    let options = options(args, interrupt)?;
    if args.names.contains(&BenchName::Seeds) {
        return run_seeds(args, &options);
    }
    let report = args.report.as_deref().map(Report::open).transpose()?;
    let mut raw = args.rows.as_deref().map(create).transpose()?;
    let mut tables = Vec::new();
    for bench in benches(&args.names, &options) {
        let (machine, rows) = bench.run(&options)?;
        let machine = machine.text();
        if args.json {
            out::print_error_line(&machine);
            let mut lines = Vec::new();
            bench::write_json(&rows, &mut lines)?;
            out::print_bytes(&lines)?;
            continue;
        }
        if let Some(raw) = &mut raw {
            bench::write_json(&rows, raw)?;
        }
        if report.is_some() {
            tables.push((bench.name().to_owned(), bench::report_table(&rows)));
            tables.retain(|(name, _)| name != MACHINE);
            tables.push((MACHINE.to_owned(), machine));
        } else {
            let (title, table) = (bench.title(), bench::table(&rows));
            out::print_bytes(format!("{title}\n{machine}\n\n{table}\n\n").as_bytes())?;
        }
    }
    match report {
        Some(report) => out::print_bytes(report.fill_in(&tables)?.as_bytes()),
        None => Ok(()),
    }
}

fn create(path: &Path) -> Result<File> {
    File::create(path).with_context(|| format!("cannot write {}", path.display()))
}

/// Measures and writes a separate report.
fn run_seeds(args: &args::Bench, options: &Options) -> Result<()> {
    ensure!(
        args.names.len() == 1 && !args.json && args.report.is_none() && options.remote.is_none(),
        "seeds starts its own servers and writes a report of its own: it goes with no other benchmark, \
         and not with --json, --report or --server"
    );
    let step = |what: &str| out::print_error_line(&format!("measures {what}"));
    let path = bench::run_seeds(options, &args.out, step)?;
    out::print_bytes(format!("{}\n", path.display()).as_bytes())
}

/// The placeholder for the machine's description.
const MACHINE: &str = "machine";

/// A text with places for tables, read before anything is measured.
struct Report<'a> {
    path: &'a Path,
    template: String,
}

impl<'a> Report<'a> {
    fn open(path: &'a Path) -> Result<Self> {
        let template = std::fs::read_to_string(path);
        let template = template.with_context(|| format!("cannot read {}", path.display()))?;
        Ok(Self { path, template })
    }

    fn fill_in(&self, tables: &[(String, String)]) -> Result<String> {
        let filled = bench::fill_in(&self.template, tables);
        filled.with_context(|| self.path.display().to_string())
    }
}

fn options(args: &args::Bench, interrupt: Interrupt) -> Result<Options> {
    let remote = match &args.server {
        Some(text) => Some(Remote {
            address: address::resolve(text)?,
            secret: secret::read(&secret::path(args.secret.secret_file.as_deref())?)?,
            export: args.export.clone(),
        }),
        None => None,
    };
    Ok(Options {
        seconds: args.time.as_secs_f64(),
        round_count: usize::from(args.rounds),
        clients: args.clients.clone(),
        depth: args.depth,
        lane_count: args.lanes.unwrap_or(1),
        lane_count_max: args.lanes,
        spin_us: args.spin.map(args::spin_us),
        pin: true,
        together: false,
        driver: driver::choose(args.driver.driver)?,
        sync: args.sync,
        dirs: args.dirs.map(|dirs| match dirs {
            BenchDirs::Own => Dirs::Own,
            BenchDirs::Shared => Dirs::Shared,
        }),
        hops: args.hops.clone(),
        shares: args.share.iter().map(|share| share.mode()).collect(),
        piece_bytes: u32::try_from(args.piece_bytes)?,
        dir: args.dir.clone(),
        remote,
        interrupt,
    })
}

/// The selected benchmarks. Those of `all` that do not support the options are skipped and named.
fn benches(names: &[BenchName], options: &Options) -> Vec<Bench> {
    let mut benches = Vec::new();
    for name in names {
        match name {
            BenchName::Echo => benches.push(Bench::Echo),
            BenchName::Getattr => benches.push(Bench::Getattr),
            BenchName::Create => benches.push(Bench::Create),
            BenchName::Stream => benches.push(Bench::Stream),
            BenchName::Handoff => benches.push(Bench::Handoff),
            BenchName::Clock => benches.push(Bench::Clock),
            BenchName::FuseNull => benches.push(Bench::FuseNull),
            BenchName::Mount => benches.push(Bench::Mount),
            BenchName::Share => benches.push(Bench::Share),
            BenchName::Commit => benches.push(Bench::Commit),
            BenchName::Lists => benches.push(Bench::Lists),
            BenchName::Fair => benches.push(Bench::Fair),
            BenchName::Busy => benches.push(Bench::Busy),
            BenchName::Drivers => benches.push(Bench::Drivers),
            BenchName::Affinity => benches.push(Bench::Affinity),
            BenchName::Brw => benches.push(Bench::Brw),
            BenchName::SharedFile => benches.push(Bench::SharedFile),
            BenchName::Seal => benches.push(Bench::Seal),
            BenchName::Observed => benches.push(Bench::Observed),
            BenchName::Cluster => benches.push(Bench::Cluster),
            BenchName::Seeds => {}
            BenchName::All => benches.extend(Bench::ALL.into_iter().filter(|bench| {
                let checked = bench.check(options);
                checked
                    .inspect_err(|why| out::print_error_line(&format!("left out: {why}")))
                    .is_ok()
            })),
        }
    }
    benches
}
