//! `lanefs bench` against its own servers and a given one: keys and sums that must fit, whatever
//! the machine is worth; bad input; and that nothing is left behind.
//!
//! What is measured is printed and not judged: other processes have their share in it. However slow the
//! machine, a benchmark counts one operation a row at least.

use crate::fixture::{Fixture, Process, failure, has_etcd, must, skip, until};
use ring::{DriverChoice, DriverKind};
use rustix::process::Signal;
use serde_json::Value;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

/// Runs a benchmark for a moment; its rows.
fn rows(fixture: &Fixture, arguments: &[&str]) -> Vec<Value> {
    let mut command = fixture.lanefs(["bench", "--json"]);
    if !arguments.contains(&"--time") {
        command.args(["--time", "50ms", "--rounds", "1"]);
    }
    command.args(arguments).arg("--dir").arg(fixture.path(""));
    let lines = must(&mut command);
    lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn number(row: &Value, key: &str) -> f64 {
    row[key].as_f64().unwrap_or_else(|| panic!("no {key} in {row}"))
}

/// A number that may be missing where too little was done, and is not negative.
fn measured(row: &Value, key: &str) {
    assert!(row[key].is_null() || number(row, key) >= 0.0, "{key}: {row}");
}

/// Numbers of a row that only a quiet machine could be judged by.
fn print(row: &Value, keys: &[&str]) {
    let numbers: Vec<String> = keys.iter().map(|key| format!("{key} {}", row[key])).collect();
    println!("{} {}, {} clients: {}", row["bench"], row["row"], row["clients"], numbers.join(", "));
}

/// Each operation moves so many 10^6 bytes. Of one repetition, so both numbers are of the same operations.
fn assert_moves(row: &Value, op_mb: f64) {
    let moved = number(row, "mb_per_s") / number(row, "ops_per_s");
    assert!((moved / op_mb - 1.0).abs() < 1e-6, "each moves {op_mb} MB, not {moved}: {row}");
}

fn of<'a>(rows: &'a [Value], name: &str, clients: u64) -> &'a Value {
    let fits = |row: &&Value| row["row"] == name && row["clients"] == clients;
    rows.iter().find(fits).unwrap_or_else(|| panic!("no row {name} with {clients} in {rows:?}"))
}

/// What every row of a server of ours says.
fn assert_sane(row: &Value) {
    let times = ["mean_us", "p50_us", "p99_us", "p999_us"].map(|key| number(row, key));
    assert!(times[1] <= times[2] && times[2] <= times[3], "{row}");
    for key in ["ops_per_s", "mean_us", "syscalls_per_op"] {
        assert!(number(row, key) > 0.0, "{key}: {row}");
    }
    for key in ["cpu_us_per_op", "ratio_to_limit", "spread"] {
        measured(row, key);
    }
    assert!((0.0..=1.0).contains(&number(row, "generator_busy")), "{row}");
    assert!(number(row, "hops_per_op") <= 0.5, "a request that crosses takes two: {row}");
    // The offset to the other clock is looked at once a second besides.
    assert!(number(row, "clock_reads_per_turn") >= 1.0, "{row}");
    print(row, &["clock_reads_per_turn", "switches_per_op", "exchanges_per_op", "ratio_to_limit"]);
}

#[test]
fn bench_of_echo_and_getattr_has_rows_of_its_limit() {
    let Some(fixture) = Fixture::new("bench_getattr") else { return };
    let found = rows(&fixture, &["echo", "getattr", "--clients", "1,8"]);
    let mut beside = vec![("getattr", "getattr", "echo")];
    match DriverChoice::Only(DriverKind::IoUring).find() {
        Ok(_) => beside.push(("echo", "lane", "bare")),
        Err(error) => skip("bench_of_echo: the bare loop", &error.to_string()),
    }
    for (bench, ours, limit) in beside {
        let found: Vec<Value> = found.iter().filter(|row| row["bench"] == bench).cloned().collect();
        for clients in [1, 8] {
            let row = of(&found, ours, clients);
            assert_sane(row);
            assert_eq!(row["limit"], limit, "{row}");
            measured(of(&found, limit, clients), "cpu_us_per_op");
            assert_eq!(number(row, "held_replies"), 0.0, "{row}");
        }
    }
    let idle = of(&found, "idle", 64);
    assert!(number(idle, "server_busy") >= 0.0, "{idle}");
    print(idle, &["server_busy", "note"]);
}

#[test]
fn bench_of_observed_requests_has_rows_of_unobserved_ones() {
    let Some(fixture) = Fixture::new("bench_observed") else { return };
    let found = rows(&fixture, &["observed", "--clients", "1,8"]);
    for clients in [1, 8] {
        let row = of(&found, "getattr observed", clients);
        assert_sane(row);
        assert_eq!(row["limit"], "getattr unobserved", "{row}");
        assert_sane(of(&found, "getattr unobserved", clients));
    }
}

#[test]
fn bench_of_a_cluster_has_rows_of_one_server_and_of_bare_streams() {
    let Some(fixture) = Fixture::new("bench_cluster") else { return };
    if !has_etcd("bench_of_a_cluster") {
        return;
    }
    let found = rows(&fixture, &["cluster", "--clients", "2"]);
    for (work, limit, key) in [
        ("read", "loopback", "mb_per_s"),
        ("write", "loopback", "mb_per_s"),
        ("create", "one server", "ops_per_s"),
        ("read 1 byte", "one server", "ops_per_s"),
    ] {
        let limit = format!("{work} {limit}");
        measured(of(&found, &limit, 2), key);
        let row = of(&found, &format!("{work} four servers"), 2);
        assert_eq!(row["limit"], limit.as_str(), "{row}");
        measured(row, key);
        print(row, &[key, "ratio_to_limit"]);
    }
}

#[test]
fn bench_of_drivers_has_both_beside_each_other() {
    let Some(fixture) = Fixture::new("bench_drivers") else { return };
    if let Err(error) = DriverChoice::Only(DriverKind::IoUring).find() {
        return skip("bench_of_drivers_has_both_beside_each_other", &error.to_string());
    }
    let found = rows(&fixture, &["drivers", "--clients", "1"]);
    let (ours, limits): (Vec<&Value>, Vec<&Value>) =
        found.iter().partition(|row| row["row"].as_str().unwrap().ends_with(" epoll"));
    assert_eq!((ours.len(), limits.len()), (11, 11));
    for row in ours {
        let name = row["row"].as_str().unwrap().replace(" epoll", " io-uring");
        assert!(limits.iter().any(|limit| limit["row"] == *name), "{name}");
        assert_eq!(row["limit"], *name, "{row}");
        assert!(number(row, "ops_per_s") > 0.0 && number(row, "syscalls_per_op") > 0.0, "{row}");
        measured(row, "cpu_us_per_op");
        print(row, &["ratio_to_limit"]);
    }
}

#[test]
fn bench_of_a_shared_file_has_every_engine_beside_files_of_their_own() {
    let Some(fixture) = Fixture::new("bench_shared_file") else { return };
    let found = rows(&fixture, &["shared-file", "--clients", "2", "--depth", "4"]);
    // On io_uring `auto` is `uring`.
    let first = if fixture.drivers.server == DriverKind::IoUring { "uring" } else { "auto" };
    let engines = [first, "posix-aio", "thread-per-op", "pool", "inline", "local preads"];
    let directs = if found.len() > 12 { vec!["", " direct"] } else { vec![""] };
    for engine in engines {
        for direct in &directs {
            let separate = format!("{engine} separate{direct}");
            assert!(number(of(&found, &separate, 2), "ops_per_s") > 0.0);
            let row = of(&found, &format!("{engine} shared{direct}"), 2);
            assert_eq!(row["limit"], *separate, "{row}");
            for key in ["ops_per_s", "mean_us", "ratio_to_limit"] {
                assert!(number(row, key) > 0.0, "{key}: {row}");
            }
            measured(row, "cpu_us_per_op");
            if engine == "local preads" {
                continue;
            }
            // What a client asks for together is under way together where the machine lets it; never is
            // more than all have asked for.
            assert!((1.0..=8.0).contains(&number(row, "under_way_one")), "{row}");
            assert!(number(row, "threads") >= 1.0 && number(row, "syscalls_per_op") > 0.0, "{row}");
            // What was handed over at the edges of the measured time is counted on one side only.
            assert!(number(row, "handed_per_op") >= 0.0, "{row}");
            if matches!(engine, "uring" | "inline") {
                assert_eq!(number(row, "handed_per_op"), 0.0, "{row}");
            }
            assert!(number(row, "started_per_op") >= 0.0, "{row}");
            print(row, &["under_way_one", "threads", "handed_per_op", "started_per_op"]);
        }
    }
}

#[test]
fn bench_of_create_has_no_reply_that_waits() {
    let Some(fixture) = Fixture::new("bench_create") else { return };
    let found = rows(&fixture, &["create", "--clients", "1,16"]);
    for dirs in ["own", "shared"] {
        for clients in [1, 16] {
            let row = of(&found, &format!("create {dirs}"), clients);
            assert_sane(row);
            assert!(number(row, "held_replies") == 0.0, "independent creates wait: {row}");
            // How many share a flush is the disk's.
            measured(row, "ops_per_flush");
            print(row, &["ops_per_flush", "commits"]);
        }
    }
    for name in ["flush", "memory+log"] {
        let row = found.iter().find(|row| row["row"] == name).unwrap();
        assert!(number(row, "ops_per_s") > 0.0, "{row}");
    }
}

#[test]
fn bench_of_streams_counts_bytes_both_ways() {
    let Some(fixture) = Fixture::new("bench_stream") else { return };
    let found = rows(&fixture, &["stream", "--clients", "2"]);
    for (ours, limit) in [("read", "sendfile"), ("write", "recv+pwrite+sync")] {
        let row = of(&found, ours, 2);
        assert_sane(row);
        assert_eq!(row["limit"], limit);
        assert_moves(row, 1.048_576);
        for key in ["cpu_s_per_gb", "switches_per_mb", "syscalls_per_mb"] {
            assert!(number(row, key) >= 0.0, "{key}: {row}");
        }
        print(row, &["syscalls_per_mb"]);
    }
}

#[test]
fn bench_with_server_option_needs_its_secret_and_leaves_it_running() {
    let Some(fixture) = Fixture::new("bench_server") else { return };
    let mut server = fixture.serve_with("127.0.0.1:0", &["--export", "b=no-root-squash"]);
    let found = rows(
        &fixture,
        &["getattr", "--clients", "2", "--server", &server.address, "--export", "b"],
    );
    let row = of(&found, "getattr", 2);
    assert_sane(row);
    assert_eq!(row["limit"], "ping", "{row}");
    assert!(found.iter().all(|row| row["row"] != "idle"), "its process is not ours: {found:?}");

    let bench = |more: &[&str]| {
        let mut command = fixture.lanefs(["bench", "getattr", "--server", &server.address]);
        failure(&crate::fixture::run(command.args(more)))
    };
    let (code, line) = bench(&["--export", "c"]);
    assert_eq!(code, 1, "{line}");
    let wrong = secret_in(&fixture.path("wrong"));
    let (code, line) = bench(&["--secret-file", &wrong]);
    assert_eq!(code, 4, "{line}");
    assert!(!server.process.has_ended());
}

/// Some secret, in this file.
fn secret_in(path: &Path) -> String {
    fs::write(path, "00".repeat(32)).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(0o600)).unwrap();
    path.to_str().unwrap().to_owned()
}

#[test]
fn bench_refuses_wrong_arguments_with_a_reason() {
    let Some(fixture) = Fixture::new("bench_arguments") else { return };
    let secret = secret_in(&fixture.path("secret"));
    let bench = &|arguments: &[&str]| {
        let mut command = fixture.lanefs(["bench"]);
        command.env("LANEFS_SECRET_FILE", &secret);
        failure(&crate::fixture::run(command.args(arguments)))
    };
    let cases = [
        (&["nothing"][..], 2, "nothing"),
        (&["echo", "--time", "0"], 2, "0 is not from 10ms to 3600s"),
        (&["echo", "--clients", "0"], 2, "--clients"),
        (&["create", "--clients", "1", "--depth", "17"], 1, "at most 16"),
        (&["echo", "--server", "127.0.0.1:1"], 1, "--server"),
        (&["shared-file", "--lanes", "2"], 1, "--lanes"),
        (&["all", "--server", "127.0.0.1:1"], 3, "left out: echo starts its own servers"),
        (&["getattr", "--server", "127.0.0.1:1"], 3, "127.0.0.1:1"),
        (&["echo", "--dir", "/nowhere"], 1, "/nowhere"),
        (&["echo", "--report", "/nowhere"], 1, "/nowhere"),
        (&["versus"], 2, "--dir"),
        (&["versus", "--dir", "/tmp"], 2, "not NAME=PATH"),
        (&["versus", "--dir", "a=/tmp", "--row", "none"], 2, "there is no row 'none'"),
        (&["versus", "--dir", "a=/nowhere"], 1, "cannot use a=/nowhere"),
    ];
    // Together: who is not there is waited for.
    std::thread::scope(|scope| {
        for (arguments, code, part) in cases {
            scope.spawn(move || {
                let (found, line) = bench(arguments);
                assert_eq!(found, code, "{arguments:?}: {line}");
                assert!(line.contains(part), "{arguments:?}: {line}");
            });
        }
    });
}

#[test]
fn bench_that_is_interrupted_leaves_no_process_and_no_file() {
    let Some(fixture) = Fixture::new("bench_interrupted") else { return };
    let mut command = fixture.lanefs(["bench", "getattr", "--time", "60s", "--dir"]);
    let mut process = Process::start(command.arg(fixture.path("")));
    let serving = || crate::fixture::child_of(process.pid(), "serve");
    until("its server runs", || serving().is_some());
    let server = serving().unwrap();
    process.signal(Signal::INT);
    let status = process.end();
    assert_eq!(status.code(), Some(1), "{}", process.said());
    assert!(process.said().contains("interrupted"), "{}", process.said());
    assert!(!crate::fixture::is_alive(server));
    assert_eq!(fs::read_dir(fixture.path("")).unwrap().count(), 0);
}

#[test]
fn bench_of_lists_counts_bytes_of_lists_and_of_single_pieces() {
    let Some(fixture) = Fixture::new("bench_lists") else { return };
    let found = rows(&fixture, &["lists"]);
    assert_eq!(found.len(), 8);
    for way in ["read", "write"] {
        for (kind, op_mb) in [("list", 64.0 * 0.004_096), ("4 KiB", 0.004_096)] {
            let name = format!("{way} {kind}");
            let rows: Vec<&Value> = found.iter().filter(|row| row["row"] == *name).collect();
            assert_eq!(rows.len(), 2, "depths of {name}");
            for row in rows {
                assert_moves(row, op_mb);
                let is_held = kind == "list";
                assert_eq!(row["limit"] == format!("{way} 4 KiB"), is_held, "{row}");
                assert_eq!(row["limit"].is_null(), !is_held, "{row}");
                print(row, &["ratio_to_limit"]);
            }
        }
    }
}

#[test]
fn bench_of_fairness_has_the_modest_served_beside_every_greed() {
    let Some(fixture) = Fixture::new("bench_fair") else { return };
    let found = rows(&fixture, &["fair"]);
    assert_eq!(found.len(), 6, "{found:?}");
    for row in &found {
        assert!(number(row, "ops_per_s") > 0.0 && number(row, "p99_us") > 0.0, "{row}");
        let alone = row["row"] == "alone";
        assert_eq!(row["ratio_to_limit"].is_null(), alone, "{row}");
    }
}

#[test]
fn bench_of_affinity_has_every_mode_and_counts_crossings() {
    let Some(fixture) = Fixture::new("bench_affinity") else { return };
    let found = rows(&fixture, &["affinity", "--lanes", "2", "--clients", "1,16"]);
    // Lanes, kinds of work, clients, sides.
    assert_eq!(found.len(), 2 * 3 * 2 * 3, "{found:?}");
    for row in &found {
        let name = row["row"].as_str().unwrap();
        assert!(number(row, "ops_per_s") > 0.0, "{row}");
        measured(row, "cpu_us_per_op");
        assert!(row["note"].as_str().unwrap().contains("of requests crossed lanes"), "{row}");
        // What crosses is two messages; how many of them fall into the measured time is the machine's.
        // `affinity::whatever_sockets_follow...` counts them from outside.
        assert!(row["lanes"] != 1 || number(row, "hops_per_op") == 0.0, "{row}");
        assert_eq!(row["limit"].is_null(), name.ends_with(" object"), "{row}");
        let of_object = |limit: &str| limit.ends_with(" object");
        assert!(row["limit"].as_str().is_none_or(of_object), "{row}");
        print(row, &["hops_per_op", "exchanges_per_op", "note"]);
    }
}

#[test]
fn bench_of_small_reads_and_writes_has_rows_of_pread_and_pwrite() {
    let Some(fixture) = Fixture::new("bench_brw") else { return };
    let found = rows(&fixture, &["brw", "--clients", "1,16"]);
    for (ours, limit) in [("read", "pread"), ("write", "pwrite")] {
        for clients in [1, 16] {
            let row = of(&found, ours, clients);
            assert_sane(row);
            assert_eq!(row["limit"], limit, "{row}");
            for row in [row, of(&found, limit, clients)] {
                assert_moves(row, 0.004_096);
            }
        }
    }
}

#[test]
fn bench_of_busy_cores_has_all_sides_and_leaves_nothing() {
    let Some(fixture) = Fixture::new("bench_busy") else { return };
    let found = rows(&fixture, &["busy"]);
    assert_eq!(found.len(), 2 * 2 * 4, "{found:?}");
    for row in &found {
        let name = row["row"].as_str().unwrap();
        assert!(number(row, "p99_us") > 0.0, "{row}");
        assert_eq!(row["ratio_to_limit"].is_null(), !name.contains("pinned"), "{row}");
    }
    let left: Vec<_> =
        fs::read_dir(fixture.path("")).unwrap().map(|entry| entry.unwrap()).collect();
    let left: Vec<_> = left.iter().filter(|entry| entry.path().is_dir()).collect();
    assert!(left.iter().all(|entry| entry.file_name() == "config"), "{left:?}");
}

#[test]
fn bench_of_the_seeds_writes_a_report_with_plots() {
    let Some(fixture) = Fixture::new("bench_seeds") else { return };
    let out = fixture.path("report");
    let mut command = fixture.lanefs(["bench", "seeds", "--time", "50ms", "--rounds", "1"]);
    command.arg("--out").arg(&out).arg("--dir").arg(fixture.path(""));
    let said = must(&mut command);
    let report = out.join("seeds.md");
    assert_eq!(said.trim_end(), report.to_str().unwrap());
    let text = fs::read_to_string(&report).unwrap();
    for number in ["000", "001", "002", "003", "004"] {
        assert!(text.contains(&format!("## {number}: ")), "{number} is missing: {text}");
    }
    for question in ["What do four hops cost?", "cheaper than a pool?", "commit-on-share's price?"]
    {
        assert!(text.contains(question), "{question} is not answered: {text}");
    }
    // Every picture that is shown is there, and is one.
    let shown = text.lines().filter_map(|line| line.strip_suffix(')')?.rsplit_once("]("));
    let mut picture_count = 0;
    for (_, name) in shown {
        let svg = fs::read_to_string(out.join(name)).unwrap();
        assert!(svg.starts_with("<svg") && svg.trim_end().ends_with("</svg>"), "{name}: {svg}");
        picture_count += 1;
    }
    assert!(picture_count >= 12, "{picture_count} pictures in {text}");
    // The report's numbers are those of the rows.
    let lines = fs::read_to_string(out.join("seeds.jsonl")).unwrap();
    let rows: Vec<Value> = lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert!(rows.iter().any(|row| row["row"] == "layers, 4 hops"), "{lines}");
    assert!(rows.iter().any(|row| row["bench"] == "shared-file"), "{lines}");
}

#[test]
fn bench_of_the_seeds_refuses_conflicting_options() {
    let Some(fixture) = Fixture::new("bench_seeds_alone") else { return };
    for more in [["seeds", "echo"], ["seeds", "--json"]] {
        let (_, error) = failure(&fixture.lanefs(["bench"]).args(more).output().unwrap());
        assert!(error.contains("no other benchmark"), "{error}");
    }
    let mut command = fixture.lanefs(["bench", "seeds", "--out", "/dev/null/report"]);
    let (_, error) = failure(&command.output().unwrap());
    assert!(error.contains("cannot make the report's folder /dev/null/report"), "{error}");
}

#[test]
fn bench_versus_compares_a_mount_and_its_peer_with_a_directory() {
    let Some(fixture) = Fixture::new("bench_versus") else { return };
    let local = fixture.make_dir("local");
    let up = fixture.up(&[]);
    let second = fixture.mount(&up.address, "second", &["--export", "up"]);
    let named = |name: &str, dir: &Path| format!("{name}={}", dir.display());
    let mut command = fixture.lanefs(["bench", "versus", "--json", "--quick", "--rounds", "2"]);
    command.args(["--dir", &named("local", &local), "--dir", &named("mount", &up.dir)]);
    command.args(["--peer", &named("mount", &second.dir)]);
    let rows =
        ["stat", "stat absent", "create", "tar x", "peer: closed", "peer: open", "peer: names"];
    for row in rows {
        command.args(["--row", row]);
    }
    let text = must(&mut command);
    let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines.len(), 2 * rows.len(), "{text}");
    for (line, row) in lines.iter().zip(rows.iter().flat_map(|row| [row, row])) {
        assert_eq!(line["row"], **row, "in their order");
        if line["directory"] == "local" && row.starts_with("peer") {
            assert_eq!(line["failure"], "no --peer", "{line}");
            continue;
        }
        assert!(line["failure"].is_null(), "{line}");
        assert!(number(line, "us_per_op") > 0.0, "{line}");
        let is_compared = !row.starts_with("peer");
        assert_eq!(line["ratio"].is_f64(), is_compared, "{line}");
        for kind in ["stale", "wrong", "ESTALE", "other errors"] {
            assert!(is_compared || line["anomalies"][kind] == 0, "{line}");
        }
        print(line, &["directory", "us_per_op", "ratio"]);
    }
    for dir in [&local, &up.dir] {
        assert_eq!(fs::read_dir(dir).unwrap().count(), 0, "{}", dir.display());
    }
    second.stop();
    up.stop();
}

#[test]
fn bench_versus_that_is_interrupted_leaves_nothing() {
    let Some(fixture) = Fixture::new("bench_versus_interrupted") else { return };
    let dir = fixture.make_dir("dir");
    let mut command = fixture.lanefs(["bench", "versus", "--row", "create", "--rounds", "1000"]);
    let mut process = Process::start(command.args(["--dir", &format!("dir={}", dir.display())]));
    until("it has begun", || fs::read_dir(&dir).unwrap().next().is_some());
    process.signal(Signal::INT);
    let status = process.end();
    assert_eq!(status.code(), Some(1), "{}", process.said());
    assert!(process.said().contains("interrupted"), "{}", process.said());
    assert_eq!(fs::read_dir(&dir).unwrap().count(), 0);
}
