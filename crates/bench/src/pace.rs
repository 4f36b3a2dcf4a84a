//! The duration of a commit of a lane's log: as long as the disk needs, or so many operations, as
//! on a file system that commits every few seconds (seed 003).

use crate::load::latencies;
use anyhow::Result;
use hdrhistogram::Histogram;
use interface::{Action, Event, LogSpace, StoreAction, StoreEvent, Ticket};
use std::time::Instant;

/// The pace.
pub(crate) enum Pace {
    /// The disk's.
    Disk,
    /// A commit takes as long as so many operations; nothing reaches a disk.
    Ops(Box<Slow>),
}

/// Slow commits.
pub(crate) struct Slow {
    ops_per_commit: u64,
    /// A batch under way, and the operations begun since.
    in_flight: Option<(Ticket, u64)>,
    /// Every operation under way waits for a commit.
    stalled: bool,
    began: Instant,
    committing: bool,
    turns: Turns,
}

/// How long the lane's turns took, nanoseconds.
#[derive(Clone, Debug)]
pub(crate) struct Turns {
    /// All of them.
    pub(crate) all: Histogram<u64>,
    /// Those in which a batch became durable.
    pub(crate) commits: Histogram<u64>,
    /// Batches that became durable early, while operations were counted, because every operation
    /// waited.
    pub(crate) early_count: u64,
}

impl Pace {
    /// Commits after so many operations, or when all operations under way wait for one.
    ///
    /// # Errors When there is no memory for counting.
    pub(crate) fn ops(ops_per_commit: u64) -> Result<Self> {
        let turns = Turns { all: latencies()?, commits: latencies()?, early_count: 0 };
        Ok(Self::Ops(Box::new(Slow {
            ops_per_commit,
            in_flight: None,
            stalled: false,
            began: Instant::now(),
            committing: false,
            turns,
        })))
    }

    /// The turns so far; clears the counts.
    pub(crate) fn take_turns(&mut self) -> Option<Turns> {
        let Self::Ops(slow) = self else { return None };
        let turns = slow.turns.clone();
        slow.turns.all.reset();
        slow.turns.commits.reset();
        slow.turns.early_count = 0;
        Some(turns)
    }

    pub(crate) fn begin_turn(&mut self) {
        if let Self::Ops(slow) = self {
            slow.began = Instant::now();
        }
    }

    pub(crate) fn end_turn(&mut self) {
        let Self::Ops(slow) = self else { return };
        let turn_ns = u64::try_from(slow.began.elapsed().as_nanos()).unwrap_or(u64::MAX);
        slow.turns.all.saturating_record(turn_ns);
        if std::mem::take(&mut slow.committing) {
            slow.turns.commits.saturating_record(turn_ns);
        }
    }

    /// Whether no frame is under way between load and lane.
    pub(crate) fn set_stalled(&mut self, stalled: bool) {
        if let Self::Ops(slow) = self {
            slow.stalled = stalled;
        }
    }

    /// The load began an operation.
    pub(crate) fn on_operation(&mut self) {
        if let Self::Ops(slow) = self
            && let Some((_, asked_count)) = &mut slow.in_flight
        {
            *asked_count += 1;
        }
    }

    /// Whether the batch under way has become durable.
    pub(crate) fn is_due(&self) -> bool {
        match self {
            Self::Disk => false,
            Self::Ops(slow) => slow
                .in_flight
                .is_some_and(|(_, asked_count)| slow.stalled || asked_count >= slow.ops_per_commit),
        }
    }

    /// The event for it; `counts`: operations are counted.
    pub(crate) fn due(&mut self, counts: bool) -> Option<Event> {
        if !self.is_due() {
            return None;
        }
        let Self::Ops(slow) = self else { return None };
        slow.committing = true;
        let (ticket, asked_count) = slow.in_flight.take()?;
        slow.turns.early_count += u64::from(counts && asked_count < slow.ops_per_commit);
        Some(Event::Store(StoreEvent::Logged {
            ticket,
            result: Ok(LogSpace { space_bytes: u64::MAX, awaits_checkpoint: false }),
        }))
    }

    /// Performs the lane's appends, unless the disk does.
    pub(crate) fn take_appends(&mut self, actions: Vec<Action>) -> Vec<Action> {
        let Self::Ops(slow) = self else { return actions };
        let mut rest = Vec::with_capacity(actions.len());
        for action in actions {
            if let Action::Store(StoreAction::LogAppend { ticket, .. }) = action {
                assert!(slow.in_flight.is_none(), "one batch at a time");
                slow.in_flight = Some((ticket, 0));
            } else {
                rest.push(action);
            }
        }
        rest
    }
}
