//! What a lane answers about requests: those that it has kept, and those that wait in it.

use super::{Done, LateReply, LockWait, Open};
use crate::Lane;
use crate::request_header::{Target, Times};
use crate::session::State;
use crate::waiters::{Cause, Waiter};
use alloc::collections::BTreeSet;
use alloc::string::{String, ToString as _};
use alloc::vec::Vec;
use interface::Mono;
use wire::counters::Label;
use wire::traces::{Kept, NAME_BYTES_SHOWN, Party, RequestTrace, Traces, Wait, WaitCause};
use wire::{
    ClientUuid, Create, Executor, HEADER_BYTES, InodeNo, Link, Lookup, Mkdir, Mknod, Op, Rename,
    Rmdir, SessionId, Symlink, Unlink, Wire as _,
};

/// Requests that wait, at most, of each of two kinds.
const WAITING_COUNT_MAX: usize = 256;
/// Parties that are named, at most.
const PARTY_COUNT_MAX: usize = 8;

/// A request that waits.
#[derive(Clone, Copy, Debug)]
pub(super) struct WaitingTrace {
    pub(super) times: Times,
    /// For what; `None`: the trace says that.
    cause: Option<WaitCause>,
}

impl Lane {
    /// All that is known of requests.
    pub(crate) fn request_traces(&mut self, now: Mono) -> Traces {
        let mut requests = self.waiting_requests(now);
        requests.extend(self.file_lock_waits(now));
        let kept = self.traces.slow.iter().rev().chain(self.traces.samples.iter().rev());
        requests.extend(kept.map(|done| self.kept_request(done, now)));
        let lock_waits = self.traces.lock_waits.iter().rev();
        requests.extend(lock_waits.map(|ended| self.ended_lock_wait(ended, now)));
        let late_replies = self.traces.late_replies.iter().rev();
        requests.extend(late_replies.map(|late| self.late_reply(late, now)));
        Traces { lane: self.config.lane.0, requests }
    }

    fn kept_request(&self, done: &Done, now: Mono) -> RequestTrace {
        let Done { kept, open, client, phases_us, flush_us, reply_us, status, .. } = done;
        let [queue_us, execution_us, commit_us] = *phases_us;
        let mut trace = self.described(open, *client, now);
        let executed_us = queue_us + execution_us;
        let mut add = |cause, begun_us, took_us| {
            if took_us > 0 {
                let (is_now, whom) = (false, Vec::new());
                trace.waits.push(Wait { cause, begun_us, took_us, is_now, whom });
            }
        };
        add(executing(open.names.op), queue_us, execution_us);
        add(committing(open.names.is_data), executed_us, commit_us);
        add(WaitCause::Reply, executed_us + commit_us, *reply_us);
        RequestTrace {
            kept: *kept,
            queue_us,
            execution_us,
            commit_us,
            reply_us: *reply_us,
            flush_us: *flush_us,
            status: Some(*status),
            ..trace
        }
    }

    /// The requests that wait, the oldest first.
    fn waiting_requests(&self, now: Mono) -> Vec<RequestTrace> {
        let mut all = self.waiting_traces();
        all.sort_by_key(|waiting| waiting.times.arrived);
        let waiting = all.into_iter().filter_map(|waiting| {
            let index = waiting.times.trace.index()?;
            let open = self.traces.open.get(index)?.as_ref()?;
            Some(self.waiting_request(waiting, open, now))
        });
        waiting.take(WAITING_COUNT_MAX).collect()
    }

    fn waiting_request(
        &self,
        WaitingTrace { times, cause }: WaitingTrace,
        open: &Open,
        now: Mono,
    ) -> RequestTrace {
        let client = self.sessions.client_of(open.names.session).unwrap_or_default();
        let mut trace = self.described(open, client, now);
        let Some(cause) = cause else {
            // It is executed when the wait is over.
            return RequestTrace { queue_us: trace.age_us, ..trace };
        };
        let [queue_us, execution_us, commit_us] = times.phases_us(now);
        let took_us = if commit_us > 0 { commit_us } else { execution_us };
        let begun_us = trace.age_us.saturating_sub(took_us);
        let (is_now, whom) = (true, Vec::new());
        trace.waits.push(Wait { cause, begun_us, took_us, is_now, whom });
        let is_log = matches!(cause, WaitCause::Batch | WaitCause::Write);
        let flush_us = if is_log { self.commit.flush_age_us(now).min(took_us) } else { 0 };
        RequestTrace { queue_us, execution_us, commit_us, flush_us, ..trace }
    }

    fn described(&self, open: &Open, client: ClientUuid, now: Mono) -> RequestTrace {
        let Open { names, arrived, ahead_count, frame, waits } = open;
        let (inode, name) = subject(names.op, frame);
        let since_us = |at: Mono| at.since_ns(*arrived) / 1000;
        let waits = waits.iter().map(|wait| Wait {
            cause: wait.cause,
            begun_us: since_us(wait.begun),
            took_us: wait.ended.unwrap_or(now).since_ns(wait.begun) / 1000,
            is_now: wait.ended.is_none(),
            whom: wait.whom.iter().take(PARTY_COUNT_MAX).map(|it| self.party(*it, 0)).collect(),
        });
        RequestTrace {
            op: Some(names.op),
            client: self.party(client, 0),
            export: self.label(client, Label::Export),
            inode,
            name,
            session: names.session,
            xid: names.xid,
            trace_id: names.trace_id,
            age_us: since_us(now),
            ahead_count: u64::from(*ahead_count),
            waits: waits.collect(),
            ..RequestTrace::default()
        }
    }

    /// Waits for locks on files: their requests were answered when the waits began.
    fn file_lock_waits(&self, now: Mono) -> Vec<RequestTrace> {
        let waits = self.metas.iter().flat_map(|meta| meta.shown_lock_waits());
        let traces = waits.take(WAITING_COUNT_MAX).map(|wait| {
            let age_us = now.since_ns(Mono(wait.since_ns)) / 1000;
            let blockers = wait.blockers.iter().take(PARTY_COUNT_MAX);
            let whom = blockers.map(|(client, pid)| self.party(*client, *pid)).collect();
            let (cause, begun_us, took_us) = (WaitCause::FileLock, 0, age_us);
            RequestTrace {
                kept: Kept::Waiting,
                op: Some(Op::SetLock),
                client: self.party(wait.client, wait.pid),
                export: self.label(wait.client, Label::Export),
                inode: Some(wait.inode),
                session: wait.session,
                age_us,
                execution_us: age_us,
                waits: [Wait { cause, begun_us, took_us, is_now: true, whom }].into(),
                ..RequestTrace::default()
            }
        });
        traces.collect()
    }

    fn ended_lock_wait(&self, LockWait { wait, ended }: &LockWait, now: Mono) -> RequestTrace {
        let since = Mono(wait.since_ns);
        let took_us = ended.since_ns(since) / 1000;
        let whom = wait.blocker.map(|(client, pid)| self.party(client, pid));
        let (cause, begun_us, whom) = (WaitCause::FileLock, 0, whom.into_iter().collect());
        RequestTrace {
            kept: Kept::Slow,
            op: Some(Op::SetLock),
            client: self.party(wait.client, wait.pid),
            export: self.label(wait.client, Label::Export),
            inode: Some(wait.inode),
            session: wait.session,
            age_us: now.since_ns(since) / 1000,
            execution_us: took_us,
            status: Some(wait.status),
            waits: [Wait { cause, begun_us, took_us, is_now: false, whom }].into(),
            ..RequestTrace::default()
        }
    }

    fn late_reply(&self, late: &LateReply, now: Mono) -> RequestTrace {
        let LateReply { session, client, took_us, ended } = *late;
        let (cause, begun_us, whom) = (WaitCause::Reply, 0, Vec::new());
        RequestTrace {
            kept: Kept::Slow,
            client: self.party(client, 0),
            export: self.label(client, Label::Export),
            session,
            age_us: now.since_ns(ended) / 1000 + took_us,
            reply_us: took_us,
            waits: [Wait { cause, begun_us, took_us, is_now: false, whom }].into(),
            ..RequestTrace::default()
        }
    }

    fn label(&self, client: ClientUuid, label: Label) -> String {
        self.accounts.label(client, label).unwrap_or_default().to_string()
    }

    fn party(&self, client: ClientUuid, pid: u32) -> Party {
        let (host, job) = (self.label(client, Label::Host), self.label(client, Label::Job));
        // The one that the client reports, as its account has it.
        let reported = u128::from_str_radix(&self.label(client, Label::Client), 16);
        let client =
            reported.map_or_else(|_| ClientUuid::default(), |it| ClientUuid(it.to_be_bytes()));
        Party { client, host, job, pid }
    }

    /// The clients of sessions.
    pub(crate) fn clients_of(&self, sessions: &[SessionId]) -> Vec<ClientUuid> {
        let clients: BTreeSet<ClientUuid> =
            sessions.iter().filter_map(|session| self.sessions.client_of(*session)).collect();
        clients.into_iter().collect()
    }

    /// The requests that are not answered.
    pub(super) fn waiting_traces(&self) -> Vec<WaitingTrace> {
        let mut all = Vec::new();
        for (cause, waiter) in self.waiters.all() {
            let (times, cause) = match waiter {
                Waiter::Slot(slot_id) => {
                    let table = self.sessions.table((slot_id.shard, slot_id.session));
                    let slot = table.and_then(|table| table.at(slot_id.slot));
                    let Some(State::Deferred(Target { times, .. }, ..)) =
                        slot.map(|slot| &slot.state)
                    else {
                        continue;
                    };
                    (*times, traced(cause))
                }
                Waiter::Reply(reply) => (reply.header.times, traced(cause)),
                Waiter::Suspended(suspended) => (suspended.times, None),
                Waiter::Received(received) => (received.times, None),
                Waiter::Size(..) | Waiter::Part(..) | Waiter::Step(_) | Waiter::Grant(_) => {
                    continue;
                }
            };
            all.push(WaitingTrace { times, cause });
        }
        let answers = self.waiters.answers.headers();
        all.extend(answers.map(|header| {
            let cause = Some(executing(header.op));
            WaitingTrace { times: header.times, cause }
        }));
        all.extend(self.txns.slots().filter_map(|slot_id| {
            let table = self.sessions.table((slot_id.shard, slot_id.session))?;
            let State::Running(Target { times, .. }) = table.at(slot_id.slot)?.state else {
                return None;
            };
            Some(WaitingTrace { times, cause: Some(WaitCause::Participants) })
        }));
        all
    }
}

/// What a request waits for while it is executed.
fn executing(op: Op) -> WaitCause {
    match op.row().executor {
        Executor::Data | Executor::Lane => WaitCause::Contents,
        Executor::Metadata | Executor::Locks => WaitCause::Participants,
    }
}

/// What a reply waits for.
const fn committing(is_data: bool) -> WaitCause {
    if is_data { WaitCause::Write } else { WaitCause::Batch }
}

/// The cause of a wait as it is shown.
pub(crate) const fn shown(cause: &Cause) -> WaitCause {
    match cause {
        Cause::Batch(_) => WaitCause::Batch,
        Cause::Write(..) | Cause::Unwritten(..) => WaitCause::Write,
        Cause::Lock(..) => WaitCause::Lock,
        Cause::Rows(..) => WaitCause::Rows,
        Cause::Containment => WaitCause::Containment,
        Cause::Reopening => WaitCause::Reopening,
        Cause::Recovery => WaitCause::Recovery,
        Cause::Freeze => WaitCause::Freeze,
        Cause::Lease(_) | Cause::Barrier(_) => WaitCause::Lease,
    }
}

/// The same for a reply, unless its trace says it itself.
const fn traced(cause: &Cause) -> Option<WaitCause> {
    if matches!(cause, Cause::Barrier(_)) { None } else { Some(shown(cause)) }
}

/// The inode and the name that a request has, if its frame was kept as a whole.
fn subject(op: Op, frame: &[u8]) -> (Option<InodeNo>, Vec<u8>) {
    macro_rules! named {
        ($body:ident: $($op:ident),*) => {
            match op {
                $(Op::$op => $op::decode_all($body).ok().map(|ask| ask.name.bytes().to_vec()),)*
                _ => None,
            }
        };
    }
    let Some(body) = frame.get(HEADER_BYTES..) else { return (None, Vec::new()) };
    let name = named!(body: Lookup, Create, Mkdir, Mknod, Symlink, Link, Unlink, Rmdir, Rename);
    let mut name = name.unwrap_or_default();
    name.truncate(NAME_BYTES_SHOWN);
    (op.inodes(body)[0], name)
}
