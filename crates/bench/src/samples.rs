//! Makes rows of samples: medians, percentiles over all of them, ratios pair by pair.

use crate::load::Tally;
use crate::number::number;
use crate::rounds::{median, spread};
use crate::row::Row;
use crate::usage::Usage;
use hdrhistogram::Histogram;
use std::time::Duration;

/// The result of one repetition.
#[derive(Clone, Debug)]
pub(crate) struct Sample {
    pub(crate) tally: Tally,
    /// Of the server's process; `None` for a remote server without counters.
    pub(crate) usage: Option<Usage>,
    /// Part of the measured time that the generator's thread was running.
    pub(crate) busy: f64,
}

impl Sample {
    /// The measured time in seconds.
    pub(crate) fn seconds(&self) -> f64 {
        Duration::from_nanos(self.tally.measured_ns).as_secs_f64()
    }
}

/// The cost by which rows are compared.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Compare {
    /// The median latency: for one client.
    Latency,
    /// CPU time of the server per operation.
    CpuPerOp,
    /// CPU time of the server per byte.
    CpuPerByte,
    /// Operations a second; here more is better.
    Rate,
    /// The latency that 99 of 100 operations did not exceed.
    P99,
    /// The latency that 999 of 1000 operations did not exceed.
    Tail,
}

impl Compare {
    /// One client waits; many share the server's CPU.
    pub(crate) const fn ops(client_count: u32) -> Self {
        if client_count == 1 { Self::Latency } else { Self::CpuPerOp }
    }

    fn cost(self, sample: &Sample) -> Option<f64> {
        match self {
            Self::Latency => percentile_us(&sample.tally.latency, 0.5),
            Self::CpuPerOp => cpu_us_per_op(sample),
            Self::CpuPerByte => cpu_s_per_gb(sample),
            Self::Rate => ops_per_s(sample),
            Self::P99 => percentile_us(&sample.tally.latency, 0.99),
            Self::Tail => percentile_us(&sample.tally.latency, 0.999),
        }
    }
}

/// Fills a row from its samples.
pub(crate) fn fill(row: &mut Row, samples: &[Sample]) {
    let of = |pick: fn(&Sample) -> Option<f64>| {
        let values: Option<Vec<f64>> = samples.iter().map(pick).collect();
        values.and_then(|values| median(&values))
    };
    let moved = samples.iter().any(|sample| sample.tally.moved_bytes > 0);
    row.ops_per_s = of(ops_per_s);
    row.spread = values(samples, ops_per_s).and_then(|rates| spread(&rates));
    row.generator_busy = of(|sample| Some(sample.busy.min(1.0)));
    row.server_busy = of(|sample| Some(seconds(sample.usage?.cpu_ns) / sample.seconds()));
    row.switches_per_op = of(|sample| per_op(sample, sample.usage?.switch_count));
    row.cpu_us_per_op = of(cpu_us_per_op);
    row.syscalls_per_op = of(|sample| per_op(sample, sample.usage?.lanes?.syscall_count));
    row.exchanges_per_op = of(|sample| per_op(sample, sample.usage?.lanes?.request_count));
    row.hops_per_op = of(|sample| per_op(sample, sample.usage?.lanes?.message_count));
    row.clock_reads_per_turn = of(|sample| {
        let lanes = sample.usage?.lanes?;
        ratio(lanes.clock_read_count, lanes.turn_count)
    });
    row.held_replies = of(|sample| Some(number(sample.usage?.lanes?.deferred_count)));
    row.ops_per_flush = of(|sample| {
        let lanes = sample.usage?.lanes?;
        ratio(lanes.change_count, lanes.batch_count)
    });
    let changes = samples.iter().any(|sample| {
        sample.usage.and_then(|usage| usage.lanes).is_some_and(|lanes| lanes.change_count > 0)
    });
    if changes {
        row.touched_replies = of(|sample| Some(number(sample.usage?.lanes?.touched_count)));
        row.commits = of(|sample| Some(number(sample.usage?.lanes?.batch_count)));
        row.lane_cpu_us_per_op =
            of(|sample| per_op(sample, sample.usage?.threads?.lane_ns).map(|ns| ns / 1e3));
        row.applier_cpu_us_per_op =
            of(|sample| per_op(sample, sample.usage?.threads?.applier_ns).map(|ns| ns / 1e3));
        let turns = samples.iter().filter_map(|sample| Some(sample.usage?.lanes?.turn_ns_max));
        row.turn_max_us = turns.max().filter(|ns| *ns > 0).map(|ns| number(ns) / 1e3);
    }
    if moved {
        row.mb_per_s = of(|sample| Some(megabytes(sample) / sample.seconds()));
        row.switches_per_mb =
            of(|sample| Some(number(sample.usage?.switch_count) / megabytes(sample)));
        row.syscalls_per_mb =
            of(|sample| Some(number(sample.usage?.lanes?.syscall_count) / megabytes(sample)));
        row.cpu_s_per_gb = of(cpu_s_per_gb);
    }
    let mut all: Option<Histogram<u64>> = None;
    for sample in samples {
        match &mut all {
            // Histograms of one shape can be joined.
            Some(all) => drop(all.add(&sample.tally.latency)),
            None => all = Some(sample.tally.latency.clone()),
        }
    }
    if let Some(all) = all.filter(|all| !all.is_empty()) {
        row.mean_us = Some(all.mean() / 1e3);
        row.p50_us = percentile_us(&all, 0.5);
        row.p99_us = percentile_us(&all, 0.99);
        row.p999_us = percentile_us(&all, 0.999);
    }
}

/// Compares with a limit of the same rounds: the median of the pairs' ratios, and their spread.
pub(crate) fn compare(
    row: &mut Row,
    samples: &[Sample],
    (limit, limit_samples): (&str, &[Sample]),
    by: Compare,
) {
    let pairs = samples.iter().zip(limit_samples);
    let ratios: Option<Vec<f64>> =
        pairs.map(|(ours, limit)| Some(by.cost(ours)? / by.cost(limit)?)).collect();
    let Some(ratios) = ratios else { return };
    row.ratio_to_limit = median(&ratios);
    row.spread = spread(&ratios);
    row.limit = Some(limit.to_owned());
}

fn values(samples: &[Sample], pick: fn(&Sample) -> Option<f64>) -> Option<Vec<f64>> {
    samples.iter().map(pick).collect()
}

fn ops_per_s(sample: &Sample) -> Option<f64> {
    Some(number(sample.tally.op_count) / sample.seconds())
}

fn cpu_us_per_op(sample: &Sample) -> Option<f64> {
    per_op(sample, sample.usage?.cpu_ns).map(|ns| ns / 1e3)
}

fn cpu_s_per_gb(sample: &Sample) -> Option<f64> {
    Some(seconds(sample.usage?.cpu_ns) / (megabytes(sample) / 1e3)).filter(|cost| cost.is_finite())
}

fn per_op(sample: &Sample, count: u64) -> Option<f64> {
    ratio(count, sample.tally.op_count)
}

fn ratio(over: u64, under: u64) -> Option<f64> {
    (under > 0).then(|| number(over) / number(under))
}

fn megabytes(sample: &Sample) -> f64 {
    number(sample.tally.moved_bytes) / 1e6
}

fn seconds(ns: u64) -> f64 {
    number(ns) / 1e9
}

fn percentile_us(latency: &Histogram<u64>, part: f64) -> Option<f64> {
    (!latency.is_empty()).then(|| number(latency.value_at_quantile(part)) / 1e3)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::load::Tally;
    use crate::usage::{LaneUsage, Usage};

    fn sample(op_count: u64, cpu_ns: u64, latency_ns: u64) -> Sample {
        let mut latency = Histogram::new(3).unwrap();
        latency.record_n(latency_ns, op_count).unwrap();
        let lanes = LaneUsage {
            syscall_count: op_count,
            turn_count: 10,
            clock_read_count: 10,
            ..LaneUsage::default()
        };
        let moved_bytes = op_count * 1_000_000;
        let tally = Tally { op_count, moved_bytes, latency, measured_ns: 2_000_000_000 };
        let switch_count = 2 * op_count;
        let usage = Some(Usage { cpu_ns, switch_count, lanes: Some(lanes), threads: None });
        Sample { tally, usage, busy: 0.5 }
    }

    #[test]
    fn a_row_is_made_of_medians() {
        let samples = [sample(10, 1_000_000, 1000), sample(20, 2_000_000, 1000)];
        let mut row = Row::new("test", "a");
        fill(&mut row, &samples);
        assert_eq!(row.ops_per_s, Some(7.5));
        assert_eq!(row.mb_per_s, Some(7.5));
        assert_eq!(row.switches_per_op, Some(2.0));
        assert_eq!(row.cpu_us_per_op, Some(100.0));
        assert_eq!(row.cpu_s_per_gb, Some(0.1));
        assert_eq!(row.clock_reads_per_turn, Some(1.0));
        assert_eq!(row.hops_per_op, Some(0.0));
        assert_eq!(row.p50_us, Some(1.0));
        assert!((row.spread.unwrap() - 5.0 / 7.5).abs() < 1e-9);
    }

    #[test]
    fn ratios_are_taken_pair_by_pair() {
        let ours = [sample(10, 2_000_000, 3000), sample(10, 30_000_000, 3000)];
        let limit = [sample(10, 1_000_000, 1000), sample(10, 10_000_000, 1000)];
        let mut row = Row::new("test", "a");
        compare(&mut row, &ours, ("limit", &limit), Compare::CpuPerOp);
        assert_eq!(row.ratio_to_limit, Some(2.5));
        compare(&mut row, &ours, ("limit", &limit), Compare::Latency);
        assert!((row.ratio_to_limit.unwrap() - 3.0).abs() < 0.01);
    }

    #[test]
    fn without_counters_nothing_is_invented() {
        let mut one = sample(10, 1, 1000);
        one.usage = None;
        let mut row = Row::new("test", "a");
        fill(&mut row, &[one.clone()]);
        compare(&mut row, &[one], ("limit", &[sample(10, 1, 1000)]), Compare::CpuPerOp);
        assert_eq!((row.cpu_us_per_op, row.ratio_to_limit), (None, None));
        assert!(row.ops_per_s.is_some());
    }
}
