//! What comes with lanefs for Prometheus and Grafana: the alert rules and the dashboard, against a real
//! Prometheus that scrapes a server under load.
//!
//! Prometheus reaches the server through a relay of this test, which holds the load while a scrape is answered:
//! so each sample belongs to an exact count of the load generator.

use crate::fixture::{Fixture, PATIENCE, Process, must, own_address, program, until};
use crate::idle::secret;
use crate::metrics::{ask, free_address};
use library::{ConnectOptions, Volume};
use serde_json::Value;
use std::collections::BTreeSet;
use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

/// What the load does in a step.
const OP: &str = "mkdir";

fn place(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(name)
}

fn read(name: &str) -> String {
    fs::read_to_string(place(name)).unwrap()
}

const RULES: &str = "dist/monitoring/lanefs-alerts.yml";
const DASHBOARD: &str = "dist/monitoring/lanefs-dashboard.json";

/// The names of metrics in an expression or a text.
fn metrics_in(text: &str) -> BTreeSet<String> {
    let words = text.split(|char: char| !(char.is_ascii_alphanumeric() || char == '_'));
    words.filter(|word| word.starts_with("lanefs_")).map(str::to_owned).collect()
}

/// The expressions of the dashboard.
fn expressions() -> Vec<String> {
    let dashboard: Value = serde_json::from_str(&read(DASHBOARD)).unwrap();
    let panels = dashboard["panels"].as_array().unwrap();
    let ids: BTreeSet<u64> = panels.iter().map(|panel| panel["id"].as_u64().unwrap()).collect();
    assert_eq!(ids.len(), panels.len(), "each panel has an id of its own");
    let targets = panels.iter().flat_map(|panel| panel["targets"].as_array().unwrap());
    targets.map(|target| target["expr"].as_str().unwrap().to_owned()).collect()
}

/// The value of a field of a line of the rules.
fn lines_with<'a>(text: &'a str, field: &str) -> Vec<&'a str> {
    text.lines().filter_map(|line| line.trim_start().strip_prefix(field)).map(str::trim).collect()
}

#[test]
fn each_alert_fires_for_what_it_is_about() {
    let test = "tests/e2e/monitoring/alerts_test.yml";
    must(program("promtool").args(["check", "rules"]).arg(place(RULES)));
    must(program("promtool").args(["test", "rules"]).arg(place(test)));
    let (rules, tests) = (read(RULES), read(test));
    let alerts = lines_with(&rules, "- alert: ");
    assert!(alerts.len() >= 10);
    for alert in alerts {
        assert!(tests.contains(&format!("{{alertname=\"{alert}\"}}', value: 1")), "{alert}");
    }
}

/// The load and the relay.
struct Load {
    /// What was done; locked for each step, and by the relay while Prometheus is answered.
    count: Mutex<u64>,
    /// The relay waits for the lock: the load lets it have it.
    is_scraping: AtomicBool,
    ends: AtomicBool,
    /// What the load had counted at each scrape.
    at_scrapes: Mutex<Vec<u64>>,
}

impl Load {
    /// Makes directories until the end is asked for.
    fn run(&self, options: &ConnectOptions) {
        let mut volume = Volume::connect(options).unwrap();
        while !self.ends.load(Ordering::SeqCst) {
            while self.is_scraping.load(Ordering::SeqCst) {
                std::thread::yield_now();
            }
            let mut count = self.count.lock().unwrap();
            volume.mkdir(format!("/{count}").as_ref(), 0o755).unwrap();
            *count += 1;
        }
    }
}

/// Passes scrapes on to a server, while the load rests.
fn relay(listener: TcpListener, server: String, load: Arc<Load>) {
    for stream in listener.incoming() {
        let mut stream = stream.unwrap();
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            let mut byte = [0];
            if stream.read(&mut byte).unwrap_or(0) == 0 {
                break;
            }
            head.push(byte[0]);
        }
        load.is_scraping.store(true, Ordering::SeqCst);
        let count = load.count.lock().unwrap();
        let mut reply = Vec::new();
        let mut asked = TcpStream::connect(&server).unwrap();
        asked.write_all(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
        asked.read_to_end(&mut reply).unwrap();
        load.at_scrapes.lock().unwrap().push(*count);
        load.is_scraping.store(false, Ordering::SeqCst);
        drop(count);
        // Prometheus may have stopped waiting.
        stream.write_all(&reply).ok();
    }
}

/// A running Prometheus.
struct Prometheus {
    address: String,
    _process: Process,
}

impl Prometheus {
    fn new(fixture: &Fixture, target: &str) -> Self {
        let config = fixture.path("prometheus.yml");
        let text = format!(
            "global: {{ scrape_interval: 1s, evaluation_interval: 1s }}\n\
             rule_files: [{}]\n\
             scrape_configs: [{{ job_name: lanefs, static_configs: [{{ targets: [\"{target}\"] }}] }}]\n",
            place(RULES).display()
        );
        fs::write(&config, text).unwrap();
        must(program("promtool").args(["check", "config"]).arg(&config));
        // Not its usual port: Debian's service may listen there, on all addresses.
        let address = own_address().replace(":0", ":19090");
        let mut command = program("prometheus");
        command.arg(format!("--config.file={}", config.display()));
        command.arg(format!("--storage.tsdb.path={}", fixture.path("prometheus").display()));
        command.arg(format!("--web.listen-address={address}"));
        let process = Process::start(&mut command);
        until("Prometheus is ready", || {
            let listens = TcpStream::connect(&address).is_ok();
            listens && ask(&address, "GET /-/ready HTTP/1.0").0.contains(" 200 ")
        });
        Self { address, _process: process }
    }

    fn get(&self, path: &str) -> Value {
        // HTTP/1.0: a reply in one piece.
        let (head, body) = ask(&self.address, &format!("GET {path} HTTP/1.0"));
        assert!(head.contains(" 200 "), "{path}: {head}\n{body}");
        serde_json::from_str(&body).unwrap()
    }

    /// The series that an expression results in.
    fn query(&self, expression: &str, at: Option<f64>) -> Vec<Value> {
        let encoded: String = expression.bytes().map(|byte| format!("%{byte:02x}")).collect();
        let time = at.map_or(String::new(), |at| format!("&time={at}"));
        let found = self.get(&format!("/api/v1/query?query={encoded}{time}"));
        found["data"]["result"].as_array().unwrap().clone()
    }

    /// The samples of the only series of an expression: times and values.
    fn samples(&self, expression: &str) -> Vec<(f64, f64)> {
        let found = self.query(expression, None);
        let pairs = found.first().map_or(&[][..], |series| series["values"].as_array().unwrap());
        let value = |pair: &Value| pair[1].as_str().unwrap().parse().unwrap();
        pairs.iter().map(|pair| (pair[0].as_f64().unwrap(), value(pair))).collect()
    }
}

#[test]
fn a_real_prometheus_agrees_with_the_load_and_loads_rules_and_dashboard() {
    let Some(fixture) = Fixture::new("monitoring") else { return };
    let at = free_address();
    let server = fixture.serve_with("127.0.0.1:0", &["--lanes", "1", "--metrics", &at]);
    let options = ConnectOptions {
        connect_timeout: PATIENCE,
        ..ConnectOptions::new(server.address.parse().unwrap(), secret(&fixture))
    };
    let load = Arc::new(Load {
        count: Mutex::new(0),
        is_scraping: AtomicBool::new(false),
        ends: AtomicBool::new(false),
        at_scrapes: Mutex::new(Vec::new()),
    });
    let relay_listener = TcpListener::bind(own_address()).unwrap();
    let target = relay_listener.local_addr().unwrap().to_string();
    let (of_relay, server_at, of_load) = (load.clone(), at.clone(), load.clone());
    std::thread::spawn(move || relay(relay_listener, server_at, of_relay));
    let loading = std::thread::spawn(move || of_load.run(&options));
    must(&mut check_metrics(&fixture, &at));
    let prometheus = Prometheus::new(&fixture, &target);
    let counter = format!("lanefs_requests_total{{op=\"{OP}\"}}");
    let mut samples = Vec::new();
    until("Prometheus has scraped under load", || {
        samples = prometheus.samples(&format!("{counter}[1h]"));
        samples.len() >= 5
    });
    load.ends.store(true, Ordering::SeqCst);
    loading.join().unwrap();
    let ((first, before), (last, after)) = (samples[0], samples[samples.len() - 1]);
    // The window is exactly from one sample to another: nothing is extrapolated.
    let window_ms = ((last - first) * 1000.0).round();
    let rates = prometheus.query(&format!("rate({counter}[{window_ms}ms])"), Some(last));
    let rate: f64 = rates[0]["value"][1].as_str().unwrap().parse().unwrap();
    let at_scrapes = load.at_scrapes.lock().unwrap().clone();
    for (_, value) in &samples {
        let is_count =
            |count: &&u64| (value - f64::from(u32::try_from(**count).unwrap())).abs() < 0.5;
        assert!(at_scrapes.iter().any(|count| is_count(&count)), "{value} of {at_scrapes:?}");
    }
    assert!(after > before, "{samples:?}");
    let own = (after - before) / (last - first);
    assert!((rate - own).abs() < own / 50.0, "Prometheus has {rate} a second, the load {own}");

    let (_, exported) = ask(&at, "GET /metrics HTTP/1.1\r\nHost: localhost");
    let exported = metrics_in(&exported);
    for expression in expressions() {
        let shown = expression.replace("$__rate_interval", "1m").replace("$instance", ".*");
        let named = metrics_in(&shown);
        assert!(!named.is_empty() && named.is_subset(&exported), "{expression}");
        assert!(!prometheus.query(&shown, None).is_empty(), "no data: {expression}");
    }
    for expression in lines_with(&read(RULES), "expr: ") {
        assert!(metrics_in(expression).is_subset(&exported), "{expression}");
    }
    let mut rules = Vec::new();
    until("Prometheus has evaluated the rules", || {
        let found = prometheus.get("/api/v1/rules");
        let groups = found["data"]["groups"].as_array().unwrap().clone();
        rules =
            groups.iter().flat_map(|group| group["rules"].as_array().unwrap().clone()).collect();
        !rules.is_empty() && rules.iter().all(|rule| rule["health"] != "unknown")
    });
    let alerts = lines_with(&read(RULES), "- alert: ").len();
    assert_eq!(rules.len(), alerts);
    for rule in rules {
        assert!(rule["health"] == "ok" && rule["state"] != "firing", "{rule}");
    }
}

/// `promtool check metrics` of what the server says now.
fn check_metrics(fixture: &Fixture, at: &str) -> std::process::Command {
    let (_, text) = ask(at, "GET /metrics HTTP/1.1\r\nHost: localhost");
    let file = fixture.path("metrics.txt");
    fs::write(&file, text).unwrap();
    let mut command = program("promtool");
    command.args(["check", "metrics"]).stdin(fs::File::open(file).unwrap());
    command
}
