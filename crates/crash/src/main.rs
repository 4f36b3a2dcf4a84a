//! Black-box crash tests: the real binary, real mounts, real kills, and a disk that loses unsynced
//! data. `cargo xtask crash` builds and starts this program; it is never shipped.
#![forbid(unsafe_code)]

mod child;
mod client_group;
mod disk;
mod proxy;
mod run_folder;
mod scenarios;
mod server;
mod stores;
mod torture;
mod work;

use anyhow::{Context as _, Result, bail};
use clap::{Parser, Subcommand};
use run_folder::{RunFolder, Setup};
use scenarios::{Length, Scenario, TABLE};
use std::path::PathBuf;
use std::process::ExitCode;

/// Black-box crash tests of lanefs.
#[derive(Parser, Debug)]
#[command(name = "lanefs-crash")]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand, Debug)]
enum Command {
    /// Run all scenarios, or those that are named
    Run(RunArgs),
    /// Print the table of scenarios
    List,
    /// A process of the workload.
    #[command(name = work::SUBCOMMAND, hide = true)]
    Client(work::ClientArgs),
    /// A process that is a disk.
    #[command(name = disk::SUBCOMMAND, hide = true)]
    Disk { dir: PathBuf, image_bytes: usize },
}

#[derive(clap::Args, Debug)]
struct RunArgs {
    /// The binary under test
    #[arg(long, value_name = "FILE")]
    lanefs: PathBuf,
    /// Where the folders of runs are made
    #[arg(long, value_name = "DIR")]
    place: PathBuf,
    /// The seed of all random choices [default: random]
    #[arg(long)]
    seed: Option<u64>,
    /// The short form
    #[arg(long)]
    short: bool,
    /// Kills of the torture
    #[arg(long)]
    rounds: Option<u64>,
    /// This scenario alone; several may be named
    #[arg(long = "scenario", value_name = "NAME")]
    scenarios: Vec<String>,
}

fn main() -> ExitCode {
    // A panic in any thread ends the run.
    let report = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        report(info);
        std::process::abort();
    }));
    let done = match Cli::parse().command {
        Command::Run(args) => run(&args),
        Command::List => {
            print!("{}", scenarios::listing());
            Ok(())
        }
        Command::Client(args) => work::run(&args),
        Command::Disk { dir, image_bytes } => disk::serve(&dir, image_bytes),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("lanefs-crash: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// The seed of the short form, so that it covers the same every time.
const SHORT_SEED: u64 = 4;

fn run(args: &RunArgs) -> Result<()> {
    let chosen = chosen(args)?;
    run_folder::check_machine()?;
    let mut run_folder = RunFolder::new(&args.place)?;
    let rolled = u64::from_le_bytes(library::random()?) % 1_000_000;
    let seed = args.seed.unwrap_or(if args.short { SHORT_SEED } else { rolled });
    let lanefs = args.lanefs.canonicalize().context("no binary to test")?;
    let setup = Setup { lanefs, seed, folder: run_folder.folder.clone() };
    let long = Length {
        round_count: args.rounds.unwrap_or(100),
        cut_count: 40,
        repeat_count: 5,
        every_step: true,
    };
    let short = Length {
        round_count: args.rounds.unwrap_or(10),
        cut_count: 5,
        repeat_count: 2,
        every_step: false,
    };
    let length = if args.short { short } else { long };
    println!("seed {seed}");
    let rows: Vec<_> =
        chosen.iter().map(|scenario| scenarios::run(&setup, scenario, length)).collect();
    let failed_count = rows.iter().filter(|row| !row.is_ok()).count();
    println!("\nseed {seed}: {} of {} as they must be", rows.len() - failed_count, rows.len());
    if failed_count > 0 {
        run_folder.keep();
        bail!("{failed_count} failed; logs and journals: {}", run_folder.folder.display());
    }
    Ok(())
}

fn chosen(args: &RunArgs) -> Result<Vec<&'static Scenario>> {
    if args.scenarios.is_empty() {
        return Ok(TABLE.iter().filter(|scenario| scenario.short || !args.short).collect());
    }
    let find = |name: &String| {
        let found = TABLE.iter().find(|scenario| scenario.name.eq_ignore_ascii_case(name));
        found.with_context(|| format!("no scenario {name}; `--list` shows them"))
    };
    args.scenarios.iter().map(find).collect()
}
