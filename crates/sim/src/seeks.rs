//! Seeks, sizes and allocations: what they may find, and what they change.

use crate::audit::LossyRead;
use crate::bytes::{FileChange, TimedChange, explain_seek, explain_size, uncertain};
use crate::simulation::Simulation;
use crate::work::{CallRecord, CallSpec, CallState};
use wire::{Allocation, FileKind, InodeNo, Status};

/// The changes of an allocation.
pub(crate) fn allocated(spec: &CallSpec) -> Vec<FileChange> {
    let CallSpec::Allocate { file_offset, range_bytes, allocation, keep_size, .. } = *spec else {
        return Vec::new();
    };
    let (from, until) = (file_offset, file_offset + range_bytes);
    let clears = allocation != Allocation::Reserve;
    let clear = clears.then_some(FileChange::Clear { from, until });
    let extend = (!keep_size).then_some(FileChange::Extend { size_bytes: until });
    clear.into_iter().chain(extend).collect()
}

impl Simulation {
    /// Checks that the changes of a file explain what a seek has found.
    pub(crate) fn check_seek(&mut self, call: &CallRecord) {
        let CallSpec::Seek { inode, file_offset, hole } = call.spec else { return };
        let found = match (&call.ended, call.result()) {
            (CallState::Failed(Status::NoDevice), _) => None,
            (_, Some(result)) => result.sought,
            _ => return,
        };
        let changes = self.changes_of(inode, call.began_ns);
        let explains = |changes: &[TimedChange]| explain_seek(changes, (file_offset, hole), found);
        self.judge_read((call.client, inode), &changes, explains);
    }

    /// Checks that the changes of a file over several data shards explain the size that was found.
    pub(crate) fn check_size(&mut self, call: &CallRecord) {
        let CallSpec::Getattr { inode } = call.spec else { return };
        let attr = call.result().and_then(|result| result.attr);
        let attr = attr.filter(|attr| attr.kind == FileKind::File && !self.may_be_in_removal(attr));
        let Some(attr) = attr.filter(|_| self.plan.spreads && !self.plan.leases) else { return };
        let changes = self.changes_of(inode, call.began_ns);
        let explains = |changes: &[TimedChange]| explain_size(changes, attr.size_bytes);
        self.judge_read((call.client, inode), &changes, explains);
    }

    /// If only lost changes explain what a client has found, the audit decides.
    pub(crate) fn judge_read(
        &mut self,
        (client, inode): (usize, InodeNo),
        changes: &[TimedChange],
        explains: impl Fn(&[TimedChange]) -> Result<(), String>,
    ) {
        if self.lying_disk.is_any() || self.unprotected.contains(&inode) {
            return;
        }
        let Err(line) = explains(changes) else { return };
        let line = format!("read of inode {inode}: {line}");
        if explains(&uncertain(changes)).is_ok() {
            self.lossy_reads.push(LossyRead { client, inode, line });
        } else {
            self.violates(line);
        }
    }
}
