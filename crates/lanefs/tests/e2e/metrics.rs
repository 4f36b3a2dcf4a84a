//! `serve --metrics`: what Prometheus gets, and who does not get it.

use crate::fixture::{Fixture, failure, own_address, run};
use crate::idle::connect;
use std::collections::BTreeMap;
use std::fs::{self, Permissions};
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt as _;

/// An address that nothing else listens on.
fn free_address() -> String {
    own_address().replace(":0", ":9117")
}

/// Status line, headers and body of a reply.
fn ask(address: &str, head: &str) -> (String, String) {
    let mut stream = TcpStream::connect(address).unwrap();
    write!(stream, "{head}\r\n\r\n").unwrap();
    let mut reply = String::new();
    stream.read_to_string(&mut reply).unwrap();
    let (head, body) = reply.split_once("\r\n\r\n").unwrap();
    (head.to_owned(), body.to_owned())
}

/// The samples, by name and labels.
#[track_caller]
fn scrape(address: &str) -> BTreeMap<String, f64> {
    let (head, body) = ask(address, "GET /metrics HTTP/1.1\r\nHost: x");
    assert!(head.starts_with("HTTP/1.1 200 OK\r\n"), "{head}");
    assert!(head.contains("Content-Type: text/plain; version=0.0.4"), "{head}");
    assert!(head.contains(&format!("Content-Length: {}\r\n", body.len())), "{head}");
    let samples = body.lines().filter(|line| !line.starts_with('#'));
    let parsed = samples.map(|line| {
        let (name, value) = line.rsplit_once(' ').unwrap();
        (name.to_owned(), value.parse().unwrap())
    });
    parsed.collect()
}

#[test]
fn prometheus_gets_what_the_server_counts() {
    let Some(fixture) = Fixture::new("metrics_counts") else { return };
    let at = free_address();
    let server = fixture.serve_with("127.0.0.1:0", &["--lanes", "2", "--metrics", &at]);
    let mut volume = connect(&fixture, &server.address);
    // The first one connects.
    scrape(&at);
    let requests = |samples: &BTreeMap<String, f64>| {
        let named = samples.iter().filter(|(name, _)| name.starts_with("lanefs_requests_total{"));
        named.map(|(_, value)| value).sum::<f64>()
    };
    let before = scrape(&at);
    for _ in 0..50 {
        volume.ping().unwrap();
    }
    let after = scrape(&at);
    // And what the scrape before has asked of each lane.
    assert!((requests(&after) - requests(&before) - 52.0).abs() < 0.5);
    assert!(after["lanefs_cpu_seconds_total"] >= before["lanefs_cpu_seconds_total"]);
    let pings =
        |samples: &BTreeMap<String, f64>| samples["lanefs_requests_total{lane=\"0\",op=\"ping\"}"];
    assert!((pings(&after) - pings(&before) - 50.0).abs() < 0.5);
    let counted = "lanefs_phase_seconds_count{lane=\"0\",op=\"ping\",phase=\"queue\"}";
    assert!((after[counted] - pings(&after)).abs() < 0.5);
    let names: Vec<&String> =
        after.keys().filter(|name| name.starts_with("lanefs_build")).collect();
    let [build] = names.as_slice() else { panic!("{names:?}") };
    assert!(build.starts_with("lanefs_build_info{version=\"0.1.0"), "{build}");
    // Connections that say nothing hold up nobody.
    let silent: Vec<TcpStream> = (0..5).map(|_| TcpStream::connect(&at).unwrap()).collect();
    scrape(&at);
    drop(silent);
    for (line, status) in [
        ("GET / HTTP/1.1", "404"),
        ("POST /metrics HTTP/1.1", "405"),
        ("nonsense", "400"),
        ("HEAD /metrics HTTP/1.1", "200"),
    ] {
        let (head, body) = ask(&at, line);
        assert!(head.starts_with(&format!("HTTP/1.1 {status} ")), "{line}: {head}");
        assert_eq!(body.is_empty(), status == "200", "{line}: {body}");
    }
}

#[test]
fn others_need_the_token() {
    let Some(fixture) = Fixture::new("metrics_token") else { return };
    let file = fixture.path("token");
    fs::write(&file, "abc-DEF_123\n").unwrap();
    let shown = file.to_str().unwrap();
    let store = fixture.path("none");
    let store = store.to_str().unwrap();
    let refused = |more: &[&str], code: i32, says: &str| {
        let line = ["serve", "--store", store, "--listen", "127.0.0.1:0"];
        let (found, line) = failure(&run(fixture.lanefs(line).args(more)));
        assert!(found == code && line.contains(says), "{more:?}: {found} {line}");
    };
    refused(&["--metrics", "0.0.0.0:0"], 2, "--metrics-token-file");
    refused(&["--metrics", "80"], 2, "names no host");
    refused(&["--metrics-token-file", shown], 2, "--metrics");
    let both = ["--metrics", "0.0.0.0:0", "--metrics-token-file", shown];
    fs::set_permissions(&file, Permissions::from_mode(0o644)).unwrap();
    refused(&both, 1, "chmod 600");
    fs::set_permissions(&file, Permissions::from_mode(0o600)).unwrap();
    assert!(!fixture.path("none").exists(), "no store is made for nothing");
    let at = free_address();
    let options = ["--metrics", &at, "--metrics-token-file", shown];
    let server = fixture.serve_with("127.0.0.1:0", &options);
    let with = |token: &str| {
        let head = format!("GET /metrics HTTP/1.1\r\nAuthorization: Bearer {token}");
        ask(&at, &head).0
    };
    assert!(with("abc-DEF_123").starts_with("HTTP/1.1 200 "));
    assert!(with("abc-DEF_124").starts_with("HTTP/1.1 401 "));
    let (head, body) = ask(&at, "GET /metrics HTTP/1.1");
    assert!(
        head.starts_with("HTTP/1.1 401 ") && head.contains("WWW-Authenticate: Bearer"),
        "{head}"
    );
    assert!(!body.contains("lanefs_"), "{body}");
    drop(server);
}
