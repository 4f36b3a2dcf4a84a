//! The turn: collect, apply, settle, perform.
//!
//! This module dispatches; the work is in the other modules. Invariants: the core sees one clock
//! reading a turn; the lane does not sleep while events are pending; memory given to the kernel
//! outlives the operation even if the ring is dropped in between.

mod bulk;
mod inspect;
mod last;
mod messages;
mod perform;
mod questions;
mod rows;
mod secrets;

#[cfg(test)]
mod tests;

use crate::buffer::Pool;
use crate::caller;
use crate::clock::{Alarms, Clock};
use crate::config::{Config, LogFn, ReadSecrets};
use crate::conn::{Conns, Seals};
use crate::counters::Counters;
use crate::driver::{Completion, Driver, DriverKind, Kind, Op, Token, Wait};
use crate::inspect::InspectQueue;
use crate::io_context::IoContext;
use crate::kernel::Kernel;
use crate::listen::Listener;
use crate::lists::Lists;
use crate::log::Log;
use crate::log_first::LogFirst;
use crate::mailbox::{Mailbox, Mesh, Relayed, Stopper};
use crate::named_buffers::NamedBuffers;
use crate::objects::Objects;
use crate::spin::{PollBudget, Spin};
use crate::sums::SumJobs;
use crate::usage;
use interface::{
    Action, Arena, Core, Event, KernelEvent, LaneTime, Mono, Process, Ticket, Turn, Usage,
};
use std::io;
use std::marker::PhantomData;
use std::mem::ManuallyDrop;
use std::os::fd::AsRawFd;
use wire::{BULK_BYTES_MAX, LaneId};

/// Maximum of completions processed in one turn.
const COMPLETION_COUNT_MAX: usize = 1024;
/// Delay before undelivered messages are tried again.
const MESSAGE_RETRY_MS: u64 = 1;

/// The runtime of one lane; it stays on the thread that made it.
pub struct Ring {
    /// Leaked if the kernel does not release its memory.
    parts: ManuallyDrop<Parts>,
    /// An io_uring with a single issuer belongs to its thread, and so do operations that wait in an
    /// epoll.
    stays: PhantomData<*const ()>,
}

struct Parts {
    conns: Conns,
    listener: Option<Listener>,
    log: Option<Log>,
    objects: Option<Objects>,
    kernel: Option<Kernel>,
    mailbox: Mailbox,
    wakeup_read: WakeupRead,
    clock: Clock,
    alarms: Alarms,
    spin: Spin,
    /// Messages about relayed connections, from peer lanes, that are not applied yet.
    relayed_waiting: Vec<(usize, Relayed)>,
    actions: Vec<Action>,
    completions: Vec<Completion>,
    groups_wanted: Vec<(Ticket, Process)>,
    signals_wanted: Vec<(Ticket, u32)>,
    /// Buffers named by the core.
    named_buffers: NamedBuffers,
    questions: questions::Questions,
    say: LogFn,
    recovered: Box<dyn FnMut()>,
    inspections: Option<InspectQueue>,
    read_secrets: Option<ReadSecrets>,
    /// When the ring was made.
    began: Mono,
    life: LaneState,
    stop_ms_max: u64,
    io: IoContext,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum LaneState {
    /// No turn was taken yet.
    New,
    On,
    /// The core has stopped; queued frames and messages are being sent.
    Stopping,
    Over,
}

/// The pending read of the wakeup eventfd.
struct WakeupRead {
    armed: bool,
    count: Box<[u8; 8]>,
}

impl Drop for Ring {
    fn drop(&mut self) {
        // Dropped only if the kernel has released all memory.
        if self.parts.io.driver.quiesce() {
            // SAFETY: dropped once, here, and not used afterwards.
            unsafe { ManuallyDrop::drop(&mut self.parts) };
        }
    }
}

impl Ring {
    /// Sets a ring up for the calling thread.
    ///
    /// # Errors
    /// When the configured driver is not available; the text says what to do.
    pub fn new(config: Config) -> io::Result<Self> {
        let seals = Seals::of(config.seal_options())?;
        let mut mailbox = match config.mailbox {
            Some(mailbox) => mailbox,
            None => only_mailbox()?,
        };
        assert!(
            mailbox.lane() == config.lane || mailbox.lane_count() == 1,
            "a lane uses its own mailbox"
        );
        let mut clock = Clock::new(config.lane == LaneId(0));
        let mut io = IoContext {
            driver: Driver::new(config.driver, config.spin_us > 0)?,
            pool: Pool::new(config.limits.buffer_bytes_max),
            lists: Lists::default(),
            sum_jobs: SumJobs::default(),
            log_first: LogFirst::default(),
            arena: Arena::new(),
            events: Vec::new(),
            counters: Counters::default(),
            now: clock.read(),
            fault: config.fault,
            replying: false,
            checksum_memory: config.checksum_memory,
        };
        work_on(&mut io.driver, config.worker_cores)?;
        io.driver.set_engine(config.engine)?;
        if let Some(dir) = config.store.as_ref().filter(|_| config.direct) {
            crate::direct::check_direct(dir)?;
        }
        if let Some(kernel) = &config.kernel {
            kernel.check_driver(io.driver.kind())?;
        }
        let spin = Spin::new(config.spin_us, &mut clock, &mut io.driver, &mut mailbox);
        let open_count_max = config.limits.open_object_count_max;
        // Replies to a kernel are copied into its request, so they must be in memory. An engine, or
        // O_DIRECT, does not leave data in the page cache.
        let copies = config.checksum_reads || config.kernel.is_some();
        let uses_file_ranges = !copies && config.engine.is_driver() && !config.direct;
        let sink = config.discards_bulk.then(|| io.pool.pin(BULK_BYTES_MAX as usize));
        let kernel = config.kernel.map(|channel| Kernel::new(channel, mailbox.waker()));
        let parts = Parts {
            conns: Conns::new(config.limits, config.server, (seals, sink), config.contents_key),
            listener: config.listener.map(Listener::new),
            log: config.log.map(|log| Log::new(log, &mut io)),
            objects: config.store.map(|dir| {
                let names = config.names_follow_files;
                Objects::new(dir, open_count_max, (uses_file_ranges, config.direct), names)
            }),
            kernel: kernel.transpose()?,
            mailbox,
            wakeup_read: WakeupRead { armed: false, count: Box::new([0; 8]) },
            clock,
            alarms: Alarms::default(),
            spin,
            relayed_waiting: Vec::new(),
            actions: Vec::new(),
            completions: Vec::new(),
            groups_wanted: Vec::new(),
            signals_wanted: Vec::new(),
            named_buffers: NamedBuffers::default(),
            questions: questions::Questions::default(),
            say: config.say,
            recovered: config.recovered,
            inspections: config.inspections,
            read_secrets: config.read_secrets,
            began: io.now.mono,
            life: LaneState::New,
            stop_ms_max: config.limits.stop_ms_max,
            io,
        };
        Ok(Self { parts: ManuallyDrop::new(parts), stays: PhantomData })
    }

    /// Takes a turn: waits for an event, unless some are pending. The first turn does not wait and
    /// brings an [`Event::Tick`]. Returns whether the lane continues.
    ///
    /// # Errors
    /// When the kernel refuses the ring itself.
    pub fn turn<B: Core + ?Sized>(&mut self, core: &mut B) -> io::Result<bool> {
        self.parts.turn(core)
    }

    /// Lets the ring's owner call the core between turns. The core's actions are performed at the
    /// beginning of the next turn, before it waits. The core is not settled in between: an owner
    /// whose core acts in [`Core::settle`] calls it here, or the request waits for an event.
    pub fn with<T>(&mut self, talk: impl FnOnce(&mut Turn<'_>) -> T) -> T {
        let Parts { clock, io, actions, .. } = &mut *self.parts;
        io.now = clock.read();
        talk(&mut Turn { now: io.now, arena: &mut io.arena, actions })
    }

    /// The ring's counters.
    #[must_use]
    pub fn counters(&self) -> Counters {
        self.parts.counters()
    }

    /// How this lane has spent its time so far: the other part of what [`Action::Usage`] reports.
    #[must_use]
    pub fn lane_time(&mut self) -> LaneTime {
        self.parts.lane_time()
    }

    /// The usage of the process so far, and this lane's counters: what [`Action::Usage`] reports.
    #[must_use]
    pub fn usage(&mut self) -> Usage {
        self.parts.usage()
    }

    /// The driver in use.
    #[must_use]
    pub fn driver(&self) -> DriverKind {
        self.parts.io.driver.kind()
    }

    /// Number of connections.
    #[must_use]
    pub fn conn_count(&self) -> usize {
        self.parts.conns.live_count()
    }

    /// Bytes of buffers in use.
    #[must_use]
    pub fn buffer_bytes(&self) -> usize {
        self.parts.io.pool.used_bytes()
    }

    /// Stops this lane from another thread.
    #[must_use]
    pub fn stopper(&self) -> Stopper {
        self.parts.mailbox.stopper()
    }
}

fn work_on(driver: &mut Driver, cores: Vec<u16>) -> io::Result<()> {
    let cores = if cores.is_empty() { crate::pin::usable_cores()? } else { cores };
    // Refused where a container allows fewer cores than the process was given; the kernel's threads
    // then run on those.
    driver.work_on(&cores).ok();
    Ok(())
}

fn only_mailbox() -> io::Result<Mailbox> {
    let mailbox = Mesh::mailboxes(1)?.pop();
    mailbox.ok_or_else(|| io::Error::other("one lane has one mailbox"))
}

impl Parts {
    fn counters(&self) -> Counters {
        let handed = self.io.driver.offloaded();
        Counters {
            object_handed_count: handed.offloaded_count,
            object_thread_count: handed.thread_count,
            enter_count: self.io.driver.enter_count(),
            clock_read_count: self.clock.read_count(),
            message_in_count: self.mailbox.in_count(),
            message_out_count: self.mailbox.out_count(),
            syscall_count: self.io.counters.syscall_count + self.io.driver.call_count(),
            ..self.io.counters
        }
    }

    fn lane_time(&mut self) -> LaneTime {
        self.io.counters.syscall_count += 1;
        usage::lane_time(&self.io.counters, (self.began, self.io.now.mono))
    }

    fn usage(&mut self) -> Usage {
        self.io.counters.syscall_count += usage::CALL_COUNT;
        usage::now(&self.counters())
    }

    fn turn<B: Core + ?Sized>(&mut self, core: &mut B) -> io::Result<bool> {
        if self.life == LaneState::Over {
            return Ok(false);
        }
        if !self.actions.is_empty() {
            // Pending events have spans in the arena, so it is not cleared.
            self.perform();
            self.flush();
            self.spin.worked = true;
        }
        self.collect()?;
        let Self { io, actions, .. } = self;
        let mut events = std::mem::take(&mut io.events);
        io.counters.turn_count += 1;
        io.counters.event_count += crate::number::u64_of(events.len());
        let mut turn = Turn { now: io.now, arena: &mut io.arena, actions };
        for event in events.drain(..) {
            core.apply(&mut turn, event);
        }
        core.settle(&mut turn);
        io.events = events;
        self.perform();
        self.io.arena.reset();
        self.flush();
        if self.life == LaneState::Stopping {
            self.send_last()?;
        }
        Ok(self.life != LaneState::Over)
    }

    // --- collect ---------------------------------------------------------------------------------

    fn collect(&mut self) -> io::Result<()> {
        self.arm();
        let began = self.io.now.mono;
        let slept = self.submit_and_wait()?;
        self.io.check_replied_fault();
        self.io.now = self.clock.read();
        if !slept && self.life != LaneState::New {
            let turn_ns = self.io.now.mono.since_ns(began);
            let counters = &mut self.io.counters;
            counters.turn_ns_max = counters.turn_ns_max.max(turn_ns);
            counters.backlog_ns += turn_ns;
        }
        self.dispatch();
        if let Some(kernel) = &mut self.kernel {
            kernel.read(&mut self.io);
        }
        self.look_up_callers();
        self.io.load_log_first();
        let starving = self.is_starved();
        self.conns.expire(starving, &mut self.io);
        self.io.pool.trim(self.io.now.mono);
        if let Some(log) = &mut self.log {
            log.on_turn(&mut self.io);
        }
        if self.mailbox.take_notified() {
            self.read_row_replies();
            self.read_inspected();
            if let Some(kernel) = &self.kernel {
                kernel.read_notified(&mut self.io);
            }
            self.take_set();
            self.take_questions();
        }
        if self.alarms.ring(self.io.now.mono) || self.life == LaneState::New {
            self.io.events.push(Event::Tick);
        }
        if self.life == LaneState::New {
            self.life = LaneState::On;
        }
        if self.mailbox.take_stop() {
            self.io.events.push(Event::Stop);
        }
        Ok(())
    }

    fn arm(&mut self) {
        let Self { io, .. } = self;
        if let Some(listener) = &mut self.listener {
            listener.arm(io);
        }
        if let Some(kernel) = &mut self.kernel {
            kernel.arm(io);
        }
        if !self.wakeup_read.armed {
            self.wakeup_read.armed = true;
            let event = self.mailbox.event().as_raw_fd();
            let at = self.wakeup_read.count.as_mut_ptr();
            let op = Op::ReadEvent { event, at };
            // SAFETY: the eight bytes are boxed in the ring, which outlives its operations.
            unsafe { io.driver.queue(Token::new(Kind::Wake, 0), op) };
        }
    }

    /// Submits the queued operations and waits for an event: first by busy polling, if configured,
    /// then asleep. Returns whether the lane may have slept or polled.
    fn submit_and_wait(&mut self) -> io::Result<bool> {
        let wait = self.wait();
        let has_time = wait != Wait::No && !self.io.driver.is_pending();
        let wait = self.busy_poll(wait)?;
        let may_sleep = wait != Wait::No && self.mailbox.fall_asleep();
        let entered = self.io.driver.enter(if may_sleep { wait } else { Wait::No });
        self.mailbox.wake_up();
        entered.map(|()| has_time)
    }

    /// Busy-polls for events before a sleep. Returns the remaining wait. The lane does not poll
    /// while disk operations are in flight: they are done by kernel threads that may need this very
    /// core.
    fn busy_poll(&mut self, wait: Wait) -> io::Result<Wait> {
        let flushing = self.log.as_ref().is_some_and(Log::is_appending);
        let moving = self.objects.as_ref().is_some_and(Objects::is_busy);
        if flushing || moving {
            return Ok(wait);
        }
        let Some(PollBudget { round_count, rest }) = self.spin.before(wait) else {
            return Ok(wait);
        };
        let Self { io: IoContext { driver, counters, .. }, mailbox, .. } = self;
        // Other parties start working on the submitted operations meanwhile.
        driver.enter(Wait::No)?;
        if driver.is_pending() {
            return Ok(Wait::No);
        }
        let found = driver.poll(round_count, || mailbox.has_pending());
        counters.spin_count += 1;
        counters.spin_hit_count += u64::from(found);
        Ok(if found { Wait::No } else { rest })
    }

    /// How long this turn may wait.
    fn wait(&mut self) -> Wait {
        let busy = self.life != LaneState::On
            || !self.io.events.is_empty()
            || !self.groups_wanted.is_empty()
            || self.io.log_first.is_wanted()
            || !self.signals_wanted.is_empty()
            || self.io.driver.has_completions()
            || self.conns.is_ready()
            || !self.relayed_waiting.is_empty()
            || self.conns.is_discharged()
            || (self.may_free() && self.waits_for_memory())
            || self.kernel.as_ref().is_some_and(Kernel::is_ready);
        if busy {
            return Wait::No;
        }
        let retry_at =
            self.mailbox.is_waiting().then(|| self.io.now.mono.after_ms(MESSAGE_RETRY_MS));
        let listener_at = self.listener.as_ref().and_then(Listener::deadline);
        let log_at = self.log.as_ref().and_then(Log::deadline);
        let pool_at = self.io.pool.trim_at();
        let conns_at = self.conns.deadline(self.is_starved());
        let kernel_at = self.kernel.as_ref().and_then(Kernel::deadline);
        let deadlines =
            [self.alarms.next(), conns_at, retry_at, listener_at, log_at, pool_at, kernel_at];
        match deadlines.into_iter().flatten().min() {
            None => Wait::Ever,
            // Relative to the turn's one clock reading: the sleep may last longer by the turn's
            // duration.
            Some(deadline) => match deadline.since_ns(self.io.now.mono) {
                0 => Wait::No,
                wait_ns => Wait::Ns(wait_ns),
            },
        }
    }

    /// Whether buffers were released, or are when the success of sends is known that end no wait.
    fn may_free(&self) -> bool {
        self.io.pool.is_freed() || self.io.driver.has_sends_at_once()
    }

    /// Whether anything waits for a buffer, or until one is no longer referenced.
    fn waits_for_memory(&self) -> bool {
        self.is_starved() || self.kernel.as_ref().is_some_and(Kernel::waits_for_memory)
    }

    /// Whether a connection or job waits for a buffer.
    fn is_starved(&self) -> bool {
        self.conns.is_starved() || self.objects.as_ref().is_some_and(Objects::is_starved)
    }

    fn dispatch(&mut self) {
        let mut completions = std::mem::take(&mut self.completions);
        self.io.driver.reap(&mut completions, COMPLETION_COUNT_MAX);
        // Messages from a peer lane are applied before requests that follow from its replies.
        self.read_messages();
        self.spin.worked |= !completions.is_empty();
        let received = |completion: &&Completion| completion.token.kind == Kind::Recv;
        self.conns.share_turn(completions.iter().filter(received).count());
        for completion in completions.drain(..) {
            self.on_completion(completion);
        }
        self.completions = completions;
    }

    fn on_completion(&mut self, completion: Completion) {
        let Completion { token: Token { kind, index }, result, .. } = completion;
        let io = &mut self.io;
        match kind {
            Kind::Recv => self.conns.on_recv(index, result, io),
            Kind::Send => self.conns.on_send(index, result, io),
            Kind::Writable => self.conns.on_writable(index, io),
            Kind::Connect => self.conns.on_connect(index, result, io),
            Kind::Accept => self.on_accept(completion),
            Kind::Wake => self.wakeup_read.armed = false,
            Kind::LogWrite => present(&mut self.log).on_write(result, io),
            Kind::LogReserve => present(&mut self.log).on_reserve(result, io),
            Kind::LogZero => present(&mut self.log).on_zero(result, io),
            Kind::Job => present(&mut self.objects).on_job(index, result, io),
            Kind::KernelReply => present(&mut self.kernel).on_replied(index, result, io),
            Kind::KernelRead => present(&mut self.kernel).on_read(result),
            Kind::KernelEntry => {
                if let Some((say, line)) = present(&mut self.kernel).on_entry(index, result, io) {
                    (self.say)(say, &line);
                }
            }
            Kind::Cancel | Kind::EngineWakeup => {}
        }
    }

    fn on_accept(&mut self, completion: Completion) {
        let accepted = present(&mut self.listener).on_accept(completion, self.io.now.mono);
        if let Some(socket) = accepted {
            self.conns.accepted(socket, &mut self.io);
        }
    }

    fn look_up_callers(&mut self) {
        for (ticket, who) in self.groups_wanted.drain(..) {
            let IoContext { arena, counters, now, .. } = &mut self.io;
            let lived_ns = now.mono.since_ns(who.since);
            let groups =
                caller::groups(&who, lived_ns, &mut counters.syscall_count).map(|groups| {
                    arena.write(|out| groups.iter().for_each(|gid| out.extend(gid.to_le_bytes())))
                });
            self.io.events.push(Event::Kernel(KernelEvent::CallerGroups { ticket, groups }));
        }
        for (ticket, pid) in self.signals_wanted.drain(..) {
            let ends = caller::ends(pid, &mut self.io.counters.syscall_count);
            self.io.events.push(Event::Kernel(KernelEvent::CallerSignals { ticket, ends }));
        }
    }

    // --- the end of a turn -----------------------------------------------------------------------

    fn flush(&mut self) {
        let Self { io, .. } = self;
        let freed = io.pool.take_freed();
        if let Some(objects) = self.objects.as_mut().filter(|_| freed) {
            objects.feed(io);
        }
        self.conns.flush(freed, io);
        if let Some(kernel) = &mut self.kernel {
            kernel.flush(freed, io);
        }
        for (lane, message) in self.conns.to_peers.drain(..) {
            self.mailbox.send(lane, message);
        }
        let woken_count = self.mailbox.wake_readers();
        io.counters.wake_count += woken_count;
        io.counters.syscall_count += woken_count;
    }
}

/// The part of an action or completion; if it is missing, configuration and core disagree.
#[track_caller]
fn present<T>(part: &mut Option<T>) -> &mut T {
    let Some(part) = part else {
        panic!("the core uses a {} that the ring was not given", std::any::type_name::<T>())
    };
    part
}
