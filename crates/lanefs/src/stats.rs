//! `lanefs stats`: what a server or a mount does, for whom, and how long it takes. Counters ([`library::Snapshot`])
//! are asked for once, or at each interval, and written as text, JSON or CSV. A server is asked over the
//! network, a mount over its control socket.

mod csv;
pub(crate) mod json;
mod text;

use crate::exit::{Code, Exit};
use crate::running::{self, Entry, Found, Kind};
use crate::{address, args, control, export, out, status};
use anyhow::{Context as _, Result, bail};
use library::counters::{By, Row};
use library::{Snapshot, Volume};
use std::time::{Duration, Instant, SystemTime};
use wire::Question;

/// Runs the command.
pub(crate) fn run(args: &args::Stats) -> Result<()> {
    let mut source = Source::of(args)?;
    source.check(args.by.iter().map(|by| by.section()))?;
    if let Some(interval) = args.interval {
        each_interval(&mut source, args, interval)?;
    } else {
        let counted = Counted { lanes: source.counters()?, elapsed: None };
        show(args, &counted, true)?;
    }
    source.leave()
}

/// Who is asked.
enum Source {
    Server(Box<Volume>),
    Mount(Box<Entry>),
}

impl Source {
    fn of(args: &args::Stats) -> Result<Self> {
        let target = args.target.as_deref();
        if let Some(mount) = target.map(control::mount_at).transpose()?.flatten() {
            return Ok(Self::Mount(Box::new(mount)));
        }
        let server = server_of(target)?;
        let (volume, _) = export::connect(&args::Server { server, login: args.login.clone() })?;
        Ok(Self::Server(Box::new(volume)))
    }

    /// By lane.
    fn counters(&mut self) -> Result<Vec<Snapshot>> {
        match self {
            Self::Server(volume) => Ok(volume.counters()?),
            Self::Mount(mount) => counters_of(mount),
        }
    }

    /// An error where it does not count by one of these.
    fn check(&self, mut wanted: impl Iterator<Item = By>) -> Result<()> {
        let (name, known) = match self {
            Self::Server(_) => {
                ("a server", &[By::Op, By::Lane, By::Client, By::Export, By::Job][..])
            }
            Self::Mount(_) => ("a mount", &[By::Op, By::Lane, By::Exchange, By::Job][..]),
        };
        let Some(unknown) = wanted.find(|by| !known.contains(by)) else { return Ok(()) };
        let names: Vec<&str> = known.iter().map(|by| by.name()).collect();
        let line =
            format!("{name} does not count by {}, but by {}", unknown.name(), names.join(", "));
        bail!(Exit::usage(line))
    }

    fn leave(self) -> Result<()> {
        match self {
            Self::Server(volume) => Ok(volume.leave()?),
            Self::Mount(_) => Ok(()),
        }
    }
}

/// The counters of a mount, by lane.
pub(crate) fn counters_of(mount: &Entry) -> Result<Vec<Snapshot>> {
    let answers = control::ask(mount, &Question::Counters.encode())?;
    let read = |answer: &Vec<u8>| Snapshot::decode(answer).ok();
    let lanes: Option<Vec<Snapshot>> = answers.iter().map(read).collect();
    lanes.with_context(|| format!("the mount process {} has sent something else", mount.pid))
}

/// What was counted.
struct Counted {
    /// By lane.
    lanes: Vec<Snapshot>,
    /// In this time; `None`: since the start.
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

fn each_interval(source: &mut Source, args: &args::Stats, interval: Duration) -> Result<()> {
    let (mut before, mut asked_at) = (source.counters()?, Instant::now());
    let begun_at = asked_at;
    for number in 0..args.count.unwrap_or(u64::MAX) {
        // From the beginning on, so that delays do not add up.
        let passed = interval.saturating_mul(u32::try_from(number + 1).unwrap_or(u32::MAX));
        std::thread::sleep((begun_at + passed).saturating_duration_since(Instant::now()));
        let now = source.counters()?;
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

/// The server that is meant: the address or store that was named, or the one that runs here.
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
    if control::is_path(target) {
        return Err(status::nothing_runs(target).into());
    }
    Ok(target.to_owned())
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
