//! A profile as a table and as JSON.

use super::uses::{Recorded, Use};
use crate::files::human;
use crate::table::{self, Column};
use anyhow::Result;
use library::counters::{Metric, Row, StatusClass};
use serde_json::{Map, Value as Json, json};
use std::time::Duration;

/// Where columns begin with letters, and where with numbers.
const COLUMNS: [(&str, Column); 11] = [
    ("COMMAND", Column::Text),
    ("PID", Column::Number),
    ("TIME", Column::Number),
    ("SHARE", Column::Number),
    ("REQUESTS", Column::Number),
    ("ERRORS", Column::Number),
    ("READ", Column::Number),
    ("WRITTEN", Column::Number),
    ("MEAN/p99", Column::Number),
    ("MOST", Column::Text),
    ("PATH", Column::Text),
];

/// The first rows, under what they are of.
pub(super) fn table(uses: &[Use], recorded: &Recorded, row_count_max: usize) -> String {
    let sum = |metric| uses.iter().filter_map(|it| it.all.number(metric)).sum::<u64>();
    let (time_us, count) = (sum(Metric::RequestTime), sum(Metric::Requests));
    let seconds = recorded.elapsed.as_secs_f64();
    let mut out = format!(
        "{seconds:.1} s: {count} requests of the kernel, answered after {} together\n",
        table::time(time_us)
    );
    if uses.is_empty() {
        return out;
    }
    let head = COLUMNS.map(|(name, _)| name.to_owned()).to_vec();
    let lines = uses.iter().take(row_count_max).map(|it| line(it, time_us));
    let lines: Vec<Vec<String>> = std::iter::once(head).chain(lines).collect();
    table::put(&mut out, &lines, |column| COLUMNS[column].1);
    if let Some(more_count) = uses.len().checked_sub(row_count_max).filter(|count| *count > 0) {
        out.push_str(&format!("{more_count} more rows (--rows)\n"));
    }
    let lumped_count = recorded.lumped_count();
    if lumped_count > 0 {
        out.push_str(&format!(
            "(others): {lumped_count} requests of more processes and files than are recorded by name\n"
        ));
    }
    out
}

fn line(it: &Use, time_us_of_all: u64) -> Vec<String> {
    let number = |metric| it.all.number(metric).unwrap_or(0);
    let time_us = number(Metric::RequestTime);
    let pid = it.pid.map_or_else(|| "-".to_owned(), |pid| pid.to_string());
    vec![
        it.command.escape_debug().to_string(),
        pid,
        table::time(time_us),
        percent(time_us, time_us_of_all),
        number(Metric::Requests).to_string(),
        error_count(&it.all).to_string(),
        human(number(Metric::ReadBytes)),
        human(number(Metric::WrittenBytes)),
        format!("{}/{}", table::time(mean_us(&it.all)), table::time(p99_us(&it.all))),
        most(it),
        it.path.clone(),
    ]
}

/// The operation that took most of the time, or was most frequent where none took any.
fn most(it: &Use) -> String {
    let weight = |row: &Row| [Metric::RequestTime, Metric::Requests].map(|it| row.number(it));
    let Some((op, row)) = it.ops.iter().max_by_key(|(_, row)| weight(row)) else {
        return String::new();
    };
    let timed = it.all.number(Metric::RequestTime).is_some_and(|time_us| time_us > 0);
    let metric = if timed { Metric::RequestTime } else { Metric::Requests };
    let of = |row: &Row| row.number(metric).unwrap_or(0);
    format!("{op} {}", percent(of(row), of(&it.all)))
}

fn percent(part: u64, whole: u64) -> String {
    part.saturating_mul(100)
        .checked_div(whole)
        .map_or_else(|| "-".to_owned(), |it| format!("{it}%"))
}

fn error_count(row: &Row) -> u64 {
    StatusClass::ALL.iter().filter_map(|class| row.number(class.metric())).sum()
}

fn mean_us(row: &Row) -> u64 {
    let (time_us, count) = (row.number(Metric::RequestTime), row.number(Metric::Requests));
    time_us.zip(count).and_then(|(time_us, count)| time_us.checked_div(count)).unwrap_or(0)
}

fn p99_us(row: &Row) -> u64 {
    row.histogram(Metric::ReplyTime).and_then(|times| times.quantile_us(99, 100)).unwrap_or(0)
}

/// One object a row.
pub(super) fn json(uses: &[Use], elapsed: Duration) -> Result<String> {
    let mut out = String::new();
    for it in uses {
        let number = |row: &Row, metric| row.number(metric).unwrap_or(0);
        let op = |(name, row): (&String, &Row)| {
            let [requests, time_us] =
                [Metric::Requests, Metric::RequestTime].map(|metric| number(row, metric));
            (name.clone(), json!({"requests": requests, "time_us": time_us}))
        };
        let ops: Map<String, Json> = it.ops.iter().map(op).collect();
        let object = json!({
            "recorded_s": elapsed.as_secs_f64(),
            "pid": it.pid,
            "command": it.command,
            "path": it.path,
            "time_us": number(&it.all, Metric::RequestTime),
            "requests": number(&it.all, Metric::Requests),
            "errors": error_count(&it.all),
            "read_bytes": number(&it.all, Metric::ReadBytes),
            "written_bytes": number(&it.all, Metric::WrittenBytes),
            "mean_us": mean_us(&it.all),
            "p99_us": p99_us(&it.all),
            "ops": ops,
        });
        out.push_str(&serde_json::to_string(&object)?);
        out.push('\n');
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::paths::Paths;
    use crate::processes::Processes;
    use library::counters::{Histogram, Value};
    use std::collections::BTreeMap;

    fn used() -> Use {
        let row = |numbers: &[(Metric, u64)]| {
            let mut row = Row::default();
            row.set_numbers(numbers);
            row
        };
        let read = row(&[(Metric::Requests, 30), (Metric::RequestTime, 9_000)]);
        let open = row(&[(Metric::Requests, 10), (Metric::RequestTime, 1_000)]);
        let mut all = read.clone();
        all.merge(&open);
        all.set_numbers(&[(Metric::ReadBytes, 2 << 20), (Metric::ErrorsAbsent, 3)]);
        let mut times = Histogram::default();
        (0..40).for_each(|_| times.record(200));
        all.set(Metric::ReplyTime, Value::Histogram(times));
        let ops = [("open".to_owned(), open), ("read".to_owned(), read)];
        let (pid, command, path) = (Some(7), "cat".to_owned(), "/data".to_owned());
        Use { pid, command, path, all, ops: ops.into() }
    }

    #[test]
    fn a_process_and_a_path_are_a_line() {
        let (processes, paths) = (Processes::default(), Paths::default());
        let (calls, elapsed) = (Vec::new(), Duration::from_secs(10));
        let recorded = Recorded { calls, processes, paths, elapsed };
        let uses = [used(), Use { ops: BTreeMap::new(), ..used() }];
        let expected = "\
10.0 s: 80 requests of the kernel, answered after 20ms together
COMMAND  PID  TIME  SHARE  REQUESTS  ERRORS  READ  WRITTEN     MEAN/p99  MOST      PATH
cat        7  10ms    50%        40       3  2.0M        0  250us/223us  read 90%  /data
1 more rows (--rows)
";
        assert_eq!(table(&uses, &recorded, 1), expected);
        let none = table(&[], &recorded, 1);
        assert_eq!(none, "10.0 s: 0 requests of the kernel, answered after 0us together\n");
    }

    #[test]
    fn json_has_the_operations() {
        let found: Json =
            serde_json::from_str(&json(&[used()], Duration::from_secs(2)).unwrap()).unwrap();
        assert_eq!(found["ops"]["read"], json!({"requests": 30, "time_us": 9_000}));
        let names = ["command", "path", "recorded_s"].map(|name| found[name].clone());
        assert_eq!(names, [json!("cat"), json!("/data"), json!(2.0)]);
        assert_eq!((&found["mean_us"], &found["errors"]), (&json!(250), &json!(3)));
    }
}
