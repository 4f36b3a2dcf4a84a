//! Asks a server for its counters at each interval, on a thread of its own, and connects again when the
//! server is lost.

use super::interval::Interval;
use super::update::Update;
use crate::{args, export};
use anyhow::{Context as _, Result};
use library::Volume;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

/// A server that is watched until this is dropped.
pub(super) struct Watch {
    _stop: Sender<()>,
}

/// What a thread needs.
struct Poll {
    /// Which server it is, for the receiver.
    index: usize,
    server: args::Server,
    interval: Duration,
    updates: Sender<Update>,
    stop: Receiver<()>,
}

/// Begins to watch a server. The first update says whether it could be reached.
pub(super) fn watch(
    index: usize,
    server: args::Server,
    interval: Duration,
    updates: Sender<Update>,
) -> Result<Watch> {
    let (stop_sender, stop) = channel();
    let poll = Poll { index, server, interval, updates, stop };
    let thread = std::thread::Builder::new().name("poll".to_owned());
    thread.spawn(move || poll.run()).context("cannot start a thread")?;
    Ok(Watch { _stop: stop_sender })
}

impl Poll {
    fn run(&self) {
        loop {
            let ended = export::connect(&self.server).and_then(|(volume, _)| self.ask(volume));
            let lost = match ended {
                Ok(()) => {
                    // Nobody may wait for it any more.
                    let _unread = self.updates.send(Update::Left);
                    return;
                }
                Err(error) => Update::Lost(self.index, error),
            };
            if self.updates.send(lost).is_err() || !self.waits(self.interval) {
                return;
            }
        }
    }

    /// Until it is to end, or the server is lost.
    fn ask(&self, mut volume: Volume) -> Result<()> {
        let (mut before, mut asked_at) = (volume.counters()?, Instant::now());
        if self.updates.send(Update::Connected).is_err() {
            return Ok(());
        }
        while self.waits(self.interval.saturating_sub(asked_at.elapsed())) {
            let now = volume.counters()?;
            let elapsed = asked_at.elapsed();
            asked_at = Instant::now();
            let interval = Interval::between(&before, &now, elapsed);
            if self.updates.send(Update::Sample(self.index, Box::new(interval))).is_err() {
                break;
            }
            before = now;
        }
        Ok(volume.leave()?)
    }

    /// Waits so long. Returns whether it is to go on.
    fn waits(&self, time: Duration) -> bool {
        self.stop.recv_timeout(time) == Err(RecvTimeoutError::Timeout)
    }
}
