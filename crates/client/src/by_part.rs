//! Seeks in, and allocations of, files over several data shards: a request for each part of the
//! file that has stripes in the range.
//!
//! ```text
//! Seek     ─▶ all parts, and Glimpse for a hole ─▶ all replied ─▶ the first place found
//! Allocate ─▶ other parts, keeping the size ─▶ the next range of them ─▶ ...
//!                   ─▶ the part with the last byte ─▶ answer
//! ```
//! A seek says of each stripe what was true between its call and its answer, as a read does. The
//! file becomes longer only when everything before its new end is allocated. Each part is a request
//! of its own: where one fails, others may be allocated already.

use crate::client::Client;
use crate::plan::{Body, PlanReply, Target};
use crate::requests::Exchange;
use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use wire::{Allocate, Allocation, Glimpse, InodeNo, Layout, Op, Seek, Sought, Status, Wire as _};

/// The most requests for one part: a longer range has no space anywhere.
const ROUND_COUNT_MAX: u64 = 256;

/// What is known of a seek, or of an allocation.
#[derive(Debug)]
pub(crate) enum ByPart {
    Seek(Seeking),
    Allocate(Allocating),
}

#[derive(Debug)]
pub(crate) struct Seeking {
    wanted: Seek,
    /// The first place that a part has found.
    found: Option<u64>,
    /// Where the file ends, for a hole.
    size_bytes: u64,
    failed: Option<Status>,
}

#[derive(Debug)]
pub(crate) struct Allocating {
    layout: Layout,
    /// What is sent at once, when all before it was answered.
    rounds: VecDeque<Vec<Allocate>>,
    failed: Option<Status>,
}

impl Client {
    /// Makes a request that is about to be routed the first one of several, if it has to be. Returns
    /// whether it is a seek or an allocation.
    pub(crate) fn split_by_part(
        &mut self,
        exchange_id: usize,
        inode: InodeNo,
        layout: Layout,
    ) -> bool {
        let Some(exchange) = self.requests.get(exchange_id) else { return false };
        let body = &exchange.body;
        let (by_part, requests) = if exchange.op == Op::Seek {
            let Ok(wanted) = Seek::decode_all(body) else { return true };
            let (found, size_bytes, failed) = (None, 0, None);
            let seeking = Seeking { wanted, found, size_bytes, failed };
            (ByPart::Seek(seeking), seeks(layout, wanted))
        } else if exchange.op == Op::Allocate {
            let Ok(wanted) = Allocate::decode_all(body) else { return true };
            let adds = wanted.allocation != Allocation::Punch;
            let round_count = wanted.range_bytes / round_bytes(layout, adds);
            if round_count > ROUND_COUNT_MAX {
                self.advance(exchange_id, Err(Status::NoSpace), false);
                return true;
            }
            let mut rounds = rounds(layout, wanted);
            let first = rounds.pop_front().unwrap_or_default();
            let allocating = Allocating { layout, rounds, failed: None };
            (ByPart::Allocate(allocating), first.iter().map(PartRequest::of).collect())
        } else {
            return false;
        };
        let Some((first, others)) = requests.split_first() else {
            return true; // The server refuses it.
        };
        self.release_xid(exchange_id);
        let Some(exchange) = self.requests.get_mut(exchange_id) else { return true };
        exchange.op = first.op;
        exchange.target = Target::Contents(inode, first.file_offset);
        exchange.body.clone_from(&first.body);
        let (job_id, like) = (exchange.job_id, exchange.as_template());
        let Some(job) = self.jobs.get_mut(job_id) else { return true };
        job.by_part = Some(Box::new(by_part));
        job.pending_count += others.len();
        for request in others {
            let exchange = Exchange { op: request.op, ..like.as_template() };
            self.add_part(exchange, inode, request);
        }
        true
    }

    fn add_part(&mut self, exchange: Exchange, inode: InodeNo, request: &PartRequest) {
        let target = Target::Contents(inode, request.file_offset);
        let mut body = self.requests.take_body();
        body.extend_from_slice(&request.body);
        self.add_and_route(Exchange { target, body, ..exchange });
    }

    /// A reply to a request of such a job. Returns the reply to all of it, once that is known.
    pub(crate) fn join_by_part(&mut self, job_id: usize, reply: PlanReply) -> Option<PlanReply> {
        let job = self.jobs.get_mut(job_id)?;
        let is_abandoned = job.call.is_none();
        let by_part = job.by_part.as_mut()?;
        by_part.take(&reply);
        if !reply.last {
            return None;
        }
        let (op, outcome) = match &mut **by_part {
            ByPart::Seek(seeking) => (Op::Seek, seeking.outcome().map(Body::Sought)),
            ByPart::Allocate(allocating) => {
                let is_over = is_abandoned || allocating.failed.is_some();
                let next = allocating.rounds.pop_front().filter(|_| !is_over);
                if let Some(round) = next {
                    let layout = allocating.layout;
                    job.pending_count += round.len();
                    for allocate in &round {
                        let request = PartRequest::of(allocate);
                        let (op, inode) = (request.op, allocate.inode);
                        let target = Target::Contents(inode, request.file_offset);
                        let exchange = Exchange::new(job_id, op, target);
                        let layout = Some(layout);
                        let exchange = Exchange { layout, is_split: true, ..exchange };
                        self.add_part(exchange, inode, &request);
                    }
                    return None;
                }
                let unfinished = is_abandoned && allocating.failed.is_none();
                let failed = allocating.failed.or(unfinished.then_some(Status::Interrupted));
                (Op::Allocate, failed.map_or(Ok(Body::Empty), Err))
            }
        };
        Some(PlanReply { outcome, op, part: 0, ..reply })
    }
}

/// A request about a part.
struct PartRequest {
    op: Op,
    file_offset: u64,
    body: Vec<u8>,
}

impl PartRequest {
    fn of(allocate: &Allocate) -> Self {
        Self { op: Op::Allocate, file_offset: allocate.file_offset, body: allocate.to_bytes() }
    }
}

/// The requests of a seek: each part seeks from its first byte behind the place.
fn seeks(layout: Layout, wanted: Seek) -> Vec<PartRequest> {
    let mut all = Vec::with_capacity(usize::from(layout.stripe_count) + 1);
    for part in 0..u32::from(layout.stripe_count) {
        if let Some(file_offset) = layout.next_of_part(part, wanted.file_offset) {
            let body = Seek { file_offset, ..wanted }.to_bytes();
            all.push(PartRequest { op: Op::Seek, file_offset, body });
        }
    }
    if wanted.hole && !all.is_empty() {
        let body = Glimpse { inode: wanted.inode }.to_bytes();
        all.push(PartRequest { op: Op::Glimpse, file_offset: 0, body });
    }
    all
}

/// The requests of an allocation, in the order in which they are sent. None: it is one request, or
/// refused.
fn rounds(layout: Layout, wanted: Allocate) -> VecDeque<Vec<Allocate>> {
    let from = wanted.file_offset;
    let mut rounds = VecDeque::new();
    let end = from.checked_add(wanted.range_bytes).filter(|end| *end <= layout.file_bytes_max());
    let Some(end) = end.filter(|end| *end > from) else { return rounds };
    let adds = wanted.allocation != Allocation::Punch;
    let is_one = layout.stripe(from) == layout.stripe(end - 1);
    if is_one || !adds && !wanted.keep_size {
        return rounds;
    }
    let round_bytes = round_bytes(layout, adds);
    let mut at = from;
    while at < end {
        let until = (at / round_bytes + 1).saturating_mul(round_bytes).min(end);
        let mut round = Vec::new();
        let mut last = None;
        for part in 0..u32::from(layout.stripe_count) {
            let start = layout.next_of_part(part, at).filter(|start| *start < until);
            let Some(file_offset) = start else { continue };
            let part_end = layout.part_end(part, until);
            let makes_longer = part_end == end && !wanted.keep_size;
            let range_bytes = part_end - file_offset;
            let allocate =
                Allocate { file_offset, range_bytes, keep_size: !makes_longer, ..wanted };
            if makes_longer {
                last = Some(allocate);
            } else {
                round.push(allocate);
            }
        }
        rounds.extend((!round.is_empty()).then_some(round));
        rounds.extend(last.map(|last| Vec::from([last])));
        at = until;
    }
    rounds
}

/// A data shard has to record each stripe that an allocation adds.
fn round_bytes(layout: Layout, adds: bool) -> u64 {
    if !adds {
        return u64::MAX;
    }
    let stripe_count = u64::from(Layout::ALLOCATED_COUNT_MAX) * u64::from(layout.stripe_count);
    stripe_count.saturating_mul(layout.stripe_unit_bytes)
}

impl ByPart {
    /// Takes a part's reply, or that to the glimpse.
    fn take(&mut self, reply: &PlanReply) {
        match (self, reply.outcome) {
            (Self::Seek(seeking), Ok(Body::Sought(sought))) => {
                let at = sought.file_offset;
                seeking.found = Some(seeking.found.map_or(at, |found| found.min(at)));
            }
            (Self::Seek(seeking), Ok(Body::Contents(contents))) => {
                seeking.size_bytes = contents.size_bytes;
            }
            (Self::Seek(_), Err(Status::NoDevice)) => {} // Nothing at this part.
            (Self::Seek(Seeking { failed, .. }), Err(status)) => {
                failed.get_or_insert(status);
            }
            (Self::Allocate(Allocating { failed, .. }), Err(status)) => {
                // The caller clears them, and allocates everything again.
                let goes_first = status == Status::NeedClearPrivileges;
                *failed = failed.filter(|_| !goes_first).or(Some(status));
            }
            (Self::Seek(_) | Self::Allocate(_), Ok(_)) => {}
        }
    }
}

impl Seeking {
    /// All have replied.
    fn outcome(&self) -> Result<Sought, Status> {
        if let Some(status) = self.failed {
            return Err(status);
        }
        let found = if self.wanted.hole {
            // The end of the file is a hole.
            let end = self.size_bytes;
            let is_below = self.wanted.file_offset < end;
            is_below.then(|| self.found.map_or(end, |found| found.min(end)))
        } else {
            self.found
        };
        found.map(|file_offset| Sought { file_offset }).ok_or(Status::NoDevice)
    }
}
