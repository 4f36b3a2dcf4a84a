//! `lanefs`: the one binary. It reads the command line, runs one command, and maps its result to an
//! exit code.
//!
//! Invariant: every failure is one line on stderr that begins with `lanefs`, and a panic of any thread
//! ends the process.

mod address;
mod args;
mod atomic_file;
mod background;
mod backup;
mod bench;
mod bench_null;
mod bench_versus;
mod cert;
mod check;
mod cluster;
mod config;
mod control;
mod doctor;
mod down;
mod driver;
mod dump;
mod exit;
mod export;
mod export_name;
mod faults;
mod files;
mod fuse_device;
mod generated_docs;
mod holders;
mod inspect;
mod lanes;
mod layout;
#[cfg(test)]
mod limits;
mod log;
mod login;
mod metrics;
mod mount;
mod mounts;
mod notify;
mod online;
mod out;
mod paths;
mod processes;
mod profile;
mod progress;
mod questions;
mod reload;
mod running;
mod secret;
mod serve;
mod signals;
mod space;
mod stats;
mod status;
mod table;
mod terms;
mod top;
mod umount;
mod up;
mod warm;
mod why;

use anyhow::Result;
use args::Command;
use std::ffi::OsString;
use std::process::ExitCode;

fn main() -> ExitCode {
    abort_on_panic();
    // `up` starts its children by /proc/self/exe, which would be their name.
    // A name is for people; nothing depends on it.
    let _unnamed = rustix::thread::set_name(c"lanefs");
    let line: Vec<OsString> = std::env::args_os().collect();
    if mount::is_by_type(&line) {
        return mount::run_by_type(line.into_iter().skip(1));
    }
    let named = line.get(1).map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let line = match config::apply(line) {
        Ok(line) => line,
        Err(error) => return fail(&named, &error),
    };
    let cli = args::parse(line).unwrap_or_else(|error| error.exit());
    let name = name_of(&cli.command);
    let code = run(cli.command).map_or_else(|error| fail(name, &error), |()| ExitCode::SUCCESS);
    log::flush();
    code
}

/// Reports the error of a command; returns the exit code.
fn fail(name: &str, error: &anyhow::Error) -> ExitCode {
    let line = format!("{error:#}");
    if !line.is_empty() {
        log::complain_at_end(&format!("lanefs {name}: {line}"));
    }
    ExitCode::from(exit::code_of(error).number())
}

/// A lane that panicked may leave half of a change behind: nobody may go on with that. `panic = "abort"`
/// of the release does the same; this holds in every profile.
fn abort_on_panic() {
    let report = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        report(info);
        std::process::abort();
    }));
}

fn run(command: Command) -> Result<()> {
    match command {
        Command::Up(args) => up::run(&args),
        Command::Serve(args) => serve::run(&args),
        Command::Mount(args) => mount::run(&args),
        Command::Umount(args) => umount::run(&args),
        Command::Down(args) => down::run(&args),
        Command::Status(args) => status::run(&args),
        Command::Doctor(args) => doctor::run(&args),
        Command::Warm(args) => warm::run(&args),
        Command::Stats(args) => stats::run(&args),
        Command::Top(args) => top::run(&args),
        Command::Why(args) => why::run(&args),
        Command::Profile(args) => profile::run(&args),
        Command::Ls(args) => files::ls::run(&args),
        Command::Cat(args) => files::cat::run(&args),
        Command::Cp(args) => files::cp::run(&args),
        Command::Stat(args) => files::stat::run(&args),
        Command::Tree(args) => files::tree::run(&args),
        Command::Find(args) => files::find::run(&args),
        Command::Du(args) => files::du::run(&args),
        Command::Mkdir(args) => files::mkdir::run(&args),
        Command::Rm(args) => files::rm::run(&args),
        Command::Mv(args) => files::mv::run(&args),
        Command::Ln(args) => files::ln::run(&args),
        Command::Chmod(args) => files::chmod::run(&args),
        Command::Chown(args) => files::chown::run(&args),
        Command::Sync(args) => files::sync::run(&args),
        Command::Df(args) => files::df::run(&args),
        Command::Layout(args) => layout::run(&args),
        Command::Export(args) => export::run(&args),
        Command::Secret(args) => secret::run(&args),
        Command::Cert(args) => cert::run(&args),
        Command::Cluster(args) => cluster::run(&args),
        Command::Servers(args) => cluster::servers(&args),
        Command::Drain(args) => cluster::drain(&args),
        Command::Check(args) if cluster::check::is_meant(&args) => cluster::check::run(&args),
        Command::Check(args) => check::run(&args),
        Command::Dump(args) => dump::run(&args),
        Command::Restore(args) => dump::restore(&args),
        Command::Inspect(args) => inspect::child::run(&args),
        Command::Backup(args) => backup::run(&args),
        Command::Bench(args) => bench::run(&args),
        Command::Completions(args) => generated_docs::completions(&args),
        Command::Man(args) => generated_docs::man(&args),
        Command::BenchLimit(args) => ::bench::run_limit(&args.arguments),
        Command::BenchNull(args) => bench_null::run(&args),
    }
}

const fn name_of(command: &Command) -> &'static str {
    match command {
        Command::Up(_) => "up",
        Command::Serve(_) => "serve",
        Command::Mount(_) => "mount",
        Command::Umount(_) => "umount",
        Command::Down(_) => "down",
        Command::Status(_) => "status",
        Command::Doctor(_) => "doctor",
        Command::Warm(_) => "warm",
        Command::Stats(_) => "stats",
        Command::Top(_) => "top",
        Command::Why(_) => "why",
        Command::Profile(_) => "profile",
        Command::Ls(_) => "ls",
        Command::Cat(_) => "cat",
        Command::Cp(_) => "cp",
        Command::Stat(_) => "stat",
        Command::Tree(_) => "tree",
        Command::Find(_) => "find",
        Command::Du(_) => "du",
        Command::Mkdir(_) => "mkdir",
        Command::Rm(_) => "rm",
        Command::Mv(_) => "mv",
        Command::Ln(_) => "ln",
        Command::Chmod(_) => "chmod",
        Command::Chown(_) => "chown",
        Command::Sync(_) => "sync",
        Command::Df(_) => "df",
        Command::Layout(_) => "layout",
        Command::Export(_) => "export",
        Command::Secret(_) => "secret",
        Command::Cert(_) => "cert",
        Command::Cluster(_) => "cluster",
        Command::Servers(_) => "servers",
        Command::Drain(_) => "drain",
        Command::Check(_) => "check",
        Command::Dump(_) => "dump",
        Command::Restore(_) => "restore",
        Command::Inspect(_) => "inspect",
        Command::Backup(_) => "backup",
        Command::Bench(_) => "bench",
        Command::Completions(_) => "completions",
        Command::Man(_) => "man",
        Command::BenchLimit(_) => ::bench::LIMIT_COMMAND,
        Command::BenchNull(_) => ::bench::NULL_COMMAND,
    }
}
