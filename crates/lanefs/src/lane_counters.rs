//! The counters of this process's lanes, for its other threads: no connection, no credential.
//!
//! An asker leaves a channel with each lane and wakes it; the lane answers after its turn. Invariant: a lane
//! never waits for who asks, and a turn that nobody asks after costs it one load.

use library::Snapshot;
use ring::Waker;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Who waits for a lane's counters.
#[derive(Default)]
struct Askers {
    is_asked: AtomicBool,
    waiting: Mutex<Vec<Sender<Snapshot>>>,
}

/// A lane's end.
#[derive(Clone, Default)]
pub(crate) struct Answers(Arc<Askers>);

/// The other end, for all lanes.
#[derive(Clone)]
pub(crate) struct Counters(Arc<[(Answers, Waker)]>);

impl Answers {
    /// Answers all that have asked. Called by the lane between two turns.
    pub(crate) fn give(&self, snapshot: impl FnOnce() -> Snapshot) {
        let Self(shared) = self;
        if !shared.is_asked.load(Ordering::Acquire) {
            return;
        }
        shared.is_asked.store(false, Ordering::Release);
        let askers = {
            let mut askers = shared.waiting.lock().unwrap_or_else(PoisonError::into_inner);
            std::mem::take(&mut *askers)
        };
        let snapshot = snapshot();
        for asker in askers {
            // It has stopped waiting.
            let _unheard = asker.send(snapshot.clone());
        }
    }

    fn ask(&self, asker: Sender<Snapshot>) {
        let Self(shared) = self;
        shared.waiting.lock().unwrap_or_else(PoisonError::into_inner).push(asker);
        shared.is_asked.store(true, Ordering::Release);
    }
}

impl Counters {
    /// Of the lanes that these ends belong to, in their order.
    pub(crate) fn new(lanes: impl IntoIterator<Item = (Answers, Waker)>) -> Self {
        Self(lanes.into_iter().collect())
    }

    /// A snapshot of each lane, in their order; the number of the first one that did not answer in time.
    pub(crate) fn ask(&self, patience: Duration) -> Result<Vec<Snapshot>, usize> {
        let deadline = Instant::now() + patience;
        let asked: Vec<_> = self
            .0
            .iter()
            .map(|(answers, waker)| {
                let (sender, answer) = channel();
                answers.ask(sender);
                waker.wake();
                answer
            })
            .collect();
        let answers = asked.iter().enumerate().map(|(lane_no, answer)| {
            let left = deadline.saturating_duration_since(Instant::now());
            answer.recv_timeout(left).map_err(|_| lane_no)
        });
        answers.collect()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use library::counters::{By, Row};

    #[test]
    fn everybody_who_asked_before_a_turn_gets_the_counters_after_it() {
        let answers = Answers::default();
        answers.give(|| panic!("nobody has asked"));
        let asked = [(); 3].map(|()| {
            let (sender, answer) = channel();
            answers.ask(sender);
            answer
        });
        let [first, second, third] = asked;
        drop(third);
        let mut snapshot = Snapshot::default();
        snapshot.section_mut(By::Lane).rows.push(Row::default());
        answers.give(|| snapshot.clone());
        assert_eq!([first.recv().unwrap(), second.recv().unwrap()], [snapshot.clone(), snapshot]);
        answers.give(|| panic!("all were answered"));
    }
}
