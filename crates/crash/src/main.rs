//! Black-box crash tests: the real binary, real mounts, real kills, and a disk that really loses
//! what was not synced. `cargo xtask crash` builds and starts this; it is never shipped.
#![forbid(unsafe_code)]

mod child;
mod crew;
mod dice;
mod disk;
mod server;
mod stage;
mod torture;
mod work;

use anyhow::{Result, bail};
use clap::{Parser, Subcommand};
use crew::Size;
use stage::{Setup, Stage};
use std::path::PathBuf;
use std::process::ExitCode;
use torture::{Hazard, Torture};

/// Black-box crash tests of lanefs.
#[derive(Parser, Debug)]
#[command(name = "lanefs-crash")]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand, Debug)]
enum Command {
    /// Run
    Run(RunArgs),
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
    /// Where runs have their folders
    #[arg(long, value_name = "DIR")]
    place: PathBuf,
    #[arg(long, default_value_t = 1)]
    seed: u64,
    #[arg(long, default_value_t = 20)]
    rounds: u64,
    #[arg(long)]
    power: bool,
}

fn main() -> ExitCode {
    let done = match Cli::parse().command {
        Command::Run(args) => run(&args),
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

fn run(args: &RunArgs) -> Result<()> {
    stage::check_machine(true)?;
    let mut stage = Stage::new(&args.place)?;
    let setup = Setup {
        lanefs: args.lanefs.canonicalize()?,
        seed: args.seed,
        folder: stage.folder.clone(),
    };
    let hazard = if args.power { Hazard::Power } else { Hazard::Kill };
    let torture = Torture {
        hazard,
        round_count: args.rounds,
        size: Size { library_count: 2, mount_count: 2 },
        all_durable: true,
    };
    match torture::run_and_tell(&setup, &torture, &[]) {
        Ok(line) => println!("{line}"),
        Err(error) => {
            stage.keep();
            bail!("{error:#}\nlogs and journals: {}", stage.folder.display());
        }
    }
    Ok(())
}
