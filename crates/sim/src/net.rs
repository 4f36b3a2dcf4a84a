//! Connections between client lanes and server lanes.
//!
//! Frames of one direction arrive in order. After a cut, the rest of them is lost. The two ends
//! learn of a cut at different times, and frames of an old connection may arrive long after the
//! client is back on a new one.

use crate::number::wide;
use std::collections::VecDeque;

/// A frame under way.
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
    /// No frame arrives before.
    pub(crate) held_until_ns: u64,
    /// Frames sent from now on are lost.
    pub(crate) dead: bool,
    /// The receiving end accepts no more frames.
    pub(crate) closed: bool,
    /// Delay compared with other connections.
    pub(crate) slowness: u64,
}

impl Direction {
    /// When a frame sent now arrives; frames keep their order.
    pub(crate) fn arrival_ns(&mut self, now_ns: u64, delay_ns: u64) -> u64 {
        let at = now_ns + delay_ns * self.slowness;
        self.last_ns = (self.last_ns + 1).max(at).max(self.held_until_ns);
        self.last_ns
    }

    /// No frame enters any more, and only the first `kept_count` of those under way arrive.
    pub(crate) fn cut(&mut self, kept_count: usize) {
        self.dead = true;
        self.queue.truncate(kept_count);
    }
}

/// An end of a connection.
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
