//! Counters of a lane of a server or of a mount at one moment: the reply of [`crate::Op::Counters`], or
//! of a mount's control socket, and what a program shows of it.
//!
//! A [`Snapshot`] has sections, a section rows, a row labels and values. What is counted is declared
//! in one table ([`metric`]): name, kind, unit, and how values of several lanes become one. A text, a
//! page or another encoding is written by a walk over [`Snapshot::samples`].
//!
//! The encoding (docs/formats.md) says the length of each section, row and value. So a reader skips
//! what it does not know, and what an older server does not count is absent.

mod codec;
mod histogram;
mod metric;
mod tally;

#[cfg(test)]
mod tests;

pub use histogram::Histogram;
pub use metric::{Kind, Merge, Metric, MetricRow, StatusClass, Unit};
pub use tally::{OP_COUNT, Tally};

use alloc::string::String;
use alloc::vec::Vec;

/// Counters at one moment: of a lane, or of several together.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Snapshot {
    /// At most one of each kind.
    pub sections: Vec<Section>,
}

/// What the rows of a section are about.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
#[repr(u16)]
pub enum By {
    /// The lane as a whole: one row.
    Lane = 1,
    /// An operation.
    Op = 2,
    /// A client.
    Client = 3,
    /// An export.
    Export = 4,
    /// A job: what clients say they are used for.
    Job = 5,
    /// An operation of the protocol, at a client: its exchanges with servers.
    Exchange = 6,
    /// An operation of the kernel on an inode by a process, at a mount that records them.
    Call = 7,
}

/// Rows of one kind.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Section {
    /// What each row is about.
    pub by: By,
    /// Their labels differ.
    pub rows: Vec<Row>,
}

/// What a label says of a row.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
#[repr(u8)]
pub enum Label {
    /// The number of a lane.
    Lane = 1,
    /// The name of an operation.
    Op = 2,
    /// The uuid of a client, or [`OTHERS`].
    Client = 3,
    /// The name of a client's host.
    Host = 4,
    /// The name of an export, or [`OTHERS`]; empty for administration.
    Export = 5,
    /// The name of a job, or [`OTHERS`]; empty for none.
    Job = 6,
    /// The number of a process or thread, or [`OTHERS`].
    Pid = 7,
    /// The number of an inode, or [`OTHERS`].
    Inode = 8,
}

/// In place of a name: all rows together that were too many.
pub const OTHERS: &str = "others";

/// Values with the same labels.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Row {
    /// What they are about.
    pub labels: Vec<(Label, String)>,
    /// At most one of each metric.
    pub values: Vec<(Metric, Value)>,
}

/// A value of a [`Metric`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Value {
    /// Of a counter or a gauge.
    Number(u64),
    /// Of a histogram.
    Histogram(Histogram),
}

/// One value with everything that tells it from others.
#[derive(Clone, Copy, Debug)]
pub struct Sample<'a> {
    /// The section that it is in.
    pub by: By,
    /// The labels of its row.
    pub labels: &'a [(Label, String)],
    /// What is counted.
    pub metric: Metric,
    /// The value.
    pub value: &'a Value,
}

impl By {
    /// All, in the order of a snapshot.
    pub const ALL: [Self; 7] =
        [Self::Lane, Self::Op, Self::Client, Self::Export, Self::Job, Self::Exchange, Self::Call];

    /// Its name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Lane => "lane",
            Self::Op => "op",
            Self::Client => "client",
            Self::Export => "export",
            Self::Job => "job",
            Self::Exchange => "exchange",
            Self::Call => "call",
        }
    }

    fn from_number(number: u16) -> Option<Self> {
        Self::ALL.into_iter().find(|by| *by as u16 == number)
    }
}

impl Label {
    /// All.
    pub const ALL: [Self; 8] = [
        Self::Lane,
        Self::Op,
        Self::Client,
        Self::Host,
        Self::Export,
        Self::Job,
        Self::Pid,
        Self::Inode,
    ];

    /// Its name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Lane => "lane",
            Self::Op => "op",
            Self::Client => "client",
            Self::Host => "host",
            Self::Export => "export",
            Self::Job => "job",
            Self::Pid => "pid",
            Self::Inode => "inode",
        }
    }

    fn from_number(number: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|label| *label as u8 == number)
    }
}

impl Row {
    /// The text of a label.
    #[must_use]
    pub fn label(&self, label: Label) -> Option<&str> {
        self.labels.iter().find(|(at, _)| *at == label).map(|(_, text)| text.as_str())
    }

    /// The value of a metric; `None`: the server does not count it.
    #[must_use]
    pub fn value(&self, metric: Metric) -> Option<&Value> {
        self.values.iter().find(|(at, _)| *at == metric).map(|(_, value)| value)
    }

    /// The number of a counter or gauge.
    #[must_use]
    pub fn number(&self, metric: Metric) -> Option<u64> {
        match self.value(metric)? {
            Value::Number(number) => Some(*number),
            Value::Histogram(_) => None,
        }
    }

    /// The histogram of a metric.
    #[must_use]
    pub fn histogram(&self, metric: Metric) -> Option<&Histogram> {
        match self.value(metric)? {
            Value::Histogram(histogram) => Some(histogram),
            Value::Number(_) => None,
        }
    }

    /// Sets a value. Values stay in the order of their metrics.
    pub fn set(&mut self, metric: Metric, value: Value) {
        match self.values.binary_search_by_key(&metric, |(at, _)| *at) {
            Ok(index) => self.values[index].1 = value,
            Err(index) => self.values.insert(index, (metric, value)),
        }
    }

    /// Sets several numbers.
    pub fn set_numbers(&mut self, numbers: &[(Metric, u64)]) {
        numbers.iter().for_each(|(metric, number)| self.set(*metric, Value::Number(*number)));
    }

    /// Adds the values of another row, by the metrics' [`Merge`].
    pub fn merge(&mut self, other: &Self) {
        for (metric, value) in &other.values {
            match self.values.iter_mut().find(|(at, _)| at == metric) {
                Some((_, mine)) => mine.merge(*metric, value),
                None => self.set(*metric, value.clone()),
            }
        }
    }

    /// What was counted since an earlier row; gauges stay as they are.
    #[must_use]
    pub fn since(&self, before: &Self) -> Self {
        let since = |(metric, value): &(Metric, Value)| match before.value(*metric) {
            Some(earlier) => (*metric, value.since(*metric, earlier)),
            None => (*metric, value.clone()),
        };
        Self { labels: self.labels.clone(), values: self.values.iter().map(since).collect() }
    }
}

impl Value {
    fn merge(&mut self, metric: Metric, other: &Self) {
        match (self, other) {
            (Self::Number(mine), Self::Number(other)) => {
                *mine = match metric.row().merge {
                    Merge::Sum => mine.saturating_add(*other),
                    Merge::Max | Merge::Same => (*mine).max(*other),
                };
            }
            (Self::Histogram(mine), Self::Histogram(other)) => mine.merge(other),
            // A metric has one kind.
            (Self::Number(_), Self::Histogram(_)) | (Self::Histogram(_), Self::Number(_)) => {}
        }
    }

    fn since(&self, metric: Metric, before: &Self) -> Self {
        match (self, before) {
            (Self::Number(now), Self::Number(before)) if metric.row().kind == Kind::Counter => {
                // A server that was started again in between counts from 0.
                Self::Number(now.checked_sub(*before).unwrap_or(*now))
            }
            (Self::Histogram(now), Self::Histogram(before)) => Self::Histogram(now.since(before)),
            (Self::Number(_) | Self::Histogram(_), Self::Number(_) | Self::Histogram(_)) => {
                self.clone()
            }
        }
    }
}

impl Snapshot {
    /// The rows of a section; none if the server does not count that.
    #[must_use]
    pub fn rows(&self, by: By) -> &[Row] {
        self.sections.iter().find(|section| section.by == by).map_or(&[], |section| &section.rows)
    }

    /// All values, in order.
    pub fn samples(&self) -> impl Iterator<Item = Sample<'_>> {
        self.sections.iter().flat_map(|Section { by, rows }| {
            rows.iter().flat_map(|Row { labels, values }| {
                values.iter().map(|(metric, value)| Sample {
                    by: *by,
                    labels,
                    metric: *metric,
                    value,
                })
            })
        })
    }

    /// Several lanes as one: rows with the same labels become one row, and the lanes' own rows one
    /// without a label.
    #[must_use]
    pub fn total<'a>(lanes: impl IntoIterator<Item = &'a Self>) -> Self {
        let mut total = Self::default();
        for Section { by, rows } in lanes.into_iter().flat_map(|lane| &lane.sections) {
            let section = total.section_mut(*by);
            for row in rows {
                let is_lane = |label: &Label| *label == Label::Lane;
                let labels: Vec<(Label, String)> =
                    row.labels.iter().filter(|(label, _)| !is_lane(label)).cloned().collect();
                match section.rows.iter_mut().find(|mine| mine.labels == labels) {
                    Some(mine) => mine.merge(row),
                    None => section.rows.push(Row { labels, values: row.values.clone() }),
                }
            }
        }
        total.sections.sort_by_key(|section| section.by);
        total
    }

    /// What was counted since an earlier snapshot of the same lanes. Rows that were not there then
    /// count from 0.
    #[must_use]
    pub fn since(&self, before: &Self) -> Self {
        let since = |section: &Section| {
            let earlier = before.rows(section.by);
            let rows = section.rows.iter().map(|row| {
                let same = earlier.iter().find(|earlier| earlier.labels == row.labels);
                same.map_or_else(|| row.clone(), |same| row.since(same))
            });
            Section { by: section.by, rows: rows.collect() }
        };
        Self { sections: self.sections.iter().map(since).collect() }
    }

    /// The section of a kind, made if there is none.
    pub fn section_mut(&mut self, by: By) -> &mut Section {
        let found = self.sections.iter().position(|section| section.by == by);
        let index = found.unwrap_or_else(|| {
            self.sections.push(Section { by, rows: Vec::new() });
            self.sections.len() - 1
        });
        &mut self.sections[index]
    }
}
