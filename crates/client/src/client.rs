//! The client's state and its interface: events and calls in, answers out. Requests are in `send`
//! and `receive`, connections in `handshake`.

use crate::abandoned::Abandoned;
use crate::appends::Appends;
use crate::counts::{Counters, Counts};
use crate::handles::{Handles, handle_lane};
use crate::identity::{Identity, trace_tag};
use crate::jobs::Jobs;
use crate::kept::Kept;
use crate::layouts::Layouts;
use crate::leases::Leases;
use crate::link::{Link, LinkState};
use crate::local_opens::LocalOpens;
use crate::locks::Locks;
use crate::new_files::NewFileNumbers;
use crate::peer_lanes::PeerLanes;
use crate::plan::begin::begin;
use crate::plan::{Close, FollowUp, NewRequest, Plan};
use crate::received::ReceivedOfOthers;
use crate::refused::Refused;
use crate::replay_space::ReplaySpace;
use crate::report::Report;
use crate::requests::Requests;
use crate::servers::Servers;
use crate::spread::Joins;
use crate::traces::Steps;
use crate::{Answer, Call, CallId};
use alloc::vec::Vec;
use interface::{Action, Event, Mono, MountMessage, NetEvent, PeerAction, PeerEvent, Turn};
use wire::{
    BODY_BYTES_MAX, ClientUuid, FsUuid, Handle, HandleId, InodeNo, LaneId, Map, Purpose,
    RefusalReason, Reopen, Rules, Secrets, Status, Writer,
};

/// A client lane's configuration.
#[derive(Clone, Debug)]
pub struct Config {
    /// The uuid of the mount or library instance: random, the same for its peer lanes.
    pub client: ClientUuid,
    /// The number of this lane.
    pub lane: LaneId,
    /// The number of the client's lanes.
    pub lane_count: u16,
    /// The secret of the store or of the export; two while it is being changed.
    pub secrets: Secrets,
    /// The export wanted, at most 64 bytes; empty for the default one.
    pub export: Vec<u8>,
    /// The purpose that the Hello declares.
    pub purpose: Purpose,
    /// The export's root, if known. A lane that knows it need not wait for a Welcome.
    pub root: Option<InodeNo>,
    /// The host.
    pub host_id: [u8; 16],
    /// Its boot.
    pub host_boot_id: [u8; 16],
    /// Its name, at most [`wire::LABEL_BYTES_MAX`] bytes; for people.
    pub host_name: Vec<u8>,
    /// What this client is used for, at most as long; may be empty.
    pub job: Vec<u8>,
    /// The uuid of an ended mount that this one replaces; zeros if there is none.
    pub predecessor: ClientUuid,
    /// Random, different for every lane; nonces, first xids and pauses come from it.
    pub seed: [u8; 32],
    /// The most unanswered calls; further ones are answered `Again`.
    pub calls_max: usize,
    /// The most open handles; further opens are answered `TooManyFiles`.
    pub handles_max: usize,
    /// The most bytes retained for replays. From half of it on the client asks the server to sync;
    /// at it, changes wait. Default: [`REPLAY_BYTES_MAX`].
    pub replay_bytes_max: usize,
    /// The protocol rules in force: all of them, except in tests.
    pub rules: Rules,
}

/// Default of [`Config::replay_bytes_max`].
pub const REPLAY_BYTES_MAX: usize = 64 << 20;

/// One client lane's end of the protocol. Each field is a part with an owner of its own; this
/// crate's `impl` blocks of it connect them.
#[derive(Debug)]
pub struct Client {
    pub(crate) config: Config,
    pub(crate) identity: Identity,
    pub(crate) servers: Servers,
    pub(crate) requests: Requests,
    pub(crate) jobs: Jobs,
    pub(crate) replay_space: ReplaySpace,
    pub(crate) handles: Handles,
    pub(crate) layouts: Layouts,
    /// Servers that were asked for a newer map, and have not answered.
    pub(crate) map_ask_count: usize,
    pub(crate) locks: Locks,
    pub(crate) peer_lanes: PeerLanes,
    pub(crate) leases: Leases,
    pub(crate) new_files: NewFileNumbers,
    pub(crate) kept: Kept,
    pub(crate) local: LocalOpens,
    pub(crate) joins: Joins,
    pub(crate) appends: Appends,
    pub(crate) abandoned: Abandoned,
    /// What other lanes have received, if this one says so.
    pub(crate) received: Option<ReceivedOfOthers>,
    /// The last timer that was set.
    alarm: Option<Mono>,
    pub(crate) counters: Counters,
    pub(crate) counts: Counts,
    pub(crate) steps: Steps,
    /// The time of this turn.
    pub(crate) now: Mono,
    /// Names this client lane in trace ids.
    pub(crate) trace_tag: u32,
    pub(crate) reports: Vec<Report>,
}

impl Client {
    /// A client that connects on its first call.
    #[must_use]
    pub fn new(config: Config) -> Self {
        Self {
            identity: Identity::new(config.secrets, config.seed, config.root),
            servers: Servers::new(),
            requests: Requests::new(),
            jobs: Jobs::new(),
            replay_space: ReplaySpace::new(config.replay_bytes_max),
            handles: Handles::new(config.lane, config.handles_max),
            layouts: Layouts::default(),
            map_ask_count: 0,
            locks: Locks::default(),
            peer_lanes: PeerLanes::new(config.lane, config.lane_count),
            leases: Leases::new(),
            new_files: NewFileNumbers::default(),
            kept: Kept::new(config.handles_max),
            local: LocalOpens::default(),
            joins: Joins::default(),
            abandoned: Abandoned::default(),
            received: None,
            appends: Appends::default(),
            alarm: None,
            counters: Counters::default(),
            counts: Counts::default(),
            steps: Steps::default(),
            now: Mono(0),
            trace_tag: trace_tag(&config.seed),
            reports: Vec::new(),
            config,
        }
    }

    /// The number of this client lane.
    #[must_use]
    pub const fn lane(&self) -> LaneId {
        self.config.lane
    }

    /// The uuid of this mount or library instance, as servers know it.
    #[must_use]
    pub const fn uuid(&self) -> ClientUuid {
        self.config.client
    }

    /// The number of the client's lanes.
    #[must_use]
    pub const fn lane_count(&self) -> u16 {
        self.config.lane_count
    }

    /// Whether a connection to any server lane is up.
    #[must_use]
    pub fn is_connected(&self) -> bool {
        self.servers.links().iter().any(Link::is_up)
    }

    /// Whether files are open that may have to be reopened on a connection that is being made.
    #[must_use]
    pub fn may_reopen(&self) -> bool {
        let on_its_way = |link: &Link| !link.is_up() && !link.state_is_idle();
        self.handles.count() > 0
            && self.identity.refused().is_none()
            && self.servers.links().iter().any(on_its_way)
    }

    /// Since when a connection is missing; `None` while all wanted ones are up.
    #[must_use]
    pub fn waiting_since(&self) -> Option<Mono> {
        self.servers.waiting_since()
    }

    /// The reason of a refusal that is temporary, if a server lane's last answer was one; the
    /// client retries.
    #[must_use]
    pub fn temporary_refusal(&self) -> Option<RefusalReason> {
        self.servers.links().iter().find_map(|link| link.temporary_refusal)
    }

    /// The certificate problem that keeps the client from connecting, if any; the client retries.
    #[must_use]
    pub const fn certificate_refusal(&self) -> Option<Refused> {
        self.identity.certificate_refusal()
    }

    /// Why the client has stopped, if it has; all calls are answered with its status.
    #[must_use]
    pub const fn refusal(&self) -> Option<Refused> {
        self.identity.refused()
    }

    /// Forgets a refusal: the next call connects again.
    pub const fn try_again(&mut self) {
        self.identity.set_refused(None);
    }

    /// The server's map, once known.
    #[must_use]
    pub fn map(&self) -> Option<&Map> {
        self.servers.map()
    }

    /// The file system's uuid, once known.
    #[must_use]
    pub const fn fs(&self) -> Option<FsUuid> {
        self.identity.fs()
    }

    /// Whether the last Welcome trusts this client's root; otherwise the server maps root to
    /// nobody.
    #[must_use]
    pub fn is_root_trusted(&self) -> bool {
        self.servers.initial().is_root_trusted()
    }

    /// Whether the last Welcome said that all callers get other ids: a kernel must not check
    /// permissions by its own.
    #[must_use]
    pub fn are_ids_replaced(&self) -> bool {
        self.servers.initial().are_ids_replaced()
    }

    /// Whether the last Welcome said that the export is read-only.
    #[must_use]
    pub fn is_read_only(&self) -> bool {
        self.servers.initial().is_read_only()
    }

    /// The export's root inode, once known. Frontends may use [`InodeNo::ROOT`] for it.
    #[must_use]
    pub const fn root(&self) -> Option<InodeNo> {
        self.identity.root()
    }

    /// The counters.
    #[must_use]
    pub const fn counters(&self) -> Counters {
        self.counters
    }

    /// The reports since the last call.
    pub fn take_reports(&mut self) -> Vec<Report> {
        core::mem::take(&mut self.reports)
    }

    /// Bytes retained for replays: answered changes that the server may still lose.
    #[must_use]
    pub const fn replay_bytes(&self) -> usize {
        self.replay_space.list_bytes()
    }

    /// The number of calls and closes under way.
    #[must_use]
    pub fn busy_count(&self) -> usize {
        self.jobs.count()
    }

    /// The number of open handles.
    #[must_use]
    pub fn open_count(&self) -> usize {
        self.handles.count()
    }

    /// Applies an event; events for other components are ignored.
    pub fn apply(&mut self, turn: &mut Turn<'_>, event: Event) {
        self.now = turn.now.mono;
        match event {
            Event::Net(event) => self.on_net(turn, event),
            Event::Peer(PeerEvent::Message { from, message }) => {
                self.on_peer_message(turn, from, message)
            }
            Event::Secrets(found) => self.on_secrets(turn, found),
            // For servers and mounts only.
            Event::Peer(PeerEvent::Received { .. })
            | Event::Store(_)
            | Event::Object(_)
            | Event::Kernel(_)
            | Event::LaneTime(_)
            | Event::Usage { .. }
            | Event::Asked { .. }
            | Event::Tick
            | Event::Map(_)
            | Event::Stop => {}
        }
    }

    fn on_net(&mut self, turn: &mut Turn<'_>, event: NetEvent) {
        match event {
            NetEvent::Frame { conn, frame, bulk } => self.on_frame(turn, conn, frame, bulk),
            NetEvent::Sealed { conn, channel, .. } => self.identity.set_channel(conn, channel),
            NetEvent::Connected { ticket, conn } => self.on_connected(turn, ticket, conn),
            NetEvent::ConnectFailed { ticket, reason } => {
                self.on_connect_failed(turn, ticket, reason);
            }
            NetEvent::Closed { conn, reason } => self.on_closed(turn, conn, reason),
            // For servers only.
            NetEvent::HandedOver { .. }
            | NetEvent::FromThisHost { .. }
            | NetEvent::SentLate { .. }
            | NetEvent::CertificateRefused { .. } => {}
        }
    }

    /// Ends the turn: checks deadlines, connects, sends. May be called again in the same turn after
    /// further calls.
    pub fn settle(&mut self, turn: &mut Turn<'_>) {
        let now = turn.now.mono;
        self.now = now;
        self.take_up_later(now);
        self.check_term(now);
        self.ping(now);
        self.give_up_interrupted(turn);
        self.give_up_locks(turn);
        self.request_durability();
        self.wake_space_waiters();
        for link_index in 0..self.servers.links().len() {
            self.drive(turn, link_index);
        }
        self.peer_lanes.settle(turn);
        self.joins.settle(turn);
        self.replay_space.settle(turn);
        if let Some(at) = self.next_deadline(now) {
            // An earlier timer that is still pending suffices.
            let alarm = self.alarm.filter(|alarm| *alarm > now);
            if alarm.is_none_or(|alarm| at < alarm) {
                self.alarm = Some(at);
                turn.act(Action::WakeAt { at });
            }
        }
    }

    /// The next answer. Its spans are valid until the turn ends.
    pub fn next_answer(&mut self) -> Option<(CallId, Result<Answer, Status>)> {
        self.jobs.take_answer().map(|(call, result, _)| (call, result))
    }

    /// Begins a call. It is sent at the latest by [`Client::settle`].
    pub fn call(&mut self, turn: &mut Turn<'_>, id: CallId, call: Call<'_>) {
        self.now = turn.now.mono;
        self.note_use(turn.now.mono);
        let call = match self.identity.root() {
            Some(root) if root != InodeNo::ROOT => call.rooted(root),
            Some(_) | None => call,
        };
        // The lane that opened a handle closes it, unless it is kept.
        let mut call = call;
        if let Call::Close(handle) = call {
            if handle_lane(handle) != self.config.lane {
                self.release(turn, handle);
                self.jobs.answer(id, Ok(Answer::Done));
                return;
            }
            self.release_writer(handle);
            let known = if self.release_local(handle) { None } else { self.release_kept(handle) };
            let Some(known) = known else {
                self.jobs.answer(id, Ok(Answer::Done));
                return;
            };
            call = Call::Close(known);
        }
        self.reread_after_refusal(turn);
        if self.start_lock(turn, id, &call) {
            return;
        }
        let unmade = if let Call::CreateBehind(make) = call { Some(make) } else { None };
        if let Err(status) = self.start(id, call) {
            if let Some(make) = unmade {
                self.end_new_file(make.behind.inode);
                self.handles.remove(make.handle.id);
            }
            self.jobs.answer(id, Err(status));
        }
    }

    /// Whether `calls_max` calls are under way. Closes without a caller do not count: a process
    /// that exits may cause any number of them, and no call is refused for that.
    pub(crate) fn is_full(&self) -> bool {
        let calls_max = self.config.calls_max;
        self.jobs.count() >= calls_max && self.jobs.call_count() >= calls_max
    }

    fn start(&mut self, id: CallId, call: Call<'_>) -> Result<(), Status> {
        if let Some(refused) = self.identity.stopped() {
            return Err(refused.status());
        }
        // What is behind is bounded, and would be lost.
        if self.is_full() && !call.is_behind() {
            return Err(Status::Again);
        }
        if self.start_at_several(id, call) {
            return Ok(());
        }
        let mut body = self.requests.take_body();
        let encoded = (&mut body, self.leases.asks);
        let request = begin(call, &mut self.handles, encoded).and_then(|request| {
            let fits = u32::try_from(body.len()).is_ok_and(|bytes| bytes <= BODY_BYTES_MAX);
            if fits {
                return Ok(request);
            }
            if let Some(handle) = request.plan.handle() {
                self.handles.remove(handle);
            }
            Err(Status::Overflow)
        });
        match request {
            Ok(request) => {
                self.begin_job(Some(id), request, body);
                Ok(())
            }
            Err(status) => {
                self.reports.extend(self.handles.report(status));
                self.requests.spare(body);
                Err(status)
            }
        }
    }

    /// Closes a handle without an answer; the close of a peer lane's handle is forwarded to it.
    pub fn release(&mut self, turn: &mut Turn<'_>, handle: HandleId) {
        let lane = handle_lane(handle);
        if lane != self.config.lane {
            turn.act(PeerAction::Message { to: lane, message: MountMessage::Release { handle } });
            return;
        }
        self.release_writer(handle);
        if self.release_local(handle) {
            return;
        }
        if let Some(known) = self.release_kept(handle) {
            self.close_without_caller(known);
        }
    }

    /// Begins the close of a handle of this lane, without a caller. A handle that is not open, or
    /// is being closed, is left alone.
    pub(crate) fn close_without_caller(&mut self, handle: HandleId) {
        let Some(file) = self.handles.close(handle) else { return };
        self.close_writing(file.inode);
        if self.identity.stopped().is_some() {
            return self.handles.remove(handle); // There is no server to close it at.
        }
        let (plan, follow_up) = Close::begin(handle, file);
        self.begin_without_caller(Plan::Close(plan), follow_up);
    }

    /// Reopens, at their metadata shards, all handles for which `wanted` is true.
    pub(crate) fn reopen(&mut self, wanted: impl Fn(&Self, wire::InodeNo) -> bool) {
        for (handle, file) in self.handles.to_reopen() {
            if !wanted(self, file.inode) {
                continue;
            }
            self.handles.set_reopening(handle, true);
            let server_index = self.servers.server_of_inode(file.inode);
            self.servers.begin_registering(server_index);
            let again = Handle { id: handle, open_for: file.open_for };
            let follow_up = FollowUp::Reopen(Reopen { inode: file.inode, handle: again });
            self.begin_without_caller(Plan::Reopen { handle, server_index }, follow_up);
        }
    }

    pub(crate) fn begin_without_caller(&mut self, plan: Plan, follow_up: FollowUp) {
        let mut body = self.requests.take_body();
        follow_up.encode(&[], &mut Writer::new(&mut body));
        let request = NewRequest::new(plan, follow_up.op(), follow_up.target());
        self.begin_job(None, request, body);
    }

    /// Begins a job of several requests.
    pub(crate) fn begin_all(&mut self, id: CallId, plan: Plan, all: Vec<FollowUp>) {
        let job_id = self.jobs.add(Some(id), plan);
        self.submit_all(job_id, plan, all);
    }

    pub(crate) fn begin_job(&mut self, call: Option<CallId>, request: NewRequest, body: Vec<u8>) {
        let job_id = self.jobs.add(call, request.plan);
        self.submit(job_id, request, body);
    }

    /// Ends a job: answers its call, and closes a handle that no caller received.
    pub(crate) fn finish(&mut self, job_id: usize, result: Result<Answer, Status>) {
        let Some(mut job) = self.jobs.remove(job_id) else { return };
        job.abandoned.into_iter().for_each(|inode| self.end_abandoned(inode));
        self.drop_spread(job.spread.take());
        self.drop_append(job.append.take());
        match job.plan {
            Plan::Register { handle } => self.on_registered(handle, &result),
            Plan::Reopen { handle, server_index } => {
                self.servers.end_registering(server_index);
                self.on_registered(handle, &result);
            }
            Plan::Claim { inode, server_index } => {
                self.servers.end_registering(server_index);
                self.on_claimed(inode, result.is_ok());
            }
            Plan::Create(create) if create.chosen().is_some() => {
                create.chosen().into_iter().for_each(|inode| self.end_new_file(inode));
            }
            Plan::Durable { session_index } => {
                if let Some(session) = self.servers.session_mut(session_index) {
                    session.syncing = false;
                }
            }
            Plan::LockTask(key) => {
                if let Err(status) = result {
                    self.on_lock_reply(key, Err(status), false);
                }
            }
            Plan::Relock { key, range, server_index } => {
                self.servers.end_registering(server_index);
                self.on_relocked(key, range, result.err());
            }
            Plan::Layout { inode } => self.on_layout(inode, result),
            Plan::Widen { inode, layout } => self.on_widened((inode, layout), result),
            Plan::EndAppend { inode } => self.on_append_ended(inode),
            Plan::MapAsk => self.on_map_asked(),
            Plan::Direct
            | Plan::Entry
            | Plan::Sized(_)
            | Plan::Create(_)
            | Plan::RemoteInode(_)
            | Plan::Resize(_)
                if job.call.is_none() =>
            {
                self.jobs.note_late_change();
            }
            Plan::Direct
            | Plan::Ping
            | Plan::Read(_)
            | Plan::LockCall { .. }
            | Plan::Entry
            | Plan::Sized(_)
            | Plan::Create(_)
            | Plan::Made(_)
            | Plan::RemoteInode(_)
            | Plan::Open(_)
            | Plan::Close(_)
            | Plan::Resize(_)
            | Plan::Statfs(_)
            | Plan::Sync { .. }
            | Plan::Goodbye => {}
        }
        let delivered = result.is_ok() && job.call.is_some();
        if !delivered && let Some(handle) = job.plan.handle() {
            match self.handles.get(handle) {
                Some(file) if file.open && !file.closing => self.close_without_caller(handle),
                Some(_) => self.handles.remove(handle),
                None => {}
            }
        }
        if let Some(call) = job.call {
            self.jobs.answer_granted(call, result, job.grants);
        }
    }

    fn next_deadline(&self, now: Mono) -> Option<Mono> {
        // Messages from peer lanes and the end of reading the secrets cause a turn by themselves.
        let caught_up = self.peer_lanes_caught_up() && !self.identity.secrets.is_reading();
        let links = self.servers.links().iter().filter_map(|link| match link.state {
            LinkState::Pausing { until } => caught_up.then_some(until),
            LinkState::AwaitChallenge { until, .. } | LinkState::AwaitWelcome { until, .. } => {
                Some(until)
            }
            LinkState::Idle | LinkState::Connecting { .. } | LinkState::Up { .. } => None,
        });
        let (later, interrupts) = (self.requests.next_due(), self.jobs.next_deadline());
        let (locks, term) = (self.locks.deadline(), self.term_deadline(now));
        links.chain(later).chain(interrupts).chain(locks).chain(term).min()
    }

    fn take_up_later(&mut self, now: Mono) {
        while let Some(exchange_id) = self.requests.take_due(now) {
            self.route(exchange_id);
        }
    }
}
