//! Writes that a client's mount answers before the server has executed them: one at a time for each
//! mount, at the end of a file that it has created, under a write lease. Meanwhile its other calls
//! wait, as those do that concern the file in a real mount.
//!
//! Such a write is certain from its early answer on, unless its client dies, or the server has taken
//! the lease from a silent client.

use crate::due::ServerLaneId;
use crate::simulation::Simulation;
use crate::work::{CallSpec, Tag};
use client::RecalledKey;
use std::collections::{BTreeMap, BTreeSet};
use wire::InodeNo;

/// The early writes of a mount.
#[derive(Default, Debug)]
pub(crate) struct EarlyWrites {
    /// The files that may be written so: the lane that has the lease, and their size.
    files: BTreeMap<InodeNo, (usize, u64)>,
    /// The write under way.
    pub(crate) under_way: Option<(Tag, InodeNo)>,
    /// The server has taken its lease.
    is_taken: bool,
    /// Writes that failed after their answer.
    failed: BTreeSet<Tag>,
    /// Files that lanes no longer write so; the server is told when nothing is under way.
    ended: Vec<(usize, InodeNo)>,
}

impl EarlyWrites {
    /// A lane has created a file, and may write it early.
    pub(crate) fn grant(&mut self, lane: usize, inode: InodeNo) {
        self.files.insert(inode, (lane, 0));
    }

    /// The file that was created last of those that may be written early.
    pub(crate) fn latest(&self) -> Option<InodeNo> {
        self.files.last_key_value().map(|(inode, _)| *inode)
    }

    /// A call is about to begin. Where its bytes will be, if it is answered early.
    pub(crate) fn begin(&mut self, tag: Tag, spec: &CallSpec) -> Option<u64> {
        let changed = match *spec {
            CallSpec::Write { inode, file_offset, append, write_bytes, sync, .. } => {
                let (_, size_bytes) = self.files.get_mut(&inode)?;
                let at = *size_bytes;
                if (append || file_offset == at) && !sync {
                    *size_bytes += write_bytes;
                    (self.under_way, self.is_taken) = (Some((tag, inode)), false);
                    return Some(at);
                }
                Some(inode)
            }
            CallSpec::WriteList { inode, .. } | CallSpec::Resize { inode, .. } => Some(inode),
            _ => None,
        };
        changed.into_iter().for_each(|inode| self.end(inode));
        None
    }

    /// No write of a file is answered early any more.
    pub(crate) fn end(&mut self, inode: InodeNo) {
        if let Some((lane, _)) = self.files.remove(&inode) {
            self.ended.push((lane, inode));
        }
    }

    /// The files of a lane of which nothing is under way any more.
    pub(crate) fn take_ended(&mut self, lane: usize) -> Vec<InodeNo> {
        let busy = self.under_way.map(|(_, inode)| inode);
        let ready = self.ended.extract_if(.., |(of, inode)| *of == lane && Some(*inode) != busy);
        ready.map(|(_, inode)| inode).collect()
    }

    /// Whether a recall must wait for the write under way.
    pub(crate) fn delays(&self, keys: &[RecalledKey]) -> bool {
        let busy = self.under_way.map(|(_, inode)| RecalledKey::Writing(inode));
        busy.is_some_and(|busy| keys.contains(&busy))
    }

    /// Whether a write that was answered early may never be executed.
    fn may_lack(&self, tag: Tag, alive: bool) -> bool {
        let is_under_way = self.under_way.is_some_and(|(under_way, _)| under_way == tag);
        self.failed.contains(&tag) || (is_under_way && (self.is_taken || !alive))
    }

    /// The write under way is over.
    pub(crate) fn answered(&mut self, tag: Tag, ok: bool) {
        self.under_way = None;
        if !ok {
            self.failed.insert(tag);
        }
    }
}

impl Simulation {
    /// Whether a write that was answered early may never be executed.
    pub(crate) fn may_lack_early(&self, tag: Tag) -> bool {
        self.mounts.iter().any(|mount| mount.early.may_lack(tag, mount.alive))
    }

    /// A server lane has taken a turn: it may have taken write leases.
    pub(crate) fn see_taken_leases(&mut self, (server, lane): ServerLaneId) {
        let Some(lane) = self.servers[server].lanes.get(lane) else { return };
        for early in self.mounts.iter_mut().map(|mount| &mut mount.early) {
            if let Some((_, inode)) = early.under_way
                && lane.core.has_taken_writing(inode)
            {
                early.is_taken = true;
            }
        }
    }

    /// A write that was answered early has been executed, or was not.
    pub(crate) fn end_early(&mut self, client: usize, tag: Tag, ok: bool) {
        self.mounts[client].early.answered(tag, ok);
        for lane in 0..self.mounts[client].lanes.len() {
            self.schedule_turn(crate::due::Place::Client(client, lane));
        }
    }
}
