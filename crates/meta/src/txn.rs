//! `Txn`: one operation's view of its shard. It reads the state, and changes it only through
//! [`disk::Change`]s, each applied and recorded in one step.
//!
//! Invariant: an operation makes all its checks before its first change; one that fails has
//! changed nothing (asserted).

use crate::acl::{self, Acl};
use crate::credentials::{Credentials, Permissions, SET_GID, STICKY};
use crate::directory::{Directory, Target};
use crate::handles::Handles;
use crate::inode::{Body, Inode};
use crate::locks::Locks;
use crate::mode::NewMode;
use crate::multi_shard::{MultiShard, owner};
use crate::shard::{Access, DirectoryPlacement, Effect, MetaRequest, Shard};
use crate::state::State;
use crate::uses::{self, AccessMode, DependencyKey, KeyAccess};
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use disk::{Change, InodeRow, PreVersions, TxnId};
use wire::Rules;
use wire::{
    Attr, Bytes, Caller, ClientUuid, DecodeError, FileKind, Handle, InodeNo, Layout, Name,
    PrivilegedBits, ProtocolError, Reader, Rule, Squash, Status, Timestamp, Transno, Wire, Writer,
    attr_flag,
};

/// The reply of an op that has no reply body.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Done;

impl Wire<'_> for Done {
    fn encode(&self, _to: &mut Writer<'_>) {}
    fn decode(_from: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Err(DecodeError::ProtocolError(ProtocolError::Malformed))
    }
}

/// The change of a directory's counts; negative for removals.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct EntryDelta {
    pub(crate) entry_delta: i32,
    /// Subdirectories among the entries.
    pub(crate) nlink_delta: i32,
}

impl EntryDelta {
    pub(crate) const NOTHING: Self = Self { entry_delta: 0, nlink_delta: 0 };
    pub(crate) const FILE: Self = Self { entry_delta: 1, nlink_delta: 0 };
    pub(crate) const DIRECTORY: Self = Self { entry_delta: 1, nlink_delta: 1 };

    pub(crate) const fn of(kind: FileKind) -> Self {
        match kind {
            FileKind::Directory => Self::DIRECTORY,
            FileKind::File
            | FileKind::Symlink
            | FileKind::Fifo
            | FileKind::Socket
            | FileKind::CharDevice
            | FileKind::BlockDevice => Self::FILE,
        }
    }
}

impl core::ops::Neg for EntryDelta {
    type Output = Self;

    fn neg(self) -> Self {
        Self { entry_delta: -self.entry_delta, nlink_delta: -self.nlink_delta }
    }
}

impl core::ops::Add for EntryDelta {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            entry_delta: self.entry_delta + other.entry_delta,
            nlink_delta: self.nlink_delta + other.nlink_delta,
        }
    }
}

/// One operation in progress.
#[derive(Debug)]
pub(crate) struct Txn<'s> {
    pub(crate) state: &'s mut State,
    pub(crate) handles: &'s mut Handles,
    scratch: &'s mut Vec<u8>,
    changes: &'s mut Vec<u8>,
    changes_start: usize,
    /// Its number if it changes anything.
    transno: Transno,
    /// The time of what it changes.
    pub(crate) now: Timestamp,
    /// The server's time, if its caller has the answer since `now`.
    pub(crate) behind_until: Option<Timestamp>,
    pub(crate) client: ClientUuid,
    pub(crate) changed_behind: Option<&'s BTreeMap<InodeNo, ClientUuid>>,
    squash: Squash,
    /// See [`MetaRequest::export_root`].
    pub(crate) export_root: Option<InodeNo>,
    pre_versions: PreVersions,
    orphan: Option<InodeNo>,
    pub(crate) access: Access,
    pub(crate) settling: Option<(InodeNo, u64)>,
    pub(crate) privileged_bits: Option<(InodeNo, PrivilegedBits)>,
    found: Option<(InodeNo, InodeNo)>,
    uses: &'s mut Vec<KeyAccess>,
    pub(crate) locks: &'s Locks,
    pub(crate) blocker: &'s mut Option<TxnId>,
    pub(crate) placement: Option<DirectoryPlacement>,
    pub(crate) rules: Rules,
    /// Set for a transaction over several shards.
    pub(crate) multi_shard: Option<MultiShard<'s>>,
    /// It needs something of another shard.
    pub(crate) needs_other_shard: bool,
}

impl<'s> Txn<'s> {
    pub(crate) fn new(
        shard: &'s mut Shard,
        request: &MetaRequest<'s>,
        changes: &'s mut Vec<u8>,
    ) -> Self {
        let transno = shard.state.next_transno();
        Self {
            state: &mut shard.state,
            handles: &mut shard.handles,
            scratch: &mut shard.scratch,
            changes_start: changes.len(),
            changes,
            transno,
            now: request.now,
            behind_until: None,
            client: request.client,
            changed_behind: request.changed_behind,
            squash: request.squash,
            export_root: request.export_root,
            pre_versions: PreVersions::new(),
            orphan: None,
            access: Access::None,
            settling: None,
            privileged_bits: None,
            found: None,
            uses: &mut shard.uses,
            locks: &shard.locks,
            blocker: &mut shard.blocker,
            placement: shard.placement,
            rules: shard.rules,
            multi_shard: None,
            needs_other_shard: false,
        }
    }

    /// Ends the transaction.
    pub(crate) fn finish(self, status: Status) -> Effect {
        let changed = self.changes.len() > self.changes_start;
        if !changed {
            let access = if status == Status::Ok { self.access } else { Access::None };
            let Self { orphan, settling, privileged_bits, found, .. } = self;
            return Effect {
                orphan,
                access,
                settling,
                privileged_bits,
                found,
                ..Effect::unchanged(status)
            };
        }
        assert!(status == Status::Ok, "an operation that fails changes nothing");
        self.state.transno_last = self.transno;
        let Self {
            transno, pre_versions, orphan, access, settling, privileged_bits, found, ..
        } = self;
        Effect { status, transno, pre_versions, orphan, access, settling, privileged_bits, found }
    }

    // Reading.

    pub(crate) const fn credentials<'a>(&self, caller: Caller<'a>) -> Credentials<'a> {
        Credentials::new(caller, self.squash)
    }

    pub(crate) fn inode(&self, inode: InodeNo) -> Result<&Inode, Status> {
        self.state.inode(inode).ok_or(Status::Stale)
    }

    /// The target of a symbolic link that was removed a moment ago.
    pub(crate) fn removed_link(&self, inode: InodeNo) -> Result<&[u8], Status> {
        self.state.removed_links.target(inode).ok_or(Status::Stale)
    }

    /// An inode's row, of this shard or from another shard's snapshot.
    pub(crate) fn row(&self, inode: InodeNo) -> Result<InodeRow, Status> {
        if let Some(multi_shard) = self.multi_shard.as_ref().filter(|_| !self.is_here(inode)) {
            return multi_shard.view.row(inode).ok_or(Status::Stale);
        }
        self.inode(inode).map(|known| known.row)
    }

    /// A directory's row, of this shard or from another shard's snapshot.
    pub(crate) fn dir_row(&self, dir: InodeNo) -> Result<InodeRow, Status> {
        let row = self.row(dir)?;
        if row.kind == FileKind::Directory { Ok(row) } else { Err(Status::NotDirectory) }
    }

    pub(crate) fn directory(&self, dir: InodeNo) -> Result<(&InodeRow, &Directory), Status> {
        let known = self.inode(dir)?;
        match &known.body {
            Body::Directory(directory) => Ok((&known.row, directory)),
            Body::File | Body::Symlink(_) | Body::Special => Err(Status::NotDirectory),
        }
    }

    /// The attributes of an inode with the row `row`. Extended ones of another shard's inode are
    /// not known here, and neither are those that a transaction over several shards will set.
    pub(crate) fn attr_of(&self, row: &InodeRow) -> Attr {
        let known = self.state.inode(row.inode).filter(|_| self.is_here(row.inode));
        let attr = row.attr();
        Attr { flags: attr.flags | known.map_or(attr_flag::XATTRS, Inode::flags), ..attr }
    }

    /// Records that a client of a limited export found an inode by name in a directory.
    pub(crate) fn found(&mut self, dir: InodeNo, target: Target) {
        if self.export_root.is_none() || target.kind == FileKind::Directory {
            return;
        }
        match self.state.inode(target.inode) {
            Some(known) if known.row.is_named_elsewhere(dir) => {
                self.state.export_tracking.name(target.inode, dir);
            }
            Some(_) => {}
            None => self.found = Some((target.inode, dir)),
        }
    }

    /// A vector to build a reply in, empty.
    pub(crate) fn scratch(&mut self) -> (&mut Vec<u8>, &mut State) {
        self.scratch.clear();
        (self.scratch, self.state)
    }

    // Permissions.

    /// Checks permissions on an inode, of this shard or from another shard's snapshot.
    pub(crate) fn permit(
        &self,
        inode: InodeNo,
        credentials: &Credentials<'_>,
        permissions: Permissions,
    ) -> Result<(), Status> {
        let acl = match self.multi_shard.as_ref().filter(|_| !self.is_here(inode)) {
            Some(multi_shard) => multi_shard.view.acl(inode),
            None => Acl::access(self.inode(inode)?),
        };
        credentials.permit(&self.row(inode)?, acl, permissions)
    }

    /// Whether the caller may change a file's contents: its owner, a client with the file open for
    /// writing, or a caller with write permission.
    pub(crate) fn permit_contents(
        &self,
        row: &InodeRow,
        credentials: &Credentials<'_>,
    ) -> Result<(), Status> {
        if credentials.owns(row) || self.handles.writes(row.inode, self.client) {
            return Ok(());
        }
        self.permit(row.inode, credentials, Permissions::WRITE)
    }

    /// Looks a name up for a caller that needs permission to search the directory.
    pub(crate) fn search(
        &self,
        dir: InodeNo,
        name: Name<'_>,
        credentials: &Credentials<'_>,
    ) -> Result<Option<Target>, Status> {
        self.dir_row(dir)?;
        self.permit(dir, credentials, Permissions::EXECUTE)?;
        if let Some(multi_shard) = self.multi_shard.as_ref().filter(|_| !self.is_here(dir)) {
            return Ok(multi_shard.view.target(dir, name.bytes()));
        }
        Ok(self.directory(dir)?.1.get(self.state.name_key.hashed(name.bytes())))
    }

    /// Whether entries may be added to a directory.
    pub(crate) fn permit_change(
        &self,
        dir: InodeNo,
        credentials: &Credentials<'_>,
    ) -> Result<(), Status> {
        let row = self.dir_row(dir)?;
        if row.nlink == 0 {
            return Err(Status::NotFound);
        }
        self.permit(dir, credentials, Permissions::CHANGE_ENTRIES)
    }

    /// Whether an entry may be taken out of a directory.
    pub(crate) fn permit_remove(
        &self,
        dir: InodeNo,
        target: Target,
        credentials: &Credentials<'_>,
    ) -> Result<(), Status> {
        self.permit_change(dir, credentials)?;
        let row = self.dir_row(dir)?;
        if row.mode & STICKY != 0
            && !credentials.owns(&row)
            && !credentials.owns(&self.row(target.inode)?)
        {
            return Err(Status::NotPermitted);
        }
        Ok(())
    }

    /// Whether another handle may be registered.
    pub(crate) fn permit_handle(&self) -> Result<(), Status> {
        if self.handles.is_full(self.client) { Err(Status::TooManyFiles) } else { Ok(()) }
    }

    // Changing.

    /// The row of a new inode in a directory, not stored yet.
    pub(crate) fn new_inode(
        &self,
        parent: InodeNo,
        kind: FileKind,
        mode: NewMode,
        credentials: &Credentials<'_>,
    ) -> Result<InodeRow, Status> {
        let dir = self.dir_row(parent)?;
        if [credentials.uid, credentials.gid].contains(&u32::MAX) {
            return Err(Status::Invalid); // Not a valid id for chown(2).
        }
        let inode = match self.multi_shard.as_ref() {
            Some(multi_shard) => multi_shard.view.new_inode(),
            None => self.state.next_inode(),
        };
        let inode = inode.ok_or(Status::NoSpace)?;
        let inherits = self.default_acl(parent).filter(|_| kind != FileKind::Symlink);
        let mode = mode.within(inherits);
        let mut row = InodeRow::new(inode, kind, mode, self.now);
        row.parent = parent;
        row.uid = credentials.uid;
        row.gid = credentials.gid;
        if dir.mode & SET_GID != 0 {
            row.gid = dir.gid;
            // A caller outside the group may not create a program that runs with it.
            let runs_as_group = mode & SET_GID != 0 && mode & 0o010 != 0;
            if kind == FileKind::Directory {
                row.mode |= SET_GID;
            } else if runs_as_group && !credentials.is_root() && !credentials.in_group(dir.gid)? {
                row.mode &= !SET_GID;
            }
        }
        match kind {
            FileKind::Directory => row.nlink = 2,
            FileKind::File => {
                let wanted = self.layout_below(parent);
                row.layout = Some(self.state.layout(wanted, inode.generation()));
            }
            FileKind::Symlink
            | FileKind::Fifo
            | FileKind::Socket
            | FileKind::CharDevice
            | FileKind::BlockDevice => {}
        }
        Ok(row)
    }

    /// Stores the row of a new inode, with the lists it inherits from its directory.
    pub(crate) fn put_new(&mut self, parent: InodeNo, row: InodeRow) -> InodeRow {
        let row = self.put(row);
        if row.size_at_data {
            self.handles.begin_writing(row.inode, self.client);
        }
        let layout = self.layout_below(parent).filter(|_| row.kind == FileKind::Directory);
        if let Some(layout) = layout {
            let text = layout.text();
            self.put_xattr(row.inode, Bytes(Layout::XATTR), Bytes(text.as_bytes()));
        }
        if row.kind == FileKind::Symlink {
            return row;
        }
        if let Some(acl) = self.default_acl(parent) {
            let (access, default) = (acl.inherited(row.mode).0, acl.bytes().to_vec());
            if !acl.is_mode() {
                self.put_xattr(row.inode, Bytes(acl::ACCESS), Bytes(&access));
            }
            if row.kind == FileKind::Directory {
                self.put_xattr(row.inode, Bytes(acl::DEFAULT), Bytes(&default));
            }
        }
        row
    }

    /// The layout that a directory of this shard gives to what is new in it, if it has one.
    fn layout_below(&self, dir: InodeNo) -> Option<Layout> {
        let text = self.state.inode(dir)?.xattrs.get(Layout::XATTR)?;
        Layout::from_text(text)
    }

    /// Lends a text of an answer.
    pub(crate) fn text(&mut self, text: &str) -> &[u8] {
        self.scratch.clear();
        self.scratch.extend_from_slice(text.as_bytes());
        self.scratch
    }

    /// The default list of a directory of this shard: entries are created at their directory's
    /// shard.
    fn default_acl(&self, dir: InodeNo) -> Option<Acl<'_>> {
        self.state.inode(dir).and_then(Acl::default)
    }

    /// Stores an inode's row with this transaction as its version. For an existing directory only
    /// the attributes: other transactions change its counts and cookies too.
    pub(crate) fn put(&mut self, row: InodeRow) -> InodeRow {
        let row = InodeRow { version: self.transno, ..row };
        let known = self.row(row.inode).ok().filter(|_| row.nlink > 0);
        match known.filter(|known| known.kind == FileKind::Directory) {
            Some(known) => {
                let set = (row.mtime, row.mtime_set) != (known.mtime, known.mtime_set);
                self.change(&Change::DirAttrs {
                    inode: row.inode,
                    mode: row.mode,
                    uid: row.uid,
                    gid: row.gid,
                    atime: row.atime,
                    mtime: set.then_some((row.mtime, row.mtime_set)),
                    ctime: row.ctime,
                    parent: row.parent,
                    version: row.version,
                });
                InodeRow { touched: if set { self.transno } else { row.touched }, ..row }
            }
            None => {
                if row.kind == FileKind::File
                    && known
                        .is_some_and(|known| known.atime > known.ctime && row.atime <= row.ctime)
                {
                    self.access = self.access.ends(row.inode);
                }
                self.change(&Change::Inode { row });
                row
            }
        }
    }

    /// Stores an entry; one that replaces another keeps its cookie.
    pub(crate) fn put_entry(
        &mut self,
        dir: InodeNo,
        name: Name<'_>,
        row: &InodeRow,
        over: Option<Target>,
    ) {
        #[expect(clippy::expect_used, reason = "the directory was found by the checks before")]
        let dir_row = self.dir_row(dir).expect("a checked directory");
        // Over several shards the cookie is assigned when the entry is applied.
        let next = if self.multi_shard.is_some() { 0 } else { dir_row.next_cookie };
        let cookie = over.map_or(next, |target| target.cookie);
        let (inode, kind, version) = (row.inode, row.kind, self.transno);
        let before = over.map_or(Transno(0), |target| target.version);
        let put = Change::Dirent { dir, name, cookie, inode, kind, version };
        self.change_from(Some(before), &put);
    }

    pub(crate) fn drop_entry(&mut self, dir: InodeNo, name: Name<'_>) {
        self.change(&Change::DirentRemoved { dir, name });
    }

    /// Changes a directory's counts and times.
    pub(crate) fn touch(&mut self, dir: InodeNo, delta: EntryDelta) {
        let (mtime, ctime) = (self.mtime_of_names(dir), self.now);
        let EntryDelta { entry_delta, nlink_delta } = delta;
        self.change(&Change::Touch { inode: dir, mtime, ctime, nlink_delta, entry_delta });
    }

    pub(crate) fn put_target(&mut self, inode: InodeNo, target: Bytes<'_>) {
        self.change(&Change::Symlink { inode, target });
    }

    pub(crate) fn put_xattr(&mut self, inode: InodeNo, name: Bytes<'_>, value: Bytes<'_>) {
        self.change(&Change::Xattr { inode, name, value });
    }

    pub(crate) fn drop_xattr(&mut self, inode: InodeNo, name: Bytes<'_>) {
        self.change(&Change::XattrRemoved { inode, name });
    }

    /// Adds a key that the transaction depends on besides its changes.
    pub(crate) fn uses(&mut self, key: DependencyKey, mode: AccessMode) {
        self.uses.push(KeyAccess { key, mode });
    }

    /// Registers a handle; the first writer's records that the data shards have the size.
    pub(crate) fn open(&mut self, row: InodeRow, handle: Handle) -> InodeRow {
        self.handles.open(row.inode, self.client, handle);
        self.state.export_tracking.touch(row.inode);
        let writes = handle.open_for.writes();
        if writes && !row.size_at_data && self.rules.hold(Rule::SizeFlag) {
            self.handles.begin_writing(row.inode, self.client);
            return self.put(InodeRow { size_at_data: true, ..row });
        }
        if writes && self.rules.hold(Rule::SizeFlag) {
            // Another open recorded that, possibly just now.
            self.uses(DependencyKey::Inode(row.inode), AccessMode::Durable);
        }
        row
    }

    /// Removes one name, in `dir`, of an inode other than a directory.
    pub(crate) fn unname(&mut self, row: InodeRow, dir: InodeNo) {
        // A disk that has lost what it said to be durable may have left the name of a removed file.
        let nlink = row.nlink.saturating_sub(1);
        match row.kind {
            // Only a regular file can be open here, and has an object.
            FileKind::Symlink
            | FileKind::Fifo
            | FileKind::Socket
            | FileKind::CharDevice
            | FileKind::BlockDevice
                if nlink == 0 =>
            {
                self.change(&Change::InodeRemoved { inode: row.inode });
            }
            FileKind::File
            | FileKind::Symlink
            | FileKind::Fifo
            | FileKind::Socket
            | FileKind::CharDevice
            | FileKind::BlockDevice => {
                let parent = if nlink == 0 {
                    dir
                } else if row.parent == dir {
                    InodeNo(0)
                } else {
                    row.parent
                };
                self.put(InodeRow { nlink, parent, ctime: self.ctime_behind(&row), ..row });
                self.check_orphan(row.inode);
            }
            FileKind::Directory => unreachable!("directories are removed, not unlinked"),
        }
    }

    /// Removes a directory's only name.
    pub(crate) fn remove_directory(&mut self, row: InodeRow) {
        // Over several shards its own shard checks for handles when it applies the change.
        if self.multi_shard.is_none() && self.handles.is_free(row.inode) {
            self.change(&Change::InodeRemoved { inode: row.inode });
        } else {
            self.put(InodeRow { nlink: 0, ctime: self.now, ..row });
        }
    }

    /// Reports an inode without names and handles as an orphan.
    pub(crate) fn check_orphan(&mut self, inode: InodeNo) {
        if self.state.orphans.contains(&inode) && self.handles.is_free(inode) {
            self.orphan = Some(inode);
        }
    }

    fn change(&mut self, change: &Change<'_>) {
        let before =
            if self.multi_shard.is_some() { None } else { self.state.version_before(change) };
        self.change_from(before, change);
    }

    /// Applies a change of an object that had this version.
    fn change_from(&mut self, before: Option<Transno>, change: &Change<'_>) {
        if let Some(multi_shard) = &mut self.multi_shard {
            #[expect(clippy::expect_used, reason = "an operation changes inodes and entries")]
            let shard = owner(change).expect("a change of a shard");
            let part = multi_shard.plan.parts.entry(shard).or_default();
            return change.encode(&mut Writer::new(part));
        }
        debug_assert!(before == self.state.version_before(change), "it was looked up before");
        if let Some(version) = before {
            self.pre_versions.push(version);
        }
        uses::of_change(self.state, change, self.uses);
        change.encode(&mut Writer::new(self.changes));
        #[expect(clippy::expect_used, reason = "an operation checked what it changes")]
        self.state.apply(self.transno, change).expect("a checked change applies");
    }
}
