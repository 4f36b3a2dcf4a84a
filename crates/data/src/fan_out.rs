//! Operations on several objects of a file: their steps, in progress and waiting.
//!
//! An operation ends when its last step has ended, with the first error of any. Behind an error no
//! waiting step begins, but those that free what an allocation has taken.

use crate::in_flight::InFlight;
use crate::object::Object;
use crate::{Outcome, Shards};
use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;
use disk::BlockSum;
use interface::{Bulk, Errno, Object as ObjectName, ObjectAction, ObjectStat, Ticket, Turn};
use wire::{Allocation, InodeNo, StripePart, Writer};

/// A step on one object.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Step {
    Stat,
    Sync,
    Remove,
    Truncate { size_bytes: u64 },
    Allocate { part: StripePart, allocation: Allocation, keep_size: bool },
    GiveBack { part: StripePart, size_bytes: u64 },
    Write { object_offset: u64, bulk: Bulk, block_bytes: u32 },
}

/// The result of a step.
pub(crate) enum StepResult {
    Done(Result<(), Errno>),
    Stat(Result<Option<ObjectStat>, Errno>),
    /// Checksums, and whether some of the bytes came from the disk.
    Sums(Result<Vec<BlockSum>, Errno>, bool),
}

/// What the steps of an operation find.
#[derive(Debug)]
pub(crate) enum Gathered {
    Nothing,
    Stats(BTreeMap<u32, ObjectStat>),
    /// Checksums by stripe, of written data.
    Written(BTreeMap<u32, Vec<BlockSum>>),
    /// Checksums of ranges; by stripe, the ranges' indices.
    Sums {
        found: Vec<BlockSum>,
        indices: BTreeMap<u32, Vec<usize>>,
        from_disk: bool,
    },
}

/// An operation on several objects.
#[derive(Debug)]
pub(crate) struct FanOut {
    inode: InodeNo,
    /// The operation's ticket.
    ticket: Ticket,
    waiting: VecDeque<(u32, Step)>,
    running: BTreeMap<u64, (u32, Option<Step>)>,
    running_count_max: usize,
    outcome: Result<(), Errno>,
    gathered: Gathered,
    /// Steps that undo an allocation, if a later one fails.
    undo: Vec<(u32, Step)>,
}

impl Shards {
    pub(crate) fn fan_out(
        &mut self,
        turn: &mut Turn<'_>,
        of: (InodeNo, Ticket),
        steps: (VecDeque<(u32, Step)>, usize),
        gathered: Gathered,
    ) {
        let fan_out_no = self.new_fan_out(of, steps, gathered);
        self.begin_steps(turn, fan_out_no);
    }

    pub(crate) fn new_fan_out(
        &mut self,
        (inode, ticket): (InodeNo, Ticket),
        (waiting, running_count_max): (VecDeque<(u32, Step)>, usize),
        gathered: Gathered,
    ) -> u64 {
        self.fan_out_count += 1;
        let fan_out = FanOut {
            inode,
            ticket,
            waiting,
            running: BTreeMap::new(),
            running_count_max,
            outcome: Ok(()),
            gathered,
            undo: Vec::new(),
        };
        self.fan_outs.insert(self.fan_out_count, fan_out);
        self.fan_out_count
    }

    pub(crate) fn step_ticket(
        &mut self,
        fan_out_no: u64,
        stripe_index: u32,
        step: Option<Step>,
    ) -> Ticket {
        let ticket = self.ticket(InFlight::Step { fan_out_no });
        if let Some(fan_out) = self.fan_outs.get_mut(&fan_out_no) {
            fan_out.running.insert(ticket.0, (stripe_index, step));
        }
        ticket
    }

    /// Begins the next steps; ends the operation behind the last.
    fn begin_steps(&mut self, turn: &mut Turn<'_>, fan_out_no: u64) {
        loop {
            let Some(fan_out) = self.fan_outs.get_mut(&fan_out_no) else { return };
            if fan_out.running.len() >= fan_out.running_count_max {
                return;
            }
            let inode = fan_out.inode;
            let Some((stripe_index, step)) = fan_out.waiting.pop_front() else { break };
            let ticket = self.step_ticket(fan_out_no, stripe_index, Some(step));
            let object = self.object_name(inode, stripe_index);
            turn.act(step.action(ticket, object));
        }
        if self.fan_outs.get(&fan_out_no).is_some_and(|fan_out| fan_out.running.is_empty())
            && let Some(fan_out) = self.fan_outs.remove(&fan_out_no)
        {
            self.end_fan_out(turn, fan_out);
        }
    }

    /// A step ended.
    pub(crate) fn on_step(
        &mut self,
        turn: &mut Turn<'_>,
        fan_out_no: u64,
        (ticket, result): (Ticket, StepResult),
    ) {
        let Some(fan_out) = self.fan_outs.get_mut(&fan_out_no) else { return };
        let Some((stripe_index, step)) = fan_out.running.remove(&ticket.0) else { return };
        let outcome = fan_out.gathered.add(stripe_index, result);
        if let Some(object) = self.objects.get_mut(&fan_out.inode)
            && let Some(step) = step
        {
            let before_bytes = object.stripe_bytes.get(&stripe_index).copied();
            object.on_step(stripe_index, step, outcome.is_ok());
            if outcome.is_ok() {
                fan_out.undo.extend(step.undo(before_bytes).map(|step| (stripe_index, step)));
            }
        }
        if let (Err(errno), Some(Step::Sync)) = (outcome, step) {
            // The kernel may have dropped bytes of earlier changes, which a later sync would not find.
            self.outcomes.push_back(Outcome::Failed { status: errno.status() });
        }
        if outcome.is_err() && fan_out.outcome.is_ok() {
            fan_out.outcome = outcome;
            fan_out.waiting = core::mem::take(&mut fan_out.undo).into();
        }
        self.begin_steps(turn, fan_out_no);
    }

    fn end_fan_out(&mut self, turn: &mut Turn<'_>, fan_out: FanOut) {
        let FanOut { inode, ticket, outcome, gathered, .. } = fan_out;
        match gathered {
            Gathered::Nothing => self.on_done(turn, ticket, outcome),
            Gathered::Stats(found) => {
                let stat = self.stat_of(inode, &found);
                self.on_stat(turn, ticket, outcome.map(|()| stat));
            }
            Gathered::Written(sums) => {
                let sums: Vec<BlockSum> = sums.into_values().flatten().collect();
                let span = outcome.map(|()| encoded(turn, &sums));
                self.on_object_written(turn, ticket, span);
            }
            Gathered::Sums { found, from_disk, .. } => {
                let span = outcome.map(|()| encoded(turn, &found));
                self.on_sums(turn, ticket, (span, from_disk));
            }
        }
    }

    /// Size and space of a file with these objects. Before the first operation they are what the
    /// file has.
    fn stat_of(&mut self, inode: InodeNo, found: &BTreeMap<u32, ObjectStat>) -> Option<ObjectStat> {
        let layout = self.layout(inode);
        let object = self.objects.get_mut(&inode)?;
        if object.stat_running {
            object.stripe_bytes =
                found.iter().map(|(index, stat)| (*index, stat.size_bytes)).collect();
        }
        let mut all = found.iter().map(|(index, stat)| {
            let end = layout.start(*index).saturating_add(stat.size_bytes);
            let size_bytes = if stat.size_bytes > 0 { end } else { 0 };
            ObjectStat { size_bytes, allocated_bytes: stat.allocated_bytes }
        });
        let first = all.next()?;
        Some(all.fold(first, |sum, stat| ObjectStat {
            size_bytes: sum.size_bytes.max(stat.size_bytes),
            allocated_bytes: sum.allocated_bytes.saturating_add(stat.allocated_bytes),
        }))
    }
}

impl Step {
    const fn action(self, ticket: Ticket, object: ObjectName) -> ObjectAction {
        match self {
            Self::Stat => ObjectAction::Stat { ticket, object, may_make: false },
            Self::Sync => ObjectAction::Sync { ticket, object },
            Self::Remove => ObjectAction::Remove { ticket, object },
            Self::Truncate { size_bytes } => ObjectAction::Truncate { ticket, object, size_bytes },
            Self::Allocate { part, allocation, keep_size } => ObjectAction::Allocate {
                ticket,
                object,
                object_offset: part.object_offset,
                range_bytes: part.part_bytes,
                allocation,
                keep_size,
            },
            Self::GiveBack { part, size_bytes } => ObjectAction::GiveBack {
                ticket,
                object,
                object_offset: part.object_offset,
                range_bytes: part.part_bytes,
                size_bytes,
            },
            Self::Write { object_offset, bulk, block_bytes } => {
                ObjectAction::Write { ticket, object, object_offset, bulk, block_bytes }
            }
        }
    }

    /// The step that frees what this one has allocated, in an object that had this size.
    fn undo(self, before_bytes: Option<u64>) -> Option<Self> {
        let Self::Allocate { part, allocation, .. } = self else { return None };
        let size_bytes = before_bytes.unwrap_or(0);
        (allocation != Allocation::Punch).then_some(Self::GiveBack { part, size_bytes })
    }
}

impl Gathered {
    fn add(&mut self, stripe_index: u32, result: StepResult) -> Result<(), Errno> {
        match (self, result) {
            (Self::Stats(all), StepResult::Stat(stat)) => {
                all.extend(stat?.map(|stat| (stripe_index, stat)));
            }
            (Self::Written(all), StepResult::Sums(sums, _)) => {
                all.entry(stripe_index).or_default().extend(sums?);
            }
            (Self::Sums { found, indices, from_disk }, StepResult::Sums(sums, some)) => {
                *from_disk |= some;
                for (index, sum) in indices.get(&stripe_index).into_iter().flatten().zip(sums?) {
                    found[*index] = sum;
                }
            }
            (_, StepResult::Done(result)) => result?,
            (_, StepResult::Stat(_) | StepResult::Sums(..)) => {}
        }
        Ok(())
    }
}

impl Object {
    /// A step on an object of this file ended: its length, and whether a sync must cover it.
    fn on_step(&mut self, stripe_index: u32, step: Step, is_done: bool) {
        let known_bytes = self.stripe_bytes.get(&stripe_index).copied().unwrap_or(0);
        let size_bytes = match step {
            Step::Stat | Step::Sync => return,
            Step::Remove => {
                if is_done {
                    self.stripe_bytes.remove(&stripe_index);
                    self.unsynced_stripes.remove(&stripe_index);
                }
                return;
            }
            Step::Truncate { size_bytes } | Step::GiveBack { size_bytes, .. } => size_bytes,
            Step::Allocate { keep_size: true, .. } => known_bytes,
            Step::Allocate { part, .. } => known_bytes.max(part.object_offset + part.part_bytes),
            Step::Write { object_offset, bulk, .. } => {
                known_bytes.max(object_offset + u64::from(bulk.bulk_bytes))
            }
        };
        self.unsynced_stripes.insert(stripe_index);
        if is_done {
            self.stripe_bytes.insert(stripe_index, size_bytes);
        }
    }
}

fn encoded(turn: &mut Turn<'_>, sums: &[BlockSum]) -> interface::Span {
    turn.arena.write(|out| {
        let mut to = Writer::new(out);
        sums.iter().for_each(|sum| to.write(sum));
    })
}
