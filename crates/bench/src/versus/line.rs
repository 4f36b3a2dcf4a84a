//! A line of the output: one row of one directory, from the samples of its rounds.

use super::workload::{NAME, Sample, Workload};
use crate::number::number;
use crate::rounds::{median, spread};
use comfy_table::presets::ASCII_MARKDOWN;
use comfy_table::{CellAlignment, ContentArrangement, Table};
use serde::Serialize;
use std::collections::BTreeMap;
use std::time::Duration;

/// A row of one directory.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Line {
    /// The benchmark.
    pub bench: &'static str,
    /// The row.
    pub row: &'static str,
    /// The directory's name.
    pub directory: String,
    /// Operations of one round.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub op_count: Option<u64>,
    /// What they are.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unit: Option<&'static str>,
    /// Names that were made, removed, listed or looked up in one round.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name_count: Option<u64>,
    /// Bytes that were moved and compared in one round.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub byte_count: Option<u64>,
    /// Time of one operation, microseconds: the median over the rounds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub us_per_op: Option<f64>,
    /// 10^6 bytes a second, the median.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mb_per_s: Option<f64>,
    /// (greatest − least) / median of the times.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub spread: Option<f64>,
    /// Time to that of the directory `baseline`, round by round, the median: above 1 is slower.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ratio: Option<f64>,
    /// The directory that the others are compared with.
    pub baseline: String,
    /// Times of one operation in all rounds, microseconds.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub rounds_us: Vec<f64>,
    /// What must not happen, and how often it did in all rounds together.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub anomalies: BTreeMap<&'static str, u64>,
    /// How it was measured.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub note: Option<&'static str>,
    /// Why it was not measured.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failure: Option<String>,
}

impl Line {
    /// Of the samples of all rounds, with those of the baseline.
    pub(super) fn measured(
        workload: &Workload,
        (name, baseline): (&str, &str),
        samples: &[Sample],
        baseline_samples: &[Sample],
    ) -> Self {
        let mut line = Self::empty(workload, name, baseline);
        line.rounds_us = samples.iter().map(us_per_op).collect();
        line.us_per_op = median(&line.rounds_us);
        line.spread = spread(&line.rounds_us);
        let pairs = samples.iter().zip(baseline_samples);
        let ratios: Vec<f64> =
            pairs.map(|(one, other)| us_per_op(one) / us_per_op(other)).collect();
        line.ratio = median(&ratios);
        let rates: Option<Vec<f64>> = samples.iter().map(mb_per_s).collect();
        line.mb_per_s = rates.as_deref().and_then(median);
        if let Some(first) = samples.first() {
            line.op_count = Some(first.op_count);
            line.unit = Some(first.unit);
            (line.name_count, line.byte_count) = (first.name_count, first.byte_count);
            line.note = first.note;
        }
        for (what, count) in samples.iter().flat_map(|sample| &sample.anomalies) {
            *line.anomalies.entry(*what).or_default() += count;
        }
        line
    }

    /// Of a row that could not be measured.
    pub(super) fn failed(
        workload: &Workload,
        (name, baseline): (&str, &str),
        failure: String,
    ) -> Self {
        Self { failure: Some(failure), ..Self::empty(workload, name, baseline) }
    }

    fn empty(workload: &Workload, name: &str, baseline: &str) -> Self {
        Self {
            bench: NAME,
            row: workload.name,
            directory: name.to_owned(),
            op_count: None,
            unit: None,
            name_count: None,
            byte_count: None,
            us_per_op: None,
            mb_per_s: None,
            spread: None,
            ratio: None,
            baseline: baseline.to_owned(),
            rounds_us: Vec::new(),
            anomalies: BTreeMap::new(),
            note: None,
            failure: None,
        }
    }

    /// What one round did.
    fn did(&self) -> String {
        let mut parts = Vec::new();
        if let (Some(count), Some(unit)) = (self.op_count, self.unit) {
            parts.push(format!("{count} {unit}"));
        }
        parts.extend(self.name_count.map(|count| format!("{count} names")));
        parts.extend(self.byte_count.map(|count| format!("{:.1} MB", number(count) / 1e6)));
        parts.join(", ")
    }

    fn remark(&self) -> String {
        let anomalies = self.anomalies.iter().map(|(what, count)| format!("{count} {what}"));
        let texts = self.failure.iter().cloned().chain(self.note.map(str::to_owned));
        texts.chain(anomalies).collect::<Vec<_>>().join(", ")
    }
}

/// A line's table: eight columns, however many directories there are.
#[must_use]
pub fn lines_table(lines: &[Line]) -> String {
    let baseline = lines.first().map_or("", |line| line.baseline.as_str());
    let mut table = Table::new();
    table.load_style(ASCII_MARKDOWN).set_content_arrangement(ContentArrangement::Disabled);
    let to_baseline = format!("to {baseline}");
    table.set_header(["row", "directory", "did", "time", "MB/s", "spread", &to_baseline, "note"]);
    let with_digits = |value: Option<f64>, digits: usize| {
        value.map_or_else(String::new, |value| format!("{value:.digits$}"))
    };
    for line in lines {
        table.add_row([
            line.row.to_owned(),
            line.directory.clone(),
            line.did(),
            line.us_per_op.map_or_else(String::new, time_text),
            with_digits(line.mb_per_s, 0),
            with_digits(line.spread, 2),
            with_digits(line.ratio, 2),
            line.remark(),
        ]);
    }
    for index in 3..=6 {
        if let Some(column) = table.column_mut(index) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    table.to_string()
}

/// Three digits at least, in a unit that fits.
fn time_text(us: f64) -> String {
    let (value, unit) = match us {
        us if us < 1e3 => (us, "µs"),
        us if us < 1e6 => (us / 1e3, "ms"),
        us => (us / 1e6, "s"),
    };
    let digits = if value < 10.0 { 2 } else { usize::from(value < 100.0) };
    format!("{value:.digits$} {unit}")
}

/// No time is shorter than the clock can tell, so that every ratio is a number.
fn us_per_op(sample: &Sample) -> f64 {
    let elapsed = sample.elapsed.max(Duration::from_nanos(1));
    elapsed.as_secs_f64() * 1e6 / number(sample.op_count.max(1))
}

fn mb_per_s(sample: &Sample) -> Option<f64> {
    let elapsed = sample.elapsed.max(Duration::from_nanos(1));
    Some(number(sample.byte_count?) / 1e6 / elapsed.as_secs_f64())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn sample(ms: u64) -> Sample {
        let mut sample = Sample::new(Duration::from_millis(ms), 10, "reads").bytes(1_000_000);
        sample.anomalies = vec![("stale", 2)];
        sample
    }

    const WORKLOAD: Workload = Workload::calls("row", |_, _| anyhow::bail!("not run"));

    #[test]
    fn a_line_has_medians_and_ratios_round_by_round() {
        let (ours, baseline) = ([sample(10), sample(20), sample(90)], [10, 10, 30].map(sample));
        let line = Line::measured(&WORKLOAD, ("one", "other"), &ours, &baseline);
        assert_eq!(line.us_per_op, Some(2000.0));
        assert_eq!((line.ratio, line.spread), (Some(2.0), Some(4.0)));
        assert_eq!(line.mb_per_s, Some(50.0));
        assert_eq!(line.anomalies["stale"], 6);
        assert_eq!(line.did(), "10 reads, 1.0 MB");
    }

    #[test]
    fn a_table_has_eight_columns_and_says_what_failed() {
        let failed = Line::failed(&WORKLOAD, ("one", "other"), "not installed: git".to_owned());
        let text = lines_table(&[failed]);
        assert!(text.lines().all(|line| line.matches('|').count() == 9), "{text}");
        assert!(text.contains("to other") && text.contains("not installed: git"), "{text}");
    }

    #[test]
    fn times_have_a_unit_that_fits() {
        let texts = [0.456, 12.34, 456.7, 1500.0, 2_500_000.0].map(time_text);
        assert_eq!(texts, ["0.46 µs", "12.3 µs", "457 µs", "1.50 ms", "2.50 s"]);
    }
}
