//! A request as a whole: what the mount knows of it, and what servers know.
//!
//! They are joined by session and trace id. A server takes a session from its own client only, so that no
//! client can put anything into the story of another one.

use super::shown::Shown;
use crate::control;
use crate::paths::Paths;
use crate::processes::Processes;
use crate::running::Entry;
use anyhow::{Context as _, Result};
use library::SessionId;
use library::traces::{CallTrace, CallTraces, Kept, Step, StepCause};
use std::collections::HashMap;
use wire::{ClientUuid, Question};

/// A request of the kernel, as its mount knows it.
#[derive(Clone, Debug)]
pub(super) struct Call {
    /// The mount's directory.
    pub(super) mount: String,
    /// Its uuid, as servers know it.
    pub(super) client: ClientUuid,
    pub(super) trace: CallTrace,
    /// The process, and the name of its command.
    pub(super) pid: Option<u32>,
    pub(super) command: String,
    /// What it is about, below the mount.
    pub(super) path: String,
}

/// A request, from the caller to the disk and back.
#[derive(Clone, Debug)]
pub(super) struct Story {
    /// `None`: of a client that is no mount here.
    pub(super) call: Option<Call>,
    /// What servers know of it.
    pub(super) shown: Vec<Shown>,
}

impl Story {
    pub(super) fn kept(&self) -> Kept {
        match (&self.call, self.shown.first()) {
            (Some(call), _) => call.trace.kept,
            (None, shown) => shown.map_or(Kept::Sample, |shown| shown.trace.kept),
        }
    }

    pub(super) fn total_us(&self) -> u64 {
        let of_servers = self.shown.iter().map(|shown| shown.trace.total_us()).max();
        self.call.as_ref().map_or(of_servers.unwrap_or(0), |call| call.trace.total_us)
    }

    /// What the server knows of a step.
    pub(super) fn at_server(&self, step: &Step) -> Option<&Shown> {
        if step.cause == StepCause::FileLock {
            return self.shown.iter().find(|shown| key_at_server(shown).1 == 0);
        }
        let key = key_of(step)?;
        self.shown.iter().find(|shown| key_at_server(shown) == key)
    }
}

fn key_of(step: &Step) -> Option<(SessionId, u64)> {
    let exchange = step.exchange?;
    (exchange.trace_id > 0).then_some((exchange.session, exchange.trace_id))
}

fn key_at_server(shown: &Shown) -> (SessionId, u64) {
    (shown.trace.session, shown.trace.trace_id)
}

/// What a mount remembers.
pub(super) fn calls_of(mount: &Entry) -> Result<Vec<Call>> {
    let answers = control::ask(mount, &Question::Traces.encode())?;
    let read = |answer: &Vec<u8>| CallTraces::decode(answer).ok();
    let lanes: Option<Vec<CallTraces>> = answers.iter().map(read).collect();
    let lanes = lanes
        .with_context(|| format!("the mount process {} has sent something else", mount.pid))?;
    let client = lanes.first().map(|lane| lane.client).unwrap_or_default();
    let traces: Vec<CallTrace> = lanes.into_iter().flat_map(|lane| lane.calls).collect();
    let paths = Paths::of(mount, traces.iter().filter_map(|trace| Some(trace.inode?.0)))?;
    let mut processes = Processes::default();
    traces.iter().for_each(|trace| processes.see(trace.pid));
    let dir = mount.dir.clone().unwrap_or_default();
    let calls = traces.into_iter().map(|trace| {
        let (pid, command) = processes.of(Some(trace.pid));
        let path = path_of(&paths, &trace);
        Call { mount: dir.clone(), client, trace, pid, command, path }
    });
    Ok(calls.collect())
}

fn path_of(paths: &Paths, trace: &CallTrace) -> String {
    let Some(inode) = trace.inode else { return String::new() };
    let path = paths.prefix(inode.0, usize::MAX);
    if trace.name.is_empty() {
        return path;
    }
    let name = String::from_utf8_lossy(&trace.name);
    format!("{}/{}", path.trim_end_matches('/'), name.escape_debug())
}

/// Puts both sides together.
pub(super) fn stories(calls: Vec<Call>, shown: Vec<Shown>) -> Vec<Story> {
    let mut at_servers: HashMap<(SessionId, u64), Shown> = HashMap::new();
    let mut unnamed = Vec::new();
    let mut stories = Vec::new();
    for shown in shown {
        let key = key_at_server(&shown);
        if key.1 == 0 {
            unnamed.push(shown);
        } else {
            at_servers.insert(key, shown);
        }
    }
    for call in calls {
        let mut shown = Vec::new();
        for key in call.trace.steps.iter().filter_map(key_of) {
            shown.extend(at_servers.remove(&key));
        }
        if let Some(index) = lock_wait_of(&call, &unnamed) {
            shown.push(unnamed.swap_remove(index));
        }
        stories.push(Story { call: Some(call), shown });
    }
    let others = at_servers.into_values().chain(unnamed);
    stories.extend(others.map(|shown| Story { call: None, shown: vec![shown] }));
    stories
}

/// The wait for a lock at the server that a call of a mount waits for: of this client, process and inode, and
/// of several the one that began at the same time.
fn lock_wait_of(call: &Call, unnamed: &[Shown]) -> Option<usize> {
    let trace = &call.trace;
    trace.steps.iter().find(|step| step.cause == StepCause::FileLock)?;
    let is_it = |(_, shown): &(usize, &Shown)| {
        let wait = &shown.trace;
        let of_caller = wait.client.client == call.client && Some(wait.client.pid) == call.pid;
        let is_waiting = [wait.kept, trace.kept].map(|kept| kept == Kept::Waiting);
        of_caller && wait.inode == trace.inode && is_waiting[0] == is_waiting[1]
    };
    let waits = unnamed.iter().enumerate().filter(is_it);
    let nearest = waits.min_by_key(|(_, shown)| shown.trace.age_us.abs_diff(trace.age_us));
    nearest.map(|(index, _)| index)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use library::InodeNo;
    use library::traces::{Exchange, Party, RequestTrace};

    fn shown(session: u64, trace_id: u64) -> Shown {
        let session = SessionId(session);
        Shown { lane: 0, trace: RequestTrace { session, trace_id, ..RequestTrace::default() } }
    }

    fn call(session: u64, trace_id: u64) -> Call {
        let session = SessionId(session);
        let exchange = Some(Exchange { session, trace_id, ..Exchange::default() });
        let step = Step { cause: StepCause::Reply, exchange, ..Step::default() };
        let trace = CallTrace { steps: vec![step], ..CallTrace::default() };
        let (mount, command, path) = ("/mnt".to_owned(), String::new(), String::new());
        Call { mount, client: ClientUuid([1; 16]), trace, pid: Some(1), command, path }
    }

    #[test]
    fn a_wait_for_a_lock_is_joined_by_client_process_and_inode() {
        let wait = |client: u8, pid, inode| {
            let client = Party { client: ClientUuid([client; 16]), pid, ..Party::default() };
            let inode = Some(InodeNo(inode));
            Shown { lane: 0, trace: RequestTrace { client, inode, ..RequestTrace::default() } }
        };
        let mut locking = call(7, 9);
        locking.trace.inode = Some(InodeNo(5));
        locking.trace.steps = vec![Step { cause: StepCause::FileLock, ..Step::default() }];
        let others = vec![wait(2, 1, 5), wait(1, 2, 5), wait(1, 1, 6)];
        assert!(stories(vec![locking.clone()], others.clone())[0].shown.is_empty());
        let all = others.into_iter().chain([wait(1, 1, 5)]).collect();
        let stories = stories(vec![locking], all);
        assert_eq!((stories.len(), stories[0].shown.len()), (4, 1));
        assert!(stories[0].at_server(&stories[0].call.as_ref().unwrap().trace.steps[0]).is_some());
    }

    #[test]
    fn both_sides_are_joined_by_session_and_trace_id() {
        let shown = vec![shown(7, 9), shown(8, 9), shown(7, 0), shown(7, 0)];
        let stories = stories(vec![call(7, 9), call(7, 10)], shown);
        let joined = stories.iter().find(|story| story.call.is_some() && !story.shown.is_empty());
        let joined = joined.map(|story| key_at_server(&story.shown[0]));
        assert_eq!(joined, Some((SessionId(7), 9)));
        let alone = stories.iter().filter(|story| story.call.is_none()).count();
        assert_eq!((alone, stories.len()), (3, 5), "another session is another client");
    }
}
