//! A server's counters in Prometheus's text format, version 0.0.4.
//!
//! Names follow Prometheus's conventions: seconds and bytes, `_total` of what rises. Invariant: a name has the
//! same labels everywhere, so that sums of it count nothing twice. So what operations count is not said of
//! lanes again, and clients, exports and jobs have names of their own.

use library::Snapshot;
use library::counters::{
    By, Histogram, Kind, Label, Merge, Metric, MetricRow, Sample, Unit, Value,
};
use std::collections::BTreeMap;
use std::fmt::Write as _;

/// Upper bounds of buckets in microseconds: powers of four, up to a minute.
const BOUNDS_US: [u64; 14] = {
    let mut bounds = [1; 14];
    let mut index = 1;
    while index < bounds.len() {
        bounds[index] = bounds[index - 1] * 4;
        index += 1;
    }
    bounds
};

const BUILD: &str = "\
# HELP lanefs_build_info The version that serves
# TYPE lanefs_build_info gauge
";

/// All samples of a name.
struct Family {
    row: &'static MetricRow,
    lines: String,
}

/// The counters of all lanes, in their order, of a server of this version.
pub(super) fn exposition(version: &str, lanes: &[Snapshot]) -> String {
    let mut families: BTreeMap<String, Family> = BTreeMap::new();
    for (lane_no, snapshot) in lanes.iter().enumerate() {
        for sample in snapshot.samples() {
            let row = sample.metric.row();
            // Each lane says the same of the process.
            let is_process = row.merge == Merge::Same;
            if is_repeated(&sample) || is_process && lane_no > 0 {
                continue;
            }
            let name = name_of(sample.by, row);
            let labels = labels_of(&sample, (!is_process).then_some(lane_no));
            let family =
                families.entry(name.clone()).or_insert(Family { row, lines: String::new() });
            put(&mut family.lines, &name, &labels, (row.unit, sample.value));
        }
    }
    let mut text = String::from(BUILD);
    line(&mut text, "lanefs_build_info", &[label("version", version)], "1");
    for (name, Family { row, lines }) in families {
        let kind = match row.kind {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
            Kind::Histogram => "histogram",
        };
        text.push_str(&format!("# HELP {name} {}\n# TYPE {name} {kind}\n{lines}", help(row)));
    }
    text
}

/// Whether the rows of operations say it of a lane, too.
fn is_repeated(sample: &Sample<'_>) -> bool {
    use Metric::{InBytes, OutBytes, RequestTime, Requests};
    let of_requests = matches!(sample.metric, Requests | InBytes | OutBytes | RequestTime);
    sample.by == By::Lane && (of_requests || sample.metric.row().name == "errors")
}

fn name_of(by: By, row: &MetricRow) -> String {
    let of = match by {
        By::Lane | By::Op => "",
        By::Client => "client_",
        By::Export => "export_",
        By::Job => "job_",
        By::Exchange => "exchange_",
        By::Call => "call_",
    };
    let unit = match row.unit {
        Unit::Count | Unit::Bytes => None,
        Unit::Nanoseconds => Some("ns"),
        Unit::Microseconds => Some("us"),
        Unit::Milliseconds => Some("ms"),
    };
    let words = row.name.split('_').map(|word| if Some(word) == unit { "seconds" } else { word });
    let name = words.collect::<Vec<_>>().join("_");
    let total = if row.kind == Kind::Counter { "_total" } else { "" };
    format!("lanefs_{of}{name}{total}")
}

/// What is said of all samples of a name, where its metrics differ in a label.
fn help(row: &MetricRow) -> &'static str {
    match row.name {
        "errors" => "Requests answered with an error, by what a person would do about it",
        "phase_us" => "Time of requests in each phase",
        "deferred" => "Replies deferred until a change was durable, by whose",
        "waits" => "Requests, replies and steps that waited, by cause",
        "waiting" => "Requests, replies and steps that wait, by cause",
        "leases_refused" => "Leases not granted, by reason",
        "context_switches" => "Context switches of the process",
        "peer_messages" => "Messages between the lanes",
        "recalled" => "Leases recalled from this client, by kind",
        "behind_writes" => "Writes that were answered before the server executed them, by outcome",
        "behind_written_bytes" => "Their bytes, by outcome",
        "behind_names" => {
            "Files created and names removed before the server did it, and those lost"
        }
        "recovery_clients" => "Clients of the recovery of this start, by what became of them",
        "replays" => "Replays of the recovery of this start, by outcome",
        _ => row.help,
    }
}

/// The labels of a sample, as they stand in a line.
fn labels_of(sample: &Sample<'_>, lane_no: Option<usize>) -> Vec<String> {
    let lane = lane_no.map(|lane_no| label("lane", &lane_no.to_string()));
    let named = sample.labels.iter().filter(|(at, _)| *at != Label::Lane);
    let named = named.map(|(at, text)| label(at.name(), text));
    let own = sample.metric.row().label.map(|(name, text)| label(name, text));
    lane.into_iter().chain(named).chain(own).collect()
}

fn label(name: &str, text: &str) -> String {
    let text = text.replace('\\', r"\\").replace('\n', r"\n").replace('"', "\\\"");
    format!("{name}=\"{text}\"")
}

fn put(to: &mut String, name: &str, labels: &[String], (unit, value): (Unit, &Value)) {
    match value {
        Value::Number(number) => line(to, name, labels, &number_text(unit, *number)),
        Value::Histogram(histogram) => put_histogram(to, name, labels, histogram),
    }
}

fn line(to: &mut String, name: &str, labels: &[String], value: &str) {
    let labels =
        if labels.is_empty() { String::new() } else { format!("{{{}}}", labels.join(",")) };
    // A string takes everything.
    writeln!(to, "{name}{labels} {value}").ok();
}

fn number_text(unit: Unit, number: u64) -> String {
    let parts_a_second = match unit {
        Unit::Count | Unit::Bytes => return number.to_string(),
        Unit::Nanoseconds => 1_000_000_000,
        Unit::Microseconds => 1_000_000,
        Unit::Milliseconds => 1000,
    };
    let digits = format!("{:09}", number % parts_a_second * (1_000_000_000 / parts_a_second));
    let fraction = digits.trim_end_matches('0');
    let whole = number / parts_a_second;
    if fraction.is_empty() { whole.to_string() } else { format!("{whole}.{fraction}") }
}

fn put_histogram(to: &mut String, name: &str, labels: &[String], histogram: &Histogram) {
    let bucket = format!("{name}_bucket");
    let mut put_bucket = |bound: &str, count: u64| {
        let with_bound = [labels, &[format!("le=\"{bound}\"")]].concat();
        line(to, &bucket, &with_bound, &count.to_string());
    };
    for bound_us in BOUNDS_US {
        let within = |last: Option<u64>| last.is_some_and(|last_us| last_us <= bound_us);
        let counts = histogram.bounds().filter(|(last, _)| within(*last)).map(|(_, count)| count);
        put_bucket(&number_text(Unit::Microseconds, bound_us), counts.sum());
    }
    put_bucket("+Inf", histogram.count());
    line(to, &format!("{name}_sum"), labels, &number_text(Unit::Microseconds, histogram.sum_us()));
    line(to, &format!("{name}_count"), labels, &histogram.count().to_string());
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use library::counters::{Row, Section};
    use std::collections::BTreeSet;

    fn section(by: By, label: (Label, &str), values: Vec<(Metric, Value)>) -> Section {
        let labels = vec![(label.0, label.1.to_owned())];
        Section { by, rows: vec![Row { labels, values }] }
    }

    fn number(metric: Metric, value: u64) -> (Metric, Value) {
        (metric, Value::Number(value))
    }

    #[test]
    fn numbers_have_units_and_labels_of_their_own() {
        let of_lane = vec![
            number(Metric::Requests, 9),
            number(Metric::WaitsLease, 3),
            number(Metric::CpuTime, 1_500_000_000),
            number(Metric::TurnTimeMax, 2_000),
        ];
        let of_op = vec![number(Metric::Requests, 9), number(Metric::RequestTime, 2_000_000)];
        let of_export = vec![number(Metric::Requests, 9)];
        let sections = vec![
            section(By::Lane, (Label::Lane, "0"), of_lane),
            section(By::Op, (Label::Op, "lookup"), of_op),
            section(By::Export, (Label::Export, "a\"b"), of_export),
        ];
        let one = Snapshot { sections };
        let text = exposition("0.1", &[one.clone(), one]);
        let lines: Vec<&str> = text.lines().filter(|line| !line.starts_with('#')).collect();
        assert_eq!(
            lines,
            [
                "lanefs_build_info{version=\"0.1\"} 1",
                "lanefs_cpu_seconds_total 1.5",
                "lanefs_export_requests_total{lane=\"0\",export=\"a\\\"b\"} 9",
                "lanefs_export_requests_total{lane=\"1\",export=\"a\\\"b\"} 9",
                "lanefs_request_seconds_total{lane=\"0\",op=\"lookup\"} 2",
                "lanefs_request_seconds_total{lane=\"1\",op=\"lookup\"} 2",
                "lanefs_requests_total{lane=\"0\",op=\"lookup\"} 9",
                "lanefs_requests_total{lane=\"1\",op=\"lookup\"} 9",
                "lanefs_turn_seconds_max{lane=\"0\"} 0.000002",
                "lanefs_turn_seconds_max{lane=\"1\"} 0.000002",
                "lanefs_waits_total{lane=\"0\",cause=\"lease\"} 3",
                "lanefs_waits_total{lane=\"1\",cause=\"lease\"} 3",
            ]
        );
        assert_eq!(text.matches("# HELP ").count(), 7);
        assert!(text.contains("# TYPE lanefs_turn_seconds_max gauge\n"));
    }

    #[test]
    fn a_histogram_counts_up_to_each_bound() {
        let mut histogram = Histogram::default();
        [0, 3, 100, 5_000_000].into_iter().for_each(|us| histogram.record(us));
        let value = vec![(Metric::QueueTime, Value::Histogram(histogram))];
        let sections = vec![section(By::Op, (Label::Op, "read"), value)];
        let text = exposition("", &[Snapshot { sections }]);
        let labels = "lane=\"0\",op=\"read\",phase=\"queue\"";
        for (bound, count) in
            [("0.000001", 1), ("0.000004", 2), ("0.000064", 2), ("0.000256", 3), ("+Inf", 4)]
        {
            let line = format!("lanefs_phase_seconds_bucket{{{labels},le=\"{bound}\"}} {count}\n");
            assert!(text.contains(&line), "{line}{text}");
        }
        assert!(text.contains(&format!("lanefs_phase_seconds_sum{{{labels}}} 5.000103\n")));
        assert!(text.contains(&format!("lanefs_phase_seconds_count{{{labels}}} 4\n")));
    }

    #[test]
    fn what_differs_in_a_label_has_one_description_for_all() {
        let mut seen = BTreeSet::new();
        let repeated: BTreeSet<&str> = Metric::ALL
            .iter()
            .map(|metric| metric.row())
            .filter(|row| row.label.is_some() && !seen.insert(row.name))
            .map(|row| row.name)
            .collect();
        for row in Metric::ALL.iter().map(|metric| metric.row()) {
            let is_own = help(row) == row.help;
            assert_eq!(is_own, !repeated.contains(row.name), "{}", row.name);
        }
    }
}
