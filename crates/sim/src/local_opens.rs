//! Files that a client's mount opens without the server (R20.37): the production code, with what a mount
//! does around it. A client that has a file open so can look at it until it closes it, also when its
//! last name is removed.

use crate::clients::Mount;
use crate::due::Place;
use crate::plan::DiskBehaviour;
use crate::reply::ReplyBytes;
use crate::simulation::Simulation;
use crate::work::{CallRecord, CallSpec, CallState};
use client::{Client, LOCAL_MS_MAX, RecalledKey};
use std::collections::BTreeSet;
use wire::{FileKind, InodeNo, OpenFor, Status};

/// Whether a recall waits until files that are open so are registered. `elsewhere`: those that other lanes
/// register.
pub(crate) fn delays(
    core: &mut Client,
    elsewhere: &BTreeSet<InodeNo>,
    keys: &[RecalledKey],
) -> bool {
    let mut waits = false;
    for key in keys {
        waits |= match key {
            RecalledKey::Attributes(inode) => {
                core.register_local(*inode) || elsewhere.contains(inode)
            }
            RecalledKey::All => !core.register_all_local().is_empty() || !elsewhere.is_empty(),
            RecalledKey::Name(..)
            | RecalledKey::Contents(_)
            | RecalledKey::Pages(_)
            | RecalledKey::Writing(_) => false,
        };
    }
    waits
}

/// Whether a call may make the server refuse to register a file that is open so.
const fn is_against(spec: &CallSpec) -> bool {
    matches!(
        spec,
        CallSpec::Unlink { .. }
            | CallSpec::Rename { .. }
            | CallSpec::Setattr { .. }
            | CallSpec::ClearBits { .. }
    )
}

/// The file that a call changes through an open file.
const fn changes(spec: &CallSpec) -> Option<InodeNo> {
    match spec {
        CallSpec::Write { inode, .. }
        | CallSpec::WriteList { inode, .. }
        | CallSpec::Allocate { inode, .. }
        | CallSpec::Resize { inode, open_for_write: true, .. } => Some(*inode),
        _ => None,
    }
}

impl Mount {
    /// Calls of a lane wait until no file of the mount is open so. Returns whether they do, and whether a
    /// file is to be registered that was not before.
    pub(crate) fn waits_for_local(&mut self, is_against: bool) -> (bool, bool) {
        if !is_against {
            return (false, false); // Others may have begun registrations.
        }
        let lanes = self.lanes.iter_mut();
        let all: BTreeSet<_> = lanes.flat_map(|lane| lane.core.register_all_local()).collect();
        let (waits, is_new) = (!all.is_empty(), !all.is_subset(&self.registering));
        self.registering = all;
        (waits, is_new)
    }

    /// Calls of a lane wait until files that they change are open for writing at the server. Returns
    /// whether they do, and whether any is to be opened so that was not before.
    fn waits_to_write(&mut self, changed: &BTreeSet<InodeNo>) -> (bool, bool) {
        let opens = |inode: &InodeNo| {
            let opening = self.lanes.iter_mut().filter_map(|lane| {
                let opens = lane.core.open_to_write(*inode);
                opens.then_some(())
            });
            opening.count() > 0
        };
        let opening: BTreeSet<InodeNo> = changed.iter().copied().filter(opens).collect();
        let is_new = !opening.is_subset(&self.opening);
        self.opening.extend(&opening);
        (!opening.is_empty(), is_new)
    }

    /// A lane has recalls to acknowledge, or its term has ended: the other lanes register what they have
    /// opened under its leases. Returns those files, and whether there are any that were not being
    /// registered before.
    fn register_elsewhere(&mut self, lane: usize) -> (BTreeSet<InodeNo>, bool) {
        let others = self.lanes.iter_mut().enumerate().filter(|(other, _)| *other != lane);
        let all: BTreeSet<_> =
            others.flat_map(|(_, other)| other.core.register_all_local()).collect();
        let is_new = !all.is_subset(&self.registering);
        self.registering.extend(&all);
        (all, is_new)
    }
}

impl Simulation {
    /// A client lane opens a file again that it has kept, if it may. A stopped process opens none.
    pub(crate) fn opens_kept(&mut self, client: usize, lane: usize, spec: &CallSpec) -> bool {
        let CallSpec::Open { inode, open_for, .. } = *spec else { return false };
        let now = self.now_at(Place::Client(client, lane)).mono;
        let sim_lane = &mut self.mounts[client].lanes[lane];
        if sim_lane.state.paused_until_ns > self.now_ns {
            return false;
        }
        let caller = wire::Caller { uid: 0, gid: 0, groups: wire::Groups::Unknown };
        let open = client::Open { caller, inode, open_for, sizes: false };
        let Some(kept) = sim_lane.core.open_kept(now, &open) else { return false };
        self.mounts[client].handles.push((kept.handle, inode, false));
        self.log_line(|| format!("client {client}.{lane}: {spec:?} without the server: {kept:?}"));
        true
    }

    /// A client lane opens a file without the server, if it may. A stopped process opens none.
    pub(crate) fn opens_locally(
        &mut self,
        (client, lane): (usize, usize),
        spec: &CallSpec,
    ) -> bool {
        let CallSpec::Open { inode, open_for, .. } = *spec else { return false };
        if !matches!(open_for, OpenFor::Read | OpenFor::ReadWrite) {
            return false;
        }
        let now = self.now_at(Place::Client(client, lane)).mono;
        let Mount { lanes, known, audits, handles, local, .. } = &mut self.mounts[client];
        let sim_lane = &mut lanes[lane];
        if !self.plan.leases || *audits || sim_lane.state.paused_until_ns > self.now_ns {
            return false;
        }
        // Whichever lane has the lease.
        let found = known.attributes(now.after_ms(LOCAL_MS_MAX), inode);
        let may = found.is_some_and(|found| {
            let attr = found.value;
            let is_spread = attr.layout.is_some_and(|layout| layout.is_spread());
            let is_plain = attr.kind == FileKind::File && !attr.is_size_at_data() && !is_spread;
            is_plain && attr.nlink > 0
        });
        let may = may && !(open_for.writes() && sim_lane.core.is_read_only());
        let opened = may.then(|| sim_lane.core.open_locally(now, (inode, open_for))).flatten();
        let Some(handle) = opened else { return false };
        handles.push((handle, inode, open_for.writes()));
        local.push((handle, inode, self.now_ns));
        self.log_line(|| format!("client {client}.{lane}: {spec:?} locally: {handle:?}"));
        true
    }

    /// Begins the registration of what is against the calls that a lane is about to begin. Returns
    /// whether they wait.
    pub(crate) fn calls_wait_for_local(&mut self, client: usize, lane: usize) -> bool {
        let to_begin = &self.mounts[client].lanes[lane].to_begin;
        let mut specs = to_begin.iter().filter_map(|tag| self.call_of(*tag)).map(|call| call.spec);
        let is_against = specs.any(|spec| is_against(&spec));
        let (waits, is_new) = self.mounts[client].waits_for_local(is_against);
        let to_begin = &self.mounts[client].lanes[lane].to_begin;
        let specs = to_begin.iter().filter_map(|tag| self.call_of(*tag)).map(|call| call.spec);
        let changed = specs.filter_map(|spec| changes(&spec)).collect();
        let (waits_to_write, is_opening) = self.mounts[client].waits_to_write(&changed);
        if is_new || is_opening {
            self.wake_lanes(client, Some(lane));
        }
        waits || waits_to_write
    }

    /// Files of a client are open for writing at the server, closed, or cannot be opened so.
    pub(crate) fn end_to_write(
        &mut self,
        client: usize,
        ended: Vec<(InodeNo, Result<(), Status>)>,
    ) {
        if ended.is_empty() {
            return;
        }
        let Mount { opening, refused, .. } = &mut self.mounts[client];
        for (inode, result) in ended {
            opening.remove(&inode);
            match result {
                Ok(()) => refused.remove(&inode),
                Err(status) => refused.insert(inode, status),
            };
        }
        self.wake_lanes(client, None);
    }

    /// Calls that are to change files which the server refuses to open for writing fail.
    pub(crate) fn fail_refused(&mut self, client: usize, lane: usize) {
        if self.mounts[client].refused.is_empty() {
            return;
        }
        let Mount { lanes, refused, .. } = &self.mounts[client];
        let to_begin = lanes[lane].to_begin.iter().copied();
        let failed = to_begin.filter_map(|tag| {
            let inode = changes(&self.call_of(tag)?.spec)?;
            Some((tag, *refused.get(&inode)?))
        });
        for (tag, status) in failed.collect::<Vec<_>>() {
            self.mounts[client].lanes[lane].to_begin.retain(|other| *other != tag);
            let id = client::CallId(u64::from(tag));
            self.answered(client, lane, id, (&Err(status), ReplyBytes::default()));
        }
    }

    /// Files of a lane are registered, or closed. If its term has ended, other lanes register theirs.
    pub(crate) fn end_local(
        &mut self,
        (client, lane): (usize, usize),
        registered: Vec<InodeNo>,
        has_term_ended: bool,
    ) {
        if !registered.is_empty() {
            self.mounts[client].registering.retain(|inode| !registered.contains(inode));
            self.wake_lanes(client, None);
        }
        if has_term_ended {
            self.register_elsewhere(client, lane, true);
        }
    }

    /// A lane that has recalls to acknowledge, or whose term has ended, has files registered that other
    /// lanes have opened. Returns those.
    pub(crate) fn register_elsewhere(
        &mut self,
        client: usize,
        lane: usize,
        has_ended: bool,
    ) -> BTreeSet<InodeNo> {
        let mount = &mut self.mounts[client];
        if !has_ended && mount.lanes[lane].recalls.is_empty() {
            return BTreeSet::new();
        }
        let (all, is_new) = mount.register_elsewhere(lane);
        if is_new {
            self.wake_lanes(client, Some(lane));
        }
        all
    }

    /// All lanes of a client, or all but one, take a turn.
    pub(crate) fn wake_lanes(&mut self, client: usize, but: Option<usize>) {
        let lanes = 0..self.mounts[client].lanes.len();
        lanes.filter(|lane| Some(*lane) != but).for_each(|lane| {
            self.schedule_turn(Place::Client(client, lane));
        });
    }

    /// A client that has opened a file so finds it as long as it has it open.
    pub(crate) fn check_open_file(&mut self, call: &CallRecord) {
        let CallSpec::Getattr { inode } = call.spec else { return };
        let Mount { handles, local, evicted_ns, was_late, .. } = &self.mounts[call.client];
        let is_open = local.iter().any(|(handle, opened, since_ns)| {
            *opened == inode
                && *since_ns < call.began_ns
                && handles.iter().any(|(open, ..)| open == handle)
        });
        let faults = &self.plan.faults;
        let may_be_silent = faults.partition_count + faults.pause_count + faults.clock_count > 0
            || faults.disk != DiskBehaviour::Honest
            || faults.silent;
        let is_lost = evicted_ns.is_some() || *was_late || self.absent || may_be_silent;
        if is_open && !is_lost && call.ended == CallState::Failed(Status::Stale) {
            self.violates(format!("L5: inode {inode} is open, and was not found"));
        }
    }
}
