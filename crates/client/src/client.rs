//! The client's state and its doors: events in, calls in, answers out. What happens to a request
//! is in `send` and `receive`, connections are in `greet`.

use crate::evict::Kept;
use crate::exchange::{Exchange, Job, Outcome};
use crate::handles::{Handles, handle_lane};
use crate::link::{Link, LinkState};
use crate::locks::Locks;
use crate::losses::PeerLanes;
use crate::plan::begin::{Begun, Target, begin};
use crate::plan::{Ask, Close, Got, Plan};
use crate::refused::Refused;
use crate::report::Report;
use crate::secrets::Held;
use crate::session::Session;
use crate::slab::Slab;
use crate::{Answer, Call, CallId};
use alloc::collections::VecDeque;
use alloc::vec;
use alloc::vec::Vec;
use interface::{Action, ConnId, Event, LaneMessage, Mono, NetEvent, PeerAction, PeerEvent, Turn};
use wire::{
    BODY_BYTES_MAX, Channel, ClientUuid, FsUuid, Handle, HandleId, InodeNo, LaneId, Map, Purpose,
    RefusalReason, Reopen, Rules, Secrets, SessionId, Status, Writer,
};

/// What a client is made of.
#[derive(Clone, Debug)]
pub struct Config {
    /// The mount or library instance: random, the same for its peer lanes.
    pub client: ClientUuid,
    /// Which of its lanes this is.
    pub lane: LaneId,
    /// How many it has.
    pub lane_count: u16,
    /// The file system's secret, or the export's; two while it is changed.
    pub secrets: Secrets,
    /// The export wanted, at most 64 bytes; empty for the default one.
    pub export: Vec<u8>,
    /// What it comes for.
    pub purpose: Purpose,
    /// The root that the export must have, if that was told before; a lane that knows it asks at once.
    pub root: Option<InodeNo>,
    /// The host.
    pub host_id: [u8; 16],
    /// Its boot.
    pub host_boot_id: [u8; 16],
    /// A mount whose process has ended and whose place this one takes; zeros if there is none.
    pub predecessor: ClientUuid,
    /// Random, different for every lane; nonces, first xids and pauses come from it.
    pub seed: [u8; 32],
    /// Unanswered calls at most; further ones are answered `Again`.
    pub calls_max: usize,
    /// Open handles at most; further opens are answered `TooManyFiles`.
    pub handles_max: usize,
    /// Bytes remembered for replays at most. From half of it on the server is asked to make things
    /// durable; at it, changes wait. Default: [`REPLAY_BYTES_MAX`].
    pub replay_bytes_max: usize,
    /// What of the protocol holds: all of it, but in tests.
    pub rules: Rules,
}

/// Default of [`Config::replay_bytes_max`].
pub const REPLAY_BYTES_MAX: usize = 64 << 20;

/// What happened so far, for people.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Counters {
    /// Connections that were greeted.
    pub connect_count: u64,
    /// Requests sent, again ones included.
    pub request_count: u64,
    /// Requests sent again after a connection was lost.
    pub resend_count: u64,
    /// Replies to requests that nobody waits for.
    pub stray_reply_count: u64,
    /// Connections closed because the server broke the protocol.
    pub protocol_error_count: u64,
    /// Replays sent.
    pub replay_count: u64,
    /// Changes that were answered and are lost.
    pub lost_count: u64,
    /// How often this client was evicted.
    pub evicted_count: u64,
}

/// One client lane's end of the protocol.
#[derive(Debug)]
pub struct Client {
    pub(crate) config: Config,
    pub(crate) held: Held,
    pub(crate) fs: Option<FsUuid>,
    pub(crate) map: Option<Map>,
    pub(crate) session: SessionId,
    pub(crate) boot_id: u64,
    pub(crate) root_trusted: bool,
    pub(crate) read_only: bool,
    /// What faces call the root is this inode.
    pub(crate) root: Option<InodeNo>,
    pub(crate) slot_count: u16,
    pub(crate) conn_epoch: u32,
    pub(crate) ticket_last: u64,
    pub(crate) dice_count: u64,
    /// A connection under TLS that is about to be there.
    pub(crate) sealed: Option<(ConnId, Channel)>,
    pub(crate) born_last: u64,
    /// By server lane; before the map is known only lane 0's.
    pub(crate) links: Vec<Link>,
    /// Metadata shards, data shards, then lanes.
    pub(crate) sessions: Vec<Session>,
    pub(crate) exchanges: Slab<Exchange>,
    pub(crate) jobs: Slab<Job>,
    pub(crate) handles: Handles,
    pub(crate) locks: Locks,
    pub(crate) unrouted: VecDeque<usize>,
    /// Changing requests that wait until less is remembered for replays.
    pub(crate) space_waiters: VecDeque<usize>,
    pub(crate) later: Vec<(Mono, usize)>,
    /// The last alarm that was set.
    pub(crate) alarm: Option<Mono>,
    pub(crate) interrupts: Vec<(Mono, CallId)>,
    /// Handles being registered again; while there are any, nothing else is sent.
    pub(crate) reopening_count: usize,
    pub(crate) answers: VecDeque<Outcome>,
    pub(crate) spare_bodies: Vec<Vec<u8>>,
    pub(crate) refused: Option<Refused>,
    /// What was said of why there is no connection.
    pub(crate) waits: Option<Refused>,
    pub(crate) waiting_since: Option<Mono>,
    pub(crate) counters: Counters,
    /// What the replay lists hold, and what requests under way will add to them.
    pub(crate) replay_bytes: usize,
    pub(crate) promised_bytes: usize,
    pub(crate) kept: Kept,
    pub(crate) peer_lanes: PeerLanes,
    /// For single peer lanes, at the end of the turn.
    pub(crate) questions: Vec<(LaneId, LaneMessage)>,
    /// Something was lost that nobody who asked for everything was told of.
    pub(crate) lost_untold: bool,
    pub(crate) reports: Vec<Report>,
}

impl Client {
    /// A client that connects when it is first called.
    #[must_use]
    pub fn new(config: Config) -> Self {
        let handles = Handles::new(config.lane, config.handles_max);
        let peer_lanes = PeerLanes::new(config.lane_count);
        let root = config.root;
        let held = Held::new(config.secrets);
        Self {
            config,
            held,
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
            dice_count: 0,
            sealed: None,
            born_last: 0,
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
            waits: None,
            waiting_since: None,
            counters: Counters::default(),
            replay_bytes: 0,
            promised_bytes: 0,
            kept: Kept::default(),
            peer_lanes,
            questions: Vec::new(),
            lost_untold: false,
            reports: Vec::new(),
        }
    }

    /// Which client lane this is.
    #[must_use]
    pub const fn lane(&self) -> LaneId {
        self.config.lane
    }

    /// How many lanes this client has.
    #[must_use]
    pub const fn lane_count(&self) -> u16 {
        self.config.lane_count
    }

    /// Whether any server lane has welcomed us and is still there.
    #[must_use]
    pub fn is_connected(&self) -> bool {
        self.links.iter().any(Link::is_up)
    }

    /// Whether files are open that a server lane may have to be told of anew, and a connection is on
    /// its way.
    #[must_use]
    pub fn may_reopen(&self) -> bool {
        let on_its_way = |link: &Link| !link.is_up() && !link.state_is_idle();
        self.handles.count() > 0 && self.refused.is_none() && self.links.iter().any(on_its_way)
    }

    /// Since when the server could not be reached; `None` while it can, or nobody tried.
    #[must_use]
    pub const fn waiting_since(&self) -> Option<Mono> {
        self.waiting_since
    }

    /// What a server said that did not let us in just now, if that was the last word of one of its
    /// lanes; the client tries again.
    #[must_use]
    pub fn turned_away(&self) -> Option<RefusalReason> {
        self.links.iter().find_map(|link| link.turned_away)
    }

    /// Which certificate keeps us from the server, if one does; the client tries again.
    #[must_use]
    pub const fn waits_for(&self) -> Option<Refused> {
        self.waits
    }

    /// Why the client does not go on, if so; all calls are answered with its status.
    #[must_use]
    pub const fn refusal(&self) -> Option<Refused> {
        self.refused
    }

    /// Forgets a refusal: the next call connects again.
    pub const fn try_again(&mut self) {
        self.refused = None;
    }

    /// The server's shape, once known.
    #[must_use]
    pub const fn map(&self) -> Option<Map> {
        self.map
    }

    /// The file system, once known.
    #[must_use]
    pub const fn fs(&self) -> Option<FsUuid> {
        self.fs
    }

    /// Whether the last Welcome said that our root acts as root there; otherwise it is nobody.
    #[must_use]
    pub const fn is_root_trusted(&self) -> bool {
        self.root_trusted
    }

    /// Whether the last Welcome said that nothing is changed through this export.
    #[must_use]
    pub const fn is_read_only(&self) -> bool {
        self.read_only
    }

    /// The inode that is the root here, once known. Faces may call it [`InodeNo::ROOT`].
    #[must_use]
    pub const fn root(&self) -> Option<InodeNo> {
        self.root
    }

    /// What happened so far.
    #[must_use]
    pub const fn counters(&self) -> Counters {
        self.counters
    }

    /// What people must be told since the last time.
    pub fn take_reports(&mut self) -> Vec<Report> {
        core::mem::take(&mut self.reports)
    }

    /// Bytes remembered for replays: what was answered and may still be lost with the server.
    #[must_use]
    pub const fn replay_bytes(&self) -> usize {
        self.replay_bytes
    }

    /// How many calls and closes are under way.
    #[must_use]
    pub fn busy_count(&self) -> usize {
        self.jobs.count()
    }

    /// How many handles are open.
    #[must_use]
    pub fn open_count(&self) -> usize {
        self.handles.count()
    }

    /// Takes an event in; those of other cores pass by.
    pub fn apply(&mut self, turn: &mut Turn<'_>, event: Event) {
        match event {
            Event::Net(event) => self.on_net(turn, event),
            Event::Peer(PeerEvent::Message { from, message }) => self.on_mail(turn, from, message),
            Event::Secrets(found) => self.on_secrets(turn, found),
            // A server's and a mount's own.
            Event::Peer(PeerEvent::Encoded { .. })
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
            // A server's own.
            NetEvent::HandedOver { .. }
            | NetEvent::FromThisHost { .. }
            | NetEvent::CertificateRefused { .. } => {}
        }
    }

    /// Ends the turn: looks at deadlines, connects, sends. May be called again in the same turn
    /// after further calls.
    pub fn settle(&mut self, turn: &mut Turn<'_>) {
        let now = turn.now.mono;
        self.take_up_later(now);
        self.give_up_interrupted(turn);
        self.give_up_locks(turn);
        self.press();
        self.wake_space_waiters();
        for link_index in 0..self.links.len() {
            self.drive(turn, link_index);
        }
        self.write_to_peer_lanes(turn);
        self.kept.settle(turn);
        if let Some(at) = self.next_deadline() {
            // An alarm that was set and is still to come need not be set again.
            let alarm = self.alarm.filter(|alarm| *alarm > now);
            if alarm.is_none_or(|alarm| at < alarm) {
                self.alarm = Some(at);
                turn.act(Action::WakeAt { at });
            }
        }
    }

    /// The next outcome. Its spans are of this turn: take all before the turn ends.
    pub fn next_answer(&mut self) -> Option<(CallId, Result<Answer, Status>)> {
        self.answers.pop_front()
    }

    /// Begins a call. It is sent at the latest by [`Client::settle`].
    pub fn call(&mut self, turn: &mut Turn<'_>, id: CallId, call: Call<'_>) {
        let call = match self.root {
            Some(root) if root != InodeNo::ROOT => call.rooted(root),
            Some(_) | None => call,
        };
        // A foreign handle is its opener's to close.
        if let Call::Close(handle) = call
            && handle_lane(handle) != self.config.lane
        {
            self.release(turn, handle);
            self.answers.push_back((id, Ok(Answer::Done)));
            return;
        }
        self.ask_after_refusal(turn);
        if self.start_lock(turn, id, &call) {
            return;
        }
        if let Err(status) = self.start(id, call) {
            self.answers.push_back((id, Err(status)));
        }
    }

    /// Whether as many calls are under way as may be. Closes that nobody waits for do not count: a
    /// process that ends may leave any number of them, and no caller is refused for that.
    pub(crate) fn is_full(&self) -> bool {
        let calls_max = self.config.calls_max;
        self.jobs.count() >= calls_max
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
        let begun = begin(call, &mut self.handles, &mut body).and_then(|begun| {
            let fits = u32::try_from(body.len()).is_ok_and(|bytes| bytes <= BODY_BYTES_MAX);
            if fits {
                return Ok(begun);
            }
            if let Some(handle) = begun.plan.handle() {
                self.handles.remove(handle);
            }
            Err(Status::Overflow)
        });
        match begun {
            Ok(begun) => {
                self.begin_job(Some(id), begun, body);
                Ok(())
            }
            Err(status) => {
                self.reports.extend(self.handles.report(status));
                self.spare(body);
                Err(status)
            }
        }
    }

    /// Closes a handle without anybody waiting; one of a peer lane's is sent there.
    pub fn release(&mut self, turn: &mut Turn<'_>, handle: HandleId) {
        let lane = handle_lane(handle);
        if lane != self.config.lane {
            turn.act(PeerAction::Message { to: lane, message: LaneMessage::Release { handle } });
            return;
        }
        self.close_unasked(handle);
    }

    /// Begins the close of an own handle that nobody waits for. A handle that is not open, or is
    /// being closed, is left alone.
    pub(crate) fn close_unasked(&mut self, handle: HandleId) {
        let Some(file) = self.handles.close(handle) else { return };
        if self.stopped().is_some() {
            return self.handles.remove(handle); // There is no one to close it at.
        }
        let (plan, ask) = Close::begin(handle, file);
        self.begin_unasked(Plan::Close(plan), ask);
    }

    /// Registers again, at their metadata shards, all handles that `wanted` picks.
    pub(crate) fn reopen(&mut self, wanted: impl Fn(&Self, wire::InodeNo) -> bool) {
        for (handle, file) in self.handles.to_reopen() {
            if !wanted(self, file.inode) {
                continue;
            }
            self.handles.set_reopening(handle, true);
            self.reopening_count += 1;
            let again = Handle { id: handle, open_for: file.open_for };
            let ask = Ask::Reopen(Reopen { inode: file.inode, handle: again });
            self.begin_unasked(Plan::Reopen(handle), ask);
        }
    }

    fn begin_unasked(&mut self, plan: Plan, ask: Ask) {
        let mut body = self.spare_bodies.pop().unwrap_or_default();
        ask.encode(&[], &mut Writer::new(&mut body));
        let target = Target::Inode(ask.inode());
        let begun = Begun { plan, op: ask.op(), target, bulk: None, sync: false };
        self.begin_job(None, begun, body);
    }

    /// Begins a request without a body that nobody waits for, or a `Gather` does.
    pub(crate) fn begin_own(&mut self, begun: Begun) {
        let body = self.spare_bodies.pop().unwrap_or_default();
        self.begin_job(None, begun, body);
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

    pub(crate) fn begin_job(&mut self, call: Option<CallId>, begun: Begun, body: Vec<u8>) {
        let job_id = self.jobs.insert(Job {
            call,
            plan: begun.plan,
            exchange_id: usize::MAX,
            has_begun: false,
            first: None,
        });
        self.submit(job_id, begun, body);
    }

    pub(crate) fn spare(&mut self, mut body: Vec<u8>) {
        const SPARE_COUNT_MAX: usize = 256;
        const SPARE_BYTES_MAX: usize = 4096;
        if self.spare_bodies.len() < SPARE_COUNT_MAX && body.capacity() <= SPARE_BYTES_MAX {
            body.clear();
            self.spare_bodies.push(body);
        }
    }

    /// A job is over: its call is answered, and a handle that nobody got is closed.
    pub(crate) fn finish(&mut self, job_id: usize, result: Result<Answer, Status>) {
        let Some(job) = self.jobs.remove(job_id) else { return };
        if let Plan::Reopen(handle) = job.plan {
            self.handles.set_reopening(handle, false);
            self.reopening_count -= 1;
        }
        match job.plan {
            Plan::Part { whole } => self.part_done(whole, result.map(drop)),
            Plan::Leave { whole, link_index } => {
                if result.is_ok() {
                    self.on_left(link_index);
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
                    self.on_lock_reply(key, Got { outcome: Err(status), from_slot: false });
                }
            }
            Plan::Relock { key, range } => self.on_relocked(key, range, result.err()),
            Plan::Direct
            | Plan::LockCall { .. }
            | Plan::Entry
            | Plan::Sizing(_)
            | Plan::Create(_)
            | Plan::Elsewhere(_)
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
                Some(file) if file.open && !file.closing => self.close_unasked(handle),
                Some(_) => self.handles.remove(handle),
                None => {}
            }
        }
        if let Some(call) = job.call {
            self.answers.push_back((call, result));
        }
    }

    fn next_deadline(&self) -> Option<Mono> {
        // Mail of peer lanes, or the secrets that are being read, cause a turn by themselves.
        let together = self.is_with_peer_lanes() && !self.held.is_asked();
        let links = self.links.iter().filter_map(|link| match link.state {
            LinkState::Pausing { until } => together.then_some(until),
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
