//! What a request means for leases: the keys that other clients must not cache when it is executed,
//! and whether what it shows may be cached (docs/protocol.md §20). Both follow from what the
//! operation needs. Who holds a lease is known to the lane.

use crate::decoded::decoded;
use crate::directory::Target;
use crate::inode::Inode;
use crate::multi_shard::Requirement;
use crate::needs::Needs;
use crate::ops;
use crate::shard::{MetaRequest, Shard};
use alloc::boxed::Box;
use alloc::vec::Vec;
use wire::{Attr, Changes, ClientUuid, InodeNo, Name, Op, Reader};

/// What a lease is about.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum LeaseKey {
    /// The attributes of an inode.
    Attributes(InodeNo),
    /// A name in a directory, by its hash, whether it exists or not.
    Name(InodeNo, u64),
    /// The contents of a file.
    Contents(InodeNo),
    /// The pages of a file, at its data shard.
    Pages(InodeNo),
    /// A new file, which its client writes behind, or a new directory, whose names it changes
    /// behind.
    Writing(InodeNo),
}

/// A key that other clients must not cache, with its name.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LeaseConflict {
    /// The key.
    pub key: LeaseKey,
    /// The name of a [`LeaseKey::Name`], else empty.
    pub name: Box<[u8]>,
}

impl LeaseConflict {
    /// Of a key without a name.
    #[must_use]
    pub fn of(key: LeaseKey) -> Self {
        Self { key, name: Box::default() }
    }
}

impl Shard {
    /// Adds the keys that no other client may cache when a request is executed. None, if a unit that
    /// it needs is not resident: [`Shard::execute`] reports that.
    pub fn lease_conflicts(
        &mut self,
        request: &MetaRequest<'_>,
        conflicts: &mut Vec<LeaseConflict>,
    ) {
        let Some(needs) = needs_of(request.op, request.body) else { return };
        let changes = match request.op.row().changes {
            Changes::Always => true,
            Changes::IfOpenedForWriting => needs.opens_for_writing,
            Changes::Never | Changes::IfWriteAsked | Changes::Exports => false,
        };
        if !changes || !self.has(&needs) {
            return;
        }
        let opened = |inode, conflicts: &mut Vec<LeaseConflict>| {
            conflicts.push(LeaseConflict::of(LeaseKey::Attributes(inode)));
            if needs.opens_for_writing {
                conflicts.push(LeaseConflict::of(LeaseKey::Contents(inode)));
            }
        };
        // The directories of entries follow below.
        let is_dir = |inode| needs.entries().any(|(dir, _)| dir == inode);
        for inode in needs.inodes().filter(|inode| !is_dir(*inode)) {
            opened(inode, conflicts);
        }
        for (dir, name) in needs.entries() {
            let target = self.state.entry(dir, name.bytes());
            match target {
                Some(target) if needs.makes_entry && needs.opens_for_writing => {
                    opened(target.inode, conflicts);
                }
                Some(_) if needs.makes_entry => {}
                Some(_) | None => self.entry_conflicts(dir, name.bytes(), target, conflicts),
            }
        }
    }

    /// Adds the files and directories that no other client may be changing behind when a request is
    /// executed: all that it names. [`Self::lease_conflicts`] has the other keys.
    pub fn writing_conflicts(&self, (op, body): (Op, &[u8]), conflicts: &mut Vec<LeaseConflict>) {
        let Some(needs) = needs_of(op, body) else { return };
        let named = needs.entries().filter_map(|(dir, name)| self.state.entry(dir, name.bytes()));
        let named = named.map(|target| target.inode);
        let all = needs.inodes().chain(named).map(LeaseKey::Writing);
        conflicts.extend(all.map(LeaseConflict::of));
    }

    /// Whether a client has an inode open for writing.
    #[must_use]
    pub fn is_written_by(&self, inode: InodeNo, client: ClientUuid) -> bool {
        self.handles.writes(inode, client)
    }

    /// Whether a client alone has an inode open, as far as is known, and through one handle that
    /// writes.
    #[must_use]
    pub fn is_opened_once(&self, inode: InodeNo, client: ClientUuid) -> bool {
        self.handles.is_opened_once(inode, client)
    }

    /// What a coordinator's requirements conflict with.
    pub fn required_lease_conflicts(
        &self,
        requirements: &[u8],
        conflicts: &mut Vec<LeaseConflict>,
    ) {
        let mut from = Reader::new(requirements);
        while from.left() > 0 {
            let Ok(requirement) = from.read() else { return };
            match requirement {
                Requirement::Inode(inode) => {
                    conflicts.push(LeaseConflict::of(LeaseKey::Attributes(inode)));
                    conflicts.push(LeaseConflict::of(LeaseKey::Contents(inode)));
                    conflicts.push(LeaseConflict::of(LeaseKey::Writing(inode)));
                }
                Requirement::Entry(dir, name) => {
                    let target = self.state.entry(dir, &name);
                    self.entry_conflicts(dir, &name, target, conflicts);
                    let named = [Some(dir), target.map(|target| target.inode)].into_iter();
                    let writing = named.flatten().map(LeaseKey::Writing);
                    conflicts.extend(writing.map(LeaseConflict::of));
                }
                // They change nothing that is shown.
                Requirement::New(_) | Requirement::Topology | Requirement::Ancestor { .. } => {}
            }
        }
    }

    /// Adds the keys of an entry that is made, removed or replaced.
    fn entry_conflicts(
        &self,
        dir: InodeNo,
        name: &[u8],
        target: Option<Target>,
        conflicts: &mut Vec<LeaseConflict>,
    ) {
        let key = LeaseKey::Name(dir, self.state.name_key.hashed(name).hash);
        conflicts.push(LeaseConflict { key, name: Box::from(name) });
        conflicts.push(LeaseConflict::of(LeaseKey::Attributes(dir)));
        if let Some(target) = target {
            conflicts.push(LeaseConflict::of(LeaseKey::Attributes(target.inode)));
            conflicts.push(LeaseConflict::of(LeaseKey::Contents(target.inode)));
        }
    }

    /// The key of each name that a request looks up or changes, if a client may cache it.
    #[must_use]
    pub fn leasable_names(&self, op: Op, body: &[u8]) -> [Option<LeaseKey>; 2] {
        let Some(needs) = needs_of(op, body) else { return [None; 2] };
        let mut names = needs.entries().map(|(dir, name)| self.leasable_name(dir, name));
        [names.next().flatten(), names.next().flatten()]
    }

    /// The directories of the names that a request changes, each once, if a client may cache their
    /// attributes.
    #[must_use]
    pub fn leasable_directories(
        &self,
        (op, body): (Op, &[u8]),
        client: ClientUuid,
    ) -> [Option<InodeNo>; 2] {
        let Some(needs) = needs_of(op, body) else { return [None; 2] };
        let mut dirs = needs.entries().map(|(dir, _)| dir);
        let (first, second) = (dirs.next(), dirs.next());
        [first, second.filter(|_| second != first)]
            .map(|dir| dir.filter(|dir| self.is_leasable(*dir, client)))
    }

    /// The attributes of an inode of this shard.
    #[must_use]
    pub fn attributes(&self, inode: InodeNo) -> Option<Attr> {
        self.state.inode(inode).map(Inode::attr)
    }

    /// The key of a name, unless a transaction over several shards is about to change it.
    #[must_use]
    pub fn leasable_name(&self, dir: InodeNo, name: Name<'_>) -> Option<LeaseKey> {
        let is_free = self.locks.is_empty()
            || self.locks.name(dir, name.bytes(), None).or(self.locks.inode(dir, None)).is_none();
        let key = || LeaseKey::Name(dir, self.state.name_key.hashed(name.bytes()).hash);
        (is_free && dir.shard() == self.id()).then(key)
    }

    /// Whether a client may cache the attributes and contents of an inode: it is of this shard, no
    /// transaction over several shards is about to change it, nobody else may be writing it, and what
    /// is not durable of it is this client's own.
    #[must_use]
    pub fn is_leasable(&self, inode: InodeNo, client: ClientUuid) -> bool {
        let Some(row) = self.state.inode(inode).map(|known| &known.row) else { return false };
        let is_free = self.locks.is_empty()
            || self.locks.inode(inode, None).or(self.locks.entered(inode, None)).is_none();
        is_free
            && !self.handles.is_written_by_others(inode, client)
            && (!row.size_at_data
                || self.handles.writes(inode, client)
                || self.handles.settles_for(inode, client))
    }
}

/// What a request needs; `None` if it does not decode.
fn needs_of(op: Op, body: &[u8]) -> Option<Needs<'_>> {
    let mut needs = Needs::new();
    macro_rules! dispatch {
        ($($op:ident $module:ident $((several))?;)*) => {
            match op {
                $(Op::$op => {
                    let args = decoded(body).ok()?;
                    ops::$module::needs(&args, &mut needs);
                })*
                _ => return None,
            }
        };
    }
    wire::metadata_operations!(dispatch);
    Some(needs)
}
