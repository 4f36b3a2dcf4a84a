//! `lanefs top` shows what a server does, and names what is wrong.

use crate::fixture::{Fixture, failure, must};
use serde_json::Value;
use std::fs;

#[test]
fn one_screen_is_printed_and_logged() {
    let Some(fixture) = Fixture::new("top_once") else { return };
    let (code, stderr) = failure(&fixture.run(["top", "--once"]));
    assert_eq!(code, 1);
    assert!(stderr.contains("no server runs here"), "{stderr}");
    let (code, stderr) = failure(&fixture.run(["top"]));
    assert_eq!(code, 2);
    assert!(stderr.contains("`lanefs stats --interval 1s`"), "{stderr}");
    let (code, stderr) = failure(&fixture.run(["top", "--alert", "busy=1"]));
    assert_eq!(code, 2);
    assert!(stderr.contains("flush-ms, busy-percent"), "{stderr}");

    let server = fixture.serve_with("127.0.0.1:0", &["--lanes", "2"]);
    let log = fixture.path("top.jsonl");
    let mut top = fixture.lanefs(["top", "--once", "--interval", "100ms", "--log"]);
    let said = must(top.arg(&log));
    for part in ["lanefs top  ", &server.address, "2 lanes", "up ", "requests/s", "CPU "] {
        assert!(said.lines().take(4).any(|line| line.contains(part)), "{part}: {said}");
    }
    for panel in ["LANES", "OPERATIONS", "CLIENTS", "EXPORTS", "JOBS", "WAITS"] {
        assert!(said.lines().any(|line| line == panel), "{panel}: {said}");
    }
    // What it has asked for itself.
    assert!(said.lines().any(|line| line.starts_with("counters ")), "{said}");
    let logged = fs::read_to_string(&log).unwrap();
    let line: Value = serde_json::from_str(&logged).unwrap();
    assert_eq!(line["server"], server.address.as_str());
    assert!(line["interval_s"].as_f64() >= Some(0.1), "{line}");
    let rows = line["rows"].as_array().unwrap();
    assert_eq!(rows.iter().filter(|row| row["by"] == "lane").count(), 2, "{line}");
}
