//! `lanefs stats`: what a server does, for whom, and how long it takes. The server's counters
//! ([`library::Snapshot`]) are asked for once, or at each interval, and written as text, JSON or CSV.

mod csv;
pub(crate) mod json;
mod text;

use crate::exit::{Code, Exit};
use crate::running::{self, Entry, Found, Kind};
use crate::{address, args, export, out, status};
use anyhow::Result;
use library::counters::{By, Row};
use library::{Snapshot, Volume};
use std::time::{Duration, Instant, SystemTime};

/// Runs the command.
pub(crate) fn run(args: &args::Stats) -> Result<()> {
    let server = server_of(args.target.as_deref())?;
    let (mut volume, _) = export::connect(&args::Server { server, login: args.login.clone() })?;
    let Some(interval) = args.interval else {
        let counted = Counted { lanes: volume.counters()?, elapsed: None };
        show(args, &counted, true)?;
        return Ok(volume.leave()?);
    };
    each_interval(&mut volume, args, interval)?;
    Ok(volume.leave()?)
}

/// What was counted.
struct Counted {
    /// By lane.
    lanes: Vec<Snapshot>,
    /// In this time; `None`: since the server's start.
    elapsed: Option<Duration>,
}

impl Counted {
    fn rows(&self, by: By) -> Vec<Row> {
        rows(&self.lanes, by)
    }
}

/// The rows of a section, most requests first; of lanes in their order, and all together.
pub(crate) fn rows(lanes: &[Snapshot], by: By) -> Vec<Row> {
    let total = Snapshot::total(lanes);
    let mut rows = total.rows(by).to_vec();
    if by == By::Lane {
        let lanes = lanes.iter().flat_map(|lane| lane.rows(By::Lane)).cloned();
        return lanes.chain(rows).collect();
    }
    let requests = |row: &Row| row.number(library::counters::Metric::Requests);
    rows.sort_by_key(|row| std::cmp::Reverse(requests(row)));
    rows
}

fn each_interval(volume: &mut Volume, args: &args::Stats, interval: Duration) -> Result<()> {
    let (mut before, mut asked_at) = (volume.counters()?, Instant::now());
    let begun_at = asked_at;
    for number in 0..args.count.unwrap_or(u64::MAX) {
        // From the beginning on, so that delays do not add up.
        let passed = interval.saturating_mul(u32::try_from(number + 1).unwrap_or(u32::MAX));
        std::thread::sleep((begun_at + passed).saturating_duration_since(Instant::now()));
        let now = volume.counters()?;
        let elapsed = asked_at.elapsed();
        asked_at = Instant::now();
        let since = |(lane, before): (&Snapshot, &Snapshot)| lane.since(before);
        let lanes = now.iter().zip(&before).map(since).collect();
        before = now;
        show(args, &Counted { lanes, elapsed: Some(elapsed) }, number == 0)?;
    }
    Ok(())
}

fn show(args: &args::Stats, counted: &Counted, is_first: bool) -> Result<()> {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let mut out = String::new();
    if args.csv && is_first {
        out.push_str(csv::HEAD);
    }
    if !args.csv && !args.json && !is_first {
        out.push('\n');
    }
    for (index, by) in args.by.iter().map(|by| by.section()).enumerate() {
        let rows = counted.rows(by);
        if args.json {
            rows.iter()
                .try_for_each(|row| json::put(&mut out, (by, row), (now, counted.elapsed)))?;
        } else if args.csv {
            rows.iter().for_each(|row| csv::put(&mut out, (by, row), now));
        } else {
            if index > 0 {
                out.push('\n');
            }
            text::put(&mut out, by, &rows, counted.elapsed);
        }
    }
    out::print_bytes(out.as_bytes())
}

/// The server that is meant: the address or store that was named, or what runs here for it.
pub(crate) fn server_of(target: Option<&str>) -> Result<String> {
    let all = running::all()?;
    let servers = all.iter().map(|found| &found.entry).filter(|entry| entry.kind == Kind::Serve);
    let Some(target) = target else {
        let addresses: Vec<String> = servers.filter_map(listens).collect();
        return match addresses.as_slice() {
            [one] => Ok(one.clone()),
            [] => Err(nothing_named("no server runs here")),
            several => {
                Err(nothing_named(&format!("several servers run here: {}", several.join(", "))))
            }
        };
    };
    let wanted = status::Wanted::of(target);
    let of_dir = |entry: &&Entry| {
        let means = |found: &&Found| wanted.means(&found.entry);
        let heads = all.iter().filter(means).map(|found| found.entry.head_pid());
        heads.into_iter().any(|head| head == entry.head_pid())
    };
    if let Some(address) = servers.filter(of_dir).find_map(listens) {
        return Ok(address);
    }
    // A mount knows its server.
    let mounts = all.iter().map(|found| &found.entry).filter(|entry| wanted.means(entry));
    let mounted =
        mounts.filter(|entry| entry.kind == Kind::Mount).find_map(|it| it.address.clone());
    Ok(mounted.unwrap_or_else(|| target.to_owned()))
}

fn nothing_named(why: &str) -> anyhow::Error {
    Exit::new(
        Code::Failed,
        format!("{why}, as far as this user can see: name one, as `lanefs stats HOST:PORT`"),
    )
    .into()
}

/// Where a server of this machine can be reached.
pub(crate) fn listens(entry: &Entry) -> Option<String> {
    let at = entry.address.as_ref()?.parse().ok()?;
    Some(address::loopback_if_unspecified(at).to_string())
}
