//! Counters as CSV: one line a value, so that a server that counts more adds lines and no columns.

use library::counters::{By, Label, Row, Value};
use std::fmt::Write as _;
use std::time::Duration;

/// The first line.
pub(super) const HEAD: &str = "time,by,lane,op,client,host,export,job,name,label,value\n";

/// A row's lines. Of a histogram: the number of times, their sum, and two quantiles.
pub(super) fn put(out: &mut String, (by, row): (By, &Row), now: Duration) {
    let labels = [Label::Lane, Label::Op, Label::Client, Label::Host, Label::Export, Label::Job];
    let labels: Vec<String> =
        labels.iter().map(|label| field(row.label(*label).unwrap_or_default())).collect();
    let head =
        format!("{}.{:03},{},{}", now.as_secs(), now.subsec_millis(), by.name(), labels.join(","));
    for (metric, value) in &row.values {
        let metric = metric.row();
        let label = metric.label.map_or("", |(_, text)| text);
        let mut line = |suffix: &str, number: u64| {
            // A string can be written to.
            let _infallible = writeln!(out, "{head},{}{suffix},{label},{number}", metric.name);
        };
        match value {
            Value::Number(number) => line("", *number),
            Value::Histogram(times) => {
                line("_count", times.count());
                line("_sum", times.sum_us());
                for (suffix, part) in [("_p50", 50), ("_p99", 99)] {
                    if let Some(us) = times.quantile_us(part, 100) {
                        line(suffix, us);
                    }
                }
            }
        }
    }
}

/// A field, with quotes where it needs them.
fn field(text: &str) -> String {
    if text.contains([',', '"', '\n', '\r']) {
        format!("\"{}\"", text.replace('"', "\"\""))
    } else {
        text.to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use library::counters::Metric;

    #[test]
    fn a_value_is_a_line_and_names_are_quoted() {
        let mut row =
            Row { labels: vec![(Label::Job, "a \"b\", c".to_owned())], values: Vec::new() };
        row.set(Metric::Requests, Value::Number(7));
        row.set(Metric::ErrorsDenied, Value::Number(1));
        let mut out = String::new();
        put(&mut out, (By::Job, &row), Duration::from_millis(1500));
        let expected = "1.500,job,,,,,,\"a \"\"b\"\", c\",requests,,7\n\
                        1.500,job,,,,,,\"a \"\"b\"\", c\",errors,denied,1\n";
        assert_eq!(out, expected);
        let columns = |line: &str| line.matches(',').count();
        assert_eq!(columns(HEAD), 10);
    }
}
