//! Files that were there before and are written behind since they were opened. Their sizes are those that
//! replies show, so what changes a size otherwise is waited for, and by others as well.
//!
//! ```text
//! OPEN, with a write lease ─▶ idle ─ SETATTR of the size, or an append while it is unknown ─▶ awaited
//!                              ▲── its reply: the size is known ──────────────────────────────┘
//! ```
//! A size that a reply shows may be that of before another request of this mount, which the server has
//! executed meanwhile. So a file is not written behind if a request that may change its size was under
//! way while it was opened.
//!
//! The names of such a file are not known to the table. So attributes that a LOOKUP or CREATE has shown
//! may be those of before a write, and are asked for again.

use crate::abi::{Opcode, setattr_flag};
use crate::args::split;
use crate::behind::{Begun, Behind, How, NewFile, UNKNOWN, bit, error_in, is_busy};
use crate::lane::MountLane;
use crate::pending::{Awaited, Continuation};
use alloc::sync::Arc;
use client::{Call, Granted};
use core::sync::atomic::{AtomicU64, Ordering};
use interface::Turn;
use wire::{Attr, ClearPrivileges, Getattr, HandleId, InodeNo, Status, Written};

/// Nobody: changes of attributes are waited for.
const NO_CREATOR: u32 = u32::MAX;

/// A request that has begun, and is unanswered.
const ONE_RESIZE: u64 = (1 << 32) + 1;
const UNANSWERED_MASK: u64 = (1 << 32) - 1;

impl Behind {
    fn resizes(&self, inode: InodeNo) -> &AtomicU64 {
        &self.place(inode).resizes
    }

    /// Whether a file has a place since it was opened.
    fn is_opened(&self, inode: InodeNo) -> bool {
        self.find(inode).is_some_and(|(_, state)| state & bit::OPENED != 0)
    }

    /// Begins a change of the size of an opened file whose caller waits for it.
    pub(crate) fn begin_awaited<T>(&self, inode: InodeNo) -> How<T> {
        let begins = |state: u64| {
            let may = state & bit::OPENED != 0
                && state & bit::ENDED == 0
                && error_in(state) == 0
                && !is_busy(state);
            may.then_some(state | bit::AWAITED)
        };
        if self.change(inode, begins).is_some() {
            return How::Awaited;
        }
        let may_begin_later = |state: u64| state & bit::OPENED != 0 && is_busy(state);
        match self.find(inode) {
            Some((_, state)) if may_begin_later(state) => How::Later,
            Some(_) | None => How::Through,
        }
    }

    /// Such a change is over. `None`: the size is not known, and nothing is written behind any more.
    /// Returns the lanes that wait.
    fn end_awaited(&self, inode: InodeNo, size_bytes: Option<u64>) -> u64 {
        let Some((place, _)) = self.find(inode) else { return 0 };
        place.size_bytes.store(size_bytes.unwrap_or(UNKNOWN), Ordering::SeqCst);
        let ended = if size_bytes.is_none() { bit::ENDED } else { 0 };
        self.change(inode, |state| Some(state & !bit::AWAITED | ended));
        place.waiters.swap(0, Ordering::SeqCst)
    }
}

impl MountLane {
    /// A request begins: to be called before the table is looked at.
    pub(crate) fn begin_sizes(&mut self, pending_id: usize, table: &Behind) {
        let Some(pending) = self.pendings.get_mut(pending_id) else { return };
        let Ok((header, mut args)) = split(&pending.request) else { return };
        let inode = match Opcode::from_number(header.opcode) {
            Some(Opcode::Open) => {
                pending.resizes_seen = table.resizes(header.inode).load(Ordering::SeqCst);
                return;
            }
            Some(Opcode::Write | Opcode::Fallocate | Opcode::Setattr) => header.inode,
            Some(Opcode::CopyFileRange) => {
                let to = args.skip(16).and_then(|()| args.u64());
                InodeNo(to.unwrap_or(0))
            }
            _ => return,
        };
        self.begin_resize(pending_id, inode);
    }

    /// A request may change the size of a file from now on.
    pub(crate) fn begin_resize(&mut self, pending_id: usize, inode: InodeNo) {
        let Some(table) = &self.behind.table else { return };
        if let Some(pending) = self.pendings.get_mut(pending_id)
            && pending.resizes.is_none()
        {
            pending.resizes = Some(inode);
            table.resizes(inode).fetch_add(ONE_RESIZE, Ordering::SeqCst);
        }
    }

    /// Such a request is answered. If it was abandoned, it may still be executed: it is under way for
    /// ever.
    fn end_resize(&self, resizes: Option<InodeNo>, status: Status) {
        if let Some((table, inode)) = self.behind.table.as_ref().zip(resizes)
            && status != Status::Interrupted
        {
            table.resizes(inode).fetch_sub(1, Ordering::SeqCst);
        }
    }

    /// A file was opened, and may be written behind. To be called before the kernel gets the reply.
    pub(crate) fn write_opened_from_now(
        &mut self,
        pending_id: usize,
        (attr, handle): (&Attr, HandleId),
        granted: Granted,
    ) {
        if !granted.writing {
            return;
        }
        let seen = self.pendings.get(pending_id).map_or(u64::MAX, |it| it.resizes_seen);
        let has_privileges = attr.cleared_by_write(false) != ClearPrivileges::Nothing;
        let inserted = self.behind.table.as_ref().is_some_and(|table| {
            let (creator, parent, name) = (NO_CREATOR, InodeNo(0), &b""[..]);
            let file = NewFile { attr, handle, creator, parent, name };
            let inserted = !has_privileges && table.insert(&file, Begun::Opened);
            // Those that have not seen the place are counted.
            let resizes = table.resizes(attr.inode).load(Ordering::SeqCst);
            if inserted && (resizes != seen || seen & UNANSWERED_MASK != 0) {
                table.end(attr.inode);
            }
            inserted
        });
        if !inserted {
            self.client.end_writing(attr.inode);
        }
    }

    /// A SETATTR that changes the size: of an opened file, others wait for it. Returns `None` if the
    /// file is not written behind so.
    pub(crate) fn set_size(&mut self, pending_id: usize, table: &Arc<Behind>) -> Option<bool> {
        let pending = self.pendings.get(pending_id)?;
        let (header, mut args) = split(&pending.request).ok()?;
        let inode = header.inode;
        let valid = args.u32().ok()?;
        args.skip(12).ok()?; // padding, handle
        let size_bytes = args.u64().ok()?;
        if valid & setattr_flag::SIZE == 0 || i64::try_from(size_bytes).is_err() {
            return None;
        }
        loop {
            return match table.begin_awaited::<()>(inode) {
                How::Awaited => {
                    let awaited = Awaited { inode, size_bytes: Some(size_bytes) };
                    self.pendings.get_mut(pending_id)?.awaited = Some(awaited);
                    Some(false)
                }
                How::Later if self.waits(table, pending_id, inode) => Some(true),
                How::Later => continue, // It is over by now.
                How::Through | How::Failed(_) | How::Behind(()) | How::Joined(()) => None,
            };
        }
    }

    /// Another SETATTR: of an opened file, its caller waits for it. Whether it waits for what is under
    /// way; `None` if the file has no place since it was opened.
    pub(crate) fn set_opened(&mut self, pending_id: usize, table: &Arc<Behind>) -> Option<bool> {
        const OF_WRITES: u32 = setattr_flag::MODE | setattr_flag::UID | setattr_flag::GID;
        let pending = self.pendings.get(pending_id)?;
        let (header, mut args) = split(&pending.request).ok()?;
        let inode = header.inode;
        if !table.is_opened(inode) {
            return None;
        }
        // A write may clear some of what is set.
        if args.u32().ok()? & OF_WRITES != 0 {
            table.end(inode);
        }
        Some(self.waits(table, pending_id, inode))
    }

    /// An append to an opened file was executed: it has shown the size.
    pub(crate) fn see_end(&mut self, pending_id: usize, written: Written) {
        let awaited = self.pendings.get_mut(pending_id).and_then(|it| it.awaited.as_mut());
        if let Some(awaited) = awaited
            && awaited.size_bytes.is_none()
        {
            let Written { file_offset, written_bytes } = written;
            awaited.size_bytes = file_offset.checked_add(written_bytes.into());
        }
    }

    /// A request is answered: it may have changed a size, and others may wait for that.
    pub(crate) fn end_sizes(
        &mut self,
        turn: &mut Turn<'_>,
        (resizes, awaited): (Option<InodeNo>, Option<Awaited>),
        status: Status,
    ) {
        self.end_resize(resizes, status);
        let Some((awaited, table)) = awaited.zip(self.behind.table.clone()) else { return };
        let Awaited { inode, size_bytes } = awaited;
        let waiters = table.end_awaited(inode, size_bytes.filter(|_| status == Status::Ok));
        self.wake(turn, inode, waiters);
    }

    /// A LOOKUP was answered. Returns whether the file's attributes are asked for again.
    pub(crate) fn looks_again(
        &mut self,
        turn: &mut Turn<'_>,
        pending_id: usize,
        inode: InodeNo,
    ) -> bool {
        let Some(table) = self.behind.table.clone().filter(|it| it.is_opened(inode)) else {
            return false;
        };
        if !self.waits(&table, pending_id, inode) {
            let getattr = Call::Getattr(Getattr { inode });
            self.call_for(turn, pending_id, Continuation::EntryAgain, getattr);
        }
        true
    }

    /// A CREATE has opened a file that was there. Returns whether its attributes are asked for again,
    /// or all is done anew.
    pub(crate) fn looks_at_created_again(
        &mut self,
        turn: &mut Turn<'_>,
        pending_id: usize,
        (inode, handle, truncates): (InodeNo, HandleId, bool),
    ) -> bool {
        let Some(table) = self.behind.table.clone().filter(|it| it.is_opened(inode)) else {
            return false;
        };
        table.end(inode);
        if self.waits(&table, pending_id, inode) {
            self.client.release(turn, handle);
            return true;
        }
        if !truncates {
            let getattr = Call::Getattr(Getattr { inode });
            let continuation = Continuation::CreatedAgain { handle };
            self.call_for(turn, pending_id, continuation, getattr);
        }
        !truncates
    }
}
