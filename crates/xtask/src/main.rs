//! `cargo xtask`: the only entrance for chores. What CI runs is exactly `cargo xtask ci`.
//!
//! Invariant: a chore that could not do all of its work says what it left out, by name and reason.
#![forbid(unsafe_code)]

mod bench_seam;
mod bench_statx;
mod ci;
mod crash;
mod debian;
mod forbidden;
mod hostile;
mod needs;
mod package;
mod posix;
#[path = "../../lanefs/tests/e2e/readme.rs"]
mod readme;
mod run;
mod sim;
mod tidy;
mod uring_switch;

use anyhow::Result;
use clap::{Parser, Subcommand};
use std::process::ExitCode;

/// Chores of the lanefs workspace.
#[derive(Parser, Debug)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
struct Cli {
    #[command(subcommand)]
    chore: Chore,
}

#[derive(Subcommand, Debug)]
enum Chore {
    /// Everything that must be green: format, lints, tidy, build, all tests with real mounts
    Ci(ci::Args),
    /// Say what the tests need and this machine lacks
    Needs {
        /// Only the names of Debian packages, one a line
        #[arg(long)]
        packages: bool,
    },
    /// Check the rules of the house that no compiler checks
    Tidy,
    /// Check that the core crates need no standard library
    NoStd,
    /// Run only the end-to-end tests, or those whose names contain FILTER
    E2e {
        /// Part of a test's name
        filter: Option<String>,
    },
    /// Run a command to which, and to all that it starts, io_uring is forbidden by a seccomp filter
    NoIoUring {
        /// The program and its arguments
        #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true)]
        command: Vec<std::ffi::OsString>,
    },
    /// Simulate: the cores in a world made of dice, many seeds or one
    Sim(sim::Args),
    /// Crash the real binary: kills, power cuts, a network that loses; needs root, FUSE, loop devices
    Crash(crash::Crash),
    /// Attack the real binary with clients that mean harm; needs root, FUSE
    Hostile(hostile::Args),
    /// Judge the mount by suites from elsewhere: pjdfstest, fsx, fio, stress-ng; needs root, FUSE
    Posix(posix::Posix),
    /// Make a Debian package, and install, use and purge it in an overlay of this machine; needs root, FUSE
    Package(package::Args),
    /// Follow README in a fresh Debian that debootstrap makes; needs root, FUSE, a network
    Debian(debian::Args),
    /// Measure
    #[command(subcommand)]
    Bench(Bench),
}

#[derive(Subcommand, Debug)]
enum Bench {
    /// A getattr through lane and door, without network, and the seam's share
    Seam,
    /// A forced statx through the mount against a null file system with one loopback exchange
    Statx,
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    match run(&cli.chore) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("cargo xtask: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(chore: &Chore) -> Result<()> {
    match chore {
        Chore::Ci(args) => ci::run_everything(*args),
        Chore::Needs { packages: true } => {
            needs::print_packages();
            Ok(())
        }
        Chore::Needs { packages: false } => needs::check(),
        Chore::Tidy => tidy::run_alone(),
        Chore::NoStd => ci::check_no_std(),
        Chore::E2e { filter } => ci::e2e(filter.as_deref()),
        Chore::NoIoUring { command } => forbidden::run_command(command),
        Chore::Sim(args) => sim::run_seeds(args),
        Chore::Crash(args) => crash::run_alone(args),
        Chore::Hostile(args) => hostile::run(*args),
        Chore::Posix(args) => posix::run_alone(args),
        Chore::Package(args) => package::run_alone(args),
        Chore::Debian(args) => debian::run_alone(args),
        Chore::Bench(Bench::Seam) => bench_seam::run_measurement(),
        Chore::Bench(Bench::Statx) => bench_statx::run_measurement(),
    }
}
