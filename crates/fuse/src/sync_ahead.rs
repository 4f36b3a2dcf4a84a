//! An FSYNC of a file of which a write behind is under way. What the caller has waited for is made
//! durable by the metadata shard meanwhile: the file's name, its attributes. The data shard is asked at
//! once to sync what it has received, so that it begins as soon as it has written it, and again when it
//! has said that it has: another lane of the mount may have sent the write, or sends it once more.
//!
//! ```text
//! FSYNC ─ writing ─▶ SYNC of both shards ─ written ─▶ SYNC of the data shard ─ all ─▶ reply
//! ```
//! Invariant: the request waits for what is under way, unless it is abandoned; then its call has ended
//! before its number is given to another one.

use crate::begin::Decoded;
use crate::behind::Behind;
use crate::call_ids::call_id;
use crate::lane::MountLane;
use crate::pending::Wait;
use client::{Answer, Call, Granted};
use interface::Turn;
use wire::{InodeNo, Status};

impl MountLane {
    /// Whether an FSYNC waits for what is under way. Its first half may begin.
    pub(crate) fn waits_to_sync(
        &mut self,
        turn: &mut Turn<'_>,
        pending_id: usize,
        (table, inode): (&Behind, InodeNo),
    ) -> bool {
        if !self.waits(table, pending_id, inode) {
            return false;
        }
        // A change of attributes under way has its record at the metadata shard as well.
        let may_begin = table.is_only_writing(inode) && self.client.takes_calls();
        let Some(pending) = self.pendings.get_mut(pending_id).filter(|_| may_begin) else {
            return true;
        };
        if let Ok(Decoded::Call(Call::Sync(sync), continuation)) = pending.decoded() {
            pending.continuation = continuation;
            pending.asked_server = true;
            pending.wait = Wait::Written(None);
            self.client.call(turn, call_id(pending_id), Call::SyncAhead(sync));
        }
        true
    }

    /// Whether a request is the FSYNC of which a half has begun, with the result of its call if that
    /// has ended.
    pub(crate) fn sync_ahead_of(&self, pending_id: usize) -> Option<Option<Result<(), Status>>> {
        match self.pendings.get(pending_id)?.wait {
            Wait::Written(ended) => Some(ended),
            Wait::Call | Wait::Groups => None,
        }
    }

    /// The rest of that FSYNC, unless something is still under way. Always true: it goes on here.
    pub(crate) fn sync_rest(
        &mut self,
        turn: &mut Turn<'_>,
        pending_id: usize,
        (table, ended): (&Behind, Option<Result<(), Status>>),
    ) -> bool {
        let inode = self.node(pending_id).inode();
        if self.waits(table, pending_id, inode) {
            return true;
        }
        let Some(pending) = self.pendings.get_mut(pending_id) else { return true };
        pending.wait = Wait::Call;
        let written = table.take_error(inode).map_or(Ok(()), Err);
        if let Some(ended) = ended {
            let result = written.and(ended).map(|()| Answer::Done);
            self.on_answer(turn, pending_id, result, Granted::default());
        } else {
            self.client.sync_contents(turn, call_id(pending_id), written);
        }
        true
    }

    /// The call of such an FSYNC has ended too early, as it does when the client is stopped. Whether
    /// that is so: the request is answered when nothing is under way.
    pub(crate) fn keeps_for_later(
        &mut self,
        pending_id: usize,
        result: &Result<Answer, Status>,
    ) -> bool {
        let pending = self.pendings.get_mut(pending_id);
        let Some(pending) = pending.filter(|it| matches!(it.wait, Wait::Written(_))) else {
            return false;
        };
        let ended = result.as_ref().map(|_| ()).map_err(|status| *status);
        pending.wait = Wait::Written(Some(ended));
        true
    }
}
