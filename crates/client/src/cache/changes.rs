//! The changes of this client: what each concerns, from its beginning to its end.
//!
//! As long as a change is under way, nothing of what it concerns is answered from the cache: another
//! client may have seen its result, and say so. When it has ended, what was learned before is
//! outdated.

use super::Cache;
use super::stamps::{Outdated, Slots, Stamp, StampClock};
use crate::Call;
use interface::Mono;
use wire::{FileKind, InodeNo, LaneId, Name, NamedInodes, Rule};

/// A call under way: the lane that made it, the stamp of before, and what it changes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Asked {
    pub(super) lane: LaneId,
    pub(super) sent: Stamp,
    pub(super) changing: Changing,
}

/// What a call changes.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(super) struct Changing {
    /// The hashes of names.
    names: [Option<u64>; 2],
    inodes: [Option<InodeNo>; 4],
    /// An inode that is not known, too.
    unknown: bool,
    /// Names that may be known, as long as nobody else changes them first (`guards`).
    pub(super) is_guarded: bool,
    /// Until when the names are known.
    known_until: Option<Mono>,
    /// The first name was known to be absent.
    pub(super) is_absent: bool,
    /// The inode that certainly gets the new name of a rename: it has no other name.
    pub(super) moved: Option<InodeNo>,
    /// The server says what it has changed besides the directories: nothing else, whatever the names
    /// were known to name.
    named: Option<NamedInodes>,
}

/// What a call has changed.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Changed {
    pub(super) names: [Option<Outdated>; 2],
    inodes: [Option<(InodeNo, Outdated)>; 4],
    named: [Option<(InodeNo, Outdated)>; 2],
}

impl Changed {
    pub(super) fn inode(&self, inode: InodeNo) -> Option<Outdated> {
        let mut found = self.inodes.iter().chain(&self.named).flatten();
        found.find(|(changed, _)| *changed == inode).map(|(_, outdated)| *outdated)
    }
}

impl Cache {
    /// A call of this client is about to be made, by this lane. [`Self::learn`] ends it.
    #[must_use]
    pub fn begin(&self, now: Mono, lane: LaneId, call: &Call<'_>) -> Asked {
        self.terms.note_use(now);
        let sent = self.clock.now();
        let mut changing = Changing::default();
        if self.rules.hold(Rule::OwnChanges) {
            self.collect(now, call, &mut changing);
        }
        for hash in changing.names.into_iter().flatten() {
            self.name_slots.begin(hash);
            if self.name_slots.change_count(hash) > 1 {
                self.guards.lose(); // One of them finds what the other one leaves.
            }
        }
        for inode in changing.inodes.into_iter().flatten() {
            self.attribute_slots.begin(self.inode_hash(inode));
        }
        if changing.unknown {
            self.unknown.begin(0);
        }
        if changing.is_guarded {
            self.limit_guard(sent, &changing);
        }
        Asked { lane, sent, changing }
    }

    /// The names of a change were looked up, and what it changes is marked: from here on, who outdates
    /// a name sees the mark.
    fn limit_guard(&self, sent: Stamp, changing: &Changing) {
        let mut names = changing.names.iter().flatten();
        let mut inodes = changing.inodes.iter().flatten();
        let is_lost = self.floor.get() > sent
            || names.any(|hash| self.name_slots.last(*hash) > sent)
            || inodes.any(|inode| self.attribute_slots.last(self.inode_hash(*inode)) > sent);
        let until = changing.known_until.filter(|_| !is_lost);
        self.guards.limit(until.unwrap_or(Mono(0)));
    }

    /// What a call changes when it succeeds.
    fn collect(&self, now: Mono, call: &Call<'_>, changing: &mut Changing) {
        match call {
            Call::Create(crate::Create { parent, name, .. })
            | Call::CreateBehind(crate::MakeBehind { parent, name, .. })
            | Call::Mkdir(wire::Mkdir { parent, name, .. })
            | Call::Symlink(wire::Symlink { parent, name, .. })
            | Call::Mknod(wire::Mknod { parent, name, .. }) => {
                self.collect_name(changing, *parent, *name);
            }
            Call::Link(args) => {
                self.collect_name(changing, args.parent, args.name);
                changing.add_inode(args.inode);
            }
            // No other client can change the name: it names what is known, or the call is refused.
            Call::UnlinkBehind(wire::Unlink { parent, name, .. }) => {
                match self.found(now, *parent, *name).map(|found| found.value) {
                    Some(Some(inode)) => changing.add_inode(inode),
                    Some(None) => {}
                    None => changing.unknown = true,
                }
                self.collect_name(changing, *parent, *name);
            }
            Call::Unlink(wire::Unlink { parent, name, .. })
            | Call::Rmdir(wire::Rmdir { parent, name, .. }) => {
                self.collect_named(now, changing, (*parent, *name));
            }
            Call::Rename(args) => {
                self.collect_named(now, changing, (args.parent, args.name));
                self.collect_named(now, changing, (args.new_parent, args.new_name));
                changing.moved = self.single(now, args.parent, args.name);
            }
            Call::Setattr(wire::Setattr { inode, .. })
            | Call::SetattrBehind(wire::Setattr { inode, .. })
            | Call::Resize(crate::Resize { inode, .. })
            | Call::Setxattr(wire::Setxattr { inode, .. })
            | Call::Removexattr(wire::Removexattr { inode, .. })
            | Call::Write(crate::Write { inode, .. })
            | Call::WriteBack(crate::Write { inode, .. })
            | Call::WriteList(crate::WriteList { inode, .. })
            | Call::Allocate(wire::Allocate { inode, .. }) => changing.add_inode(*inode),
            Call::Lookup(_)
            | Call::Resolve(_)
            | Call::Getattr(_)
            | Call::Open(_)
            | Call::Tmpfile(_)
            | Call::Readdir(_)
            | Call::Readlink(_)
            | Call::Find(_)
            | Call::Close(_)
            | Call::Access(_)
            | Call::Getxattr(_)
            | Call::Listxattr(_)
            | Call::Statfs
            | Call::ServerStatfs
            | Call::Read(_)
            | Call::ReadPages(_)
            | Call::ReadList(_)
            | Call::Seek(_)
            | Call::SetLock(_)
            | Call::GetLock(_)
            | Call::Flush { .. }
            | Call::Sync(_)
            | Call::SyncAhead(_)
            | Call::SyncAll
            | Call::SyncShards
            | Call::Recall
            | Call::Goodbye
            | Call::Stats(_)
            | Call::Counters(_)
            | Call::Traces(_)
            | Call::Ping(_)
            | Call::SetExport(_)
            | Call::Exports
            | Call::Freeze(..)
            | Call::Inspect(_) => {}
        }
    }

    fn collect_name(&self, changing: &mut Changing, dir: InodeNo, name: Name<'_>) {
        let hash = self.name_hash(dir, name.bytes()).place;
        let free = changing.names.iter_mut().find(|place| place.is_none());
        if let Some(place) = free {
            *place = Some(hash);
        }
        changing.add_inode(dir);
    }

    /// A name, and the inode that it names.
    fn collect_named(&self, now: Mono, changing: &mut Changing, (dir, name): (InodeNo, Name<'_>)) {
        let is_first = changing.names[0].is_none();
        if !core::mem::replace(&mut changing.is_guarded, true) {
            self.guards.begin();
        }
        let found = self.found(now, dir, name);
        let lease = found
            .and_then(|found| found.lease.or_else(|| self.hold(now, dir).map(|held| held.lease)));
        let until = lease.map_or(Mono(0), |lease| self.terms.until(lease));
        changing.known_until = Some(changing.known_until.map_or(until, |known| known.min(until)));
        match found.map(|found| found.value) {
            Some(Some(inode)) => changing.add_inode(inode),
            Some(None) => changing.is_absent |= is_first,
            None => changing.unknown = true,
        }
        self.collect_name(changing, dir, name);
    }

    /// The inode that a name names, if it has no other name.
    fn single(&self, now: Mono, dir: InodeNo, name: Name<'_>) -> Option<InodeNo> {
        let inode = self.found(now, dir, name)?.value?;
        let attr = self.attributes(now, inode)?.value;
        (attr.kind == FileKind::Directory || attr.nlink == 1).then_some(inode)
    }

    /// A call has ended, and has changed nothing.
    pub(super) fn cancel(&self, asked: Asked) {
        let Changing { names, inodes, unknown, is_guarded, .. } = asked.changing;
        names.into_iter().flatten().for_each(|hash| self.name_slots.cancel(hash));
        for inode in inodes.into_iter().flatten() {
            self.attribute_slots.cancel(self.inode_hash(inode));
        }
        if unknown {
            self.unknown.cancel(0);
        }
        if is_guarded {
            self.guards.end();
        }
    }

    /// What a call has changed is learned: it has changed no inode that is not known.
    pub(super) fn end_guard(&self, asked: Asked) {
        let Changing { unknown, is_guarded, .. } = asked.changing;
        if unknown && !asked.changing.ends_unknown() {
            self.unknown.cancel(0);
        }
        if is_guarded {
            self.guards.end();
        }
    }

    /// Whether another client may have changed a name in this directory since the call began,
    /// without a recall of the name.
    pub(super) fn has_lost(&self, now: Mono, asked: Asked, dir: InodeNo) -> bool {
        let ended = self.hold_slots.get(self.inode_hash(dir)).max(self.floor.get());
        ended > asked.sent || asked.changing.known_until.is_some_and(|until| until <= now)
    }

    /// An inode that is not known was changed.
    pub(super) fn outdate_unknown(&self) {
        self.unknown.outdate(&self.clock, 0);
    }

    /// A call has ended: what it has changed is outdated.
    pub(super) fn end(&self, asked: Asked) -> Changed {
        let Changing { names, inodes, named, .. } = asked.changing;
        let clock = &self.clock;
        // A change of an inode that was not known may have been one of this inode.
        let all_outdated = self.unknown.last(0).max(self.floor.get());
        if asked.changing.ends_unknown() {
            self.unknown.end(clock, 0);
        }
        let end_inode = |inode, outdate: fn(&Slots, &StampClock, u64) -> Outdated| {
            let hash = self.inode_hash(inode);
            self.unkept.set(hash, 0);
            let Outdated { before, now } = outdate(&self.attribute_slots, clock, hash);
            (inode, Outdated { before: before.max(all_outdated), now })
        };
        let NamedInodes(named) =
            named.filter(|_| self.rules.hold(Rule::NamedInodes)).unwrap_or_default();
        let named = named.map(|inode| inode.filter(|inode| !inodes.contains(&Some(*inode))));
        Changed {
            names: names.map(|hash| {
                let hash = hash?;
                self.unkept.set(hash, 0);
                Some(self.name_slots.end(clock, hash))
            }),
            inodes: inodes.map(|inode| Some(end_inode(inode?, Slots::end))),
            named: named.map(|inode| Some(end_inode(inode?, Slots::outdate))),
        }
    }
}

impl Asked {
    /// The call has ended: what it has changed, if the server says that.
    pub(super) const fn naming(mut self, named: Option<NamedInodes>) -> Self {
        self.changing.named = named;
        self
    }

    /// Whether the server says what the call has changed.
    pub(super) const fn is_named(&self) -> bool {
        self.changing.named.is_some()
    }
}

impl Changing {
    /// Whether the end of the call outdates the attributes of all inodes.
    const fn ends_unknown(&self) -> bool {
        self.unknown && self.named.is_none()
    }

    fn add_inode(&mut self, inode: InodeNo) {
        if self.inodes.contains(&Some(inode)) {
            return;
        }
        let free = self.inodes.iter_mut().find(|place| place.is_none());
        if let Some(place) = free {
            *place = Some(inode);
        }
    }
}
