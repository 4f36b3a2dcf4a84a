//! The counters of a lane as a [`Snapshot`].

use super::{OpCounts, Tally};
use crate::Lane;
use alloc::string::ToString as _;
use alloc::vec::Vec;
use interface::{LaneTime, SendTimes, Usage};
use wire::counters::{By, Histogram, Label, Metric, Row, Snapshot, Value};
use wire::{Op, Stats};

impl Lane {
    /// All counters, with those of the runtime. They are asked for by [`Op::Counters`], and by threads
    /// of the server's process.
    pub(crate) fn snapshot(&self, usage: &Usage) -> Snapshot {
        let mut snapshot = Snapshot::default();
        let lane_time = self.lane_time;
        let delays = self.delays(lane_time.now);
        let mut lane_row = self.lane_row(usage);
        self.set_times(&mut lane_row, &lane_time);
        lane_row.set_numbers(&self.refusal_counts(lane_time.now));
        delays.all().set(&mut lane_row);
        snapshot.section_mut(By::Lane).rows.push(lane_row);
        snapshot.section_mut(By::Op).rows = self.op_rows();
        for (by, tallies) in self.accounts.rows(self.connections.used()) {
            let row = |(labels, tally): (_, Tally)| tally.row(labels);
            snapshot.section_mut(by).rows = tallies.into_iter().map(row).collect();
        }
        let client_rows = &mut snapshot.section_mut(By::Client).rows;
        delays.set_clients(&self.accounts, client_rows);
        self.accounts.set_connections(self.connections.used(), client_rows);
        snapshot
    }

    fn set_times(&self, row: &mut Row, lane_time: &LaneTime) {
        let LaneTime { now, cpu_ns, backlog_ns, up_ms, send_times } = *lane_time;
        row.set_numbers(&[
            (Metric::FlushAge, self.commit.flush_age_us(now)),
            (Metric::LockAge, self.waiters.lock_age_us(now)),
            (Metric::LaneCpuTime, cpu_ns),
            (Metric::BacklogTime, backlog_ns),
            (Metric::UpTime, up_ms),
        ]);
        let SendTimes { counts, sum_us } = send_times;
        let by_limit = SendTimes::LIMITS_US.into_iter().zip(counts);
        let replies = Histogram::of_limits(sum_us, by_limit);
        row.set(Metric::SendTime, Value::Histogram(replies));
    }

    fn op_rows(&self) -> Vec<Row> {
        let counted = Op::ALL.iter().filter_map(|op| {
            let counts = &self.request_counts.0[usize::from(op.number())];
            (counts.tally() != Tally::default()).then(|| op_row(*op, counts))
        });
        counted.collect()
    }

    fn lane_row(&self, usage: &Usage) -> Row {
        let all = self.request_counts.0.iter().fold(Tally::default(), |mut sum, counts| {
            sum.add(&counts.tally());
            sum
        });
        let labels = [(Label::Lane, self.config.lane.0.to_string())];
        let mut row = all.row(labels.into());
        row.set_numbers(&of_stats(&self.counters(usage)));
        row.set_numbers(&self.waiters.counts());
        let resident_bytes = u64::from(usage.resident_kib) * 1024;
        row.set_numbers(&[
            (Metric::WaitsFileLock, self.stats.lock_wait_count),
            (Metric::LogFreeBytes, self.commit.space_bytes()),
            (Metric::LogOpenBytes, self.commit.open_bytes()),
            (Metric::LogFailed, self.commit.has_failed().into()),
            (Metric::InDoubt, self.txns.in_doubt_count()),
            (Metric::Recovering, (!self.recovery.is_over()).into()),
            (Metric::ResidentBytes, resident_bytes),
            (Metric::Sessions, u64::try_from(self.sessions.count()).unwrap_or(u64::MAX)),
        ]);
        let flush_times = self.commit.flush_times().clone();
        row.set(Metric::FlushTime, Value::Histogram(flush_times));
        // Of each shard or of none.
        if let Some(names_bytes) = self.metas.iter().map(meta::Shard::resident_bytes).sum() {
            row.set_numbers(&[(Metric::NamesBytes, names_bytes)]);
        }
        row
    }
}

fn op_row(op: Op, counts: &OpCounts) -> Row {
    let OpCounts { tally: _, instant_count, phases } = counts;
    let mut row = counts.tally().row([(Label::Op, op.row().name.to_string())].into());
    let phases = phases.as_deref().cloned().unwrap_or_default();
    let named = [
        (Metric::QueueTime, phases.queue),
        (Metric::ExecutionTime, phases.execution),
        (Metric::CommitTime, phases.commit),
    ];
    for (metric, mut histogram) in named {
        histogram.record_zeros(*instant_count);
        row.set(metric, Value::Histogram(histogram));
    }
    row
}

fn of_stats(stats: &Stats) -> Vec<(Metric, u64)> {
    // Without `..`: a new counter cannot be forgotten.
    let Stats {
        // Counted by operation.
        request_count: _,
        change_count,
        batch_count,
        // The sum of those by reason.
        deferred_count: _,
        from_slot_count,
        turn_count,
        read_bytes,
        written_bytes,
        conn_count,
        protocol_error_count,
        inode_count,
        cpu_ns,
        voluntary_switch_count,
        involuntary_switch_count,
        syscall_count,
        clock_read_count,
        message_out_count,
        send_count,
        spin_count,
        spin_hit_count,
        turn_ns_max,
        reply_gating,
        recovery,
        objects,
        peers,
        leases,
    } = *stats;
    alloc::vec![
        (Metric::Changes, change_count),
        (Metric::FromSlot, from_slot_count),
        (Metric::Batches, batch_count),
        (Metric::DeferredOwn, reply_gating.deferred_own_count),
        (Metric::DeferredForeign, reply_gating.deferred_foreign_count),
        (Metric::DeferredStrict, reply_gating.deferred_strict_count),
        (Metric::DeferredItself, reply_gating.deferred_self_count),
        (Metric::Tokens, reply_gating.token_count),
        (Metric::CommitNotifications, reply_gating.commit_notification_count),
        (Metric::ReadBytes, read_bytes),
        (Metric::WrittenBytes, written_bytes),
        (Metric::Connections, conn_count),
        (Metric::ProtocolErrors, protocol_error_count),
        (Metric::Inodes, inode_count),
        (Metric::LeasesHeld, leases.held_count),
        (Metric::LeasesGranted, leases.granted_count),
        (Metric::LeasesRecalled, leases.recalled_count),
        (Metric::LeasesExpired, leases.expired_count),
        (Metric::LeasesHot, leases.refused_hot_count),
        (Metric::LeasesShare, leases.refused_share_count),
        (Metric::Pings, leases.ping_count),
        (Metric::CpuTime, cpu_ns),
        (Metric::SwitchesVoluntary, voluntary_switch_count),
        (Metric::SwitchesInvoluntary, involuntary_switch_count),
        (Metric::Turns, turn_count),
        (Metric::TurnTimeMax, turn_ns_max),
        (Metric::Syscalls, syscall_count),
        (Metric::ClockReads, clock_read_count),
        (Metric::Sends, send_count),
        (Metric::Spins, spin_count),
        (Metric::SpinHits, spin_hit_count),
        (Metric::PeerWakes, message_out_count),
        (Metric::PeerSent, peers.sent_count),
        (Metric::PeerResent, peers.resent_count),
        (Metric::PeerRepeated, peers.repeated_count),
        (Metric::PeerRefused, peers.refused_count),
        (Metric::ObjectsOffloaded, objects.handed_count),
        (Metric::ObjectThreads, objects.thread_count),
        (Metric::ObjectsInFlightMax, objects.under_way_max),
        (Metric::ObjectsInFlightOneMax, objects.under_way_one_max),
        (Metric::Damages, objects.damage_count),
        (Metric::RecoveryKnown, recovery.known_count),
        (Metric::RecoveryReturned, recovery.returned_count),
        (Metric::RecoveryEvicted, recovery.evicted_count),
        (Metric::RecoveryLost, recovery.lost_durable_count),
        (Metric::ReplaysExecuted, recovery.replayed_count),
        (Metric::ReplaysDurable, recovery.already_durable_count),
        (Metric::ReplaysRejected, recovery.rejected_count),
        (Metric::ReplaysForged, recovery.forged_count),
        (Metric::RecoveryTime, recovery.recovery_ms),
    ]
}
