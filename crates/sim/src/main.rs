//! `lanefs-sim`: runs seeds for `cargo xtask sim`.
//!
//! Every seed runs twice and both runs must have the same hash. A panic is caught and counts as a
//! violation.
#![forbid(unsafe_code)]

use sim::{Injection, Rule, Until, Verdict, search, try_seed};
use std::process::ExitCode;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

const USAGE: &str = "usage: lanefs-sim --seed N [INJECTION] [--trace]
       lanefs-sim --seconds S | --count N [INJECTION] [--from SEED]
injection: --inject FAULT | --without-rule RULE | --control RULE";

/// The command line.
#[derive(Default)]
struct Args {
    seed: Option<u64>,
    until: Option<Until>,
    from: Option<u64>,
    injection: Option<Injection>,
    trace: bool,
}

fn main() -> ExitCode {
    let Some(args) = parse(std::env::args().skip(1)) else {
        eprintln!("{USAGE}");
        return ExitCode::from(2);
    };
    sim::quiet_panics();
    match (args.seed, args.until) {
        (Some(seed), None) => one(seed, &args),
        (None, Some(until)) => many(until, &args),
        (Some(_), Some(_)) | (None, None) => {
            eprintln!("{USAGE}");
            ExitCode::from(2)
        }
    }
}

fn parse(mut words: impl Iterator<Item = String>) -> Option<Args> {
    let mut args = Args::default();
    while let Some(word) = words.next() {
        match word.as_str() {
            "--seed" => args.seed = Some(words.next()?.parse().ok()?),
            "--seconds" => {
                let seconds = words.next()?.parse().ok()?;
                args.until = Some(Until::Time(Duration::from_secs(seconds)));
            }
            "--count" => args.until = Some(Until::Count(words.next()?.parse().ok()?)),
            "--from" => args.from = Some(words.next()?.parse().ok()?),
            "--inject" => args.injection = Some(Injection::fault(&words.next()?)?),
            "--without-rule" => {
                args.injection = Some(Injection::without_rule(&words.next()?)?);
            }
            "--control" => {
                args.injection = Some(Injection::Control(Rule::named(&words.next()?)?));
            }
            "--trace" => args.trace = true,
            _ => return None,
        }
    }
    Some(args)
}

fn one(seed: u64, args: &Args) -> ExitCode {
    if args.trace {
        let (_, lines) = sim::run_logged(seed, args.injection);
        lines.iter().for_each(|line| println!("{line}"));
    }
    let Verdict { run_hash, violation } = try_seed(seed, args.injection);
    if let Some(violation) = &violation {
        println!("seed {seed}: {violation}");
    }
    println!("seed {seed} hash {run_hash:016x}");
    if violation.is_some() { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

fn many(until: Until, args: &Args) -> ExitCode {
    let clock = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let fresh = u64::try_from(clock.as_nanos() % (1 << 52)).unwrap_or(1);
    let first = args.from.unwrap_or(fresh);
    let found = search(first, until, args.injection, |counts| println!("{counts}"));
    let Some((seed, violation)) = found else { return ExitCode::SUCCESS };
    let flag = args.injection.map_or(String::new(), |injection| format!(" {}", injection.flag()));
    println!("seed {seed}: {violation}");
    println!("repeat: cargo xtask sim --seed {seed}{flag}");
    println!("keep: add the line `{seed} why` to crates/sim/seeds.txt");
    ExitCode::FAILURE
}
