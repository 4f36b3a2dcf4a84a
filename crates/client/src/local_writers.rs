//! Files that are open here to read and write, and that the server knows as open to read, or not at all
//! ([`crate::local_opens`]): before the first change through such a handle the file is opened for writing
//! at the server, by a second handle, which is closed with the first one.
//!
//! ```text
//! open_locally, to write ─▶ unwritten ─ release ─▶ over
//!                             └ open_to_write ─▶ opening ─ Reopen answered ─▶ over, or refused for ever
//! ```
//! The first handle is registered meanwhile as any local one, so no recall waits for the second one.
//!
//! Invariant: the server has the file open for writing before this client changes its contents.

use crate::Answer;
use crate::client::Client;
use crate::plan::{FollowUp, Plan};
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use wire::{HandleId, InodeNo, OpenFor, Reopen, Rule, Status};

/// What becomes of a file that is open so.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    /// Nothing was written.
    Unwritten,
    /// It is being opened for writing by this handle. `released`: the first one was closed meanwhile.
    Opening { handle: HandleId, released: bool },
    /// The server has refused that.
    Refused,
}

/// The files that are open so, by inode.
#[derive(Default, Debug)]
pub(crate) struct LocalWriters {
    files: BTreeMap<InodeNo, (HandleId, State)>,
    /// The handles by which files are open for writing, by the first ones.
    opened: BTreeMap<HandleId, HandleId>,
    /// Files that are open for writing now, that were closed, or that were refused, since the frontend
    /// has asked last.
    ended: Vec<(InodeNo, Result<(), Status>)>,
}

impl LocalWriters {
    /// Whether a file is open so.
    pub(crate) fn has(&self, inode: InodeNo) -> bool {
        self.files.contains_key(&inode)
    }

    /// A file was opened to read and write, without the server.
    pub(crate) fn add(&mut self, inode: InodeNo, handle: HandleId) {
        self.files.insert(inode, (handle, State::Unwritten));
    }

    fn end(&mut self, inode: InodeNo) {
        if self.files.remove(&inode).is_some() {
            self.ended.push((inode, Ok(())));
        }
    }
}

impl Client {
    /// Opens a file for writing at the server that is open here without that. Returns whether it is
    /// being opened, or refused, until [`Self::take_ended_to_write`] says so.
    pub fn open_to_write(&mut self, inode: InodeNo) -> bool {
        if !self.config.rules.hold(Rule::LocalWritten) {
            return false;
        }
        let Some((first, state)) = self.local.writers.files.get(&inode).copied() else {
            return false;
        };
        if state != State::Unwritten {
            return true;
        }
        let Some(handle) = self.handles.begin(inode, OpenFor::ReadWrite) else {
            self.local.writers.files.insert(inode, (first, State::Refused));
            self.local.writers.ended.push((inode, Err(Status::TooManyFiles)));
            return true;
        };
        self.handles.opened(handle.id, inode);
        self.handles.set_reopening(handle.id, true);
        let opening = State::Opening { handle: handle.id, released: false };
        self.local.writers.files.insert(inode, (first, opening));
        let plan = Plan::Register { handle: handle.id };
        self.begin_without_caller(plan, FollowUp::Reopen(Reopen { inode, handle }));
        true
    }

    /// Takes the files that were open so and are no longer, or that the server refuses to open.
    pub fn take_ended_to_write(&mut self) -> Vec<(InodeNo, Result<(), Status>)> {
        core::mem::take(&mut self.local.writers.ended)
    }

    /// A file was opened for writing, or refused, if it was asked for by this handle. Returns whether it
    /// was.
    pub(crate) fn on_opened_to_write(
        &mut self,
        handle: HandleId,
        result: &Result<Answer, Status>,
    ) -> bool {
        let Some(inode) = self.handles.get(handle).map(|file| file.inode) else { return false };
        let Some((first, state)) = self.local.writers.files.get(&inode).copied() else {
            return false;
        };
        let State::Opening { handle: asked, released } = state else { return false };
        if asked != handle {
            return false;
        }
        if let Err(status) = result {
            self.handles.remove(handle);
            self.local.writers.files.insert(inode, (first, State::Refused));
            self.local.writers.ended.push((inode, Err(*status)));
        }
        match (result, released) {
            (Ok(_), false) => {
                self.local.writers.opened.insert(first, handle);
                self.local.writers.end(inode);
            }
            (Ok(_), true) => {
                self.local.writers.end(inode);
                self.close_without_caller(handle);
            }
            (Err(_), true) => self.local.writers.end(inode),
            (Err(_), false) => {}
        }
        true
    }

    /// A handle is released, and with it the second one of the file.
    pub(crate) fn release_writer(&mut self, first: HandleId) {
        if let Some(handle) = self.local.writers.opened.remove(&first) {
            self.close_without_caller(handle);
        }
        let Some(inode) = self.handles.get(first).map(|file| file.inode) else { return };
        let Some((_, state)) =
            self.local.writers.files.get_mut(&inode).filter(|(handle, _)| *handle == first)
        else {
            return;
        };
        match state {
            State::Unwritten | State::Refused => self.local.writers.end(inode),
            // What is under way would open it after the close.
            State::Opening { released, .. } => *released = true,
        }
    }
}
