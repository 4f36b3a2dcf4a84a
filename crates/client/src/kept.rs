//! Handles that stay open at the server while the frontend has the file closed: a file that was
//! opened to read it, under a lease of its contents, is opened again without an exchange.
//!
//! ```text
//! Open, contents granted ─ keep ─▶ leased ─ open_kept, release ─▶ leased
//!                                     └ recalled, lost, expired, forgotten ─▶ closed, once unused
//! ```
//! Each open has a handle of its own, for its locks and losses; the server knows the first of them.
//! A directory is opened again with its handle, while nothing else has it open.
//! Only what that open was permitted is permitted: where the server replaces ids, the same ids.
//!
//! Invariant: a file is opened without an exchange only while the lease of its contents holds: no
//! other client has changed, removed or opened it for writing since the server checked the open.

use crate::Open;
use crate::client::Client;
use crate::grants::OneGrant;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use interface::Mono;
use wire::{HandleId, InodeNo, OpenFor};

/// The most files of a client lane that are kept.
const KEPT_COUNT_MAX: usize = 1024;

/// A file that was opened without an exchange.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct KeptOpen {
    /// The handle.
    pub handle: HandleId,
    /// The open that the server has answered was closed since.
    pub is_first_closed: bool,
    /// Its stripes are at several data shards.
    pub is_spread: bool,
}

/// Who opened a file, and what the reply granted.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct OpenedBy {
    pub(crate) ids: (u32, u32),
    pub(crate) contents: Option<OneGrant>,
    pub(crate) is_spread: bool,
}

/// A handle that the server knows.
#[derive(Debug)]
struct Registered {
    inode: InodeNo,
    ids: (u32, u32),
    grant: OneGrant,
    /// The lease holds, as far as is known here.
    leased: bool,
    user_count: usize,
    is_first_closed: bool,
    is_spread: bool,
}

/// The kept handles of a client lane.
#[derive(Debug)]
pub(crate) struct Kept {
    registered: BTreeMap<HandleId, Registered>,
    /// The leased handle of each file.
    files: BTreeMap<InodeNo, HandleId>,
    /// Handles of later opens, and the handle that the server knows.
    opens: BTreeMap<HandleId, HandleId>,
    /// The leased handles, in the order in which they were opened.
    leased: BTreeSet<HandleId>,
    count_max: usize,
}

impl Kept {
    pub(crate) fn new(handles_max: usize) -> Self {
        Self {
            registered: BTreeMap::new(),
            files: BTreeMap::new(),
            opens: BTreeMap::new(),
            leased: BTreeSet::new(),
            count_max: KEPT_COUNT_MAX.min(handles_max / 4),
        }
    }
}

impl Client {
    /// The number of files that may be opened without an exchange.
    pub(crate) fn kept_count(&self) -> usize {
        self.kept.files.len()
    }

    /// A file stays open after it is closed, as long as its open's answer allows; for frontends that
    /// drop what they have cached when they are told to. To be called when the answer is taken.
    pub fn keep(&mut self, handle: HandleId) {
        let Some(file) = self.handles.get(handle) else { return };
        let OpenedBy { ids, contents, is_spread } = file.by;
        let Some(grant) = contents.filter(|_| file.open && file.open_for == OpenFor::Read) else {
            return;
        };
        self.forget_kept(file.inode);
        let (inode, leased, user_count, is_first_closed) = (file.inode, true, 1, false);
        let registered =
            Registered { inode, ids, grant, leased, user_count, is_first_closed, is_spread };
        self.kept.registered.insert(handle, registered);
        self.kept.files.insert(inode, handle);
        self.kept.leased.insert(handle);
        if self.kept.files.len() > self.kept.count_max
            && let Some(first) = self.kept.leased.first().copied()
        {
            self.end_kept(first);
        }
    }

    /// Opens a file that is kept.
    pub fn open_kept(&mut self, now: Mono, open: &Open<'_>) -> Option<KeptOpen> {
        self.note_use(now);
        let known = self.leased(now, open)?;
        let handle = self.handles.open_again(known)?;
        let registered = self.kept.registered.get_mut(&known)?;
        self.handles.idle_count -= usize::from(registered.user_count == 0);
        registered.user_count += 1;
        self.kept.opens.insert(handle, known);
        let Registered { is_first_closed, is_spread, .. } = *registered;
        Some(KeptOpen { handle, is_first_closed, is_spread })
    }

    /// Opens a directory that is kept, unless it is open: with the handle that the server knows,
    /// because the server ends each handle's listings.
    pub fn open_kept_directory(&mut self, now: Mono, open: &Open<'_>) -> Option<HandleId> {
        self.note_use(now);
        let known = self.leased(now, open)?;
        let registered = self.kept.registered.get_mut(&known)?;
        if registered.user_count > 0 || !self.handles.use_again(known) {
            return None;
        }
        registered.user_count = 1;
        registered.is_first_closed = false;
        Some(known)
    }

    /// The handle of a file that may be opened without an exchange.
    fn leased(&self, now: Mono, open: &Open<'_>) -> Option<HandleId> {
        let known = *self.kept.files.get(&open.inode)?;
        let (registered, term) = (self.kept.registered.get(&known)?, self.term());
        let link = self.servers.link(registered.grant.link_index)?;
        let is_leased = term.until > now
            && registered.grant.term_no == term.no
            && link.is_up()
            && link.conn_epoch == registered.grant.conn_epoch;
        let same_ids = (open.caller.uid, open.caller.gid) == registered.ids;
        let is_permitted = same_ids || self.servers.initial().is_root_trusted();
        let is_wanted = open.open_for == OpenFor::Read && !open.sizes;
        (is_leased && is_permitted && is_wanted).then_some(known)
    }

    /// The frontend knows a file no longer, or another lease has replaced that of its handle.
    pub fn forget_kept(&mut self, inode: InodeNo) {
        if let Some(known) = self.kept.files.get(&inode).copied() {
            self.end_kept(known);
        }
    }

    /// Closes all handles that nothing uses.
    pub fn forget_all_kept(&mut self) {
        self.end_all_kept(|_| true);
    }

    /// The same for the grants of a link.
    pub(crate) fn end_kept_of(&mut self, link_index: usize) {
        self.end_all_kept(|grant| grant.link_index == link_index);
    }

    pub(crate) fn end_all_kept(&mut self, ends: impl Fn(OneGrant) -> bool) {
        let leased = self.kept.registered.iter().filter(|(_, registered)| registered.leased);
        let ended = leased.filter(|(_, registered)| ends(registered.grant));
        for handle in ended.map(|(handle, _)| *handle).collect::<Vec<_>>() {
            self.end_kept(handle);
        }
    }

    /// The lease of a file has ended: its handle is closed, or will be with its last user.
    fn end_kept(&mut self, handle: HandleId) {
        let Some(registered) = self.kept.registered.get_mut(&handle) else { return };
        registered.leased = false;
        let is_idle = registered.user_count == 0;
        self.kept.leased.remove(&handle);
        if self.kept.files.get(&registered.inode) == Some(&handle) {
            self.kept.files.remove(&registered.inode);
        }
        if is_idle {
            self.handles.idle_count -= 1;
            self.kept.registered.remove(&handle);
            self.close_without_caller(handle);
        }
    }

    /// Releases a handle that may be kept. Returns the handle to close at the server.
    pub(crate) fn release_kept(&mut self, handle: HandleId) -> Option<HandleId> {
        let later = self.kept.opens.remove(&handle);
        let known = later.unwrap_or(handle);
        let Some(registered) = self.kept.registered.get_mut(&known) else { return Some(handle) };
        if later.is_some() {
            self.handles.remove(handle);
        } else if core::mem::replace(&mut registered.is_first_closed, true) {
            return None;
        }
        registered.user_count -= 1;
        if registered.user_count > 0 {
            return None;
        }
        if registered.leased {
            self.handles.idle_count += 1;
            return None;
        }
        self.kept.registered.remove(&known);
        Some(known)
    }
}
