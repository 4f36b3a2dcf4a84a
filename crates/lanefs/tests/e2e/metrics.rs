//! `--metrics`: what Prometheus and browsers get, and who does not get it.

use crate::certificates::Authority;
use crate::fixture::{Fixture, Process, failure, kill, must, own_address, run, until};
use crate::idle::{connect, secret};
use crate::raw_client::{Raw, hello};
use std::collections::BTreeMap;
use std::fs::{self, Permissions};
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt as _;
use wire::*;

/// An address that nothing else listens on.
pub(crate) fn free_address() -> String {
    own_address().replace(":0", ":9117")
}

/// Status line, headers and body of a reply.
pub(crate) fn ask(address: &str, head: &str) -> (String, String) {
    let mut stream = TcpStream::connect(address).unwrap();
    write!(stream, "{head}\r\n\r\n").unwrap();
    let mut reply = String::new();
    stream.read_to_string(&mut reply).unwrap();
    let (head, body) = reply.split_once("\r\n\r\n").unwrap();
    (head.to_owned(), body.to_owned())
}

/// The samples, by name and labels.
#[track_caller]
pub(crate) fn scrape(address: &str) -> BTreeMap<String, f64> {
    let (head, body) = ask(address, "GET /metrics HTTP/1.1\r\nHost: localhost");
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

fn requests(samples: &BTreeMap<String, f64>) -> f64 {
    let named = samples.iter().filter(|(name, _)| name.starts_with("lanefs_requests_total{"));
    named.map(|(_, value)| value).sum()
}

#[test]
fn prometheus_gets_what_the_server_counts() {
    let Some(fixture) = Fixture::new("metrics_counts") else { return };
    let at = free_address();
    let server = fixture.serve_with("127.0.0.1:0", &["--lanes", "2", "--metrics", &at]);
    let mut volume = connect(&fixture, &server.address);
    let before = scrape(&at);
    for _ in 0..50 {
        volume.ping().unwrap();
    }
    let after = scrape(&at);
    // A scrape is no request.
    assert!((requests(&after) - requests(&before) - 50.0).abs() < 0.5);
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
        ("GET /x HTTP/1.1", "404"),
        ("GET /metrics HTTP/1.1\r\nHost: files.example", "403"),
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
    refused(&["--metrics", "localhost"], 2, "names no port");
    let (code, line) =
        failure(&run(fixture.lanefs(["up", "--metrics", "0.0.0.0:0"]).arg(fixture.path("up"))));
    assert!(code == 1 && line.contains("--metrics-token-file"), "{code} {line}");
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
    assert!(!body.contains("lanefs_") && body.contains("#token="), "{body}");
    let (head, body) = ask(&at, "GET /api/counters HTTP/1.1");
    assert!(head.starts_with("HTTP/1.1 401 ") && !body.contains("requests"), "{head} {body}");
    let (head, body) = ask(&at, "GET / HTTP/1.1");
    assert!(head.starts_with("HTTP/1.1 200 ") && body.contains("<html"), "{head}");
    drop(server);
}

#[test]
fn a_server_with_certificates_alone_counts_too() {
    let Some(fixture) = Fixture::new("metrics_certificates") else { return };
    let authority = Authority::new(&fixture, "certs");
    let at = free_address();
    let _server = authority.serve(&fixture, &["--metrics", &at]);
    let samples = scrape(&at);
    assert!(samples["lanefs_connections{lane=\"0\"}"].abs() < 0.5);
    assert!(!fixture.path("config/lanefs/secret").exists());
}

#[test]
fn up_hands_the_metrics_to_its_server_and_status_names_them() {
    let Some(fixture) = Fixture::new("metrics_up") else { return };
    let at = free_address();
    let mut up = fixture.up(&["--metrics", &at]);
    let page = format!("http://{at}/");
    assert!(up.process.said().contains(&format!("page {page}")), "{}", up.process.said());
    fs::write(up.dir.join("file"), "x").unwrap();
    let before = scrape(&at);
    assert!(requests(&before) > 0.5 && before["lanefs_changes_total{lane=\"0\"}"] > 0.5);
    let status = must(fixture.lanefs(["status"]).arg(&up.dir));
    let line = status.lines().find(|line| line.trim_start().starts_with("metrics "));
    assert!(line.is_some_and(|line| line.ends_with(&page)), "{status}");
    // The next server has the same address.
    up.kill_server();
    scrape(&at);
    // And the port is named that another program has.
    let (code, line) =
        failure(&run(fixture.lanefs(["up", "--metrics", &at]).arg(fixture.path("other"))));
    assert!(code == 1 && line.contains("name another with --metrics"), "{code} {line}");
    up.stop();
}

#[test]
fn the_page_has_what_waits_and_names_of_files_are_for_those_with_the_token() {
    let Some(fixture) = Fixture::new("metrics_slow") else { return };
    let token = fixture.path("token");
    fs::write(&token, "abc\n").unwrap();
    fs::set_permissions(&token, Permissions::from_mode(0o600)).unwrap();
    drop(fixture.serve("127.0.0.1:0"));
    let secret = secret(&fixture);
    for (number, more) in
        [&[][..], &["--metrics-token-file", token.to_str().unwrap()]].iter().enumerate()
    {
        let at = free_address();
        let store = fixture.path(&format!("store{number}"));
        let mut command =
            fixture.lanefs(["serve", "--listen", "127.0.0.1:0", "--lanes", "1", "--store"]);
        command.arg(store).args(["--sync", "--fault", "stall-log:1", "--metrics", &at]).args(*more);
        let mut server = Process::start(&mut command);
        let address = server.line_with("listening on ");
        let address = address.trim_start_matches("listening on ").split(',').next().unwrap();
        let hello = hello(secret.credential(), ("", 0), ClientUuid([7; 16]));
        let hello = Hello { host_name: Bytes(b"<b>host</b>"), ..hello };
        let mut raw = Raw::of(address, &secret, &hello).unwrap();
        let create = Create {
            caller: Caller { uid: 0, gid: 0, groups: Groups::Known(&[]) },
            parent: InodeNo::ROOT,
            name: Name::new(b"<i>secret").unwrap(),
            mode: 0o644,
            umask: 0,
            exclusive: true,
            handle: None,
            behind: None,
        };
        raw.send(Op::Create, InodeNo::ROOT.shard(), |to| to.write(&create));
        let head = "GET /api/requests HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer abc";
        let mut found = serde_json::Value::Null;
        until("the request that waits is on the page", || {
            found = serde_json::from_str(&ask(&at, head).1).unwrap();
            let why = found["requests"][0]["why"][0].as_str();
            why.is_some_and(|why| why.starts_with("the disk has been flushing the log for "))
        });
        let it = &found["requests"][0];
        let has_names = number == 1;
        assert_eq!(it["request"].as_str().unwrap().contains("<i>secret"), has_names, "{it}");
        assert_eq!(found["names"], has_names);
        assert_eq!((&it["op"], &it["who"]), (&"create".into(), &"<b>host</b>".into()));
        assert_eq!(it["kept"], "waiting");
        // The page puts text into elements, never markup.
        let page = ask(&at, "GET / HTTP/1.1\r\nHost: localhost").1;
        assert!(page.contains("api/requests") && !page.contains("innerHTML"));
        kill(server.pid());
    }
}

#[test]
fn the_page_travels_with_its_policy_and_the_counters_are_those_of_stats() {
    let Some(fixture) = Fixture::new("metrics_page") else { return };
    let at = free_address();
    let server = fixture.serve_with("127.0.0.1:0", &["--lanes", "2", "--metrics", &at]);
    let mut volume = connect(&fixture, &server.address);
    for name in ["/a", "/b", "/c"] {
        volume.mkdir(name.as_ref(), 0o755).unwrap();
    }
    let (head, page) = ask(&at, "GET / HTTP/1.1\r\nHost: localhost");
    let policy = head.lines().find(|line| line.starts_with("Content-Security-Policy: ")).unwrap();
    let (_, nonce) = policy.split_once("script-src 'nonce-").unwrap();
    let nonce = nonce.split('\'').next().unwrap();
    assert!(policy.contains("default-src 'none';") && !policy.contains("unsafe"), "{policy}");
    assert!(page.contains(&format!("<script nonce=\"{nonce}\">")), "{nonce}");
    assert!(page.contains(&format!("<style nonce=\"{nonce}\">")), "{nonce}");
    let (head, body) = ask(&at, "GET /api/counters HTTP/1.1\r\nHost: localhost");
    assert!(head.contains("Content-Type: application/json"), "{head}");
    let counters: serde_json::Value = serde_json::from_str(&body).unwrap();
    assert_eq!(
        (&counters["lanes"], &counters["address"]),
        (&2.into(), &server.address.as_str().into())
    );
    let rows = counters["rows"].as_array().unwrap();
    let made = |row: &&serde_json::Value| row["by"] == "op" && row["op"] == "mkdir";
    assert_eq!(rows.iter().find(made).unwrap()["requests"], 3);
    let said = must(fixture.lanefs(["stats", "--json", "--by", "op"]).arg(&server.address));
    let line = said.lines().find(|line| line.contains("\"op\":\"mkdir\"")).unwrap();
    let mut line: serde_json::Value = serde_json::from_str(line).unwrap();
    line.as_object_mut().unwrap().remove("time");
    assert_eq!(rows.iter().find(made), Some(&line));
}
