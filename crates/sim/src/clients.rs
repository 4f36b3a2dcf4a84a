//! Client processes: their lanes' turns, the calls they make and the replies they get.

use crate::bytes::{FileChange, Found, TimedChange, by_stripe, explain_all};
use crate::cache::{KernelCache, Offer};
use crate::client_lane::ClientLane;
use crate::cluster::server_at;
use crate::due::{CLOCK_RATE, Due, End, Place};
use crate::early::{EarlyWrites, begin_call};
use crate::early_names::EarlyAnswer;
use crate::local_opens::delays;
use crate::mount_cache::{learn, new_cache};
use crate::net::SentFrame;
use crate::number::{narrow, narrow_u16, narrow_u32, wide};
use crate::reply::{ReplyBytes, join_buffers, result_of, take_reply_bytes};
use crate::seeks::allocated;
use crate::servers::Lives;
use crate::simulation::Simulation;
use crate::work::{CallRecord, CallResult, CallSpec, CallState, Tag};
use client::{Answer, Cache, CallId, Client, Config, RecallId, RecalledKey, ReceivedByLanes};
use interface::{Action, Event, NetAction, NetEvent, PeerAction, PeerEvent, Turn};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use wire::{ClientUuid, HandleId, InodeNo, LaneId, OpenFor, Piece, Status};

/// A client process.
pub(crate) struct Mount {
    pub(crate) uuid: ClientUuid,
    pub(crate) alive: bool,
    /// The server whose address it was started with.
    pub(crate) first_server: usize,
    /// It reaches no server before.
    pub(crate) partitioned_until_ns: u64,
    /// When the client last reported its eviction.
    pub(crate) evicted_ns: Option<u64>,
    /// It was absent for longer than a server waits, and may not know yet that the server continued
    /// without it.
    pub(crate) was_late: bool,
    pub(crate) lanes: Vec<ClientLane>,
    /// Open handles that are not being closed: id, inode, whether for writing.
    pub(crate) handles: Vec<(HandleId, InodeNo, bool)>,
    /// Handles that were opened without the server: id, inode, when.
    pub(crate) local: Vec<(HandleId, InodeNo, u64)>,
    /// Those of these files that calls wait for.
    pub(crate) registering: BTreeSet<InodeNo>,
    /// Files that are being opened for writing, and those that the server refuses to open so.
    pub(crate) opening: BTreeSet<InodeNo>,
    pub(crate) refused: BTreeMap<InodeNo, Status>,
    /// It runs the audit, not the workload.
    pub(crate) audits: bool,
    pub(crate) cache: KernelCache,
    /// What its lanes know.
    pub(crate) known: Cache,
    pub(crate) early: EarlyWrites,
    /// Its monotonic clock advances so much while 1,000 pass.
    pub(crate) clock_rate: u64,
}

impl Simulation {
    /// Starts a client process.
    pub(crate) fn mount(
        &mut self,
        lane_count: usize,
        audits: bool,
        predecessor: ClientUuid,
    ) -> usize {
        let client = self.mounts.len();
        let uuid = ClientUuid(self.prng.bytes());
        let caches = self.plan.leases && !audits;
        let clock_rate = if caches { self.roll_clock_rate() } else { CLOCK_RATE };
        let known_seed = self.prng.clone().number();
        let is_alone = self.servers.len() == 1;
        let first_server = if is_alone { 0 } else { self.choose(self.joined_count) };
        // Half of the clients say of their lanes what others have received.
        let tells = known_seed.is_multiple_of(2);
        let received = Arc::new(ReceivedByLanes::new(narrow_u16(lane_count)));
        let lanes = (0..lane_count)
            .map(|lane| {
                let config = Config {
                    client: uuid,
                    lane: LaneId(narrow_u16(lane)),
                    lane_count: narrow_u16(lane_count),
                    secrets: self.rotation.client_secrets,
                    export: Vec::new(),
                    purpose: wire::Purpose::Use,
                    root: None,
                    host_id: uuid.0,
                    host_boot_id: uuid.0,
                    host_name: Vec::new(),
                    job: Vec::new(),
                    predecessor,
                    seed: self.prng.bytes(),
                    calls_max: 64,
                    handles_max: 64,
                    replay_bytes_max: 64 << 20,
                    rules: crate::rules::of_run(self.plan.injection),
                };
                let core = Client::new(config);
                let core = match tells {
                    true => core.with_received(Arc::clone(&received)),
                    false => core,
                };
                ClientLane::new(if caches { core.with_leases().with_writes_behind() } else { core })
            })
            .collect();
        self.mounts.push(Mount {
            uuid,
            alive: true,
            first_server,
            partitioned_until_ns: 0,
            evicted_ns: None,
            was_late: false,
            lanes,
            handles: Vec::new(),
            local: Vec::new(),
            registering: BTreeSet::new(),
            opening: BTreeSet::new(),
            refused: BTreeMap::new(),
            audits,
            cache: KernelCache::default(),
            known: new_cache(known_seed, crate::rules::of_run(self.plan.injection)),
            early: EarlyWrites::default(),
            clock_rate,
        });
        client
    }

    /// A client lane begins a call.
    pub(crate) fn begin_call(&mut self, client: usize, lane: usize, spec: CallSpec) -> Tag {
        let tag = narrow_u32(self.calls.len() + 1);
        self.log_line(|| format!("client {client}.{lane}: {tag} {spec:?}"));
        self.calls.push(CallRecord {
            client,
            spec,
            began_ns: self.now_ns,
            began_lives: self.lives(),
            ended_lives: Lives::default(),
            ended_ns: None,
            ended: CallState::Open,
            interrupted: false,
        });
        self.shown.begin(tag, &spec);
        self.mounts[client].cache.begin(&spec);
        let sim_lane = &mut self.mounts[client].lanes[lane];
        sim_lane.outstanding.insert(tag, None);
        sim_lane.to_begin.push(tag);
        self.schedule_turn(Place::Client(client, lane));
        tag
    }

    /// A client lane takes a turn.
    pub(crate) fn client_turn(&mut self, client: usize, lane: usize, events: Vec<Event>) {
        let now = self.now_at(Place::Client(client, lane));
        let now_ns = self.now_ns;
        self.mounts[client].lanes[lane].frame_lives = self.lives();
        for event in &events {
            if let Event::Net(NetEvent::Frame { conn, frame, .. }) = event {
                let sent = self.conns.get(conn).map(|conn| (conn.server, conn.server_life));
                let sim_lane = &mut self.mounts[client].lanes[lane];
                if let Some((server, life)) = sent {
                    let oldest = &mut sim_lane.frame_lives[server];
                    *oldest = life.min(*oldest);
                }
                let frame = sim_lane.state.arena.get(*frame).to_vec();
                self.tap.on_reply(&frame, self.now_ns);
                if let Err(line) = self.lying_disk.on_frame((client, lane), &frame) {
                    self.violates(line);
                }
            }
        }
        self.fail_refused(client, lane);
        let waits_for_local = self.calls_wait_for_local(client, lane);
        let elsewhere = self.register_elsewhere(client, lane, false);
        let term_no = self.mounts[client].lanes[lane].core.term().no;
        let mut begun = self.begun_calls(client);
        let Mount { lanes, cache, known, audits, early, .. } = &mut self.mounts[client];
        let caches = self.plan.leases && !*audits;
        let lane_id = LaneId(narrow_u16(lane));
        let sim_lane = &mut lanes[lane];
        let mut actions = Vec::new();
        let mut arena = std::mem::take(&mut sim_lane.state.arena);
        let mut turn = Turn { now, arena: &mut arena, actions: &mut actions };
        for event in events {
            sim_lane.core.apply(&mut turn, event);
        }
        for tag in std::mem::take(&mut sim_lane.interrupts) {
            if early.under_way.is_some_and(|(under_way, _)| under_way == tag) {
                continue;
            }
            sim_lane.core.interrupt(&mut turn, CallId(u64::from(tag)));
        }
        let mut answered_early = Vec::new();
        while early.under_way.is_none() && !waits_for_local && !sim_lane.to_begin.is_empty() {
            let tag = sim_lane.to_begin.remove(0);
            let spec = self.calls[narrow(u64::from(tag)) - 1].spec;
            let answer = early.begin((tag, &spec), &begun, (&mut sim_lane.core, now.mono));
            answered_early.extend(answer.map(|answer| (tag, answer)));
            begun.push(spec);
            let bulk = written(&spec).map(|bytes| sim_lane.state.bufs.put(bytes));
            sim_lane.outstanding.insert(tag, bulk);
            if self.plan.layout().is_spread()
                && let Some(inode) = spec.contents()
            {
                sim_lane.core.expect_spread(inode); // As a mount does by its open files.
            }
            spec.with(tag, bulk, |id, call| {
                if caches {
                    sim_lane.asked.insert(tag, known.begin(now.mono, lane_id, &call));
                }
                let call = (id, EarlyAnswer::call(answer, call));
                begin_call(&mut sim_lane.core, &mut turn, call, caches);
            });
        }
        let ClientLane { core, recalls: delayed, .. } = &mut *sim_lane;
        let is_due = |(at_ns, _, keys): &mut (u64, RecallId, Vec<RecalledKey>)| {
            *at_ns <= now_ns && !early.delays(keys) && !delays(core, &elsewhere, keys)
        };
        let due: Vec<_> = delayed.extract_if(.., is_due).collect();
        for (_, id, keys) in due {
            cache.recall(&keys);
            sim_lane.core.acknowledge(id);
        }
        let mut answers = Vec::new();
        let mut recalls = Vec::new();
        let mut register_at = None;
        loop {
            let before = answers.len();
            early.take_ended(lane).into_iter().for_each(|inode| sim_lane.core.end_writing(inode));
            sim_lane.core.note_use(known.used_at());
            register_at = sim_lane.core.register_old_local(now.mono).or(register_at);
            sim_lane.core.settle(&mut turn);
            known.set_term(lane_id, sim_lane.core.term());
            join_buffers(&mut turn, &mut sim_lane.state.bufs);
            while let Some((id, result, granted)) = sim_lane.core.next_granted_answer(now.mono) {
                let reply_bytes = take_reply_bytes(&result, &turn, &mut sim_lane.state);
                let mut call = self.calls[narrow(id.0) - 1].clone();
                call.ended = ended_with(&result);
                let keeps = granted.contents.is_some();
                let (granted, further) = (&granted, sim_lane.core.granted_further());
                let offer = Offer { granted, further, found: &reply_bytes, now: now.mono };
                if let Some(asked) = sim_lane.asked.remove(&narrow_u32(narrow(id.0))) {
                    let made = (narrow_u32(narrow(id.0)), &call.spec);
                    learn(known, asked, made, (&result, offer));
                }
                cache.end(&call, now_ns, offer);
                early.see_name(&call, (lane, granted.writing), &self.calls);
                if let (Ok(Answer::Created { attr, .. }), true) = (&result, granted.writing) {
                    early.grant(lane, attr.inode);
                }
                if let (Ok(Answer::Opened { attr, .. }), true) = (&result, granted.writing) {
                    early.grant_opened((lane, *attr), &call, &self.calls);
                }
                if let (Ok(Answer::Opened { handle, .. }), true) = (&result, keeps) {
                    sim_lane.core.keep(*handle);
                }
                answers.push((id, result, reply_bytes));
            }
            let recalled: Vec<_> = core::iter::from_fn(|| sim_lane.core.next_recall()).collect();
            for key in recalled.iter().flat_map(|(_, keys)| keys) {
                known.recall(key);
                if let RecalledKey::Writing(inode) = key {
                    early.end(*inode);
                }
            }
            for inode in sim_lane.core.take_ended_writing() {
                early.end(inode);
            }
            recalls.extend(recalled);
            if sim_lane.core.take_late_change() {
                known.clear();
            }
            let drops = sim_lane.core.take_drop();
            if drops {
                known.clear();
                cache.clear();
                sim_lane.core.dropped();
            }
            if answers.len() == before && !drops {
                break;
            }
        }
        let registered = sim_lane.core.take_ended_local();
        let has_ended = sim_lane.core.term().no != term_no;
        let opened = sim_lane.core.take_ended_to_write();
        self.end_to_write(client, opened);
        self.end_local((client, lane), registered, has_ended);
        self.schedule_registration((client, lane), register_at);
        for (tag, answer) in answered_early {
            let call = &mut self.calls[narrow(u64::from(tag)) - 1];
            let result = answer.result();
            // No sync is known to cover it: it may be executed later.
            (call.ended, call.ended_lives) = (CallState::Done(result), Lives::default());
            call.ended_ns = Some(now_ns);
            let call = call.clone();
            self.log_line(|| format!("client {client}.{lane}: {tag} is answered early"));
            self.record_change(tag, &call);
        }
        self.delay_recalls((client, lane), recalls);
        let sim_lane = &mut self.mounts[client].lanes[lane];
        let reports = sim_lane.core.take_reports();
        for action in actions {
            self.on_client_action(client, lane, action, &arena);
        }
        for report in &reports {
            self.on_report((client, lane), report);
        }
        self.mounts[client].lanes[lane].state.arena = arena;
        for (id, result, reply_bytes) in answers {
            self.answered(client, lane, id, (&result, reply_bytes));
        }
    }

    fn on_client_action(
        &mut self,
        client: usize,
        lane: usize,
        action: Action,
        arena: &interface::Arena,
    ) {
        let place = Place::Client(client, lane);
        let sim_lane = &mut self.mounts[client].lanes[lane];
        match action {
            Action::Net(NetAction::Connect { ticket, address }) => {
                let to = server_at(address).unwrap_or(self.mounts[client].first_server);
                let (mean_ns, life) = (self.plan.speeds.request_ns, self.life(place));
                self.schedule_in(mean_ns, Due::Connect { by: place, life, ticket, to });
            }
            Action::Net(NetAction::Send { conn, frame, bulk }) => {
                let frame = arena.get(frame).to_vec();
                let bulk = bulk.map(|bulk| sim_lane.state.bufs.get(bulk));
                self.tap.on_request(&frame, self.now_ns);
                if let Err(line) = self.lying_disk.on_request((client, lane), &frame) {
                    self.violates(line);
                }
                self.send_up(conn, SentFrame { frame, bulk });
            }
            Action::Net(NetAction::Close { conn }) => self.close(conn, End::Dialler),
            Action::Peer(PeerAction::Message { to, message }) => {
                let to = usize::from(to.0);
                let event = PeerEvent::Message { from: LaneId(narrow_u16(lane)), message };
                if to < self.mounts[client].lanes.len() {
                    self.deliver(Place::Client(client, to), event);
                }
            }
            Action::Release { buf } => sim_lane.state.bufs.release(buf),
            Action::Retain { as_buf, bulk } => sim_lane.state.bufs.retain(as_buf, bulk),
            Action::Zeros { as_buf, bulk_bytes } => sim_lane.state.bufs.make(as_buf, bulk_bytes),
            Action::Copy { to, at, bulk } => sim_lane.state.bufs.fill((to, at), bulk),
            Action::ReadSecrets => self.read_secrets(place),
            Action::WakeAt { at } => self.schedule_wake(place, at),
            Action::Log { line, .. } => {
                let line = String::from_utf8_lossy(arena.get(line)).into_owned();
                self.log_line(|| format!("client {client}.{lane} logs {line}"));
            }
            Action::Net(NetAction::Admit { .. }) | Action::Point(_) => {}
            Action::Net(NetAction::HandOver { .. } | NetAction::Proxy { .. })
            | Action::Peer(PeerAction::Send { .. })
            | Action::Store(_)
            | Action::Recovered
            | Action::Object(_)
            | Action::Usage { .. }
            | Action::Answer { .. }
            | Action::Kernel(_)
            | Action::Stopped => {
                self.violates(format!("a client must not ask for this: {action:?}"));
            }
        }
    }

    /// Completes a call.
    pub(crate) fn answered(
        &mut self,
        client: usize,
        lane: usize,
        id: CallId,
        (result, reply_bytes): (&Result<Answer, Status>, ReplyBytes),
    ) {
        let tag = narrow_u32(narrow(id.0));
        self.run_hash.add(id.0);
        let sim_lane = &mut self.mounts[client].lanes[lane];
        let Some(bulk) = sim_lane.outstanding.remove(&tag) else {
            return self.violates(format!("call {tag} is answered twice"));
        };
        if let Some(bulk) = bulk {
            sim_lane.state.bufs.release(bulk.buf);
        }
        self.log_line(|| format!("client {client}.{lane}: {tag} ended with {result:?}"));
        if self.mounts[client].early.under_way.is_some_and(|(under_way, _)| under_way == tag) {
            return self.end_early(client, tag, result);
        }
        let ended = ended_with(result);
        let now_ns = self.now_ns;
        let lives = self.mounts[client].lanes[lane].frame_lives;
        let call = &mut self.calls[narrow(u64::from(tag)) - 1];
        (call.ended, call.ended_lives, call.ended_ns) = (ended, lives, Some(now_ns));
        let call = call.clone();
        self.record_seen(&call);
        self.record_change(tag, &call);
        self.record_sync(&call);
        self.check_read(&call, &reply_bytes);
        self.check_seek(&call);
        self.check_size(&call);
        self.check_open_file(&call);
        self.check_caches(&call);
        self.follow_up((client, lane), tag, &call);
        if self.mounts[client].audits {
            self.on_audit_reply(tag, &call, &reply_bytes);
        } else {
            self.schedule_in(self.plan.speeds.think_ns, Due::NextCall { client, lane });
        }
    }

    /// The calls of a client that have begun and are not answered.
    fn begun_calls(&self, client: usize) -> Vec<CallSpec> {
        let lanes = self.mounts[client].lanes.iter();
        let tags = lanes.flat_map(|sim_lane| {
            sim_lane.outstanding.keys().filter(|tag| !sim_lane.to_begin.contains(tag))
        });
        tags.filter_map(|tag| self.call_of(*tag)).map(|call| call.spec).collect()
    }

    /// Records the inode and the handle of a reply for later calls.
    pub(crate) fn record_seen(&mut self, call: &CallRecord) {
        let Some(result) = call.result() else { return };
        if let (Some(inode), Some(kind)) = (result.inode, result.kind)
            && self.seen.last() != Some(&(inode, kind))
        {
            self.seen.retain(|(seen, _)| *seen != inode || *seen == InodeNo::ROOT);
            self.seen.push((inode, kind));
        }
        if let (Some(inode), Some(handle)) = (result.inode, result.handle) {
            let write = match call.spec {
                CallSpec::Create { open, .. } => open.is_some_and(OpenFor::writes),
                CallSpec::Open { open_for, .. } => open_for.writes(),
                _ => false,
            };
            self.mounts[call.client].handles.push((handle, inode, write));
        }
    }

    /// Records the change of a call to a file's contents: when it begins and again when it ends.
    pub(crate) fn record_change(&mut self, tag: Tag, call: &CallRecord) {
        let unit_bytes = self.plan.spread_unit_bytes();
        let (inode, changes) = match call.spec {
            CallSpec::WriteList { inode, value, .. } => {
                let change = |piece: Piece| {
                    by_stripe(unit_bytes, piece.file_offset, u64::from(piece.piece_bytes), value)
                };
                (inode, call.spec.pieces().iter().flat_map(change).collect())
            }
            CallSpec::Write { inode, file_offset, append, write_bytes, value, .. } => {
                let replied = call.result().and_then(|result| result.file_offset);
                let changes = match replied {
                    _ if !append => by_stripe(unit_bytes, file_offset, write_bytes, value),
                    Some(from) => vec![FileChange::Write { from, write_bytes, value }],
                    None => vec![FileChange::Append { write_bytes, value }],
                };
                (inode, changes)
            }
            CallSpec::Resize { inode, size_bytes, .. } => {
                (inode, vec![FileChange::Truncate { size_bytes }])
            }
            CallSpec::Allocate { inode, .. } => (inode, allocated(&call.spec)),
            _ => return,
        };
        let recorded = self.file_changes.entry(inode).or_default();
        recorded.retain(|(other, _)| *other != tag);
        // One that failed at one of several data shards was executed at others.
        if !call.may_have_happened() && !self.plan.spreads {
            return;
        }
        // A call that was interrupted or failed half-way may take effect after its reply.
        let asked = written(&call.spec).map_or(0, |bytes| bytes.len());
        let is_whole = |result: &CallResult| {
            result
                .written_bytes
                .is_none_or(|written_bytes| narrow(u64::from(written_bytes)) >= asked)
        };
        let certain = call.result().is_some_and(is_whole);
        let ended_ns = call.ended_ns.filter(|_| certain);
        let began_ns = call.began_ns;
        let appends = matches!(call.spec, CallSpec::Write { append: true, .. });
        recorded.extend(changes.into_iter().map(|change: FileChange| {
            let kept = certain;
            (tag, TimedChange { change, began_ns, ended_ns, certain, kept, appends })
        }));
    }

    /// Checks that writes explain the bytes of a read.
    fn check_read(&mut self, call: &CallRecord, reply_bytes: &ReplyBytes) {
        if call.result().is_none() {
            return;
        }
        if let CallSpec::ReadList { inode, .. } = call.spec {
            return self.check_list(inode, call, reply_bytes);
        }
        let CallSpec::Read { inode, file_offset, read_bytes } = call.spec else { return };
        let changes: Vec<TimedChange> = self.changes_of(inode, call.began_ns);
        let at_end = wide(reply_bytes.bytes.len()) < u64::from(read_bytes);
        // A read that begins behind the end does not show where the file ends.
        let at_end = at_end && (!reply_bytes.bytes.is_empty() || file_offset == 0);
        let found = [Found { from: file_offset, bytes: &reply_bytes.bytes, at_end }];
        self.check_cuts((inode, call), &found[0]);
        self.explain_read((call.client, inode), &changes, &found);
    }

    /// Checks that writes explain the bytes of every piece of a list, and the file's size.
    fn check_list(&mut self, inode: InodeNo, call: &CallRecord, reply_bytes: &ReplyBytes) {
        let changes: Vec<TimedChange> = self.changes_of(inode, call.began_ns);
        let mut rest = &reply_bytes.bytes[..];
        let pieces = call.spec.pieces();
        // The shards of whole pieces do not know where a file ends that is spread over several.
        let is_cut = |piece: Piece| piece.within(reply_bytes.size_bytes) < piece.piece_bytes;
        let at_end = !self.plan.spreads || pieces.iter().any(is_cut);
        let mut found = vec![Found { from: reply_bytes.size_bytes, bytes: &[], at_end }];
        for piece in pieces.iter() {
            let got_bytes = narrow(u64::from(piece.within(reply_bytes.size_bytes)));
            let (bytes, behind) = rest.split_at(got_bytes.min(rest.len()));
            rest = behind;
            found.push(Found { from: piece.file_offset, bytes, at_end: false });
        }
        self.explain_read((call.client, inode), &changes, &found);
    }

    /// Checks that the changes of a file explain what a client found in it. If only lost changes
    /// do, the audit decides: the file may have been removed when the client was evicted.
    pub(crate) fn explain_read(
        &mut self,
        (client, inode): (usize, InodeNo),
        changes: &[TimedChange],
        found: &[Found<'_>],
    ) {
        let explains = |changes: &[TimedChange]| explain_all(changes, found);
        self.judge_read((client, inode), changes, explains);
    }

    /// The lanes with unanswered calls, in full.
    pub(crate) fn describe_waiting(&self) -> String {
        let mut text = String::new();
        for mount in self.mounts.iter().filter(|mount| mount.alive) {
            for sim_lane in mount.lanes.iter().filter(|sim_lane| !sim_lane.outstanding.is_empty()) {
                text.push_str(&format!("{:?} {:#?}\n", sim_lane.state, sim_lane.core));
            }
        }
        text
    }
}

impl Simulation {
    /// Clocks of clients run a little faster or slower than the server's.
    fn roll_clock_rate(&mut self) -> u64 {
        self.prng.pick(&[CLOCK_RATE, 960, 1040]).unwrap_or(CLOCK_RATE)
    }

    /// The kernel needs some time to drop what is recalled. Later answers may overtake it.
    fn delay_recalls(
        &mut self,
        (client, lane): (usize, usize),
        recalls: Vec<(RecallId, Vec<RecalledKey>)>,
    ) {
        for (id, keys) in recalls {
            let late = self.prng.one_in(2);
            let late_ns = self.prng.number() % (self.plan.recall_ns_max + 1);
            let at_ns = self.now_ns + if late { late_ns } else { 0 };
            self.log_line(|| format!("client {client}.{lane}: recall of {keys:?}"));
            self.mounts[client].lanes[lane].recalls.push((at_ns, id, keys));
            self.schedule_at(at_ns, Due::Recall { client, lane });
        }
    }
}

fn ended_with(result: &Result<Answer, Status>) -> CallState {
    match result {
        Ok(answer) => CallState::Done(result_of(answer)),
        Err(status) => CallState::Failed(*status),
    }
}

/// The bytes of a write: all of its value.
fn written(spec: &CallSpec) -> Option<Vec<u8>> {
    match *spec {
        CallSpec::Write { write_bytes, value, .. } => Some(vec![value; narrow(write_bytes)]),
        CallSpec::WriteList { value, .. } => {
            Some(vec![value; narrow(u64::from(spec.pieces().total_bytes()))])
        }
        _ => None,
    }
}
