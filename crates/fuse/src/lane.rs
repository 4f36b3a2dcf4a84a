//! One lane of a mount: the core that stands between the kernel's queue of one core and the
//! client lane of that core.
//!
//! Interrupts and handles cross lanes by mail: the kernel may give up a request at another queue
//! than it made it, and release a file on another core than it opened it.

use crate::abi::Opcode;
use crate::args::split;
use crate::begin::{Begin, Beginning};
use crate::init::{agree, put_init};
use crate::interrupts::Interrupts;
use crate::node::{Moves, Node};
use crate::pending::{Behind, Pendings, Then, Wait};
use alloc::format;
use alloc::vec::Vec;
use client::{Answer, Call, CallId, Client};
use interface::{
    Action, Bulk, Core, Event, KernelAction, KernelEvent, KernelSlot, LaneMessage, LogLevel, Mono,
    PeerAction, PeerEvent, Span, Ticket, Turn,
};
use wire::{ClearPrivileges, Groups, LaneId, Status};

/// How long what is begun may take after the end was asked for.
const END_MS_MAX: u64 = 5_000;

/// How long a server that is away may keep us, when the end was asked for, with what it may have
/// lost.
const AWAY_NS_MAX: u64 = 60_000_000_000;
/// How long the goodbye may take.
const GOODBYE_MS_MAX: u64 = 2_000;
/// The calls of the end; pendings have small numbers.
const SYNC_CALL: CallId = CallId(u64::MAX);
const GOODBYE_CALL: CallId = CallId(u64::MAX - 1);

/// How often the absence of the server is looked at, at the end.
const LOOK_MS: u64 = 1_000;

/// An absence of the server that is worth a line.
const AWAY_NS_MIN: u64 = 1_000_000_000;

/// What a mount lane is made of, besides its client.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Config {
    /// The kernel's requests come by io_uring, so INIT asks for that.
    pub over_io_uring: bool,
    /// Processes that may wait for locks at a time: each takes a place of the kernel's queue. More are
    /// answered ENOLCK, else nobody could unlock any more.
    pub lock_wait_count_max: usize,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Life {
    Serving,
    /// The end was asked for; the kernel may still be there.
    Ending {
        until: Mono,
    },
    /// Nothing is under way; what was answered becomes durable.
    Syncing,
    /// The server is told that we go.
    Leaving {
        until: Mono,
    },
    Stopped,
}

/// What people were told of the server.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Told {
    Fine,
    Away,
    Refused,
}

/// The core of one lane of a mount.
#[derive(Debug)]
pub struct MountLane {
    pub(crate) config: Config,
    pub(crate) client: Client,
    pub(crate) pendings: Pendings,
    pub(crate) interrupts: Interrupts,
    pub(crate) moves: Moves,
    life: Life,
    kernel_gone: bool,
    /// Requests given up whose next call was just begun.
    pub(crate) give_up_again: Vec<usize>,
    told: Told,
    /// For building listings; kept for its memory.
    pub(crate) records: Vec<u8>,
}

impl MountLane {
    /// A lane that serves whatever the kernel asks.
    #[must_use]
    pub fn new(config: Config, client: Client) -> Self {
        Self {
            config,
            client,
            pendings: Pendings::default(),
            interrupts: Interrupts::default(),
            moves: Moves::default(),
            life: Life::Serving,
            kernel_gone: false,
            give_up_again: Vec::new(),
            told: Told::Fine,
            records: Vec::new(),
        }
    }

    /// The client, for its state.
    #[must_use]
    pub const fn client(&self) -> &Client {
        &self.client
    }

    fn on_mail(&mut self, turn: &mut Turn<'_>, event: Event, message: LaneMessage) {
        match message {
            LaneMessage::Interrupt { unique } => self.on_interrupt(turn, unique, false),
            LaneMessage::Unmounted => self.on_kernel_gone(turn, false),
            LaneMessage::Moved { node, parent } => self.moves.put(Node(node), Node(parent)),
            LaneMessage::Release { .. }
            | LaneMessage::Lost { .. }
            | LaneMessage::Evicted { .. }
            | LaneMessage::QueryLoss { .. }
            | LaneMessage::LossReply { .. }
            | LaneMessage::Lock { .. }
            | LaneMessage::LockDone { .. }
            | LaneMessage::LockInterrupt { .. }
            | LaneMessage::LockRelease { .. }
            | LaneMessage::LocksPresent { .. }
            | LaneMessage::LocksPresentSeen { .. } => self.client.apply(turn, event),
            LaneMessage::DestroyObject { .. }
            | LaneMessage::ObjectDestroyed { .. }
            | LaneMessage::Accessed { .. }
            | LaneMessage::QueryContents { .. }
            | LaneMessage::DurableContents { .. }
            | LaneMessage::Changed { .. }
            | LaneMessage::PrivilegedBits { .. }
            | LaneMessage::Containment(_) => {}
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
        let Some(slot) = slot else {
            let begin = split(bytes).map(|(header, args)| {
                let opcode = Opcode::from_number(header.opcode)?;
                let begin = Beginning { header, args, groups: Groups::Unknown, bulk: None };
                begin.begin(opcode).ok()
            });
            if let Ok(Some(Begin::Interrupt(unique))) = begin {
                self.on_interrupt(turn, unique, true);
            }
            return;
        };
        let needs_server = header.is_ok_and(|header| needs_server(header.opcode));
        let pending_id = self.pendings.insert((slot, turn.now.mono), unique, pid, bytes, bulk);
        if needs_server && self.life != Life::Serving {
            // Users of a detached mount may go on for ever, and all that was acknowledged is to be durable.
            self.reply(turn, pending_id, Status::NotConnected, Span::default(), None);
            return;
        }
        self.begin(turn, pending_id);
        if self.interrupts.take(unique) {
            self.on_interrupt(turn, unique, false);
        }
    }

    /// Begins a request, or begins it again now that the caller's groups are known.
    pub(crate) fn begin(&mut self, turn: &mut Turn<'_>, pending_id: usize) {
        let Some(pending) = self.pendings.get(pending_id) else { return };
        let groups = pending.groups.as_deref().map_or(Groups::Unknown, Groups::Known);
        let begin = split(&pending.request).and_then(|(header, args)| {
            let opcode = Opcode::from_number(header.opcode).ok_or(Status::NotImplemented)?;
            let beginning = Beginning { header, args, groups, bulk: pending.bulk };
            match pending.behind {
                Behind::Nothing => beginning.begin(opcode),
                Behind::Size(revoke) => beginning.set_rest(revoke),
                Behind::Refused => beginning.revoke(opcode),
                Behind::ClearPrivileges if opcode == Opcode::Fallocate => {
                    beginning.allocate(ClearPrivileges::Nothing)
                }
                Behind::ClearPrivileges if opcode == Opcode::CopyFileRange => {
                    beginning.copy(ClearPrivileges::Nothing)
                }
                Behind::ClearPrivileges => beginning.write_bytes(ClearPrivileges::Nothing),
            }
        });
        match begin {
            Ok(Begin::Call(_, Then::LockWait)) if self.is_full_of_waits() => {
                self.reply(turn, pending_id, Status::NoLocks, Span::default(), None);
            }
            Ok(Begin::Call(call, then)) => {
                // The bytes of the call are the pending's own, which therefore waits to be changed.
                self.client.call(turn, call_id(pending_id), call);
                if let Some(pending) = self.pendings.get_mut(pending_id) {
                    pending.then = then;
                    if pending.given_up {
                        // It holds for all calls of the request.
                        self.give_up_again.push(pending_id);
                    }
                }
            }
            Ok(Begin::Done) => self.reply(turn, pending_id, Status::Ok, Span::default(), None),
            Ok(Begin::Release(inode, handle)) => {
                self.client.release_locks(inode, handle);
                self.client.release(turn, handle);
                self.reply(turn, pending_id, Status::Ok, Span::default(), None);
            }
            Ok(Begin::Init) => self.on_init(turn, pending_id),
            Ok(Begin::Silent) => {
                self.pendings.remove(pending_id);
            }
            Ok(Begin::Interrupt(unique)) => {
                self.pendings.remove(pending_id);
                self.on_interrupt(turn, unique, true);
            }
            Err(status) => self.reply(turn, pending_id, status, Span::default(), None),
        }
    }

    fn is_full_of_waits(&self) -> bool {
        let count_max = self.config.lock_wait_count_max;
        count_max < usize::MAX && self.pendings.lock_wait_count() >= count_max
    }

    /// A part of a request is done: goes on with the rest.
    pub(crate) fn go_on(&mut self, turn: &mut Turn<'_>, pending_id: usize, behind: Behind) {
        if let Some(pending) = self.pendings.get_mut(pending_id) {
            pending.behind = behind;
        }
        self.begin(turn, pending_id);
    }

    fn on_init(&mut self, turn: &mut Turn<'_>, pending_id: usize) {
        let Some(pending) = self.pendings.get(pending_id) else { return };
        let agreed =
            split(&pending.request).and_then(|(_, args)| agree(args, self.config.over_io_uring));
        match agreed {
            Ok(agreed) => {
                let payload = turn.arena.write(|out| put_init(out, agreed));
                self.reply(turn, pending_id, Status::Ok, payload, None);
            }
            Err(status) => {
                let line = turn.arena.put(b"this kernel's FUSE is older than 7.31 (Linux 5.4)");
                turn.act(Action::Log { level: LogLevel::Alarm, line });
                self.reply(turn, pending_id, status, Span::default(), None);
            }
        }
    }

    /// Answers the kernel.
    pub(crate) fn reply(
        &mut self,
        turn: &mut Turn<'_>,
        pending_id: usize,
        status: Status,
        payload: Span,
        bulk: Option<Bulk>,
    ) {
        let Some(slot) = self.pendings.remove(pending_id) else { return };
        if !self.kernel_gone {
            turn.act(KernelAction::Reply { slot, status, payload, bulk });
        }
    }

    /// The caller's groups are asked for; once.
    pub(crate) fn ask_groups(&mut self, turn: &mut Turn<'_>, pending_id: usize) {
        let Some(pending) = self.pendings.get_mut(pending_id) else { return };
        if pending.groups.is_some() {
            self.reply(turn, pending_id, Status::Access, Span::default(), None);
        } else if pending.given_up {
            self.reply(turn, pending_id, Status::Interrupted, Span::default(), None);
        } else {
            pending.wait = Wait::Groups;
            let ticket = Ticket(call_id(pending_id).0);
            turn.act(KernelAction::CallerGroups { ticket, process: pending.asker() });
        }
    }

    fn on_groups(&mut self, turn: &mut Turn<'_>, ticket: Ticket, groups: Option<Span>) {
        let pending_id = pending_id(CallId(ticket.0));
        let Some(pending) = self.pendings.get_mut(pending_id) else { return };
        if pending.wait != Wait::Groups {
            return;
        }
        let Some(groups) = groups.filter(|_| !pending.given_up) else {
            // The process is gone or gives up; nobody will read this.
            self.reply(turn, pending_id, Status::Interrupted, Span::default(), None);
            return;
        };
        pending.wait = Wait::Call;
        pending.groups = Some(turn.arena.get(groups).to_vec());
        self.begin(turn, pending_id);
    }

    pub(crate) fn tell_peer_lanes(&self, turn: &mut Turn<'_>, message: LaneMessage) {
        for lane in (0..self.client.lane_count()).map(LaneId) {
            if lane != self.client.lane() {
                turn.act(PeerAction::Message { to: lane, message });
            }
        }
    }

    /// The mount is gone: nobody waits for answers any more.
    fn on_kernel_gone(&mut self, turn: &mut Turn<'_>, tell_peer_lanes: bool) {
        if tell_peer_lanes && !self.kernel_gone {
            self.tell_peer_lanes(turn, LaneMessage::Unmounted);
        }
        self.kernel_gone = true;
        for pending_id in self.pendings.all() {
            self.give_up(turn, pending_id);
        }
        self.on_stop(turn);
    }

    fn on_stop(&mut self, turn: &mut Turn<'_>) {
        if self.life == Life::Serving {
            let until = turn.now.mono.after_ms(END_MS_MAX);
            self.life = Life::Ending { until };
            // Others may never unlock.
            for pending_id in self.pendings.lock_waits().collect::<Vec<_>>() {
                self.give_up(turn, pending_id);
            }
        }
    }

    /// Tells people when the server goes and comes; one lane speaks for all.
    fn tell(&mut self, turn: &mut Turn<'_>) {
        if self.client.lane() != LaneId(0) {
            return;
        }
        let now = turn.now.mono;
        let away_ns = self.client.waiting_since().map(|since| now.since_ns(since));
        let (told, say, line) = match (self.client.refusal(), away_ns) {
            (Some(refused), _) => (Told::Refused, LogLevel::Alarm, refused.text()),
            (None, Some(away_ns)) if away_ns >= AWAY_NS_MIN => {
                (Told::Away, LogLevel::Warning, "the server is away; operations wait for it")
            }
            // A short absence is not worth a line; the client's own alarms bring us back here.
            (None, Some(_)) => return,
            (None, None) => (Told::Fine, LogLevel::Info, "the server is back"),
        };
        if told != self.told {
            self.told = told;
            let line = turn.arena.put(line.as_bytes());
            turn.act(Action::Log { level: say, line });
        }
    }

    /// Ends when everything is answered and closed, or when that takes too long.
    fn try_to_end(&mut self, turn: &mut Turn<'_>) {
        let Life::Ending { until } = self.life else { return };
        let idle = self.pendings.count() == 0 && self.client.busy_count() == 0;
        if !idle && turn.now.mono < until {
            turn.act(Action::WakeAt { at: until });
            return;
        }
        for pending_id in self.pendings.all() {
            self.reply(turn, pending_id, Status::NotConnected, Span::default(), None);
        }
        self.life = Life::Syncing;
        self.client.call(turn, SYNC_CALL, Call::SyncAll);
    }

    /// What was answered is durable, or is lost.
    fn on_synced(&mut self, turn: &mut Turn<'_>, result: Result<Answer, Status>) {
        if self.life != Life::Syncing {
            return;
        }
        if result.is_err() {
            say(turn, LogLevel::Alarm, "something that was written is lost with the server");
        }
        if !self.client.is_connected() {
            self.stop(turn);
            return;
        }
        self.life = Life::Leaving { until: turn.now.mono.after_ms(GOODBYE_MS_MAX) };
        self.client.call(turn, GOODBYE_CALL, Call::Goodbye);
    }

    /// The last waits are not for ever.
    fn look_at_end(&mut self, turn: &mut Turn<'_>) {
        let now = turn.now.mono;
        match self.life {
            Life::Serving | Life::Ending { .. } | Life::Stopped => {}
            Life::Syncing => {
                let away_ns = self.client.waiting_since().map_or(0, |since| now.since_ns(since));
                if away_ns < AWAY_NS_MAX {
                    turn.act(Action::WakeAt { at: now.after_ms(LOOK_MS) });
                    return;
                }
                let line = "the server stays away: what it had not yet made durable may be lost";
                say(turn, LogLevel::Alarm, line);
                self.stop(turn);
            }
            Life::Leaving { until } if now < until => turn.act(Action::WakeAt { at: until }),
            Life::Leaving { .. } => self.stop(turn),
        }
    }

    fn stop(&mut self, turn: &mut Turn<'_>) {
        self.life = Life::Stopped;
        turn.act(Action::Stopped);
    }

    /// Passes on what the client has to say to people.
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
            KernelEvent::Unmounted => self.on_kernel_gone(turn, true),
            KernelEvent::CallerGroups { ticket, groups } => self.on_groups(turn, ticket, groups),
            KernelEvent::CallerSignals { ticket, ends } => self.on_signals(turn, ticket, ends),
        }
    }
}

impl Core for MountLane {
    fn apply(&mut self, turn: &mut Turn<'_>, event: Event) {
        match event {
            Event::Kernel(event) => self.on_kernel_event(turn, event),
            Event::Stop => self.on_stop(turn),
            Event::Peer(PeerEvent::Message { message, .. }) => self.on_mail(turn, event, message),
            Event::Net(_)
            | Event::Store(_)
            | Event::Object(_)
            | Event::Usage { .. }
            | Event::Peer(PeerEvent::Encoded { .. })
            | Event::Secrets(_)
            | Event::Tick => self.client.apply(turn, event),
        }
    }

    fn settle(&mut self, turn: &mut Turn<'_>) {
        if self.life == Life::Stopped {
            return;
        }
        loop {
            self.client.settle(turn);
            let mut answered = false;
            while let Some((call, result)) = self.client.next_answer() {
                answered = true;
                match call {
                    SYNC_CALL => self.on_synced(turn, result),
                    GOODBYE_CALL => self.stop(turn),
                    _ => self.on_answer(turn, pending_id(call), result),
                }
            }
            if self.life == Life::Stopped {
                self.report(turn);
                return;
            }
            if !answered {
                break;
            }
        }
        for pending_id in core::mem::take(&mut self.give_up_again) {
            self.give_up(turn, pending_id);
        }
        self.look_at_interrupted(turn);
        self.tell(turn);
        self.report(turn);
        let before = self.life;
        self.try_to_end(turn);
        if self.life != before {
            // The call that was just made.
            self.settle(turn);
            return;
        }
        self.look_at_end(turn);
    }
}

/// Whether a request is more than bookkeeping between the kernel and this lane.
fn needs_server(opcode: u32) -> bool {
    !matches!(
        Opcode::from_number(opcode),
        None | Some(
            Opcode::Init
                | Opcode::Destroy
                | Opcode::Forget
                | Opcode::BatchForget
                | Opcode::Interrupt
        )
    )
}

fn say(turn: &mut Turn<'_>, say: LogLevel, line: &str) {
    let line = turn.arena.put(line.as_bytes());
    turn.act(Action::Log { level: say, line });
}

pub(crate) fn call_id(pending_id: usize) -> CallId {
    CallId(u64::try_from(pending_id).unwrap_or(u64::MAX))
}

fn pending_id(call: CallId) -> usize {
    usize::try_from(call.0).unwrap_or(usize::MAX)
}
