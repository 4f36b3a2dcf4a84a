//! Names that a client's mount creates and removes before the server has executed that, in directories
//! that it has made itself (docs/protocol.md 20.7). As with [`crate::early`], one at a time.
//!
//! Checked: a client that looks a name up after the early answer of its change sees that, or a later
//! one (L3); the server refuses no such change without a reason (L4).

use crate::cache::{CacheKey, changed_by};
use crate::early::EarlyWrites;
use crate::simulation::Simulation;
use crate::work::{CallRecord, CallResult, CallSpec, CallState, NameNo, Tag};
use client::{Call, Client, MakeBehind};
use interface::Mono;
use std::collections::BTreeMap;
use wire::{CreateBehind, FileKind, Handle, InodeNo, Status, Timestamp};

/// What a name in such a directory is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Known {
    /// A file that was made here, and has no other name.
    File(InodeNo),
    Other,
}

/// A directory whose names are changed early.
#[derive(Debug)]
pub(crate) struct EarlyDirectory {
    /// The lane that has the lease.
    pub(crate) lane: usize,
    /// Where it is.
    place: (InodeNo, NameNo),
    /// All of its names.
    names: BTreeMap<NameNo, Known>,
}

impl EarlyDirectory {
    pub(crate) const fn parent(&self) -> InodeNo {
        self.place.0
    }
}

/// What the caller of a change is told before it is executed.
#[derive(Clone, Copy, Debug)]
pub(crate) enum EarlyAnswer {
    /// Where the bytes of a write are, or the size of a file whose mode is set.
    At(u64),
    Created(CreateBehind, Handle),
    Unlinked(Timestamp),
}

impl EarlyAnswer {
    /// The result that its caller sees.
    pub(crate) fn result(self) -> CallResult {
        match self {
            Self::At(at) => CallResult { file_offset: Some(at), ..CallResult::default() },
            Self::Created(behind, handle) => CallResult {
                inode: Some(behind.inode),
                kind: Some(FileKind::File),
                made: true,
                handle: Some(handle.id),
                ..CallResult::default()
            },
            Self::Unlinked(_) => CallResult::default(),
        }
    }

    /// The call as it is made, if its caller has this answer.
    pub(crate) fn call(answer: Option<Self>, call: Call<'_>) -> Call<'_> {
        match (call, answer) {
            (Call::Write(write), Some(Self::At(file_offset))) => {
                let (append, behind) = (true, true);
                Call::Write(client::Write { file_offset, append, behind, ..write })
            }
            (Call::Setattr(args), Some(_)) => Call::SetattrBehind(args),
            (Call::Create(args), Some(Self::Created(behind, handle))) => {
                let client::Create { caller, parent, name, mode, umask, .. } = args;
                let make = MakeBehind { caller, parent, name, mode, umask, handle, behind };
                Call::CreateBehind(make)
            }
            (Call::Unlink(args), Some(Self::Unlinked(at))) => {
                Call::UnlinkBehind(wire::Unlink { behind: Some(at), ..args })
            }
            (call, _) => call,
        }
    }
}

impl EarlyWrites {
    /// A call is about to begin beside others. What its caller is told before it is executed, if it
    /// changes a name.
    pub(crate) fn begin_name(
        &mut self,
        spec: &CallSpec,
        others: &[CallSpec],
        (core, now): (&mut Client, Mono),
    ) -> Option<(InodeNo, EarlyAnswer)> {
        match *spec {
            CallSpec::Create { parent, name, open: Some(open_for), .. } => {
                let directory = self.directories.get(&parent)?;
                let is_known = directory.names.contains_key(&name);
                if is_known || is_busy((parent, directory), None, others) {
                    return None;
                }
                let at = core.server_time(now, parent)?;
                let handle = core.begin_handle(open_for)?;
                // Each directory's files are another program's.
                let creator = u32::try_from(parent.0 % 7).unwrap_or(0);
                let by = (creator, self.last_new.filter(|inode| inode.0.is_multiple_of(2)));
                let Some(inode) = core.take_new_file(parent, by) else {
                    core.cancel_handle(handle.id);
                    return None;
                };
                self.last_new = Some(inode);
                Some((parent, EarlyAnswer::Created(CreateBehind { inode, at }, handle)))
            }
            CallSpec::Unlink { parent, name } => {
                let directory = self.directories.get(&parent)?;
                let Some(Known::File(inode)) = directory.names.get(&name).copied() else {
                    return None;
                };
                if is_busy((parent, directory), Some(inode), others) {
                    return None;
                }
                Some((parent, EarlyAnswer::Unlinked(core.server_time(now, parent)?)))
            }
            CallSpec::Setxattr { inode, .. } | CallSpec::Removexattr { inode, .. } => {
                if self.directories.contains_key(&inode) {
                    self.end(inode);
                }
                None
            }
            _ => None,
        }
    }

    /// A call is answered by the server: what it means for the names of directories. `granted`: the
    /// directory that it has made may be changed early. What overlaps with another change of a name by
    /// this client leaves unknown what the name is.
    pub(crate) fn see_name(
        &mut self,
        call: &CallRecord,
        (lane, granted): (usize, bool),
        calls: &[CallRecord],
    ) {
        let changed: Vec<_> = names_of(&call.spec).collect();
        let overlaps = |other: &&CallRecord| {
            let is_other = (other.began_ns, other.spec) != (call.began_ns, call.spec);
            is_other
                && other.client == call.client
                && other.ended_ns.is_none_or(|ended_ns| ended_ns >= call.began_ns)
                && names_of(&other.spec).any(|name| changed.contains(&name))
        };
        let is_alone = changed.is_empty() || !calls.iter().any(|other| overlaps(&other));
        let Some(result) = call.result().filter(|_| is_alone) else {
            let is_absent = call.ended == CallState::Failed(Status::NotFound);
            if !is_alone || (call.may_have_happened() && !is_absent) {
                changed.iter().for_each(|(parent, _)| self.end(*parent));
                changed.iter().for_each(|place| self.end_at(*place));
            }
            return;
        };
        if let CallSpec::Rename { .. } | CallSpec::Rmdir { .. } = call.spec {
            changed.iter().for_each(|place| self.end_at(*place));
        }
        let mut set = |(parent, name): (InodeNo, NameNo), known| {
            if let Some(directory) = self.directories.get_mut(&parent) {
                match known {
                    Some(known) => directory.names.insert(name, known),
                    None => directory.names.remove(&name),
                };
            }
        };
        match call.spec {
            CallSpec::Create { parent, name, .. } if result.made => {
                set((parent, name), result.inode.map(Known::File));
            }
            CallSpec::Mkdir { parent, name, .. } => {
                set((parent, name), Some(Known::Other));
                // A kernel lets nobody into a directory before its mkdir is answered.
                let is_used = |inode: InodeNo| {
                    calls.iter().any(|other| {
                        other.client == call.client
                            && other.ended_ns.is_none_or(|ended_ns| ended_ns >= call.began_ns)
                            && names_of(&other.spec).any(|(parent, _)| parent == inode)
                    })
                };
                if let Some(inode) = result.inode.filter(|inode| granted && is_used(*inode)) {
                    self.ended.push((lane, inode));
                } else if let Some(inode) = result.inode.filter(|_| granted) {
                    let (place, names) = ((parent, name), BTreeMap::new());
                    self.directories.insert(inode, EarlyDirectory { lane, place, names });
                }
            }
            CallSpec::Symlink { parent, name } => set((parent, name), Some(Known::Other)),
            CallSpec::Link { inode, parent, name } => {
                set((parent, name), Some(Known::Other));
                let all = self.directories.values_mut().flat_map(|it| it.names.values_mut());
                all.filter(|known| **known == Known::File(inode))
                    .for_each(|known| *known = Known::Other);
            }
            CallSpec::Unlink { parent, name } | CallSpec::Rmdir { parent, name } => {
                set((parent, name), None);
            }
            // With two names of one inode it leaves both.
            CallSpec::Rename { from, to, .. } => {
                self.end(from.0);
                self.end(to.0);
            }
            _ => {}
        }
    }

    /// What is at this place may be another directory, or none.
    fn end_at(&mut self, place: (InodeNo, NameNo)) {
        let there = self.directories.iter().filter(|(_, directory)| directory.place == place);
        for inode in there.map(|(inode, _)| *inode).collect::<Vec<_>>() {
            self.end(inode);
        }
    }

    /// The directory that was made last of those whose names may be changed early, and the names that
    /// it has.
    pub(crate) fn latest_directory(&self) -> Option<(InodeNo, Vec<NameNo>)> {
        let (inode, directory) = self.directories.last_key_value()?;
        Some((*inode, directory.names.keys().copied().collect()))
    }
}

/// Whether calls under way change the names of a directory, or this file, or where the directory is.
fn is_busy(
    (inode, directory): (InodeNo, &EarlyDirectory),
    file: Option<InodeNo>,
    others: &[CallSpec],
) -> bool {
    others.iter().flat_map(changed_by).any(|key| match key {
        CacheKey::Name(parent, name) => parent == inode || (parent, name) == directory.place,
        CacheKey::Attributes(changed) | CacheKey::Contents(changed) => {
            changed == inode || Some(changed) == file
        }
        _ => false,
    })
}

/// The names that a call changes.
fn names_of(spec: &CallSpec) -> impl Iterator<Item = (InodeNo, NameNo)> + use<> {
    changed_by(spec).into_iter().filter_map(|key| match key {
        CacheKey::Name(parent, name) => Some((parent, name)),
        _ => None,
    })
}

/// What a lookup has found.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NameLook {
    pub(crate) client: usize,
    pub(crate) key: (InodeNo, NameNo),
    pub(crate) value: Option<InodeNo>,
    pub(crate) began_ns: u64,
    pub(crate) ended_ns: u64,
}

/// What clients have seen of names, and those that were changed early.
#[derive(Default, Debug)]
pub(crate) struct EarlyNames {
    looks: Vec<NameLook>,
    changes: Vec<Tag>,
}

impl Simulation {
    /// A call is answered: it may have shown a name.
    pub(crate) fn see_names(&mut self, call: &CallRecord) {
        let CallSpec::Lookup { parent, name } = call.spec else { return };
        let value = match &call.ended {
            CallState::Done(result) => result.inode,
            CallState::Failed(Status::NotFound) => None,
            CallState::Open | CallState::Failed(_) => return,
        };
        let (client, key, began_ns, ended_ns) =
            (call.client, (parent, name), call.began_ns, self.now_ns);
        let look = NameLook { client, key, value, began_ns, ended_ns };
        let changes = self.early_names.changes.clone();
        changes.into_iter().for_each(|change| self.check_early_name(look, change));
        self.early_names.looks.push(look);
    }

    /// A name that was changed early is changed, or was not.
    pub(crate) fn end_early_name(&mut self, tag: Tag, result: Result<(), Status>, is_taken: bool) {
        let Some(call) = self.call_of(tag).cloned() else { return };
        let client = call.client;
        let (CallSpec::Create { parent, .. } | CallSpec::Unlink { parent, .. }) = call.spec else {
            return;
        };
        let lives = self.lives();
        if let Err(status) = result {
            self.mounts[client].early.end(parent);
            let mount = &self.mounts[client];
            let is_certain = mount.alive && mount.evicted_ns.is_none() && !mount.was_late;
            let is_excused = is_taken || self.absent || call.began_lives != lives;
            if status == Status::Stale && is_certain && !is_excused {
                self.violates(format!("L4: early call {tag} {:?} was refused", call.spec));
            }
            return;
        }
        if matches!(call.spec, CallSpec::Create { .. }) {
            self.record_seen(&call);
        }
        // A restarted server does not know that it has taken the lease.
        if !is_taken || call.began_lives == lives {
            let looks = self.early_names.looks.clone();
            looks.into_iter().for_each(|look| self.check_early_name(look, tag));
            self.early_names.changes.push(tag);
        }
    }

    fn check_early_name(&mut self, look: NameLook, change: Tag) {
        let Some(call) = self.call_of(change) else { return };
        let is_behind = call.ended_ns.is_some_and(|ended_ns| ended_ns < look.began_ns);
        if call.client != look.client && is_behind && self.is_name_stale(look, change) {
            let NameLook { client, key, value, .. } = look;
            self.violates(format!(
                "L3: client {client} has found name {key:?} to be {value:?}, and early call {change} \
                 changed it before"
            ));
        }
    }
}
