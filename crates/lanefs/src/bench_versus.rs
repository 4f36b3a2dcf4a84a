//! `lanefs bench versus`: compares directories by the crate `bench` and prints the lines.

use crate::args;
use crate::exit::Exit;
use crate::out;
use anyhow::Result;
use bench::{Interrupt, Line, Versus, VersusCounts};

/// Runs the command.
pub(crate) fn run(args: &args::BenchVersus, interrupt: Interrupt) -> Result<()> {
    let versus = Versus {
        dirs: args.dirs.clone(),
        peers: args.peers.clone(),
        baseline: args.baseline.clone(),
        rows: args.rows.clone(),
        round_count: usize::from(args.rounds),
        counts: if args.quick { VersusCounts::QUICK } else { VersusCounts::FULL },
        drop_caches: !args.quick && bench::can_drop_caches(),
        interrupt,
    };
    versus.check().map_err(|error| Exit::usage(error.to_string()))?;
    let machine = versus.machine();
    if args.json {
        out::print_error_line(&machine);
        return versus.run(print_json);
    }
    let mut lines = Vec::new();
    versus.run(|row| {
        lines.extend_from_slice(row);
        Ok(())
    })?;
    let table = bench::lines_table(&lines);
    out::print_bytes(format!("{machine}\n\n{table}\n").as_bytes())
}

fn print_json(row: &[Line]) -> Result<()> {
    let mut text = Vec::new();
    bench::write_json(row, &mut text)?;
    out::print_bytes(&text)
}
