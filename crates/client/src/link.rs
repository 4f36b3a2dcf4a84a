//! The connection of this client lane to one lane of one server: its state and its queues.
//!
//! ```text
//! Idle ─▶ Connecting ─▶ AwaitChallenge ─▶ AwaitWelcome ─▶ Up
//!   ▲         │               │                │           │
//!   └─ Pausing◀───────────────┴────────────────┴───────────┘   (at once after Up, else a pause)
//! ```

use crate::grants::LinkLeases;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use interface::{ConnId, Mono, Ticket};
use wire::{Channel, FsUuid, LaneId, RefusalReason, Secret};

const PAUSE_MS_MIN: u64 = 50;
const PAUSE_MS_MAX: u64 = 1_000;

#[derive(Debug)]
pub(crate) enum LinkState {
    Idle,
    Pausing { until: Mono },
    Connecting { ticket: Ticket },
    AwaitChallenge { conn: ConnId, hello: Vec<u8>, channel: Channel, until: Mono },
    AwaitWelcome { conn: ConnId, fs: FsUuid, until: Mono },
    Up { conn: ConnId },
}

#[derive(Debug)]
pub(crate) struct Link {
    server_index: usize,
    lane: LaneId,
    pub(crate) state: LinkState,
    /// Epoch of the last connect.
    pub(crate) conn_epoch: u32,
    /// The secret that the last Hello named.
    pub(crate) proven: Option<Secret>,
    /// The server's boot in the last Welcome.
    pub(crate) boot_id: u64,
    /// The most requests in flight, and their number.
    pub(crate) credits: u16,
    pub(crate) outstanding: u16,
    /// Those of them whose callers have their answers.
    pub(crate) outstanding_behind: u16,
    /// Failed attempts since the last reply.
    pub(crate) failure_count: u32,
    /// The reason of the last handshake's refusal, if it is temporary.
    pub(crate) temporary_refusal: Option<RefusalReason>,
    /// Recovery has requests to send; nothing else is sent.
    pub(crate) recovering: bool,
    /// Goodbye was sent on this connection: anything after it would be a protocol error.
    pub(crate) goodbye_sent: bool,
    /// A change of contents was sent since the last Welcome and map: the sessions of all data shards
    /// of the lane count as used.
    pub(crate) data_shards_used: bool,
    pub(crate) leases: LinkLeases,
    /// The server's clock by this lane's, as far as it is certain: its nanoseconds since 1970 at a moment.
    pub(crate) clock: Option<(u64, Mono)>,
    /// Sent before everything else: reopens and relocks.
    pub(crate) urgent: VecDeque<usize>,
    /// Resends, in the order of xids.
    pub(crate) resends: VecDeque<usize>,
    /// New requests.
    pub(crate) fresh: VecDeque<usize>,
}

impl Link {
    pub(crate) const fn new(server_index: usize, lane: LaneId) -> Self {
        Self {
            server_index,
            lane,
            state: LinkState::Idle,
            conn_epoch: 0,
            proven: None,
            boot_id: 0,
            credits: 1,
            outstanding: 0,
            outstanding_behind: 0,
            failure_count: 0,
            temporary_refusal: None,
            recovering: false,
            goodbye_sent: false,
            data_shards_used: false,
            leases: LinkLeases::new(),
            clock: None,
            urgent: VecDeque::new(),
            resends: VecDeque::new(),
            fresh: VecDeque::new(),
        }
    }

    /// The server, by its position among all.
    pub(crate) const fn server_index(&self) -> usize {
        self.server_index
    }

    /// The lane of that server.
    pub(crate) const fn lane(&self) -> LaneId {
        self.lane
    }

    /// Takes all requests out of the queues.
    pub(crate) fn clear_queues(&mut self) {
        self.urgent.clear();
        self.resends.clear();
        self.fresh.clear();
    }

    /// Takes the first resend or new request that is wanted.
    pub(crate) fn take_first(&mut self, is_wanted: impl Fn(usize) -> bool) -> Option<usize> {
        [&mut self.resends, &mut self.fresh].into_iter().find_map(|queue| {
            let at = queue.iter().position(|id| is_wanted(*id))?;
            queue.remove(at)
        })
    }

    /// Takes one request out of the queues.
    pub(crate) fn dequeue(&mut self, exchange_id: usize) {
        for queue in [&mut self.urgent, &mut self.resends, &mut self.fresh] {
            queue.retain(|id| *id != exchange_id);
        }
    }

    pub(crate) fn conn(&self) -> Option<ConnId> {
        match self.state {
            LinkState::Idle | LinkState::Pausing { .. } | LinkState::Connecting { .. } => None,
            LinkState::AwaitChallenge { conn, .. }
            | LinkState::AwaitWelcome { conn, .. }
            | LinkState::Up { conn } => Some(conn),
        }
    }

    pub(crate) const fn is_up(&self) -> bool {
        matches!(self.state, LinkState::Up { .. })
    }

    pub(crate) const fn state_is_idle(&self) -> bool {
        matches!(self.state, LinkState::Idle)
    }

    pub(crate) const fn has_credit(&self) -> bool {
        self.outstanding < self.credits
    }

    /// Whether a request waits for this connection.
    pub(crate) fn is_wanted(&self) -> bool {
        !(self.urgent.is_empty() && self.resends.is_empty() && self.fresh.is_empty())
    }

    /// How long to wait after the failures so far; `random` is any number.
    pub(crate) fn pause_ms(&self, random: u64) -> u64 {
        let doublings = self.failure_count.saturating_sub(1).min(8);
        let pause_ms = (PAUSE_MS_MIN << doublings).min(PAUSE_MS_MAX);
        // Up to a quarter less, so that many clients do not reconnect at once.
        pause_ms - random % (pause_ms / 4)
    }
}
