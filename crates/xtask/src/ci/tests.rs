//! The workspace's tests under cargo-nextest: each in a process of its own, more at a time than
//! there are CPUs (`.config/nextest.toml`), because most of them wait.

use crate::forbidden;
use crate::posix::Suite;
use crate::run::{cargo, target_dir};
use anyhow::Result;
use std::process::Command;

/// Rules of the protocol that tests remove (all rules hold unless a test removes one), and what the
/// usual build leaves out.
const FEATURES: &str = "lanefs-lane/removable-rules,lanefs-client/removable-rules,lanefs/otlp";

/// Tests whose lanes use the kernel, without those of the binary.
const INTERFACES: &str = "binary(runtime) + binary(kernel) + binary(apply) + binary(apply_killed) + \
    (kind(lib) & test(/^(driver|forbidden|handoff|wired)::/)) + \
    (binary(e2e) & test(/^drivers::/))";

/// Modules of end-to-end tests with malicious clients.
const HOSTILE: &str = "binary(e2e) & test(/^(certificates_hostile|copies_hostile|exports_hostile|exports_unseen|fair_shares|fuzz|hostile|identity|many_clients|permissions_hostile|seal|store_modes)::/)";

/// The one of them with random sessions.
const SESSIONS: &str = "binary(e2e) & test(/^fuzz::/)";

/// Tests that need io_uring.
const ON_IO_URING: &str = "test(/^on_io_uring::/)";

/// The drivers of servers and mounts in end-to-end tests.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Drivers {
    /// One of the two on io_uring, the other on epoll; the number and the test's name choose.
    Opposite,
    /// Both on epoll, in processes without io_uring.
    OnlyEpoll,
}

/// All tests but the simulator's, compiled.
pub(crate) fn build() -> Command {
    let mut command = nextest();
    command.arg("--no-run");
    command
}

/// The simulator and its tests, compiled for speed.
pub(crate) fn build_simulator() -> Command {
    let mut command = nextest_of_simulator();
    command.arg("--no-run");
    command
}

/// All tests but the simulator's.
pub(crate) fn all(roll: u64, long: bool) -> Command {
    let mut command = nextest();
    set_environment(&mut command, roll, long);
    command
}

/// The simulator's tests.
pub(crate) fn of_simulator(roll: u64, long: bool) -> Command {
    let mut command = nextest_of_simulator();
    set_environment(&mut command, roll, long);
    command
}

/// Doc tests, which nextest does not run.
pub(crate) fn of_documents() -> Command {
    let mut command = cargo(["test", "--doc", "--workspace", "--exclude", "lanefs-sim"]);
    command.args(["--features", FEATURES]).env("CARGO_INCREMENTAL", "0");
    command
}

/// The end-to-end tests.
pub(crate) fn end_to_end(roll: u64, drivers: Drivers) -> Result<Command> {
    let mut command = nextest();
    command.args(["--filterset", "binary(e2e)"]);
    set_environment(&mut command, roll, false);
    match drivers {
        Drivers::Opposite => Ok(command),
        Drivers::OnlyEpoll => forbidden::without_io_uring(&command),
    }
}

/// The end-to-end tests with malicious clients, with the binary that cargo built for tests: it
/// checks for overflow, which the release build does not.
pub(crate) fn hostile(only_sessions: bool) -> Command {
    let mut command = nextest();
    let tests = if only_sessions { SESSIONS } else { HOSTILE };
    command.args(["--filterset", tests, "--success-output", "final"]);
    command
}

/// Runs the tests with lanes again in processes without io_uring: lanes are on epoll, and requests
/// of the kernel come over `/dev/fuse`. Builds nothing.
pub(crate) fn interfaces_on_epoll(roll: u64) -> Result<Command> {
    let mut command = nextest();
    command.args(["--filterset", &format!("({INTERFACES}) - {ON_IO_URING}")]);
    set_environment(&mut command, roll, false);
    forbidden::without_io_uring(&command)
}

/// Whether the short form runs a suite a second time, with mounts that cache nothing: pjdfstest or fsx,
/// by the roll.
pub(crate) fn runs_without_leases(suite: Suite, roll: u64) -> bool {
    suite == if roll.is_multiple_of(2) { Suite::Pjdfstest } else { Suite::Fsx }
}

/// The parts that only `--long` runs.
pub(crate) fn left_to_long(roll: u64) -> Vec<String> {
    let line = |what: &str| format!("{what} (`cargo xtask ci --long`)");
    let suites = Suite::ALL.into_iter().filter(|suite| !runs_without_leases(*suite, roll));
    let suites: Vec<&str> = suites.map(Suite::text).collect();
    vec![
        line(&format!("without leases: {}", suites.join(", "))),
        line(&format!(
            "end-to-end tests with the other drivers, and without leases where they had them and with \
             leases where they had none (roll {})",
            roll + 1
        )),
        line("10,000 random trials of each kind on mounts that cache, and 3,000 of each race"),
        line("end-to-end tests with server and mount on epoll"),
        line(
            "the long form of crash: 100 kills, 40 power cuts, every step; the short one without leases",
        ),
        line("180,000 of 200,000 fresh seeds of the simulator"),
        line("nine of ten minutes of sessions that say anything"),
        line("15,000 of 20,000 entries of the tree that is unpacked over two kills"),
    ]
}

fn nextest() -> Command {
    let mut command = cargo(["nextest", "run", "--workspace", "--exclude", "lanefs-sim"]);
    // The same features and options as the build, so that nothing is built twice.
    command.args(["--features", FEATURES]).env("CARGO_INCREMENTAL", "0");
    command
}

fn nextest_of_simulator() -> Command {
    let mut command =
        cargo(["nextest", "run", "--cargo-profile", "sim", "--package", "lanefs-sim"]);
    command.args(["--features", "removable-rules"]);
    command
}

fn set_environment(command: &mut Command, roll: u64, long: bool) {
    command.env("LANEFS_TEST_ROLL", roll.to_string());
    if long {
        command.env("LANEFS_TEST_LONG", "1").env("LANEFS_TREE_COUNT", "20000");
    }
    // The end-to-end tests use the release build.
    command.env("LANEFS_BINARY", target_dir().join("release/lanefs"));
}
