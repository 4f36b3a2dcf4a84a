//! Requests in the trace event format, which Perfetto and chrome://tracing show: a request is an
//! asynchronous event of its mount or client, with its phases and waits below it.

use super::spans::{self, Span};
use super::story::Story;
use serde_json::{Map, Value, json};

/// The trace. Its times are microseconds since the oldest request.
pub(super) fn trace(all: &[Story]) -> Value {
    let all: Vec<Vec<Span>> = all.iter().map(spans::of).collect();
    let oldest_us = all.iter().flatten().map(|span| span.ago_us).max().unwrap_or(0);
    let mut places: Vec<&str> = Vec::new();
    let mut events = Vec::new();
    for (id, spans) in all.iter().enumerate() {
        for Span { name, place, lane, ago_us, took_us, within: _, notes } in spans {
            let pid = places.iter().position(|known| known == place).unwrap_or_else(|| {
                places.push(place);
                places.len() - 1
            });
            let event = |phase: &str, at_us: u64, arguments: Value| {
                json!({
                    "cat": "request", "name": name, "ph": phase, "id": id, "ts": at_us,
                    "pid": pid + 1, "tid": lane, "args": arguments,
                })
            };
            let notes = notes.iter().map(|(name, text)| ((*name).to_owned(), json!(text)));
            let begun_us = oldest_us - ago_us;
            events.push(event("b", begun_us, Value::Object(notes.collect::<Map<_, _>>())));
            events.push(event("e", begun_us + took_us, json!({})));
        }
    }
    let names = places.iter().enumerate().map(|(pid, place)| {
        json!({
            "name": "process_name", "ph": "M", "pid": pid + 1, "args": { "name": place },
        })
    });
    let events: Vec<Value> = names.chain(events).collect();
    json!({ "traceEvents": events, "displayTimeUnit": "ms" })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::super::shown::Shown;
    use super::*;
    use library::traces::{RequestTrace, Wait, WaitCause};

    #[test]
    fn each_event_that_begins_ends_and_lies_within_its_request() {
        let wait = Wait { cause: WaitCause::Lease, begun_us: 10, took_us: 40, ..Wait::default() };
        let trace = RequestTrace {
            age_us: 900,
            queue_us: 50,
            commit_us: 20,
            waits: vec![wait],
            ..RequestTrace::default()
        };
        let older = RequestTrace { age_us: 1000, queue_us: 7, ..RequestTrace::default() };
        let all =
            [trace, older].map(|trace| Story { call: None, shown: vec![Shown { lane: 1, trace }] });
        let found = super::trace(&all);
        let events = found["traceEvents"].as_array().unwrap();
        let spans: Vec<(&str, u64, u64)> = events
            .iter()
            .enumerate()
            .filter(|(_, event)| event["ph"] == "b")
            .map(|(index, event)| {
                let end = &events[index + 1];
                assert_eq!(
                    (&end["ph"], &end["name"], &end["id"]),
                    (&json!("e"), &event["name"], &event["id"])
                );
                let at = |event: &Value| event["ts"].as_u64().unwrap();
                (event["name"].as_str().unwrap(), at(event), at(end))
            })
            .collect();
        let expected = [
            ("?", 100, 170),
            ("queue", 100, 150),
            ("commit", 150, 170),
            ("wait: lease", 110, 150),
            ("?", 0, 7),
            ("queue", 0, 7),
        ];
        assert_eq!(spans, expected);
        let named = events.iter().filter(|event| event["ph"] == "M").count();
        assert_eq!(named, 1, "one client");
    }
}
