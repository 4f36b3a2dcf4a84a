//! Connections between client lanes and server lanes.
//!
//! Frames of one direction arrive in order or, from a cut on, not at all; the two ends learn of a
//! cut at different times, and what an old connection still carries may arrive long after the client
//! is back on a new one.

use crate::number::wide;
use std::collections::VecDeque;

/// A frame on its way.
#[derive(Clone, Debug)]
pub(crate) struct SentFrame {
    pub(crate) frame: Vec<u8>,
    pub(crate) bulk: Option<Vec<u8>>,
}

/// One direction of a connection.
#[derive(Debug, Default)]
pub(crate) struct Direction {
    pub(crate) queue: VecDeque<SentFrame>,
    /// When the last frame arrives.
    pub(crate) last_ns: u64,
    /// Nothing arrives before.
    pub(crate) held_until_ns: u64,
    /// What is sent from now on is lost.
    pub(crate) dead: bool,
    /// The receiving end takes no more.
    pub(crate) closed: bool,
    /// How many times as slow as others.
    pub(crate) slowness: u64,
}

impl Direction {
    /// When a frame sent now arrives; frames keep their order.
    pub(crate) fn arrival_ns(&mut self, now_ns: u64, delay_ns: u64) -> u64 {
        let at = now_ns + delay_ns * self.slowness;
        self.last_ns = (self.last_ns + 1).max(at).max(self.held_until_ns);
        self.last_ns
    }

    /// Nothing more goes in, and of what is on its way only the first `kept_count` arrive.
    pub(crate) fn cut(&mut self, kept_count: usize) {
        self.dead = true;
        self.queue.truncate(kept_count);
    }
}

/// Which end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum End {
    Client,
    Server,
}

/// A connection.
#[derive(Debug)]
pub(crate) struct Conn {
    pub(crate) client: usize,
    pub(crate) client_lane: usize,
    pub(crate) server_lane: usize,
    pub(crate) server_life: u64,
    /// To the server.
    pub(crate) up: Direction,
    /// To the client.
    pub(crate) down: Direction,
    pub(crate) cut: bool,
}

impl Conn {
    pub(crate) const fn direction_to(&mut self, end: End) -> &mut Direction {
        match end {
            End::Client => &mut self.down,
            End::Server => &mut self.up,
        }
    }

    pub(crate) fn in_flight_count(&self) -> u64 {
        wide(self.up.queue.len() + self.down.queue.len())
    }
}
