//! Counters as JSON: one object a row.

use anyhow::Result;
use library::counters::{By, Histogram, Row, Value};
use serde_json::{Map, Value as Json, json};
use std::time::Duration;

/// A row's line.
pub(super) fn put(
    out: &mut String,
    row: (By, &Row),
    (now, elapsed): (Duration, Option<Duration>),
) -> Result<()> {
    let mut object = object(row);
    object.insert("time".to_owned(), json!(now.as_secs_f64()));
    if let Some(elapsed) = elapsed {
        object.insert("interval_s".to_owned(), json!(elapsed.as_secs_f64()));
    }
    out.push_str(&serde_json::to_string(&Json::Object(object))?);
    out.push('\n');
    Ok(())
}

/// A row's labels and values by their names.
pub(crate) fn object((by, row): (By, &Row)) -> Map<String, Json> {
    let mut object = Map::new();
    object.insert("by".to_owned(), json!(by.name()));
    for (label, text) in &row.labels {
        object.insert(label.name().to_owned(), json!(text));
    }
    for (metric, value) in &row.values {
        let metric = metric.row();
        let value = match value {
            Value::Number(number) => json!(number),
            Value::Histogram(times) => histogram(times),
        };
        match metric.label {
            None => object.insert(metric.name.to_owned(), value),
            // Those of one name are one object.
            Some((_, text)) => {
                let several = object.entry(metric.name).or_insert_with(|| json!({}));
                several.as_object_mut().and_then(|several| several.insert(text.to_owned(), value))
            }
        };
    }
    object
}

/// `buckets`: the longest time of each that is not empty, null for the one without an end, and how
/// many times are in it.
fn histogram(times: &Histogram) -> Json {
    let buckets: Vec<Json> =
        times.bounds().map(|(last_us, count)| json!([last_us, count])).collect();
    json!({
        "count": times.count(),
        "sum": times.sum_us(),
        "p50": times.quantile_us(50, 100),
        "p99": times.quantile_us(99, 100),
        "buckets": buckets,
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use library::counters::{Label, Metric};

    #[test]
    fn metrics_of_one_name_are_one_object() {
        let mut row = Row { labels: vec![(Label::Op, "read".to_owned())], values: Vec::new() };
        row.set(Metric::Requests, Value::Number(7));
        row.set(Metric::ErrorsDenied, Value::Number(1));
        row.set(Metric::ErrorsFailed, Value::Number(0));
        let mut times = Histogram::default();
        times.record(2);
        row.set(Metric::QueueTime, Value::Histogram(times));
        let mut out = String::new();
        let second = Duration::from_secs(1);
        put(&mut out, (By::Op, &row), (second, Some(second))).unwrap();
        let found: Json = serde_json::from_str(&out).unwrap();
        let queue = json!({"count": 1, "sum": 2, "p50": 2, "p99": 2, "buckets": [[2, 1]]});
        let expected = json!({
            "by": "op", "op": "read", "time": 1.0, "interval_s": 1.0, "requests": 7,
            "errors": {"denied": 1, "failed": 0}, "phase_us": {"queue": queue},
        });
        assert_eq!(found, expected);
    }
}
