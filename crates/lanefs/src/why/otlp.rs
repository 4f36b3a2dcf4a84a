//! Requests for OpenTelemetry: OTLP as JSON, to a file or to a collector over HTTP (feature `otlp`).
//!
//! A request is a trace, and each of its parts a span of the mount or the server where it happened. Ids are the
//! same at each export, so that a collector keeps a request once.

use super::spans::{self, Span};
use super::story::Story;
use crate::args;
use anyhow::{Context as _, Result, bail};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::Path;
use std::time::{Duration, SystemTime};

/// Where collectors take traces, unless the URL says otherwise.
const PATH: &str = "/v1/traces";
/// How long a collector may take.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Writes requests to a file, or sends them to a collector.
pub(super) fn export(all: &[Story], to: &str) -> Result<()> {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let body = serde_json::to_vec(&document(all, now))?;
    match to.strip_prefix("http://") {
        Some(rest) => send(rest, &body).with_context(|| format!("the collector {to}")),
        None if to.starts_with("https://") => {
            bail!("{to}: only http:// is spoken; name a file, or a collector on this machine")
        }
        None => std::fs::write(Path::new(to), body).with_context(|| format!("cannot write {to}")),
    }
}

fn send(rest: &str, body: &[u8]) -> Result<()> {
    let (host, path) = rest.split_once('/').map_or((rest, ""), |(host, path)| (host, path));
    let path = if path.is_empty() { PATH.to_owned() } else { format!("/{path}") };
    let mut stream = TcpStream::connect(host)?;
    stream.set_read_timeout(Some(TIMEOUT))?;
    stream.set_write_timeout(Some(TIMEOUT))?;
    let head = format!(
        "POST {path} HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/json\r\n\
         Content-Length: {}\r\nConnection: close\r\n\r\n",
        body.len()
    );
    stream.write_all(head.as_bytes())?;
    stream.write_all(body)?;
    let mut reply = Vec::new();
    stream.take(64 << 10).read_to_end(&mut reply)?;
    let reply = String::from_utf8_lossy(&reply);
    let status = reply.lines().next().unwrap_or_default();
    if status.split(' ').nth(1).is_some_and(|code| code.starts_with('2')) {
        return Ok(());
    }
    bail!("it refuses the traces: {status}")
}

/// `now`: since 1970.
fn document(all: &[Story], now: Duration) -> Value {
    let mut by_place: BTreeMap<String, Vec<Value>> = BTreeMap::new();
    for (number, story) in (0..).zip(all) {
        let trace_id = trace_id(story, number);
        for (index, span) in (1_u64..).zip(spans::of(story)) {
            by_place.entry(span.place.clone()).or_default().push(of_span(
                &span,
                (&trace_id, index),
                now,
            ));
        }
    }
    let resources = by_place.into_iter().map(|(place, spans)| {
        json!({
            "resource": { "attributes": [
                attribute("service.name", "lanefs"),
                attribute("service.instance.id", &place),
            ]},
            "scopeSpans": [{
                "scope": { "name": "lanefs why", "version": args::VERSION },
                "spans": spans,
            }],
        })
    });
    json!({ "resourceSpans": resources.collect::<Vec<Value>>() })
}

fn of_span(span: &Span, (trace_id, index): (&str, u64), now: Duration) -> Value {
    let Span { name, place: _, lane, ago_us, took_us, within, notes } = span;
    let begun = now.saturating_sub(Duration::from_micros(*ago_us));
    let ended = begun + Duration::from_micros(*took_us);
    let mut attributes = vec![attribute("lanefs.lane", &lane.to_string())];
    attributes.extend(notes.iter().map(|(name, text)| attribute(&format!("lanefs.{name}"), text)));
    let parent = within.and_then(|within| u64::try_from(within + 1).ok());
    json!({
        "traceId": trace_id,
        "spanId": format!("{index:016x}"),
        "parentSpanId": parent.map(|parent| format!("{parent:016x}")).unwrap_or_default(),
        "name": name,
        // SPAN_KIND_INTERNAL.
        "kind": 1,
        // 64-bit numbers are strings in this format.
        "startTimeUnixNano": begun.as_nanos().to_string(),
        "endTimeUnixNano": ended.as_nanos().to_string(),
        "attributes": attributes,
    })
}

fn attribute(key: &str, text: &str) -> Value {
    json!({ "key": key, "value": { "stringValue": text } })
}

/// 16 bytes: of the session and the trace id of its first exchange; of a request without one, its number in this
/// export.
fn trace_id(story: &Story, number: u64) -> String {
    let steps = story.call.iter().flat_map(|call| &call.trace.steps);
    let mut ids = steps.filter_map(|step| step.exchange).map(|it| (it.session.0, it.trace_id));
    let at_server = story.shown.first().map(|shown| (shown.trace.session.0, shown.trace.trace_id));
    let (session, trace_id) = ids.next().or(at_server).unwrap_or_default();
    let trace_id = if trace_id == 0 { number + 1 } else { trace_id };
    format!("{session:016x}{trace_id:016x}")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::super::shown::Shown;
    use super::*;
    use library::SessionId;
    use library::traces::RequestTrace;
    use std::net::TcpListener;

    fn story() -> Story {
        let trace = RequestTrace {
            session: SessionId(7),
            trace_id: 9,
            age_us: 3_000_000,
            queue_us: 500_000,
            commit_us: 250_000,
            ..RequestTrace::default()
        };
        Story { call: None, shown: vec![Shown { lane: 2, trace }] }
    }

    /// <https://opentelemetry.io/docs/specs/otlp/#json-protobuf-encoding>: names in lowerCamelCase, ids in
    /// hexadecimal, 64-bit numbers as strings.
    #[test]
    fn the_document_has_the_shape_of_otlp() {
        let found = document(&[story()], Duration::from_secs(1_000));
        let resource = &found["resourceSpans"][0];
        let service = &resource["resource"]["attributes"][0];
        assert_eq!(
            *service,
            json!({ "key": "service.name", "value": { "stringValue": "lanefs" } })
        );
        let spans = resource["scopeSpans"][0]["spans"].as_array().unwrap();
        let names: Vec<&str> = spans.iter().map(|span| span["name"].as_str().unwrap()).collect();
        assert_eq!(names, ["?", "queue", "commit"]);
        let whole = &spans[0];
        assert_eq!(whole["traceId"], "00000000000000070000000000000009");
        assert_eq!(
            (&whole["spanId"], &whole["parentSpanId"]),
            (&json!("0000000000000001"), &json!(""))
        );
        assert_eq!(whole["startTimeUnixNano"], "997000000000");
        assert_eq!(whole["endTimeUnixNano"], "997750000000");
        assert_eq!(spans[2]["parentSpanId"], whole["spanId"]);
        assert_eq!(spans[2]["startTimeUnixNano"], "997500000000");
        assert!(spans.iter().all(|span| span["traceId"] == whole["traceId"] && span["kind"] == 1));
    }

    #[test]
    fn a_collector_gets_it_over_http_and_what_it_refuses_is_an_error() {
        for (status, is_taken) in [("200 OK", true), ("400 Bad Request", false)] {
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            let to = format!("http://{}", listener.local_addr().unwrap());
            let collector = std::thread::spawn(move || {
                let (mut stream, _) = listener.accept().unwrap();
                let mut bytes = Vec::new();
                while !bytes.ends_with(b"]}") {
                    let mut more = [0; 4096];
                    let count = stream.read(&mut more).unwrap();
                    bytes.extend(&more[..count]);
                }
                write!(stream, "HTTP/1.1 {status}\r\n\r\n").unwrap();
                String::from_utf8(bytes).unwrap()
            });
            let sent = export(&[story()], &to);
            let text = collector.join().unwrap();
            assert!(text.starts_with("POST /v1/traces HTTP/1.1\r\n"), "{text}");
            assert_eq!(sent.is_ok(), is_taken, "{sent:?}");
        }
        assert!(export(&[story()], "https://host").is_err());
    }
}
