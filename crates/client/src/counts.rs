//! What a client lane counts of its exchanges with the server, and of what its requests wait for; and
//! its part of a snapshot.
//!
//! An exchange is counted for its operation where the reply is taken, so resends count once. Its time is that
//! from the turn in which it was first sent to the turn of the reply: no clock is read for it.

use crate::RecalledKey;
use crate::client::Client;
use crate::requests::Place;
use crate::wait_cause::WaitCause;
use alloc::boxed::Box;
use alloc::string::ToString as _;
use alloc::vec::Vec;
use interface::Mono;
use wire::counters::{Histogram, Label, Metric, OP_COUNT, Row, StatusClass, Tally, Value};
use wire::{Op, Reply};

/// Counters since the start.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Counters {
    /// Handshakes completed.
    pub connect_count: u64,
    /// Requests sent, resends included.
    pub request_count: u64,
    /// Requests sent again after a connection was lost.
    pub resend_count: u64,
    /// Replies that match no outstanding request.
    pub stray_reply_count: u64,
    /// Connections closed because of a protocol error of the server.
    pub protocol_error_count: u64,
    /// Replays sent.
    pub replay_count: u64,
    /// Answered changes that were lost.
    pub lost_count: u64,
    /// Evictions of this client.
    pub evicted_count: u64,
}

/// The exchanges of an operation.
#[derive(Clone, Default, Debug)]
struct OpCounts {
    tally: Tally,
    times: Histogram,
}

/// What was recalled, by kind.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct RecallCounts {
    pub(crate) recall_count: u64,
    pub(crate) attributes_count: u64,
    pub(crate) name_count: u64,
    pub(crate) contents_count: u64,
    pub(crate) all_count: u64,
    /// Of those that were acknowledged, from their arrival on.
    pub(crate) acknowledged_count: u64,
    pub(crate) time_ns: u64,
}

impl RecallCounts {
    /// A recall arrives.
    pub(crate) fn count(&mut self, keys: &[RecalledKey]) {
        self.recall_count += 1;
        for key in keys {
            match key {
                RecalledKey::Attributes(_) => self.attributes_count += 1,
                RecalledKey::Name(..) => self.name_count += 1,
                RecalledKey::Contents(_) | RecalledKey::Pages(_) | RecalledKey::Writing(_) => {
                    self.contents_count += 1;
                }
                RecalledKey::All => self.all_count += 1,
            }
        }
    }
}

/// The counts of a client lane.
#[derive(Debug)]
pub(crate) struct Counts {
    ops: Box<[OpCounts]>,
    waits: [u64; WaitCause::COUNT],
    /// Leases that replies have granted.
    pub(crate) granted_count: u64,
    pub(crate) recalls: RecallCounts,
}

impl Default for Counts {
    fn default() -> Self {
        Self {
            ops: (0..OP_COUNT).map(|_| OpCounts::default()).collect(),
            waits: [0; WaitCause::COUNT],
            granted_count: 0,
            recalls: RecallCounts::default(),
        }
    }
}

impl Counts {
    /// A request leaves.
    pub(crate) fn count_sent(&mut self, op: Op, request_bytes: u64) {
        self.ops[usize::from(op.number())].tally.in_bytes += request_bytes;
    }

    /// The reply to a request that was first sent at `sent_at`.
    pub(crate) fn count_reply(
        &mut self,
        reply: &Reply,
        reply_bytes: u64,
        (sent_at, now): (Mono, Mono),
    ) {
        let time_us = now.since_ns(sent_at) / 1_000;
        let counts = &mut self.ops[usize::from(reply.op.number())];
        counts.tally.count(StatusClass::of(reply.status), reply_bytes, time_us);
        counts.times.record(time_us);
    }

    /// A request begins to wait.
    pub(crate) const fn count_wait(&mut self, cause: WaitCause) {
        self.waits[cause as usize] += 1;
    }
}

impl Client {
    /// What this client is used for.
    #[must_use]
    pub fn job(&self) -> &[u8] {
        &self.config.job
    }

    /// A row of a snapshot for each operation of the protocol that was used.
    #[must_use]
    pub fn exchange_rows(&self) -> Vec<Row> {
        let counted = Op::ALL.iter().filter_map(|op| {
            let OpCounts { tally, times } = &self.counts.ops[usize::from(op.number())];
            let mut row = tally.row([(Label::Op, op.row().name.to_string())].into());
            row.set(Metric::ExchangeTime, Value::Histogram(times.clone()));
            (*tally != Tally::default()).then_some(row)
        });
        counted.collect()
    }

    /// Adds this lane's counts to its row of a snapshot.
    pub fn put_counts(&self, row: &mut Row) {
        let Counters {
            connect_count,
            request_count,
            resend_count,
            stray_reply_count: _,
            protocol_error_count,
            replay_count,
            lost_count,
            evicted_count,
        } = self.counters;
        let number = |count: usize| u64::try_from(count).unwrap_or(u64::MAX);
        let links_up = self.servers.links().iter().filter(|link| link.is_up()).count();
        row.set_numbers(&[
            (Metric::Exchanges, request_count),
            (Metric::Resends, resend_count),
            (Metric::Replayed, replay_count),
            (Metric::Handshakes, connect_count),
            (Metric::ProtocolErrors, protocol_error_count),
            (Metric::ChangesLost, lost_count),
            (Metric::Evictions, evicted_count),
            (Metric::ReplayBytes, number(self.replay_bytes())),
            (Metric::Connections, number(links_up)),
            (Metric::OpenFiles, number(self.open_count())),
            (Metric::KeptFiles, number(self.kept_count())),
        ]);
        let RecallCounts {
            recall_count,
            attributes_count,
            name_count,
            contents_count,
            all_count,
            acknowledged_count,
            time_ns,
        } = self.counts.recalls;
        row.set_numbers(&[
            (Metric::LeasesGranted, self.counts.granted_count),
            (Metric::Recalls, recall_count),
            (Metric::RecalledAttributes, attributes_count),
            (Metric::RecalledNames, name_count),
            (Metric::RecalledContents, contents_count),
            (Metric::RecalledAll, all_count),
            (Metric::RecallTime, time_ns / 1_000),
            (Metric::RecallsOpen, recall_count.saturating_sub(acknowledged_count)),
            (Metric::TermsEnded, self.terms_ended_count()),
        ]);
        self.put_waits(row);
    }

    fn put_waits(&self, row: &mut Row) {
        let (mut waiting, mut sent_count) = ([0_u64; WaitCause::COUNT], 0);
        for (exchange_id, exchange) in self.requests.iter() {
            sent_count += u64::from(exchange.place == Place::Sent);
            if let Some(cause) = self.wait_cause(exchange_id) {
                waiting[cause as usize] += 1;
            }
        }
        row.set(Metric::WaitingReply, Value::Number(sent_count));
        let counted = WaitCause::METRICS.into_iter().zip(self.counts.waits).zip(waiting);
        for (((counter, gauge), count), waiting_count) in counted {
            row.set(counter, Value::Number(count));
            if let Some(gauge) = gauge {
                row.set(gauge, Value::Number(waiting_count));
            }
        }
    }

    /// A request was made: counts its wait if it cannot be sent in this turn.
    pub(crate) fn count_wait_of(&mut self, exchange_id: usize) {
        if let Some(cause) = self.wait_cause(exchange_id) {
            self.begin_wait(exchange_id, cause);
        }
    }

    /// What a request waits for that is not sent.
    pub(crate) fn wait_cause(&self, exchange_id: usize) -> Option<WaitCause> {
        let exchange = self.requests.get(exchange_id)?;
        match exchange.place {
            Place::Unrouted => Some(WaitCause::Connection),
            Place::LayoutWait => Some(WaitCause::Layout),
            Place::AppendWait | Place::CloseWait => Some(WaitCause::Retry),
            Place::SlotWait => Some(WaitCause::Slot),
            Place::SpaceWait => Some(WaitCause::ReplaySpace),
            Place::Later => Some(WaitCause::Retry),
            Place::Sent => None,
            Place::Queued => {
                let link = self.servers.link(exchange.link_index)?;
                let server = self.servers.server_of(exchange.link_index)?;
                let queued_count = link.urgent.len() + link.resends.len() + link.fresh.len();
                let is_full = usize::from(link.outstanding) + queued_count > link.credits.into();
                if !link.is_up() {
                    Some(WaitCause::Connection)
                } else if link.leases.must_drop {
                    Some(WaitCause::Recall)
                } else if link.recovering || (server.is_registering() && !exchange.urgent) {
                    Some(WaitCause::Reopens)
                } else {
                    is_full.then_some(WaitCause::Credits)
                }
            }
        }
    }
}
