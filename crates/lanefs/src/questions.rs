//! Questions of this process's other threads to its lanes ([`wire::Question`]): no connection, no credential.
//!
//! Invariant: a lane never waits for an asker.

use ring::Waker;
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};
use wire::Map;

/// The lanes of this process.
#[derive(Clone, Default)]
pub(crate) struct Lanes(Arc<[Waker]>);

impl FromIterator<Waker> for Lanes {
    fn from_iter<I: IntoIterator<Item = Waker>>(lanes: I) -> Self {
        Self(lanes.into_iter().collect())
    }
}

impl Lanes {
    /// Gives each lane a newer map of the cluster.
    pub(crate) fn set_map(&self, map: &Map) {
        self.0.iter().for_each(|lane| lane.set_map(map));
    }

    /// The answer of each lane, in their order; or the number of the first lane that did not answer in time.
    pub(crate) fn ask(&self, question: &[u8], patience: Duration) -> Result<Vec<Vec<u8>>, usize> {
        let until = Instant::now() + patience;
        // All at once, so that their answers are of the same moment, or nearly.
        let ask = |lane: &Waker| {
            let (sender, answer) = channel();
            lane.ask(question.to_vec(), sender);
            answer
        };
        let asked: Vec<_> = self.0.iter().map(ask).collect();
        let answers = asked.iter().enumerate().map(|(lane_no, answer)| {
            let left = until.saturating_duration_since(Instant::now());
            answer.recv_timeout(left).map_err(|_| lane_no)
        });
        answers.collect()
    }
}
