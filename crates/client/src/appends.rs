//! Appends to files over several data shards (docs/protocol.md R13.36).
//!
//! ```text
//! Write, append ─▶ Reserve ─▶ the end ─▶ a part's Write ─▶ the next part's ─▶ answer; Reserve, ends
//!                     ▲                        │ Stale: the end is reserved again
//!                     └────────────────────────┘
//! ```
//! The appends of this client lane to one file run one after another: a reservation belongs to the
//! session.

use crate::client::Client;
use crate::plan::{Body, Plan, PlanReply, Target};
use crate::requests::{Exchange, Place};
use crate::spread::slice;
use alloc::boxed::Box;
use alloc::collections::{BTreeMap, VecDeque};
use interface::Bulk;
use wire::{
    ClearPrivileges, InodeNo, Layout, Op, Reserve, Status, Wire as _, Write, Writer, Written,
    request_flag,
};

/// So often an append reserves the end again.
const AGAIN_COUNT_MAX: u32 = 100;

/// What is known of an append.
#[derive(Debug)]
pub(crate) struct Append {
    inode: InodeNo,
    layout: Layout,
    bulk: Option<Bulk>,
    clears: ClearPrivileges,
    sync: bool,
    /// It is this client lane's turn: the end may be reserved.
    is_due: bool,
    /// Where the first byte is.
    file_offset: u64,
    written_bytes: u32,
    /// The bytes of the part that is out.
    part_bytes: u32,
    again_count: u32,
}

/// What follows a reply.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Step {
    Reserve,
    Write { file_offset: u64, part_bytes: u32 },
    Done(Result<Written, Status>),
}

/// The appends that wait for earlier ones, by file. A file is known while one is under way.
#[derive(Default, Debug)]
pub(crate) struct Appends(BTreeMap<InodeNo, VecDeque<usize>>);

impl Appends {
    /// A request does not wait any more.
    pub(crate) fn end_wait(&mut self, inode: InodeNo, exchange_id: usize) {
        if let Some(waiting) = self.0.get_mut(&inode) {
            waiting.retain(|id| *id != exchange_id);
        }
    }
}

impl Client {
    /// Makes a request that is about to be routed the first one of an append, if it is one. Returns
    /// whether it is.
    pub(crate) fn begin_append(
        &mut self,
        exchange_id: usize,
        inode: InodeNo,
        layout: Layout,
    ) -> bool {
        let Some(exchange) = self.requests.get_mut(exchange_id) else { return false };
        let is_behind = exchange.flags & request_flag::BEHIND != 0;
        let write = Write::decode_all(&exchange.body).ok();
        let write = write.filter(|write| exchange.op == Op::Write && write.append && !is_behind);
        let Some(Write { clears, .. }) = write else { return false };
        let (bulk, sync) = (exchange.bulk.take(), exchange.sync);
        exchange.op = Op::Reserve;
        exchange.target = Target::Contents(inode, 0);
        (exchange.flags, exchange.sync) = (0, false);
        exchange.body.clear();
        let reserve = Reserve { inode, begins: true, again: false };
        reserve.encode(&mut Writer::new(&mut exchange.body));
        let is_due = !self.appends.0.contains_key(&inode);
        if !is_due {
            exchange.place = Place::AppendWait;
        }
        let waiting = self.appends.0.entry(inode).or_default();
        waiting.extend((!is_due).then_some(exchange_id));
        if let Some(job) = self.jobs.get_mut(exchange.job_id) {
            let (file_offset, written_bytes, part_bytes, again_count) = (0, 0, 0, 0);
            job.append = Some(Box::new(Append {
                inode,
                layout,
                bulk,
                clears,
                sync,
                is_due,
                file_offset,
                written_bytes,
                part_bytes,
                again_count,
            }));
        }
        true
    }

    /// A reply to a request of an append. Returns the reply to all of it, once that is known.
    pub(crate) fn on_append_reply(&mut self, job_id: usize, reply: PlanReply) -> Option<PlanReply> {
        let job = self.jobs.get_mut(job_id)?;
        let append = job.append.as_mut()?;
        let step = if job.call.is_none() {
            Step::Done(Err(Status::Interrupted))
        } else {
            append.next(&reply)
        };
        let (inode, layout) = (append.inode, append.layout);
        let mut body = self.requests.take_body();
        let mut to = Writer::new(&mut body);
        let made = match step {
            Step::Reserve => {
                to.write(&Reserve { inode, begins: true, again: true });
                Exchange::new(job_id, Op::Reserve, Target::Contents(inode, 0))
            }
            Step::Write { file_offset, part_bytes } => {
                let (clears, append_flag) = (append.clears, true);
                to.write(&Write { inode, file_offset, append: append_flag, clears });
                let from = append.written_bytes;
                let bulk = append.bulk.map(|bulk| slice(bulk, from, part_bytes));
                let target = Target::Contents(inode, file_offset);
                let (sync, is_awaited) = (append.sync, true);
                Exchange { bulk, sync, is_awaited, ..Exchange::new(job_id, Op::Write, target) }
            }
            Step::Done(outcome) => {
                self.requests.spare(body);
                let outcome = outcome.map(Body::Written);
                return Some(PlanReply { outcome, op: Op::Write, part: 0, ..reply });
            }
        };
        job.pending_count += 1;
        self.add_and_route(Exchange { body, layout: Some(layout), is_split: true, ..made });
        None
    }

    /// A job has ended.
    pub(crate) fn drop_append(&mut self, append: Option<Box<Append>>) {
        let Some(append) = append.filter(|append| append.is_due) else { return };
        let Append { inode, layout, .. } = *append;
        let job_id = self.jobs.add(None, Plan::EndAppend { inode });
        if let Some(job) = self.jobs.get_mut(job_id) {
            job.pending_count = 1;
        }
        let mut body = self.requests.take_body();
        Reserve { inode, begins: false, again: false }.encode(&mut Writer::new(&mut body));
        let request = Exchange::new(job_id, Op::Reserve, Target::Contents(inode, 0));
        self.add_and_route(Exchange { body, layout: Some(layout), is_split: true, ..request });
    }

    /// The end of a file is free again: the next append begins.
    pub(crate) fn on_append_ended(&mut self, inode: InodeNo) {
        let next = self.appends.0.get_mut(&inode).and_then(VecDeque::pop_front);
        let Some(exchange_id) = next else {
            self.appends.0.remove(&inode);
            return;
        };
        let Some(exchange) = self.requests.get_mut(exchange_id) else { return };
        exchange.place = Place::Unrouted;
        if let Some(job) = self.jobs.get_mut(exchange.job_id)
            && let Some(append) = &mut job.append
        {
            append.is_due = true;
        }
        self.route(exchange_id);
    }
}

impl Append {
    fn total_bytes(&self) -> u32 {
        self.bulk.map_or(0, |bulk| bulk.bulk_bytes)
    }

    const fn written(&self) -> Written {
        let (file_offset, written_bytes) = (self.file_offset, self.written_bytes);
        Written { file_offset, written_bytes }
    }

    /// An append that has written some of its bytes has that length.
    const fn failed(&self, status: Status) -> Step {
        if self.written_bytes > 0 {
            Step::Done(Ok(self.written()))
        } else {
            Step::Done(Err(status))
        }
    }

    fn next(&mut self, reply: &PlanReply) -> Step {
        match reply.outcome {
            Ok(Body::Contents(contents)) => self.on_reserved(contents.size_bytes),
            Ok(_) => {
                self.written_bytes += core::mem::take(&mut self.part_bytes);
                self.next_part()
            }
            Err(Status::Stale) if reply.op == Op::Write && self.again_count < AGAIN_COUNT_MAX => {
                self.again_count += 1;
                Step::Reserve
            }
            Err(status) => self.failed(status),
        }
    }

    /// The file ends here, and for this session alone.
    fn on_reserved(&mut self, end: u64) -> Step {
        if self.written_bytes == 0 {
            self.file_offset = end;
        } else if end != self.file_offset + u64::from(self.written_bytes) {
            return Step::Done(Ok(self.written())); // Another one has written behind it.
        }
        let after = self.file_offset.saturating_add(self.total_bytes().into());
        if after > self.layout.file_bytes_max() {
            self.failed(Status::TooLarge)
        } else {
            self.next_part()
        }
    }

    fn next_part(&mut self) -> Step {
        let file_offset = self.file_offset + u64::from(self.written_bytes);
        let until = self.file_offset + u64::from(self.total_bytes());
        let Some(part) = self.layout.parts(file_offset..until).next() else {
            return Step::Done(Ok(self.written()));
        };
        self.part_bytes = u32::try_from(part.part_bytes).unwrap_or(u32::MAX);
        Step::Write { file_offset, part_bytes: self.part_bytes }
    }
}
