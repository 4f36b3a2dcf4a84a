//! Injects the faults of the plan, and generates the calls of the workload.

use crate::clients::Mount;
use crate::due::{Due, End, Place, ScheduledFault};
use crate::net::SentFrame;
use crate::number::{low_u8, narrow, wide};
use crate::plan::Injection;
use crate::simulation::Simulation;
use crate::work::{CallRecord, CallSpec, Kind, Stride, Tag};
use interface::ConnId;
use wire::{Allocation, ClearPrivileges, FileKind, InodeNo, Layout, OpenFor};

/// One in so many reads, and writes that are not appends, is a list of several ranges.
const LIST_ONE_IN: u64 = 3;
/// One in so many of the others seeks, or allocates.
const SEEK_ONE_IN: u64 = 5;
const ALLOCATE_ONE_IN: u64 = 4;

/// Permission bits. Every caller is root, so they refuse nothing.
fn mode_of(number: u64) -> u32 {
    0o600 | u32::from(low_u8(number % 64))
}

impl Simulation {
    /// Schedules all faults of the plan.
    pub(crate) fn schedule_faults(&mut self) {
        let faults = &self.plan.faults;
        let counts = [
            (ScheduledFault::ServerCrash, faults.server_crash_count),
            (ScheduledFault::ClientCrash, faults.client_crash_count),
            (ScheduledFault::Cut, faults.cut_count),
            (ScheduledFault::Partition, faults.partition_count),
            (ScheduledFault::Join, faults.join_count),
            (ScheduledFault::Drain, faults.drain_count),
            (ScheduledFault::Pause, faults.pause_count),
            (ScheduledFault::Clock, faults.clock_count),
            (ScheduledFault::Interrupt, faults.interrupt_count),
            (ScheduledFault::Etcd, self.plan.etcd.fault_count),
        ];
        for (fault, count) in counts {
            for _ in 0..count {
                let at_ns = self.now_ns + self.prng.number() % (self.plan.faults_ns * 2);
                self.schedule_at(at_ns, Due::Fault(fault));
            }
        }
    }

    pub(crate) fn inject_fault(&mut self, fault: ScheduledFault) {
        if self.faults_stopped {
            return;
        }
        match fault {
            ScheduledFault::ServerCrash => {
                let alive_count = self.mounts.iter().filter(|mount| mount.alive).count();
                if self.plan.client_dies_too && alive_count > 1 {
                    let client = self.choose(self.mounts.len());
                    self.crash_client(client);
                }
                self.crash_some();
            }
            ScheduledFault::ClientCrash => {
                let client = self.choose(self.mounts.len());
                let was_alive = self.mounts[client].alive;
                self.crash_client(client);
                if was_alive && self.plan.replaces {
                    self.replace(client);
                }
            }
            ScheduledFault::Cut => {
                let busy = |conn: &crate::net::Conn| !conn.cut && conn.in_flight_count() > 0;
                let all: Vec<ConnId> = self.conns.keys().copied().collect();
                let mut open: Vec<ConnId> =
                    self.conns.iter().filter(|(_, conn)| busy(conn)).map(|(id, _)| *id).collect();
                if open.is_empty() {
                    open = all;
                }
                if let Some(conn) = self.prng.pick(&open) {
                    self.log_line(|| format!("cut of {conn:?}"));
                    self.cut(conn);
                }
            }
            ScheduledFault::Partition if self.servers.len() > 1 && !self.prng.one_in(4) => {
                self.part();
            }
            ScheduledFault::Partition => self.partition(),
            ScheduledFault::Join => self.join_server(),
            ScheduledFault::Drain => self.drain_some(),
            ScheduledFault::Pause => self.pause(),
            ScheduledFault::Clock => {
                let jump_ns = self.prng.span_ns(50_000_000_000);
                let back = self.prng.one_in(2);
                self.wall_skew_ns = if back {
                    self.wall_skew_ns.saturating_sub(jump_ns)
                } else {
                    self.wall_skew_ns + jump_ns
                };
            }
            ScheduledFault::Interrupt => self.interrupt_some(),
            ScheduledFault::Etcd => self.inject_etcd_fault(),
        }
    }

    /// A client process dies and never returns.
    pub(crate) fn crash_client(&mut self, client: usize) {
        let mount = &mut self.mounts[client];
        if !std::mem::replace(&mut mount.alive, false) {
            return;
        }
        self.log_line(|| format!("client {client}: crash"));
        for conn in self.conns_of(client) {
            self.end_died(conn, End::Dialler);
        }
    }

    fn conns_of(&self, client: usize) -> Vec<ConnId> {
        let ours = self.conns.iter().filter(|(_, conn)| conn.is_of_client(client));
        ours.map(|(id, _)| *id).collect()
    }

    /// A server process dies, or several do.
    pub(crate) fn crash_some(&mut self) {
        let count = self.servers.len();
        if count == 1 {
            return self.crash_server(0);
        }
        let (first, all) = (self.choose(count), self.prng.one_in(5));
        let other = self.prng.one_in(3).then(|| self.choose(count));
        for server in 0..count {
            if all || server == first || other == Some(server) {
                self.crash_server(server);
            }
        }
    }

    /// A client cannot reach any server for a while.
    fn partition(&mut self) {
        const LONG_NS: u64 = 90_000_000_000;
        let client = self.choose(self.mounts.len());
        let span_ns = match self.prng.number() % 3 {
            0 => self.prng.number() % LONG_NS,
            _ => self.prng.number() % (self.plan.faults_ns + 1),
        };
        self.record_absence(Some(client), span_ns);
        self.mounts[client].partitioned_until_ns = self.now_ns + span_ns;
        self.log_line(|| format!("client {client}: partition of {} us", span_ns / 1000));
        for conn in self.conns_of(client) {
            self.cut(conn);
        }
    }

    /// A lane takes no turns for a while.
    fn pause(&mut self) {
        const LONG_NS: u64 = 20_000_000_000;
        let span_ns = match self.prng.number() % 4 {
            0 => self.prng.number() % LONG_NS,
            _ => self.prng.number() % (self.plan.faults_ns + 1),
        };
        let lanes = self.server_lanes();
        let place = if self.prng.one_in(2) && !lanes.is_empty() {
            let (server, lane) = lanes[self.choose(lanes.len())];
            Place::Server(server, lane)
        } else {
            let client = self.choose(self.mounts.len());
            Place::Client(client, self.prng.below(self.mounts[client].lanes.len()))
        };
        let client = if let Place::Client(client, _) = place { Some(client) } else { None };
        self.record_absence(client, span_ns);
        self.log_line(|| format!("{place:?}: pause of {} us", span_ns / 1000));
        let until_ns = self.now_ns + span_ns;
        // A stopped process stops with all its lanes; its kernel goes on.
        let stopped = client.filter(|_| self.plan.leases);
        let lanes = stopped.map_or(0, |client| self.mounts[client].lanes.len());
        let all = (0..lanes).filter_map(|lane| Some(Place::Client(stopped?, lane)));
        for place in all.chain([place]) {
            if let Some(state) = self.lane_state(place) {
                state.paused_until_ns = until_ns;
            }
        }
    }

    fn interrupt_some(&mut self) {
        let client = self.choose(self.mounts.len());
        let lane = self.prng.below(self.mounts[client].lanes.len());
        let sim_lane = &mut self.mounts[client].lanes[lane];
        let tags: Vec<u32> = sim_lane.outstanding.keys().copied().collect();
        if let Some(tag) = self.prng.pick(&tags) {
            self.interrupt_at((client, lane), tag);
        }
    }

    /// Interrupts a call, if it is under way.
    pub(crate) fn interrupt_call(&mut self, tag: Tag) {
        let Some(client) = self.call_of(tag).map(|call| call.client) else { return };
        let mut lanes = self.mounts[client].lanes.iter();
        if let Some(lane) = lanes.position(|it| it.outstanding.contains_key(&tag)) {
            self.interrupt_at((client, lane), tag);
        }
    }

    fn interrupt_at(&mut self, (client, lane): (usize, usize), tag: Tag) {
        self.calls[narrow(u64::from(tag)) - 1].interrupted = true;
        self.mounts[client].lanes[lane].interrupts.push(tag);
        self.schedule_turn(Place::Client(client, lane));
    }

    /// A client sends a frame, unless an injected fault drops it.
    pub(crate) fn send_up(&mut self, conn: ConnId, sent: SentFrame) {
        let resent = matches!(
            wire::Header::decode(&sent.frame),
            Ok((wire::Header::Request(request), _))
                if request.flags & wire::request_flag::RESENT != 0
        );
        if resent && self.plan.injection == Some(Injection::LostResend) {
            return;
        }
        self.send(conn, End::Listener, sent);
    }

    // ---- the workload ----

    /// A client lane begins its next call, unless it has enough under way.
    pub(crate) fn next_call(&mut self, client: usize, lane: usize) {
        let call_count = wide(self.calls.len());
        let alive = self.mounts[client].alive;
        let busy = self.mounts[client].lanes[lane].outstanding.len() >= self.plan.depth;
        if !alive || self.faults_stopped || call_count >= self.plan.call_count || busy {
            return;
        }
        let Some(spec) = self.roll_call(client) else {
            return self.schedule_in(self.plan.speeds.think_ns, Due::NextCall { client, lane });
        };
        if self.is_answered_by_cache(client, &spec)
            || self.is_answered_by_mount((client, lane), &spec)
        {
            return self.schedule_in(self.plan.speeds.think_ns, Due::NextCall { client, lane });
        }
        if self.opens_kept(client, lane, &spec) || self.opens_locally((client, lane), &spec) {
            return self.schedule_in(self.plan.speeds.think_ns, Due::NextCall { client, lane });
        }
        if let CallSpec::Close { handle } = spec {
            let Mount { handles, early, .. } = &mut self.mounts[client];
            let closed = handles.iter().find(|(open, ..)| *open == handle);
            closed.into_iter().for_each(|(_, inode, _)| early.end(*inode));
            self.mounts[client].handles.retain(|(open, ..)| *open != handle);
        }
        if !self.clears_first((client, lane), spec) {
            let tag = self.begin_call(client, lane, spec);
            let call: CallRecord = self.calls[self.calls.len() - 1].clone();
            self.record_change(tag, &call);
        }
        self.schedule_in(self.plan.speeds.think_ns, Due::NextCall { client, lane });
    }

    fn roll_call(&mut self, client: usize) -> Option<CallSpec> {
        let total: u64 = self.plan.mix.iter().map(|(_, weight)| weight).sum();
        let mut at = self.prng.number() % total.max(1);
        let mix = self.plan.mix.clone();
        let (kind, _) = mix.iter().find(|(_, weight)| {
            let here = at < *weight;
            at = at.saturating_sub(*weight);
            here
        })?;
        self.names_call(*kind, client).or_else(|| self.inode_call(*kind, client))
    }

    fn names_call(&mut self, kind: Kind, client: usize) -> Option<CallSpec> {
        let changes = matches!(kind, Kind::Create | Kind::Unlink);
        let early = self.mounts[client].early.latest_directory();
        let early = early.filter(|_| changes && !self.prng.one_in(4));
        let is_early = early.is_some();
        let (parent, names) = early.unwrap_or_else(|| (self.pick_directory(), Vec::new()));
        let known = self.prng.pick(&names).filter(|_| kind == Kind::Unlink);
        let name = known.unwrap_or_else(|| self.choose(self.plan.name_count));
        let mode = self.roll_mode();
        match kind {
            Kind::Create => {
                let open_for = self.roll_open_for();
                let opens = self.prng.one_in(2) || is_early;
                let open = opens.then_some(open_for);
                let exclusive = self.prng.one_in(2);
                Some(CallSpec::Create { parent, name, mode, exclusive, open })
            }
            Kind::Mkdir => Some(CallSpec::Mkdir { parent, name, mode: mode | 0o100 }),
            Kind::Symlink => Some(CallSpec::Symlink { parent, name }),
            Kind::Unlink => Some(CallSpec::Unlink { parent, name }),
            Kind::Rmdir => Some(CallSpec::Rmdir { parent, name }),
            Kind::Rename => {
                let to = (self.pick_directory(), self.choose(self.plan.name_count));
                let no_replace = self.prng.one_in(4);
                Some(CallSpec::Rename { from: (parent, name), to, no_replace })
            }
            Kind::Lookup => Some(CallSpec::Lookup { parent, name }),
            Kind::Link => {
                let inode = self.pick_inode();
                Some(CallSpec::Link { inode, parent, name })
            }
            Kind::Readdir => Some(CallSpec::Readdir { inode: parent, cookie: 0 }),
            Kind::Setattr
            | Kind::Resize
            | Kind::Setxattr
            | Kind::Removexattr
            | Kind::Getattr
            | Kind::Readlink
            | Kind::Open
            | Kind::Close
            | Kind::Read
            | Kind::Write
            | Kind::Sync
            | Kind::Getxattr => None,
        }
    }

    fn inode_call(&mut self, kind: Kind, client: usize) -> Option<CallSpec> {
        let inode = self.pick_inode();
        let name = self.prng.below(2);
        let handle = self.prng.pick(&self.mounts[client].handles);
        let most = self.plan.write_bytes_max;
        match kind {
            Kind::Setattr => {
                let number = self.prng.number();
                let early = self.mounts[client].early.latest();
                let early = early.filter(|_| self.prng.one_in(2));
                let inode = early.unwrap_or(inode);
                let mode = mode_of(number) | self.set_id_of(inode, number);
                Some(CallSpec::Setattr { inode, mode })
            }
            Kind::Setxattr => Some(CallSpec::Setxattr { inode, name }),
            Kind::Removexattr => Some(CallSpec::Removexattr { inode, name }),
            Kind::Getattr => Some(CallSpec::Getattr { inode }),
            Kind::Readlink => Some(CallSpec::Readlink { inode }),
            Kind::Getxattr => Some(CallSpec::Getxattr { inode, name }),
            Kind::Open => {
                let open_for = self.roll_open_for();
                let sizes = true;
                self.pick_file().map(|inode| CallSpec::Open { inode, open_for, sizes })
            }
            Kind::Close => {
                let (handle, inode, _) = handle?;
                (!self.is_in_use(client, inode)).then_some(CallSpec::Close { handle })
            }
            Kind::Sync => {
                let (inode, kind) = self.prng.pick(&self.seen)?;
                Some(CallSpec::Sync { inode, contents: kind == FileKind::File })
            }
            Kind::Resize => {
                let size_bytes = self.plan.place(self.prng.number());
                if let Some((_, inode, true)) = handle.filter(|_| self.plan.kills) {
                    return Some(CallSpec::Resize { inode, size_bytes, open_for_write: true });
                }
                let inode = self.pick_file()?;
                Some(CallSpec::Resize { inode, size_bytes, open_for_write: false })
            }
            Kind::Read => {
                let (_, inode, _) = handle?;
                let (file_offset, read_bytes) = (self.plan.place(self.prng.number()), 4096);
                if file_offset.is_multiple_of(LIST_ONE_IN) {
                    let stride = Stride::of(file_offset / 4, file_offset.max(8));
                    return Some(CallSpec::ReadList { inode, stride });
                }
                if file_offset.is_multiple_of(SEEK_ONE_IN) {
                    let hole = (file_offset / SEEK_ONE_IN).is_multiple_of(2);
                    return Some(CallSpec::Seek { inode, file_offset, hole });
                }
                Some(CallSpec::Read { inode, file_offset, read_bytes })
            }
            Kind::Write => {
                let early = self.mounts[client].early.latest();
                let early = early.filter(|_| !self.prng.one_in(4));
                let known = handle.filter(|(_, _, write)| *write).map(|(_, inode, _)| inode);
                let inode = early.or(known)?;
                self.write_count += 1;
                let file_offset = self.plan.place(self.prng.number());
                let append = self.prng.one_in(2) || early.is_some();
                let write_bytes = 1 + self.prng.number() % most;
                let value = low_u8(1 + (self.write_count - 1) % 255);
                let sync = self.prng.one_in(8);
                let clears = self.cleared_by(value);
                if !append && file_offset.is_multiple_of(LIST_ONE_IN) {
                    let stride = Stride::of(file_offset, write_bytes);
                    return Some(CallSpec::WriteList { inode, stride, value, sync, clears });
                }
                if !append && file_offset.is_multiple_of(ALLOCATE_ONE_IN) {
                    return Some(self.allocate_of((inode, clears), file_offset, write_bytes));
                }
                Some(CallSpec::Write {
                    inode,
                    file_offset,
                    append,
                    write_bytes,
                    value,
                    sync,
                    clears,
                })
            }
            Kind::Create
            | Kind::Mkdir
            | Kind::Symlink
            | Kind::Link
            | Kind::Unlink
            | Kind::Rmdir
            | Kind::Rename
            | Kind::Lookup
            | Kind::Readdir => None,
        }
    }

    /// An allocation, derived from numbers drawn already. Where stripes are spread, some are of
    /// several stripes.
    fn allocate_of(
        &self,
        (inode, clears): (InodeNo, ClearPrivileges),
        file_offset: u64,
        bytes: u64,
    ) -> CallSpec {
        let all = [Allocation::Reserve, Allocation::Punch, Allocation::Zero];
        let allocation = all[narrow(bytes % 3)];
        let keep_size = allocation == Allocation::Punch || (bytes / 3).is_multiple_of(2);
        let is_long = self.plan.spreads && (bytes / 6).is_multiple_of(2);
        let more_bytes = if is_long { 2 * Layout::SPREAD_UNIT_BYTES_MIN } else { 0 };
        let range_bytes = bytes + more_bytes;
        CallSpec::Allocate { inode, file_offset, range_bytes, allocation, keep_size, clears }
    }

    /// Whether calls on a file's bytes are under way. A frontend closes a file only after those.
    pub(crate) fn is_in_use(&self, client: usize, file: InodeNo) -> bool {
        let lanes = self.mounts[client].lanes.iter();
        let tags = lanes.flat_map(|sim_lane| sim_lane.outstanding.keys());
        tags.filter_map(|tag| self.call_of(*tag)).any(|call| match call.spec {
            CallSpec::Write { inode, .. }
            | CallSpec::Read { inode, .. }
            | CallSpec::ReadList { inode, .. }
            | CallSpec::Allocate { inode, .. }
            | CallSpec::Seek { inode, .. }
            | CallSpec::ClearBits { inode }
            | CallSpec::Resize { inode, open_for_write: true, .. }
            | CallSpec::WriteList { inode, .. } => inode == file,
            _ => false,
        })
    }

    fn roll_mode(&mut self) -> u32 {
        mode_of(self.prng.number())
    }

    fn roll_open_for(&mut self) -> OpenFor {
        if self.prng.one_in(2) { OpenFor::ReadWrite } else { OpenFor::Read }
    }

    fn pick_directory(&mut self) -> InodeNo {
        let kinds = [FileKind::Directory];
        if self.prng.one_in(2) {
            InodeNo::ROOT
        } else {
            self.pick_seen(&kinds).unwrap_or(InodeNo::ROOT)
        }
    }

    fn pick_file(&mut self) -> Option<InodeNo> {
        self.pick_seen(&[FileKind::File])
    }

    fn pick_inode(&mut self) -> InodeNo {
        let kinds = [FileKind::File, FileKind::Directory, FileKind::Symlink];
        self.pick_seen(&kinds).unwrap_or(InodeNo::ROOT)
    }

    /// One of the latest inodes of these kinds that replies named.
    fn pick_seen(&mut self, kinds: &[FileKind]) -> Option<InodeNo> {
        let fitting = self.seen.iter().rev().filter(|(_, kind)| kinds.contains(kind));
        let latest: Vec<InodeNo> =
            fitting.take(self.plan.choice_count).map(|(inode, _)| *inode).collect();
        self.prng.pick(&latest)
    }
}
