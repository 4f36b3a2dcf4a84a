//! Requests in the trace event format, which Perfetto and chrome://tracing show: a request is an
//! asynchronous event of its client, with its phases and waits below it.

use super::explain;
use super::shown::Shown;
use library::traces::Party;
use serde_json::{Value, json};

/// The trace. Its times are microseconds since the oldest request.
pub(super) fn trace(all: &[Shown]) -> Value {
    let oldest_us = all.iter().map(|shown| shown.trace.age_us).max().unwrap_or(0);
    let mut clients: Vec<&Party> = Vec::new();
    let mut events = Vec::new();
    for (id, shown) in all.iter().enumerate() {
        let Shown { lane, trace } = shown;
        let is_it = |party: &&Party| party.client == trace.client.client;
        let pid = clients.iter().position(is_it).unwrap_or_else(|| {
            clients.push(&trace.client);
            clients.len() - 1
        });
        let begun_us = oldest_us - trace.age_us;
        let mut span = |name: &str, begun_us: u64, took_us: u64, arguments: Value| {
            let event = |phase: &str, at_us: u64, arguments: Value| {
                json!({
                    "cat": "request", "name": name, "ph": phase, "id": id, "ts": at_us,
                    "pid": pid + 1, "tid": lane, "args": arguments,
                })
            };
            events.push(event("b", begun_us, arguments));
            events.push(event("e", begun_us + took_us, json!({})));
        };
        let why = json!({ "why": explain::sentences(shown), "trace_id": trace.trace_id });
        span(&explain::request(trace), begun_us, trace.total_us(), why);
        let mut at_us = begun_us;
        for (name, took_us) in [
            ("queue", trace.queue_us),
            ("execution", trace.execution_us),
            ("commit", trace.commit_us),
        ] {
            if took_us > 0 {
                span(name, at_us, took_us, json!({}));
            }
            at_us += took_us;
        }
        for wait in &trace.waits {
            let whom: Vec<String> = wait.whom.iter().map(explain::client).collect();
            let name = format!("wait: {}", wait.cause.name());
            span(&name, begun_us + wait.begun_us, wait.took_us, json!({ "whom": whom }));
        }
    }
    let names = clients.iter().enumerate().map(|(pid, party)| {
        json!({
            "name": "process_name", "ph": "M", "pid": pid + 1,
            "args": { "name": format!("client {}", explain::client(party)) },
        })
    });
    let events: Vec<Value> = names.chain(events).collect();
    json!({ "traceEvents": events, "displayTimeUnit": "ms" })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
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
        let all = [trace, older].map(|trace| Shown { lane: 1, trace });
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
