//! The client's state and its interface: events and calls in, answers out. Requests are in `send`
//! and `receive`, connections in `handshake`.

use crate::evict::RetainedBufs;
use crate::exchange::{Exchange, Job, Outcome};
use crate::handles::{Handles, handle_lane};
use crate::link::{Link, LinkState};
use crate::locks::Locks;
use crate::losses::PeerLanes;
use crate::plan::begin::{NewRequest, Target, begin};
use crate::plan::{Close, FollowUp, Plan, PlanReply};
use crate::refused::Refused;
use crate::report::Report;
use crate::secrets::HeldSecrets;
use crate::session::Session;
use crate::{Answer, Call, CallId};
use alloc::collections::VecDeque;
use alloc::vec;
use alloc::vec::Vec;
use interface::{Action, ConnId, Event, Mono, MountMessage, NetEvent, PeerAction, PeerEvent, Turn};
use slab::Slab;
use wire::{
    BODY_BYTES_MAX, Channel, ClientUuid, FsUuid, Handle, HandleId, InodeNo, LaneId, Map, Purpose,
    RefusalReason, Reopen, Rules, Secrets, SessionId, Status, Writer,
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

/// Counters since the start.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Counters {
    /// Handshakes completed.
    pub connect_count: u64,
    /// Requests sent, resends included.
    pub request_count: u64,
    /// Requests sent again after a connection was lost.
    pub resend_count: u64,
    /// Replies that match no outstanding request.
    pub stray_reply_count: u64,
    /// Connections closed because of a protocol error of the server.
    pub protocol_error_count: u64,
    /// Replays sent.
    pub replay_count: u64,
    /// Answered changes that were lost.
    pub lost_count: u64,
    /// Evictions of this client.
    pub evicted_count: u64,
}

/// One client lane's end of the protocol.
#[derive(Debug)]
pub struct Client {
    pub(crate) config: Config,
    pub(crate) secrets: HeldSecrets,
    pub(crate) fs: Option<FsUuid>,
    pub(crate) map: Option<Map>,
    pub(crate) session: SessionId,
    pub(crate) boot_id: u64,
    pub(crate) root_trusted: bool,
    pub(crate) read_only: bool,
    /// The inode that frontends call [`InodeNo::ROOT`].
    pub(crate) root: Option<InodeNo>,
    pub(crate) slot_count: u16,
    pub(crate) conn_epoch: u32,
    pub(crate) ticket_last: u64,
    pub(crate) random_count: u64,
    /// The channel of a TLS connection whose `Connected` event follows.
    pub(crate) sealed: Option<(ConnId, Channel)>,
    pub(crate) sequence_last: u64,
    /// By server lane; before the map is known only lane 0's.
    pub(crate) links: Vec<Link>,
    /// Metadata shards, data shards, then lanes.
    pub(crate) sessions: Vec<Session>,
    pub(crate) exchanges: Slab<Exchange>,
    pub(crate) jobs: Slab<Job>,
    pub(crate) handles: Handles,
    pub(crate) locks: Locks,
    pub(crate) unrouted: VecDeque<usize>,
    /// Changing requests that wait for replay space.
    pub(crate) space_waiters: VecDeque<usize>,
    pub(crate) later: Vec<(Mono, usize)>,
    /// The last timer that was set.
    pub(crate) alarm: Option<Mono>,
    pub(crate) interrupts: Vec<(Mono, CallId)>,
    /// Handles being reopened; while there are any, no other request is sent.
    pub(crate) reopening_count: usize,
    pub(crate) answers: VecDeque<Outcome>,
    pub(crate) spare_bodies: Vec<Vec<u8>>,
    pub(crate) refused: Option<Refused>,
    /// The certificate problem that was last reported.
    pub(crate) certificate_refusal: Option<Refused>,
    pub(crate) waiting_since: Option<Mono>,
    pub(crate) counters: Counters,
    /// Bytes of the replay lists, and bytes that requests in flight may add to them.
    pub(crate) replay_bytes: usize,
    pub(crate) promised_bytes: usize,
    pub(crate) retained: RetainedBufs,
    pub(crate) peer_lanes: PeerLanes,
    /// Messages to single peer lanes, sent at the end of the turn.
    pub(crate) peer_messages: Vec<(LaneId, MountMessage)>,
    /// A change was lost since the last `SyncAll`.
    pub(crate) loss_unreported: bool,
    pub(crate) reports: Vec<Report>,
}

impl Client {
    /// A client that connects on its first call.
    #[must_use]
    pub fn new(config: Config) -> Self {
        let handles = Handles::new(config.lane, config.handles_max);
        let peer_lanes = PeerLanes::new(config.lane_count);
        let root = config.root;
        let secrets = HeldSecrets::new(config.secrets);
        Self {
            config,
            secrets,
            fs: None,
            map: None,
            session: SessionId(0),
            boot_id: 0,
            root_trusted: false,
            read_only: false,
            root,
            slot_count: 1,
            conn_epoch: 0,
            ticket_last: 0,
            random_count: 0,
            sealed: None,
            sequence_last: 0,
            links: vec![Link::new()],
            sessions: Vec::new(),
            exchanges: Slab::new(),
            jobs: Slab::new(),
            handles,
            locks: Locks::default(),
            unrouted: VecDeque::new(),
            space_waiters: VecDeque::new(),
            later: Vec::new(),
            alarm: None,
            interrupts: Vec::new(),
            reopening_count: 0,
            answers: VecDeque::new(),
            spare_bodies: Vec::new(),
            refused: None,
            certificate_refusal: None,
            waiting_since: None,
            counters: Counters::default(),
            replay_bytes: 0,
            promised_bytes: 0,
            retained: RetainedBufs::default(),
            peer_lanes,
            peer_messages: Vec::new(),
            loss_unreported: false,
            reports: Vec::new(),
        }
    }

    /// The number of this client lane.
    #[must_use]
    pub const fn lane(&self) -> LaneId {
        self.config.lane
    }

    /// The number of the client's lanes.
    #[must_use]
    pub const fn lane_count(&self) -> u16 {
        self.config.lane_count
    }

    /// Whether a connection to any server lane is up.
    #[must_use]
    pub fn is_connected(&self) -> bool {
        self.links.iter().any(Link::is_up)
    }

    /// Whether files are open that may have to be reopened on a connection that is being made.
    #[must_use]
    pub fn may_reopen(&self) -> bool {
        let on_its_way = |link: &Link| !link.is_up() && !link.state_is_idle();
        self.handles.count() > 0 && self.refused.is_none() && self.links.iter().any(on_its_way)
    }

    /// Since when a connection is missing; `None` while all wanted ones are up.
    #[must_use]
    pub const fn waiting_since(&self) -> Option<Mono> {
        self.waiting_since
    }

    /// The reason of a refusal that is temporary, if a server lane's last answer was one; the
    /// client retries.
    #[must_use]
    pub fn temporary_refusal(&self) -> Option<RefusalReason> {
        self.links.iter().find_map(|link| link.temporary_refusal)
    }

    /// The certificate problem that keeps the client from connecting, if any; the client retries.
    #[must_use]
    pub const fn certificate_refusal(&self) -> Option<Refused> {
        self.certificate_refusal
    }

    /// Why the client has stopped, if it has; all calls are answered with its status.
    #[must_use]
    pub const fn refusal(&self) -> Option<Refused> {
        self.refused
    }

    /// Forgets a refusal: the next call connects again.
    pub const fn try_again(&mut self) {
        self.refused = None;
    }

    /// The server's map, once known.
    #[must_use]
    pub const fn map(&self) -> Option<&Map> {
        self.map.as_ref()
    }

    /// The file system's uuid, once known.
    #[must_use]
    pub const fn fs(&self) -> Option<FsUuid> {
        self.fs
    }

    /// Whether the last Welcome trusts this client's root; otherwise the server maps root to
    /// nobody.
    #[must_use]
    pub const fn is_root_trusted(&self) -> bool {
        self.root_trusted
    }

    /// Whether the last Welcome said that the export is read-only.
    #[must_use]
    pub const fn is_read_only(&self) -> bool {
        self.read_only
    }

    /// The export's root inode, once known. Frontends may use [`InodeNo::ROOT`] for it.
    #[must_use]
    pub const fn root(&self) -> Option<InodeNo> {
        self.root
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
        self.replay_bytes
    }

    /// The number of calls and closes under way.
    #[must_use]
    pub fn busy_count(&self) -> usize {
        self.jobs.len()
    }

    /// The number of open handles.
    #[must_use]
    pub fn open_count(&self) -> usize {
        self.handles.count()
    }

    /// Applies an event; events for other components are ignored.
    pub fn apply(&mut self, turn: &mut Turn<'_>, event: Event) {
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
            | Event::Usage { .. }
            | Event::Tick
            | Event::Stop => {}
        }
    }

    fn on_net(&mut self, turn: &mut Turn<'_>, event: NetEvent) {
        match event {
            NetEvent::Frame { conn, frame, bulk } => self.on_frame(turn, conn, frame, bulk),
            NetEvent::Sealed { conn, channel, .. } => self.sealed = Some((conn, channel)),
            NetEvent::Connected { ticket, conn } => self.on_connected(turn, ticket, conn),
            NetEvent::ConnectFailed { ticket, reason } => {
                self.on_connect_failed(turn, ticket, reason);
            }
            NetEvent::Closed { conn, reason } => self.on_closed(turn, conn, reason),
            // For servers only.
            NetEvent::HandedOver { .. }
            | NetEvent::FromThisHost { .. }
            | NetEvent::CertificateRefused { .. } => {}
        }
    }

    /// Ends the turn: checks deadlines, connects, sends. May be called again in the same turn after
    /// further calls.
    pub fn settle(&mut self, turn: &mut Turn<'_>) {
        let now = turn.now.mono;
        self.take_up_later(now);
        self.give_up_interrupted(turn);
        self.give_up_locks(turn);
        self.request_durability();
        self.wake_space_waiters();
        for link_index in 0..self.links.len() {
            self.drive(turn, link_index);
        }
        self.send_to_peer_lanes(turn);
        self.retained.settle(turn);
        if let Some(at) = self.next_deadline() {
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
        self.answers.pop_front()
    }

    /// Begins a call. It is sent at the latest by [`Client::settle`].
    pub fn call(&mut self, turn: &mut Turn<'_>, id: CallId, call: Call<'_>) {
        let call = match self.root {
            Some(root) if root != InodeNo::ROOT => call.rooted(root),
            Some(_) | None => call,
        };
        // The lane that opened a handle closes it.
        if let Call::Close(handle) = call
            && handle_lane(handle) != self.config.lane
        {
            self.release(turn, handle);
            self.answers.push_back((id, Ok(Answer::Done)));
            return;
        }
        self.reread_after_refusal(turn);
        if self.start_lock(turn, id, &call) {
            return;
        }
        if let Err(status) = self.start(id, call) {
            self.answers.push_back((id, Err(status)));
        }
    }

    /// Whether `calls_max` calls are under way. Closes without a caller do not count: a process
    /// that exits may cause any number of them, and no call is refused for that.
    pub(crate) fn is_full(&self) -> bool {
        let calls_max = self.config.calls_max;
        self.jobs.len() >= calls_max
            && self.jobs.iter().filter(|(_, job)| job.call.is_some()).count() >= calls_max
    }

    fn start(&mut self, id: CallId, call: Call<'_>) -> Result<(), Status> {
        if let Some(refused) = self.stopped() {
            return Err(refused.status());
        }
        if self.is_full() {
            return Err(Status::Again);
        }
        if self.start_gathering(id, call) {
            return Ok(());
        }
        let mut body = self.spare_bodies.pop().unwrap_or_default();
        let request = begin(call, &mut self.handles, &mut body).and_then(|request| {
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
                self.spare(body);
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
        self.close_without_caller(handle);
    }

    /// Begins the close of a handle of this lane, without a caller. A handle that is not open, or
    /// is being closed, is left alone.
    pub(crate) fn close_without_caller(&mut self, handle: HandleId) {
        let Some(file) = self.handles.close(handle) else { return };
        if self.stopped().is_some() {
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
            self.reopening_count += 1;
            let again = Handle { id: handle, open_for: file.open_for };
            let follow_up = FollowUp::Reopen(Reopen { inode: file.inode, handle: again });
            self.begin_without_caller(Plan::Reopen(handle), follow_up);
        }
    }

    fn begin_without_caller(&mut self, plan: Plan, follow_up: FollowUp) {
        let mut body = self.spare_bodies.pop().unwrap_or_default();
        follow_up.encode(&[], &mut Writer::new(&mut body));
        let target = Target::Inode(follow_up.inode());
        let request = NewRequest { plan, op: follow_up.op(), target, bulk: None, sync: false };
        self.begin_job(None, request, body);
    }

    /// Begins a request without a body and without a caller, or for a `Gather`.
    pub(crate) fn begin_own(&mut self, request: NewRequest) {
        let body = self.spare_bodies.pop().unwrap_or_default();
        self.begin_job(None, request, body);
    }

    pub(crate) fn begin_gather(&mut self, id: CallId, plan: Plan) -> usize {
        self.jobs.insert(Job {
            call: Some(id),
            plan,
            exchange_id: usize::MAX,
            has_begun: false,
            first: None,
        })
    }

    pub(crate) fn begin_job(&mut self, call: Option<CallId>, request: NewRequest, body: Vec<u8>) {
        let job_id = self.jobs.insert(Job {
            call,
            plan: request.plan,
            exchange_id: usize::MAX,
            has_begun: false,
            first: None,
        });
        self.submit(job_id, request, body);
    }

    pub(crate) fn spare(&mut self, mut body: Vec<u8>) {
        const SPARE_COUNT_MAX: usize = 256;
        const SPARE_BYTES_MAX: usize = 4096;
        if self.spare_bodies.len() < SPARE_COUNT_MAX && body.capacity() <= SPARE_BYTES_MAX {
            body.clear();
            self.spare_bodies.push(body);
        }
    }

    /// Ends a job: answers its call, and closes a handle that no caller received.
    pub(crate) fn finish(&mut self, job_id: usize, result: Result<Answer, Status>) {
        let Some(job) = self.jobs.try_remove(job_id) else { return };
        if let Plan::Reopen(handle) = job.plan {
            self.handles.set_reopening(handle, false);
            self.reopening_count -= 1;
        }
        match job.plan {
            Plan::Part { whole } => self.part_done(whole, result.map(drop)),
            Plan::Goodbye { whole, link_index } => {
                if result.is_ok() {
                    self.on_goodbye_done(link_index);
                }
                self.part_done(whole, Ok(()));
            }
            Plan::Durable { session_index } => {
                if let Some(session) = self.sessions.get_mut(session_index) {
                    session.syncing = false;
                }
            }
            Plan::LockTask(key) => {
                if let Err(status) = result {
                    self.on_lock_reply(key, PlanReply { outcome: Err(status), from_slot: false });
                }
            }
            Plan::Relock { key, range } => self.on_relocked(key, range, result.err()),
            Plan::Direct
            | Plan::LockCall { .. }
            | Plan::Entry
            | Plan::Sizing(_)
            | Plan::Create(_)
            | Plan::RemoteInode(_)
            | Plan::Open(_)
            | Plan::Close(_)
            | Plan::Resize(_)
            | Plan::Statfs(_)
            | Plan::Reopen(_)
            | Plan::Gather { .. } => {}
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
            self.answers.push_back((call, result));
        }
    }

    fn next_deadline(&self) -> Option<Mono> {
        // Messages from peer lanes and the end of reading the secrets cause a turn by themselves.
        let caught_up = self.peer_lanes_caught_up() && !self.secrets.is_reading();
        let links = self.links.iter().filter_map(|link| match link.state {
            LinkState::Pausing { until } => caught_up.then_some(until),
            LinkState::AwaitChallenge { until, .. } | LinkState::AwaitWelcome { until, .. } => {
                Some(until)
            }
            LinkState::Idle | LinkState::Connecting { .. } | LinkState::Up { .. } => None,
        });
        let later = self.later.iter().map(|(at, _)| *at);
        let interrupts = self.interrupts.iter().map(|(at, _)| *at);
        links.chain(later).chain(interrupts).chain(self.locks.deadline()).min()
    }

    fn take_up_later(&mut self, now: Mono) {
        let mut index = 0;
        while let Some((at, exchange_id)) = self.later.get(index).copied() {
            if at > now {
                index += 1;
                continue;
            }
            self.later.swap_remove(index);
            self.route(exchange_id);
        }
    }
}
