//! The channel to one peer lane, and from it: delivery once and in order over a way that may lose,
//! repeat and reorder messages (docs/protocol.md §12.2).
//!
//! ```text
//! push ─▶ gather ─▶ at most WINDOW_COUNT_MAX on their way ─▶ acknowledged: dropped
//!                           ▲── resent after a time-out ──┘
//! receive ─▶ next one: applied │ a later one: retained until its turn │ an earlier one: dropped
//! ```

use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;
use interface::Mono;
use wire::{InodeNo, Term};

/// Most messages on their way, and most received ones that wait for an earlier one.
pub(crate) const WINDOW_COUNT_MAX: u64 = 256;
/// The first time-out, doubled with each resending, up to the last.
const RESEND_MS_MIN: u64 = 50;
const RESEND_MS_MAX: u64 = 1600;

/// So many messages are not gathered any longer, nor received without an acknowledgement.
pub(crate) const GATHERED_COUNT_MAX: u64 = 64;

/// So many time-outs in a row (6 s) mean that a connection is dead.
const SILENCE_COUNT_MAX: u32 = 7;

/// A message to be put on its way.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Leaving<'a> {
    pub(crate) sequence: u64,
    pub(crate) body: &'a [u8],
}

/// What to do with a received message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Receipt {
    /// Apply it.
    Next,
    /// Keep it until the earlier ones are there.
    Early,
    /// It was received before.
    Repeated,
    /// It is of an earlier term of its sender, or beyond the window.
    Refused,
}

/// What waits for acknowledgements: with the message that ends each wait, in order, and what has no
/// message yet, because the lane is away.
#[derive(Debug)]
struct Awaited<T> {
    sent: VecDeque<(u64, T)>,
    held: VecDeque<T>,
}

impl<T: Copy> Awaited<T> {
    const fn new() -> Self {
        Self { sent: VecDeque::new(), held: VecDeque::new() }
    }

    /// The lane is away.
    fn end(&mut self) -> Self {
        let sent = self.sent.drain(..).map(|(_, awaits)| awaits);
        Self { held: sent.chain(self.held.drain(..)).collect(), ..Self::new() }
    }

    fn attach_held(&mut self, sequence: u64) {
        self.sent.extend(self.held.drain(..).map(|awaits| (sequence, awaits)));
    }

    /// Takes the first one that has been acknowledged.
    fn acknowledged(&mut self, sequence: u64) -> Option<T> {
        self.sent.pop_front_if(|(at, _)| *at <= sequence).map(|(_, awaits)| awaits)
    }

    fn first(&self) -> Option<T> {
        self.sent.front().map(|(_, awaits)| *awaits).or_else(|| self.held.front().copied())
    }

    fn is_empty(&self) -> bool {
        self.sent.is_empty() && self.held.is_empty()
    }

    fn all(&self) -> impl Iterator<Item = T> {
        self.sent.iter().map(|(_, awaits)| *awaits).chain(self.held.iter().copied())
    }
}

/// Both directions between this lane and a peer lane.
#[derive(Debug)]
pub(crate) struct Channel {
    /// The last message pushed, the last one that left, and the last one acknowledged.
    pushed: u64,
    left: u64,
    acknowledged: u64,
    /// The lengths of those behind `acknowledged`, and their bodies, one after the other.
    queue: VecDeque<usize>,
    bodies: VecDeque<u8>,
    /// Where the body of the last one that left ends in `bodies`.
    left_bytes: usize,
    /// The messages behind the last one that left gather until then.
    leave_at: Option<Mono>,
    resend_at: Option<Mono>,
    resend_ms: u64,
    /// Time-outs since the last acknowledgement.
    silence_count: u32,
    /// The barriers that all replies wait for, by number, and the inodes that are being told.
    barriers: Awaited<u64>,
    telling: Awaited<InodeNo>,
    /// The sender's term, and the last message of it that was received in order.
    term: Term,
    received: u64,
    /// When that is acknowledged at the latest, and what was.
    acknowledge_at: Option<Mono>,
    told: u64,
    early: BTreeMap<u64, Vec<u8>>,
}

impl Default for Channel {
    fn default() -> Self {
        Self {
            pushed: 0,
            left: 0,
            acknowledged: 0,
            queue: VecDeque::new(),
            bodies: VecDeque::new(),
            left_bytes: 0,
            leave_at: None,
            resend_at: None,
            resend_ms: RESEND_MS_MIN,
            silence_count: 0,
            barriers: Awaited::new(),
            telling: Awaited::new(),
            term: Term(0),
            received: 0,
            acknowledge_at: None,
            told: 0,
            early: BTreeMap::new(),
        }
    }
}

impl Channel {
    /// Adds a message. `gathers_until`: it may wait for others until then.
    pub(crate) fn push(&mut self, body: &[u8], gathers_until: Option<Mono>) {
        let is_first = self.left == self.pushed;
        self.leave_at =
            gathers_until.and_then(|at| if is_first { Some(at) } else { self.leave_at });
        self.pushed += 1;
        self.queue.push_back(body.len());
        self.bodies.extend(body);
    }

    /// All replies wait until the next message that is pushed is acknowledged, or, while the lane is
    /// away, what it is told in its place.
    pub(crate) fn await_barrier(&mut self, number: u64, is_away: bool) {
        match is_away {
            true => self.barriers.held.push_back(number),
            false => self.barriers.sent.push_back((self.pushed + 1, number)),
        }
    }

    /// The same of what names an inode.
    pub(crate) fn await_told(&mut self, inode: InodeNo, is_away: bool) {
        match is_away {
            true => self.telling.held.push_back(inode),
            false => self.telling.sent.push_back((self.pushed + 1, inode)),
        }
    }

    /// The inodes that the lane is being told of.
    pub(crate) fn being_told(&self) -> impl Iterator<Item = InodeNo> {
        self.telling.all()
    }

    /// The lane is away: nothing of what was on its way arrives any more, in either direction.
    pub(crate) fn end(&mut self) {
        let (barriers, telling) = (self.barriers.end(), self.telling.end());
        *self = Self { barriers, telling, ..Self::default() };
    }

    /// What waits since before waits until the last message pushed is acknowledged.
    pub(crate) fn attach_held(&mut self) {
        self.barriers.attach_held(self.pushed);
        self.telling.attach_held(self.pushed);
    }

    /// Nothing gathers any longer.
    pub(crate) const fn hurry(&mut self) {
        self.leave_at = None;
    }

    /// Passes the messages that may leave now, and the acknowledgement that goes with each.
    pub(crate) fn leave(&mut self, now: Mono, with: &mut dyn FnMut(Leaving<'_>, u64)) {
        let is_early = self.leave_at.is_some_and(|at| now < at);
        if is_early && self.pushed - self.left < GATHERED_COUNT_MAX {
            return;
        }
        self.leave_at = None;
        let until = self.pushed.min(self.acknowledged + WINDOW_COUNT_MAX);
        if self.left < until {
            self.acknowledged_received();
            self.resend_at.get_or_insert(now.after_ms(self.resend_ms));
            (self.left, self.left_bytes) = self.pass((self.left, self.left_bytes), until, with);
        }
    }

    /// Whether the time-out of the oldest message is over: all on their way are passed again.
    pub(crate) fn resend(&mut self, now: Mono, with: &mut dyn FnMut(Leaving<'_>, u64)) {
        if self.resend_at.is_some_and(|at| at <= now) {
            self.resend_ms = (self.resend_ms * 2).min(RESEND_MS_MAX);
            self.silence_count += 1;
            self.resend_at = Some(now.after_ms(self.resend_ms));
            self.pass((self.acknowledged, 0), self.left, with);
        }
    }

    /// Passes the messages behind one, whose body ends at this byte, up to another; returns where
    /// that one ends.
    fn pass(
        &mut self,
        (mut last, mut last_bytes): (u64, usize),
        until: u64,
        with: &mut dyn FnMut(Leaving<'_>, u64),
    ) -> (u64, usize) {
        let skipped = usize::try_from(last - self.acknowledged).unwrap_or(usize::MAX);
        let bodies: &[u8] = self.bodies.make_contiguous();
        for body_bytes in self.queue.range(skipped..) {
            if last == until {
                break;
            }
            last += 1;
            let body = &bodies[last_bytes..][..*body_bytes];
            with(Leaving { sequence: last, body }, self.received);
            last_bytes += body_bytes;
        }
        (last, last_bytes)
    }

    /// The peer has received all up to here. Returns the inodes that it has been told of, once for
    /// each message.
    pub(crate) fn on_acknowledged(&mut self, now: Mono, sequence: u64) -> Vec<InodeNo> {
        if sequence <= self.acknowledged || sequence > self.left {
            return Vec::new();
        }
        while self.acknowledged < sequence {
            let Some(body_bytes) = self.queue.pop_front() else { break };
            self.bodies.drain(..body_bytes);
            self.left_bytes -= body_bytes;
            self.acknowledged += 1;
        }
        while self.barriers.acknowledged(sequence).is_some() {}
        let told = core::iter::from_fn(|| self.telling.acknowledged(sequence)).collect();
        self.resend_ms = RESEND_MS_MIN;
        self.silence_count = 0;
        let waits = self.acknowledged < self.left;
        self.resend_at = waits.then(|| now.after_ms(self.resend_ms));
        told
    }

    /// A message of the peer has arrived. It is acknowledged at this time at the latest.
    pub(crate) fn receive(&mut self, term: Term, sequence: u64, at: Mono) -> Receipt {
        if term < self.term {
            return Receipt::Refused;
        }
        if term > self.term {
            (self.term, self.received, self.told) = (term, 0, 0);
            self.early.clear();
        }
        if sequence == self.received + 1 {
            self.received = sequence;
            self.acknowledge_by(at);
            Receipt::Next
        } else if sequence <= self.received {
            // The acknowledgement may be lost.
            self.acknowledge_by(at);
            Receipt::Repeated
        } else if sequence > self.received + WINDOW_COUNT_MAX {
            Receipt::Refused
        } else {
            Receipt::Early
        }
    }

    /// What was received is acknowledged at this time at the latest.
    pub(crate) fn acknowledge_by(&mut self, at: Mono) {
        self.acknowledge_at = Some(self.acknowledge_at.map_or(at, |earlier| earlier.min(at)));
    }

    /// Whether what was received has to be acknowledged now, by a message of its own.
    pub(crate) fn owes_acknowledgement(&self, now: Mono) -> bool {
        let is_many = self.received - self.told >= GATHERED_COUNT_MAX;
        self.acknowledge_at.is_some_and(|at| is_many || at <= now)
    }

    /// A message leaves that acknowledges all that was received.
    pub(crate) const fn acknowledged_received(&mut self) {
        (self.acknowledge_at, self.told) = (None, self.received);
    }

    /// Keeps an early message.
    pub(crate) fn keep(&mut self, sequence: u64, message: &[u8]) {
        self.early.entry(sequence).or_insert_with(|| message.to_vec());
    }

    /// The early message that comes next.
    pub(crate) fn next_early(&mut self) -> Option<Vec<u8>> {
        let message = self.early.remove(&(self.received + 1))?;
        self.received += 1;
        Some(message)
    }

    /// The last message received in order.
    pub(crate) const fn received(&self) -> u64 {
        self.received
    }

    /// The first barrier that is not acknowledged.
    pub(crate) fn barrier(&self) -> Option<u64> {
        self.barriers.first()
    }

    /// Whether the peer has acknowledged nothing for long, a few seconds.
    pub(crate) const fn is_silent(&self) -> bool {
        self.silence_count > SILENCE_COUNT_MAX
    }

    /// When something is to be sent, if nothing happens before.
    pub(crate) fn due_at(&self) -> Option<Mono> {
        let due = [self.resend_at, self.leave_at, self.acknowledge_at];
        due.into_iter().flatten().min()
    }

    /// Whether nothing is to be sent, and nothing waits for an acknowledgement.
    pub(super) fn is_idle(&self) -> bool {
        let waits = self.resend_at.is_some() || !self.queue.is_empty();
        let awaits = !(self.barriers.is_empty() && self.telling.is_empty());
        !waits && self.acknowledge_at.is_none() && !awaits
    }

    /// Messages that are not acknowledged.
    pub(crate) fn unacknowledged_count(&self) -> usize {
        self.queue.len()
    }
}
