//! Hot directories and files: of a mount those of the kernel's requests, which its lanes record while they are
//! asked; of a server those of its samples.
//!
//! A server knows no paths. They are made of names that a mount of the asker has seen, so that nobody sees
//! more than his own mount shows.

use super::interval::Hot;
use crate::paths::Paths;
use crate::processes::Processes;
use crate::running::{self, Entry, Kind};
use crate::{control, why};
use anyhow::{Context as _, Result};
use library::counters::{By, Label, Metric, Row};
use library::traces::Kept;
use library::{Snapshot, Volume};
use std::collections::HashMap;
use std::hash::Hash;
use std::time::Duration;
use wire::Question;

/// Rows, at most.
const ROW_COUNT_MAX: usize = 50;
/// Parts of a path from its end.
const UNKNOWN: &str = "(others)";

/// Requests of one directory or file.
#[derive(Default)]
struct Use {
    requests: u64,
    time_us: u64,
    ops: HashMap<String, u64>,
    users: HashMap<String, u64>,
}

impl Use {
    fn add(&mut self, (requests, time_us): (u64, u64), op: &str, user: String) {
        self.requests += requests;
        self.time_us += time_us;
        *self.ops.entry(op.to_owned()).or_default() += requests;
        *self.users.entry(user).or_default() += requests;
    }

    fn hot(&self, path: String) -> Hot {
        let most = |of: &HashMap<String, u64>| {
            let most = of.iter().max_by_key(|(name, count)| (**count, std::cmp::Reverse(*name)));
            most.map(|(name, _)| name.clone()).unwrap_or_default()
        };
        let Self { requests, time_us, ops, users } = self;
        let (most, who) = (most(ops), most(users));
        Hot { path, requests: *requests, time_us: *time_us, most, who }
    }
}

/// Those with most requests.
fn first<K: Hash + Eq + Ord>(uses: HashMap<K, Use>) -> Vec<(K, Use)> {
    let mut uses: Vec<(K, Use)> = uses.into_iter().collect();
    uses.sort_by(|(one, a), (other, b)| b.requests.cmp(&a.requests).then(one.cmp(other)));
    uses.truncate(ROW_COUNT_MAX);
    uses
}

/// Of a mount: since the last such question. It goes on to record for so long.
pub(super) fn of_mount(mount: &Entry, record: Duration) -> Result<Vec<Hot>> {
    let record_ms = u32::try_from(record.as_millis()).unwrap_or(u32::MAX);
    let answers = control::ask(mount, &Question::Record { record_ms }.encode())?;
    let read = |answer: &Vec<u8>| Snapshot::decode(answer).ok();
    let lanes: Option<Vec<Snapshot>> = answers.iter().map(read).collect();
    let lanes = lanes.with_context(|| format!("the mount process {} errs", mount.pid))?;
    let total = Snapshot::total(&lanes);
    let number = |row: &Row, label| row.label(label).and_then(|text| text.parse::<u64>().ok());
    let mut processes = Processes::default();
    let mut uses: HashMap<Option<u64>, Use> = HashMap::new();
    for row in total.rows(By::Call) {
        let pid = number(row, Label::Pid).and_then(|pid| u32::try_from(pid).ok());
        pid.into_iter().for_each(|pid| processes.see(pid));
        let (pid, command) = processes.of(pid);
        let user = pid.map_or_else(|| command.clone(), |pid| format!("{command} ({pid})"));
        let counts = [Metric::Requests, Metric::RequestTime].map(|it| row.number(it).unwrap_or(0));
        let op = row.label(Label::Op).unwrap_or_default();
        let used = uses.entry(number(row, Label::Inode)).or_default();
        used.add((counts[0], counts[1]), op, user);
    }
    let uses = first(uses);
    let paths = Paths::of(mount, uses.iter().filter_map(|(inode, _)| *inode))?;
    let path = |inode: Option<u64>| {
        inode.map_or_else(|| UNKNOWN.to_owned(), |inode| paths.prefix(inode, usize::MAX))
    };
    Ok(uses.into_iter().map(|(inode, used)| used.hot(path(inode))).collect())
}

/// Of a server: the samples of the last interval.
pub(super) fn of_server(
    volume: &mut Volume,
    (address, elapsed): (&str, Duration),
) -> Result<Vec<Hot>> {
    let elapsed_us = u64::try_from(elapsed.as_micros()).unwrap_or(u64::MAX);
    let mut uses: HashMap<(u64, Vec<u8>), Use> = HashMap::new();
    for trace in volume.traces()?.into_iter().flat_map(|lane| lane.requests) {
        let is_new = trace.age_us.saturating_sub(trace.total_us()) <= elapsed_us;
        let Some(inode) = trace.inode.filter(|_| is_new && trace.kept != Kept::Waiting) else {
            continue;
        };
        let op = trace.op.map_or("?", |op| op.row().name);
        let used = uses.entry((inode.0, trace.name.clone())).or_default();
        used.add((1, trace.total_us()), op, why::client_text(&trace.client));
    }
    let uses = first(uses);
    let all = running::all().unwrap_or_default();
    let mut mounts = all.iter().map(|found| &found.entry);
    let mount = mounts.find(|entry| {
        entry.kind == Kind::Mount && entry.mounted && entry.address.as_deref() == Some(address)
    });
    let inodes = uses.iter().map(|((inode, _), _)| *inode);
    let paths = mount.and_then(|mount| Paths::of(mount, inodes).ok()).unwrap_or_default();
    let path = |(inode, name): (u64, Vec<u8>)| {
        let dir = paths.prefix(inode, usize::MAX);
        if name.is_empty() {
            return dir;
        }
        let name = String::from_utf8_lossy(&name);
        format!("{}/{}", dir.trim_end_matches('/'), name.escape_debug())
    };
    Ok(uses.into_iter().map(|(key, used)| used.hot(path(key))).collect())
}
