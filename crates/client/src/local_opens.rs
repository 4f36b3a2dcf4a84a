//! Files that are opened to be read and that the server does not know to be open: while any lane of this
//! client has a lease of a file's attributes, nobody else changes or removes it without asking.
//!
//! ```text
//! open_locally ─▶ local ─ release ─▶ closed: no request at all
//!                   └ recalled, the term ends, 0.5 s, register_local ─▶ registering ─ Reopen answered ─▶ open,
//!                                                                      or closed, if released meanwhile
//! ```
//! A recall is acknowledged when the file's handle is registered: so the file stays readable when its
//! last name is removed, as any open file. After a restart of the server the handle is registered with
//! all others. A file has one such handle at a time.
//!
//! Invariant: a local handle is registered, or was released, before the lease is given up.

use crate::Answer;
use crate::client::Client;
use crate::handles::OpenFile;
use crate::local_writers::LocalWriters;
use crate::plan::{FollowUp, Plan};
use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::vec::Vec;
use interface::Mono;
use wire::{Handle, HandleId, InodeNo, OpenFor, Reopen, Rule, Status};

/// A file that stays open for longer is registered.
pub const LOCAL_MS_MAX: u64 = 500;

/// The files that are open here alone.
#[derive(Default, Debug)]
pub(crate) struct LocalOpens {
    handles: BTreeMap<InodeNo, HandleId>,
    /// When each was opened. One that is over may still be here.
    order: VecDeque<(Mono, InodeNo, HandleId)>,
    /// Those that were released while they are being registered.
    released: BTreeSet<HandleId>,
    /// Those that are over since the frontend has asked last.
    ended: Vec<InodeNo>,
    pub(crate) writers: LocalWriters,
}

impl LocalOpens {
    /// A local handle was registered, or released.
    pub(crate) fn end(&mut self, inode: InodeNo) {
        if self.handles.remove(&inode).is_some() {
            self.ended.push(inode);
        }
    }
}

impl Client {
    /// Opens a file to read it, without the server; `None` at the limit, when the file is open so already,
    /// or when this lane's term does not last long enough. A lane of the client has a lease of the file's
    /// attributes, which says that the server would open it.
    /// `open_for`: what the caller may do; the server knows it to read.
    pub fn open_locally(
        &mut self,
        now: Mono,
        (inode, open_for): (InodeNo, OpenFor),
    ) -> Option<HandleId> {
        if self.local.handles.contains_key(&inode)
            || self.local.writers.has(inode)
            || self.term().until <= now.after_ms(LOCAL_MS_MAX)
        {
            return None;
        }
        let handle = self.handles.open_locally(inode)?;
        self.local.handles.insert(inode, handle);
        if open_for.writes() {
            self.local.writers.add(inode, handle);
        }
        self.local.order.push_back((now, inode, handle));
        Some(handle)
    }

    /// Registers the handle of a file, if it is open here alone. Returns whether it is, until it is over.
    pub fn register_local(&mut self, inode: InodeNo) -> bool {
        if !self.config.rules.hold(Rule::LocalRegistered) {
            return false;
        }
        let Some(handle) = self.local.handles.get(&inode).copied() else { return false };
        match self.handles.get(handle) {
            Some(OpenFile { reopening: false, open_for, .. }) => {
                self.handles.set_reopening(handle, true);
                let handle = Handle { id: handle, open_for };
                let plan = Plan::Register { handle: handle.id };
                self.begin_without_caller(plan, FollowUp::Reopen(Reopen { inode, handle }));
            }
            Some(_) => {} // It is being registered.
            None => self.local.end(inode),
        }
        self.local.handles.contains_key(&inode)
    }

    /// The same for all files. Returns those that are open here alone, until that is over.
    pub fn register_all_local(&mut self) -> Vec<InodeNo> {
        let all: Vec<InodeNo> = self.local.handles.keys().copied().collect();
        all.into_iter().filter(|inode| self.register_local(*inode)).collect()
    }

    /// The same for files that have been open for long. Returns when the next one will have been.
    pub fn register_old_local(&mut self, now: Mono) -> Option<Mono> {
        while let Some((opened_at, inode, handle)) = self.local.order.front().copied() {
            let due = opened_at.after_ms(LOCAL_MS_MAX);
            let is_over = self.local.handles.get(&inode) != Some(&handle);
            if !is_over && due > now {
                return Some(due);
            }
            self.local.order.pop_front();
            if !is_over {
                self.register_local(inode);
            }
        }
        None
    }

    /// Takes the files that were open here alone, and are no longer.
    pub fn take_ended_local(&mut self) -> Vec<InodeNo> {
        core::mem::take(&mut self.local.ended)
    }

    /// A local handle is released: no request is needed, unless it is being registered. Returns whether
    /// it is one.
    pub(crate) fn release_local(&mut self, handle: HandleId) -> bool {
        let Some(file) = self.handles.get(handle) else { return false };
        if self.local.handles.get(&file.inode) != Some(&handle) {
            return false;
        }
        if file.reopening {
            // What is under way, or sent again, would open it after the close.
            self.local.released.insert(handle);
            return true;
        }
        self.handles.remove(handle);
        self.local.end(file.inode);
        true
    }

    /// A handle was registered, or the server has refused it.
    pub(crate) fn on_registered(&mut self, handle: HandleId, result: &Result<Answer, Status>) {
        self.handles.set_reopening(handle, false);
        if self.on_opened_to_write(handle, result) {
            return;
        }
        let Some(file) = self.handles.get(handle) else { return };
        if self.local.handles.get(&file.inode) == Some(&handle) {
            self.local.end(file.inode);
        }
        if result.is_err_and(|status| status == Status::Stale) {
            // Writes to it may have been answered by other lanes: its fsync must fail.
            self.lose_inode(file.inode);
        }
        if self.local.released.remove(&handle) {
            self.close_without_caller(handle);
        }
    }
}
