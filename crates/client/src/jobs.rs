//! Calls under way, and jobs of the client itself: each has a plan, and the requests that the plan
//! has out.

use crate::appends::Append;
use crate::by_part::ByPart;
use crate::grants::JobGrants;
use crate::plan::{Plan, Target};
use crate::spread::Spread;
use crate::{Answer, CallId};
use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use interface::Mono;
use slab::Slab;
use wire::{InodeNo, Op, Status};

/// A call under way, or a job of the client itself without a caller.
#[derive(Debug)]
pub(crate) struct Job {
    pub(crate) call: Option<CallId>,
    pub(crate) plan: Plan,
    /// Its requests without a reply.
    pub(crate) pending_count: usize,
    /// Its caller was answered while it may still change this file.
    pub(crate) abandoned: Option<InodeNo>,
    /// An earlier request of the job was answered, and may have changed something.
    pub(crate) has_begun: bool,
    /// Its first request, while a request for attributes to another shard is out.
    pub(crate) first: Option<First>,
    /// What the replies so far have granted.
    pub(crate) grants: JobGrants,
    /// Its request was split over several data shards.
    pub(crate) spread: Option<Box<Spread>>,
    /// It appends to a file over several data shards.
    pub(crate) append: Option<Box<Append>>,
    /// It seeks in, or allocates, a file over several data shards.
    pub(crate) by_part: Option<Box<ByPart>>,
}

/// A job's first request, for a retry.
#[derive(Debug)]
pub(crate) struct First {
    pub(crate) op: Op,
    pub(crate) target: Target,
    pub(crate) body: Vec<u8>,
    pub(crate) retry_count: u8,
}

/// A call's result and what was granted with it, on their way to the frontend.
pub(crate) type Outcome = (CallId, Result<Answer, Status>, JobGrants);

/// All jobs of a client lane, and the answers to its calls.
#[derive(Debug)]
pub(crate) struct Jobs {
    slab: Slab<Job>,
    answers: VecDeque<Outcome>,
    /// Interrupted calls that still wait for a reply, and until when.
    interrupts: Vec<(Mono, CallId)>,
    /// A call has ended that was abandoned before.
    late_change: bool,
}

impl Jobs {
    pub(crate) const fn new() -> Self {
        Self {
            slab: Slab::new(),
            answers: VecDeque::new(),
            interrupts: Vec::new(),
            late_change: false,
        }
    }

    /// Adds a job without requests.
    pub(crate) fn add(&mut self, call: Option<CallId>, plan: Plan) -> usize {
        let (pending_count, has_begun, first) = (0, false, None);
        let grants = JobGrants::default();
        let (spread, append, by_part) = (None, None, None);
        self.slab.insert(Job {
            call,
            plan,
            pending_count,
            abandoned: None,
            has_begun,
            first,
            grants,
            spread,
            append,
            by_part,
        })
    }

    pub(crate) fn get(&self, job_id: usize) -> Option<&Job> {
        self.slab.get(job_id)
    }

    pub(crate) fn get_mut(&mut self, job_id: usize) -> Option<&mut Job> {
        self.slab.get_mut(job_id)
    }

    pub(crate) fn remove(&mut self, job_id: usize) -> Option<Job> {
        self.slab.try_remove(job_id)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (usize, &Job)> {
        self.slab.iter()
    }

    pub(crate) fn count(&self) -> usize {
        self.slab.len()
    }

    /// The number of jobs with a caller.
    pub(crate) fn call_count(&self) -> usize {
        self.slab.iter().filter(|(_, job)| job.call.is_some()).count()
    }

    /// The job of a call.
    pub(crate) fn of_call(&self, call: CallId) -> Option<usize> {
        self.slab.iter().find(|(_, job)| job.call == Some(call)).map(|(job_id, _)| job_id)
    }

    /// Answers a call.
    pub(crate) fn answer(&mut self, call: CallId, result: Result<Answer, Status>) {
        self.answer_granted(call, result, JobGrants::default());
    }

    /// Answers a call, with what the server granted.
    pub(crate) fn answer_granted(
        &mut self,
        call: CallId,
        result: Result<Answer, Status>,
        grants: JobGrants,
    ) {
        self.answers.push_back((call, result, grants));
    }

    /// A call that was abandoned is over, executed or not.
    pub(crate) const fn note_late_change(&mut self) {
        self.late_change = true;
    }

    /// Whether there was one.
    pub(crate) const fn take_late_change(&mut self) -> bool {
        core::mem::replace(&mut self.late_change, false)
    }

    /// Takes the oldest answer.
    pub(crate) fn take_answer(&mut self) -> Option<Outcome> {
        self.answers.pop_front()
    }

    /// An interrupted call waits for its reply until `at` at the latest.
    pub(crate) fn limit_wait(&mut self, at: Mono, call: CallId) {
        if !self.interrupts.iter().any(|(_, known)| *known == call) {
            self.interrupts.push((at, call));
        }
    }

    /// Takes the first interrupted call for which `waits` is false.
    pub(crate) fn take_interrupted(
        &mut self,
        waits: impl Fn(&Self, Mono, CallId) -> bool,
    ) -> Option<CallId> {
        let index = self.interrupts.iter().position(|(at, call)| !waits(self, *at, *call))?;
        Some(self.interrupts.swap_remove(index).1)
    }

    /// When the next interrupted call is given up.
    pub(crate) fn next_deadline(&self) -> Option<Mono> {
        self.interrupts.iter().map(|(at, _)| *at).min()
    }
}
