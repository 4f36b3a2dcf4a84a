//! Connections: of a client lane to a server lane, and between lanes of two servers.
//!
//! Frames of one direction arrive in order. After a cut, the rest of them is lost. The two ends
//! learn of a cut at different times, and frames of an old connection may arrive long after the
//! client is back on a new one.

use crate::due::{End, Place};
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
    /// No close is noticed before: packets of this direction are lost.
    pub(crate) parted_until_ns: u64,
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

/// A connection.
#[derive(Debug)]
pub(crate) struct Conn {
    pub(crate) dialler: Place,
    pub(crate) dialler_life: u64,
    pub(crate) server: usize,
    pub(crate) server_lane: usize,
    pub(crate) server_life: u64,
    /// To the lane that listens.
    pub(crate) up: Direction,
    /// To the lane that dialled.
    pub(crate) down: Direction,
    pub(crate) cut: bool,
}

impl Conn {
    pub(crate) const fn direction_to(&mut self, end: End) -> &mut Direction {
        match end {
            End::Dialler => &mut self.down,
            End::Listener => &mut self.up,
        }
    }

    /// The lane at an end, and the process that it belonged to when the connection began.
    pub(crate) const fn at(&self, end: End) -> (Place, u64) {
        match end {
            End::Dialler => (self.dialler, self.dialler_life),
            End::Listener => (Place::Server(self.server, self.server_lane), self.server_life),
        }
    }

    /// Whether a client has dialled.
    pub(crate) fn is_of_client(&self, client: usize) -> bool {
        matches!(self.dialler, Place::Client(by, _) if by == client)
    }

    pub(crate) fn in_flight_count(&self) -> u64 {
        wide(self.up.queue.len() + self.down.queue.len())
    }
}
