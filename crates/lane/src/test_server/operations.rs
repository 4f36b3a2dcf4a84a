//! Operations of the test server's store.

use super::TestServer;
use interface::{Action, Errno, LaneTime, Mono, SendTimes, StoreEvent, Usage};
use test_runtime::{Operation, Patch};
use wire::Rules;

/// How the lanes of the test server spend their time.
pub(crate) const LANE_TIME: LaneTime =
    LaneTime { now: Mono(0), cpu_ns: 117, backlog_ns: 118, up_ms: 119, send_times: SEND_TIMES };

/// One send that took nothing, and one that took 20 ms.
const SEND_TIMES: SendTimes = SendTimes { counts: [1, 0, 0, 0, 0, 1, 0, 0], sum_us: 20_000 };

/// The resource usage that the test server reports.
pub(crate) const USAGE: Usage = Usage {
    cpu_ns: 101,
    voluntary_switch_count: 102,
    involuntary_switch_count: 103,
    turn_count: 104,
    syscall_count: 105,
    clock_read_count: 106,
    message_out_count: 107,
    send_count: 108,
    spin_count: 109,
    spin_hit_count: 110,
    turn_ns_max: 111,
    object_offloaded_count: 112,
    object_thread_count: 113,
    resident_kib: 116,
    object_in_flight_max: 114,
    object_in_flight_one_max: 115,
};

/// The kinds of action that can be made to fail.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    Log,
    Read,
    Write,
    Sync,
    Stat,
    Remove,
}

impl Kind {
    const fn of(operation: &Operation) -> Option<Self> {
        match operation {
            Operation::Log { .. } => Some(Self::Log),
            Operation::Patch { patch: Patch::Write { .. }, .. } => Some(Self::Write),
            Operation::Sync { .. } => Some(Self::Sync),
            Operation::Stat { .. } => Some(Self::Stat),
            Operation::Remove { .. } => Some(Self::Remove),
            Operation::Read { .. } | Operation::ReadList { .. } => Some(Self::Read),
            _ => None,
        }
    }
}

impl TestServer {
    /// Limits the memory of names, from the first start on.
    pub(crate) const fn bound_names(&mut self, bytes_max: u64) {
        self.names_bytes_max = Some(bytes_max);
    }

    pub(crate) const fn has_bounded_names(&self) -> bool {
        self.names_bytes_max.is_some()
    }

    /// The number of row reads.
    pub(crate) const fn row_read_count(&self) -> usize {
        self.store.rows.read_count
    }

    /// Applies some batches of the logs to the rows.
    pub(super) fn checkpoint(&mut self) {
        if !self.has_bounded_names() || self.rng.usize(..10) != 0 {
            return;
        }
        for _ in 0..self.rng.usize(..4) {
            let Some(applied) = self.store.advance(Rules::default()) else { return };
            let (lane, applied) = applied.unwrap();
            for (shard, lsn, transno) in applied {
                let event = StoreEvent::Checkpointed { shard, lsn, transno };
                self.hosts[lane].state.deliver(event);
            }
        }
    }

    /// An action that takes time begins.
    pub(super) fn begin(&mut self, index: usize, action: Action) {
        let host = &mut self.hosts[index];
        let operation = Operation::of(action, host.log, &host.state, self.store.patch_count());
        if let Operation::LoadWrite { .. } = operation {
            let loaded = self.store.complete(operation, Ok(()));
            return host.state.deliver(loaded);
        }
        let logging = operation.is_log() && host.operations.iter().any(Operation::is_log);
        assert!(!logging, "one append at a time");
        host.operations.push(operation);
    }

    /// Ends a lane's append.
    pub(crate) fn land_log(&mut self, index: usize) {
        let found = self.hosts[index].operations.iter().position(Operation::is_log);
        self.end(index, found.unwrap());
    }

    /// Ends all actions on a lane's objects, but not its append.
    pub(crate) fn land_objects(&mut self, index: usize) {
        let is_other = |operation: &Operation| !operation.is_log();
        while let Some(found) = self.hosts[index].operations.iter().position(is_other) {
            self.end(index, found);
            self.run_turns_only(index);
        }
    }

    /// Ends a random operation.
    pub(super) fn end_some(&mut self, index: usize) {
        let at = self.rng.usize(..self.hosts[index].operations.len());
        let logs = self.hosts[index].operations[at].is_log();
        if logs && self.log_slowness > 0 && self.rng.usize(..self.log_slowness) != 0 {
            return;
        }
        self.end(index, at);
    }

    fn end(&mut self, index: usize, at: usize) {
        let operation = self.hosts[index].operations.remove(at);
        let kind = Kind::of(&operation);
        let fails = self.failing.iter().position(|(failing, _)| Some(*failing) == kind);
        let failed = fails.map(|at| self.failing.remove(at).1);
        let incoming = match operation {
            Operation::Log { ticket, ref batch, .. } => {
                if self.has_bounded_names() {
                    self.store.rows.behind.push_back((index, batch.clone()));
                }
                // A failed append has written the whole batch.
                let appended = self.store.complete(operation, Ok(()));
                let failed = failed.map(|errno| StoreEvent::Logged { ticket, result: Err(errno) });
                failed.map_or(appended, Into::into)
            }
            other => self.store.complete(other, failed.map_or(Ok(()), Err::<(), Errno>)),
        };
        self.hosts[index].state.deliver(incoming);
    }
}
