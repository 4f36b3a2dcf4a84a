//! `cargo xtask`: all chores. CI runs exactly `cargo xtask ci`.
//!
//! Invariant: a chore that skipped a part of its work reports it, by name and reason.
#![forbid(unsafe_code)]

mod bench_lane_overhead;
mod bench_statx;
mod ci;
mod cluster;
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
    /// Everything that must succeed: format, lints, tidy, build, all tests with real mounts
    Ci(ci::Args),
    /// Print what the tests need and this machine lacks
    Needs {
        /// Only the names of Debian packages, one a line
        #[arg(long)]
        packages: bool,
    },
    /// Check this repository's rules that no compiler checks
    Tidy,
    /// Check that the core crates need no standard library
    NoStd,
    /// Run only the end-to-end tests, or those whose names contain FILTER
    E2e {
        /// Part of a test's name
        filter: Option<String>,
    },
    /// Run a command, and all that it starts, without io_uring (seccomp filter)
    NoIoUring {
        /// The program and its arguments
        #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true)]
        command: Vec<std::ffi::OsString>,
    },
    /// Simulate clients and servers on one thread: many seeds or one
    Sim(sim::Args),
    /// Crash the real binary: kills, power cuts, lost messages; needs root, FUSE, loop devices
    Crash(crash::Crash),
    /// Attack the real binary with malicious clients; needs root, FUSE
    Hostile(hostile::Args),
    /// Test the mount with external suites: pjdfstest, fsx, fio, stress-ng; needs root, FUSE
    Posix(posix::Posix),
    /// Make a Debian package, and install, use and purge it in an overlay of this machine; needs root, FUSE
    Package(package::Args),
    /// Run several servers, their etcd and a mount of them on this machine, until Ctrl-C: `lanefs up --servers`
    Cluster(cluster::Args),
    /// Follow README in a fresh Debian that debootstrap makes; needs root, FUSE, a network
    Debian(debian::Args),
    /// Measure
    #[command(subcommand)]
    Bench(Bench),
}

#[derive(Subcommand, Debug)]
enum Bench {
    /// A getattr through a lane without network, and the share of its interface
    LaneOverhead,
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
        Chore::Cluster(args) => cluster::run_alone(args),
        Chore::Debian(args) => debian::run_alone(args),
        Chore::Bench(Bench::LaneOverhead) => bench_lane_overhead::run_measurement(),
        Chore::Bench(Bench::Statx) => bench_statx::run_measurement(),
    }
}
