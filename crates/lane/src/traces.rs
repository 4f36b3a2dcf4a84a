//! Traces of requests: where the time of each one went, for [`wire::Op::Traces`].
//!
//! ```text
//! begin ─▶ answered in its turn ─▶ kept if it is a sample
//!   └─ open ─ waits ─▶ answered ─▶ kept if it is slow or a sample
//! ```
//! A trace has a number, which the request carries in its [`Times`]; only a request that is not
//! answered in the turn in which it arrived has an open trace under it. Times are those of turns, so
//! no clock is read for a request; and what its frame says is read from there if the trace is kept,
//! so a request that is answered at once leaves a few words. Invariants: the number of open traces
//! and that of kept ones are bounded; beyond the bound a request has no trace. A number is free, or
//! the spare one, or reserved by one request that is being executed, or that of one open trace; the
//! spare one may be reserved too.

mod report;

pub(crate) use report::shown;

use crate::Lane;
use crate::request::ReceivedRequest;
use crate::request_header::{RequestHeader, TraceNo};
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use interface::{ConnId, Mono, Turn};
use meta::EndedWait;
use wire::traces::{Kept, WaitCause, is_sample};
use wire::{ClientUuid, Header, Op, SessionId, Status, Xid};

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
pub(crate) struct Current {
    arrived: Mono,
    no: TraceNo,
    ahead_count: u32,
    /// The status of its reply, which has left.
    status: Option<Status>,
    /// The number is reserved; its trace is not open yet.
    is_reserved: bool,
    /// Its trace was open, and has ended.
    was_open: bool,
    is_sample: bool,
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
    /// When its reply was queued.
    replied: Mono,
    /// From there until the kernel had taken it, if that took long.
    reply_us: u64,
    status: Status,
}

/// Replies that the kernel took late.
#[derive(Clone, Copy, Debug)]
struct LateReply {
    session: SessionId,
    client: ClientUuid,
    took_us: u64,
    ended: Mono,
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
    /// Reserved by a request that arrives while no other one is executed; none at first.
    spare: TraceNo,
    current: Option<Current>,
    /// A request may have others executed meanwhile: the last one is the innermost.
    inner: Vec<Current>,
    slow: VecDeque<Done>,
    samples: VecDeque<Done>,
    lock_waits: VecDeque<LockWait>,
    late_replies: VecDeque<LateReply>,
    /// The requests that began in this turn so far.
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
            spare: TraceNo::NONE,
            current: None,
            inner: Vec::new(),
            slow: VecDeque::new(),
            samples: VecDeque::new(),
            lock_waits: VecDeque::new(),
            late_replies: VecDeque::new(),
            turn_count: 0,
            slow_us: slow_ms.saturating_mul(1000),
            swept_at: Mono(0),
            is_off,
        }
    }

    /// A request is going to be executed. `earlier`: the number of its trace, if it began before.
    /// Returns that number.
    #[inline]
    pub(crate) fn begin(
        &mut self,
        trace_id: u64,
        (arrived, earlier): (Mono, Option<TraceNo>),
    ) -> TraceNo {
        if self.is_off {
            return TraceNo::NONE;
        }
        let ahead_count = self.turn_count;
        self.turn_count = ahead_count.wrapping_add(1);
        let no = self.spare;
        if earlier.is_some() || self.current.is_some() || no == TraceNo::NONE {
            return self.begin_numbered(trace_id, (arrived, earlier));
        }
        let (is_reserved, status, was_open) = (true, None, false);
        let is_sample = is_sample(trace_id);
        self.current =
            Some(Current { arrived, no, ahead_count, status, is_reserved, was_open, is_sample });
        no
    }

    /// As [`Traces::begin`], for a request that does not take the spare number.
    #[cold]
    fn begin_numbered(
        &mut self,
        trace_id: u64,
        (arrived, earlier): (Mono, Option<TraceNo>),
    ) -> TraceNo {
        let (no, is_reserved) = self.number_of(earlier);
        let (status, was_open, is_sample) = (None, false, is_sample(trace_id));
        // It has been added.
        let ahead_count = self.turn_count.wrapping_sub(1);
        let current =
            Current { arrived, no, ahead_count, status, is_reserved, was_open, is_sample };
        if self.current.is_none() {
            if self.spare == TraceNo::NONE {
                self.spare = no;
            }
            self.current = Some(current);
        } else {
            self.inner.push(current);
        }
        no
    }

    /// A turn ends.
    pub(crate) const fn end_turn(&mut self) {
        self.turn_count = 0;
    }

    /// The number of a request's trace, and whether it is reserved. One that was executed before keeps
    /// its own, from the earlier execution if that has not ended.
    fn number_of(&mut self, earlier: Option<TraceNo>) -> (TraceNo, bool) {
        if let Some(trace) = earlier.filter(|trace| *trace != TraceNo::NONE) {
            if self.open_mut(trace).is_some() {
                return (trace, false);
            }
            if let Some(outer) = self.executed_mut(trace) {
                let is_reserved = core::mem::take(&mut outer.is_reserved);
                outer.no = TraceNo::NONE;
                return (trace, is_reserved);
            }
        }
        let no = self.free_no();
        (no, no != TraceNo::NONE)
    }

    /// The innermost request that is being executed and has this number.
    fn executed_mut(&mut self, no: TraceNo) -> Option<&mut Current> {
        let mut all = self.inner.iter_mut().rev().chain(&mut self.current);
        all.find(|current| current.no == no)
    }

    /// A number that is free; none if there are too many.
    fn free_no(&mut self) -> TraceNo {
        if let Some(no) = self.free.pop() {
            return no;
        }
        if self.open.len() >= OPEN_COUNT_MAX {
            return TraceNo::NONE;
        }
        self.open.push(None);
        TraceNo::at(self.open.len() - 1)
    }

    /// What is being executed when another request arrives.
    #[inline]
    pub(crate) const fn depth(&self) -> Depth {
        Depth(self.current.is_some() as usize + self.inner.len())
    }

    /// The execution of the request that arrived at this depth is over for this turn. Returns it if
    /// there is more to do for it ([`Traces::end`]).
    #[inline]
    pub(crate) fn executed(&mut self, depth: Depth) -> Option<Current> {
        if depth.0 > 0 {
            // Unless it was not begun.
            return if self.inner.len() >= depth.0 { self.inner.pop() } else { None };
        }
        let current = self.current.as_ref()?;
        if current.status.is_some() && current.no == self.spare && !current.is_sample {
            self.current = None;
            return None;
        }
        self.current.take()
    }

    /// A request is not answered, or was traced, or is a sample.
    #[cold]
    pub(crate) fn end(
        &mut self,
        current: Current,
        frame: &[u8],
        (client, now): (Option<ClientUuid>, Mono),
    ) {
        let Some(status) = current.status else { return self.open(current, frame) };
        if current.is_reserved && current.no != self.spare {
            self.free.push(current.no);
        }
        if !current.was_open
            && current.is_sample
            && let Some(open) = opened(&current, frame)
        {
            let client = client.unwrap_or_default();
            let phases_us = [0; 3];
            let (kept, flush_us, replied, reply_us) = (Kept::Sample, 0, now, 0);
            let done = Done { kept, open, client, phases_us, flush_us, replied, reply_us, status };
            keep(&mut self.samples, done);
        }
    }

    /// Opens the trace of a request, if its number is reserved for that.
    fn open(&mut self, current: Current, frame: &[u8]) {
        if let Some(index) = current.no.index().filter(|_| current.is_reserved) {
            self.open[index] = opened(&current, frame);
            if current.no == self.spare {
                self.spare = self.free_no();
            }
            if self.open[index].is_none() {
                self.free.push(current.no); // Its frame is not that of a request.
            }
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
        let current = self.executed_mut(no);
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

    /// A reply leaves. Returns whether its request is being executed and has no open trace.
    #[inline]
    pub(crate) fn on_reply(&mut self, no: TraceNo, status: Status) -> bool {
        match &mut self.current {
            Some(current) if current.no == no && current.is_reserved => {
                current.status = Some(status);
                true
            }
            Some(_) | None => false,
        }
    }

    /// The reply of another request leaves. Returns its trace, if it was open.
    fn close_answered(&mut self, no: TraceNo, status: Status) -> Option<Open> {
        let open = self.close(no);
        if no != TraceNo::NONE
            && let Some(current) = self.executed_mut(no)
        {
            (current.status, current.was_open) = (Some(status), open.is_some());
        }
        open
    }

    fn on_late_reply(&mut self, late: LateReply) {
        let LateReply { session, took_us, ended, .. } = late;
        let mut is_known = false;
        for done in self.slow.iter_mut().chain(&mut self.samples) {
            let late_us = ended.since_ns(done.replied) / 1000;
            if done.open.names.session == session && done.reply_us == 0 && late_us <= took_us {
                done.reply_us = late_us;
                is_known = true;
            }
        }
        if !is_known {
            if self.late_replies.len() >= KEPT_COUNT_MAX {
                self.late_replies.pop_front();
            }
            self.late_replies.push_back(late);
        }
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

    /// How many numbers there are: free ones, the spare one, and those of requests.
    #[cfg(test)]
    pub(crate) const fn number_count(&self) -> usize {
        self.open.len()
    }

    /// The number of open traces.
    #[cfg(test)]
    pub(crate) fn open_count(&self) -> usize {
        self.open.iter().flatten().count()
    }
}

/// The trace of a request with this frame.
fn opened(current: &Current, frame: &[u8]) -> Option<Open> {
    let Ok((Header::Request(request), _)) = Header::decode(frame) else { return None };
    let names = Names::from(&RequestHeader::from(&request));
    let Current { arrived, ahead_count, .. } = *current;
    let frame = frame[..frame.len().min(FRAME_BYTES_MAX)].to_vec();
    Some(Open { names, arrived, ahead_count, frame, waits: Vec::new() })
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

    /// The reply of a request leaves that is not the first one that is executed now.
    #[cold]
    pub(crate) fn end_trace(&mut self, header: &RequestHeader, (status, now): (Status, Mono)) {
        let Some(mut open) = self.traces.close_answered(header.times.trace, status) else { return };
        let is_slow = header.times.total_us(now) >= self.traces.slow_us;
        if !is_slow && !is_sample(header.trace_id) {
            return;
        }
        // The request may have been sent again meanwhile.
        open.names = Names::from(header);
        let phases_us = header.times.phases_us(now);
        let client = self.sessions.client_of(header.session).unwrap_or_default();
        let flush_us = self.commit.flush_us(now).min(phases_us[2]);
        let Traces { slow, samples, .. } = &mut self.traces;
        let (kept, ring) = if is_slow { (Kept::Slow, slow) } else { (Kept::Sample, samples) };
        let (replied, reply_us) = (now, 0);
        keep(ring, Done { kept, open, client, phases_us, flush_us, replied, reply_us, status });
    }

    /// The kernel has taken replies of a connection late: of requests that are kept, the reply is
    /// said to have taken that long; else it is kept by itself.
    pub(crate) fn on_sent_late(&mut self, now: Mono, (conn, took_us): (ConnId, u64)) {
        let Some(open) = self.connections.get(conn) else { return };
        let (session, client) = (open.session, open.client);
        if self.config.limits.observes && took_us >= self.traces.slow_us {
            self.traces.on_late_reply(LateReply { session, client, took_us, ended: now });
        }
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
