//! Files that are opened to be read through the kernel's page cache, and opened again without the
//! server: which of the kernel's pages go on being used.

use crate::abi::Opcode;
use crate::args::split;
use crate::begin::Decoded;
use crate::handle::FileHandle;
use crate::lane::MountLane;
use crate::leases::version_of;
use crate::out::{put_cached_open, put_open, put_opendir};
use crate::pending::Continuation;
use client::{Call, KeptOpen};
use interface::{FileVersion, Mono, MountMessage, Turn};
use wire::{Attr, HandleId, InodeNo, OpenFor};

impl MountLane {
    /// The server has opened a file, and granted its contents until then.
    pub(crate) fn reply_opened(
        &mut self,
        turn: &mut Turn<'_>,
        pending_id: usize,
        (attr, handle): (&Attr, HandleId),
        granted: Option<Mono>,
    ) {
        let now = turn.now.mono;
        if !self.leases.allows_pages(now, attr.inode, granted) {
            return self.encode(turn, pending_id, |out| put_open(out, attr, handle));
        }
        let is_settled = !attr.is_size_at_data();
        let keeps = is_settled && self.leases.has_pages_of(now, attr, None);
        let opened = FileHandle::new(handle, attr).cached();
        if !keeps {
            let version = is_settled.then(|| version_of(attr));
            self.set_pages(turn, attr.inode, (version, Some(opened)));
        }
        self.client.keep(handle);
        self.encode(turn, pending_id, |out| put_cached_open(out, opened, keeps));
    }

    /// The kernel drops its pages of a file with this reply; those that it reads from then on are of
    /// this version, unless the file is changing.
    pub(crate) fn set_pages(
        &mut self,
        turn: &mut Turn<'_>,
        inode: InodeNo,
        (version, opened): (Option<FileVersion>, Option<FileHandle>),
    ) {
        if self.leases.set_pages(turn.now.mono, inode, (version, opened)) {
            let opened = opened.map(|opened| opened.0);
            self.send_to_peer_lanes(turn, MountMessage::Pages { inode, version, opened });
        }
    }

    /// Whether a request opens a file to read it, and the server need not be asked.
    pub(crate) fn open_at_once(&mut self, turn: &mut Turn<'_>, pending_id: usize) -> bool {
        let Some(pending) = self.pendings.get(pending_id) else { return false };
        if !split(&pending.request).is_ok_and(|(it, _)| it.opcode == Opcode::Open as u32) {
            return false;
        }
        let Ok(Decoded::Call(Call::Open(open), Continuation::Open)) = pending.decoded() else {
            return false;
        };
        let inode = open.inode;
        if let Some(kept) = self.client.open_kept(turn.now.mono, &open) {
            self.reply_kept(turn, pending_id, (inode, kept));
            return true;
        }
        match open.open_for {
            OpenFor::Read => self.open_locally(turn, pending_id, OpenFor::Read),
            OpenFor::ReadWrite => self.open_unwritten(turn, pending_id),
            OpenFor::Write | OpenFor::Execute => false,
        }
    }

    /// A file is opened that is kept: neither it nor its contents have changed since.
    pub(crate) fn reply_kept(
        &mut self,
        turn: &mut Turn<'_>,
        pending_id: usize,
        (inode, kept): (InodeNo, KeptOpen),
    ) {
        // Until the reply to an earlier open was applied, there may be older pages.
        let keeps = kept.is_first_closed || self.leases.has_dropped_earlier(turn.now.mono, inode);
        let opened = FileHandle::kept(kept).cached();
        self.encode(turn, pending_id, |out| put_cached_open(out, opened, keeps));
    }

    /// A directory is open.
    pub(crate) fn reply_opened_directory(
        &mut self,
        turn: &mut Turn<'_>,
        pending_id: usize,
        (inode, handle): (InodeNo, HandleId),
    ) {
        let keeps = self.keeps_listings(turn.now.mono, inode);
        self.encode(turn, pending_id, |out| put_opendir(out, handle, keeps));
    }

    /// The kernel no longer knows an inode: nothing of it is open, and it has no pages. At once when
    /// its last name is removed and it is closed.
    pub(crate) fn on_forgotten(&mut self, turn: &mut Turn<'_>, inode: InodeNo) {
        let was_held = self.cache.as_ref().is_some_and(|cache| cache.was_held(inode));
        if self.leases.forget_pages(inode) || was_held {
            self.send_to_peer_lanes(turn, MountMessage::Forgotten { inode });
        }
        self.client.forget_kept(inode);
    }
}
