//! Requests that are counted together.

use super::{Label, Metric, Row, StatusClass, Value};
use crate::Op;
use alloc::string::String;
use alloc::vec::Vec;

/// One more than the highest number of an operation.
pub const OP_COUNT: usize = {
    let (mut highest, mut index) = (0, 0);
    while index < Op::ALL.len() {
        let number = Op::ALL[index].number();
        highest = if number > highest { number } else { highest };
        index += 1;
    }
    highest as usize + 1
};

/// Requests of some kind.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Tally {
    /// Those that were answered.
    pub request_count: u64,
    /// By [`StatusClass`].
    pub error_counts: [u64; StatusClass::ALL.len()],
    /// Bytes of requests.
    pub in_bytes: u64,
    /// Bytes of replies.
    pub out_bytes: u64,
    /// From their arrivals to their replies.
    pub time_us: u64,
}

impl Tally {
    /// A reply.
    pub fn count(&mut self, class: Option<StatusClass>, out_bytes: u64, time_us: u64) {
        self.request_count += 1;
        if let Some(class) = class {
            self.error_counts[class as usize] += 1;
        }
        self.out_bytes += out_bytes;
        self.time_us += time_us;
    }

    /// Adds another one.
    pub fn add(&mut self, other: &Self) {
        self.request_count += other.request_count;
        for (mine, other) in self.error_counts.iter_mut().zip(other.error_counts) {
            *mine += other;
        }
        self.in_bytes += other.in_bytes;
        self.out_bytes += other.out_bytes;
        self.time_us += other.time_us;
    }

    /// As a row of a snapshot.
    #[must_use]
    pub fn row(&self, labels: Vec<(Label, String)>) -> Row {
        let Self { request_count, error_counts, in_bytes, out_bytes, time_us } = *self;
        let mut row = Row { labels, values: Vec::new() };
        row.set_numbers(&[
            (Metric::Requests, request_count),
            (Metric::InBytes, in_bytes),
            (Metric::OutBytes, out_bytes),
            (Metric::RequestTime, time_us),
        ]);
        for class in StatusClass::ALL {
            row.set(class.metric(), Value::Number(error_counts[class as usize]));
        }
        row
    }
}
