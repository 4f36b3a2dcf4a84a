//! One lane of a mount: the frontend between the kernel's request queue of one CPU and the client
//! lane on it.
//!
//! Peer messages carry interrupts and handles across lanes: the kernel may interrupt a request from
//! another queue, and release a file on another CPU than it opened it.

use crate::abi::{Opcode, init_flag};
use crate::args::split;
use crate::begin::Decoded;
use crate::cache::begin_call;
use crate::call_ids::{GOODBYE_CALL, SYNC_CALL, call_id, pending_id};
use crate::counts::{Counts, Ended, span_bytes};
use crate::early::WriteBehind;
use crate::files_ahead::FilesAhead;
use crate::handle::{FileHandle, spread_file};
use crate::init::{Negotiated, negotiate, put_init};
use crate::interrupts::Interrupts;
use crate::leases::Leases;
use crate::listings_ahead::ListingsAhead;
use crate::names::Names;
use crate::node::{Moves, Node};
use crate::pending::{Continuation, PendingRequests, Progress, Wait};
use crate::profile::Profile;
use crate::recalls::Recalls;
use crate::soft::Soft;
use crate::traces::Traces;
use alloc::format;
use alloc::sync::Arc;
use alloc::vec::Vec;
use client::{Cache, Call, CallId, Client};
use interface::{
    Action, Bulk, Core, Event, KernelAction, KernelEvent, KernelSlot, LogLevel, Mono, MountMessage,
    PeerEvent, Span, Ticket, Turn,
};
use wire::{LaneId, Status};

/// The shortest absence of the server that is logged.
const AWAY_NS_MIN: u64 = 1_000_000_000;

/// The configuration of a mount lane, besides its client.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Config {
    /// The kernel's requests arrive over io_uring, so INIT negotiates that.
    pub over_io_uring: bool,
    /// The most processes that may wait for locks at a time: each occupies an entry of the kernel's
    /// queue. More are answered with ENOLCK, else unlocks could not get through.
    pub lock_wait_count_max: usize,
    /// The kernel caches what leases cover, and checks permissions by itself.
    pub leases: bool,
    /// Names are forgotten all at once where the kernel can do that; false as before Linux 6.16.
    pub forgets_names: bool,
    /// A request that no server has answered for so long fails with EIO; `None`: it waits.
    pub soft_ms: Option<u64>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum MountState {
    Serving,
    /// A stop was requested; the kernel may still send requests.
    Ending {
        until: Mono,
    },
    /// No request is in flight; a SyncAll is.
    Syncing,
    /// A Goodbye is in flight.
    Goodbye {
        until: Mono,
    },
    Stopped,
}

/// The state of the server that was last logged.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum ServerState {
    Reachable,
    Away,
    Refused,
}

/// The state machine of one lane of a mount.
#[derive(Debug)]
pub struct MountLane {
    pub(crate) config: Config,
    pub(crate) client: Client,
    pub(crate) pendings: PendingRequests,
    pub(crate) interrupts: Interrupts,
    pub(crate) soft: Soft,
    pub(crate) moves: Moves,
    pub(crate) leases: Leases,
    pub(crate) recalls: Recalls,
    pub(crate) counts: Counts,
    pub(crate) traces: Traces,
    pub(crate) names: Names,
    /// The recording for `lanefs profile`, if there is one.
    pub(crate) profile: Option<Profile>,
    /// What all lanes of the mount know.
    pub(crate) cache: Option<Arc<Cache>>,
    pub(crate) behind: WriteBehind,
    pub(crate) ahead: FilesAhead,
    pub(crate) listings: ListingsAhead,
    pub(crate) state: MountState,
    unmounted: bool,
    /// Abandoned requests that have just begun to wait again.
    pub(crate) abandon_again: Vec<usize>,
    logged_state: ServerState,
    /// Buffer for listings, reused.
    pub(crate) records: Vec<u8>,
}

impl MountLane {
    /// A lane that serves the kernel's requests.
    #[must_use]
    pub fn new(config: Config, client: Client) -> Self {
        Self {
            config,
            client: if config.leases { client.with_leases() } else { client },
            pendings: PendingRequests::default(),
            interrupts: Interrupts::default(),
            soft: Soft::default(),
            moves: Moves::default(),
            leases: Leases::new(config.leases),
            recalls: Recalls::default(),
            counts: Counts::default(),
            traces: Traces::default(),
            names: Names::default(),
            profile: None,
            cache: None,
            behind: WriteBehind::default(),
            ahead: FilesAhead::default(),
            listings: ListingsAhead::default(),
            state: MountState::Serving,
            unmounted: false,
            abandon_again: Vec::new(),
            logged_state: ServerState::Reachable,
            records: Vec::new(),
        }
    }

    /// The client, for its counters and state.
    #[must_use]
    pub const fn client(&self) -> &Client {
        &self.client
    }

    /// Whether no stop was requested.
    pub(crate) fn is_serving(&self) -> bool {
        self.state == MountState::Serving
    }

    fn on_peer_message(&mut self, turn: &mut Turn<'_>, event: Event, message: MountMessage) {
        match message {
            MountMessage::Interrupt { unique } => self.on_interrupt(turn, unique, false),
            MountMessage::Unmounted => self.on_unmounted(turn, false),
            MountMessage::Moved { node, parent } => self.moves.put(Node(node), Node(parent)),
            MountMessage::ForgetsNames => self.leases.forgets_names = true,
            MountMessage::Pages { inode, version, opened } => {
                let dropped = (version, opened.map(FileHandle));
                self.leases.set_pages(turn.now.mono, inode, dropped);
            }
            MountMessage::Written { inode } => self.go_on_behind(turn, inode),
            MountMessage::Register { inode } => {
                self.client.register_local(inode);
            }
            MountMessage::OpenToWrite { inode } => {
                self.open_to_write(inode);
            }
            MountMessage::Forgotten { inode } => {
                self.leases.forget_pages(inode);
                self.client.forget_kept(inode);
            }
            MountMessage::Release { .. }
            | MountMessage::Lost { .. }
            | MountMessage::Evicted { .. }
            | MountMessage::QueryLoss { .. }
            | MountMessage::LossReply { .. }
            | MountMessage::Lock { .. }
            | MountMessage::LockDone { .. }
            | MountMessage::LockInterrupt { .. }
            | MountMessage::LockRelease { .. }
            | MountMessage::LocksPresent { .. }
            | MountMessage::LocksPresentSeen { .. }
            | MountMessage::Abandoned { .. } => self.client.apply(turn, event),
        }
    }

    fn on_kernel(
        &mut self,
        turn: &mut Turn<'_>,
        slot: Option<KernelSlot>,
        request: Span,
        bulk: Option<Bulk>,
    ) {
        let bytes = turn.arena.get(request);
        let header = split(bytes).map(|(header, _)| header);
        let (unique, pid) = header.map_or((0, 0), |header| (header.unique, header.pid));
        let Some(slot) = slot else { return self.on_unanswered(turn, request) };
        let needs_server = header.is_ok_and(|header| Opcode::needs_server(header.opcode));
        let pending_id = self.pendings.insert((slot, turn.now.mono), unique, pid, bytes, bulk);
        if needs_server && self.state != MountState::Serving {
            // A detached mount may get requests for ever, and a stop must end.
            self.reply(turn, pending_id, Status::NotConnected, Span::default(), None);
            return;
        }
        self.begin(turn, pending_id);
        if self.interrupts.take(unique) {
            self.on_interrupt(turn, unique, false);
        }
    }

    /// Begins a request, also for a second time when the caller's groups are known.
    pub(crate) fn begin(&mut self, turn: &mut Turn<'_>, pending_id: usize) {
        let is_begun = self.is_behind(turn, pending_id)
            || self.open_at_once(turn, pending_id)
            || self.was_read_ahead(turn, pending_id);
        if is_begun {
            return self.note_abandoned(pending_id);
        }
        let Some(pending) = self.pendings.get(pending_id) else { return };
        let decoded = pending.decoded();
        match decoded {
            Ok(Decoded::Call(_, Continuation::LockWait)) if self.is_full_of_waits() => {
                self.reply(turn, pending_id, Status::NoLocks, Span::default(), None);
            }
            Ok(Decoded::Call(call, continuation)) => {
                if let (Call::Open(open), Continuation::Opendir) = (&call, continuation)
                    && self.cache.as_ref().is_some_and(|it| it.is_held(turn.now.mono, open.inode))
                    && let Some(handle) = self.client.open_kept_directory(turn.now.mono, open)
                {
                    let inode = open.inode;
                    return self.reply_opened_directory(turn, pending_id, (inode, handle));
                }
                let known = self
                    .shown(turn.now.mono, &call)
                    .or_else(|| self.known(turn.now.mono, &call, continuation))
                    .or_else(|| self.shown_again(turn.now.mono, &call));
                if let Some((result, granted)) = known {
                    if let Some(pending) = self.pendings.get_mut(pending_id) {
                        pending.continuation = continuation;
                    }
                    return self.on_answer(turn, pending_id, result, granted);
                }
                let asked =
                    begin_call(self.cache.as_ref(), &mut self.client, (turn.now.mono, &call));
                if let Call::Lookup(lookup) = &call {
                    self.listings.see(turn.now.mono, self.client.term().no, lookup);
                }
                self.leases.see_read(&pending.request);
                if let Some(inode) = spread_file(&pending.request) {
                    self.client.expect_spread(inode);
                }
                // The call's bytes belong to the pending request, so the request is changed after
                // the call.
                let busy_count = self.client.busy_count();
                self.client.call(turn, call_id(pending_id), call);
                let waits = self.client.busy_count() > busy_count;
                if let Some(pending) = self.pendings.get_mut(pending_id) {
                    pending.continuation = continuation;
                    pending.asked_server |= waits;
                    pending.asked = asked;
                }
                self.note_abandoned(pending_id);
            }
            Ok(Decoded::Done) => self.reply(turn, pending_id, Status::Ok, Span::default(), None),
            Ok(Decoded::Release(inode, handle)) => {
                self.release_behind(turn, inode, handle);
                self.reply(turn, pending_id, Status::Ok, Span::default(), None);
            }
            Ok(Decoded::Init) => self.on_init(turn, pending_id),
            Ok(Decoded::Silent) => {
                self.count(turn.now.mono, pending_id, Ended::SILENT);
                self.pendings.remove(pending_id);
            }
            Ok(Decoded::Interrupt(unique)) => {
                self.count(turn.now.mono, pending_id, Ended::SILENT);
                self.pendings.remove(pending_id);
                self.on_interrupt(turn, unique, true);
            }
            Err(status) => self.reply(turn, pending_id, status, Span::default(), None),
        }
    }

    /// A request without a reply.
    fn on_unanswered(&mut self, turn: &mut Turn<'_>, request: Span) {
        let Ok((header, mut args)) = split(turn.arena.get(request)) else { return };
        self.counts.count_unanswered(header.opcode, span_bytes(request));
        match Opcode::from_number(header.opcode) {
            Some(Opcode::Interrupt) => {
                if let Ok(unique) = args.u64() {
                    self.on_interrupt(turn, unique, true);
                }
            }
            Some(Opcode::Forget) => self.on_forgotten(turn, header.inode),
            Some(Opcode::BatchForget) => {
                let inodes = args.forgotten().unwrap_or_default();
                inodes.into_iter().for_each(|inode| self.on_forgotten(turn, inode));
            }
            _ => {}
        }
    }

    /// A part of a request is done: continues with the rest.
    pub(crate) fn go_on(&mut self, turn: &mut Turn<'_>, pending_id: usize, progress: Progress) {
        if let Some(pending) = self.pendings.get_mut(pending_id) {
            pending.progress = progress;
        }
        self.begin(turn, pending_id);
    }

    fn on_init(&mut self, turn: &mut Turn<'_>, pending_id: usize) {
        let Some(pending) = self.pendings.get(pending_id) else { return };
        let Config { over_io_uring, leases, forgets_names, .. } = self.config;
        let uring = if over_io_uring { init_flag::OVER_IO_URING } else { 0 };
        // A kernel that checks permissions by itself must know the ACLs. Attributes in a listing
        // are of use only where it may keep them. The target of a symlink never changes.
        let caching = if leases {
            init_flag::POSIX_ACL
                | init_flag::DO_READDIRPLUS
                | init_flag::READDIRPLUS_AUTO
                | init_flag::CACHE_SYMLINKS
        } else {
            0
        };
        let negotiated =
            split(&pending.request).and_then(|(_, args)| negotiate(args, uring | caching));
        match negotiated {
            Ok(negotiated) => {
                if let Negotiated::Session { forgets_names: true, .. } = negotiated
                    && forgets_names
                {
                    self.leases.forgets_names = true;
                    self.send_to_peer_lanes(turn, MountMessage::ForgetsNames);
                }
                let payload = turn.arena.write(|out| put_init(out, negotiated));
                self.reply(turn, pending_id, Status::Ok, payload, None);
            }
            Err(status) => {
                let line = turn.arena.put(b"this kernel's FUSE is older than 7.31 (Linux 5.4)");
                turn.act(Action::Log { level: LogLevel::Alarm, line });
                self.reply(turn, pending_id, status, Span::default(), None);
            }
        }
    }

    /// Replies to the kernel.
    pub(crate) fn reply(
        &mut self,
        turn: &mut Turn<'_>,
        pending_id: usize,
        status: Status,
        payload: Span,
        bulk: Option<Bulk>,
    ) {
        let is_overdue = || self.pendings.get(pending_id).is_some_and(|it| it.is_overdue);
        let status =
            if status == Status::Interrupted && is_overdue() { Status::Io } else { status };
        let read_bytes = bulk.map_or(0, |bulk| u64::from(bulk.bulk_bytes));
        let out_bytes = span_bytes(payload) + read_bytes;
        self.count(turn.now.mono, pending_id, Ended { status, out_bytes, read_bytes });
        let sizes = self.pendings.get(pending_id).map(|it| (it.resizes, it.awaited));
        let Some(slot) = self.pendings.remove(pending_id) else { return };
        if !self.unmounted {
            turn.act(KernelAction::Reply { slot, status, payload, bulk });
        }
        self.end_sizes(turn, sizes.unwrap_or_default(), status);
    }

    /// Looks up the caller's groups, once per request.
    pub(crate) fn look_up_groups(&mut self, turn: &mut Turn<'_>, pending_id: usize) {
        let Some(pending) = self.pendings.get_mut(pending_id) else { return };
        if pending.groups.is_some() {
            self.reply(turn, pending_id, Status::Access, Span::default(), None);
        } else if pending.abandoned {
            self.reply(turn, pending_id, Status::Interrupted, Span::default(), None);
        } else {
            pending.ask_groups(turn.now.mono);
            self.counts.groups_count += 1;
            let ticket = Ticket(call_id(pending_id).0);
            turn.act(KernelAction::CallerGroups { ticket, process: pending.calling_process() });
        }
    }

    fn on_groups(&mut self, turn: &mut Turn<'_>, ticket: Ticket, groups: Option<Span>) {
        let pending_id = pending_id(CallId(ticket.0));
        let Some(pending) = self.pendings.get_mut(pending_id) else { return };
        if pending.wait != Wait::Groups {
            return;
        }
        let Some(groups) = groups.filter(|_| !pending.abandoned) else {
            // The process has exited or is being killed: it does not read the reply.
            self.reply(turn, pending_id, Status::Interrupted, Span::default(), None);
            return;
        };
        pending.take_groups(turn.now.mono, turn.arena.get(groups).to_vec());
        self.begin(turn, pending_id);
    }

    /// The mount was removed: no process reads replies any more.
    fn on_unmounted(&mut self, turn: &mut Turn<'_>, forward: bool) {
        if forward && !self.unmounted {
            self.send_to_peer_lanes(turn, MountMessage::Unmounted);
        }
        self.unmounted = true;
        for pending_id in self.pendings.all() {
            self.abandon(turn, pending_id);
        }
        self.on_stop(turn);
    }

    /// Logs when the server goes away and comes back; one lane does it for all.
    fn log_server_state(&mut self, turn: &mut Turn<'_>) {
        if self.client.lane() != LaneId(0) {
            return;
        }
        let now = turn.now.mono;
        let away_ns = self.client.waiting_since().map(|since| now.since_ns(since));
        let (state, say, line) = match (self.client.refusal(), away_ns) {
            (Some(refused), _) => (ServerState::Refused, LogLevel::Alarm, refused.text()),
            (None, Some(away_ns)) if away_ns >= AWAY_NS_MIN => {
                (ServerState::Away, LogLevel::Warning, "the server is away; operations wait for it")
            }
            // A short absence is not logged; the client's timers cause further turns.
            (None, Some(_)) => return,
            (None, None) => (ServerState::Reachable, LogLevel::Info, "the server is back"),
        };
        if state != self.logged_state {
            self.logged_state = state;
            let line = turn.arena.put(line.as_bytes());
            turn.act(Action::Log { level: say, line });
        }
    }

    /// Logs the client's reports.
    fn report(&mut self, turn: &mut Turn<'_>) {
        for report in self.client.take_reports() {
            let line = turn.arena.write(|out| out.extend(format!("{report}").into_bytes()));
            turn.act(Action::Log { level: LogLevel::Alarm, line });
        }
    }
}

impl MountLane {
    fn on_kernel_event(&mut self, turn: &mut Turn<'_>, event: KernelEvent) {
        match event {
            KernelEvent::Request { slot, request, bulk } => {
                self.on_kernel(turn, slot, request, bulk);
            }
            KernelEvent::Unmounted => self.on_unmounted(turn, true),
            KernelEvent::CallerGroups { ticket, groups } => self.on_groups(turn, ticket, groups),
            KernelEvent::CallerSignals { ticket, ends } => self.on_signals(turn, ticket, ends),
            KernelEvent::Notified { ticket, result } => self.on_notified(turn, ticket, result),
        }
    }
}

impl Core for MountLane {
    fn apply(&mut self, turn: &mut Turn<'_>, event: Event) {
        match event {
            Event::Kernel(event) => self.on_kernel_event(turn, event),
            Event::Stop => self.on_stop(turn),
            Event::Peer(PeerEvent::Message { message, .. }) => {
                self.on_peer_message(turn, event, message)
            }
            Event::Asked { ticket, question } => self.on_asked(turn, ticket, question),
            Event::Usage { ticket, usage } => self.on_usage(turn, ticket, &usage),
            Event::Net(_)
            | Event::Store(_)
            | Event::Object(_)
            | Event::LaneTime(_)
            | Event::Peer(PeerEvent::Received { .. })
            | Event::Map(_)
            | Event::Secrets(_)
            | Event::Tick => self.client.apply(turn, event),
        }
    }

    fn settle(&mut self, turn: &mut Turn<'_>) {
        if self.state == MountState::Stopped {
            return;
        }
        self.check_recalls(turn);
        loop {
            self.end_dropped_creates(turn);
            self.note_use();
            self.register_old(turn);
            self.read_files_ahead(turn);
            self.list_ahead(turn);
            let abandons = self.abandon_again(turn);
            self.client.settle(turn);
            self.set_term();
            self.check_late_changes();
            let mut answered = false;
            let now = turn.now.mono;
            while let Some((call, result, granted)) = self.client.next_granted_answer(now) {
                answered = true;
                match call {
                    SYNC_CALL => self.on_synced(turn, result),
                    GOODBYE_CALL => self.stop(turn),
                    _ if FilesAhead::has_made(call) => {
                        self.on_read_ahead(turn, call, (result, granted));
                    }
                    _ if ListingsAhead::has_made(call) => {
                        self.on_listed_ahead(turn, call, (result, granted));
                    }
                    _ if WriteBehind::has_made(call) => {
                        self.on_early_answer(turn, call, (&result, &granted));
                    }
                    _ => {
                        self.learn(turn, pending_id(call), &result, &granted);
                        self.on_answer(turn, pending_id(call), result, granted);
                    }
                }
            }
            if self.state == MountState::Stopped {
                self.report(turn);
                return;
            }
            let has_recalls = self.take_recalls(turn);
            let goes_on = has_recalls || answered || abandons || !self.ahead.is_settled();
            if !self.end_local_opens(turn) && !goes_on {
                break;
            }
        }
        self.check_interrupted(turn);
        self.end_overdue(turn);
        self.wake_for_recalls(turn);
        self.log_server_state(turn);
        self.report(turn);
        let before = self.state;
        self.try_to_end(turn);
        if self.state != before {
            // Sends the call that was just made.
            self.settle(turn);
            return;
        }
        self.check_end(turn);
    }
}

pub(crate) fn log(turn: &mut Turn<'_>, say: LogLevel, line: &str) {
    let line = turn.arena.put(line.as_bytes());
    turn.act(Action::Log { level: say, line });
}
