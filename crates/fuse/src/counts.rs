//! What a lane counts of the kernel's requests, and its snapshot.
//!
//! A request is counted where its reply leaves ([`MountLane::reply`]), or where it is taken if it has
//! none. Its time is that from the turn in which it was taken to the turn of its reply, so that no clock is
//! read for it: what is answered in the turn in which it was taken took 0.

use crate::abi::Opcode;
use crate::args::split;
use crate::control::answer;
use crate::lane::MountLane;
use crate::pending::PendingRequest;
use alloc::boxed::Box;
use alloc::string::{String, ToString as _};
use alloc::vec::Vec;
use client::CacheCounts;
use interface::{Mono, Span, Ticket, Turn, Usage};
use wire::Status;
use wire::counters::{By, Histogram, Label, Metric, Row, Snapshot, StatusClass, Tally, Value};

/// The bytes of `fuse_out_header`.
const OUT_HEADER_BYTES: u64 = 16;

/// Requests of one op code.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub(crate) struct OpCounts {
    tally: Tally,
    times: Histogram,
    /// Requests that are not in the histogram: they took 0.
    instant_count: u64,
    /// Those that waited for no exchange.
    alone_count: u64,
    /// Bytes of files, read or written.
    data_bytes: u64,
}

/// The requests of a lane by op code; the first entry has those of unknown op codes.
#[derive(Debug)]
pub(crate) struct Counts {
    ops: Box<[OpCounts]>,
    /// Requests that waited for the groups of their process.
    pub(crate) groups_count: u64,
}

impl Default for Counts {
    fn default() -> Self {
        let ops = (0..=Opcode::NUMBER_MAX).map(|_| OpCounts::default()).collect();
        Self { ops, groups_count: 0 }
    }
}

/// A reply, or the end of a request that has none.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Ended {
    pub(crate) status: Status,
    /// Bytes of the reply behind its header.
    pub(crate) out_bytes: u64,
    /// Bytes of a file among them.
    pub(crate) read_bytes: u64,
}

impl Ended {
    /// Without a reply.
    pub(crate) const SILENT: Self = Self { status: Status::Ok, out_bytes: 0, read_bytes: 0 };
}

impl Counts {
    fn op(&mut self, opcode: u32) -> &mut OpCounts {
        let known = Opcode::from_number(opcode).map_or(0, |opcode| opcode as usize);
        &mut self.ops[known]
    }

    /// A request without a reply.
    pub(crate) fn count_unanswered(&mut self, opcode: u32, in_bytes: u64) {
        let counts = self.op(opcode);
        counts.tally.in_bytes += in_bytes;
        counts.tally.count(None, 0, 0);
        counts.instant_count += 1;
        counts.alone_count += 1;
    }

    /// A reply to a request leaves.
    pub(crate) fn count(&mut self, now: Mono, pending: &PendingRequest, ended: Ended) {
        let opcode = split(&pending.request).map_or(0, |(header, _)| header.opcode);
        self.op(opcode).count(now, pending, ended);
    }
}

impl OpCounts {
    /// A reply to a request leaves.
    pub(crate) fn count(&mut self, now: Mono, pending: &PendingRequest, ended: Ended) {
        let class =
            StatusClass::of(if pending.is_absent { Status::NotFound } else { ended.status });
        let time_us = now.since_ns(pending.since) / 1_000;
        let bulk_bytes = pending.bulk.map_or(0, |bulk| u64::from(bulk.bulk_bytes));
        self.tally.in_bytes += bytes_of(pending.request.len()) + bulk_bytes;
        self.tally.count(class, OUT_HEADER_BYTES + ended.out_bytes, time_us);
        let written_bytes = if ended.status == Status::Ok { bulk_bytes } else { 0 };
        self.data_bytes += ended.read_bytes + written_bytes;
        self.alone_count += u64::from(!pending.asked_server);
        if time_us == 0 {
            self.instant_count += 1;
        } else {
            self.times.record(time_us);
        }
    }
}

fn bytes_of(count: usize) -> u64 {
    u64::try_from(count).unwrap_or(u64::MAX)
}

impl OpCounts {
    /// As a row of a snapshot.
    pub(crate) fn row(&self, labels: Vec<(Label, String)>, opcode: Option<Opcode>) -> Row {
        let mut row = self.tally.row(labels);
        let mut times = self.times.clone();
        times.record_zeros(self.instant_count);
        row.set(Metric::ReplyTime, Value::Histogram(times));
        row.set(Metric::AnsweredAlone, Value::Number(self.alone_count));
        match opcode {
            Some(Opcode::Read) => row.set(Metric::ReadBytes, Value::Number(self.data_bytes)),
            Some(Opcode::Write) => row.set(Metric::WrittenBytes, Value::Number(self.data_bytes)),
            Some(_) | None => {}
        }
        row
    }
}

/// What an op code is called.
pub(crate) fn name_of(opcode: Option<Opcode>) -> &'static str {
    opcode.map_or("unknown", Opcode::name)
}

impl MountLane {
    /// A request ends.
    pub(crate) fn count(&mut self, now: Mono, pending_id: usize, ended: Ended) {
        self.trace_end(now, pending_id, ended.status);
        let Some(pending) = self.pendings.get(pending_id) else { return };
        self.counts.count(now, pending, ended);
        if let Some(profile) = &mut self.profile {
            if profile.is_over(now) {
                self.profile = None;
            } else {
                profile.of(pending).count(now, pending, ended);
            }
        }
    }

    /// The runtime has reported its counters: answers a [`wire::Question::Counters`].
    pub(crate) fn on_usage(&mut self, turn: &mut Turn<'_>, ticket: Ticket, usage: &Usage) {
        let snapshot = self.snapshot(usage);
        answer(turn, ticket, &snapshot.encode());
    }

    fn snapshot(&self, usage: &Usage) -> Snapshot {
        let mut snapshot = Snapshot::default();
        let mut sum = OpCounts::default();
        let mut ops = Vec::new();
        for (number, counts) in (0_u32..).zip(&self.counts.ops) {
            if counts.tally == Tally::default() {
                continue;
            }
            let opcode = Opcode::from_number(number);
            sum.tally.add(&counts.tally);
            sum.alone_count += counts.alone_count;
            ops.push(counts.row([(Label::Op, name_of(opcode).to_string())].into(), opcode));
        }
        let bytes = |opcode: Opcode| self.counts.ops[opcode as usize].data_bytes;
        let lane = self.client.lane().0.to_string();
        let mut row = sum.tally.row([(Label::Lane, lane)].into());
        row.set_numbers(&[
            (Metric::AnsweredAlone, sum.alone_count),
            (Metric::ReadBytes, bytes(Opcode::Read)),
            (Metric::WrittenBytes, bytes(Opcode::Write)),
        ]);
        self.put_state(&mut row);
        self.client.put_counts(&mut row);
        row.set_numbers(&of_usage(usage));
        snapshot.section_mut(By::Lane).rows.push(row);
        snapshot.section_mut(By::Op).rows = ops;
        if !self.client.job().is_empty() {
            let job = String::from_utf8_lossy(self.client.job()).into_owned();
            let row = sum.tally.row([(Label::Job, job)].into());
            snapshot.section_mut(By::Job).rows.push(row);
        }
        snapshot.section_mut(By::Exchange).rows = self.client.exchange_rows();
        snapshot
    }

    /// What waits here, and what is cached.
    fn put_state(&self, row: &mut Row) {
        row.set_numbers(&[
            (Metric::Unanswered, bytes_of(self.pendings.count())),
            (Metric::WaitsGroups, self.counts.groups_count),
            (Metric::WaitingGroups, bytes_of(self.pendings.groups_wait_count())),
            (Metric::WaitingFileLock, bytes_of(self.pendings.lock_wait_count())),
            (Metric::PagedFiles, bytes_of(self.leases.held_count())),
        ]);
        if let Some(counts) = self.behind.counts() {
            row.set_numbers(&[
                (Metric::BehindFiles, counts.held_count),
                (Metric::BehindBytes, counts.held_bytes),
                (Metric::BehindExecuted, counts.written_count),
                (Metric::BehindLost, counts.lost_count),
                (Metric::BehindExecutedBytes, counts.written_bytes),
                (Metric::BehindLostBytes, counts.lost_bytes),
                (Metric::BehindDirectories, counts.directory_count),
                (Metric::BehindMade, counts.made_count),
                (Metric::BehindRemoved, counts.removed_count),
                (Metric::BehindLostNames, counts.lost_name_count),
            ]);
        }
        let Some(cache) = &self.cache else { return };
        let CacheCounts { name_count, attributes_count, directory_count } = cache.counts();
        row.set_numbers(&[
            (Metric::CachedNames, bytes_of(name_count)),
            (Metric::CachedAttributes, bytes_of(attributes_count)),
            (Metric::CachedDirectories, bytes_of(directory_count)),
        ]);
    }
}

/// What the runtime counts of a lane without a store.
fn of_usage(usage: &Usage) -> [(Metric, u64); 12] {
    [
        (Metric::ResidentBytes, u64::from(usage.resident_kib) * 1024),
        (Metric::CpuTime, usage.cpu_ns),
        (Metric::SwitchesVoluntary, usage.voluntary_switch_count),
        (Metric::SwitchesInvoluntary, usage.involuntary_switch_count),
        (Metric::Turns, usage.turn_count),
        (Metric::TurnTimeMax, usage.turn_ns_max),
        (Metric::Syscalls, usage.syscall_count),
        (Metric::ClockReads, usage.clock_read_count),
        (Metric::Sends, usage.send_count),
        (Metric::Spins, usage.spin_count),
        (Metric::SpinHits, usage.spin_hit_count),
        (Metric::PeerWakes, usage.message_out_count),
    ]
}

/// The bytes of a span.
pub(crate) fn span_bytes(span: Span) -> u64 {
    bytes_of(span.bytes_count())
}
