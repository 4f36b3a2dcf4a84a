//! Counters as tables.

use crate::files::human;
use crate::table::{self, Column, time};
use library::counters::{By, Kind, Label, Metric, Row, StatusClass, Unit, Value};
use std::time::Duration;

/// Columns of times: how they are headed, and what is in them.
type Times = &'static [(&'static str, Metric)];

/// The phases of an operation of a server.
const PHASES: Times = &[
    ("QUEUE", Metric::QueueTime),
    ("EXECUTION", Metric::ExecutionTime),
    ("COMMIT", Metric::CommitTime),
];

/// Of an operation of the kernel at a mount.
const REPLY: Times = &[("TIME", Metric::ReplyTime)];

/// Of an operation that a mount asks its server for.
const EXCHANGE: Times = &[("TIME", Metric::ExchangeTime)];

/// Writes a section. With `elapsed` its counters are rates.
pub(super) fn put(out: &mut String, by: By, rows: &[Row], elapsed: Option<Duration>) {
    let lines = if by == By::Lane { lanes(rows, elapsed) } else { requests(by, rows, elapsed) };
    put_table(out, &lines);
}

/// A line a row.
fn requests(by: By, rows: &[Row], elapsed: Option<Duration>) -> Vec<Vec<String>> {
    let labels: &[Label] = match by {
        By::Lane => &[Label::Lane],
        By::Op | By::Exchange => &[Label::Op],
        By::Client => &[Label::Client, Label::Host, Label::Export, Label::Job],
        By::Export => &[Label::Export],
        By::Job => &[Label::Job],
        By::Call => &[Label::Op, Label::Pid, Label::Inode],
    };
    let counted = if elapsed.is_some() { "REQUESTS/S" } else { "REQUESTS" };
    let per_s = if elapsed.is_some() { "/S" } else { "" };
    // A client sends the requests.
    let directions = if by == By::Exchange { ["SENT", "RECEIVED"] } else { ["RECEIVED", "SENT"] };
    let mut head: Vec<String> = labels.iter().map(|label| label.name().to_uppercase()).collect();
    if by == By::Exchange {
        head = vec![by.name().to_uppercase()];
    }
    head.extend([counted, "ERRORS"].map(str::to_owned));
    head.extend(directions.map(|direction| format!("{direction}{per_s}")));
    let has = |metric| rows.iter().any(|row| row.value(metric).is_some());
    let is_alone = by == By::Op && has(Metric::AnsweredAlone);
    if is_alone {
        head.push("ALONE".to_owned());
    }
    let times = match by {
        By::Op if is_alone => REPLY,
        By::Op => PHASES,
        By::Exchange => EXCHANGE,
        By::Lane | By::Client | By::Export | By::Job | By::Call => &[],
    };
    head.extend(times.iter().map(|(name, _)| format!("{name} p50/p99")));
    if times.len() < PHASES.len() {
        head.push("MEAN TIME".to_owned());
    }
    let line = |row: &Row| {
        let number = |metric| rate(row.number(metric), (Unit::Count, elapsed));
        let bytes = |metric| rate(row.number(metric), (Unit::Bytes, elapsed));
        let mut line: Vec<String> =
            labels.iter().map(|label| name(row.label(*label).unwrap_or("-"))).collect();
        line.extend([number(Metric::Requests), errors(row)]);
        line.extend([bytes(Metric::InBytes), bytes(Metric::OutBytes)]);
        if is_alone {
            line.push(share(row));
        }
        line.extend(times.iter().map(|(_, metric)| quantiles(row, *metric)));
        if times.len() < PHASES.len() {
            line.push(mean(row));
        }
        line
    };
    // Of an interval: what happened in it.
    let happened =
        |row: &&Row| elapsed.is_none() || row.number(Metric::Requests).is_none_or(|it| it > 0);
    std::iter::once(head).chain(rows.iter().filter(happened).map(line)).collect()
}

/// A line a metric, a column a lane.
fn lanes(rows: &[Row], elapsed: Option<Duration>) -> Vec<Vec<String>> {
    let head = ["COUNTER".to_owned()].into_iter().chain(rows.iter().map(|row| {
        row.label(Label::Lane).map_or_else(|| "ALL".to_owned(), |lane| format!("LANE {lane}"))
    }));
    let metrics = Metric::ALL.iter().filter(|metric| {
        let counts = |value: &Value| match value {
            Value::Number(number) => *number > 0,
            Value::Histogram(times) => times.count() > 0,
        };
        rows.iter().any(|row| row.value(**metric).is_some_and(counts))
    });
    let lines = metrics.map(|metric| {
        let (about, elapsed) =
            (metric.row(), elapsed.filter(|_| metric.row().kind == Kind::Counter));
        let label = about.label.map(|(_, text)| format!(" {text}")).unwrap_or_default();
        let unit = match about.kind {
            Kind::Histogram => " p50/p99",
            Kind::Counter | Kind::Gauge if elapsed.is_some() => "/s",
            Kind::Counter | Kind::Gauge => "",
        };
        let named = format!("{}{label}{unit}", about.name);
        let numbers = rows.iter().map(|row| match about.kind {
            Kind::Histogram => quantiles(row, *metric),
            Kind::Counter | Kind::Gauge => rate(row.number(*metric), (about.unit, elapsed)),
        });
        std::iter::once(named).chain(numbers).collect()
    });
    std::iter::once(head.collect()).chain(lines).collect()
}

/// A number, or that many in a second. What a server does not count is a dash.
fn rate(number: Option<u64>, (unit, elapsed): (Unit, Option<Duration>)) -> String {
    let Some(number) = number else { return "-".to_owned() };
    let number = match elapsed.map(|elapsed| elapsed.as_nanos().max(1)) {
        Some(elapsed_ns) => {
            let per_s = (u128::from(number) * 1_000_000_000 + elapsed_ns / 2) / elapsed_ns;
            u64::try_from(per_s).unwrap_or(u64::MAX)
        }
        None => number,
    };
    match unit {
        Unit::Bytes => human(number),
        Unit::Count | Unit::Nanoseconds | Unit::Microseconds | Unit::Milliseconds => {
            number.to_string()
        }
    }
}

/// The number of errors of all classes, and the most frequent class.
fn errors(row: &Row) -> String {
    let counted = StatusClass::ALL.map(|class| {
        let text = class.metric().row().label.map_or("", |(_, text)| text);
        (row.number(class.metric()), text)
    });
    if counted.iter().all(|(number, _)| number.is_none()) {
        return "-".to_owned();
    }
    let sum: u64 = counted.iter().filter_map(|(number, _)| *number).sum();
    match counted.iter().max_by_key(|(number, _)| *number) {
        Some((Some(most), text)) if *most > 0 => format!("{sum} ({text})"),
        Some(_) | None => sum.to_string(),
    }
}

fn quantiles(row: &Row, metric: Metric) -> String {
    let Some(Value::Histogram(times)) = row.value(metric) else { return "-".to_owned() };
    let quantile = |part| times.quantile_us(part, 100).map_or_else(|| "-".to_owned(), time);
    format!("{}/{}", quantile(50), quantile(99))
}

/// The share of requests that waited for no exchange.
fn share(row: &Row) -> String {
    let (alone, all) = (row.number(Metric::AnsweredAlone), row.number(Metric::Requests));
    let share = alone.zip(all).and_then(|(alone, all)| alone.saturating_mul(100).checked_div(all));
    share.map_or_else(|| "-".to_owned(), |share| format!("{share}%"))
}

fn mean(row: &Row) -> String {
    let (time_us, count) = (row.number(Metric::RequestTime), row.number(Metric::Requests));
    let mean = time_us.zip(count).and_then(|(time_us, count)| time_us.checked_div(count));
    mean.map_or_else(|| "-".to_owned(), time)
}

/// A name in a table: an empty one is a dash, and control characters are shown as such.
fn name(text: &str) -> String {
    if text.is_empty() { "-".to_owned() } else { text.escape_debug().to_string() }
}

/// Names to the left, numbers to the right.
fn put_table(out: &mut String, lines: &[Vec<String>]) {
    let names = Label::ALL.map(|label| label.name().to_uppercase());
    let head = lines.first();
    table::put(out, lines, |column| {
        let is_name = head.and_then(|head| head.get(column)).is_some_and(|it| names.contains(it));
        if column == 0 || is_name { Column::Text } else { Column::Number }
    });
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use library::counters::Histogram;

    fn row(label: Label, text: &str, numbers: &[(Metric, u64)]) -> Row {
        let mut row = Row { labels: vec![(label, text.to_owned())], values: Vec::new() };
        for (metric, number) in numbers {
            row.set(*metric, Value::Number(*number));
        }
        row
    }

    #[test]
    fn an_operation_is_a_line() {
        let mut read = row(
            Label::Op,
            "read",
            &[
                (Metric::Requests, 3000),
                (Metric::ErrorsAbsent, 2),
                (Metric::ErrorsDenied, 3),
                (Metric::InBytes, 96_000),
                (Metric::OutBytes, 4 << 20),
            ],
        );
        let mut times = Histogram::default();
        times.record_zeros(98);
        (0..2).for_each(|_| times.record(20_000));
        read.set(Metric::QueueTime, Value::Histogram(times));
        let mut out = String::new();
        put(&mut out, By::Op, &[read.clone()], None);
        let expected = "\
OP    REQUESTS      ERRORS  RECEIVED  SENT  QUEUE p50/p99  EXECUTION p50/p99  COMMIT p50/p99
read      3000  5 (denied)       94K  4.0M       0us/20ms                  -               -
";
        assert_eq!(out, expected);
        let mut out = String::new();
        put(&mut out, By::Op, &[read], Some(Duration::from_millis(1500)));
        assert!(out.contains("REQUESTS/S"), "{out}");
        assert!(out.lines().nth(1).unwrap().contains("read        2000"), "{out}");
    }

    #[test]
    fn operations_of_a_mount_have_one_time_and_the_share_that_waited_for_nobody() {
        let numbers = [(Metric::Requests, 200), (Metric::AnsweredAlone, 50)];
        let mut read = row(Label::Op, "read", &numbers);
        read.set(Metric::RequestTime, Value::Number(200_000));
        let mut times = Histogram::default();
        (0..200).for_each(|_| times.record(1_000));
        read.set(Metric::ReplyTime, Value::Histogram(times.clone()));
        let mut out = String::new();
        put(&mut out, By::Op, &[read], None);
        let expected = "\
OP    REQUESTS  ERRORS  RECEIVED  SENT  ALONE   TIME p50/p99  MEAN TIME
read       200       -         -     -    25%  1023us/1023us     1000us
";
        assert_eq!(out, expected);
        let mut sent = row(Label::Op, "read", &[(Metric::Requests, 200), (Metric::InBytes, 9)]);
        sent.set(Metric::ExchangeTime, Value::Histogram(times));
        let mut out = String::new();
        put(&mut out, By::Exchange, &[sent], None);
        let expected = "\
EXCHANGE  REQUESTS  ERRORS  SENT  RECEIVED   TIME p50/p99  MEAN TIME
read           200       -     9         -  1023us/1023us          -
";
        assert_eq!(out, expected);
    }

    #[test]
    fn a_lane_is_a_column_and_counters_alone_are_rates() {
        let numbers = [(Metric::Requests, 10), (Metric::Connections, 3), (Metric::Tokens, 0)];
        let lanes = [row(Label::Lane, "0", &numbers), row(Label::Lane, "1", &numbers)];
        let mut out = String::new();
        put(&mut out, By::Lane, &lanes, Some(Duration::from_secs(5)));
        let expected = "\
COUNTER      LANE 0  LANE 1
requests/s        2       2
connections       3       3
";
        assert_eq!(out, expected);
    }

    #[test]
    fn what_a_server_does_not_count_is_a_dash() {
        let mut out = String::new();
        put(&mut out, By::Job, &[row(Label::Job, "", &[(Metric::Requests, 1)])], None);
        let line: Vec<&str> = out.lines().nth(1).unwrap().split_whitespace().collect();
        assert_eq!(line, ["-", "1", "-", "-", "-", "-"]);
    }
}
