//! `getattr` (seed 000): the attributes of one file, requested without a client's cache, beside
//! `echo`; and what an idle server with 64 sessions costs.

use crate::echo;
use crate::limit::Limit;
use crate::load::Work;
use crate::number::number;
use crate::race::{Race, hold_against_best};
use crate::report::Progress;
use crate::row::Row;
use crate::samples::Compare;
use crate::server::{Home, Server};
use crate::usage::Usage;
use anyhow::{Context as _, Result, bail};
use std::time::{Duration, Instant};
use wire::InodeNo;

pub(crate) const NAME: &str = "getattr";
/// Clients, and requests under way of each.
const SHAPES: [(u32, u32); 6] = [(1, 1), (4, 1), (16, 1), (64, 1), (256, 1), (64, 16)];
const IDLE_CLIENT_COUNT: u32 = 64;
/// How often a wait checks for an interrupt.
const POLL: Duration = Duration::from_millis(20);

pub(crate) fn run(home: &Home) -> Result<Vec<Row>> {
    let options = &home.options;
    let server = home.server(NAME)?;
    let inode = make_file(&server)?;
    let limit = Limited::new(home)?;
    let mut race = Race::new(home);
    let mut ours = Vec::new();
    for shape in options.shapes(&SHAPES) {
        let name = |who: &str| Row::new(NAME, who);
        let beside = match &limit {
            Limited::Echo(echo) => race.enter(echo, name("echo"), shape, |_| Ok(echo::GETATTR))?,
            Limited::Ping => race.enter(&server, name("ping"), shape, |_| Ok(Work::Ping))?,
        };
        let index = race.enter(&server, name("getattr"), shape, |_| Ok(Work::Getattr { inode }))?;
        race.hold(index, beside, Compare::ops(shape.0));
        ours.push(index);
    }
    let mut rows = race.run(&Progress::new(NAME))?;
    refuse_hops(&rows)?;
    let flat = |row: &Row| row.ops_per_s.filter(|_| row.depth == Some(1) && is_ours(row));
    hold_against_best(&mut rows, flat);
    if server.pid().is_some() {
        rows.push(idle(home, &server)?);
    }
    Ok(rows)
}

fn is_ours(row: &Row) -> bool {
    row.row == NAME
}

/// The limit of the server.
pub(crate) enum Limited {
    /// A lane without a file system, on this machine.
    Echo(Server),
    /// The smallest request of a remote server.
    Ping,
}

impl Limited {
    pub(crate) fn new(home: &Home) -> Result<Self> {
        if home.options.remote.is_some() {
            return Ok(Self::Ping);
        }
        Ok(Self::Echo(home.start_limit(&Limit::Echo(home.options.driver))?))
    }
}

/// A file for all clients.
pub(crate) fn make_file(server: &Server) -> Result<InodeNo> {
    let mut volume = server.volume()?;
    let dir = server.folder(&mut volume)?;
    let path = dir.join("file");
    let file = volume.create(&path, 0o644, true)?;
    let inode = file.attr.inode;
    volume.close(file)?;
    // After the sync come the messages that lanes exchange about the file.
    volume.sync()?;
    Ok(inode)
}

/// A request sent to the lane that owns its shard never leaves that lane; any other takes two
/// messages. Lanes exchange a few messages besides.
pub(crate) fn refuse_hops(rows: &[Row]) -> Result<()> {
    const HOPS_MAX: f64 = 0.5;
    for row in rows {
        if row.hops_per_op.is_some_and(|hops| hops > HOPS_MAX) {
            bail!("{} {}: requests travelled between lanes, which must not be", row.bench, row.row);
        }
    }
    Ok(())
}

/// The server with idle sessions.
fn idle(home: &Home, server: &Server) -> Result<Row> {
    let mut race = Race::new(home);
    let mut row = Row::new(NAME, "idle");
    race.enter(server, row.clone(), (IDLE_CLIENT_COUNT, 1), |_| Ok(Work::Ping))?;
    let pid = server.pid().context("the server runs elsewhere")?;
    let before = Usage::of_process(pid)?;
    let start = Instant::now();
    let seconds = home.options.seconds * number(home.options.round_count as u64);
    while start.elapsed().as_secs_f64() < seconds {
        home.options.interrupt.check()?;
        std::thread::sleep(POLL);
    }
    let used = Usage::of_process(pid)?.since(&before);
    row.clients = Some(IDLE_CLIENT_COUNT);
    row.server_busy = Some(number(used.cpu_ns) / 1e9 / start.elapsed().as_secs_f64());
    row.note = Some(format!("{} switches in {seconds:.1} s", used.switch_count));
    Ok(row)
}
