//! The rows of the benchmarks so far.

use crate::Bench;
use crate::row::Row;

/// The rows so far.
#[derive(Default)]
pub(crate) struct Rows(pub(super) Vec<Row>);

impl Rows {
    /// The rows of a benchmark.
    pub(crate) fn of(&self, bench: Bench) -> impl Iterator<Item = &Row> {
        self.0.iter().filter(move |row| row.bench == bench.name())
    }

    /// A row by its name, and by its shape where one is given.
    pub(crate) fn find(&self, bench: Bench, name: &str, shape: Option<(u32, u32)>) -> Option<&Row> {
        let fits = |row: &&Row| {
            let fits = |(clients, depth)| row.clients == Some(clients) && row.depth == Some(depth);
            row.row == name && shape.is_none_or(fits)
        };
        self.of(bench).find(fits)
    }
}
