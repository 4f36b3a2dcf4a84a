//! Asks a server or a mount for its counters at each interval, on a thread of its own, and connects again when the
//! server is lost.

use super::hot;
use super::interval::{Hot, Interval};
use super::update::Update;
use crate::running::Entry;
use crate::{args, export, stats};
use anyhow::{Context as _, Result};
use library::{Snapshot, Volume};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

/// How long a mount records at least after it was asked.
const RECORD_MIN: Duration = Duration::from_secs(5);

/// A server or mount that is watched until this is dropped.
pub(super) struct Watch {
    _stop: Sender<()>,
}

/// What a thread needs.
struct Poll {
    /// Which server it is, for the receiver.
    index: usize,
    target: Target,
    interval: Duration,
    updates: Sender<Update>,
    stop: Receiver<()>,
    wants_hot: Arc<AtomicBool>,
}

/// Who is watched.
#[derive(Clone)]
pub(super) enum Target {
    Server(args::Server),
    Mount(Box<Entry>),
}

/// Who answers.
enum Source<'a> {
    Server(&'a str, Box<Volume>),
    Mount(&'a Entry),
}

impl Source<'_> {
    fn counters(&mut self) -> Result<Vec<Snapshot>> {
        match self {
            Self::Server(_, volume) => Ok(volume.counters()?),
            Self::Mount(mount) => stats::counters_of(mount),
        }
    }

    /// Hot directories and files of the last interval.
    fn hot(&mut self, elapsed: Duration) -> Result<Vec<Hot>> {
        match self {
            Self::Server(address, volume) => hot::of_server(volume, (address, elapsed)),
            Self::Mount(mount) => hot::of_mount(mount, RECORD_MIN.max(elapsed * 3)),
        }
    }

    fn leave(self) -> Result<()> {
        match self {
            Self::Server(_, volume) => Ok(volume.leave()?),
            Self::Mount(_) => Ok(()),
        }
    }
}

/// Begins to watch. The first update says whether it could be reached.
pub(super) fn watch(
    (index, target): (usize, Target),
    interval: Duration,
    updates: Sender<Update>,
    wants_hot: Arc<AtomicBool>,
) -> Result<Watch> {
    let (stop_sender, stop) = channel();
    let poll = Poll { index, target, interval, updates, stop, wants_hot };
    let thread = std::thread::Builder::new().name("poll".to_owned());
    thread.spawn(move || poll.run()).context("cannot start a thread")?;
    Ok(Watch { _stop: stop_sender })
}

impl Poll {
    fn run(&self) {
        loop {
            let ended = self.connect().and_then(|source| self.ask(source));
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

    fn connect(&self) -> Result<Source<'_>> {
        match &self.target {
            Target::Server(server) => {
                let (volume, _) = export::connect(server)?;
                Ok(Source::Server(&server.server, Box::new(volume)))
            }
            Target::Mount(mount) => Ok(Source::Mount(mount)),
        }
    }

    /// Until it is to end, or the server is lost.
    fn ask(&self, mut source: Source<'_>) -> Result<()> {
        let (mut before, mut asked_at) = (source.counters()?, Instant::now());
        let wants_hot = || self.wants_hot.load(Ordering::Relaxed);
        if wants_hot() {
            // A mount begins to record.
            source.hot(self.interval)?;
        }
        if self.updates.send(Update::Connected).is_err() {
            return Ok(());
        }
        while self.waits(self.interval.saturating_sub(asked_at.elapsed())) {
            let now = source.counters()?;
            let elapsed = asked_at.elapsed();
            asked_at = Instant::now();
            let hot = if wants_hot() { source.hot(elapsed)? } else { Vec::new() };
            let is_mount = matches!(source, Source::Mount(_));
            let interval = Interval { is_mount, hot, ..Interval::between(&before, &now, elapsed) };
            if self.updates.send(Update::Sample(self.index, Box::new(interval))).is_err() {
                break;
            }
            before = now;
        }
        source.leave()
    }

    /// Waits so long. Returns whether it is to go on.
    fn waits(&self, time: Duration) -> bool {
        self.stop.recv_timeout(time) == Err(RecvTimeoutError::Timeout)
    }
}
