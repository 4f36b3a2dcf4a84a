//! Whether a lost change can be redone with its original effect: everything it checked has the same
//! version as then, and everything it needs exists (docs/protocol.md §10).

use crate::shard::Shard;
use crate::state::State;
use disk::{Change, Changes, InodeRow, PreVersions};
use wire::{FileKind, InodeNo, Name, Reopen, Status};

impl Shard {
    /// Whether a record of an earlier boot that was lost with it can be executed now with the same
    /// effect. Redoing one that fits cannot fail.
    ///
    /// # Errors
    /// `Overflow` when not; `Invalid` when that is no record of a shard.
    pub fn fits(&self, changes: &[u8], pre_versions: &PreVersions) -> Result<(), Status> {
        let mut expected = pre_versions.as_slice().iter();
        let mut made = None;
        for change in Changes::new(changes) {
            let change = change.map_err(|_| Status::Invalid)?;
            if let Some(found) = self.state.version_before(&change)
                && expected.next() != Some(&found)
            {
                return Err(Status::Overflow);
            }
            if let Change::Inode { row } = change
                && self.state.inode(row.inode).is_none()
            {
                made = Some(row.inode);
            }
            if !self.state.can_apply(&change, made) {
                return Err(Status::Overflow);
            }
        }
        Ok(())
    }

    /// Whether a handle can be reopened without any change.
    #[must_use]
    pub fn reopens_quietly(&self, reopen: &Reopen) -> bool {
        let known = self.state.inode(reopen.inode);
        known.is_some_and(|known| !reopen.handle.open_for.writes() || known.row.size_at_data)
    }
}

impl State {
    /// Whether a change can be applied; `made` is the inode that its record creates.
    fn can_apply(&self, change: &Change<'_>, made: Option<InodeNo>) -> bool {
        let there = |inode: InodeNo| made == Some(inode) || self.inode(inode).is_some();
        match change {
            Change::Inode { row } => self.can_put(row),
            Change::Touch { inode, nlink_delta, entry_delta, .. } => {
                self.inode(*inode).is_some_and(|known| {
                    let row = &known.row;
                    row.nlink.checked_add_signed(*nlink_delta).is_some()
                        && row.entry_count.checked_add_signed((*entry_delta).into()).is_some()
                })
            }
            Change::DirAttrs { inode, parent, .. } => {
                self.is_directory(*inode) && !self.would_loop(*inode, *parent)
            }
            Change::Dirent { dir, name, cookie, inode, .. } => {
                // The inode may be of another shard.
                let named = inode.shard() != self.shard() || there(*inode);
                named && self.is_free(*dir, *name, *cookie)
            }
            Change::DirentRemoved { dir, .. } => self.is_directory(*dir),
            Change::Symlink { inode, .. }
            | Change::Accessed { inode, .. }
            | Change::Settled { inode, .. } => there(*inode),
            Change::Xattr { inode, .. } | Change::XattrRemoved { inode, .. } => there(*inode),
            Change::InodeRemoved { inode } => self.can_go(*inode),
            Change::Client(_) => true,
            // Of other shards, or never acknowledged before they are durable.
            Change::Contents(_) | Change::Txn(_) | Change::Export(_) => false,
        }
    }

    fn can_put(&self, row: &InodeRow) -> bool {
        let fits = row.inode.shard() == self.shard() && row.inode.count() > 0;
        let kind = self.inode(row.inode).is_none_or(|known| known.row.kind == row.kind);
        fits && kind && (row.nlink > 0 || self.can_go(row.inode))
    }

    /// Only an empty directory can be removed.
    fn can_go(&self, inode: InodeNo) -> bool {
        self.inode(inode)
            .is_none_or(|known| known.row.kind != FileKind::Directory || known.row.entry_count == 0)
    }

    pub(crate) fn is_directory(&self, inode: InodeNo) -> bool {
        self.inode(inode).is_some_and(|known| known.row.kind == FileKind::Directory)
    }

    /// Whether a cookie is free in an existing directory, for this name.
    fn is_free(&self, dir: InodeNo, name: Name<'_>, cookie: u64) -> bool {
        let Some((row, _)) = self.entries(dir) else { return false };
        let before = cookie.checked_sub(1);
        let before = before.and_then(|before| self.listed(dir, before).0.next());
        let taken = before.is_some_and(|(found, at)| at.cookie == cookie && found != name.bytes());
        row.nlink > 0 && cookie < u64::MAX && !taken
    }

    /// Whether a directory would become its own descendant.
    fn would_loop(&self, inode: InodeNo, parent: InodeNo) -> bool {
        let mut at = parent;
        loop {
            if at == inode && inode != InodeNo::ROOT {
                return true;
            }
            match self.inode(at) {
                Some(known) if known.row.parent != at => at = known.row.parent,
                Some(_) | None => return false,
            }
        }
    }
}
