//! Changes that a client's mount answers before the server has executed them: one at a time for each
//! mount, writes at the end of a file that it has created, or opened alone, and changes of its mode, under a write
//! lease; and names in directories that it has made ([`crate::early_names`]). Meanwhile its other calls wait, as those do that concern the file in a real mount.
//!
//! Such a change is certain from its early answer on, unless its client dies, or the server has taken
//! the lease from a silent client. A client that looks at the file after the early answer of a change
//! of its mode sees that, or a later one.

use crate::due::ServerLaneId;
use crate::early_names::{EarlyAnswer, EarlyDirectory};
use crate::privileges::has_set_id;
use crate::simulation::Simulation;
use crate::work::{CallRecord, CallSpec, Tag};
use client::{Answer, Call, CallId, Client, RecalledKey};
use interface::{Mono, Object, Turn};
use std::collections::BTreeMap;
use wire::{Attr, FileKind, InodeNo, Status, Transno};

/// Begins a call. A client that caches begins half of its syncs as a mount does while the file is being
/// written: the data shard is asked twice.
pub(crate) fn begin_call(
    core: &mut Client,
    turn: &mut Turn<'_>,
    (id, call): (CallId, Call<'_>),
    caches: bool,
) {
    if let Call::Sync(sync) = call
        && caches
        && sync.contents
        && id.0.is_multiple_of(2)
    {
        core.call(turn, id, Call::SyncAhead(sync));
        return core.sync_contents(turn, id, Ok(()));
    }
    core.call(turn, id, call);
}

/// An answer that has shown attributes of a file, and when its call began; or a change of its mode, and
/// when it was answered early.
#[derive(Clone, Copy, Debug)]
struct Dated {
    client: usize,
    inode: InodeNo,
    at_ns: u64,
    version: Transno,
}

/// The size of a file that was shown, and when its call began; or where a write at the end was made that
/// was answered early, and when.
#[derive(Clone, Copy, Debug)]
struct Sized {
    client: usize,
    inode: InodeNo,
    at_ns: u64,
    size_bytes: u64,
}

/// What clients have seen of the files whose modes were changed early, or which were written early.
#[derive(Default, Debug)]
pub(crate) struct EarlyModes {
    looks: Vec<Dated>,
    changes: Vec<Dated>,
    sizes: Vec<Sized>,
    writes: Vec<Sized>,
}

/// The early changes of a mount.
#[derive(Default, Debug)]
pub(crate) struct EarlyWrites {
    /// The files that may be written so: the lane that has the lease, and their size.
    files: BTreeMap<InodeNo, (usize, u64)>,
    /// The directories whose names may be changed so.
    pub(crate) directories: BTreeMap<InodeNo, EarlyDirectory>,
    /// Files that were opened so.
    pub(crate) opened_count: u64,
    /// Changes of names in directories that are at another shard than their parents.
    pub(crate) elsewhere_count: u64,
    /// The change under way, and the file or directory that it is about.
    pub(crate) under_way: Option<(Tag, InodeNo)>,
    /// The last file that was created so.
    pub(crate) last_new: Option<InodeNo>,
    /// The server has taken its lease.
    is_taken: bool,
    /// Changes that failed after their answer, and how.
    failed: BTreeMap<Tag, Status>,
    /// Files that lanes no longer write so; the server is told when nothing is under way.
    pub(crate) ended: Vec<(usize, InodeNo)>,
}

impl EarlyWrites {
    /// A lane has created a file, and may write it early.
    pub(crate) fn grant(&mut self, lane: usize, inode: InodeNo) {
        self.files.insert(inode, (lane, 0));
    }

    /// A lane has opened a file for writing, and may write it early, unless it has set-id bits, or another
    /// call of the mount may have set them or changed its size since: the reply has shown an earlier one.
    pub(crate) fn grant_opened(
        &mut self,
        (lane, attr): (usize, Attr),
        opened: &CallRecord,
        calls: &[CallRecord],
    ) {
        let may_resize = |call: &&CallRecord| {
            let changed = match call.spec {
                CallSpec::Write { inode, .. }
                | CallSpec::WriteList { inode, .. }
                | CallSpec::Resize { inode, .. }
                | CallSpec::Allocate { inode, .. } => Some(inode),
                CallSpec::Setattr { inode, mode } if has_set_id(mode) => Some(inode),
                _ => None,
            };
            changed == Some(attr.inode)
                && call.client == opened.client
                && call.ended_ns.is_none_or(|at_ns| at_ns >= opened.began_ns)
        };
        if attr.is_size_at_data()
            || has_set_id(attr.mode)
            || calls.iter().any(|call| may_resize(&call))
        {
            return self.ended.push((lane, attr.inode));
        }
        self.opened_count += 1;
        self.files.insert(attr.inode, (lane, attr.size_bytes));
    }

    /// The file that was created last of those that may be written early.
    pub(crate) fn latest(&self) -> Option<InodeNo> {
        self.files.last_key_value().map(|(inode, _)| *inode)
    }

    /// A call is about to begin beside others. What its caller is told, if it is answered early.
    pub(crate) fn begin(
        &mut self,
        (tag, spec): (Tag, &CallSpec),
        others: &[CallSpec],
        lane: (&mut Client, Mono),
    ) -> Option<EarlyAnswer> {
        if let Some((inode, answer)) = self.begin_name(spec, others, lane) {
            (self.under_way, self.is_taken) = (Some((tag, inode)), false);
            let directory = self.directories.get(&inode);
            let is_elsewhere = directory.is_some_and(|it| it.parent().shard() != inode.shard());
            self.elsewhere_count += u64::from(is_elsewhere);
            return Some(answer);
        }
        self.begin_file(tag, spec).map(EarlyAnswer::At)
    }

    /// Where the bytes of a write will be, or the size of the file.
    fn begin_file(&mut self, tag: Tag, spec: &CallSpec) -> Option<u64> {
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
            // What follows such a change may be refused until the bits are cleared.
            CallSpec::Setattr { inode, mode } if has_set_id(mode) => Some(inode),
            CallSpec::ClearBits { inode } => Some(inode),
            CallSpec::Setattr { inode, .. } => {
                let (_, size_bytes) = *self.files.get(&inode)?;
                (self.under_way, self.is_taken) = (Some((tag, inode)), false);
                return Some(size_bytes);
            }
            CallSpec::WriteList { inode, .. }
            | CallSpec::Resize { inode, .. }
            | CallSpec::Allocate { inode, .. } => Some(inode),
            _ => None,
        };
        changed.into_iter().for_each(|inode| self.end(inode));
        None
    }

    /// Nothing of a file or directory is answered early any more.
    pub(crate) fn end(&mut self, inode: InodeNo) {
        let file = self.files.remove(&inode).map(|(lane, _)| lane);
        let directory = self.directories.remove(&inode).map(|directory| directory.lane);
        self.ended.extend(file.or(directory).map(|lane| (lane, inode)));
    }

    /// The files and directories of a lane of which nothing is under way any more.
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
        self.failed.contains_key(&tag) || (is_under_way && (self.is_taken || !alive))
    }

    /// The write under way is over.
    pub(crate) fn answered(&mut self, tag: Tag, result: Result<(), Status>) {
        self.under_way = None;
        if let Err(status) = result {
            self.failed.insert(tag, status);
        }
    }
}

impl Simulation {
    /// Whether a write that was answered early may never be executed.
    pub(crate) fn may_lack_early(&self, tag: Tag) -> bool {
        self.mounts.iter().any(|mount| mount.early.may_lack(tag, mount.alive))
    }

    /// Whether a change that was answered early was then refused because a disk failed, or because the
    /// lane is fenced since one did (R11.8), and its client was told; or was under way when that died.
    pub(crate) fn has_early_failed(&self, tag: Tag) -> bool {
        self.mounts.iter().any(|mount| {
            let status = mount.early.failed.get(&tag);
            let is_under_way = mount.early.under_way.is_some_and(|(under_way, _)| under_way == tag);
            matches!(status, Some(Status::Io | Status::ReadOnly)) || (is_under_way && !mount.alive)
        })
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

    /// A change that was answered early has been executed, or was not.
    pub(crate) fn end_early(&mut self, client: usize, tag: Tag, result: &Result<Answer, Status>) {
        let is_taken = self.mounts[client].early.is_taken;
        let is_executed = result.as_ref().map(drop).map_err(|status| *status);
        self.mounts[client].early.answered(tag, is_executed);
        self.end_early_name(tag, is_executed, is_taken);
        let (lives, call) = (self.lives(), self.call_of(tag));
        let call = call.and_then(|call| Some((call.ended_ns?, call.began_lives)));
        if let (Ok(Answer::Entry(attr)), Some((at_ns, began_lives))) = (result, call)
            // A restarted server does not know that it has taken the lease.
            && (!is_taken || began_lives == lives)
        {
            let (inode, version) = (attr.inode, attr.version);
            let change = Dated { client, inode, at_ns, version };
            let looks = self.early_modes.looks.clone();
            looks.into_iter().for_each(|look| self.check_early_mode(look, change));
            self.early_modes.changes.push(change);
        }
        if let Ok(Answer::Written(written)) = result {
            self.see_early_write(client, tag, written.file_offset);
        }
        for lane in 0..self.mounts[client].lanes.len() {
            self.schedule_turn(crate::due::Place::Client(client, lane));
        }
    }

    /// A call is answered: it may have shown attributes.
    pub(crate) fn see_modes(&mut self, call: &CallRecord) {
        let looks = matches!(call.spec, CallSpec::Lookup { .. } | CallSpec::Getattr { .. });
        let attr = call.result().and_then(|result| result.attr).filter(|_| looks);
        let Some(attr) = attr.filter(|attr| attr.kind == FileKind::File) else { return };
        let (client, inode, at_ns) = (call.client, attr.inode, call.began_ns);
        // Who looks at a file that is being removed may be told of its attributes before, and of no
        // bytes after that (docs/leases.md).
        let is_removed = attr.size_bytes == 0 && self.has_removed(inode);
        if !attr.is_size_at_data() && !is_removed {
            let look = Sized { client, inode, at_ns, size_bytes: attr.size_bytes };
            let writes = self.early_modes.writes.clone();
            writes.into_iter().for_each(|write| self.check_early_write(look, write));
            self.early_modes.sizes.push(look);
        }
        let look = Dated { client, inode, at_ns, version: attr.version };
        let changes = self.early_modes.changes.clone();
        changes.into_iter().for_each(|change| self.check_early_mode(look, change));
        self.early_modes.looks.push(look);
    }

    /// Whether the first stripe of a file was removed.
    fn has_removed(&self, inode: InodeNo) -> bool {
        let shard = self.map().data_shard(inode, 0);
        let store = &self.servers[self.server_of(shard)].store;
        store.was_removed(Object { shard_index: shard.index(), stripe_index: 0, inode })
    }

    /// A write that was answered early has been executed.
    fn see_early_write(&mut self, client: usize, tag: Tag, file_offset: u64) {
        let Some(call) = self.call_of(tag) else { return };
        let Some((inode, at_ns)) = call.spec.contents().zip(call.ended_ns) else { return };
        if call.began_lives != self.lives() {
            return; // A restarted server does not know that it has taken the lease.
        }
        let write = Sized { client, inode, at_ns, size_bytes: file_offset };
        let looks = self.early_modes.sizes.clone();
        looks.into_iter().for_each(|look| self.check_early_write(look, write));
        self.early_modes.writes.push(write);
    }

    /// A look that follows the answer of a write shows what it has written, unless a truncation may have
    /// removed that.
    fn check_early_write(&mut self, look: Sized, write: Sized) {
        let may_cut = |call: &CallRecord| {
            matches!(call.spec, CallSpec::Resize { inode, .. } if inode == write.inode)
                && call.ended_ns.is_none_or(|ended_ns| ended_ns > write.at_ns)
        };
        let is_missed = look.inode == write.inode
            && look.client != write.client
            && look.at_ns > write.at_ns
            && look.size_bytes <= write.size_bytes
            && !self.calls.iter().any(may_cut);
        if is_missed {
            let Sized { client, inode, size_bytes, .. } = look;
            self.violates(format!(
                "L3: client {client} was shown {size_bytes} bytes of inode {inode}, and a write at {} \
                 whose caller had been answered before was executed later",
                write.size_bytes
            ));
        }
    }

    fn check_early_mode(&mut self, look: Dated, change: Dated) {
        let is_stale = look.inode == change.inode
            && look.client != change.client
            && look.at_ns > change.at_ns
            && look.version < change.version;
        if is_stale {
            let Dated { client, inode, version, .. } = look;
            self.violates(format!(
                "L3: client {client} was shown inode {inode} of version {version:?}, and its mode of \
                 version {:?} was set before",
                change.version
            ));
        }
    }
}
