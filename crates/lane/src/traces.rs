//! Traces of requests: where the time of each one went, for [`wire::Op::Traces`].
//!
//! ```text
//! begin ─▶ answered in its turn ─▶ kept if it is a sample
//!   └─ open ─ waits ─▶ answered ─▶ kept if it is slow or a sample
//! ```
//! A trace has a number, which the request carries in its [`Times`]; only a request that is not
//! answered in the turn in which it arrived has an open trace under it. Times are those of turns, so
//! no clock is read for a request. Invariants: the number of open traces and that of kept ones are
//! bounded; beyond the bound a request has no trace. A number is free, or reserved by one request
//! that is being executed, or that of one open trace.

mod report;

pub(crate) use report::shown;

use crate::Lane;
use crate::request::ReceivedRequest;
use crate::request_header::{RequestHeader, Times, TraceNo};
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use interface::{Mono, Turn};
use meta::EndedWait;
use wire::traces::{Kept, WaitCause, is_sample};
use wire::{ClientUuid, Op, Request, SessionId, Status, Xid};

/// Most requests that are followed at a time.
const OPEN_COUNT_MAX: usize = 4096;
/// Kept: the latest slow ones, and as many samples.
const KEPT_COUNT_MAX: usize = 256;
/// A trace keeps these bytes of the frame: enough for its inode and a usual name.
const FRAME_BYTES_MAX: usize = 512;
/// Most waits of a trace; further ones replace the last.
const WAIT_COUNT_MAX: usize = 8;
/// Traces whose requests have ended without a reply are looked for once in this time.
const SWEEP_MS: u64 = 1000;

/// Which request it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Names {
    op: Op,
    session: SessionId,
    xid: Xid,
    trace_id: u64,
    is_data: bool,
}

impl From<&RequestHeader> for Names {
    fn from(header: &RequestHeader) -> Self {
        let RequestHeader { op, session, xid, trace_id, shard, .. } = *header;
        Self { op, session, xid, trace_id, is_data: shard.is_data() }
    }
}

/// A request that is being executed in this turn.
#[derive(Clone, Copy, Debug)]
struct Current {
    no: TraceNo,
    /// The number is reserved; its trace is not open yet.
    is_reserved: bool,
    names: Names,
    arrived: Mono,
    ahead_count: u32,
    /// The status of its reply, which has left.
    status: Option<Status>,
    /// Its trace was open, and has ended.
    was_open: bool,
}

/// How many requests were being executed when another one arrived.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Depth(usize);

/// A wait of a request.
#[derive(Clone, Debug)]
struct Wait {
    cause: WaitCause,
    begun: Mono,
    ended: Option<Mono>,
    whom: Vec<ClientUuid>,
}

/// A request that is not answered yet.
#[derive(Clone, Debug)]
struct Open {
    names: Names,
    arrived: Mono,
    ahead_count: u32,
    frame: Vec<u8>,
    waits: Vec<Wait>,
}

/// A request that was answered.
#[derive(Debug)]
struct Done {
    kept: Kept,
    open: Open,
    client: ClientUuid,
    /// Queue, execution, commit.
    phases_us: [u64; 3],
    flush_us: u64,
    status: Status,
}

/// A wait for a lock on a file that has ended.
#[derive(Debug)]
struct LockWait {
    wait: EndedWait,
    ended: Mono,
}

/// The traces of a lane.
#[derive(Debug)]
pub(crate) struct Traces {
    /// By number, from 1.
    open: Vec<Option<Open>>,
    free: Vec<TraceNo>,
    /// A request may have others executed meanwhile: the last one is the innermost.
    current: Vec<Current>,
    slow: VecDeque<Done>,
    samples: VecDeque<Done>,
    lock_waits: VecDeque<LockWait>,
    /// The turn of the requests that were counted last.
    turn_at: Mono,
    turn_count: u32,
    slow_us: u64,
    swept_at: Mono,
    /// No request is traced.
    is_off: bool,
}

impl Traces {
    pub(crate) const fn new(slow_ms: u64, is_off: bool) -> Self {
        Self {
            open: Vec::new(),
            free: Vec::new(),
            current: Vec::new(),
            slow: VecDeque::new(),
            samples: VecDeque::new(),
            lock_waits: VecDeque::new(),
            turn_at: Mono(0),
            turn_count: 0,
            slow_us: slow_ms.saturating_mul(1000),
            swept_at: Mono(0),
            is_off,
        }
    }

    /// A request is going to be executed. Returns its times, with the number of its trace.
    pub(crate) fn begin(&mut self, request: &Request, earlier: Option<Times>, now: Mono) -> Times {
        if self.is_off {
            return Times::of(earlier, now);
        }
        if self.turn_at != now {
            (self.turn_at, self.turn_count) = (now, 0);
        }
        let times = Times::of(earlier, now);
        let (no, is_reserved) = self.number_of(earlier);
        let Request { op, session, xid, trace_id, shard, .. } = *request;
        let names = Names { op, session, xid, trace_id, is_data: shard.is_data() };
        let (arrived, ahead_count) = (times.arrived, self.turn_count);
        let (status, was_open) = (None, false);
        let current = Current { no, is_reserved, names, arrived, ahead_count, status, was_open };
        self.current.push(current);
        self.turn_count = self.turn_count.saturating_add(1);
        Times { trace: no, ..times }
    }

    /// The number of a request's trace, and whether it is reserved. One that was executed before keeps
    /// its own, from the earlier execution if that has not ended.
    fn number_of(&mut self, earlier: Option<Times>) -> (TraceNo, bool) {
        if let Some(Times { trace, .. }) = earlier.filter(|times| times.trace != TraceNo::NONE) {
            if self.open_mut(trace).is_some() {
                return (trace, false);
            }
            let outer = self.current.iter_mut().find(|current| current.no == trace);
            if let Some(outer) = outer {
                let is_reserved = core::mem::take(&mut outer.is_reserved);
                outer.no = TraceNo::NONE;
                return (trace, is_reserved);
            }
        }
        if let Some(no) = self.free.pop() {
            return (no, true);
        }
        if self.open.len() >= OPEN_COUNT_MAX {
            return (TraceNo::NONE, false);
        }
        self.open.push(None);
        (TraceNo::at(self.open.len() - 1), true)
    }

    /// What is being executed when another request arrives.
    pub(crate) const fn depth(&self) -> Depth {
        Depth(self.current.len())
    }

    /// The execution of the request that arrived at this depth is over for this turn.
    pub(crate) fn end(
        &mut self,
        frame: &[u8],
        depth: Depth,
        client: impl FnOnce() -> Option<ClientUuid>,
    ) {
        if self.current.len() <= depth.0 {
            return; // It was not begun.
        }
        let Some(current) = self.current.pop() else { return };
        let Some(status) = current.status else { return self.open(current, frame) };
        if current.is_reserved {
            self.free.push(current.no);
        }
        if !current.was_open && is_sample(current.names.trace_id) {
            let open = opened(&current, frame);
            let (kept, phases_us, flush_us) = (Kept::Sample, [0; 3], 0);
            let client = client().unwrap_or_default();
            keep(&mut self.samples, Done { kept, open, client, phases_us, flush_us, status });
        }
    }

    /// Opens the trace of a request, if its number is reserved for that.
    fn open(&mut self, current: Current, frame: &[u8]) {
        if let Some(index) = current.no.index().filter(|_| current.is_reserved) {
            self.open[index] = Some(opened(&current, frame));
        }
    }

    fn open_mut(&mut self, no: TraceNo) -> Option<&mut Open> {
        self.open.get_mut(no.index()?)?.as_mut()
    }

    fn close(&mut self, no: TraceNo) -> Option<Open> {
        let open = self.open.get_mut(no.index()?)?.take()?;
        self.free.push(no);
        Some(open)
    }

    /// A request will have no reply.
    pub(crate) fn forget(&mut self, no: TraceNo) {
        self.close(no);
    }

    /// A request begins to wait, perhaps the current one.
    fn begin_wait(&mut self, no: TraceNo, frame: &[u8], wait: Wait) {
        let current = self.current.iter_mut().find(|current| current.no == no);
        if let Some(current) = current.filter(|current| current.is_reserved) {
            let reserved = *current;
            current.is_reserved = false;
            self.open(reserved, frame);
        }
        let Some(open) = self.open_mut(no) else { return };
        if open.waits.len() >= WAIT_COUNT_MAX {
            open.waits.pop();
        }
        open.waits.push(wait);
    }

    /// The wait of a request has ended.
    pub(crate) fn end_wait(&mut self, no: TraceNo, now: Mono) {
        let wait = self.open_mut(no).and_then(|open| open.waits.last_mut());
        if let Some(wait) = wait {
            wait.ended.get_or_insert(now);
        }
    }

    /// A reply leaves. `flush_us`: how long the last flush of the log took, or takes so far.
    pub(crate) fn on_reply(
        &mut self,
        header: &RequestHeader,
        (status, now): (Status, Mono),
        flush_us: impl FnOnce() -> u64,
        client_of: impl FnOnce(SessionId) -> Option<ClientUuid>,
    ) {
        let no = header.times.trace;
        let open = self.close(no);
        let mut innermost = self.current.iter_mut().rev();
        if let Some(current) = innermost.find(|current| current.no == no && no != TraceNo::NONE) {
            (current.status, current.was_open) = (Some(status), open.is_some());
        }
        let Some(mut open) = open else { return };
        let total_us = header.times.total_us(now);
        let is_slow = total_us >= self.slow_us;
        if !is_slow && !is_sample(header.trace_id) {
            return;
        }
        // The request may have been sent again meanwhile.
        open.names = Names::from(header);
        let phases_us = header.times.phases_us(now);
        let client = client_of(header.session).unwrap_or_default();
        let flush_us = flush_us().min(phases_us[2]);
        let (kept, ring) =
            if is_slow { (Kept::Slow, &mut self.slow) } else { (Kept::Sample, &mut self.samples) };
        keep(ring, Done { kept, open, client, phases_us, flush_us, status });
    }

    /// A wait for a lock on a file has ended: its request was answered when it began.
    pub(crate) fn on_lock_wait_ended(&mut self, wait: &EndedWait, now: Mono) {
        if now.since_ns(Mono(wait.since_ns)) / 1000 >= self.slow_us {
            if self.lock_waits.len() >= KEPT_COUNT_MAX {
                self.lock_waits.pop_front();
            }
            self.lock_waits.push_back(LockWait { wait: *wait, ended: now });
        }
    }

    /// Whether traces without a request should be looked for.
    fn is_sweep_due(&self, now: Mono) -> bool {
        let is_full = self.free.is_empty() && self.open.len() >= OPEN_COUNT_MAX;
        is_full && now >= self.swept_at.after_ms(SWEEP_MS)
    }

    /// Ends all open traces but these.
    fn retain(&mut self, mut kept: Vec<TraceNo>, now: Mono) {
        self.swept_at = now;
        kept.sort_unstable();
        for (index, slot) in self.open.iter_mut().enumerate() {
            let no = TraceNo::at(index);
            if slot.is_some() && kept.binary_search(&no).is_err() {
                *slot = None;
                self.free.push(no);
            }
        }
    }

    /// The number of open traces.
    #[cfg(test)]
    pub(crate) fn open_count(&self) -> usize {
        self.open.iter().flatten().count()
    }
}

fn opened(current: &Current, frame: &[u8]) -> Open {
    let Current { names, arrived, ahead_count, .. } = *current;
    let frame = frame[..frame.len().min(FRAME_BYTES_MAX)].to_vec();
    Open { names, arrived, ahead_count, frame, waits: Vec::new() }
}

fn keep(ring: &mut VecDeque<Done>, done: Done) {
    if ring.len() >= KEPT_COUNT_MAX {
        ring.pop_front();
    }
    ring.push_back(done);
}

impl Lane {
    /// A request is suspended, for a cause and for the sake of clients.
    pub(crate) fn trace_wait(
        &mut self,
        turn: &Turn<'_>,
        received: &ReceivedRequest<'_>,
        (cause, whom): (WaitCause, Vec<ClientUuid>),
    ) {
        let wait = Wait { cause, begun: turn.now.mono, ended: None, whom };
        self.traces.begin_wait(received.times.trace, turn.arena.get(received.frame), wait);
    }

    /// Ends traces whose requests have ended without a reply, if there are too many.
    pub(crate) fn sweep_traces(&mut self, now: Mono) {
        if self.traces.is_sweep_due(now) {
            let live = self.waiting_traces().into_iter().map(|waiting| waiting.times.trace);
            let live = live.collect();
            self.traces.retain(live, now);
        }
    }
}
