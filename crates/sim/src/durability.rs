//! The acknowledged calls that must have taken effect despite all crashes.
//!
//! An acknowledged call is certain if its client is alive to replay it, if the server replies only
//! when the change is durable, or if a sync completed after it. A client that the server continued
//! without may have lost acknowledged calls, and so may every client if the disk lied.

use crate::bytes::TimedChange;
use crate::due::ClientLaneId;
use crate::simulation::Simulation;
use crate::work::{CallRecord, CallSpec, Tag};
use client::Report;
use wire::{InodeNo, ShardId};

/// The server waits for a client that is absent for less time.
const PATIENCE_NS: u64 = 5_000_000_000;

impl Simulation {
    /// Whether the effect of the call must survive every crash.
    pub(crate) fn is_certain(&self, call: &CallRecord) -> bool {
        if call.result().is_none() || self.lying_disk.may_have_lost(call.client, call.began_ns) {
            return false;
        }
        let mount = &self.mounts[call.client];
        // A peer lane may learn of the eviction only after frames that the server sent before it.
        let evicted = mount.evicted_ns.is_some_and(|ns| call.began_ns <= ns);
        !self.plan.shared()
            || (mount.alive && !evicted && !mount.was_late)
            || is_synchronous(&call.spec)
    }

    /// Whether a sync at the shard came after the call was answered.
    pub(crate) fn is_synced(&self, call: &CallRecord, shard: ShardId) -> bool {
        let life = call.ended_lives[self.server_of(shard)];
        let synced_ns = self.synced.get(&(shard, life)).copied().unwrap_or(0);
        call.ended_ns.is_some_and(|ended_ns| ended_ns < synced_ns)
    }

    /// A sync completed: what the same server processes answered before it began is durable.
    pub(crate) fn record_sync(&mut self, call: &CallRecord) {
        let CallSpec::Sync { inode, contents } = call.spec else { return };
        if call.result().is_none() || call.began_lives != call.ended_lives {
            return;
        }
        let life = call.ended_lives[self.server_of(inode.shard())];
        let synced_ns = self.synced.entry((inode.shard(), life)).or_default();
        *synced_ns = call.began_ns.max(*synced_ns);
        if contents {
            let synced_ns = self.synced_files.entry((inode, call.ended_lives)).or_default();
            *synced_ns = call.began_ns.max(*synced_ns);
        }
    }

    /// The changes of a file, as far as a read that begins at `read_began_ns` can rely on them.
    pub(crate) fn changes_of(&self, inode: InodeNo, read_began_ns: u64) -> Vec<TimedChange> {
        let changes = self.file_changes.get(&inode).map_or(&[][..], Vec::as_slice);
        let is_kept = |tag: Tag, change: &TimedChange| {
            let ended_ns = change.ended_ns.filter(|_| change.certain);
            let (Some(ended_ns), Some(call)) = (ended_ns, self.call_of(tag)) else { return false };
            if self.may_lack_early(tag) {
                return false;
            }
            let synced_ns = self.synced_files.get(&(inode, call.ended_lives));
            synced_ns.is_some_and(|synced_ns| ended_ns < *synced_ns) || self.is_certain(call)
        };
        changes
            .iter()
            .map(|(tag, change)| {
                let kept = is_kept(*tag, change);
                let certain = kept && change.ended_ns.is_some_and(|ns| ns < read_began_ns);
                TimedChange { certain, kept, ..*change }
            })
            .collect()
    }

    /// A client, or a server lane, is unreachable for so long.
    pub(crate) fn record_absence(&mut self, client: Option<usize>, span_ns: u64) {
        let late = span_ns > PATIENCE_NS;
        self.absent |= late;
        if let Some(client) = client.filter(|_| late) {
            self.mounts[client].was_late = true;
        }
    }

    /// A client reports to its user, mostly that acknowledged calls are lost.
    pub(crate) fn on_report(&mut self, client_lane: ClientLaneId, report: &Report) {
        let client = client_lane.0;
        self.log_line(|| format!("client {client} reports: {report}"));
        let others_lost = self.server_ever_off() && self.mounts.iter().any(|mount| !mount.alive);
        let excused = self.absent || others_lost || self.lying_disk.is_any();
        if !matches!(report, Report::TooManyFiles { .. }) {
            self.lying_disk.alarm(client_lane);
        }
        match report {
            // No acknowledged call is lost.
            Report::TooManyFiles { .. } => {}
            Report::RolledBack { shard, .. } => {
                self.lying_disk.stop(client_lane);
                if !self.lying_disk.is_lost(client_lane, *shard) {
                    self.violates(format!("a false alarm at client {client_lane:?}: {report}"));
                }
            }
            // The simulation uses no TLS.
            Report::NotConnected { .. } => self.violates(format!("client {client}: {report}")),
            Report::Evicted { .. } | Report::ReplayRefused { .. } | Report::LockLost { .. } => {
                self.mounts[client].evicted_ns = Some(self.now_ns);
                if !excused {
                    self.violates(format!("I6: client {client}, which was never absent: {report}"));
                }
            }
        }
    }

    fn server_ever_off(&self) -> bool {
        self.plan.share == lane::Share::Off || self.plan.share_changes
    }
}

const fn is_synchronous(spec: &CallSpec) -> bool {
    matches!(spec, CallSpec::Write { sync: true, .. } | CallSpec::WriteList { sync: true, .. })
}
